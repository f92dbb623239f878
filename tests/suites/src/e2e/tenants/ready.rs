//! When Tenants run, and what they say when they do not.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use api::tenants::{ComponentPhase, Tenant, TenantPhase, TenantStatus, condition};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{ConfigMap, LimitRange, PersistentVolumeClaim, Pod, ResourceQuota, Secret, Service},
    networking::v1::NetworkPolicy,
    rbac::v1::RoleBinding,
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::super::status_history::StatusHistory;
use super::fixture::{
    Bench, LIMIT, NOTES, REDIS, both, namespace, readiness, ready_reason, reason, redis, server,
    told, told_of,
};

/// S2.1, S2.2: running only when both are ready, with all that belongs to it, and S2.5: everything is
/// labelled, nothing has an owner reference.
pub(super) async fn runs(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.name("a");
    let begin = std::time::Instant::now();
    let history = watch(&bench, &name).await?;
    bench.create("a", both()).await?;
    let status = bench.running(&name).await?.status.unwrap_or_default();
    let took = begin.elapsed().as_secs_f64();
    for kind in [
        "Ready",
        condition::NAMESPACE_READY,
        condition::QUOTA_READY,
        condition::REDIS_READY,
        condition::SERVER_READY,
        condition::NETWORK_POLICIES_READY,
    ] {
        let (value, why) = reason(&status, kind);
        ensure!(value == "True", "{kind} is '{value}' by '{why}'");
    }
    ensure!(
        status.namespace.as_deref() == Some(&namespace(&name)),
        "{status:?}"
    );
    all_ours(&bench, &name).await?;
    let versions = history.versions().await?;
    bench.deletes(&name).await?;
    let seen = phases(&versions, &name)?;
    ensure!(seen.contains(&"Provisioning".to_owned()), "{seen:?}");
    ensure!(
        !seen.contains(&"Degraded".to_owned()),
        "an ordinary start: {seen:?}"
    );
    Ok(format!("{} after {took:.1} s", seen.join(", ")))
}

/// Watches all Tenants, and the workloads in the namespace that one of them will have.
async fn watch(bench: &Bench, name: &str) -> Result<StatusHistory> {
    let client = bench.client();
    let inside = |resource| Api::namespaced_with(client.clone(), &namespace(name), &resource);
    StatusHistory::of(vec![
        Api::all_with(client.clone(), &ApiResource::erase::<Tenant>(&())),
        inside(ApiResource::erase::<Deployment>(&())),
        inside(ApiResource::erase::<StatefulSet>(&())),
    ])
    .await
}

/// The phases of a Tenant, in order. Fails if a version reports `Running`, and server and Redis were not both
/// ready when it was written. One etcd counts the versions of all objects, so they have one order.
fn phases(versions: &[DynamicObject], name: &str) -> Result<Vec<String>> {
    let number = |object: &DynamicObject| -> Result<u64> {
        let version = object.resource_version().context("no resourceVersion")?;
        Ok(version.parse()?)
    };
    let mut ordered = Vec::new();
    for object in versions {
        ordered.push((number(object)?, object));
    }
    ordered.sort_by_key(|(number, _)| *number);
    let mut ready = BTreeMap::from([("Deployment", false), ("StatefulSet", false)]);
    let mut phases: Vec<String> = Vec::new();
    for (number, object) in ordered {
        let kind = object
            .types
            .as_ref()
            .map_or("", |types| types.kind.as_str());
        let status = &object.data["status"];
        if let Some(is_ready) = ready.get_mut(kind) {
            *is_ready = status["readyReplicas"] == 1;
        } else if object.name_any() == name {
            let phase = status["phase"].as_str().unwrap_or_default();
            ensure!(
                phase != "Running" || ready.values().all(|is_ready| *is_ready),
                "R50: version {number} is Running with {ready:?}"
            );
            if phases.last().is_none_or(|last| last != phase) {
                phases.push(phase.to_owned());
            }
        }
    }
    ensure!(
        phases.iter().any(|phase| phase == "Running"),
        "no version is Running: {phases:?}"
    );
    Ok(phases)
}

