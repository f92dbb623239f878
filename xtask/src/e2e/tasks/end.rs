//! How runs end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use testkit::suite::Env;

use super::kit::{Bench, Expect, phase_of};

pub(super) async fn success(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let script = r#"cat "$ORCHESTRATOR_CONTEXT_DIR/task.md" && echo '{"answer": "42", "files": 1}' > /dev/termination-log"#;
    let more = json!({ "results": [{ "name": "answer", "required": true }] });
    bench.agent("good", script, more).await?;
    bench.submit("good", json!({})).await?;
    let expect = Expect {
        says: &["exit code 0"],
        ..Expect::default()
    };
    let seen = bench.ended("good", &expect).await?;
    let result = seen
        .status
        .clone()
        .and_then(|status| status.result)
        .context("no result")?;
    ensure!(
        result.exit_code == Some(0) && result.results["answer"] == "42",
        "{result:?}"
    );
    ensure!(result.results["files"] == "1", "{result:?}");
    ensure!(
        result.node.as_deref() == Some("node-0") && result.image_id.is_some(),
        "{result:?}"
    );
    ensure!(result.pod_name.is_some() && result.pod_uid.is_some() && result.started_at.is_some());
    let text = bench.operator.metrics().await?;
    for series in [
        "orchestrator_phase_duration_seconds_count",
        "orchestrator_reconcile_duration_seconds_count",
        "orchestrator_api_requests_total",
        "orchestrator_leader 1",
        "orchestrator_runs_active",
        "orchestrator_queue_depth",
    ] {
        ensure!(text.contains(series), "{series} is not on the page");
    }
    // S0.8: each step of the run is in the log, with its object.
    let object = format!(r#""object":"{}/good""#, bench.env.namespace);
    let log = bench.operator.log_text()?;
    for phase in ["Pending", "Running", "Succeeded"] {
        let phase = format!(r#""phase":"{phase}""#);
        let is_told = |line: &str| line.contains(&object) && line.contains(&phase);
        ensure!(log.lines().any(is_told), "{phase} is not in the log");
    }
    bench.deletes(&seen).await?;
    bench.done().await?;
    Ok("42, with exit code, image, node and Pod".to_owned())
}

pub(super) async fn contract(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    // Each line is one promise of the contract; the first that does not hold is the message.
    let script = r#"
fail() { echo "broken: $1" > /dev/termination-log; exit 9; }
[ "$(id -u)" = 65532 ] || fail user
[ "$ORCHESTRATOR_RUN" = contract ] || fail run
[ -n "$ORCHESTRATOR_NAMESPACE" ] && [ -n "$ORCHESTRATOR_UID" ] || fail identity
[ "$ORCHESTRATOR_TASK_ID" = 7 ] && [ "$ORCHESTRATOR_SERVICE" = contract ] || fail task
[ "$ORCHESTRATOR_CONTEXT_VERSION" = 1 ] && [ "$ORCHESTRATOR_ATTEMPT" = 1 ] || fail version
[ "$(cat "$ORCHESTRATOR_CONTEXT_DIR/task.md")" = "the task" ] || fail file
[ "$(cat "$ORCHESTRATOR_CONTEXT_DIR/rules.md")" = "the rules" ] || fail instructions
touch "$ORCHESTRATOR_CONTEXT_DIR/x" 2>/dev/null && fail 'the context is writable'
[ "$PWD" = "$ORCHESTRATOR_WORKSPACE" ] || fail folder
touch here "$HOME/x" /tmp/x || fail writable
[ -e /var/run/secrets/kubernetes.io ] && fail token
[ "$COLOUR" = blue ] || fail env
echo '{"kept": "yes"}' > /dev/termination-log
"#;
    let more = json!({
        "instructions": [
            { "filename": "rules.md", "content": "the rules" },
            { "filename": "task.md", "content": "the agent's own, which the run's replaces" },
        ],
        "env": [{ "name": "COLOUR", "value": "blue" }],
        "results": [{ "name": "kept", "required": true }],
    });
    bench.agent("contract", script, more).await?;
    bench.submit("contract", json!({})).await?;
    let said = bench.ends("contract", Expect::default()).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn exit_3(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench
        .agent(
            "three",
            "echo 'the tests are red' > /dev/termination-log; exit 3",
            json!({}),
        )
        .await?;
    bench.submit("three", json!({})).await?;
    let expect = Expect {
        phase: "Failed",
        reason: "NonZeroExit",
        says: &["exit code 3", "the tests are red"],
        events: &["Pending", "Running", "NonZeroExit"],
        ..Expect::default()
    };
    let said = bench.ends("three", expect).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn out_of_memory(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench
        .agent(
            "hungry",
            "sleep 1; head -c 500m /dev/zero | tail",
            json!({}),
        )
        .await?;
    bench.submit("hungry", json!({})).await?;
    let expect = Expect {
        phase: "Failed",
        reason: "StepOOM",
        says: &["64Mi"],
        events: &["Pending", "Running", "StepOOM"],
        ..Expect::default()
    };
    let said = bench.ends("hungry", expect).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn deadline(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench
        .agent(
            "slow",
            "trap 'exit 0' TERM; while true; do sleep 1; done",
            json!({}),
        )
        .await?;
    bench.submit("slow", json!({ "timeout": "3s" })).await?;
    let running = bench
        .until("slow", Duration::from_secs(30), "running", |status| {
            phase_of(status) == "Running"
        })
        .await?;
    ensure!(
        running
            .status
            .is_some_and(|status| status.deadline_at.is_some()),
        "the deadline is stored"
    );
    let expect = Expect {
        phase: "Failed",
        reason: "DeadlineExceeded",
        says: &["3s"],
        events: &["Pending", "Running", "DeadlineExceeded"],
        // It had to be stopped, so its Job is gone; that it exited 0 when told to is no success.
        jobs: 0,
        ..Expect::default()
    };
    let said = bench.ends("slow", expect).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn needs_root(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let more = json!({ "image": "testbed.local/needs-root:1", "command": [] });
    bench.agent("root", "", more).await?;
    bench.submit("root", json!({})).await?;
    let expect = Expect {
        phase: "Failed",
        reason: "ImageNeedsRoot",
        says: &["65532"],
        events: &["Pending", "ImageNeedsRoot"],
        ..Expect::default()
    };
    let said = bench.ends("root", expect).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn result_missing(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let more = json!({ "results": [{ "name": "report", "required": true }] });
    bench
        .agent(
            "forgetful",
            "sleep 1; echo '{\"else\": \"1\"}' > /dev/termination-log",
            more,
        )
        .await?;
    bench.submit("forgetful", json!({})).await?;
    let expect = Expect {
        phase: "Failed",
        reason: "ResultMissing",
        says: &["report"],
        events: &["Pending", "Running", "ResultMissing"],
        ..Expect::default()
    };
    let said = bench.ends("forgetful", expect).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn retry(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let script = "sleep 1; [ \"$ORCHESTRATOR_ATTEMPT\" = 3 ] || exit 4";
    bench.agent("third", script, json!({})).await?;
    let retry =
        json!({ "retry": { "maxAttempts": 3, "backoff": { "initial": "1s", "max": "2s" } } });
    bench.submit("third", retry).await?;
    let waiting = bench
        .until(
            "third",
            Duration::from_secs(40),
            "the second attempt",
            |status| status.attempts == 2,
        )
        .await?;
    ensure!(waiting.status.is_some());
    let expect = Expect {
        attempts: 3,
        jobs: 3,
        events: &[
            "Pending",
            "Running",
            "NonZeroExit",
            "Pending",
            "Running",
            "NonZeroExit",
            "Pending",
            "Running",
            "Succeeded",
        ],
        ..Expect::default()
    };
    let seen = bench.ended("third", &expect).await?;
    let names: Vec<String> = seen
        .status
        .iter()
        .flat_map(|status| status.job_name.clone())
        .collect();
    ensure!(names == ["third-7-v1-a3"], "{names:?}");
    bench.deletes(&seen).await?;
    bench.done().await?;
    Ok("the third attempt succeeded, three Jobs".to_owned())
}

pub(super) async fn new_version(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let script = "[ \"$ORCHESTRATOR_CONTEXT_VERSION\" = 2 ] && exit 0; exec sleep 600";
    bench.agent("again", script, json!({})).await?;
    bench.submit("again", json!({})).await?;
    bench
        .until("again", Duration::from_secs(30), "running", |status| {
            phase_of(status) == "Running"
        })
        .await?;
    let more = json!({ "spec": {
        "contextVersion": 2,
        "markdownFiles": [
            { "filename": "task.md", "content": "the task\n" },
            { "filename": "more.md", "content": "and this\n" },
        ],
    }});
    bench
        .runs()
        .patch("again", &PatchParams::default(), &Patch::Merge(more))
        .await?;
    let seen = bench
        .until("again", Duration::from_secs(90), "version 2", |status| {
            status.context_version == Some(2) && phase_of(status) == "Succeeded"
        })
        .await?;
    let status = seen.status.clone().unwrap_or_default();
    ensure!(
        status.job_name.as_deref() == Some("again-7-v2"),
        "{:?}",
        status.job_name
    );
    let before: Vec<i64> = status
        .history
        .iter()
        .map(|version| version.context_version)
        .collect();
    ensure!(before == [1], "{before:?}");
    let jobs: kube::Api<k8s_openapi::api::batch::v1::Job> = bench.env.api();
    let left = jobs
        .list(&super::kit::children(&seen.uid().unwrap_or_default()))
        .await?;
    ensure!(left.items.len() == 1, "S3.3: the old version's Job is gone");
    bench.deletes(&seen).await?;
    bench.done().await?;
    Ok("version 1 was stopped and is in the history, version 2 succeeded".to_owned())
}
