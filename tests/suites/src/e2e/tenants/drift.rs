//! What others do to what a Tenant is made of.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context, Result, ensure};
use api::tenants::{Tenant, TenantPhase, condition};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{ConfigMap, LimitRange, Namespace, Pod, ResourceQuota, Secret, Service},
        networking::v1::NetworkPolicy,
        rbac::v1::RoleBinding,
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::super::policies::client_of;
use super::fixture::{Bench, SAID, both, labelled, namespace, reason};

const REPAIRED: Duration = Duration::from_secs(10);

fn spec() -> Value {
    let mut spec = both();
    spec["owners"] = json!([{ "kind": "User", "name": "alice" }]);
    spec["resources"] = json!({
        "cpu": { "limit": "4" }, "storage": { "total": "1Gi", "perVolume": "512Mi" },
    });
    spec["networkPolicy"] = json!({
        "allowedNamespaces": ["kube-system"],
        "ingressRules": [{ "from": [{ "namespace": "kube-public" }], "ports": [{ "port": 3030 }] }],
        "egressRules": [{ "to": [{ "network": "10.99.0.0/16" }], "ports": [{ "port": 443 }] }],
    });
    spec
}

/// Deletes each object of a kind; each comes back.
async fn deleted<K>(bench: &Bench, tenant: &Tenant) -> Result<usize>
where
    K: kube::Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let api: Api<K> = bench.of(&tenant.name_any());
    let known = api.list(&labelled(tenant)).await?.items;
    for object in &known {
        let (name, uid) = (object.name_any(), object.uid());
        api.delete(&name, &DeleteParams::default()).await?;
        until(&format!("'{name}' to be back"), REPAIRED, async || {
            let seen = api.get_opt(&name).await?;
            Ok(match seen {
                Some(seen) if seen.uid() != uid => Ok(()),
                Some(_) => Err("the old one".to_owned()),
                None => Err("not there".to_owned()),
            })
        })
        .await?;
    }
    Ok(known.len())
}

/// Every child that is deleted comes back, and it runs again.
pub(super) async fn deletions(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.create("a", spec()).await?;
    let tenant = bench.running(&name).await?;
    let mut count = 0;
    count += deleted::<ResourceQuota>(&bench, &tenant).await?;
    count += deleted::<LimitRange>(&bench, &tenant).await?;
    count += deleted::<RoleBinding>(&bench, &tenant).await?;
    count += deleted::<NetworkPolicy>(&bench, &tenant).await?;
    count += deleted::<ConfigMap>(&bench, &tenant).await?;
    count += deleted::<Service>(&bench, &tenant).await?;
    count += deleted::<Deployment>(&bench, &tenant).await?;
    count += deleted::<StatefulSet>(&bench, &tenant).await?;
    bench.running(&name).await?;
    bench.stores(&name, "a=b").await?;
    // Another password: both take it.
    count += deleted::<Secret>(&bench, &tenant).await?;
    until(
        "another password to be used",
        Duration::from_secs(60),
        async || {
            let answer = bench.ask(&name, "a").await;
            let seen = bench.tenants().get(&name).await?;
            let phase = seen.status.and_then(|status| status.phase);
            Ok(match answer {
                Ok(answer) if answer == "b" && phase == Some(TenantPhase::Running) => Ok(()),
                other => Err(format!("{other:?} {phase:?}")),
            })
        },
    )
    .await?;
    ensure!(count >= 17, "only {count} children");
    bench.deletes(&name).await?;
    Ok(format!("{count} children"))
}

/// Changes one field of ours; it is changed back. What someone else set stays.
async fn changed<K>(
    bench: &Bench,
    tenant: &str,
    name: &str,
    patch: Value,
    field: &str,
) -> Result<()>
where
    K: kube::Resource<Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
    K::DynamicType: Default,
{
    let api: Api<K> = bench.of(tenant);
    let read = async || -> Result<Value> {
        let object = serde_json::to_value(api.get(name).await?)?;
        Ok(object.pointer(field).cloned().unwrap_or_default())
    };
    let before = read().await?;
    let mut patch = patch;
    patch["metadata"]["labels"]["team"] = json!("blue");
    patch["metadata"]["annotations"]["example.com/note"] = json!("kept");
    let written = api
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    let written = serde_json::to_value(written)?;
    let wrong = written.pointer(field).cloned().unwrap_or_default();
    ensure!(
        wrong != before,
        "'{name}': the edit of {field} changes nothing"
    );
    until(
        &format!("{field} of '{name}' to be repaired"),
        REPAIRED,
        async || {
            let now = read().await?;
            Ok(met(now == before, || now.to_string()))
        },
    )
    .await?;
    let seen = api.get(name).await?;
    ensure!(
        seen.labels().get("team").is_some_and(|team| team == "blue")
            && seen.annotations().contains_key("example.com/note"),
        "'{name}' lost what another had set"
    );
    Ok(())
}

