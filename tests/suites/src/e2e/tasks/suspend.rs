//! Runs that are suspended, and runs that are called off.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::tasks::TaskRunStatus;
use serde_json::json;
use testkit::{suite::Env, wait::until};

use super::fixture::{Bench, Expect, LIMIT, brief, busy, phase_of, reason_of, says_all};

fn is_suspended(status: &TaskRunStatus) -> bool {
    reason_of(status) == "Suspended"
}

/// Suspended: no time counts, and nothing runs.
fn is_at_rest(status: &TaskRunStatus) -> Result<()> {
    ensure!(phase_of(status) == "Pending", "{}", brief(status));
    ensure!(
        status.progress.deadline_at.is_none() && status.started_at.is_none(),
        "a time counts: {:?} {:?}",
        status.progress.deadline_at,
        status.started_at
    );
    ensure!(
        status.disruptions == 0,
        "{} disruptions",
        status.disruptions
    );
    Ok(())
}

pub(super) async fn suspended_before(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("early", "sleep 3", json!({})).await?;
    let run = bench.submit("early", json!({ "suspend": true })).await?;
    let seen = bench
        .until("early", LIMIT, "suspended", is_suspended)
        .await?;
    let status = seen.status.unwrap_or_default();
    is_at_rest(&status)?;
    says_all(&status, &["suspended before it was started"])?;
    ensure!(status.attempts == 0, "{} attempts", status.attempts);
    bench.stays_at(&run, (0, 0), Duration::from_secs(4)).await?;
    ensure!(bench.maps_of(&run).await?.is_empty(), "files without need");
    bench
        .patch("early", json!({ "spec": { "suspend": false } }))
        .await?;
    let expect = Expect {
        events: &["Suspended", "Running", "Succeeded"],
        ..Expect::default()
    };
    bench.ends("early", expect).await?;
    bench.done().await?;
    Ok(brief(&status))
}

pub(super) async fn suspended_during(env: Env) -> Result<String> {
    const TIMEOUT: u64 = 20;
    let bench = Bench::new(env).await?;
    bench.agent("paused", &busy(14), json!({})).await?;
    bench
        .submit("paused", json!({ "timeout": format!("{TIMEOUT}s") }))
        .await?;
    let run = bench.running("paused").await?;
    let begun = Instant::now();
    let first = run
        .status
        .clone()
        .and_then(|status| status.attempt.started_at);
    tokio::time::sleep(Duration::from_secs(4)).await;
    bench
        .patch("paused", json!({ "spec": { "suspend": true } }))
        .await?;
    let seen = bench
        .until("paused", LIMIT, "suspended and stopped", |status| {
            let message = status.progress.message.as_deref().unwrap_or_default();
            is_suspended(status) && message.contains("runs nothing")
        })
        .await?;
    let status = seen.status.unwrap_or_default();
    is_at_rest(&status)?;
    ensure!(status.attempts == 1, "{} attempts", status.attempts);
    says_all(&status, &["Job 'paused-7-v1'"])?;
    let is_held = bench.jobs_of(&run).await?.iter().all(|job| {
        let spec = job.spec.as_ref();
        spec.and_then(|spec| spec.suspend) == Some(true)
    });
    ensure!(is_held, "the Job is not suspended");
    until("its Pod to be gone", LIMIT, async || {
        let count = bench.pods_of(&run).await?.len();
        Ok(if count == 0 {
            Ok(())
        } else {
            Err(format!("{count} Pods"))
        })
    })
    .await?;
    // Beyond the limit that counted from the first start.
    let left = Duration::from_secs(TIMEOUT + 2).saturating_sub(begun.elapsed());
    let left = left.max(Duration::from_secs(4));
    bench.stays_at(&run, (1, 0), left).await?;
    bench
        .patch("paused", json!({ "spec": { "suspend": false } }))
        .await?;
    let again = bench.running("paused").await?;
    let again = again.status.unwrap_or_default();
    let start = again.started_at.clone().context("no start")?;
    let end = again.progress.deadline_at.clone().context("no deadline")?;
    ensure!(
        end.0.duration_since(start.0).unsigned_abs().as_secs() == TIMEOUT,
        "the limit counts from the new start"
    );
    ensure!(
        first.is_some_and(|first| first.0 < start.0),
        "another start"
    );
    let expect = Expect {
        events: &["Running", "Suspended", "Succeeded"],
        ..Expect::default()
    };
    bench.ends("paused", expect).await?;
    bench.done().await?;
    Ok(brief(&status))
}

