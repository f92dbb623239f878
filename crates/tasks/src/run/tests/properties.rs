//! Rules for every decision, over generated worlds, and for every run, over simulated clusters.
//!
//! We verified that the tests of this crate can fail, with these faults, one at a time. The tests in brackets found
//! each of them, and most were also found by others:
//! - exit 0 after a stop request is a success [judging, clusters]; a missing Pod is one [worlds]; required results are
//!   not checked [clusters]; Pods of other attempts count [worlds];
//! - the grace is not subtracted from a Pod's `deletionTimestamp` [views];
//! - the Job is deleted in the reconciliation that gives it up [worlds]; a Job that was never asked to stop counts as
//!   unstoppable after an outage [killing]; an unstoppable attempt is repeated [killing];
//! - a start does not wait for Pods that may run [worlds]; a run in deletion is released before them [deletion]; a
//!   deleted Job starts a finished run again [r09, worlds]; so does a restore [versions];
//! - the wait for an Agent, or for the next attempt, begins again at each reconciliation [lifecycle, clusters]; one
//!   doubling too many [r18]; another name for the Job [r08]; history written twice [versions];
//! - a Job with a copied label is ours [worlds]; children are created during deletion [r23];
//! - the live Agent counts instead of the frozen settings [judging]; old warnings count [causes];
//! - a disruption is not counted when it is seen, is counted at each reconciliation, or again at the Job's end; the
//!   limit differs; a lost Job ends the run; a disruption uses an attempt; a Pod that is deleted at the end is not
//!   remembered; the Pod of a Job in deletion counts in addition; no requeue when a node counts as lost [disruptions];
//! - Pods from before a resume count; a suspended Job is not resumed; the known Pod or the deadline outlives a suspend;
//!   a suspend or cancel is ignored during or between attempts; a failure is repeated after a cancel [suspending];
//! - `preserve` is not read; the time after the end counts from now; ConfigMaps of others are ours; the run is deleted
//!   in any version; `childTTL` is read for the other end [cleaning];
//! - the first record waits although a cause is visible; later ones also wait; the wait for the start begins again at
//!   each reconciliation until it is recorded [recording].

mod cleaning;

use std::panic::{AssertUnwindSafe, catch_unwind};

use api::{State, status::condition, tasks::names as task_names};
use testkit::seed::{self, scaled};

use self::cleaning::check_cleaning;
use super::{
    cluster::{self, Cluster},
    generator::anything,
    *,
};

/// Number of generated worlds.
fn worlds() -> u64 {
    scaled(20_000, 100_000)
}

/// Number of simulated clusters.
fn clusters() -> u64 {
    scaled(300, 1_200)
}

/// A run that ends changes nothing but the limit of a Job that did not stop in time.
pub(in crate::run) fn check_last_effects<S: Status>(decision: &Decision<S>) {
    let is_stop = |effect: &Effect| job_change(effect).is_some_and(|change| change.is_stop);
    assert!(decision.effects.iter().all(is_stop) && decision.requeue_at.is_none());
}

/// Checks the rules for every decision.
pub(super) fn check(scene: &Scene, decision: &RunDecision) {
    let stored = scene.run.status.clone().unwrap_or_default();
    let is_another_version = decision.status.epoch() > stored.epoch();

    // Decisions that the engine would reject.
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

    check_messages(scene, decision);
    check_effects(scene, decision, &stored);
    check_counts(scene, decision, &stored);
    check_first_record(scene, decision, &stored);

    if decision.phase == RunPhase::Succeeded && stored.phase != Some(RunPhase::Succeeded) {
        let is_restored = decision.verdict.message.starts_with("restored: ");
        assert!(
            is_restored || has_evidence(scene, decision),
            "Succeeded without evidence"
        );
    }
    if decision.phase == RunPhase::Running && stored.phase != Some(RunPhase::Running) {
        assert!(runs(scene, decision), "Running, and no container runs");
    }
    if decision.is_end() {
        assert!(matches!(
            &decision.finalizer,
            FinalizerAction::Remove { .. }
        ));
        if is_over(&stored) {
            check_cleaning(scene, decision, &stored);
        } else {
            check_last_effects(decision);
        }
    }
    // Every wait has a requeue time, or waits for a change by a user.
    let is_last_instant = scene.now.as_second() == Timestamp::MAX.as_second();
    let is_held = scene.run.spec.suspend && decision.verdict.reason == Reason::Suspended;
    if state == State::Working
        && decision.finalizer == FinalizerAction::Keep
        && !is_last_instant
        && !is_held
    {
        let requeue_at = decision.requeue_at.expect("a wait without a requeue time");
        let is_record = decision.effects.is_empty() && decision.status != stored;
        // Resumed with no time to start in.
        let is_resumed = requeue_at == scene.now && !suspends(decision).is_empty();
        assert!(
            requeue_at > scene.now || is_record || is_resumed,
            "woken at {requeue_at}, in the past"
        );
    }
}

