//! Event publishing: one Event per transition.

use api::{
    MANAGER, Reason, State, Timestamp, Verdict,
    decide::ResourceType,
    names::{self, cut},
    status::Attempt,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ObjectMeta;
use serde_json::json;

use crate::{apply::ResourcePath, key::Key, kind::Kind, reconcile::Reconciler};

/// Limits of the API server, in bytes.
const NOTE: usize = 1024;
const INSTANCE: usize = 128;

const EVENT: ResourceType = ResourceType::new("events.k8s.io", "v1", "Event", "events");

/// A transition that an Event reports.
pub(crate) struct Transition<'a> {
    pub(crate) meta: &'a ObjectMeta,
    /// Start of the state that is left. An object may leave the same state twice.
    pub(crate) since: Option<Timestamp>,
    pub(crate) attempt: Attempt,
    /// The new phase, or the condition that changed.
    pub(crate) phase: &'a str,
    pub(crate) verdict: &'a Verdict,
}

impl<K: Kind> Reconciler<K> {
    /// Emits the Event of a transition. The name of the Event identifies the transition, so the API
    /// server rejects a repetition.
    ///
    /// An Event that cannot be sent does not prevent the status write: it is a hint, not evidence.
    pub(crate) async fn publish(&self, transition: &Transition<'_>, now: Timestamp) {
        let Transition {
            meta,
            since,
            attempt,
            phase,
            verdict,
        } = transition;
        let uid = meta.uid.clone().unwrap_or_default();
        let namespace = meta
            .namespace
            .clone()
            .unwrap_or_else(|| "default".to_owned());
        let reason = if verdict.reason == Reason::Progressing {
            phase
        } else {
            verdict.reason.name()
        };
        let Attempt { number, restarts } = attempt;
        let generation = meta.generation.unwrap_or(0);
        let which = names::hash(&format!(
            "{uid}/{generation}/{number}/{restarts}/{phase}/{reason}/{since:?}"
        ));
        let name = event_name(meta.name.as_deref().unwrap_or_default(), &which);
        let regarding = ObjectReference {
            api_version: Some(K::RESOURCE.api_version()),
            kind: Some(K::RESOURCE.kind.to_owned()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: Some(uid),
            ..ObjectReference::default()
        };
        let is_warning = verdict.reason.is_warning() || verdict.state == State::Stalled;
        let body = json!({
            "apiVersion": EVENT.api_version(),
            "kind": EVENT.kind,
            "metadata": { "name": name, "namespace": namespace },
            "eventTime": format!("{now:.6}"),
            "reportingController": "orchestrator.io/controller",
            "reportingInstance": cut(&self.identity, INSTANCE),
            "action": phase,
            "reason": reason,
            "note": cut(&verdict.message, NOTE),
            "type": if is_warning { "Warning" } else { "Normal" },
            "regarding": regarding,
        });
        let path = ResourcePath {
            resource: EVENT,
            namespace: Some(&namespace),
            name: &name,
            subresource: None,
        };
        if let Err(fault) = self.applier.create_once(path, &body).await {
            self.metrics.error(K::RESOURCE.kind, fault.class.name());
            tracing::warn!(object = %Key::of(meta), manager = MANAGER, "an Event could not be sent: {fault}");
        }
    }
}

/// Returns a valid name. The cut name may end in a dash or a dot, and neither may precede a dot.
fn event_name(object: &str, which: &str) -> String {
    let head = cut(object, 200).trim_end_matches(['-', '.']);
    [head, ".", which].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_bytes_and_names_stay_valid() {
        assert_eq!(cut(&"é".repeat(600), NOTE).len(), 1024);
        assert_eq!(cut(&["x", &"é".repeat(600)].concat(), NOTE).len(), 1023);
        let long = ["a".repeat(199), "-".to_owned(), "b".repeat(53)].concat();
        assert_eq!(
            event_name(&long, "1f"),
            ["a".repeat(199), ".1f".to_owned()].concat()
        );
        assert_eq!(event_name("run", "1f"), "run.1f");
    }
}
