//! What becomes of a run's children after its end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{names, tasks::TaskRun};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    batch::v1::Job,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use testkit::{cluster::apply, suite::Env, wait::until};
use tokio::time::Instant;

use super::{
    super::children::{keeps, left, until_left},
    fixture::{Bench, Expect, LIMIT, brief},
};

/// Returns something, so that it can be seen to stay.
const ANSWERS: &str = "echo '{\"answer\": \"42\"}' > /dev/termination-log; sleep 3";

/// Nothing of what is known of a run went with its children.
async fn same_status(bench: &Bench, before: &TaskRun) -> Result<()> {
    let after = bench.runs().get(&before.name_any()).await?;
    ensure!(
        after.status == before.status,
        "{:?} was {:?}",
        after.status,
        before.status
    );
    Ok(())
}

pub(super) async fn kept_for_seconds(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("short", ANSWERS, json!({})).await?;
    bench.agent("wrong", "sleep 3; exit 3", json!({})).await?;
    let keep = json!({ "childTTL": { "succeeded": "12s", "failed": "12s" } });
    bench.submit("short", keep.clone()).await?;
    let good = bench.ended("short", &Expect::default()).await?;
    let expect = Expect {
        phase: "Failed",
        reason: "NonZeroExit",
        events: &["Running", "NonZeroExit"],
        ..Expect::default()
    };
    bench.submit("wrong", keep).await?;
    let bad = bench.ended("wrong", &expect).await?;
    for run in [&good, &bad] {
        until_left(&bench.env, run, (0, 0, 0), LIMIT).await?;
        keeps(&bench.env, run, (0, 0, 0)).await?;
        same_status(&bench, run).await?;
    }
    let result = good.status.clone().and_then(|status| status.attempt.result);
    let result = result.context("no result")?;
    ensure!(result.results["answer"] == "42", "{result:?}");
    for run in [&good, &bad] {
        bench.deletes(run).await?;
    }
    bench.done().await?;
    Ok("children gone, evidence kept, nothing started again".to_owned())
}

pub(super) async fn restarted(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("patient", ANSWERS, json!({})).await?;
    let keep = json!({ "childTTL": { "succeeded": "8s" } });
    bench.submit("patient", keep).await?;
    let run = bench.ended("patient", &Expect::default()).await?;
    let end = Instant::now();
    ensure!(
        left(&bench.env, &run).await? == (1, 1, 1),
        "kept for a while"
    );
    let bench = bench.stopped().await?.up().await?;
    ensure!(
        left(&bench.env, &run).await? == (1, 1, 1),
        "kept for a while"
    );
    until_left(&bench.env, &run, (0, 0, 0), LIMIT).await?;
    let took = end.elapsed();
    ensure!(took > Duration::from_secs(5), "too early: {took:?}");
    same_status(&bench, &run).await?;
    bench.deletes(&run).await?;
    bench.done().await?;
    Ok(format!("{:.1} s after the end", took.as_secs_f64()))
}

pub(super) async fn reconfigured(env: Env) -> Result<String> {
    let config = |text: &str| format!("tasks: {{ cleanup: {{ {text} }} }}\n");
    let at_once = "completedJobDelayMinutes: 0, failedJobDelayMinutes: 0";
    let off = config(&format!("enabled: false, {at_once}"));
    let bench = Bench::configured(env, &off).await?;
    bench.agent("kept", ANSWERS, json!({})).await?;
    bench.submit("kept", json!({})).await?;
    let run = bench.ended("kept", &Expect::default()).await?;
    keeps(&bench.env, &run, (1, 1, 1)).await?;
    let mut down = bench.stopped().await?;
    down.plan.config = config(&format!("deleteConfigMap: false, {at_once}"));
    let bench = down.up().await?;
    until_left(&bench.env, &run, (0, 0, 1), LIMIT).await?;
    keeps(&bench.env, &run, (0, 0, 1)).await?;
    let mut down = bench.stopped().await?;
    down.plan.config = config(at_once);
    let bench = down.up().await?;
    until_left(&bench.env, &run, (0, 0, 0), LIMIT).await?;
    same_status(&bench, &run).await?;
    bench.deletes(&run).await?;
    bench.done().await?;
    Ok("disabled: all stay; without ConfigMaps: they stay; else all go".to_owned())
}

pub(super) async fn preserved(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("dear", ANSWERS, json!({})).await?;
    let keep = json!({ "childTTL": { "succeeded": "2s" } });
    bench.submit("dear", keep).await?;
    let mark =
        |value: Option<&str>| json!({ "metadata": { "annotations": { names::PRESERVE: value } } });
    bench.patch("dear", mark(Some("true"))).await?;
    let run = bench.ended("dear", &Expect::default()).await?;
    keeps(&bench.env, &run, (1, 1, 1)).await?;
    let policy = Policy::create(&bench).await?;
    policy.rejects_deletes(&bench, "dear-7-v1").await?;
    bench.patch("dear", mark(None)).await?;
    let message = rejected(&bench, &run).await?;
    keeps(&bench.env, &run, (1, 1, 1)).await?;
    policy.delete(&bench).await?;
    until_left(&bench.env, &run, (0, 0, 0), LIMIT).await?;
    same_status(&bench, &run).await?;
    bench.deletes(&run).await?;
    bench.done().await?;
    Ok(format!(
        "kept while it was there; then a rejected deletion was reported ({message}) and repeated"
    ))
}

/// The message of the policy that rejects deletions.
const REJECTION: &str = "Jobs are evidence here";

