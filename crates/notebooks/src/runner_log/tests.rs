//! Cases of the part of the log that a job needs, and of its content.

use api::notebooks::NotebookValidationJobStatus;
use attempts::World;
use base64::{Engine, engine::general_purpose::STANDARD};
use git::edits::sha256;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde_json::{Value, json};

use super::*;
use crate::{
    full_result::tests::packed,
    world::{job_view, pod_view},
};

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

fn report() -> Value {
    json!({
        "v": 1, "uid": "u", "attempt": 1, "commit": "c", "image": "i", "outcome": "Succeeded",
        "sha256": "aa", "bytes": 100,
    })
}

fn job(store: &str, status: &Value) -> NotebookValidationJob {
    serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "NotebookValidationJob",
        "metadata": { "name": "nb", "namespace": "team", "uid": "u" },
        "spec": {
            "notebook": { "git": { "url": "https://a.example/a", "ref": "main" }, "path": "a.ipynb" },
            "podConfig": { "containerImage": "i" },
            "results": { "store": store },
        },
        "status": status,
    }))
    .unwrap()
}

fn running() -> Value {
    json!({
        "phase": "ValidationRunning", "commit": "c", "image": "i", "attempts": 1, "jobName": "nb-nb",
        "jobUid": "j",
    })
}

/// Returns the children of a job: its kernel runs since this second, or its runner ended with this report.
fn world(since: u32, ended: Option<&Value>) -> NotebookWorld {
    let owner = |kind: &str, api: &str, name: &str, uid: &str| json!([{ "apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": true }]);
    let labels =
        json!({ "orchestrator.io/kind": "NotebookValidationJob", "orchestrator.io/uid": "u" });
    let of_job: Job = serde_json::from_value(json!({
        "metadata": {
            "name": "nb-nb", "namespace": "team", "uid": "j", "labels": labels,
            "ownerReferences": owner("NotebookValidationJob", "orchestrator.io/v1alpha1", "nb", "u"),
        },
    }))
    .unwrap();
    let started = format!("2026-01-01T00:00:{since:02}Z");
    let runs = json!({ "running": { "startedAt": started } });
    let runner = ended.map_or_else(
        || runs.clone(),
        |report| {
            json!({ "terminated": {
                "exitCode": 0, "reason": "Completed", "message": report.to_string(),
                "startedAt": started, "finishedAt": "2026-01-01T00:00:59Z",
            } })
        },
    );
    let of_pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "team", "uid": "pod", "labels": labels,
            "ownerReferences": owner("Job", "batch/v1", "nb-nb", "j"),
        },
        "spec": {
            "nodeName": "node",
            "initContainers": [{ "name": "fetch" }],
            "containers": [{ "name": "kernel" }, { "name": "runner" }],
        },
        "status": {
            "phase": "Running",
            "initContainerStatuses": [{ "name": "fetch", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } }],
            "containerStatuses": [
                { "name": "kernel", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": runs },
                { "name": "runner", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": runner },
            ],
        },
    }))
    .unwrap();
    let children = World {
        jobs: vec![job_view(&of_job)],
        pods: vec![pod_view(&of_pod)],
        ..World::default()
    };
    NotebookWorld::default().with_children(children, "nb", "u")
}

fn asked(job: &NotebookValidationJob, world: &NotebookWorld) -> Option<LogPart> {
    question(job, world, now()).map(|question| question.part)
}

#[test]
fn a_job_needs_the_part_of_the_log_that_its_state_requires() {
    let result = LogPart::Result(ReportStatus {
        sha256: "aa".to_owned(),
        bytes: 100,
        config_map_name: None,
        truncated: Vec::new(),
    });
    let mut large = report();
    large["bytes"] = json!(64 * 1024 + 1);
    let mut other = report();
    other["uid"] = json!("v");
    let mut incomplete = report();
    incomplete["outcome"] = json!("Incomplete");
    for (name, store, world, expected) in [
        ("young", "Diff", world(51, None), None),
        ("old", "Diff", world(50, None), Some(LogPart::Progress)),
        (
            "ended",
            "Diff",
            world(0, Some(&report())),
            Some(result.clone()),
        ),
        ("not stored", "None", world(0, Some(&report())), None),
        ("too large", "Full", world(0, Some(&large)), None),
        ("of another job", "Full", world(0, Some(&other)), None),
        ("incomplete", "Full", world(0, Some(&incomplete)), None),
        ("no Pod", "Diff", NotebookWorld::default(), None),
    ] {
        assert_eq!(asked(&job(store, &running()), &world), expected, "{name}");
    }
    // A stored verdict has the name of its Pod, also if no cache has the Pod.
    let mut stored = running();
    stored["report"] = json!({ "sha256": "aa", "bytes": 100 });
    stored["result"] = json!({ "podName": "p", "podUID": "pod", "node": "node" });
    let found = question(&job("Diff", &stored), &NotebookWorld::default(), now()).unwrap();
    assert_eq!((found.uid.as_str(), found.part), ("pod", result));
    for phase in ["Succeeded", "Failed", "Running"] {
        let mut over = stored.clone();
        over["phase"] = json!(phase);
        assert_eq!(asked(&job("Diff", &over), &world(0, Some(&report()))), None);
    }
    let new = job("Diff", &json!(NotebookValidationJobStatus::default()));
    assert_eq!(asked(&new, &world(0, None)), None);
}

#[test]
fn the_last_line_with_the_progress_counts() {
    let line = |at: &str, done: u32, current: u32| {
        format!(
            "{at} {PROGRESS}{{\"total\": 9, \"done\": {done}, \"skipped\": 1, \"current\": {current}}}"
        )
    };
    let (first, second) = (
        line("2026-01-01T00:00:10.5Z", 1, 2),
        line("2026-01-01T00:00:30.123456789Z", 4, 7),
    );
    let log = format!("{first}\n{second}\n2026-01-01T00:00:31Z a warning\n");
    let cells = CellProgress::read(&log).unwrap().cells();
    assert_eq!((cells.total, cells.done, cells.skipped), (9, 3, 1));
    assert_eq!(cells.current, Some(7));
    let since = cells.current_since.unwrap().0;
    assert_eq!(since.to_string(), "2026-01-01T00:00:30Z");
    for log in ["", "text", "2026-01-01T00:00:31Z ORCHESTRATOR-PROGRESS {}"] {
        assert_eq!(CellProgress::read(log), None, "{log}");
    }
    let without_time = line("later", 1, 2);
    let cells = CellProgress::read(&without_time).unwrap().cells();
    assert_eq!(cells.current_since, None);
}

#[test]
fn a_result_is_read_from_the_log() {
    let plain = json!({ "v": 1, "results": [], "diffs": [], "truncated": [] });
    let content = packed(plain.to_string().as_bytes());
    let bytes = u32::try_from(content.len()).unwrap();
    let sum = sha256(&content);
    let log = format!(
        "ORCHESTRATOR-RESULT 1 gzip {bytes} {sum}\n{}\nEND\n",
        STANDARD.encode(&content)
    );
    let part = |sha256: &str| {
        LogPart::Result(ReportStatus {
            sha256: sha256.to_owned(),
            bytes,
            config_map_name: None,
            truncated: Vec::new(),
        })
    };
    let LogContent::Result(Ok(full)) = part(&sum).read(&log) else {
        panic!("not read")
    };
    assert_eq!(full.content, content);
    let LogContent::Result(Err(problem)) = part("bb").read(&log) else {
        panic!("read")
    };
    assert!(problem.contains("checksum"), "{problem}");
}
