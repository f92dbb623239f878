//! Facts that exist only in the messages of Kubernetes' namespace controller, in the conditions of a
//! namespace in deletion.
//!
//! # Caveats
//! Another release may write another text. It is then ignored.

/// Returns the finalizers that block a namespace, from its controller's message: `…:
/// example.com/backup in 1 resource instances, …`.
pub(crate) fn finalizers(message: &str) -> Vec<String> {
    let Some((_, list)) = message.split_once("finalizers remaining: ") else {
        return Vec::new();
    };
    list.split(", ")
        .filter_map(|one| Some(one.split_once(" in ")?.0.to_owned()))
        .collect()
}

/// Returns plural and group of the objects that remain in a namespace: `…: configmaps. has 1
/// resource instances, deployments.apps has 2 resource instances`.
#[cfg(any(feature = "gather", test))]
pub(crate) fn remaining(message: &str) -> Vec<(&str, &str)> {
    let Some((_, list)) = message.split_once("resources are remaining: ") else {
        return Vec::new();
    };
    list.split(", ")
        .filter_map(|one| one.split_once(" has ")?.0.split_once('.'))
        .collect()
}

/// Returns the APIService of an API group that does not respond: `…: metrics.k8s.io/v1beta1: stale
/// GroupVersion discovery: …`.
pub(crate) fn stale_group(message: &str) -> Option<String> {
    let (_, list) = message.split_once("list of server APIs: ")?;
    let (group, rest) = list.split_once('/')?;
    let version = rest.split([':', ',', ' ']).next()?;
    (!group.contains(' ')).then(|| [version, ".", group].concat())
}

#[cfg(test)]
mod tests;
