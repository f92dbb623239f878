//! A cluster that follows a script: Jobs that start, fail, hang, vanish; users who change their
//! minds; an operator that is killed between its effects and its record.

use api::{Reason, State, tasks::RunPhase};

use super::{generator::Rng, properties::check, *};

/// What happens around a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing but the scripts.
    Calm,
    /// The operator is killed now and then.
    Killed,
    /// And users do things.
    Wild,
}

/// What becomes of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    /// The container ends with this code.
    Ends { code: i32 },
    /// It ends with 0 without the result that is required.
    Forgets,
    /// It is killed for its memory.
    Oom,
    /// It never starts: the image.
    NoImage,
    /// There is never a Pod: the quota.
    NoPod,
    /// It runs until it is stopped.
    Hangs,
    /// Its Pod is evicted once, and replaced; then it ends well.
    Evicted,
    /// Someone deletes its Pod: asked to stop, it ends with 0, and its Job says complete.
    PodDeleted,
    /// Its Pod is gone unread when its Job is complete.
    PodLost,
    /// Someone deletes the Job.
    JobDeleted,
    /// Its node is lost: it can never be stopped.
    NodeLost,
    /// It ends, and its Job never says so.
    Silent,
}

const SCRIPTS: &[Script] = &[
    Script::Ends { code: 0 },
    Script::Ends { code: 0 },
    Script::Ends { code: 0 },
    Script::Ends { code: 3 },
    Script::Ends { code: 137 },
    Script::Forgets,
    Script::Oom,
    Script::NoImage,
    Script::NoPod,
    Script::Hangs,
    Script::Evicted,
    Script::PodDeleted,
    Script::PodLost,
    Script::JobDeleted,
    Script::NodeLost,
    Script::Silent,
];

/// A Job, its script, and its times in seconds after its creation.
#[derive(Debug, Clone)]
struct Worker {
    view: JobView,
    script: Script,
    starts: i64,
    ends: i64,
    deleted: Option<Timestamp>,
}

/// How long the Job controller takes to say what became of a Pod.
const SETTLES: i64 = 2;
/// How long a Pod takes to stop.
const STOPS: i64 = 20;

impl Worker {
    fn age(&self, now: Timestamp) -> i64 {
        now.as_second() - self.view.created.unwrap().as_second()
    }

    fn time(&self, age: i64) -> Timestamp {
        Timestamp::from_second(self.view.created.unwrap().as_second() + age).unwrap()
    }

    fn is_gone(&self, now: Timestamp) -> bool {
        let since = |time: Timestamp| now.as_second() - time.as_second();
        match self.deleted {
            _ if self.script == Script::JobDeleted && self.age(now) >= self.ends => true,
            Some(_) if self.script == Script::NodeLost && self.age(now) >= self.starts => false,
            Some(deleted) => since(deleted) >= STOPS,
            None => false,
        }
    }

    fn job(&self, now: Timestamp) -> JobView {
        let mut job = self.view.clone();
        job.deleting = self.deleted;
        job.end = self.end(now);
        job
    }

    /// What the Job says; nothing any more once it is being deleted.
    fn end(&self, now: Timestamp) -> Option<JobEnd> {
        let settled = self.ends + SETTLES;
        let deleted = self.deleted.map_or(i64::MAX, |time| self.age(time));
        let says = if self.script == Script::Evicted {
            settled + 100
        } else {
            settled
        };
        if self.age(now) < says || deleted < says {
            return None;
        }
        let at = Some(self.time(says));
        match self.script {
            Script::Ends { code: 0 }
            | Script::Forgets
            | Script::Evicted
            | Script::PodDeleted
            | Script::PodLost => Some(JobEnd::Complete { at }),
            Script::Ends { .. } | Script::Oom => Some(JobEnd::Failed {
                at,
                reason: "BackoffLimitExceeded".to_owned(),
                message: "limit".to_owned(),
            }),
            Script::NoImage
            | Script::NoPod
            | Script::Hangs
            | Script::JobDeleted
            | Script::NodeLost
            | Script::Silent => None,
        }
    }

