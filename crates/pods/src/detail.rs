//! Details of a cause that exist only in the message: of a registry, of the scheduler, of the kubelet.
//!
//! # Caveats
//! Another release may write another text. Then the cause is the same, without the detail.

/// Why an image cannot be pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullFailure {
    /// The image is not on the node, and must not be pulled.
    Never,
    /// The name is not valid.
    InvalidName,
    /// The name of the registry does not resolve.
    Unresolved,
    /// The registry does not respond.
    Unreachable,
    /// The registry limits the number of requests.
    Limited,
    /// The registry denies access, also to an image that does not exist.
    Refused,
    /// The registry does not have the image.
    NotFound,
    /// Any other cause.
    Other,
}

/// The words of registries, in the order in which they are searched.
const REGISTRY: &[(PullFailure, &[&str])] = &[
    (
        PullFailure::Unreachable,
        &[
            "no such host",
            "i/o timeout",
            "connection refused",
            "x509",
            "no route to host",
            "network is unreachable",
            "deadline exceeded",
            "tls",
        ],
    ),
    (PullFailure::Limited, &["toomanyrequests", "rate limit"]),
    (
        PullFailure::Refused,
        &[
            "unauthorized",
            "denied",
            "forbidden",
            "authentication",
            "401",
            "403",
        ],
    ),
    (
        PullFailure::NotFound,
        &["not found", "manifest unknown", "notfound"],
    ),
];

impl PullFailure {
    /// Classifies the kubelet's reason first, then the registry's message.
    #[must_use]
    pub fn of(reason: &str, message: &str) -> Self {
        let lower = message.to_lowercase();
        let has = |(_, words): &&(Self, &[&str])| words.iter().any(|word| lower.contains(word));
        match reason {
            "ErrImageNeverPull" => Self::Never,
            "InvalidImageName" => Self::InvalidName,
            _ if unresolved_host(message).is_some() => Self::Unresolved,
            _ => REGISTRY
                .iter()
                .find(has)
                .map_or(Self::Other, |(failure, _)| *failure),
        }
    }
}

/// Returns the host that does not resolve, in `dial tcp: lookup HOST on SERVER:53: no such host`, or in another
/// error of the DNS lookup.
#[must_use]
pub fn unresolved_host(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(": lookup ")?;
    let host = rest.split([' ', ':']).next()?;
    (!host.is_empty()).then_some(host)
}

/// Why nodes cannot take a Pod, and the number of nodes.
#[derive(Debug, PartialEq, Eq)]
pub struct UnfitNodes {
    /// Number of nodes, or 0 if it is unknown.
    pub count: usize,
    /// The cause.
    pub cause: Unfit,
}

/// Why a node cannot take a Pod.
#[derive(Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Too little of this resource is free.
    Insufficient(String),
    /// The Pod does not tolerate this taint.
    Taint(String),
    /// The node does not have the labels that the Pod requires.
    Selector,
    /// The node is cordoned.
    Cordoned,
    /// The node has the maximum number of Pods.
    TooManyPods,
    /// Any other cause.
    Other(String),
}

impl Unfit {
    /// Returns whether nodes lack capacity.
    #[must_use]
    pub fn is_capacity(&self) -> bool {
        matches!(self, Self::Insufficient(_) | Self::TooManyPods)
    }

    /// Returns whether a taint of Kubernetes shows that a node is out of use.
    #[must_use]
    pub fn is_out_of_use(&self) -> bool {
        matches!(self, Self::Taint(taint) if taint.starts_with("node.kubernetes.io/"))
    }
}

/// Parses `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.
/// preemption: …`.
#[must_use]
pub fn unfit_nodes(message: &str) -> Vec<UnfitNodes> {
    let Some((_, rest)) = message.split_once("nodes are available: ") else {
        return Vec::new();
    };
    let ends = [
        ". preemption:",
        ". no new claims",
        ". still not schedulable",
    ];
    let end = ends.iter().filter_map(|word| rest.find(word)).min();
    let list = rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest);
    let mut pieces: Vec<String> = Vec::new();
    for piece in list.trim_end_matches('.').split(", ") {
        let is_new = piece.starts_with(|letter: char| letter.is_ascii_digit());
        match pieces.last_mut() {
            // This comma is inside the text of one reason.
            Some(last) if !is_new => {
                last.push_str(", ");
                last.push_str(piece);
            }
            Some(_) | None => pieces.push(piece.to_owned()),
        }
    }
    pieces.iter().take(8).map(|piece| unfit(piece)).collect()
}

fn unfit(piece: &str) -> UnfitNodes {
    let (count, words) = match piece.split_once(' ') {
        Some((count, words)) => match count.parse() {
            Ok(count) => (count, words),
            Err(_) => (0, piece),
        },
        None => (0, piece),
    };
    let cause = if let Some(resource) = words.strip_prefix("Insufficient ") {
        Unfit::Insufficient(resource.to_owned())
    } else if let Some((_, taint)) = words.split_once("untolerated taint") {
        let taint = taint.trim_start_matches("(s)").trim();
        Unfit::Taint(taint.trim_matches(['{', '}', ' ']).to_owned())
    } else if words.contains("affinity/selector") {
        Unfit::Selector
    } else if words.contains("were unschedulable") {
        Unfit::Cordoned
    } else if words.contains("Too many pods") {
        Unfit::TooManyPods
    } else {
        Unfit::Other(words.to_owned())
    };
    UnfitNodes { count, cause }
}

/// Returns the Secret or ConfigMap that does not exist or lacks a key: kind, name, key.
#[must_use]
pub fn missing_object(message: &str) -> Option<(&'static str, String, Option<String>)> {
    let kinds = [("Secret", "secret"), ("ConfigMap", "configmap")];
    // `couldn't find key K in Secret team/token`
    if let Some((_, rest)) = message.split_once("couldn't find key ") {
        let (key, place) = rest.split_once(" in ")?;
        let (kind, name) = place.split_once(' ')?;
        let name = name.rsplit('/').next().unwrap_or(name);
        let name = name.split(char::is_whitespace).next().unwrap_or_default();
        let mut kinds = kinds.iter();
        let (kind, _) = kinds.find(|(_, word)| kind.eq_ignore_ascii_case(word))?;
        return Some((kind, name.to_owned(), Some(key.to_owned())));
    }
    // `secret "token" not found`, `secrets "token" not found`, `references non-existent secret key: k`
    kinds.iter().find_map(|(kind, word)| {
        let lower = message.to_lowercase();
        let start = [format!("{word} \""), format!("{word}s \"")]
            .iter()
            .find_map(|start| Some(lower.find(start.as_str())? + start.len()))?;
        let name = message.get(start..)?.split('"').next()?;
        Some((*kind, name.to_owned(), None))
    })
}

#[cfg(test)]
mod tests;
