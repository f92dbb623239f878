//! Shared parts of the tests of a run: a scene that handles a decision as the engine does.

mod causes;
mod children;
mod cleaning;
mod cluster;
mod confirming;
mod deletion;
mod disruptions;
pub(super) mod fuzz;
pub(super) mod generator;
mod holding;
mod judging;
mod lifecycle;
mod lost_logs;
pub(super) mod properties;
mod proving;
mod recording;
mod regressions;
mod stopping;
mod suspending;
mod versions;
mod views;
mod waits;
mod worker;

use std::{sync::Arc, time::Duration};

use api::{
    Phase, Reason, State, Status, Timestamp,
    deadline::PhaseInput,
    decide::{Decision, Effect, FinalizerAction, Input, ReconcileError, Target},
    names,
    tasks::{Agent, AgentPhase, Resources, RunPhase, TaskRun, TaskRunSpec, TaskRunStatus},
    warning::Warning,
};
use attempts::World;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::{Defaults, RunDecision, RunWorld, decide};
use crate::view::{
    ConfigMapView, ContainerState, Exit, JobEnd, JobView, KINDS, PodPhase, PodView, Reported,
    job_view,
};

/// Secret in the Agent's environment. It must be in no status and no message.
pub(super) const CANARY: &str = "canary-5f1d-never-to-be-seen";

/// Returns the time at which scenes begin.
pub(super) fn start() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().unwrap()
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(start().as_second() + seconds).unwrap()
}

/// Returns the facts for the deadline of a phase. Its table needs none: the decisions set it.
pub(super) fn phase_input<P: Phase<Spec = ()>>() -> PhaseInput<'static, P> {
    PhaseInput {
        spec: &(),
        created: None,
        progress: None,
    }
}

pub(super) fn run(spec: Value) -> TaskRun {
    let mut full = json!({
        "taskId": 7, "serviceName": "shop", "agentName": "writer", "contextVersion": 1,
        "markdownFiles": [{"filename": "task.md", "content": "do it"}],
    });
    merge(&mut full, &spec);
    serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
        "metadata": {
            "name": "run-7", "namespace": "team", "uid": "run-uid", "generation": 1,
            "resourceVersion": "41",
        },
        "spec": full,
    }))
    .unwrap()
}

pub(super) fn agent(spec: Value) -> Agent {
    let mut full = json!({
        "image": "agents/writer:1",
        "env": [{"name": "TOKEN", "value": CANARY}],
        "results": [{"name": "answer", "required": false}],
    });
    merge(&mut full, &spec);
    let mut agent: Agent = serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
        "metadata": {"name": "writer", "namespace": "team", "uid": "agent-uid", "generation": 1},
        "spec": full,
    }))
    .unwrap();
    let mut status = api::tasks::AgentStatus {
        phase: Some(AgentPhase::Ready),
        ..Default::default()
    };
    let verdict = api::Verdict::ready("all there");
    status
        .progress
        .apply_verdict(api::Lifecycle::LongLived, &verdict, 1, start());
    agent.status = Some(status);
    agent
}

pub(super) fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (key, value) in from {
            into.insert(key.clone(), value.clone());
        }
    }
}

/// A run and its surroundings.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) run: TaskRun,
    pub(super) world: RunWorld,
    pub(super) now: Timestamp,
    /// Whether the run itself was deleted.
    pub(super) is_gone: bool,
    /// Number of objects that were created so far, for their UIDs.
    made: u32,
}

impl Scene {
    pub(super) fn new(run: TaskRun, agent: Option<Agent>) -> Self {
        Self {
            run,
            world: RunWorld {
                agent: agent.map(Arc::new),
                children: World::default(),
                files: None,
                holder: None,
                defaults: Defaults {
                    resources: serde_json::from_value::<Resources>(
                        json!({"requests": {"cpu": "100m"}, "limits": {"memory": "256Mi"}}),
                    )
                    .unwrap(),
                    ..Defaults::default()
                },
            },
            now: start(),
            is_gone: false,
            made: 0,
        }
    }