/// Fails its first attempt, then waits a while for the second.
async fn between(bench: &Bench, name: &str) -> Result<()> {
    let script = "sleep 3; [ \"$ORCHESTRATOR_ATTEMPT\" = 2 ] || exit 4";
    bench.agent(name, script, json!({})).await?;
    let retry =
        json!({ "retry": { "maxAttempts": 2, "backoff": { "initial": "5s", "max": "5s" } } });
    bench.submit(name, retry).await?;
    bench
        .until(name, LIMIT, "between two attempts", |status| {
            reason_of(status) == "NonZeroExit" && phase_of(status) == "Pending"
        })
        .await?;
    Ok(())
}

pub(super) async fn suspended_between(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    between(&bench, "breather").await?;
    let run = bench
        .patch("breather", json!({ "spec": { "suspend": true } }))
        .await?;
    let seen = bench
        .until("breather", LIMIT, "suspended", is_suspended)
        .await?;
    let status = seen.status.unwrap_or_default();
    is_at_rest(&status)?;
    says_all(
        &status,
        &["suspended after attempt 1", "exited with code 4"],
    )?;
    // The second attempt was due by then.
    bench.stays_at(&run, (1, 1), Duration::from_secs(7)).await?;
    bench
        .patch("breather", json!({ "spec": { "suspend": false } }))
        .await?;
    let expect = Expect {
        events: &["Running", "NonZeroExit", "Suspended", "Succeeded"],
        attempts: 2,
        jobs: 2,
        ..Expect::default()
    };
    bench.ends("breather", expect).await?;
    bench.done().await?;
    Ok(brief(&status))
}

/// Neither can it be taken back, nor can the run be started again.
async fn is_final(bench: &Bench, name: &str) -> Result<()> {
    bench
        .refuses(
            name,
            json!({ "spec": { "cancel": false } }),
            "cannot be taken back",
        )
        .await?;
    bench
        .refuses(
            name,
            json!({ "spec": { "contextVersion": 2 } }),
            "cannot be started again",
        )
        .await
}

pub(super) async fn cancelled_before(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("unwanted", "true", json!({})).await?;
    let expect = || Expect {
        phase: "Failed",
        reason: "Cancelled",
        says: &["before it was started"],
        events: &["Cancelled"],
        maybe: &["Suspended"],
        attempts: 0,
        jobs: 0,
        evidence: Some(""),
        ..Expect::default()
    };
    bench.submit("unwanted", json!({ "cancel": true })).await?;
    // The same for one that was held: to call it off needs no start.
    bench
        .submit_as("held", "unwanted", json!({ "suspend": true }))
        .await?;
    bench
        .until("held", LIMIT, "suspended", is_suspended)
        .await?;
    bench
        .patch("held", json!({ "spec": { "cancel": true } }))
        .await?;
    let mut said = String::new();
    for name in ["unwanted", "held"] {
        let seen = bench.ended(name, &expect()).await?;
        is_final(&bench, name).await?;
        ensure!(bench.maps_of(&seen).await?.is_empty(), "files without need");
        said = brief(&seen.status.clone().unwrap_or_default());
        bench.deletes(&seen).await?;
    }
    bench.done().await?;
    Ok(said)
}

pub(super) async fn cancelled_during(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("stopped", &busy(600), json!({})).await?;
    // It has attempts left, and uses none of them.
    let retry = json!({ "retry": { "maxAttempts": 3, "backoff": { "initial": "1s" } } });
    bench.submit("stopped", retry).await?;
    let run = bench.running("stopped").await?;
    bench
        .patch("stopped", json!({ "spec": { "cancel": true } }))
        .await?;
    let expect = Expect {
        phase: "Failed",
        reason: "Cancelled",
        says: &["during attempt 1"],
        events: &["Running", "Cancelled"],
        jobs: 0,
        ..Expect::default()
    };
    let seen = bench.ended("stopped", &expect).await?;
    ensure!(bench.pods_of(&run).await?.is_empty(), "a Pod is left");
    is_final(&bench, "stopped").await?;
    let status = seen.status.clone().unwrap_or_default();
    let result = status.result.clone().unwrap_or_default();
    ensure!(
        result.pod_name.is_some() && result.node.is_some(),
        "{result:?}"
    );
    bench.deletes(&seen).await?;
    bench.done().await?;
    Ok(brief(&status))
}

pub(super) async fn cancelled_between(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    between(&bench, "enough").await?;
    bench
        .patch("enough", json!({ "spec": { "cancel": true } }))
        .await?;
    let expect = Expect {
        phase: "Failed",
        reason: "Cancelled",
        says: &["after attempt 1"],
        events: &["Running", "NonZeroExit", "Cancelled"],
        // What the attempt left stays.
        evidence: Some("NonZeroExit"),
        ..Expect::default()
    };
    let seen = bench.ended("enough", &expect).await?;
    is_final(&bench, "enough").await?;
    bench
        .stays_at(&seen, (1, 1), Duration::from_secs(6))
        .await?;
    let said = brief(&seen.status.clone().unwrap_or_default());
    bench.deletes(&seen).await?;
    bench.done().await?;
    Ok(said)
}
