//! The loss of a log. The kubelet deletes the log of a container with its Pod, and when it evicts the Pod.

use api::{Reason, messages, status::bounded, tasks::Evidence};

use crate::{
    Run,
    attempt_result::evidence,
    finish::INNER,
    run::may_run,
    view::{JobView, PodView},
};

/// Note about a container that does not run any more. Each note about a lost log begins with it.
const LOST: &str = messages::LOG_LOST;
/// Note about a container that may still run.
const LOST_WITH_IT: &str = "; its log is lost with it";

/// Begin of the message about a Job that a user suspended.
pub(crate) const SUSPENDED: &str = "suspended: ";

/// Actors that report a disruption of a Pod, and then delete the Pod. The kubelet reports one, too, but keeps the Pod.
/// If it reports that because its node shuts down, it also keeps the log.
const DELETING_ACTORS: &[&str] = &[
    "EvictionByEvictionAPI",
    "PreemptionByScheduler",
    "DeletionByTaintManager",
    "DeletionByPodGC",
];
/// Reasons of a Pod that the kubelet evicted, and whose logs it deletes. It preempts a Pod in the same way, in favor of
/// a static Pod.
const EVICTED: &[&str] = &["Evicted", "Preempting"];

/// Returns the message about an attempt with this evidence, with a note if the log is lost.
pub(crate) fn noted(run: &Run<'_>, message: &str, evidence: &Evidence) -> String {
    if message.contains(LOST) || !is_lost(run, evidence) {
        return message.to_owned();
    }
    bounded(message, INNER - LOST.len()) + LOST
}

/// Returns the note for the message about a Pod that was asked to stop, or an empty text.
pub(crate) fn note(run: &Run<'_>, pod: &PodView) -> &'static str {
    let is_lost = is_lost(run, &evidence(Some(pod)));
    text(is_lost, may_run(pod))
}

/// Returns the note for the message about a Job that a user suspended, or an empty text. The Job controller deletes
/// the Pods of such a Job that run.
///
/// # Guarantees
/// The note stays until the run is resumed, although nothing else shows later that a container had started.
pub(crate) fn note_of_suspended(run: &Run<'_>, job: &JobView) -> &'static str {
    let active: Vec<&PodView> = run.pods_of(job).filter(|pod| may_run(pod)).collect();
    let has_started =
        |pod: &&PodView| evidence(Some(*pod)).started_at.is_some() || had_started(run, &pod.uid);
    let is_lost = is_reported(run, Reason::Suspended, SUSPENDED)
        || active.iter().any(has_started)
        || is_lost(run, &evidence(run.newest_pod(job)));
    text(is_lost, !active.is_empty())
}

fn text(is_lost: bool, may_run: bool) -> &'static str {
    match (is_lost, may_run) {
        (false, _) => "",
        (true, false) => LOST,
        (true, true) => LOST_WITH_IT,
    }
}

/// Returns whether it is known that a container had started and that its log is lost.
fn is_lost(run: &Run<'_>, evidence: &Evidence) -> bool {
    let recorded = run.status.pod.as_ref().map(|pod| &pod.uid);
    let Some(uid) = evidence.pod_uid.as_ref().or(recorded) else {
        return is_reported(run, Reason::Suspended, SUSPENDED);
    };
    let has_started = evidence.started_at.is_some() || had_started(run, uid);
    let pod = run.pods().find(|pod| pod.uid == *uid);
    has_started && pod.is_none_or(|pod| is_doomed(run, pod))
}

/// Returns whether the stored status shows that a container of this Pod had started. The Pod itself does not always
/// show that: the kubelet forgets the containers of a Pod that it evicts.
pub(crate) fn had_started(run: &Run<'_>, uid: &str) -> bool {
    let recorded = run.status.pod.as_ref().filter(|pod| pod.uid == uid);
    recorded.is_some_and(|pod| {
        // A Pod is recorded when its container runs, and also when something stops the Pod.
        let start = format!("Pod '{}'", pod.name);
        pod.disrupted_at.is_none() || is_reported(run, Reason::Disrupted, &start)
    })
}

/// Returns whether the stored message has this reason and start, and reports that the log is lost.
fn is_reported(run: &Run<'_>, reason: Reason, start: &str) -> bool {
    run.stored_message().is_some_and(|(known, message)| {
        known == reason && message.starts_with(start) && message.contains(LOST)
    })
}

/// Returns whether a Pod that exists has lost its log, or is certain to lose it.
fn is_doomed(run: &Run<'_>, pod: &PodView) -> bool {
    let is_removed = pod
        .disruption
        .as_ref()
        .is_some_and(|reported| DELETING_ACTORS.contains(&reported.reason.as_str()));
    let is_evicted = pod
        .failure
        .as_ref()
        .is_some_and(|failure| EVICTED.contains(&failure.reason.as_str()));
    // The garbage collector deletes a Pod whose Job no longer exists.
    let mut jobs = run.world.jobs.iter();
    let is_orphan = pod
        .job_uid
        .as_ref()
        .is_some_and(|uid| jobs.all(|job| job.uid != *uid));
    pod.is_deleting() || is_removed || is_evicted || is_orphan
}
