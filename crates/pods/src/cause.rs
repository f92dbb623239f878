//! The table of causes: from a report of kubelet, scheduler or API server to one of our reasons.

use api::Reason;

use crate::kubelet::{LATE, is_late, is_missing, is_permission, needs_root};

/// A cause that blocks a Pod, for the status of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Reason of the condition.
    pub reason: Reason,
    /// Message of the condition.
    pub message: String,
}

impl Cause {
    /// Creates a cause.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// Why a container does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFailure {
    /// The image cannot be pulled.
    Image,
    /// The kubelet cannot verify that the container does not run as root.
    Root,
    /// The container's user may not execute the program.
    NotExecutable,
    /// A Secret, a ConfigMap, or a key of one does not exist.
    Missing,
    /// The container cannot be started for another cause.
    NotStartable,
}

impl StartFailure {
    /// Classifies the kubelet's reason and message for a container that waits, or that ended without a start. Returns
    /// `None` if the reason is normal for a start.
    ///
    /// `tries` is the number of failed starts. A kubelet that reads a new Secret or ConfigMap late is no failure before
    /// some tries. A caller that does not know the number passes 0, and reads the Events with [`warning_reason`].
    #[must_use]
    pub fn of(reason: &str, message: &str, tries: i32) -> Option<Self> {
        match reason {
            "ErrImagePull"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "RegistryUnavailable"
            | "ImageInspectError"
            | "SignatureValidationFailed" => Some(Self::Image),
            "CreateContainerConfigError" if is_late(message) && tries < LATE => None,
            "CreateContainerConfigError" if needs_root(message) => Some(Self::Root),
            "CreateContainerConfigError" if is_missing(message) => Some(Self::Missing),
            "CreateContainerError" | "RunContainerError" | "StartError" | "ContainerCannotRun"
                if is_permission(message) =>
            {
                Some(Self::NotExecutable)
            }
            "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "StartError"
            | "ContainerCannotRun" => Some(Self::NotStartable),
            _ => None,
        }
    }

    /// Returns the reason of a condition.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::Image => Reason::ImagePullFailed,
            Self::Root => Reason::ImageNeedsRoot,
            Self::Missing => Reason::SecretNotFound,
            // A file without the execute permission, such as `/etc/passwd`, needs no root.
            Self::NotExecutable | Self::NotStartable => Reason::ContainerNotStartable,
        }
    }

    /// Returns the cause for a status. `pod` describes the Pod, and `user` is the user ID of its container.
    #[must_use]
    pub fn cause(self, pod: &str, message: &str, user: Option<i64>) -> Cause {
        let text = match self {
            Self::Image => format!(
                "{pod}: the image cannot be pulled{}",
                after_colon(pull_error(message))
            ),
            Self::Root | Self::Missing => format!("{pod}{}", after_colon(message)),
            Self::NotExecutable => {
                let user = user.map_or_else(String::new, |user| format!(" {user}"));
                let detail = after_colon(message);
                format!("{pod}: the program cannot be executed by user{user}{detail}")
            }
            Self::NotStartable => format!(
                "{pod}: the container cannot be started{}",
                after_colon(message)
            ),
        };
        Cause::new(self.reason(), text)
    }
}

/// Returns the error of a pull, both right after a failure and while the kubelet waits for the next try. The kubelet
/// alternates between the two messages.
fn pull_error(message: &str) -> &str {
    let message = match message.strip_prefix("Back-off pulling image ") {
        Some(rest) => rest.split_once("\": ").map_or("", |(_, error)| error),
        None => message,
    };
    message.strip_prefix("ErrImagePull: ").unwrap_or(message)
}

/// Returns the message after a colon, or an empty text.
#[must_use]
pub fn after_colon(message: &str) -> String {
    let message = message.trim();
    if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    }
}

/// Reasons of Events about a volume that a Pod waits for.
pub const MOUNT_WARNINGS: &[&str] = &[
    "FailedMount",
    "FailedAttachVolume",
    "FailedMapVolume",
    "ProvisioningFailed",
];

