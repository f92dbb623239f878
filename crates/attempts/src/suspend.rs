//! Suspension of a run by its `suspend` field.

use api::{
    Reason, Timestamp, Verdict,
    decide::{Decision, Effect, ResourceType},
    names,
    status::{MAX_MESSAGE_CHARS, bounded},
    tasks::RunPhase,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::Cause;
use serde_json::{Value, json};

use crate::{
    Run, RunDecision, Stage,
    finish::message_of,
    in_progress,
    lost_log::{self, SUSPENDED},
    run::{describe_pod, may_run, predates_suspension, some_of},
    time,
    view::JobView,
};

/// Maximum number of Pods that we list on a suspended Job. It runs one Pod; others are terminating.
const STOPPED: usize = 8;

/// Suspends a run before an attempt, or between two. Nothing is started, and no time counts.
pub(crate) fn before(run: &Run<'_>) -> RunDecision {
    let message = match run.stage() {
        Stage::RetryBackoff(result) => {
            let message = bounded(message_of(result), MAX_MESSAGE_CHARS - 100);
            format!("suspended after attempt {}: {message}", run.status.attempts)
        }
        Stage::NotStarted | Stage::InProgress(_) | Stage::Stopping(_) => {
            "suspended before it was started".to_owned()
        }
    };
    suspended(run, message)
}

/// Suspends a run during an attempt. Its Job is suspended, which ends its Pod.
pub(crate) fn during(run: &Run<'_>, job: &JobView) -> RunDecision {
    let left: Vec<String> = run
        .pods_of(job)
        .filter(|pod| may_run(pod))
        .map(describe_pod)
        .collect();
    let log = lost_log::note_of_suspended(run, job);
    let message = if left.is_empty() {
        format!("{SUSPENDED}Job '{}' runs nothing{log}", job.name)
    } else {
        format!("{SUSPENDED}waiting for {} to stop{log}", some_of(&left))
    };
    let mut decision = suspended(run, message);
    if !job.suspended || !job.suspended_by_us {
        decision = decision.with(set(run, job, json!({ "suspend": true })));
    }
    decision
}

/// Returns a cause if another actor suspended the Job, such as a queue. That actor must resume it.
pub(crate) fn by_others(job: &JobView) -> Option<Cause> {
    let is_theirs = job.suspended && !job.suspended_by_us;
    is_theirs.then(|| {
        let name = &job.name;
        let message =
            format!("Job '{name}' was suspended by another actor, which has to resume it");
        Cause::new(Reason::Suspended, message)
    })
}

/// Returns a cause while a Pod that the suspension stopped still exists, because it delays the next Pod.
pub(crate) fn still_stopping(run: &Run<'_>, job: &JobView) -> Option<Cause> {
    let mut pods = run.pods_of(job);
    let pod = pods.find(|pod| predates_suspension(job, pod) && may_run(pod))?;
    let pod = describe_pod(pod);
    let message = format!("waiting for {pod}, which was suspended, to stop");
    Some(Cause::new(Reason::Progressing, message))
}

/// Resumes a run. The attempt starts again from its beginning.
///
/// A Job that its controller never saw suspended would keep its Pod, which we consider stopped. So we resume a Job only
/// once it reports that it is suspended.
pub(crate) fn resume(run: &Run<'_>, job: &JobView) -> RunDecision {
    let has_stopped = job.resumed == Some(Timestamp::MAX);
    if !has_stopped && !job.stopped_pods.is_empty() {
        let name = &job.name;
        let message = format!("Job '{name}' goes on when its controller has stopped it");
        let cause = Cause::new(Reason::Progressing, message);
        return in_progress::waiting(run, job, Some(cause), None);
    }
    let deadline = run.after(run.start_timeout(job));
    let mut status = run.next();
    status.started_at = None;
    status.pod = None;
    status.progress.deadline_at = Some(Time(deadline));
    // Not every release of Kubernetes restarts the Job's own limit.
    let mut spec = json!({ "suspend": false });
    if let Some(limit) = in_progress::limit(job, time::after(deadline, run.pod_time(job))) {
        spec["activeDeadlineSeconds"] = json!(limit);
    }
    Decision::status_only(status, RunPhase::Pending, in_progress::created(&job.name))
        .with(set(run, job, spec))
        .effects_until(run.deadline().unwrap_or(deadline))
        .requeue_at(deadline)
}

fn suspended(run: &Run<'_>, message: String) -> RunDecision {
    let mut status = run.next();
    status.started_at = None;
    status.progress.deadline_at = None;
    status.next_attempt_at = None;
    // We stop the Pod ourselves, so this is no disruption.
    status.pod = None;
    let verdict = Verdict::working(Reason::Suspended, message);
    Decision::status_only(status, RunPhase::Pending, verdict)
}

/// Patches the spec of the Job. The annotation in the same write marks the suspension as ours.
fn set(run: &Run<'_>, job: &JobView, spec: Value) -> Effect {
    let is_suspended = spec["suspend"] == true;
    let mut annotations = json!({ names::SUSPENDED: is_suspended.then_some("true") });
    if is_suspended {
        let pods = run.pods_of(job).take(STOPPED);
        let named: Vec<&str> = pods.map(|pod| pod.uid.as_str()).collect();
        annotations[names::STOPPED_PODS] = json!((!named.is_empty()).then(|| named.join(",")));
    }
    Effect::Patch {
        target: run.target(ResourceType::JOB, &job.name, &job.uid),
        subresource: None,
        patch: json!({ "metadata": { "annotations": annotations }, "spec": spec }),
    }
}
