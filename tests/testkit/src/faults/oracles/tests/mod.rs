mod ends;
mod instants;
mod more;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::*;
use crate::{audit::Request, faults::object_history::Change};

const RUN: &str = "uid-of-run";
const CANARY: &str = "hunter2-hunter2";
const PRIVATE: &str = "mine-and-only-mine";

/// Everything of a play; a test changes what it is about.
struct ScenarioRun {
    seen: Vec<Seen>,
    audit: Vec<Entry>,
    quiet: Vec<Entry>,
    effects: Vec<Effect>,
    logs: Vec<String>,
    metrics: String,
    start: Instant,
    denied: Option<(&'static str, &'static str)>,
}

fn entry(verb: &str, resource: &str, name: &str, code: u16) -> Entry {
    Entry {
        request: Request {
            user: "operator".into(),
            verb: verb.into(),
            resource: resource.into(),
            namespace: "n".into(),
        },
        name: name.into(),
        code,
        agent: String::new(),
    }
}

fn condition_of(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "observedGeneration": 1 })
}

impl ScenarioRun {
    fn see(&mut self, resource: &str, name: &str, uid: &str, object: Value) -> &mut Seen {
        self.change(Change::Modified, resource, name, uid, object)
    }

    fn change(
        &mut self,
        change: Change,
        resource: &str,
        name: &str,
        uid: &str,
        object: Value,
    ) -> &mut Seen {
        let version = 10 + self.seen.len() as u64;
        self.seen.push(Seen {
            at: self.start + Duration::from_secs(version),
            resource: resource.into(),
            change,
            name: name.into(),
            uid: uid.into(),
            version,
            object: Arc::new(object),
        });
        self.seen.last_mut().unwrap()
    }

    fn run(&mut self, status: Value) -> &mut Seen {
        self.run_with(json!({ "contextVersion": 1 }), status)
    }

    fn run_with(&mut self, spec: Value, status: Value) -> &mut Seen {
        let object = json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "run", "uid": RUN, "generation": 1 },
            "spec": spec, "status": status,
        });
        self.see("taskruns", "run", RUN, object)
    }

    fn pod(&mut self, state: Value) -> &mut Seen {
        let object = json!({
            "apiVersion": "v1",
            "metadata": {
                "labels": { "orchestrator.io/uid": RUN, "context-version": "1" },
                "ownerReferences": [{ "name": "job" }],
            },
            "status": { "containerStatuses": [{ "name": "agent", "state": state }] },
        });
        self.see("pods", "job-x", "uid-of-pod", object)
    }

    fn done(&mut self, uid: &str) {
        self.effects.push(Effect {
            at: self.start,
            uid: uid.into(),
            what: DONE.into(),
        });
    }

    fn running() -> Value {
        json!({
            "phase": "Running", "observedGeneration": 1, "contextVersion": 1,
            "conditions": [
                condition_of("Succeeded", "Unknown", "Progressing"),
                condition_of("Reconciling", "True", "Progressing"),
            ],
        })
    }

    fn succeeded() -> Value {
        json!({
            "phase": "Succeeded", "observedGeneration": 1, "contextVersion": 1,
            "finishedAt": "2026-11-15T15:05:18Z",
            "conditions": [
                condition_of("Succeeded", "True", "Succeeded"),
                condition_of("Finished", "True", "Succeeded"),
            ],
        })
    }

    fn failed() -> Value {
        json!({
            "phase": "Failed", "observedGeneration": 1, "contextVersion": 1,
            "finishedAt": "2026-11-15T15:05:18Z",
            "conditions": [
                condition_of("Succeeded", "False", "NonZeroExit"),
                condition_of("Finished", "True", "NonZeroExit"),
                condition_of("Stalled", "True", "NonZeroExit"),
            ],
        })
    }

    fn empty() -> Self {
        Self {
            seen: Vec::new(),
            audit: Vec::new(),
            quiet: Vec::new(),
            effects: Vec::new(),
            logs: vec!["all is well".into()],
            metrics: "orchestrator_leader 1".into(),
            start: Instant::now(),
            denied: None,
        }
    }

    /// A run that ended well.
    fn new() -> Self {
        let mut play = Self::empty();
        let agent = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "metadata": { "generation": 1 },
            "status": {
                "phase": "Ready", "observedGeneration": 1,
                "conditions": [condition_of("Ready", "True", "Ready")],
            },
        });
        play.see("agents", "writer", "uid-of-agent", agent);
        let secret = json!({ "apiVersion": "v1", "data": { "key": CANARY } });
        play.see("secrets", "s", "uid-of-secret", secret);
        play.run(json!({ "phase": "Pending", "observedGeneration": -1 }));
        let job = json!({ "apiVersion": "batch/v1", "metadata": {
            "labels": { "orchestrator.io/uid": RUN },
        } });
        play.see("jobs", "job", "uid-of-job", job);
        play.pod(json!({ "running": {} })).change = Change::Added;
        play.run(Self::running());
        play.done(RUN);
        play.pod(json!({ "terminated": { "exitCode": 0 } }));
        play.run(Self::succeeded());
        play.audit = vec![
            entry("create", "configmaps", "files", 201),
            entry("create", "jobs.batch", "job", 201),
            entry("patch", "taskruns.orchestrator.io/status", "run", 200),
            entry("create", "events.events.k8s.io", "e", 201),
            entry("delete", "jobs.batch", "old", 200),
        ];
        play.quiet = vec![
            entry("update", "leases.coordination.k8s.io", "l", 200),
            entry("list", "jobs.batch", "", 200),
            entry(
                "create",
                "selfsubjectaccessreviews.authorization.k8s.io",
                "",
                201,
            ),
        ];
        play
    }

    fn with<T>(&self, look: impl FnOnce(&Evidence<'_>) -> T) -> T {
        let bears_out = |seen: &Seen| match self.denied {
            Some((resource, why)) if seen.resource == resource => Err(why.to_owned()),
            Some(_) | None => Ok(()),
        };
        look(&Evidence {
            home: "home-of-play",
            seen: &self.seen,
            audit: &self.audit,
            quiet: Some(&self.quiet),
            effects: &self.effects,
            logs: &self.logs,
            metrics: &self.metrics,
            canaries: &[CANARY.to_owned()],
            private: &[PRIVATE.to_owned()],
            bears_out: &bears_out,
            silence: Duration::ZERO,
        })
    }

    fn outcome(&self) -> Outcome {
        self.with(Outcome::of)
    }

    fn judged(&self, baseline: &Outcome) -> Vec<Violation> {
        self.with(|evidence| judge(evidence, baseline))
    }

    /// What one oracle says, with the play itself as its baseline: nothing but what is wrong in
    /// itself.
    fn said(&self, oracle: Oracle) -> Vec<String> {
        let violations = self.judged(&self.outcome());
        violations
            .into_iter()
            .filter(|violation| violation.oracle == oracle)
            .map(|violation| violation.words)
            .collect()
    }

    fn edit(&mut self, index: usize, change: impl FnOnce(&mut Value)) {
        let mut object = (*self.seen[index].object).clone();
        change(&mut object);
        self.seen[index].object = Arc::new(object);
    }
}

