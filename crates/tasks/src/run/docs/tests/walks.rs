//! Complete lives of runs in a small cluster with a Git server: Pods that push and are then lost, operators that are
//! killed, responses that are late. The final status must match the state of the server.

use super::{properties::check, *};
use crate::{
    run::tests::{generator::Rng, properties::in_parallel},
    view::{JobEnd, JobView, PodPhase, Reported},
};

/// Number of simulated lives.
fn walks() -> u64 {
    testkit::seed::scaled(150, 500)
}

/// Fate of the Pods of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Pushes,
    /// It pushes, and ends without a report.
    PushesSilently,
    /// It pushes, but the agent did not return a required result.
    Forgets,
    CloneFails,
    AgentFails,
    NothingChanges,
    Refused,
    /// It is evicted at this age, and its Job creates another Pod.
    Evicted(i64),
    /// It is deleted at this age, and its Job ends.
    Deleted(i64),
    /// Its Job is deleted at this age, and the Pod with it.
    Vanishes(i64),
    /// The Job is complete, and the Pod is deleted.
    Unread,
    /// It does nothing from this age on, until it is stopped.
    Hangs(i64),
}

/// Ages at which a Pod's steps begin, at which it pushes, and at which it ends, in seconds.
const CLONE: i64 = 2;
const AGENT: i64 = 6;
const PUBLISH: i64 = 16;
const PUSH: i64 = 19;
const END: i64 = 22;

const FATES: &[Fate] = &[
    Fate::Pushes,
    Fate::Pushes,
    Fate::Pushes,
    Fate::PushesSilently,
    Fate::Forgets,
    Fate::CloneFails,
    Fate::AgentFails,
    Fate::AgentFails,
    Fate::NothingChanges,
    Fate::Refused,
    Fate::Evicted(4),
    Fate::Evicted(10),
    Fate::Evicted(20),
    Fate::Deleted(4),
    Fate::Deleted(10),
    Fate::Deleted(20),
    Fate::Vanishes(10),
    Fate::Vanishes(20),
    Fate::Unread,
    Fate::Hangs(4),
    Fate::Hangs(10),
    Fate::Hangs(20),
];

#[derive(Debug, Clone)]
struct Life {
    created: i64,
    asked: Option<i64>,
    /// Time since which the Pod's own limit is reached.
    limited: Option<i64>,
    is_evicted: bool,
    report: Option<Report>,
    /// Time of the end, exit code, and age.
    ended: Option<(i64, i32, i64)>,
    is_gone: bool,
}

#[derive(Debug, Clone)]
struct Worker {
    view: JobView,
    fate: Fate,
    pods: Vec<Life>,
    is_gone: bool,
}

struct Walk {
    scene: Scene,
    workers: Vec<Worker>,
    fate: Rng,
    rng: Rng,
    /// Whether operators are killed, and responses are lost.
    is_rough: bool,
    /// Whether users cancel, delete, or push something else.
    is_wild: bool,
    /// Number of queries that will still fail: fewer than a start waits for.
    refusals: u32,
    /// Whether a push of ours ever reached the server.
    has_pushed: bool,
}

impl Walk {
    fn new(seed: u64, is_rough: bool, is_wild: bool) -> Self {
        let mut fate = Rng::new(seed);
        let spec = json!({"output": {"requireChanges": fate.one_in(2)}});
        // Each operator that is killed loses the server's response, and up to 30 s of the wait for it. Where ends are
        // compared, that alone must not use up the wait: such an end is right, but it differs.
        let start_timeout = if is_wild { "2m" } else { "10m" };
        let agent_spec = json!({
            "startTimeout": start_timeout, "timeout": "3m",
            "retry": {"maxAttempts": 1 + fate.below(3), "backoff": {"initial": "5s", "max": "20s"}},
            "results": [{"name": "answer", "required": true}],
        });
        Self {
            scene: Scene::with(spec, agent_spec),
            workers: Vec::new(),
            fate,
            rng: Rng::new(seed ^ 0x5eed),
            is_rough,
            is_wild,
            refusals: 2,
            has_pushed: false,
        }
    }

