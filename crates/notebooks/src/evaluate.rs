//! The result of an attempt, from the exits of its containers and the report of the runner.
//!
//! # Guarantees
//! A success needs all of: a complete Job, three containers with exit code 0 and nothing that contradicts it, a Pod that
//! nobody asked to stop, and a report of this attempt with counts that agree with each other. Exit code and report must
//! agree.

use api::{Reason, notebooks::notebook_reason, status::bounded, tasks::Evidence};
use attempts::{
    AttemptResult, describe_pod, evidence,
    view::{Exit, PodView, Step},
};
use git::fetch::FetchReport;
use pods::{StartFailure, after_colon};

use crate::report::{Counts, Identity, Outcome, Report, invalid};

/// Maximum number of characters that we quote from a message of a container.
const QUOTE: usize = 400;

/// Everything that the result of an attempt depends on.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// Pod of the attempt, with the state of its runner.
    pub pod: &'a PodView,
    /// End of the kernel's container, or of `fetch` if that failed.
    pub exit: &'a Exit,
    /// Message of the Job if it failed, or `None` if it is complete.
    pub failure: Option<&'a str>,
    /// The run that the report must be about.
    pub identity: Identity<'a>,
    /// Whether there is a golden notebook.
    pub has_golden: bool,
    /// Memory limit of the kernel's container.
    pub memory: Option<&'a str>,
}

/// Evaluates an attempt that ended. Only this function creates a success.
#[must_use]
pub fn evaluate(attempt: &Attempt<'_>) -> AttemptResult {
    let (reason, message) = match attempt.pod.step {
        Step::Before => fetch_failed(attempt),
        Step::Main | Step::After => ended(attempt),
    };
    let evidence: Evidence = evidence(Some(attempt.pod));
    AttemptResult::new(reason, message, evidence)
}

/// Returns the report of an attempt whose runner ended, if it is valid.
#[must_use]
pub fn report(pod: &PodView, identity: &Identity<'_>) -> Option<Report> {
    let exit = pod.beside.as_ref()?.exit()?;
    match Report::read(&exit.message, pod.containers, identity) {
        Ok(report) if report.outcome != Outcome::Incomplete => Some(report),
        Ok(_) | Err(_) => None,
    }
}

fn runner_exit<'a>(attempt: &Attempt<'a>) -> Option<&'a Exit> {
    attempt.pod.beside.as_ref()?.exit()
}

fn fetch_failed(attempt: &Attempt<'_>) -> (Reason, String) {
    let (name, exit) = (describe_pod(attempt.pod), attempt.exit);
    if exit.is_out_of_memory() {
        let message =
            format!("{name}: the container 'fetch' used more memory than its limit and was killed");
        return (Reason::OOMKilled, message);
    }
    if let Some(FetchReport::Failed { reason, message }) = FetchReport::read(&exit.message) {
        let reason = notebook_reason(reason.as_str()).unwrap_or(Reason::CloneFailed);
        return (reason, message);
    }
    let (code, quote) = (exit.code, bounded(exit.message.trim(), QUOTE));
    let detail = after_colon(&quote);
    let message =
        format!("{name}: the container 'fetch' exited with code {code} without a report{detail}");
    (Reason::CloneFailed, message)
}

/// Evaluates an attempt after the end of its kernel.
fn ended(attempt: &Attempt<'_>) -> (Reason, String) {
    let name = describe_pod(attempt.pod);
    let Some(runner) = runner_exit(attempt) else {
        let message = format!("{name} does not report how its container 'runner' ended");
        return kernel_failed(attempt, None).unwrap_or((Reason::ResultMissing, message));
    };
    if was_stopped(attempt.pod, runner) {
        let message = format!("{name} was terminated by another actor; its result is ignored");
        return (Reason::Disrupted, message);
    }
    let pod = attempt.pod;
    let report = match Report::read(&runner.message, pod.containers, &attempt.identity) {
        Ok(report) => report,
        Err(_) if attempt.exit.is_out_of_memory() || runner.is_out_of_memory() => {
            return out_of_memory(attempt, runner, None);
        }
        // An image that cannot run the kernel leaves a runner that is stopped before its report.
        Err((Reason::ResultMissing, message)) => {
            return kernel_failed(attempt, None)
                .unwrap_or((Reason::ResultMissing, format!("{name}: {message}")));
        }
        Err((reason, message)) => return (reason, format!("{name}: {message}")),
    };
    if attempt.exit.is_out_of_memory() || runner.is_out_of_memory() {
        return out_of_memory(attempt, runner, Some(&report));
    }
    match (report.outcome, runner.code) {
        (Outcome::Succeeded, 0) => succeeded(attempt, runner, &report),
        (Outcome::Failed, code) if code != 0 => failed(attempt, &report),
        (Outcome::Succeeded, code) => invalid(&format!(
            "says that the notebook succeeded, but the runner exited with code {code}"
        )),
        (Outcome::Failed, _) => {
            invalid("says that the notebook failed, but the runner exited with code 0")
        }
        (Outcome::Incomplete, code) => kernel_failed(attempt, report.cell).unwrap_or_else(|| {
            let cell = at_cell(report.cell);
            let message = format!(
                "{name}: the runner exited with code {code} before its verdict{cell}{}",
                after_colon(&bounded(&report.message, QUOTE))
            );
            (Reason::ResultMissing, message)
        }),
    }
}

