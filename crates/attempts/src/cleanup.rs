//! Deletion of objects after a run's end. Every reconciliation computes the due times from stored times. So a restart
//! or another configuration changes nothing but the result of this computation.

use std::time::Duration;

use api::{
    Timestamp,
    decide::{Effect, ResourceType, Target},
    names,
    tasks::RunPhase,
};

use crate::{Run, RunDecision, time};

/// Adds the due deletions to the decision about a run that ended, and the time of the next reconciliation.
pub(crate) fn add(run: &Run<'_>, decision: &mut RunDecision) {
    if run.annotation(names::PRESERVE) == Some("true") {
        return;
    }
    let Some(end) = end(run) else { return };
    if let Some(wait) = run.spec.delete_finished_runs_after {
        // If the author keeps the Pods longer, we also keep the run that they belong to.
        let due = time::after(end, own(run).map_or(wait, |own| own.max(wait)));
        if run.now >= due {
            // The run's children are deleted with it.
            decision.effects.push(itself(run));
            return;
        }
        decision.requeue_at = Some(due);
    }
    let Some((wait, with_files)) = rule(run) else {
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
        decision.requeue_at = Some(decision.requeue_at.map_or(due, |other| other.min(due)));
    }
}

/// Returns when the run ended. A run that was restored without its status has no end time, so its creation counts.
fn end(run: &Run<'_>) -> Option<Timestamp> {
    let finished = run.status.finished_at.as_ref();
    let created = run.spec.metadata.creation_timestamp.as_ref();
    finished.or(created).map(|time| time.0)
}

/// Returns how long Jobs are kept, and whether ConfigMaps are deleted with them: from the run's spec, or else from the
/// configuration.
fn rule(run: &Run<'_>) -> Option<(Duration, bool)> {
    if let Some(own) = own(run) {
        return Some((own, true));
    }
    let cleanup = run.spec.cleanup;
    let wait = if run.phase() == RunPhase::Succeeded {
        cleanup.after_success
    } else {
        cleanup.after_failure
    };
    cleanup.enabled.then_some((wait, cleanup.delete_config_map))
}

/// Returns how long the run's own spec keeps the children.
fn own(run: &Run<'_>) -> Option<Duration> {
    let keep = run.spec.child_ttl?;
    let own = if run.phase() == RunPhase::Succeeded {
        keep.succeeded
    } else {
        keep.failed
    };
    own.map(Duration::from)
}

/// Returns the deletion of the children. It covers only objects that this run owns.
fn children(run: &Run<'_>, with_files: bool) -> Vec<Effect> {
    let jobs = run
        .jobs()
        .filter(|job| job.deleting.is_none())
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
