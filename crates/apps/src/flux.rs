//! Views of Kustomizations and HelmReleases, and their states.
//!
//! The views have only the fields that decisions read. Flux defines these types and may change them, so a field
//! of another form is an error of the one object.

mod source;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use api::{
    apps::NamespacedName,
    status::{MAX_MESSAGE_CHARS, bounded},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use serde_json::Value;

pub use self::{
    source::{SourceRef, SourceView, commit_of},
    state::{Attempt, FluxCondition, FluxObject, FluxState, RECONCILE_GRACE, SETTLE_TIME},
};
use crate::{inventory, object::ObjectId, origin::appliers};

/// Annotation with the token of a requested reconciliation.
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Status of an attempt of kustomize-controller that succeeded.
const SUCCEEDED: &str = "ReconciliationSucceeded";

/// Status of a release of Helm that is in use.
pub const DEPLOYED: &str = "deployed";

/// Statuses of a release of Helm that an action changes now.
const IN_PROGRESS: [&str; 4] = [
    "pending-install",
    "pending-upgrade",
    "pending-rollback",
    "uninstalling",
];

/// A Kustomization, reduced to the fields that decisions read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KustomizationView {
    /// The shared fields.
    pub flux: FluxObject,
    /// Revision that was applied last.
    pub revision: Option<String>,
    /// Objects of the inventory, or `None` if nothing was applied yet.
    pub inventory: Option<BTreeSet<ObjectId>>,
    /// Source from which the Kustomization applies its manifests.
    pub source: Option<SourceRef>,
    /// Directory of the manifests in the source.
    pub path: Option<String>,
    /// Whether the Kustomization recreates objects that cannot be changed (`spec.force`).
    pub is_forced: bool,
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
    /// Result of the last action of Helm.
    pub outcome: ReleaseOutcome,
    /// Whether Flux uninstalls the release after a failed upgrade.
    pub uninstalls_on_failure: bool,
    /// Longest time of an upgrade, if it is set.
    pub timeout: Option<std::time::Duration>,
}

/// Result of the last action of Helm, from the conditions of a HelmRelease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReleaseOutcome {
    /// The condition `Released`.
    pub released: Option<FluxCondition>,
    /// The condition `Remediated`: Flux rolled the release back, or uninstalled it.
    pub remediated: Option<FluxCondition>,
    /// The condition `TestSuccess`.
    pub tested: Option<FluxCondition>,
    /// Whether Flux runs the tests of the chart.
    pub has_tests: bool,
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
    /// Status of the release, such as `deployed` or `failed`.
    pub status: String,
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

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus {
    observed_generation: Option<i64>,
    conditions: Vec<RawCondition>,
    last_applied_revision: Option<String>,
    last_attempted_revision: Option<String>,
    last_attempted_generation: Option<i64>,
    last_attempted_config_digest: Option<String>,
    last_handled_reconcile_at: Option<String>,
    inventory: Option<RawInventory>,
    storage_namespace: Option<String>,
}

/// The history of a Kustomization, the newest attempt first.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Attempts {
    history: Vec<RawAttempt>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawAttempt {
    last_reconciled_status: String,
    metadata: BTreeMap<String, String>,
}

