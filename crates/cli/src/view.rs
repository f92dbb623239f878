//! The state of objects as text. A symbol is always followed by text.

use api::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{ContainerState, ContainerStatus, Event, Pod},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::{
    containers,
    text::{Tone, clean, count},
};

/// The meaning of each symbol, in one line below a tree.
pub(crate) const LEGEND: &str = "✓ ok · ● in progress · ○ waiting · ‖ suspended · ⊘ being deleted · ! needs attention · ✗ failed";

/// The state of an object: a symbol, a text and its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) symbol: &'static str,
    pub(crate) words: String,
    pub(crate) tone: Tone,
}

impl Standing {
    pub(crate) fn new(symbol: &'static str, words: impl Into<String>, tone: Tone) -> Self {
        Self {
            symbol,
            words: words.into(),
            tone,
        }
    }

    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.symbol, self.words)
    }
}

/// Returns the state of a Job. It depends only on the Job's conditions and its deletion timestamp.
pub(crate) fn job(job: &Job) -> Standing {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter());
    let conditions = conditions.flat_map(|all| all.iter());
    let mut standing = Standing::new("●", "Active", Tone::Busy);
    for condition in conditions.filter(|condition| condition.status == "True") {
        let reason = condition.reason.as_deref().unwrap_or_default();
        match condition.type_.as_str() {
            "Complete" => return Standing::new("✓", "Complete", Tone::Good),
            "Failed" => return Standing::new("✗", with("Failed", reason), Tone::Bad),
            "Suspended" => standing = Standing::new("‖", "Suspended", Tone::Waiting),
            _ => {}
        }
    }
    if job.metadata.deletion_timestamp.is_some() {
        return Standing::new("!", "being deleted", Tone::Waiting);
    }
    standing
}

/// Returns the state of a Deployment or a StatefulSet, by its number of ready Pods.
pub(crate) fn workload(ready: Option<i32>, wanted: Option<i32>) -> Standing {
    let (ready, wanted) = (ready.unwrap_or_default(), wanted.unwrap_or(1));
    let words = format!("{ready} of {wanted} ready");
    match ready {
        _ if wanted == 0 => Standing::new("‖", words, Tone::Waiting),
        0 => Standing::new("○", words, Tone::Waiting),
        ready if ready < wanted => Standing::new("!", words, Tone::Bad),
        _ => Standing::new("✓", words, Tone::Good),
    }
}

/// Returns the state of a Pod, with details of its current container if there are any.
pub(crate) fn pod(pod: &Pod) -> Standing {
    let status = pod.status.as_ref();
    let phase = status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Unknown");
    let detail = match containers::current(pod) {
        Some(step) if containers::is_in_steps(pod) => in_steps(step),
        Some(only) => only.state.as_ref().map(container).unwrap_or_default(),
        None => String::new(),
    };
    let words = if pod.metadata.deletion_timestamp.is_some() {
        with(phase, "being deleted")
    } else if detail.is_empty() {
        let why = status.and_then(|status| status.reason.as_deref());
        with(phase, why.unwrap_or_default())
    } else {
        with(phase, &detail)
    };
    match phase {
        "Succeeded" => Standing::new("✓", words, Tone::Good),
        "Failed" => Standing::new("✗", words, Tone::Bad),
        "Running" => Standing::new("●", words, Tone::Busy),
        "Pending" => Standing::new("○", words, Tone::Waiting),
        _ => Standing::new("!", words, Tone::Bad),
    }
}

/// Formats the state of a step: `'clone' runs`, `'clone': exit code 1`.
fn in_steps(step: &ContainerStatus) -> String {
    let Some(state) = &step.state else {
        return String::new();
    };
    let words = container(state);
    match (words.is_empty(), &state.running) {
        (true, Some(_)) => format!("'{}' runs", step.name),
        (true, None) => String::new(),
        (false, _) => format!("'{}': {words}", step.name),
    }
}

fn container(state: &ContainerState) -> String {
    if let Some(ended) = &state.terminated {
        let reason = ended.reason.as_deref().unwrap_or_default();
        return match (reason, ended.exit_code) {
            ("Completed", 0) => String::new(),
            ("Error" | "Completed" | "", code) => format!("exit code {code}"),
            (reason, code) => format!("{reason}, exit code {code}"),
        };
    }
    state
        .waiting
        .as_ref()
        .and_then(|waiting| waiting.reason.clone())
        .unwrap_or_default()
}

fn with(word: &str, detail: &str) -> String {
    if detail.is_empty() {
        word.to_owned()
    } else {
        format!("{word} ({})", clean(detail))
    }
}

/// Returns whether `meta` has an owner reference with this UID.
pub(crate) fn is_owned(meta: &ObjectMeta, uid: &str) -> bool {
    let owners = meta.owner_references.iter().flat_map(|all| all.iter());
    let mut uids = owners.map(|owner: &OwnerReference| owner.uid.as_str());
    uids.any(|owner| owner == uid)
}

