//! The stop of a Job, so that the logs of its Pods stay readable.
//!
//! Deleting a Job, suspending it and reaching its own limit delete its active Pods, and the kubelet deletes their logs.
//! So we set the limit of the Pod itself: the kubelet then ends all its containers, and keeps the Pod and its logs.
//! We stop a Pod through its Job only if no kubelet can end it that way.

use std::time::Duration;

use api::decide::{Effect, ResourceType};
use serde_json::json;

use crate::{
    Run, STOP_WAIT, Stage, time,
    view::{JobView, PodView},
};

/// Limit that ends a Pod or a Job at once, in seconds: the lowest that the API server accepts. Both accept any lower
/// limit, and a Pod accepts no higher one.
pub(crate) const AT_ONCE: i64 = 1;

/// For this long after the begin of a stop, a rejected limit of a Pod is tried again. After that, the Pod is stopped
/// through its Job: an agent must not run on because a permission is missing.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between these tries.
pub(crate) const RETRY: Duration = Duration::from_secs(10);

/// Next step of the stop of a Job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop<'a> {
    /// Nothing is left to stop.
    Over,
    /// Everything was asked to stop. The kubelet or the Job controller needs time.
    Asked,
    /// Set the limit of these Pods. The kubelet ends their containers, and keeps Pods and logs.
    Pods(Vec<&'a PodView>),
    /// Set the limit of the Job. This deletes its active Pods, and keeps the Job and the Pods that ended.
    Job,
    /// Delete the Job. It is suspended, so it has no limit that could end it, and no Pod that ran. Or the status does
    /// not announce the Job.
    Delete,
}

/// Circumstances of a stop that its Job does not show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Whether a user forbids every deletion.
    pub(crate) is_preserved: bool,
    /// Whether the API server rejected the limit of a Pod in this reconciliation.
    pub(crate) is_refused: bool,
    /// Whether the stop began so recently that a rejected limit is tried again.
    pub(crate) is_recent: bool,
}

/// Returns the next step of the stop of this Job.
pub(crate) fn of<'a>(run: &Run<'a>, job: &'a JobView) -> Stop<'a> {
    let pods: Vec<&PodView> = run.pods_of(job).collect();
    let terms = Terms {
        is_preserved: run.is_preserved(),
        is_refused: run.refused,
        is_recent: is_recent(run),
    };
    next_step(job, &pods, terms)
}

/// Returns whether a stop of this run began so recently that a rejected limit is tried again.
fn is_recent(run: &Run<'_>) -> bool {
    match run.stage() {
        Stage::Stopping(_) => run
            .deadline()
            .is_some_and(|deadline| run.after(STOP_WAIT.saturating_sub(PATIENCE)) < deadline),
        // A newer version waits for an earlier one since its phase began.
        Stage::NotStarted => {
            let begun = run.status.progress.phase_started_at.as_ref();
            begun.is_some_and(|begun| run.now < time::after(begun.0, PATIENCE))
        }
        Stage::InProgress(_) | Stage::RetryBackoff(_) => false,
    }
}

/// Returns the next step of the stop of a Job that the status does not announce. Its effect is unknown, and it may have
/// the name of the next Job. So it is deleted, unless a user forbids that.
pub(crate) fn of_unannounced<'a>(run: &Run<'a>, job: &'a JobView) -> Stop<'a> {
    if run.is_preserved() {
        return of(run, job);
    }
    match job.deleting {
        Some(_) => Stop::Asked,
        None => Stop::Delete,
    }
}

/// Returns the effects of a step.
pub(crate) fn effects(run: &Run<'_>, job: &JobView, stop: &Stop<'_>) -> Vec<Effect> {
    match stop {
        Stop::Over | Stop::Asked => Vec::new(),
        Stop::Pods(pods) => pods.iter().map(|pod| limit_pod(run, pod)).collect(),
        Stop::Job => vec![limit_job(run, job)],
        Stop::Delete => vec![run.delete(job)],
    }
}

/// Returns the effect that keeps a Job from starting another Pod, when the wait for the end of its Pod is over. Without
/// it, the Job controller would replace the Pod of a lost node when the Node is deleted, after the end of the run.
pub(crate) fn last_step(run: &Run<'_>, job: &JobView) -> Option<Effect> {
    let may_replace =
        job.end.is_none() && job.deleting.is_none() && !job.suspended && !job.was_stopped();
    (may_replace && !run.is_preserved()).then(|| limit_job(run, job))
}

