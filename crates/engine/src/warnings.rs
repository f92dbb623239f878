//! Warning Events about objects of one kind.

use std::sync::Arc;

use api::warning::Warning;
use k8s_openapi::api::core::v1::Event;

use crate::{
    cache::{Bounds, Cache},
    children::with_uid,
    watch::{Watch, WatchManager},
};

/// Bounds of the cache. A user with permission to create Events in a namespace can create them about
/// any UID. Decisions read the newest Events.
///
/// Events of namespaces without objects of ours are kept, too. An Event may arrive before the first object of ours
/// in its namespace, and the watch does not deliver it again.
const BOUNDS: Bounds = Bounds {
    per_word: 20,
    total: 10_000,
};

impl WatchManager {
    /// Watches the Warning Events about objects of this kind. Their index key is
    /// [`with_uid`] of the object.
    pub fn warnings(&mut self, kind: &str) -> Cache<Warning> {
        let fields = ["type=Warning,involvedObject.kind=", kind].concat();
        let watch = Watch {
            labels: None,
            fields: Some(fields),
            transform: Arc::new(|event: Event, _| Warning::from(&event)),
            index: |warning: &Warning| vec![with_uid(&warning.namespace, &warning.object_uid)],
        };
        let cache = self.namespaced(("", "events"), watch);
        cache.bound(BOUNDS);
        cache
    }
}
