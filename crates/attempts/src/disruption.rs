//! Disruptions: stops of a Pod from outside, and their number. A disruption uses no attempt, and it is no result.

use std::time::Duration;

use api::{
    Reason, Timestamp,
    tasks::{Evidence, RunPod},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::after_colon;

use crate::{
    AttemptResult, Run,
    finish::reason_of,
    lost_log,
    run::{describe_pod, may_run},
    time,
    view::{JobEnd, JobView, PodView},
};

/// Number of disruptions that ends the run: something stops it again and again.
pub(crate) const MAX_DISRUPTIONS: u32 = 6;
/// Maximum time from the request to stop a Pod to the reported end of its Job: 30 seconds of grace, and the time of
/// kubelet and Job controller.
const ITS_END: Duration = Duration::from_secs(60);
/// If a Pod still exists this long after its grace period, its node does not respond.
const OVERDUE: Duration = Duration::from_secs(30);

/// Returns whether an attempt that ended for this reason is started again without using another attempt.
pub(crate) fn is_disruption(reason: Reason) -> bool {
    matches!(reason, Reason::Disrupted | Reason::JobLost)
}

/// Returns whether the stored result of the last attempt is a disruption.
pub(crate) fn was_disrupted(result: &Evidence) -> bool {
    is_disruption(reason_of(result))
}

/// Returns whether something asked the Pod to stop.
pub(crate) fn is_stopped(pod: &PodView) -> bool {
    pod.disruption.is_some() || pod.stop_asked.is_some()
}

/// Returns the cause of the stop in parentheses, if a component of the cluster reports it.
pub(crate) fn source(pod: &PodView) -> String {
    match &pod.disruption {
        Some(said) if !said.reason.is_empty() => {
            format!(" ({}{})", said.reason, after_colon(&said.message))
        }
        Some(_) | None => String::new(),
    }
}

/// Returns when we assume that the node of a Pod that was asked to stop does not respond.
pub(crate) fn given_up_at(pod: &PodView) -> Option<Timestamp> {
    pod.stop_by.map(|by| time::after(by, OVERDUE))
}

/// Describes the state of a Pod that was asked to stop.
pub(crate) fn describe(run: &Run<'_>, pod: &PodView) -> String {
    let (name, by, log) = (describe_pod(pod), source(pod), lost_log::note(run, pod));
    // A Pod does not show that it is deleted with its namespace, and the operator may not read namespaces.
    let or_with = match &pod.disruption {
        Some(_) => "",
        None => ", or with its namespace",
    };
    if !may_run(pod) {
        return format!(
            "{name} was terminated by another actor{by}{or_with}{log}; waiting for its replacement"
        );
    }
    match (&pod.node, given_up_at(pod)) {
        (Some(node), Some(overdue)) if run.now >= overdue => format!(
            "{name} was asked to stop{by} and has not stopped: node '{node}' does not respond{log}. Another Pod starts when the node is back and has stopped it, when Node '{node}' is deleted, or when it has the taint 'node.kubernetes.io/out-of-service'"
        ),
        _ => format!(
            "{name} is being terminated by another actor{by}{or_with}{log}; waiting until it has ended"
        ),
    }
}

/// Returns a Pod in its stored form.
pub(crate) fn to_status(pod: &PodView, disrupted_at: Option<Timestamp>) -> RunPod {
    RunPod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        node: pod.node.clone(),
        disrupted_at: disrupted_at.map(|at| Time(time::whole(at))),
    }
}

/// Returns the run with the disruption counted that its Job's newest Pod shows: this Pod is being stopped, or it has
/// replaced the Pod that ran.
///
/// A Pod that no longer exists counts only when another one exists. A Pod that is only not seen yet is no loss.
pub(crate) fn with_new_disruptions<'a>(run: &Run<'a>, job: &JobView) -> Run<'a> {
    let mut run = run.clone();
    // Deleting the Job also stops its Pods. That counts once the Job no longer exists.
    let newest = run.newest_pod(job).filter(|_| job.deleting.is_none());
    let Some(pod) = newest else { return run };
    let known = run.status.pod.as_ref();
    let is_another = known.is_some_and(|known| known.uid != pod.uid);
    // The observed Pods may be older than the recorded status.
    if is_another && is_older(&run, pod) {
        return run;
    }
    let was_counted = known.is_some_and(|known| known.disrupted_at.is_some());
    // If the record of our suspension was lost, the status still has the Pod that the suspension stopped.
    let was_suspended = known.is_some_and(|known| job.stopped_pods.contains(&known.uid));
    let mut count = u32::from(is_another && !was_counted && !was_suspended);
    if is_stopped(pod) && (is_another || !was_counted) {
        count = count.saturating_add(1);
        run.status.pod = Some(to_status(pod, Some(run.now)));
    } else if is_another {
        run.status.pod = None;
    }
    run.status.disruptions = run
        .status
        .disruptions
        .saturating_add(count)
        .min(MAX_DISRUPTIONS);
    run
}

