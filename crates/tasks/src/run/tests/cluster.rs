//! A cluster that follows a script: Jobs start, fail, hang, are disrupted, disappear. Users change the spec. An
//! operator is killed between its effects and its record.

use api::{
    Reason, State,
    tasks::{ChildTtl, RunPhase},
};

use super::{
    generator::Rng,
    properties::check,
    worker::{Script, Worker},
    *,
};

/// Events around a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// Only the scripts.
    Calm,
    /// The operator is also killed now and then.
    Killed,
    /// Users also act.
    Wild,
}

/// Scripts for a Job that users suspend and resume: the end is the same.
const PLAIN: &[Script] = &[
    Script::Ends { code: 0 },
    Script::Ends { code: 0 },
    Script::Ends { code: 3 },
    Script::Ends { code: 137 },
    Script::Forgets,
    Script::Oom,
    Script::NoImage,
    Script::NoPod,
    Script::Hangs,
    Script::PodLost,
];

const DISRUPTED: &[Script] = &[
    Script::Evicted { times: 1, stops: 5 },
    Script::Evicted { times: 1, stops: 5 },
    Script::Evicted { times: 2, stops: 9 },
    Script::Evicted { times: 7, stops: 9 },
    Script::Evicted {
        times: 1,
        stops: 200,
    },
    Script::PodDeleted {
        code: 0,
        is_gone: false,
    },
    Script::PodDeleted {
        code: 0,
        is_gone: true,
    },
    Script::PodDeleted {
        code: 143,
        is_gone: false,
    },
    Script::PodDeleted {
        code: 143,
        is_gone: true,
    },
    Script::JobDeleted,
    Script::JobDeleted,
];

const HOPELESS: &[Script] = &[
    Script::NodeLost { is_told: false },
    Script::NodeLost { is_told: true },
    Script::Silent,
];

/// Setting of a user, or of the operator's configuration, for the children after the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeping {
    Configured,
    Disabled,
    OwnWord,
    Preserved,
    WithoutFiles,
    RunToo,
}

const KEEPINGS: &[Keeping] = &[
    Keeping::Configured,
    Keeping::Configured,
    Keeping::Disabled,
    Keeping::OwnWord,
    Keeping::Preserved,
    Keeping::WithoutFiles,
    Keeping::RunToo,
];

/// Users suspend the run while the Job of this number has these ages, in seconds.
#[derive(Debug, Clone, Copy)]
struct Holding {
    job: usize,
    from: i64,
    until: i64,
}

/// Result of carrying out a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carried {
    /// The operator was killed in between.
    Killed,
    /// The record waits for this time.
    Waits(Timestamp),
    /// There was nothing new to record.
    Unchanged,
    Recorded,
}

/// A run in its cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    scene: Scene,
    plan: Plan,
    /// Decides the fate of Jobs: the same for the same seed, independent of everything else.
    fate: u64,
    scripts: Vec<Script>,
    holding: Option<Holding>,
    keeping: Keeping,
    rng: Rng,
    workers: Vec<Worker>,
    /// Delay of the cache of Pods, in seconds.
    lag: i64,
    /// Time at which the last change becomes visible, if that is in the future. A reconciliation may be in between.
    seen_at: Option<i64>,
    acts: u32,
    removed_agent: Option<Arc<Agent>>,
    /// The operator was killed during a short-lived state. The next operator is not killed before its record: nobody
    /// knows a state that was seen only by operators without a record.
    has_missed: bool,
}

/// More reconciliations than any run needs: ten attempts that each wait for start, end and stop, and are disrupted in
/// between.
const PASSES: u32 = 1500;

impl Cluster {
    pub(super) fn new(seed: u64, plan: Plan) -> Self {
        let mut fate = Rng::new(seed);
        let attempts = 1 + fate.below(4);
        let run = run(json!({"retry": {
            "maxAttempts": attempts, "backoff": {"initial": "10s", "max": "40s"},
        }}));
        let agent = agent(json!({
            "timeout": "10m", "startTimeout": "2m",
            "results": [{"name": "answer", "required": true}],
        }));
        let holding = fate.one_in(4).then(|| {
            let from = i64::try_from(fate.below(200)).unwrap();
            Holding {
                job: usize::try_from(fate.below(2)).unwrap(),
                from,
                until: from + 1 + i64::try_from(fate.below(100)).unwrap(),
            }
        });
        let scripts = match fate.below(4) {
            _ if holding.is_some() => PLAIN.to_vec(),
            0 => DISRUPTED.to_vec(),
            _ => [PLAIN, DISRUPTED, HOPELESS].concat(),
        };
        let mut cluster = Self {
            scene: Scene::new(run, Some(agent)),
            plan,
            scripts,
            holding,
            keeping: *fate.pick(KEEPINGS),
            lag: i64::try_from(fate.below(4)).unwrap(),
            fate: fate.next(),
            rng: Rng::new(seed ^ 0x5eed),
            workers: Vec::new(),
            seen_at: None,
            acts: 0,
            removed_agent: None,
            has_missed: false,
        };
        cluster.keep();
        cluster
    }