/// The history of a HelmRelease.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Releases {
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
    upgrade: Option<RawUpgrade>,
    test: Option<RawTest>,
    source_ref: Option<RawSourceRef>,
    path: Option<String>,
    force: bool,
    timeout: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTest {
    enable: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawSourceRef {
    kind: String,
    name: String,
    namespace: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawUpgrade {
    preserve_values: bool,
    timeout: Option<String>,
    remediation: Option<RawRemediation>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawRemediation {
    strategy: Option<String>,
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

fn condition(status: &RawStatus, kind: &str) -> Option<FluxCondition> {
    let text = |text: &str| bounded(text, MAX_MESSAGE_CHARS);
    let mut conditions = status.conditions.iter();
    let known = conditions.find(|known| known.kind == kind)?;
    Some(FluxCondition {
        value: match known.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        },
        reason: text(&known.reason),
        message: text(&known.message),
        since: known.last_transition_time.as_ref().map(|time| time.0),
        generation: known.observed_generation,
    })
}

fn shared(meta: &ObjectMeta, spec: &RawSpec, status: &RawStatus, attempt: Attempt) -> FluxObject {
    let annotations = meta.annotations.as_ref();
    let requested = annotations.and_then(|all| all.get(REQUESTED_AT));
    FluxObject {
        name: NamespacedName::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        ),
        appliers: appliers(meta.labels.as_ref()),
        generation: meta.generation.unwrap_or_default(),
        observed_generation: status.observed_generation.unwrap_or(-1),
        is_suspended: spec.suspend,
        is_deleting: meta.deletion_timestamp.is_some(),
        is_remote: spec.kube_config.is_some(),
        has_open_request: requested.is_some()
            && requested != status.last_handled_reconcile_at.as_ref(),
        ready: condition(status, "Ready"),
        stalled: condition(status, "Stalled"),
        attempt,
    }
}

/// Returns the last attempt of a Kustomization. `last` is the newest entry of its history, which kustomize-controller
/// writes since version 1.7.
fn attempt(status: &RawStatus, last: Option<&RawAttempt>) -> Attempt {
    let Some(attempted) = status.last_attempted_revision.as_ref() else {
        return Attempt::Unknown;
    };
    let is_applied = status.last_applied_revision.as_ref() == Some(attempted);
    let revision = last.and_then(|last| last.metadata.get("revision"));
    match last {
        Some(last) if revision == Some(attempted) && last.last_reconciled_status != SUCCEEDED => {
            let why = bounded(&last.last_reconciled_status, MAX_MESSAGE_CHARS);
            Attempt::Failed(format!("the last attempt of revision '{attempted}': {why}"))
        }
        // An attempt of another revision came in between, and may have applied a part of it.
        Some(_) if revision.is_some_and(|revision| revision != attempted) => {
            Attempt::Open(format!("it applies revision '{attempted}'"))
        }
        Some(_) | None if is_applied => Attempt::Applied,
        Some(_) | None => Attempt::Open(format!("it applies revision '{attempted}'")),
    }
}

/// Returns the last attempt of a HelmRelease.
fn release_attempt(
    generation: Option<i64>,
    spec: &RawSpec,
    status: &RawStatus,
    newest: Option<&ReleaseEntry>,
) -> Attempt {
    let Some(newest) = newest else {
        return Attempt::Unknown;
    };
    let text = |text: &str| bounded(text, MAX_MESSAGE_CHARS);
    let (name, version) = (text(&newest.name), newest.version);
    let is_in_progress = IN_PROGRESS.contains(&newest.status.as_str());
    if newest.status != DEPLOYED {
        let state = text(&newest.status);
        let message = format!("version {version} of release '{name}' is '{state}'");
        return if is_in_progress {
            Attempt::Open(message)
        } else {
            Attempt::Failed(message)
        };
    }
    let open = |what: &str| {
        let message = format!("{what} not deployed yet: version {version} of release '{name}' is");
        Attempt::Open(message)
    };
    // With `preserveValues`, the values of a release are those of all releases before it.
    let is_merged = spec.upgrade.as_ref().is_some_and(|one| one.preserve_values);
    let digest = status.last_attempted_config_digest.as_ref();
    match status.last_attempted_revision.as_ref() {
        None => Attempt::Unknown,
        Some(_) if status.last_attempted_generation != generation => open("its latest spec is"),
        Some(chart) if *chart != newest.chart_version => {
            open(&format!("chart version '{}' is", text(chart)))
        }
        Some(_) if !is_merged && digest != newest.config_digest.as_ref() => {
            open("its latest values are")
        }
        Some(_) => Attempt::Applied,
    }
}

/// Returns the longest time of an upgrade. It is for a warning only, so a value of another form counts as none.
fn timeout(spec: &RawSpec) -> Option<std::time::Duration> {
    let of_upgrade = spec.upgrade.as_ref().and_then(|one| one.timeout.as_ref());
    let text = of_upgrade.or(spec.timeout.as_ref())?;
    match text.parse::<api::Duration>() {
        Ok(timeout) => Some(timeout.into()),
        Err(_) => None,
    }
}

impl KustomizationView {
    /// Reads a Kustomization.
    ///
    /// # Errors
    /// If a field has another form.
    pub fn read(meta: &ObjectMeta, object: &Value) -> Result<Self, String> {
        let (spec, status): (RawSpec, RawStatus) = (part(object, "spec")?, part(object, "status")?);
        let Attempts { history } = part(object, "status")?;
        let attempt = attempt(&status, history.first());
        Ok(Self {
            flux: shared(meta, &spec, &status, attempt),
            revision: status.last_applied_revision,
            inventory: objects(status.inventory)?,
            source: spec.source_ref.map(|source| SourceRef {
                namespace: source
                    .namespace
                    .or_else(|| meta.namespace.clone())
                    .unwrap_or_default(),
                kind: source.kind,
                name: source.name,
            }),
            path: spec.path,
            is_forced: spec.force,
        })
    }
}

impl HelmReleaseView {
    /// Returns whether Helm stores the releases in another namespace than that of the HelmRelease.
    #[must_use]
    pub fn has_storage_elsewhere(&self) -> bool {
        self.storage_namespace.as_ref() != Some(&self.flux.name.namespace)
    }

    /// Reads a HelmRelease.
    ///
    /// # Errors
    /// If a field has another form.
    pub fn read(meta: &ObjectMeta, object: &Value) -> Result<Self, String> {
        let (spec, status): (RawSpec, RawStatus) = (part(object, "spec")?, part(object, "status")?);
        let Releases { history } = part(object, "status")?;
        // The order of the history is not documented, so the version counts.
        let newest = history.into_iter().max_by_key(|entry| entry.version);
        let attempt = release_attempt(meta.generation, &spec, &status, newest.as_ref());
        let flux = shared(meta, &spec, &status, attempt);
        let outcome = ReleaseOutcome {
            released: condition(&status, "Released"),
            remediated: condition(&status, "Remediated"),
            tested: condition(&status, "TestSuccess"),
            has_tests: spec.test.as_ref().is_some_and(|test| test.enable),
        };
        let remediation = spec
            .upgrade
            .as_ref()
            .and_then(|one| one.remediation.as_ref());
        let strategy = remediation.and_then(|one| one.strategy.as_deref());
        let uninstalls_on_failure = strategy == Some("uninstall");
        let timeout = timeout(&spec);
        let requested = spec.chart.map(|chart| {
            let version = chart.spec.version.filter(|version| !version.is_empty());
            version.unwrap_or_else(|| ANY_VERSION.to_owned())
        });
        Ok(Self {
            flux,
            requested,
            storage_namespace: status.storage_namespace,
            newest,
            inventory: objects(status.inventory)?,
            outcome,
            uninstalls_on_failure,
            timeout,
        })
    }
}

#[cfg(test)]
mod tests;
