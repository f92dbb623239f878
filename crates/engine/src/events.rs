//! One Event per transition.

use api::{
    MANAGER, Reason, State, Timestamp, Verdict,
    decide::ResourceType,
    names::{self, cut},
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ObjectMeta;
use mutant::Mutant;
use serde_json::json;

use crate::{act::Place, key::Key, kind::Kind, pass::Eyes};

/// The API server's limits, in bytes.
const NOTE: usize = 1024;
const INSTANCE: usize = 128;

const EVENT: ResourceType = ResourceType::new("events.k8s.io", "v1", "Event", "events");

/// What is told.
pub(crate) struct Transition<'a> {
    pub(crate) meta: &'a ObjectMeta,
    /// Since when the state that is left had lasted: the same state may be left twice.
    pub(crate) since: Option<Timestamp>,
    pub(crate) attempt: u32,
    pub(crate) disruptions: u32,
    /// What it turned to, or the condition that turned.
    pub(crate) phase: &'a str,
    pub(crate) verdict: &'a Verdict,
}

impl<K: Kind> Eyes<K> {
    /// Tells a transition. Its name says which one it is, so that a repetition is refused.
    ///
    /// An Event that cannot be sent does not keep us from recording: it is a hint, not evidence.
    pub(crate) async fn tell(&self, transition: &Transition<'_>, now: Timestamp) {
        let Transition {
            meta,
            since,
            attempt,
            disruptions,
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
        let generation = meta.generation.unwrap_or(0);
        let mut which = names::hash(&format!(
            "{uid}/{generation}/{attempt}/{disruptions}/{phase}/{reason}/{since:?}"
        ));
        if mutant::on(Mutant::EventRenamed) {
            which = names::hash(&[which, now.to_string()].concat());
        }
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
        let place = Place {
            resource: EVENT,
            namespace: Some(&namespace),
            name: &name,
            subresource: None,
        };
        while mutant::on(Mutant::EventAwaited)
            && self.hands.create_once(place, &body).await.is_err()
        {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        if let Err(fault) = self.hands.create_once(place, &body).await {
            self.metrics.error(K::RESOURCE.kind, fault.class.name());
            tracing::warn!(object = %Key::of(meta), manager = MANAGER, "an Event could not be sent: {fault}");
        }
    }
}

/// A valid name: what is cut may end in a dash or a dot, and neither may stand before a dot.
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
