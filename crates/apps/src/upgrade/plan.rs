//! Checks a request, and freezes the state of the application. Changes nothing but its own Job.

use std::collections::BTreeSet;

use api::{
    Reason, State, Verdict,
    apps::{
        AppPhase, ApprovalPolicy, FluxKind, MAX_PLANNED_VOLUMES, MAX_PLANNED_WORKLOADS,
        ManagedAppStatus, NamespacedName, PlannedCommit, PlannedFluxObject, PlannedVolume,
        PlannedWorkload, ScalableKind, ScaleDownPolicy, ScaleDownSetting, UpgradePhase,
        UpgradePlan, VersionChange,
    },
    decide::{Decision, Effect, Input, ResourceType, Target},
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Request, UpgradeDecision, approval, commit_job,
    flux_target::FluxTarget,
    git_plan::{self, GitStep},
    images, selection,
    snapshot::MAX_SOURCE_BYTES,
    storage::{SnapshotClass, Snapshots, VolumeState},
    world::AppState,
};
use crate::{
    discover::Problem,
    health::Member,
    versions,
    workload::WorkloadView,
    world::{ClaimMember, Discovery, Mounter, Objects},
};

/// How often a plan that is not complete is continued.
const CHECK_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// Timeout of a HelmRelease without `spec.timeout`.
const HELM_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(300);

/// The reason why there is no plan.
pub(super) enum NoPlan {
    /// It may change by itself, so the phase waits until its deadline.
    Wait(Problem),
    /// The request is rejected.
    Reject(Problem),
}

pub(super) fn rejected<T>(reason: Reason, message: String) -> Result<T, NoPlan> {
    Err(NoPlan::Reject(Problem::new(reason, message)))
}

fn unknown<T>(message: String) -> Result<T, NoPlan> {
    Err(NoPlan::Wait(Problem::new(Reason::PlanTimeout, message)))
}

/// Decides about a request in `Plan`. The plan is stored before the next phase begins.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    if let Some(plan) = request.plan() {
        return delete_job(request, approval::after_plan(request, plan));
    }
    let decision = next(request);
    // There is nothing to undo, so the request needs no finalizer, whatever the Job does.
    decision.remove_finalizer()
}

fn next(request: &Request<'_>) -> UpgradeDecision {
    // The create of the Job was rejected. If the Job exists, its deletion failed, which delays nothing.
    let name = commit_job::plan_name(request.name());
    if let Some(fault) = request.fault
        && request.world.commit.job(&name).is_none()
    {
        return reject(request, Problem::new(fault.reason, fault.message.clone()));
    }
    let late = || {
        let message = "the plan was made too late. Submit another UpgradeRequest";
        Problem::new(Reason::PlanTimeout, message)
    };
    let frozen =
        freeze(request).and_then(
            |(plan, state)| match git_plan::step(request, state, &plan) {
                GitStep::Planned(change) => Ok(Next::Store(Box::new(UpgradePlan {
                    commit: change.commit,
                    images: change.images,
                    warnings: [plan.warnings.clone(), change.warnings].concat(),
                    ..plan
                }))),
                GitStep::Create(job) => Ok(Next::Create(job)),
                GitStep::Wait(problem) => Err(NoPlan::Wait(problem)),
                GitStep::Reject(problem) => Err(NoPlan::Reject(problem)),
            },
        );
    match frozen {
        Err(NoPlan::Reject(problem)) => reject(request, problem),
        Err(NoPlan::Wait(problem)) if request.overdue => reject(request, problem),
        // A reply with a log expires soon, and only a reconciliation reads it.
        Err(NoPlan::Wait(problem)) => request
            .wait(Reason::Planning, problem.message)
            .requeue_at(time::after(request.now, CHECK_EVERY)),
        Ok(_) if request.overdue => reject(request, late()),
        Ok(Next::Create(job)) => {
            let message = format!(
                "starts Job '{}', which makes the plan of the commit",
                job.name
            );
            request
                .wait(Reason::Planning, message)
                .with(Effect::Ensure(job))
        }
        Ok(Next::Store(plan)) => store(request, *plan),
    }
}

/// The next step of a request without an objection.
enum Next {
    Create(Box<api::decide::Manifest>),
    Store(Box<UpgradePlan>),
}

fn reject(request: &Request<'_>, problem: Problem) -> UpgradeDecision {
    delete_job(request, request.reject(problem))
}

/// Deletes the Job of the plan.
fn delete_job(request: &Request<'_>, decision: UpgradeDecision) -> UpgradeDecision {
    job_deletion(request)
        .into_iter()
        .fold(decision, Decision::with)
}

