//! Health of the watches. A decision from a cache without a working watch is a guess.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// Whether only the kinds that declare it depend on the watch.
    is_optional: bool,
    /// Whether the API server did not serve the type when it was listed last.
    is_not_installed: bool,
}

#[derive(Debug)]
struct Interruption {
    since: Instant,
    message: String,
    opened: Option<Instant>,
}

/// State of a type that may not be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// The API server does not serve the type.
    NotInstalled,
    /// The watch of the type does not work, or its first list is not complete.
    Unreadable {
        /// The error.
        why: String,
    },
    /// The type is installed, and its watch works.
    Installed,
}

/// Scopes in which no object may be reconciled now, each with the names and messages of its watches in trouble. A scope
/// is a namespace, or `None` for everything.
pub type BlockedScopes = BTreeMap<Option<String>, BTreeMap<String, String>>;

impl WatchHealth {
    /// Adds a watch, in this namespace or in all. Returns its number.
    pub(crate) fn add(&self, name: &str, namespace: Option<&str>) -> usize {
        self.add_watch(name, namespace, false)
    }

    /// Adds a watch of a type that may not be installed. It blocks only the kinds that declare it.
    pub(crate) fn add_optional(&self, name: &str, namespace: Option<&str>) -> usize {
        self.add_watch(name, namespace, true)
    }

    fn add_watch(&self, name: &str, namespace: Option<&str>, is_optional: bool) -> usize {
        let mut watches = self.watches();
        watches.push(WatchState {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            is_synced: false,
            interruption: None,
            is_optional,
            is_not_installed: false,
        });
        watches.len() - 1
    }

    /// Records that a list is complete. Returns whether the type was not known to be missing before.
    pub(crate) fn synced(&self, number: usize) -> bool {
        self.listed(number, false)
    }

    /// Records that the API server does not serve the type. So the list is complete, and empty. Returns whether the
    /// type was not known to be missing before.
    pub(crate) fn not_installed(&self, number: usize) -> bool {
        self.listed(number, true)
    }

    fn listed(&self, number: usize, is_not_installed: bool) -> bool {
        let mut was_missing = false;
        self.change(number, |watch| {
            watch.is_synced = true;
            watch.interruption = None;
            was_missing = std::mem::replace(&mut watch.is_not_installed, is_not_installed);
        });
        self.recoveries.send_replace(());
        !was_missing
    }

