//! How Tenants go, what they leave, and who gets it back.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::{
    names,
    status::condition,
    tenants::{Tenant, TenantPhase, TenantStatus},
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, ResourceQuota},
        networking::v1::NetworkPolicy,
        rbac::v1::RoleBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    operator,
    suite::Env,
    wait::{met, until},
};

use super::super::reading::says_all;
use super::fixture::{
    Bench, LIMIT, SAID, both, namespace, ready_reason, reason, redis, told, told_of,
};

/// With everything: namespace, volume, Tenant, in this order; S2.4.
pub(super) async fn with_all(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.create("a", both()).await?;
    let seen = bench.running(&name).await?;
    ensure!(
        seen.finalizers() == ["tenants.orchestrator.io/finalizer"],
        "{:?}",
        seen.finalizers()
    );
    let volume = bench
        .of::<PersistentVolumeClaim>(&name)
        .get("data-redis-0")
        .await?;
    bench.deletes(&name).await?;
    let volume = volume.spec.and_then(|spec| spec.volume_name);
    Ok(format!(
        "namespace and volume {} are gone",
        volume.unwrap_or_default()
    ))
}

/// Someone else's finalizer: named, said to block after the deadline, and it goes on when it is gone.
pub(super) async fn blocked(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let deletion = json!({ "policy": "Delete", "deadline": "10s" });
    let name = bench.launch("a", json!({ "deletion": deletion })).await?;
    let metadata = json!({ "name": "precious", "finalizers": ["example.com/backup"] });
    let map = json!({ "metadata": metadata });
    bench.put::<ConfigMap>(&name, map).await?;
    let maps: Api<ConfigMap> = bench.of(&name);
    bench.delete(&name).await?;
    let seen = bench
        .until(&name, Duration::from_secs(30), "blocked", |status| {
            let blockers = ["configmaps", "example.com/backup", &namespace(&name)];
            reason(status, condition::STALLED) == ("True", "DeletionBlocked")
                && says_all(status, &blockers).is_ok()
        })
        .await?;
    let said = told(&seen.status.unwrap_or_default());
    bench.explained(&name, "DeletionBlocked").await?;
    let free = json!({ "metadata": { "finalizers": null } });
    maps.patch("precious", &PatchParams::default(), &Patch::Merge(&free))
        .await?;
    bench.is_gone(&name).await?;
    bench.took_its_namespace(&name).await?;
    Ok(said)
}

