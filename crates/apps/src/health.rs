//! The health of an application: one function, for reports and for operations.
//!
//! An application is healthy if Flux applied the current spec, and each workload of the current inventory has exactly
//! its desired number of replicas, all of the current template, ready and available. Zero replicas and an empty
//! inventory are no success.

use std::{collections::BTreeSet, sync::Arc};

use api::{Reason, Timestamp, warning::Warning, webhook::FailedWebhook};

use crate::{
    discover::Problem,
    flux::FluxState,
    object::{ObjectId, ObjectKind},
    pod::{AppPod, cause_of},
    workload::WorkloadView,
};

/// An object of Flux with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FluxMember {
    /// The object.
    pub id: ObjectId,
    /// Its state.
    pub state: FluxState,
}

/// A workload of the current inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The workload.
    pub id: ObjectId,
    /// The live object, or `None` if it does not exist.
    pub live: Option<Arc<WorkloadView>>,
    /// Its Pods, by owner references.
    pub pods: Vec<Arc<AppPod>>,
}

/// Expectations of an operation, beside those of the live objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Workloads that had no replicas before the operation.
    pub at_zero: BTreeSet<ObjectId>,
    /// Images that must be in a Pod template and in all ready Pods of the workload.
    pub images: BTreeSet<String>,
}

/// The health of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Everything is as desired. The number is that of the workloads with replicas.
    Healthy(usize),
    /// Flux or Kubernetes applies a change.
    Changing(Problem),
    /// Something is wrong.
    Unhealthy(Problem),
}

/// A workload that is not as desired.
struct Trouble<'a> {
    member: &'a Member,
    text: String,
    /// The cause that a Pod or the controller reports.
    cause: Option<String>,
    is_changing: bool,
}

/// Returns the health of an application. The most specific problem counts: a cause of a workload explains a failure of
/// Flux, which waits for it.
#[must_use]
pub fn check(
    flux: &[FluxMember],
    workloads: &[Member],
    expected: &Expectation,
    warnings: &[Warning],
    now: Timestamp,
) -> Health {
    let first = |is: fn(&FluxState) -> bool| flux.iter().find(|member| is(&member.state));
    if let Some(FluxMember { id, .. }) = first(|state| *state == FluxState::Deleting) {
        return Health::Unhealthy(Problem::new(
            Reason::Unhealthy,
            format!(
                "{id} is being deleted, so Flux does not apply the application any more. Create it again, or delete the ManagedApp"
            ),
        ));
    }
    if let Some(FluxMember { id, .. }) = first(|state| *state == FluxState::Suspended) {
        return Health::Unhealthy(Problem::new(
            Reason::AlreadySuspended,
            format!(
                "{id} is suspended, so Flux does not apply the application. Set its 'spec.suspend' to false"
            ),
        ));
    }
    let troubles: Vec<Trouble<'_>> = workloads
        .iter()
        .filter_map(|member| trouble(member, expected, warnings, now))
        .collect();
    let workloads = workloads.iter();
    let workloads: Vec<&Member> = workloads
        .filter(|member| member.id.kind.has_replicas())
        .collect();
    if let Some(found) = troubles.iter().find(|trouble| trouble.cause.is_some()) {
        return Health::Unhealthy(unhealthy(found, troubles.len()));
    }
    for FluxMember { id, state } in flux {
        if let FluxState::Failed(text) = state {
            return Health::Unhealthy(Problem::new(Reason::Unhealthy, format!("{id}: {text}")));
        }
    }
    for FluxMember { id, state } in flux {
        if let FluxState::Reconciling(text) = state {
            let text = format!("Flux applies a change: {id}: {text}");
            return Health::Changing(Problem::new(Reason::Comparing, text));
        }
    }
    if workloads.is_empty() {
        return Health::Unhealthy(Problem::new(
            Reason::NoWorkloadsFound,
            "Flux applied no Deployment, StatefulSet or DaemonSet. Check that 'spec.kustomizationRef' names the Kustomization of the application, and not its parent",
        ));
    }
    if let Some(found) = troubles.iter().find(|trouble| !trouble.is_changing) {
        return Health::Unhealthy(unhealthy(found, troubles.len()));
    }
    if let Some(found) = troubles.first() {
        let text = found.message(troubles.len());
        return Health::Changing(Problem::new(Reason::Progressing, text));
    }
    match missing_image(&workloads, expected) {
        Some(text) => Health::Unhealthy(Problem::new(Reason::Unhealthy, text)),
        None => Health::Healthy(workloads.len()),
    }
}

fn unhealthy(trouble: &Trouble<'_>, count: usize) -> Problem {
    Problem::new(Reason::Unhealthy, trouble.message(count))
}

impl Trouble<'_> {
    /// Returns the message. `count` is the number of workloads in trouble.
    fn message(&self, count: usize) -> String {
        let others = match count.saturating_sub(1) {
            0 => String::new(),
            1 => "; 1 other workload is not ready".to_owned(),
            others => format!("; {others} other workloads are not ready"),
        };
        let cause = self.cause.iter().map(|cause| format!(": {cause}"));
        let cause: String = cause.collect();
        format!("{} {}{cause}{others}", self.member.id, self.text)
    }
}

