//! A run of an Agent, of either kind: the work that the crate `attempts` repeats.

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    decide::{ConditionUpdate, LiveRead, Manifest},
    external::Load,
    status::condition::READY,
    tasks::{
        Agent, AgentSpec, CONTEXT_LIMIT, DocsRun, DocsRunStatus, File, Resources, TaskRun,
        condition, docs_names, names, push_intent,
    },
};
use attempts::{
    AttemptResult, AttemptSpec, Container, Containers, Run, RunDecision, RunStatus, Spec, Work,
};

use super::{
    RunWorld, agent_result,
    docs::{self, Settings},
    holder,
};
use crate::{
    agent,
    build::{self, BuildContext, contract},
    time,
    view::{Exit, PodView},
};

/// Version of a run that has no versions.
pub(crate) const ONLY_VERSION: i64 = 1;

/// Containers of a TaskRun's Pod.
pub(crate) static TASK_CONTAINERS: Containers = Containers {
    before: None,
    main: contract::CONTAINER,
    after: None,
};

/// Containers of a DocsRun's Pod.
pub(crate) static DOCS_CONTAINERS: Containers = Containers {
    before: Some(Container {
        name: build::CLONE,
        reason: Reason::Cloning,
        activity: "clones the repository",
    }),
    main: contract::CONTAINER,
    after: Some(Container {
        name: build::PUBLISH,
        reason: Reason::Publishing,
        activity: "commits and pushes what the agent wrote",
    }),
};

/// A run of an Agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunSpec<'a> {
    /// Data that decisions about attempts read.
    pub(crate) spec: Spec<'a>,
    agent_name: &'a str,
    /// Files of the run, or `None` if they were left out of the cached run.
    pub(crate) files: Option<&'a [File]>,
    pub(crate) work: Workload<'a>,
    world: &'a RunWorld,
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

/// Returns the files of a run, from the run itself or from the observed state.
fn files<'a>(own: &'a [File], world: &'a RunWorld) -> Option<&'a [File]> {
    if own.iter().any(File::is_left_out) {
        world.files.as_deref()
    } else {
        Some(own)
    }
}

impl<'a> RunSpec<'a> {
    /// Describes a TaskRun.
    pub(crate) fn of_task(run: &'a TaskRun, world: &'a RunWorld) -> Self {
        let spec = &run.spec;
        let files = files(&spec.markdown_files, world);
        let agents = || world.agent.as_ref().map(|agent| &agent.spec.retry);
        Self {
            spec: Spec {
                resource: super::RESOURCE,
                metadata: &run.metadata,
                version: spec.context_version,
                history: run.status.as_ref().map_or(&[], |status| &status.history),
                is_announced: true,
                lacks_files: files.is_none(),
                containers: &TASK_CONTAINERS,
                timeout: spec.timeout.map(Duration::from),
                after_main: Duration::ZERO,
                retry: spec.retry.as_ref().or_else(agents),
                suspend: spec.suspend,
                cancel: spec.cancel,
                child_ttl: spec.child_ttl,
                cleanup: world.defaults.cleanup,
                delete_finished_runs_after: world.defaults.delete_finished_runs_after,
                run_again: "Raise 'contextVersion' to run it again",
                accept_changed_pods: ACCEPT_CHANGED_PODS,
            },
            agent_name: &spec.agent_name,
            files,
            work: Workload::Task(run),
            world,
        }
    }

    /// Describes a DocsRun in the same way.
    pub(crate) fn of_docs(docs: Docs<'a>, world: &'a RunWorld) -> Self {
        let spec = &docs.run.spec;
        let files = files(&spec.instructions, world);
        Self {
            spec: Spec {
                resource: docs::RESOURCE,
                metadata: &docs.run.metadata,
                version: ONLY_VERSION,
                history: &[],
                is_announced: docs.status.base_commit.is_some(),
                lacks_files: files.is_none(),
                containers: &DOCS_CONTAINERS,
                timeout: spec.timeout.map(Duration::from),
                after_main: docs::PUBLISH_TIME,
                retry: world.agent.as_ref().map(|agent| &agent.spec.retry),
                suspend: spec.suspend,
                cancel: spec.cancel,
                child_ttl: spec.child_ttl,
                cleanup: world.defaults.cleanup,
                delete_finished_runs_after: world.defaults.delete_finished_runs_after,
                run_again: "Submit another DocsRun to run it again",
                accept_changed_pods: ACCEPT_CHANGED_PODS,
            },
            agent_name: &spec.agent_name,
            files,
            work: Workload::Docs(docs),
            world,
        }
    }