/// The owners' permissions go. What works and stores stays and goes on working, closed and bounded as
/// before. A Tenant of the same name gets all of it back.
pub(super) async fn retained(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let spec = || -> Value {
        let mut spec = both();
        spec["deletion"] = json!({ "policy": "Retain" });
        spec["owners"] = json!([{ "kind": "User", "name": "carol" }]);
        spec
    };
    let name = bench.launch("a", spec()).await?;
    bench.stores(&name, "kept=yes").await?;
    let pods = pod_uids(&bench, &name).await?;
    bench.delete(&name).await?;
    bench.is_gone(&name).await?;

    let left = bench.namespaces().get(&namespace(&name)).await?;
    ensure!(
        left.metadata.deletion_timestamp.is_none(),
        "it is being deleted"
    );
    let from = left.annotations().get(names::RETAINED_FROM);
    ensure!(from == Some(&name), "{from:?}");
    ensure!(
        !left.labels().contains_key(names::UID),
        "{:?}",
        left.labels()
    );
    let all = ListParams::default();
    let bindings = bench.of::<RoleBinding>(&name);
    until("every RoleBinding to be gone", LIMIT, async || {
        let count = bindings.list(&ListParams::default()).await?.items.len();
        Ok(met(count == 0, || format!("{count}")))
    })
    .await?;
    let policies = bench.of::<NetworkPolicy>(&name).list(&all).await?.items;
    let mut closed: Vec<String> = policies.iter().map(ResourceExt::name_any).collect();
    closed.sort();
    ensure!(
        closed == ["allow-dns", "allow-inside", "default-deny"],
        "the policies are {closed:?}"
    );
    let quotas = bench.of::<ResourceQuota>(&name).list(&all).await?.items;
    ensure!(quotas.len() == 3, "{} quotas are left", quotas.len());
    let metas = policies.iter().map(|policy| &policy.metadata);
    for meta in metas.chain(quotas.iter().map(|quota| &quota.metadata)) {
        let from = meta.annotations.as_ref();
        let from = from.and_then(|all| all.get(names::RETAINED_FROM));
        let labels = meta.labels.as_ref();
        ensure!(
            from == Some(&name) && labels.is_none_or(|all| !all.contains_key(names::UID)),
            "{:?} is not marked as left",
            meta.name
        );
    }
    let kept = bench.ask(&name, "kept").await?;
    ensure!(kept == "yes", "it does not work any more: '{kept}'");
    ensure!(pod_uids(&bench, &name).await? == pods, "Pods were replaced");

    // One of another name does not get it.
    let stranger = Tenant::new(
        &bench.name("other"),
        serde_json::from_value(json!({
            "namespace": namespace(&name), "deletion": { "policy": "Delete" },
        }))?,
    );
    bench
        .tenants()
        .create(&PostParams::default(), &stranger)
        .await?;
    let other = bench.name("other");
    taken(&bench, &other).await?;
    bench.delete(&other).await?;
    bench.is_gone(&other).await?;

    // One of the same name does, with the data.
    bench.create("a", spec()).await?;
    bench.running(&name).await?;
    let kept = bench.ask(&name, "kept").await?;
    ensure!(kept == "yes", "the data is lost: '{kept}'");
    ensure!(
        pod_uids(&bench, &name).await? == pods,
        "what ran was started again"
    );
    let back = bench.namespaces().get(&namespace(&name)).await?;
    ensure!(
        !back.annotations().contains_key(names::RETAINED_FROM),
        "still said to be left"
    );
    ensure!(
        back.metadata.creation_timestamp == left.metadata.creation_timestamp,
        "another namespace"
    );
    bench
        .becomes(&name, json!({ "deletion": { "policy": "Delete" } }))
        .await?;
    bench.deletes(&name).await?;
    Ok("left at work, refused to another, taken back with its data".to_owned())
}

async fn pod_uids(bench: &Bench, name: &str) -> Result<Vec<Option<String>>> {
    let mut uids = Vec::new();
    for component in ["redis", "server"] {
        let pods = bench.pods(name, component).await?;
        uids.extend(pods.iter().map(ResourceExt::uid));
    }
    uids.sort();
    Ok(uids)
}

async fn taken(bench: &Bench, name: &str) -> Result<String> {
    let seen = bench
        .until(name, Duration::from_secs(10), "refused", |status| {
            reason(status, condition::STALLED) == ("True", "NamespaceTaken")
        })
        .await?;
    bench.explained(name, "NamespaceTaken").await?;
    let status = seen.status.unwrap_or_default();
    ensure!(
        status.phase == Some(TenantPhase::Pending),
        "{}",
        told(&status)
    );
    Ok(told(&status))
}

/// R55: a namespace that is not ours is refused and not touched, also when the Tenant goes.
pub(super) async fn foreign(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let place = namespace(&bench.name("a"));
    let foreign: Namespace = serde_json::from_value(json!({
        "metadata": { "name": place, "labels": { "team": "blue" } },
    }))?;
    let namespaces = bench.namespaces();
    namespaces.create(&PostParams::default(), &foreign).await?;
    let before = until("the namespace to be settled", LIMIT, async || {
        // The cluster puts a ConfigMap and a ServiceAccount there.
        let maps: Api<ConfigMap> = Api::namespaced(bench.client(), &place);
        Ok(match maps.get_opt("kube-root-ca.crt").await? {
            Some(_) => Ok(namespaces.get(&place).await?),
            None => Err("no ConfigMap".to_owned()),
        })
    })
    .await?;
    let name = bench.create("a", json!({})).await?;
    let said = taken(&bench, &name).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let quotas: Api<ResourceQuota> = Api::namespaced(bench.client(), &place);
    ensure!(
        quotas.list(&ListParams::default()).await?.items.is_empty(),
        "something was made there"
    );
    bench.delete(&name).await?;
    bench.is_gone(&name).await?;
    let after = namespaces.get(&place).await?;
    ensure!(
        after.resource_version() == before.resource_version(),
        "it was touched: {after:?}"
    );
    // Its owner lets a Tenant have it.
    let offer = json!({ "metadata": { "annotations": { names::ADOPT: name } } });
    namespaces
        .patch(&place, &PatchParams::default(), &Patch::Merge(&offer))
        .await?;
    bench.create("a", json!({})).await?;
    bench.running(&name).await?;
    bench.deletes(&name).await?;
    Ok(said)
}

