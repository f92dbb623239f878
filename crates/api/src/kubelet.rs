//! What the kubelet's words mean. It has no codes for these: its messages are all there is.

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
