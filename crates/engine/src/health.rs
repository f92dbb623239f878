//! Health of the process: whether the controllers make progress, for `/livez`, and whether they know
//! the cluster, for `/readyz`.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{supervise::Shutdown, watch_health::WatchHealth};

/// Interval of the ticks of [`Health::tick`].
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time between two ticks of a healthy runtime.
const NO_BEAT: Duration = Duration::from_secs(10);

/// Longest time between two reports of a dispatcher that works: three times the limit of the runtime. The dispatcher
/// reports every second, also without the Lease.
const NO_DISPATCH: Duration = Duration::from_secs(30);

/// Longest time without a finished key in a leading process with work: five times the timeout of
/// a reconciliation.
const NO_PROGRESS: Duration = Duration::from_mins(5);

/// Longest time between two responses. After it, the API server does not respond, or received no
/// request. A leader sends one every 5 s.
const NO_ANSWER: Duration = Duration::from_secs(30);

/// The health of this process. Clones share it.
///
/// It sends no requests. Other parts of the process report to it, and it evaluates their reports.
#[derive(Debug, Clone)]
pub struct Health(Arc<Mutex<State>>, WatchHealth);

#[derive(Debug)]
struct State {
    beat: Instant,
    ended: Vec<(String, String)>,
    synced: BTreeMap<&'static str, bool>,
    queues: BTreeMap<&'static str, QueueState>,
    is_leading: bool,
    answered: Option<Instant>,
    /// Problems of the CRDs.
    schemas: Vec<String>,
}

/// The queue of one kind.
#[derive(Debug)]
struct QueueState {
    depth: usize,
    /// The last moment at which no key of the kind was expected to finish.
    moved: Instant,
    /// The last moment at which the dispatcher of the kind reported its queue.
    reported: Instant,
}

/// A queue with keys, and the time since its last progress.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Backlog {
    kind: &'static str,
    depth: usize,
    since_moved: Duration,
}

/// The input of a health check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Snapshot {
    since_beat: Duration,
    ended: Vec<(String, String)>,
    unsynced: Option<Vec<&'static str>>,
    /// The queues that are not empty.
    backlogs: Vec<Backlog>,
    /// The kinds with a dispatcher that has started, and the times since their last reports.
    dispatchers: Vec<(&'static str, Duration)>,
    is_leading: bool,
    since_answer: Option<Duration>,
}

impl Default for Health {
    fn default() -> Self {
        let now = Instant::now();
        Self(
            Arc::new(Mutex::new(State {
                beat: now,
                ended: Vec::new(),
                synced: BTreeMap::new(),
                queues: BTreeMap::new(),
                is_leading: false,
                answered: None,
                schemas: Vec::new(),
            })),
            WatchHealth::default(),
        )
    }
}

impl Health {
    /// Ticks until shutdown. It is a supervised task of its own.
    ///
    /// # Errors
    /// None.
    pub async fn tick(self, shutdown: Shutdown) -> Result<(), Infallible> {
        while !shutdown.is_on() {
            self.state().beat = Instant::now();
            tokio::select! {
                () = shutdown.wait() => {}
                () = sleep(HEARTBEAT_INTERVAL) => {}
            }
        }
        Ok(())
    }

    /// Records that a supervised task ended before the shutdown.
    pub fn task_ended(&self, name: &str, how: &str) {
        self.state().ended.push((name.to_owned(), how.to_owned()));
    }

    /// Records whether the cache of a kind is complete. Call it with `false` before the first list.
    pub fn set_synced(&self, kind: &'static str, synced: bool) {
        self.state().synced.insert(kind, synced);
    }

    /// Records that one reconciliation of a kind ended, successfully or not.
    pub fn finished_key(&self, kind: &'static str) {
        if let Some(queue) = self.state().queues.get_mut(kind) {
            queue.moved = Instant::now();
        }
    }

    /// Records how many keys of a kind are due or in progress, without those that
    /// wait for their time. The dispatcher of the kind calls it every second, from its start on.
    pub fn queue_depth(&self, kind: &'static str, depth: usize) {
        let now = Instant::now();
        let mut state = self.state();
        let queue = state.queues.entry(kind).or_insert(QueueState {
            depth: 0,
            moved: now,
            reported: now,
        });
        if queue.depth == 0 {
            queue.moved = now;
        }
        queue.depth = depth;
        queue.reported = now;
    }