/// R50: in a namespace that was offered there is something of a name that the Tenant needs. It is
/// `Failed`, what is there stays as it is, and it goes on when that is gone.
pub(super) async fn name_taken(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.name("a");
    let place: Namespace = serde_json::from_value(json!({
        "metadata": { "name": namespace(&name), "annotations": { names::ADOPT: name } },
    }))?;
    bench
        .namespaces()
        .create(&PostParams::default(), &place)
        .await?;
    let maps: Api<ConfigMap> = bench.of(&name);
    let map = json!({ "metadata": { "name": "redis" }, "data": { "theirs": "yes" } });
    let before: ConfigMap = bench.put(&name, map).await?;
    bench.create("a", json!({ "redis": redis() })).await?;
    let seen = bench
        .until(&name, SAID, "ChildNameTaken", |status| {
            status.phase == Some(TenantPhase::Failed)
                && ready_reason(status) == "ChildNameTaken"
                && says_all(status, &["ConfigMap", "'redis'"]).is_ok()
        })
        .await?;
    let status = seen.status.unwrap_or_default();
    let stalled = reason(&status, condition::STALLED);
    ensure!(stalled == ("True", "ChildNameTaken"), "{stalled:?}");
    told_of(&bench, &name, "Warning", "ConfigMap").await?;
    bench.explained(&name, "ChildNameTaken").await?;
    let after = maps.get("redis").await?;
    ensure!(
        after.resource_version() == before.resource_version(),
        "it was touched: {after:?}"
    );
    maps.delete("redis", &DeleteParams::default()).await?;
    bench.running(&name).await?;
    bench.deletes(&name).await?;
    Ok(told(&status))
}

/// Waits until a Tenant has a child of this kind.
async fn created(bench: &Bench, name: &str, kind: &str) -> Result<()> {
    until(&format!("a {kind} of {name}"), LIMIT, async || {
        let (namespaces, place) = (bench.namespaces(), namespace(name));
        let (sets, deployments) = (bench.of::<StatefulSet>(name), bench.of::<Deployment>(name));
        let is_there = match kind {
            "Namespace" => namespaces.get_opt(&place).await?.is_some(),
            "StatefulSet" => sets.get_opt("redis").await?.is_some(),
            _ => deployments.get_opt("server").await?.is_some(),
        };
        Ok(met(is_there, || "not there".to_owned()))
    })
    .await
}

