//! The configuration file: typed, every field defaulted, every value checked while it is read, so
//! that an error names its line.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use api::tasks::{Amount, Resources};
use engine::leader::Durations;
use serde::{Deserialize, Deserializer, de::Error};
use tasks::run::docs::Settings;

use crate::logging;

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
    #[serde(deserialize_with = "namespaces")]
    pub watch_namespaces: Vec<String>,
    /// How many objects of a kind are worked on at once.
    #[serde(deserialize_with = "concurrency")]
    pub concurrency: usize,
    /// What is logged.
    pub log: Log,
    /// Of the tasks family.
    pub tasks: Tasks,
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
            leader_election: LeaderElection::default(),
        }
    }
}

/// What is logged.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Log {
    /// A level for everything, then exceptions: `info,engine=debug`.
    #[serde(deserialize_with = "filter")]
    pub filter: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            filter: logging::DEFAULT.to_owned(),
        }
    }
}

/// Of the tasks family.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tasks {
    /// What an Agent gets that asks for nothing.
    #[serde(deserialize_with = "resources")]
    pub default_resources: Resources,
    /// What becomes of a run's Jobs and ConfigMaps after its end.
    pub cleanup: Cleanup,
    /// How long after its end a run itself is deleted, with all that is known of it; never, if it
    /// is missing.
    #[serde(deserialize_with = "wait")]
    pub delete_finished_runs_after: Option<Duration>,
    /// Of DocsRuns.
    pub docs: Docs,
}

/// Of DocsRuns.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Docs {
    /// The image with `git`, `ssh` and the steps around an agent.
    #[serde(deserialize_with = "image")]
    pub toolbox_image: String,
    /// Networks of Git servers beside public addresses, as CIDRs. Pods, Services and nodes usually
    /// have addresses that are not public: without this, no run reaches them.
    #[serde(deserialize_with = "networks")]
    pub allowed_networks: Vec<String>,
    /// Whether `http://` repositories may be used. Their credentials are readable on the way.
    pub plain_http: bool,
    /// The most space that a repository may need on a node, in MiB.
    #[serde(rename = "repositoryLimitMiB", deserialize_with = "mebibytes")]
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
    #[serde(deserialize_with = "minutes")]
    pub completed_job_delay_minutes: u32,
    /// How long Jobs stay after any other end.
    #[serde(deserialize_with = "minutes")]
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
    /// Reads the file.
    ///
    /// # Errors
    /// When it is missing or unreadable, and when anything in it is not known or not possible;
    /// then with the line.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable(path.to_owned(), error);
        let text = fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text).map_err(|why| ConfigError::Invalid(path.to_owned(), why))
    }

    fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
    }
}

fn namespaces<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    for (index, name) in names.iter().enumerate() {
        let inside = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_name = (1..=63).contains(&name.len())
            && name.bytes().all(inside)
            && !name.starts_with('-')
            && !name.ends_with('-');
        if !is_name {
            return Err(D::Error::custom(format!(
                "watchNamespaces: '{name}' is not the name of a namespace"
            )));
        }
        if names[..index].contains(name) {
            return Err(D::Error::custom(format!(
                "watchNamespaces: '{name}' is there twice"
            )));
        }
    }
    Ok(names)
}

/// Each key that is worked on holds a connection and an object or two: more than 1024 would only
/// wait for the API server.
fn concurrency<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match u32::deserialize(deserializer)? {
        count @ 1..=1024 => Ok(count as usize),
        other => Err(D::Error::custom(format!(
            "concurrency: must be from 1 to 1024, found {other}"
        ))),
    }
}

/// Up to a year: a longer delay is a slip.
fn minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        count @ 0..=527_040 => Ok(count),
        other => Err(D::Error::custom(format!(
            "cleanup: a delay must be from 0 to 527040 minutes, found {other}"
        ))),
    }
}

