//! What the tests of a run share: a scene that does what the engine does with a decision.

mod causes;
mod children;
mod cluster;
mod deletion;
mod generator;
mod judging;
mod lifecycle;
mod properties;
mod regressions;
mod versions;
mod views;

use std::{sync::Arc, time::Duration};

use api::{
    Phase, Reason, State, Status, Timestamp,
    decide::{Decision, Effect, Fault, Hold, Input, NoExternal},
    names,
    tasks::{Agent, AgentPhase, Resources, RunPhase, TaskRun, TaskRunStatus},
};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::{Defaults, RunDecision, RunWorld, decide};
use crate::view::{
    ConfigMapView, Container, Exit, JobEnd, JobView, PodPhase, PodView, Said, Warning,
};

/// In the Agent's environment; must be in no status and no message.
pub(super) const CANARY: &str = "canary-5f1d-never-to-be-seen";

/// The time at which scenes begin.
pub(super) fn start() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().unwrap()
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(start().as_second() + seconds).unwrap()
}

pub(super) fn run(spec: Value) -> TaskRun {
    let mut full = json!({
        "taskId": 7, "serviceName": "shop", "agentName": "writer", "contextVersion": 1,
        "markdownFiles": [{"filename": "task.md", "content": "do it"}],
    });
    merge(&mut full, &spec);
    serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
        "metadata": {"name": "run-7", "namespace": "team", "uid": "run-uid", "generation": 1},
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
        .stand(api::Shape::LongLived, &verdict, 1, start());
    agent.status = Some(status);
    agent
}

fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (key, value) in from {
            into.insert(key.clone(), value.clone());
        }
    }
}

/// A run and what is around it.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) run: TaskRun,
    pub(super) world: RunWorld,
    pub(super) now: Timestamp,
    /// How many objects were created so far, for their UIDs.
    made: u32,
}

impl Scene {
    pub(super) fn new(run: TaskRun, agent: Option<Agent>) -> Self {
        Self {
            run,
            world: RunWorld {
                agent: agent.map(Arc::new),
                jobs: Vec::new(),
                pods: Vec::new(),
                config_map: None,
                warnings: Vec::new(),
                defaults: Defaults {
                    resources: serde_json::from_value::<Resources>(
                        json!({"requests": {"cpu": "100m"}, "limits": {"memory": "256Mi"}}),
                    )
                    .unwrap(),
                },
            },
            now: start(),
            made: 0,
        }
    }

    /// An ordinary run, and its Agent.
    pub(super) fn plain() -> Self {
        Self::new(run(json!({})), Some(agent(json!({}))))
    }

    /// An ordinary run whose first Job was just created.
    pub(super) fn started() -> Self {
        Self::started_with(json!({}), json!({}))
    }

    pub(super) fn started_with(spec: Value, agent_spec: Value) -> Self {
        let mut scene = Self::new(run(spec), Some(agent(agent_spec)));
        scene.pass();
        assert_eq!(scene.world.jobs.len(), 1);
        scene
    }

    /// The same with the container running since the 10th second.
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

