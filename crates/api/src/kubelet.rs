//! Classifies messages of the kubelet. The kubelet has no codes for these causes, only messages.

use k8s_openapi::api::core::v1::Event;

/// Returns whether the kubelet cannot verify that the container does not run as root.
#[must_use]
pub fn needs_root(message: &str) -> bool {
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
#[must_use]
pub fn is_missing(message: &str) -> bool {
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
#[must_use]
pub fn is_late(message: &str) -> bool {
    let lower = message.to_lowercase();
    [
        "failed to sync configmap cache",
        "failed to sync secret cache",
        "not registered",
    ]
    .iter()
    .any(|part| lower.contains(part))
}

/// Returns how many times an Event occurred.
#[must_use]
pub fn times(event: &Event) -> i32 {
    let series = event.series.as_ref().and_then(|series| series.count);
    series.or(event.count).unwrap_or(1)
}

/// Number of tries after which a late kubelet ([`is_late`]) has a problem. The delay between tries
/// doubles from half a second, so this is about five seconds after the first try.
pub const LATE: i32 = 3;
