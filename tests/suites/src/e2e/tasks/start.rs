//! Why runs do not start.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::{status::condition, tasks::Agent};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Namespace, ResourceQuota, Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{
    cluster::apply,
    wait::{met, until},
};

use super::{
    super::{
        children::{forbid_jobs, rejects_pods},
        events, merge,
    },
    fixture::{Bench, Expect, LIMIT},
};

/// Long enough to see the cause, short enough not to wait long.
const START: &str = "14s";

/// A run of an agent that cannot start: waits for the cause to be named, then for the end by start timeout.
async fn times_out(
    bench: &Bench,
    name: &str,
    more: Value,
    (cause, says): (&str, &[&str]),
) -> Result<String> {
    let mut spec = json!({ "startTimeout": START });
    merge(&mut spec, more);
    bench.agent(name, "true", spec).await?;
    bench.submit(name, json!({})).await?;
    bench.waits_for(name, cause, says).await?;
    let mut all = vec![cause];
    all.extend(says);
    let expect = Expect {
        says: &all,
        events: &[cause],
        jobs: 0,
        ..Expect::failure("StartTimeout")
    };
    bench.ends(name, expect).await
}

pub(super) async fn unknown_image(bench: &Bench) -> Result<String> {
    let image = "testbed.local/nothing:9";
    let more = json!({ "image": image });
    times_out(bench, "image", more, ("ImagePullFailed", &[image])).await
}

pub(super) async fn no_node(bench: &Bench) -> Result<String> {
    let more = json!({ "nodeSelector": { "disk": "golden" } });
    let says = ["node affinity/selector"];
    times_out(bench, "nowhere", more, ("Unschedulable", &says)).await
}

pub(super) async fn quota(bench: &Bench) -> Result<String> {
    let hard = json!({ "hard": { "pods": "0" } });
    let quota = json!({ "metadata": { "name": "no-pods" }, "spec": hard });
    bench.env.create::<ResourceQuota>(quota).await?;
    rejects_pods(&bench.env, "exceeded quota: no-pods").await?;
    let says = ["no-pods"];
    times_out(bench, "full", json!({}), ("QuotaExceeded", &says)).await
}

pub(super) async fn missing_secret(bench: &Bench) -> Result<String> {
    let secret = json!([{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "the-key", "key": "k" } } }]);
    let more = json!({ "env": secret });
    let said = times_out(bench, "keyless", more, ("SecretNotFound", &["the-key"])).await?;
    // The same again, and this time someone creates it.
    bench
        .agent("keyed", "sleep 3", json!({ "env": secret }))
        .await?;
    bench.submit("keyed", json!({})).await?;
    bench
        .waits_for("keyed", "SecretNotFound", &["the-key"])
        .await?;
    let key = json!({ "metadata": { "name": "the-key" }, "stringData": { "k": "v" } });
    bench.env.create::<Secret>(key).await?;
    let expect = Expect::after(&["SecretNotFound", "Running"]).within(Duration::from_secs(90));
    bench.ends("keyed", expect).await?;
    Ok(said)
}

/// Our Pods satisfy `restricted`; something that is put into them (a mesh's sidecar) may not.
pub(super) async fn pod_security(bench: &Bench) -> Result<String> {
    let namespace = bench.env.namespace.clone();
    let namespaces: Api<Namespace> = Api::all(bench.env.client.clone());
    let label =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    namespaces
        .patch(&namespace, &PatchParams::default(), &Patch::Merge(label))
        .await?;
    bench
        .plays("plain", "sleep 3", json!({}), Expect::default())
        .await?;

    let policy = include_str!("injected-sidecar.yaml").replace("NAMESPACE", &namespace);
    apply(&bench.env.client, &namespace, &policy).await?;
    rejects_pods(&bench.env, "violates PodSecurity").await?;
    let says = ["violates PodSecurity", "restricted"];
    times_out(bench, "meshed", json!({}), ("AdmissionDenied", &says)).await
}

