//! Shared parts of the tests of a DocsRun: the scene of every run, with a Git server that responds
//! on demand.

mod children;
mod cleaning;
mod disruptions;
mod doubting;
mod fuzz;
mod generator;
mod judging;
mod lifecycle;
mod properties;
mod regressions;
mod resolving;
mod stopping;
mod verifying;
mod views;
mod walks;

use std::{collections::BTreeMap, time::Duration};

use api::{
    Reason, State, Status, Timestamp,
    decide::{Effect, ErrorClass, FinalizerAction, Input, ReconcileError},
    external::Load,
    tasks::{Agent, DocsRun, DocsRunSpec, DocsRunStatus, RunPhase},
};
use git::{Commit, Files, Report};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    DocsDecision, DocsWorld, LsRemoteRequest, LsRemoteResponse, Purpose, Settings, decide, question,
};
use crate::{
    run::tests::{
        CANARY, Scene as Around, agent, at, creates, deletes, ended, merge, phase_input, released,
        run as task, running, said, start, stop, stops, suspends, waiting,
    },
    view::{ContainerState, Exit, PREPARING, PodView, Step},
};

/// Head of the source branch, previous head of the output branch, and the pushed commit.
const BASE: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const HEAD: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const PUSHED: &str = "cccccccccccccccccccccccccccccccccccccccc";
const URL: &str = "https://git.example.com/team/shop.git";
const BRANCH: &str = "docs/shop";
const JOB: &str = "shop-docs";
const FILES: &str = "shop-docs-files";

const SUCCEEDED: (RunPhase, State, Reason) =
    (RunPhase::Succeeded, State::Succeeded, Reason::Succeeded);

fn failed(reason: Reason) -> (RunPhase, State, Reason) {
    (RunPhase::Failed, State::Failed, reason)
}

fn docs_run(spec: Value) -> DocsRun {
    let mut full = json!({
        "repositoryUrl": URL, "sourceBranch": "main", "agentName": "writer",
        "instructions": [{"filename": "task.md", "content": "write it"}],
        "credentialsSecretRef": {"name": "git-key"},
    });
    merge(&mut full, &spec);
    serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun",
        "metadata": {
            "name": "shop", "namespace": "team", "uid": "docs-uid", "generation": 1,
            "resourceVersion": "41", "creationTimestamp": Time(at(0)),
        },
        "spec": full,
    }))
    .unwrap()
}

fn commit(text: &str) -> Commit {
    Commit::parse(text).unwrap()
}

fn pushed() -> Report {
    Report::Pushed {
        commit: commit(PUSHED),
        changed: Files::new(["docs/a.md", "docs/b.md"]),
        skipped: Files::default(),
    }
}

fn found() -> Report {
    Report::Found {
        commit: commit(PUSHED),
        changed: Files::new(["docs/a.md"]),
        skipped: Files::default(),
    }
}

fn unchanged() -> Report {
    Report::NoChanges {
        skipped: Files::new(["docs/link"]),
    }
}

/// A Git server, as the operator sees it.
#[derive(Debug, Clone)]
struct Server {
    heads: BTreeMap<String, String>,
    refusal: Option<(Reason, String)>,
    /// Whether the query is in flight. Otherwise it waits for its turn.
    is_queried: bool,
}

/// A DocsRun and its surroundings.
#[derive(Debug, Clone)]
struct Scene {
    run: DocsRun,
    /// The cluster, and the time. The run in it is not used.
    around: Around,
    settings: Settings,
    server: Server,
    /// The enqueued query and its response, as the operator's worker keeps them.
    worker: Option<(LsRemoteRequest, Option<LsRemoteResponse>)>,
    /// Number of status writes.
    records: u32,
    is_gone: bool,
}

impl Scene {
    fn new(run: DocsRun, agent: Option<Agent>) -> Self {
        let mut around = Around::new(task(json!({})), agent);
        around.now = at(1);
        Self {
            run,
            around,
            settings: Settings::default(),
            server: Server {
                heads: [("main", BASE), (BRANCH, HEAD)]
                    .map(|(branch, head)| (branch.to_owned(), head.to_owned()))
                    .into(),
                refusal: None,
                is_queried: false,
            },
            worker: None,
            records: 0,
            is_gone: false,
        }
    }

    fn plain() -> Self {
        Self::with(json!({}), json!({}))
    }

    fn with(spec: Value, agent_spec: Value) -> Self {
        Self::new(docs_run(spec), Some(agent(agent_spec)))
    }

    /// Returns a run with a recorded commit to work on, in the 2nd second.
    fn resolved(spec: Value, agent_spec: Value) -> Self {
        let mut scene = Self::with(spec, agent_spec);
        scene.pass();
        scene.at(2).reply();
        let decision = scene.pass();
        assert!(scene.status().base_commit.is_some(), "{decision:?}");
        scene
    }

