//! Whether a status is sane, and what of it must come back.

use api::{Reason, status::MAX_MESSAGE_CHARS};
use kube::core::DynamicObject;
use serde_json::{Value, json};

/// What says when, not how.
const TIMES: &[&str] = &[
    "observedGeneration",
    "lastUpdated",
    "startedAt",
    "finishedAt",
    "deadlineAt",
    "phaseStartedAt",
    "phaseProgress",
    "phaseHistory",
    "retry",
];

/// The generation that the status speaks of.
pub(super) fn observed(object: &DynamicObject) -> i64 {
    object.data["status"]["observedGeneration"]
        .as_i64()
        .unwrap_or(-1)
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    let list = status["conditions"].as_array();
    list.into_iter().flat_map(|list| list.iter())
}

fn is_true(status: &Value, kind: &str) -> bool {
    conditions(status).any(|one| one["type"] == kind && one["status"] == "True")
}

/// Whether a run has ended.
pub(super) fn is_finished(status: &Value) -> bool {
    is_true(status, "Finished")
}

fn main(status: &Value) -> impl Iterator<Item = &Value> {
    conditions(status).filter(|one| one["type"] == "Ready" || one["type"] == "Succeeded")
}

/// The reason of its main condition.
pub(super) fn reason(status: &Value) -> Option<String> {
    let reason = main(status).next()?["reason"].as_str();
    reason.map(str::to_owned)
}

/// A status without times, and without words that name a Pod.
pub(super) fn canonical(status: &Value) -> Value {
    let mut canonical = status.clone();
    if let Value::Object(fields) = &mut canonical {
        fields.retain(|key, _| !TIMES.contains(&key.as_str()));
        let mut kept: Vec<Value> = conditions(status)
            .map(|one| json!({"type": one["type"], "status": one["status"], "reason": one["reason"]}))
            .collect();
        kept.sort_by_key(|one| one["type"].as_str().map(str::to_owned));
        fields.insert("conditions".to_owned(), Value::Array(kept));
        let message = without_pods(status["message"].as_str().unwrap_or_default());
        fields.insert("message".to_owned(), json!(message));
    }
    canonical
}

/// A Pod has another name each time, and a wait another end.
fn without_pods(message: &str) -> String {
    let words = message.split(' ').map(|word| {
        let is_time = word.contains("T") && word.contains(":") && word.contains('Z');
        let is_pod = word.starts_with('\'') && word.matches('-').count() >= 3;
        if is_time || is_pod { "…" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// What no version of any object may say.
pub(super) fn instant_faults(object: &DynamicObject) -> Vec<String> {
    let status = &object.data["status"];
    let mut faults = Vec::new();
    if is_true(status, "Reconciling") && is_true(status, "Stalled") {
        faults.push("both Reconciling and Stalled".to_owned());
    }
    let generation = object.metadata.generation.unwrap_or_default();
    if observed(object) > generation {
        faults.push(format!(
            "observedGeneration {} of {generation}",
            observed(object)
        ));
    }
    faults
}

/// What is wrong with an object whose status speaks of its newest spec.
pub(super) fn faults(kind: &str, object: &DynamicObject) -> Vec<String> {
    let status = &object.data["status"];
    let mut faults = instant_faults(object);
    let wanted = if kind == "Agent" {
        "Ready"
    } else {
        "Succeeded"
    };
    let mains: Vec<&str> = main(status)
        .filter_map(|one| one["type"].as_str())
        .collect();
    if mains != [wanted] {
        faults.push(format!("its main conditions are {mains:?}"));
    }
    for condition in conditions(status) {
        let kind = condition["type"].as_str().unwrap_or_default();
        let reason = condition["reason"].as_str().unwrap_or_default();
        match Reason::from_name(reason) {
            None => faults.push(format!("{kind} has the unknown reason '{reason}'")),
            Some(bad @ (Reason::InternalError | Reason::Undecodable | Reason::InvalidChild)) => {
                let message = &condition["message"];
                faults.push(format!("{kind} is {bad}: {message}"));
            }
            Some(_) => {}
        }
        faults.extend(wording(kind, &condition["message"]));
    }
    faults.extend(wording("status.message", &status["message"]));
    faults
}

fn wording(whose: &str, message: &Value) -> Option<String> {
    let message = message.as_str().unwrap_or_default();
    let letters = message.chars().count();
    (letters == 0 || letters > MAX_MESSAGE_CHARS)
        .then(|| format!("{whose} has a message of {letters} letters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": {"name": "a", "generation": 2}, "status": status,
        }))
        .unwrap()
    }

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    }

    #[test]
    fn what_is_wrong_with_a_status_is_said() {
        let good = condition("Succeeded", "Unknown", "Progressing", "it goes on");
        let long = "x".repeat(MAX_MESSAGE_CHARS + 1);
        let cases: [(Vec<Value>, i64, &str, &[&str]); 8] = [
            (vec![good.clone()], 2, "it goes on", &[]),
            (vec![], 2, "so", &["its main conditions are []"]),
            (
                vec![good.clone(), good.clone()],
                2,
                "so",
                &[r#"are ["Succeeded", "Succeeded"]"#],
            ),
            (
                vec![condition("Ready", "True", "Ready", "so")],
                2,
                "so",
                &[r#"are ["Ready"]"#],
            ),
            (
                vec![condition("Succeeded", "False", "Odd", "so")],
                2,
                "so",
                &["unknown reason 'Odd'"],
            ),
            (
                vec![condition("Succeeded", "Unknown", "InternalError", &long)],
                2,
                "",
                &[
                    "Succeeded is InternalError",
                    "of 1025 letters",
                    "status.message has a message of 0",
                ],
            ),
            (
                vec![
                    good.clone(),
                    condition("Reconciling", "True", "Progressing", "so"),
                    condition("Stalled", "True", "Progressing", "so"),
                ],
                2,
                "so",
                &["both Reconciling and Stalled"],
            ),
            (vec![good], 3, "so", &["observedGeneration 3 of 2"]),
        ];
        for (conditions, observed, message, wanted) in cases {
            let status = json!({
                "observedGeneration": observed, "message": message, "conditions": conditions,
            });
            let found = faults("TaskRun", &object(&status));
            assert_eq!(found.len(), wanted.len(), "{found:?}");
            for (found, wanted) in found.iter().zip(wanted) {
                assert!(found.contains(wanted), "no '{wanted}' in '{found}'");
            }
        }
    }

    #[test]
    fn what_comes_back_is_all_but_times_and_pods() {
        let status = |time: &str, pod: &str, reason: &str| {
            json!({
                "phase": "Pending", "attempts": 1, "observedGeneration": 1, "lastUpdated": time,
                "message": format!("Pod '{pod}' waits until {time}"),
                "conditions": [condition("Succeeded", "Unknown", reason, time)],
                "phaseHistory": [{"startedAt": time}],
            })
        };
        let one = status("2030-01-01T00:00:00Z", "shop-7-v1-abc", "Unschedulable");
        let same = status("2031-01-01T00:00:00Z", "shop-7-v1-xyz", "Unschedulable");
        let other = status("2030-01-01T00:00:00Z", "shop-7-v1-abc", "Suspended");
        assert_eq!(canonical(&one), canonical(&same));
        assert_ne!(canonical(&one), canonical(&other));
        assert_eq!(canonical(&one)["attempts"], 1);
    }
}