/// No child has an owner reference; each says whose it is.
async fn all_ours(bench: &Bench, name: &str) -> Result<()> {
    let uid = bench.tenants().get(name).await?.uid();
    macro_rules! look {
        ($($kind:ty),*) => {$(
            let objects = bench.of::<$kind>(name).list(&ListParams::default()).await?.items;
            for object in objects {
                let is_the_clusters = ["kube-root-ca.crt"].contains(&object.name_any().as_str());
                ensure!(object.owner_references().is_empty(), "an owner: {object:?}");
                ensure!(
                    is_the_clusters || object.labels().contains_key(api::names::KIND),
                    "no label: {object:?}"
                );
                // A volume's claim is made by the StatefulSet, and outlives the Tenant that asked first.
                let is_claim = <$kind as k8s_openapi::Resource>::KIND == "PersistentVolumeClaim";
                ensure!(
                    is_the_clusters || is_claim || object.labels().get(api::names::UID) == uid.as_ref(),
                    "another's: {object:?}"
                );
            }
        )*};
    }
    look!(
        ResourceQuota,
        LimitRange,
        RoleBinding,
        NetworkPolicy,
        ConfigMap,
        Secret,
        Service,
        Deployment,
        StatefulSet,
        PersistentVolumeClaim
    );
    Ok(())
}

/// What goes through one Tenant's server is in its Redis, and in no other's.
pub(super) async fn apart(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let a = bench.create("a", both()).await?;
    let b = bench.create("b", both()).await?;
    bench.running(&a).await?;
    bench.running(&b).await?;
    bench.stores(&a, "color=blue").await?;
    let told = bench.ask(&a, "color").await?;
    ensure!(told == "blue", "the server says '{told}'");
    let stored = bench.redis(&a, "GET color").await?;
    ensure!(stored == "blue", "its Redis says '{stored}'");
    let other = bench.redis(&b, "GET color").await?;
    ensure!(other.is_empty(), "the other's Redis says '{other}'");
    let other = bench.ask(&b, "color").await?;
    ensure!(other.is_empty(), "the other's server says '{other}'");
    // Without the password nobody is answered, and the passwords differ.
    let asked = bench.redis(&a, "--no-auth-warning -a wrong PING").await?;
    ensure!(
        asked.contains("WRONGPASS") || asked.contains("NOAUTH"),
        "'{asked}'"
    );
    let password = async |tenant: &str| -> Result<Vec<u8>> {
        let secret = bench.of::<Secret>(tenant).get("tenant-redis").await?;
        let data = secret.data.context("an empty Secret")?;
        Ok(data.get("password").context("no password")?.0.clone())
    };
    ensure!(password(&a).await? != password(&b).await?, "one password");
    bench.deletes(&a).await?;
    bench.deletes(&b).await?;
    Ok("stored through A, read from A's Redis, unknown to B".to_owned())
}

/// A Tenant without Redis and server is a whole Tenant.
pub(super) async fn bare(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench
        .create(
            "a",
            json!({ "resources": {
                "cpu": { "request": "1", "limit": "2000m" },
                "memory": { "request": "1Gi", "limit": "2Gi" },
                "storage": { "total": "1Gi", "perVolume": "512Mi" },
                "pods": { "limit": 5 },
            } }),
        )
        .await?;
    let seen = bench.running(&name).await?;
    let status = seen.status.unwrap_or_default();
    for part in [condition::REDIS_READY, condition::SERVER_READY] {
        ensure!(reason(&status, part) == ("", ""), "{part} of nothing");
    }
    let quotas = bench.of::<ResourceQuota>(&name);
    let quota = quotas.get("tenant").await?;
    let hard = quota.spec.and_then(|spec| spec.hard).unwrap_or_default();
    ensure!(hard["limits.cpu"].0 == "2", "R57: {hard:?}");
    let pods = bench.pods(&name, "server").await?;
    ensure!(pods.is_empty(), "Pods of nothing");
    bench.deletes(&name).await?;
    Ok(told(&status))
}

