//! A run with its world, and helper functions for the explanations.

use api::{
    Reason, Timestamp,
    status::{Retry, condition},
    tasks::{Evidence as RunResult, RunPhase, TaskRunStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    times,
    world::{
        ConditionView, ContainerState, ContainerView, EventView, JobView, NodeView, ObjectRef,
        PodView, RunView, World,
    },
};

/// A run and its world.
#[derive(Clone, Copy)]
pub(super) struct RunContext<'a> {
    pub(super) world: &'a World,
    pub(super) run: &'a RunView,
}

impl<'a> RunContext<'a> {
    pub(super) fn now(self) -> Timestamp {
        self.world.now.0
    }

    pub(super) fn status(self) -> &'a TaskRunStatus {
        &self.run.status
    }

    pub(super) fn namespace(self) -> &'a str {
        &self.run.meta.namespace
    }

    pub(super) fn object(self) -> ObjectRef {
        ObjectRef::namespaced(self.kind(), self.namespace(), &self.run.meta.name)
    }

    /// Returns the run's kind.
    pub(super) fn kind(self) -> &'static str {
        match &self.run.docs {
            Some(_) => "DocsRun",
            None => "TaskRun",
        }
    }

    /// Returns the run as an argument of `orc`. A name without a kind is a TaskRun's.
    pub(super) fn argument(self) -> String {
        match &self.run.docs {
            Some(_) => format!("docsrun/{}", self.run.meta.name),
            None => self.run.meta.name.clone(),
        }
    }

    /// Returns whether the status contains the outcome of the run.
    pub(super) fn is_over(self) -> bool {
        matches!(self.phase(), RunPhase::Succeeded | RunPhase::Failed)
    }

    pub(super) fn here(self, kind: &str, name: &str) -> ObjectRef {
        ObjectRef::namespaced(kind, self.namespace(), name)
    }

    pub(super) fn phase(self) -> RunPhase {
        self.status().phase.unwrap_or(RunPhase::Pending)
    }

    /// Returns the reason of the run's main condition.
    pub(super) fn reason(self) -> Option<Reason> {
        let condition = self.status().progress.condition(condition::SUCCEEDED)?;
        Reason::from_name(&condition.reason)
    }

    pub(super) fn message(self) -> &'a str {
        self.status()
            .progress
            .message
            .as_deref()
            .unwrap_or_default()
    }

    pub(super) fn written(self) -> Option<&'a Time> {
        self.status().progress.last_updated.as_ref()
    }

    /// Returns the Jobs that belong to this run. A label can be copied, but the owner's UID cannot.
    pub(super) fn jobs(self) -> impl Iterator<Item = &'a JobView> {
        let uid = &self.run.meta.uid;
        self.world.jobs.iter().filter(move |job| {
            !uid.is_empty()
                && job
                    .meta
                    .owner
                    .as_ref()
                    .is_some_and(|owner| owner.uid == *uid)
        })
    }

    /// Returns the Job of the current or last attempt. A Job that is not in the status yet comes
    /// before the Job in the status.
    pub(super) fn job(self) -> Option<&'a JobView> {
        let named = self.status().job_name.as_deref();
        let by_name = self
            .jobs()
            .find(|job| Some(job.meta.name.as_str()) == named);
        self.unrecorded_job().or(by_name)
    }

    /// Returns the Job of the next attempt, or the replacement of a lost Job, if the status does
    /// not contain it yet.
    pub(super) fn unrecorded_job(self) -> Option<&'a JobView> {
        let named = self.status().job_name.as_deref();
        let result = self.status().result.as_ref();
        let is_between = result.is_some_and(|result| result.finished_at.is_some())
            && self.phase() == RunPhase::Pending;
        let version = self.run.version.to_string();
        self.jobs()
            .filter(|job| named.is_none() || (is_between && job.end().is_none()))
            .filter(|job| Some(job.meta.name.as_str()) != named)
            .filter(|job| self.run.docs.is_some() || job.version.as_ref() == Some(&version))
            .max_by_key(|job| job.meta.created.clone())
    }

    /// Returns whether no read of this resource was forbidden, such as `nodes`.
    pub(super) fn may_read(self, what: &str) -> bool {
        may_read(self.world, what)
    }

    pub(super) fn pods_of(self, job: &JobView) -> impl Iterator<Item = &'a PodView> {
        let uid = job.meta.uid.clone();
        self.world.pods.iter().filter(move |pod| {
            pod.meta
                .owner
                .as_ref()
                .is_some_and(|owner| owner.uid == uid)
        })
    }

    pub(super) fn newest_pod(self, job: &JobView) -> Option<&'a PodView> {
        self.pods_of(job)
            .max_by_key(|pod| (pod.meta.created.clone(), pod.meta.uid.clone()))
    }

    /// Returns the Pod of the stored result, if it still exists.
    pub(super) fn pod_of_result(self, result: &RunResult) -> Option<&'a PodView> {
        let uid = result.pod_uid.as_deref().unwrap_or_default();
        self.world
            .pods
            .iter()
            .find(|pod| !uid.is_empty() && pod.meta.uid == uid)
    }

    /// Returns the newest warning with one of these reasons about the object with this UID.
    pub(super) fn warning(self, uid: &str, reasons: &[&str]) -> Option<&'a EventView> {
        self.world.warning(uid, reasons)
    }

    pub(super) fn node(self, name: &str) -> Option<&'a NodeView> {
        self.world.node(name)
    }

    /// Returns whether an object exists, or `None` if it was not read or may not be read.
    pub(super) fn exists(self, kind: &str, name: &str) -> Option<bool> {
        exists(self.world, kind, name)
    }

    pub(super) fn when(self, at: &Time) -> String {
        self.world.when(at)
    }

    /// Formats ` since 10:02:11Z (3m ago)`, or an empty string.
    pub(super) fn since(self, at: Option<&Time>) -> String {
        self.world.since(at)
    }

    /// Formats ` at 10:02:11Z (3m ago)`, or an empty string.
    pub(super) fn ago(self, at: Option<&Time>) -> String {
        self.world.ago(at)
    }

    /// Returns the seconds since a time, or 0 for a time in the future.
    pub(super) fn age(self, at: &Time) -> i64 {
        self.world.age(at)
    }

    /// Returns the maximum number of attempts, from the run or else from the Agent.
    pub(super) fn max_attempts(self) -> Option<u32> {
        let agents = self.world.agent.as_ref().map(|agent| agent.max_attempts);
        self.run.max_attempts.or(agents).filter(|count| *count > 0)
    }

    /// Formats the current attempt: `attempt 1 of 3`.
    pub(super) fn attempt(self) -> String {
        let attempts = self.status().attempts;
        if attempts == 0 {
            return "no attempt yet".to_owned();
        }
        match self.max_attempts() {
            Some(all) if all >= attempts => format!("attempt {attempts} of {all}"),
            Some(_) | None => format!("attempt {attempts}"),
        }
    }
}