fn next_step<'a>(job: &JobView, pods: &[&'a PodView], terms: Terms) -> Stop<'a> {
    if job.end.is_some() {
        return Stop::Over;
    }
    if job.deleting.is_some() {
        return Stop::Asked;
    }
    let is_limited = job.was_stopped();
    if job.suspended {
        let is_active = pods.iter().any(|pod| is_active(pod));
        return match (terms.is_preserved, is_limited) {
            // Someone may resume the Job after the end of the run. Then it must not start a Pod.
            (false, _) => Stop::Delete,
            (true, false) => Stop::Job,
            (true, true) if is_active => Stop::Asked,
            (true, true) => Stop::Over,
        };
    }
    if is_limited {
        return Stop::Asked;
    }
    let mut within_reach = pods.iter().filter(|pod| is_within_reach(pod)).peekable();
    if within_reach.peek().is_none() {
        // Also if the only Pod has ended: the Job controller replaces a Pod that was disrupted.
        return Stop::Job;
    }
    // A kubelet that waits for a volume does not obey. A view without our limit could hide a container that has started
    // since. A view that has it hides only what the kubelet had not yet reported.
    let waits_for_volumes = |pod: &PodView| is_asked(pod) && pod.lacks_sandbox;
    if !terms.is_preserved && within_reach.clone().all(|pod| waits_for_volumes(pod)) {
        return Stop::Job;
    }
    let unasked: Vec<&PodView> = within_reach.filter(|pod| !is_asked(pod)).copied().collect();
    match (unasked.is_empty(), terms.is_refused) {
        (true, _) => Stop::Asked,
        (false, false) => Stop::Pods(unasked),
        (false, true) if terms.is_preserved || terms.is_recent => Stop::Asked,
        (false, true) => Stop::Job,
    }
}

/// Returns whether a container of the Pod may run. That includes a container that another component injected, which
/// may outlive ours.
pub(crate) fn is_active(pod: &PodView) -> bool {
    !pod.phase.is_over()
}

/// Returns whether a kubelet ends the Pod when the Pod's limit is reached. A Pod without a node has no kubelet. A Pod
/// that is being deleted or evicted loses its log anyway, and its Job might replace it.
fn is_within_reach(pod: &PodView) -> bool {
    is_active(pod) && pod.node.is_some() && !pod.is_deleting() && pod.disruption.is_none()
}

/// Returns whether the Pod has the limit that ends it at once.
fn is_asked(pod: &PodView) -> bool {
    pod.limit_seconds == Some(AT_ONCE)
}

/// Sets the limit of a Pod. If the role of an older installation or a policy rejects this, the Job is limited instead.
fn limit_pod(run: &Run<'_>, pod: &PodView) -> Effect {
    Effect::Patch {
        target: run
            .target(ResourceType::POD, &pod.name, &pod.uid)
            .optional(),
        subresource: None,
        patch: json!({ "spec": { "activeDeadlineSeconds": AT_ONCE } }),
    }
}

/// Sets the limit of a Job. Without parallelism, a Job that has no Pod yet does not start one for that second.
fn limit_job(run: &Run<'_>, job: &JobView) -> Effect {
    Effect::Patch {
        target: run.target(ResourceType::JOB, &job.name, &job.uid),
        subresource: None,
        patch: json!({ "spec": { "activeDeadlineSeconds": AT_ONCE, "parallelism": 0 } }),
    }
}