/// From a minute, so that whoever waits for a run can see how it ended.
fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wait = match text.parse::<api::Duration>() {
        Ok(wait) => Duration::from(wait),
        Err(_) => Duration::ZERO,
    };
    let is_written = !text.starts_with(['-', '+']);
    if is_written && (60..=366 * 86_400).contains(&wait.as_secs()) {
        return Ok(Some(wait));
    }
    Err(D::Error::custom(format!(
        "deleteFinishedRunsAfter: must be a duration from '1m' to '8784h', such as '72h', found '{text}'"
    )))
}

fn image<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let image = String::deserialize(deserializer)?;
    let is_one = !image.is_empty()
        && image.len() <= 512
        && image.bytes().all(|byte| byte.is_ascii_graphic())
        && !image.starts_with('-');
    if is_one {
        return Ok(image);
    }
    Err(D::Error::custom(
        "docs.toolboxImage: must be the name of an image, such as 'registry.example.com/orchestrator-toolbox:1'",
    ))
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let networks = Vec::<String>::deserialize(deserializer)?;
    git::Networks::parse(&networks)
        .map_err(|why| D::Error::custom(format!("docs.allowedNetworks: {why}")))?;
    Ok(networks)
}

/// Up to a tebibyte: more is a slip.
fn mebibytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        size @ 1..=1_048_576 => Ok(size),
        other => Err(D::Error::custom(format!(
            "docs.repositoryLimitMiB: must be from 1 to 1048576, found {other}"
        ))),
    }
}

fn filter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let filter = String::deserialize(deserializer)?;
    logging::check(&filter).map_err(|why| D::Error::custom(format!("log.filter: {why}")))?;
    Ok(filter)
}

fn resources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Resources, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
    struct Strict {
        requests: BTreeMap<String, String>,
        limits: BTreeMap<String, String>,
    }
    let Strict { requests, limits } = Strict::deserialize(deserializer)?;
    for (part, amounts) in [("requests", &requests), ("limits", &limits)] {
        for (name, amount) in amounts {
            if size(amount).is_none() {
                return Err(D::Error::custom(format!(
                    "defaultResources.{part}.{name}: '{amount}' is not a quantity such as 2, 500m or 1Gi"
                )));
            }
        }
    }
    for (name, limit) in &limits {
        if let Some(request) = requests.get(name)
            && size(request) > size(limit)
        {
            return Err(D::Error::custom(format!(
                "defaultResources: the request of {name}, {request}, is more than its limit, {limit}"
            )));
        }
    }
    let amounts = |part: BTreeMap<String, String>| {
        part.into_iter()
            .map(|(name, amount)| (name, Amount(amount)))
            .collect()
    };
    Ok(Resources {
        requests: amounts(requests),
        limits: amounts(limits),
    })
}

