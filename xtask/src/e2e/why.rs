//! `orc why` on what the cases make: on the real cluster, too, the deepest blocker must be named.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use api::Timestamp;
use kube::Client;
use why::gather::{Options, Target, TargetKind};

/// Names a folder: what was read is written there, to become worlds of `crates/why/tests`.
const RECORD: &str = "ORCHESTRATOR_RECORD_WORLDS";

/// Which object is the deepest, for each reason of a run that waits or failed.
const DEEPEST: &[(&str, &[&str])] = &[
    ("AddressRefused", &["Configuration"]),
    (
        "AdmissionDenied",
        &["Namespace", "ValidatingAdmissionPolicy", "Job"],
    ),
    ("AgentNotFound", &["Agent"]),
    ("AgentNotReady", &["ServiceAccount"]),
    ("BranchMoved", &["Repository"]),
    ("BranchNotFound", &["Repository"]),
    ("Cancelled", &["TaskRun", "DocsRun"]),
    ("CertificateNotTrusted", &["Secret", "Repository"]),
    ("ChildNameTaken", &["ConfigMap", "Job"]),
    ("CloneFailed", &["Repository", "Pod"]),
    ("Cloning", &["Pod"]),
    ("ContextTooLarge", &["TaskRun"]),
    ("CredentialsInvalid", &["Secret"]),
    ("CredentialsRefused", &["Secret", "Repository"]),
    ("DeadlineExceeded", &["Pod"]),
    ("Deleting", &["Job", "Pod", "TaskRun", "DocsRun"]),
    ("Disrupted", &["Node", "Pod"]),
    ("EvidenceLost", &["Job", "Pod"]),
    ("HostKeyUnknown", &["Secret", "Repository"]),
    ("ImageNeedsRoot", &["Pod"]),
    ("ImagePullFailed", &["Configuration", "Pod"]),
    ("InvalidChild", &["Job", "Agent", "DocsRun"]),
    ("JobLost", &["Job"]),
    ("NoChanges", &["Agent", "Pod"]),
    ("NonZeroExit", &["Attempt", "Pod", "TaskRun", "DocsRun"]),
    ("NotVerified", &["Repository"]),
    ("OutputTooLarge", &["Agent", "Pod"]),
    ("PathNotFound", &["DocsRun", "Repository"]),
    ("PublishFailed", &["Repository", "Pod"]),
    ("Publishing", &["Pod", "Repository"]),
    ("PushRefused", &["Repository"]),
    ("QuotaExceeded", &["ResourceQuota"]),
    ("RepositoryNotFound", &["Repository"]),
    ("RepositoryTooLarge", &["Repository"]),
    ("RepositoryUnreachable", &["Repository"]),
    ("ResultInvalid", &["Pod"]),
    ("ResultMissing", &["Pod"]),
    ("ResultTooLarge", &["Pod"]),
    ("SecretNotFound", &["Secret"]),
    ("StepOOM", &["Pod"]),
    ("Suspended", &["TaskRun", "DocsRun"]),
    ("TooManyDisruptions", &["Pod", "TaskRun", "DocsRun"]),
    ("Unschedulable", &["Node", "Pod"]),
    ("Verifying", &["Repository"]),
];

/// Asks about a run that says `reason`, and looks at the answer.
pub(super) async fn ask(
    client: &Client,
    kind: TargetKind,
    namespace: &str,
    name: &str,
    reason: &str,
) -> Result<()> {
    if ["", "Progressing", "Succeeded"].contains(&reason) {
        return Ok(());
    }
    let target = Target {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let options = Options {
        operator_namespace: Some(namespace.to_owned()),
        ..Options::at(now())
    };
    let world = why::gather(client.clone(), target, options).await?;
    let found = why::explain(&world);
    let text = why::render(&found, 100, false);
    record(name, reason, &world)?;
    // It may have gone on meanwhile.
    if found.reason != reason {
        return Ok(());
    }
    let deepest = found.chain.last().context("no chain")?;
    let kind = deepest.object.kind.as_str();
    let known = DEEPEST.iter().find(|(known, _)| *known == reason);
    let is_cause = match reason {
        // What kept it from starting is below: any of the above.
        "StartTimeout" => DEEPEST.iter().any(|(_, kinds)| kinds.contains(&kind)),
        _ => known
            .with_context(|| format!("'{reason}' is not in the table"))?
            .1
            .contains(&kind),
    };
    ensure!(is_cause, "the deepest for {reason} is a {kind}:\n{text}");
    ensure!(!deepest.evidence.is_empty(), "no evidence:\n{text}");
    ensure!(
        !found.next.is_empty() && !found.advice.is_empty(),
        "no advice:\n{text}"
    );
    Ok(())
}

fn record(name: &str, reason: &str, world: &why::World) -> Result<()> {
    let Some(folder) = env::var_os(RECORD).map(PathBuf::from) else {
        return Ok(());
    };
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("recorded-{name}-{}.json", reason.to_lowercase()));
    let text = serde_json::to_string_pretty(world)?;
    fs::write(&file, text + "\n").with_context(|| format!("'{}'", file.display()))
}

#[expect(clippy::disallowed_methods, reason = "a test asks now, as a user does")]
fn now() -> Timestamp {
    Timestamp::now()
}
