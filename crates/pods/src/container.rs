//! The state of a container, as the kubelet reports it.

use std::collections::BTreeMap;

use api::{
    Timestamp,
    status::{MAX_MESSAGE_CHARS, bounded},
};
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::Time};
use serde::{Deserialize, Serialize};

/// Reason that the kubelet reports if the kernel killed a process of the container for memory.
pub const OUT_OF_MEMORY: &str = "OOMKilled";

/// Length at which the kubelet cuts a termination message, in bytes.
const MESSAGE_BYTES: usize = 4096;
/// Length of all termination messages of a Pod, in bytes. Each container of the Pod has the same share.
const POD_MESSAGE_BYTES: usize = 12 * 1024;

/// Returns the length at which the kubelet cuts a termination message, in bytes, in a Pod with this number of
/// containers. Init containers, injected containers and ephemeral containers count.
///
/// A message of this length or more may lack its end.
#[must_use]
pub fn message_limit(containers: usize) -> usize {
    (POD_MESSAGE_BYTES / containers.max(1)).min(MESSAGE_BYTES)
}

/// Reason and message that a component of the cluster reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reported {
    /// Reason.
    #[serde(default)]
    pub reason: String,
    /// Message.
    #[serde(default)]
    pub message: String,
}

impl Reported {
    /// Reads and bounds both texts.
    #[must_use]
    pub fn read(reason: Option<&String>, message: Option<&String>) -> Self {
        Self {
            reason: short(reason),
            message: short(message),
        }
    }
}

/// Reduced view of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerView {
    /// Name of the container.
    pub name: String,
    /// Image in the Pod's spec. Only explanations read this field and the resources: caches leave them empty.
    #[serde(default)]
    pub image: String,
    /// ID of the image that really runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    /// Resource requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// Resource limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// State of the container.
    #[serde(default)]
    pub state: ContainerState,
    /// Number of restarts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: i32,
    /// State before the last restart.
    #[serde(default, skip_serializing_if = "ContainerState::is_unknown")]
    pub before: ContainerState,
}

fn is_zero(count: &i32) -> bool {
    *count == 0
}

impl ContainerView {
    /// Returns the container with this name, if the kubelet has reported it. An init container of this name does not
    /// count: the Pod may be someone else's.
    #[must_use]
    pub fn find(pod: &core::Pod, name: &str) -> Option<Self> {
        named(pod.status.as_ref()?.container_statuses.as_ref()?, name)
    }

    /// Returns the init container with this name, if the kubelet has reported it.
    #[must_use]
    pub fn find_init(pod: &core::Pod, name: &str) -> Option<Self> {
        named(pod.status.as_ref()?.init_container_statuses.as_ref()?, name)
    }

    /// Returns the end of the container, or its end before the last restart.
    #[must_use]
    pub fn last_exit(&self) -> Option<&Exit> {
        self.state.exit().or_else(|| self.before.exit())
    }
}

fn named(list: &[core::ContainerStatus], name: &str) -> Option<ContainerView> {
    list.iter()
        .find(|one| one.name == name)
        .map(ContainerView::from)
}

impl From<&core::ContainerStatus> for ContainerView {
    fn from(status: &core::ContainerStatus) -> Self {
        let read = |state: &Option<core::ContainerState>| {
            state.as_ref().map_or(ContainerState::Unknown, |state| {
                ContainerState::read(state, status.restart_count)
            })
        };
        Self {
            name: status.name.clone(),
            image_id: status.image_id.clone(),
            state: read(&status.state),
            restarts: status.restart_count,
            before: read(&status.last_state),
            ..Self::default()
        }
    }
}

/// State of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContainerState {
    /// The kubelet has not reported a state yet.
    #[default]
    Unknown,
    /// The container has not started.
    Waiting(Reported),
    /// The container runs.
    Running {
        /// Start time.
        #[serde(default, with = "time")]
        since: Option<Timestamp>,
    },
    /// The container ended.
    Ended(Exit),
}