    fn pods(&self, now: Timestamp) -> Vec<PodView> {
        let age = self.age(now);
        if self.script == Script::NoPod || age < 1 {
            return Vec::new();
        }
        if self.script == Script::PodLost && age >= self.ends + SETTLES {
            return Vec::new();
        }
        let mut pods = vec![self.pod(now, age)];
        if self.script == Script::Evicted && age >= self.ends + 3 {
            let mut second = self.pod(now, age - self.ends - 3);
            second.uid.push_str("-2");
            second.created = Some(self.time(self.ends + 3));
            second.disruption = None;
            second.container = match age - self.ends {
                ..10 => Container::Waiting(Said::default()),
                10..100 => Container::Running {
                    since: Some(self.time(self.ends + 10)),
                },
                100.. => self.exit(0, self.ends + 10, self.ends + 100),
            };
            second.phase = phase_of(&second.container);
            pods.push(second);
        }
        pods
    }

    fn pod(&self, now: Timestamp, age: i64) -> PodView {
        let container = self.container(age);
        let mut pod = PodView {
            name: format!("{}-pod", self.view.name),
            uid: format!("{}-pod", self.view.uid),
            job_uid: Some(self.view.uid.clone()),
            created: Some(self.time(1)),
            node: (age >= 2).then(|| "node-1".to_owned()),
            stop_asked: self.deleted,
            disruption: None,
            unschedulable: None,
            phase: phase_of(&container),
            failure: None,
            container,
            image_id: Some("id".to_owned()),
        };
        if self.script == Script::PodDeleted && age >= self.ends - 1 {
            pod.stop_asked = Some(self.time(self.ends - 1));
        }
        if self.script == Script::Evicted && self.age(now) >= self.ends {
            pod.disruption = Some(Said {
                reason: "EvictionByEvictionAPI".to_owned(),
                message: String::new(),
            });
        }
        pod
    }

    fn container(&self, age: i64) -> Container {
        let said = |reason: &str, message: &str| {
            Container::Waiting(Said {
                reason: reason.to_owned(),
                message: message.to_owned(),
            })
        };
        if self.script == Script::NoImage {
            return if age % 2 == 0 {
                said("ErrImagePull", "not found")
            } else {
                said(
                    "ImagePullBackOff",
                    "Back-off pulling image \"a:1\": ErrImagePull: not found",
                )
            };
        }
        if age < self.starts {
            return said("ContainerCreating", "");
        }
        let running = Container::Running {
            since: Some(self.time(self.starts)),
        };
        match self.script {
            Script::Hangs | Script::NodeLost | Script::JobDeleted | Script::PodLost => running,
            _ if age < self.ends => running,
            Script::Ends { code } => self.exit(code, self.starts, self.ends),
            Script::Evicted => self.exit(143, self.starts, self.ends),
            Script::Oom | Script::Forgets | Script::PodDeleted | Script::Silent => {
                self.exit(0, self.starts, self.ends)
            }
            Script::NoImage | Script::NoPod => said("ContainerCreating", ""),
        }
    }

    fn exit(&self, code: i32, started: i64, finished: i64) -> Container {
        let is_oom = self.script == Script::Oom;
        Container::Ended(Exit {
            code: if is_oom { 137 } else { code },
            signal: None,
            reason: if is_oom { "OOMKilled" } else { "Completed" }.to_owned(),
            message: if self.script == Script::Forgets {
                String::new()
            } else {
                r#"{"answer": "42"}"#.to_owned()
            },
            started: Some(self.time(started)),
            finished: Some(self.time(finished)),
        })
    }

    /// Whether its program may run at this moment, whatever anyone saw of it.
    fn may_run(&self, now: Timestamp) -> bool {
        !self.is_gone(now)
            && self
                .pods(now)
                .iter()
                .any(|pod| !matches!(pod.container, Container::Ended(_)))
    }
}

fn phase_of(container: &Container) -> PodPhase {
    match container {
        Container::Unknown | Container::Waiting(_) => PodPhase::Pending,
        Container::Running { .. } => PodPhase::Running,
        Container::Ended(exit) if exit.code == 0 => PodPhase::Succeeded,
        Container::Ended(_) => PodPhase::Failed,
    }
}

/// A run in its cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    scene: Scene,
    plan: Plan,
    /// Decides what becomes of Jobs: the same for the same seed, whatever else happens.
    fate: u64,
    rng: Rng,
    workers: Vec<Worker>,
    /// How far the cache of Pods is behind, in seconds.
    lag: i64,
    acts: u32,
    removed_agent: Option<Arc<Agent>>,
}

