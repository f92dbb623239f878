//! What is deleted after a run's end, and when: computed from stored times at each look, so that a
//! restart or another configuration changes nothing but the outcome.

use std::time::Duration;

use api::{
    Timestamp,
    decide::{Effect, NoExternal, ResourceType, Target},
    names,
    tasks::RunPhase,
};

use super::{RunDecision, world::Run};
use crate::time;

/// Adds to the decision about a run that ended what is due by now, and when to look again.
pub(super) fn add(run: &Run<'_>, decision: &mut RunDecision) {
    if run.annotation(names::PRESERVE) == Some("true") {
        return;
    }
    let Some(end) = end(run) else { return };
    if let Some(wait) = run.world.defaults.delete_finished_runs_after {
        // Who asked for his Pods to stay longer wants the run that they belong to.
        let due = time::after(end, own(run).map_or(wait, |own| own.max(wait)));
        if run.now >= due {
            // Its children go with it.
            decision.effects.push(itself(run));
            return;
        }
        decision.wake = Some(due);
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
        decision.wake = Some(decision.wake.map_or(due, |other| other.min(due)));
    }
}

/// When the run ended. One that was restored without its status does not know: it was here when it
/// was made.
fn end(run: &Run<'_>) -> Option<Timestamp> {
    let finished = run.status.finished_at.as_ref();
    let created = run.order.metadata.creation_timestamp.as_ref();
    finished.or(created).map(|time| time.0)
}

/// How long Jobs stay, and whether ConfigMaps go with them: the run's word, else the
/// configuration's.
fn rule(run: &Run<'_>) -> Option<(Duration, bool)> {
    if let Some(own) = own(run) {
        return Some((own, true));
    }
    let cleanup = &run.world.defaults.cleanup;
    let wait = if run.phase() == RunPhase::Succeeded {
        cleanup.after_success
    } else {
        cleanup.after_failure
    };
    cleanup.enabled.then_some((wait, cleanup.delete_config_map))
}

/// How long the run itself says that its children stay.
fn own(run: &Run<'_>) -> Option<Duration> {
    let keep = run.order.keep_children?;
    let own = if run.phase() == RunPhase::Succeeded {
        keep.succeeded
    } else {
        keep.failed
    };
    own.map(Duration::from)
}

/// Only what this run owns.
fn children(run: &Run<'_>, with_files: bool) -> Vec<Effect<NoExternal>> {
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

/// Only as we know it: whoever just gave it another version wants it to stay.
fn itself(run: &Run<'_>) -> Effect<NoExternal> {
    let metadata = run.order.metadata;
    Effect::Delete(Target {
        version: metadata.resource_version.clone(),
        ..run.target(
            run.order.resource(),
            metadata.name.as_deref().unwrap_or_default(),
            run.uid,
        )
    })
}