/// A policy that rejects each deletion of a Job by the operator, and by nobody else.
struct Policy {
    name: String,
    user: String,
}

impl Policy {
    async fn create(bench: &Bench) -> Result<Self> {
        let name = format!("no-deletes-{}", bench.env.namespace);
        let user = bench.operator.user.clone();
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": name },
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["DELETE"],
                    "resources": ["jobs"],
                }]},
                "matchConditions": [{
                    "name": "operator", "expression": format!("request.userInfo.username == '{user}'"),
                }],
                "validations": [{ "expression": "false", "message": REJECTION }],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": name },
            "spec": { "policyName": name, "validationActions": ["Deny"] },
        });
        for object in [policy, binding] {
            apply(&bench.env.client, "default", &object.to_string()).await?;
        }
        Ok(Self { name, user })
    }

    /// Waits until the API server would reject the deletion of this Job.
    async fn rejects_deletes(&self, bench: &Bench, job: &str) -> Result<()> {
        let mut config = bench.env.config.clone();
        config.auth_info.impersonate = Some(self.user.clone());
        let client = Client::try_from(config)?;
        let jobs: Api<Job> = Api::namespaced(client, &bench.env.namespace);
        let dry = DeleteParams::default().dry_run();
        until("a rejected deletion", LIMIT, async || {
            Ok(match jobs.delete(job, &dry).await {
                Ok(_) => Err("it is accepted".to_owned()),
                Err(kube::Error::Api(status)) if status.message.contains(REJECTION) => Ok(()),
                Err(error) => return Err(error.into()),
            })
        })
        .await
    }

    async fn delete(self, bench: &Bench) -> Result<()> {
        let client = &bench.env.client;
        let (name, params) = (&self.name, DeleteParams::default());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
        bindings.delete(name, &params).await?;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
        policies.delete(name, &params).await?;
        Ok(())
    }
}

/// S0.5: a rejected deletion of a clean-up is in an Event, in a metric and in the log; the status of the
/// run, which has ended, stays as it is. The note of the Event.
async fn rejected(bench: &Bench, run: &TaskRun) -> Result<String> {
    const WORDS: [&str; 3] = ["delete jobs", "dear-7-v1", REJECTION];
    let note = until("S0.5: the Event", LIMIT, async || {
        let note = bench.notes(run, "AdmissionDenied").await?;
        Ok(if note.is_empty() {
            Err("none".to_owned())
        } else {
            Ok(note)
        })
    })
    .await?;
    for word in WORDS {
        ensure!(note.contains(word), "S0.5: '{word}' is not in '{note}'");
    }
    // Its type is checked, too.
    bench.events(&run.uid().unwrap_or_default()).await?;
    let series = r#"orchestrator_reconcile_errors_total{kind="TaskRun",class="Denied"}"#;
    ensure!(
        bench.operator.metric(series).await? >= 1.0,
        "S0.5: {series}"
    );
    let object = format!(r#""object":"{}/dear""#, bench.env.namespace);
    let mut words = vec![
        object.as_str(),
        r#""class":"Denied""#,
        r#""reason":"AdmissionDenied""#,
    ];
    words.extend(WORDS);
    let log = bench.operator.log_text()?;
    ensure!(
        log.lines()
            .any(|line| words.iter().all(|word| line.contains(word))),
        "S0.5: no line of the log has {words:?}: {log}"
    );
    same_status(bench, run).await?;
    Ok(note)
}

pub(super) async fn runs_deleted(env: Env) -> Result<String> {
    let config = "tasks: { deleteFinishedRunsAfter: 1m }\n";
    let bench = Bench::configured(env, config).await?;
    bench.agent("brief", ANSWERS, json!({})).await?;
    bench
        .agent("lasting", &super::fixture::busy(600), json!({}))
        .await?;
    bench.submit("brief", json!({})).await?;
    bench.submit("lasting", json!({})).await?;
    let run = bench.ended("brief", &Expect::default()).await?;
    let end = Instant::now();
    tokio::time::sleep(Duration::from_secs(50)).await;
    ensure!(
        left(&bench.env, &run).await? == (1, 1, 1),
        "its children stay"
    );
    same_status(&bench, &run).await?;
    bench.is_gone(&run, LIMIT).await?;
    let took = end.elapsed();
    let lasting = bench.running("lasting").await?;
    bench.deletes(&lasting).await?;
    bench.done().await?;
    Ok(format!(
        "gone {:.0} s after its end, and the one that runs is there",
        took.as_secs_f64()
    ))
}

/// R09: what vanishes after the end starts nothing, and takes no evidence with it.
pub(super) async fn vanished(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("robbed", ANSWERS, json!({})).await?;
    bench.submit("robbed", json!({})).await?;
    let run = bench.ended("robbed", &Expect::default()).await?;
    let jobs: Api<Job> = bench.env.api();
    jobs.delete("robbed-7-v1", &DeleteParams::background())
        .await?;
    until_left(&bench.env, &run, (0, 0, 1), LIMIT).await?;
    keeps(&bench.env, &run, (0, 0, 1)).await?;
    // Nor does a look that somebody asks for.
    let ask = json!({ "metadata": { "annotations": { names::RECONCILE_AT: "now" } } });
    let params = PatchParams::default();
    bench
        .runs()
        .patch("robbed", &params, &Patch::Merge(ask))
        .await?;
    keeps(&bench.env, &run, (0, 0, 1)).await?;
    same_status(&bench, &run).await?;
    let said = brief(&run.status.clone().unwrap_or_default());
    bench.deletes(&run).await?;
    bench.done().await?;
    Ok(said)
}