    /// Returns the state of an optional type, as this watch has found.
    pub(crate) fn availability(&self, number: usize) -> Availability {
        let watches = self.watches();
        let Some(watch) = watches.get(number) else {
            let why = "the type is not watched".to_owned();
            return Availability::Unreadable { why };
        };
        match watch.trouble() {
            Some(why) => Availability::Unreadable {
                why: watch.describe(why),
            },
            None if watch.is_not_installed => Availability::NotInstalled,
            None => Availability::Installed,
        }
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

    /// Returns whether each watch has either completed its first list or reported an error. A watch of an optional type
    /// does not count: the kinds that depend on it wait for it themselves.
    pub(crate) fn is_settled(&self) -> bool {
        self.watches()
            .iter()
            .all(|watch| watch.is_optional || watch.is_synced || watch.interruption.is_some())
    }

    /// Returns the scopes in which no object of a kind may be reconciled now. A decision from an incomplete or outdated
    /// cache would be a guess. `optional` has the numbers of the watches of optional types that the kind depends on.
    pub(crate) fn blocked(&self, optional: &BTreeSet<usize>) -> BlockedScopes {
        let mut blocked = BlockedScopes::new();
        for (number, watch) in self.watches().iter().enumerate() {
            if watch.is_optional && !optional.contains(&number) {
                continue;
            }
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

    /// Returns the blocked scopes of a kind that depends on no optional type.
    fn blocked(watches: &WatchHealth) -> BlockedScopes {
        watches.blocked(&BTreeSet::new())
    }

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
        assert_eq!(scopes(blocked(&watches)), [None, Some("a".to_owned())]);
        watches.synced(classes);
        assert!(watches.interrupted(pods, "forbidden"), "new words");
        assert!(!watches.interrupted(pods, "forbidden"), "the same words");
        assert!(
            watches.is_settled(),
            "one that says why it is not synced does not stop the others"
        );
        assert_eq!(blocked(&watches), in_a);
        assert_eq!(watches.problems(), std::slice::from_ref(&reason));
        watches.synced(pods);
        assert!(blocked(&watches).is_empty());

        watches.interrupted(pods, "forbidden");
        assert!(blocked(&watches).is_empty(), "a blip");
        advance(INTERRUPTION_TOLERANCE).await;
        assert_eq!(blocked(&watches), in_a);
        assert!(watches.problems().is_empty());
        advance(NOT_READY_AFTER).await;
        assert_eq!(watches.problems(), std::slice::from_ref(&reason));
        watches.opened(classes);
        assert_eq!(blocked(&watches), in_a);
        watches.opened(pods);
        assert_eq!(blocked(&watches), in_a, "what was missed is on its way");
        advance(CATCH_UP_TIME).await;
        assert!(blocked(&watches).is_empty());
        assert!(watches.problems().is_empty());
        watches.interrupted(pods, "again");
        advance(INTERRUPTION_TOLERANCE).await;
        assert!(!blocked(&watches).is_empty());
        watches.on_event(pods);
        assert!(blocked(&watches).is_empty());
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
            assert!(blocked(&watches).is_empty());
        }
        assert!(watches.interrupted(classes, "forbidden"), "a new one");
        assert!(blocked(&watches).is_empty(), "it is tolerated again");
        assert!(watches.problems().is_empty());
        advance(INTERRUPTION_TOLERANCE).await;
        assert!(!blocked(&watches).is_empty());
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
            !blocked(&watches).is_empty(),
            "more events are on their way"
        );
        advance(CATCH_UP_TIME).await;
        assert!(blocked(&watches).is_empty());
        watches.on_event(pods);
        assert!(blocked(&watches).is_empty());
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

    #[tokio::test(start_paused = true)]
    async fn an_optional_type_blocks_only_the_kinds_that_depend_on_it_and_only_if_it_is_installed()
    {
        let watches = WatchHealth::default();
        let pods = watches.add("watch of pods", None);
        let charts = watches.add_optional("watch of charts", None);
        watches.synced(pods);
        assert!(watches.is_settled(), "its first list delays nobody");
        let unreadable = |why: &str| Availability::Unreadable {
            why: format!("the watch of charts: {why}"),
        };
        // Columns: change, whether a kind that depends on the type is blocked, and the state of the type.
        type Change = fn(&WatchHealth, usize);
        let table: [(&str, Change, bool, Availability); 7] = [
            (
                "not listed yet",
                |_, _| {},
                true,
                unreadable("its first listing is not complete"),
            ),
            (
                "not installed",
                |watches, charts| assert!(watches.not_installed(charts)),
                false,
                Availability::NotInstalled,
            ),
            (
                "still not installed",
                |watches, charts| assert!(!watches.not_installed(charts)),
                false,
                Availability::NotInstalled,
            ),
            (
                "cannot be listed",
                |watches, charts| assert!(watches.interrupted(charts, "forbidden")),
                true,
                unreadable("forbidden"),
            ),
            (
                "installed",
                |watches, charts| assert!(!watches.synced(charts)),
                false,
                Availability::Installed,
            ),
            (
                "interrupted",
                |watches, charts| assert!(watches.interrupted(charts, "away")),
                true,
                unreadable("away"),
            ),
            (
                "removed",
                |watches, charts| assert!(watches.not_installed(charts)),
                false,
                Availability::NotInstalled,
            ),
        ];
        for (case, change, is_blocked, availability) in table {
            change(&watches, charts);
            advance(INTERRUPTION_TOLERANCE).await;
            assert!(blocked(&watches).is_empty(), "{case}: another kind");
            let dependent = watches.blocked(&BTreeSet::from([charts]));
            assert_eq!(!dependent.is_empty(), is_blocked, "{case}: {dependent:?}");
            assert_eq!(watches.availability(charts), availability, "{case}");
        }
        assert!(watches.problems().is_empty(), "it is not installed");
    }
}
