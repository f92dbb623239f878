//! What everything in the namespace may use together, and what a container gets that asks for nothing.

use api::{
    decide::Manifest,
    pod::Amount,
    quantity,
    tenants::{RequestAndLimit, TenantResources},
};
use serde_json::{Map, Value, json};

use super::{For, types};

/// What a container gets that says nothing, unless the Tenant has less.
const REQUEST: [(&str, &str); 2] = [("cpu", "50m"), ("memory", "64Mi")];
const LIMIT: [(&str, &str); 2] = [("cpu", "500m"), ("memory", "256Mi")];

pub(super) fn all(of: For<'_>) -> Vec<Manifest> {
    let TenantResources {
        cpu,
        memory,
        storage,
        pods,
    } = &of.spec.resources;
    let mut all = Vec::new();
    let mut hard = Map::new();
    for (name, amounts) in [("cpu", cpu), ("memory", memory)] {
        let RequestAndLimit { request, limit } = amounts.clone().unwrap_or_default();
        for (word, amount) in [("requests", request), ("limits", limit)] {
            if let Some(Amount(amount)) = amount {
                hard.insert([word, ".", name].concat(), json!(amount));
            }
        }
    }
    if let Some(pods) = pods {
        hard.insert("pods".to_owned(), json!(pods.limit.to_string()));
    }
    if !hard.is_empty() {
        // The Pods that prove the isolation are not the customer's: they have a quota of their own.
        let body = json!({ "spec": { "hard": hard, "scopeSelector": by_class(of, "NotIn") } });
        all.push(of.manifest(types::QUOTA, "tenant", "", body));
    }
    // On some networks these let others in past the policies.
    let mut hard = json!({ "services.nodeports": "0", "services.loadbalancers": "0" });
    let volumes = storage
        .as_ref()
        .and_then(|amounts| amounts.request.as_ref());
    if let Some(Amount(amount)) = volumes {
        hard["requests.storage"] = json!(amount);
    }
    let body = json!({ "spec": { "hard": hard } });
    all.push(of.manifest(types::QUOTA, "tenant-objects", "", body));
    // Without it, whoever says that he is one of those Pods could use as much as he likes.
    let hard = json!({ "pods": "2", "limits.cpu": "200m", "limits.memory": "128Mi" });
    let body = json!({ "spec": { "hard": hard, "scopeSelector": by_class(of, "In") } });
    all.push(of.manifest(types::QUOTA, "tenant-probes", "", body));
    all.extend(limits(of));
    all
}

fn by_class(of: For<'_>, operator: &str) -> Value {
    json!({
        "matchExpressions": [{
            "scopeName": "PriorityClass",
            "operator": operator,
            "values": [of.settings.probe_priority_class],
        }],
    })
}

/// What a container gets that says nothing: only of what is bounded, because the quota would refuse it
/// otherwise.
fn limits(of: For<'_>) -> Option<Manifest> {
    let TenantResources {
        cpu,
        memory,
        storage,
        pods: _,
    } = &of.spec.resources;
    let (mut request, mut limit) = (Map::new(), Map::new());
    for (name, bound) in [("cpu", cpu), ("memory", memory)] {
        let RequestAndLimit {
            request: asked,
            limit: used,
        } = bound.clone().unwrap_or_default();
        let usual = |all: &[(&'static str, &'static str)]| {
            let found = all.iter().find(|(known, _)| *known == name);
            found.map_or("", |(_, amount)| *amount)
        };
        if let Some(Amount(bound)) = &used {
            let amount = quantity::smaller(usual(&LIMIT), bound);
            limit.insert(name.to_owned(), json!(amount));
        }
        if let Some(Amount(bound)) = asked.as_ref().or(used.as_ref()) {
            let amount = quantity::smaller(usual(&REQUEST), bound);
            request.insert(name.to_owned(), json!(amount));
        }
    }
    let mut items = Vec::new();
    if !(request.is_empty() && limit.is_empty()) {
        items.push(json!({ "type": "Container", "default": limit, "defaultRequest": request }));
    }
    let largest = storage.as_ref().and_then(|amounts| amounts.limit.as_ref());
    if let Some(Amount(largest)) = largest {
        items.push(json!({ "type": "PersistentVolumeClaim", "max": { "storage": largest } }));
    }
    let body = json!({ "spec": { "limits": items } });
    (!items.is_empty()).then(|| of.manifest(types::LIMITS, "tenant", "", body))
}