    fn keep(&mut self) {
        let Scene { run, world, .. } = &mut self.scene;
        match self.keeping {
            Keeping::Configured => {}
            Keeping::Disabled => world.defaults.cleanup.enabled = false,
            Keeping::OwnWord => {
                world.defaults.cleanup.enabled = false;
                let wait = Duration::from_secs(10);
                run.spec.child_ttl = Some(ChildTtl {
                    succeeded: Some(wait.into()),
                    failed: Some(wait.into()),
                });
            }
            Keeping::Preserved => self.scene.annotate(names::PRESERVE, "true"),
            Keeping::WithoutFiles => world.defaults.cleanup.delete_config_map = false,
            Keeping::RunToo => {
                let wait = Duration::from_secs(7200);
                world.defaults.delete_finished_runs_after = Some(wait);
            }
        }
    }

    pub(super) fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Returns the outcome of the run, without times and names of Pods.
    pub(super) fn outcome(&self) -> (RunPhase, Reason, u32, u32, Vec<String>) {
        let status = self.scene.status();
        let (_, state, reason) = said(&self.scene.decide());
        assert!(matches!(state, State::Succeeded | State::Failed));
        let jobs = self.workers.iter().map(|worker| worker.view.name.clone());
        (
            status.phase.unwrap(),
            reason,
            status.attempts,
            status.disruptions,
            jobs.collect(),
        )
    }

    /// Checks that the run ended as the scripts demand, if nobody interferes.
    pub(super) fn check_expected(&self) {
        let max = self.scene.run.spec.retry.as_ref().unwrap().max_attempts;
        let (mut attempt, mut disruptions) = (1, 0);
        for (index, worker) in self.workers.iter().enumerate() {
            let (reason, is_end) = match worker.script {
                Script::Evicted { times, .. } => {
                    disruptions += times;
                    (Reason::Succeeded, true)
                }
                Script::PodDeleted { .. } | Script::JobDeleted => {
                    disruptions += 1;
                    (Reason::Disrupted, false)
                }
                Script::Ends { code: 0 } => (Reason::Succeeded, true),
                Script::Ends { .. } => (Reason::NonZeroExit, false),
                Script::Forgets => (Reason::ResultMissing, false),
                Script::Oom => (Reason::OOMKilled, false),
                Script::NoImage | Script::NoPod => (Reason::StartTimeout, false),
                Script::Hangs => (Reason::DeadlineExceeded, false),
                Script::PodLost => (Reason::EvidenceLost, true),
                Script::NodeLost { is_told } => {
                    disruptions += u32::from(is_told);
                    (Reason::DeadlineExceeded, true)
                }
                Script::Silent => (Reason::JobFailed, false),
            };
            let is_too_many = disruptions >= 6;
            let is_again = reason == Reason::Disrupted;
            if is_too_many || is_end || (attempt == max && !is_again) {
                let expected = if is_too_many {
                    Reason::TooManyDisruptions
                } else {
                    reason
                };
                let (_, said, attempts, counted, _) = self.outcome();
                let script = worker.script;
                assert_eq!((said, attempts), (expected, attempt), "{script:?}");
                assert_eq!(counted, disruptions.min(6), "{script:?}");
                assert_eq!(self.workers.len(), index + 1, "a Job too many");
                return;
            }
            attempt += u32::from(!is_again);
        }
        panic!("the run ended before its attempts did");
    }

    /// Simulates until the run has ended, is deleted, or waits for a change by a user.
    pub(super) fn live(&mut self) {
        for _ in 0..PASSES {
            self.meddle();
            self.observe();
            let decision = self.scene.decide();
            check(&self.scene, &decision);
            let carried = self.carry_out(&decision);
            if self.scene.is_gone {
                return;
            }
            if carried == Carried::Recorded {
                self.check_quiet(&decision);
            }
            if matches!(carried, Carried::Recorded | Carried::Unchanged)
                && self.is_at_rest(&decision)
            {
                return;
            }
            self.wait(&decision, carried);
        }
        panic!(
            "no end after {PASSES} passes: {:?} {:#?}",
            self.workers
                .iter()
                .map(|worker| worker.script)
                .collect::<Vec<_>>(),
            self.scene.status()
        );
    }

