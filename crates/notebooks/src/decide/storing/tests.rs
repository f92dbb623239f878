//! Cases of the storage of the full result.

use api::{
    decide::Input,
    notebooks::{NotebookPhase, NotebookValidationJob},
};
use attempts::{World, view::ConfigMapView};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde_json::{Value, json};

use super::*;
use crate::{
    full_result::tests::packed,
    world::{NotebookWorld, job_view, pod_view},
};

const COMMIT: &str = "1111111111111111111111111111111111111111";

fn now() -> api::Timestamp {
    "2026-01-01T00:02:00Z".parse().unwrap()
}

fn report(bytes: u32) -> ReportStatus {
    ReportStatus {
        sha256: "aa".to_owned(),
        bytes,
        config_map_name: None,
        truncated: Vec::new(),
    }
}

fn reply(response: Result<LogContent, ReconcileError>) -> Reply<LogContent> {
    Reply {
        response,
        since: now(),
        next_at: now(),
        // The age of a response does not matter: the report has the checksum of its content.
        is_fresh: false,
    }
}

fn full() -> Arc<FullResult> {
    let cell = |index: u32, comparison: &str| json!({ "cell": index, "status": "Succeeded", "durationMs": 5, "match": comparison, "error": "" });
    let plain = json!({
        "v": 1, "results": [cell(0, "Matched"), cell(2, "Mismatched")], "truncated": ["texts"],
        "diffs": [{ "cell": 2, "diffType": "OutputMismatch", "class": "Noise", "rule": "r", "expected": "a", "actual": "b" }],
    });
    Arc::new(FullResult::read(packed(plain.to_string().as_bytes())).unwrap())
}

fn failure(class: ErrorClass) -> ReconcileError {
    ReconcileError::new(class, Reason::ApiUnavailable, "the cause")
}

#[test]
fn each_state_of_the_log_has_one_next_step() {
    let result = |result| Some(reply(Ok(LogContent::Result(result))));
    let away = || Some(reply(Err(failure(ErrorClass::Transient))));
    let progress = Some(reply(Ok(LogContent::Progress(None))));
    let invalid = failure(ErrorClass::Invalid);
    let denied = failure(ErrorClass::Denied);
    let none: Option<&ReconcileError> = None;
    let (skip, stored) = (Step::Skip, Step::Store(full()));
    let missing = |text: &str| Step::Missing(text.to_owned());
    let waits = |text: &str| Step::Wait(text.to_owned());
    let unread = "the log of the runner was not read yet";
    for (name, store, bytes, log, refusal, is_late, expected) in [
        ("off", Store::None, 9, result(Ok(full())), none, false, skip),
        (
            "read",
            Store::Diff,
            9,
            result(Ok(full())),
            none,
            false,
            stored.clone(),
        ),
        (
            "read late",
            Store::Full,
            9,
            result(Ok(full())),
            none,
            true,
            stored,
        ),
        (
            "not asked",
            Store::Diff,
            9,
            None,
            none,
            false,
            waits(unread),
        ),
        (
            "progress",
            Store::Diff,
            9,
            progress,
            none,
            false,
            waits(unread),
        ),
        (
            "away",
            Store::Diff,
            9,
            away(),
            none,
            false,
            waits("the cause"),
        ),
        ("never", Store::Diff, 9, None, none, true, missing(unread)),
        (
            "away late",
            Store::Diff,
            9,
            away(),
            none,
            true,
            missing("the cause"),
        ),
        (
            "checksum",
            Store::Diff,
            9,
            result(Err("cut".to_owned())),
            none,
            false,
            missing("cut"),
        ),
        (
            "taken",
            Store::Diff,
            9,
            result(Ok(full())),
            Some(&invalid),
            false,
            missing("the cause"),
        ),
        (
            "quota",
            Store::Diff,
            9,
            result(Ok(full())),
            Some(&denied),
            false,
            waits("the cause"),
        ),
        (
            "quota late",
            Store::Diff,
            9,
            result(Ok(full())),
            Some(&denied),
            true,
            missing("the cause"),
        ),
    ] {
        let report = report(bytes);
        let found = step(&Inputs {
            store,
            limit: 100,
            report: &report,
            log: log.as_ref(),
            refusal,
            is_late,
        });
        assert_eq!(found, expected, "{name}");
    }
    let large = report(101);
    let found = step(&Inputs {
        store: Store::Diff,
        limit: 100,
        report: &large,
        log: None,
        refusal: None,
        is_late: false,
    });
    assert!(matches!(found, Step::Missing(cause) if cause.contains("101 bytes")));
}

