//! How objects stand, in words: symbols never stand alone.

use api::{
    Phase, Reason, Timestamp,
    status::condition::{STALLED, SUCCEEDED},
    tasks::{RunPhase, TaskRun},
};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{ContainerState, Event, Pod},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::text::{Tone, clean, count};

/// The container that the agent runs in.
pub(crate) const CONTAINER: &str = "agent";

/// A symbol, a word and how it is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) symbol: &'static str,
    pub(crate) words: String,
    pub(crate) tone: Tone,
}

impl Standing {
    fn new(symbol: &'static str, words: impl Into<String>, tone: Tone) -> Self {
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

/// The phase of the version that the spec asks for.
pub(crate) fn phase(run: &TaskRun) -> RunPhase {
    run.status
        .as_ref()
        .filter(|status| {
            status
                .context_version
                .is_none_or(|version| version == run.spec.context_version)
        })
        .and_then(|status| status.phase)
        .unwrap_or(RunPhase::Pending)
}

/// The reason of the run's main condition.
pub(crate) fn reason(run: &TaskRun) -> Option<&str> {
    let status = run.status.as_ref()?;
    let condition = status.progress.condition(SUCCEEDED)?;
    Some(condition.reason.as_str())
}

/// How a run stands.
pub(crate) fn run(run: &TaskRun) -> Standing {
    let reason = reason(run).unwrap_or_default();
    let phase = phase(run);
    let name = phase.name();
    if run.metadata.deletion_timestamp.is_some() {
        return Standing::new("!", format!("{name} (being deleted)"), Tone::Waiting);
    }
    let words = if reason.is_empty() || reason == name || reason == Reason::Progressing.name() {
        name.to_owned()
    } else {
        format!("{name} ({reason})")
    };
    let is_stalled = run
        .status
        .as_ref()
        .is_some_and(|status| status.progress.is_true(STALLED));
    match phase {
        RunPhase::Succeeded => Standing::new("✓", words, Tone::Good),
        RunPhase::Failed => Standing::new("✗", words, Tone::Bad),
        RunPhase::Pending | RunPhase::Running if is_stalled => {
            Standing::new("!", format!("{words}, stalled"), Tone::Bad)
        }
        RunPhase::Pending | RunPhase::Running if reason == Reason::Suspended.name() => {
            Standing::new("‖", words, Tone::Waiting)
        }
        RunPhase::Running => Standing::new("●", words, Tone::Busy),
        RunPhase::Pending => Standing::new("○", words, Tone::Waiting),
    }
}

/// How a Job stands. Only its conditions decide.
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

/// How a Pod stands, by its agent's container where that says more.
pub(crate) fn pod(pod: &Pod) -> Standing {
    let status = pod.status.as_ref();
    let phase = status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Unknown");
    let state = status
        .iter()
        .flat_map(|status| status.container_statuses.iter())
        .flat_map(|all| all.iter())
        .find(|container| container.name == CONTAINER)
        .and_then(|container| container.state.as_ref());
    let detail = state.map(container).unwrap_or_default();
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

/// Whether `meta` belongs to the object of this UID.
pub(crate) fn is_owned(meta: &ObjectMeta, uid: &str) -> bool {
    let owners = meta.owner_references.iter().flat_map(|all| all.iter());
    let mut uids = owners.map(|owner: &OwnerReference| owner.uid.as_str());
    uids.any(|owner| owner == uid)
}

/// When an Event was last seen: which field says so depends on who wrote it.
pub(crate) fn event_time(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    series
        .map(|time| time.0)
        .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
        .or_else(|| event.event_time.as_ref().map(|time| time.0))
        .or_else(|| {
            event
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0)
        })
}

/// An Event's message, with how often it was seen.
pub(crate) fn event_message(event: &Event) -> String {
    let series = event.series.as_ref().and_then(|series| series.count);
    let times = series.or(event.count).unwrap_or(1);
    let message = clean(event.message.as_deref().unwrap_or_default());
    match usize::try_from(times) {
        Ok(times) if times > 1 => format!("{message} ({})", count(times, "time")),
        Ok(_) | Err(_) => message,
    }
}

/// `Pod/shop-7-v1-abcde`.
pub(crate) fn event_object(event: &Event) -> String {
    let object = &event.involved_object;
    format!(
        "{}/{}",
        object.kind.as_deref().unwrap_or_default(),
        object.name.as_deref().unwrap_or_default()
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A run with a status as the operator writes it.
    pub(crate) fn a_run(spec: &Value, status: &Value) -> TaskRun {
        let mut all = json!({
            "taskId": 7, "serviceName": "shop", "agentName": "writer", "contextVersion": 1,
            "markdownFiles": [{ "filename": "task.md", "content": "Do it." }],
        });
        for (key, value) in spec.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "shop-7", "namespace": "team", "uid": "u-1",
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": all, "status": status,
        }))
        .unwrap()
    }

    pub(crate) fn condition(kind: &str, value: &str, reason: &str) -> Value {
        json!({ "type": kind, "status": value, "reason": reason, "message": "as it is",
            "lastTransitionTime": "2026-01-01T00:01:00Z" })
    }

    #[test]
    fn runs_stand_as_their_status_says() {
        let main = |value, reason| condition("Succeeded", value, reason);
        let stalled = condition("Stalled", "True", "ChildNameTaken");
        let cases = [
            (
                json!({ "phase": "Pending", "observedGeneration": -1 }),
                "○ Pending",
            ),
            (
                json!({ "phase": "Running", "contextVersion": 1, "conditions": [main("Unknown", "Progressing")] }),
                "● Running",
            ),
            (
                json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", "ImagePullFailed")] }),
                "○ Pending (ImagePullFailed)",
            ),
            (
                json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", "Suspended")] }),
                "‖ Pending (Suspended)",
            ),
            (
                json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", "ChildNameTaken"), stalled] }),
                "! Pending (ChildNameTaken), stalled",
            ),
            (
                json!({ "phase": "Succeeded", "contextVersion": 1, "conditions": [main("True", "Succeeded")] }),
                "✓ Succeeded",
            ),
            (
                json!({ "phase": "Failed", "contextVersion": 1, "conditions": [main("False", "NonZeroExit")] }),
                "✗ Failed (NonZeroExit)",
            ),
        ];
        for (status, wanted) in cases {
            assert_eq!(run(&a_run(&json!({}), &status)).text(), wanted);
        }
    }

    #[test]
    fn a_status_of_an_earlier_version_is_not_this_ones_phase() {
        let status = json!({ "phase": "Succeeded", "contextVersion": 1 });
        let again = a_run(&json!({ "contextVersion": 2 }), &status);
        assert_eq!(phase(&again), RunPhase::Pending);
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
        ];
        for (mut status, wanted) in pods {
            for container in status["containerStatuses"]
                .as_array_mut()
                .into_iter()
                .flat_map(|all| all.iter_mut())
            {
                for (key, value) in [
                    ("image", json!("")),
                    ("imageID", json!("")),
                    ("ready", json!(false)),
                    ("restartCount", json!(0)),
                ] {
                    container[key] = value;
                }
            }
            let found: Pod =
                serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap();
            assert_eq!(pod(&found).text(), wanted);
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