    /// Returns the run for decisions about its attempts.
    pub(crate) fn run(&'a self, status: RunStatus, now: Timestamp) -> Run<'a> {
        Run::new(self, self.spec, &self.world.children, status, now)
    }

    pub(crate) fn name(&self) -> &'a str {
        self.spec.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the name of the ConfigMap with the files.
    pub(crate) fn files_name(&self) -> String {
        match self.work {
            Workload::Task(run) => names::config_map(&run.spec),
            Workload::Docs(_) => docs_names::config_map(self.name()),
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

    fn agent(&self) -> Option<&'a Agent> {
        self.world.agent.as_deref()
    }

    fn resources(&self, agent: &'a Agent) -> &'a Resources {
        let defaults = &self.world.defaults.resources;
        agent.spec.resources.as_ref().unwrap_or(defaults)
    }

    /// Returns a verdict for more files than a ConfigMap holds.
    fn too_large(&self) -> Option<Verdict> {
        let agent = self.agent().map(|agent| &agent.spec);
        let (own, instructions) = build::sizes(self.files.unwrap_or_default(), agent);
        if own.saturating_add(instructions) <= CONTEXT_LIMIT {
            return None;
        }
        let advice = match self.work {
            Workload::Task(_) => "make them smaller with a higher 'contextVersion'",
            Workload::Docs(_) => "submit another DocsRun with smaller ones",
        };
        let message = format!(
            "the run's files have {own} bytes and the Agent's instructions {instructions}, together more than the {CONTEXT_LIMIT} that fit; {advice}, or shorten the instructions"
        );
        // Files of a version do not change, so no attempt of this version can start.
        Some(Verdict::stalled(Reason::ContextTooLarge, message))
    }

    /// Returns the verdict about a run if another run holds its task.
    fn taken(&self) -> Option<Verdict> {
        let holder = self.world.holder.as_ref()?;
        match self.work {
            Workload::Task(run) => Some(holder::taken(&run.spec, holder)),
            // The names of its children contain the name of the run.
            Workload::Docs(_) => None,
        }
    }

    /// Returns why the Agent cannot be used, if it cannot.
    fn unusable(&self) -> Option<Verdict> {
        let name = self.agent_name;
        let Some(agent) = self.agent() else {
            let namespace = self.spec.metadata.namespace.as_deref().unwrap_or_default();
            let message = format!("Agent '{name}' does not exist in namespace '{namespace}'");
            return Some(Verdict::working(Reason::AgentNotFound, message));
        };
        let status = agent.status.as_ref().map(|status| &status.progress);
        let generation = agent.metadata.generation.unwrap_or(0);
        let Some(progress) = status.filter(|known| known.observed_generation >= generation) else {
            // A condition about an older spec is not valid for this one. The Agent is reconciled in a
            // moment, so this is no warning.
            let message = format!("Agent '{name}' was not looked at yet");
            return Some(Verdict::working(Reason::Progressing, message));
        };
        if progress.is_true(READY) {
            return None;
        }
        let ready = progress.condition(READY);
        let message = ready.map_or("", |ready| ready.message.as_str());
        let message = format!("Agent '{name}' is not ready: {message}");
        Some(Verdict::working(Reason::AgentNotReady, message))
    }
}

/// Field of the configuration that accepts Pods with changed content.
const ACCEPT_CHANGED_PODS: &str = "tasks.acceptChangedPods";

/// Returns the settings of an attempt that starts now.
pub(crate) fn settings(agent: &AgentSpec, resources: &Resources) -> AttemptSpec {
    let required = agent.results.iter().filter(|result| result.required);
    AttemptSpec {
        start_timeout_ms: time::millis(agent.start_timeout.into()),
        timeout_ms: time::millis(agent.timeout.into()),
        required: required.map(|result| result.name.clone()).collect(),
        memory: resources
            .limits
            .get("memory")
            .map(|amount| amount.0.clone()),
        user: agent.run_as_user,
    }
}

/// Returns the verdict for a child that cannot be built.
fn unwritable(error: &serde_json::Error) -> Verdict {
    let message = format!("a child of the run cannot be written as JSON: {error}");
    Verdict::stalled(Reason::InternalError, message)
}

impl Work for RunSpec<'_> {
    fn job_name(&self, attempt: u32, replaced_after: Option<u32>) -> String {
        match self.work {
            Workload::Task(run) => names::job(&run.spec, attempt, replaced_after),
            Workload::Docs(_) => docs_names::job(self.name(), attempt, replaced_after),
        }
    }

    fn config_map_name(&self) -> Option<String> {
        Some(self.files_name())
    }

    fn settings(&self) -> Option<AttemptSpec> {
        let agent = self.agent()?;
        Some(settings(&agent.spec, self.resources(agent)))
    }

    fn blocker(&self, is_stored: bool) -> Option<Verdict> {
        // Files that are already stored fit.
        let stalled = self.too_large().filter(|_| !is_stored);
        stalled.or_else(|| self.taken()).or_else(|| self.unusable())
    }

    fn config_map(&self) -> Result<Option<Manifest>, Verdict> {
        let Some(agent) = self.agent() else {
            return Ok(None);
        };
        let map = build::config_map(self, agent);
        map.map(Some).map_err(|error| unwritable(&error))
    }

    fn job(&self, attempt: u32, name: &str) -> Result<Manifest, Verdict> {
        // Only the comparison with an existing Job can get here without an Agent.
        let Some(agent) = self.agent() else {
            let message = format!(
                "Job '{name}' cannot be compared with what this run asks for, because Agent '{}' does not exist: nothing proves that it is this run's. Create the Agent again",
                self.agent_name
            );
            return Err(Verdict::stalled(Reason::AgentNotFound, message));
        };
        let context = BuildContext {
            run_spec: *self,
            agent,
            resources: self.resources(agent),
            attempt,
            job: name,
        };
        build::job(&context).map_err(|error| unwritable(&error))
    }

    fn reads(&self) -> Vec<LiveRead> {
        vec![LiveRead::Object {
            resource: agent::RESOURCE,
            namespace: Some(self.spec.metadata.namespace.clone().unwrap_or_default()),
            name: self.agent_name.to_owned(),
        }]
    }

    /// Returns the conditions, derived from the object names in the status.
    fn conditions(&self, decision: &RunDecision) -> Vec<ConditionUpdate> {
        let update = |kind: &'static str, what: &str, name: &Option<String>| match name {
            Some(name) => ConditionUpdate {
                kind,
                value: Some(true),
                reason: Reason::Created,
                message: format!("{what} '{name}' was created"),
            },
            None => ConditionUpdate {
                kind,
                value: Some(false),
                reason: decision.verdict.reason,
                message: format!("the {what} of this version was not created"),
            },
        };
        let status = &decision.status;
        vec![
            update(
                condition::CONTEXT_READY,
                "ConfigMap",
                &status.config_map_name,
            ),
            update(condition::JOB_CREATED, "Job", &status.job_name),
        ]
    }

    fn evaluate(
        &self,
        pod: &PodView,
        exit: &Exit,
        failure: Option<&str>,
        settings: Option<&AttemptSpec>,
    ) -> AttemptResult {
        agent_result::evaluate(pod, exit, failure, settings)
    }

    /// Another agent must not write pushed files once more.
    fn may_repeat(&self, result: &AttemptResult) -> bool {
        let is_docs = matches!(self.work, Workload::Docs(_));
        let is_published = is_docs && result.evidence.exit_code == Some(0);
        !is_published
            && !matches!(
                result.reason,
                Reason::NoChanges
                    | Reason::OutputTooLarge
                    | Reason::PathNotFound
                    | Reason::RepositoryTooLarge
                    | Reason::AddressNotAllowed
                    | Reason::PushRejected
                    | Reason::BranchMoved
            )
    }
}