impl World {
    /// Returns the warnings about the object with this UID, newest first.
    pub(super) fn warnings(&self, uid: &str) -> Vec<&EventView> {
        let mut all: Vec<&EventView> = self
            .events
            .iter()
            .filter(|event| event.warning && event.uid == uid && !uid.is_empty())
            .collect();
        all.sort_by_key(|event| std::cmp::Reverse(event.last.clone()));
        all
    }

    /// Returns the newest warning with one of these reasons about the object with this UID.
    pub(super) fn warning(&self, uid: &str, reasons: &[&str]) -> Option<&EventView> {
        self.warnings(uid)
            .into_iter()
            .find(|event| reasons.contains(&event.reason.as_str()))
    }

    pub(super) fn node(&self, name: &str) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.name == name)
    }

    pub(super) fn when(&self, at: &Time) -> String {
        times::at(self.now.0, at.0)
    }

    /// Formats ` since 10:02:11Z (3m ago)`, or an empty string.
    pub(super) fn since(&self, at: Option<&Time>) -> String {
        at.map_or_else(String::new, |at| format!(" since {}", self.when(at)))
    }

    /// Formats `next try at 10:05:53Z (in 42s)`, or `tried every 5m at the latest`.
    pub(super) fn next_try(&self, retry: &Retry) -> String {
        match (&retry.next_at, &retry.every) {
            (Some(at), _) => format!("next try at {}", self.when(at)),
            (None, Some(every)) => format!("tried every {every} at the latest"),
            (None, None) => "tried again".to_owned(),
        }
    }

    /// Formats ` at 10:02:11Z (3m ago)`, or an empty string.
    pub(super) fn ago(&self, at: Option<&Time>) -> String {
        at.map_or_else(String::new, |at| format!(" at {}", self.when(at)))
    }

    /// Returns the seconds since a time, or 0 for a time in the future.
    pub(super) fn age(&self, at: &Time) -> i64 {
        let seconds = self.now.0.as_second().saturating_sub(at.0.as_second());
        seconds.max(0)
    }
}

/// Returns whether no read of this resource was forbidden, such as `nodes`.
pub(super) fn may_read(world: &World, what: &str) -> bool {
    !world
        .unreadable
        .iter()
        .any(|one| one.forbidden && one.what.eq_ignore_ascii_case(what))
}

/// Returns whether an object exists, or `None` if it was not read or may not be read.
pub(super) fn exists(world: &World, kind: &str, name: &str) -> Option<bool> {
    let known = world
        .known
        .iter()
        .find(|known| known.object.kind == kind && known.object.name == name)?;
    Some(known.exists)
}

impl PodView {
    pub(super) fn condition(&self, kind: &str) -> Option<&ConditionView> {
        self.conditions.iter().find(|known| known.kind == kind)
    }

    /// Returns the current container.
    pub(super) fn current(&self) -> Option<&ContainerView> {
        self.containers.first()
    }

    pub(super) fn state(&self) -> &ContainerState {
        self.current()
            .map_or(&ContainerState::Unknown, |container| &container.state)
    }

    /// Returns whether a program of the Pod may still be running.
    pub(super) fn may_run(&self) -> bool {
        !matches!(self.phase.as_str(), "Succeeded" | "Failed") && self.state().exit().is_none()
    }

    /// Returns the condition of a Pod that is being disrupted, if there is one.
    pub(super) fn disruption(&self) -> Option<&ConditionView> {
        self.condition("DisruptionTarget")
            .filter(|known| known.status == "True")
    }

    pub(super) fn object(&self) -> ObjectRef {
        ObjectRef::namespaced("Pod", &self.meta.namespace, &self.meta.name)
    }
}

impl JobView {
    /// Returns the condition that marks the Job as finished. A Job with both conditions has failed.
    pub(super) fn end(&self) -> Option<&ConditionView> {
        let found = |kind: &str| {
            let mut conditions = self.conditions.iter();
            conditions.find(|known| known.status == "True" && known.kind == kind)
        };
        found("Failed").or_else(|| found("Complete"))
    }

    pub(super) fn object(&self) -> ObjectRef {
        ObjectRef::namespaced("Job", &self.meta.namespace, &self.meta.name)
    }
}

impl NodeView {
    /// Returns whether the node is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
            .as_ref()
            .is_some_and(|ready| ready.status == "True")
    }

    pub(super) fn object(&self) -> ObjectRef {
        ObjectRef::cluster("Node", &self.name)
    }
}
