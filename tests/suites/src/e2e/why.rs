//! `orc why` on what the cases make: on the real cluster, too, the deepest blocker must be named.

use std::{
    env, fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use ::why::{
    Explanation,
    gather::{GatherError, Options, Target, TargetKind},
};
use anyhow::{Context, Result, bail, ensure};
use api::{
    Timestamp,
    apps::ManagedApp,
    notebooks::NotebookValidationJob,
    tasks::{DocsRun, TaskRun},
    tenants::Tenant,
};
use kube::{
    Api, Client, ResourceExt,
    core::{ApiResource, DynamicObject},
};
use testkit::wait::until;

/// Names a folder: what was read is written there, to become worlds of `crates/why/tests`.
const RECORD: &str = "ORCHESTRATOR_RECORD_WORLDS";

/// Which object is the deepest, for each reason of a run that waits or failed, of a Tenant that is not
/// ready or not isolated, and of a ManagedApp that is not ready.
const DEEPEST: &[(&str, &[&str])] = &[
    ("AddressNotAllowed", &["Configuration"]),
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
    ("AlreadySuspended", &["HelmRelease", "Kustomization"]),
    ("AppOverlaps", &["ManagedApp"]),
    ("BranchMoved", &["Repository"]),
    ("BranchNotFound", &["Repository"]),
    (
        "Cancelled",
        &["TaskRun", "DocsRun", "NotebookValidationJob"],
    ),
    ("CertificateNotTrusted", &["Secret", "Repository"]),
    ("ApiUnavailable", &["APIServer", "AdmissionWebhook"]),
    (
        "ChildNameTaken",
        &["ConfigMap", "DocsRun", "Job", "Secret", "TaskRun"],
    ),
    ("CloneFailed", &["Repository", "Pod"]),
    ("Cloning", &["Pod"]),
    ("ContainerNotStartable", &["Pod"]),
    ("ContextTooLarge", &["TaskRun"]),
    ("CrashLoop", &["Pod"]),
    ("CredentialsInvalid", &["Secret"]),
    ("AuthenticationFailed", &["Secret", "Repository"]),
    ("DeadlineExceeded", &["Pod", "Cell", "Notebook"]),
    (
        "Deleting",
        &["Job", "Pod", "TaskRun", "DocsRun", "NotebookValidationJob"],
    ),
    ("Disrupted", &["Node", "Pod"]),
    ("EvidenceLost", &["Job", "Pod"]),
    ("UnmanagedPolicy", &["NetworkPolicy"]),
    ("FluxNotInstalled", &["CustomResourceDefinition"]),
    ("FluxObjectNotFound", &["HelmRelease", "Kustomization"]),
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
    ("OutputTooLarge", &["Agent", "Pod", "Cell", "Notebook"]),
    ("DNSUnreachable", &["Connection"]),
    ("PathNotFound", &["DocsRun", "Repository"]),
    ("PoliciesDisabled", &["Tenant"]),
    ("PolicyNotEnforced", &["Connection"]),
    ("ProbeFailed", &["Pod"]),
    ("ProbesDisabled", &["Tenant"]),
    (
        "IsolationCheckFailed",
        &[
            "Configuration",
            "NetworkPolicy",
            "Pod",
            "PriorityClass",
            "ResourceQuota",
        ],
    ),
    ("IsolationCheckPending", &["Pod", "Tenant"]),
    ("PublishFailed", &["Repository", "Pod"]),
    ("Publishing", &["Pod", "Repository"]),
    ("PushRejected", &["Repository"]),
    ("QuotaExceeded", &["ResourceQuota", "Job"]),
    ("Ready", &["Tenant"]),
    ("ReleaseUnreadable", &["HelmRelease"]),
    ("RepositoryNotFound", &["Repository"]),
    ("RepositoryTooLarge", &["Repository"]),
    ("RepositoryUnreachable", &["Repository"]),
    ("ResultInvalid", &["Pod"]),
    ("ResultMissing", &["Pod"]),
    ("ResultTooLarge", &["Pod"]),
    ("SecretNotFound", &["ConfigMap", "Secret"]),
    ("OOMKilled", &["Pod", "Cell", "Notebook"]),
    (
        "Suspended",
        &["TaskRun", "DocsRun", "Tenant", "NotebookValidationJob"],
    ),
    ("TaskTaken", &["TaskRun"]),
    ("TooManyDisruptions", &["Pod", "TaskRun", "DocsRun"]),
    ("Unhealthy", &["Kustomization", "Pod"]),
    ("Unschedulable", &["Node", "Pod"]),
    ("Verifying", &["Repository"]),
    (
        "VolumeNotReady",
        &["CSIDriver", "PersistentVolumeClaim", "Pod", "StorageClass"],
    ),
    ("ExitContradicted", &["Pod"]),
    ("InternalError", &["NotebookValidationJob"]),
    ("RefNotFound", &["Repository"]),
    ("RefAmbiguous", &["Repository"]),
    ("NotebookNotFound", &["Repository"]),
    ("GoldenNotFound", &["Repository"]),
    ("NotebookInvalid", &["Notebook"]),
    ("GoldenEmpty", &["Notebook"]),
    ("NothingValidated", &["Notebook"]),
    ("NothingCompared", &["Notebook"]),
    ("PatternInvalid", &["NotebookValidationJob"]),
    ("KernelNotFound", &["Image"]),
    ("KernelDied", &["Cell", "Notebook"]),
    ("CellFailed", &["Cell"]),
    ("CellTimeout", &["Cell"]),
    ("Mismatch", &["Cell"]),
    ("ExpectationFailed", &["Cell"]),
    ("OutputOnStderr", &["Cell"]),
    ("WarningsFound", &["Cell"]),
    ("CellsSkipped", &["Cell"]),
    ("Fetching", &["Pod"]),
    ("ReadingResult", &["Pod"]),
];

/// Reasons that name no blocker.
const WITHOUT_BLOCKER: &[&str] = &["", "Progressing", "Succeeded"];

/// An object that changes each time that it is asked about is a failure after so many times.
const TRIES: usize = 10;

/// The operator follows within this time where the cluster is ahead of a status.
const CATCH_UP: Duration = Duration::from_secs(15);

/// Explanations that were checked, and objects that had no blocker any more when they were.
static CHECKED: AtomicUsize = AtomicUsize::new(0);
static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Counts of all explanations of this process so far.
pub(super) fn tally() -> String {
    format!(
        "orc why: {} checked, {} skipped",
        CHECKED.load(Ordering::Relaxed),
        SKIPPED.load(Ordering::Relaxed)
    )
}

/// One version of an object, read by the test itself.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    number: Option<String>,
    reason: String,
}

