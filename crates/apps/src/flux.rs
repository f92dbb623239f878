//! Views of Kustomizations and HelmReleases, and their states.
//!
//! The views have only the fields that decisions read. Flux defines these types and may change them, so a field
//! of another form is an error of the one object.

use std::{collections::BTreeSet, time::Duration};

use api::{
    Timestamp,
    apps::NamespacedName,
    status::{MAX_MESSAGE_CHARS, bounded},
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use serde_json::Value;

use crate::{inventory, object::ObjectId};

/// Time for which a healthy application keeps its state while Flux reconciles. The controllers of Flux set `Ready` to
/// `Unknown` at each interval, also if nothing changes.
pub const RECONCILE_GRACE: Duration = Duration::from_secs(120);

/// Fields that Kustomizations and HelmReleases share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FluxObject {
    /// Namespace and name.
    pub name: NamespacedName,
    /// Generation of the spec.
    pub generation: i64,
    /// Generation that the controller of Flux observed, or -1 before the first reconciliation.
    pub observed_generation: i64,
    /// Whether `spec.suspend` is true.
    pub is_suspended: bool,
    /// Whether the object applies to another cluster (`spec.kubeConfig`).
    pub is_remote: bool,
    /// The condition `Ready`.
    pub ready: Option<ReadyCondition>,
}

/// The condition `Ready` of an object of Flux.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadyCondition {
    /// Whether the condition is True or False, or `None` for Unknown.
    pub value: Option<bool>,
    /// Reason of Flux.
    pub reason: String,
    /// Message of Flux.
    pub message: String,
    /// Time of the last transition.
    pub since: Option<Timestamp>,
    /// Generation that the condition is about.
    pub generation: Option<i64>,
}

/// A Kustomization, reduced to the fields that decisions read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KustomizationView {
    /// The shared fields.
    pub flux: FluxObject,
    /// Revision that was applied last.
    pub revision: Option<String>,
    /// Objects of the inventory, or `None` if nothing was applied yet.
    pub inventory: Option<BTreeSet<ObjectId>>,
}

/// A HelmRelease, reduced to the fields that decisions read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelmReleaseView {
    /// The shared fields.
    pub flux: FluxObject,
    /// Version or range of the chart, or `None` if the HelmRelease references a chart object.
    pub requested: Option<String>,
    /// Namespace of the release Secrets.
    pub storage_namespace: Option<String>,
    /// Entry of the history with the highest version.
    pub newest: Option<ReleaseEntry>,
    /// Objects of the inventory, or `None` if the controller of Flux writes none.
    pub inventory: Option<BTreeSet<ObjectId>>,
}

/// An entry in the history of a HelmRelease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseEntry {
    /// Name of the release.
    pub name: String,
    /// Namespace of objects without a namespace of their own.
    pub namespace: String,
    /// Version of the release.
    pub version: i64,
    /// Version of the chart.
    pub chart_version: String,
    /// Version of the program in the chart.
    #[serde(default)]
    pub app_version: Option<String>,
    /// Digest of the values.
    #[serde(default)]
    pub config_digest: Option<String>,
    /// Digest of the release.
    #[serde(default)]
    pub digest: Option<String>,
}

/// State of an object of Flux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FluxState {
    /// The current spec is applied.
    Settled,
    /// The object is suspended. Its condition `Ready` shows an earlier state.
    Suspended,
    /// The controller of Flux applies a change. The text is for a message.
    Reconciling(String),
    /// The controller of Flux reports a failure. The text is for a message.
    Failed(String),
}

impl FluxObject {
    /// Returns the state. `was_ready` is whether the application was ready until now.
    #[must_use]
    pub fn state(&self, was_ready: bool, now: Timestamp) -> FluxState {
        if self.is_suspended {
            return FluxState::Suspended;
        }
        if self.observed_generation != self.generation {
            return self.unobserved();
        }
        let Some(ready) = &self.ready else {
            return FluxState::Reconciling("it has no condition 'Ready' yet".to_owned());
        };
        let text = format!("{}: {}", ready.reason, ready.message);
        match ready.value {
            Some(true) => FluxState::Settled,
            Some(false) => FluxState::Failed(text),
            None if was_ready && ready.began_within(RECONCILE_GRACE, now) => FluxState::Settled,
            None => FluxState::Reconciling(text),
        }
    }