/// Returns the deletion of the Job of the plan, if it exists. A rejected deletion must not keep the request from its next
/// phase: the request owns the Job.
pub(super) fn job_deletion(request: &Request<'_>) -> Option<Effect> {
    let name = commit_job::plan_name(request.name());
    let job = request.world.commit.job(&name);
    let job = job.filter(|job| !job.is_deleting && request.fault.is_none())?;
    Some(Effect::Delete(Target {
        resource: ResourceType::JOB,
        namespace: Some(job.namespace.clone()),
        name: job.name.clone(),
        uid: job.uid.clone(),
        version: None,
        requires_intent: None,
        optional: true,
    }))
}

fn store(request: &Request<'_>, plan: UpgradePlan) -> UpgradeDecision {
    let summary = format!(
        "{}: stops {} workloads, takes {} snapshots",
        plan.summary(),
        plan.workloads.len(),
        plan.volumes.len()
    );
    let mut status = request.stored.clone();
    status.plan = Some(plan);
    status.planned_at = Some(Time(time::whole(request.now)));
    if request.is_dry_run() {
        let verdict = Verdict::succeeded(format!("{summary}. Nothing was changed"));
        let decision = Decision::status_only(status, UpgradePhase::Succeeded, verdict);
        return delete_job(request, decision);
    }
    let verdict = Verdict::working(Reason::Planning, summary);
    Decision::status_only(status, UpgradePhase::Plan, verdict).requeue_at(request.now)
}

/// Returns the plan. The order of the checks is that of their cost for the user: first those about the request itself.
fn freeze<'a>(request: &Request<'a>) -> Result<(UpgradePlan, &'a AppState), NoPlan> {
    let Some(state) = &request.world.app else {
        // The ManagedApp may have been created together with the request.
        return Err(NoPlan::Wait(Problem::new(
            Reason::AppNotFound,
            format!("ManagedApp '{}' does not exist", request.app_name()),
        )));
    };
    // The ManagedApp waits for its active requests, so another one would keep it.
    if state.app.metadata.deletion_timestamp.is_some() {
        let name = request.app_name();
        return rejected(
            Reason::AppNotFound,
            format!("ManagedApp '{name}' is being deleted"),
        );
    }
    let observed = healthy(request, state)?;
    let flux_objects = flux_objects(request, state)?;
    let wanted = &request.object.spec.target_version;
    let git = state.app.spec.git.as_ref();
    let images = images::requested(request.app_name(), git, &wanted.images);
    let images = images.map_err(NoPlan::Reject)?;
    let chart = chart(request, state)?;
    let objects = match &state.world.discovery {
        Discovery::Found(objects) => objects,
        Discovery::Failed(problem) => return Err(NoPlan::Reject(problem.clone())),
    };
    let policy = &state.app.spec.volume_snapshots;
    let is_without_snapshots = request.object.spec.skip_snapshot || !policy.enabled;
    let (volumes, workloads) = if is_without_snapshots {
        (Vec::new(), Vec::new())
    } else {
        let claims = selection::claims(policy, request.namespace(), objects);
        let claims = claims.map_err(NoPlan::Reject)?;
        let volumes = volumes(request, objects, &claims)?;
        let volumes = selection::with_modes(policy, volumes).map_err(NoPlan::Reject)?;
        let workloads = workloads(request, objects, &volumes)?;
        (volumes, workloads)
    };
    let spec = &state.app.spec;
    let plan = UpgradePlan {
        app_uid: state.app.metadata.uid.clone().unwrap_or_default(),
        flux_objects,
        revision: observed.git.map(|git| git.revision),
        release: observed.release,
        chart,
        images,
        commit: PlannedCommit::default(),
        scale_down_policy: scale_down_policy(state),
        is_without_snapshots,
        workloads,
        volumes,
        unprotected_volumes: observed.unprotected_volumes,
        warnings: warnings(state, is_without_snapshots),
        needs_approval: spec.approval == ApprovalPolicy::Required,
        auto_rollback: spec.auto_rollback,
        timeouts: spec.phase_timeouts.of_upgrade(&spec.health_check),
    };
    Ok((plan, state))
}

