//! A value that was set before an upgrade of the documentation stays.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::wait::{met, until};

use super::{ACCOUNT, LIMIT, NAMESPACE, Shell};

/// A value that differs from its default.
const FILTER: &str = "info";

/// Replaces all values by one, and waits until an operator leads with it.
pub(super) async fn set(shell: &Shell) -> Result<String> {
    shell
        .check(&format!(
            "helm upgrade orchestrator charts/orchestrator --namespace {NAMESPACE} --wait --reset-values \
             --set config.log.filter={FILTER}"
        ))
        .await?;
    shell
        .check(&format!(
            "kubectl --namespace {NAMESPACE} rollout status deployment/{ACCOUNT} --timeout 60s"
        ))
        .await?;
    until("a new Pod to lead", LIMIT, async || {
        let (holder, pods) = (holder(shell).await?, remaining(shell).await?);
        let is_met = pods.iter().any(|pod| holder.starts_with(pod.as_str()));
        Ok(met(is_met, || format!("'{holder}' of {pods:?}")))
    })
    .await?;
    is_set(shell).await
}

/// The upgrade of the tutorial has set its own value, and kept the earlier one.
pub(super) async fn kept(shell: &Shell) -> Result<String> {
    let values = values(shell).await?;
    ensure!(
        values["operators"]["tenants"]["enabled"] == true,
        "the upgrade did not set its own value: {values}"
    );
    is_set(shell).await
}

async fn values(shell: &Shell) -> Result<Value> {
    let line = format!("helm get values orchestrator --namespace {NAMESPACE} --output json");
    let text = shell.check(&line).await?;
    serde_json::from_str(&text).with_context(|| format!("'{line}' printed no JSON: {text}"))
}

/// The value is one of the release, and in the file that the operators read.
async fn is_set(shell: &Shell) -> Result<String> {
    let values = values(shell).await?;
    ensure!(
        values["config"]["log"]["filter"] == FILTER,
        "the value is lost: {values}"
    );
    let map = shell
        .get(&format!(
            "configmap orchestrator-config --namespace {NAMESPACE}"
        ))
        .await?;
    let file = map["data"]["config.yaml"].as_str().unwrap_or_default();
    let line = format!("filter: {FILTER}");
    ensure!(file.contains(&line), "config.yaml is '{file}'");
    Ok(format!("config.log.filter={FILTER}"))
}

async fn holder(shell: &Shell) -> Result<String> {
    let lease = shell
        .get(&format!("lease {ACCOUNT} --namespace {NAMESPACE}"))
        .await?;
    let holder = lease["spec"]["holderIdentity"].as_str();
    Ok(holder.unwrap_or_default().to_owned())
}

/// The names of the operator's Pods that are not on their way out. One that stops gives up the Lease.
async fn remaining(shell: &Shell) -> Result<Vec<String>> {
    let list = shell
        .get(&format!(
            "pods --namespace {NAMESPACE} --selector app.kubernetes.io/component=tasks"
        ))
        .await?;
    let pods = list["items"].as_array().context("a list without items")?;
    let remaining = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let names = remaining.filter_map(|pod| pod["metadata"]["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}
