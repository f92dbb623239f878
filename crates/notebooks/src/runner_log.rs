//! The log of a runner: the part that the operator needs now, and its content.
//!
//! # Guarantees
//! - The log never decides about the verdict.
//! - Each read is bounded. A result is read only up to the size that the report names.

use std::{sync::Arc, time::Duration};

use api::{
    Timestamp,
    notebooks::{Cells, NotebookValidationJob, ReportStatus, Store},
};
use attempts::{
    time,
    view::{PodView, Step},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use crate::{
    decide::run_status,
    evaluate,
    full_result::FullResult,
    results::{frame_lines, frame_size, read_frame},
    work::Validation,
    world::NotebookWorld,
};

/// Interval between two reads of the progress, and minimum duration of a run whose progress is read.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// Beginning of a line with the progress.
const PROGRESS: &str = "ORCHESTRATOR-PROGRESS ";
/// Number of last lines among which the progress is searched. A package may print lines between two of them.
const PROGRESS_LINES: u32 = 20;
/// Maximum size of these lines, in bytes.
const PROGRESS_BYTES: u32 = 16 * 1024;
/// Number of lines that may follow a frame.
const LINES_AFTER: u32 = 20;
/// Maximum size of these lines, in bytes.
const BYTES_AFTER: u32 = 64 * 1024;

/// A part of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPart {
    /// The last line with the progress.
    Progress,
    /// The frame with the result that this report names.
    Result(ReportStatus),
}

impl LogPart {
    /// Returns the number of lines, from the end of the log, and the maximum number of bytes.
    #[must_use]
    pub fn limits(&self) -> (u32, u32) {
        match self {
            Self::Progress => (PROGRESS_LINES, PROGRESS_BYTES),
            Self::Result(report) => (
                frame_lines(report.bytes).saturating_add(LINES_AFTER),
                frame_size(report.bytes).saturating_add(BYTES_AFTER),
            ),
        }
    }

    /// Reads this part of a log. Each line of a log with the progress begins with its time.
    #[must_use]
    pub fn read(&self, log: &str) -> LogContent {
        match self {
            Self::Progress => LogContent::Progress(CellProgress::read(log)),
            Self::Result(report) => {
                let result = read_frame(log, report).and_then(FullResult::read);
                LogContent::Result(result.map(Arc::new))
            }
        }
    }
}

/// Content of a part of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogContent {
    /// The progress, if a line has it.
    Progress(Option<CellProgress>),
    /// The result, or a description of the problem of its frame.
    Result(Result<Arc<FullResult>, String>),
}

impl LogContent {
    /// Returns the progress.
    #[must_use]
    pub fn progress(&self) -> Option<&CellProgress> {
        match self {
            Self::Progress(progress) => progress.as_ref(),
            Self::Result(_) => None,
        }
    }
}

/// A request for a part of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuestion {
    /// Name of the Pod.
    pub pod: String,
    /// UID of the Pod. The log of another Pod is another request.
    pub uid: String,
    /// Node of the Pod.
    pub node: String,
    /// The part.
    pub part: LogPart,
}

/// Progress of a run, from its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellProgress {
    total: u32,
    done: u32,
    skipped: u32,
    current: u32,
    since: Option<Timestamp>,
}

/// A line with the progress, as the runner writes it.
#[derive(Deserialize)]
struct ProgressLine {
    total: u32,
    /// Number of cells that succeeded or were skipped.
    done: u32,
    skipped: u32,
    current: u32,
}

impl CellProgress {
    fn read(log: &str) -> Option<Self> {
        let mut lines = log.lines().rev();
        let (at, line) = lines.find_map(|line| {
            let (at, rest) = line.split_once(' ')?;
            Some((at, rest.strip_prefix(PROGRESS)?))
        })?;
        let Ok(line) = serde_json::from_str::<ProgressLine>(line) else {
            return None;
        };
        Some(Self {
            total: line.total,
            done: line.done.saturating_sub(line.skipped),
            skipped: line.skipped,
            current: line.current,
            since: timestamp(at),
        })
    }

    /// Returns the progress for the status.
    #[must_use]
    pub fn cells(&self) -> Cells {
        Cells {
            total: self.total,
            done: self.done,
            failed: 0,
            skipped: self.skipped,
            current: Some(self.current),
            current_since: self.since.map(|since| Time(time::whole(since))),
        }
    }
}

fn timestamp(text: &str) -> Option<Timestamp> {
    let Ok(at) = text.parse() else { return None };
    Some(at)
}

/// Returns the part of the log that a job needs now.
#[must_use]
pub fn question(
    job: &NotebookValidationJob,
    world: &NotebookWorld,
    now: Timestamp,
) -> Option<LogQuestion> {
    let status = job.status.as_ref()?;
    let is_over = status
        .phase
        .is_some_and(|phase| phase.is_legacy() || api::Phase::is_terminal(phase));
    if is_over || job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if let Some(report) = &status.report {
        // The verdict is stored. The Pod may be missing in the cache, so the evidence names it.
        let result = status.result.as_ref()?;
        return Some(LogQuestion {
            pod: result.pod_name.clone()?,
            uid: result.pod_uid.clone()?,
            node: result.node.clone()?,
            part: part_of(job, world, report)?,
        });
    }
    let work = Validation { job, status, world };
    let run = work.run(run_status(status), now);
    let pod = run.newest_pod(run.job(status.job_name.as_deref()?)?)?;
    let part = if pod.beside.as_ref()?.exit().is_some() {
        let report = evaluate::report(pod, &work.identity(pod))?;
        part_of(job, world, &report.result()?)?
    } else {
        is_long(pod, now).then_some(LogPart::Progress)?
    };
    Some(LogQuestion {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        node: pod.node.clone()?,
        part,
    })
}

/// Returns the request for a result, unless it is not to be stored.
fn part_of(
    job: &NotebookValidationJob,
    world: &NotebookWorld,
    report: &ReportStatus,
) -> Option<LogPart> {
    let is_wanted = job.spec.results.store != Store::None;
    let is_small = report.bytes <= world.settings.max_result_bytes;
    (is_wanted && is_small).then(|| LogPart::Result(report.clone()))
}

/// Returns whether the kernel runs for so long that users want to know the progress.
fn is_long(pod: &PodView, now: Timestamp) -> bool {
    let since = pod.container.running_since();
    pod.step == Step::Main && since.is_some_and(|since| time::after(since, PROGRESS_EVERY) <= now)
}

#[cfg(test)]
mod tests;
