//! Provisions a volume from a snapshot, next to the volume of the application. Destroys nothing.

use api::{
    Reason,
    apps::{PlannedRestore, ROLLBACK_REQUEST, RestoredVolume, rollback_intent},
    decide::{Effect, Manifest, ResourceType},
    names,
};
use attempts::step::{self, StepContainer, StepSettings};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, SeccompProfile, Volume,
    VolumeDevice,
};
use serde_json::{Value, json};

use super::{
    Owner,
    swap::{self, SwapStep},
    volume::{Binder, CLAIM, VolumeObjects},
};
use crate::{discover::Problem, upgrade::storage::VOLUME_SNAPSHOT};

/// Name of the step and of its container.
pub const CONTAINER: &str = "bind";

/// Exit code of the step: the volume of the application has entries, and the restored one has none.
const EXIT_EMPTY: i32 = 3;

/// Name of the restored volume in the Pod. The step finds it at this path.
const NEW: &str = "new";

/// Name of the volume of the application in the Pod.
const OLD: &str = "old";

/// Number of characters of the request's UID in a name.
const UID_CHARS: usize = 8;

/// Time after which the Pod ends itself, from its start.
const POD_SECONDS: i64 = 600;

/// Block devices have no root directory to compare.
const BLOCK: &str = "Block";

/// The next step of a restore.
#[derive(Debug, Clone, PartialEq)]
pub enum RestoreStep {
    /// Carry out this change.
    Act(Box<Effect>, String),
    /// Wait for the cluster.
    Wait(String),
    /// The restore failed. Nothing is lost.
    Failed(Problem),
    /// The restored volume is bound and not empty.
    Done(RestoredVolume),
}

/// Returns the name of the temporary claim. It depends only on the request and the claim, so a second create finds the
/// first one.
#[must_use]
pub fn claim_name(owner: &Owner<'_>, planned: &PlannedRestore) -> String {
    let uid = names::cut(owner.uid, UID_CHARS);
    names::child(&planned.pvc, &format!("-restore-{uid}"))
}

/// Returns the name of the Pod that binds the temporary claim.
#[must_use]
pub fn binder_name(owner: &Owner<'_>, planned: &PlannedRestore) -> String {
    let uid = names::cut(owner.uid, UID_CHARS);
    names::child(&planned.pvc, &format!("-bind-{uid}"))
}

/// Returns the next step.
#[must_use]
pub fn next(
    owner: &Owner<'_>,
    settings: &StepSettings,
    planned: &PlannedRestore,
    seen: &VolumeObjects,
) -> RestoreStep {
    let Some(claim) = &seen.temporary else {
        let snapshot = seen.snapshot.as_ref();
        let is_same = |uid: &String| *uid == planned.snapshot_uid;
        if !snapshot.is_some_and(|one| is_same(&one.uid) && !one.is_deleting && one.is_ready) {
            return failed(
                Reason::RollbackNotAvailable,
                format!(
                    "VolumeSnapshot '{}/{}' does not exist any more, or is not ready",
                    planned.namespace, planned.snapshot
                ),
            );
        }
        let manifest = temporary(owner, planned);
        let message = format!("restores '{}' to a new volume", planned.snapshot);
        return act(manifest, message);
    };
    let id = claim.id();
    if claim.is_deleting || claim.owner.as_deref() != Some(owner.uid) {
        return failed(
            Reason::RestoreNoProgress,
            format!("someone else created or deleted {id}"),
        );
    }
    // The API server drops a source that it does not allow. The volume would be empty.
    if claim.snapshot.as_ref() != Some(&planned.snapshot) {
        return failed(
            Reason::RestoredVolumeEmpty,
            format!("the API server did not keep 'dataSourceRef' of {id}"),
        );
    }
    let Some(binder) = &seen.binder else {
        return match binder_pod(owner, settings, planned, seen) {
            Ok(manifest) => act(manifest, format!("starts a Pod that binds {id}")),
            Err(error) => failed(Reason::InternalError, format!("the Pod: {error}")),
        };
    };
    match (ended(binder), claim.volume.as_ref()) {
        (Some(Err(problem)), _) => RestoreStep::Failed(problem),
        (Some(Ok(())), Some(volume)) if claim.is_bound => RestoreStep::Done(RestoredVolume {
            namespace: planned.namespace.clone(),
            pvc: planned.pvc.clone(),
            pv: volume.clone(),
        }),
        (Some(Ok(())) | None, _) => {
            let cause = binder.cause.iter().map(|cause| format!(": {cause}"));
            let cause: String = cause.collect();
            RestoreStep::Wait(format!("waits until {} has bound {id}{cause}", binder.id()))
        }
    }
}

/// Returns the deletions of everything that a restore has created, or `None` if nothing is left.
#[must_use]
pub fn undo(seen: &VolumeObjects) -> Option<SwapStep> {
    swap::free(seen, |target| target)
}

