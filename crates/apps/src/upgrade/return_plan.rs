//! Freezes the plan of a rollback: the state of the application now, and the way back to the version before an upgrade.
//!
//! The checks are those of an upgrade, except the health: a rollback repairs an application that is not healthy.

use std::collections::BTreeSet;

use api::{
    Reason,
    apps::{
        ImageChange, MAX_PLANNED_VOLUMES, MAX_PLANNED_WORKLOADS, ManagedAppStatus, NamespacedName,
        PlannedCommit, PlannedVolume, PlannedWorkload, ScalableKind, ScaleDownPolicy,
        TakenSnapshot, UpgradePlan, UpgradeRequest, VersionChange,
    },
    decide::{Effect, Input, Manifest},
};

use super::{
    Request, commit_job,
    git_plan::{self, GitStep, Wanted},
    images,
    plan::{self, NoPlan},
    storage::{SnapshotClass, VolumeState},
    world::{AppState, UpgradeWorld},
};
use crate::{
    discover::Problem,
    flux::HelmReleaseView,
    health::Member,
    versions::exact,
    world::{Discovery, Mounter, Objects},
};

/// Status of a release that Helm has uninstalled.
const UNINSTALLED: &str = "uninstalled";

/// The next step of the plan of a rollback.
pub(crate) enum ReturnStep {
    /// The state of the application, and the change in Git.
    Planned(Box<UpgradePlan>),
    /// The Job that reads the branch does not exist.
    Create(Box<Manifest>),
    /// It may change by itself.
    Wait(Problem),
    /// The request is rejected.
    Reject(Problem),
}

/// Returns the next step. `upgrade` is the plan of the upgrade that is rolled back, and `taken` has its snapshots.
pub(crate) fn next(
    input: &Input<'_, UpgradeRequest, UpgradeWorld>,
    upgrade: &UpgradePlan,
    taken: &[TakenSnapshot],
) -> ReturnStep {
    let request = Request::new(input);
    let name = commit_job::plan_name(request.name());
    // The create of the Job was rejected.
    if let Some(fault) = request.fault
        && request.world.commit.job(&name).is_none()
    {
        return ReturnStep::Reject(Problem::new(fault.reason, fault.message.clone()));
    }
    let (change, state, is_in_git) = match freeze(&request, upgrade, taken) {
        Ok(frozen) => frozen,
        Err(NoPlan::Wait(problem)) => return ReturnStep::Wait(problem),
        Err(NoPlan::Reject(problem)) => return ReturnStep::Reject(problem),
    };
    let wanted = if is_in_git {
        Wanted::Nothing(&upgrade.commit)
    } else {
        Wanted::Back(&upgrade.commit)
    };
    match git_plan::step_back(&request, state, &change, wanted) {
        GitStep::Planned(planned) => ReturnStep::Planned(Box::new(UpgradePlan {
            commit: planned.commit,
            warnings: planned.warnings,
            ..change
        })),
        GitStep::Create(job) => ReturnStep::Create(job),
        GitStep::Wait(problem) => ReturnStep::Wait(problem),
        GitStep::Reject(problem) => ReturnStep::Reject(problem),
    }
}

/// Returns the deletion of the Job of the plan, if it exists. The request owns the Job, so nothing waits for it.
pub(crate) fn job_deletion(input: &Input<'_, UpgradeRequest, UpgradeWorld>) -> Option<Effect> {
    plan::job_deletion(&Request::new(input))
}

/// Returns the plan without the change in Git, and whether Git has the version from before already.
fn freeze<'a>(
    request: &Request<'a>,
    upgrade: &UpgradePlan,
    taken: &[TakenSnapshot],
) -> Result<(UpgradePlan, &'a AppState, bool), NoPlan> {
    let Some(state) = &request.world.app else {
        return Err(NoPlan::Wait(Problem::new(
            Reason::AppNotFound,
            format!("ManagedApp '{}' does not exist", request.app_name()),
        )));
    };
    let observed: ManagedAppStatus = plan::healthy(request, state)?;
    let flux_objects = plan::flux_objects(request, state)?;
    let (chart, is_in_git) = chart(state, upgrade)?;
    if is_in_git && taken.is_empty() {
        return plan::rejected(
            Reason::NothingToChange,
            "Flux already requests the versions from before the upgrade".to_owned(),
        );
    }
    let nothing = Objects::default();
    let objects = match &state.world.discovery {
        Discovery::Found(objects) => objects,
        // Helm has uninstalled the release after a failed upgrade. The snapshots are the only copy of its data.
        Discovery::Failed(_) if state.world.release().is_some_and(is_uninstalled) => &nothing,
        Discovery::Failed(problem) => return Err(NoPlan::Reject(problem.clone())),
    };
    let spec = &state.app.spec;
    let change = UpgradePlan {
        app_uid: state.app.metadata.uid.clone().unwrap_or_default(),
        flux_objects,
        revision: observed.git.map(|git| git.revision),
        release: observed.release,
        chart,
        images: images_before(upgrade),
        commit: PlannedCommit::default(),
        // No snapshot is taken, so the workloads stay stopped until Flux has applied the version.
        scale_down_policy: ScaleDownPolicy::UntilUpgraded,
        is_without_snapshots: taken.is_empty(),
        workloads: if taken.is_empty() {
            // Nothing is restored, so nothing has to be stopped.
            Vec::new()
        } else {
            workloads(request, objects, taken)?
        },
        volumes: volumes(request, taken)?,
        unprotected_volumes: observed.unprotected_volumes,
        warnings: Vec::new(),
        needs_approval: false,
        auto_rollback: false,
        timeouts: spec.phase_timeouts.of_rollback(&spec.health_check),
    };
    Ok((change, state, is_in_git))
}