impl ContainerState {
    fn read(state: &core::ContainerState, restarts: i32) -> Self {
        if let Some(ended) = &state.terminated {
            return Self::Ended(Exit {
                code: ended.exit_code,
                signal: ended.signal,
                reason: short(ended.reason.as_ref()),
                message: cut(ended.message.as_deref().unwrap_or_default()),
                started: ended.started_at.as_ref().map(|time| time.0),
                finished: ended.finished_at.as_ref().map(|time| time.0),
                restarts,
            });
        }
        if let Some(running) = &state.running {
            return Self::Running {
                since: running.started_at.as_ref().map(|time| time.0),
            };
        }
        state.waiting.as_ref().map_or(Self::Unknown, |waiting| {
            Self::Waiting(Reported::read(
                waiting.reason.as_ref(),
                waiting.message.as_ref(),
            ))
        })
    }

    /// Returns whether the kubelet has not reported a state.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Returns the kubelet's report about a container that waits.
    #[must_use]
    pub fn waiting(&self) -> Option<&Reported> {
        match self {
            Self::Waiting(reported) => Some(reported),
            Self::Unknown | Self::Running { .. } | Self::Ended(_) => None,
        }
    }

    /// Returns the start time of a container that runs.
    #[must_use]
    pub fn running_since(&self) -> Option<Timestamp> {
        match self {
            Self::Running { since } => *since,
            Self::Unknown | Self::Waiting(_) | Self::Ended(_) => None,
        }
    }

    /// Returns the end of a container that has ended.
    #[must_use]
    pub fn exit(&self) -> Option<&Exit> {
        match self {
            Self::Ended(exit) => Some(exit),
            Self::Unknown | Self::Waiting(_) | Self::Running { .. } => None,
        }
    }
}

/// End of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// Exit code.
    pub code: i32,
    /// Signal that ended the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Reason that the kubelet reports: `Completed`, `Error`, `OOMKilled`, `StartError`.
    #[serde(default)]
    pub reason: String,
    /// Termination message, with its control characters, because it contains the results.
    #[serde(default)]
    pub message: String,
    /// Start time.
    #[serde(default, with = "time")]
    pub started: Option<Timestamp>,
    /// End time.
    #[serde(default, with = "time")]
    pub finished: Option<Timestamp>,
    /// Number of times that the kubelet restarted the container before this end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: i32,
}

impl Exit {
    /// Returns whether the kernel killed a process of the container for memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.reason == OUT_OF_MEMORY
    }

    /// Returns the signal that ended the container. Without a report, a shell's exit code shows it.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        self.signal
            .filter(|signal| *signal > 0)
            .or_else(|| (129..=192).contains(&self.code).then(|| self.code - 128))
    }

    /// Returns a fact that contradicts exit code 0, if there is one. A shell can return 0 although the kernel killed a
    /// process that it started. A container that was started twice did its work twice.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        match (self.signal, self.reason.as_str(), self.restarts) {
            (_, OUT_OF_MEMORY, _) => {
                Some("the kernel killed a process of it for memory".to_owned())
            }
            (Some(signal), _, _) if signal != 0 => Some(format!("it was ended by signal {signal}")),
            (_, reason, _) if !matches!(reason, "" | "Completed") => {
                Some(format!("the kubelet reports the reason '{reason}'"))
            }
            (_, _, restarts) if restarts > 0 => {
                Some(format!("the kubelet started it {restarts} more time(s)"))
            }
            _ => None,
        }
    }
}

/// Cuts a termination message that is longer than any kubelet writes. The rest has at least [`MESSAGE_BYTES`] bytes, so
/// that it counts as cut.
fn cut(message: &str) -> String {
    if message.len() <= MESSAGE_BYTES {
        return message.to_owned();
    }
    message.chars().take(MESSAGE_BYTES).collect()
}

/// Bounds a text of another component before it is cached.
pub(crate) fn short(text: Option<&String>) -> String {
    text.map(|text| bounded(text, MAX_MESSAGE_CHARS))
        .unwrap_or_default()
}