/// Returns why a workload is not as desired, or `None` if it is.
fn trouble<'a>(
    member: &'a Member,
    expected: &Expectation,
    warnings: &[Warning],
    now: Timestamp,
) -> Option<Trouble<'a>> {
    let found = |text: String, is_changing: bool| Trouble {
        member,
        text,
        cause: None,
        is_changing,
    };
    let Some(live) = &member.live else {
        let text = "is in the inventory, but does not exist. Let Flux reconcile, or find out what deletes it";
        return Some(found(text.to_owned(), false));
    };
    // Its controller still reports its Pods, also if a finalizer blocks the deletion.
    if live.is_deleting {
        let text = "is being deleted. Let Flux create it again, or find out what deletes it";
        return Some(found(text.to_owned(), false));
    }
    // A CronJob has no replicas that could be ready.
    if !member.id.kind.has_replicas() {
        return None;
    }
    let Some(rollout) = &live.rollout else {
        return Some(found("reports no replicas".to_owned(), false));
    };
    let wanted = rollout.wanted;
    let is_zero_expected = expected.at_zero.contains(&member.id);
    if wanted < 1 && !is_zero_expected {
        let text = if member.id.kind == ObjectKind::DaemonSet {
            "matches no node. Correct its node selector or its tolerations"
        } else {
            "has 0 desired replicas. Scale it up, if nobody scaled it down on purpose"
        };
        return Some(found(text.to_owned(), false));
    }
    let is_observed = rollout.observed >= live.generation;
    let counts = [rollout.replicas, rollout.updated, rollout.ready];
    if is_observed && counts.iter().all(|count| *count == wanted) {
        return None;
    }
    let rejected = || {
        let about = |one: &&Warning| {
            let is_rejection = one.reason == "FailedCreate";
            is_rejection && one.object_uid == live.uid && one.namespace == live.id.namespace
        };
        let newest = warnings
            .iter()
            .filter(about)
            .max_by_key(|one| one.seen(now));
        // A rejection that was overcome has left no replica missing.
        let newest = newest.filter(|_| rollout.replicas < wanted);
        newest.map(|one| one.message.clone())
    };
    let denied = live.failure.clone().or_else(rejected);
    let cause = denied.as_deref().map(rejection).or_else(|| {
        let mut pods: Vec<&Arc<AppPod>> = member.pods.iter().collect();
        // The newest Pod has the current template.
        pods.sort_by_key(|pod| (std::cmp::Reverse(pod.created), pod.name.clone()));
        let mut causes = pods.iter().filter_map(|pod| cause_of(pod, warnings, now));
        causes.next().map(|cause| cause.message)
    });
    let hold = live.hold.as_ref().filter(|_| rollout.updated < wanted);
    let is_changing = !is_observed || (live.is_rolling && hold.is_none());
    let text = if let (Some(hold), false) = (hold, is_changing) {
        let updated = rollout.updated;
        format!("has {updated} of {wanted} replicas of the latest template, because {hold}")
    } else if is_changing {
        format!(
            "rolls out: {} of {wanted} replicas updated, {} ready",
            rollout.updated, rollout.ready
        )
    } else if rollout.ready < wanted {
        format!("has {} of {wanted} replicas ready", rollout.ready)
    } else {
        format!(
            "has {} replicas, {} of them with the latest template, instead of {wanted}",
            rollout.replicas, rollout.updated
        )
    };
    Some(Trouble {
        member,
        text,
        cause,
        is_changing,
    })
}

/// Returns the cause in the message of a controller that cannot create a Pod. A webhook that cannot be called comes
/// first, because `kubectl get` shows only the start of a message.
fn rejection(message: &str) -> String {
    match FailedWebhook::find(message) {
        Some(webhook) => format!("{webhook}, so no Pod can be created: {message}"),
        None => message.to_owned(),
    }
}

/// Returns a text about the first expected image that does not run. A workload at zero has no Pods that could run it.
fn missing_image(workloads: &[&Member], expected: &Expectation) -> Option<String> {
    expected.images.iter().find_map(|image| {
        let has_image = |member: &&&Member| {
            let live = member.live.as_ref();
            live.is_some_and(|live| live.images.contains(image))
        };
        let having: Vec<_> = workloads.iter().filter(has_image).collect();
        if having.is_empty() {
            return Some(format!("no Pod template has the image '{image}'"));
        }
        let mut running = having
            .iter()
            .filter(|member| !expected.at_zero.contains(&member.id));
        running.find_map(|member| {
            let mut ready = member.pods.iter().filter(|pod| pod.is_ready).peekable();
            let runs = ready.peek().is_some() && ready.all(|pod| pod.images.contains(image));
            let text = format!(
                "not all ready Pods of {} have the image '{image}'",
                member.id
            );
            (!runs).then_some(text)
        })
    })
}

#[cfg(test)]
mod tests;