fn is_over(stored: &TaskRunStatus) -> bool {
    stored.phase.is_some_and(Phase::is_terminal)
}

fn is_ours(job: &JobView) -> bool {
    job.owner_uid.as_deref() == Some("run-uid")
}

fn is_made(job: &JobView, spec: &api::tasks::TaskRunSpec) -> bool {
    job.version == Some(spec.context_version) && job.terms.is_some() && job.proven
}

/// Checks that a disruption uses no attempt, is not forgotten, and that there are at most six.
fn check_counts(scene: &Scene, decision: &RunDecision, stored: &TaskRunStatus) {
    let status = &decision.status;
    let is_superseded = status.epoch() > stored.epoch() && status.history != stored.history;
    if is_superseded || (status.epoch() > stored.epoch() && stored.context_version.is_some()) {
        assert_eq!((status.attempts, status.disruptions), (0, 0));
        return;
    }
    assert!(status.disruptions >= stored.disruptions, "forgotten");
    assert!(
        status.disruptions <= 6,
        "{} disruptions",
        status.disruptions
    );
    let is_said = decision
        .verdict
        .message
        .starts_with("the agent was terminated by another actor 6 times");
    assert!(!is_said || is_over(stored) || stored.result.is_some() || status.disruptions == 6);
    let begun = (status.attempts, status.job_name.as_ref());
    if begun == (stored.attempts, stored.job_name.as_ref()) {
        return;
    }
    let last = stored.result.as_ref();
    let is_going = match last {
        Some(last) => last.finished_at.is_none(),
        None => stored.job_name.is_some(),
    };
    assert!(!is_going, "another attempt while one goes on");
    // A disrupted attempt is the same attempt under another name.
    let last = last.and_then(|last| last.reason.as_deref());
    let was_disrupted = matches!(last, Some("Disrupted" | "JobLost"));
    let (attempt, replaced) = if was_disrupted {
        (stored.attempts, Some(stored.disruptions.max(1)))
    } else {
        (stored.attempts.saturating_add(1), None)
    };
    let wanted = task_names::job(&scene.run.spec, attempt, replaced);
    assert_eq!(begun, (attempt, Some(&wanted)));
}

/// Checks that the first record waits only a moment, and only if nobody waits for its content.
fn check_first_record(scene: &Scene, decision: &RunDecision, stored: &TaskRunStatus) {
    let Some(at) = decision.defer_status_until else {
        return;
    };
    assert!(stored.context_version.is_none() && stored.progress.conditions.is_empty());
    assert!(decision.finalizer == FinalizerAction::Keep && !decision.is_end());
    let (phase, state, reason) = said(decision);
    assert_eq!(
        (phase, state, reason),
        (RunPhase::Pending, State::Working, Reason::Progressing)
    );
    assert_eq!(decision.status.result, None);
    assert!(at > scene.now, "waits for nothing");
    // The 10 seconds of the wait, and a clock that is at most a minute ahead.
    assert!(at.as_second() - scene.now.as_second() <= 71);
    let only_creates = creates(decision).len() == decision.effects.len();
    // A Job, or an Agent that was not seen yet.
    let is_begun = decision.status.job_name.is_some();
    assert!(only_creates && (is_begun || decision.effects.is_empty()));
}

