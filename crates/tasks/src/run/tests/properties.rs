//! What holds for every decision, over generated worlds, and for every run, over simulated
//! clusters.
//!
//! That the tests of this crate can fail was tried with these faults, one at a time; each was found
//! by the tests in brackets, most of them also by others:
//! - exit 0 after a stop request is a success [judging, clusters]; a missing Pod is one [worlds];
//!   required results are not looked for [clusters]; Pods of other attempts count [worlds];
//! - the grace is not subtracted from a Pod's `deletionTimestamp` [views];
//! - the Job is deleted in the pass that gives it up [worlds]; one that was never asked to stop is
//!   given up as unstoppable after an outage [killing]; an unstoppable attempt is repeated [killing];
//! - a start does not wait for Pods that may run [worlds]; a run in deletion is let go before them
//!   [deletion]; a vanished Job starts an ended run again [r09, worlds]; so does a restore [versions];
//! - the wait for an Agent, or for the next attempt, begins anew at each pass [lifecycle, clusters];
//!   one doubling too many [r18]; another name for the Job [r08]; history written twice [versions];
//! - a Job with a copied label is ours [worlds]; children are made during deletion [r23];
//! - the live Agent judges instead of the frozen terms [judging]; old warnings count [causes].

use std::panic::{AssertUnwindSafe, catch_unwind};

use api::{State, status::condition, tasks::names as task_names};

use super::{
    cluster::{self, Cluster},
    generator::anything,
    *,
};

/// How many worlds are made without sense, and how many clusters are simulated.
const WORLDS: u64 = 100_000;
const CLUSTERS: u64 = 1_200;

/// What holds for every decision.
pub(super) fn check(scene: &Scene, decision: &RunDecision) {
    let stored = scene.run.status.clone().unwrap_or_default();
    let is_another_version = decision.status.epoch() > stored.epoch();

    // What the engine would refuse.
    assert!(
        decision.status.epoch() >= stored.epoch(),
        "an earlier version"
    );
    if let Some(from) = stored.phase {
        assert!(
            is_another_version || from.may_become(decision.phase),
            "{from:?} to {:?}",
            decision.phase
        );
    }
    let state = decision.verdict.state;
    assert_eq!(
        decision.is_end(),
        matches!(state, State::Succeeded | State::Failed)
    );
    assert_ne!(state, State::Ready);

    check_words(scene, decision);
    check_effects(scene, decision, &stored);

    if decision.phase == RunPhase::Succeeded && stored.phase != Some(RunPhase::Succeeded) {
        let is_restored = decision.verdict.message.starts_with("restored: ");
        assert!(
            is_restored || has_evidence(scene, &stored),
            "Succeeded without evidence"
        );
    }
    if decision.phase == RunPhase::Running && stored.phase != Some(RunPhase::Running) {
        assert!(runs(scene, &stored), "Running, and no container runs");
    }
    if decision.is_end() {
        let is_forced = matches!(&decision.hold, Hold::Release { .. });
        assert!(is_forced && decision.effects.is_empty() && decision.wake.is_none());
    }
    // Every wait wakes us, or waits for someone to change something.
    let is_last_instant = scene.now.as_second() == Timestamp::MAX.as_second();
    if state == State::Working && decision.hold == Hold::Keep && !is_last_instant {
        let wake = decision.wake.expect("a wait without a wake");
        let is_record = decision.effects.is_empty() && decision.status != stored;
        assert!(
            wake > scene.now || is_record,
            "woken at {wake}, in the past"
        );
    }
}

