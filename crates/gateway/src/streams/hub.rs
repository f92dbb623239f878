//! The watches of all callers. Streams of one caller on the same runs share one watch.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::kinds::KindRow;
use kube::Client;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    state::{Pool, State},
    watch::run,
};
use crate::{
    problem::{Problem, Reason},
    table::Row,
    token::Digest,
};

/// Time that a watch without streams stays open. Most clients are back within seconds.
const LINGER: Duration = Duration::from_secs(15);

/// Maximum number of watches of one caller, with those that stay open.
const WATCHES: usize = 32;

/// Maximum time until the list for a new watch was read.
const START: Duration = Duration::from_secs(25);

/// Which runs a watch has, and whose token it uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) caller: Digest,
    /// Plural of the kind.
    pub(crate) plural: &'static str,
    /// The namespace. `None` for all.
    pub(crate) namespace: Option<String>,
}

/// The watches of this process.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    watches: Arc<Watches>,
    tasks: Mutex<JoinSet<()>>,
}

/// The watches, for their tasks.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    open: Mutex<HashMap<Key, Arc<Shared>>>,
    pool: Mutex<Pool>,
}

/// One watch.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    streams: usize,
    /// Time since which there is no stream.
    unused: Instant,
}

/// Phase of a watch.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The list is being read.
    Starting,
    /// The runs are known.
    Running(State),
    /// The API server rejects the watch.
    Ended(Problem),
}

impl Hub {
    /// Returns the watch of this key, which is started if there is none. `resume` is the position of a
    /// client that comes back.
    ///
    /// # Errors
    /// The API server rejects the list, or the caller has too many watches.
    pub(crate) async fn subscribe(
        &self,
        key: Key,
        kind: &'static KindRow,
        client: &Client,
        resume: Option<u64>,
    ) -> Result<Subscription, Problem> {
        let subscription = Subscription {
            shared: self.attach(key, kind, client, resume)?,
        };
        let mut changes = subscription.changes();
        let ready = async {
            loop {
                if let Some(ready) = subscription.ready() {
                    return ready;
                }
                if changes.changed().await.is_err() {
                    return Err(ended());
                }
            }
        };
        match timeout(START, ready).await {
            Ok(ready) => ready?,
            Err(_elapsed) => {
                let detail = "the API server did not list the runs in time";
                return Err(Problem::new(Reason::Unanswered, detail));
            }
        }
        Ok(subscription)
    }

    fn attach(
        &self,
        key: Key,
        kind: &'static KindRow,
        client: &Client,
        resume: Option<u64>,
    ) -> Result<Arc<Shared>, Problem> {
        let mut open = lock(&self.watches.open);
        if let Some(shared) = open.get(&key) {
            shared.lock().streams += 1;
            return Ok(Arc::clone(shared));
        }
        let of_caller = open.keys().filter(|known| known.caller == key.caller);
        if of_caller.count() >= WATCHES {
            let detail = format!("more than {WATCHES} watches; wait until some have ended");
            return Err(Problem::new(Reason::TooManyRequests, detail));
        }
        let shared = Arc::new(Shared {
            inner: Mutex::new(Inner {
                phase: Phase::Starting,
                streams: 1,
                unused: Instant::now(),
            }),
            changed: watch::Sender::new(()),
        });
        open.insert(key.clone(), Arc::clone(&shared));
        drop(open);
        let mut tasks = lock(&self.tasks);
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!("the task of a watch failed: {error}");
            }
        }
        let watches = Arc::clone(&self.watches);
        tasks.spawn(run(
            watches,
            Arc::clone(&shared),
            key,
            kind,
            client.clone(),
            resume,
        ));
        Ok(shared)
    }
}

fn ended() -> Problem {
    Problem::new(Reason::Unanswered, "the watch ended")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watches {
    /// Returns shared copies of runs.
    pub(crate) fn share(&self, rows: impl IntoIterator<Item = Row>) -> Vec<Arc<Row>> {
        let mut pool = lock(&self.pool);
        rows.into_iter().map(|row| pool.share(row)).collect()
    }

    /// Removes a watch that no stream has used for a while. Returns whether it was removed.
    pub(crate) fn retire(&self, key: &Key, shared: &Arc<Shared>) -> bool {
        let mut open = lock(&self.open);
        let inner = shared.lock();
        let is_unused = inner.streams == 0 && inner.unused.elapsed() >= LINGER;
        drop(inner);
        if is_unused {
            open.remove(key);
        }
        is_unused
    }

    /// Removes a watch that the API server rejects. A later stream starts another one.
    pub(crate) fn end(&self, key: &Key, shared: &Arc<Shared>, problem: Problem) {
        lock(&self.open).remove(key);
        shared.update(|phase| *phase = Phase::Ended(problem));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Changes the phase, and wakes all streams.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Phase) -> T) -> T {
        let changed = change(&mut self.lock().phase);
        self.changed.send_replace(());
        changed
    }

    /// Reads the phase.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Phase) -> T) -> T {
        read(&self.lock().phase)
    }
}

/// The part of a stream in a watch. Dropping it releases the watch.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) shared: Arc<Shared>,
}

impl Subscription {
    /// Returns a receiver that is notified of each change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// Returns whether the runs are known, or why not. `None` while they are being read.
    fn ready(&self) -> Option<Result<(), Problem>> {
        self.shared.read(|phase| match phase {
            Phase::Starting => None,
            Phase::Running(_) => Some(Ok(())),
            Phase::Ended(problem) => Some(Err(problem.clone())),
        })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.streams = inner.streams.saturating_sub(1);
        inner.unused = Instant::now();
    }
}