    fn observe(&mut self) {
        let now = self.scene.now;
        let seen = now.as_second() - self.lag;
        let there = self.workers.iter().filter(|worker| !worker.is_gone());
        let world = &mut self.scene.world;
        world.children.jobs = there.clone().map(|worker| worker.view.clone()).collect();
        world.children.pods = self
            .workers
            .iter()
            .flat_map(|worker| worker.pods(seen))
            .collect();
        world.children.warnings = there
            .filter(|worker| worker.script == Script::NoPod && worker.age() >= 1)
            .map(|worker| Warning {
                object_uid: worker.view.uid.clone(),
                reason: "FailedCreate".to_owned(),
                message: format!(
                    "Error creating: pods \"x-{}\" is forbidden: exceeded quota: q",
                    worker.age()
                ),
                last_seen: Some(now),
                times: 1,
                ..Warning::default()
            })
            .collect();
    }

    /// Performs the effects and records, unless the operator is killed in between.
    fn carry_out(&mut self, decision: &RunDecision) -> Carried {
        let is_killed = self.plan != Plan::Calm && !self.has_missed && self.rng.one_in(5);
        let survives = if is_killed {
            self.rng.below(decision.effects.len() as u64 + 1)
        } else {
            u64::MAX
        };
        for (done, effect) in (0_u64..).zip(&decision.effects) {
            if done >= survives {
                break;
            }
            self.perform(effect);
        }
        if is_killed {
            // The next process has created nothing yet.
            for worker in &mut self.workers {
                worker.view.proven = false;
            }
            for map in &mut self.scene.world.children.config_maps {
                map.proven = false;
            }
            return Carried::Killed;
        }
        // As the engine does.
        if let Some(at) = decision
            .defer_status_until
            .filter(|at| self.scene.now < *at)
            && decision.finalizer == FinalizerAction::Keep
        {
            return Carried::Waits(at);
        }
        let before = self.scene.run.status.clone();
        self.scene.record(decision);
        if self.scene.run.status == before {
            Carried::Unchanged
        } else {
            Carried::Recorded
        }
    }

    fn perform(&mut self, effect: &Effect) {
        let now = self.scene.now;
        let known = self.scene.world.children.jobs.len();
        self.scene.perform(effect);
        if let Effect::Patch { target, .. } = effect
            && target.resource.kind == "Pod"
        {
            for worker in &mut self.workers {
                worker.limit_pod(&target.uid);
            }
        }
        for worker in self.workers.iter_mut().filter(|worker| !worker.is_gone()) {
            let jobs = &self.scene.world.children.jobs;
            if let Some(job) = jobs.iter().find(|job| job.uid == worker.view.uid) {
                worker.view.deleting = job.deleting;
                worker.view.suspended = job.suspended;
                worker.view.suspended_by_us = job.suspended_by_us;
                worker.view.stopped_pods.clone_from(&job.stopped_pods);
                worker.view.limit_seconds = job.limit_seconds;
                worker.view.proven = job.proven;
            }
        }
        if self.scene.world.children.jobs.len() > known {
            for worker in &self.workers {
                assert!(!worker.may_run(), "two programs at once");
            }
            let mut fate = Rng::new(self.fate ^ (self.workers.len() as u64 + 1));
            let view = self.scene.world.children.jobs.last().unwrap().clone();
            assert_eq!(view.created, Some(now));
            let starts = 2 + i64::try_from(fate.below(60)).unwrap();
            let script = *fate.pick(&self.scripts);
            let takes = 5 + i64::try_from(fate.below(300)).unwrap();
            self.workers.push(Worker::new(view, script, starts, takes));
        }
    }