fn check_words(scene: &Scene, decision: &RunDecision) {
    let facts = decision.conditions.iter().map(|fact| &fact.message);
    let result = decision.status.result.as_ref();
    let stored = scene
        .run
        .status
        .as_ref()
        .and_then(|status| status.result.as_ref());
    let new_result = result.filter(|new| stored.is_none_or(|old| old.message != new.message));
    let said = new_result.and_then(|result| result.message.as_ref());
    for message in facts.chain(said).chain([&decision.verdict.message]) {
        assert!(
            message.chars().count() <= api::status::MESSAGE,
            "{message:.60}…"
        );
        assert!(!message.chars().any(char::is_control), "{message:?}");
        assert!(!message.contains(CANARY));
    }
    assert!(
        result
            .iter()
            .flat_map(|result| result.results.values())
            .all(|value| !value.contains(CANARY))
    );
}

/// Children only, ours only, and never a second program.
fn check_effects(scene: &Scene, decision: &RunDecision, stored: &TaskRunStatus) {
    let is_deleting = scene.run.metadata.deletion_timestamp.is_some();
    let is_over = stored.phase.is_some_and(Phase::is_terminal);
    let is_ours = |job: &JobView| job.owner_uid.as_deref() == Some("run-uid");
    for effect in &decision.effects {
        match effect {
            Effect::Ensure(manifest) => {
                assert!(!is_deleting && !is_over, "created for what is over");
                assert_eq!(manifest.namespace.as_deref(), Some("team"));
                if manifest.resource.kind == "ConfigMap" {
                    assert_eq!(manifest.name, task_names::config_map(&scene.run.spec));
                    continue;
                }
                assert_eq!(manifest.resource.kind, "Job");
                assert_eq!(decision.status.job_name.as_ref(), Some(&manifest.name));
                for job in scene.world.jobs.iter().filter(|job| is_ours(job)) {
                    assert_ne!(job.name, manifest.name, "it exists");
                    assert!(job.end.is_some(), "Job '{}' may still run", job.name);
                }
                for pod in &scene.world.pods {
                    let is_over = matches!(pod.container, Container::Ended(_))
                        || matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
                    assert!(is_over, "Pod '{}' may still run", pod.name);
                }
            }
            Effect::Delete(target) => {
                assert_eq!(target.resource.kind, "Job");
                let job = scene.world.jobs.iter().find(|job| job.uid == target.uid);
                let job = job.expect("deletes what it did not see");
                assert!(is_ours(job), "deletes what is someone else's");
                assert!(job.deleting.is_none(), "deletes twice");
                let is_attempt = stored.job_name.as_ref() == Some(&job.name);
                assert!(
                    is_deleting || !is_attempt || stored.result.is_some(),
                    "deletes what carries evidence that is not stored"
                );
            }
            Effect::Apply(_) | Effect::Patch { .. } | Effect::External { .. } => {
                panic!("{effect:?}")
            }
        }
    }
}

/// The Job of the stored attempt, and its newest Pod.
fn attempt<'a>(scene: &'a Scene, stored: &TaskRunStatus) -> Option<(&'a JobView, &'a PodView)> {
    let name = stored.job_name.as_deref()?;
    let job = scene
        .world
        .jobs
        .iter()
        .find(|job| job.name == name && job.owner_uid.as_deref() == Some("run-uid"))?;
    let mut pods: Vec<&PodView> = scene
        .world
        .pods
        .iter()
        .filter(|pod| pod.job_uid.as_deref() == Some(&job.uid))
        .collect();
    pods.sort_by_key(|pod| (pod.created, &pod.uid));
    Some((job, pods.pop()?))
}

/// The rule of success, written down a second time.
pub(super) fn has_evidence(scene: &Scene, stored: &TaskRunStatus) -> bool {
    let Some((job, pod)) = attempt(scene, stored) else {
        return false;
    };
    let Some(JobEnd::Complete { .. }) = job.end else {
        return false;
    };
    let Container::Ended(exit) = &pod.container else {
        return false;
    };
    let asked_first = pod
        .stop_asked
        .is_some_and(|asked| exit.finished.is_none_or(|finished| asked <= finished));
    if exit.code != 0 || pod.disruption.is_some() || asked_first {
        return false;
    }
    let required = match (&job.terms, &scene.world.agent) {
        (Some(terms), _) => terms.required.clone(),
        (None, Some(agent)) => {
            let results = agent.spec.results.iter().filter(|result| result.required);
            results.map(|result| result.name.clone()).collect()
        }
        (None, None) => return false,
    };
    if exit.message.trim().is_empty() {
        return required.is_empty();
    }
    let Ok(Value::Object(results)) = serde_json::from_str(&exit.message) else {
        return false;
    };
    exit.message.len() < 4096
        && required
            .iter()
            .all(|name| results.get(name).is_some_and(|value| !value.is_null()))
}