/// Returns whether something asked the Pod to stop before the runner ended.
pub(crate) fn was_stopped(pod: &PodView, runner: &Exit) -> bool {
    let is_before = |asked: api::Timestamp| {
        // The kubelet deletes a stopped Pod once more, without grace. That hides the time of the first request.
        pod.stop_by == Some(asked) || runner.finished.is_none_or(|finished| asked <= finished)
    };
    pod.disruption.is_some() || pod.stop_asked.is_some_and(is_before)
}

fn succeeded(attempt: &Attempt<'_>, runner: &Exit, report: &Report) -> (Reason, String) {
    let name = describe_pod(attempt.pod);
    if let Some(failure) = attempt.failure {
        return kernel_failed(attempt, None).unwrap_or_else(|| {
            let message = format!(
                "{name}: the runner reports a success, but its Job failed{}",
                after_colon(failure)
            );
            (Reason::JobFailed, message)
        });
    }
    // The kernel's own exit is checked with the Job. F13: a kernel that ended by itself has another code.
    if attempt.exit.code != 0 {
        return invalid(&format!(
            "says that the notebook succeeded, but the kernel's container exited with code {}",
            attempt.exit.code
        ));
    }
    if let Some(found) = runner.contradiction() {
        let message = format!("{name}: the runner exited with code 0, but {found}");
        return (Reason::ExitContradicted, message);
    }
    match report.check_success(attempt.has_golden) {
        Ok(counts) => (
            Reason::Succeeded,
            summary(&counts, attempt.has_golden, &name),
        ),
        Err(found) => invalid(&found),
    }
}

fn summary(counts: &Counts, has_golden: bool, pod: &str) -> String {
    let Counts {
        succeeded,
        skipped,
        compared,
        ..
    } = counts;
    let comparison = if has_golden {
        format!("{compared} outputs compared")
    } else {
        "nothing compared: there is no golden notebook".to_owned()
    };
    format!("{succeeded} cells ran, {skipped} skipped, {comparison}; {pod}")
}

/// Returns the failure that the runner reports.
fn failed(attempt: &Attempt<'_>, report: &Report) -> (Reason, String) {
    let text = report.reason.as_deref().unwrap_or_default();
    let message = bounded(&report.message, QUOTE * 2);
    match notebook_reason(text) {
        Some(Reason::OOMKilled) => (Reason::OOMKilled, memory_message(attempt, report.cell)),
        // A stopped kernel is an effect of the failure of another container, so the runner knows best.
        Some(reason) if reason.is_warning() => (reason, with_cell(report.cell, message)),
        Some(_) | None => invalid(&format!("has the unknown reason '{}'", bounded(text, 64))),
    }
}

/// Adds the cell to the message of the runner, unless the message begins with it.
fn with_cell(cell: Option<u32>, message: String) -> String {
    let Some(cell) = cell else { return message };
    let prefix = format!("cell {cell}");
    let is_digit = |letter: char| letter.is_ascii_digit();
    let rest = message.strip_prefix(&prefix);
    if rest.is_some_and(|rest| !rest.starts_with(is_digit)) {
        message
    } else {
        format!("{prefix}: {message}")
    }
}

/// Returns the failure of the kernel's container, if it failed by itself.
fn kernel_failed(attempt: &Attempt<'_>, cell: Option<u32>) -> Option<(Reason, String)> {
    let (name, exit) = (describe_pod(attempt.pod), attempt.exit);
    if exit.is_out_of_memory() {
        return Some((Reason::OOMKilled, memory_message(attempt, cell)));
    }
    if let Some(failure) = StartFailure::of(&exit.reason, &exit.message, 0) {
        let cause = failure.cause(&name, &exit.message, None);
        return Some((cause.reason, cause.message));
    }
    if exit.code == 0 {
        return None;
    }
    let signal = exit
        .signal()
        .map_or_else(String::new, |signal| format!(" (signal {signal})"));
    let message = format!(
        "{name}: the kernel's container exited with code {}{signal}{}; no component reported the cause",
        exit.code,
        at_cell(cell)
    );
    Some((Reason::KernelDied, message))
}

/// Returns the result if the kernel killed a process of a container for memory. It names the cell.
fn out_of_memory(
    attempt: &Attempt<'_>,
    runner: &Exit,
    report: Option<&Report>,
) -> (Reason, String) {
    if runner.is_out_of_memory() && !attempt.exit.is_out_of_memory() {
        let name = describe_pod(attempt.pod);
        let message = format!(
            "{name}: the container 'runner' used more memory than its limit and was killed"
        );
        return (Reason::OOMKilled, message);
    }
    let cell = report.and_then(|report| report.cell);
    (Reason::OOMKilled, memory_message(attempt, cell))
}

fn memory_message(attempt: &Attempt<'_>, cell: Option<u32>) -> String {
    let limit = attempt.memory.map_or_else(
        || "than there was on its node".to_owned(),
        |limit| format!("than its limit of {limit}"),
    );
    let cell = cell.map_or_else(String::new, |cell| format!("cell {cell}: "));
    let name = describe_pod(attempt.pod);
    format!("{cell}the kernel used more memory {limit} and was killed; {name}")
}

fn at_cell(cell: Option<u32>) -> String {
    cell.map_or_else(String::new, |cell| format!(" in cell {cell}"))
}

#[cfg(test)]
mod tests;
