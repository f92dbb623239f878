//! What the kubelet's words mean. It has no codes for these: its messages are all there is.

use k8s_openapi::api::core::v1::Event;

/// A container that cannot be shown not to run as root.
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

/// A Secret or ConfigMap, or a key of one, that is not there.
#[must_use]
pub fn is_missing(message: &str) -> bool {
    let lower = message.to_lowercase();
    lower.contains("not found") || lower.contains("couldn't find key")
}

/// A file that the container's user may not execute.
#[must_use]
pub fn is_permission(message: &str) -> bool {
    message.to_lowercase().contains("permission denied")
}

/// A ConfigMap or Secret that the kubelet was just told of and has not read yet: it may ask for it
/// before the API server's authorizer knows that the Pod is on its node. Nothing is wrong with the
/// object, and the kubelet tries again by itself, half a second later.
#[must_use]
pub fn is_late(message: &str) -> bool {
    let lower = message.to_lowercase();
    [
        "failed to sync configmap cache",
        "failed to sync secret cache",
        "not registered",
    ]
    .iter()
    .any(|words| lower.contains(words))
}

/// How many times an Event was said.
#[must_use]
pub fn times(event: &Event) -> i32 {
    let series = event.series.as_ref().and_then(|series| series.count);
    series.or(event.count).unwrap_or(1)
}

/// A kubelet that still says so after this many tries is in trouble. Its pauses double from half a
/// second, so that this is some five seconds after the first.
pub const LATE: i32 = 3;
