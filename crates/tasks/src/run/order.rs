//! What a run asks for, of whichever kind: all that the course of its attempts reads of the object.

use std::time::Duration;

use api::{
    decide::ResourceType,
    names::{LABEL_LIMIT, cut},
    tasks::{
        DocsRun, DocsRunStatus, Evidence, File, KeepChildren, Retry, TaskRun, TaskRunSpec,
        docs_names, names, push_intent,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mutant::Mutant;

use super::docs::{self, Settings};

/// The version of a run that has no versions.
const ONLY: i64 = 1;

/// What a run asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) metadata: &'a ObjectMeta,
    pub(super) version: i64,
    pub(super) agent_name: &'a str,
    pub(super) timeout: Option<Duration>,
    pub(super) retry: Option<&'a Retry>,
    pub(super) suspend: bool,
    pub(super) cancel: bool,
    pub(super) keep_children: Option<KeepChildren>,
    pub(super) files: &'a [File],
    pub(super) work: Work<'a>,
}

/// What its Pod does.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// One container, on files.
    Task(&'a TaskRun),
    /// Three in a row, on a repository.
    Docs(Docs<'a>),
}

/// What a DocsRun's Pod needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Docs<'a> {
    /// The run.
    pub run: &'a DocsRun,
    /// As stored: what is read and pushed.
    pub status: &'a DocsRunStatus,
    /// The operator's configuration.
    pub settings: &'a Settings,
}

impl<'a> Order<'a> {
    pub(super) fn of_task(run: &'a TaskRun) -> Self {
        let spec = &run.spec;
        Self {
            metadata: &run.metadata,
            version: spec.context_version,
            agent_name: &spec.agent_name,
            timeout: spec.timeout.map(Duration::from),
            retry: spec.retry.as_ref(),
            suspend: spec.suspend,
            cancel: spec.cancel,
            keep_children: spec.keep_children,
            files: &spec.markdown_files,
            work: Work::Task(run),
        }
    }

    pub(super) fn of_docs(docs: Docs<'a>) -> Self {
        let spec = &docs.run.spec;
        Self {
            metadata: &docs.run.metadata,
            version: ONLY,
            agent_name: &spec.agent_name,
            timeout: spec.timeout.map(Duration::from),
            retry: None,
            suspend: spec.suspend,
            cancel: spec.cancel,
            keep_children: spec.keep_children,
            files: &spec.instructions,
            work: Work::Docs(docs),
        }
    }

    pub(super) fn name(&self) -> &'a str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn resource(&self) -> ResourceType {
        match self.work {
            Work::Task(_) => super::RESOURCE,
            Work::Docs(_) => docs::RESOURCE,
        }
    }

    pub(super) fn config_map_name(&self) -> String {
        match self.work {
            Work::Task(run) => names::config_map(&run.spec),
            Work::Docs(_) => docs_names::config_map(self.name()),
        }
    }

    pub(super) fn job_name(&self, attempt: u32, replaced_after: Option<u32>) -> String {
        match self.work {
            Work::Task(run) if mutant::on(Mutant::NameCut) => {
                let TaskRunSpec { service_name, .. } = &run.spec;
                let mut plain = run.spec.clone();
                plain.service_name = "x".to_owned();
                let name = names::job(&plain, attempt, replaced_after);
                cut(&name.replacen('x', service_name, 1), LABEL_LIMIT).to_owned()
            }
            Work::Task(run) => names::job(&run.spec, attempt, replaced_after),
            Work::Docs(_) => docs_names::job(self.name(), attempt, replaced_after),
        }
    }

    /// What cannot be undone once the Job of this run exists, as the stored status announces it.
    pub(super) fn irreversible(&self) -> Option<String> {
        match self.work {
            Work::Task(_) => None,
            // Without a record there is no intent that could match: the engine refuses.
            Work::Docs(docs) => Some(push_intent(docs.status).unwrap_or_default()),
        }
    }

    /// How much longer than the agent its Pod may run.
    pub(super) fn after_agent(&self) -> Duration {
        match self.work {
            Work::Task(_) => Duration::ZERO,
            Work::Docs(_) => docs::PUBLISH_TIME,
        }
    }

    /// How a run that has too many files gets fewer.
    pub(super) fn fewer_files(&self) -> &'static str {
        match self.work {
            Work::Task(_) => "make them smaller with a higher 'contextVersion'",
            Work::Docs(_) => "submit another DocsRun with smaller ones",
        }
    }

    /// How a run that ended is run again.
    pub(super) fn run_again(&self) -> &'static str {
        match self.work {
            Work::Task(_) => "Raise 'contextVersion' to run it again",
            Work::Docs(_) => "Submit another DocsRun to run it again",
        }
    }

    /// Whether what the Job of this run does is recorded. A Job that is there before that is none
    /// that we made for this record.
    pub(super) fn is_announced(&self) -> bool {
        match self.work {
            Work::Task(_) => true,
            Work::Docs(docs) => docs.status.base_commit.is_some(),
        }
    }

    /// Whether an attempt that ended so did all that it can: what was pushed is not written once
    /// more by another agent.
    pub(super) fn is_done(&self, result: &Evidence) -> bool {
        match self.work {
            Work::Task(_) => false,
            Work::Docs(_) => result.exit_code == Some(0),
        }
    }
}