#[cfg(test)]
mod tests {
    use api::Timestamp;
    use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};

    use super::*;
    use crate::{
        Containers,
        view::{JobEnd, PodPhase, Reported},
    };

    const CONTAINERS: Containers = Containers {
        before: None,
        main: "agent",
        after: None,
    };

    fn job(change: impl FnOnce(&mut JobView)) -> JobView {
        let mut job = JobView::new(&Job::default(), &[]);
        job.limit_seconds = Some(4260);
        change(&mut job);
        job
    }

    /// Returns a Pod that runs on a node.
    fn pod(change: impl FnOnce(&mut PodView)) -> PodView {
        let mut pod = PodView::new(&Pod::default(), &CONTAINERS);
        pod.node = Some("node-1".to_owned());
        pod.phase = PodPhase::Running;
        change(&mut pod);
        pod
    }

    /// Name of a step, without its Pods.
    fn name(stop: &Stop<'_>) -> &'static str {
        match stop {
            Stop::Over => "over",
            Stop::Asked => "asked",
            Stop::Pods(_) => "pods",
            Stop::Job => "job",
            Stop::Delete => "delete",
        }
    }

    #[test]
    fn the_kubelet_ends_each_pod_that_it_can_and_nothing_else_is_lost() {
        let running = || job(|_| {});
        let limited = || job(|job| job.limit_seconds = Some(AT_ONCE));
        let suspended = || job(|job| job.suspended = true);
        let suspended_and_limited = || {
            job(|job| {
                job.suspended = true;
                job.limit_seconds = Some(AT_ONCE);
            })
        };
        let over = job(|job| job.end = Some(JobEnd::Complete { at: None }));
        let leaving = job(|job| job.deleting = Some(Timestamp::UNIX_EPOCH));
        let on_node = pod(|_| {});
        let asked = pod(|pod| pod.limit_seconds = Some(AT_ONCE));
        let no_sandbox = pod(|pod| {
            pod.phase = PodPhase::Pending;
            pod.lacks_sandbox = true;
        });
        let asked_without = pod(|pod| {
            pod.phase = PodPhase::Pending;
            pod.lacks_sandbox = true;
            pod.limit_seconds = Some(AT_ONCE);
        });
        let lowered = pod(|pod| pod.limit_seconds = Some(600));
        // The kubelet was told of the Pod, and has not reported a phase.
        let unseen = pod(|pod| pod.phase = PodPhase::Unknown);
        let no_node = pod(|pod| {
            pod.node = None;
            pod.phase = PodPhase::Pending;
        });
        let deleted = pod(|pod| pod.stop_asked = Some(Timestamp::UNIX_EPOCH));
        let evicted = pod(|pod| pod.disruption = Some(Reported::default()));
        let failed = pod(|pod| pod.phase = PodPhase::Failed);
        let done = pod(|pod| pod.phase = PodPhase::Succeeded);
        // Job, Pods, and the step: without conditions, if every deletion is forbidden, if the API server rejects the
        // limit of a Pod, and with both.
        type Row<'a> = (&'a str, JobView, Vec<&'a PodView>, [&'static str; 4]);
        let rows: Vec<Row<'_>> = vec![
            ("has ended", over, vec![&on_node], ["over"; 4]),
            ("is being deleted", leaving, vec![&on_node], ["asked"; 4]),
            (
                "runs",
                running(),
                vec![&on_node],
                ["pods", "pods", "job", "asked"],
            ),
            (
                "has a limit of its own",
                running(),
                vec![&lowered],
                ["pods", "pods", "job", "asked"],
            ),
            (
                "is only bound",
                running(),
                vec![&unseen],
                ["pods", "pods", "job", "asked"],
            ),
            ("was asked", running(), vec![&asked], ["asked"; 4]),
            (
                "waits for a volume",
                running(),
                vec![&no_sandbox],
                ["pods", "pods", "job", "asked"],
            ),
            (
                "was asked and waits for a volume",
                running(),
                vec![&asked_without],
                ["job", "asked", "job", "asked"],
            ),
            (
                "one of two waits for a volume",
                running(),
                vec![&asked_without, &asked],
                ["asked"; 4],
            ),
            ("has no Pod", running(), vec![], ["job"; 4]),
            ("has no node", running(), vec![&no_node], ["job"; 4]),
            ("its Pod is deleted", running(), vec![&deleted], ["job"; 4]),
            ("its Pod is evicted", running(), vec![&evicted], ["job"; 4]),
            ("its Pod failed", running(), vec![&failed], ["job"; 4]),
            ("its Pod succeeded", running(), vec![&done], ["job"; 4]),
            (
                "one of two runs",
                running(),
                vec![&failed, &on_node],
                ["pods", "pods", "job", "asked"],
            ),
            (
                "one of two was asked",
                running(),
                vec![&asked, &on_node],
                ["pods", "pods", "job", "asked"],
            ),
            ("was limited", limited(), vec![&on_node], ["asked"; 4]),
            ("was limited without a Pod", limited(), vec![], ["asked"; 4]),
            (
                "is suspended",
                suspended(),
                vec![],
                ["delete", "job", "delete", "job"],
            ),
            (
                "is suspended and stops",
                suspended(),
                vec![&deleted],
                ["delete", "job", "delete", "job"],
            ),
            (
                "is suspended and limited",
                suspended_and_limited(),
                vec![],
                ["delete", "over", "delete", "over"],
            ),
            (
                "is suspended, limited and stops",
                suspended_and_limited(),
                vec![&deleted],
                ["delete", "asked", "delete", "asked"],
            ),
        ];
        for (what, job, pods, wanted) in rows {
            let wanted_at_first = wanted[0];
            let terms = [(false, false), (true, false), (false, true), (true, true)];
            for ((is_preserved, is_refused), wanted) in terms.into_iter().zip(wanted) {
                let terms = Terms {
                    is_preserved,
                    is_refused,
                    is_recent: false,
                };
                let step = next_step(&job, &pods, terms);
                assert_eq!(name(&step), wanted, "{what}, {terms:?}");
                if let Stop::Pods(chosen) = step {
                    let is_new = |pod: &&&PodView| {
                        !pod.phase.is_over() && pod.limit_seconds != Some(AT_ONCE)
                    };
                    let wanted: Vec<&PodView> = pods.iter().filter(is_new).copied().collect();
                    assert_eq!(chosen, wanted, "{what}");
                }
            }
            // A rejection is tried again for a while.
            for (is_refused, wanted) in [(false, wanted[0]), (true, wanted[2])] {
                let terms = Terms {
                    is_preserved: false,
                    is_refused,
                    is_recent: true,
                };
                let is_retried = is_refused && wanted != wanted_at_first;
                let wanted = if is_retried { "asked" } else { wanted };
                assert_eq!(
                    name(&next_step(&job, &pods, terms)),
                    wanted,
                    "{what}, {terms:?}"
                );
            }
        }
    }
}