    /// Lets time pass: a little, or until the requeue time, or less if something visible happens.
    fn wait(&mut self, decision: &RunDecision, carried: Carried) {
        let now = self.scene.now;
        // A state that begins and ends while no operator runs is never known.
        let is_fleeting = |worker: &Worker| {
            matches!(
                worker.script,
                Script::JobDeleted | Script::Evicted { .. } | Script::PodDeleted { .. }
            )
        };
        let is_killed = carried == Carried::Killed;
        let is_short = is_killed && self.workers.last().is_some_and(is_fleeting);
        self.has_missed = is_short;
        let record = match carried {
            Carried::Waits(at) => Some(at),
            Carried::Killed | Carried::Unchanged | Carried::Recorded => None,
        };
        let requeue_at = record.map_or(decision.requeue_at, |at| {
            Some(
                decision
                    .requeue_at
                    .map_or(at, |requeue_at| requeue_at.min(at)),
            )
        });
        let requeue_at = requeue_at.filter(|requeue_at| *requeue_at > now && !is_short);
        let little = 1 + i64::try_from(self.rng.below(if is_short { 2 } else { 30 })).unwrap();
        let next = Timestamp::from_second(now.as_second() + little).unwrap();
        let until = match requeue_at {
            Some(requeue_at) if self.rng.one_in(4) => requeue_at,
            Some(requeue_at) => next.min(requeue_at),
            None => next,
        };
        self.pass_time(until.as_second(), is_killed && !is_short);
    }

    /// Lets time pass until this second, or until a moment after something happened, unless no operator runs.
    fn pass_time(&mut self, mut until: i64, is_blind: bool) {
        let mut second = self.scene.now.as_second();
        let seen_at = self.seen_at.take().filter(|at| *at > second && !is_blind);
        until = seen_at.map_or(until, |at| until.min(at));
        while second < until {
            second += 1;
            let mut has_changed = self.is_due(second);
            for worker in &mut self.workers {
                has_changed |= worker.live_until(second);
            }
            let at_work = self.workers.iter().filter(|worker| worker.may_run());
            assert!(at_work.count() <= 1, "two programs at once");
            if has_changed && !is_blind {
                self.seen_at = Some(second + self.lag);
                until = until.min(second + self.lag);
            }
        }
        self.scene.now = Timestamp::from_second(second).unwrap();
    }

    /// Returns whether users suspend or resume the run at this second.
    fn is_due(&self, second: i64) -> bool {
        let Some(Holding { job, from, until }) = self.holding else {
            return false;
        };
        let created = self.workers.get(job).and_then(|worker| worker.view.created);
        created.is_some_and(|created| {
            let age = second - created.as_second();
            age == from || age == until
        })
    }

    /// Returns whether nothing will happen any more. Checks that another reconciliation changes nothing.
    fn is_at_rest(&mut self, decision: &RunDecision) -> bool {
        let is_deleting = self.scene.run.metadata.deletion_timestamp.is_some();
        let is_released = decision.finalizer != FinalizerAction::Keep;
        if is_deleting && is_released {
            return true;
        }
        let rests = decision.is_end() || decision.verdict.state == State::Stalled;
        if !rests || (self.plan == Plan::Wild && self.acts < 4 && !self.rng.one_in(3)) {
            return false;
        }
        if !decision.is_end() {
            // A deletion that a lost node blocks.
            let blockers = |worker: &Worker| matches!(worker.script, Script::NodeLost { .. });
            let mut left = self
                .workers
                .iter()
                .filter(|worker| !worker.is_gone() || worker.may_run());
            return decision.effects.is_empty() && left.all(blockers);
        }
        self.clean_up(decision);
        true
    }

    /// Simulates the time after the end. Any operator deletes the objects that are due, and nothing else changes.
    fn clean_up(&mut self, end: &RunDecision) {
        let defaults = &mut self.scene.world.defaults;
        if self.fate.is_multiple_of(3) && defaults.cleanup.enabled {
            // Another configuration after a restart.
            defaults.cleanup.after_success = Duration::from_secs(60);
            defaults.cleanup.after_failure = Duration::from_secs(7000);
        }
        let mut quiet = 0;
        for _ in 0..100 {
            self.observe();
            let decision = self.scene.decide();
            check(&self.scene, &decision);
            assert_eq!(said(&decision), said(end));
            assert_eq!(&decision.status, self.scene.status());
            self.carry_out(&decision);
            if self.scene.is_gone {
                assert!(
                    self.scene
                        .world
                        .defaults
                        .delete_finished_runs_after
                        .is_some()
                );
                return;
            }
            let is_quiet = decision.effects.is_empty() && decision.requeue_at.is_none();
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet == 3 {
                return self.check_cleaned();
            }
            let requeue_at = decision.requeue_at.map(|requeue_at| requeue_at.as_second());
            let later = self.scene.now.as_second() + if is_quiet { 5000 } else { 40 };
            let until = requeue_at.map_or(later, |requeue_at| {
                requeue_at.max(self.scene.now.as_second() + 1)
            });
            while self.scene.now.as_second() < until {
                self.pass_time(until, true);
            }
        }
        panic!("the cleanup has no end");
    }

