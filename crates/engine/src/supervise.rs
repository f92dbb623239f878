//! Tasks that must not end. Each has a name, and its end is an error that is reported.

use std::{collections::HashMap, fmt, pin::pin, time::Duration};

use tokio::{
    sync::watch,
    task::{Id, JoinError, JoinSet},
    time::{Instant, timeout_at},
};

use crate::health::Health;

/// A signal for tasks to stop. Cheap to clone.
///
/// Every spawned task takes one. The signal is also on after its [`Trigger`] was dropped, because
/// nobody could switch it on any more.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// The switch of a [`Shutdown`]. [`Trigger::pull`], or dropping it, switches the signal on.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Shutdown {
    /// Returns a trigger and its signal.
    #[must_use]
    pub fn pair() -> (Trigger, Self) {
        let (sender, receiver) = watch::channel(false);
        (Trigger(sender), Self(receiver))
    }

    /// Waits for the shutdown. Returns at once if it has begun. May be dropped and called again.
    pub async fn wait(&self) {
        match self.0.clone().wait_for(|on| *on).await {
            Ok(_on) => {}
            Err(_trigger_is_gone) => {}
        }
    }

    /// Returns whether the shutdown has begun.
    #[must_use]
    pub fn is_on(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl Trigger {
    /// Begins the shutdown.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }
}

/// Error of a supervision that did not end by order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("task '{name}' {how}")]
pub struct TaskEnded {
    /// The task's name.
    pub name: String,
    /// Description of its end.
    pub how: String,
}

type Outcome = Result<(), String>;

/// A group of named tasks that run and stop together.
///
/// # Guarantees
/// - No task is detached: dropping the supervisor aborts its tasks.
/// - Any end of a task before the order to stop is logged as an error, makes `/livez` fail, stops
///   the other tasks, and is returned by [`Supervisor::run_until`].
pub struct Supervisor {
    tasks: JoinSet<Outcome>,
    names: HashMap<Id, String>,
    trigger: Trigger,
    shutdown: Shutdown,
    health: Health,
    grace: Duration,
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Supervisor")
            .field("tasks", &self.names.values())
            .finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Returns a group without tasks. Tasks that still run `grace` after the order are aborted.
    #[must_use]
    pub fn new(health: Health, grace: Duration) -> Self {
        let (trigger, shutdown) = Shutdown::pair();
        Self {
            tasks: JoinSet::new(),
            names: HashMap::new(),
            trigger,
            shutdown,
            health,
            grace,
        }
    }

    /// Returns the signal that the tasks of this group must watch. It is on when they must stop.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Starts a task, which must run until [`Supervisor::shutdown`] is on.
    pub fn spawn<E: fmt::Display>(
        &mut self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let task = async { task.await.map_err(|error| format!("failed: {error:#}")) };
        let handle = self.tasks.spawn(task);
        self.names.insert(handle.id(), name.into());
    }

    /// Waits for the order to stop or for the end of a task. Then stops all tasks
    /// and waits for them.
    ///
    /// # Errors
    /// Names the first task that ended before the order, failed to stop, or was still running after
    /// the grace period and was aborted.
    pub async fn run_until(mut self, order: impl Future<Output = ()>) -> Result<(), TaskEnded> {
        let mut order = pin!(order);
        let mut first = tokio::select! {
            () = &mut order => None,
            Some(ended) = self.tasks.join_next_with_id() => {
                let (name, outcome) = self.name(ended);
                let how = match outcome {
                    Ok(()) => "ended, and was not told to".to_owned(),
                    Err(how) => how,
                };
                tracing::error!(task = name, "task '{name}' {how}");
                self.health.task_ended(&name, &how);
                Some(TaskEnded { name, how })
            }
        };
        self.trigger.pull();
        let deadline = Instant::now() + self.grace;
        while let Some(failed) = self.stopped(deadline).await {
            first.get_or_insert(failed);
        }
        first.map_or(Ok(()), Err)
    }

    /// Returns the next task that did not stop successfully, or `None` once all have stopped.
    async fn stopped(&mut self, deadline: Instant) -> Option<TaskEnded> {
        loop {
            let failed = match timeout_at(deadline, self.tasks.join_next_with_id()).await {
                Ok(None) => return None,
                Ok(Some(ended)) => match self.name(ended) {
                    (_, Ok(())) => continue,
                    (name, Err(how)) => TaskEnded { name, how },
                },
                Err(_elapsed) => {
                    self.tasks.shutdown().await;
                    let mut names: Vec<String> = self.names.drain().map(|(_, name)| name).collect();
                    names.sort_unstable();
                    TaskEnded {
                        name: names.join("', '"),
                        how: format!("did not stop within {:?} and was aborted", self.grace),
                    }
                }
            };
            tracing::error!(task = failed.name, "at shutdown, {failed}");
            return Some(failed);
        }
    }

    fn name(&mut self, ended: Result<(Id, Outcome), JoinError>) -> (String, Outcome) {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, outcome),
            Err(error) => {
                let id = error.id();
                let how = match error.try_into_panic() {
                    Ok(panic) => format!("panicked: {}", panic_text(panic.as_ref())),
                    Err(error) => format!("was aborted: {error}"),
                };
                (id, Err(how))
            }
        };
        let name = self.names.remove(&id);
        (name.unwrap_or_else(|| id.to_string()), outcome)
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    fn group() -> (Supervisor, Health) {
        let health = Health::default();
        (Supervisor::new(health.clone(), GRACE), health)
    }

    async fn obeys(shutdown: Shutdown) -> Result<(), String> {
        shutdown.wait().await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_nobody_ordered_is_named_and_told_to_health() {
        type Ends = fn() -> Result<(), &'static str>;
        let cases: [(Ends, &str); 3] = [
            (|| Ok(()), "ended, and was not told to"),
            (|| Err("no more disk"), "failed: no more disk"),
            (
                || panic!("a broken {}", "promise"),
                "panicked: a broken promise",
            ),
        ];
        for (ends, wanted) in cases {
            let (mut supervisor, health) = group();
            let other = supervisor.shutdown();
            supervisor.spawn("other", obeys(other.clone()));
            supervisor.spawn("guilty", async move { ends() });
            let ended = supervisor.run_until(pending()).await.unwrap_err();
            assert_eq!(
                (ended.name.as_str(), ended.how.as_str()),
                ("guilty", wanted)
            );
            assert!(other.is_on(), "the others are to stop");
            let livez = health.live().unwrap_err();
            assert!(
                livez.contains("guilty") && livez.contains(wanted),
                "{livez}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_obey_the_order_are_no_error() {
        let (mut supervisor, health) = group();
        for name in ["a", "b"] {
            supervisor.spawn(name, obeys(supervisor.shutdown()));
        }
        let order = tokio::time::sleep(Duration::from_secs(3600));
        assert_eq!(supervisor.run_until(order).await, Ok(()));
        assert!(!health.live().is_err_and(|why| why.contains("task")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_without_tasks_waits_for_the_order() {
        let (supervisor, _health) = group();
        let start = Instant::now();
        let order = tokio::time::sleep(Duration::from_secs(5));
        assert_eq!(supervisor.run_until(order).await, Ok(()));
        assert_eq!(start.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_at_the_stop_is_not_lost() {
        let (mut supervisor, _health) = group();
        let shutdown = supervisor.shutdown();
        supervisor.spawn("late", async move {
            shutdown.wait().await;
            Err("the Lease could not be released")
        });
        let ended = supervisor.run_until(async {}).await.unwrap_err();
        let wanted = "task 'late' failed: the Lease could not be released";
        assert_eq!(ended.to_string(), wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_stop_is_aborted_after_the_grace() {
        let (mut supervisor, _health) = group();
        let (held, released) = tokio::sync::oneshot::channel::<()>();
        supervisor.spawn("deaf", async move {
            let _held = held;
            pending::<Result<(), String>>().await
        });
        let start = Instant::now();
        let ended = supervisor.run_until(async {}).await.unwrap_err();
        assert_eq!(start.elapsed(), GRACE, "the grace is one for all tasks");
        assert!(
            ended.name == "deaf" && ended.how.contains("did not stop"),
            "{ended}"
        );
        assert!(released.await.is_err(), "it must be gone, not detached");
    }

    #[tokio::test]
    async fn shutdown_is_on_when_pulled_or_when_nobody_could_pull_any_more() {
        let (trigger, shutdown) = Shutdown::pair();
        assert!(!shutdown.is_on());
        trigger.pull();
        assert!(shutdown.is_on());
        shutdown.wait().await;
        shutdown.wait().await;
        let (trigger, shutdown) = Shutdown::pair();
        drop(trigger);
        assert!(shutdown.is_on());
        shutdown.wait().await;
    }
}