/// Returns how long the workloads stay stopped. A hook before the upgrade may need the old version, for example its
/// database. Hooks that are not known count as such.
fn scale_down_policy(state: &AppState) -> ScaleDownPolicy {
    // Only Helm has hooks.
    let has_hooks = match &state.world.helm_release {
        Ok(None) => Some(false),
        Ok(Some(_)) | Err(_) => state.has_upgrade_hooks,
    };
    match (state.app.spec.scale_down_policy, has_hooks) {
        (ScaleDownSetting::UntilUpgraded, _) | (ScaleDownSetting::Auto, Some(false)) => {
            ScaleDownPolicy::UntilUpgraded
        }
        (ScaleDownSetting::UntilSnapshotReady, _) | (ScaleDownSetting::Auto, Some(true) | None) => {
            ScaleDownPolicy::UntilSnapshotReady
        }
    }
}

/// Returns facts about the release and the request that do not prevent the upgrade.
fn warnings(state: &AppState, is_without_snapshots: bool) -> Vec<String> {
    let helm = state.world.release();
    let uninstalls = helm.is_some_and(|helm| helm.uninstalls_on_failure);
    let spec = &state.app.spec;
    let timeouts = spec.phase_timeouts.of_upgrade(&spec.health_check);
    let limit = std::time::Duration::from(timeouts.reconcile);
    let timeout = helm.map(|helm| helm.timeout.unwrap_or(HELM_TIMEOUT));
    let is_longer = timeout.is_some_and(|timeout| timeout > limit);
    // Columns: whether the fact holds, and its text.
    let facts = [
        (
            uninstalls,
            "Flux uninstalls the release after a failed upgrade, which may delete its volumes",
        ),
        (
            is_without_snapshots,
            "no snapshot is taken, so a rollback returns only Git",
        ),
        (
            is_longer,
            "the timeout of the HelmRelease is longer than that of the phase Reconcile, so the request may end before Helm",
        ),
    ];
    let facts = facts.into_iter().filter(|(holds, _)| *holds);
    facts.map(|(_, text)| text.to_owned()).collect()
}

/// Returns the observed state of the application, if it is healthy or need not be. The stored status of the ManagedApp
/// decides nothing (S1.8).
pub(super) fn healthy(request: &Request<'_>, state: &AppState) -> Result<ManagedAppStatus, NoPlan> {
    let mut app = (*state.app).clone();
    app.status = None;
    app.metadata.deletion_timestamp = None;
    let judged = crate::decide::decide(&Input {
        object: &app,
        world: &state.world,
        now: request.now,
        fault: None,
        refused: false,
        confirmed: false,
        overdue: false,
    });
    let problem = || Problem::new(judged.verdict.reason, judged.verdict.message.clone());
    let is_about_health =
        [Reason::Unhealthy, Reason::NoWorkloadsFound].contains(&judged.verdict.reason);
    match judged.phase {
        AppPhase::Ready => Ok(judged.status),
        AppPhase::Pending if request.object.spec.allow_unhealthy => Ok(judged.status),
        // No request and no deletion is judged here.
        AppPhase::Pending | AppPhase::Operating | AppPhase::Terminating => {
            Err(NoPlan::Wait(problem()))
        }
        AppPhase::Degraded if is_about_health && request.object.spec.allow_unhealthy => {
            Ok(judged.status)
        }
        AppPhase::Degraded if is_about_health || judged.verdict.state == State::Stalled => {
            Err(NoPlan::Reject(problem()))
        }
        AppPhase::Degraded => match judged.verdict.reason {
            // A watch may not have the objects of a new application yet.
            Reason::FluxObjectUnreadable | Reason::FluxObjectNotFound => {
                Err(NoPlan::Wait(problem()))
            }
            _ => Err(NoPlan::Reject(problem())),
        },
    }
}

/// Returns the Flux objects in the order in which they are suspended: what applies another object comes before it.
pub(super) fn flux_objects(
    request: &Request<'_>,
    state: &AppState,
) -> Result<Vec<PlannedFluxObject>, NoPlan> {
    let world = &state.world;
    let mut names: Vec<(FluxKind, &NamespacedName)> = Vec::new();
    names.extend(
        state
            .parent
            .iter()
            .map(|name| (FluxKind::Kustomization, name)),
    );
    names.push((FluxKind::Kustomization, &world.kustomization_name));
    if let Ok(Some((name, _))) = &world.helm_release {
        names.push((FluxKind::HelmRelease, name));
    }
    names
        .into_iter()
        .map(|(kind, name)| {
            let live = request.world.flux.iter().find(|live| {
                live.kind == kind && live.namespace == name.namespace && live.name == name.name
            });
            match live {
                Some(live) => flux_object(live, state.parent.is_some()),
                None => unknown(format!(
                    "the state of {} '{name}' is not known yet",
                    kind.resource().kind
                )),
            }
        })
        .collect()
}

