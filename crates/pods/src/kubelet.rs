//! Classifies messages of the kubelet. The kubelet has no codes for these causes, only messages.

/// Returns whether the kubelet cannot verify that the container does not run as root.
pub(crate) fn needs_root(message: &str) -> bool {
    let lower = message.to_lowercase();
    [
        "runasnonroot",
        "run as root",
        "runs as root",
        "non-numeric user",
    ]
    .iter()
    .any(|word| lower.contains(word))
}

/// Returns whether a Secret, a ConfigMap, or a key of one does not exist.
pub(crate) fn is_missing(message: &str) -> bool {
    let lower = message.to_lowercase();
    lower.contains("not found") || lower.contains("couldn't find key")
}

/// Returns whether the container's user may not execute a file.
#[must_use]
pub fn is_permission(message: &str) -> bool {
    message.to_lowercase().contains("permission denied")
}

/// Returns whether the kubelet has not read a new ConfigMap or Secret yet.
///
/// The kubelet may request the object before the API server's authorizer knows that the Pod is on
/// its node. The object is correct, and the kubelet tries again half a second later.
pub(crate) fn is_late(message: &str) -> bool {
    let lower = message.to_lowercase();
    [
        "failed to sync configmap cache",
        "failed to sync secret cache",
        "not registered",
    ]
    .iter()
    .any(|part| lower.contains(part))
}

/// Number of tries after which a late kubelet ([`is_late`]) has a problem. The delay between tries
/// doubles from half a second, so this is about five seconds after the first try.
pub(crate) const LATE: i32 = 3;
