//! Objects as the API server shows them to a watch: the newest of each, and what no version of one
//! may say.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    core::{ApiResource, DynamicObject},
    runtime::watcher,
};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::verdict;

/// More would not be read.
const VIOLATIONS: usize = 50;

type Key = (String, String);

#[derive(Default)]
struct Seen {
    objects: BTreeMap<Key, DynamicObject>,
    violations: Vec<String>,
}

/// What the watches show. Dropping it ends them.
pub(super) struct WatchedObjects {
    seen: Arc<Mutex<Seen>>,
    changed: watch::Receiver<u64>,
    _watches: JoinSet<()>,
}

impl WatchedObjects {
    /// Watches these kinds in one namespace.
    pub(super) fn open<'a>(
        client: &Client,
        namespace: &str,
        kinds: impl Iterator<Item = &'a ApiResource>,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (sender, changed) = watch::channel(0);
        let sender = Arc::new(sender);
        let mut watches = JoinSet::new();
        for kind in kinds {
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
            let (seen, sender, kind) = (Arc::clone(&seen), Arc::clone(&sender), kind.kind.clone());
            watches.spawn(async move {
                let mut events = watcher(api, watcher::Config::default()).boxed();
                while let Some(event) = events.next().await {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    match event {
                        Ok(event) => seen.take(&kind, event),
                        Err(error) => seen.violation(format!("watch of {kind}: {error}")),
                    }
                    sender.send_modify(|count| *count += 1);
                }
            });
        }
        Self {
            seen,
            changed,
            _watches: watches,
        }
    }

    fn get(&self, kind: &str, name: &str) -> Option<DynamicObject> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.objects
            .get(&(kind.to_owned(), name.to_owned()))
            .cloned()
    }

    /// The object once it is as wanted; after `limit` as it was last.
    pub(super) async fn until(
        &self,
        kind: &str,
        name: &str,
        limit: Duration,
        is_wanted: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject, Option<DynamicObject>> {
        let look = || self.get(kind, name);
        let found = self
            .when(limit, || look().filter(|object| is_wanted(object)))
            .await;
        found.ok_or_else(look)
    }

    /// Waits until there is no such object; after `limit` the object as it was last.
    pub(super) async fn gone(
        &self,
        kind: &str,
        name: &str,
        limit: Duration,
    ) -> Result<(), DynamicObject> {
        let is_gone = || self.get(kind, name).is_none().then_some(());
        match (self.when(limit, is_gone).await, self.get(kind, name)) {
            (Some(()), _) | (None, None) => Ok(()),
            (None, Some(last)) => Err(last),
        }
    }

    async fn when<T>(&self, limit: Duration, look: impl Fn() -> Option<T>) -> Option<T> {
        let mut changed = self.changed.clone();
        let wait = async {
            loop {
                changed.mark_unchanged();
                if let Some(found) = look() {
                    return Some(found);
                }
                if changed.changed().await.is_err() {
                    return None;
                }
            }
        };
        timeout(limit, wait).await.unwrap_or_else(|_| look())
    }

    /// What was seen in some version of an object and may be in none.
    pub(super) fn violations(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.violations.clone()
    }
}

impl Seen {
    fn violation(&mut self, words: String) {
        if self.violations.len() < VIOLATIONS {
            self.violations.push(words);
        }
    }

    fn take(&mut self, kind: &str, event: watcher::Event<DynamicObject>) {
        match event {
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                let name = object.name_any();
                for fault in verdict::instant_faults(&object) {
                    self.violation(format!("{kind} '{name}': {fault}"));
                }
                self.objects.insert((kind.to_owned(), name), object);
            }
            watcher::Event::Delete(object) => {
                self.objects.remove(&(kind.to_owned(), object.name_any()));
            }
            watcher::Event::Init => self.objects.retain(|(known, _), _| known != kind),
            watcher::Event::InitDone => {}
        }
    }
}
