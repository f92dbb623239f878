//! Why a container does not start: reports of kubelet, scheduler and Events, as one typed cause.
//!
//! The table of causes is in the crate `pods`. Here are the sources of a cause and their order. A cause's message
//! contains only the reported text, without the random name of a rejected Pod. So a repeated decision has the same
//! message and writes nothing.

use api::{Reason, warning::Warning, webhook::FailedWebhook};
use pods::{Cause, Rejection, StartFailure, after_colon, unscheduled_reason, warning_reason};

use crate::{
    Run, disruption,
    run::describe_pod,
    view::{JobView, PREPARING, PodView},
};

/// Returns the cause that is visible now, if any. More specific sources come first.
pub(crate) fn find(
    run: &Run<'_>,
    job: &JobView,
    pod: Option<&PodView>,
    user: Option<i64>,
) -> Option<Cause> {
    let Some(pod) = pod else {
        return newest(run, job, &job.uid, from_job_warning);
    };
    stopped(run, pod)
        .or_else(|| container(run, pod, user))
        .or_else(|| unschedulable(pod))
        .or_else(|| {
            newest(run, job, &pod.uid, |warning| {
                let cause = from_pod_warning(pod, warning);
                cause.filter(|_| !is_behind(run, warning))
            })
        })
}

/// Number of the kubelet's failures from which a ConfigMap that exists counts as missing for it.
const TRIES: i32 = 3;

/// Returns whether the kubelet misses the run's own ConfigMap, which exists. On a busy node, it receives a new ConfigMap
/// later than the Pod.
fn is_behind(run: &Run<'_>, warning: &Warning) -> bool {
    run.files().is_some_and(|files| {
        let missing = format!("configmap \"{}\" not found", files.name);
        !files.deleting && warning.times < TRIES && warning.message.ends_with(&missing)
    })
}

/// Returns the cause for a Pod that was asked to stop before its container started, or that is being replaced.
fn stopped(run: &Run<'_>, pod: &PodView) -> Option<Cause> {
    disruption::is_stopped(pod)
        .then(|| Cause::new(Reason::Disrupted, disruption::describe(run, pod)))
}

fn container(run: &Run<'_>, pod: &PodView, user: Option<i64>) -> Option<Cause> {
    let reported = pod.container.waiting()?;
    let name = describe_pod(pod);
    let containers = run.spec.containers;
    if let Some(before) = &containers.before
        && reported.reason == PREPARING
    {
        let (activity, main) = (before.activity, containers.main);
        let message = format!("{name} {activity}; its {main} starts after that");
        return Some(Cause::new(before.reason, message));
    }
    let failure = StartFailure::of(&reported.reason, &reported.message, 0)?;
    Some(failure.cause(&name, &reported.message, user))
}

fn unschedulable(pod: &PodView) -> Option<Cause> {
    let message = pod.unschedulable.as_deref()?;
    Some(Cause::new(
        unscheduled_reason(message),
        format!("{} has no node{}", describe_pod(pod), after_colon(message)),
    ))
}

/// Maps the error that the Job controller received when it tried to create the Pod.
fn from_job_warning(warning: &Warning) -> Option<Cause> {
    if warning.reason != "FailedCreate" {
        return None;
    }
    let message = without_pod_name(&warning.message);
    // `kubectl get` shows the start of a message. A webhook that is down is no rule that rejects the Pod.
    let text = match FailedWebhook::find(&message) {
        Some(webhook) => format!("{webhook}, so the Pod cannot be created: {message}"),
        None => format!("the Pod cannot be created: {message}"),
    };
    Some(Cause::new(Rejection::of(&message).reason(), text))
}

/// Maps the kubelet's warnings about volumes. The scheduler's messages are in the Pod's condition.
fn from_pod_warning(pod: &PodView, warning: &Warning) -> Option<Cause> {
    let reason = warning_reason(&warning.reason, &warning.message, warning.times)?;
    Some(Cause::new(
        reason,
        format!("{}: {}", describe_pod(pod), warning.message),
    ))
}

/// Maps the newest warning about this object. A warning from before the Job is about another object of the same name,
/// or about a problem that was fixed since.
fn newest(
    run: &Run<'_>,
    job: &JobView,
    uid: &str,
    read: impl Fn(&Warning) -> Option<Cause>,
) -> Option<Cause> {
    let seen = |warning: &Warning| warning.seen(run.now);
    let warnings = run.world.warnings.iter();
    warnings
        .filter(|warning| warning.object_uid == uid && !uid.is_empty())
        .filter(|warning| job.created.is_none() || seen(warning) >= job.created)
        .filter_map(|warning| read(warning).map(|cause| (seen(warning), cause)))
        .max_by(|(one, first), (other, second)| {
            (one, &first.message).cmp(&(other, &second.message))
        })
        .map(|(_, cause)| cause)
}

/// Returns `Error creating: pods "x-abcde" is forbidden: …` without the Pod's name, which differs at each try.
fn without_pod_name(message: &str) -> String {
    let message = message.strip_prefix("Error creating: ").unwrap_or(message);
    let named = message
        .strip_prefix("pods \"")
        .or_else(|| message.strip_prefix("Pod \""));
    match named.and_then(|rest| rest.split_once("\" is ")) {
        Some((_, what)) => format!("it is {what}"),
        None => message.to_owned(),
    }
}