/// Returns whether a Pod was created before the Pod in the status ran.
fn is_older(run: &Run<'_>, pod: &PodView) -> bool {
    let since = run.status.started_at.as_ref().or(disrupted_at(run));
    since.is_some_and(|since| pod.created.is_some_and(|made| made < since.0))
}

/// Returns whether we recorded that something outside stops this Pod.
pub(crate) fn is_known(run: &Run<'_>, pod: &PodView) -> bool {
    let known = run.status.pod.as_ref();
    known.is_some_and(|known| known.uid == pod.uid && known.disrupted_at.is_some())
}

/// Returns whether the count already includes the disruption that ended an attempt.
pub(crate) fn is_counted(run: &Run<'_>, attempt_result: &AttemptResult) -> bool {
    let known = run.status.pod.as_ref();
    known.is_some_and(|known| {
        // Deleting a Job also stops its Pod, and we may see that first.
        let is_its_pod = attempt_result.reason == Reason::JobLost
            || attempt_result.evidence.pod_uid.as_ref() == Some(&known.uid);
        known.disrupted_at.is_some() && is_disruption(attempt_result.reason) && is_its_pod
    })
}

/// Returns a disruption if the Pod of a finished Job no longer exists, but we saw shortly before that it was being
/// stopped. A later end belongs to another Pod, and nobody knows how that one ended.
pub(crate) fn remembered(
    run: &Run<'_>,
    end: &JobEnd,
    pod: Option<&PodView>,
) -> Option<AttemptResult> {
    let known = run.status.pod.as_ref()?;
    let stopped = known.disrupted_at.as_ref()?;
    let is_its_end = end.at().is_some_and(|at| is_end_of(stopped, at));
    if !is_its_end || pod.is_some_and(|pod| pod.uid != known.uid) {
        return None;
    }
    let node = known
        .node
        .as_ref()
        .map_or_else(String::new, |node| format!(" on node '{node}'"));
    let name = &known.name;
    let message =
        format!("Pod '{name}'{node} was terminated by another actor; its result is ignored");
    let evidence = Evidence {
        pod_name: Some(known.name.clone()),
        pod_uid: Some(known.uid.clone()),
        node: known.node.clone(),
        started_at: run.status.started_at.clone(),
        ..Evidence::default()
    };
    Some(AttemptResult::new(Reason::Disrupted, message, evidence))
}

/// Returns whether a Pod that ends now is the one that we saw being stopped.
pub(crate) fn is_recent(run: &Run<'_>) -> bool {
    disrupted_at(run).is_some_and(|stopped| is_end_of(stopped, run.now))
}

/// Returns when we saw that the Pod in the status was being stopped.
fn disrupted_at<'s>(run: &'s Run<'_>) -> Option<&'s Time> {
    run.status.pod.as_ref()?.disrupted_at.as_ref()
}

/// Returns whether the end at `at` belongs to the Pod that was seen stopping at `stopped`, and not to a later Pod.
fn is_end_of(stopped: &Time, at: Timestamp) -> bool {
    at <= time::after(stopped.0, ITS_END)
}

/// Returns the message for too many disruptions.
pub(crate) fn too_many(run: &Run<'_>, last: &str) -> String {
    let count = run.status.disruptions;
    let pod = run.status.pod.as_ref();
    let last = match (last, pod) {
        ("", Some(pod)) => format!(": the last time it was Pod '{}'", pod.name),
        (last, _) => after_colon(last),
    };
    let main = run.spec.containers.main;
    format!("the {main} was terminated by another actor {count} times{last}")
}