    fn second(&self) -> i64 {
        self.scene.now().as_second()
    }

    fn live(&mut self) {
        for _ in 0..3000 {
            self.meddle();
            self.observe();
            let decision = self.scene.decide();
            check(&self.scene, &decision);
            self.scene.ask();
            let is_killed = self.is_rough && self.rng.one_in(6);
            let done = if is_killed {
                self.rng.below(3)
            } else {
                u64::MAX
            };
            for (index, effect) in (0_u64..).zip(&decision.effects) {
                if index < done {
                    self.perform(effect);
                }
            }
            if is_killed {
                self.scene.restart();
                // The next process has created nothing yet.
                for worker in &mut self.workers {
                    worker.view.proven = false;
                }
                for map in &mut self.scene.around.world.children.config_maps {
                    map.proven = false;
                }
            } else {
                self.scene.record(&decision);
                let is_released = decision.finalizer != FinalizerAction::Keep;
                if is_released && (decision.is_end() || self.is_deleting()) {
                    return;
                }
            }
            self.pass_time(&decision);
        }
        panic!("no end: {:?} {:#?}", self.workers, self.scene.run.status);
    }

    fn is_deleting(&self) -> bool {
        self.scene.run.metadata.deletion_timestamp.is_some()
    }

    fn meddle(&mut self) {
        if !self.is_wild || !self.rng.one_in(25) {
            return;
        }
        match self.rng.below(4) {
            0 => self.scene.edit(|spec| spec.cancel = true),
            1 => self.scene.delete_run(),
            2 => {
                let other = "d".repeat(40);
                self.scene.server.heads.insert(BRANCH.to_owned(), other);
            }
            _ => self.scene.around.world.children.config_maps.clear(),
        }
    }

    fn observe(&mut self) {
        let second = self.second();
        let there = self.workers.iter().filter(|worker| !worker.is_gone);
        let jobs = there.map(|worker| worker.view.clone()).collect();
        let pods = self
            .workers
            .iter()
            .flat_map(|worker| worker.pods(second))
            .collect();
        let world = &mut self.scene.around.world;
        (world.children.jobs, world.children.pods) = (jobs, pods);
    }

    fn perform(&mut self, effect: &Effect) {
        let known = self.scene.around.world.children.jobs.len();
        self.scene.perform(effect);
        if let Effect::Patch { target, .. } = effect
            && target.resource.kind == "Pod"
        {
            let second = self.second();
            for worker in &mut self.workers {
                worker.limit_pod(&target.uid, second);
            }
        }
        let jobs = &self.scene.around.world.children.jobs;
        for worker in self.workers.iter_mut().filter(|worker| !worker.is_gone) {
            if let Some(job) = jobs.iter().find(|job| job.uid == worker.view.uid) {
                worker.view.deleting = job.deleting;
                worker.view.limit_seconds = job.limit_seconds;
                worker.view.proven = job.proven;
            }
        }
        if jobs.len() > known {
            let busy = self.workers.iter().any(Worker::may_run);
            assert!(!busy, "two programs at once");
            self.workers.push(Worker {
                view: jobs.last().unwrap().clone(),
                fate: *self.fate.pick(FATES),
                pods: Vec::new(),
                is_gone: false,
            });
        }
    }

