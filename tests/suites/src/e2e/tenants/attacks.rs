//! What others may try to take from a Tenant, or to keep it from.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment, core::v1::ResourceQuota, networking::v1::NetworkPolicy,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::{
    super::{attacks::tried, policies::Bound, why::now},
    fixture::{Bench, LIMIT, both, labelled, namespace},
};

/// Someone removes the finalizer of a Tenant that is deleted with its data.
pub(super) async fn stripped_finalizer(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.create("a", json!({})).await?;
    let tenant = bench.running(&name).await?;
    ensure!(!tenant.finalizers().is_empty(), "it has no finalizer");
    let tenants = bench.tenants();
    let strip = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    tenants
        .patch(&name, &PatchParams::default(), &strip)
        .await?;
    let restored = until("the finalizer", Duration::from_secs(5), async || {
        let seen = tenants.get(&name).await?;
        let is_back = seen.finalizers() == tenant.finalizers();
        Ok(met(is_back, || "none".to_owned()))
    });
    tried(restored.await)?;
    bench.deletes(&name).await?;
    Ok("put back, and the Tenant went after its namespace".to_owned())
}

/// The cluster refuses the Deployment and the quota of a Tenant for long. Meanwhile someone deletes the
/// policy that closes its namespace.
pub(super) async fn deaf_backoff(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.create("a", both()).await?;
    let tenant = bench.running(&name).await?;
    let refusal = refuse(&bench, &name).await?;
    let (gone, all) = (DeleteParams::default(), labelled(&tenant));
    let deployments: Api<Deployment> = bench.of(&name);
    deployments.delete_collection(&gone, &all).await?;
    let quotas: Api<ResourceQuota> = bench.of(&name);
    quotas.delete_collection(&gone, &all).await?;
    let wait = Duration::from_secs(12);
    bench
        .until(&name, LIMIT, "a long wait", |status| {
            let retry = status.progress.retry.as_ref();
            let next = retry.and_then(|retry| retry.next_at.as_ref());
            let is_long = next.is_some_and(|next| next.0 > now() + wait);
            is_long || retry.is_some_and(|retry| retry.every.is_some())
        })
        .await?;
    let policies: Api<NetworkPolicy> = bench.of(&name);
    policies.delete("default-deny", &gone).await?;
    let begin = std::time::Instant::now();
    let closed = until("default-deny", Duration::from_secs(5), async || {
        let seen = policies.get_opt("default-deny").await?;
        Ok(met(seen.is_some(), || "none".to_owned()))
    });
    tried(closed.await)?;
    let took = begin.elapsed();
    let left = quotas.list(&ListParams::default()).await?.items.len();
    ensure!(left == 0, "the policy of the case refuses no quota");
    refusal.release().await?;
    bench.running(&name).await?;
    bench.deletes(&name).await?;
    Ok(format!(
        "closed again after {:.1} s, while something else was refused",
        took.as_secs_f64()
    ))
}

/// Refuses new Deployments and quotas in the namespace of a Tenant.
async fn refuse(bench: &Bench, name: &str) -> Result<Bound> {
    let matching = json!({ "matchConstraints": { "resourceRules": [
        { "apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["CREATE"],
          "resources": ["deployments"] },
        { "apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"],
          "resources": ["resourcequotas"] },
    ] } });
    let place = namespace(name);
    let bound = Bound::rejecting(&bench.env, matching, "not now", Some(&place)).await?;
    // The API server hears of its own policies a moment later.
    let quotas: Api<ResourceQuota> = bench.of(name);
    let probe = serde_json::from_value(json!({ "metadata": { "name": "probe" }, "spec": {} }))?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    until("the refusal", Duration::from_secs(20), async || {
        Ok(match quotas.create(&dry, &probe).await {
            Ok(_) => Err("accepted".to_owned()),
            Err(_refused) => Ok(()),
        })
    })
    .await?;
    Ok(bound)
}
