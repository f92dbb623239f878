//! What becomes of a run's children after its end, and what does not become of others'.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{status::condition, tasks::DocsRun};
use kube::ResourceExt;
use serde_json::json;
use testkit::suite::Env;

use super::{
    super::children::{keeps, preserve, until_left},
    blocked::{Step, blocked, blocked_with, writer},
    fixture::{Bench, Expect, LIMIT, one_commit, phase_of},
};

/// A run that succeeds under whatever is configured: its Job was made.
async fn succeeds(bench: &Bench, name: &str) -> Result<DocsRun> {
    let repository = bench.repository(name).await?;
    bench.start(name, &writer(1)).await?;
    let run = bench.finished(name, LIMIT).await?;
    let status = run.status.clone().unwrap_or_default();
    ensure!(phase_of(&status) == "Succeeded", "{status:?}");
    one_commit(&run, &repository)?;
    Ok(run)
}

/// S0.5, S0.9: enabled, disabled, and changed in between.
pub(super) async fn configured(env: Env) -> Result<String> {
    let lines = |cleanup: &str| {
        format!(
            "    allowedNetworks: [198.18.0.0/24]\n  cleanup: {{ completedJobDelayMinutes: 0, failedJobDelayMinutes: 0, {cleanup} }}\n"
        )
    };
    let bench = Bench::configured(env, &lines("enabled: true")).await?;
    let first = succeeds(&bench, "first").await?;
    until_left(&bench.env, &first, (0, 0, 0), LIMIT).await?;
    bench.same_status(&first).await?;

    let down = bench.stopped().await?;
    let bench = down.up_with(&lines("enabled: false")).await?;
    let second = succeeds(&bench, "second").await?;
    keeps(&bench.env, &second, (1, 1, 1)).await?;

    let down = bench.stopped().await?;
    let bench = down.up_with(&lines("deleteConfigMap: false")).await?;
    let third = succeeds(&bench, "third").await?;
    for run in [&second, &third] {
        until_left(&bench.env, run, (0, 0, 1), LIMIT).await?;
    }
    keeps(&bench.env, &third, (0, 0, 1)).await?;

    let down = bench.stopped().await?;
    let bench = down.up_with(&lines("enabled: true")).await?;
    let fourth = succeeds(&bench, "fourth").await?;
    for run in [&second, &third, &fourth] {
        until_left(&bench.env, run, (0, 0, 0), LIMIT).await?;
    }
    for run in [&first, &second, &third, &fourth] {
        bench.same_status(run).await?;
        bench.deletes(run).await?;
    }
    bench.done().await?;
    Ok("enabled, disabled, without ConfigMaps, enabled: each run had its Job".to_owned())
}

/// R03: nothing of another run goes with those of the first.
pub(super) async fn others(bench: &Bench) -> Result<String> {
    // Longer than both of the others take, also on a busy machine.
    let second = blocked(bench, "second", Step::Writing(150)).await?;
    let before = children_of(bench, &second.run).await?;
    ensure!(before.len() == 3, "{before:?}");
    // Cleaned up, and deleted, while the other one is at work.
    let keep = json!({ "childTTL": { "succeeded": "1s" } });
    let cleaned = blocked_with(bench, "cleaned", Step::Writing(1), keep).await?;
    let done = bench
        .until("cleaned", LIMIT, "finished", |status| {
            status.progress.is_true(condition::SUCCEEDED)
        })
        .await?;
    one_commit(&done, &cleaned.repository)?;
    until_left(&bench.env, &done, (0, 0, 0), LIMIT).await?;
    bench.deletes(&done).await?;
    let deleted = blocked(bench, "deleted", Step::Writing(600)).await?;
    bench.deletes(&deleted.run).await?;
    let seen = bench.runs().get("second").await?.status;
    let seen = seen.unwrap_or_default();
    ensure!(phase_of(&seen) == "Running", "{seen:?}");
    let after = children_of(bench, &second.run).await?;
    ensure!(after == before, "{after:?} was {before:?}");
    let expect = Expect::default().within(Duration::from_secs(180));
    let run = bench.pushed("second", &second.repository, &expect).await?;
    bench.deletes(&run).await?;
    Ok("one cleaned up, one deleted, the third untouched".to_owned())
}

/// Names and UIDs of a run's Jobs, Pods and ConfigMaps.
async fn children_of(bench: &Bench, run: &DocsRun) -> Result<Vec<(String, Option<String>)>> {
    let mut all = Vec::new();
    for job in bench.jobs_of(run).await? {
        all.push((job.name_any(), job.uid()));
    }
    for pod in bench.pods_of(run).await? {
        all.push((pod.name_any(), pod.uid()));
    }
    for map in bench.maps_of(run).await? {
        all.push((map.name_any(), map.uid()));
    }
    Ok(all)
}

pub(super) async fn kept(bench: &Bench) -> Result<String> {
    let repository = bench.repository("good").await?;
    bench.agent("good", &writer(1), json!({})).await?;
    bench.agent("bad", "exit 3", json!({})).await?;
    // Long enough to be seen.
    let mut keep = json!({ "childTTL": { "succeeded": "8s", "failed": "8s" } });
    bench.submit("good", keep.clone()).await?;
    let good = bench
        .pushed("good", &repository, &Expect::default())
        .await?;
    keep["repositoryUrl"] = json!(bench.git.https_url("good"));
    bench.submit("bad", keep).await?;
    let bad = bench.ended("bad", &Expect::failure("NonZeroExit")).await?;
    for run in [&good, &bad] {
        until_left(&bench.env, run, (0, 0, 0), LIMIT).await?;
        keeps(&bench.env, run, (0, 0, 0)).await?;
        bench.same_status(run).await?;
    }
    let result = bad.status.clone().and_then(|status| status.attempt.result);
    let result = result.context("no result")?;
    ensure!(result.exit_code == Some(3), "{result:?}");
    for run in [&good, &bad] {
        bench.deletes(run).await?;
    }
    // One that is dear stays until it is not.
    let repository = bench.repository("dear").await?;
    bench.agent("dear", &writer(1), json!({})).await?;
    let keep = json!({ "childTTL": { "succeeded": "1s" } });
    bench.submit("dear", keep).await?;
    bench.patch("dear", preserve(Some("true"))).await?;
    let dear = bench
        .pushed("dear", &repository, &Expect::default())
        .await?;
    keeps(&bench.env, &dear, (1, 1, 1)).await?;
    bench.patch("dear", preserve(None)).await?;
    until_left(&bench.env, &dear, (0, 0, 0), LIMIT).await?;
    bench.same_status(&dear).await?;
    bench.deletes(&dear).await?;
    Ok("children gone, evidence kept; with 'preserve' they stay".to_owned())
}