    /// Lets time pass: a little, or until the requeue time. The worker responds in between.
    fn pass_time(&mut self, decision: &DocsDecision) {
        let now = self.second();
        let little = now + 1 + i64::try_from(self.rng.below(4)).unwrap();
        let requeue_at = decision.requeue_at.map(|requeue_at| requeue_at.as_second());
        let is_idle = self.workers.iter().all(|worker| !worker.is_busy(now));
        let until = match requeue_at {
            Some(requeue_at) if is_idle && self.rng.one_in(2) => requeue_at.clamp(now, now + 1000),
            Some(requeue_at) if requeue_at <= now => now,
            _ => little,
        };
        for second in now + 1..=until {
            self.scene.around.now = Timestamp::from_second(second).unwrap();
            let mut workers = std::mem::take(&mut self.workers);
            for worker in &mut workers {
                self.has_pushed |= worker.tick(second, &mut self.scene.server);
            }
            self.workers = workers;
            let at_work = self.workers.iter().filter(|worker| worker.may_run());
            assert!(at_work.count() <= 1, "two programs at once");
        }
        let is_late = until > now + 5;
        if self.scene.worker.is_some() && (is_late || !self.rng.one_in(3)) {
            let refuses = self.is_rough && self.refusals > 0 && self.rng.one_in(3);
            self.refusals -= u32::from(refuses);
            self.scene.server.refusal =
                refuses.then(|| (Reason::RepositoryUnreachable, "silence".to_owned()));
            self.scene.reply();
        }
    }

    fn outcome(&self) -> (Option<RunPhase>, String, u32, Option<String>) {
        let status = self.scene.status();
        let condition = status.progress.condition(api::status::condition::SUCCEEDED);
        (
            status.phase,
            condition.unwrap().reason.clone(),
            status.attempts,
            status.commit.clone(),
        )
    }

    /// Checks that the run reports the same end as the server shows.
    fn check_truth(&self) {
        if self.is_deleting() {
            assert!(self.workers.iter().all(|worker| !worker.may_run()));
            return;
        }
        let status = self.scene.status();
        let message = status.progress.message.clone().unwrap();
        let head = self.scene.server.heads.get(BRANCH);
        if status.phase == Some(RunPhase::Succeeded) {
            match &status.commit {
                Some(commit) => assert!(self.is_wild || Some(commit) == head),
                None => assert!(!self.scene.run.spec.output.require_changes),
            }
            return;
        }
        let is_told = message.contains("push");
        assert!(
            !self.has_pushed || is_told,
            "pushed, and silent about it: {message}"
        );
        let is_doubt = message.contains("not known");
        let may_have = self.workers.iter().any(|worker| {
            let came_far = |pod: &Life| pod.created + PUBLISH <= self.second();
            // Nobody read how far a Pod came that was deleted after its end, also if it was stopped early.
            let is_unread = |pod: &Life| worker.fate == Fate::Unread && pod.is_gone;
            (worker.pods.iter()).any(|pod| came_far(pod) || is_unread(pod))
        });
        assert!(!is_doubt || may_have || status.disruptions > 0, "{message}");
    }
}

impl Worker {
    fn may_run(&self) -> bool {
        self.pods.iter().any(|pod| pod.ended.is_none())
    }

    /// Returns whether anything happens by itself.
    fn is_busy(&self, second: i64) -> bool {
        let hangs = |pod: &Life| {
            let age = second - pod.created;
            let is_untold = pod.asked.is_none() && pod.limited.is_none();
            matches!(self.fate, Fate::Hangs(at) if age >= at) && is_untold
        };
        let is_stopped = self.view.deleting.is_some() || self.view.limit_seconds == Some(1);
        let is_still = self.pods.last().is_some_and(hangs) && !is_stopped;
        !self.is_gone && !is_still && (self.view.end.is_none() || self.may_run())
    }

    /// Sets the limit of a Pod, as the API server does.
    fn limit_pod(&mut self, uid: &str, second: i64) {
        let job = self.view.uid.clone();
        for (number, pod) in self.pods.iter_mut().enumerate() {
            if format!("{job}-{number}") == uid {
                pod.limited.get_or_insert(second);
            }
        }
    }

    /// Lets a second pass. Returns whether something was pushed in it.
    fn tick(&mut self, second: i64, server: &mut Server) -> bool {
        let fate = self.fate;
        let is_first = self.pods.len() == 1;
        let mut has_pushed = false;
        if let Some(pod) = self.pods.iter_mut().find(|pod| pod.ended.is_none()) {
            let age = second - pod.created;
            if let Some(asked) = pod.asked {
                if second >= asked + 3 {
                    pod.ended = Some((second, 143, asked - pod.created));
                }
            } else if let Some(limited) = pod.limited {
                if second >= limited + 3 {
                    pod.ended = Some((second, 143, limited - pod.created));
                }
            } else {
                has_pushed = pod.live(second, age, fate, is_first, server);
            }
            if let (Fate::Vanishes(at), true) = (fate, age >= CLONE)
                && age >= at
                && !self.is_gone
            {
                self.is_gone = true;
            }
        }
        self.control(second);
        has_pushed
    }