/// Returns the time when an Event was last observed. The field depends on the program that wrote
/// the Event.
pub(crate) fn event_time(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let created = event.metadata.creation_timestamp.as_ref();
    series
        .map(|time| time.0)
        .or(event.last_timestamp.as_ref().map(|time| time.0))
        .or(event.event_time.as_ref().map(|time| time.0))
        .or(created.map(|time| time.0))
}

/// Returns an Event's message with the number of its repetitions.
pub(crate) fn event_message(event: &Event) -> String {
    let series = event.series.as_ref().and_then(|series| series.count);
    let times = series.or(event.count).unwrap_or(1);
    let message = clean(event.message.as_deref().unwrap_or_default());
    match usize::try_from(times) {
        Ok(times) if times > 1 => format!("{message} ({})", count(times, "time")),
        Ok(_) | Err(_) => message,
    }
}

/// Formats the object of an Event: `Pod/shop-7-v1-abcde`.
pub(crate) fn event_object(event: &Event) -> String {
    let object = &event.involved_object;
    format!(
        "{}/{}",
        object.kind.as_deref().unwrap_or_default(),
        object.name.as_deref().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn a_pod(mut status: Value) -> Pod {
        let is_in_steps = status["initContainerStatuses"].is_array();
        for list in ["initContainerStatuses", "containerStatuses"] {
            let Some(all) = status[list].as_array_mut() else {
                continue;
            };
            for container in all {
                container["image"] = json!("");
                container["imageID"] = json!("");
                container["ready"] = json!(false);
                container["restartCount"] = json!(0);
            }
        }
        let spec = if is_in_steps {
            json!({ "initContainers": [{ "name": "clone" }, { "name": "agent" }],
                "containers": [{ "name": "publish" }] })
        } else {
            json!({ "containers": [{ "name": "agent" }] })
        };
        serde_json::from_value(json!({ "metadata": {}, "spec": spec, "status": status })).unwrap()
    }

    #[test]
    fn workloads_stand_by_their_ready_pods() {
        let cases = [
            (None, None, "○ 0 of 1 ready"),
            (Some(1), Some(2), "! 1 of 2 ready"),
            (Some(2), Some(2), "✓ 2 of 2 ready"),
            (None, Some(0), "‖ 0 of 0 ready"),
        ];
        for (ready, wanted, text) in cases {
            assert_eq!(workload(ready, wanted).text(), text);
        }
    }

    #[test]
    fn pods_and_jobs_stand_as_kubernetes_says() {
        let pods = [
            (json!({ "phase": "Pending" }), "○ Pending"),
            (
                json!({ "phase": "Pending", "containerStatuses": [{ "name": "agent", "state": { "waiting": { "reason": "ImagePullBackOff" } } }] }),
                "○ Pending (ImagePullBackOff)",
            ),
            (
                json!({ "phase": "Failed", "containerStatuses": [{ "name": "agent", "state": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } } }] }),
                "✗ Failed (OOMKilled, exit code 137)",
            ),
            (
                json!({ "phase": "Failed", "containerStatuses": [{ "name": "agent", "state": { "terminated": { "exitCode": 3, "reason": "Error" } } }] }),
                "✗ Failed (exit code 3)",
            ),
            (
                json!({ "phase": "Failed", "reason": "Evicted" }),
                "✗ Failed (Evicted)",
            ),
            (
                json!({ "phase": "Succeeded", "containerStatuses": [{ "name": "agent", "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } }] }),
                "✓ Succeeded",
            ),
            (
                json!({ "phase": "Pending", "initContainerStatuses": [
                    { "name": "clone", "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } },
                    { "name": "agent", "state": { "running": {} } }] }),
                "○ Pending ('agent' runs)",
            ),
            (
                json!({ "phase": "Failed", "initContainerStatuses": [
                    { "name": "clone", "state": { "terminated": { "exitCode": 1, "reason": "Error" } } },
                    { "name": "agent", "state": { "waiting": { "reason": "PodInitializing" } } }] }),
                "✗ Failed ('clone': exit code 1)",
            ),
        ];
        for (status, wanted) in pods {
            assert_eq!(pod(&a_pod(status)).text(), wanted);
        }
        let jobs = [
            (json!([]), "● Active"),
            (
                json!([{ "type": "SuccessCriteriaMet", "status": "True" }]),
                "● Active",
            ),
            (
                json!([{ "type": "Complete", "status": "True" }]),
                "✓ Complete",
            ),
            (
                json!([{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }]),
                "✗ Failed (BackoffLimitExceeded)",
            ),
            (
                json!([{ "type": "Suspended", "status": "True" }]),
                "‖ Suspended",
            ),
        ];
        for (conditions, wanted) in jobs {
            let found: Job = serde_json::from_value(
                json!({ "metadata": {}, "status": { "conditions": conditions } }),
            )
            .unwrap();
            assert_eq!(job(&found).text(), wanted);
        }
    }
}
