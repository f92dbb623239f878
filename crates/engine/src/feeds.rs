//! Health of the watches. A decision from a cache without a working watch is a guess.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Longest interruption that is ignored. Watches are reopened all the time.
const BLIP: Duration = Duration::from_secs(2);

/// Time in which missed events arrive after a watch was reopened.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Duration of an interruption after which the process is not ready.
const LONG: Duration = Duration::from_secs(60);

/// All watches of a process. Clones share them.
///
/// # Caveats
/// The client reports that a watch was reopened. It must be a client of [`crate::client::build`].
/// With another client, an interruption lasts until the next event.
#[derive(Debug, Clone, Default)]
pub struct Feeds(Arc<Mutex<Vec<Feed>>>);

#[derive(Debug)]
struct Feed {
    name: String,
    path: String,
    namespace: Option<String>,
    is_synced: bool,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    since: Instant,
    words: String,
    opened: Option<Instant>,
}

/// Reason why an object must not be reconciled now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    /// The first list of a cache is not complete.
    Unsynced(String),
    /// The watch of a cache is interrupted.
    Interrupted(String),
}

impl Feeds {
    /// Adds a watch of this path, in this namespace or in all. Returns its number.
    pub(crate) fn add(&self, name: &str, path: &str, namespace: Option<&str>) -> usize {
        let mut feeds = self.feeds();
        feeds.push(Feed {
            name: name.to_owned(),
            path: path.to_owned(),
            namespace: namespace.map(str::to_owned),
            is_synced: false,
            trouble: None,
        });
        feeds.len() - 1
    }

    /// Records that a list is complete.
    pub(crate) fn synced(&self, number: usize) {
        self.change(number, |feed| {
            feed.is_synced = true;
            feed.trouble = None;
        });
    }

    /// Records an event of the watch.
    pub(crate) fn came(&self, number: usize) {
        self.change(number, |feed| feed.trouble = None);
    }

    /// Records that the watch is interrupted. Returns whether the message is new.
    pub(crate) fn interrupted(&self, number: usize, words: &str) -> bool {
        let mut is_new = true;
        self.change(number, |feed| {
            let since = match &feed.trouble {
                Some(known) => {
                    is_new = known.words != words;
                    known.since
                }
                None => Instant::now(),
            };
            feed.trouble = Some(Trouble {
                since,
                words: words.to_owned(),
                opened: None,
            });
        });
        is_new
    }

    /// Records that the API server accepted a watch of this path.
    pub(crate) fn opened(&self, path: &str) {
        for feed in self.feeds().iter_mut().filter(|feed| feed.path == path) {
            if let Some(trouble) = &mut feed.trouble {
                trouble.opened = Some(Instant::now());
            }
        }
    }

    /// Returns whether each watch has either completed its first list or reported an error.
    pub(crate) fn is_settled(&self) -> bool {
        self.feeds()
            .iter()
            .all(|feed| feed.is_synced || feed.trouble.is_some())
    }

    /// Returns the reason why objects of a namespace must not be reconciled, from the
    /// watches that cover it.
    pub(crate) fn blocker(&self, namespace: Option<&str>) -> Option<Blocker> {
        let feeds = self.feeds();
        let mut reach = feeds
            .iter()
            .filter(|feed| feed.namespace.is_none() || feed.namespace.as_deref() == namespace);
        reach.find_map(|feed| match &feed.trouble {
            None if feed.is_synced => None,
            None => Some(Blocker::Unsynced(
                feed.words("its first listing is not complete"),
            )),
            Some(trouble) if !feed.is_synced => Some(Blocker::Unsynced(feed.words(&trouble.words))),
            Some(trouble) => {
                let is_open = trouble
                    .opened
                    .is_some_and(|opened| opened.elapsed() >= CATCH_UP);
                let is_long = trouble.since.elapsed() >= BLIP;
                (is_long && !is_open).then(|| Blocker::Interrupted(feed.words(&trouble.words)))
            }
        })
    }

    /// Returns a message for each watch that does not work.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let complaint = |feed: &Feed| match &feed.trouble {
            None if feed.is_synced => None,
            None => Some(feed.words("its first listing is not complete")),
            Some(trouble) => {
                let is_long = trouble.opened.is_none() && trouble.since.elapsed() >= LONG;
                (is_long || !feed.is_synced).then(|| feed.words(&trouble.words))
            }
        };
        self.feeds().iter().filter_map(complaint).collect()
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut Feed)) {
        if let Some(feed) = self.feeds().get_mut(number) {
            change(feed);
        }
    }

    fn feeds(&self) -> MutexGuard<'_, Vec<Feed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    fn words(&self, why: &str) -> String {
        format!("the {}: {why}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_interruption_blocks_its_reach_until_the_watch_has_caught_up() {
        let feeds = Feeds::default();
        let pods = feeds.add(
            "watch of pods in 'a'",
            "/api/v1/namespaces/a/pods",
            Some("a"),
        );
        let classes = feeds.add("watch of classes", "/classes", None);
        assert!(!feeds.is_settled());
        assert!(matches!(
            feeds.blocker(Some("a")),
            Some(Blocker::Unsynced(_))
        ));
        feeds.synced(classes);
        assert!(feeds.interrupted(pods, "forbidden"), "new words");
        assert!(!feeds.interrupted(pods, "forbidden"), "the same words");
        assert!(
            feeds.is_settled(),
            "one that says why it is not synced does not stop the others"
        );
        assert_eq!(feeds.blocker(Some("b")), None);
        let why = "the watch of pods in 'a': forbidden".to_owned();
        assert_eq!(
            feeds.blocker(Some("a")),
            Some(Blocker::Unsynced(why.clone()))
        );
        assert_eq!(feeds.complaints(), std::slice::from_ref(&why));
        feeds.synced(pods);
        assert_eq!(feeds.blocker(Some("a")), None);

        feeds.interrupted(pods, "forbidden");
        assert_eq!(feeds.blocker(Some("a")), None, "a blip");
        advance(BLIP).await;
        assert_eq!(
            feeds.blocker(Some("a")),
            Some(Blocker::Interrupted(why.clone()))
        );
        assert!(feeds.complaints().is_empty());
        advance(LONG).await;
        assert_eq!(feeds.complaints(), std::slice::from_ref(&why));
        feeds.opened("/elsewhere");
        assert!(feeds.blocker(Some("a")).is_some());
        feeds.opened("/api/v1/namespaces/a/pods");
        assert!(
            feeds.blocker(Some("a")).is_some(),
            "what was missed is on its way"
        );
        advance(CATCH_UP).await;
        assert_eq!(feeds.blocker(Some("a")), None);
        assert!(feeds.complaints().is_empty());
        feeds.interrupted(pods, "again");
        advance(BLIP).await;
        assert!(feeds.blocker(Some("a")).is_some());
        feeds.came(pods);
        assert_eq!(feeds.blocker(Some("a")), None);
    }
}