/// Alone: the operator is killed at each step that can be seen, and everything still goes.
pub(super) async fn killed(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let mut kills = 0;
    for policy in ["Delete", "Retain"] {
        let mut spec = both();
        spec["deletion"] = json!({ "policy": policy });
        let name = bench.create(&policy.to_lowercase(), spec).await?;
        // While its children are created, too: each kind is created later than the one before.
        for kind in ["Namespace", "StatefulSet", "Deployment"] {
            created(&bench, &name, kind).await?;
            bench.replace().await?;
            kills += 1;
        }
        bench.running(&name).await?;
        bench.delete(&name).await?;
        let mut last = String::new();
        let tenants = bench.tenants();
        let mut seen_steps = Vec::new();
        loop {
            let Some(seen) = tenants.get_opt(&name).await? else {
                break;
            };
            let said = told(&seen.status.unwrap_or_default());
            if said != last && kills < 40 {
                bench.replace().await?;
                kills += 1;
                seen_steps.push(said.clone());
                last = said;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let place = bench.namespaces().get_opt(&namespace(&name)).await?;
        match (policy, place) {
            ("Delete", None) => {}
            ("Retain", Some(place)) => {
                let from = place.annotations().get(names::RETAINED_FROM);
                ensure!(from == Some(&name), "not marked: {place:?}");
                bench
                    .namespaces()
                    .delete(&namespace(&name), &DeleteParams::default())
                    .await?;
            }
            (_, place) => anyhow::bail!("{policy}: {place:?}"),
        }
    }
    Ok(format!("{kills} kills"))
}

/// Alone: without the definition there are no Tenants, and every namespace is still there.
pub(super) async fn definition(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let mut all = Vec::new();
    for word in ["a", "b", "c"] {
        let spec = if word == "a" { both() } else { json!({}) };
        all.push(bench.create(word, spec).await?);
    }
    for name in &all {
        bench.running(name).await?;
    }
    bench.stores(&all[0], "kept=yes").await?;
    let judged = super::fixture::judge().await?;
    let crds: Api<CustomResourceDefinition> = Api::all(bench.client());
    let crd = "tenants.orchestrator.io";
    crds.delete(crd, &DeleteParams::default()).await?;
    until("the definition to be gone", LIMIT, async || {
        let left = crds.get_opt(crd).await?;
        Ok(left.map_or(Ok(()), |crd| {
            Err(format!("{:?}", crd.status.map(|status| status.conditions)))
        }))
    })
    .await?;
    for name in &all {
        let place = bench.namespaces().get(&namespace(name)).await?;
        ensure!(
            place.metadata.deletion_timestamp.is_none(),
            "{name}: its namespace goes"
        );
    }
    let policies = bench
        .of::<NetworkPolicy>(&all[0])
        .list(&ListParams::default())
        .await?;
    ensure!(
        !policies.items.is_empty(),
        "what restricts it went with the definition"
    );
    let kept = bench.ask(&all[0], "kept").await?;
    ensure!(kept == "yes", "'{kept}'");
    // It comes back, and so do they.
    operator::install(&bench.client(), api::tenants::OPERATOR.crds()).await?;
    super::fixture::look(&bench.env).await?;
    for (name, word) in all.iter().zip(["a", "b", "c"]) {
        let spec = if word == "a" { both() } else { json!({}) };
        bench.create(word, spec).await?;
        bench.running(name).await?;
    }
    let kept = bench.ask(&all[0], "kept").await?;
    ensure!(kept == "yes", "'{kept}'");
    for name in &all {
        bench.deletes(name).await?;
    }
    Ok(format!(
        "3 namespaces stayed, and were taken back; kstatus agrees with {judged} versions before"
    ))
}

/// Made and deleted while no operator is at work.
pub(super) async fn absent(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.stop().await?;
    let early = bench.create("early", json!({})).await?;
    bench.delete(&early).await?;
    // Nothing holds it: nothing was made.
    ensure!(
        bench.tenants().get_opt(&early).await?.is_none(),
        "it is held"
    );
    let name = bench.create("a", json!({})).await?;
    bench.restart().await?;
    bench.running(&name).await?;
    bench.stop().await?;
    bench.delete(&name).await?;
    let seen: TenantStatus = bench.tenants().get(&name).await?.status.unwrap_or_default();
    ensure!(!ready_reason(&seen).is_empty(), "{seen:?}");
    bench.restart().await?;
    bench.is_gone(&name).await?;
    bench.took_its_namespace(&name).await?;
    Ok("nothing is held without a child; what was deleted meanwhile goes".to_owned())
}

/// Alone and last: nothing went wrong inside.
pub(super) async fn well(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let bugs = r#"orchestrator_reconcile_errors_total{kind="Tenant",class="Bug"}"#;
    let count = bench.metric(bugs).await?;
    let log = super::fixture::end().await?;
    ensure!(count < 0.5, "a bug: {log}");
    ensure!(!log.contains("panicked"), "it panicked: {log}");
    super::fixture::judge().await?;
    Ok(format!(
        "no panic, no bug; a server reached its Redis within {:.1} s; {}",
        super::fixture::slowest().await.as_secs_f64(),
        super::super::why::tally()
    ))
}
