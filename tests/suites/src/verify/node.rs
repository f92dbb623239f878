//! Losing a node, and getting it back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use testkit::{
    cluster::NODE,
    suite::Env,
    wait::{met, until},
};

use super::fixture::{create, output, pod};

pub(super) async fn kubelet(env: Env) -> Result<String> {
    let control = &env.testbed("stopping the kubelet")?.control;
    let start = Instant::now();
    control.stop("kubelet").await?;
    ready(&env, "Unknown")
        .await
        .context("after the kubelet was stopped")?;
    let lost = start.elapsed();
    let start = Instant::now();
    control.restart("kubelet").await?;
    ready(&env, "True")
        .await
        .context("after the kubelet was started again")?;
    let back = start.elapsed();
    create(&env, pod("after", "echo works")?).await?;
    let said = output(&env, "after")
        .await
        .context("a Pod on the node that came back")?;
    Ok(format!(
        "NotReady after {:.0} s, Ready after {:.0} s, then a Pod {}",
        lost.as_secs_f64(),
        back.as_secs_f64(),
        said.trim()
    ))
}

async fn ready(env: &Env, wanted: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(env.client.clone());
    until(
        &format!("the node's Ready to be {wanted}"),
        Duration::from_secs(90),
        async || {
            let conditions = nodes
                .get(NODE)
                .await?
                .status
                .and_then(|status| status.conditions)
                .unwrap_or_default();
            let ready = conditions
                .into_iter()
                .find(|condition| condition.type_ == "Ready")
                .map(|condition| condition.status);
            Ok(met(ready.as_deref() == Some(wanted), || {
                format!("{ready:?}")
            }))
        },
    )
    .await
}
