//! How runs end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::names;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use testkit::cluster::apply;

use super::{
    super::{children::until_left, reading::logs_creation},
    fixture::{BUSYBOX, Bench, COLLECTED, Expect, brief, phase_of},
};

pub(super) async fn success(bench: &Bench) -> Result<String> {
    let script = r#"cat "$ORCHESTRATOR_CONTEXT_DIR/task.md" && echo '{"answer": "42", "files": 1}' > /dev/termination-log; sleep 1"#;
    let more = json!({ "results": [{ "name": "answer", "required": true }] });
    bench.agent("good", script, more).await?;
    bench.submit("good", json!({})).await?;
    let expect = Expect::default().saying(&["exited with code 0"]);
    let seen = bench.ended("good", &expect).await?;
    let result = seen
        .status
        .clone()
        .and_then(|status| status.attempt.result)
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
    for phase in ["Running", "Succeeded"] {
        let phase = format!(r#""phase":"{phase}""#);
        let is_told = |line: &str| line.contains(&object) && line.contains(&phase);
        ensure!(log.lines().any(is_told), "{phase} is not in the log");
    }
    let place = &bench.env.namespace;
    for (kind, child) in [("ConfigMap", "good-7-v1-files"), ("Job", "good-7-v1")] {
        let (run, child) = (format!("{place}/good"), format!("{place}/{child}"));
        logs_creation(&log, &run, kind, &child)?;
    }
    bench.deletes(&seen).await?;
    Ok("42, with exit code, image, node and Pod".to_owned())
}

pub(super) async fn contract(bench: &Bench) -> Result<String> {
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
[ "$COLOR" = blue ] || fail env
echo '{"kept": "yes"}' > /dev/termination-log
sleep 3
"#;
    let more = json!({
        "instructions": [
            { "filename": "rules.md", "content": "the rules" },
            { "filename": "task.md", "content": "the agent's own, which the run's replaces" },
        ],
        "env": [{ "name": "COLOR", "value": "blue" }],
        "results": [{ "name": "kept", "required": true }],
    });
    bench
        .plays("contract", script, more, Expect::default())
        .await
}

/// The agents of `examples/`, as they are: only the image and the program of the second one are
/// not to be had here.
pub(super) async fn examples(bench: &Bench) -> Result<String> {
    let cluster = bench.env.testbed("an image by another name")?;
    cluster
        .tag_image(BUSYBOX, "docker.io/library/busybox:1.35")
        .await?;
    let key = json!({
        "metadata": { "name": "language-model" }, "stringData": { "api-key": "none" },
    });
    bench.env.create::<Secret>(key).await?;
    let folder = testkit::layout::repository().join("examples/agents");
    let read = |file: &str| std::fs::read_to_string(folder.join(file));
    let shell = read("shell.yaml")?;
    let model = read("language-model.yaml")?
        .replace("registry.example/model-cli:1", BUSYBOX)
        .replace("value: model\n", "value: cat\n")
        .replace("value: --model small\n", "value: \"-\"\n");
    let namespace = bench.env.namespace.clone();
    let mut said = Vec::new();
    for (name, text) in [("shell", shell), ("language-model", model)] {
        apply(&bench.env.client, &namespace, &text).await?;
        let expect = Expect {
            events: &["Succeeded"],
            maybe: &["Pending", "Running"],
            ..Expect::default()
        };
        let seen = bench.ended(name, &expect).await?;
        let result = seen.status.clone().and_then(|status| status.attempt.result);
        said.push(format!("{:?}", result.context("no result")?.results));
        bench.deletes(&seen).await?;
    }
    Ok(said.join("; "))
}

pub(super) async fn exit_3(bench: &Bench) -> Result<String> {
    let script = "sleep 3; echo 'the tests are red' > /dev/termination-log; exit 3";
    let expect =
        Expect::failure("NonZeroExit").saying(&["exited with code 3", "the tests are red"]);
    bench.plays("three", script, json!({}), expect).await
}

pub(super) async fn out_of_memory(bench: &Bench) -> Result<String> {
    // The kernel's word about the kill is to come before the container's end.
    let script = "sleep 3; head -c 500m /dev/zero | tail; code=$?; sleep 1; exit $code";
    let expect = Expect::failure("OOMKilled").saying(&["64Mi"]);
    bench.plays("hungry", script, json!({}), expect).await
}

pub(super) async fn deadline(bench: &Bench) -> Result<String> {
    let script = "trap 'echo told to stop; exit 0' TERM; while true; do sleep 1; done";
    bench.agent("slow", script, json!({})).await?;
    let limits = json!({ "timeout": "10s", "childTTL": { "failed": "20s" } });
    bench.submit("slow", limits).await?;
    // All of it is read before the cleanup, however busy the machine is.
    let preserved = json!({ "metadata": { "annotations": { names::PRESERVE: "true" } } });
    bench.patch("slow", preserved).await?;
    let within = Duration::from_secs(30);
    let running = bench
        .until("slow", within, "running", |status| {
            phase_of(status) == "Running"
        })
        .await?;
    ensure!(
        running
            .status
            .is_some_and(|status| status.progress.deadline_at.is_some()),
        "the deadline is stored"
    );
    let expect = Expect {
        says: &["10s"],
        // That it exited 0 when told to is no success.
        ..Expect::failure("DeadlineExceeded")
    };
    let seen = bench.ended("slow", &expect).await?;
    bench.keeps_log(&seen, "told to stop").await?;
    // The retention of 20 s may be over only now.
    let released = json!({ "metadata": { "annotations": { names::PRESERVE: null } } });
    bench.patch("slow", released).await?;
    until_left(&bench.env, &seen, (0, 0, 0), COLLECTED).await?;
    bench.same_status(&seen).await?;
    let said = brief(&seen.status.clone().unwrap_or_default());
    bench.deletes(&seen).await?;
    Ok(said)
}

pub(super) async fn needs_root(bench: &Bench) -> Result<String> {
    let more = json!({ "image": "testbed.local/needs-root:1", "command": [] });
    let expect = Expect {
        says: &["65532", "permission denied"],
        events: &["ContainerNotStartable"],
        ..Expect::failure("ContainerNotStartable")
    };
    bench.plays("root", "", more, expect).await
}

/// An agent that must return `report`.
fn reports() -> Value {
    json!({ "results": [{ "name": "report", "required": true }] })
}

pub(super) async fn result_missing(bench: &Bench) -> Result<String> {
    let script = "sleep 3; echo '{\"else\": \"1\"}' > /dev/termination-log";
    let expect = Expect::failure("ResultMissing").saying(&["report"]);
    bench.plays("forgetful", script, reports(), expect).await
}

pub(super) async fn result_too_large(bench: &Bench) -> Result<String> {
    // Valid, if it were not cut.
    let script = "sleep 3; { printf '{\"report\": \"'; head -c 5000 /dev/zero | tr '\\0' x; printf '\"}'; } > /dev/termination-log";
    let expect = Expect::failure("ResultTooLarge").saying(&["4096 bytes"]);
    bench.plays("wordy", script, reports(), expect).await
}

pub(super) async fn result_invalid(bench: &Bench) -> Result<String> {
    let script = "sleep 3; echo 'report: fine' > /dev/termination-log";
    let expect = Expect::failure("ResultInvalid").saying(&["not one JSON object"]);
    let said = bench.plays("plain", script, reports(), expect).await?;
    ensure!(!said.contains("fine"), "what it wrote is not repeated");
    Ok(said)
}

pub(super) async fn retry(bench: &Bench) -> Result<String> {
    let script = "sleep 3; [ \"$ORCHESTRATOR_ATTEMPT\" = 3 ] || exit 4";
    bench.agent("third", script, json!({})).await?;
    let retry =
        json!({ "retry": { "maxAttempts": 3, "backoff": { "initial": "1s", "max": "2s" } } });
    bench.submit("third", retry).await?;
    let within = Duration::from_secs(40);
    bench
        .until("third", within, "the second attempt", |status| {
            status.attempts == 2
        })
        .await?;
    let expect = Expect {
        attempts: 3,
        jobs: 3,
        events: &["Running", "NonZeroExit"],
        ..Expect::default()
    };
    let seen = bench.ended("third", &expect).await?;
    let name = seen
        .status
        .clone()
        .and_then(|status| status.attempt.job_name);
    ensure!(name.as_deref() == Some("third-7-v1-a3"), "{name:?}");
    bench.deletes(&seen).await?;
    Ok("the third attempt succeeded, three Jobs".to_owned())
}