    fn control(&mut self, second: i64) {
        let is_leaving = self.is_gone || self.view.deleting.is_some();
        if is_leaving {
            for pod in self.pods.iter_mut().filter(|pod| pod.ended.is_none()) {
                pod.asked.get_or_insert(second);
            }
            self.is_gone |= !self.may_run();
            return;
        }
        if self.view.end.is_some() {
            return;
        }
        let at = Some(Timestamp::from_second(second).unwrap());
        if self.view.limit_seconds == Some(1) {
            for pod in self.pods.iter_mut().filter(|pod| pod.ended.is_none()) {
                pod.asked.get_or_insert(second);
            }
            if !self.may_run() {
                let (reason, message) = ("DeadlineExceeded".to_owned(), "limit".to_owned());
                self.view.end = Some(JobEnd::Failed {
                    at,
                    reason,
                    message,
                });
            }
            return;
        }
        match self.pods.last_mut() {
            None => {}
            Some(Life { ended: None, .. }) => return,
            Some(Life {
                is_evicted: true, ..
            }) => {}
            Some(pod) => {
                let (_, code, _) = pod.ended.unwrap();
                pod.is_gone = self.fate == Fate::Unread;
                self.view.end = Some(if code == 0 {
                    JobEnd::Complete { at }
                } else {
                    JobEnd::Failed {
                        at,
                        reason: "BackoffLimitExceeded".to_owned(),
                        message: "limit".to_owned(),
                    }
                });
                return;
            }
        }
        self.pods.push(Life {
            created: second,
            asked: None,
            limited: None,
            is_evicted: false,
            report: None,
            ended: None,
            is_gone: false,
        });
    }

    fn pods(&self, second: i64) -> Vec<PodView> {
        let is_swept = |pod: &Life| self.is_gone && pod.ended.is_some();
        let there = (0..).zip(&self.pods);
        there
            .filter(|(_, pod)| !pod.is_gone && !is_swept(pod))
            .map(|(number, pod)| self.pod(number, pod, second))
            .collect()
    }

    fn pod(&self, number: u32, pod: &Life, second: i64) -> PodView {
        let stamp = |second: i64| Timestamp::from_second(second).unwrap();
        let age = pod.ended.map_or(second - pod.created, |(_, _, age)| age);
        let step = match age {
            ..AGENT => Step::Before,
            AGENT..PUBLISH => Step::Main,
            _ => Step::After,
        };
        let started = stamp(pod.created + AGENT);
        let exit = |code: i32, finished: i64, message: String| Exit {
            code,
            signal: None,
            reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
            message,
            started: Some(started),
            finished: Some(stamp(finished)),
            restarts: 0,
        };
        let container = match (pod.ended, step) {
            (Some((ended, code, _)), _) => {
                let report = pod.report.as_ref().map(Report::write);
                ContainerState::Ended(exit(code, ended, report.unwrap_or_default()))
            }
            (None, Step::Before) if age < CLONE => ContainerState::Unknown,
            (None, Step::Before) => waiting(PREPARING, ""),
            (None, Step::Main | Step::After) => ContainerState::Running {
                since: Some(started),
            },
        };
        let message = if self.fate == Fate::Forgets {
            "{}".to_owned()
        } else {
            json!({"answer": "42"}).to_string()
        };
        PodView {
            pod: pods::PodView {
                name: format!("{}-{number}", self.view.name),
                uid: format!("{}-{number}", self.view.uid),
                created: Some(stamp(pod.created)),
                node: Some("node-1".to_owned()),
                stop_asked: pod.asked.map(stamp),
                stop_by: pod.asked.map(|asked| stamp(asked + 30)),
                disruption: (pod.is_evicted && pod.asked.is_some()).then(Reported::default),
                phase: match pod.ended {
                    Some((_, 0, _)) => PodPhase::Succeeded,
                    Some(_) => PodPhase::Failed,
                    None => PodPhase::Running,
                },
                limit_seconds: pod.limited.map(|_| 1),
                ..pods::PodView::default()
            },
            job_uid: Some(self.view.uid.clone()),
            step,
            container,
            stuck: None,
            doubt: None,
            main_exit: (step == Step::After).then(|| exit(0, pod.created + PUBLISH, message)),
            image_id: None,
            content: None,
            foreign: false,
        }
    }
}

