//! Health of the watches. A decision from a cache without a working watch is a guess.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// Longest interruption that is ignored. Watches are reopened all the time.
const INTERRUPTION_TOLERANCE: Duration = Duration::from_secs(2);

/// Time in which missed events arrive after a watch was reopened.
const CATCH_UP_TIME: Duration = Duration::from_secs(1);

/// Duration of an interruption after which the process is not ready.
const NOT_READY_AFTER: Duration = Duration::from_secs(60);

/// Message of a watch before its first list is complete.
const UNLISTED: &str = "its first listing is not complete";

/// All watches of a process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct WatchHealth {
    watches: Arc<Mutex<Vec<WatchState>>>,
    /// Notifies the dispatchers when a watch has recovered.
    recoveries: watch::Sender<()>,
}

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

/// Scopes in which no object may be reconciled now, each with the names and messages of its watches in trouble. A scope
/// is a namespace, or `None` for everything.
pub type BlockedScopes = BTreeMap<Option<String>, BTreeMap<String, String>>;

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
        self.recoveries.send_replace(());
    }

    /// Records an event of the watch.
    ///
    /// It does not end the interruption of a watch that was reopened: it may be the first of many missed events, and
    /// the others are not in the cache yet. The catch-up time ends that interruption.
    pub(crate) fn on_event(&self, number: usize) {
        let mut has_recovered = false;
        self.change(number, |watch| {
            let ended = watch
                .interruption
                .take_if(|interruption| interruption.opened.is_none());
            has_recovered = ended.is_some();
        });
        if has_recovered {
            self.recoveries.send_replace(());
        }
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

    /// Returns the scopes in which no object may be reconciled now. A decision from an incomplete or outdated cache
    /// would be a guess.
    pub(crate) fn blocked(&self) -> BlockedScopes {
        let mut blocked = BlockedScopes::new();
        for watch in self.watches().iter() {
            if let Some(message) = watch.trouble() {
                let watches = blocked.entry(watch.namespace.clone()).or_default();
                watches.insert(watch.name.clone(), message.to_owned());
            }
        }
        blocked
    }

    /// Returns a receiver that changes when a watch has recovered. An interruption that ends only because the watch
    /// was accepted again does not change it.
    pub(crate) fn recoveries(&self) -> watch::Receiver<()> {
        self.recoveries.subscribe()
    }

    /// Returns a message for each watch that does not work.
    pub(crate) fn problems(&self) -> Vec<String> {
        let complaint = |watch: &WatchState| match &watch.interruption {
            None if watch.is_synced => None,
            None => Some(watch.describe(UNLISTED)),
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
            watch.end_interruption();
            change(watch);
        }
    }

    fn watches(&self) -> MutexGuard<'_, Vec<WatchState>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchState {
    /// Ends an interruption after which the watch has caught up.
    ///
    /// A watch of a quiet type has no event that would end it. Without this, each regular reopening would block the
    /// scope again, and the next interruption would count from the start of this one.
    fn end_interruption(&mut self) {
        if self.is_synced {
            self.interruption.take_if(|known| known.has_caught_up());
        }
    }

    /// Returns the reason why decisions must not use the cache of this watch now.
    fn trouble(&self) -> Option<&str> {
        match &self.interruption {
            None if self.is_synced => None,
            None => Some(UNLISTED),
            Some(interruption) if !self.is_synced => Some(interruption.message.as_str()),
            Some(interruption) => {
                let is_long = interruption.since.elapsed() >= INTERRUPTION_TOLERANCE;
                let is_blocking = is_long && !interruption.has_caught_up();
                is_blocking.then_some(interruption.message.as_str())
            }
        }
    }

    fn describe(&self, why: &str) -> String {
        format!("the {}: {why}", self.name)
    }
}

