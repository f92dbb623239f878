//! Deletion of objects after a run's end. Every reconciliation computes the due times from stored times. So a restart
//! or another configuration changes nothing but the result of this computation.

use std::time::Duration;

use api::{
    Phase, Timestamp,
    decide::{Effect, ResourceType, Target},
    tasks::RunPhase,
};

use crate::{
    Run, RunDecision, time,
    view::{JobEnd, JobView},
};

/// Adds the due deletions to the decision about a run that ended, and the time of the next reconciliation.
pub(crate) fn add(run: &Run<'_>, decision: &mut RunDecision) {
    if run.is_preserved() {
        return;
    }
    let Some(end) = end(run) else { return };
    if let Some(wait) = run.spec.delete_finished_runs_after {
        // If the author keeps the Pods longer, we also keep the run that they belong to.
        let due = time::after(end, own(run, run.phase()).map_or(wait, |own| own.max(wait)));
        if run.now >= due {
            // The run's children are deleted with it.
            decision.effects.push(itself(run));
            return;
        }
        decision.requeue_at = Some(due);
    }
    let due = past(run, decision);
    decision.effects.extend(due);
    let Some((wait, with_files)) = rule(run, run.phase()) else {
        return;
    };
    let children = children(run, with_files);
    if children.is_empty() {
        return;
    }
    let due = time::after(end, wait);
    if run.now >= due {
        decision.effects.extend(children);
    } else {
        requeue_at(decision, due);
    }
}

/// Adds the due deletions of earlier versions to the decision about a run that goes on. They are optional: the API
/// server may reject them, and the attempt in progress is healthy.
pub(crate) fn add_past(run: &Run<'_>, decision: &mut RunDecision) {
    // A rejected effect is reported alone. If the decision has others, the deletion waits for the next one.
    // A decision that only writes the status is repeated at once.
    let is_record = decision.requeue_at.is_some_and(|at| at <= run.now);
    let is_calm =
        decision.effects.is_empty() && decision.defer_status_until.is_none() && !is_record;
    if decision.is_end() || !is_calm || run.is_preserved() {
        return;
    }
    let due = past(run, decision).into_iter();
    decision.effects.extend(due.map(Effect::optional));
}

/// Returns the due deletions of Jobs of earlier versions, and schedules the others. Each version has a retention of its
/// own, which begins with its end.
fn past(run: &Run<'_>, decision: &mut RunDecision) -> Vec<Effect> {
    let mut effects = Vec::new();
    for job in run.jobs().filter(|job| is_past(run, job)) {
        let Some(due) = past_due(run, job).filter(|_| job.deleting.is_none()) else {
            continue;
        };
        if run.now >= due {
            effects.push(run.delete(job));
        } else {
            requeue_at(decision, due);
        }
    }
    effects
}

/// Returns whether a Job belongs to an earlier version than the status describes, and ended.
fn is_past(run: &Run<'_>, job: &JobView) -> bool {
    let version = run.status.version.unwrap_or(run.spec.version);
    let is_current = run.status.job_name.as_ref() == Some(&job.name);
    job.version.is_some_and(|earlier| earlier < version) && job.end.is_some() && !is_current
}

/// Returns when the Job of an earlier version is deleted. A version that the status no longer lists is kept as one that
/// failed.
fn past_due(run: &Run<'_>, job: &JobView) -> Option<Timestamp> {
    let mut history = run.spec.history.iter().rev();
    let known = history.find(|past| Some(past.context_version) == job.version);
    let (phase, end) = match known {
        Some(past) if past.phase == RunPhase::Succeeded.name() => {
            (RunPhase::Succeeded, Some(past.finished_at.0))
        }
        Some(past) => (RunPhase::Failed, Some(past.finished_at.0)),
        None => (RunPhase::Failed, job.end.as_ref().and_then(JobEnd::at)),
    };
    let (wait, _) = rule(run, phase)?;
    Some(time::after(end.or(job.created)?, wait))
}

fn requeue_at(decision: &mut RunDecision, due: Timestamp) {
    decision.requeue_at = Some(decision.requeue_at.map_or(due, |other| other.min(due)));
}

/// Returns when the run ended. A run that was restored without its status has no end time, so its creation counts.
fn end(run: &Run<'_>) -> Option<Timestamp> {
    let finished = run.status.finished_at.as_ref();
    let created = run.spec.metadata.creation_timestamp.as_ref();
    finished.or(created).map(|time| time.0)
}

/// Returns how long Jobs are kept after an end with this phase, and whether ConfigMaps are deleted with them: from the
/// run's spec, or else from the configuration.
fn rule(run: &Run<'_>, phase: RunPhase) -> Option<(Duration, bool)> {
    if let Some(own) = own(run, phase) {
        return Some((own, true));
    }
    let cleanup = run.spec.cleanup;
    let wait = if phase == RunPhase::Succeeded {
        cleanup.after_success
    } else {
        cleanup.after_failure
    };
    cleanup.enabled.then_some((wait, cleanup.delete_config_map))
}

/// Returns how long the run's own spec keeps the children after an end with this phase.
fn own(run: &Run<'_>, phase: RunPhase) -> Option<Duration> {
    let keep = run.spec.child_ttl?;
    let own = if phase == RunPhase::Succeeded {
        keep.succeeded
    } else {
        keep.failed
    };
    own.map(Duration::from)
}

/// Returns the deletion of the children, except Jobs of earlier versions. It covers only objects that this run owns.
fn children(run: &Run<'_>, with_files: bool) -> Vec<Effect> {
    let jobs = run
        .jobs()
        .filter(|job| job.deleting.is_none() && !is_past(run, job))
        .map(|job| run.delete(job));
    let maps = run
        .config_maps()
        .filter(|map| with_files && !map.deleting)
        .map(|map| Effect::Delete(run.target(ResourceType::CONFIG_MAP, &map.name, &map.uid)));
    jobs.chain(maps).collect()
}

/// Returns the deletion of the run in the version that we know. If a user just gave it another version, the run must
/// stay.
fn itself(run: &Run<'_>) -> Effect {
    let metadata = run.spec.metadata;
    Effect::Delete(Target {
        version: metadata.resource_version.clone(),
        ..run.target(
            run.spec.resource,
            metadata.name.as_deref().unwrap_or_default(),
            run.uid,
        )
    })
}
