//! The configuration file. It is typed, no field is required, and every value is checked while it is parsed.
//! So an error names its line.
//!
//! The doc comments of the fields are the descriptions in `docs/reference/configuration.md`. Write them for
//! users.

mod notebooks;
mod read;
mod schema;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use api::{
    tasks::{Amount, Resources},
    tenants::{OWNER_ROLE, PROBE_CLASS},
};
use engine::leader::LeaseTimings;
use schemars::JsonSchema;
use serde::Deserialize;
use tasks::run::docs::Settings;

pub use self::notebooks::{NotebookCleanup, NotebookResults, Notebooks};
use crate::{component::Component, logging};

/// The reason why there is no configuration. The process does not start without one. Defaults instead of
/// the configured values would be a guess.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is missing, or cannot be read.
    #[error("cannot read the configuration '{0}': {1}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// The file contains an unknown key or an invalid value.
    #[error("the configuration '{0}' is not valid: {1}")]
    Invalid(PathBuf, String),
}

/// Configuration of the operators. All operators read the same file.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// Namespaces of Agents, runs, ManagedApps and NotebookValidationJobs, and of the objects of these applications. An
    /// empty list means all namespaces. Each name may occur once. With the chart, set the value `watchNamespaces`
    /// instead. The operator of Tenants accepts only an empty list.
    #[serde(deserialize_with = "read::namespaces")]
    #[schemars(inner(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ))]
    pub watch_namespaces: Vec<String>,
    /// Number of objects of each kind that are reconciled at the same time.
    #[serde(deserialize_with = "read::concurrency")]
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: usize,
    /// Settings of the log.
    pub log: Log,
    /// Settings of the operator of runs.
    pub tasks: Tasks,
    /// Settings of the operator of Tenants.
    pub tenants: Tenants,
    /// Settings of the operator of ManagedApps.
    pub apps: Apps,
    /// Settings of the operator of NotebookValidationJobs.
    pub notebooks: Notebooks,
    /// Settings of the gateway, which serves the REST API.
    pub gateway: Gateway,
    /// Settings of the leader election between the Pods of an operator.
    #[schemars(with = "Election")]
    pub leader_election: LeaderElection,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            watch_namespaces: Vec::new(),
            concurrency: 32,
            log: Log::default(),
            tasks: Tasks::default(),
            tenants: Tenants::default(),
            apps: Apps::default(),
            notebooks: Notebooks::default(),
            gateway: Gateway::default(),
            leader_election: LeaderElection::default(),
        }
    }
}

/// Settings of the log.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Log {
    /// Log level for everything, then exceptions by target, such as `info,engine=debug`. The level for
    /// everything is required. No target may be `off`, because its errors would be lost.
    #[serde(deserialize_with = "read::filter")]
    pub filter: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            filter: logging::DEFAULT.to_owned(),
        }
    }
}

/// Settings of the operator of Tenants.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tenants {
    /// Requests and limits of a server or a Redis without `resources`. The value replaces the default as a
    /// whole. No request may be more than its limit.
    #[serde(deserialize_with = "read::resources")]
    #[schemars(with = "read::ContainerResources")]
    pub default_resources: Resources,
    /// Maximum numbers of objects of each Tenant, by their names in a ResourceQuota. Names that you leave
    /// out keep their defaults.
    #[serde(deserialize_with = "read::object_limits")]
    #[schemars(schema_with = "schema::object_limits")]
    pub object_limits: BTreeMap<String, u32>,
    /// Public networks of Pods, Services and nodes, as CIDRs. A Tenant with access to the internet reaches
    /// neither these nor private networks. `0.0.0.0/0` and `::/0` are rejected.
    #[serde(deserialize_with = "read::cluster_networks")]
    pub cluster_networks: Vec<String>,
    /// Namespace of the cluster's DNS. All Tenants may reach it.
    #[serde(deserialize_with = "read::dns_namespace")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub dns_namespace: String,
    /// Image of the Pods that check the isolation of a Tenant. The default is the toolbox image, as in
    /// `tasks.docs.toolboxImage`.
    #[serde(deserialize_with = "read::probe_image")]
    #[schemars(length(min = 1, max = 512))]
    pub probe_image: String,
}

