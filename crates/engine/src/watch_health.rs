//! Health of the watches. A decision from a cache without a working watch is a guess.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Longest interruption that is ignored. Watches are reopened all the time.
const INTERRUPTION_TOLERANCE: Duration = Duration::from_secs(2);

/// Time in which missed events arrive after a watch was reopened.
const CATCH_UP_TIME: Duration = Duration::from_secs(1);

/// Duration of an interruption after which the process is not ready.
const NOT_READY_AFTER: Duration = Duration::from_secs(60);

/// All watches of a process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct WatchHealth(Arc<Mutex<Vec<WatchState>>>);

#[derive(Debug)]
struct WatchState {
    name: String,
    namespace: Option<String>,
    is_synced: bool,
    interruption: Option<Interruption>,
}

#[derive(Debug)]
struct Interruption {
    since: Instant,
    message: String,
    opened: Option<Instant>,
}

/// Reason why an object must not be reconciled now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheNotReady {
    /// The first list of a cache is not complete.
    Unsynced(String),
    /// The watch of a cache is interrupted.
    Interrupted(String),
}

impl WatchHealth {
    /// Adds a watch, in this namespace or in all. Returns its number.
    pub(crate) fn add(&self, name: &str, namespace: Option<&str>) -> usize {
        let mut watches = self.watches();
        watches.push(WatchState {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            is_synced: false,
            interruption: None,
        });
        watches.len() - 1
    }

    /// Records that a list is complete.
    pub(crate) fn synced(&self, number: usize) {
        self.change(number, |watch| {
            watch.is_synced = true;
            watch.interruption = None;
        });
    }

    /// Records an event of the watch.
    pub(crate) fn on_event(&self, number: usize) {
        self.change(number, |watch| watch.interruption = None);
    }

    /// Records that the watch is interrupted. Returns whether the message is new.
    pub(crate) fn interrupted(&self, number: usize, message: &str) -> bool {
        let mut is_new = true;
        self.change(number, |watch| {
            let since = match &watch.interruption {
                Some(known) => {
                    is_new = known.message != message;
                    known.since
                }
                None => Instant::now(),
            };
            watch.interruption = Some(Interruption {
                since,
                message: message.to_owned(),
                opened: None,
            });
        });
        is_new
    }

    /// Records that the API server accepted the watch.
    pub(crate) fn opened(&self, number: usize) {
        self.change(number, |watch| {
            if let Some(interruption) = &mut watch.interruption {
                interruption.opened = Some(Instant::now());
            }
        });
    }

    /// Returns whether each watch has either completed its first list or reported an error.
    pub(crate) fn is_settled(&self) -> bool {
        self.watches()
            .iter()
            .all(|watch| watch.is_synced || watch.interruption.is_some())
    }

    /// Returns the reason why objects of a namespace must not be reconciled, from the
    /// watches that cover it.
    pub(crate) fn not_ready(&self, namespace: Option<&str>) -> Option<CacheNotReady> {
        let watches = self.watches();
        let mut reach = watches
            .iter()
            .filter(|watch| watch.namespace.is_none() || watch.namespace.as_deref() == namespace);
        reach.find_map(|watch| match &watch.interruption {
            None if watch.is_synced => None,
            None => Some(CacheNotReady::Unsynced(
                watch.describe("its first listing is not complete"),
            )),
            Some(interruption) if !watch.is_synced => Some(CacheNotReady::Unsynced(
                watch.describe(&interruption.message),
            )),
            Some(interruption) => {
                let is_open = interruption
                    .opened
                    .is_some_and(|opened| opened.elapsed() >= CATCH_UP_TIME);
                let is_long = interruption.since.elapsed() >= INTERRUPTION_TOLERANCE;
                (is_long && !is_open)
                    .then(|| CacheNotReady::Interrupted(watch.describe(&interruption.message)))
            }
        })
    }

    /// Returns a message for each watch that does not work.
    pub(crate) fn problems(&self) -> Vec<String> {
        let complaint = |watch: &WatchState| match &watch.interruption {
            None if watch.is_synced => None,
            None => Some(watch.describe("its first listing is not complete")),
            Some(interruption) => {
                let is_long = interruption.opened.is_none()
                    && interruption.since.elapsed() >= NOT_READY_AFTER;
                (is_long || !watch.is_synced).then(|| watch.describe(&interruption.message))
            }
        };
        self.watches().iter().filter_map(complaint).collect()
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut WatchState)) {
        if let Some(watch) = self.watches().get_mut(number) {
            change(watch);
        }
    }

    fn watches(&self) -> MutexGuard<'_, Vec<WatchState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchState {
    fn describe(&self, why: &str) -> String {
        format!("the {}: {why}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_interruption_blocks_its_reach_until_the_watch_has_caught_up() {
        let watches = WatchHealth::default();
        let pods = watches.add("watch of pods in 'a'", Some("a"));
        let classes = watches.add("watch of classes", None);
        assert!(!watches.is_settled());
        assert!(matches!(
            watches.not_ready(Some("a")),
            Some(CacheNotReady::Unsynced(_))
        ));
        watches.synced(classes);
        assert!(watches.interrupted(pods, "forbidden"), "new words");
        assert!(!watches.interrupted(pods, "forbidden"), "the same words");
        assert!(
            watches.is_settled(),
            "one that says why it is not synced does not stop the others"
        );
        assert_eq!(watches.not_ready(Some("b")), None);
        let why = "the watch of pods in 'a': forbidden".to_owned();
        assert_eq!(
            watches.not_ready(Some("a")),
            Some(CacheNotReady::Unsynced(why.clone()))
        );
        assert_eq!(watches.problems(), std::slice::from_ref(&why));
        watches.synced(pods);
        assert_eq!(watches.not_ready(Some("a")), None);

        watches.interrupted(pods, "forbidden");
        assert_eq!(watches.not_ready(Some("a")), None, "a blip");
        advance(INTERRUPTION_TOLERANCE).await;
        assert_eq!(
            watches.not_ready(Some("a")),
            Some(CacheNotReady::Interrupted(why.clone()))
        );
        assert!(watches.problems().is_empty());
        advance(NOT_READY_AFTER).await;
        assert_eq!(watches.problems(), std::slice::from_ref(&why));
        watches.opened(classes);
        assert!(watches.not_ready(Some("a")).is_some());
        watches.opened(pods);
        assert!(
            watches.not_ready(Some("a")).is_some(),
            "what was missed is on its way"
        );
        advance(CATCH_UP_TIME).await;
        assert_eq!(watches.not_ready(Some("a")), None);
        assert!(watches.problems().is_empty());
        watches.interrupted(pods, "again");
        advance(INTERRUPTION_TOLERANCE).await;
        assert!(watches.not_ready(Some("a")).is_some());
        watches.on_event(pods);
        assert_eq!(watches.not_ready(Some("a")), None);
    }
}
