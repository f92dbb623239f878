//! The configuration file: typed, every field defaulted, every value checked while it is read, so
//! that an error names its line.

mod read;
#[cfg(test)]
mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use api::{
    tasks::{Amount, Resources},
    tenants::{OWNER_ROLE, PROBE_CLASS},
};
use engine::leader::Durations;
use serde::Deserialize;
use tasks::run::docs::Settings;

use crate::{arguments::Family, logging};

/// Why there is no configuration. The process does not start without one: defaults in place of
/// what somebody wrote would be a guess.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is missing, or cannot be read.
    #[error("cannot read the configuration '{0}': {1}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// The file says something that is not known or not possible.
    #[error("the configuration '{0}' is not valid: {1}")]
    Invalid(PathBuf, String),
}

/// The configuration.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// The namespaces whose objects are looked at; none means all.
    #[serde(deserialize_with = "read::namespaces")]
    pub watch_namespaces: Vec<String>,
    /// How many objects of a kind are worked on at once.
    #[serde(deserialize_with = "read::concurrency")]
    pub concurrency: usize,
    /// What is logged.
    pub log: Log,
    /// Of the tasks family.
    pub tasks: Tasks,
    /// Of the tenants family.
    pub tenants: Tenants,
    /// How the leader is found.
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
            leader_election: LeaderElection::default(),
        }
    }
}

/// What is logged.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Log {
    /// A level for everything, then exceptions: `info,engine=debug`.
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

/// Of the tenants family.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tenants {
    /// What a server or a Redis gets that asks for nothing.
    #[serde(deserialize_with = "read::resources")]
    pub default_resources: Resources,
    /// The namespace of the cluster's DNS.
    #[serde(deserialize_with = "read::dns_namespace")]
    pub dns_namespace: String,
    /// The image of the Pods that try whether a Tenant is isolated: the same as that of DocsRuns' steps.
    #[serde(deserialize_with = "read::probe_image")]
    pub probe_image: String,
}

impl Default for Tenants {
    fn default() -> Self {
        Self {
            default_resources: Tasks::default().default_resources,
            dns_namespace: "kube-system".to_owned(),
            probe_image: Docs::default().toolbox_image,
        }
    }
}

impl Tenants {
    /// For an operator in this namespace: the Pods that try from outside are there, too.
    #[must_use]
    pub fn settings(&self, own_namespace: &str) -> tenants::build::Settings {
        let Self {
            default_resources,
            dns_namespace,
            probe_image,
        } = self.clone();
        tenants::build::Settings {
            default_resources: serde_json::json!(default_resources),
            dns_namespace,
            owner_role: OWNER_ROLE.to_owned(),
            probe_priority_class: PROBE_CLASS.to_owned(),
            probe_image,
            probe_namespace: own_namespace.to_owned(),
        }
    }
}

/// Of the tasks family.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tasks {
    /// What an Agent gets that asks for nothing.
    #[serde(deserialize_with = "read::resources")]
    pub default_resources: Resources,
    /// What becomes of a run's Jobs and ConfigMaps after its end.
    pub cleanup: Cleanup,
    /// How long after its end a run itself is deleted, with all that is known of it; never, if it
    /// is missing.
    #[serde(deserialize_with = "read::wait")]
    pub delete_finished_runs_after: Option<Duration>,
    /// Of DocsRuns.
    pub docs: Docs,
}

/// Of DocsRuns.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Docs {
    /// The image with `git`, `ssh` and the steps around an agent.
    #[serde(deserialize_with = "read::toolbox_image")]
    pub toolbox_image: String,
    /// Networks of Git servers beside public addresses, as CIDRs. Pods, Services and nodes usually
    /// have addresses that are not public: without this, no run reaches them.
    #[serde(deserialize_with = "read::networks")]
    pub allowed_networks: Vec<String>,
    /// Whether `http://` repositories may be used. Their credentials are readable on the way.
    pub plain_http: bool,
    /// The most space that a repository may need on a node, in MiB.
    #[serde(rename = "repositoryLimitMiB", deserialize_with = "read::mebibytes")]
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

/// What becomes of a run's Jobs and ConfigMaps after its end, where the run does not say.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cleanup {
    /// Whether anything is deleted.
    pub enabled: bool,
    /// How long Jobs stay after a success.
    #[serde(deserialize_with = "read::minutes")]
    pub completed_job_delay_minutes: u32,
    /// How long Jobs stay after any other end.
    #[serde(deserialize_with = "read::minutes")]
    pub failed_job_delay_minutes: u32,
    /// Whether ConfigMaps go with them.
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
            docs: Docs::default(),
        }
    }
}

/// How the leader is found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Election")]
pub struct LeaderElection {
    /// The times of an election.
    pub durations: Durations,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Election {
    lease_duration_seconds: u32,
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
        Durations::new(lease, seconds(election.renew_seconds))
            .map(|durations| Self { durations })
            .map_err(|why| format!("leaderElection: {why}"))
    }
}

impl Config {
    /// Reads the file, for this family.
    ///
    /// # Errors
    /// When it is missing or unreadable, and when anything in it is not known or not possible;
    /// then with the line.
    pub fn load(path: &Path, family: Family) -> Result<Self, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable(path.to_owned(), error);
        let text = fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text)
            .and_then(|config| config.suits(family))
            .map_err(|why| ConfigError::Invalid(path.to_owned(), why))
    }

    /// Refuses what this family would not heed.
    fn suits(self, family: Family) -> Result<Self, String> {
        match family {
            Family::Tenants if !self.watch_namespaces.is_empty() => Err(
                "watchNamespaces: must be empty: Tenants belong to the whole cluster, and make namespaces of their own"
                    .to_owned(),
            ),
            Family::Tasks | Family::Tenants => Ok(self),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
    }
}