/// JSON of a time, as the API server writes it.
mod time {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Serialize, Time, Timestamp};

    pub(super) fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(Time).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<Time>::deserialize(deserializer)?.map(|time| time.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(init: &Value, ordinary: &Value) -> core::Pod {
        serde_json::from_value(json!({ "status": {
            "initContainerStatuses": init, "containerStatuses": ordinary,
        } }))
        .unwrap()
    }

    fn status(name: &str, state: &Value) -> Value {
        json!({
            "name": name, "image": "i", "imageID": "id", "ready": false, "restartCount": 2, "state": state,
            "lastState": { "terminated": { "exitCode": 3, "reason": "Error" } },
        })
    }

    /// The kubelet sorts the containers by name, so an injected container may be the first.
    #[test]
    fn a_container_is_found_by_its_name() {
        let running = json!({ "running": { "startedAt": "2030-01-01T00:00:00Z" } });
        let waiting = json!({ "waiting": { "reason": "ErrImagePull", "message": "m" } });
        let sidecar = status("a-proxy", &running);
        let statuses = json!([sidecar, status("agent", &waiting), status("z", &running)]);
        for found in [
            ContainerView::find(&pod(&json!([]), &statuses), "agent"),
            ContainerView::find_init(&pod(&statuses, &json!([])), "agent"),
        ] {
            let found = found.unwrap();
            assert_eq!(found.state.waiting().unwrap().reason, "ErrImagePull");
            assert_eq!((found.restarts, found.image_id.as_str()), (2, "id"));
            assert_eq!(found.last_exit().unwrap().code, 3);
        }
        let other = pod(&statuses, &json!([sidecar]));
        assert_eq!(ContainerView::find(&other, "agent"), None);
        assert_eq!(ContainerView::find_init(&Default::default(), "agent"), None);
    }

    #[test]
    fn texts_are_bounded_and_a_cut_message_stays_too_long() {
        let long = "é".repeat(10_000);
        let ended = json!({ "terminated": { "exitCode": 0, "reason": long, "message": long } });
        let pod = pod(&json!([]), &json!([status("agent", &ended)]));
        let found = ContainerView::find(&pod, "agent").unwrap();
        let exit = found.state.exit().unwrap();
        assert_eq!(exit.reason.chars().count(), MAX_MESSAGE_CHARS);
        assert_eq!(exit.message.chars().count(), MESSAGE_BYTES);
        assert!(exit.message.len() >= message_limit(1));
        let lines = json!({ "terminated": { "exitCode": 0, "message": "1 a\n0 b\n" } });
        let found = ContainerView::from(
            &serde_json::from_value::<core::ContainerStatus>(status("agent", &lines)).unwrap(),
        );
        assert_eq!(found.state.exit().unwrap().message, "1 a\n0 b\n");
    }

    #[test]
    fn all_containers_of_a_pod_share_the_length_of_messages() {
        for (containers, limit) in [
            (0, 4096),
            (1, 4096),
            (3, 4096),
            (4, 3072),
            (5, 2457),
            (12, 1024),
        ] {
            assert_eq!(message_limit(containers), limit, "{containers}");
        }
    }

    #[test]
    fn a_signal_is_reported_or_in_the_exit_code() {
        for (code, signal, expected) in [
            (1, None, None),
            (128, None, None),
            (137, None, Some(9)),
            (143, Some(15), Some(15)),
            (1, Some(9), Some(9)),
            (1, Some(0), None),
            (192, None, Some(64)),
            (193, None, None),
            (255, None, None),
        ] {
            let exit = Exit {
                code,
                signal,
                ..Exit::default()
            };
            assert_eq!(exit.signal(), expected, "{code} {signal:?}");
        }
    }

    /// The worlds of `orc why` are stored in this form.
    #[test]
    fn the_json_of_a_state_is_kept() {
        let exit = Exit {
            code: 1,
            reason: "Error".to_owned(),
            finished: Some("2030-01-01T00:00:00Z".parse().unwrap()),
            restarts: 4,
            ..Exit::default()
        };
        for (state, text) in [
            (ContainerState::Unknown, json!("unknown")),
            (
                ContainerState::Waiting(Reported {
                    reason: "r".to_owned(),
                    message: "m".to_owned(),
                }),
                json!({ "waiting": { "reason": "r", "message": "m" } }),
            ),
            (
                ContainerState::Running { since: None },
                json!({ "running": { "since": null } }),
            ),
            (
                ContainerState::Ended(exit.clone()),
                json!({ "ended": {
                    "code": 1, "reason": "Error", "message": "", "started": null,
                    "finished": "2030-01-01T00:00:00Z", "restarts": 4,
                } }),
            ),
        ] {
            assert_eq!(json!(state), text);
            assert_eq!(
                serde_json::from_value::<ContainerState>(text).unwrap(),
                state
            );
        }
        let view = ContainerView {
            name: "agent".to_owned(),
            state: ContainerState::Ended(exit),
            ..ContainerView::default()
        };
        assert!(json!(view).get("before").is_none());
    }
}