fn check_messages(scene: &Scene, decision: &RunDecision) {
    let conditions = decision.conditions.iter().map(|update| &update.message);
    let result = decision.status.result.as_ref();
    let stored = scene
        .run
        .status
        .as_ref()
        .and_then(|status| status.result.as_ref());
    let new_result = result.filter(|new| stored.is_none_or(|old| old.message != new.message));
    let said = new_result.and_then(|result| result.message.as_ref());
    for message in conditions.chain(said).chain([&decision.verdict.message]) {
        assert!(
            message.chars().count() <= api::status::MAX_MESSAGE_CHARS,
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

/// Checks that effects change only children, only our own, and never start a second program.
fn check_effects(scene: &Scene, decision: &RunDecision, stored: &TaskRunStatus) {
    let is_deleting = scene.run.metadata.deletion_timestamp.is_some();
    let spec = &scene.run.spec;
    for effect in &decision.effects {
        match effect {
            // Only read and compared.
            Effect::Ensure(manifest) if manifest.existing => {}
            Effect::Ensure(manifest) => {
                assert!(!is_deleting && !is_over(stored), "created for what is over");
                assert!(!spec.suspend && !spec.cancel, "created against the user");
                assert_eq!(manifest.namespace.as_deref(), Some("team"));
                if manifest.resource.kind == "ConfigMap" {
                    assert_eq!(manifest.name, task_names::config_map(spec));
                    continue;
                }
                assert_eq!(manifest.resource.kind, "Job");
                assert_eq!(decision.status.job_name.as_ref(), Some(&manifest.name));
                // The engine detects a Job that only claims us as its owner.
                let mut ours = scene.world.children.jobs.iter().filter(|job| is_ours(job));
                if ours.any(|job| job.name == manifest.name && !is_made(job, spec)) {
                    continue;
                }
                for job in scene.world.children.jobs.iter().filter(|job| is_ours(job)) {
                    assert_ne!(job.name, manifest.name, "it exists");
                    let is_held = job.suspended && job.limit_seconds == Some(1);
                    let may_run = job.end.is_none() && !(is_held && is_preserved(scene));
                    assert!(!may_run, "Job '{}' may still run", job.name);
                }
                for pod in &scene.world.children.pods {
                    assert!(!may_run(pod), "Pod '{}' may still run", pod.name);
                }
            }
            Effect::Delete(target) if target.resource.kind == "Job" => {
                let job = scene
                    .world
                    .children
                    .jobs
                    .iter()
                    .find(|job| job.uid == target.uid);
                let job = job.expect("deletes what it did not see");
                assert!(is_ours(job), "deletes what is someone else's");
                assert!(job.deleting.is_none(), "deletes twice");
                let is_attempt = stored.job_name.as_ref() == Some(&job.name);
                assert!(
                    is_deleting || is_over(stored) || !is_attempt || stored.result.is_some(),
                    "deletes what carries evidence that is not stored"
                );
                // A stop deletes nothing but a suspended Job. The cleanup deletes Jobs that ended.
                assert!(
                    is_deleting || is_over(stored) || job.suspended || job.end.is_some(),
                    "deletes a Job, and the logs of its Pods"
                );
                assert!(
                    is_deleting || !is_preserved(scene),
                    "deletes what is preserved"
                );
            }
            Effect::Delete(target) => {
                let kind = target.resource.kind;
                assert!(matches!(kind, "ConfigMap" | "TaskRun"), "deletes a {kind}");
                assert!(is_over(stored) && !is_deleting, "a {kind} that is needed");
            }
            Effect::Patch { target, .. } if target.resource.kind == "Pod" => {
                assert!(target.optional && !is_deleting && !is_over(stored));
                let mut pods = scene.world.children.pods.iter();
                let pod = pods.find(|pod| pod.uid == target.uid).expect("unseen");
                assert!(!pod.phase.is_over() && pod.node.is_some());
                assert!(pod.stop_asked.is_none() && pod.limit_seconds != Some(1));
                let mut jobs = scene.world.children.jobs.iter();
                let job = jobs.find(|job| pod.job_uid.as_ref() == Some(&job.uid));
                let job = job.expect("ends a Pod of no Job");
                assert!(is_ours(job) && job.end.is_none());
                let is_attempt = stored.job_name.as_ref() == Some(&job.name);
                assert!(
                    !is_attempt || stored.result.is_some(),
                    "stops what carries evidence that is not stored"
                );
            }
            Effect::Patch { target, .. } => {
                let change = job_change(effect).expect("only a Job's 'suspend' and limit");
                let job = scene
                    .world
                    .children
                    .jobs
                    .iter()
                    .find(|job| job.uid == target.uid);
                let job = job.expect("changes what it did not see");
                assert!(is_ours(job) && job.end.is_none());
                if change.is_stop {
                    assert!(!is_deleting && !is_over(stored) && job.limit_seconds != Some(1));
                    let is_attempt = stored.job_name.as_ref() == Some(&job.name);
                    assert!(
                        !is_attempt || stored.result.is_some(),
                        "stops what carries evidence that is not stored"
                    );
                    let pods = scene.world.children.pods.iter();
                    let mut of_job = pods.filter(|pod| pod.job_uid.as_ref() == Some(&job.uid));
                    // Beside an attempt in progress, another agent must not run, not even to keep its log.
                    let is_orphan = stored.job_name.is_some()
                        && stored.result.is_none()
                        && target.optional
                        && !is_preserved(scene);
                    // At the end, the kubelet had its time.
                    assert!(
                        job.suspended
                            || decision.is_end()
                            || is_orphan
                            || of_job.all(|pod| pod.phase.is_over()
                                || pod.node.is_none()
                                || pod.stop_asked.is_some()
                                || pod.disruption.is_some()
                                || (pod.lacks_sandbox && pod.limit_seconds == Some(1))),
                        "deletes a Pod that the kubelet could end"
                    );
                    continue;
                }
                match change.suspend {
                    Some(suspend) => {
                        let is_news = job.suspended != suspend || !job.suspended_by_us;
                        assert!(is_news && suspend == spec.suspend);
                        assert!(suspend || job.suspended_by_us, "resumes what others hold");
                    }
                    None => assert!(
                        change.limit > job.limit_seconds,
                        "a limit that is not higher"
                    ),
                }
                assert!(!is_deleting && !is_over(stored) && !spec.cancel);
            }
            Effect::Apply(_) => panic!("{effect:?}"),
        }
    }
    let is_empty = scene.world.children.jobs.is_empty() && scene.world.children.pods.is_empty();
    if spec.cancel && is_empty && !is_deleting && !decision.is_end() {
        let is_superseded = decision.status.epoch() > stored.epoch();
        let is_lost = matches!(decision.verdict.reason, Reason::JobLost | Reason::Disrupted);
        assert!(is_superseded || is_lost, "cancelled, and goes on");
    }
    if spec.suspend && !is_deleting {
        assert!(is_held(scene, decision), "held, and a Job goes on");
    }
}

/// Returns whether the Job of the attempt is suspended or becomes suspended. Also returns true if no attempt is in
/// progress, or if its container has ended by itself.
fn is_held(scene: &Scene, decision: &RunDecision) -> bool {
    if decision.is_end() || decision.status.result.is_some() {
        return true;
    }
    let Some(job) = job_of(scene, decision) else {
        return true;
    };
    let has_ended = attempt(scene, decision).is_some_and(|(_, pod)| {
        let asked = pod.stop_asked.is_some() || pod.disruption.is_some();
        let asked = match &pod.container {
            ContainerState::Ended(exit) => {
                let in_time = |asked| exit.finished.is_none_or(|finished| asked <= finished);
                pod.disruption.is_some() || pod.stop_asked.is_some_and(in_time)
            }
            ContainerState::Unknown
            | ContainerState::Waiting(_)
            | ContainerState::Running { .. } => asked,
        };
        !may_run(pod) && !asked
    });
    let is_told = suspends(decision).contains(&(job.name.clone(), true));
    job.end.is_some() || has_ended || job.suspended || is_told
}

fn may_run(pod: &PodView) -> bool {
    !matches!(pod.container, ContainerState::Ended(_))
        && !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed)
}

fn is_preserved(scene: &Scene) -> bool {
    let annotations = scene.run.metadata.annotations.as_ref();
    annotations.is_some_and(|all| {
        all.get(names::PRESERVE)
            .is_some_and(|value| value == "true")
    })
}

fn job_of<'a>(scene: &'a Scene, decision: &RunDecision) -> Option<&'a JobView> {
    let name = decision.status.job_name.as_deref()?;
    let mut jobs = scene.world.children.jobs.iter();
    jobs.find(|job| job.name == name && is_ours(job))
}

