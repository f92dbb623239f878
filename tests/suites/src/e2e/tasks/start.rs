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
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{cluster::apply, suite::Env, wait::until};

use super::{
    super::children::{rejects_jobs, rejects_pods},
    fixture::{Bench, Expect, LIMIT, phase_of, reason_of},
};

/// Long enough to see the cause, short enough not to wait long.
const START: &str = "14s";

fn from<K: DeserializeOwned>(value: Value) -> Result<K> {
    Ok(serde_json::from_value(value)?)
}

/// Submits, waits for the cause to be named, then for the end by start timeout.
async fn times_out(bench: &Bench, name: &str, cause: &str, says: &[&str]) -> Result<String> {
    bench.submit(name, json!({})).await?;
    bench.waits_for(name, cause, says).await?;
    let mut all = vec![cause];
    all.extend(says);
    let expect = Expect {
        phase: "Failed",
        reason: "StartTimeout",
        says: &all,
        events: &[cause, "StartTimeout"],
        jobs: 0,
        ..Expect::default()
    };
    bench.ends(name, expect).await
}

pub(super) async fn unknown_image(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let more = json!({ "image": "testbed.local/nothing:9", "startTimeout": START });
    bench.agent("image", "true", more).await?;
    let said = times_out(
        &bench,
        "image",
        "ImagePullFailed",
        &["testbed.local/nothing:9"],
    )
    .await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn no_node(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let more = json!({ "nodeSelector": { "disk": "golden" }, "startTimeout": START });
    bench.agent("nowhere", "true", more).await?;
    let said = times_out(
        &bench,
        "nowhere",
        "Unschedulable",
        &["node affinity/selector"],
    )
    .await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn quota(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let quota: ResourceQuota = from(json!({
        "metadata": { "name": "no-pods" }, "spec": { "hard": { "pods": "0" } },
    }))?;
    bench
        .env
        .api()
        .create(&PostParams::default(), &quota)
        .await?;
    rejects_pods(&bench.env, "exceeded quota: no-pods").await?;
    bench
        .agent("full", "true", json!({ "startTimeout": START }))
        .await?;
    let said = times_out(&bench, "full", "QuotaExceeded", &["no-pods"]).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn missing_secret(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let secret = json!([{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "the-key", "key": "k" } } }]);
    bench
        .agent(
            "keyless",
            "true",
            json!({ "env": secret, "startTimeout": START }),
        )
        .await?;
    let said = times_out(&bench, "keyless", "SecretNotFound", &["the-key"]).await?;
    // The same again, and this time someone creates it.
    bench
        .agent("keyed", "sleep 3", json!({ "env": secret }))
        .await?;
    bench.submit("keyed", json!({})).await?;
    bench
        .waits_for("keyed", "SecretNotFound", &["the-key"])
        .await?;
    let key: Secret =
        from(json!({ "metadata": { "name": "the-key" }, "stringData": { "k": "v" } }))?;
    bench.env.api().create(&PostParams::default(), &key).await?;
    let expect = Expect {
        events: &["SecretNotFound", "Running", "Succeeded"],
        within: Duration::from_secs(90),
        ..Expect::default()
    };
    bench.ends("keyed", expect).await?;
    bench.done().await?;
    Ok(said)
}

/// Our Pods satisfy `restricted`; something that is put into them (a mesh's sidecar) may not.
pub(super) async fn pod_security(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let namespace = bench.env.namespace.clone();
    let namespaces: Api<Namespace> = Api::all(bench.env.client.clone());
    let label =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    namespaces
        .patch(&namespace, &PatchParams::default(), &Patch::Merge(label))
        .await?;
    bench.agent("plain", "sleep 3", json!({})).await?;
    bench.submit("plain", json!({})).await?;
    bench.ends("plain", Expect::default()).await?;

    let policy = include_str!("injected-sidecar.yaml").replace("NAMESPACE", &namespace);
    apply(&bench.env.client, &namespace, &policy).await?;
    rejects_pods(&bench.env, "violates PodSecurity").await?;
    bench
        .agent("meshed", "true", json!({ "startTimeout": START }))
        .await?;
    let said = times_out(
        &bench,
        "meshed",
        "AdmissionDenied",
        &["violates PodSecurity", "restricted"],
    )
    .await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn job_refused(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let quota: ResourceQuota = from(json!({
        "metadata": { "name": "no-jobs" }, "spec": { "hard": { "count/jobs.batch": "0" } },
    }))?;
    let quotas: Api<ResourceQuota> = bench.env.api();
    quotas.create(&PostParams::default(), &quota).await?;
    bench.agent("refused", "sleep 3", json!({})).await?;
    rejects_jobs(&bench.env, "exceeded quota: no-jobs").await?;
    let run = bench.submit("refused", json!({})).await?;
    let seen = bench
        .until("refused", Duration::from_secs(10), "refused", |status| {
            reason_of(status) == "QuotaExceeded"
        })
        .await?;
    let status = seen.status.clone().unwrap_or_default();
    super::fixture::says_all(&status, &["create jobs", "refused-7-v1", "no-jobs"])?;
    ensure!(
        phase_of(&status) == "Pending",
        "S0.3: the status is not empty"
    );
    let uid = run.uid().unwrap_or_default();
    ensure!(
        bench
            .events(&uid)
            .await?
            .contains(&"QuotaExceeded".to_owned()),
        "S0.2: the Event"
    );
    let series = r#"orchestrator_reconcile_errors_total{kind="TaskRun",class="Denied"}"#;
    ensure!(
        bench.operator.metric(series).await? >= 1.0,
        "S0.2: the metric"
    );
    let log = bench.operator.log_text()?;
    let words = [
        "no-jobs",
        r#""class":"Denied""#,
        r#""reason":"QuotaExceeded""#,
        "/refused\"",
    ];
    let is_told = |line: &str| words.iter().all(|word| line.contains(word));
    ensure!(log.lines().any(is_told), "S0.2: the log");
    quotas.delete("no-jobs", &DeleteParams::default()).await?;
    let expect = Expect {
        events: &["QuotaExceeded", "Running", "Succeeded"],
        within: Duration::from_secs(120),
        ..Expect::default()
    };
    bench.ends("refused", expect).await?;
    bench.done().await?;
    Ok("named within one look, and it went on when the quota was gone".to_owned())
}

pub(super) async fn agent_missing(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.submit("later", json!({})).await?;
    bench
        .waits_for("later", "AgentNotFound", &["'later'"])
        .await?;
    bench.agent("later", "sleep 3", json!({})).await?;
    let expect = Expect {
        events: &["AgentNotFound", "Running", "Succeeded"],
        ..Expect::default()
    };
    let said = bench.ends("later", expect).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn agent_not_ready(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let more = json!({ "serviceAccountName": "robot" });
    bench.agent("robot", "sleep 3", more).await?;
    let agents: Api<Agent> = bench.env.api();
    until("the Agent to be not Ready", LIMIT, async || {
        let status = agents.get("robot").await?.status.unwrap_or_default();
        let ready = status.progress.condition(condition::READY);
        Ok(if ready.is_some_and(|one| one.status == "False") {
            Ok(())
        } else {
            Err(format!("{ready:?}"))
        })
    })
    .await?;
    bench.submit("robot", json!({})).await?;
    bench
        .waits_for("robot", "AgentNotReady", &["robot", "ServiceAccount"])
        .await?;
    let account: ServiceAccount = from(json!({ "metadata": { "name": "robot" } }))?;
    bench
        .env
        .api()
        .create(&PostParams::default(), &account)
        .await?;
    let expect = Expect {
        events: &["AgentNotReady", "Running", "Succeeded"],
        ..Expect::default()
    };
    let said = bench.ends("robot", expect).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn too_large(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("large", "true", json!({})).await?;
    // As few characters as allowed, but more bytes: sizes of the schema are code points.
    let content = "ü".repeat(500 * 1024);
    let run = bench
        .submit(
            "large",
            json!({ "markdownFiles": [{ "filename": "a.md", "content": content }] }),
        )
        .await?;
    let seen = bench
        .until("large", Duration::from_secs(10), "stalled", |status| {
            reason_of(status) == "ContextTooLarge"
        })
        .await?;
    let status = seen.status.clone().unwrap_or_default();
    ensure!(
        status.progress.is_true("Stalled"),
        "given up until someone changes it"
    );
    super::fixture::says_all(&status, &["1024000", "921600"])?;
    bench.deletes(&run).await?;
    bench.done().await?;
    Ok(status.progress.message.unwrap_or_default())
}

pub(super) async fn name_taken(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let foreign: Job = from(json!({
        "metadata": { "name": "taken-7-v1", "labels": { "mine": "yes" } },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "x", "image": "x" }],
        }}},
    }))?;
    let jobs: Api<Job> = bench.env.api();
    let foreign = jobs.create(&PostParams::default(), &foreign).await?;
    bench.agent("taken", "sleep 3", json!({})).await?;
    bench.submit("taken", json!({})).await?;
    let seen = bench
        .until("taken", Duration::from_secs(10), "stalled", |status| {
            reason_of(status) == "ChildNameTaken"
        })
        .await?;
    let status = seen.status.clone().unwrap_or_default();
    ensure!(status.progress.is_true("Stalled"));
    super::fixture::says_all(&status, &["Job 'taken-7-v1'", "belongs to someone else"])?;
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
    let expect = Expect {
        events: &["ChildNameTaken", "Running", "Succeeded"],
        within: Duration::from_secs(120),
        ..Expect::default()
    };
    bench.ends("taken", expect).await?;
    bench.done().await?;
    Ok("named, untouched, and it went on when the name was free".to_owned())
}
