//! The end of an attempt: the last link of a failed run, and the evidence of a successful one.

use api::{
    Reason, messages, names,
    tasks::{Evidence as RunResult, RunPhase},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Finding, agent, commands,
    container::{self, AFTER_EDIT, THEN_AGAIN, Words},
    create, docs,
    outcome::{Explained, explain_outcome},
    plain,
    run_context::RunContext,
    stop::{Stop, stopping},
};
use crate::{
    explanation::{Command, Health, Link, NoteKind, State},
    times,
    world::{ContainerState, ObjectRef, PodView},
};

/// Explains a finished run, unless a newer context version has not been reconciled yet.
pub(super) fn find(context: RunContext<'_>) -> Option<Finding> {
    let is_of_this_version =
        context.status().context_version.unwrap_or_default() >= context.run.version;
    let message = context.status().progress.message.as_deref();
    if is_of_this_version && message.is_some_and(messages::is_restored) {
        return Some(restored(context));
    }
    match context.phase() {
        RunPhase::Succeeded if is_of_this_version => Some(succeeded(context)),
        RunPhase::Failed if is_of_this_version => Some(failed(context)),
        RunPhase::Pending | RunPhase::Running | RunPhase::Succeeded | RunPhase::Failed => None,
    }
}

/// Explains a run that was restored without its status. Nothing ran here, so only the earlier
/// outcome is known.
fn restored(context: RunContext<'_>) -> Finding {
    let (state, health) = match context.phase() {
        RunPhase::Succeeded => (State::Succeeded, Health::Ok),
        RunPhase::Failed | RunPhase::Pending | RunPhase::Running => (State::Failed, Health::Error),
    };
    let link = Link::new(
        context.object(),
        health,
        context.reason().unwrap_or(Reason::EvidenceLost),
        "was restored without its status; the annotation 'orchestrator.io/outcome' kept how it had ended",
    )
    .seen("metadata.annotations", "orchestrator.io/outcome", None);
    let advice = "Nothing was run here, and nothing has to be. Its evidence is in the object that it was restored from; to run it once more: orc retry.";
    Finding::new(state, advice)
        .link(link)
        .then(commands::yaml(
            &context.object(),
            "what the annotation says",
        ))
        .then(commands::retry(context))
}

fn succeeded(context: RunContext<'_>) -> Finding {
    let empty = RunResult::default();
    let result = context.status().result.as_ref().unwrap_or(&empty);
    let mut finding = Finding::new(State::Succeeded, "Nothing to do.");
    if let Some(job) = context.job() {
        let link = Link::new(job.object(), Health::Ok, "Complete", "is complete");
        finding = finding.link(match job.end() {
            Some(end) => link.seen(
                format!("condition {}={}", end.kind, end.status),
                &end.message,
                end.since.as_ref(),
            ),
            None => link,
        });
    }
    let pod = pod_object(context, result);
    let mut link = Link::new(
        pod,
        Health::Ok,
        "Completed",
        format!(
            "the agent exited with code {}{}{}",
            code(result),
            took(result),
            there(context, result)
        ),
    )
    .seen(
        "status.result.exitCode",
        code(result),
        result.finished_at.as_ref(),
    );
    for (name, value) in result.results.iter().take(8) {
        link = link.seen(format!("result {name}"), value, None);
    }
    if let Some(image) = &result.image_id {
        link = link.seen("image", image, None);
    }
    if let Some(node) = &result.node {
        link = link.seen("node", node, None);
    }
    let finding = finding.link(link).links(docs::proof(context));
    with_logs(context, result, finding)
        .then(commands::yaml(&context.object(), "all of the evidence"))
}

fn code(result: &RunResult) -> String {
    result
        .exit_code
        .map_or_else(|| "?".to_owned(), |code| code.to_string())
}

/// Formats a duration: ` after 42s`.
pub(super) fn took(result: &RunResult) -> String {
    match (&result.started_at, &result.finished_at) {
        (Some(start), Some(end)) => {
            format!(
                " after {}",
                times::span(end.0.as_second().saturating_sub(start.0.as_second()))
            )
        }
        _ => String::new(),
    }
}

fn pod_object(context: RunContext<'_>, result: &RunResult) -> ObjectRef {
    match result.pod_name.as_deref() {
        Some(name) => context.here("Pod", name),
        None => context.here(
            "Job",
            context.status().job_name.as_deref().unwrap_or("(none)"),
        ),
    }
}

