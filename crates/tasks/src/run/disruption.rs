//! Who stops an agent from outside, and how often. It uses no attempt, and it is no result.

use std::time::Duration;

use api::{
    Reason, Timestamp,
    tasks::{Evidence, RunPod},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mutant::Mutant;

use super::{
    cause::after_colon,
    conclude::reason_of,
    judge::Judgement,
    world::{Run, may_run, pod_words},
};
use crate::{
    time,
    view::{JobEnd, JobView, PodView},
};

/// This many end the run: something stops it again and again.
pub(super) const LIMIT: u32 = 6;
/// So long after a Pod was told to stop its Job says at the latest that it ended: 30 seconds of
/// grace, and what kubelet and Job controller take.
const ITS_END: Duration = Duration::from_secs(60);
/// A Pod that is still there so long after its grace has a node that does not answer.
const OVERDUE: Duration = Duration::from_secs(30);

/// Whether an attempt that ended for this reason is started again without using one.
pub(super) fn is_one(reason: Reason) -> bool {
    matches!(reason, Reason::Disrupted | Reason::JobLost)
}

/// Whether what is stored of the last attempt is that it was disrupted.
pub(super) fn was_disrupted(result: &Evidence) -> bool {
    is_one(reason_of(result))
}

/// Whether something told the Pod to stop.
pub(super) fn is_stopped(pod: &PodView) -> bool {
    pod.disruption.is_some() || pod.stop_asked.is_some()
}

/// Who stopped it, in brackets, if something of the cluster says so.
pub(super) fn by(pod: &PodView) -> String {
    match &pod.disruption {
        Some(said) if !said.reason.is_empty() => {
            format!(" ({}{})", said.reason, after_colon(&said.message))
        }
        Some(_) | None => String::new(),
    }
}

/// When a Pod that was told to stop is taken for one whose node does not answer.
pub(super) fn given_up_at(pod: &PodView) -> Option<Timestamp> {
    pod.stop_by.map(|by| time::after(by, OVERDUE))
}

/// How a Pod that was told to stop stands.
pub(super) fn words(pod: &PodView, now: Timestamp) -> String {
    let (name, by) = (pod_words(pod), by(pod));
    if !may_run(pod) {
        return format!(
            "{name} was stopped from outside{by}; waiting for another to take its place"
        );
    }
    match (&pod.node, given_up_at(pod)) {
        (Some(node), Some(overdue)) if now >= overdue => format!(
            "{name} was told to stop{by} and has not: node '{node}' does not answer. Another Pod starts when the node is back and has stopped it, when Node '{node}' is deleted, or when it has the taint 'node.kubernetes.io/out-of-service'"
        ),
        _ => format!("{name} is being stopped from outside{by}; waiting until it has ended"),
    }
}

/// A Pod as it is stored.
pub(super) fn named(pod: &PodView, disrupted_at: Option<Timestamp>) -> RunPod {
    RunPod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        node: pod.node.clone(),
        disrupted_at: disrupted_at.map(|at| Time(time::whole(at))),
    }
}

/// The run with the disruption counted that its Job's newest Pod shows: it is being stopped, or it
/// has taken the place of the one that ran.
///
/// A Pod that is gone counts when another is there: one that is only not seen yet is no loss.
pub(super) fn counted<'a>(run: &Run<'a>, job: &JobView) -> Run<'a> {
    let mut run = run.clone();
    // The Job's own deletion, which stops its Pods too, counts when it is gone.
    let newest = run.newest_pod(job).filter(|_| job.deleting.is_none());
    let Some(pod) = newest else { return run };
    let known = run.status.pod.as_ref();
    let is_another = known.is_some_and(|known| known.uid != pod.uid);
    // What is known of Pods may be behind what was recorded.
    if is_another && is_older(&run, pod) {
        return run;
    }
    let was_counted = known.is_some_and(|known| known.disrupted_at.is_some());
    let mut count = u32::from(is_another && !was_counted);
    if is_stopped(pod) && (is_another || !was_counted) {
        count = count.saturating_add(1);
        run.status.pod = Some(named(pod, Some(run.now)));
    } else if is_another {
        run.status.pod = None;
    }
    if mutant::on(Mutant::EvictionCounted) {
        run.status.attempts = run.status.attempts.saturating_add(count);
    }
    run.status.disruptions = run.status.disruptions.saturating_add(count).min(LIMIT);
    run
}

/// Whether a Pod was made before the one that the status names ran.
fn is_older(run: &Run<'_>, pod: &PodView) -> bool {
    let status = &run.status;
    let disrupted = status
        .pod
        .as_ref()
        .and_then(|known| known.disrupted_at.as_ref());
    let since = status.started_at.as_ref().or(disrupted);
    since.is_some_and(|since| pod.created.is_some_and(|made| made < since.0))
}

/// Whether we saw that something outside stops this Pod.
pub(super) fn is_known(run: &Run<'_>, pod: &PodView) -> bool {
    let known = run.status.pod.as_ref();
    known.is_some_and(|known| known.uid == pod.uid && known.disrupted_at.is_some())
}

/// Whether the disruption that ended an attempt is in the count already.
pub(super) fn is_counted(run: &Run<'_>, judgement: &Judgement) -> bool {
    let known = run.status.pod.as_ref();
    known.is_some_and(|known| {
        // Whoever deletes a Job stops its Pod, and that may be seen first.
        let is_its_pod = judgement.reason == Reason::JobLost
            || judgement.evidence.pod_uid.as_ref() == Some(&known.uid);
        known.disrupted_at.is_some() && is_one(judgement.reason) && is_its_pod
    })
}

/// The Pod of a Job that ended is gone, but we saw just before that it was being stopped. A later
/// end is that of another Pod, and nobody knows how that one ended.
pub(super) fn remembered(run: &Run<'_>, end: &JobEnd, pod: Option<&PodView>) -> Option<Judgement> {
    let known = run.status.pod.as_ref()?;
    let stopped = known.disrupted_at.as_ref()?;
    let is_late = end
        .at()
        .is_none_or(|at| at > time::after(stopped.0, ITS_END));
    if is_late || pod.is_some_and(|pod| pod.uid != known.uid) {
        return None;
    }
    let node = known
        .node
        .as_ref()
        .map_or_else(String::new, |node| format!(" on node '{node}'"));
    let message = format!(
        "Pod '{}'{node} was stopped from outside; what it returned is no result",
        known.name
    );
    let evidence = Evidence {
        pod_name: Some(known.name.clone()),
        pod_uid: Some(known.uid.clone()),
        node: known.node.clone(),
        started_at: run.status.started_at.clone(),
        ..Evidence::default()
    };
    Some(Judgement::new(Reason::Disrupted, message, evidence))
}

/// What is said when it was stopped once too often.
pub(super) fn too_many(run: &Run<'_>, last: &str) -> String {
    let count = run.status.disruptions;
    let pod = run.status.pod.as_ref();
    let last = match (last, pod) {
        ("", Some(pod)) => format!(": the last time it was Pod '{}'", pod.name),
        (last, _) => after_colon(last),
    };
    format!("the agent was stopped from outside {count} times{last}")
}