impl Life {
    fn live(
        &mut self,
        second: i64,
        age: i64,
        fate: Fate,
        is_first: bool,
        server: &mut Server,
    ) -> bool {
        let said_no = |reason| Some(Report::failed(reason, "what Git said"));
        match fate {
            Fate::Hangs(at) if age >= at => return false,
            Fate::Evicted(at) | Fate::Deleted(at) if age >= at && is_first => {
                self.asked = Some(second);
                self.is_evicted = matches!(fate, Fate::Evicted(_));
                return false;
            }
            Fate::CloneFails if age >= CLONE + 2 => {
                self.report = said_no(git::Reason::RepositoryUnreachable);
                self.ended = Some((second, 1, age));
                return false;
            }
            Fate::AgentFails if age >= AGENT + 2 => {
                self.ended = Some((second, 3, age));
                return false;
            }
            Fate::Pushes
            | Fate::PushesSilently
            | Fate::Forgets
            | Fate::CloneFails
            | Fate::AgentFails
            | Fate::NothingChanges
            | Fate::Refused
            | Fate::Evicted(_)
            | Fate::Deleted(_)
            | Fate::Vanishes(_)
            | Fate::Unread
            | Fate::Hangs(_) => {}
        }
        let mut has_pushed = false;
        if age == PUSH {
            self.report = match (fate, server.heads.get(BRANCH).map(String::as_str)) {
                (_, Some(PUSHED)) => Some(found()),
                // `publish` reads the branch before it compares files.
                (Fate::NothingChanges, Some(HEAD)) => Some(unchanged()),
                (Fate::Refused, Some(HEAD)) => said_no(git::Reason::PushRejected),
                (_, Some(HEAD)) => {
                    has_pushed = true;
                    server.heads.insert(BRANCH.to_owned(), PUSHED.to_owned());
                    Some(pushed())
                }
                (_, _) => said_no(git::Reason::BranchMoved),
            };
        }
        if age >= END {
            if fate == Fate::PushesSilently {
                self.report = None;
            }
            let code = match self.report {
                Some(Report::Failed { .. }) | None => 1,
                Some(_) => 0,
            };
            self.ended = Some((second, code, age));
        }
        has_pushed
    }
}

#[test]
fn what_a_run_says_in_the_end_is_what_is_on_the_server() {
    in_parallel(walks(), |seed| {
        let mut walk = Walk::new(seed, true, true);
        walk.live();
        walk.check_truth();
    });
}

/// The operator is killed at any point, and responses are late or lost. The end is that of an undisturbed run.
#[test]
fn killing_the_operator_changes_nothing_in_the_end() {
    in_parallel(walks(), |seed| {
        let mut calm = Walk::new(seed, false, false);
        calm.live();
        calm.check_truth();
        let mut rough = Walk::new(seed, true, false);
        rough.live();
        rough.check_truth();
        // Whether an eviction that begins and ends between two records is counted is chance (ADR 9). It may be the
        // sixth, which ends the run.
        let is_sixth = |walk: &Walk| walk.outcome().1 == "TooManyDisruptions";
        let evicts = |worker: &Worker| matches!(worker.fate, Fate::Evicted(_));
        if is_sixth(&rough) != is_sixth(&calm) && rough.workers.iter().any(evicts) {
            return;
        }
        assert_eq!(rough.outcome(), calm.outcome(), "{:?}", rough.workers);
    });
}
