//! Whether Tenants are isolated is tried, not assumed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tenants::{ExpectedResult, Tenant, TenantStatus, condition};
use k8s_openapi::api::{core::v1::Pod, networking::v1::NetworkPolicy};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::fixture::{Bench, HOME, SAID, both, reason, told_of};

/// The policy engine of the testbed.
const ENGINE: &str = "kube-router";
/// Two Pods start, try for some seconds, and are read; what could not be tried is tried again after a
/// minute.
const PROVEN: Duration = Duration::from_secs(170);

fn probed(mut spec: Value) -> Value {
    spec["isolation"] = json!({ "probe": true });
    spec
}

async fn is(bench: &Bench, name: &str, value: &str, why: &str) -> Result<Tenant> {
    let what = format!("{name}: NetworkIsolated={value}, {why}");
    let tenants = bench.tenants();
    until(&what, PROVEN, async || {
        let seen = tenants.get(name).await?;
        let status = seen.status.clone().unwrap_or_default();
        let said = status.progress.condition(condition::NETWORK_ISOLATED);
        Ok(
            if reason(&status, condition::NETWORK_ISOLATED) == (value, why) {
                Ok(seen)
            } else {
                Err(format!("{said:?}, tried {:?}", tried(&status)))
            },
        )
    })
    .await
}

fn tried(status: &TenantStatus) -> Vec<String> {
    let all = status.isolation.iter().flat_map(|one| &one.connections);
    all.map(|one| format!("{} -> {}: {:?}", one.from, one.to, one.observed))
        .collect()
}

/// With policies enforced it is proven, and what was tried is listed.
pub(super) async fn proven(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let b = bench.launch("b", both()).await?;
    let a = bench.launch("a", probed(both())).await?;
    let seen = is(&bench, &a, "True", "Isolated").await?;
    let status = seen.status.context("no status")?;
    let known = status.isolation.clone().context("no isolation")?;
    ensure!(known.last_proved_at.is_some(), "no time");
    let (wanted, refused): (Vec<_>, Vec<_>) = known
        .connections
        .iter()
        .partition(|one| one.expected == ExpectedResult::Allowed);
    ensure!(
        wanted.len() >= 3 && refused.len() >= 4,
        "{:?}",
        tried(&status)
    );
    // The Pods that tried are gone, and it does not try again by itself.
    gone(&bench, &a).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let later = bench.tenants().get(&a).await?.status.unwrap_or_default();
    ensure!(
        later.isolation == status.isolation,
        "tried again: {:?}",
        later.isolation
    );

    // A policy that someone made by hand is found at once, and said.
    let policies: Api<NetworkPolicy> = bench.of(&a);
    let open = json!({
        "metadata": { "name": "by-hand" }, "spec": { "podSelector": {}, "ingress": [{}] },
    });
    bench.put::<NetworkPolicy>(&a, open).await?;
    let begin = std::time::Instant::now();
    let seen = is(&bench, &a, "False", "UnmanagedPolicy").await?;
    let took = begin.elapsed();
    ensure!(took < SAID, "found after {took:?}");
    bench.explained(&a, "UnmanagedPolicy").await?;
    let status = seen.status.context("no status")?;
    let said = status.progress.condition(condition::NETWORK_ISOLATED);
    ensure!(
        said.is_some_and(|one| one.message.contains("'by-hand'")),
        "{said:?}"
    );
    let series = r#"orchestrator_resource_status_condition{kind="Tenant",condition="NetworkIsolated",status="False"}"#;
    until("the metric", SAID, async || {
        let count = bench.metric(series).await?;
        Ok(met(count > 0.5, || format!("{count}")))
    })
    .await?;
    policies.delete("by-hand", &DeleteParams::default()).await?;
    let closed = is(&bench, &a, "True", "Isolated").await?;
    let last = closed.status.and_then(|status| status.isolation);
    ensure!(
        last.and_then(|one| one.last_proved_at).map(|time| time.0)
            > known.last_proved_at.as_ref().map(|time| time.0),
        "what was tried before it was open is said of afterwards"
    );
    told_of(&bench, &a, "Warning", "NetworkIsolated is False").await?;
    bench.deletes(&a).await?;
    bench.deletes(&b).await?;
    Ok(format!(
        "{} connections; a policy by hand was found after {:.1} s",
        known.connections.len(),
        took.as_secs_f64()
    ))
}

async fn gone(bench: &Bench, tenant: &str) -> Result<()> {
    let ours = ListParams::default().labels("orchestrator.io/component=probe");
    let name = [api::names::NAME, "=", tenant].concat();
    let outside =
        ListParams::default().labels(&["orchestrator.io/component=probe,", &name].concat());
    let inside: Api<Pod> = bench.of(tenant);
    let home: Api<Pod> = Api::namespaced(bench.client(), HOME);
    until(
        "the Pods that tried to be gone",
        Duration::from_secs(30),
        async || {
            let left =
                inside.list(&ours).await?.items.len() + home.list(&outside).await?.items.len();
            Ok(met(left == 0, || format!("{left} are left")))
        },
    )
    .await
}

/// Nothing to try: that is said, and is not called isolated.
pub(super) async fn nothing(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench
        .launch(
            "a",
            probed(json!({ "networkPolicy": { "enabled": false } })),
        )
        .await?;
    is(&bench, &name, "False", "PoliciesDisabled").await?;
    bench.explained(&name, "PoliciesDisabled").await?;
    bench.deletes(&name).await?;
    Ok("without policies nothing is isolated".to_owned())
}

/// Alone: no policy is carried out any more, and that is found.
pub(super) async fn not_enforced(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let control = bench
        .env
        .testbed("a policy engine to stop")?
        .control
        .clone();
    let lonely = bench.create("lonely", probed(json!({}))).await?;
    is(&bench, &lonely, "Unknown", "NothingToProbe").await?;
    bench.explained(&lonely, "NothingToProbe").await?;
    bench.deletes(&lonely).await?;

    let mut spec = probed(both());
    spec["networkPolicy"] = json!({ "allowedNamespaces": [HOME] });
    let a = bench.create("a", spec).await?;
    let seen = is(&bench, &a, "True", "Isolated").await?;
    let status = seen.status.context("no status")?;
    let first = status.isolation.and_then(|one| one.last_proved_at);

    // Who was allowed is not any more, and nobody carries that out.
    control.stop(ENGINE).await?;
    let result = async {
        bench
            .change(&a, json!({ "networkPolicy": { "allowedNamespaces": [] } }))
            .await?;
        let seen = is(&bench, &a, "False", "PolicyNotEnforced").await?;
        bench.explained(&a, "PolicyNotEnforced").await?;
        let status = seen.status.context("no status")?;
        let said = status.progress.condition(condition::NETWORK_ISOLATED);
        anyhow::Ok(said.map(|one| one.message.clone()).unwrap_or_default())
    }
    .await;
    control.restart(ENGINE).await?;
    let said = result?;
    // Carried out again, and tried again after the next change.
    bench.change(&a, json!({ "networkPolicy": { "egressRules": [{ "to": [{ "network": "10.99.0.0/16" }], "ports": [{ "port": 443 }] }] } })).await?;
    let seen = is(&bench, &a, "True", "Isolated").await?;
    let status = seen.status.context("no status")?;
    let last = status.isolation.and_then(|one| one.last_proved_at);
    ensure!(
        first.map(|time| time.0) < last.map(|time| time.0),
        "the time did not move"
    );
    bench.deletes(&a).await?;
    Ok(said)
}
