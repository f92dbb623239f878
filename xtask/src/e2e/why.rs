//! `orc why` on what the cases make: on the real cluster, too, the deepest blocker must be named.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use api::Timestamp;
use kube::Client;
use why::gather::{Options, Target, TargetKind};

/// Names a folder: what was read is written there, to become worlds of `crates/why/tests`.
const RECORD: &str = "ORCHESTRATOR_RECORD_WORLDS";

/// Where the operator of Tenants is: they are in no namespace.
const HOME: &str = "orchestrator";

/// Which object is the deepest, for each reason of a run that waits or failed, and of a Tenant that is not
/// ready or not isolated.
const DEEPEST: &[(&str, &[&str])] = &[
    ("AddressRefused", &["Configuration"]),
    (
        "AdmissionDenied",
        &[
            "AdmissionWebhook",
            "Job",
            "LimitRange",
            "Namespace",
            "ValidatingAdmissionPolicy",
        ],
    ),
    ("AgentNotFound", &["Agent"]),
    ("AgentNotReady", &["ServiceAccount"]),
    ("BranchMoved", &["Repository"]),
    ("BranchNotFound", &["Repository"]),
    ("Cancelled", &["TaskRun", "DocsRun"]),
    ("CertificateNotTrusted", &["Secret", "Repository"]),
    ("ChildNameTaken", &["ConfigMap", "Job", "Secret"]),
    ("CloneFailed", &["Repository", "Pod"]),
    ("Cloning", &["Pod"]),
    ("ContainerNotStartable", &["Pod"]),
    ("ContextTooLarge", &["TaskRun"]),
    ("CrashLoop", &["Pod"]),
    ("CredentialsInvalid", &["Secret"]),
    ("CredentialsRefused", &["Secret", "Repository"]),
    ("DeadlineExceeded", &["Pod"]),
    ("Deleting", &["Job", "Pod", "TaskRun", "DocsRun"]),
    ("Disrupted", &["Node", "Pod"]),
    ("EvidenceLost", &["Job", "Pod"]),
    ("ForeignPolicy", &["NetworkPolicy"]),
    ("HostKeyUnknown", &["Secret", "Repository"]),
    ("ImageNeedsRoot", &["Pod"]),
    ("ImagePullFailed", &["Configuration", "Pod"]),
    ("InvalidChild", &["Job", "Agent", "DocsRun", "Tenant"]),
    ("Isolated", &["Tenant"]),
    ("JobLost", &["Job"]),
    ("NamespaceTaken", &["Namespace"]),
    ("NoChanges", &["Agent", "Pod"]),
    ("NonZeroExit", &["Attempt", "Pod", "TaskRun", "DocsRun"]),
    ("NothingToProbe", &["Tenant"]),
    (
        "NotReady",
        &[
            "Deployment",
            "Node",
            "Pod",
            "Service",
            "StatefulSet",
            "Tenant",
        ],
    ),
    ("NotVerified", &["Repository"]),
    ("OutputTooLarge", &["Agent", "Pod"]),
    ("PathBlocked", &["Connection"]),
    ("PathNotFound", &["DocsRun", "Repository"]),
    ("PoliciesDisabled", &["Tenant"]),
    ("PolicyNotEnforced", &["Connection"]),
    ("ProbeFailed", &["Pod"]),
    ("ProbesOff", &["Tenant"]),
    (
        "ProofFailed",
        &[
            "Configuration",
            "NetworkPolicy",
            "Pod",
            "PriorityClass",
            "ResourceQuota",
        ],
    ),
    ("ProofPending", &["Pod", "Tenant"]),
    ("PublishFailed", &["Repository", "Pod"]),
    ("Publishing", &["Pod", "Repository"]),
    ("PushRefused", &["Repository"]),
    ("QuotaExceeded", &["ResourceQuota"]),
    ("Ready", &["Tenant"]),
    ("RepositoryNotFound", &["Repository"]),
    ("RepositoryTooLarge", &["Repository"]),
    ("RepositoryUnreachable", &["Repository"]),
    ("ResultInvalid", &["Pod"]),
    ("ResultMissing", &["Pod"]),
    ("ResultTooLarge", &["Pod"]),
    ("SecretNotFound", &["Secret"]),
    ("StepOOM", &["Pod"]),
    ("Suspended", &["TaskRun", "DocsRun", "Tenant"]),
    ("TooManyDisruptions", &["Pod", "TaskRun", "DocsRun"]),
    ("Unschedulable", &["Node", "Pod"]),
    ("Verifying", &["Repository"]),
    (
        "VolumeNotReady",
        &["CSIDriver", "PersistentVolumeClaim", "Pod", "StorageClass"],
    ),
];

/// Asks about a run or a Tenant that says `reason`, and looks at the answer. For a Tenant that is ready,
/// `reason` is that of its condition `NetworkIsolated`; its `namespace` is empty.
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
    let is_tenant = kind == TargetKind::Tenant;
    let target = Target {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let options = Options {
        operator_namespace: Some(match kind {
            TargetKind::Tenant => HOME.to_owned(),
            TargetKind::TaskRun
            | TargetKind::DocsRun
            | TargetKind::Agent
            | TargetKind::Job
            | TargetKind::Pod => namespace.to_owned(),
        }),
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
        // What is left in a namespace can be of any type.
        "Deleting" | "DeletionBlocked" | "NamespaceTerminating" if is_tenant => true,
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
