//! The end of an attempt: the last link of a failed run, and the evidence of a successful one.

use super::container::{AFTER_EDIT, THEN_AGAIN};
use super::outcome::{explain_outcome, plain};
use super::*;

/// Explains a finished run, unless a newer context version has not been reconciled yet.
pub(super) fn find(run: Run<'_>) -> Option<Finding> {
    let status = run.status();
    if status.context_version.unwrap_or_default() < run.view.version {
        return None;
    }
    let empty = RunResult::default();
    let result = status.result.as_ref().unwrap_or(&empty);
    if messages::is_restored(run.message()) {
        return Some(restored(run));
    }
    match run.phase() {
        RunPhase::Succeeded => Some(succeeded(run, result)),
        RunPhase::Failed => Some(failed(run, result)),
        RunPhase::Pending | RunPhase::Running => None,
    }
}

/// Explains a run that was restored without its status. Nothing ran here, so only the earlier
/// outcome is known.
fn restored(run: Run<'_>) -> Finding {
    let (state, health) = match run.phase() {
        RunPhase::Succeeded => (State::Succeeded, Health::Ok),
        RunPhase::Failed | RunPhase::Pending | RunPhase::Running => (State::Failed, Health::Error),
    };
    let reason = run.reason().unwrap_or(Reason::EvidenceLost);
    finding! { (state) "Nothing was run here, and nothing has to be. Its evidence is in the object that it was restored from; to run it once more: orc retry.";
        (health) run.object(), reason, "was restored without its status; the annotation 'orchestrator.io/outcome' kept how it had ended";
        seen "metadata.annotations" => "orchestrator.io/outcome", None;
        then run.object().yaml("what the annotation says"), run.retry();
    }
}

fn succeeded(run: Run<'_>, result: &RunResult) -> Finding {
    let job = run.job().map(|job| {
        let end = job.end().map(|end| {
            let source = format!("condition {}={}", end.kind, end.status);
            Evidence::new(source, &end.message, end.since.as_ref())
        });
        link! { Ok job.object(), "Complete", "is complete"; seen end; }
    });
    let code = result
        .exit_code
        .map_or_else(|| "?".to_owned(), |code| code.to_string());
    let (took, there) = (took(result), there(run, result));
    let mut link = link! {
        Ok pod_object(run, result), "Completed", "the agent exited with code {code}{took}{there}";
        seen "status.result.exitCode" => (code), result.finished_at.as_ref();
    };
    let results = result.results.iter().take(8);
    let results = results.map(|(name, value)| Evidence::new(format!("result {name}"), value, None));
    link.evidence.extend(results);
    let image = result
        .image_id
        .iter()
        .map(|image| Evidence::new("image", image, None));
    let node = result
        .node
        .iter()
        .map(|node| Evidence::new("node", node, None));
    link.evidence.extend(image.chain(node));
    let finding = finding! { Succeeded "";
        link job;
        link link;
        link docs::proof(run);
    };
    with_logs(run, result, finding).then(run.object().yaml("all of the evidence"))
}

/// Formats a duration: ` after 42s`.
pub(super) fn took(result: &RunResult) -> String {
    match (&result.started_at, &result.finished_at) {
        (Some(start), Some(end)) => {
            let seconds = end.0.as_second().saturating_sub(start.0.as_second());
            format!(" after {}", times::span(seconds))
        }
        _ => String::new(),
    }
}

fn pod_object(run: Run<'_>, result: &RunResult) -> ObjectRef {
    match result.pod_name.as_deref() {
        Some(name) => run.here("Pod", name),
        None => run.here("Job", run.status().job_name.as_deref().unwrap_or("(none)")),
    }
}

