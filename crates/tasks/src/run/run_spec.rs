//! The spec of a run of either kind: all fields of the object that decisions about attempts read.

use std::time::Duration;

use api::{
    decide::ResourceType,
    external::Load,
    tasks::{
        ChildTtl, DocsRun, DocsRunStatus, Evidence, File, Retry, TaskRun, docs_names, names,
        push_intent,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::docs::{self, Settings};

/// Version of a run that has no versions.
const ONLY: i64 = 1;

/// Spec of a run of either kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunSpec<'a> {
    pub(crate) metadata: &'a ObjectMeta,
    pub(crate) version: i64,
    pub(crate) agent_name: &'a str,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<&'a Retry>,
    pub(crate) suspend: bool,
    pub(crate) cancel: bool,
    pub(crate) child_ttl: Option<ChildTtl>,
    /// Files of the run, or `None` if they were left out of the cached run.
    pub(crate) files: Option<&'a [File]>,
    pub(crate) work: Workload<'a>,
}

/// The work of the run's Pod.
#[derive(Debug, Clone, Copy)]
pub enum Workload<'a> {
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
    /// Other queries to Git servers.
    pub load: Load,
}

/// Returns the files of a run, from the run itself or from `kept`.
fn files<'a>(own: &'a [File], kept: Option<&'a [File]>) -> Option<&'a [File]> {
    if own.iter().any(File::is_left_out) {
        kept
    } else {
        Some(own)
    }
}

impl<'a> RunSpec<'a> {
    /// Describes a TaskRun. `kept` has its files if they are not in the run itself.
    pub(crate) fn of_task(run: &'a TaskRun, kept: Option<&'a [File]>) -> Self {
        let spec = &run.spec;
        Self {
            metadata: &run.metadata,
            version: spec.context_version,
            agent_name: &spec.agent_name,
            timeout: spec.timeout.map(Duration::from),
            retry: spec.retry.as_ref(),
            suspend: spec.suspend,
            cancel: spec.cancel,
            child_ttl: spec.child_ttl,
            files: files(&spec.markdown_files, kept),
            work: Workload::Task(run),
        }
    }

    /// Describes a DocsRun in the same way.
    pub(crate) fn of_docs(docs: Docs<'a>, kept: Option<&'a [File]>) -> Self {
        let spec = &docs.run.spec;
        Self {
            metadata: &docs.run.metadata,
            version: ONLY,
            agent_name: &spec.agent_name,
            timeout: spec.timeout.map(Duration::from),
            retry: None,
            suspend: spec.suspend,
            cancel: spec.cancel,
            child_ttl: spec.child_ttl,
            files: files(&spec.instructions, kept),
            work: Workload::Docs(docs),
        }
    }

    pub(crate) fn name(&self) -> &'a str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn resource(&self) -> ResourceType {
        match self.work {
            Workload::Task(_) => super::RESOURCE,
            Workload::Docs(_) => docs::RESOURCE,
        }
    }

    pub(crate) fn config_map_name(&self) -> String {
        match self.work {
            Workload::Task(run) => names::config_map(&run.spec),
            Workload::Docs(_) => docs_names::config_map(self.name()),
        }
    }

    pub(crate) fn job_name(&self, attempt: u32, replaced_after: Option<u32>) -> String {
        match self.work {
            Workload::Task(run) => names::job(&run.spec, attempt, replaced_after),
            Workload::Docs(_) => docs_names::job(self.name(), attempt, replaced_after),
        }
    }

    /// Returns the intent of the effect that cannot be undone once this run's Job exists, as the
    /// stored status announces it.
    pub(crate) fn requires_intent(&self) -> Option<String> {
        match self.work {
            Workload::Task(_) => None,
            // Without a record, no intent can match, so the engine rejects the Job.
            Workload::Docs(docs) => Some(push_intent(docs.status).unwrap_or_default()),
        }
    }

    /// Returns how much longer than the agent its Pod may run.
    pub(crate) fn after_agent(&self) -> Duration {
        match self.work {
            Workload::Task(_) => Duration::ZERO,
            Workload::Docs(_) => docs::PUBLISH_TIME,
        }
    }

    /// Returns advice for a run with too many files.
    pub(crate) fn fewer_files(&self) -> &'static str {
        match self.work {
            Workload::Task(_) => "make them smaller with a higher 'contextVersion'",
            Workload::Docs(_) => "submit another DocsRun with smaller ones",
        }
    }

    /// Returns advice for repeating a run that ended.
    pub(crate) fn run_again(&self) -> &'static str {
        match self.work {
            Workload::Task(_) => "Raise 'contextVersion' to run it again",
            Workload::Docs(_) => "Submit another DocsRun to run it again",
        }
    }

    /// Returns whether the status records the work of this run's Job. A Job that exists before that
    /// was not created by us for this record.
    pub(crate) fn is_announced(&self) -> bool {
        match self.work {
            Workload::Task(_) => true,
            Workload::Docs(docs) => docs.status.base_commit.is_some(),
        }
    }

    /// Returns whether an attempt with this result did all that it can. Another agent must not
    /// write pushed files once more.
    pub(crate) fn is_done(&self, result: &Evidence) -> bool {
        match self.work {
            Workload::Task(_) => false,
            Workload::Docs(_) => result.exit_code == Some(0),
        }
    }
}
