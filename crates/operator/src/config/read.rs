//! Parses the values of the configuration. Each is checked while it is parsed, so that the error has its
//! line.

use std::{collections::BTreeMap, time::Duration};

use api::tasks::{Amount, Resources};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error};
use tenants::build::{MOST_OBJECTS, OBJECT_LIMITS};

use crate::logging;

pub(super) fn namespaces<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    for (index, name) in names.iter().enumerate() {
        if !is_namespace(name) {
            return Err(D::Error::custom(format!(
                "watchNamespaces: '{name}' is not the name of a namespace"
            )));
        }
        if names[..index].contains(name) {
            return Err(D::Error::custom(format!(
                "watchNamespaces: '{name}' occurs twice"
            )));
        }
    }
    Ok(names)
}

pub(super) fn dns_namespace<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if !is_namespace(&name) {
        return Err(D::Error::custom(format!(
            "tenants.dnsNamespace: '{name}' is not the name of a namespace"
        )));
    }
    Ok(name)
}

pub(super) fn pm_namespace<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if !is_namespace(&name) {
        return Err(D::Error::custom(format!(
            "gateway.pm.namespace: '{name}' is not the name of a namespace"
        )));
    }
    Ok(name)
}

pub(super) fn streams_per_caller<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<u32, D::Error> {
    let count = u32::deserialize(deserializer)?;
    if !(1..=100).contains(&count) {
        return Err(D::Error::custom(
            "gateway.streamsPerCaller: must be from 1 to 100",
        ));
    }
    Ok(count)
}

/// Parses object limits. Unknown names are rejected: they would limit nothing, and nobody would notice.
pub(super) fn object_limits<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, u32>, D::Error> {
    let limits = BTreeMap::<String, u32>::deserialize(deserializer)?;
    for (name, limit) in &limits {
        let known: Vec<&str> = OBJECT_LIMITS.iter().map(|(known, _)| *known).collect();
        if !known.contains(&name.as_str()) {
            return Err(D::Error::custom(format!(
                "tenants.objectLimits: '{name}' is not one of {}",
                known.join(", ")
            )));
        }
        if !(1..=MOST_OBJECTS).contains(limit) {
            return Err(D::Error::custom(format!(
                "tenants.objectLimits.{name}: must be from 1 to {MOST_OBJECTS}, found {limit}"
            )));
        }
    }
    Ok(limits)
}

/// Parses networks of the cluster. None may be the whole internet: the API server accepts an exception only
/// if it is smaller than its network.
pub(super) fn cluster_networks<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let networks = Vec::<String>::deserialize(deserializer)?;
    git::Networks::parse(&networks)
        .map_err(|why| D::Error::custom(format!("tenants.clusterNetworks: {why}")))?;
    match networks.iter().find(|network| network.ends_with("/0")) {
        Some(network) => Err(D::Error::custom(format!(
            "tenants.clusterNetworks: '{network}' is everything, and leaves no internet"
        ))),
        None => Ok(networks),
    }
}

fn is_namespace(name: &str) -> bool {
    let inside = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=63).contains(&name.len())
        && name.bytes().all(inside)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Parses the concurrency. Each key in progress uses a connection and one or two objects. More than 1024 of
/// them would only wait for the API server.
pub(super) fn concurrency<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match u32::deserialize(deserializer)? {
        count @ 1..=1024 => Ok(count as usize),
        other => Err(D::Error::custom(format!(
            "concurrency: must be from 1 to 1024, found {other}"
        ))),
    }
}

/// Parses a number of minutes, up to a year. A longer delay is a mistake.
pub(super) fn minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        count @ 0..=527_040 => Ok(count),
        other => Err(D::Error::custom(format!(
            "cleanup: a delay must be from 0 to 527040 minutes, found {other}"
        ))),
    }
}

/// Parses a delay of at least a minute, so that clients that wait for a run can read its result.
pub(super) fn wait<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
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

pub(super) fn toolbox_image<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<String, D::Error> {
    image(deserializer, "docs.toolboxImage")
}

pub(super) fn runner_image<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    image(deserializer, "notebooks.runnerImage")
}

/// Parses the maximum size of a result. Base64 makes it a third larger, and a frame in the log has at most 700 KiB.
pub(super) fn result_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        size @ 4096..=524_288 => Ok(size),
        other => Err(D::Error::custom(format!(
            "notebooks.results.maxBytes: must be from 4096 to 524288, found {other}"
        ))),
    }
}

pub(super) fn probe_image<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    image(deserializer, "tenants.probeImage")
}

fn image<'de, D: Deserializer<'de>>(deserializer: D, key: &str) -> Result<String, D::Error> {
    let image = String::deserialize(deserializer)?;
    let is_one = !image.is_empty()
        && image.len() <= 512
        && image.bytes().all(|byte| byte.is_ascii_graphic())
        && !image.starts_with('-');
    if is_one {
        return Ok(image);
    }
    Err(D::Error::custom(format!(
        "{key}: must be the name of an image, such as 'registry.example.com/orchestrator-toolbox:1'"
    )))
}

pub(super) fn networks<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let networks = Vec::<String>::deserialize(deserializer)?;
    git::Networks::parse(&networks)
        .map_err(|why| D::Error::custom(format!("docs.allowedNetworks: {why}")))?;
    Ok(networks)
}

/// Parses a size in MiB, up to a tebibyte. A larger size is a mistake.
pub(super) fn mebibytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        size @ 1..=1_048_576 => Ok(size),
        other => Err(D::Error::custom(format!(
            "docs.repositoryLimitMiB: must be from 1 to 1048576, found {other}"
        ))),
    }
}

pub(super) fn filter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let filter = String::deserialize(deserializer)?;
    logging::check(&filter).map_err(|why| D::Error::custom(format!("log.filter: {why}")))?;
    Ok(filter)
}

/// The fields of `defaultResources`. Unlike in the kinds, an unknown field is an error.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ContainerResources {
    /// Amount of each resource that is reserved for the container, such as `cpu: 500m`.
    #[schemars(with = "BTreeMap<String, Amount>")]
    requests: BTreeMap<String, String>,
    /// Maximum amount of each resource that the container may use, such as `memory: 1Gi`.
    #[schemars(with = "BTreeMap<String, Amount>")]
    limits: BTreeMap<String, String>,
}

pub(super) fn resources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Resources, D::Error> {
    let ContainerResources { requests, limits } = ContainerResources::deserialize(deserializer)?;
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

/// Returns the size of a quantity, with sufficient precision for comparisons. The grammar is that of the
/// kinds' schema.
pub(super) fn size(quantity: &str) -> Option<f64> {
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