pub(super) async fn job_refused(bench: &Bench) -> Result<String> {
    let quotas = forbid_jobs(&bench.env).await?;
    bench.agent("refused", "sleep 3", json!({})).await?;
    let run = bench.submit("refused", json!({})).await?;
    // S0.3: the status is not empty.
    let says = ["create jobs", "refused-7-v1", "no-jobs"];
    bench.waits_for("refused", "QuotaExceeded", &says).await?;
    let told = events::reasons(&bench.env, &run.uid().unwrap_or_default()).await?;
    ensure!(
        told.contains(&"QuotaExceeded".to_owned()),
        "S0.2: the Event"
    );
    bench
        .logs_error("Denied", "QuotaExceeded", &["no-jobs", "/refused\""])
        .await?;
    quotas.delete("no-jobs", &DeleteParams::default()).await?;
    let expect = Expect::after(&["QuotaExceeded", "Running"]).within(Duration::from_secs(120));
    bench.ends("refused", expect).await?;
    Ok("named within one look, and it went on when the quota was gone".to_owned())
}

pub(super) async fn agent_missing(bench: &Bench) -> Result<String> {
    bench.submit("later", json!({})).await?;
    bench
        .waits_for("later", "AgentNotFound", &["'later'"])
        .await?;
    bench.agent("later", "sleep 3", json!({})).await?;
    let expect = Expect::after(&["AgentNotFound", "Running"]);
    bench.ends("later", expect).await
}

pub(super) async fn agent_not_ready(bench: &Bench) -> Result<String> {
    let more = json!({ "serviceAccountName": "robot" });
    bench.agent("robot", "sleep 3", more).await?;
    let agents: Api<Agent> = bench.env.api();
    until("the Agent to be not Ready", LIMIT, async || {
        let status = agents.get("robot").await?.status.unwrap_or_default();
        let ready = status.progress.condition(condition::READY);
        let is_false = ready.is_some_and(|one| one.status == "False");
        Ok(met(is_false, || format!("{ready:?}")))
    })
    .await?;
    bench.submit("robot", json!({})).await?;
    bench
        .waits_for("robot", "AgentNotReady", &["robot", "ServiceAccount"])
        .await?;
    let account = json!({ "metadata": { "name": "robot" } });
    bench.env.create::<ServiceAccount>(account).await?;
    let expect = Expect::after(&["AgentNotReady", "Running"]);
    bench.ends("robot", expect).await
}

pub(super) async fn too_large(bench: &Bench) -> Result<String> {
    bench.agent("large", "true", json!({})).await?;
    // As few characters as allowed, but more bytes: sizes of the schema are code points.
    let content = "ü".repeat(500 * 1024);
    let files = json!([{ "filename": "a.md", "content": content }]);
    let files = json!({ "markdownFiles": files });
    let run = bench.submit("large", files).await?;
    let seen = bench
        .waits_for("large", "ContextTooLarge", &["1024000", "921600"])
        .await?;
    let status = seen.status.unwrap_or_default();
    ensure!(
        status.progress.is_true("Stalled"),
        "given up until someone changes it"
    );
    bench.deletes(&run).await?;
    Ok(status.progress.message.unwrap_or_default())
}

pub(super) async fn name_taken(bench: &Bench) -> Result<String> {
    let foreign = json!({
        "metadata": { "name": "taken-7-v1", "labels": { "mine": "yes" } },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "x", "image": "x" }],
        }}},
    });
    let foreign: Job = bench.env.create(foreign).await?;
    let jobs: Api<Job> = bench.env.api();
    bench.start("taken", "sleep 3").await?;
    let says = ["Job 'taken-7-v1'", "belongs to someone else"];
    let seen = bench.waits_for("taken", "ChildNameTaken", &says).await?;
    let status = seen.status.unwrap_or_default();
    ensure!(status.progress.is_true("Stalled"));
    let after = jobs.get("taken-7-v1").await?;
    ensure!(
        after.uid() == foreign.uid() && after.labels().contains_key("mine"),
        "it was not touched"
    );
    ensure!(
        after.metadata.generation == foreign.metadata.generation,
        "it was not touched"
    );
    jobs.delete("taken-7-v1", &DeleteParams::background())
        .await?;
    let expect = Expect::after(&["ChildNameTaken", "Running"]).within(Duration::from_secs(120));
    bench.ends("taken", expect).await?;
    Ok("named, untouched, and it went on when the name was free".to_owned())
}