    pub(super) fn decide_with(&self, fault: Option<&Fault>) -> RunDecision {
        decide(&Input {
            object: &self.run,
            world: &self.world,
            now: self.now,
            fault,
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

    /// Passes until nothing changes.
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

    /// Writes what was decided into the object, through JSON as the API server would.
    pub(super) fn record(&mut self, decision: &RunDecision) {
        let stored = self.run.status.clone().unwrap_or_default();
        let status = decision.settled(&stored, self.generation(), self.now);
        self.run.status = Some(
            serde_json::from_value(serde_json::to_value(&status).unwrap())
                .expect("the status can be read back"),
        );
        if let Hold::Release { annotations } = &decision.hold {
            let known = self.run.metadata.annotations.get_or_insert_default();
            known.extend(annotations.clone());
        }
    }

    pub(super) fn generation(&self) -> i64 {
        self.run.metadata.generation.unwrap_or(0)
    }

    pub(super) fn perform(&mut self, effect: &Effect<NoExternal>) {
        match effect {
            Effect::Ensure(manifest) => {
                self.made += 1;
                let mut body = manifest.body.clone();
                body["metadata"]["uid"] = json!(format!("uid-{}", self.made));
                body["metadata"]["creationTimestamp"] = json!(Time(self.now));
                match manifest.resource.kind {
                    "Job" => {
                        let job: Job = serde_json::from_value(body).unwrap();
                        let view = JobView::from(&job);
                        assert!(self.world.jobs.iter().all(|known| known.name != view.name));
                        self.world.jobs.push(view);
                    }
                    "ConfigMap" => {
                        let map: ConfigMap = serde_json::from_value(body).unwrap();
                        assert!(self.world.config_map.is_none());
                        self.world.config_map = Some(ConfigMapView::from(&map));
                    }
                    other => panic!("creates a {other}"),
                }
            }
            Effect::Delete(target) => {
                assert_eq!(target.resource.kind, "Job");
                for job in &mut self.world.jobs {
                    if job.uid == target.uid {
                        job.deleting = Some(self.now);
                    }
                }
            }
            Effect::Apply(_) | Effect::Patch { .. } | Effect::External { .. } => {
                panic!("an effect that runs do not have: {effect:?}")
            }
        }
    }

    /// The newest Job.
    pub(super) fn job(&mut self) -> &mut JobView {
        self.world.jobs.last_mut().unwrap()
    }

    /// Gives the newest Job a Pod in this state, or changes the one it has.
    pub(super) fn pod(&mut self, container: Container) -> &mut PodView {
        let job = self.world.jobs.last().unwrap();
        let (name, uid) = (format!("{}-x", job.name), format!("pod-of-{}", job.uid));
        self.world.pods.retain(|pod| pod.uid != uid);
        let phase = match &container {
            Container::Unknown | Container::Waiting(_) => PodPhase::Pending,
            Container::Running { .. } => PodPhase::Running,
            Container::Ended(exit) if exit.code == 0 => PodPhase::Succeeded,
            Container::Ended(_) => PodPhase::Failed,
        };
        self.world.pods.push(PodView {
            name,
            uid,
            job_uid: Some(job.uid.clone()),
            created: Some(self.now),
            node: Some("node-1".to_owned()),
            stop_asked: None,
            disruption: None,
            unschedulable: None,
            phase,
            failure: None,
            container,
            image_id: Some("agents/writer@sha256:abc".to_owned()),
        });
        self.world.pods.last_mut().unwrap()
    }

    /// The newest Job is complete.
    pub(super) fn complete(&mut self) {
        let at = Some(self.now);
        self.job().end = Some(JobEnd::Complete { at });
    }

    /// The newest Job failed.
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

    /// A version more of the context.
    pub(super) fn supersede(&mut self) {
        self.run.spec.context_version += 1;
        self.run.metadata.generation = Some(self.generation() + 1);
        // The name of the files is another one.
        self.world.config_map = None;
    }

    pub(super) fn warn(&mut self, object_uid: &str, reason: &str, message: &str) {
        let last_seen = Some(self.now);
        self.world.warnings.push(Warning {
            object_uid: object_uid.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_seen,
        });
    }
}

pub(super) fn waiting(reason: &str, message: &str) -> Container {
    Container::Waiting(Said {
        reason: reason.to_owned(),
        message: message.to_owned(),
    })
}

pub(super) fn running(since: i64) -> Container {
    Container::Running {
        since: Some(at(since)),
    }
}

/// A container that ran from the 10th second to `finished`.
pub(super) fn ended(code: i32, finished: i64, message: &str) -> Container {
    Container::Ended(Exit {
        code,
        signal: None,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: message.to_owned(),
        started: Some(at(10)),
        finished: Some(at(finished)),
    })
}

/// What a decision says and does, in short.
pub(super) fn said(decision: &RunDecision) -> (RunPhase, State, Reason) {
    let Decision { phase, verdict, .. } = decision;
    (*phase, verdict.state, verdict.reason)
}

pub(super) fn creates(decision: &RunDecision) -> Vec<(&'static str, String)> {
    let made = |effect: &Effect<NoExternal>| match effect {
        Effect::Ensure(manifest) => Some((manifest.resource.kind, manifest.name.clone())),
        Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } | Effect::External { .. } => {
            None
        }
    };
    decision.effects.iter().filter_map(made).collect()
}

pub(super) fn deletes(decision: &RunDecision) -> Vec<String> {
    let gone = |effect: &Effect<NoExternal>| match effect {
        Effect::Delete(target) => Some(target.name.clone()),
        Effect::Ensure(_) | Effect::Apply(_) | Effect::Patch { .. } | Effect::External { .. } => {
            None
        }
    };
    decision.effects.iter().filter_map(gone).collect()
}

pub(super) fn released(decision: &RunDecision) -> Option<Option<Value>> {
    match &decision.hold {
        Hold::Keep => None,
        Hold::Release { annotations } => Some(
            annotations
                .get(names::OUTCOME)
                .map(|text| serde_json::from_str(text).unwrap()),
        ),
    }
}
