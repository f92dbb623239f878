//! The rule of the cleanup, stated a second time.

use super::*;

/// Checks a run that ended: everything that it owns is deleted, and nothing else, at the time given by the stored
/// times. This states the rule of the cleanup a second time.
pub(super) fn check_cleaning(scene: &Scene, decision: &RunDecision, stored: &TaskRunStatus) {
    let metadata = &scene.run.metadata;
    let finished = stored.finished_at.as_ref();
    let end = finished.or(metadata.creation_timestamp.as_ref());
    let nothing =
        |decision: &RunDecision| decision.effects.is_empty() && decision.requeue_at.is_none();
    let is_deleting = metadata.deletion_timestamp.is_some();
    let Some(end) = end.filter(|_| !is_preserved(scene) && !is_deleting) else {
        assert!(nothing(decision));
        return;
    };
    let left = |wait: Duration| {
        let wait = i128::from(wait.as_secs());
        i128::from(end.0.as_second()) + wait - i128::from(scene.now.as_second())
    };
    let defaults = &scene.world.defaults;
    let is_success = stored.phase == Some(RunPhase::Succeeded);
    let own = |is_success: bool| {
        let keep = scene.run.spec.child_ttl?;
        if is_success {
            keep.succeeded
        } else {
            keep.failed
        }
    };
    let rule = |is_success: bool| match own(is_success) {
        Some(own) => (Some(Duration::from(own)), true),
        None if !defaults.cleanup.enabled => (None, false),
        None if is_success => (
            Some(defaults.cleanup.after_success),
            defaults.cleanup.delete_config_map,
        ),
        None => (
            Some(defaults.cleanup.after_failure),
            defaults.cleanup.delete_config_map,
        ),
    };
    let (wait, with_files) = rule(is_success);
    let own = own(is_success);
    let version = stored
        .context_version
        .unwrap_or(scene.run.spec.context_version);
    let is_past = |job: &&JobView| {
        job.version.is_some_and(|past| past < version)
            && job.end.is_some()
            && stored.job_name.as_ref() != Some(&job.name)
    };
    let jobs = scene.world.children.jobs.iter().filter(|job| is_ours(job));
    let jobs = jobs.filter(|job| job.deleting.is_none());
    // Each earlier version counts from its own end.
    let past: Vec<(&str, Option<i128>)> = jobs
        .clone()
        .filter(is_past)
        .map(|job| {
            let mut history = stored.history.iter().rev();
            let known = history.find(|past| Some(past.context_version) == job.version);
            let (wait, _) = rule(known.is_some_and(|past| past.phase == "Succeeded"));
            let end = known.map(|past| past.finished_at.0);
            let end = match (end, &job.end) {
                (Some(end), _) => Some(end),
                (None, Some(JobEnd::Complete { at } | JobEnd::Failed { at, .. })) => *at,
                (None, None) => None,
            };
            let left = end.or(job.created).zip(wait).map(|(end, wait)| {
                let end = i128::from(end.as_second()) + i128::from(wait.as_secs());
                end - i128::from(scene.now.as_second())
            });
            (job.uid.as_str(), left)
        })
        .collect();
    let jobs = jobs.filter(|job| !is_past(job));
    let maps = scene.world.children.config_maps.iter();
    let maps = maps.filter(|map| map.owner_uid.as_deref() == Some("run-uid") && !map.deleting);
    let children: Vec<&str> = jobs
        .map(|job| job.uid.as_str())
        .chain(maps.filter(|_| with_files).map(|map| map.uid.as_str()))
        .collect();
    // Nothing is deleted earlier than its author allows.
    let at_least = own.map(Duration::from).unwrap_or_default();
    let itself = defaults
        .delete_finished_runs_after
        .map(|wait| left(wait.max(at_least)));
    let children_due = wait.map(left).filter(|_| !children.is_empty());
    let due = |left: Option<i128>| left.is_some_and(|left| left <= 0);
    let past_due = past
        .iter()
        .filter(|(_, left)| due(*left))
        .map(|(uid, _)| *uid);
    let expected: Vec<&str> = match (due(itself), due(children_due)) {
        (true, _) => vec!["run-uid"],
        (false, true) => past_due.chain(children).collect(),
        (false, false) => past_due.collect(),
    };
    let deleted: Vec<&str> = decision
        .effects
        .iter()
        .map(|effect| match effect {
            Effect::Delete(target) => {
                let is_itself = target.resource.kind == "TaskRun";
                assert_eq!(target.version.is_some(), is_itself);
                target.uid.as_str()
            }
            Effect::Ensure(_) | Effect::Apply(_) | Effect::Patch { .. } => panic!("{effect:?}"),
        })
        .collect();
    // Due times saturate at the last timestamp, so they are not compared there.
    let last = Timestamp::MAX.as_second();
    if scene.now.as_second() != last {
        assert_eq!(deleted, expected);
        let next = past
            .iter()
            .map(|(_, left)| *left)
            .chain([itself, children_due]);
        let next = next.filter_map(|left| left.filter(|left| *left > 0)).min();
        let is_gone = due(itself);
        let requeue_at = next.filter(|_| !is_gone).map(|left| {
            let at = i128::from(scene.now.as_second()) + left;
            at.min(i128::from(last))
        });
        let woken = decision
            .requeue_at
            .map(|requeue_at| i128::from(requeue_at.as_second()));
        assert_eq!(woken, requeue_at);
    }
}