    /// Returns an ordinary run and its Agent.
    pub(super) fn plain() -> Self {
        Self::new(run(json!({})), Some(agent(json!({}))))
    }

    /// Returns an ordinary run with a first Job that was just created.
    pub(super) fn started() -> Self {
        Self::started_with(json!({}), json!({}))
    }

    pub(super) fn started_with(spec: Value, agent_spec: Value) -> Self {
        let mut scene = Self::new(run(spec), Some(agent(agent_spec)));
        scene.pass();
        assert_eq!(scene.world.children.jobs.len(), 1);
        scene
    }

    /// Returns the same with the container running since the 10th second.
    pub(super) fn running() -> Self {
        Self::running_with(json!({}), json!({}))
    }

    pub(super) fn running_with(spec: Value, agent_spec: Value) -> Self {
        let mut scene = Self::started_with(spec, agent_spec);
        scene.now = at(11);
        scene.pod(running(10));
        let decision = scene.pass();
        assert_eq!(decision.phase, RunPhase::Running);
        scene
    }

    pub(super) fn status(&self) -> &TaskRunStatus {
        self.run.status.as_ref().unwrap()
    }

    pub(super) fn decide(&self) -> RunDecision {
        self.decide_with(None)
    }

    /// Decides after the error of an effect that the decision needs.
    pub(super) fn decide_with(&self, fault: Option<&ReconcileError>) -> RunDecision {
        self.decide_after(fault, false)
    }

    /// Decides after the error of an optional effect.
    pub(super) fn decide_refused(&self, fault: &ReconcileError) -> RunDecision {
        self.decide_after(Some(fault), true)
    }

    fn decide_after(&self, fault: Option<&ReconcileError>, refused: bool) -> RunDecision {
        decide(&Input {
            object: &self.run,
            world: &self.world,
            now: self.now,
            fault,
            refused,
            confirmed: true,
            overdue: false,
        })
    }

    /// Decides, acts and records, as the engine does.
    pub(super) fn pass(&mut self) -> RunDecision {
        let decision = self.decide();
        for effect in &decision.effects {
            self.perform(effect);
        }
        self.record(&decision);
        decision
    }

    /// Decides and records, but no effect arrives.
    pub(super) fn pass_without_effects(&mut self) -> RunDecision {
        let decision = self.decide();
        self.record(&decision);
        decision
    }

    /// Reconciles until nothing changes.
    pub(super) fn settle(&mut self) -> RunDecision {
        for _ in 0..20 {
            let before = self.run.clone();
            let decision = self.pass();
            if decision.effects.is_empty() && self.run == before {
                return decision;
            }
        }
        panic!("does not come to rest: {:?}", self.status());
    }

    pub(super) fn at(&mut self, seconds: i64) -> &mut Self {
        self.now = at(seconds);
        self
    }

    /// Writes the decision into the object, through JSON as the API server would.
    pub(super) fn record(&mut self, decision: &RunDecision) {
        let stored = self.run.status.clone().unwrap_or_default();
        let status = decision.next_status(&stored, &phase_input(), self.generation(), self.now);
        if self.run.status.is_none() || status != stored {
            self.run.status = Some(
                serde_json::from_value(serde_json::to_value(&status).unwrap())
                    .expect("the status can be read back"),
            );
        }
        if let FinalizerAction::Remove { annotations } = &decision.finalizer {
            let known = self.run.metadata.annotations.get_or_insert_default();
            known.extend(annotations.clone());
        }
    }

    pub(super) fn generation(&self) -> i64 {
        self.run.metadata.generation.unwrap_or(0)
    }

    fn has_unproven(&self, name: &str) -> bool {
        let World {
            jobs, config_maps, ..
        } = &self.world.children;
        jobs.iter().any(|job| job.name == name && !job.proven)
            || config_maps
                .iter()
                .any(|map| map.name == name && !map.proven)
    }