/// The size of a quantity, near enough to compare two; the same grammar as in the kinds' schema.
fn size(quantity: &str) -> Option<f64> {
    let digits = quantity
        .bytes()
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b'.'))
        .count();
    let (number, suffix) = quantity.split_at(digits);
    let factor = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 2_f64.powi(10),
        "Mi" => 2_f64.powi(20),
        "Gi" => 2_f64.powi(30),
        "Ti" => 2_f64.powi(40),
        "Pi" => 2_f64.powi(50),
        "Ei" => 2_f64.powi(60),
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if !(1..=18).contains(&whole.len()) || !(1..=9).contains(&part.len()) || part.contains('.') {
        return None;
    }
    match number.parse::<f64>() {
        Ok(number) => Some(number * factor),
        Err(_not_a_number) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_defaults() {
        for text in ["", "# nothing\n", "{}"] {
            assert_eq!(Config::parse(text).unwrap(), Config::default(), "{text}");
        }
        let Config {
            watch_namespaces,
            concurrency,
            log,
            tasks,
            leader_election,
        } = Config::default();
        assert!(watch_namespaces.is_empty());
        assert_eq!(concurrency, 32);
        assert_eq!(log.filter, logging::DEFAULT);
        assert_eq!(leader_election.durations, Durations::default());
        assert_eq!(
            tasks::run::Cleanup::from(tasks.cleanup),
            tasks::run::Cleanup::default()
        );
        assert_eq!(tasks.delete_finished_runs_after, None);
        assert_eq!(Settings::from(tasks.docs), Settings::default());
        let Resources { requests, limits } = tasks.default_resources;
        assert_eq!(requests["cpu"].0, "100m");
        assert_eq!(
            (requests["memory"].0.as_str(), limits["memory"].0.as_str()),
            ("128Mi", "512Mi")
        );
        assert_eq!((requests.len(), limits.len()), (2, 1));
    }

    #[test]
    fn defaults_would_be_accepted_if_they_were_written() {
        let written = "
watchNamespaces: []
concurrency: 32
log:
  filter: info,hyper=warn,hyper_util=warn,kube_client=warn,russh=warn,rustls=warn,tower=warn
tasks:
  defaultResources:
    requests: {cpu: 100m, memory: 128Mi}
    limits: {memory: 512Mi}
  cleanup:
    enabled: true
    completedJobDelayMinutes: 5
    failedJobDelayMinutes: 60
    deleteConfigMap: true
  docs:
    toolboxImage: localhost/orchestrator-toolbox:0.1.0
    allowedNetworks: []
    plainHttp: false
    repositoryLimitMiB: 1024
leaderElection: {leaseDurationSeconds: 15, renewSeconds: 5}
";
        assert_eq!(Config::parse(written).unwrap(), Config::default());
    }

    #[test]
    fn every_field_is_read() {
        let config = Config::parse(
            "
watchNamespaces: [team-a, team-b]
concurrency: 8
log: {filter: debug}
tasks:
  defaultResources:
    requests: {cpu: 2, example.com/gpu: 1}
  cleanup: {enabled: false, completedJobDelayMinutes: 0, failedJobDelayMinutes: 7, deleteConfigMap: false}
  deleteFinishedRunsAfter: 36h30m
  docs: {toolboxImage: toolbox:2, allowedNetworks: [10.1.0.0/16, 'fd00::/8'], plainHttp: true, repositoryLimitMiB: 7}
leaderElection: {leaseDurationSeconds: 60, renewSeconds: 10}
",
        )
        .unwrap();
        assert_eq!(config.watch_namespaces, ["team-a", "team-b"]);
        assert_eq!(
            (config.concurrency, config.log.filter.as_str()),
            (8, "debug")
        );
        let settings = Settings {
            toolbox_image: "toolbox:2".to_owned(),
            allowed_networks: vec!["10.1.0.0/16".to_owned(), "fd00::/8".to_owned()],
            plain_http: true,
            repository_limit_mib: 7,
        };
        assert_eq!(Settings::from(config.tasks.docs), settings);
        let resources = config.tasks.default_resources;
        assert_eq!(resources.requests["cpu"].0, "2");
        assert!(
            resources.limits.is_empty(),
            "what is given replaces the default as a whole"
        );
        let cleanup = tasks::run::Cleanup::from(config.tasks.cleanup);
        let wanted = tasks::run::Cleanup {
            enabled: false,
            after_success: Duration::ZERO,
            after_failure: Duration::from_mins(7),
            delete_config_map: false,
        };
        assert_eq!(cleanup, wanted);
        assert_eq!(
            config.tasks.delete_finished_runs_after,
            Some(Duration::from_mins(36 * 60 + 30))
        );
        let wanted = Durations::new(Duration::from_mins(1), Duration::from_secs(10)).unwrap();
        assert_eq!(config.leader_election.durations, wanted);
    }

    #[test]
    fn r16_what_is_wrong_is_refused_with_key_and_line() {
        let table = [
            ("concurency: 3\n", "line 1", "`concurency`"),
            (
                "concurrency: 3\n\ntasks:\n  defaultResource: {}\n",
                "line 4",
                "`defaultResource`",
            ),
            ("concurrency: many\n", "line 1", "u32"),
            (
                "log: {}\nconcurrency: 0\n",
                "line 2",
                "from 1 to 1024, found 0",
            ),
            ("concurrency: 1025", "line 1", "concurrency"),
            ("concurrency: 1\nconcurrency: 2\n", "line 2", "concurrency"),
            ("\nwatchNamespaces: team-a\n", "line 2", "sequence"),
            ("watchNamespaces: [Team]\n", "line 1", "'Team'"),
            (
                "watchNamespaces: [a, b, a]\n",
                "line 1",
                "'a' is there twice",
            ),
            ("watchNamespaces: ['']\n", "line 1", "''"),
            ("log:\n  filter: engine=debug\n", "line 2", "log.filter"),
            ("log:\n  filter: loud\n", "line 2", "log.filter"),
            (
                "tasks:\n  defaultResources:\n    requests: {cpu: -1}\n",
                "line 3",
                "defaultResources.requests.cpu: '-1'",
            ),
            (
                "tasks:\n  defaultResources:\n    requests: {memory: 2Gi}\n    limits: {memory: 1G}\n",
                "line 3",
                "the request of memory, 2Gi, is more than its limit, 1G",
            ),
            (
                "tasks:\n  defaultResources:\n    claims: []\n",
                "line 3",
                "`claims`",
            ),
            (
                "tasks:\n  cleanup: {completedJobDelayMinutes: -1}\n",
                "line 2",
                "u32",
            ),
            (
                "tasks:\n  cleanup:\n    failedJobDelayMinutes: 600000\n",
                "line 3",
                "from 0 to 527040 minutes, found 600000",
            ),
            (
                "tasks:\n  deleteFinishedRunsAfter: 30s\n",
                "line 2",
                "found '30s'",
            ),
            (
                "tasks:\n  deleteFinishedRunsAfter: -72h\n",
                "line 2",
                "found '-72h'",
            ),
            (
                "tasks:\n  deleteFinishedRunsAfter: soon\n",
                "line 2",
                "found 'soon'",
            ),
            (
                "tasks:\n  docs:\n    allowedNetworks: [10.0.0.0/33]\n",
                "line 3",
                "docs.allowedNetworks",
            ),
            (
                "tasks:\n  docs:\n    toolboxImage: ''\n",
                "line 3",
                "docs.toolboxImage",
            ),
            (
                "tasks:\n  docs: {repositoryLimitMiB: 0}\n",
                "line 2",
                "from 1 to 1048576, found 0",
            ),
            (
                "tasks:\n  docs: {allowHttp: true}\n",
                "line 2",
                "`allowHttp`",
            ),
            (
                "leaderElection: {renewSeconds: 6}\n",
                "line 1",
                "leaderElection",
            ),
            (
                "leaderElection:\n  leaseDuration: 6\n",
                "line 2",
                "`leaseDuration`",
            ),
            ("[1, 2]", "line 1", "mapping"),
            ("concurrency: [\n", "line", ""),
            ("a: 1\n---\nb: 2\n", "line", ""),
        ];
        for (text, line, wanted) in table {
            let why = Config::parse(text).unwrap_err();
            assert!(why.contains(line) && why.contains(wanted), "{text}: {why}");
            assert!(!why.contains('\n'), "one line: {why}");
        }
    }

    #[test]
    fn quantities_are_those_of_the_schema() {
        for (text, wanted) in [
            ("2", Some(2.0)),
            ("1.5", Some(1.5)),
            ("500m", Some(0.5)),
            ("1Ki", Some(1024.0)),
            ("1k", Some(1000.0)),
            ("", None),
            ("Gi", None),
            ("1gi", None),
            ("1.2.3", None),
            ("1.", None),
            (".5", None),
            ("1e3", None),
            ("-1", None),
            ("1 Gi", None),
            ("1234567890123456789", None),
        ] {
            assert_eq!(size(text), wanted, "{text}");
        }
    }

    #[test]
    fn r16_a_missing_file_is_named() {
        let path = Path::new("/no/such/config.yaml");
        let why = Config::load(path).unwrap_err().to_string();
        assert!(
            why.contains("/no/such/config.yaml") && why.contains("cannot read"),
            "{why}"
        );
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(
            Config::load(folder.path()),
            Err(ConfigError::Unreadable(..))
        ));
        let file = folder.path().join("config.yaml");
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(matches!(
            Config::load(&file),
            Err(ConfigError::Unreadable(..))
        ));
    }
}
