//! Requests for the log of a runner. The engine sends them beside the reconciliations, with bounds, turns and deadlines
//! ([`engine::external`]).

use std::time::Duration;

use api::{Reason, decide::ReconcileError, notebooks::NotebookValidationJob};
use engine::external::{LogOf, Remote, Request, read_log};
use kube::{Client, ResourceExt, api::LogParams};

use crate::{
    runner_log::{LogContent, LogPart, LogQuestion, PROGRESS_EVERY},
    world::RUNNER,
};

/// A request for a part of the log of a job's runner.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogRequest {
    namespace: String,
    question: LogQuestion,
}

impl LogRequest {
    pub(super) fn new(job: &NotebookValidationJob, question: LogQuestion) -> Self {
        Self {
            namespace: job.namespace().unwrap_or_default(),
            question,
        }
    }
}

impl Request for LogRequest {
    type Response = LogContent;
    const REMOTE: &'static str = "kubelet";
    const UNREACHABLE: Reason = Reason::ApiUnavailable;
    const FRESH_FOR: Duration = PROGRESS_EVERY;
    // A result may have 700 KiB.
    const IN_FLIGHT: usize = 16;
    const PER_NAMESPACE: usize = 4;

    fn host(&self) -> String {
        self.question.node.clone()
    }
}

/// The logs of all runners.
pub(super) struct RunnerLogs(Client);

impl RunnerLogs {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }
}

impl Remote<LogRequest> for RunnerLogs {
    async fn send(&self, request: &LogRequest) -> Result<LogContent, ReconcileError> {
        let LogRequest {
            namespace,
            question,
        } = request;
        let (_, limit) = question.part.limits();
        let of = LogOf {
            namespace,
            pod: &question.pod,
        };
        let log = read_log(&self.0, of, params(&question.part), limit).await?;
        Ok(question.part.read(&log))
    }
}

fn params(part: &LogPart) -> LogParams {
    let (lines, _) = part.limits();
    LogParams {
        container: Some(RUNNER.to_owned()),
        tail_lines: Some(i64::from(lines)),
        // The kubelet knows when a line was written, so the runner needs no clock.
        timestamps: *part == LogPart::Progress,
        ..LogParams::default()
    }
}

#[cfg(test)]
mod tests {
    use api::notebooks::ReportStatus;

    use super::*;

    #[test]
    fn only_the_end_of_the_runner_s_log_is_read() {
        let progress = params(&LogPart::Progress);
        assert_eq!(progress.container.as_deref(), Some("runner"));
        assert!(progress.timestamps);
        let result = params(&LogPart::Result(ReportStatus {
            sha256: "a".to_owned(),
            bytes: 3072,
            config_map_name: None,
            truncated: Vec::new(),
        }));
        // The frame has three lines. Twenty others may follow it.
        assert_eq!(result.tail_lines, Some(23));
        assert!(!result.timestamps);
        assert!(!result.follow);
    }
}