    pub(super) fn perform(&mut self, effect: &Effect) {
        match effect {
            // An existing object is compared.
            Effect::Ensure(manifest) if manifest.existing || self.has_unproven(&manifest.name) => {
                let jobs = self.world.children.jobs.iter_mut();
                for job in jobs.filter(|job| job.name == manifest.name) {
                    job.proven = true;
                }
                let maps = self.world.children.config_maps.iter_mut();
                for map in maps.filter(|map| map.name == manifest.name) {
                    map.proven = true;
                }
            }
            Effect::Ensure(manifest) => {
                self.made += 1;
                let mut body = manifest.body.clone();
                body["metadata"]["uid"] = json!(format!("uid-{}", self.made));
                body["metadata"]["creationTimestamp"] = json!(Time(self.now));
                match manifest.resource.kind {
                    "Job" => {
                        let job: Job = serde_json::from_value(body).unwrap();
                        let mut view = job_view(&job);
                        view.proven = true;
                        assert!(
                            self.world
                                .children
                                .jobs
                                .iter()
                                .all(|known| known.name != view.name)
                        );
                        self.world.children.jobs.push(view);
                    }
                    "ConfigMap" => {
                        let map: ConfigMap = serde_json::from_value(body).unwrap();
                        let mut view = ConfigMapView::new(&map.metadata, KINDS);
                        view.proven = true;
                        let known = &mut self.world.children.config_maps;
                        assert!(known.iter().all(|known| known.name != view.name));
                        known.push(view);
                    }
                    other => panic!("creates a {other}"),
                }
            }
            Effect::Delete(target) => self.delete(target),
            Effect::Patch { target, patch, .. } if target.resource.kind == "Pod" => {
                assert_eq!(patch, &json!({"spec": {"activeDeadlineSeconds": 1}}));
                let pods = self.world.children.pods.iter_mut();
                for pod in pods.filter(|pod| pod.uid == target.uid) {
                    pod.limit_seconds = Some(1);
                }
            }
            Effect::Patch { .. } => {
                let change = job_change(effect).expect("only a Job's 'suspend' and limit");
                for job in &mut self.world.children.jobs {
                    if job.name == change.name {
                        if let Some(suspend) = change.suspend {
                            (job.suspended, job.suspended_by_us) = (suspend, suspend);
                            if suspend {
                                job.stopped_pods.clone_from(&change.stopped_pods);
                            }
                        }
                        job.limit_seconds = change.limit.or(job.limit_seconds);
                    }
                }
            }
            Effect::Apply(_) => {
                panic!("an effect that runs do not have: {effect:?}")
            }
        }
    }

    fn delete(&mut self, target: &Target) {
        match target.resource.kind {
            "Job" => {
                for job in &mut self.world.children.jobs {
                    if job.uid == target.uid {
                        job.deleting = Some(self.now);
                    }
                }
            }
            "ConfigMap" => self
                .world
                .children
                .config_maps
                .retain(|map| map.uid != target.uid),
            "TaskRun" => {
                assert_eq!(target.uid, "run-uid");
                assert_eq!(target.version, self.run.metadata.resource_version);
                self.is_gone = true;
            }
            other => panic!("deletes a {other}"),
        }
    }

    /// Returns the ConfigMap with this version's files.
    pub(super) fn files(&mut self) -> &mut ConfigMapView {
        let name = api::tasks::names::config_map(&self.run.spec);
        let mut maps = self.world.children.config_maps.iter_mut();
        maps.find(|map| map.name == name).unwrap()
    }