    /// Returns a run with a created Job, in the 2nd second.
    fn started(spec: Value, agent_spec: Value) -> Self {
        let mut scene = Self::resolved(spec, agent_spec);
        scene.pass();
        assert_eq!(scene.around.world.children.jobs.len(), 1);
        scene
    }

    fn cloning() -> Self {
        let mut scene = Self::started(json!({}), json!({}));
        scene.at(5).clone_container(waiting(PREPARING, ""));
        assert_eq!(scene.pass().verdict.reason, Reason::Cloning);
        scene
    }

    /// Returns a run with an agent that runs since the 10th second.
    fn running() -> Self {
        Self::running_with(json!({}), json!({}))
    }

    fn running_with(spec: Value, agent_spec: Value) -> Self {
        let mut scene = Self::started(spec, agent_spec);
        scene.at(11).agent_container(running(10));
        assert_eq!(scene.pass().phase, RunPhase::Running);
        scene
    }

    /// Returns a run with an agent that ended in the 50th second, with this message. `publish` is
    /// at work.
    fn publishing() -> Self {
        Self::publishing_with(json!({}), json!({}), "")
    }

    fn publishing_with(spec: Value, agent_spec: Value, message: &str) -> Self {
        let mut scene = Self::running_with(spec, agent_spec);
        scene.at(51).publish_container(running(10), message);
        assert_eq!(scene.pass().verdict.reason, Reason::Publishing);
        scene
    }

    /// Returns a run with a complete Job: `publish` exited with code 0 in the 60th second, with
    /// this report.
    fn reported(report: &Report) -> Self {
        let mut scene = Self::publishing();
        scene.publish_ends(0, &report.write());
        scene
    }

    /// Returns a run with a reported push, before the server is queried.
    fn verifying() -> Self {
        let mut scene = Self::reported(&pushed());
        assert_eq!(scene.pass().verdict.reason, Reason::Verifying);
        scene
    }

    fn status(&self) -> &DocsRunStatus {
        self.run.status.as_ref().unwrap()
    }

    fn at(&mut self, seconds: i64) -> &mut Self {
        self.around.now = at(seconds);
        self
    }

    fn now(&self) -> Timestamp {
        self.around.now
    }

    fn edit(&mut self, change: impl FnOnce(&mut DocsRunSpec)) {
        change(&mut self.run.spec);
        self.run.metadata.generation = self.run.metadata.generation.map(|number| number + 1);
    }

    fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.run.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    fn delete_run(&mut self) {
        self.run.metadata.deletion_timestamp = Some(Time(self.now()));
    }

    /// Drops the operator's memory of queries.
    fn restart(&mut self) {
        self.worker = None;
    }

    /// Lets the server respond to the enqueued query.
    fn reply(&mut self) {
        let now = self.now();
        let (question, answer) = self.worker.as_mut().expect("nothing was asked");
        let response = match &self.server.refusal {
            Some((reason, message)) => {
                let class = ErrorClass::Transient;
                Err(ReconcileError::new(class, *reason, message.clone()))
            }
            None => Ok(question
                .branches
                .iter()
                .map(|branch| (branch.clone(), self.server.heads.get(branch).cloned()))
                .collect()),
        };
        let since = answer.as_ref().map_or(now, |first| first.since);
        *answer = Some(LsRemoteResponse {
            response,
            since,
            is_fresh: true,
            next_at: now.checked_add(Duration::from_secs(5)).unwrap(),
        });
    }

    fn refuse(&mut self, reason: Reason, message: &str) {
        self.server.refusal = Some((reason, message.to_owned()));
    }

    /// Observes like the operator: a response counts only for the query that it belongs to.
    fn world(&self) -> DocsWorld {
        let asked = question(&self.run);
        let answer = match (&asked, &self.worker) {
            (Some(asked), Some((known, answer))) if known == asked => answer.clone().map(|old| {
                // The query is repeated when the response has expired. The old response stays until
                // there is a new one.
                let later = crate::time::after(self.now(), Duration::from_secs(40));
                let is_due = self.now() >= old.next_at;
                LsRemoteResponse {
                    next_at: if is_due { later } else { old.next_at },
                    is_fresh: !is_due,
                    ..old
                }
            }),
            _ => None,
        };
        DocsWorld {
            run: self.around.world.clone(),
            answer,
            load: Load {
                in_flight: 32,
                in_flight_here: 8,
                waiting_here: 5,
                is_own_in_flight: self.server.is_queried,
            },
            settings: self.settings.clone(),
        }
    }

    fn decide(&self) -> DocsDecision {
        self.decide_with(None)
    }

    fn decide_with(&self, fault: Option<&ReconcileError>) -> DocsDecision {
        decide(&Input {
            object: &self.run,
            world: &self.world(),
            now: self.now(),
            fault,
            refused: false,
            confirmed: true,
            overdue: false,
        })
    }

    /// Observes, decides, acts and records, as the engine does.
    fn pass(&mut self) -> DocsDecision {
        let decision = self.decide();
        self.ask();
        for effect in &decision.effects {
            self.perform(effect);
        }
        self.record(&decision);
        decision
    }

