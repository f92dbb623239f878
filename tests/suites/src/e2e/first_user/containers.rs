//! Pods that cannot run, and containers that fail.

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use super::fixture::{Bench, Cause, Seen, Why, submitted};

/// An environment variable from the key `k` of the Secret `the-key`.
fn with_key() -> Value {
    json!({ "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "the-key", "key": "k" } } }] })
}

pub(super) async fn secret_missing(bench: &Bench) -> Result<Seen> {
    bench.agent("keyless", "true", with_key()).await?;
    let cause = Cause::of_container("SecretNotFound", &["the-key"]);
    let why = Why::command(
        &["Secret the-key", "does not exist"],
        "kubectl create secret generic the-key",
    );
    submitted(bench, "keyless", json!({}), cause, why).await
}

pub(super) async fn key_missing(bench: &Bench) -> Result<Seen> {
    let other = json!({ "metadata": { "name": "the-key" }, "stringData": { "other": "v" } });
    bench.env.create::<Secret>(other).await?;
    bench.agent("keyless", "true", with_key()).await?;
    let cause = Cause::of_container("SecretNotFound", &["key k", "the-key"]);
    let why = Why::command(
        &["Secret the-key", "has no key 'k'"],
        "kubectl edit secret the-key",
    );
    submitted(bench, "keyless", json!({}), cause, why).await
}

pub(super) async fn unknown_image(bench: &Bench) -> Result<Seen> {
    let image = "testbed.local/nothing:9";
    let more = json!({ "image": image });
    bench.agent("image", "true", more).await?;
    let cause = Cause::of_container("ImagePullFailed", &[image]);
    let why = Why::command(&[image, "cannot be pulled"], "kubectl edit oag image");
    submitted(bench, "image", json!({}), cause, why).await
}

pub(super) async fn too_many_processors(bench: &Bench) -> Result<Seen> {
    let more = json!({ "resources": {
        "requests": { "cpu": "500", "memory": "16Mi" }, "limits": { "memory": "64Mi" },
    } });
    bench.agent("giant", "true", more).await?;
    let cause = Cause::at_once("Unschedulable", &["Insufficient cpu"]);
    let why = Why::command(
        &[
            "too little cpu free",
            "asked for: 500",
            "the largest node has",
        ],
        "kubectl edit oag giant",
    );
    submitted(bench, "giant", json!({}), cause, why).await
}

pub(super) async fn no_such_node(bench: &Bench) -> Result<Seen> {
    let more = json!({ "nodeSelector": { "disk": "golden" } });
    bench.agent("nowhere", "true", more).await?;
    let cause = Cause::at_once("Unschedulable", &["node affinity/selector"]);
    let why = Why::command(
        &["disk=golden", "no node has them"],
        "kubectl label node <NODE> disk=golden",
    );
    submitted(bench, "nowhere", json!({}), cause, why).await
}

pub(super) async fn no_such_command(bench: &Bench) -> Result<Seen> {
    let more = json!({ "command": ["/no-such-program"] });
    bench.agent("wrong", "", more).await?;
    let words = ["/no-such-program", "no such file or directory"];
    let cause = Cause::of_container("ContainerNotStartable", &words);
    let why = Why::command(
        &[
            "the container could not be started",
            "/no-such-program",
            "no such file or directory",
            "'command'",
        ],
        "kubectl edit oag wrong",
    )
    .never(&["the first lines say why"]);
    submitted(bench, "wrong", json!({}), cause, why).await
}

/// A process of the container is killed for memory, and the shell returns 0.
pub(super) async fn memory_of_a_child(bench: &Bench) -> Result<Seen> {
    // The kernel is to choose this process, and not the shell.
    let script = "(echo 1000 > /proc/self/oom_score_adj; exec tail /dev/zero); sleep 1; exit 0";
    out_of_memory(bench, script).await
}

/// The same, and the container ends with the code of the kill.
pub(super) async fn memory_of_the_program(bench: &Bench) -> Result<Seen> {
    // The kernel reports the kill before the container ends.
    let script = "head -c 500m /dev/zero | tail; code=$?; sleep 1; exit $code";
    out_of_memory(bench, script).await
}

async fn out_of_memory(bench: &Bench, script: &str) -> Result<Seen> {
    bench.agent("hungry", script, json!({})).await?;
    let cause = Cause::of_container("OOMKilled", &["64Mi"]);
    let why = Why::command(
        &["more memory than its limit of 64Mi", "limits.memory"],
        "kubectl edit oag hungry",
    );
    submitted(bench, "hungry", json!({}), cause, why).await
}

pub(super) async fn result_missing(bench: &Bench) -> Result<Seen> {
    let more = json!({ "results": [{ "name": "report", "required": true }] });
    bench.agent("forgetful", "true", more).await?;
    let cause = Cause::of_container("ResultMissing", &["report"]);
    let why = Why::command(
        &["without the result 'report'", "/dev/termination-log"],
        "kubectl edit oag forgetful",
    );
    submitted(bench, "forgetful", json!({}), cause, why).await
}

/// The program of the image can be executed by root only. The Agent has a user already, so the advice must not
/// be to set one.
pub(super) async fn needs_root(bench: &Bench) -> Result<Seen> {
    let more = json!({ "image": "testbed.local/needs-root:1", "command": [] });
    not_executable(bench, more, "/sbin/busybox").await
}

/// A file that no user may execute: it needs no root.
pub(super) async fn not_a_program(bench: &Bench) -> Result<Seen> {
    let more = json!({ "command": ["/etc/passwd"] });
    not_executable(bench, more, "/etc/passwd").await
}

async fn not_executable(bench: &Bench, more: Value, program: &str) -> Result<Seen> {
    bench.agent("barred", "", more).await?;
    let words = ["65532", program, "permission denied"];
    let cause = Cause::of_container("ContainerNotStartable", &words);
    let why = Why::command(
        &[program, "permission denied", "executable for user 65532"],
        "kubectl edit oag barred",
    )
    .never(&["ImageNeedsRoot", "a number other than 0"]);
    submitted(bench, "barred", json!({}), cause, why).await
}