/// Returns ` (the Pod no longer exists)` if the Pod no longer exists.
fn there(run: Run<'_>, result: &RunResult) -> &'static str {
    let is_gone = run.pod_of_result(result).is_none() && run.was_read("pods");
    match result.pod_name.is_some() && is_gone {
        true => " (the Pod no longer exists)",
        false => "",
    }
}

/// The note about a container that did not start.
const NO_LOG: &str = "there is no log: the container never started";

/// Adds the command that reads the log, or the reason why there is no log.
fn with_logs(run: Run<'_>, result: &RunResult, finding: Finding) -> Finding {
    match run.pod_of_result(result) {
        Some(pod) if pod.is_evicted() => {
            finding.note("the kubelet evicted the Pod and deleted its log".to_owned())
        }
        Some(pod) if pod.has_log() => finding.then(run.logs(pod)),
        Some(pod) if matches!(pod.state(), ContainerState::Unknown) => finding,
        Some(_) => finding.note(NO_LOG.to_owned()),
        None if is_start_failure(result) => finding.note(NO_LOG.to_owned()),
        None if result.pod_name.is_some() && !run.was_read("pods") => {
            let namespace = run.namespace;
            rows! { finding;
                shell "kubectl auth can-i get pods --subresource=log -n {namespace}" => "whether you may read the log, if its Pod still exists";
            }
        }
        None if result.pod_name.is_some() && result.started_at.is_some() => {
            let why = one_of! { run.phase();
                RunPhase::Succeeded | RunPhase::Failed => "; some minutes after the end Jobs are cleaned up, unless the run's 'childTTL' or the annotation {}=\"true\" keeps them", names::PRESERVE;
                RunPhase::Pending | RunPhase::Running => "";
            };
            finding.note(format!("the Pod and its log are deleted{why}"))
        }
        None => finding,
    }
}

/// Returns whether the container of an attempt never ran, so that it wrote no log.
fn is_start_failure(result: &RunResult) -> bool {
    let reason = result.reason.as_deref().and_then(Reason::from_name);
    matches!(
        reason,
        Some(Reason::ContainerNotStartable | Reason::ImageNeedsRoot | Reason::ImagePullFailed)
    )
}

fn failed(run: Run<'_>, result: &RunResult) -> Finding {
    let reason = run.reason().unwrap_or(Reason::InternalError);
    let never_ran = result.pod_name.is_none();
    let needs_agent = matches!(reason, Reason::AgentNotFound | Reason::AgentNotReady);
    let is_not_asked = messages::is_not_asked(run.message());
    let mut finding = if reason == Reason::StartTimeout && !is_not_asked {
        start_timeout(run, result)
    } else if reason == Reason::Cancelled {
        cancelled(run, result)
    } else if needs_agent && never_ran {
        never_started(run, reason)
    } else if let Some(finding) = docs::failed(run, result, reason) {
        finding
    } else if let Some(finding) = rejected(run, reason) {
        finding
    } else {
        outcome(run, result, reason).then(run.retry())
    };
    finding.state = State::Failed;
    finding
}

/// Explains a cancelled run. The cause is in the run itself, so its own link is the deepest.
fn cancelled(run: Run<'_>, result: &RunResult) -> Finding {
    let ran = took(result).replace(" after", " for");
    let was_cancelled = result.reason.as_deref() == Some(Reason::Cancelled.name());
    let pod = result.pod_name.as_ref().map(|pod| {
        let how = match (&result.started_at, result.exit_code) {
            (Some(_), Some(code)) if was_cancelled => {
                format!(
                    "Pod '{pod}' ran{ran}, and ended with exit code {code} after it was stopped"
                )
            }
            // The attempt had ended before someone cancelled the run.
            (Some(_), Some(code)) => format!("Pod '{pod}' ran{ran} and exited with code {code}"),
            (Some(_), None) => format!("Pod '{pod}' ran{ran}"),
            (None, _) => format!("Pod '{pod}' was stopped before the agent started"),
        };
        Evidence::new("status.result", how, result.finished_at.as_ref())
    });
    let again = match &run.view.docs {
        Some(_) => {
            "To run it after all, run it again (orc retry): another DocsRun with the same spec."
        }
        None => "A cancelled run cannot be run again: submit another TaskRun.",
    };
    let finding = finding! {
        Failed "{again}";
        Error run.object(), Reason::Cancelled, "was ended by its 'spec.cancel', which someone set";
        seen "spec.cancel" => (run.view.cancel.to_string()), run.changed; seen pod;
    };
    let who = run
        .object()
        .who("'metadata.managedFields' names the manager that set 'cancel'");
    with_logs(run, result, finding).then(who)
}

/// Explains a run that ended because the API server rejected its children until the deadline, or because its files do
/// not fit.
fn rejected(run: Run<'_>, reason: Reason) -> Option<Finding> {
    let has_waited = messages::is_never_started(run.message());
    if !has_waited && reason != Reason::ContextTooLarge {
        return None;
    }
    let mut finding = faults::find(Origin::Agent(run))?;
    if !has_waited {
        return Some(finding);
    }
    finding.advice = given_up(&finding.advice);
    finding.next.truncate(3);
    Some(finding.then(run.retry()))
}

fn never_started(run: Run<'_>, reason: Reason) -> Finding {
    let agent = &run.view.agent_name;
    if let Some(mut finding) = agent::blocking(run).filter(|known| known.state == State::Blocked) {
        finding.advice = match reason == Reason::AgentNotFound {
            true => {
                text! { "Create Agent '{agent}', then run it again (orc retry). The run was given up." }
            }
            false => given_up(&finding.advice),
        };
        finding.next.truncate(2);
        return finding.then(run.retry());
    }
    let ended = run.ago(run.status().finished_at.as_ref());
    let mut finding = finding! {
        Failed "Run it again (orc retry): Agent '{agent}' can be used by now.";
        Ok run.agent(), Reason::Ready, "exists and is ready by now"; seen run.seen("looked for it", "found");
        then run.retry();
    };
    finding.notes.push(Note {
        kind: NoteKind::Disagreement,
        text: format!("the run ended as {reason}{ended}; its Agent is there now"),
    });
    finding
}

/// Explains a start timeout. The message contains the last observed cause: `… within 10m:
/// QuotaExceeded: …`.
fn start_timeout(run: Run<'_>, result: &RunResult) -> Finding {
    let (message, agent) = (run.message(), &run.view.agent_name);
    let at = run.status().finished_at.as_ref();
    let job = run.status().job_name.as_deref().unwrap_or("(none)");
    let pod = pod_object(run, result);
    let Some((reason, words)) = messages::start_timeout_cause(message) else {
        return finding! { Failed "Run it again (orc retry), and ask 'orc why' while it waits. Raise 'startTimeout' of Agent '{agent}' if its image is large or nodes are slow to come.";
            Error pod, Reason::StartTimeout, "did not start in time, and nothing said why";
            seen "status.message" => (message), at;
            then run.retry(), run.edit_agent("raise 'startTimeout'");
        };
    };
    let is_refused = matches!(
        reason,
        Reason::QuotaExceeded
            | Reason::AdmissionDenied
            | Reason::DependencyNotReady
            | Reason::InvalidChild
    );
    let (origin, said) = (Origin::Agent(run), Report::in_status(words, at));
    let mut finding = if reason == Reason::Cloning {
        docs::cloned_too_long(run, pod)
    } else if is_refused {
        let above = link! {
            Waiting run.here("Job", job), "FailedCreate", "never got its Pod: each try to create one was refused";
        };
        Refusal::new(origin, "Pod", said).explain(above)
    } else if reason == Reason::SecretNotFound {
        container::missing(origin, pod, &said, true)
    } else {
        finding! { Failed (plain(reason));
            Error pod, reason, "never started, for the cause in the first lines";
            seen "status.message" => (message), at; then run.edit_agent("correct it");
        }
    };
    finding.is_newer = false;
    finding.advice = given_up(&finding.advice);
    finding
        .next
        .retain(|command| !command.command.starts_with("orc "));
    finding.next.truncate(2);
    finding.then(run.retry())
}

/// Converts the advice for a waiting run into the advice for a run that was given up: without the
/// sentences that promise an automatic continuation.
fn given_up(advice: &str) -> String {
    let advice = advice.replace(AFTER_EDIT, "").replace(THEN_AGAIN, "");
    let kept: Vec<&str> = advice
        .split_inclusive(". ")
        .filter(|sentence| !sentence.contains("by itself"))
        .map(str::trim)
        .filter(|sentence| !sentence.is_empty())
        .collect();
    let first = advice.split(';').next().unwrap_or(&advice);
    let kept = match kept.is_empty() {
        true => format!("{}.", first.trim().trim_end_matches('.')),
        false => kept.join(" "),
    };
    format!("{kept} The run was given up: run it again (orc retry) after that.")
}

/// Returns the link of a Job that ended, or did not.
fn ended_job(job: &JobView) -> Link {
    let (health, how) = match job.end() {
        Some(end) if end.kind == "Complete" => (Health::Ok, "is complete"),
        Some(_) => (Health::Error, "has failed"),
        None => (Health::Waiting, "did not end by itself"),
    };
    link! { (health) job.object(), "Ended", (how); seen job.end().map(|end| end.evidence()); }
}

/// Returns the Pod's link for an attempt that ended with this reason, with advice.
pub(super) fn outcome(run: Run<'_>, result: &RunResult, reason: Reason) -> Finding {
    let (sentence, advice, change) = explain_outcome(run, result, reason);
    let pod = pod_object(run, result);
    let job = run.job().filter(|job| job.object() != pod).map(ended_job);
    let ended = [
        result.exit_code.map(|code| format!("exit code {code}")),
        result.signal.map(|signal| format!("signal {signal}")),
        result.node.as_ref().map(|node| format!("node {node}")),
    ];
    let ended: Vec<String> = ended.into_iter().flat_map(Option::into_iter).collect();
    let words = match ended.is_empty() {
        true => result.message.clone().unwrap_or_default(),
        false => ended.join(", "),
    };
    let is_disrupted = reason == Reason::TooManyDisruptions;
    let disruptions = run.status().disruptions.to_string();
    let disruptions = Evidence::new("status.disruptions", disruptions, run.written());
    let results = result.results.iter().take(4);
    let results = results.map(|(name, value)| Evidence::new(format!("result {name}"), value, None));
    let mut link = link! { Error pod, reason, "{sentence}{}", there(run, result);
        seen "status.result" => (words), result.finished_at.as_ref();
        seen Some(disruptions).filter(|_| is_disrupted);
    };
    link.evidence.extend(results);
    let events = shell! {
        "kubectl get events -n {} --field-selector involvedObject.kind=Pod", run.namespace => "who stopped its Pods (Events of the last hour)"
    };
    let finding = finding! { Failed (advice);
        link job;
        link link;
        then Some(events).filter(|_| is_disrupted);
    };
    with_logs(run, result, finding).then(change)
}

/// Explains a failed attempt that will be followed by another one.
pub(super) fn between(run: Run<'_>) -> Option<Finding> {
    let status = run.status();
    let result = status.result.as_ref()?;
    let reason = result.reason.as_deref().and_then(Reason::from_name)?;
    if result.finished_at.is_none() {
        return Some(being_stopped(run, result, reason));
    }
    let (due, count) = (run.progress.deadline_at.as_ref(), status.disruptions);
    let last = status.attempts;
    let mut finding = outcome(run, result, reason);
    finding.state = State::Waiting;
    let attempt = if was_disrupted(result) {
        finding.advice = text! { "Wait: the same attempt is started again by itself, and no attempt is used. This was disruption {count}; the 6th ends the run." };
        last
    } else {
        finding.advice = text! { "Wait: the next attempt starts by itself{}. Meanwhile find out why attempt {last} failed.", run.due(due) };
        last.saturating_add(1)
    };
    // While old Pods stop, the deadline is that of the wait.
    let message = run.progress.message.as_deref().unwrap_or_default();
    let old = message.strip_prefix("waiting for ");
    let old = old.and_then(|rest| rest.strip_suffix(" to stop"));
    let start = match (old, due.filter(|due| due.0 > run.world.now.0)) {
        (Some(old), _) => format!("starts by itself when {old} has stopped"),
        (None, Some(due)) => format!("starts by itself at {}", run.when(due)),
        (None, None) => "is about to start by itself".to_owned(),
    };
    Some(rows! { finding;
        Waiting ObjectRef::cluster("Attempt", &attempt.to_string()), Reason::Progressing, (start);
        since result.finished_at.as_ref(); seen (crate::render::DEADLINE) => "", due;
        then run.look_again();
    })
}

/// Returns whether the attempt was disrupted. A disruption uses no attempt.
pub(super) fn was_disrupted(result: &RunResult) -> bool {
    let reason = result.reason.as_deref().and_then(Reason::from_name);
    matches!(reason, Some(Reason::Disrupted | Reason::JobLost))
}

/// Explains an attempt that was aborted while its Job is still being stopped.
fn being_stopped(run: Run<'_>, result: &RunResult, reason: Reason) -> Finding {
    let mut finding = match run.running_pod() {
        Some(pod) if pod.meta.deleting.is_some() => stopping(*run, pod, Stop::Ours(reason)),
        Some(_) | None => outcome(run, result, reason),
    };
    if finding.state != State::Blocked {
        let (attempt, advice) = (run.status().attempts, plain(reason));
        finding.state = State::Waiting;
        finding.advice = one_of! { reason;
            Reason::Disrupted | Reason::JobLost => "Wait: attempt {attempt} was given up ({reason}), and starts again by itself when its Job has stopped. That uses no attempt.";
            _ => "Wait until the Job of attempt {attempt} has stopped; it was given up ({reason}). {advice}";
        };
    }
    finding
}

/// Explains a container that has ended before the status reports it.
pub(super) fn settling(run: Run<'_>, pod: &PodView) -> Finding {
    let (sentence, finished) = match pod.state().exit() {
        Some(exit) => {
            let (code, reason) = (exit.code, &exit.reason);
            let words = match exit.message.as_str() {
                "" => String::new(),
                message => format!(": \"{message}\""),
            };
            let name = docs::container_words(run, pod);
            let finished = exit.finished.map(Time);
            let sentence = match was_stopped(pod, finished.as_ref()) {
                true => format!("{name} ended with exit code {code} after it was stopped{words}"),
                false => format!("{name} exited with code {code} ({reason}){words}"),
            };
            (sentence, finished)
        }
        None => {
            let (reason, message) = (&pod.reason, &pod.message);
            let sentence =
                format!("the Pod failed before its container started ({reason}): {message}");
            (sentence, None)
        }
    };
    let finished = finished.as_ref();
    let is_late = run.age(finished) > 30;
    if let Some(other) = outlives(pod).filter(|_| is_late) {
        return finding! { Waiting "Something injects container '{other}' into the Pod. Exempt the Pods of agents from that, or let it inject a container that ends with the agent: an init container with 'restartPolicy: Always'. The run fails at its deadline.";
            Error pod.object(), "Ended", "{sentence}, but container '{other}' still runs, so the Pod does not end"; since finished;
            seen "container state" => (&pod.phase), finished;
            then run.logs(pod), pod.object().yaml("the containers, and what injected them"), run.look_again();
        };
    }
    let (health, advice) = if is_late {
        let advice = text! { "Check whether the Job controller and the operator work: the end of Pod '{}' is not recorded yet.", pod.meta.name };
        (Health::Error, advice)
    } else {
        let advice = "Wait a moment: the end is being read and recorded.";
        (Health::Waiting, advice.to_owned())
    };
    finding! { Waiting (advice);
        (health) pod.object(), "Ended", (sentence); since finished;
        seen "container state" => (&pod.phase), finished;
        then Some(run.logs(pod)).filter(|_| pod.has_log()), run.look_again(), commands::controllers();
    }
}

/// Returns whether a container of the Pod was stopped before it ended at this time. Then exit code 0 is
/// no success: many programs exit with it after SIGTERM.
fn was_stopped(pod: &PodView, finished: Option<&Time>) -> bool {
    let deleting = pod.meta.deleting.as_ref();
    // The kubelet reports this reason for the limit with which the operator stops a Pod.
    pod.reason == "DeadlineExceeded"
        || deleting.is_some_and(|at| finished.is_none_or(|end| end >= at))
}

/// Returns a container that runs on although the one that counts has ended. A Pod of ours has none, so another component
/// injected it.
fn outlives(pod: &PodView) -> Option<&str> {
    let runs = |one: &&ContainerView| matches!(one.state, ContainerState::Running { .. });
    let other = pod.containers.iter().skip(1).find(runs);
    other.map(|one| one.name.as_str())
}
