//! What becomes of a run's children after its end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{names, tasks::TaskRun};
use k8s_openapi::api::batch::v1::Job;
use kube::{Api, ResourceExt, api::DeleteParams};
use serde_json::json;
use testkit::{suite::Env, wait::until};
use tokio::time::Instant;

use super::{
    super::{
        children::{keeps, left, preserve, until_left},
        events,
        policies::{Bound, client_of},
    },
    fixture::{Bench, Expect, LIMIT, brief, busy},
};

/// Returns something, so that it can be seen to stay.
const ANSWERS: &str = "echo '{\"answer\": \"42\"}' > /dev/termination-log; sleep 3";

pub(super) async fn kept_for_seconds(bench: &Bench) -> Result<String> {
    bench.agent("short", ANSWERS, json!({})).await?;
    bench.agent("wrong", "sleep 3; exit 3", json!({})).await?;
    let keep = json!({ "childTTL": { "succeeded": "12s", "failed": "12s" } });
    bench.submit("short", keep.clone()).await?;
    let good = bench.ended("short", &Expect::default()).await?;
    bench.submit("wrong", keep).await?;
    let expect = Expect::failure("NonZeroExit");
    let bad = bench.ended("wrong", &expect).await?;
    for run in [&good, &bad] {
        until_left(&bench.env, run, (0, 0, 0), LIMIT).await?;
        keeps(&bench.env, run, (0, 0, 0)).await?;
        bench.same_status(run).await?;
    }
    let result = good.status.clone().and_then(|status| status.attempt.result);
    let result = result.context("no result")?;
    ensure!(result.results["answer"] == "42", "{result:?}");
    for run in [&good, &bad] {
        bench.deletes(run).await?;
    }
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
    bench.same_status(&run).await?;
    bench.deletes(&run).await?;
    bench.done().await?;
    Ok(format!("{:.1} s after the end", took.as_secs_f64()))
}

pub(super) async fn reconfigured(env: Env) -> Result<String> {
    let config = |text: &str| format!("tasks: {{ cleanup: {{ {text} }} }}\n");
    let at_once = "completedJobDelayMinutes: 0, failedJobDelayMinutes: 0";
    let off = config(&format!("enabled: false, {at_once}"));
    let bench = Bench::configured(env, &off).await?;
    bench.start("kept", ANSWERS).await?;
    let run = bench.ended("kept", &Expect::default()).await?;
    keeps(&bench.env, &run, (1, 1, 1)).await?;
    let without_maps = config(&format!("deleteConfigMap: false, {at_once}"));
    let bench = bench.stopped().await?.up_with(&without_maps).await?;
    until_left(&bench.env, &run, (0, 0, 1), LIMIT).await?;
    keeps(&bench.env, &run, (0, 0, 1)).await?;
    let bench = bench.stopped().await?.up_with(&config(at_once)).await?;
    until_left(&bench.env, &run, (0, 0, 0), LIMIT).await?;
    bench.same_status(&run).await?;
    bench.deletes(&run).await?;
    bench.done().await?;
    Ok("disabled: all stay; without ConfigMaps: they stay; else all go".to_owned())
}

pub(super) async fn preserved(bench: &Bench) -> Result<String> {
    bench.agent("dear", ANSWERS, json!({})).await?;
    let keep = json!({ "childTTL": { "succeeded": "2s" } });
    bench.submit("dear", keep).await?;
    bench.patch("dear", preserve(Some("true"))).await?;
    let run = bench.ended("dear", &Expect::default()).await?;
    keeps(&bench.env, &run, (1, 1, 1)).await?;
    let policy = rejects_deletes(bench, "dear-7-v1").await?;
    bench.patch("dear", preserve(None)).await?;
    let message = rejected(bench, &run).await?;
    keeps(&bench.env, &run, (1, 1, 1)).await?;
    policy.release().await?;
    until_left(&bench.env, &run, (0, 0, 0), LIMIT).await?;
    bench.same_status(&run).await?;
    bench.deletes(&run).await?;
    Ok(format!(
        "kept while it was there; then a rejected deletion was reported ({message}) and repeated"
    ))
}

/// The message of the policy that rejects deletions.
const REJECTION: &str = "Jobs are evidence here";

/// A policy that rejects each deletion of a Job by the operator, and by nobody else. Waits until the API
/// server would reject that of this Job.
async fn rejects_deletes(bench: &Bench, job: &str) -> Result<Bound> {
    let user = bench.operator.user.as_str();
    let matching = json!({
        "failurePolicy": "Fail",
        "matchConstraints": { "resourceRules": [{
            "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["DELETE"],
            "resources": ["jobs"],
        }]},
        "matchConditions": [{
            "name": "operator", "expression": format!("request.userInfo.username == '{user}'"),
        }],
    });
    let bound = Bound::rejecting(&bench.env, matching, REJECTION, None).await?;
    let client = client_of(&bench.env, user)?;
    let jobs: Api<Job> = Api::namespaced(client, &bench.env.namespace);
    let dry = DeleteParams::default().dry_run();
    until("a rejected deletion", LIMIT, async || {
        Ok(match jobs.delete(job, &dry).await {
            Ok(_) => Err("it is accepted".to_owned()),
            Err(kube::Error::Api(status)) if status.message.contains(REJECTION) => Ok(()),
            Err(error) => return Err(error.into()),
        })
    })
    .await?;
    Ok(bound)
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
    events::reasons(&bench.env, &run.uid().unwrap_or_default()).await?;
    let object = format!(r#""object":"{}/dear""#, bench.env.namespace);
    let mut words = vec![object.as_str()];
    words.extend(WORDS);
    bench
        .logs_error("Denied", "AdmissionDenied", &words)
        .await?;
    bench.same_status(run).await?;
    Ok(note)
}

pub(super) async fn runs_deleted(env: Env) -> Result<String> {
    let config = "tasks: { deleteFinishedRunsAfter: 1m }\n";
    let bench = Bench::configured(env, config).await?;
    bench.agent("brief", ANSWERS, json!({})).await?;
    bench.agent("lasting", &busy(600), json!({})).await?;
    bench.submit("brief", json!({})).await?;
    bench.submit("lasting", json!({})).await?;
    let run = bench.ended("brief", &Expect::default()).await?;
    let end = Instant::now();
    tokio::time::sleep(Duration::from_secs(50)).await;
    ensure!(
        left(&bench.env, &run).await? == (1, 1, 1),
        "its children stay"
    );
    bench.same_status(&run).await?;
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
pub(super) async fn vanished(bench: &Bench) -> Result<String> {
    bench.start("robbed", ANSWERS).await?;
    let run = bench.ended("robbed", &Expect::default()).await?;
    let jobs: Api<Job> = bench.env.api();
    jobs.delete("robbed-7-v1", &DeleteParams::background())
        .await?;
    until_left(&bench.env, &run, (0, 0, 1), LIMIT).await?;
    keeps(&bench.env, &run, (0, 0, 1)).await?;
    // Nor does a look that somebody asks for.
    let ask = json!({ "metadata": { "annotations": { names::RECONCILE_AT: "now" } } });
    bench.patch("robbed", ask).await?;
    keeps(&bench.env, &run, (0, 0, 1)).await?;
    bench.same_status(&run).await?;
    let said = brief(&run.status.clone().unwrap_or_default());
    bench.deletes(&run).await?;
    Ok(said)
}
