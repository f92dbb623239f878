//! Quotas of the namespace, and default requests and limits of its containers.

use api::{
    decide::Manifest,
    pod::Amount,
    quantity,
    tenants::{RequestAndLimit, TenantResources},
};
use serde_json::{Map, Value, json};

use super::{BuildContext, types};

/// Default maximum numbers of objects of a Tenant, by their names in a ResourceQuota. The spec and the
/// operator's configuration override them.
///
/// Without these limits, an owner could fill the storage of the API server: a Secret or a ConfigMap has up
/// to 1 MiB.
pub const OBJECT_LIMITS: &[(&str, u32)] = &[
    // Pods that have not finished. A server may have 100 replicas, and twice as many during a rollout.
    (PODS, 250),
    // All Pods. Finished Pods stay until someone deletes them.
    (ALL_PODS, 1000),
    ("count/configmaps", 100),
    ("count/controllerrevisions.apps", 500),
    ("count/cronjobs.batch", 50),
    ("count/deployments.apps", 100),
    ("count/horizontalpodautoscalers.autoscaling", 50),
    ("count/jobs.batch", 200),
    ("count/persistentvolumeclaims", 50),
    // A Deployment keeps ten old ReplicaSets.
    ("count/replicasets.apps", 1200),
    ("count/secrets", 100),
    ("count/services", 50),
    ("count/statefulsets.apps", 50),
];
const PODS: &str = "pods";
const ALL_PODS: &str = "count/pods";

/// The highest configurable value of [`OBJECT_LIMITS`]. It is also the maximum of
/// `spec.resources.pods.limit`.
pub const MOST_OBJECTS: u32 = 100_000;

/// Default requests and limits of a container without its own, unless the Tenant's quota is smaller.
const REQUEST: [(&str, &str); 2] = [("cpu", "50m"), ("memory", "64Mi")];
const LIMIT: [(&str, &str); 2] = [("cpu", "500m"), ("memory", "256Mi")];

pub(super) fn all(context: BuildContext<'_>) -> Vec<Manifest> {
    let TenantResources {
        cpu,
        memory,
        storage,
        pods,
    } = &context.spec.resources;
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
    let pods = pods.as_ref().map(|pods| pods.limit);
    let most_pods = pods.unwrap_or_else(|| object_limit(context, PODS));
    hard.insert(PODS.to_owned(), json!(most_pods.to_string()));
    // The probe Pods do not belong to the customer, so they have their own quota.
    let body = json!({ "spec": { "hard": hard, "scopeSelector": by_class(context, "NotIn") } });
    all.push(context.manifest(types::QUOTA, "tenant", "", body));
    // On some networks, these Services let traffic bypass the policies.
    let mut hard = json!({ "services.nodeports": "0", "services.loadbalancers": "0" });
    for (name, _) in OBJECT_LIMITS.iter().filter(|(name, _)| *name != PODS) {
        let limit = object_limit(context, name);
        // A spec that allows many Pods also allows finished Pods.
        let ended = if *name == ALL_PODS {
            most_pods.saturating_mul(2)
        } else {
            0
        };
        hard[*name] = json!(limit.max(ended).to_string());
    }
    let volumes = storage.as_ref().and_then(|sizes| sizes.total.as_ref());
    if let Some(Amount(amount)) = volumes {
        hard["requests.storage"] = json!(amount);
    }
    let body = json!({ "spec": { "hard": hard } });
    all.push(context.manifest(types::QUOTA, "tenant-objects", "", body));
    // Without this quota, a Pod with the PriorityClass of the probe Pods could use any amount of resources.
    let hard = json!({ "pods": "2", "limits.cpu": "200m", "limits.memory": "128Mi" });
    let body = json!({ "spec": { "hard": hard, "scopeSelector": by_class(context, "In") } });
    all.push(context.manifest(types::QUOTA, "tenant-probes", "", body));
    all.extend(limits(context));
    all
}

/// Returns the configured number of objects of this name.
fn object_limit(context: BuildContext<'_>, name: &str) -> u32 {
    let configured = context.settings.object_limits.get(name).copied();
    let usual = OBJECT_LIMITS.iter().find(|(known, _)| *known == name);
    configured.unwrap_or_else(|| usual.map_or(0, |(_, limit)| *limit))
}

fn by_class(context: BuildContext<'_>, operator: &str) -> Value {
    json!({
        "matchExpressions": [{
            "scopeName": "PriorityClass",
            "operator": operator,
            "values": [context.settings.probe_priority_class],
        }],
    })
}

/// Returns the LimitRange with the defaults for containers without requests or limits. Only resources with
/// a quota have a default: the quota would reject the container otherwise.
fn limits(context: BuildContext<'_>) -> Option<Manifest> {
    let TenantResources {
        cpu,
        memory,
        storage,
        pods: _,
    } = &context.spec.resources;
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
    let largest = storage.as_ref().and_then(|sizes| sizes.per_volume.as_ref());
    if let Some(Amount(largest)) = largest {
        items.push(json!({ "type": "PersistentVolumeClaim", "max": { "storage": largest } }));
    }
    let body = json!({ "spec": { "limits": items } });
    (!items.is_empty()).then(|| context.manifest(types::LIMITS, "tenant", "", body))
}
