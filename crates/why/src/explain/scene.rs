//! A run with what was read about it, and the questions that explanations ask.

use api::{
    Reason, Timestamp,
    status::condition,
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
pub(super) struct Scene<'a> {
    pub(super) world: &'a World,
    pub(super) run: &'a RunView,
}

impl<'a> Scene<'a> {
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

    /// The run's kind.
    pub(super) fn kind(self) -> &'static str {
        match &self.run.docs {
            Some(_) => "DocsRun",
            None => "TaskRun",
        }
    }

    /// What `orc` calls the run: a name alone is a TaskRun's.
    pub(super) fn argument(self) -> String {
        match &self.run.docs {
            Some(_) => format!("docsrun/{}", self.run.meta.name),
            None => self.run.meta.name.clone(),
        }
    }

    /// Whether the run's end is recorded.
    pub(super) fn is_over(self) -> bool {
        matches!(self.phase(), RunPhase::Succeeded | RunPhase::Failed)
    }

    pub(super) fn here(self, kind: &str, name: &str) -> ObjectRef {
        ObjectRef::namespaced(kind, self.namespace(), name)
    }

    pub(super) fn phase(self) -> RunPhase {
        self.status().phase.unwrap_or(RunPhase::Pending)
    }

    /// The reason of the run's own condition.
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

    /// The Jobs that belong to this run: a label can be copied, the owner's UID cannot.
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

    /// The Job of the attempt that goes on or was the last one: one that was created and is not in
    /// the status yet, or the one that the status names.
    pub(super) fn job(self) -> Option<&'a JobView> {
        let named = self.status().job_name.as_deref();
        let by_name = self
            .jobs()
            .find(|job| Some(job.meta.name.as_str()) == named);
        self.unrecorded_job().or(by_name)
    }

    /// The Job of the next attempt, or that in place of one that was lost, if the status does not
    /// name it yet.
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

    /// Whether nobody was kept from reading this, such as `nodes`.
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

    /// The Pod that the stored result speaks of, if it is still there.
    pub(super) fn pod_of_result(self, result: &RunResult) -> Option<&'a PodView> {
        let uid = result.pod_uid.as_deref().unwrap_or_default();
        self.world
            .pods
            .iter()
            .find(|pod| !uid.is_empty() && pod.meta.uid == uid)
    }

    /// The newest warning with one of these reasons about the object with this UID.
    pub(super) fn warning(self, uid: &str, reasons: &[&str]) -> Option<&'a EventView> {
        self.world.warning(uid, reasons)
    }

    pub(super) fn node(self, name: &str) -> Option<&'a NodeView> {
        self.world.node(name)
    }

    /// Whether a thing exists; `None` if nobody looked or may look.
    pub(super) fn exists(self, kind: &str, name: &str) -> Option<bool> {
        exists(self.world, kind, name)
    }

    pub(super) fn when(self, at: &Time) -> String {
        self.world.when(at)
    }

    /// ` since 10:02:11Z (3m ago)`, or nothing.
    pub(super) fn since(self, at: Option<&Time>) -> String {
        self.world.since(at)
    }

    /// ` at 10:02:11Z (3m ago)`, or nothing.
    pub(super) fn ago(self, at: Option<&Time>) -> String {
        self.world.ago(at)
    }

    /// Seconds since then; 0 if it is to come.
    pub(super) fn age(self, at: &Time) -> i64 {
        self.world.age(at)
    }

    /// How many attempts there are in all: the run's word, else the Agent's.
    pub(super) fn max_attempts(self) -> Option<u32> {
        let agents = self.world.agent.as_ref().map(|agent| agent.max_attempts);
        self.run.max_attempts.or(agents).filter(|count| *count > 0)
    }

    /// `attempt 1 of 3`.
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
    /// Warnings about the object with this UID, the newest first.
    pub(super) fn warnings(&self, uid: &str) -> Vec<&EventView> {
        let mut all: Vec<&EventView> = self
            .events
            .iter()
            .filter(|event| event.warning && event.uid == uid && !uid.is_empty())
            .collect();
        all.sort_by_key(|event| std::cmp::Reverse(event.last.clone()));
        all
    }

    /// The newest warning with one of these reasons about the object with this UID.
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

    /// ` since 10:02:11Z (3m ago)`, or nothing.
    pub(super) fn since(&self, at: Option<&Time>) -> String {
        at.map_or_else(String::new, |at| format!(" since {}", self.when(at)))
    }

    /// ` at 10:02:11Z (3m ago)`, or nothing.
    pub(super) fn ago(&self, at: Option<&Time>) -> String {
        at.map_or_else(String::new, |at| format!(" at {}", self.when(at)))
    }

    /// Seconds since then; 0 if it is to come.
    pub(super) fn age(&self, at: &Time) -> i64 {
        let seconds = self.now.0.as_second().saturating_sub(at.0.as_second());
        seconds.max(0)
    }
}

/// Whether nobody was kept from reading this, such as `nodes`.
pub(super) fn may_read(world: &World, what: &str) -> bool {
    !world
        .unreadable
        .iter()
        .any(|one| one.forbidden && one.what.eq_ignore_ascii_case(what))
}

/// Whether a thing exists; `None` if nobody looked or may look.
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

    /// The container that counts now.
    pub(super) fn current(&self) -> Option<&ContainerView> {
        self.containers.first()
    }

    pub(super) fn state(&self) -> &ContainerState {
        self.current()
            .map_or(&ContainerState::Unknown, |container| &container.state)
    }

    /// Whether a program of it may still run, as far as anyone knows.
    pub(super) fn may_run(&self) -> bool {
        !matches!(self.phase.as_str(), "Succeeded" | "Failed")
            && !matches!(self.state(), ContainerState::Ended { .. })
    }

    /// Who stops it, if someone does.
    pub(super) fn disruption(&self) -> Option<&ConditionView> {
        self.condition("DisruptionTarget")
            .filter(|known| known.status == "True")
    }

    pub(super) fn object(&self) -> ObjectRef {
        ObjectRef::namespaced("Pod", &self.meta.namespace, &self.meta.name)
    }
}

impl JobView {
    /// The condition that says that it is over.
    pub(super) fn end(&self) -> Option<&ConditionView> {
        self.conditions.iter().find(|known| {
            known.status == "True" && matches!(known.kind.as_str(), "Complete" | "Failed")
        })
    }

    pub(super) fn object(&self) -> ObjectRef {
        ObjectRef::namespaced("Job", &self.meta.namespace, &self.meta.name)
    }
}

impl NodeView {
    /// Whether its kubelet answers.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
            .as_ref()
            .is_some_and(|ready| ready.status == "True")
    }

    pub(super) fn object(&self) -> ObjectRef {
        ObjectRef::cluster("Node", &self.name)
    }
}