impl Default for Tenants {
    fn default() -> Self {
        Self {
            default_resources: Tasks::default().default_resources,
            object_limits: BTreeMap::new(),
            cluster_networks: Vec::new(),
            dns_namespace: "kube-system".to_owned(),
            probe_image: Docs::default().toolbox_image,
        }
    }
}

impl Tenants {
    /// Returns the settings for an operator in this namespace. The probe Pods that connect from outside run
    /// in the same namespace.
    #[must_use]
    pub fn settings(&self, own_namespace: &str) -> tenants::build::Settings {
        let Self {
            default_resources,
            object_limits,
            cluster_networks,
            dns_namespace,
            probe_image,
        } = self.clone();
        tenants::build::Settings {
            default_resources: serde_json::json!(default_resources),
            object_limits,
            cluster_networks,
            dns_namespace,
            owner_role: OWNER_ROLE.to_owned(),
            probe_priority_class: PROBE_CLASS.to_owned(),
            probe_image,
            probe_namespace: own_namespace.to_owned(),
        }
    }
}

/// Settings of the operator of ManagedApps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Apps {
    /// Settings of the steps of UpgradeRequests and RollbackRequests.
    pub git: AppGit,
    /// Settings of releases of Helm.
    pub helm: Helm,
}

/// Settings of the steps of UpgradeRequests and RollbackRequests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AppGit {
    /// Image of the steps that change a version in Git, and of the Pods that bind restored volumes. The default is the
    /// toolbox image, as in `tasks.docs.toolboxImage`.
    #[serde(deserialize_with = "read::toolbox_image")]
    #[schemars(length(min = 1, max = 512))]
    pub toolbox_image: String,
    /// Networks of Git servers in addition to public addresses, as CIDRs. Pods, Services and nodes usually
    /// have private addresses. Without this setting, no request reaches them.
    #[serde(deserialize_with = "read::networks")]
    pub allowed_networks: Vec<String>,
    /// Whether `http://` repositories are allowed. Their credentials are transferred in plain text.
    pub plain_http: bool,
    /// Maximum disk space of a repository on a node, in MiB.
    #[serde(rename = "repositoryLimitMiB", deserialize_with = "read::mebibytes")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub repository_limit_mib: u32,
}

impl Default for AppGit {
    fn default() -> Self {
        let Settings {
            toolbox_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
        } = Settings::default();
        Self {
            toolbox_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
        }
    }
}

impl From<AppGit> for Settings {
    fn from(git: AppGit) -> Self {
        let AppGit {
            toolbox_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
        } = git;
        Self {
            toolbox_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
        }
    }
}

/// Settings of releases of Helm.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Helm {
    /// Whether the operator reads the Secrets in which Helm stores releases, to find the objects of an application.
    /// Without it, the inventory of the HelmRelease counts alone, which helm-controller writes since version 1.5. The
    /// chart then grants no permission on Secrets.
    pub read_release_secrets: bool,
}

impl Default for Helm {
    fn default() -> Self {
        Self {
            read_release_secrets: true,
        }
    }
}

impl Apps {
    /// Returns the settings for the operator.
    #[must_use]
    pub fn settings(&self) -> apps::controller::Settings {
        apps::controller::Settings {
            read_release_secrets: self.helm.read_release_secrets,
            steps: self.git.clone().into(),
        }
    }
}