    fn check_cleaned(&self) {
        if self.plan == Plan::Wild {
            // Each decision was checked. Users may have changed the spec in between.
            return;
        }
        let is_lost = |worker: &&Worker| matches!(worker.script, Script::NodeLost { .. });
        let mut jobs = self.workers.iter().filter(|worker| !is_lost(worker));
        let deleted = |name: &str| {
            self.scene
                .world
                .children
                .config_maps
                .iter()
                .all(|map| map.name != name)
        };
        let files = deleted("shop-7-v1-files");
        match self.keeping {
            Keeping::Configured | Keeping::OwnWord => {
                assert!(jobs.all(Worker::is_gone) && files);
            }
            Keeping::WithoutFiles => assert!(jobs.all(Worker::is_gone) && !files),
            Keeping::Disabled | Keeping::Preserved => {
                assert!(!files && jobs.all(|job| !job.is_gone() || job.view.end.is_none()));
            }
            Keeping::RunToo => panic!("the run is still there"),
        }
    }

    /// Checks that nothing is written before the requeue time while nothing happens. One more write is allowed, by the
    /// reconciliation that reads the objects that a start adopted.
    fn check_quiet(&self, decision: &RunDecision) {
        let mut later = self.scene.clone();
        let mut requeue_at = decision.requeue_at;
        for _ in 0..2 {
            let next = later.now.as_nanosecond() + 300_000_000;
            later.now = Timestamp::from_nanosecond(next).unwrap();
            if requeue_at.is_some_and(|requeue_at| requeue_at <= later.now) {
                return;
            }
            let again = later.decide();
            let stored = later.status();
            let status = again.next_status(stored, &phase_input(), later.generation(), later.now);
            if !again.effects.is_empty() || status == *stored {
                return;
            }
            requeue_at = again.requeue_at;
            later.record(&again);
        }
        panic!("writes without a reason: {:?}", later.status());
    }

    /// Lets users act now and then.
    fn meddle(&mut self) {
        self.hold_and_let_go();
        if self.plan != Plan::Wild || self.acts >= 6 || !self.rng.one_in(8) {
            self.come_round();
            return;
        }
        self.acts += 1;
        let is_deleting = self.scene.run.metadata.deletion_timestamp.is_some();
        let is_cancelled = self.scene.run.spec.cancel;
        match self.rng.below(12) {
            0 | 1 if !is_deleting && !is_cancelled => self.scene.supersede(),
            2 => {
                let now = Time(self.scene.now);
                let metadata = &mut self.scene.run.metadata;
                metadata.deletion_timestamp.get_or_insert(now);
            }
            3 => self.removed_agent = self.scene.world.agent.take().or(self.removed_agent.take()),
            4 => self
                .scene
                .edit(|spec| spec.timeout = Some(Duration::from_secs(60).into())),
            5 | 6 => self.scene.edit(|spec| spec.suspend = !spec.suspend),
            7 => self.scene.edit(|spec| spec.cancel = true),
            8 => self.scene.edit(|spec| {
                spec.child_ttl = Some(ChildTtl {
                    succeeded: Some(Duration::from_secs(3).into()),
                    failed: None,
                });
            }),
            9 => self.scene.annotate(names::PRESERVE, "true"),
            10 => self.workers.iter_mut().for_each(Worker::vanish),
            _ => self.scene.world.children.config_maps.clear(),
        }
    }

    fn hold_and_let_go(&mut self) {
        let Some(Holding { job, from, until }) = self.holding else {
            return;
        };
        let Some(age) = self.workers.get(job).map(Worker::age) else {
            return;
        };
        if age >= until {
            self.scene.edit(|spec| spec.suspend = false);
            self.holding = None;
        } else if age >= from && !self.scene.run.spec.suspend {
            self.scene.edit(|spec| spec.suspend = true);
        }
    }

    fn come_round(&mut self) {
        if self.plan == Plan::Wild && self.scene.run.spec.suspend && self.rng.one_in(4) {
            self.scene.edit(|spec| spec.suspend = false);
        }
        if self.removed_agent.is_some() && self.rng.one_in(6) {
            self.scene.world.agent = self.removed_agent.take();
        }
    }
}
