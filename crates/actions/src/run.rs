//! The kinds of runs. Only this module lists the kinds and their common properties.

use std::fmt::{self, Debug};

use api::{
    CommonStatus,
    tasks::{DocsRun, RunPhase, TaskRun},
};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

/// A kind of run. `Display` prints the name of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunKind {
    /// `TaskRun`.
    Task,
    /// `DocsRun`.
    Docs,
}

impl RunKind {
    /// All kinds of runs.
    pub const ALL: [Self; 2] = [Self::Task, Self::Docs];

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "TaskRun",
            Self::Docs => "DocsRun",
        }
    }

    /// Returns the plural, as in URL paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Task => "taskruns",
            Self::Docs => "docsruns",
        }
    }

    /// Returns the plural with its API group, as in a Role.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Task => "taskruns.orchestrator.io",
            Self::Docs => "docsruns.orchestrator.io",
        }
    }

    /// Returns the API version.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Task => "v1",
            Self::Docs => "v1alpha1",
        }
    }

    /// Returns the prefix that `-o name` prints before the slash.
    #[must_use]
    pub fn singular(self) -> &'static str {
        match self {
            Self::Task => "taskrun.orchestrator.io",
            Self::Docs => "docsrun.orchestrator.io",
        }
    }

    /// Returns the run as an argument of the command line. A name without a kind is a TaskRun's.
    #[must_use]
    pub fn argument(self, name: &str) -> String {
        match self {
            Self::Task => name.to_owned(),
            Self::Docs => format!("docsrun/{name}"),
        }
    }
}

impl fmt::Display for RunKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The interface that all kinds of runs share.
pub trait Run:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    /// The kind of the run.
    const KIND: RunKind;

    /// Returns whether the spec cancels the run.
    fn is_cancelled(&self) -> bool;

    /// Returns whether the spec suspends the run.
    fn is_suspended(&self) -> bool;

    /// Returns the context version, if the kind has versions.
    fn context_version(&self) -> Option<i64>;

    /// Returns the status for the context version in the spec. A status of an earlier version is
    /// ignored.
    fn status_view(&self) -> Option<RunStatusView<'_>>;
}

/// The part of a run's status that all kinds have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunStatusView<'a> {
    /// The phase of the run.
    pub phase: Option<RunPhase>,
    /// The common status fields, such as the conditions.
    pub progress: &'a CommonStatus,
}

impl Run for TaskRun {
    const KIND: RunKind = RunKind::Task;

    fn is_cancelled(&self) -> bool {
        self.spec.cancel
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    fn context_version(&self) -> Option<i64> {
        Some(self.spec.context_version)
    }

    fn status_view(&self) -> Option<RunStatusView<'_>> {
        let status = self.status.as_ref()?;
        (status.context_version == Some(self.spec.context_version)).then_some(RunStatusView {
            phase: status.phase,
            progress: &status.progress,
        })
    }
}

impl Run for DocsRun {
    const KIND: RunKind = RunKind::Docs;

    fn is_cancelled(&self) -> bool {
        self.spec.cancel
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    fn context_version(&self) -> Option<i64> {
        None
    }

    fn status_view(&self) -> Option<RunStatusView<'_>> {
        let status = self.status.as_ref()?;
        Some(RunStatusView {
            phase: status.phase,
            progress: &status.progress,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same<R: Run>() {
        let kind = R::KIND;
        assert_eq!(kind.name(), R::kind(&()));
        assert_eq!(kind.plural(), R::plural(&()));
        assert_eq!(kind.version(), R::version(&()));
        assert_eq!(
            kind.resource(),
            format!("{}.{}", R::plural(&()), R::group(&()))
        );
    }

    #[test]
    fn the_names_are_those_of_the_kinds() {
        same::<TaskRun>();
        same::<DocsRun>();
    }
}
