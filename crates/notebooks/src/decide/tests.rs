//! Cases of decisions about jobs without a build.

use api::{
    Timestamp,
    decide::Effect,
    notebooks::{names, validation_intent},
};
use attempts::{AttemptResult, Work, view::JobView};
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::*;

const COMMIT: &str = "1111111111111111111111111111111111111111";
const TAG: &str = "2222222222222222222222222222222222222222";

fn now() -> Timestamp {
    "2026-01-01T00:02:00Z".parse().unwrap()
}

fn job(reference: &str, status: &Value) -> NotebookValidationJob {
    serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1alpha1",
        "kind": "NotebookValidationJob",
        "metadata": {
            "name": "nb", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "notebook": {
                "git": {
                    "url": "https://git.example.org/team/notebooks", "ref": reference,
                    "credentialsSecretRef": { "name": "git" },
                },
                "path": "reports/a.ipynb",
            },
            "goldenNotebook": { "path": "reports/golden.ipynb" },
            "podConfig": {
                "containerImage": "registry.example/kernel:1",
                "automountToken": true,
                "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "api", "key": "key" } } }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
                "volumeMounts": [{ "name": "data", "mountPath": "/data", "readOnly": true }],
            },
        },
        "status": status,
    }))
    .unwrap()
}

fn world(branch: Option<&str>, tag: Option<&str>) -> NotebookWorld {
    let commits = |commit: Option<&str>| [("main".to_owned(), commit.map(str::to_owned))].into();
    let mut world = NotebookWorld::default();
    world.responses.notebook = Some(Reply {
        response: Ok(Refs {
            branches: commits(branch),
            tags: commits(tag),
        }),
        since: now(),
        next_at: now(),
        is_fresh: true,
    });
    world
}

fn decided(job: &NotebookValidationJob, world: &NotebookWorld) -> NotebookDecision {
    decide(&Input {
        object: job,
        world,
        now: now(),
        fault: None,
        refused: false,
        confirmed: true,
        overdue: false,
    })
}

fn running() -> Value {
    json!({
        "phase": "ValidationRunning", "commit": COMMIT, "goldenCommit": COMMIT,
        "image": "registry.example/kernel:1",
    })
}

/// R60: the commits and the image are recorded first, without any effect. The Job requires that record.
#[test]
fn r60_no_job_exists_before_its_sources_are_recorded() {
    let new = job("main", &json!({}));
    let decision = decided(&new, &world(Some(COMMIT), None));
    assert_eq!(decision.phase, NotebookPhase::ValidationRunning);
    assert!(decision.effects.is_empty());
    let intent = validation_intent(&decision.status).unwrap();
    assert!(intent.contains(COMMIT), "{intent}");
    let recorded = decided(&job("main", &running()), &NotebookWorld::default());
    let [Effect::Ensure(manifest)] = recorded.effects.as_slice() else {
        panic!("{:?}", recorded.effects)
    };
    assert_eq!(manifest.requires_intent, Some(intent));
    assert_eq!(manifest.name, "nb-nb");
}

/// F2, R67: a name that is a branch and a tag is never guessed.
#[test]
fn f02_a_reference_without_one_commit_fails() {
    for (branch, tag, reason) in [
        (Some(COMMIT), Some(TAG), Reason::RefAmbiguous),
        (None, None, Reason::RefNotFound),
    ] {
        let decision = decided(&job("main", &json!({})), &world(branch, tag));
        assert_eq!(decision.phase, NotebookPhase::Failed);
        assert_eq!(decision.verdict.reason, reason);
        assert!(decision.effects.is_empty());
    }
}

#[test]
fn a_commit_id_needs_no_response() {
    let decision = decided(&job(COMMIT, &json!({})), &NotebookWorld::default());
    assert_eq!(decision.status.commit.as_deref(), Some(COMMIT));
    assert_eq!(decision.status.golden_commit.as_deref(), Some(COMMIT));
}

/// R63: the wait for the Git servers has a stored end.
#[test]
fn r63_the_wait_for_the_git_servers_ends() {
    let waits = decided(&job("main", &json!({})), &NotebookWorld::default());
    assert_eq!(waits.phase, NotebookPhase::Initializing);
    assert!(waits.status.progress.deadline_at.is_some());
    assert!(waits.requeue_at.is_some());
    let late = json!({ "phase": "Initializing", "deadlineAt": "2026-01-01T00:01:00Z" });
    let ended = decided(&job("main", &late), &NotebookWorld::default());
    assert_eq!(ended.phase, NotebookPhase::Failed);
    assert_eq!(ended.verdict.reason, Reason::StartTimeout);
}