/// Returns the reason of a condition for a Warning Event of a Pod, if the Event is about its volumes, or about a kubelet
/// that reads a Secret or ConfigMap late. All other rejections are in the state of the container, and the messages of the
/// scheduler are in the Pod's condition.
#[must_use]
pub fn warning_reason(reason: &str, message: &str, times: i32) -> Option<Reason> {
    let is_late = is_late(message);
    if is_late && times < LATE {
        return None;
    }
    if is_late && reason == "Failed" {
        return Some(Reason::ContainerNotStartable);
    }
    if !MOUNT_WARNINGS.contains(&reason) {
        return None;
    }
    let lower = message.to_lowercase();
    let names_one = lower.contains("secret") || lower.contains("configmap");
    Some(if names_one && is_missing(message) {
        Reason::SecretNotFound
    } else {
        Reason::VolumeNotReady
    })
}

/// Returns the reason of a condition for the scheduler's message about a Pod without a node.
#[must_use]
pub fn unscheduled_reason(message: &str) -> Reason {
    if message.to_lowercase().contains("volume") {
        Reason::VolumeNotReady
    } else {
        Reason::Unschedulable
    }
}

/// The rule by which the API server rejects an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// The object references another object that does not exist.
    NamesMissing,
    /// The Pod Security level of the namespace.
    PodSecurity,
    /// A quota is used up.
    Quota,
    /// A quota requires a limit that is not set.
    LimitMissing,
    /// A LimitRange.
    LimitRange,
    /// A webhook that does not respond.
    WebhookDown,
    /// A webhook.
    Webhook,
    /// A ValidatingAdmissionPolicy.
    Policy,
    /// The object itself is invalid.
    Invalid,
    /// Any other denial.
    Denied,
    /// No rule: the API server had a temporary problem.
    Unanswered,
}

impl Rejection {
    /// Classifies the API server's message, because these rejections have no codes of their own.
    #[must_use]
    pub fn of(message: &str) -> Self {
        let lower = message.to_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        let named = [
            "serviceaccount",
            "service account",
            "priorityclass",
            "runtimeclass",
        ];
        if has(&["not found", "was found"]) && has(&named) {
            Self::NamesMissing
        } else if has(&["violates podsecurity"]) {
            Self::PodSecurity
        } else if has(&["exceeded quota"]) {
            Self::Quota
        } else if has(&["must specify"]) {
            Self::LimitMissing
        } else if has(&["maximum", "minimum", "limitrange", "limit to request ratio"]) {
            Self::LimitRange
        } else if has(&["failed calling webhook", "failed to call webhook"]) {
            Self::WebhookDown
        } else if has(&["admission webhook"]) {
            Self::Webhook
        } else if has(&["validatingadmissionpolicy"]) {
            Self::Policy
        // The error of an invalid field may contain `Forbidden`, too.
        } else if has(&["is invalid"]) {
            Self::Invalid
        } else if has(&["denied", "forbidden", "webhook"]) {
            Self::Denied
        } else {
            Self::Unanswered
        }
    }

    /// Returns the reason of a condition, [`Reason::Progressing`] for a temporary problem.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::NamesMissing => Reason::DependencyNotReady,
            Self::Quota | Self::LimitMissing | Self::LimitRange => Reason::QuotaExceeded,
            Self::PodSecurity | Self::WebhookDown | Self::Webhook | Self::Policy | Self::Denied => {
                Reason::AdmissionDenied
            }
            Self::Invalid => Reason::InvalidChild,
            Self::Unanswered => Reason::Progressing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_does_not_start_has_one_cause() {
        let table = include_str!("waiting_containers.tsv");
        let mut rows = 0;
        for row in table.lines().filter(|row| !row.starts_with('#')) {
            let columns: Vec<&str> = row.split('\t').collect();
            let &[reason, message, tries, expected] = columns.as_slice() else {
                panic!("not a row: {row}");
            };
            let found = StartFailure::of(reason, message, tries.parse().unwrap());
            let found = found.map_or(Reason::Progressing, StartFailure::reason);
            assert_eq!(found.name(), expected, "{row}");
            rows += 1;
        }
        assert!(rows > 20, "{rows}");
    }

