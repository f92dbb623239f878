//! Readiness with a CRD that is older than the operator.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::wait::{met, until};

use super::{NAMESPACE, Shell};

/// Two rounds of the operator's check, and of the kubelet's probe.
const NOTICED: Duration = Duration::from_secs(90);
const PODS: &str = "app.kubernetes.io/component=tasks";

/// A CRD without a field makes the Pods unready, with the field in the log. They are not restarted.
pub(super) async fn old_crd(shell: &Shell) -> Result<String> {
    let version = "/spec/versions/0";
    let field = format!("{version}/schema/openAPIV3Schema/properties/status/properties/reason");
    let patch = json!([
        { "op": "remove", "path": format!("{version}/selectableFields") },
        { "op": "remove", "path": field },
    ]);
    let before = restarts(shell).await?;
    shell
        .check(&format!(
            "kubectl patch crd taskruns.orchestrator.io --type json --patch '{patch}'"
        ))
        .await?;
    let noticed = unready_with_reason(shell).await;
    // Later cases need the CRD, also if this one fails.
    shell
        .check(
            "kubectl apply --server-side --force-conflicts -f charts/orchestrator/generated/crds/tasks/taskruns.yaml",
        )
        .await?;
    noticed?;
    ready(shell, true).await?;
    let after = restarts(shell).await?;
    ensure!(before == after, "restarted: {before} before, {after} after");
    Ok(
        "an older CRD makes the Pods unready, and its replacement ready again, without a restart"
            .to_owned(),
    )
}

async fn unready_with_reason(shell: &Shell) -> Result<()> {
    ready(shell, false).await?;
    let log = shell
        .check(&format!(
            "kubectl --namespace {NAMESPACE} logs --selector {PODS} --tail -1"
        ))
        .await?;
    let says =
        "CRD 'taskruns.orchestrator.io' is older than this operator: it lacks 'status.reason'";
    ensure!(log.contains(says), "no log has \"{says}\": {log}");
    Ok(())
}

async fn pods(shell: &Shell) -> Result<Vec<Value>> {
    let list = shell
        .get(&format!("pods --namespace {NAMESPACE} --selector {PODS}"))
        .await?;
    let items = list["items"].as_array();
    Ok(items.context("a list without items")?.clone())
}

async fn restarts(shell: &Shell) -> Result<u64> {
    let pods = pods(shell).await?;
    ensure!(!pods.is_empty(), "no Pod of the operator");
    let count = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
    Ok(pods.iter().filter_map(count).sum())
}

/// Waits until all Pods are ready, or none.
async fn ready(shell: &Shell, wanted: bool) -> Result<()> {
    let expected = format!("ready={wanted} of all Pods");
    until(&expected, NOTICED, async || {
        let pods = pods(shell).await?;
        let is_ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"].as_bool();
        let found: Vec<Option<bool>> = pods.iter().map(is_ready).collect();
        let is_met = found.iter().all(|found| *found == Some(wanted));
        Ok(met(is_met && !found.is_empty(), || format!("{found:?}")))
    })
    .await
}
