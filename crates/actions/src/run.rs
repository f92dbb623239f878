//! The kinds of runs, and the interface that they share.

use std::fmt::{self, Debug};

use api::{
    CommonStatus,
    kinds::KindRow,
    tasks::{DOCS_RUN, DocsRun, RunPhase, TASK_RUN, TaskRun},
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

    /// Returns the row of the kind in the table of kinds.
    #[must_use]
    pub fn row(self) -> &'static KindRow {
        match self {
            Self::Task => &TASK_RUN,
            Self::Docs => &DOCS_RUN,
        }
    }

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name()
    }

    /// Returns the run as an argument of the command line. A name without a kind is a TaskRun's.
    #[must_use]
    pub fn argument(self, name: &str) -> String {
        match self {
            Self::Task => name.to_owned(),
            Self::Docs => format!("{}/{name}", self.row().singular),
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

    #[test]
    fn the_rows_are_those_of_the_types() {
        assert_eq!(TaskRun::KIND.name(), TaskRun::kind(&()));
        assert_eq!(DocsRun::KIND.name(), DocsRun::kind(&()));
    }
}
