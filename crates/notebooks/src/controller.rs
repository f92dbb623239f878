//! Connects the notebooks operator to the engine: its watches, the triggers of reconciliations, and the observed state.

mod git_servers;
mod runner_logs;

use std::sync::Arc;

use api::{
    GROUP, Status, Timestamp,
    decide::{Decision, Input, ReconcileError, ResourceType},
    names,
    notebooks::{NOTEBOOK_VALIDATION_JOB, NotebookValidationJob, NotebookValidationJobStatus},
};
use attempts::children::Children;
use engine::{
    Context, Controller, Kind, Packing, Scope, Watch, WatchManager,
    children::owned_by,
    external::{self, Requests},
    metrics::Metrics,
    supervise::Supervisor,
};
use kube::ResourceExt;

use self::{
    git_servers::{GitServers, SourceRequest},
    runner_logs::{LogRequest, RunnerLogs},
};
use crate::{
    decide,
    metrics::{cell_counts, class_counts},
    runner_log::question,
    sources::{Questions, Responses, questions},
    world::{NotebookSettings, NotebookWorld, job_view, pod_view},
};

/// Kinds that own the Jobs and Pods of this operator.
const KINDS: &[ResourceType] = &[NOTEBOOK_VALIDATION_JOB.resource];

/// Starts the watches and the controller of the operator.
pub fn start(
    context: Context,
    scope: Scope,
    settings: NotebookSettings,
    supervisor: &mut Supervisor,
) {
    let (client, metrics, health) = (
        context.client.clone(),
        context.metrics.clone(),
        context.health.clone(),
    );
    let mut watches = WatchManager::new(client, metrics, health, scope);
    let watch = Watch {
        labels: None,
        fields: None,
        transform: Arc::new(|job: NotebookValidationJob, _source| job),
        index: index_keys,
    };
    let jobs = watches.namespaced((GROUP, NOTEBOOK_VALIDATION_JOB.resource.plural), watch);
    jobs.pack(Packing::of(|job| {
        job.status.as_ref().is_some_and(Status::is_over)
    }));
    let children = Children::watch(&mut watches, KINDS, job_view, pod_view);
    // A job may ask two servers at the same time, and each handle has one request for each job.
    let servers = || GitServers::new(context.client.clone(), settings.step.clone());
    let name = NOTEBOOK_VALIDATION_JOB.name();
    let (notebooks, of_notebooks) = external::new(name, servers(), &jobs, &context);
    let (goldens, of_goldens) = external::new(name, servers(), &jobs, &context);
    let logs = RunnerLogs::new(context.client.clone());
    let (logs, of_logs) = external::new(name, logs, &jobs, &context);
    let kind = NotebookKind {
        children: children.clone(),
        notebooks,
        goldens,
        logs,
        settings,
    };
    let controller = Controller::new(kind, jobs.clone(), context);
    let handle = controller.handle();
    children.connect(&jobs, &handle);

    let caches = watches.start(supervisor);
    let shutdown = supervisor.shutdown();
    supervisor.spawn(
        "Git servers of notebooks",
        of_notebooks.run(handle.clone(), shutdown.clone()),
    );
    supervisor.spawn(
        "Git servers of golden notebooks",
        of_goldens.run(handle.clone(), shutdown.clone()),
    );
    supervisor.spawn(
        "Logs of notebook runners",
        of_logs.run(handle, shutdown.clone()),
    );
    supervisor.spawn("NotebookValidationJobs", controller.run(caches, shutdown));
}

/// Returns the index key by which children find their job.
fn index_keys(job: &NotebookValidationJob) -> Vec<String> {
    vec![owned_by(
        NOTEBOOK_VALIDATION_JOB.name(),
        &job.namespace().unwrap_or_default(),
        &job.uid().unwrap_or_default(),
    )]
}

/// Implementation of [`Kind`] for NotebookValidationJobs.
struct NotebookKind {
    children: Children,
    notebooks: Requests<SourceRequest>,
    goldens: Requests<SourceRequest>,
    logs: Requests<LogRequest>,
    settings: NotebookSettings,
}

impl Kind for NotebookKind {
    type Object = NotebookValidationJob;
    type Status = NotebookValidationJobStatus;
    type World = NotebookWorld;
    const RESOURCE: ResourceType = NOTEBOOK_VALIDATION_JOB.resource;
    const FINALIZER: &'static str = "notebookvalidationjobs.orchestrator.io/finalizer";
    const ANNOTATIONS: &'static [&'static str] = &[names::PRESERVE];

    fn status(object: &NotebookValidationJob) -> Option<&NotebookValidationJobStatus> {
        object.status.as_ref()
    }

    fn phase_spec(object: &NotebookValidationJob) -> &NotebookValidationJob {
        object
    }

    async fn observe(
        &self,
        job: &Arc<NotebookValidationJob>,
        now: Timestamp,
    ) -> Result<NotebookWorld, ReconcileError> {
        let (meta, status) = (&job.metadata, job.status.as_ref());
        let Questions { notebook, golden } = questions(job);
        let notebook = notebook.map(|refs| SourceRequest::new(job, &job.spec.notebook.git, refs));
        let golden_source = job.spec.golden_notebook.as_ref();
        let golden_source = golden_source.and_then(|golden| golden.git.as_ref());
        let golden = golden_source
            .zip(golden)
            .map(|(source, refs)| SourceRequest::new(job, source, refs));
        let responses = Responses {
            notebook: self.notebooks.ask(meta, status, notebook, now)?,
            golden: self.goldens.ask(meta, status, golden, now)?,
        };
        let accept_changed = self.settings.accept_changed_pods;
        let children = self
            .children
            .of(Self::RESOURCE.kind, job.as_ref(), accept_changed);
        let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
        let world = NotebookWorld {
            responses,
            settings: self.settings.clone(),
            ..NotebookWorld::default()
        };
        let world = world.with_children(children, &name, &uid);
        let log = question(job, &world, now).map(|question| LogRequest::new(job, question));
        let log = self.logs.ask(meta, status, log, now)?;
        Ok(NotebookWorld { log, ..world })
    }

    fn count_end(metrics: &Metrics, status: &NotebookValidationJobStatus) {
        for (outcome, count) in cell_counts(status) {
            metrics.notebook_cells(outcome, count);
        }
        for (class, count) in class_counts(status) {
            metrics.notebook_mismatches(class, count);
        }
    }

    fn decide(
        input: &Input<'_, NotebookValidationJob, NotebookWorld>,
    ) -> Decision<NotebookValidationJobStatus> {
        decide(input)
    }
}