    /// Without this, the status would change with each try of the kubelet.
    #[test]
    fn a_failed_pull_has_one_message_at_each_try() {
        for message in [
            "rpc error: not found",
            "Back-off pulling image \"shop:2\": ErrImagePull: rpc error: not found",
        ] {
            let cause = StartFailure::Image.cause("Pod 'x'", message, None);
            assert_eq!(
                cause.message,
                "Pod 'x': the image cannot be pulled: rpc error: not found"
            );
        }
        let cause = StartFailure::Image.cause("Pod 'x'", "Back-off pulling image \"shop:2\"", None);
        assert_eq!(cause.message, "Pod 'x': the image cannot be pulled");
    }

    #[test]
    fn a_warning_about_a_volume_is_a_cause() {
        let late = "failed to sync secret cache: timed out waiting for the condition";
        let missing = "MountVolume.SetUp failed for volume \"a\" : secret \"s\" not found";
        let no_map = "MountVolume.SetUp failed for volume \"b\" : configmap \"c\" not found";
        for (reason, message, times, expected) in [
            ("FailedMount", missing, 1, Some(Reason::SecretNotFound)),
            ("FailedMount", no_map, 1, Some(Reason::SecretNotFound)),
            ("FailedMount", late, 2, None),
            ("FailedMount", late, 3, Some(Reason::VolumeNotReady)),
            ("Failed", late, 2, None),
            ("Failed", late, 3, Some(Reason::ContainerNotStartable)),
            ("Failed", missing, 9, None),
            (
                "FailedAttachVolume",
                "Multi-Attach error",
                1,
                Some(Reason::VolumeNotReady),
            ),
            ("FailedMapVolume", "x", 1, Some(Reason::VolumeNotReady)),
            ("Unhealthy", "x", 9, None),
        ] {
            let found = warning_reason(reason, message, times);
            assert_eq!(found, expected, "{reason}: {message}, {times} times");
        }
    }

    #[test]
    fn a_pod_without_a_node_lacks_capacity_or_its_volume() {
        for (message, expected) in [
            (
                "0/3 nodes are available: 3 Insufficient cpu.",
                Reason::Unschedulable,
            ),
            (
                "pod has unbound immediate PersistentVolumeClaims",
                Reason::VolumeNotReady,
            ),
            (
                "0/1 nodes are available: persistentvolumeclaim \"cache\" not found.",
                Reason::VolumeNotReady,
            ),
            (
                "0/1 nodes are available: 1 node(s) had volume node affinity conflict.",
                Reason::VolumeNotReady,
            ),
        ] {
            assert_eq!(unscheduled_reason(message), expected, "{message}");
        }
    }

    #[test]
    fn a_rejection_has_one_rule() {
        use Rejection::*;
        for (message, rule, reason) in [
            (
                "error looking up service account team/x: serviceaccount \"x\" not found",
                NamesMissing,
                Reason::DependencyNotReady,
            ),
            (
                "is forbidden: violates PodSecurity \"restricted:latest\"",
                PodSecurity,
                Reason::AdmissionDenied,
            ),
            (
                "is forbidden: exceeded quota: q, requested: pods=1",
                Quota,
                Reason::QuotaExceeded,
            ),
            (
                "is forbidden: failed quota: q: must specify limits.cpu for: agent",
                LimitMissing,
                Reason::QuotaExceeded,
            ),
            (
                "is forbidden: maximum cpu usage per Container is 1, but limit is 2",
                LimitRange,
                Reason::QuotaExceeded,
            ),
            (
                "is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 4",
                LimitRange,
                Reason::QuotaExceeded,
            ),
            (
                "Internal error occurred: failed calling webhook \"w\"",
                WebhookDown,
                Reason::AdmissionDenied,
            ),
            (
                "admission webhook \"w\" denied the request: the name is invalid",
                Webhook,
                Reason::AdmissionDenied,
            ),
            (
                "is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                Policy,
                Reason::AdmissionDenied,
            ),
            (
                "Pod \"x\" is invalid: spec.hostname: Forbidden: may not be set",
                Invalid,
                Reason::InvalidChild,
            ),
            (
                "pods \"x\" is forbidden: User \"u\" cannot create",
                Denied,
                Reason::AdmissionDenied,
            ),
            (
                "etcdserver: request timed out",
                Unanswered,
                Reason::Progressing,
            ),
        ] {
            let found = Rejection::of(message);
            assert_eq!((found, found.reason()), (rule, reason), "{message}");
        }
    }
}