/// Settings of the operator of runs.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tasks {
    /// Requests and limits of an Agent without `resources`. The value replaces the default as a whole. No
    /// request may be more than its limit.
    #[serde(deserialize_with = "read::resources")]
    #[schemars(with = "read::ContainerResources")]
    pub default_resources: Resources,
    /// Cleanup of a run's Jobs and ConfigMaps after it has finished, unless the run overrides it.
    pub cleanup: Cleanup,
    /// Delay after the end of a run before the run itself is deleted, with its results. A duration from `1m`
    /// to `8784h`, such as `72h`. If not set, runs are never deleted.
    #[serde(deserialize_with = "read::wait")]
    #[schemars(with = "String")]
    pub delete_finished_runs_after: Option<Duration>,
    /// Whether a Pod may differ from the template of its Job. Webhooks that change Pods need it. It is safe
    /// where an admission policy lets nobody but the Job controller create such Pods.
    pub accept_changed_pods: bool,
    /// Settings of DocsRuns.
    pub docs: Docs,
}

/// Settings of DocsRuns.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Docs {
    /// Image of the steps `clone` and `publish`, with `git` and `ssh`.
    #[serde(deserialize_with = "read::toolbox_image")]
    #[schemars(length(min = 1, max = 512))]
    pub toolbox_image: String,
    /// Networks of Git servers in addition to public addresses, as CIDRs. Pods, Services and nodes usually
    /// have private addresses. Without this setting, no run reaches them.
    #[serde(deserialize_with = "read::networks")]
    pub allowed_networks: Vec<String>,
    /// Whether `http://` repositories are allowed. Their credentials are transferred in plain text.
    pub plain_http: bool,
    /// Maximum disk space of a repository on a node, in MiB.
    #[serde(rename = "repositoryLimitMiB", deserialize_with = "read::mebibytes")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub repository_limit_mib: u32,
}

impl Default for Docs {
    fn default() -> Self {
        let Settings {
            toolbox_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
        } = Settings::default();
        Self {
            toolbox_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
        }
    }
}

impl From<Docs> for Settings {
    fn from(docs: Docs) -> Self {
        let Docs {
            toolbox_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
        } = docs;
        Self {
            toolbox_image,
            allowed_networks,
            plain_http,
            repository_limit_mib,
        }
    }
}

/// Cleanup of a run's Jobs and ConfigMaps after it has finished, unless the run overrides it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cleanup {
    /// Whether Jobs and ConfigMaps of finished runs are deleted.
    pub enabled: bool,
    /// Minutes that Jobs and ConfigMaps are kept after a success.
    #[serde(deserialize_with = "read::minutes")]
    #[schemars(range(min = 0, max = 527_040))]
    pub completed_job_delay_minutes: u32,
    /// Minutes that Jobs and ConfigMaps are kept after any other end.
    #[serde(deserialize_with = "read::minutes")]
    #[schemars(range(min = 0, max = 527_040))]
    pub failed_job_delay_minutes: u32,
    /// Whether ConfigMaps are deleted with the Jobs.
    pub delete_config_map: bool,
}

impl Default for Cleanup {
    fn default() -> Self {
        Self {
            enabled: true,
            completed_job_delay_minutes: 5,
            failed_job_delay_minutes: 60,
            delete_config_map: true,
        }
    }
}

impl From<Cleanup> for tasks::run::Cleanup {
    fn from(cleanup: Cleanup) -> Self {
        let minutes = |count: u32| Duration::from_secs(u64::from(count).saturating_mul(60));
        Self {
            enabled: cleanup.enabled,
            after_success: minutes(cleanup.completed_job_delay_minutes),
            after_failure: minutes(cleanup.failed_job_delay_minutes),
            delete_config_map: cleanup.delete_config_map,
        }
    }
}

impl Default for Tasks {
    fn default() -> Self {
        let amounts = |list: &[(&str, &str)]| {
            let amount =
                |(name, amount): &(&str, &str)| ((*name).to_owned(), Amount((*amount).to_owned()));
            list.iter().map(amount).collect()
        };
        Self {
            default_resources: Resources {
                requests: amounts(&[("cpu", "100m"), ("memory", "128Mi")]),
                limits: amounts(&[("memory", "512Mi")]),
            },
            cleanup: Cleanup::default(),
            delete_finished_runs_after: None,
            accept_changed_pods: false,
            docs: Docs::default(),
        }
    }
}

