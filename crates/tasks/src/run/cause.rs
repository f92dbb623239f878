//! Why a container does not start: reports of kubelet, scheduler and Events, as one typed cause.
//!
//! A cause's message contains only the reported text, without the parts that change at each try.
//! Examples are the random name of a rejected Pod, and the alternating prefixes of a pull error. So
//! a repeated decision has the same message and writes nothing.

use api::{
    Reason, Timestamp,
    kubelet::{LATE, is_late, is_missing, is_permission, needs_root},
    warning::Warning,
};

use super::{disruption, world::describe_pod};
use crate::view::{CLONING, Container, JobView, PodView};

/// Cause that keeps a container from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Cause {
    fn new(reason: Reason, message: String) -> Self {
        Self { reason, message }
    }
}

/// Returns the cause that is visible now, if any. More specific sources come first.
pub(super) fn find(
    job: &JobView,
    pod: Option<&PodView>,
    warnings: &[Warning],
    user: Option<i64>,
    now: Timestamp,
) -> Option<Cause> {
    let Some(pod) = pod else {
        return newest(warnings, &job.uid, (job.created, now), from_job_warning);
    };
    stopped(pod, now)
        .or_else(|| container(pod, user))
        .or_else(|| unschedulable(pod))
        .or_else(|| {
            newest(warnings, &pod.uid, (job.created, now), |warning| {
                from_pod_warning(pod, warning)
            })
        })
}

/// Returns the cause for a Pod that was asked to stop before its container started, or that is
/// being replaced.
fn stopped(pod: &PodView, now: Timestamp) -> Option<Cause> {
    disruption::is_stopped(pod)
        .then(|| Cause::new(Reason::Disrupted, disruption::describe(pod, now)))
}

fn container(pod: &PodView, user: Option<i64>) -> Option<Cause> {
    let Container::Waiting(said) = &pod.container else {
        return None;
    };
    let pod = describe_pod(pod);
    let message = said.message.as_str();
    match said.reason.as_str() {
        CLONING => Some(Cause::new(
            Reason::Cloning,
            format!("{pod} clones the repository; its agent starts after that"),
        )),
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable"
        | "ImageInspectError"
        | "SignatureValidationFailed" => Some(Cause::new(
            Reason::ImagePullFailed,
            format!(
                "{pod}: the image cannot be pulled{}",
                after_colon(pull_error(message))
            ),
        )),
        "CreateContainerConfigError" if is_late(message) => None,
        "CreateContainerConfigError" if needs_root(message) => Some(Cause::new(
            Reason::ImageNeedsRoot,
            format!("{pod}: {message}"),
        )),
        "CreateContainerConfigError" if is_missing(message) => Some(Cause::new(
            Reason::SecretNotFound,
            format!("{pod}: {message}"),
        )),
        "CreateContainerError" | "RunContainerError" if is_permission(message) => {
            Some(not_executable(&pod, message, user))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            Some(Cause::new(
                Reason::ContainerNotStartable,
                format!(
                    "{pod}: the container cannot be started{}",
                    after_colon(message)
                ),
            ))
        }
        _ => None,
    }
}

/// Returns the cause if the image's program exists, but the user that agents run as may not execute
/// it.
pub(super) fn not_executable(pod: &str, message: &str, user: Option<i64>) -> Cause {
    let user = user.map_or_else(String::new, |user| format!(" {user}"));
    Cause::new(
        Reason::ImageNeedsRoot,
        format!(
            "{pod}: the program cannot be executed by user{user}{}",
            after_colon(message)
        ),
    )
}

fn unschedulable(pod: &PodView) -> Option<Cause> {
    let message = pod.unschedulable.as_deref()?;
    let lower = message.to_lowercase();
    let reason = if lower.contains("persistentvolumeclaim") || lower.contains("volume") {
        Reason::VolumeNotReady
    } else {
        Reason::Unschedulable
    };
    Some(Cause::new(
        reason,
        format!("{} has no node{}", describe_pod(pod), after_colon(message)),
    ))
}