fn job(status: &Value) -> NotebookValidationJob {
    serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "NotebookValidationJob",
        "metadata": { "name": "nb", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": {
            "notebook": { "git": { "url": "https://a.example/a", "ref": "main" }, "path": "a.ipynb" },
            "goldenNotebook": { "path": "b.ipynb" },
            "podConfig": { "containerImage": "i" },
        },
        "status": status,
    }))
    .unwrap()
}

fn running() -> Value {
    json!({
        "phase": "ValidationRunning", "commit": COMMIT, "goldenCommit": COMMIT, "image": "i", "attempts": 1,
        "jobName": "nb-nb", "jobUid": "j", "startedAt": "2026-01-01T00:00:10Z",
    })
}

/// Returns a job whose attempt ended with this report of three cells.
fn ended(outcome: &str, reason: Option<&str>, mismatched: u32) -> NotebookWorld {
    let report = json!({
        "v": 1, "uid": "u", "attempt": 1, "commit": COMMIT, "image": "i", "outcome": outcome, "reason": reason,
        "cell": reason.map(|_| 2), "classes": {}, "message": "a message", "sha256": "aa", "bytes": 9,
        "counts": {
            "total": 3, "succeeded": 3, "failed": 0, "skipped": 0, "notRun": 0, "matched": 3 - mismatched,
            "mismatched": mismatched, "ignored": 0, "compared": 3, "expectations": 0, "expectationsFailed": 0,
        },
    });
    let code = i32::from(reason.is_some());
    let owner = |kind: &str, api: &str, name: &str, uid: &str| json!([{ "apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": true }]);
    let labels =
        json!({ "orchestrator.io/kind": "NotebookValidationJob", "orchestrator.io/uid": "u" });
    let condition = if code == 0 { "Complete" } else { "Failed" };
    let of_job: Job = serde_json::from_value(json!({
        "metadata": {
            "name": "nb-nb", "namespace": "team", "uid": "j", "labels": labels,
            "ownerReferences": owner("NotebookValidationJob", "orchestrator.io/v1alpha1", "nb", "u"),
        },
        "status": { "conditions": [{
            "type": condition, "status": "True", "lastTransitionTime": "2026-01-01T00:01:59Z",
        }] },
    }))
    .unwrap();
    let container = |name: &str, code: i32, message: &str| {
        json!({
            "name": name, "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": { "terminated": {
                "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "message": message,
                "startedAt": "2026-01-01T00:00:10Z", "finishedAt": "2026-01-01T00:01:50Z",
            } },
        })
    };
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
            "phase": if code == 0 { "Succeeded" } else { "Failed" },
            "initContainerStatuses": [container("fetch", 0, "")],
            "containerStatuses": [container("kernel", 0, ""), container("runner", code, &report.to_string())],
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

fn decided(
    job: &NotebookValidationJob,
    world: &NotebookWorld,
    refusal: Option<&ReconcileError>,
) -> NotebookDecision {
    crate::decide(&Input {
        object: job,
        world,
        now: now(),
        fault: refusal,
        refused: refusal.is_some(),
        confirmed: true,
        overdue: false,
    })
}

fn results_condition(decision: &NotebookDecision) -> Option<(Option<bool>, Reason)> {
    let mut all = decision.conditions.iter();
    let found = all.find(|one| one.kind == condition::RESULTS_STORED)?;
    Some((found.value, found.reason))
}

/// F22: the result is stored by the decision that ends the job, so its effect comes before the status.
#[test]
fn f22_a_result_that_was_read_is_stored_with_the_end() {
    let mut world = ended("Failed", Some("Mismatch"), 1);
    world.log = Some(reply(Ok(LogContent::Result(Ok(full())))));
    let decision = decided(&job(&running()), &world, None);
    assert_eq!(decision.phase, NotebookPhase::Failed);
    assert_eq!(decision.verdict.reason, Reason::Mismatch);
    let [Effect::Ensure(manifest)] = decision.effects.as_slice() else {
        panic!("{:?}", decision.effects)
    };
    assert_eq!(
        (manifest.name.as_str(), manifest.optional),
        ("nb-nb-results", true)
    );
    let status = &decision.status;
    let stored = status.report.as_ref().unwrap();
    assert_eq!(stored.config_map_name.as_deref(), Some("nb-nb-results"));
    assert_eq!(stored.truncated, ["texts"]);
    assert_eq!((status.results.len(), status.results_omitted), (2, Some(1)));
    assert_eq!(status.comparison_result.as_ref().unwrap().diffs.len(), 1);
    assert_eq!(
        results_condition(&decision),
        Some((Some(true), Reason::ResultStored))
    );
}

/// The verdict never depends on the log: it is stored before the wait, and it survives the loss of the Pod.
#[test]
fn a_verdict_is_stored_before_the_wait_for_its_result() {
    let waiting = decided(&job(&running()), &ended("Succeeded", None, 0), None);
    assert_eq!(waiting.phase, NotebookPhase::ValidationRunning);
    assert_eq!(waiting.verdict.reason, Reason::ReadingResult);
    assert!(waiting.effects.is_empty());
    let deadline = waiting.status.progress.deadline_at.clone().unwrap();
    assert_eq!(deadline.0, time::after(now(), READ_TIME));
    assert_eq!(waiting.status.finished_at, None);
    let mut stored = serde_json::to_value(&waiting.status).unwrap();
    stored["phase"] = json!("ValidationRunning");

    // Without the Pod and its log, the job waits up to the stored deadline.
    let empty = NotebookWorld::default();
    let again = decided(&job(&stored), &empty, None);
    assert_eq!(again.phase, NotebookPhase::ValidationRunning);
    assert_eq!(again.status.progress.deadline_at, Some(deadline));

    let read = NotebookWorld {
        log: Some(reply(Ok(LogContent::Result(Ok(full()))))),
        ..NotebookWorld::default()
    };
    let end = decided(&job(&stored), &read, None);
    assert_eq!(end.phase, NotebookPhase::Succeeded);
    assert!(end.verdict.message.starts_with("3 cells ran"));
    assert_eq!(end.effects.len(), 1);
    assert!(end.status.finished_at.is_some());

    stored["deadlineAt"] = json!("2026-01-01T00:02:00Z");
    let late = decided(&job(&stored), &empty, None);
    assert_eq!(late.phase, NotebookPhase::Succeeded);
    assert!(late.effects.is_empty());
    assert_eq!(
        results_condition(&late),
        Some((Some(false), Reason::ResultNotStored))
    );
}

#[test]
fn a_rejected_config_map_delays_the_end_and_never_changes_it() {
    let mut world = ended("Succeeded", None, 0);
    world.log = Some(reply(Ok(LogContent::Result(Ok(full())))));
    let denied = decided(&job(&running()), &world, Some(&failure(ErrorClass::Denied)));
    assert_eq!(denied.phase, NotebookPhase::ValidationRunning);
    assert_eq!(denied.requeue_at, Some(time::after(now(), RETRY)));
    let taken = decided(
        &job(&running()),
        &world,
        Some(&failure(ErrorClass::Invalid)),
    );
    assert_eq!(taken.phase, NotebookPhase::Succeeded);
    assert!(taken.effects.is_empty());
    assert_eq!(
        results_condition(&taken),
        Some((Some(false), Reason::ResultNotStored))
    );
}

/// The cleanup of Jobs keeps the result, which has its own time.
#[test]
fn a_result_expires_after_its_own_time() {
    let mut status = running();
    status["phase"] = json!("Failed");
    status["conditions"] = json!([{
        "type": "Succeeded", "status": "False", "reason": "OOMKilled", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    let map = ConfigMapView {
        name: "nb-nb-results".to_owned(),
        uid: "map".to_owned(),
        owner_uid: Some("u".to_owned()),
        deleting: false,
        proven: false,
    };
    let other = ConfigMapView {
        owner_uid: Some("v".to_owned()),
        ..map.clone()
    };
    let children = World {
        config_maps: vec![map, other],
        ..World::default()
    };
    let world = NotebookWorld::default().with_children(children, "nb", "u");
    assert_eq!(world.stored_results.len(), 1);
    let week = Duration::from_secs(168 * 3600);
    for (finished, is_due) in [
        ("2025-12-25T00:02:00Z", true),
        ("2025-12-25T00:02:01Z", false),
    ] {
        status["finishedAt"] = json!(finished);
        let decision = decided(&job(&status), &world, None);
        assert_eq!(decision.phase, NotebookPhase::Failed);
        let mut effects = decision.effects.iter();
        let is_deleted =
            effects.any(|effect| matches!(effect, Effect::Delete(map) if map.uid == "map"));
        assert_eq!(is_deleted, is_due, "{finished}");
        if !is_due {
            let at = time::after(finished.parse().unwrap(), week);
            assert_eq!(decision.requeue_at, Some(at));
        }
        let mut kept = job(&status);
        kept.metadata.annotations =
            Some([("orchestrator.io/preserve".to_owned(), "true".to_owned())].into());
        assert!(decided(&kept, &world, None).effects.is_empty());
    }
}
