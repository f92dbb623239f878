//! What is left of a run's children.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kube::ResourceExt;
use testkit::{suite::Env, wait::until};
use tokio::time::Instant;

use super::children;

/// Jobs, Pods and ConfigMaps.
pub(super) type Counts = (usize, usize, usize);

/// How many are left.
pub(super) async fn left(env: &Env, run: &(impl ResourceExt + Sync)) -> Result<Counts> {
    let ours = children(&run.uid().unwrap_or_default());
    let jobs = env.api::<Job>().list(&ours).await?.items.len();
    let pods = env.api::<Pod>().list(&ours).await?.items.len();
    let maps = env.api::<ConfigMap>().list(&ours).await?.items.len();
    Ok((jobs, pods, maps))
}

/// Waits until exactly these are left.
pub(super) async fn until_left(
    env: &Env,
    run: &(impl ResourceExt + Sync),
    wanted: Counts,
    within: Duration,
) -> Result<()> {
    let what = format!("{wanted:?} children of {}", run.name_any());
    until(&what, within, async || {
        let seen = left(env, run).await?;
        Ok(if seen == wanted {
            Ok(())
        } else {
            Err(format!("{seen:?} Jobs, Pods, ConfigMaps"))
        })
    })
    .await
}

/// These are left, and stay so for a while.
pub(super) async fn keeps(
    env: &Env,
    run: &(impl ResourceExt + Sync),
    wanted: Counts,
) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        let seen = left(env, run).await?;
        ensure!(seen == wanted, "{seen:?}, wanted {wanted:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