    /// Returns the state while `observedGeneration` is that of an earlier spec. The controllers of Flux update it only
    /// after a success, so a failure with the latest spec is in the condition alone.
    fn unobserved(&self) -> FluxState {
        let ready = self.ready.as_ref();
        let latest = ready.filter(|ready| {
            ready.value == Some(false) && ready.generation == Some(self.generation)
        });
        let Some(ready) = latest else {
            return FluxState::Reconciling("its latest spec is not reconciled yet".to_owned());
        };
        let text = format!("{}: {}", ready.reason, ready.message);
        if WAITS.contains(&ready.reason.as_str()) {
            FluxState::Reconciling(text)
        } else {
            FluxState::Failed(text)
        }
    }
}

/// Reasons with which the controllers of Flux wait for another object, such as the source of a new spec.
const WAITS: &[&str] = &[
    "ArtifactFailed",
    "DependencyNotReady",
    "HealthCheckCanceled",
    "SourceNotReady",
];

impl ReadyCondition {
    /// Returns whether the last transition is at most this old. A time in the future is another clock's, and does not
    /// count for longer than the limit.
    fn began_within(&self, limit: Duration, now: Timestamp) -> bool {
        self.since
            .is_some_and(|since| now < time::after(since, limit) && since < time::after(now, limit))
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    observed_generation: Option<i64>,
    conditions: Vec<RawCondition>,
    last_applied_revision: Option<String>,
    inventory: Option<RawInventory>,
    storage_namespace: Option<String>,
    history: Vec<ReleaseEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    last_transition_time: Option<Time>,
    #[serde(default)]
    observed_generation: Option<i64>,
}

#[derive(Deserialize)]
struct RawInventory {
    #[serde(default)]
    entries: Vec<RawEntry>,
}

#[derive(Deserialize)]
struct RawEntry {
    id: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec {
    suspend: bool,
    kube_config: Option<Value>,
    chart: Option<RawChart>,
}

#[derive(Deserialize)]
struct RawChart {
    spec: RawChartSpec,
}

#[derive(Deserialize)]
struct RawChartSpec {
    version: Option<String>,
}

/// Version of the chart that Flux takes if a HelmRelease has none: the newest one.
const ANY_VERSION: &str = "*";

fn part<'a, T: Deserialize<'a> + Default>(object: &'a Value, name: &str) -> Result<T, String> {
    match object.get(name) {
        Some(value) => T::deserialize(value).map_err(|error| format!("{name}: {error}")),
        None => Ok(T::default()),
    }
}

fn objects(inventory: Option<RawInventory>) -> Result<Option<BTreeSet<ObjectId>>, String> {
    let Some(RawInventory { entries }) = inventory else {
        return Ok(None);
    };
    let ids = entries.iter().map(|entry| entry.id.as_str());
    inventory::parse_all(ids).map(Some)
}

fn shared(meta: &ObjectMeta, spec: &RawSpec, status: &RawStatus) -> FluxObject {
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|known| known.kind == "Ready");
    let text = |text: &str| bounded(text, MAX_MESSAGE_CHARS);
    FluxObject {
        name: NamespacedName::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        ),
        generation: meta.generation.unwrap_or_default(),
        observed_generation: status.observed_generation.unwrap_or(-1),
        is_suspended: spec.suspend,
        is_remote: spec.kube_config.is_some(),
        ready: ready.map(|known| ReadyCondition {
            value: match known.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            reason: text(&known.reason),
            message: text(&known.message),
            since: known.last_transition_time.as_ref().map(|time| time.0),
            generation: known.observed_generation,
        }),
    }
}

impl KustomizationView {
    /// Reads a Kustomization.
    ///
    /// # Errors
    /// If a field has another form.
    pub fn read(meta: &ObjectMeta, object: &Value) -> Result<Self, String> {
        let (spec, status): (RawSpec, RawStatus) = (part(object, "spec")?, part(object, "status")?);
        Ok(Self {
            flux: shared(meta, &spec, &status),
            revision: status.last_applied_revision,
            inventory: objects(status.inventory)?,
        })
    }
}

impl HelmReleaseView {
    /// Reads a HelmRelease.
    ///
    /// # Errors
    /// If a field has another form.
    pub fn read(meta: &ObjectMeta, object: &Value) -> Result<Self, String> {
        let (spec, status): (RawSpec, RawStatus) = (part(object, "spec")?, part(object, "status")?);
        let flux = shared(meta, &spec, &status);
        let requested = spec.chart.map(|chart| {
            let version = chart.spec.version.filter(|version| !version.is_empty());
            version.unwrap_or_else(|| ANY_VERSION.to_owned())
        });
        // The order of the history is not documented, so the version counts.
        let newest = status.history.into_iter().max_by_key(|entry| entry.version);
        Ok(Self {
            flux,
            requested,
            storage_namespace: status.storage_namespace,
            newest,
            inventory: objects(status.inventory)?,
        })
    }
}

#[cfg(test)]
mod tests;