    /// Enqueues the query that the run needs now.
    fn ask(&mut self) {
        let asked = question(&self.run);
        if self.worker.as_ref().map(|(known, _)| known) != asked.as_ref() {
            self.worker = asked.map(|question| (question, None));
        }
    }

    fn settle(&mut self) -> DocsDecision {
        for _ in 0..20 {
            let before = self.run.clone();
            let decision = self.pass();
            if decision.effects.is_empty() && self.run == before {
                return decision;
            }
        }
        panic!("does not come to rest: {:?}", self.status());
    }

    fn perform(&mut self, effect: &Effect) {
        let stored = self.run.status.clone().unwrap_or_default();
        match effect {
            Effect::Ensure(manifest) => {
                assert_eq!(manifest.owner_uid, self.run.metadata.uid.clone().unwrap());
                if let Some(intent) = &manifest.requires_intent {
                    assert!(stored.has_intent(intent), "the engine refuses: {intent}");
                }
                self.around.perform(effect);
            }
            Effect::Delete(target) if target.resource.kind == "DocsRun" => {
                assert_eq!(Some(&target.uid), self.run.metadata.uid.as_ref());
                assert_eq!(target.version, self.run.metadata.resource_version);
                self.is_gone = true;
            }
            Effect::Delete(_) | Effect::Patch { .. } | Effect::Apply(_) => {
                self.around.perform(effect)
            }
        }
    }

    fn record(&mut self, decision: &DocsDecision) {
        let waits = decision
            .defer_status_until
            .is_some_and(|at| self.now() < at);
        if waits && decision.finalizer == FinalizerAction::Keep {
            return;
        }
        let stored = self.run.status.clone().unwrap_or_default();
        let generation = self.run.metadata.generation.unwrap_or(0);
        let status = decision.next_status(&stored, &phase_input(), generation, self.now());
        if self.run.status.is_none() || status != stored {
            let json = serde_json::to_value(&status).unwrap();
            self.run.status = Some(serde_json::from_value(json).unwrap());
            self.records += 1;
        }
        if let FinalizerAction::Remove { annotations } = &decision.finalizer {
            let known = self.run.metadata.annotations.get_or_insert_default();
            known.extend(annotations.clone());
        }
    }

    /// Sets the newest Job's Pod to the container `clone`.
    fn clone_container(&mut self, container: ContainerState) -> &mut PodView {
        let pod = self.around.pod(container);
        (pod.step, pod.main_exit, pod.image_id) = (Step::Before, None, None);
        pod
    }

    fn agent_container(&mut self, container: ContainerState) -> &mut PodView {
        let pod = self.around.pod(container);
        (pod.step, pod.main_exit) = (Step::Main, None);
        pod
    }

    /// Sets the Pod to `publish`. The agent exited with code 0 in the 50th second, with this
    /// message.
    fn publish_container(&mut self, container: ContainerState, message: &str) -> &mut PodView {
        let ContainerState::Ended(agent) = ended(0, 50, message) else {
            panic!("it ended")
        };
        let pod = self.around.pod(container);
        (pod.step, pod.main_exit) = (Step::After, Some(agent));
        pod
    }

    /// Ends `publish` in the 60th second, and its Job.
    fn publish_ends(&mut self, code: i32, report: &str) {
        let message = self.agent_message();
        self.at(61)
            .publish_container(ended(code, 60, report), &message);
        self.job_ends(code);
    }

    fn job_ends(&mut self, code: i32) {
        if code == 0 {
            self.around.complete();
        } else {
            self.around.fail();
        }
    }

    fn agent_message(&self) -> String {
        let agent = self
            .around
            .world
            .children
            .pods
            .last()
            .and_then(|pod| pod.main_exit.as_ref());
        agent.map_or_else(String::new, |exit: &Exit| exit.message.clone())
    }
}

/// Checks phase, state and reason of a decision. On failure, prints its message.
#[track_caller]
fn assert_said(decision: &DocsDecision, expected: (RunPhase, State, Reason)) {
    assert_eq!(said(decision), expected, "{}", decision.verdict.message);
}

#[track_caller]
fn assert_has(decision: &DocsDecision, parts: &[&str]) {
    for part in parts {
        let message = &decision.verdict.message;
        assert!(message.contains(part), "no '{part}' in: {message}");
    }
}

const DOUBT: &str = "whether it pushed is not known: 'git ls-remote https://git.example.com/team/shop.git refs/heads/docs/shop' shows the branch, which was at aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa before";

/// Checks that a second reconciliation writes nothing.
#[track_caller]
fn assert_settled(scene: &Scene) {
    let mut again = scene.clone();
    let decision = again.pass();
    assert!(decision.effects.is_empty(), "{:?}", decision.effects);
    assert_eq!(again.records, scene.records, "{:?}", again.status());
    assert_eq!(again.run.status, scene.run.status);
}
