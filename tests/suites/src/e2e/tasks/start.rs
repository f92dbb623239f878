//! Why runs do not start.

use std::{net::TcpListener, time::Duration};

use anyhow::{Result, ensure};
use api::{names, status::condition, tasks::Agent};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    batch::v1::Job,
    core::v1::{Namespace, ResourceQuota, Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    cluster::apply,
    git::Network,
    wait::{met, until},
};

use super::{
    super::{
        children::{calls_webhook, forbid_jobs, rejects_pods},
        events, merge,
    },
    fixture::{Bench, Expect, LIMIT, says_all},
};

/// Long enough to see the cause, short enough not to wait long.
const START: &str = "14s";

/// A run of an agent that cannot start: waits for the cause to be named, then for the end by start timeout.
pub(super) async fn times_out(
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
    bench.submit("large", files).await?;
    let expect = Expect {
        says: &["1024000", "921600"],
        events: &["ContextTooLarge"],
        attempts: 0,
        jobs: 0,
        evidence: Some(""),
        within: Some(Duration::from_secs(10)),
        ..Expect::failure("ContextTooLarge")
    };
    bench.ends("large", expect).await
}

/// The names of the versions differ, so only the check for the holder keeps the second run from a start.
pub(super) async fn task_taken(bench: &Bench) -> Result<String> {
    let first = bench.start("dup-a", "sleep 600").await?;
    bench.running("dup-a").await?;
    let same = json!({ "serviceName": "dup-a", "contextVersion": 2 });
    bench.submit_as("dup-b", "dup-a", same).await?;
    let says = ["TaskRun 'dup-a' has task 7", "'taskId'", "waiting until"];
    let seen = bench.waits_for("dup-b", "TaskTaken", &says).await?;
    let labels = seen.labels();
    let found = (labels.get(names::AGENT), labels.get(names::TASK_ID));
    let wanted = ("dup-a".to_owned(), "7".to_owned());
    ensure!(
        found == (Some(&wanted.0), Some(&wanted.1)),
        "a blocked run has labels: {labels:?}"
    );
    ensure!(seen.finalizers().is_empty(), "it has started something");
    let status = seen.status.unwrap_or_default();
    ensure!(status.attempt.attempts == 0 && status.progress.deadline_at.is_some());
    let jobs: Api<Job> = bench.env.api();
    ensure!(
        jobs.get_opt("dup-a-7-v2").await?.is_none(),
        "two runs of one task"
    );
    bench.deletes(&first).await?;
    bench.running("dup-b").await?;
    ensure!(jobs.get_opt("dup-a-7-v2").await?.is_some());
    bench.delete("dup-b").await?;
    Ok(status.progress.message.unwrap_or_default())
}

/// A Job that belongs to nobody, with the name that a run needs.
async fn foreign_job(bench: &Bench, name: &str) -> Result<Job> {
    let foreign = json!({
        "metadata": { "name": name, "labels": { "mine": "yes" } },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "x", "image": "x" }],
        }}},
    });
    bench.env.create(foreign).await
}

pub(super) async fn name_kept(bench: &Bench) -> Result<String> {
    foreign_job(bench, "kept-7-v1").await?;
    let more = json!({ "startTimeout": START });
    bench.agent("kept", "true", more).await?;
    bench.submit("kept", json!({})).await?;
    let seen = bench
        .waits_for("kept", "ChildNameTaken", &["Job 'kept-7-v1'"])
        .await?;
    let deadline = seen.status.unwrap_or_default().progress.deadline_at;
    ensure!(deadline.is_some(), "the wait has no deadline");
    let expect = Expect {
        says: &["Job 'kept-7-v1'", "contextVersion"],
        events: &["ChildNameTaken"],
        attempts: 0,
        jobs: 0,
        evidence: Some(""),
        within: Some(Duration::from_secs(30)),
        ..Expect::failure("ChildNameTaken")
    };
    bench.ends("kept", expect).await
}

/// A webhook for one kind of objects in the case's namespace. Its Service does not exist, or nothing listens at its
/// address.
async fn add_webhook(bench: &Bench, kind: &str, client: Value) -> Result<String> {
    let namespace = &bench.env.namespace;
    let name = format!("{kind}.{namespace}.example.org");
    let group = if kind == "jobs" { "batch" } else { "" };
    let webhook = json!({
        "metadata": { "name": name },
        "webhooks": [{
            "name": name, "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 15,
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "objectSelector": { "matchExpressions": [
                { "key": "orchestrator.io/uid", "operator": "Exists" },
            ]},
            "rules": [{
                "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [kind],
            }],
            "clientConfig": client,
        }],
    });
    let webhook: ValidatingWebhookConfiguration = serde_json::from_value(webhook)?;
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(bench.env.client.clone());
    webhooks.create(&PostParams::default(), &webhook).await?;
    calls_webhook(&bench.env, kind, &name).await?;
    Ok(name)
}

async fn remove_webhook(bench: &Bench, name: &str) -> Result<()> {
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(bench.env.client.clone());
    webhooks.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

pub(super) async fn webhook_down(bench: &Bench) -> Result<String> {
    for (kind, run) in [("jobs", "jobless"), ("configmaps", "fileless")] {
        let client = json!({
            "service": { "name": "checks", "namespace": bench.env.namespace },
        });
        let name = add_webhook(bench, kind, client).await?;
        bench.agent(run, "sleep 3", json!({})).await?;
        bench.submit(run, json!({})).await?;
        let create = format!("create {kind}");
        let says = [name.as_str(), "Service 'checks'", create.as_str()];
        let waits = bench.waits_for(run, "AdmissionDenied", &says).await;
        remove_webhook(bench, &name).await?;
        waits?;
        let expect = Expect::after(&["AdmissionDenied", "Running"]);
        bench.ends(run, expect).await?;
    }
    Ok("named within 10 s for Jobs and ConfigMaps, and both runs went on without it".to_owned())
}

pub(super) async fn webhook_hangs(bench: &Bench) -> Result<String> {
    let cluster = bench.env.testbed("a webhook that does not answer")?;
    let network = Network::of(cluster)?;
    let address = network.address();
    // Nobody accepts, so the kernel establishes the connection, and no byte is answered.
    let listener = network.run(move || TcpListener::bind((address, 0)))??;
    let client = json!({ "url": format!("https://{}/", listener.local_addr()?) });
    let name = add_webhook(bench, "jobs", client).await?;
    bench.agent("slow", "sleep 3", json!({})).await?;
    bench.submit("slow", json!({})).await?;
    let seen = async {
        let says = ["create jobs", "slow-7-v1", "admission webhook"];
        // The operator reports a write that has had no response for 8 s. A busy machine adds to that.
        let within = Duration::from_secs(14);
        let hanging = bench.says_within("slow", "ApiUnavailable", within).await?;
        says_all(&hanging.status.unwrap_or_default(), &says)?;
        let within = Duration::from_secs(20);
        bench.says_within("slow", "AdmissionDenied", within).await
    };
    let seen = seen.await;
    remove_webhook(bench, &name).await?;
    drop(listener);
    let message = seen?.status.unwrap_or_default().progress.message;
    let message = message.unwrap_or_default();
    ensure!(message.contains(&name), "{message}");
    let events = ["ApiUnavailable", "AdmissionDenied", "Running"];
    let expect = Expect::after(&events).within(Duration::from_secs(120));
    bench.ends("slow", expect).await
}

pub(super) async fn name_taken(bench: &Bench) -> Result<String> {
    let foreign = foreign_job(bench, "taken-7-v1").await?;
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