/// Maps the error that the Job controller received when it tried to create the Pod.
fn from_job_warning(warning: &Warning) -> Option<Cause> {
    if warning.reason != "FailedCreate" {
        return None;
    }
    let message = without_pod_name(&warning.message);
    let lower = message.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    let reason = if has(&[
        "serviceaccount",
        "service account",
        "priorityclass",
        "runtimeclass",
    ]) && has(&["not found", "was found"])
    {
        Reason::DependencyNotReady
    } else if has(&["violates podsecurity"]) {
        Reason::AdmissionDenied
    } else if has(&[
        "exceeded quota",
        "maximum",
        "minimum",
        "limitrange",
        "must specify",
    ]) {
        Reason::QuotaExceeded
    } else if has(&["denied", "forbidden", "webhook"]) {
        Reason::AdmissionDenied
    } else if has(&["is invalid"]) {
        Reason::InvalidChild
    } else {
        Reason::Progressing
    };
    Some(Cause::new(
        reason,
        format!("the Pod cannot be created: {message}"),
    ))
}

/// Maps the kubelet's warnings about volumes. The scheduler's messages are in the Pod's condition.
fn from_pod_warning(pod: &PodView, warning: &Warning) -> Option<Cause> {
    let is_late = is_late(&warning.message);
    if is_late && warning.times < LATE {
        return None;
    }
    // All other rejections of a container are in the container's own state.
    if is_late && warning.reason == "Failed" {
        return Some(Cause::new(
            Reason::ContainerNotStartable,
            format!("{}: {}", describe_pod(pod), warning.message),
        ));
    }
    if !matches!(
        warning.reason.as_str(),
        "FailedMount" | "FailedAttachVolume" | "FailedMapVolume" | "ProvisioningFailed"
    ) {
        return None;
    }
    let lower = warning.message.to_lowercase();
    let names_one = lower.contains("secret") || lower.contains("configmap");
    let reason = if names_one && is_missing(&warning.message) {
        Reason::SecretNotFound
    } else {
        Reason::VolumeNotReady
    };
    Some(Cause::new(
        reason,
        format!("{}: {}", describe_pod(pod), warning.message),
    ))
}

/// Maps the newest warning about this object. A warning from before the Job is about another object
/// of the same name, or about a problem that was fixed since.
fn newest(
    warnings: &[Warning],
    uid: &str,
    (since, now): (Option<Timestamp>, Timestamp),
    read: impl Fn(&Warning) -> Option<Cause>,
) -> Option<Cause> {
    warnings
        .iter()
        .filter(|warning| warning.object_uid == uid && !uid.is_empty())
        .filter(|warning| since.is_none() || warning.seen(now) >= since)
        .filter_map(|warning| read(warning).map(|cause| (warning.seen(now), cause)))
        .max_by(|(one, first), (other, second)| {
            (one, &first.message).cmp(&(other, &second.message))
        })
        .map(|(_, cause)| cause)
}

/// Returns the error of a pull, both right after a failure and while the kubelet waits for the next
/// try.
fn pull_error(message: &str) -> &str {
    let message = match message.strip_prefix("Back-off pulling image ") {
        Some(rest) => rest.split_once("\": ").map_or("", |(_, error)| error),
        None => message,
    };
    message.strip_prefix("ErrImagePull: ").unwrap_or(message)
}

/// Returns `Error creating: pods "x-abcde" is forbidden: …` without the Pod's name, which differs
/// at each try.
fn without_pod_name(message: &str) -> String {
    let message = message.strip_prefix("Error creating: ").unwrap_or(message);
    let named = message
        .strip_prefix("pods \"")
        .or_else(|| message.strip_prefix("Pod \""));
    match named.and_then(|rest| rest.split_once("\" is ")) {
        Some((_, what)) => format!("it is {what}"),
        None => message.to_owned(),
    }
}

pub(super) fn after_colon(message: &str) -> String {
    let message = message.trim();
    if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    }
}