/// More passes than any run needs: ten attempts that each wait for start, end and stop.
const PASSES: u32 = 600;

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
        Self {
            scene: Scene::new(run, Some(agent)),
            plan,
            fate: fate.next(),
            rng: Rng::new(seed ^ 0x5eed),
            workers: Vec::new(),
            lag: i64::try_from(fate.below(4)).unwrap(),
            acts: 0,
            removed_agent: None,
        }
    }

    pub(super) fn scene(&self) -> &Scene {
        &self.scene
    }

    /// What became of the run, without times and names of Pods.
    pub(super) fn outcome(&self) -> (RunPhase, Reason, u32, Vec<String>) {
        let status = self.scene.status();
        let (_, state, reason) = said(&self.scene.decide());
        assert!(matches!(state, State::Succeeded | State::Failed));
        let jobs = self.workers.iter().map(|worker| worker.view.name.clone());
        (
            status.phase.unwrap(),
            reason,
            status.attempts,
            jobs.collect(),
        )
    }

    /// The end that the scripts lead to, if nobody does anything.
    pub(super) fn check_expected(&self) {
        let max = self.scene.run.spec.retry.as_ref().unwrap().max_attempts;
        for (index, worker) in self.workers.iter().enumerate() {
            let attempt = u32::try_from(index).unwrap() + 1;
            let (reason, is_end) = match worker.script {
                Script::Ends { code: 0 } | Script::Evicted => (Reason::Succeeded, true),
                Script::Ends { .. } => (Reason::NonZeroExit, false),
                Script::Forgets => (Reason::ResultMissing, false),
                Script::Oom => (Reason::StepOOM, false),
                Script::NoImage | Script::NoPod => (Reason::StartTimeout, false),
                Script::Hangs => (Reason::DeadlineExceeded, false),
                Script::PodDeleted => (Reason::Disrupted, true),
                Script::PodLost => (Reason::EvidenceLost, true),
                Script::JobDeleted => (Reason::JobLost, true),
                Script::NodeLost => (Reason::DeadlineExceeded, true),
                Script::Silent => (Reason::JobFailed, false),
            };
            if is_end || attempt == max {
                let (_, said, attempts, _) = self.outcome();
                assert_eq!((said, attempts), (reason, attempt), "{:?}", worker.script);
                assert_eq!(self.workers.len(), index + 1, "a Job too many");
                return;
            }
        }
        panic!("the run ended before its attempts did");
    }

    /// Lives until the run has ended, is gone, or waits for someone to change something.
    pub(super) fn live(&mut self) {
        for _ in 0..PASSES {
            self.meddle();
            self.observe();
            let decision = self.scene.decide();
            check(&self.scene, &decision);
            let is_recorded = self.carry_out(&decision);
            if is_recorded {
                self.check_quiet(&decision);
                if self.is_at_rest(&decision) {
                    return;
                }
            }
            self.wait(&decision, is_recorded);
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
        let seen = Timestamp::from_second(now.as_second() - self.lag).unwrap();
        let world = &mut self.scene.world;
        world.jobs = self
            .workers
            .iter()
            .filter(|worker| !worker.is_gone(now))
            .map(|worker| worker.job(now))
            .collect();
        world.pods = self
            .workers
            .iter()
            .filter(|worker| !worker.is_gone(seen))
            .flat_map(|worker| worker.pods(seen))
            .collect();
        world.warnings = self
            .workers
            .iter()
            .filter(|worker| worker.script == Script::NoPod && worker.age(now) >= 1)
            .map(|worker| Warning {
                object_uid: worker.view.uid.clone(),
                reason: "FailedCreate".to_owned(),
                message: format!(
                    "Error creating: pods \"x-{}\" is forbidden: exceeded quota: q",
                    worker.age(now)
                ),
                last_seen: Some(now),
            })
            .collect();
    }

    /// Performs the effects and records, unless the operator is killed on the way.
    fn carry_out(&mut self, decision: &RunDecision) -> bool {
        let is_killed = self.plan != Plan::Calm && self.rng.one_in(5);
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
        if !is_killed {
            self.scene.record(decision);
        }
        !is_killed
    }

    fn perform(&mut self, effect: &Effect<NoExternal>) {
        let now = self.scene.now;
        let known = self.scene.world.jobs.len();
        self.scene.perform(effect);
        if let Effect::Delete(target) = effect {
            for worker in &mut self.workers {
                if worker.view.uid == target.uid {
                    worker.deleted = Some(now);
                }
            }
        }
        if self.scene.world.jobs.len() > known {
            for worker in &self.workers {
                assert!(!worker.may_run(now), "two programs at once");
            }
            let mut fate = Rng::new(self.fate ^ (self.workers.len() as u64 + 1));
            let view = self.scene.world.jobs.last().unwrap().clone();
            let starts = 2 + i64::try_from(fate.below(60)).unwrap();
            self.workers.push(Worker {
                view,
                script: *fate.pick(SCRIPTS),
                starts,
                ends: starts + 5 + i64::try_from(fate.below(300)).unwrap(),
                deleted: None,
            });
        }
    }

    /// Time passes: a little, or until the wake.
    fn wait(&mut self, decision: &RunDecision, is_recorded: bool) {
        let now = self.scene.now;
        // A Job that is created and deleted while no operator runs was never known.
        let is_fleeting = |worker: &Worker| worker.script == Script::JobDeleted;
        let is_short = !is_recorded && self.workers.last().is_some_and(is_fleeting);
        let wake = decision.wake.filter(|wake| *wake > now && !is_short);
        let little = 1 + i64::try_from(self.rng.below(if is_short { 2 } else { 30 })).unwrap();
        let next = Timestamp::from_second(now.as_second() + little).unwrap();
        self.scene.now = match wake {
            Some(wake) if self.rng.one_in(4) => wake,
            Some(wake) => next.min(wake),
            None => next,
        };
    }

    /// Whether nothing will happen any more; and nothing does, when it is looked at again.
    fn is_at_rest(&mut self, decision: &RunDecision) -> bool {
        let is_deleting = self.scene.run.metadata.deletion_timestamp.is_some();
        let is_released = decision.hold != Hold::Keep;
        if is_deleting && is_released {
            return true;
        }
        let rests = decision.is_end() || decision.verdict.state == State::Stalled;
        if !rests || (self.plan == Plan::Wild && self.acts < 4 && !self.rng.one_in(3)) {
            return false;
        }
        if !decision.is_end() {
            // A deletion that a lost node blocks.
            let blockers = |worker: &Worker| worker.script == Script::NodeLost;
            let mut left = self
                .workers
                .iter()
                .filter(|worker| !worker.is_gone(self.scene.now));
            return decision.effects.is_empty() && left.all(blockers);
        }
        for _ in 0..3 {
            self.scene.now = self
                .scene
                .now
                .checked_add(Duration::from_secs(5000))
                .unwrap();
            self.observe();
            let again = self.scene.decide();
            assert!(again.effects.is_empty());
            assert_eq!(said(&again), said(decision));
            assert_eq!(&again.status, self.scene.status());
        }
        true
    }

    /// Until the wake, and while nothing happens in the world, nothing is written: after one pass
    /// more at most, which reads what a start took over.
    fn check_quiet(&self, decision: &RunDecision) {
        let mut later = self.scene.clone();
        let mut wake = decision.wake;
        for _ in 0..2 {
            let next = later.now.as_nanosecond() + 300_000_000;
            later.now = Timestamp::from_nanosecond(next).unwrap();
            if wake.is_some_and(|wake| wake <= later.now) {
                return;
            }
            let again = later.decide();
            let stored = later.status();
            let status = again.settled(stored, later.generation(), later.now);
            if !again.effects.is_empty() || status == *stored {
                return;
            }
            wake = again.wake;
            later.record(&again);
        }
        panic!("writes without a reason: {:?}", later.status());
    }

    /// Users, now and then.
    fn meddle(&mut self) {
        if self.plan != Plan::Wild || self.acts >= 6 || !self.rng.one_in(8) {
            self.restore_agent();
            return;
        }
        self.acts += 1;
        let is_deleting = self.scene.run.metadata.deletion_timestamp.is_some();
        match self.rng.below(6) {
            0 | 1 if !is_deleting => self.scene.supersede(),
            2 => {
                let now = Time(self.scene.now);
                let metadata = &mut self.scene.run.metadata;
                metadata.deletion_timestamp.get_or_insert(now);
            }
            3 => self.removed_agent = self.scene.world.agent.take().or(self.removed_agent.take()),
            4 => {
                self.scene.run.spec.timeout = Some(Duration::from_secs(60).into());
                self.scene.run.metadata.generation = Some(self.scene.generation() + 1);
            }
            _ => self.scene.world.config_map = None,
        }
    }

    fn restore_agent(&mut self) {
        if self.removed_agent.is_some() && self.rng.one_in(6) {
            self.scene.world.agent = self.removed_agent.take();
        }
    }
}