/// Replicas, image, configuration and quota are changed; it runs again with each.
pub(super) async fn changes(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let mut spec = both();
    spec["resources"] = json!({ "pods": { "limit": 5 }, "cpu": { "limit": "4" } });
    let name = bench.launch("a", spec).await?;

    let seen = bench
        .becomes(&name, json!({ "server": { "replicas": 2 } }))
        .await?;
    let part = seen.status.unwrap_or_default().server_status;
    let part = part.context("no server")?;
    ensure!(
        part.ready_replicas == 2 && part.total_replicas == 2,
        "{part:?}"
    );
    bench
        .becomes(&name, json!({ "server": { "replicas": 1 } }))
        .await?;

    // Another image: here another name of the same.
    let other = "testbed.local/notes:another";
    if let Ok(cluster) = bench.env.testbed("another image") {
        cluster.tag_image(NOTES, other).await?;
        bench
            .becomes(&name, json!({ "server": { "image": other } }))
            .await?;
        for pod in bench.pods(&name, "server").await? {
            let image = pod.spec.context("no spec")?.containers[0].image.clone();
            ensure!(image.as_deref() == Some(other), "it runs {image:?}");
        }
    }

    // The Redis is started again with what is asked for, and has its data still.
    bench.stores(&name, "kept=yes").await?;
    let config = json!({ "maxmemory": "32mb", "maxmemory-policy": "allkeys-lru" });
    bench
        .becomes(&name, json!({ "redis": { "config": config } }))
        .await?;
    let set = bench.redis(&name, "CONFIG GET maxmemory").await?;
    ensure!(set.contains("33554432"), "'{set}'");
    let kept = bench.ask(&name, "kept").await?;
    ensure!(kept == "yes", "the Redis lost its data: '{kept}'");

    bench
        .becomes(&name, json!({ "resources": { "pods": { "limit": 7 } } }))
        .await?;
    let quota = bench.of::<ResourceQuota>(&name).get("tenant").await?;
    let hard = quota
        .status
        .and_then(|status| status.hard)
        .unwrap_or_default();
    ensure!(hard["pods"].0 == "7", "{hard:?}");
    let usage = async || -> Result<TenantStatus> {
        Ok(bench.tenants().get(&name).await?.status.unwrap_or_default())
    };
    let used = until("the usage", Duration::from_secs(15), async || {
        let status = usage().await?;
        let pods = status.usage.clone().and_then(|usage| usage.pods);
        let pods = pods.map(|pods| pods.used).unwrap_or_default();
        Ok(if pods == "2" { Ok(pods) } else { Err(pods) })
    })
    .await?;

    // No Redis any more: what belonged to it goes, its volume stays.
    bench
        .becomes(&name, json!({ "redis": null, "server": { "env": [] } }))
        .await?;
    let sets = bench
        .of::<StatefulSet>(&name)
        .list(&ListParams::default())
        .await?;
    ensure!(sets.items.is_empty(), "the StatefulSet is still there");
    let claims = bench.of::<PersistentVolumeClaim>(&name);
    ensure!(
        claims.list(&ListParams::default()).await?.items.len() == 1,
        "its volume is gone"
    );
    bench.deletes(&name).await?;
    Ok(format!(
        "replicas, image, configuration, quota ({used} Pods used), without Redis"
    ))
}

pub(super) async fn bad_image(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let mut spec = json!({ "server": server() });
    spec["server"]["image"] = json!("testbed.local/nothing:9");
    let name = bench.create("a", spec).await?;
    let said = bench
        .degraded(
            &name,
            "ImagePullFailed",
            &["server", "testbed.local/nothing:9"],
        )
        .await?;
    bench
        .becomes(&name, json!({ "server": { "image": NOTES } }))
        .await?;
    told_of(&bench, &name, "Warning", "testbed.local/nothing:9").await?;
    told_of(&bench, &name, "Normal", "server 1/1 ready").await?;
    bench.deletes(&name).await?;
    Ok(said)
}

pub(super) async fn small_quota(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let mut spec = both();
    spec["resources"] = json!({ "pods": { "limit": 1 } });
    let name = bench.create("a", spec).await?;
    let said = bench
        .degraded(
            &name,
            "QuotaExceeded",
            &["exceeded quota: tenant", "pods=1"],
        )
        .await?;
    bench
        .becomes(&name, json!({ "resources": { "pods": { "limit": 2 } } }))
        .await?;
    bench.deletes(&name).await?;
    Ok(said)
}

pub(super) async fn no_volume(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let class = bench.name("golden");
    let mut redis = redis();
    redis["storage"]["storageClassName"] = json!(class);
    let name = bench.create("a", json!({ "redis": redis })).await?;
    let said = bench
        .degraded(&name, "VolumeNotReady", &["data-redis-0", &class])
        .await?;
    // The class is made: it goes on by itself.
    let classes: Api<StorageClass> = Api::all(bench.client());
    let known = classes.list(&ListParams::default()).await?.items;
    let mut golden = known.into_iter().next().context("no StorageClass")?;
    golden.metadata = kube::api::ObjectMeta {
        name: Some(class.clone()),
        ..Default::default()
    };
    classes.create(&PostParams::default(), &golden).await?;
    bench.running(&name).await?;
    bench.deletes(&name).await?;
    classes.delete(&class, &DeleteParams::default()).await?;
    Ok(said)
}

