//! The result of an agent, from its exit code and its termination message.

use std::collections::BTreeMap;

use api::{Reason, status::bounded, tasks::Evidence};
use attempts::{AttemptResult, AttemptSpec, describe_pod, evidence, memory_limit};
use git::Report;
use pods::{StartFailure, after_colon, message_limit};
use serde_json::Value;

use crate::{
    build,
    view::{Exit, PodView, Step},
};

/// Maximum number of characters that we quote from the message of a failed program.
const QUOTE: usize = 200;

/// Evaluates an attempt whose last container exited with code 0. Only this function creates a success.
pub(super) fn succeeded(
    pod: &PodView,
    exit: &Exit,
    attempt_spec: Option<&AttemptSpec>,
) -> AttemptResult {
    let evidence = evidence(Some(pod));
    let Some(attempt_spec) = attempt_spec else {
        return AttemptResult::new(
            Reason::AgentNotFound,
            "the agent exited with code 0, but its Agent no longer exists, so the required results are unknown",
            evidence,
        );
    };
    // The last container of a DocsRun is ours. The agent's results are in the agent's own
    // container.
    let agent = pod.main_exit.as_ref().unwrap_or(exit);
    let results = match results(&agent.message, pod.containers) {
        Ok(results) => results,
        Err((reason, message)) => return AttemptResult::new(reason, message, evidence),
    };
    let missing: Vec<&str> = attempt_spec
        .required
        .iter()
        .filter(|name| !results.contains_key(*name))
        .map(String::as_str)
        .collect();
    if !missing.is_empty() {
        let message = format!(
            "the agent exited with code 0 without the required results: {}",
            missing.join(", ")
        );
        return AttemptResult::new(
            Reason::ResultMissing,
            message,
            Evidence {
                results,
                ..evidence
            },
        );
    }
    let message = format!("the agent exited with code 0; {}", describe_pod(pod));
    AttemptResult::new(
        Reason::Succeeded,
        message,
        Evidence {
            results,
            ..evidence
        },
    )
}

/// Returns the results in a termination message, or the reason why they cannot be trusted.
///
/// `containers` is the number of containers of the Pod, with those that other components injected.
fn results(message: &str, containers: usize) -> Result<BTreeMap<String, String>, (Reason, String)> {
    let limit = message_limit(containers);
    if message.len() >= limit {
        let shared = if limit < message_limit(1) {
            format!(" (the {containers} containers of the Pod share 12 KiB)")
        } else {
            String::new()
        };
        return Err((
            Reason::ResultTooLarge,
            format!(
                "the termination message has {limit} bytes or more{shared}, so it was cut and proves nothing"
            ),
        ));
    }
    let message = message.trim();
    if message.is_empty() {
        return Ok(BTreeMap::new());
    }
    match serde_json::from_str::<Value>(message) {
        Ok(Value::Object(object)) => Ok(object
            .into_iter()
            .filter_map(|(name, value)| match value {
                Value::Null => None,
                Value::String(text) => Some((name, text)),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    Some((name, value.to_string()))
                }
            })
            .collect()),
        // The message does not repeat the error, because the error quotes the agent's output.
        Ok(_) | Err(_) => Err((
            Reason::ResultInvalid,
            "the agent exited with code 0, but its termination message is not one JSON object"
                .to_owned(),
        )),
    }
}

/// Evaluates an attempt whose Job failed.
pub(super) fn failed(
    pod: &PodView,
    exit: &Exit,
    job_message: &str,
    attempt_spec: Option<&AttemptSpec>,
) -> AttemptResult {
    let name = describe_pod(pod);
    let ours = match pod.step {
        Step::Main => None,
        Step::Before => Some((build::CLONE, Reason::CloneFailed)),
        Step::After => Some((build::PUBLISH, Reason::PublishFailed)),
    };
    if let Some((container, otherwise)) = ours.filter(|_| exit.code != 0) {
        let (reason, message) = step_failed(&name, container, otherwise, exit);
        return AttemptResult::new(reason, message, evidence(Some(pod)));
    }
    let (reason, message) = if exit.is_out_of_memory() {
        let limit = memory_limit(Step::Main, attempt_spec);
        let message = format!("{name}: the container used more memory {limit} and was killed");
        (Reason::OOMKilled, message)
    } else if let Some(failure) = StartFailure::of(&exit.reason, &exit.message, 0) {
        let user = attempt_spec.map(|spec| spec.user);
        let cause = failure.cause(&name, &exit.message, user);
        (cause.reason, cause.message)
    } else if exit.code != 0 {
        (Reason::NonZeroExit, exit_message(&name, exit))
    } else {
        let detail = after_colon(job_message);
        let message =
            format!("{name}: the container exited with code 0, but its Job failed{detail}");
        (Reason::JobFailed, message)
    };
    let agent = pod.main_exit.as_ref().unwrap_or(exit);
    let results = results(&agent.message, pod.containers).unwrap_or_default();
    AttemptResult::new(
        reason,
        message,
        Evidence {
            results,
            ..evidence(Some(pod))
        },
    )
}

/// Returns why one of our own containers failed. Its report has the reason, unless something ended
/// the container.
fn step_failed(pod: &str, container: &str, otherwise: Reason, exit: &Exit) -> (Reason, String) {
    if exit.is_out_of_memory() {
        let message = format!(
            "{pod}: the container '{container}' used more memory than its limit and was killed"
        );
        return (Reason::OOMKilled, message);
    }
    match Report::read(&exit.message) {
        Some(Report::Failed { reason, message }) => {
            let reason = Reason::from_name(reason.as_str()).unwrap_or(otherwise);
            (reason, message)
        }
        Some(
            Report::Cloned { .. }
            | Report::Pushed { .. }
            | Report::Found { .. }
            | Report::NoChanges { .. },
        )
        | None => {
            let detail =
                plain(&exit.message).map_or_else(String::new, |text| format!(": \"{text}\""));
            let message = format!(
                "{pod}: the container '{container}' exited with code {} and without a report{detail}",
                exit.code
            );
            (otherwise, message)
        }
    }
}

fn exit_message(pod: &str, exit: &Exit) -> String {
    let signal = exit
        .signal()
        .map_or_else(String::new, |signal| format!(" (signal {signal})"));
    let quote = plain(&exit.message).map_or_else(String::new, |text| format!(": \"{text}\""));
    format!(
        "{pod}: the agent exited with code {}{signal}{quote}",
        exit.code
    )
}

/// Returns the first lines of a message, if a person can read it.
fn plain(message: &str) -> Option<String> {
    let message = message.trim();
    let readable = !message.is_empty()
        && !message.starts_with(['{', '['])
        && !message
            .chars()
            .any(|letter| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t'));
    readable.then(|| bounded(message, QUOTE))
}
