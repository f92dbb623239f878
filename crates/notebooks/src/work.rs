//! The work of a NotebookValidationJob that the crate `attempts` repeats.

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    decide::{ConditionUpdate, LiveRead, Manifest},
    notebooks::{
        NOTEBOOK_VALIDATION_JOB, NotebookValidationJob, NotebookValidationJobStatus, names,
    },
};
use attempts::{
    AttemptResult, AttemptSpec, Run, RunDecision, RunStatus, Spec, Work,
    view::{Exit, PodView},
};

use crate::{
    build::{self, BuildInput},
    evaluate::{Attempt, evaluate},
    report::Identity,
    world::{CONTAINERS, NotebookWorld},
};

/// Version of a job. It has no others.
pub(crate) const ONLY_VERSION: i64 = 1;

/// The work of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validation<'a> {
    pub(crate) job: &'a NotebookValidationJob,
    /// Stored status.
    pub(crate) status: &'a NotebookValidationJobStatus,
    pub(crate) world: &'a NotebookWorld,
}

impl<'a> Validation<'a> {
    /// Returns the run for decisions about its attempts.
    pub(crate) fn run(&'a self, status: RunStatus, now: Timestamp) -> Run<'a> {
        Run::new(self, self.spec(), &self.world.children, status, now)
    }

    fn spec(&self) -> Spec<'a> {
        let spec = &self.job.spec;
        Spec {
            resource: NOTEBOOK_VALIDATION_JOB.resource,
            metadata: &self.job.metadata,
            version: ONLY_VERSION,
            history: &[],
            is_announced: self.status.commit.is_some(),
            lacks_files: false,
            containers: &CONTAINERS,
            timeout: Some(Duration::from(spec.timeout)),
            after_main: Duration::ZERO,
            retry: Some(&spec.retry),
            suspend: spec.suspend,
            cancel: spec.cancel,
            child_ttl: spec.child_ttl,
            cleanup: self.world.settings.cleanup,
            delete_finished_runs_after: None,
            run_again: "Submit another NotebookValidationJob to run it again",
            accept_changed_pods: "notebooks.acceptChangedPods",
        }
    }

    fn name(&self) -> &'a str {
        self.job.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the evidence about an attempt after the end of its container.
    pub(crate) fn attempt<'b>(
        &self,
        pod: &'b PodView,
        exit: &'b Exit,
        failure: Option<&'b str>,
    ) -> Attempt<'b>
    where
        'a: 'b,
    {
        let spec = &self.job.spec;
        let limits = &spec.pod_config.resources.limits;
        Attempt {
            pod,
            exit,
            failure,
            identity: self.identity(pod),
            has_golden: spec.golden_notebook.is_some(),
            memory: limits.get("memory").map(|amount| amount.0.as_str()),
        }
    }

    /// Returns the run that the report of this Pod must be about.
    pub(crate) fn identity(&self, pod: &PodView) -> Identity<'a> {
        Identity {
            uid: self.job.metadata.uid.as_deref().unwrap_or_default(),
            attempt: self.number(pod),
            commit: self.status.commit.as_deref().unwrap_or_default(),
            image: self.status.image.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the number of the attempt that this Pod belongs to, from the name of its Job. The record of an attempt
    /// may be missing although its Job exists.
    fn number(&self, pod: &PodView) -> u32 {
        let jobs = &self.world.children.jobs;
        let job = jobs
            .iter()
            .find(|job| pod.job_uid.as_ref() == Some(&job.uid));
        let begun = self.status.attempts;
        let next = begun.saturating_add(1);
        match job {
            Some(job) if job.name == names::job(self.name(), next, None) => next,
            Some(_) | None => begun,
        }
    }
}

impl Work for Validation<'_> {
    fn job_name(&self, attempt: u32, replaced_after: Option<u32>) -> String {
        names::job(self.name(), attempt, replaced_after)
    }

    fn config_map_name(&self) -> Option<String> {
        None
    }

    fn settings(&self) -> Option<AttemptSpec> {
        Some(build::attempt_spec(self.job))
    }

    fn blocker(&self, _is_stored: bool) -> Option<Verdict> {
        None
    }

    fn config_map(&self) -> Result<Option<Manifest>, Verdict> {
        Ok(None)
    }

    fn job(&self, attempt: u32, name: &str) -> Result<Manifest, Verdict> {
        let input = BuildInput {
            job: self.job,
            status: self.status,
            settings: &self.world.settings,
        };
        build::job(&input, attempt, name).map_err(|error| {
            let message = format!("the Job cannot be written as JSON: {error}");
            Verdict::stalled(Reason::InternalError, message)
        })
    }

    fn reads(&self) -> Vec<LiveRead> {
        Vec::new()
    }

    fn conditions(&self, _decision: &RunDecision) -> Vec<ConditionUpdate> {
        // The conditions depend on the whole status, so `decide` adds them.
        Vec::new()
    }

    fn evaluate(
        &self,
        pod: &PodView,
        exit: &Exit,
        failure: Option<&str>,
        _settings: Option<&AttemptSpec>,
    ) -> AttemptResult {
        evaluate(&self.attempt(pod, exit, failure))
    }

    /// Only failures of the environment are repeated. To repeat a verdict until it is a success would be a false
    /// success (F21).
    fn may_repeat(&self, result: &AttemptResult) -> bool {
        matches!(
            result.reason,
            Reason::StartTimeout | Reason::RepositoryUnreachable
        )
    }
}
