//! Runs that are suspended, and runs that are called off.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{
    super::children::{keeps, preserve, until_left},
    fixture::{Bench, Expect, LIMIT, brief, busy, phase_of, reason_of, says_all},
};

pub(super) async fn suspended_before(bench: &Bench) -> Result<String> {
    bench.agent("early", "sleep 3", json!({})).await?;
    let run = bench.submit("early", json!({ "suspend": true })).await?;
    let seen = bench.says("early", "Suspended").await?;
    bench.is_at_rest(&seen)?;
    let status = seen.status.unwrap_or_default();
    says_all(&status, &["suspended before it was started"])?;
    ensure!(status.attempts == 0, "{} attempts", status.attempts);
    bench.stays_at(&run, (0, 0), Duration::from_secs(4)).await?;
    ensure!(bench.maps_of(&run).await?.is_empty(), "files without need");
    bench.resume("early").await?;
    let expect = Expect::after(&["Suspended", "Running"]);
    bench.ends("early", expect).await?;
    Ok(brief(&status))
}

pub(super) async fn suspended_during(bench: &Bench) -> Result<String> {
    const TIMEOUT: u64 = 20;
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
    bench.suspend("paused").await?;
    let status = bench.rests("paused", "runs nothing").await?.status;
    let status = status.unwrap_or_default();
    ensure!(status.attempts == 1, "{} attempts", status.attempts);
    says_all(&status, &["Job 'paused-7-v1'"])?;
    bench.is_held(&run).await?;
    // Beyond the limit that counted from the first start.
    let left = Duration::from_secs(TIMEOUT + 2).saturating_sub(begun.elapsed());
    let left = left.max(Duration::from_secs(4));
    bench.stays_at(&run, (1, 0), left).await?;
    bench.resume("paused").await?;
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
    let expect = Expect::after(&["Running", "Suspended"]);
    bench.ends("paused", expect).await?;
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

pub(super) async fn suspended_between(bench: &Bench) -> Result<String> {
    between(bench, "breather").await?;
    let run = bench.suspend("breather").await?;
    let seen = bench.says("breather", "Suspended").await?;
    bench.is_at_rest(&seen)?;
    let status = seen.status.unwrap_or_default();
    says_all(
        &status,
        &["suspended after attempt 1", "exited with code 4"],
    )?;
    // The second attempt was due by then.
    bench.stays_at(&run, (1, 1), Duration::from_secs(7)).await?;
    bench.resume("breather").await?;
    let expect = Expect {
        events: &["Running", "NonZeroExit", "Suspended"],
        attempts: 2,
        jobs: 2,
        ..Expect::default()
    };
    bench.ends("breather", expect).await?;
    Ok(brief(&status))
}

/// Neither can it be taken back, nor can the run be started again.
async fn is_final(bench: &Bench, name: &str) -> Result<()> {
    bench.stays_cancelled(name).await?;
    let again = json!({ "spec": { "contextVersion": 2 } });
    bench.refuses(name, again, "cannot be started again").await
}

pub(super) async fn cancelled_before(bench: &Bench) -> Result<String> {
    bench.agent("unwanted", "true", json!({})).await?;
    bench.submit("unwanted", json!({ "cancel": true })).await?;
    // The same for one that was held: to call it off needs no start.
    bench
        .submit_as("held", "unwanted", json!({ "suspend": true }))
        .await?;
    bench.says("held", "Suspended").await?;
    bench.cancel("held").await?;
    let expect = Expect {
        says: &["before it was started"],
        events: &["Cancelled"],
        maybe: &["Suspended"],
        attempts: 0,
        jobs: 0,
        evidence: Some(""),
        ..Expect::failure("Cancelled")
    };
    let mut said = String::new();
    for name in ["unwanted", "held"] {
        let seen = bench.ended(name, &expect).await?;
        is_final(bench, name).await?;
        ensure!(bench.maps_of(&seen).await?.is_empty(), "files without need");
        said = brief(&seen.status.clone().unwrap_or_default());
        bench.deletes(&seen).await?;
    }
    Ok(said)
}

pub(super) async fn cancelled_during(bench: &Bench) -> Result<String> {
    let script = "trap 'echo told to stop; exit 143' TERM; sleep 600 & wait";
    bench.agent("stopped", script, json!({})).await?;
    // It has attempts left, and uses none of them.
    let more = json!({
        "retry": { "maxAttempts": 3, "backoff": { "initial": "1s" } }, "childTTL": { "failed": "1s" },
    });
    bench.submit("stopped", more).await?;
    bench.running("stopped").await?;
    bench.patch("stopped", preserve(Some("true"))).await?;
    bench.cancel("stopped").await?;
    let expect = Expect {
        says: &["during attempt 1"],
        ..Expect::failure("Cancelled")
    };
    let seen = bench.ended("stopped", &expect).await?;
    keeps(&bench.env, &seen, (1, 1, 1)).await?;
    bench.keeps_log(&seen, "told to stop").await?;
    // Without the annotation, the retention has passed.
    bench.patch("stopped", preserve(None)).await?;
    until_left(&bench.env, &seen, (0, 0, 0), LIMIT).await?;
    is_final(bench, "stopped").await?;
    let status = seen.status.clone().unwrap_or_default();
    let result = status.result.clone().unwrap_or_default();
    ensure!(
        result.pod_name.is_some() && result.node.is_some(),
        "{result:?}"
    );
    bench.deletes(&seen).await?;
    Ok(brief(&status))
}

pub(super) async fn cancelled_between(bench: &Bench) -> Result<String> {
    between(bench, "enough").await?;
    bench.cancel("enough").await?;
    let expect = Expect {
        says: &["after attempt 1"],
        events: &["Running", "NonZeroExit"],
        // What the attempt left stays.
        evidence: Some("NonZeroExit"),
        ..Expect::failure("Cancelled")
    };
    let seen = bench.ended("enough", &expect).await?;
    is_final(bench, "enough").await?;
    bench
        .stays_at(&seen, (1, 1), Duration::from_secs(6))
        .await?;
    let said = brief(&seen.status.clone().unwrap_or_default());
    bench.deletes(&seen).await?;
    Ok(said)
}