/// Every kind of child that is edited is repaired, and what others set stays.
pub(super) async fn edits(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.launch("a", spec()).await?;
    let a = name.as_str();
    macro_rules! repaired {
        ($($kind:ident $object:literal $field:literal: $patch:tt),* $(,)?) => {$(
            changed::<$kind>(&bench, a, $object, json!($patch), $field).await?;
        )*};
    }
    repaired! {
        ResourceQuota "tenant" "/spec/hard": { "spec": { "hard": { "limits.cpu": "100" } } },
        LimitRange "tenant" "/spec/limits": { "spec": { "limits": [] } },
        RoleBinding "tenant-owner" "/subjects": { "subjects": [
            { "kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io" },
        ] },
        NetworkPolicy "default-deny" "/spec/ingress": { "spec": { "ingress": [{}] } },
        NetworkPolicy "allow-inside" "/spec/egress": { "spec": { "egress": [{}] } },
        ConfigMap "redis" "/data": { "data": { "redis.conf": "port 1\n" } },
        Service "server" "/spec/selector": {
            "spec": { "selector": { "orchestrator.io/component": "redis" } }
        },
        Deployment "server" "/spec/replicas": { "spec": { "replicas": 0 } },
        StatefulSet "redis" "/spec/replicas": { "spec": { "replicas": 0 } },
    }
    // The labels of ours, too, also those by which it is found.
    let deployments: Api<Deployment> = bench.of(a);
    let labels =
        json!({ "metadata": { "labels": { api::names::UID: null, api::names::KIND: null } } });
    deployments
        .patch("server", &PatchParams::default(), &Patch::Merge(&labels))
        .await?;
    until("the labels", REPAIRED, async || {
        let seen = deployments.get("server").await?;
        Ok(met(seen.labels().contains_key(api::names::UID), || {
            format!("{:?}", seen.labels())
        }))
    })
    .await?;
    // And those of the namespace.
    let labels = json!({ "metadata": { "labels": {
        "pod-security.kubernetes.io/enforce": "privileged", "team": "blue",
    } } });
    let namespaces = bench.namespaces();
    let place = namespace(a);
    namespaces
        .patch(&place, &PatchParams::default(), &Patch::Merge(&labels))
        .await?;
    until("the namespace's labels", REPAIRED, async || {
        let seen: Namespace = namespaces.get(&place).await?;
        let level = seen
            .labels()
            .get("pod-security.kubernetes.io/enforce")
            .cloned();
        let is_kept = seen.labels().contains_key("team");
        Ok(met(
            level.as_deref() == Some("restricted") && is_kept,
            || format!("{:?}", seen.labels()),
        ))
    })
    .await?;
    bench.running(&name).await?;
    // R53: a removed rule removes its policy, and so does 'enabled: false', which is said.
    bench
        .becomes(a, json!({ "networkPolicy": { "ingressRules": [] } }))
        .await?;
    let policies: Api<NetworkPolicy> = bench.of(a);
    ensure!(
        policies.get_opt("ingress-0").await?.is_none(),
        "R53: the rule's policy is still there"
    );
    let seen = bench
        .becomes(a, json!({ "networkPolicy": { "enabled": false } }))
        .await?;
    let left = policies.list(&ListParams::default()).await?.items.len();
    ensure!(left == 0, "R53: {left} policies are left");
    let said = reason(
        seen.status.as_ref().context("no status")?,
        condition::NETWORK_POLICIES_READY,
    );
    ensure!(said == ("False", "PoliciesDisabled"), "{said:?}");
    bench.deletes(&name).await?;
    Ok("12 edits repaired; labels and annotations of others kept".to_owned())
}

pub(super) fn is_forbidden<T: Debug>(what: &str, result: kube::Result<T>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        other => anyhow::bail!("{what}: {other:?}"),
    }
}

/// Objects of a namespace, as this user.
fn at<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: kube::Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(client.clone(), namespace)
}