/// S4.2: nothing in a status of an earlier operator is evidence.
#[test]
fn legacy_phases_are_reset_whatever_else_the_status_contains() {
    for phase in ["Pending", "Running"] {
        for rest in [
            json!({}),
            json!({ "commit": COMMIT, "image": "i", "jobName": "nb-nb", "attempts": 1 }),
        ] {
            let mut status = rest;
            status["phase"] = json!(phase);
            let decision = decided(&job("main", &status), &world(Some(COMMIT), None));
            assert_eq!(decision.phase, NotebookPhase::Initializing);
            assert!(decision.effects.is_empty());
            assert_eq!(decision.status, NotebookValidationJobStatus::default());
        }
    }
}

/// F21: a verdict about the notebook is never repeated.
#[test]
fn f21_only_failures_of_the_environment_are_repeated() {
    let (job, world) = (job("main", &running()), NotebookWorld::default());
    let status = job.status.clone().unwrap();
    let work = Validation {
        job: &job,
        status: &status,
        world: &world,
    };
    for (reason, is_repeated) in [
        (Reason::StartTimeout, true),
        (Reason::RepositoryUnreachable, true),
        (Reason::CellFailed, false),
        (Reason::Mismatch, false),
        (Reason::ExpectationFailed, false),
        (Reason::KernelDied, false),
        (Reason::OOMKilled, false),
        (Reason::CellTimeout, false),
        (Reason::DeadlineExceeded, false),
        (Reason::EvidenceLost, false),
        (Reason::ResultInvalid, false),
    ] {
        let result = AttemptResult::new(reason, "x", api::tasks::Evidence::default());
        assert_eq!(work.may_repeat(&result), is_repeated, "{reason}");
    }
}

/// The kernel mounts neither the inputs nor the Git credentials, and the runner has no token.
#[test]
fn each_container_mounts_only_its_own() {
    let recorded = decided(&job("main", &running()), &NotebookWorld::default());
    let [Effect::Ensure(manifest)] = recorded.effects.as_slice() else {
        panic!("{:?}", recorded.effects)
    };
    let pod = manifest.body.pointer("/spec/template/spec").unwrap();
    let mounts = |container: &Value| -> Vec<String> {
        let all = container["volumeMounts"].as_array().unwrap();
        all.iter()
            .map(|mount| mount["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let fetch = mounts(&pod["initContainers"][0]);
    let (kernel, runner) = (mounts(&pod["containers"][0]), mounts(&pod["containers"][1]));
    let has = |all: &[String], name: &str| all.iter().any(|one| one == name);
    for (name, expected) in [
        ("credentials", (true, false, false)),
        ("inputs", (true, false, true)),
        ("link", (false, true, true)),
        ("token", (false, true, false)),
        ("own-data", (false, true, false)),
        ("masked-0", (false, false, true)),
        ("workspace", (true, true, false)),
    ] {
        let found = (has(&fetch, name), has(&kernel, name), has(&runner, name));
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(pod["automountServiceAccountToken"], false);
    // Each Pod has volumes of its own (R70), and each mount has its volume.
    let volumes: Vec<&str> = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|volume| volume["name"].as_str())
        .collect();
    for mount in fetch.iter().chain(&kernel).chain(&runner) {
        assert!(volumes.contains(&mount.as_str()), "{mount}");
    }
    let body: Job = serde_json::from_value(manifest.body.clone()).unwrap();
    let view = JobView::new(&body, &[api::notebooks::NOTEBOOK_VALIDATION_JOB.resource]);
    assert!(view.terms.is_some());
    assert_eq!(names::job("nb", 2, Some(1)), "nb-nb-a2-d1");
}

/// R66: a user's variable cannot replace those of the runner, which come last.
#[test]
fn r66_the_runner_s_variables_win() {
    let recorded = decided(&job("main", &running()), &NotebookWorld::default());
    let [Effect::Ensure(manifest)] = recorded.effects.as_slice() else {
        panic!("{:?}", recorded.effects)
    };
    let containers = manifest.body.pointer("/spec/template/spec/containers");
    let containers = containers.unwrap();
    let names: Vec<&str> = containers[0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|variable| variable["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "KEY",
            "HOME",
            "IPYTHONDIR",
            "ORCHESTRATOR_LINK",
            "ORCHESTRATOR_DIRECTORY"
        ]
    );
    let settings = containers[1]["env"][0]["value"].as_str().unwrap();
    let settings: Value = serde_json::from_str(settings).unwrap();
    assert_eq!(settings["attempt"], 1);
    assert_eq!(settings["goldenCommit"], COMMIT);
    assert_eq!(settings["comparison"], json!({ "strategy": "normalized" }));
    assert_eq!(settings["checks"]["allowSkipped"], true);
}
