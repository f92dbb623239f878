//! The views of a ManagedApp and of its objects of Flux.

use api::apps::{ManagedAppSpec, ManagedAppStatus};
use k8s_openapi::{api::apps::v1::DaemonSet, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use pods::Rollout;
use serde_json::Value;

use super::{
    ours::{changed, part, parts, split},
    text,
};
use crate::world::{AppView, ConditionView, FluxView, Meta, ObjectRef, WorkloadView};

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
    /// Reads a Kustomization, a HelmRelease or a source. A field of another form is as if it was missing.
    #[must_use]
    pub fn read(kind: &str, meta: &ObjectMeta, object: &Value) -> Self {
        let conditions = object.pointer("/status/conditions");
        let conditions = conditions.and_then(Value::as_array).into_iter();
        let conditions: Vec<&Value> = conditions.flat_map(|all| all.iter()).collect();
        let named = |kind: &str| {
            let mut all = conditions.iter();
            all.find(|known| known["type"] == kind).copied()
        };
        let about = |known: &Value| known["observedGeneration"].as_i64();
        let ready = named("Ready");
        let stalled = named("Stalled").filter(|known| {
            let is_current = about(known).is_none_or(|about| Some(about) == meta.generation);
            known["status"] == "True" && is_current
        });
        let generation = object.pointer("/status/observedGeneration");
        let newest = newest_release(object);
        let at = |path: &str| object.pointer(path).and_then(Value::as_str).map(text);
        let of_newest = |field: &str| newest?.get(field)?.as_str().map(text);
        let suspend = object.pointer("/spec/suspend").and_then(Value::as_bool);
        Self {
            kind: kind.to_owned(),
            meta: Meta::from(meta),
            changed: changed(meta),
            suspend: suspend.unwrap_or_default(),
            observed: generation.and_then(Value::as_i64).unwrap_or(-1),
            ready: ready.map(condition),
            ready_generation: ready.and_then(about),
            stalled: stalled.map(condition),
            attempted: at("/status/lastAttemptedRevision"),
            applied: at("/status/lastAppliedRevision").or_else(|| of_newest("chartVersion")),
            release_status: of_newest("status"),
            source: source(object, meta.namespace.as_deref().unwrap_or_default()),
        }
    }

    /// Returns whether its controller applied the current spec, as far as its status shows.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let ready = self.ready.as_ref();
        ready.is_some_and(|ready| ready.status == "True")
            && self.is_observed()
            && self.is_applied()
            && self.stalled.is_none()
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.observed == self.meta.generation
    }

    /// Returns whether the last attempt was about the applied version. Without both, nothing shows another one.
    pub(crate) fn is_applied(&self) -> bool {
        let is_used = |status: &String| status == "deployed";
        let is_same = self.attempted.is_none() || self.attempted == self.applied;
        is_same && self.release_status.as_ref().is_none_or(is_used)
    }

    /// Returns whether its condition `Ready` is about the current spec.
    pub(crate) fn is_current(&self) -> bool {
        self.ready_generation.unwrap_or(self.observed) == self.meta.generation
    }
}

/// Returns the entry with the highest version in the history of a HelmRelease.
fn newest_release(object: &Value) -> Option<&Value> {
    let history = object.pointer("/status/history")?.as_array()?;
    let releases = history.iter().filter(|entry| entry["version"].is_i64());
    releases.max_by_key(|entry| entry["version"].as_i64())
}

/// Returns the object that the content of an object of Flux comes from.
fn source(object: &Value, own_namespace: &str) -> Option<ObjectRef> {
    let chart = object.pointer("/status/helmChart").and_then(Value::as_str);
    if let Some((namespace, name)) = chart.and_then(|chart| chart.split_once('/')) {
        return Some(ObjectRef::namespaced(
            "HelmChart",
            &text(namespace),
            &text(name),
        ));
    }
    let mut references = ["/spec/sourceRef", "/spec/chartRef"].into_iter();
    let reference = references.find_map(|path| object.pointer(path))?;
    let namespace = reference["namespace"].as_str().unwrap_or(own_namespace);
    let (kind, name) = (reference["kind"].as_str()?, reference["name"].as_str()?);
    Some(ObjectRef::namespaced(
        &text(kind),
        &text(namespace),
        &text(name),
    ))
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