fn flux_object(live: &FluxTarget, has_parent: bool) -> Result<PlannedFluxObject, NoPlan> {
    let id = live.id();
    if live.is_deleting {
        return rejected(Reason::PlanOutdated, format!("{id} is being deleted"));
    }
    if live.is_suspended() {
        return rejected(
            Reason::AlreadySuspended,
            format!("{id} is already suspended. Find out why, and resume it"),
        );
    }
    if let Some(applier) = live.suspend_appliers.first().filter(|_| !has_parent) {
        return rejected(
            Reason::SuspendOwnedByParent,
            format!(
                "'{applier}' applies 'spec.suspend' of {id}, and would resume it. Remove the field from its manifest"
            ),
        );
    }
    if let Some(annotation) = live
        .disabled
        .as_ref()
        .filter(|_| live.kind == FluxKind::HelmRelease)
    {
        return rejected(
            Reason::ReconcileDisabled,
            format!(
                "{id} has the annotation '{annotation}', so Flux would not apply the new version"
            ),
        );
    }
    Ok(PlannedFluxObject {
        kind: live.kind,
        namespace: live.namespace.clone(),
        name: live.name.clone(),
        uid: live.uid.clone(),
        generation: live.generation,
        suspend: live.suspend,
    })
}

/// Returns the change of the version of the chart. The current one is that of the live object (R31). Both are the same if
/// only images change.
fn chart(request: &Request<'_>, state: &AppState) -> Result<VersionChange, NoPlan> {
    let requested = state
        .world
        .release()
        .and_then(|helm| helm.requested.clone());
    let wanted = &request.object.spec.target_version;
    let unchanged = |version: String| VersionChange {
        from: version.clone(),
        to: version,
    };
    let Some(to) = wanted.chart.clone() else {
        return Ok(unchanged(requested.unwrap_or_default()));
    };
    let Some(from) = requested else {
        return rejected(
            Reason::SourceNotSupported,
            "the application has no HelmRelease with 'spec.chart.spec.version'".to_owned(),
        );
    };
    let Some(current) = versions::exact(&from) else {
        return rejected(
            Reason::VersionIsRange,
            format!("the HelmRelease requests the range '{from}'. Request one version in Git"),
        );
    };
    if versions::exact(&to) == Some(current) {
        if !wanted.images.is_empty() {
            return Ok(unchanged(from));
        }
        return rejected(
            Reason::NothingToChange,
            format!("the HelmRelease already requests version '{from}'"),
        );
    }
    Ok(VersionChange { from, to })
}

/// Returns the volumes. An application without any would be upgraded without protection (R30).
fn volumes(
    request: &Request<'_>,
    objects: &Objects,
    selected: &BTreeSet<&NamespacedName>,
) -> Result<Vec<PlannedVolume>, NoPlan> {
    if objects.claims.is_empty() {
        return rejected(
            Reason::NoVolumesFound,
            "no PersistentVolumeClaim of the application was found".to_owned(),
        );
    }
    if request.world.snapshots == Snapshots::NotInstalled {
        return rejected(
            Reason::SnapshotsNotInstalled,
            "the API server does not serve VolumeSnapshots".to_owned(),
        );
    }
    let claims = objects.claims.iter();
    let claims: Vec<&ClaimMember> = claims
        .filter(|claim| selected.contains(&claim.name))
        .collect();
    if claims.len() > MAX_PLANNED_VOLUMES {
        let count = claims.len();
        return rejected(
            Reason::PlanTooLarge,
            format!(
                "the application has {count} volumes, and a plan has at most {MAX_PLANNED_VOLUMES}"
            ),
        );
    }
    claims
        .into_iter()
        .map(|claim| {
            if claim.live.is_none() {
                return rejected(
                    Reason::VolumeNotBound,
                    format!("PersistentVolumeClaim '{}' does not exist", claim.name),
                );
            }
            let found = request.world.volumes.iter().find(|volume| {
                volume.namespace == claim.name.namespace && volume.claim == claim.name.name
            });
            match found {
                Some(found) => volume(found),
                None => unknown(format!(
                    "the volume of PersistentVolumeClaim '{}' is not known yet",
                    claim.name
                )),
            }
        })
        .collect()
}

