//! A HelmRelease is suspended while Helm works on it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::{batch::v1::Job, core::v1::Secret};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::{fixture::LIMIT, flux::check_text};
use crate::flux::{
    HELM, REQUESTED_AT, charts, create_any, dynamic, ready, release, release_secret,
};

/// Duration of the Helm action.
const ACTION: Duration = Duration::from_secs(20);
/// The suspension comes at the beginning of the action, so its observation takes at least this long.
const LEAST: Duration = Duration::from_secs(15);

pub(super) async fn during_an_action(env: Env) -> Result<String> {
    let _charts = charts(&env).await?;
    let values = json!({"seconds": ACTION.as_secs(), "text": "first"});
    create_any(&env, release("slow", "sleeper", "1.0.0", &values)).await?;
    let (releases, jobs) = (dynamic(&env, HELM, "HelmRelease"), env.api::<Job>());
    until("the hook to run", LIMIT, async || {
        let status = jobs.get_opt("slow-hook").await?.and_then(|job| job.status);
        let is_running = status
            .as_ref()
            .is_some_and(|status| status.ready == Some(1));
        Ok(met(is_running, || format!("{status:?}")))
    })
    .await?;

    // One patch, so that no reconciliation sees the token without the suspension.
    let begin = Instant::now();
    patch(
        &releases,
        json!({"metadata": {"annotations": {REQUESTED_AT: "suspend"}}, "spec": {"suspend": true}}),
    )
    .await?;
    let suspended = handled(&releases, &jobs, "suspend").await?;
    let took = begin.elapsed();
    ensure!(
        took > LEAST,
        "the token was handled after {:.1} s, but the Helm action takes {} s",
        took.as_secs_f64(),
        ACTION.as_secs()
    );
    let newest = &suspended.data["status"]["history"][0];
    ensure!(
        newest["status"] == "deployed" && newest["version"] == 1,
        "the token was handled while the history says {newest}"
    );

    // From here on Helm does nothing, although there is something to do.
    patch(
        &releases,
        json!({
            "metadata": {"annotations": {REQUESTED_AT: "change"}},
            "spec": {"values": {"seconds": 0, "text": "second"}},
        }),
    )
    .await?;
    let changed = handled(&releases, &jobs, "change").await?;
    let newest = &changed.data["status"]["history"][0];
    ensure!(
        newest["version"] == 1,
        "a suspended release was upgraded: {newest}"
    );
    check_text(&env, "slow", "first").await?;
    let second = release_secret("slow", 2);
    ensure!(
        env.api::<Secret>().get_opt(&second).await?.is_none(),
        "a suspended release has the Secret '{second}'"
    );

    patch(&releases, json!({"spec": {"suspend": false}})).await?;
    ready(&releases, "slow", LIMIT).await?;
    check_text(&env, "slow", "second").await?;
    Ok(format!(
        "suspended at the start of the action, observed {:.1} s later, after its end",
        took.as_secs_f64()
    ))
}

async fn patch(releases: &Api<DynamicObject>, change: serde_json::Value) -> Result<()> {
    let patch = Patch::Merge(change);
    releases
        .patch("slow", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Waits until helm-controller reports the token. Fails if the hook still runs then.
async fn handled(
    releases: &Api<DynamicObject>,
    jobs: &Api<Job>,
    token: &str,
) -> Result<DynamicObject> {
    until(&format!("the token '{token}'"), LIMIT, async || {
        let release = releases.get("slow").await?;
        let seen = &release.data["status"]["lastHandledReconcileAt"];
        if *seen != *token {
            return Ok(Err(format!("{seen} was handled last")));
        }
        let status = jobs.get("slow-hook").await?.status.unwrap_or_default();
        ensure!(
            status.completion_time.is_some(),
            "the token '{token}' was handled while the Helm action runs: {status:?}"
        );
        Ok(Ok(release))
    })
    .await
}
