//! Objects that are written only to be seen: one of each resource that is watched.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use super::parsed;
use crate::wait::until;

const MARKER: &str = "marker";

/// A namespace for the markers, with what a Pod in it needs.
pub(super) async fn home(client: &Client) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let wanted = Namespace {
        metadata: ObjectMeta {
            generate_name: Some("witness-".to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let made = namespaces.create(&PostParams::default(), &wanted).await?;
    let namespace = made.metadata.name.context("a namespace without a name")?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    until(
        "the ServiceAccount of the object history",
        Duration::from_secs(30),
        async || {
            let account = accounts.get_opt("default").await?;
            Ok(account.ok_or_else(|| "not there".to_owned()))
        },
    )
    .await?;
    Ok(namespace)
}

/// Writes a resource's marker; its version.
pub(super) async fn mark(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    turn: u64,
) -> Result<u64> {
    let name = match is_of_cluster(resource) {
        // Of its own name there may be several.
        true => namespace,
        false => MARKER,
    };
    let markers: Api<DynamicObject> = match is_of_cluster(resource) {
        true => Api::all_with(client.clone(), resource),
        false => Api::namespaced_with(client.clone(), namespace, resource),
    };
    let metadata = json!({ "annotations": { "turn": turn.to_string() } });
    let change = Patch::Merge(json!({ "metadata": metadata }));
    let written = match markers.patch(name, &PatchParams::default(), &change).await {
        // The first time; and an Event does not stay for ever.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let mut body = marker(resource, namespace).context("no marker")?;
            body["apiVersion"] = json!(resource.api_version);
            body["kind"] = json!(resource.kind);
            body["metadata"] = match is_of_cluster(resource) {
                true => json!({ "name": name }),
                false => json!({ "name": name, "namespace": namespace }),
            };
            let body: DynamicObject = serde_json::from_value(body)?;
            markers.create(&PostParams::default(), &body).await
        }
        other => other,
    };
    let written =
        written.with_context(|| format!("cannot write the marker of '{}'", resource.plural))?;
    parsed(written.metadata.resource_version.as_deref())
}

/// Whether its objects belong to no namespace. The marker of namespaces is that of the others.
pub(super) fn is_of_cluster(resource: &ApiResource) -> bool {
    let known = [("", "namespaces"), (api::GROUP, "tenants")];
    known.contains(&(resource.group.as_str(), resource.plural.as_str()))
}

/// An object that nothing comes of.
pub(super) fn marker(resource: &ApiResource, namespace: &str) -> Option<Value> {
    let pod = json!({
        "restartPolicy": "Never",
        "containers": [{ "name": "none", "image": "none" }],
    });
    Some(match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "configmaps" | "secrets" | "serviceaccounts") => json!({}),
        ("", "pods") => {
            let mut spec = pod;
            spec["schedulingGates"] = json!([{ "name": "orchestrator.test/never" }]);
            json!({ "spec": spec })
        }
        ("", "persistentvolumeclaims") => json!({ "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": { "requests": { "storage": "1" } },
        } }),
        ("", "events") => json!({
            "involvedObject": { "namespace": namespace }, "reason": "Marker",
        }),
        ("events.k8s.io", "events") => json!({
            "regarding": { "namespace": namespace }, "reason": "Marker", "action": "Marker",
            "type": "Normal", "eventTime": "2020-01-01T00:00:00.000000Z",
            "reportingController": "orchestrator.test/witness", "reportingInstance": "witness",
        }),
        ("batch", "jobs") => json!({ "spec": {
            "suspend": true, "parallelism": 0, "template": { "spec": pod },
        } }),
        ("coordination.k8s.io", "leases") => json!({ "spec": {} }),
        ("", "namespaces") => json!({}),
        ("", "resourcequotas") => json!({ "spec": { "hard": { "count/nothing.example": "0" } } }),
        ("", "limitranges") => json!({ "spec": { "limits": [] } }),
        ("", "services") => json!({ "spec": {
            "type": "ExternalName", "externalName": "none.example",
        } }),
        ("apps", "deployments" | "statefulsets") => {
            let labels = json!({ "marker": "none" });
            json!({ "spec": {
                "replicas": 0, "selector": { "matchLabels": labels }, "serviceName": "none",
                "template": { "metadata": { "labels": labels }, "spec": {
                    "containers": [{ "name": "none", "image": "none" }],
                } },
            } })
        }
        ("networking.k8s.io", "networkpolicies") => json!({ "spec": {
            "podSelector": { "matchLabels": { "marker": "none" } },
        } }),
        ("rbac.authorization.k8s.io", "rolebindings") => json!({ "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "none",
        } }),
        ("discovery.k8s.io", "endpointslices") => json!({ "addressType": "IPv4", "endpoints": [] }),
        // No operator of a play sees it: it has no label.
        (api::GROUP, "tenants") => json!({ "spec": {
            "deletion": { "policy": "Retain" }, "suspend": true,
        } }),
        (api::GROUP, "agents") => json!({ "spec": { "image": "none" } }),
        (api::GROUP, "taskruns") => json!({ "spec": {
            "taskId": 1, "serviceName": "marker", "agentName": "none", "suspend": true,
            "markdownFiles": [{ "filename": "none.md", "content": "" }],
        } }),
        (api::GROUP, "docsruns") => json!({ "spec": {
            "repositoryUrl": "https://git.example/none.git", "sourceBranch": "main",
            "agentName": "none", "suspend": true,
        } }),
        _ => return None,
    })
}