    /// Changes the spec, as a user does.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut TaskRunSpec)) {
        change(&mut self.run.spec);
        self.run.metadata.generation = Some(self.generation() + 1);
    }

    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.run.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    /// Returns the newest Job.
    pub(super) fn job(&mut self) -> &mut JobView {
        self.world.children.jobs.last_mut().unwrap()
    }

    /// Gives the newest Job a Pod in this state, or changes its existing Pod.
    pub(super) fn pod(&mut self, container: ContainerState) -> &mut PodView {
        let job = self.world.children.jobs.last().unwrap();
        let (name, mut uid) = (format!("{}-x", job.name), format!("pod-of-{}", job.uid));
        if !job.suspended && job.stopped_pods.contains(&uid) {
            uid.push_str("-again");
        }
        self.world.children.pods.retain(|pod| pod.uid != uid);
        let phase = match &container {
            ContainerState::Unknown | ContainerState::Waiting(_) => PodPhase::Pending,
            ContainerState::Running { .. } => PodPhase::Running,
            ContainerState::Ended(exit) if exit.code == 0 => PodPhase::Succeeded,
            ContainerState::Ended(_) => PodPhase::Failed,
        };
        self.world.children.pods.push(PodView {
            step: crate::view::Step::Main,
            main_exit: None,
            beside: None,
            doubt: None,
            stuck: None,
            pod: pods::PodView {
                name,
                uid,
                created: Some(self.now),
                node: Some("node-1".to_owned()),
                phase,
                containers: 1,
                ..pods::PodView::default()
            },
            job_uid: Some(job.uid.clone()),
            container,
            image_id: Some("agents/writer@sha256:abc".to_owned()),
            content: None,
            foreign: false,
        });
        self.world.children.pods.last_mut().unwrap()
    }

    /// Completes the newest Job.
    pub(super) fn complete(&mut self) {
        let at = Some(self.now);
        self.job().end = Some(JobEnd::Complete { at });
    }

    /// Fails the newest Job.
    pub(super) fn fail(&mut self) {
        self.fail_for(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        );
    }

    pub(super) fn fail_for(&mut self, reason: &str, message: &str) {
        let at = Some(self.now);
        self.job().end = Some(JobEnd::Failed {
            at,
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
    }

    /// Ends the newest Job and its Pod, as the kubelet and the Job controller do after the Pod's limit was set.
    pub(super) fn stopped(&mut self) {
        let second = self.now.as_second() - start().as_second();
        let pod = self.pod(ended(143, second, ""));
        (pod.phase, pod.limit_seconds) = (PodPhase::Failed, Some(1));
        self.fail();
    }

    /// Raises the version of the context by one.
    pub(super) fn supersede(&mut self) {
        self.edit(|spec| spec.context_version += 1);
    }

    pub(super) fn warn(&mut self, object_uid: &str, reason: &str, message: &str) {
        let last_seen = Some(self.now);
        self.world.children.warnings.push(Warning {
            object_uid: object_uid.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_seen,
            times: 1,
            ..Warning::default()
        });
    }
}

pub(super) fn waiting(reason: &str, message: &str) -> ContainerState {
    ContainerState::Waiting(Reported {
        reason: reason.to_owned(),
        message: message.to_owned(),
    })
}

pub(super) fn running(since: i64) -> ContainerState {
    ContainerState::Running {
        since: Some(at(since)),
    }
}

/// Returns a container that ran from the 10th second to `finished`.
pub(super) fn ended(code: i32, finished: i64, message: &str) -> ContainerState {
    ContainerState::Ended(Exit {
        code,
        signal: None,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: message.to_owned(),
        started: Some(at(10)),
        finished: Some(at(finished)),
        restarts: 0,
    })
}

/// Returns phase, state and reason of a decision.
pub(super) fn said<S: Status<Phase = RunPhase>>(
    decision: &Decision<S>,
) -> (RunPhase, State, Reason) {
    let Decision { phase, verdict, .. } = decision;
    (*phase, verdict.state, verdict.reason)
}

pub(super) fn creates<S: Status>(decision: &Decision<S>) -> Vec<(&'static str, String)> {
    let made = |effect: &Effect| match effect {
        Effect::Ensure(manifest) => Some((manifest.resource.kind, manifest.name.clone())),
        Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => None,
    };
    decision.effects.iter().filter_map(made).collect()
}

pub(super) fn deletes<S: Status>(decision: &Decision<S>) -> Vec<String> {
    let gone = |effect: &Effect| match effect {
        Effect::Delete(target) => Some(target.name.clone()),
        Effect::Ensure(_) | Effect::Apply(_) | Effect::Patch { .. } => None,
    };
    decision.effects.iter().filter_map(gone).collect()
}

/// Returns the Pods and Jobs whose limit a decision sets, so that they end at once.
pub(super) fn stops<S: Status>(decision: &Decision<S>) -> Vec<String> {
    let stopped = |effect: &Effect| match effect {
        Effect::Patch { target, patch, .. } if patch["spec"]["activeDeadlineSeconds"] == 1 => {
            let is_pod = target.resource.kind == "Pod";
            assert_eq!(patch["spec"]["parallelism"].is_null(), is_pod);
            assert_eq!(target.optional, is_pod, "a refusal leads to the Job");
            Some(format!("{} {}", target.resource.kind, target.name))
        }
        Effect::Ensure(_) | Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => None,
    };
    decision.effects.iter().filter_map(stopped).collect()
}

/// Returns the Jobs that a decision suspends or resumes.
pub(super) fn suspends<S: Status>(decision: &Decision<S>) -> Vec<(String, bool)> {
    let suspended = |change: JobChange| Some((change.name, change.suspend?));
    let changes = decision.effects.iter().filter_map(job_change);
    changes.filter_map(suspended).collect()
}

/// Change of an existing Job.
#[derive(Debug)]
pub(super) struct JobChange {
    pub(super) name: String,
    pub(super) suspend: Option<bool>,
    pub(super) limit: Option<i64>,
    /// Whether the change ends the Job at once.
    pub(super) is_stop: bool,
    /// Pods that the change lists.
    pub(super) stopped_pods: Vec<String>,
}

pub(super) fn job_change(effect: &Effect) -> Option<JobChange> {
    match effect {
        Effect::Patch {
            target,
            subresource: None,
            patch,
        } if target.resource.kind == "Job" => {
            let spec = patch["spec"].as_object()?;
            let known = ["suspend", "activeDeadlineSeconds", "parallelism"];
            let is_stop = *spec.get("parallelism").unwrap_or(&Value::Null) == 0;
            let suspend = patch["spec"]["suspend"].as_bool();
            let mark = &patch["metadata"]["annotations"][names::SUSPENDED];
            let is_marked = match suspend {
                Some(true) => mark == "true",
                Some(false) | None => mark.is_null(),
            };
            let is_known = spec.keys().all(|key| known.contains(&key.as_str()));
            let stopped = patch["metadata"]["annotations"][names::STOPPED_PODS].as_str();
            (is_known && is_marked).then(|| JobChange {
                name: target.name.clone(),
                suspend,
                stopped_pods: stopped
                    .map(|uids| uids.split(',').map(str::to_owned).collect())
                    .unwrap_or_default(),
                limit: patch["spec"]["activeDeadlineSeconds"].as_i64(),
                is_stop,
            })
        }
        Effect::Patch { .. } | Effect::Ensure(_) | Effect::Apply(_) | Effect::Delete(_) => None,
    }
}

/// Asks a Pod to stop at this second, with 30 seconds of grace.
pub(super) fn stop(pod: &mut PodView, asked: i64) {
    pod.stop_asked = Some(at(asked));
    pod.stop_by = Some(at(asked + 30));
}

pub(super) fn released<S: Status>(decision: &Decision<S>) -> Option<Option<Value>> {
    match &decision.finalizer {
        FinalizerAction::Keep => None,
        FinalizerAction::Remove { annotations } => Some(
            annotations
                .get(names::OUTCOME)
                .map(|text| serde_json::from_str(text).unwrap()),
        ),
    }
}