/// Settings of the gateway, which serves the REST API.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Gateway {
    /// Settings of the endpoints for project management, below `/api/v1/pm`.
    pub pm: Pm,
    /// Names of the server, without a port. Requests for other names are rejected, so no page of
    /// another site can reach the server under its own name. An empty list accepts all names.
    pub hosts: Vec<String>,
    /// Header with the token of the user, from an authenticating proxy. A proxy that sets
    /// `Authorization` needs no setting.
    #[schemars(with = "String")]
    pub proxy_header: Option<Header>,
    /// Maximum number of streams of one caller at the same time.
    #[schemars(range(min = 1, max = 100))]
    #[serde(deserialize_with = "read::streams_per_caller")]
    pub streams_per_caller: u32,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            pm: Pm::default(),
            hosts: Vec::new(),
            proxy_header: None,
            streams_per_caller: 8,
        }
    }
}

/// Name of a header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Header(pub http::HeaderName);

impl TryFrom<String> for Header {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let header = http::HeaderName::try_from(name.as_str());
        header
            .map(Self)
            .map_err(|error| format!("gateway.proxyHeader: '{name}': {error}"))
    }
}

/// Settings of the endpoints for project management, below `/api/v1/pm`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pm {
    /// Namespace of the runs of these endpoints. It must exist.
    #[serde(deserialize_with = "read::pm_namespace")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: String,
}

impl Default for Pm {
    fn default() -> Self {
        Self {
            namespace: "orchestrator".to_owned(),
        }
    }
}

/// Settings of the leader election.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Election")]
pub struct LeaderElection {
    /// The times of an election.
    pub durations: LeaseTimings,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Election {
    /// Seconds without a renewal until another Pod may lead. A leader that cannot renew stops after two
    /// thirds of this time.
    #[schemars(range(min = 3, max = 3600))]
    lease_duration_seconds: u32,
    /// Seconds between renewals, at most a third of `leaseDurationSeconds`.
    #[schemars(range(min = 1, max = 1200))]
    renew_seconds: u32,
}

impl Default for Election {
    fn default() -> Self {
        Self {
            lease_duration_seconds: 15,
            renew_seconds: 5,
        }
    }
}

impl TryFrom<Election> for LeaderElection {
    type Error = String;

    fn try_from(election: Election) -> Result<Self, String> {
        let seconds = |count: u32| Duration::from_secs(count.into());
        let lease = seconds(election.lease_duration_seconds);
        LeaseTimings::new(lease, seconds(election.renew_seconds))
            .map(|durations| Self { durations })
            .map_err(|why| format!("leaderElection: {why}"))
    }
}

impl Config {
    /// Reads the file, for this part of the product.
    ///
    /// # Errors
    /// When the file is missing or unreadable, and when it contains an unknown key or an invalid value. In
    /// the second case, the error has the line.
    pub fn load(path: &Path, component: impl Into<Component>) -> Result<Self, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable(path.to_owned(), error);
        let text = fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text)
            .and_then(|config| config.suits(component))
            .map_err(|why| ConfigError::Invalid(path.to_owned(), why))
    }

    /// Rejects settings that have no effect for this part.
    fn suits(self, component: impl Into<Component>) -> Result<Self, String> {
        let operator = match component.into() {
            Component::Operator(operator) => operator,
            // It watches nothing, so the namespaces have no effect, and need none.
            Component::Gateway => return Ok(self),
        };
        match operator.needs_all_namespaces {
            Some(why) if !self.watch_namespaces.is_empty() => {
                Err(format!("watchNamespaces: must be empty: {why}"))
            }
            Some(_) | None => Ok(self),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
    }
}
