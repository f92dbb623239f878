//! A run with its world, and helper functions for the explanations.

use api::tasks::TaskRunStatus;

use super::*;

impl<'a> Run<'a> {
    pub(super) fn status(self) -> &'a TaskRunStatus {
        &self.view.status
    }

    /// Returns the Agent that the run references.
    pub(super) fn agent(self) -> ObjectRef {
        self.here("Agent", &self.view.agent_name)
    }

    /// Returns the run as an argument of `orc`. A name without a kind is a TaskRun's.
    pub(super) fn argument(self) -> String {
        match &self.view.docs {
            Some(_) => format!("docsrun/{}", self.name()),
            None => self.name().to_owned(),
        }
    }

    pub(super) fn phase(self) -> RunPhase {
        self.status().phase.unwrap_or(RunPhase::Pending)
    }

    /// Returns the Jobs that belong to this run. A label can be copied, but the owner's UID cannot.
    pub(super) fn jobs(self) -> impl Iterator<Item = &'a JobView> {
        let jobs = self.world.jobs.iter();
        jobs.filter(move |job| job.meta.is_owned_by(&self.meta.uid))
    }

    /// Returns the Job of the current or last attempt. A Job that is not in the status yet comes
    /// before the Job in the status.
    pub(super) fn job(self) -> Option<&'a JobView> {
        let named = self.status().job_name.as_ref();
        let by_name = || self.jobs().find(|job| Some(&job.meta.name) == named);
        self.unrecorded_job().or_else(by_name)
    }

    /// Returns the Job of the next attempt, or the replacement of a lost Job, if the status does
    /// not contain it yet.
    pub(super) fn unrecorded_job(self) -> Option<&'a JobView> {
        let named = self.status().job_name.as_ref();
        let result = self.status().result.as_ref();
        let is_between = result.is_some_and(|result| result.finished_at.is_some())
            && self.phase() == RunPhase::Pending;
        let version = self.view.version.to_string();
        self.jobs()
            .filter(|job| named.is_none() || (is_between && job.end().is_none()))
            .filter(|job| Some(&job.meta.name) != named)
            .filter(|job| self.view.docs.is_some() || job.version.as_ref() == Some(&version))
            .max_by_key(|job| job.meta.created.clone())
    }

    pub(super) fn newest_pod(self, job: &JobView) -> Option<&'a PodView> {
        let pods = self.world.pods.iter();
        pods.filter(|pod| pod.meta.is_owned_by(&job.meta.uid))
            .max_by_key(|pod| (pod.meta.created.clone(), pod.meta.uid.clone()))
    }

    /// Returns the newest Pod of the current Job, if a program of it may still be running.
    pub(super) fn running_pod(self) -> Option<&'a PodView> {
        let pod = self.newest_pod(self.job()?)?;
        pod.may_run().then_some(pod)
    }

    /// Returns the Pod of the stored result, if it still exists.
    pub(super) fn pod_of_result(self, result: &RunResult) -> Option<&'a PodView> {
        let uid = result.pod_uid.as_deref().unwrap_or_default();
        let mut pods = self.world.pods.iter();
        pods.find(|pod| !uid.is_empty() && pod.meta.uid == uid)
    }

    /// Formats the current attempt: `attempt 1 of 3`. The run's own maximum overrides the Agent's.
    pub(super) fn attempt(self) -> String {
        let agents = self.world.agent.as_ref().map(|agent| agent.max_attempts);
        match (self.status().attempts, self.view.max_attempts.or(agents)) {
            (0, _) => "no attempt yet".to_owned(),
            (count, Some(all)) if all >= count => format!("attempt {count} of {all}"),
            (count, _) => format!("attempt {count}"),
        }
    }
}
