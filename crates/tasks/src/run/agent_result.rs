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

/// Results of an agent, by name.
type Results = BTreeMap<String, String>;

/// Evaluates the exit of the container that ended the Pod. Without a `failure`, the Job is complete.
pub(super) fn evaluate(
    pod: &PodView,
    exit: &Exit,
    failure: Option<&str>,
    attempt_spec: Option<&AttemptSpec>,
) -> AttemptResult {
    // The last container of a DocsRun is ours. The agent's results are in the agent's own container.
    let agent = pod.main_exit.as_ref().unwrap_or(exit);
    let results = results(&agent.message, pod.containers);
    let (reason, message, results) = match (failure, pod.step) {
        (None, _) => succeeded(pod, results, attempt_spec),
        (Some(_), Step::Before) if exit.code != 0 => {
            step_failed(pod, build::CLONE, Reason::CloneFailed, exit)
        }
        (Some(_), Step::After) if exit.code != 0 => {
            step_failed(pod, build::PUBLISH, Reason::PublishFailed, exit)
        }
        (Some(failure), Step::Before | Step::Main | Step::After) => {
            let (reason, message) = failed(pod, exit, failure, attempt_spec);
            (reason, message, results.unwrap_or_default())
        }
    };
    let evidence = Evidence {
        results,
        ..evidence(Some(pod))
    };
    AttemptResult::new(reason, message, evidence)
}

/// Evaluates an attempt whose last container exited with code 0. Only this function creates a success.
fn succeeded(
    pod: &PodView,
    results: Result<Results, (Reason, String)>,
    attempt_spec: Option<&AttemptSpec>,
) -> (Reason, String, Results) {
    let Some(attempt_spec) = attempt_spec else {
        let message = "the agent exited with code 0, but its Agent no longer exists, so the required results are unknown";
        return (Reason::AgentNotFound, message.to_owned(), Results::new());
    };
    let results = match results {
        Ok(results) => results,
        Err((reason, message)) => return (reason, message, Results::new()),
    };
    let required = attempt_spec.required.iter().map(String::as_str);
    let missing: Vec<&str> = required
        .filter(|name| !results.contains_key(*name))
        .collect();
    if missing.is_empty() {
        let message = format!("the agent exited with code 0; {}", describe_pod(pod));
        return (Reason::Succeeded, message, results);
    }
    let missing = missing.join(", ");
    let message = format!("the agent exited with code 0 without the required results: {missing}");
    (Reason::ResultMissing, message, results)
}

/// Returns the results in a termination message, or the reason why they cannot be trusted.
///
/// `containers` is the number of containers of the Pod, with those that other components injected.
fn results(message: &str, containers: usize) -> Result<Results, (Reason, String)> {
    let limit = message_limit(containers);
    if message.len() >= limit {
        let shared = if limit < message_limit(1) {
            format!(" (the {containers} containers of the Pod share 12 KiB)")
        } else {
            String::new()
        };
        let message = format!(
            "the termination message has {limit} bytes or more{shared}, so it was cut and proves nothing"
        );
        return Err((Reason::ResultTooLarge, message));
    }
    let message = message.trim();
    if message.is_empty() {
        return Ok(Results::new());
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

/// Returns why the Job of an agent failed.
fn failed(
    pod: &PodView,
    exit: &Exit,
    job_message: &str,
    attempt_spec: Option<&AttemptSpec>,
) -> (Reason, String) {
    let name = describe_pod(pod);
    if exit.is_out_of_memory() {
        let limit = memory_limit(Step::Main, attempt_spec);
        let message = format!("{name}: the container used more memory {limit} and was killed");
        return (Reason::OOMKilled, message);
    }
    if let Some(failure) = StartFailure::of(&exit.reason, &exit.message, 0) {
        let user = attempt_spec.map(|spec| spec.user);
        let cause = failure.cause(&name, &exit.message, user);
        return (cause.reason, cause.message);
    }
    let code = exit.code;
    if code == 0 {
        let detail = after_colon(job_message);
        let message =
            format!("{name}: the container exited with code 0, but its Job failed{detail}");
        return (Reason::JobFailed, message);
    }
    let signal = exit
        .signal()
        .map_or_else(String::new, |signal| format!(" (signal {signal})"));
    let quote = quote(&exit.message);
    let message = format!("{name}: the agent exited with code {code}{signal}{quote}");
    (Reason::NonZeroExit, message)
}

/// Returns why one of our own containers failed. Its report has the reason, unless something ended the container.
fn step_failed(
    pod: &PodView,
    container: &str,
    otherwise: Reason,
    exit: &Exit,
) -> (Reason, String, Results) {
    let name = describe_pod(pod);
    let (reason, message) = match Report::read(&exit.message) {
        Some(_) | None if exit.is_out_of_memory() => {
            let message = format!(
                "{name}: the container '{container}' used more memory than its limit and was killed"
            );
            (Reason::OOMKilled, message)
        }
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
            let (code, quote) = (exit.code, quote(&exit.message));
            let message = format!(
                "{name}: the container '{container}' exited with code {code} and without a report{quote}"
            );
            (otherwise, message)
        }
    };
    (reason, message, Results::new())
}

/// Quotes the first lines of a message, if a person can read it.
fn quote(message: &str) -> String {
    let message = message.trim();
    let readable = !message.is_empty()
        && !message.starts_with(['{', '['])
        && !message
            .chars()
            .any(|letter| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t'));
    if readable {
        format!(": \"{}\"", bounded(message, QUOTE))
    } else {
        String::new()
    }
}