fn runs(scene: &Scene, stored: &TaskRunStatus) -> bool {
    attempt(scene, stored).is_some_and(|(job, pod)| {
        job.end.is_none() && matches!(pod.container, Container::Running { .. })
    })
}

/// Runs `case`, and names the seed where it fails.
fn seeded(seeds: std::ops::Range<u64>, case: impl Fn(u64)) {
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(seed))) {
            eprintln!("failed with seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// On all processors: the checks are slow without optimisation.
fn in_parallel(cases: u64, case: impl Fn(u64) + Sync) {
    let workers = std::thread::available_parallelism().map_or(2, |count| count.get() as u64);
    let share = cases.div_ceil(workers);
    std::thread::scope(|scope| {
        let case = &case;
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                let seeds = worker * share..cases.min((worker + 1) * share);
                scope.spawn(move || seeded(seeds, case))
            })
            .collect();
        for handle in handles {
            if let Err(panic) = handle.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

#[test]
fn every_decision_keeps_the_rules_in_any_world() {
    in_parallel(WORLDS, |seed| {
        let (mut scene, fault) = anything(seed);
        let decision = scene.decide_with(fault.as_ref());
        check(&scene, &decision);
        assert_eq!(
            scene.decide_with(fault.as_ref()),
            decision,
            "the same again"
        );

        let stored = scene.run.status.clone().unwrap_or_default();
        let status = decision.settled(&stored, 1, scene.now);
        let progress = &status.progress;
        assert!(
            !(progress.is_true(condition::RECONCILING) && progress.is_true(condition::STALLED))
        );
        assert_eq!(
            progress.is_true(condition::FINISHED),
            decision.is_end() && !progress.conditions.is_empty()
        );
        if !decision.is_end() {
            return;
        }
        // What has ended is the same in any other world, at any other time.
        scene.run.status = Some(status.clone());
        let (other, _) = anything(seed ^ 0xdead_beef);
        scene.world = other.world;
        scene.now = other.now;
        if scene.run.spec.context_version <= status.context_version.unwrap_or(i64::MAX) {
            let again = scene.decide();
            assert!(again.effects.is_empty());
            assert_eq!(said(&again), said(&decision));
            assert_eq!(again.status, status);
            assert_eq!(again.settled(&status, 1, scene.now), status);
        }
    });
}

#[test]
fn every_run_comes_to_its_end_in_a_simulated_cluster() {
    in_parallel(CLUSTERS, |seed| {
        Cluster::new(seed, cluster::Plan::Wild).live()
    });
}

/// Killed at any point, by whatever way: the end is that of a run that nobody disturbed.
#[test]
fn killing_the_operator_changes_nothing_in_the_end() {
    in_parallel(CLUSTERS, |seed| {
        let mut calm = Cluster::new(seed, cluster::Plan::Calm);
        calm.live();
        let mut killed = Cluster::new(seed, cluster::Plan::Killed);
        killed.live();
        assert_eq!(killed.outcome(), calm.outcome());
        calm.check_expected();
    });
}

#[test]
fn a_secret_of_the_agents_environment_is_in_no_status() {
    for seed in 0..200 {
        let mut cluster = Cluster::new(seed, cluster::Plan::Wild);
        cluster.live();
        let status = serde_json::to_string(cluster.scene().status()).unwrap();
        assert!(!status.contains(CANARY), "seed {seed}");
    }
}
