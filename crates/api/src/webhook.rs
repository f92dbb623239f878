//! Admission webhooks that the API server could not call.

use std::fmt;

/// The start of a message about a webhook that could not be called.
const WEBHOOK: &str = "the admission webhook '";

/// The API server's words about a webhook that it could not call, before the webhook's name.
const FAILED: &[&str] = &["failed calling webhook \"", "failed to call webhook \""];

/// Parts of the API server's message about a webhook that was too slow.
const TIMEOUTS: &[&str] = &["deadline exceeded", "i/o timeout", "awaiting headers"];

/// A webhook that the API server could not call. The API server then rejects the request with 500, as for an error of
/// its own, and only the message shows the difference.
///
/// Its text is the first clause of a message, such as `the admission webhook 'w' cannot be called`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedWebhook<'a> {
    /// Name of the webhook.
    pub name: &'a str,
    /// Service and namespace of the webhook, unless it has a URL.
    pub service: Option<(&'a str, &'a str)>,
    /// Whether the webhook was too slow, so that each request takes as long as its timeout.
    pub is_timeout: bool,
}

impl<'a> FailedWebhook<'a> {
    /// Parses `failed calling webhook "w": failed to call webhook: Post "https://s.n.svc:443/path?timeout=10s": …`.
    #[must_use]
    pub fn find(message: &'a str) -> Option<Self> {
        let mut starts = FAILED.iter();
        let (_, rest) = starts.find_map(|start| message.split_once(*start))?;
        let (name, rest) = rest.split_once('"')?;
        let address = rest.split_once("https://").map(|(_, address)| address);
        let host = address.and_then(|address| address.split_once(".svc"));
        let service = host.and_then(|(host, _)| host.split_once('.'));
        Some(Self {
            name,
            service: service.filter(|(_, namespace)| !namespace.contains(['/', '.'])),
            is_timeout: TIMEOUTS.iter().any(|timeout| rest.contains(timeout)),
        })
    }
}

impl fmt::Display for FailedWebhook<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{WEBHOOK}{}'", self.name)?;
        if let Some((service, namespace)) = self.service {
            write!(out, " (Service '{service}' in namespace '{namespace}')")?;
        }
        out.write_str(if self.is_timeout {
            " did not answer in time"
        } else {
            " cannot be called"
        })
    }
}

/// Returns whether a message begins with the text of a [`FailedWebhook`].
#[must_use]
pub fn is_failed_webhook(message: &str) -> bool {
    message.starts_with(WEBHOOK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words are those of Kubernetes 1.36. `fault.rs` of the engine has the table of causes.
    #[test]
    fn a_webhook_is_found_in_the_message_of_a_controller() {
        for (message, expected) in [
            (
                "Error creating: Internal error occurred: failed calling webhook \"w.example\": failed to call webhook: Post \"https://hook.policy.svc:443/pods?timeout=10s\": dial tcp 10.0.3.4:443: connect: connection refused",
                Some(
                    "the admission webhook 'w.example' (Service 'hook' in namespace 'policy') cannot be called",
                ),
            ),
            (
                "create Pod redis-0 in StatefulSet redis failed error: Internal error occurred: failed calling webhook \"w\": failed to call webhook: Post \"https://10.0.0.1/pods?timeout=1s\": context deadline exceeded",
                Some("the admission webhook 'w' did not answer in time"),
            ),
            (
                "Internal error occurred: failed to call webhook \"w\": EOF",
                Some("the admission webhook 'w' cannot be called"),
            ),
            ("admission webhook \"w\" denied the request: no", None),
            ("pods \"a\" is forbidden: exceeded quota: q", None),
        ] {
            let found = FailedWebhook::find(message).map(|webhook| webhook.to_string());
            assert_eq!(found.as_deref(), expected, "{message}");
            assert!(found.is_none_or(|text| is_failed_webhook(&text)));
            assert!(!is_failed_webhook(message), "{message}");
        }
    }
}
