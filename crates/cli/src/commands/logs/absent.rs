//! The reasons why a log does not exist.

use actions::Object;
use api::messages;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};

use super::other_step;
use crate::{
    containers,
    failure::Failure,
    state,
    text::{clean, moment},
};

/// Returns the failure for an attempt that the run does not have. `made` is the number of its attempts.
/// Before the first one, the state of the run explains more.
pub(super) fn no_such_attempt(run: &Object, attempt: u32, made: u32) -> Option<Failure> {
    if attempt <= made.max(1) {
        return None;
    }
    let so_far = match run.outcome() {
        Some(_) => "",
        None => " so far",
    };
    let has = match made {
        0 => "no attempt".to_owned(),
        1 => "1 attempt".to_owned(),
        made => format!("{made} attempts"),
    };
    let name = run.name.argument();
    let message = format!(
        "{} does not exist: the run has {has}{so_far}",
        which(run, attempt)
    );
    let next = match made {
        0 => ("to see what it waits for", format!("why {name}")),
        _ => ("to see the log of the last one", format!("logs {name}")),
    };
    Some(Failure::Gone {
        message,
        next: vec![next],
    })
}

/// Formats `attempt 2 of TaskRun 'shop-7', version 1,`.
fn which(run: &Object, attempt: u32) -> String {
    let version = run
        .version()
        .map_or_else(String::new, |version| format!(", version {version},"));
    format!("attempt {attempt} of {}{version}", run.name)
}

/// Explains why the log of an attempt does not exist.
pub(super) fn absent(run: &Object, attempt: u32, pod: Option<&Pod>, container: &str) -> Failure {
    let name = run.name.argument();
    let which = which(run, attempt);
    let is_over = run.outcome().is_some();
    let is_suspended = state::is_suspended(run) && messages::is_log_lost(&run.message());
    let message = match pod {
        Some(pod) if containers::is_evicted(pod) => {
            format!("{which} has no log any more: {}", evicted(pod))
        }
        Some(pod) => match other_step(pod, container) {
            Some(step) => {
                format!("{which} has no log of container '{container}': it has not started; {step}")
            }
            None => format!(
                "{which} has no log: its container has not started{}",
                start_error(pod, container)
            ),
        },
        None if !has_begun(run) => {
            let state = match is_over {
                true => "the run ended before",
                false => "no container has started yet",
            };
            format!("{which} has no log: {state}; {}", clean(&run.message()))
        }
        None if is_suspended => format!(
            "{which} has no log any more: the suspension stopped its container and deleted its Pod with the log; {}",
            clean(&run.message())
        ),
        None if !is_over => format!(
            "{which} has no log: its Pod no longer exists, and no other one exists yet; {}",
            clean(&run.message())
        ),
        None => {
            let known = match evidence(run).as_str() {
                "" => "status.result says nothing about it".to_owned(),
                known => format!("status.result has what is known: {known}"),
            };
            format!(
                "{which} has no log any more: logs live only as long as the Pod, and it no longer exists; {known}"
            )
        }
    };
    let next = if is_over {
        vec![("to see all that is known", format!("describe {name}"))]
    } else if state::is_suspended(run) {
        vec![(
            "to start the attempt again from its beginning",
            format!("resume {name}"),
        )]
    } else {
        vec![
            ("to see what it waits for", format!("why {name}")),
            ("to wait for the log", format!("logs -f {name}")),
        ]
    };
    Failure::Gone { message, next }
}

/// Describes an eviction, with the message of the kubelet.
fn evicted(pod: &Pod) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let message = pod.status.as_ref().and_then(|one| one.message.as_deref());
    let message = message.map_or_else(String::new, |message| format!(": {message}"));
    clean(&format!(
        "the kubelet evicted Pod '{name}', and deleted its log{message}"
    ))
}