/// An owner can use his namespace, and nothing else.
pub(super) async fn owners(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let own = |user: &str| json!({ "owners": [{ "kind": "User", "name": user }], "redis": super::fixture::redis() });
    let a = bench.create("a", own("alice")).await?;
    let b = bench.create("b", own("bob")).await?;
    bench.running(&a).await?;
    bench.running(&b).await?;
    let alice = client_of(&bench.env, "alice")?;
    let (post, all, gone) = (
        PostParams::default(),
        ListParams::default(),
        DeleteParams::default(),
    );
    let map: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": "hers" }, "data": { "a": "b" } }))?;
    let here = namespace(&a);
    let there = namespace(&b);

    at::<ConfigMap>(&alice, &here).create(&post, &map).await?;
    let count = at::<Pod>(&alice, &here).list(&all).await?.items.len();
    ensure!(count >= 1, "she does not see her Pods");
    at::<Secret>(&alice, &here).get("tenant-redis").await?;
    let deployment = serde_json::from_value(json!({
        "metadata": { "name": "hers" },
        "spec": {
            "selector": { "matchLabels": { "app": "hers" } },
            "template": {
                "metadata": { "labels": { "app": "hers" } },
                "spec": { "containers": [{ "name": "a", "image": "testbed.local/busybox:1" }] },
            },
        },
    }))?;
    at::<Deployment>(&alice, &here)
        .create(&post, &deployment)
        .await?;

    // What would open it.
    let policy = serde_json::from_value(json!({
        "metadata": { "name": "open" }, "spec": { "podSelector": {}, "ingress": [{}] },
    }))?;
    let policies = at::<NetworkPolicy>(&alice, &here);
    is_forbidden("a policy", policies.create(&post, &policy).await)?;
    let deleted = policies.delete("default-deny", &gone).await;
    is_forbidden("deleting a policy", deleted)?;
    let quotas = at::<ResourceQuota>(&alice, &here);
    let deleted = quotas.delete("tenant-probes", &gone).await;
    is_forbidden("deleting a quota", deleted)?;
    let services = at::<Service>(&alice, &here);
    for kind in ["NodePort", "LoadBalancer"] {
        let service = serde_json::from_value(json!({
            "metadata": { "name": "open" },
            "spec": { "type": kind, "selector": { "app": "hers" }, "ports": [{ "port": 80 }] },
        }))?;
        is_forbidden(kind, services.create(&post, &service).await)?;
    }
    let binding = serde_json::from_value(json!({
        "metadata": { "name": "more" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice" }],
    }))?;
    let bindings = at::<RoleBinding>(&alice, &here);
    is_forbidden("a binding", bindings.create(&post, &binding).await)?;
    let namespaces: Api<Namespace> = Api::all(alice.clone());
    let open =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } });
    let (params, open) = (PatchParams::default(), Patch::Merge(&open));
    let opened = namespaces.patch(&here, &params, &open).await;
    is_forbidden("her namespace's labels", opened)?;

    // What is not hers.
    is_forbidden("namespaces", namespaces.list(&all).await)?;
    let tenants: Api<Tenant> = Api::all(alice.clone());
    is_forbidden("Tenants", tenants.list(&all).await)?;
    let pods = at::<Pod>(&alice, &there).list(&all).await;
    is_forbidden("Bob's Pods", pods)?;
    let password = at::<Secret>(&alice, &there).get("tenant-redis").await;
    is_forbidden("Bob's password", password)?;
    let theirs = at::<ConfigMap>(&alice, &there).create(&post, &map).await;
    is_forbidden("a map at Bob's", theirs)?;
    let secrets: Api<Secret> = Api::all(alice);
    is_forbidden("Secrets of the cluster", secrets.list(&all).await)?;

    // When she is no owner any more, it ends.
    bench.becomes(&a, json!({ "owners": [] })).await?;
    let pods = at::<Pod>(&client_of(&bench.env, "alice")?, &here);
    // The API server hears of it a moment later than who watches it.
    until("her old Pods to be forbidden", SAID, async || {
        let answer = pods.list(&all).await;
        Ok(is_forbidden("her old Pods", answer).map_err(|error| error.to_string()))
    })
    .await?;
    bench.deletes(&a).await?;
    bench.deletes(&b).await?;
    Ok("4 things that she may, 13 that she may not".to_owned())
}
