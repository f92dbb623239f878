//! The spec of a run of either kind: all fields of the object that decisions about attempts read.

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

/// Version of a run that has no versions.
const ONLY: i64 = 1;

/// Spec of a run of either kind.
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
    /// Files of the run, or `None` if they were left out of the cached run.
    pub(super) files: Option<&'a [File]>,
    pub(super) work: Work<'a>,
}

/// Work of the run's Pod.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// One container that works on files.
    Task(&'a TaskRun),
    /// Three containers, one after the other, that work on a repository.
    Docs(Docs<'a>),
}

/// Inputs of a DocsRun's Pod.
#[derive(Debug, Clone, Copy)]
pub struct Docs<'a> {
    /// The run.
    pub run: &'a DocsRun,
    /// Stored status, with the commit to read and the branch to push.
    pub status: &'a DocsRunStatus,
    /// The operator's configuration.
    pub settings: &'a Settings,
}

/// Returns the files of a run, from the run itself or from `kept`.
fn files<'a>(own: &'a [File], kept: Option<&'a [File]>) -> Option<&'a [File]> {
    if own.iter().any(File::is_left_out) {
        kept
    } else {
        Some(own)
    }
}

impl<'a> Order<'a> {
    /// Describes a TaskRun. `kept` has its files if they are not in the run itself.
    pub(super) fn of_task(run: &'a TaskRun, kept: Option<&'a [File]>) -> Self {
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
            files: files(&spec.markdown_files, kept),
            work: Work::Task(run),
        }
    }

    /// Describes a DocsRun in the same way.
    pub(super) fn of_docs(docs: Docs<'a>, kept: Option<&'a [File]>) -> Self {
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
            files: files(&spec.instructions, kept),
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

    /// Returns the intent of the effect that cannot be undone once this run's Job exists, as the
    /// stored status announces it.
    pub(super) fn irreversible(&self) -> Option<String> {
        match self.work {
            Work::Task(_) => None,
            // Without a record, no intent can match, so the engine rejects the Job.
            Work::Docs(docs) => Some(push_intent(docs.status).unwrap_or_default()),
        }
    }

    /// Returns how much longer than the agent its Pod may run.
    pub(super) fn after_agent(&self) -> Duration {
        match self.work {
            Work::Task(_) => Duration::ZERO,
            Work::Docs(_) => docs::PUBLISH_TIME,
        }
    }

    /// Returns advice for a run with too many files.
    pub(super) fn fewer_files(&self) -> &'static str {
        match self.work {
            Work::Task(_) => "make them smaller with a higher 'contextVersion'",
            Work::Docs(_) => "submit another DocsRun with smaller ones",
        }
    }

    /// Returns advice for repeating a run that ended.
    pub(super) fn run_again(&self) -> &'static str {
        match self.work {
            Work::Task(_) => "Raise 'contextVersion' to run it again",
            Work::Docs(_) => "Submit another DocsRun to run it again",
        }
    }

    /// Returns whether the status records the work of this run's Job. A Job that exists before that
    /// was not created by us for this record.
    pub(super) fn is_announced(&self) -> bool {
        match self.work {
            Work::Task(_) => true,
            Work::Docs(docs) => docs.status.base_commit.is_some(),
        }
    }

    /// Returns whether an attempt with this result did all that it can. Another agent must not
    /// write pushed files once more.
    pub(super) fn is_done(&self, result: &Evidence) -> bool {
        match self.work {
            Work::Task(_) => false,
            Work::Docs(_) => result.exit_code == Some(0),
        }
    }
}