/// That these are its words, and no more.
#[track_caller]
fn says(words: &[String], wanted: &[&str]) {
    assert_eq!(words.len(), wanted.len(), "{words:#?}");
    for (word, part) in words.iter().zip(wanted) {
        assert!(word.contains(part), "'{part}' is not in '{word}'");
    }
}

#[test]
fn a_play_that_ended_well_is_green() {
    let play = ScenarioRun::new();
    assert_eq!(play.judged(&play.outcome()), []);
    assert_eq!(play.judged(&ScenarioRun::new().outcome()), []);
}

#[test]
fn o0_a_success_needs_a_pod_of_its_own_that_ended_with_0_before_it() {
    let red = |change: &dyn Fn(&mut ScenarioRun), wanted: &str| {
        let mut play = ScenarioRun::new();
        change(&mut play);
        says(&play.said(Oracle::NoFalseGreen), &[wanted]);
    };
    let pod_of = |label: &'static str, value: &'static str| {
        move |play: &mut ScenarioRun| {
            for index in [4, 6] {
                play.edit(index, |pod| pod["metadata"]["labels"][label] = json!(value));
            }
        }
    };
    let no_pod = "no Pod of it and its version 1 had its container 'agent' ended with 0";
    red(&pod_of("orchestrator.io/uid", "another"), no_pod);
    red(&pod_of("context-version", "2"), no_pod);
    let exit = |code: i64| {
        move |play: &mut ScenarioRun| {
            play.edit(6, |pod| {
                pod["status"]["containerStatuses"][0]["state"] =
                    json!({ "terminated": { "exitCode": code } });
            });
        }
    };
    red(&exit(1), no_pod);
    // What counts is when it was written, not when it was seen.
    red(&|play| play.seen[6].version = 99, no_pod);
    let mut late = ScenarioRun::new();
    late.seen.swap(6, 7);
    says(&late.said(Oracle::NoFalseGreen), &[]);
}

#[test]
fn o0_a_success_needs_the_word_of_its_agent_and_of_the_world() {
    let mut silent = ScenarioRun::new();
    silent.effects[0].what = "begun".into();
    says(
        &silent.said(Oracle::NoFalseGreen),
        &["taskruns/run at version 17 says Succeeded=True, but its agent had not told 'done'"],
    );
    let mut late = ScenarioRun::new();
    late.effects[0].at = late.start + Duration::from_secs(60);
    says(&late.said(Oracle::NoFalseGreen), &["had not told"]);
    for (resource, claim) in [("taskruns", "Succeeded=True"), ("agents", "Ready=True")] {
        let mut play = ScenarioRun::new();
        play.denied = Some((resource, "the world knows nothing of it"));
        let said = play.said(Oracle::NoFalseGreen);
        says(&said, &["the world knows nothing of it"]);
        assert!(said[0].contains(claim), "{said:?}");
    }
}

#[test]
fn o0_an_agent_before_others_in_the_row_counts() {
    let mut play = ScenarioRun::new();
    play.edit(6, |pod| {
        pod["status"] = json!({
            "initContainerStatuses": [{ "name": "agent", "state": { "terminated": { "exitCode": 0 } } }],
            "containerStatuses": [{ "name": "publish", "state": { "running": {} } }],
        });
    });
    says(&play.said(Oracle::NoFalseGreen), &[]);
}

#[test]
fn o0_a_restored_run_is_borne_out_by_its_annotation_only_if_it_came_with_it() {
    let restored = |index: usize, version: i64| {
        let mut play = ScenarioRun::empty();
        play.run(json!(null));
        play.run(ScenarioRun::succeeded());
        let outcome = format!("{{\"outcome\":\"Succeeded\",\"version\":{version}}}");
        play.edit(index, |run| {
            run["metadata"]["annotations"] = json!({ "orchestrator.io/outcome": outcome });
        });
        play.said(Oracle::NoFalseGreen)
    };
    says(&restored(0, 1), &[]);
    says(&restored(0, 0), &["no Pod"]);
    says(&restored(1, 1), &["no Pod"]);
}

#[test]
fn the_same_is_said_once_and_not_without_end() {
    let many = (0..50).map(|number| number.to_string());
    let said = few(many.clone().chain(many).collect());
    assert_eq!(said.len(), MOST + 1);
    assert_eq!(said[MOST], "and 30 more");
}