/// Returns the Job of the decision, and its newest Pod. Pods from before a resume are ignored.
fn attempt<'a>(scene: &'a Scene, decision: &RunDecision) -> Option<(&'a JobView, &'a PodView)> {
    let job = job_of(scene, decision)?;
    let mut pods: Vec<&PodView> = scene
        .world
        .children
        .pods
        .iter()
        .filter(|pod| pod.job_uid.as_deref() == Some(&job.uid))
        .filter(|pod| {
            let made = pod.created.unwrap_or(Timestamp::MAX);
            made >= job.resumed.unwrap_or(Timestamp::MIN) || pod.stop_asked.is_none()
        })
        .collect();
    pods.sort_by_key(|pod| (pod.created, &pod.uid));
    Some((job, pods.pop()?))
}

/// States the rule of success a second time.
pub(super) fn has_evidence(scene: &Scene, decision: &RunDecision) -> bool {
    let Some((job, pod)) = attempt(scene, decision) else {
        return false;
    };
    let stored = scene.run.status.clone().unwrap_or_default();
    let is_recorded = stored.job_name.as_ref() == Some(&job.name) && stored.job_uid.is_some();
    let is_proven = if is_recorded {
        stored.job_uid.as_ref() == Some(&job.uid)
    } else {
        job.proven
    };
    if !is_proven {
        return false;
    }
    let Some(JobEnd::Complete { .. }) = job.end else {
        return false;
    };
    let ContainerState::Ended(exit) = &pod.container else {
        return false;
    };
    let asked_first = pod
        .stop_asked
        .is_some_and(|asked| exit.finished.is_none_or(|finished| asked <= finished));
    let is_plain = matches!(exit.reason.as_str(), "" | "Completed")
        && matches!(exit.signal, None | Some(0))
        && exit.restarts <= 0
        && pod.doubt.is_none()
        && !pod.foreign
        && pod.phase == PodPhase::Succeeded;
    if exit.code != 0 || !is_plain || pod.disruption.is_some() || asked_first {
        return false;
    }
    let required = match (&job.terms, &scene.world.agent) {
        (Some(spec), _) => spec.required.clone(),
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

fn runs(scene: &Scene, decision: &RunDecision) -> bool {
    attempt(scene, decision).is_some_and(|(job, pod)| {
        job.end.is_none() && matches!(pod.container, ContainerState::Running { .. })
    })
}

/// Runs `case` with its seeds. If one fails, prints the seed that makes it the first case.
fn seeded(run: u64, indexes: std::ops::Range<u64>, case: impl Fn(u64)) {
    for index in indexes {
        let seed = seed::of_case(run, index);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(seed))) {
            let name = seed::SEED_VARIABLE;
            eprintln!("case {index} of {name}={run} failed; to try it first: {name}={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Runs `case` on all processors, each time with another seed.
pub(in crate::run) fn in_parallel(cases: u64, case: impl Fn(u64) + Sync) {
    let run = seed::seed().unwrap();
    let workers = std::thread::available_parallelism().map_or(2, |count| count.get() as u64);
    let share = cases.div_ceil(workers);
    std::thread::scope(|scope| {
        let case = &case;
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                let indexes = worker * share..cases.min((worker + 1) * share);
                scope.spawn(move || seeded(run, indexes, case))
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
    in_parallel(worlds(), |seed| {
        let (mut scene, fault) = anything(seed);
        let decision = scene.decide_with(fault.as_ref());
        check(&scene, &decision);
        assert_eq!(
            scene.decide_with(fault.as_ref()),
            decision,
            "the same again"
        );

        let stored = scene.run.status.clone().unwrap_or_default();
        let status = decision.next_status(&stored, &phase_input(), 1, scene.now);
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
        // A finished run is the same in any other world, at any other time.
        scene.run.status = Some(status.clone());
        let (other, _) = anything(seed ^ 0xdead_beef);
        scene.world = other.world;
        scene.now = other.now;
        if scene.run.spec.context_version <= status.context_version.unwrap_or(i64::MAX) {
            let again = scene.decide();
            check(&scene, &again);
            assert_eq!(said(&again), said(&decision));
            assert_eq!(again.status, status);
            assert_eq!(
                again.next_status(&status, &phase_input(), 1, scene.now),
                status
            );
        }
    });
}

#[test]
fn every_run_comes_to_its_end_in_a_simulated_cluster() {
    in_parallel(clusters(), |seed| {
        Cluster::new(seed, cluster::Plan::Wild).live()
    });
}

/// The operator is killed at any point, in any way. The end is that of an undisturbed run.
#[test]
fn killing_the_operator_changes_nothing_in_the_end() {
    in_parallel(clusters(), |seed| {
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
    in_parallel(scaled(60, 200), |seed| {
        let mut cluster = Cluster::new(seed, cluster::Plan::Wild);
        cluster.live();
        let status = serde_json::to_string(cluster.scene().status()).unwrap();
        assert!(!status.contains(CANARY));
    });
}