/// Asks about a run, a Tenant or a ManagedApp that reports `reason`, and checks the explanation. For a Tenant
/// that is ready, `reason` is that of its condition `NetworkIsolated`; its `namespace` is empty. The operator's
/// Lease is in the namespace `home`.
///
/// The explanation must have the reason of the object as it is at that time. Asks again only if the object
/// changed meanwhile.
pub(super) async fn ask(
    client: &Client,
    kind: TargetKind,
    (namespace, name): (&str, &str),
    home: &str,
    reason: &str,
) -> Result<()> {
    if WITHOUT_BLOCKER.contains(&reason) {
        return Ok(());
    }
    let target = Target {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let mut last = String::new();
    for _ in 0..TRIES {
        let Some(before) = version(client, &target).await? else {
            return skip(&target, reason, "is deleted");
        };
        let Some((found, text)) = explanation(client, &target, home, &before.reason).await? else {
            return skip(&target, reason, "is deleted");
        };
        let Some(after) = version(client, &target).await? else {
            return skip(&target, reason, "is deleted");
        };
        match check(kind, &after.reason, &found) {
            Ok(()) if WITHOUT_BLOCKER.contains(&after.reason.as_str()) => {
                return skip(&target, reason, &format!("reports '{}'", after.reason));
            }
            Ok(()) => {
                CHECKED.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Err(error) if before != after => last = format!("{error:#}:\n{text}"),
            // The cluster is ahead of the status. The status must follow.
            Err(error) if found.outdated.is_some() => {
                last = format!("{error:#}:\n{text}");
                changed(client, &target, &after)
                    .await
                    .with_context(|| last.clone())?;
            }
            Err(error) => bail!("{error:#}:\n{text}"),
        }
    }
    bail!("'{name}' changed {TRIES} times while it was asked about; the last time {last}")
}

/// Counts an object that went on before it could be asked about, and prints it.
fn skip(target: &Target, reason: &str, now: &str) -> Result<()> {
    SKIPPED.fetch_add(1, Ordering::Relaxed);
    println!(
        "        orc why: not checked: {} '{}' reported '{reason}', and now {now}",
        target.kind.name(),
        target.name
    );
    Ok(())
}

/// Reads an object, or `None` if it does not exist.
async fn version(client: &Client, target: &Target) -> Result<Option<Version>> {
    let Target {
        kind,
        namespace,
        name,
    } = target;
    let objects: Api<DynamicObject> = match kind {
        TargetKind::TaskRun => {
            let resource = ApiResource::erase::<TaskRun>(&());
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        TargetKind::DocsRun => {
            let resource = ApiResource::erase::<DocsRun>(&());
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        TargetKind::ManagedApp => {
            let resource = ApiResource::erase::<ManagedApp>(&());
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        TargetKind::Notebook => {
            let resource = ApiResource::erase::<NotebookValidationJob>(&());
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        TargetKind::Tenant => Api::all_with(client.clone(), &ApiResource::erase::<Tenant>(&())),
        TargetKind::Agent | TargetKind::Job | TargetKind::Pod | TargetKind::Other(_) => {
            bail!("no case asks about a {}", kind.name())
        }
    };
    let object = objects.get_opt(name).await?;
    Ok(object.map(|object| Version {
        number: object.resource_version(),
        reason: reported(*kind, &object),
    }))
}

/// The reason that a status reports: of a run, that of its condition `Succeeded`; of a ManagedApp, that of
/// `Ready`; of a Tenant, that of `Ready`, or of `NetworkIsolated` if it is ready and not isolated.
fn reported(kind: TargetKind, object: &DynamicObject) -> String {
    let conditions = object.data["status"]["conditions"].as_array();
    let of = |wanted: &str| {
        let one = conditions.and_then(|all| all.iter().find(|one| one["type"] == wanted));
        let text = |key: &str| one.and_then(|one| one[key].as_str()).unwrap_or_default();
        (text("status").to_owned(), text("reason").to_owned())
    };
    if kind == TargetKind::ManagedApp {
        return of("Ready").1;
    }
    if kind != TargetKind::Tenant {
        return of("Succeeded").1;
    }
    let (ready, reason) = of("Ready");
    let (isolated, why) = of("NetworkIsolated");
    let is_deleting = object.metadata.deletion_timestamp.is_some();
    if ready == "True" && isolated != "True" && !is_deleting {
        why
    } else {
        reason
    }
}

/// Waits until an object has another version.
async fn changed(client: &Client, target: &Target, old: &Version) -> Result<()> {
    until("the status to follow the cluster", CATCH_UP, async || {
        let now = version(client, target).await?;
        Ok(if now.as_ref() == Some(old) {
            Err(format!("{old:?}"))
        } else {
            Ok(())
        })
    })
    .await
}

/// Explains an object as `orc why` does, with the text that `orc why` prints; `None` if it does not exist.
async fn explanation(
    client: &Client,
    target: &Target,
    home: &str,
    reason: &str,
) -> Result<Option<(Explanation, String)>> {
    let options = Options {
        operator_namespace: Some(home.to_owned()),
        ..Options::at(now())
    };
    let world = match why::gather(client.clone(), target.clone(), options).await {
        Ok(world) => world,
        Err(GatherError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    record(&target.name, reason, &world)?;
    let found = why::explain(&world);
    let text = why::render(&found, 100, false);
    Ok(Some((found, text)))
}

/// Explains a ManagedApp. Returns the chain, from the ManagedApp to the deepest blocker: kind and name of each object.
pub(super) async fn chain(
    client: &Client,
    (namespace, name): (&str, &str),
    home: &str,
    reason: &str,
) -> Result<Vec<(String, String)>> {
    let target = Target {
        kind: TargetKind::ManagedApp,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let found = explanation(client, &target, home, reason).await?;
    let (found, _) = found.with_context(|| format!("ManagedApp '{name}' does not exist"))?;
    let links = found.chain.into_iter();
    Ok(links
        .map(|link| (link.object.kind, link.object.name))
        .collect())
}

/// Checks that an explanation has the reason that the object reports, and names the right blocker.
fn check(kind: TargetKind, reason: &str, found: &Explanation) -> Result<()> {
    ensure!(
        found.reason == reason,
        "orc why says '{}', the object '{reason}'",
        found.reason
    );
    if WITHOUT_BLOCKER.contains(&reason) {
        return Ok(());
    }
    let deepest = found.chain.last().context("no chain")?;
    let blocker = deepest.object.kind.as_str();
    let known = DEEPEST.iter().find(|(known, _)| *known == reason);
    let is_cause = match reason {
        // What is left in a namespace can be of any type.
        "Deleting" | "DeletionBlocked" | "NamespaceTerminating" if kind == TargetKind::Tenant => {
            true
        }
        // What kept it from starting is below: any of the above.
        "StartTimeout" => DEEPEST.iter().any(|(_, kinds)| kinds.contains(&blocker)),
        _ => known
            .with_context(|| format!("'{reason}' is not in the table"))?
            .1
            .contains(&blocker),
    };
    ensure!(is_cause, "the deepest for {reason} is a {blocker}");
    ensure!(!deepest.evidence.is_empty(), "no evidence");
    ensure!(
        !found.next_steps.is_empty() && !found.advice.is_empty(),
        "no advice"
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
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(reason: &str, deepest: &str) -> Explanation {
        let object = json!({ "kind": deepest, "namespace": "a", "name": "b" });
        serde_json::from_value(json!({
            "at": "2026-01-01T00:00:00Z", "target": object, "subject": object, "state": "Blocked",
            "reason": reason, "summary": "", "advice": "wait",
            "nextSteps": [{ "command": "kubectl get", "description": "to see" }],
            "chain": [{
                "object": object, "health": "Error", "reason": reason, "message": "",
                "evidence": [{ "source": "status", "text": "none" }],
            }],
        }))
        .unwrap()
    }

    #[test]
    fn another_reason_than_the_objects_is_an_error() {
        let check = |reason: &str, found: &Explanation| check(TargetKind::TaskRun, reason, found);
        assert!(check("QuotaExceeded", &found("QuotaExceeded", "ResourceQuota")).is_ok());
        for (reason, found) in [
            ("QuotaExceeded", found("Unschedulable", "ResourceQuota")),
            ("QuotaExceeded", found("Progressing", "ResourceQuota")),
            ("Progressing", found("QuotaExceeded", "ResourceQuota")),
            ("QuotaExceeded", found("QuotaExceeded", "Pod")),
            ("Unheard", found("Unheard", "Pod")),
        ] {
            assert!(check(reason, &found).is_err(), "{reason}: {found:?}");
        }
    }

    #[test]
    fn the_reason_is_that_of_the_condition_which_counts() {
        let object = |ready: &str, isolated: &str| -> DynamicObject {
            let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": kind });
            let conditions = [
                condition("Succeeded", "Unknown"),
                condition("Ready", ready),
                condition("NetworkIsolated", isolated),
            ];
            let status = json!({ "conditions": conditions });
            serde_json::from_value(json!({ "metadata": { "name": "a" }, "status": status }))
                .unwrap()
        };
        for (kind, ready, isolated, reason) in [
            (TargetKind::TaskRun, "True", "False", "Succeeded"),
            (TargetKind::ManagedApp, "True", "False", "Ready"),
            (TargetKind::Tenant, "False", "False", "Ready"),
            (TargetKind::Tenant, "True", "False", "NetworkIsolated"),
            (TargetKind::Tenant, "True", "Unknown", "NetworkIsolated"),
            (TargetKind::Tenant, "True", "True", "Ready"),
        ] {
            assert_eq!(reported(kind, &object(ready, isolated)), reason);
        }
    }
}
