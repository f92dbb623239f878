//! False successes that the operator itself must exclude. The names have the numbers of the specification.

use api::Reason;
use git::fetch::{FetchReason, NotebookReason};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::world::pod_view;

const IDENTITY: Identity<'static> = Identity {
    uid: "u",
    attempt: 2,
    commit: "c",
    image: "i",
};

fn report_of(outcome: &str, reason: Option<&str>, cell: Option<u32>) -> Value {
    json!({
        "v": 1, "uid": "u", "attempt": 2, "commit": "c", "image": "i", "outcome": outcome,
        "reason": reason, "cell": cell, "classes": {}, "message": "a message",
        "counts": {
            "total": 2, "succeeded": 2, "failed": 0, "skipped": 0, "notRun": 0, "matched": 2,
            "mismatched": 0, "ignored": 0, "compared": 2, "expectations": 0, "expectationsFailed": 0,
        },
    })
}

fn success() -> Value {
    report_of("Succeeded", None, None)
}

fn container(name: &str, code: i32, reason: &str, message: &str) -> Value {
    json!({
        "name": name, "image": "i", "imageID": "i@sha256:0", "ready": false, "restartCount": 0,
        "state": { "terminated": {
            "exitCode": code, "reason": reason, "message": message,
            "startedAt": "2026-01-01T00:00:10Z", "finishedAt": "2026-01-01T00:01:00Z",
        } },
    })
}

fn completed(name: &str, message: &str) -> Value {
    container(name, 0, "Completed", message)
}

fn pod(phase: &str, kernel: &Value, runner: &Value) -> Value {
    json!({
        "metadata": { "name": "p", "namespace": "team", "uid": "pod" },
        "spec": {
            "initContainers": [{ "name": "fetch" }],
            "containers": [{ "name": "kernel" }, { "name": "runner" }],
        },
        "status": {
            "phase": phase,
            "initContainerStatuses": [completed("fetch", "")],
            "containerStatuses": [kernel, runner],
        },
    })
}

fn result(pod: &Value, failure: Option<&str>, has_golden: bool) -> AttemptResult {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    let view = pod_view(&pod);
    let exit = view.container.exit().unwrap().clone();
    evaluate(&Attempt {
        pod: &view,
        exit: &exit,
        failure,
        identity: IDENTITY,
        has_golden,
        memory: Some("2Gi"),
    })
}

fn plain(report: &Value) -> Value {
    let runner = completed("runner", &report.to_string());
    pod("Succeeded", &completed("kernel", ""), &runner)
}

#[test]
fn a_complete_job_with_a_valid_report_succeeds() {
    let found = result(&plain(&success()), None, true);
    assert_eq!(found.reason, Reason::Succeeded, "{}", found.message);
    assert!(
        found
            .message
            .starts_with("2 cells ran, 0 skipped, 2 outputs compared"),
        "{}",
        found.message
    );
}

/// F12, F15, F16, F17: each part of the report that contradicts a success prevents it.
#[test]
fn f12_a_report_that_contradicts_a_success_is_invalid() {
    for (path, value) in [
        ("/uid", json!("other")),
        ("/attempt", json!(1)),
        ("/commit", json!("old")),
        ("/image", json!("base")),
        ("/counts/compared", json!(0)),
        ("/counts/mismatched", json!(1)),
        ("/counts/notRun", json!(1)),
        ("/counts", Value::Null),
        ("/outcome", json!("Failed")),
    ] {
        let mut report = success();
        *report.pointer_mut(path).unwrap() = value;
        let found = result(&plain(&report), None, true);
        assert_eq!(found.reason, Reason::ResultInvalid, "{path}");
    }
}

/// R64: no report, no success.
#[test]
fn r64_a_run_without_a_readable_report_fails() {
    for (message, reason) in [
        (String::new(), Reason::ResultMissing),
        (
            "{\"outcome\":\"Succeeded\"}".to_owned(),
            Reason::ResultInvalid,
        ),
        ("all cells passed".to_owned(), Reason::ResultInvalid),
        (
            format!("{}{}", success(), " ".repeat(2000)),
            Reason::ResultTooLarge,
        ),
        (
            report_of("Incomplete", None, Some(1)).to_string(),
            Reason::ResultMissing,
        ),
    ] {
        let runner = completed("runner", &message);
        let pod = pod("Succeeded", &completed("kernel", ""), &runner);
        assert_eq!(result(&pod, None, true).reason, reason, "{message}");
    }
}

/// The report of `fetch` names the cause. Without one, no cause is guessed.
#[test]
fn a_failed_fetch_keeps_its_reason() {
    let waiting = |name: &str| {
        json!({
            "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "PodInitializing" } },
        })
    };
    let golden = FetchReason::Notebook(NotebookReason::GoldenNotFound);
    let server = FetchReason::Git(git::Reason::RepositoryUnreachable);
    for (message, reason) in [
        (
            FetchReport::failed(golden, "no file").write(),
            Reason::GoldenNotFound,
        ),
        (
            FetchReport::failed(server, "refused").write(),
            Reason::RepositoryUnreachable,
        ),
        ("no report".to_owned(), Reason::CloneFailed),
        (String::new(), Reason::CloneFailed),
    ] {
        let mut pod = pod("Failed", &waiting("kernel"), &waiting("runner"));
        let fetch = container("fetch", 1, "Error", &message);
        pod["status"]["initContainerStatuses"] = json!([fetch]);
        let found = result(&pod, Some("failed"), true);
        assert_eq!(found.reason, reason, "{message}: {}", found.message);
    }
}