    /// Records that the API server responded to a request. The client of this crate calls it.
    pub fn api_answered(&self) {
        let mut state = self.state();
        let now = Instant::now();
        let last = state.answered.replace(now);
        // No key could finish while the API server was away.
        if last.is_none_or(|last| now - last > NO_ANSWER) {
            state.restart_progress(now);
        }
    }

    /// Records the problems of the CRDs. While there are any, the process is not ready.
    pub fn set_schema_problems(&self, problems: Vec<String>) {
        self.state().schemas = problems;
    }

    /// Records whether this process leads. A process that does not lead has no keys to finish.
    pub fn leading(&self, is_leading: bool) {
        let mut state = self.state();
        if is_leading && !state.is_leading {
            state.restart_progress(Instant::now());
        }
        state.is_leading = is_leading;
    }

    /// Checks liveness, for `/livez`. It fails only if the runtime does not tick, a supervised task
    /// ended, a dispatcher did not run for 30 s, or this process leads and a controller is stuck. Stuck
    /// means that no key of its kind finished for 5 minutes with a non-empty queue while the API server
    /// responds. Other kinds may make progress meanwhile.
    ///
    /// # Errors
    /// All reasons, as one text.
    pub fn live(&self) -> Result<(), String> {
        live(&self.snapshot())
    }

    /// Checks readiness, for `/readyz`: the controllers have started, all watches work and the CRDs
    /// have all fields of this program, also on a standby.
    ///
    /// # Errors
    /// Names the CRDs that are missing or too old, the controllers that have not started, and the
    /// watches that do not work.
    pub fn ready(&self) -> Result<(), String> {
        let mut problems = self.state().schemas.clone();
        problems.extend(self.1.problems());
        ready(&self.snapshot(), problems)
    }

    /// Returns the watches of this process.
    #[must_use]
    pub fn watch_health(&self) -> &WatchHealth {
        &self.1
    }

    fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let unsynced = state.synced.iter().filter(|(_, synced)| !**synced);
        let backlog = |(kind, queue): (&&'static str, &QueueState)| Backlog {
            kind,
            depth: queue.depth,
            since_moved: queue.moved.elapsed(),
        };
        let queues = state.queues.iter().filter(|(_, queue)| queue.depth > 0);
        let dispatchers = state.queues.iter();
        let dispatchers = dispatchers.map(|(kind, queue)| (*kind, queue.reported.elapsed()));
        Snapshot {
            since_beat: state.beat.elapsed(),
            ended: state.ended.clone(),
            unsynced: (!state.synced.is_empty()).then(|| unsynced.map(|(kind, _)| *kind).collect()),
            backlogs: queues.map(backlog).collect(),
            dispatchers: dispatchers.collect(),
            is_leading: state.is_leading,
            since_answer: state.answered.map(|answered| answered.elapsed()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so a panic elsewhere leaves no partial change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Restarts the time without progress of all kinds, because no key could finish before `now`.
    fn restart_progress(&mut self, now: Instant) {
        for queue in self.queues.values_mut() {
            queue.moved = now;
        }
    }
}

impl Backlog {
    fn describe(&self) -> String {
        let queued = match self.depth {
            1 => "1 key is".to_owned(),
            count => format!("{count} keys are"),
        };
        let (kind, seconds) = (self.kind, self.since_moved.as_secs());
        format!(
            "no reconciliation of {kind} finished for {seconds} s although {queued} queued and the API server responds"
        )
    }
}

fn live(snapshot: &Snapshot) -> Result<(), String> {
    let mut reasons = Vec::new();
    if snapshot.since_beat > NO_BEAT {
        let seconds = snapshot.since_beat.as_secs();
        reasons.push(format!("the runtime has not ticked for {seconds} s"));
    }
    for (name, how) in &snapshot.ended {
        reasons.push(format!("task '{name}' {how}"));
    }
    // A dispatcher that hangs reports no depth, so its last report may be an empty queue.
    for (kind, since) in &snapshot.dispatchers {
        if *since > NO_DISPATCH {
            let seconds = since.as_secs();
            reasons.push(format!(
                "the dispatcher of {kind} has not run for {seconds} s"
            ));
        }
    }
    let answers = snapshot
        .since_answer
        .is_some_and(|since| since <= NO_ANSWER);
    if snapshot.is_leading && answers {
        let stuck = snapshot.backlogs.iter();
        let stuck = stuck.filter(|backlog| backlog.since_moved > NO_PROGRESS);
        reasons.extend(stuck.map(Backlog::describe));
    }
    verdict(&reasons)
}

fn ready(snapshot: &Snapshot, mut reasons: Vec<String>) -> Result<(), String> {
    match &snapshot.unsynced {
        None => reasons.push("no controller has been started".to_owned()),
        Some(kinds) => reasons.extend(
            kinds
                .iter()
                .map(|kind| format!("the controller of {kind} has not started")),
        ),
    }
    verdict(&reasons)
}

fn verdict(reasons: &[String]) -> Result<(), String> {
    if reasons.is_empty() {
        Ok(())
    } else {
        Err(reasons.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn well() -> Snapshot {
        Snapshot {
            since_beat: SECOND,
            ended: Vec::new(),
            unsynced: Some(Vec::new()),
            backlogs: backlog_since(SECOND),
            dispatchers: vec![("Agent", SECOND), ("TaskRun", NO_DISPATCH)],
            is_leading: true,
            since_answer: Some(SECOND),
        }
    }

    /// Returns the backlogs of a process in which Agents move, and TaskRuns did so this long ago.
    fn backlog_since(since_moved: Duration) -> Vec<Backlog> {
        let agents = Backlog {
            kind: "Agent",
            depth: 1,
            since_moved: SECOND,
        };
        let runs = Backlog {
            kind: "TaskRun",
            depth: 3,
            since_moved,
        };
        vec![agents, runs]
    }

    #[test]
    fn r16_liveness_is_that_the_controllers_move() {
        let stuck = || Snapshot {
            backlogs: backlog_since(Duration::from_secs(301)),
            ..well()
        };
        let cases = [
            ("all is well", well(), ""),
            (
                "nothing to do",
                Snapshot {
                    backlogs: Vec::new(),
                    ..stuck()
                },
                "",
            ),
            (
                "stuck",
                stuck(),
                "no reconciliation of TaskRun finished for 301 s although 3 keys are queued",
            ),
            (
                "stuck for exactly five minutes",
                Snapshot {
                    backlogs: backlog_since(NO_PROGRESS),
                    ..stuck()
                },
                "",
            ),
            (
                "a standby finishes nothing",
                Snapshot {
                    is_leading: false,
                    ..stuck()
                },
                "",
            ),
            (
                "the API server is away: a restart would not help",
                Snapshot {
                    since_answer: Some(Duration::from_secs(31)),
                    ..stuck()
                },
                "",
            ),
            (
                "the API server never answered",
                Snapshot {
                    since_answer: None,
                    ..stuck()
                },
                "",
            ),
            (
                "no tick",
                Snapshot {
                    since_beat: Duration::from_secs(11),
                    ..well()
                },
                "not ticked for 11 s",
            ),
            (
                "a dispatcher hangs, also on a standby",
                Snapshot {
                    backlogs: Vec::new(),
                    dispatchers: vec![("TaskRun", Duration::from_secs(31))],
                    is_leading: false,
                    since_answer: None,
                    ..well()
                },
                "the dispatcher of TaskRun has not run for 31 s",
            ),
            (
                "a controller ended, all else is well",
                Snapshot {
                    ended: vec![("taskruns".to_owned(), "panicked: oh".to_owned())],
                    ..well()
                },
                "task 'taskruns' panicked: oh",
            ),
            (
                "unsynced caches are no matter of liveness",
                Snapshot {
                    unsynced: Some(vec!["TaskRun"]),
                    ..well()
                },
                "",
            ),
        ];
        for (case, snapshot, wanted) in cases {
            match live(&snapshot) {
                Ok(()) => assert!(wanted.is_empty(), "{case}: passed"),
                Err(why) => assert!(!wanted.is_empty() && why.contains(wanted), "{case}: {why}"),
            }
        }
    }

    #[test]
    fn all_reasons_are_named() {
        let why = live(&Snapshot {
            since_beat: Duration::from_mins(1),
            ended: vec![("a".to_owned(), "ended".to_owned())],
            backlogs: backlog_since(Duration::from_hours(1)),
            ..well()
        })
        .unwrap_err();
        for wanted in ["not ticked", "task 'a'", "no reconciliation of TaskRun"] {
            assert!(why.contains(wanted), "{why}");
        }
    }

    #[test]
    fn ready_is_all_controllers_started_and_none_is_not_all() {
        let cases = [
            (None, Err("no controller has been started".to_owned())),
            (Some(vec![]), Ok(())),
            (
                Some(vec!["Agent", "Job"]),
                Err("the controller of Agent has not started; the controller of Job has not started".to_owned()),
            ),
        ];
        for (unsynced, wanted) in cases {
            let standby = Snapshot {
                unsynced,
                is_leading: false,
                ..well()
            };
            assert_eq!(ready(&standby, Vec::new()), wanted);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_was_told_becomes_the_snapshot() {
        let health = Health::default();
        assert!(health.ready().is_err());
        health.set_synced("TaskRun", false);
        assert!(health.ready().unwrap_err().contains("TaskRun"));
        health.set_synced("TaskRun", true);
        assert_eq!(health.ready(), Ok(()));
        health.task_ended("taskruns", "panicked: oh");
        assert!(health.live().unwrap_err().contains("taskruns"));
    }

    /// Lets time pass. Ticks as `tick` and the dispatchers would, and with `answers` the API server responds.
    async fn pass(health: &Health, time: Duration, answers: bool) {
        for _ in 0..time.as_secs() {
            advance(SECOND).await;
            health.state().beat = Instant::now();
            for queue in health.state().queues.values_mut() {
                queue.reported = Instant::now();
            }
            if answers {
                health.api_answered();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r16_five_minutes_count_from_when_a_key_could_have_been_finished() {
        let health = Health::default();
        health.leading(true);
        pass(&health, Duration::from_hours(1), true).await;
        health.queue_depth("TaskRun", 1);
        pass(&health, NO_PROGRESS, true).await;
        assert_eq!(health.live(), Ok(()), "an idle hour is no stall");
        pass(&health, SECOND, true).await;
        assert!(health.live().is_err(), "one key, nothing finished");
        health.queue_depth("TaskRun", 2);
        assert!(health.live().is_err(), "a growing queue is no progress");
        health.finished_key("TaskRun");
        assert_eq!(health.live(), Ok(()));
        pass(&health, Duration::from_mins(10), false).await;
        assert_eq!(health.live(), Ok(()), "the API server was away");
        pass(&health, NO_PROGRESS, true).await;
        assert_eq!(health.live(), Ok(()), "it has been back for five minutes");
        pass(&health, 2 * SECOND, true).await;
        assert!(health.live().is_err());
        health.leading(false);
        assert_eq!(health.live(), Ok(()));
        health.leading(true);
        assert_eq!(health.live(), Ok(()), "it has only just begun to lead");
        pass(&health, NO_PROGRESS + SECOND, true).await;
        assert!(health.live().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn r16_a_kind_that_is_stuck_is_not_hidden_by_one_that_moves() {
        let health = Health::default();
        health.leading(true);
        health.queue_depth("TaskRun", 2);
        health.queue_depth("Agent", 1);
        for _ in 0..=NO_PROGRESS.as_secs() + 1 {
            pass(&health, SECOND, true).await;
            health.finished_key("Agent");
            health.queue_depth("Agent", 1);
        }
        let why = health.live().unwrap_err();
        assert!(why.contains("no reconciliation of TaskRun"), "{why}");
        assert!(!why.contains("Agent"), "{why}");
        health.finished_key("TaskRun");
        assert_eq!(health.live(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dispatcher_that_hangs_with_an_empty_queue_is_not_alive() {
        for is_leading in [true, false] {
            let health = Health::default();
            health.leading(is_leading);
            health.set_synced("TaskRun", false);
            pass(&health, Duration::from_mins(10), true).await;
            assert_eq!(health.live(), Ok(()), "its first list may take long");
            health.queue_depth("TaskRun", 0);
            advance(NO_DISPATCH).await;
            health.state().beat = Instant::now();
            assert_eq!(health.live(), Ok(()));
            advance(SECOND).await;
            let why = health.live().unwrap_err();
            assert!(why.contains("the dispatcher of TaskRun"), "{why}");
            health.queue_depth("TaskRun", 0);
            assert_eq!(health.live(), Ok(()), "it runs again");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_ticks_is_alive_and_one_that_does_not_is_not() {
        let health = Health::default();
        let (trigger, shutdown) = Shutdown::pair();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(health.clone().tick(shutdown));
        sleep(Duration::from_mins(1)).await;
        assert_eq!(health.live(), Ok(()));
        trigger.pull();
        tasks.join_next().await.unwrap().unwrap().unwrap();
        sleep(NO_BEAT + 2 * SECOND).await;
        assert!(health.live().unwrap_err().contains("ticked"));
    }
}