impl Interruption {
    /// Returns whether the watch was reopened long enough ago for the missed events to arrive.
    fn has_caught_up(&self) -> bool {
        self.opened
            .is_some_and(|opened| opened.elapsed() >= CATCH_UP_TIME)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_interruption_blocks_its_scope_until_the_watch_has_caught_up() {
        let watches = WatchHealth::default();
        let pods = watches.add("watch of pods in 'a'", Some("a"));
        let classes = watches.add("watch of classes", None);
        assert!(!watches.is_settled());
        let reason = "the watch of pods in 'a': forbidden".to_owned();
        let message = ("watch of pods in 'a'".to_owned(), "forbidden".to_owned());
        let in_a = BlockedScopes::from([(Some("a".to_owned()), BTreeMap::from([message]))]);
        let scopes = |blocked: BlockedScopes| blocked.into_keys().collect::<Vec<_>>();
        assert_eq!(scopes(watches.blocked()), [None, Some("a".to_owned())]);
        watches.synced(classes);
        assert!(watches.interrupted(pods, "forbidden"), "new words");
        assert!(!watches.interrupted(pods, "forbidden"), "the same words");
        assert!(
            watches.is_settled(),
            "one that says why it is not synced does not stop the others"
        );
        assert_eq!(watches.blocked(), in_a);
        assert_eq!(watches.problems(), std::slice::from_ref(&reason));
        watches.synced(pods);
        assert!(watches.blocked().is_empty());

        watches.interrupted(pods, "forbidden");
        assert!(watches.blocked().is_empty(), "a blip");
        advance(INTERRUPTION_TOLERANCE).await;
        assert_eq!(watches.blocked(), in_a);
        assert!(watches.problems().is_empty());
        advance(NOT_READY_AFTER).await;
        assert_eq!(watches.problems(), std::slice::from_ref(&reason));
        watches.opened(classes);
        assert_eq!(watches.blocked(), in_a);
        watches.opened(pods);
        assert_eq!(watches.blocked(), in_a, "what was missed is on its way");
        advance(CATCH_UP_TIME).await;
        assert!(watches.blocked().is_empty());
        assert!(watches.problems().is_empty());
        watches.interrupted(pods, "again");
        advance(INTERRUPTION_TOLERANCE).await;
        assert!(!watches.blocked().is_empty());
        watches.on_event(pods);
        assert!(watches.blocked().is_empty());
    }

    /// The server ends each watch after 90 s, and a watch of a quiet type has no event in that time.
    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_is_not_blocked_again_at_each_reopening() {
        let watches = WatchHealth::default();
        let classes = watches.add("watch of classes", None);
        watches.synced(classes);
        watches.interrupted(classes, "forbidden");
        advance(Duration::from_secs(30)).await;
        watches.opened(classes);
        for _ in 0..3 {
            advance(Duration::from_secs(90)).await;
            watches.opened(classes);
            assert!(watches.blocked().is_empty());
        }
        assert!(watches.interrupted(classes, "forbidden"), "a new one");
        assert!(watches.blocked().is_empty(), "it is tolerated again");
        assert!(watches.problems().is_empty());
        advance(INTERRUPTION_TOLERANCE).await;
        assert!(!watches.blocked().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_event_after_a_reopening_is_not_the_last_missed_one() {
        let watches = WatchHealth::default();
        let pods = watches.add("watch of pods", None);
        watches.synced(pods);
        watches.interrupted(pods, "away");
        advance(Duration::from_secs(30)).await;
        watches.opened(pods);
        watches.on_event(pods);
        assert!(
            !watches.blocked().is_empty(),
            "more events are on their way"
        );
        advance(CATCH_UP_TIME).await;
        assert!(watches.blocked().is_empty());
        watches.on_event(pods);
        assert!(watches.blocked().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_recovery_is_notified_and_an_ordinary_event_is_not() {
        let watches = WatchHealth::default();
        let pods = watches.add("watch of pods", None);
        let mut recoveries = watches.recoveries();
        let mut has_recovered = || {
            let has_changed = recoveries.has_changed().unwrap();
            recoveries.mark_unchanged();
            has_changed
        };
        watches.synced(pods);
        assert!(has_recovered(), "its first list");
        watches.on_event(pods);
        assert!(!has_recovered(), "an event");
        watches.interrupted(pods, "forbidden");
        assert!(!has_recovered(), "an interruption");
        watches.on_event(pods);
        assert!(has_recovered(), "an event after an interruption");
    }
}