/// Exit code and report must agree.
#[test]
fn a_report_that_contradicts_the_exit_code_is_invalid() {
    let runner = container("runner", 1, "Error", &success().to_string());
    let pod = pod("Failed", &completed("kernel", ""), &runner);
    let found = result(&pod, Some("BackoffLimitExceeded"), true);
    assert_eq!(found.reason, Reason::ResultInvalid, "{}", found.message);
}

/// F13: a kernel that ended by itself, and a Job that failed, are no success, regardless of the report.
#[test]
fn f13_a_kernel_that_ended_by_itself_is_no_success() {
    let runner = completed("runner", &success().to_string());
    for (kernel, reason) in [
        (container("kernel", 1, "Error", ""), Reason::KernelDied),
        (container("kernel", 137, "OOMKilled", ""), Reason::OOMKilled),
        (container("kernel", 139, "Error", ""), Reason::KernelDied),
        (completed("kernel", ""), Reason::JobFailed),
    ] {
        let found = result(&pod("Failed", &kernel, &runner), Some("failed"), true);
        assert_eq!(found.reason, reason, "{}", found.message);
    }
}

/// F8, F13: a Pod that was asked to stop has no result.
#[test]
fn a_pod_that_was_asked_to_stop_has_no_result() {
    for (end, grace, reason) in [
        ("2026-01-01T00:01:00Z", 30, Reason::Disrupted),
        ("2026-01-01T00:01:30Z", 30, Reason::Disrupted),
        ("2026-01-01T00:02:30Z", 0, Reason::Disrupted),
        ("2026-01-01T00:02:30Z", 30, Reason::Succeeded),
    ] {
        let mut pod = plain(&success());
        pod["metadata"]["deletionTimestamp"] = json!(end);
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        assert_eq!(result(&pod, None, true).reason, reason, "{end} {grace}");
    }
}

/// An OOM names its cell, also if the runner does not know the cause.
#[test]
fn an_oom_names_the_cell() {
    let report = report_of("Failed", Some("KernelDied"), Some(12));
    let runner = container("runner", 1, "Error", &report.to_string());
    let killed = container("kernel", 137, "OOMKilled", "");
    let found = result(&pod("Failed", &killed, &runner), Some("failed"), false);
    assert_eq!(found.reason, Reason::OOMKilled);
    assert!(found.message.contains("cell 12"), "{}", found.message);
    assert!(found.message.contains("2Gi"), "{}", found.message);
    // The supervisor counted the kill, and the kubelet did not report it.
    let report = report_of("Failed", Some("OOMKilled"), Some(3));
    let runner = container("runner", 1, "Error", &report.to_string());
    let found = result(
        &pod("Failed", &completed("kernel", ""), &runner),
        Some("failed"),
        false,
    );
    assert_eq!(found.reason, Reason::OOMKilled);
    assert!(found.message.contains("cell 3"), "{}", found.message);
}

/// F23: the class of a mismatch never changes the verdict.
#[test]
fn f23_a_class_does_not_excuse_a_mismatch() {
    for class in ["Noise", "VersionDrift", "Regression", "Unknown"] {
        let mut report = report_of("Failed", Some("Mismatch"), Some(1));
        report["classes"] = json!({ class: 1 });
        let runner = container("runner", 1, "Error", &report.to_string());
        let found = result(
            &pod("Failed", &completed("kernel", ""), &runner),
            Some("failed"),
            true,
        );
        assert_eq!(found.reason, Reason::Mismatch, "{class}");
    }
}

#[test]
fn a_reason_that_is_not_known_is_no_verdict() {
    for reason in ["Succeeded", "Whatever"] {
        let report = report_of("Failed", Some(reason), None);
        let runner = container("runner", 1, "Error", &report.to_string());
        let found = result(
            &pod("Failed", &completed("kernel", ""), &runner),
            Some("failed"),
            true,
        );
        assert_eq!(found.reason, Reason::ResultInvalid, "{reason}");
    }
}

/// The kernel often ends first. Its end is no result before the report.
#[test]
fn a_kernel_that_ends_before_the_runner_still_runs() {
    let runner = json!({
        "name": "runner", "image": "r", "imageID": "", "ready": true, "restartCount": 0,
        "state": { "running": { "startedAt": "2026-01-01T00:00:11Z" } },
    });
    let pod = pod("Running", &completed("kernel", ""), &runner);
    let view = pod_view(&serde_json::from_value(pod).unwrap());
    assert!(view.container.running_since().is_some());
    assert!(view.beside.unwrap().exit().is_none());
}

/// Users must not search the cell in the status.
#[test]
fn the_message_of_a_failure_names_its_cell() {
    for (cell, message, expected) in [
        (None, "no kernel", "no kernel"),
        (Some(2), "did not end", "cell 2: did not end"),
        (Some(2), "cell 2: KeyError", "cell 2: KeyError"),
        (Some(2), "cell 2 is skipped", "cell 2 is skipped"),
        (Some(2), "cell 21: KeyError", "cell 2: cell 21: KeyError"),
    ] {
        assert_eq!(with_cell(cell, message.to_owned()), expected);
    }
}