fn volume(found: &VolumeState) -> Result<PlannedVolume, NoPlan> {
    let id = found.id();
    let Some(pv) = found.volume.as_ref().filter(|_| found.is_bound) else {
        return rejected(Reason::VolumeNotBound, format!("{id} is not bound"));
    };
    let Some(driver) = &found.driver else {
        return rejected(
            Reason::VolumeNotSnapshottable,
            format!("the volume '{pv}' of {id} does not belong to a CSI driver"),
        );
    };
    let snapshot_class = match &found.class {
        SnapshotClass::One(class) => class.clone(),
        SnapshotClass::Missing => {
            return rejected(
                Reason::SnapshotClassMissing,
                format!("no VolumeSnapshotClass is for the CSI driver '{driver}' of {id}"),
            );
        }
        SnapshotClass::Ambiguous(classes) => {
            return rejected(
                Reason::SnapshotClassAmbiguous,
                format!(
                    "several VolumeSnapshotClasses are the default for the CSI driver '{driver}': '{}'",
                    classes.join("', '")
                ),
            );
        }
    };
    if found.source.len() > MAX_SOURCE_BYTES {
        return rejected(
            Reason::PlanTooLarge,
            format!("the labels and annotations of {id} are too long to be kept with its snapshot"),
        );
    }
    Ok(PlannedVolume {
        namespace: found.namespace.clone(),
        pvc: found.claim.clone(),
        pvc_uid: found.uid.clone(),
        pv: pv.clone(),
        driver: driver.clone(),
        is_attachable: found.is_attachable,
        snapshot_class,
        storage_class: found.storage_class.clone(),
        size: found.size.clone(),
        access_modes: found.access_modes.clone(),
        volume_mode: found.volume_mode.clone(),
    })
}

/// Returns the workloads that mount a planned volume, in the inventory or not (S1.5). A workload without such a volume
/// continues to run.
fn workloads(
    request: &Request<'_>,
    objects: &Objects,
    volumes: &[PlannedVolume],
) -> Result<Vec<PlannedWorkload>, NoPlan> {
    let claims: Vec<NamespacedName> = volumes
        .iter()
        .map(|one| NamespacedName::new(&one.namespace, &one.pvc))
        .collect();
    let claims: BTreeSet<&NamespacedName> = claims.iter().collect();
    let mut planned = Vec::new();
    for member in objects.members.iter().filter(|one| mounts(one, &claims)) {
        let Some(live) = &member.live else { continue };
        planned.push(workload(request, member.id.kind.name(), live, true)?);
    }
    for Mounter { kind, name, live } in &objects.mounters {
        match live {
            Some(live) => planned.push(workload(request, kind, live, false)?),
            None => return not_scalable(kind, &name.to_string()),
        }
    }
    if planned.len() > MAX_PLANNED_WORKLOADS {
        let count = planned.len();
        return rejected(
            Reason::PlanTooLarge,
            format!(
                "{count} workloads mount a volume, and a plan has at most {MAX_PLANNED_WORKLOADS}"
            ),
        );
    }
    planned.sort_by_key(PlannedWorkload::id);
    Ok(planned)
}

/// Returns whether a workload mounts one of the claims, by its template or by a Pod.
pub(super) fn mounts(member: &Member, claims: &BTreeSet<&NamespacedName>) -> bool {
    let of_template = member
        .live
        .iter()
        .flat_map(|live| live.mounts.claims.iter());
    let of_pods = member.pods.iter().flat_map(|pod| pod.claims.iter());
    let mut all = of_template.chain(of_pods);
    all.any(|claim| claims.contains(&NamespacedName::new(&member.id.namespace, claim)))
}

pub(super) fn not_scalable<T>(kind: &str, name: &str) -> Result<T, NoPlan> {
    rejected(
        Reason::WorkloadNotScalable,
        format!("{kind} '{name}' mounts a volume of the application, and cannot be stopped"),
    )
}

pub(super) fn workload(
    request: &Request<'_>,
    kind: &str,
    live: &WorkloadView,
    in_inventory: bool,
) -> Result<PlannedWorkload, NoPlan> {
    let name = NamespacedName::new(&live.id.namespace, &live.id.name);
    let Some(scalable) = ScalableKind::named(kind) else {
        return not_scalable(kind, &name.to_string());
    };
    let mut targets = request.world.workloads.iter();
    let target = targets.find(|target| target.kind == scalable && target.uid == live.uid);
    let Some(target) = target else {
        return unknown(format!("the scale of {kind} '{name}' is not known yet"));
    };
    if target.deletes_claims {
        return rejected(
            Reason::PVCsDeletedOnScaleDown,
            format!(
                "{kind} '{name}' deletes its claims when it is scaled down. Set 'persistentVolumeClaimRetentionPolicy.whenScaled' to 'Retain'"
            ),
        );
    }
    Ok(target.planned(in_inventory))
}
