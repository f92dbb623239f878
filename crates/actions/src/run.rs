//! The kinds of runs: the one place that knows which there are, and what they have in common.

use std::fmt::{self, Debug};

use api::{
    Progress,
    tasks::{DocsRun, RunPhase, TaskRun},
};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

/// A kind of run. `Display` is the kind's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunKind {
    /// `TaskRun`.
    Task,
    /// `DocsRun`.
    Docs,
}

impl RunKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Task, Self::Docs];

    /// The kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "TaskRun",
            Self::Docs => "DocsRun",
        }
    }

    /// The plural in paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Task => "taskruns",
            Self::Docs => "docsruns",
        }
    }

    /// The plural with its group, as in a Role.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Task => "taskruns.orchestrator.io",
            Self::Docs => "docsruns.orchestrator.io",
        }
    }

    /// The version of the API.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Task => "v1",
            Self::Docs => "v1alpha1",
        }
    }

    /// As `-o name` prints it, before the slash.
    #[must_use]
    pub fn singular(self) -> &'static str {
        match self {
            Self::Task => "taskrun.orchestrator.io",
            Self::Docs => "docsrun.orchestrator.io",
        }
    }

    /// What the command line calls one of this name: a name alone is a TaskRun's.
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

/// What all kinds of runs have.
pub trait Run:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    /// Which kind it is.
    const KIND: RunKind;

    /// Whether its end was asked for.
    fn is_cancelled(&self) -> bool;

    /// Whether it is held.
    fn is_suspended(&self) -> bool;

    /// The version of its context, where the kind has versions.
    fn context_version(&self) -> Option<i64>;

    /// What its status says of the spec's version. A status that speaks of an earlier version says
    /// nothing about this one.
    fn stand(&self) -> Option<Stand<'_>>;
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stand<'a> {
    /// Its phase.
    pub phase: Option<RunPhase>,
    /// What every kind has.
    pub progress: &'a Progress,
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

    fn stand(&self) -> Option<Stand<'_>> {
        let status = self.status.as_ref()?;
        (status.context_version == Some(self.spec.context_version)).then_some(Stand {
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

    fn stand(&self) -> Option<Stand<'_>> {
        let status = self.status.as_ref()?;
        Some(Stand {
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