fn act(manifest: Manifest, message: String) -> RestoreStep {
    let manifest = manifest
        .requires_intent(rollback_intent::CHANGE.to_owned())
        .optional();
    RestoreStep::Act(Box::new(Effect::Ensure(Box::new(manifest))), message)
}

fn failed(reason: Reason, message: String) -> RestoreStep {
    RestoreStep::Failed(Problem::new(reason, message))
}

/// Returns the result of the Pod, or `None` if it has not ended.
fn ended(binder: &Binder) -> Option<Result<(), Problem>> {
    let id = binder.id();
    match (&*binder.phase, binder.exit) {
        ("Succeeded", _) => Some(Ok(())),
        ("Failed", Some(EXIT_EMPTY)) => Some(Err(Problem::new(
            Reason::RestoredVolumeEmpty,
            format!(
                "{id} found no entry in the restored volume, but some in the volume of the application"
            ),
        ))),
        ("Failed", exit) => {
            let code = exit.map_or_else(String::new, |code| format!(" with exit code {code}"));
            Some(Err(Problem::new(
                Reason::RestoreNoProgress,
                format!("{id} failed{code}"),
            )))
        }
        _ if binder.is_deleting => Some(Err(Problem::new(
            Reason::RestoreNoProgress,
            format!("someone else deleted {id}"),
        ))),
        _ => None,
    }
}

fn labels(owner: &Owner<'_>) -> std::collections::BTreeMap<String, String> {
    names::child_labels(ROLLBACK_REQUEST.name(), owner.name, owner.uid)
}

/// Builds the temporary claim. It has no owner reference: an undo deletes it, and a rollback that is completed during its
/// deletion still needs it.
fn temporary(owner: &Owner<'_>, planned: &PlannedRestore) -> Manifest {
    let mut spec = json!({
        "accessModes": planned.access_modes,
        "resources": { "requests": { "storage": planned.size } },
        "dataSourceRef": {
            "apiGroup": VOLUME_SNAPSHOT.group,
            "kind": VOLUME_SNAPSHOT.kind,
            "name": planned.snapshot,
        },
    });
    if let Some(class) = &planned.storage_class {
        spec["storageClassName"] = json!(class);
    }
    if let Some(mode) = &planned.volume_mode {
        spec["volumeMode"] = json!(mode);
    }
    Manifest::new(
        CLAIM,
        Some(&planned.namespace),
        &claim_name(owner, planned),
        owner.uid,
        labels(owner),
        json!({ "spec": spec }),
    )
}

/// Builds the Pod: a claim with `WaitForFirstConsumer` is bound for a Pod only. It runs where the volume of the application
/// can be reached, mounts both read-only, and sets no `fsGroup`, which would change the owner of the user's files.
fn binder_pod(
    owner: &Owner<'_>,
    settings: &StepSettings,
    planned: &PlannedRestore,
    seen: &VolumeObjects,
) -> Result<Manifest, serde_json::Error> {
    let temporary = claim_name(owner, planned);
    let live = seen.claim.as_ref();
    let live = live.filter(|live| planned.pvc_uid.as_ref() == Some(&live.uid) && !live.is_deleting);
    let mut claims = vec![(NEW, temporary.as_str())];
    claims.extend(live.map(|live| (OLD, live.name.as_str())));
    let is_block = planned.volume_mode.as_deref() == Some(BLOCK);
    let mounts = claims
        .iter()
        .filter(|_| !is_block)
        .map(|(name, _)| step::mount(name, &format!("/{name}"), true));
    let mut container = step::container(StepContainer {
        name: CONTAINER,
        image: &settings.toolbox_image,
        mounts: mounts.collect(),
        has_credentials: false,
        environment: Vec::new(),
    });
    if is_block {
        let devices = claims.iter().map(|(name, _)| VolumeDevice {
            name: (*name).to_owned(),
            device_path: format!("/dev/{name}"),
        });
        container.volume_devices = Some(devices.collect());
    }
    let of_claims = claims.iter().map(|(name, claim)| Volume {
        name: (*name).to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: (*claim).to_owned(),
            read_only: Some(true),
        }),
        ..Volume::default()
    });
    let volumes = step::volumes(settings, None).into_iter().chain(of_claims);
    let spec = PodSpec {
        containers: vec![container],
        volumes: Some(volumes.collect()),
        restart_policy: Some("Never".to_owned()),
        active_deadline_seconds: Some(POD_SECONDS),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(step::USER),
            run_as_group: Some(step::USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    };
    let mut body = json!({ "spec": serde_json::to_value(&spec)? });
    let affinity = seen.old.as_ref().and_then(|old| old.affinity.as_ref());
    if let Some(required) = affinity {
        body["spec"]["affinity"] = node_affinity(required);
    }
    Ok(Manifest::new(
        ResourceType::POD,
        Some(&planned.namespace),
        &binder_name(owner, planned),
        owner.uid,
        labels(owner),
        body,
    ))
}

fn node_affinity(required: &Value) -> Value {
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } })
}
