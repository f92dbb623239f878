//! The views of a ManagedApp and of its objects of Flux.

use api::apps::{ManagedAppSpec, ManagedAppStatus};
use k8s_openapi::{api::apps::v1::DaemonSet, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use pods::Rollout;
use serde_json::Value;

use super::{
    ours::{changed, part, parts, split},
    text,
};
use crate::world::{AppView, ConditionView, FluxView, Meta, WorkloadView};

impl AppView {
    /// Reads a `ManagedApp`.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let (meta, status, spec, undecodable) = parts::<ManagedAppStatus, ManagedAppSpec>(object);
        let view = Self {
            meta: Meta::from(&meta),
            changed: changed(&meta),
            undecodable,
            status,
            ..Self::default()
        };
        let Some(spec) = spec else { return view };
        let reference = spec.kustomization_ref;
        let own = || view.meta.namespace.clone();
        Self {
            kustomization_namespace: reference.namespace.map_or_else(own, |name| text(&name)),
            kustomization: text(&reference.name),
            ..view
        }
    }
}

impl FluxView {
    /// Reads a Kustomization or a HelmRelease. A field of another form is as if it was missing.
    #[must_use]
    pub fn read(kind: &str, meta: &ObjectMeta, object: &Value) -> Self {
        let conditions = object.pointer("/status/conditions");
        let conditions = conditions.and_then(Value::as_array).into_iter();
        let mut conditions = conditions.flat_map(|all| all.iter());
        let ready = conditions.find(|known| known["type"] == "Ready");
        let generation = object.pointer("/status/observedGeneration");
        let suspend = object.pointer("/spec/suspend").and_then(Value::as_bool);
        Self {
            kind: kind.to_owned(),
            meta: Meta::from(meta),
            changed: changed(meta),
            suspend: suspend.unwrap_or_default(),
            observed: generation.and_then(Value::as_i64).unwrap_or(-1),
            ready: ready.map(condition),
        }
    }
}

/// Reads a condition of an object of others. A field of another form is empty.
fn condition(known: &Value) -> ConditionView {
    let field = |name: &str| text(known[name].as_str().unwrap_or_default());
    let (since, _error) = split(part(known, "lastTransitionTime"));
    ConditionView {
        kind: field("type"),
        status: field("status"),
        reason: field("reason"),
        message: field("message"),
        since,
    }
}

impl From<&DaemonSet> for WorkloadView {
    fn from(set: &DaemonSet) -> Self {
        Self {
            kind: "DaemonSet".to_owned(),
            meta: Meta::from(&set.metadata),
            rollout: Rollout::from(set),
            failure: None,
        }
    }
}
