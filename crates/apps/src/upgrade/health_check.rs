//! Waits until the application is healthy with the new version, without interruption.

use std::collections::BTreeSet;

use api::{
    Reason, Timestamp, Verdict,
    apps::{
        MAX_EVIDENCE_IMAGES, ScalableKind, UpgradeEvidence, UpgradePhase, UpgradePlan,
        upgrade_condition,
    },
    decide::{ConditionUpdate, Decision},
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Request, UpgradeDecision, reconcile::View, undo};
use crate::{
    discover::Problem,
    health::{Expectation, Health, check},
    object::{ObjectId, ObjectKind},
    versions,
    world::{AppWorld, Discovery},
};

/// How often the health is checked. An event of a workload triggers an earlier check.
const CHECK_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// Decides about a request in `HealthCheck`.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    let (Some(plan), Some(view)) = (request.plan(), View::of(request)) else {
        return undo::without_plan(request);
    };
    // Helm may roll the release back at any time.
    if let Some(problem) = view.failure() {
        return view.fail(&problem);
    }
    let mut status = request.stored.clone();
    let problem = match judge(request, plan, &view) {
        Ok(()) => {
            let now = Time(time::whole(request.now));
            let since = status.healthy_since.get_or_insert(now).0;
            let stable = time::after(since, plan.timeouts.stable_for.into());
            if stable <= request.now {
                return stable_enough(request, plan, &view, since);
            }
            let seconds = std::time::Duration::from(plan.timeouts.stable_for).as_secs();
            let message = format!("the application is healthy; waits until it is for {seconds} s");
            if !request.overdue {
                let verdict = Verdict::working(Reason::CheckingHealth, message);
                return Decision::status_only(status, UpgradePhase::HealthCheck, verdict)
                    .requeue_at(stable)
                    .requeue_at(time::after(request.now, CHECK_EVERY));
            }
            Problem::new(
                Reason::Unhealthy,
                format!("the application was not healthy for {seconds} s without interruption"),
            )
        }
        Err(problem) => problem,
    };
    if request.overdue {
        let problem = Problem::new(Reason::Unhealthy, problem.message);
        return view.fail(&problem);
    }
    status.healthy_since = None;
    let verdict = Verdict::working(Reason::CheckingHealth, problem.message);
    Decision::status_only(status, UpgradePhase::HealthCheck, verdict)
        .requeue_at(time::after(request.now, CHECK_EVERY))
}

/// Returns whether the application is healthy with the new version: the evidence of Flux, and then each workload.
fn judge(request: &Request<'_>, plan: &UpgradePlan, view: &View<'_>) -> Result<(), Problem> {
    if let Some(missing) = view.missing() {
        return Err(Problem::new(Reason::Unhealthy, missing));
    }
    let live = live(request)?;
    let was_healthy = request.stored.healthy_since.is_some();
    let expected = Expectation {
        images: plan.images.iter().map(|image| image.to.clone()).collect(),
        ..expectation(plan)
    };
    crate::decide::health(live, &expected, was_healthy, request.now)
}

fn live<'a>(request: &Request<'a>) -> Result<&'a AppWorld, Problem> {
    let live = request.world.live.as_ref();
    live.ok_or_else(|| Problem::new(Reason::Unhealthy, "the application is not known yet"))
}

/// Returns whether the workloads of the application are healthy, whatever the state of Flux is.
///
/// # Errors
/// Names the workload and the cause.
pub(super) fn of_workloads(request: &Request<'_>, plan: &UpgradePlan) -> Result<(), Problem> {
    let live = live(request)?;
    let objects = match &live.discovery {
        Discovery::Found(objects) => objects,
        Discovery::Failed(problem) => return Err(problem.clone()),
    };
    let expected = expectation(plan);
    let (members, warnings) = (&objects.members, &live.warnings);
    match check(&[], members, &expected, warnings, request.now) {
        Health::Healthy(_) => Ok(()),
        Health::Changing(problem) | Health::Unhealthy(problem) => Err(problem),
    }
}

/// Returns the expectations beside those of the live objects: a workload that was at zero before stays there.
fn expectation(plan: &UpgradePlan) -> Expectation {
    let at_zero = plan.workloads.iter().filter(|one| one.replicas == Some(0));
    Expectation {
        at_zero: at_zero
            .map(|one| ObjectId::new(object_kind(one.kind), &one.namespace, &one.name))
            .collect(),
        images: BTreeSet::new(),
    }
}

fn object_kind(kind: ScalableKind) -> ObjectKind {
    match kind {
        ScalableKind::Deployment => ObjectKind::Deployment,
        ScalableKind::StatefulSet => ObjectKind::StatefulSet,
        ScalableKind::CronJob => ObjectKind::CronJob,
    }
}

/// Ends the request, after its objects were read from the API server.
fn stable_enough(
    request: &Request<'_>,
    plan: &UpgradePlan,
    view: &View<'_>,
    since: Timestamp,
) -> UpgradeDecision {
    if !request.confirmed {
        return request.confirm(request.reads_of_plan());
    }
    let left = undo::left(request);
    // Someone suspended or stopped an object again, with the lock of this request.
    if let Some(first) = left.first() {
        return request.fail(&Problem::new(Reason::Unhealthy, first.clone()));
    }
    let since = Time(since);
    let mut status = request.stored.clone();
    status.healthy_since = Some(since.clone());
    if let Some(downtime) = &mut status.downtime {
        downtime.to.get_or_insert(since.clone());
    }
    let revision = view.kustomization().and_then(|one| one.revision.clone());
    status.evidence = Some(UpgradeEvidence {
        release: view.helm().and_then(versions::deployed),
        revision: revision.unwrap_or_default(),
        commit: view.commit().id.clone(),
        images: images(request),
        healthy_since: since,
    });
    let message = format!(
        "upgraded {} with commit {}",
        plan.summary(),
        view.commit().id
    );
    let verdict = Verdict::succeeded(message.clone());
    let mut decision =
        Decision::status_only(status, UpgradePhase::Succeeded, verdict).remove_finalizer();
    for (kind, value, reason, message) in [
        (
            upgrade_condition::HEALTHY,
            true,
            Reason::HealthVerified,
            message.as_str(),
        ),
        (
            upgrade_condition::SUSPENDED,
            false,
            Reason::FluxResumed,
            "Flux is resumed, and holds no lock of the request",
        ),
        (
            upgrade_condition::WORKLOAD_STOPPED,
            false,
            Reason::WorkloadsRestored,
            "no workload is at zero because of the request",
        ),
    ] {
        decision.conditions.push(ConditionUpdate {
            kind,
            value: Some(value),
            reason,
            message: message.to_owned(),
        });
    }
    decision
}

/// Returns the images in the Pod templates of the application.
fn images(request: &Request<'_>) -> Vec<String> {
    let Ok(AppWorld {
        discovery: Discovery::Found(objects),
        ..
    }) = live(request)
    else {
        return Vec::new();
    };
    let live = objects.members.iter().filter_map(|one| one.live.as_deref());
    let all: BTreeSet<&String> = live.flat_map(|live| live.images.iter()).collect();
    all.into_iter().take(MAX_EVIDENCE_IMAGES).cloned().collect()
}
