//! Scenarios of Tenants without Pods: a namespace, its quota, roles and policies.

use anyhow::Result;
use api::names;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, ResourceQuota},
    networking::v1::NetworkPolicy,
    rbac::v1::RoleBinding,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{faults::scenario_run::Stage, suite, wait::met};

use super::{super::actions::find, LIMIT, create, inside, name, patch, place, stands};

/// Everything that needs no Pod.
pub(super) fn bounds() -> Value {
    json!({
        "owners": [{ "kind": "User", "name": "carol" }],
        "resources": {
            "cpu": { "request": "1", "limit": "2" },
            "memory": { "request": "1Gi", "limit": "2Gi" },
            "storage": { "total": "1Gi", "perVolume": "512Mi" },
            "pods": { "limit": 10 },
        },
        "networkPolicy": {
            "ingressRules": [
                { "from": [{ "namespace": "kube-public" }], "ports": [{ "port": 3030 }] },
                { "from": [{ "network": "10.98.0.0/16" }], "ports": [{ "port": 3031 }] },
            ],
            "egressRules": [
                { "to": [{ "network": "10.99.0.0/16" }], "ports": [{ "port": 443 }] },
            ],
        },
    })
}

/// Made, and complete without Redis and server.
pub(super) async fn bare(stage: &Stage) -> Result<()> {
    create(stage, bounds()).await?;
    stands(stage, "Running", "").await
}

/// Another quota, other owners, and two rules less.
pub(super) async fn change(stage: &Stage) -> Result<()> {
    bare(stage).await?;
    patch(
        stage,
        json!({
            "owners": [{ "kind": "User", "name": "dave" }, { "kind": "Group", "name": "ops" }],
            "resources": { "cpu": { "limit": "4" }, "storage": null },
            "networkPolicy": {
                "ingressRules": [
                    { "from": [{ "namespace": "kube-public" }], "ports": [{ "port": 3032 }] },
                ],
                "egressRules": [],
            },
        }),
    )
    .await?;
    stands(stage, "Running", "").await
}

/// Someone deletes a quota and a role, opens a policy, and takes a label of the namespace away.
pub(super) async fn drift(stage: &Stage) -> Result<()> {
    bare(stage).await?;
    let params = PatchParams::default();
    let quotas: Api<ResourceQuota> = inside(stage);
    quotas.delete("tenant", &DeleteParams::default()).await?;
    let bindings: Api<RoleBinding> = inside(stage);
    bindings
        .delete("tenant-owner", &DeleteParams::default())
        .await?;
    let policies: Api<NetworkPolicy> = inside(stage);
    let open = json!({ "spec": { "ingress": [{}] } });
    policies
        .patch("default-deny", &params, &Patch::Merge(&open))
        .await?;
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let unlabelled = json!({ "metadata": { "labels": { names::UID: null } } });
    namespaces
        .patch(&place(stage), &params, &Patch::Merge(&unlabelled))
        .await?;
    let place = place(stage);
    stage
        .until("everything to be repaired", LIMIT, |seen| {
            let deny = find(seen, "networkpolicies", "default-deny");
            let is_open = deny.is_none_or(|one| {
                let rules = one.object["spec"]["ingress"].as_array();
                rules.is_some_and(|rules| !rules.is_empty())
            });
            let owner = find(seen, "namespaces", &place).and_then(|one| one.label(names::UID));
            let wrong: Vec<&str> = [
                (find(seen, "resourcequotas", "tenant").is_none(), "quota"),
                (find(seen, "rolebindings", "tenant-owner").is_none(), "role"),
                (is_open, "policy"),
                (owner.is_none(), "label"),
            ]
            .into_iter()
            .filter_map(|(is_wrong, what)| is_wrong.then_some(what))
            .collect();
            met(wrong.is_empty(), || wrong.join(", "))
        })
        .await?;
    stands(stage, "Running", "").await
}

/// A namespace with the labels of an earlier Tenant of this name is refused, until it is offered.
pub(super) async fn foreign(stage: &Stage) -> Result<()> {
    let (tenant, place) = (name(stage), place(stage));
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let earlier = "11111111-1111-1111-1111-111111111111";
    let namespace = json!({ "metadata": {
        "name": place, "labels": {
            names::KIND: "Tenant", names::NAME: tenant, names::UID: earlier,
        },
    } });
    suite::create(&namespaces, namespace).await?;
    let map = json!({ "metadata": { "name": "precious" }, "data": { "a": "b" } });
    suite::create::<ConfigMap>(&inside(stage), map).await?;
    create(stage, bounds()).await?;
    stands(stage, "Pending", "NamespaceTaken").await?;
    let offer = json!({ "metadata": { "annotations": { names::ADOPT: tenant } } });
    namespaces
        .patch(&place, &PatchParams::default(), &Patch::Merge(&offer))
        .await?;
    stands(stage, "Running", "").await
}