/// Returns whether Helm has uninstalled the release.
pub(crate) fn is_uninstalled(helm: &HelmReleaseView) -> bool {
    let newest = helm.newest.as_ref();
    newest.is_none_or(|newest| newest.status == UNINSTALLED)
}

/// Returns the change of the version, and whether Git has the version from before already: an earlier rollback may have
/// failed after its commit. The plan of the commit compares the live version with that in Git.
fn chart(state: &AppState, upgrade: &UpgradePlan) -> Result<(VersionChange, bool), NoPlan> {
    let requested = state
        .world
        .release()
        .and_then(|helm| helm.requested.clone());
    if !upgrade.changes_chart() {
        let version = requested.unwrap_or_default();
        let change = VersionChange {
            from: version.clone(),
            to: version,
        };
        return Ok((change, are_images_returned(state, upgrade)));
    }
    let Some(live) = requested else {
        return plan::rejected(
            Reason::SourceNotSupported,
            "the application has no HelmRelease with 'spec.chart.spec.version'".to_owned(),
        );
    };
    if exact(&live).is_none() {
        return plan::rejected(
            Reason::VersionIsRange,
            format!("the HelmRelease requests the range '{live}'. Request one version in Git"),
        );
    }
    let VersionChange {
        from: before,
        to: after,
    } = upgrade.chart.clone();
    let is_in_git = live == before;
    let from = if is_in_git { after } else { live };
    Ok((VersionChange { from, to: before }, is_in_git))
}

/// Returns the way back to the images from before the upgrade.
fn images_before(upgrade: &UpgradePlan) -> Vec<ImageChange> {
    let images = upgrade.images.iter();
    let back = images.map(|image| ImageChange {
        name: image.name.clone(),
        from: image.to.clone(),
        to: image.from.clone(),
    });
    back.collect()
}

/// Returns whether Git has the images from before already. A Kustomization applies the images in Git. Helm may have returned
/// the Pod templates alone, so for a HelmRelease only the step can compare the values.
fn are_images_returned(state: &AppState, upgrade: &UpgradePlan) -> bool {
    let live = images::live(&state.world.discovery);
    let mut images = upgrade.images.iter();
    let is_applied = images.all(|image| live.contains(&*image.from) && !live.contains(&*image.to));
    is_applied && !upgrade.has_release()
}

/// Returns the claims that are restored, if they exist. A claim that the new version has deleted is restored from its
/// snapshot alone.
fn volumes(request: &Request<'_>, taken: &[TakenSnapshot]) -> Result<Vec<PlannedVolume>, NoPlan> {
    if taken.len() > MAX_PLANNED_VOLUMES {
        let count = taken.len();
        return plan::rejected(
            Reason::PlanTooLarge,
            format!("{count} volumes are restored, and a plan has at most {MAX_PLANNED_VOLUMES}"),
        );
    }
    let live = taken.iter().filter_map(|one| find(request.world, one));
    Ok(live.filter_map(volume).collect())
}

/// Returns the claim of a snapshot, if it exists.
pub(crate) fn find<'a>(world: &'a UpgradeWorld, taken: &TakenSnapshot) -> Option<&'a VolumeState> {
    let mut all = world.volumes.iter();
    all.find(|one| one.namespace == taken.namespace && one.claim == taken.pvc)
}

/// Returns the volume of a claim. A claim without a volume has no data, and nothing mounts it.
fn volume(found: &VolumeState) -> Option<PlannedVolume> {
    let snapshot_class = match &found.class {
        SnapshotClass::One(class) => class.clone(),
        // No snapshot is taken.
        SnapshotClass::Missing | SnapshotClass::Ambiguous(_) => String::new(),
    };
    Some(PlannedVolume {
        namespace: found.namespace.clone(),
        pvc: found.claim.clone(),
        pvc_uid: found.uid.clone(),
        pv: found.volume.clone()?,
        driver: found.driver.clone().unwrap_or_default(),
        is_attachable: found.is_attachable,
        snapshot_class,
        storage_class: found.storage_class.clone(),
        size: found.size.clone(),
        access_modes: found.access_modes.clone(),
        volume_mode: found.volume_mode.clone(),
    })
}

/// Returns all workloads of the inventory that can be stopped, and the others that mount a claim of the application. A
/// workload that keeps running, for example a crash-looping one, would migrate the restored data at its next start.
fn workloads(
    request: &Request<'_>,
    objects: &Objects,
    taken: &[TakenSnapshot],
) -> Result<Vec<PlannedWorkload>, NoPlan> {
    let claims: BTreeSet<NamespacedName> = taken
        .iter()
        .map(|one| NamespacedName::new(&one.namespace, &one.pvc))
        .collect();
    let claims: BTreeSet<&NamespacedName> = claims.iter().collect();
    let mut planned = Vec::new();
    for member in &objects.members {
        let Member { id, live, .. } = member;
        let Some(live) = live else { continue };
        // A DaemonSet without a claim writes nothing that is restored.
        if ScalableKind::named(id.kind.name()).is_none() && !plan::mounts(member, &claims) {
            continue;
        }
        planned.push(plan::workload(request, id.kind.name(), live, true)?);
    }
    for Mounter { kind, name, live } in &objects.mounters {
        match live {
            Some(live) => planned.push(plan::workload(request, kind, live, false)?),
            None => return plan::not_scalable(kind, &name.to_string()),
        }
    }
    if planned.len() > MAX_PLANNED_WORKLOADS {
        let count = planned.len();
        return plan::rejected(
            Reason::PlanTooLarge,
            format!(
                "{count} workloads are stopped, and a plan has at most {MAX_PLANNED_WORKLOADS}"
            ),
        );
    }
    planned.sort_by_key(PlannedWorkload::id);
    Ok(planned)
}