pub(super) async fn wrong_probe(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.launch("a", json!({ "server": server() })).await?;
    let probes = |path: &str| -> Value {
        json!({ "server": { "probes": { "readiness": readiness(path) } } })
    };
    bench.change(&name, probes("/nowhere")).await?;
    // Named within ten seconds of the cause: how long a machine takes to start a Pod is not meant.
    until("the new Pod to run", LIMIT, async || {
        let pods = bench.pods(&name, "server").await?;
        let is_up = |pod: &Pod| {
            let status = pod.status.as_ref();
            let all = status.and_then(|status| status.container_statuses.as_deref());
            let mut all = all.unwrap_or_default().iter();
            all.any(|one| {
                !one.ready
                    && one
                        .state
                        .as_ref()
                        .is_some_and(|state| state.running.is_some())
            })
        };
        Ok(met(pods.iter().any(is_up), || {
            format!("{} Pods", pods.len())
        }))
    })
    .await?;
    let said = bench
        .degraded(&name, "ProbeFailed", &["is not ready", "404"])
        .await?;
    // What ran before goes on while the new one does not answer.
    let seen = bench.tenants().get(&name).await?.status.unwrap_or_default();
    let part = seen.server_status.context("no server")?;
    ensure!(part.phase == ComponentPhase::Degraded, "{part:?}");
    bench.becomes(&name, probes("/cgi-bin/health")).await?;
    bench.deletes(&name).await?;
    Ok(said)
}

/// A Redis whose program does not come up.
pub(super) async fn crash_loop(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let mut redis = redis();
    redis["image"] = json!("testbed.local/busybox:1");
    let name = bench.create("a", json!({ "redis": redis })).await?;
    let seen = bench
        .until(&name, LIMIT, "degraded", |status| {
            let is_it = ["ContainerNotStartable", "CrashLoop"].contains(&ready_reason(status));
            status.phase == Some(TenantPhase::Degraded) && is_it
        })
        .await?;
    let said = told(&seen.status.unwrap_or_default());
    bench
        .becomes(&name, json!({ "redis": { "image": REDIS } }))
        .await?;
    bench.deletes(&name).await?;
    Ok(said)
}

/// Suspended, everything is scaled to zero and the data stays.
pub(super) async fn suspended(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.launch("a", both()).await?;
    bench.stores(&name, "kept=yes").await?;
    bench.change(&name, json!({ "suspend": true })).await?;
    let seen = bench.in_phase(&name, LIMIT, TenantPhase::Suspended).await?;
    let said = told(&seen.status.unwrap_or_default());
    for component in ["server", "redis"] {
        let pods = bench.pods(&name, component).await?;
        ensure!(pods.is_empty(), "{} Pods of {component}", pods.len());
    }
    bench.becomes(&name, json!({ "suspend": false })).await?;
    let kept = bench.ask(&name, "kept").await?;
    ensure!(kept == "yes", "lost: '{kept}'");
    bench.deletes(&name).await?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64, kind: &str, status: Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": { "name": "a", "resourceVersion": number.to_string() }, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn running_before_both_are_ready_is_an_error() {
        let ready = json!({ "readyReplicas": 1 });
        let at = |number: u64, phase: &str| version(number, "Tenant", json!({ "phase": phase }));
        let start = [
            at(10, "Provisioning"),
            version(11, "Deployment", json!({})),
            version(12, "StatefulSet", ready.clone()),
            version(13, "Deployment", ready),
        ];
        let with = |more: &[DynamicObject]| phases(&[&start[..], more].concat(), "a");
        assert_eq!(
            with(&[at(14, "Running")]).unwrap(),
            ["Provisioning", "Running"]
        );
        for wrong in [
            // Written before the last of both was ready, and seen in any order.
            vec![at(9, "Running"), at(14, "Running")],
            vec![at(14, "Running"), at(12, "Running")],
            // Ready no longer.
            vec![version(14, "StatefulSet", json!({})), at(15, "Running")],
            vec![at(14, "Provisioning")],
        ] {
            assert!(with(&wrong).is_err(), "{wrong:?}");
        }
    }
}