/// Returns ` (the Pod no longer exists)` if the Pod no longer exists.
fn there(context: RunContext<'_>, result: &RunResult) -> &'static str {
    if result.pod_name.is_some() && context.pod_of_result(result).is_none() {
        " (the Pod no longer exists)"
    } else {
        ""
    }
}

/// Adds the command that reads the log, or a note that the log was deleted with the Pod.
fn with_logs(context: RunContext<'_>, result: &RunResult, finding: Finding) -> Finding {
    match context.pod_of_result(result) {
        Some(pod)
            if !matches!(
                pod.state(),
                ContainerState::Unknown | ContainerState::Waiting(_)
            ) =>
        {
            finding.then(commands::logs(context, pod))
        }
        Some(_) => finding,
        None if result.pod_name.is_some() && result.started_at.is_some() => {
            let why = match context.phase() {
                RunPhase::Succeeded | RunPhase::Failed => format!(
                    "; some minutes after the end Jobs are cleaned up, unless the run's 'childTTL' or the annotation {}=\"true\" keeps them",
                    names::PRESERVE
                ),
                RunPhase::Pending | RunPhase::Running => String::new(),
            };
            finding.note(
                NoteKind::Hint,
                format!("the Pod and its log are deleted{why}"),
            )
        }
        None => finding,
    }
}

fn failed(context: RunContext<'_>) -> Finding {
    let empty = RunResult::default();
    let result = context.status().result.as_ref().unwrap_or(&empty);
    let reason = context.reason().unwrap_or(Reason::InternalError);
    let never_ran = result.pod_name.is_none();
    let needs_agent = matches!(reason, Reason::AgentNotFound | Reason::AgentNotReady);
    let is_not_asked = messages::is_not_asked(context.message());
    let mut finding = if reason == Reason::StartTimeout && !is_not_asked {
        start_timeout(context, result)
    } else if reason == Reason::Cancelled {
        cancelled(context, result)
    } else if needs_agent && never_ran {
        never_started(context, reason)
    } else if let Some(finding) = docs::failed(context, result, reason) {
        finding
    } else {
        outcome(context, result, reason).then(commands::retry(context))
    };
    finding.state = State::Failed;
    finding
}

/// Explains a cancelled run. The cause is in the run itself, so its own link is the deepest.
fn cancelled(context: RunContext<'_>, result: &RunResult) -> Finding {
    let changed = context.run.changed.as_ref();
    let mut link = Link::new(
        context.object(),
        Health::Error,
        Reason::Cancelled,
        "was ended by its 'spec.cancel', which someone set",
    )
    .seen("spec.cancel", context.run.cancel.to_string(), changed);
    if let Some(pod) = &result.pod_name {
        let what = match (&result.started_at, result.exit_code) {
            (Some(_), Some(code)) => {
                format!(
                    "Pod '{pod}' ran{} and exited with code {code}",
                    took(result)
                )
            }
            (Some(_), None) => format!("Pod '{pod}' ran{}", took(result)),
            (None, _) => format!("Pod '{pod}' was stopped before the agent started"),
        };
        link = link.seen(
            "status.result",
            what.replace("ran after", "ran for"),
            result.finished_at.as_ref(),
        );
    }
    let again = match &context.run.docs {
        Some(_) => {
            "To run it after all, run it again (orc retry): another DocsRun with the same spec."
        }
        None => "A cancelled run cannot be run again: submit another TaskRun.",
    };
    let finding = Finding::new(
        State::Failed,
        format!("Nothing: someone asked for it, and it cannot be taken back. {again}"),
    );
    with_logs(context, result, finding.link(link)).then(commands::who(
        &context.object(),
        "'metadata.managedFields' names who set 'cancel'",
    ))
}

fn never_started(context: RunContext<'_>, reason: Reason) -> Finding {
    match agent::blocking(context).filter(|finding| finding.state == State::Blocked) {
        Some(mut finding) => {
            finding.advice = if reason == Reason::AgentNotFound {
                format!(
                    "Create Agent '{}', then run it again (orc retry). The run was given up.",
                    context.run.agent_name
                )
            } else {
                format!(
                    "{} The run was given up: run it again (orc retry) after that.",
                    past(&finding.advice)
                )
            };
            finding.next.truncate(2);
            finding.then(commands::retry(context))
        }
        None => {
            let link = Link::new(
                context.here("Agent", &context.run.agent_name),
                Health::Ok,
                Reason::Ready,
                "exists and is ready by now",
            );
            Finding::new(
                State::Failed,
                format!(
                    "Run it again (orc retry): Agent '{}' can be used by now.",
                    context.run.agent_name
                ),
            )
            .link(link.seen("looked for it", "found", Some(&context.world.now)))
            .note(
                NoteKind::Disagreement,
                format!(
                    "the run ended as {reason}{}; its Agent is there now",
                    context.ago(context.status().finished_at.as_ref())
                ),
            )
            .then(commands::retry(context))
        }
    }
}

/// Explains a start timeout. The message contains the last observed cause: `… within 10m:
/// QuotaExceeded: …`.
fn start_timeout(context: RunContext<'_>, result: &RunResult) -> Finding {
    let message = context.message();
    let at = context.status().finished_at.as_ref();
    let job = context.status().job_name.as_deref().unwrap_or("(none)");
    let Some((reason, words)) = messages::start_timeout_cause(message) else {
        let link = Link::new(
            pod_object(context, result),
            Health::Error,
            Reason::StartTimeout,
            "did not start in time, and nothing said why",
        );
        return Finding::new(State::Failed, format!("Run it again (orc retry), and ask 'orc why' while it waits. Raise 'startTimeout' of Agent '{}' if its image is large or nodes are slow to come.", context.run.agent_name))
            .link(link.seen("status.message", message, at))
            .then(commands::retry(context))
            .then(commands::edit_agent(context, "raise 'startTimeout'"));
    };
    let mut finding = if reason == Reason::Cloning {
        docs::cloned_too_long(context, pod_object(context, result))
    } else if matches!(
        reason,
        Reason::QuotaExceeded
            | Reason::AdmissionDenied
            | Reason::DependencyNotReady
            | Reason::InvalidChild
    ) {
        let above = Link::new(
            context.here("Job", job),
            Health::Waiting,
            "FailedCreate",
            "never got its Pod: each try to create one was refused",
        );
        let refusal = create::Refusal {
            what: "Pod",
            message: words,
            source: "status.message",
            at,
            since: None,
        };
        create::explain(context, &refusal, above)
    } else if reason == Reason::SecretNotFound {
        let words = Words {
            source: "status.message".to_owned(),
            message: words,
            at,
            since: None,
            is_over: true,
        };
        container::secret(context, pod_object(context, result), &words)
    } else {
        let link = Link::new(
            pod_object(context, result),
            Health::Error,
            reason,
            "never started, for the cause in the first lines",
        );
        Finding::new(State::Failed, plain(reason))
            .link(link.seen("status.message", message, at))
            .then(commands::edit_agent(context, "correct it"))
    };
    finding.is_newer = false;
    finding.advice = format!(
        "{} The run was given up: run it again (orc retry) after that.",
        past(&finding.advice)
    );
    finding
        .next
        .retain(|command| !command.command.starts_with("orc "));
    finding.next.truncate(2);
    finding.then(commands::retry(context))
}

/// Removes the sentences that promise an automatic continuation from advice for a waiting run.
fn past(advice: &str) -> String {
    let advice = advice.replace(AFTER_EDIT, "").replace(THEN_AGAIN, "");
    let kept: Vec<&str> = advice
        .split_inclusive(". ")
        .filter(|sentence| !sentence.contains("by itself"))
        .map(str::trim)
        .filter(|sentence| !sentence.is_empty())
        .collect();
    if kept.is_empty() {
        let first = advice.split(';').next().unwrap_or(&advice);
        format!("{}.", first.trim().trim_end_matches('.'))
    } else {
        kept.join(" ")
    }
}

/// Returns the Pod's link for an attempt that ended with this reason, with advice.
pub(super) fn outcome(context: RunContext<'_>, result: &RunResult, reason: Reason) -> Finding {
    let Explained {
        sentence,
        advice,
        change,
    } = explain_outcome(context, result, reason);
    let mut finding = Finding::new(State::Failed, advice);
    if let Some(job) = context
        .job()
        .filter(|job| job.object() != pod_object(context, result))
    {
        let (health, how) = match job.end() {
            Some(end) if end.kind == "Complete" => (Health::Ok, "is complete"),
            Some(_) => (Health::Error, "has failed"),
            None => (Health::Waiting, "did not end by itself"),
        };
        let link = Link::new(job.object(), health, "Ended", how);
        finding = finding.link(match job.end() {
            Some(end) => link.seen(
                format!("condition {}=True ({})", end.kind, end.reason),
                &end.message,
                end.since.as_ref(),
            ),
            None => link,
        });
    }
    let mut link = Link::new(
        pod_object(context, result),
        Health::Error,
        reason,
        format!("{sentence}{}", there(context, result)),
    );
    let ended = [
        result.exit_code.map(|code| format!("exit code {code}")),
        result.signal.map(|signal| format!("signal {signal}")),
        result.node.as_ref().map(|node| format!("node {node}")),
    ];
    let ended: Vec<String> = ended.into_iter().flat_map(Option::into_iter).collect();
    let words = if ended.is_empty() {
        result.message.clone().unwrap_or_default()
    } else {
        ended.join(", ")
    };
    link = link.seen("status.result", words, result.finished_at.as_ref());
    if reason == Reason::TooManyDisruptions {
        let count = context.status().disruptions.to_string();
        link = link.seen("status.disruptions", count, context.written());
        finding = finding.then(Command::new(
            format!(
                "kubectl get events -n {} --field-selector involvedObject.kind=Pod",
                context.namespace()
            ),
            "who stopped its Pods (Events of the last hour)",
        ));
    }
    for (name, value) in result.results.iter().take(4) {
        link = link.seen(format!("result {name}"), value, None);
    }
    let finding = with_logs(context, result, finding.link(link));
    finding.maybe(change)
}

/// Explains a failed attempt that will be followed by another one.
pub(super) fn between(context: RunContext<'_>) -> Option<Finding> {
    let status = context.status();
    let result = status.result.as_ref()?;
    let reason = result.reason.as_deref().and_then(Reason::from_name)?;
    if result.finished_at.is_none() {
        return Some(being_stopped(context, result, reason));
    }
    let due = status.progress.deadline_at.as_ref();
    let mut finding = outcome(context, result, reason);
    finding.state = State::Waiting;
    if was_disrupted(result) {
        finding.advice = format!(
            "Nothing: the same attempt is started again by itself, and no attempt is used. This was disruption {}; the 6th ends the run.",
            status.disruptions
        );
    } else {
        finding.advice = format!(
            "Wait: the next attempt starts by itself{}. Meanwhile find out why attempt {} failed.",
            context.ago(due),
            status.attempts
        );
    }
    let attempt = if was_disrupted(result) {
        status.attempts
    } else {
        status.attempts.saturating_add(1)
    };
    let next = Link::new(
        ObjectRef::cluster("Attempt", &attempt.to_string()),
        Health::Waiting,
        Reason::Progressing,
        match due {
            Some(due) if due.0 > context.now() => {
                format!("starts by itself at {}", context.when(due))
            }
            Some(_) | None => "is about to start by itself".to_owned(),
        },
    )
    .since(result.finished_at.as_ref())
    .seen("status.deadlineAt", "", due);
    finding = finding.link(next);
    Some(finding.then(commands::look_again(context)))
}

/// Returns whether the attempt was disrupted. A disruption uses no attempt.
pub(super) fn was_disrupted(result: &RunResult) -> bool {
    let reason = result.reason.as_deref().and_then(Reason::from_name);
    matches!(reason, Some(Reason::Disrupted | Reason::JobLost))
}

/// Explains an attempt that was aborted while its Job is still being stopped.
fn being_stopped(context: RunContext<'_>, result: &RunResult, reason: Reason) -> Finding {
    let pod = context
        .job()
        .and_then(|job| context.newest_pod(job))
        .filter(|pod| pod.may_run());
    let mut finding = match pod {
        Some(pod) if pod.meta.deleting.is_some() => stopping(context, pod, Stop::Ours(reason)),
        Some(_) | None => outcome(context, result, reason),
    };
    if finding.state != State::Blocked {
        finding.state = State::Waiting;
        finding.advice = format!(
            "Wait: attempt {} was given up ({reason}), and its Job is being stopped. {}",
            context.status().attempts,
            plain(reason)
        );
    }
    finding
}

/// Explains a container that has ended before the status reports it.
pub(super) fn settling(context: RunContext<'_>, pod: &PodView) -> Finding {
    let (sentence, finished) = match pod.state().exit() {
        Some(exit) => {
            let (code, reason) = (exit.code, &exit.reason);
            let words = match exit.message.as_str() {
                "" => String::new(),
                message => format!(": \"{message}\""),
            };
            let name = docs::container_words(context, pod);
            (
                format!("{name} exited with code {code} ({reason}){words}"),
                exit.finished.map(Time),
            )
        }
        None => (
            format!(
                "the Pod failed before its container started ({}): {}",
                pod.reason, pod.message
            ),
            None,
        ),
    };
    let is_late = finished.as_ref().is_some_and(|at| context.age(at) > 30);
    let link = Link::new(
        pod.object(),
        if is_late {
            Health::Error
        } else {
            Health::Waiting
        },
        "Ended",
        sentence,
    )
    .since(finished.as_ref())
    .seen("container state", &pod.phase, finished.as_ref());
    let advice = if is_late {
        format!(
            "Check whether the Job controller and the operator work: the end of Pod '{}' is not recorded yet.",
            pod.meta.name
        )
    } else {
        "Wait a moment: the end is being read and recorded.".to_owned()
    };
    Finding::new(State::Waiting, advice)
        .link(link)
        .then(commands::logs(context, pod))
        .then(commands::look_again(context))
        .then(Command::new(
            "kubectl get lease kube-controller-manager -n kube-system -o yaml",
            "is 'renewTime' seconds old?",
        ))
}