/// Formats the message of a container that the runtime could not start, after a colon.
fn start_error(pod: &Pod, container: &str) -> String {
    let state = containers::status(pod, container).and_then(|one| one.state.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let message = ended.and_then(|ended| ended.message.as_deref());
    message.map_or_else(String::new, |message| clean(&format!(": {message}")))
}

/// Returns whether a container of this version has ever started. The status records its Pod, its
/// result, or the time of the start. A suspension removes them, but its message reports the lost log.
fn has_begun(run: &Object) -> bool {
    let known = ["status.pod", "status.startedAt", "status.result.podName"];
    let is_recorded = run.recorded_version() == run.version();
    let has_stopped = messages::is_log_lost(&run.message());
    is_recorded && (has_stopped || known.iter().any(|path| !run.at(path).is_null()))
}

/// Formats the result of the run's last attempt in one line.
fn evidence(run: &Object) -> String {
    let result = run.at("status.result");
    let mut parts = Vec::new();
    for (field, before, after) in [
        ("reason", "", ""),
        ("exitCode", "exit code ", ""),
        ("signal", "signal ", ""),
        ("message", "'", "'"),
        ("podName", "Pod '", "'"),
        ("node", "node '", "'"),
    ] {
        match (result[field].as_str(), result[field].as_i64()) {
            (Some(text), _) => parts.push(format!("{before}{text}{after}")),
            (None, Some(number)) => parts.push(format!("{before}{number}{after}")),
            (None, None) => {}
        }
    }
    let ended: Option<Time> = run.part("status.result.finishedAt");
    parts.extend(ended.map(|time| format!("ended {}", moment(time.0))));
    clean(&parts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        containers::AGENT,
        state::tests::{a_run, condition},
    };

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "containers": [{ "name": "agent" }] },
        }))
        .unwrap()
    }

    #[test]
    fn an_attempt_that_was_never_made_is_named() {
        let ended = [
            condition("Finished", "True", "NonZeroExit"),
            condition("Succeeded", "False", "NonZeroExit"),
        ];
        let over = json!({ "contextVersion": 1, "phase": "Failed", "conditions": ended });
        let running = json!({ "contextVersion": 1, "phase": "Running" });
        let cases = [
            (
                &over,
                3,
                2,
                Some(
                    "attempt 3 of TaskRun 'shop-7', version 1, does not exist: the run has 2 attempts",
                ),
            ),
            (
                &running,
                2,
                1,
                Some(
                    "attempt 2 of TaskRun 'shop-7', version 1, does not exist: the run has 1 attempt so far",
                ),
            ),
            (
                &over,
                2,
                0,
                Some(
                    "attempt 2 of TaskRun 'shop-7', version 1, does not exist: the run has no attempt",
                ),
            ),
            (&over, 2, 2, None),
            (&over, 1, 0, None),
        ];
        for (status, attempt, made, expected) in cases {
            let failure = no_such_attempt(&a_run(&json!({}), status), attempt, made);
            let message = failure.as_ref().map(Failure::message);
            assert_eq!(message.as_deref(), expected, "{attempt} of {made}");
            assert!(failure.is_none_or(|failure| failure.exit().code() == 5));
        }
    }

    /// The Job controller deletes the Pods of a suspended Job.
    #[test]
    fn a_suspension_deletes_the_log_of_a_container_that_had_started() {
        let cases = [
            (
                "suspended: Job 'shop-7-v1' runs nothing; its log is lost",
                "has no log any more: the suspension stopped its container and deleted its Pod with the log; suspended: Job 'shop-7-v1' runs nothing; its log is lost",
            ),
            (
                "suspended: Job 'shop-7-v1' runs nothing",
                "has no log: no container has started yet; suspended: Job 'shop-7-v1' runs nothing",
            ),
            (
                "suspended before it was started",
                "has no log: no container has started yet; suspended before it was started",
            ),
        ];
        for (message, expected) in cases {
            let status = json!({ "contextVersion": 1, "phase": "Pending", "attempts": 1,
                "message": message, "conditions": [condition("Succeeded", "Unknown", "Suspended")] });
            let run = a_run(&json!({ "suspend": true }), &status);
            let failure = absent(&run, 1, None, AGENT);
            assert!(failure.message().ends_with(expected), "{failure:?}");
            assert_eq!(failure.advice()[0].1, "resume shop-7");
        }
    }

    #[test]
    fn a_log_that_is_gone_says_what_is_known() {
        let status = json!({ "contextVersion": 1, "attempts": 1, "phase": "Failed",
            "conditions": [condition("Finished", "True", "NonZeroExit"), condition("Succeeded", "False", "NonZeroExit")],
            "result": { "exitCode": 3, "reason": "NonZeroExit", "podName": "p", "node": "n",
                "finishedAt": "2026-01-01T00:00:00Z" } });
        let failure = absent(&a_run(&json!({}), &status), 1, None, AGENT);
        assert_eq!(failure.exit().code(), 5);
        assert_eq!(
            failure.message(),
            "attempt 1 of TaskRun 'shop-7', version 1, has no log any more: logs live only as long as the Pod, and it no longer exists; status.result has what is known: NonZeroExit, exit code 3, Pod 'p', node 'n', ended 2026-01-01T00:00:00Z"
        );
        let running = json!({ "contextVersion": 1, "phase": "Running", "attempts": 1,
            "startedAt": "2026-01-01T00:00:00Z" });
        let failure = absent(&a_run(&json!({}), &running), 1, None, AGENT);
        assert!(
            failure
                .message()
                .contains("has no log: its Pod no longer exists, and no other one exists yet"),
            "{failure:?}"
        );
        assert_eq!(failure.advice()[0].1, "why shop-7");
    }

    #[test]
    fn an_eviction_and_a_failed_start_leave_no_log() {
        let failed = json!({ "contextVersion": 1, "attempts": 1, "phase": "Failed",
            "conditions": [condition("Finished", "True", "Failed"), condition("Succeeded", "False", "Failed")] });
        let run = a_run(&json!({}), &failed);
        let status = |state: serde_json::Value, more: serde_json::Value| {
            let mut pod = pod();
            let mut status = json!({ "phase": "Failed", "containerStatuses": [{ "name": "agent",
                "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state }] });
            for (name, value) in more.as_object().unwrap() {
                status[name] = value.clone();
            }
            pod.status = Some(serde_json::from_value(status).unwrap());
            pod
        };
        let evicted = status(
            json!({ "terminated": { "exitCode": 137 } }),
            json!({ "reason": "Evicted", "message": "The node was low on resource: memory." }),
        );
        assert!(containers::is_evicted(&evicted));
        let failure = absent(&run, 1, Some(&evicted), AGENT);
        assert_eq!(
            failure.message(),
            "attempt 1 of TaskRun 'shop-7', version 1, has no log any more: the kubelet evicted Pod 'p', and deleted its log: The node was low on resource: memory."
        );
        assert_eq!(failure.advice()[0].1, "describe shop-7");
        let unstarted = status(
            json!({ "terminated": { "exitCode": 128, "reason": "StartError", "message": "no such file" } }),
            json!({}),
        );
        assert!(!containers::has_started(&unstarted, AGENT));
        assert!(!containers::is_evicted(&unstarted));
        assert!(
            absent(&run, 1, Some(&unstarted), AGENT)
                .message()
                .ends_with("has no log: its container has not started: no such file")
        );
        let ended = status(
            json!({ "terminated": { "exitCode": 1, "reason": "Error" } }),
            json!({}),
        );
        assert!(containers::has_started(&ended, AGENT));
    }

    #[test]
    fn a_run_that_never_began_says_so() {
        let waiting = json!({ "contextVersion": 1, "phase": "Pending", "attempts": 1,
            "message": "Agent 'writer' does not exist" });
        let failure = absent(&a_run(&json!({}), &waiting), 1, None, AGENT);
        assert_eq!(
            failure.message(),
            "attempt 1 of TaskRun 'shop-7', version 1, has no log: no container has started yet; Agent 'writer' does not exist"
        );
        // The status of an earlier version says nothing about this one.
        let again = json!({ "contextVersion": 1, "startedAt": "2026-01-01T00:00:00Z" });
        let again = absent(
            &a_run(&json!({ "contextVersion": 2 }), &again),
            1,
            None,
            AGENT,
        );
        assert!(
            again.message().contains("no container has started yet"),
            "{again:?}"
        );
        let cancelled = json!({ "contextVersion": 1, "phase": "Failed", "message": "cancelled",
            "conditions": [condition("Finished", "True", "Cancelled"), condition("Succeeded", "False", "Cancelled")] });
        let failure = absent(&a_run(&json!({}), &cancelled), 1, None, AGENT);
        assert!(
            failure
                .message()
                .ends_with("has no log: the run ended before; cancelled"),
            "{failure:?}"
        );
    }
}
