use api::{Reason, tenants::TenantPhase};
use serde_json::{Value, json};

use super::cluster::{Cluster, effects_of};
use crate::{
    build::types,
    view::{Live, PodView},
};

fn running() -> Cluster {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.ready("redis", 1);
    cluster.ready("server", 2);
    assert_eq!(cluster.settle().phase, TenantPhase::Running);
    cluster
}

#[test]
fn whatever_is_deleted_is_made_again() {
    let all = running().world.children;
    assert!(all.len() >= 12, "{}", all.len());
    for (resource, child) in all {
        let mut cluster = running();
        cluster.forget(resource, &child.name);
        let decision = cluster.decide();
        assert_ne!(decision.phase, TenantPhase::Running, "{}", child.name);
        let wanted = format!("apply {} {}", resource.kind, child.name);
        assert_eq!(effects_of(&decision), [wanted]);
    }
    let mut cluster = running();
    cluster.world.secret = None;
    let decision = cluster.decide();
    assert_eq!(effects_of(&decision), ["create Secret tenant-redis"]);
    cluster.act(&decision.effects[0]);
    assert_eq!(
        effects_of(&cluster.decide()),
        ["apply StatefulSet redis", "apply Deployment server"],
        "both have another password"
    );
}

/// If workloads were created before the password is known, they would start twice.
#[test]
fn who_uses_the_password_waits_for_it() {
    let mut cluster = Cluster::full();
    let effects = effects_of(&cluster.decide());
    assert!(effects.contains(&"create Secret tenant-redis".to_owned()));
    assert!(!effects.iter().any(|one| one.contains("StatefulSet")));
    assert!(!effects.iter().any(|one| one.contains("Deployment")));
    cluster.settle();
    assert_eq!(cluster.world.redis.as_ref().unwrap().generation, 1);
    assert_eq!(cluster.world.server.as_ref().unwrap().generation, 1);
}

/// An owner may write Secrets. A missing label must not block everything else.
#[test]
fn a_secret_without_its_label_is_still_ours() {
    let mut cluster = running();
    cluster.world.secret.as_mut().unwrap().has_label = false;
    assert_eq!(effects_of(&cluster.decide()), ["patch Secret tenant-redis"]);
    cluster.settle();
    assert!(cluster.world.secret.unwrap().has_label);
}

/// A copied Deployment has the same labels.
#[test]
fn a_copy_that_an_owner_made_is_his() {
    let mut cluster = running();
    let copied = cluster.world.children.iter();
    let mut copied = copied.filter(|(resource, _)| *resource == types::DEPLOYMENT);
    let mut copy = copied.next().unwrap().clone();
    copy.1.name = "worker".to_owned();
    cluster.world.children.push(copy);
    let decision = cluster.settle();
    assert_eq!(effects_of(&decision), Vec::<String>::new());
    assert_eq!(decision.phase, TenantPhase::Running);
}

/// Pods of a copy do not belong to the Tenant, regardless of their labels.
#[test]
fn a_pod_is_ours_by_what_made_it() {
    let pod = |component: &str, controller: Option<(&str, &str)>| {
        let owners: Vec<Value> = controller
            .into_iter()
            .map(|(kind, name)| {
                json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true })
            })
            .collect();
        let pod = json!({ "metadata": {
            "labels": { "orchestrator.io/component": component, "pod-template-hash": "5d8f" },
            "ownerReferences": owners,
        } });
        PodView::from(&serde_json::from_value(pod).unwrap()).component
    };
    for (component, controller, is_ours) in [
        ("redis", Some(("StatefulSet", "redis")), true),
        ("redis", Some(("StatefulSet", "redis-copy")), false),
        ("redis", None, false),
        ("server", Some(("ReplicaSet", "server-5d8f")), true),
        ("server", Some(("ReplicaSet", "server-two-5d8f")), false),
        ("server", Some(("ReplicaSet", "backend-5d8f")), false),
        ("server", None, false),
        ("probe", None, true),
        ("probe", Some(("ReplicaSet", "forger-5d8f")), false),
    ] {
        let found = pod(component, controller);
        assert_eq!(
            found == component,
            is_ours,
            "{component} by {controller:?}: '{found}'"
        );
    }
}

/// All policies with our label are managed.
#[test]
fn a_policy_with_our_label_that_we_do_not_want_goes() {
    let mut cluster = running();
    let known = cluster.world.children.iter();
    let mut known = known.filter(|(resource, _)| *resource == types::NETWORK_POLICY);
    let mut copy = known.next().unwrap().clone();
    copy.1.name = "open".to_owned();
    cluster.world.children.push(copy);
    assert_eq!(effects_of(&cluster.decide()), ["delete NetworkPolicy open"]);
}

#[test]
fn whatever_is_changed_is_mended_and_what_others_add_stays() {
    fn change(
        cluster: &mut Cluster,
        resource: api::decide::ResourceType,
        name: &str,
        pointer: &str,
        value: Value,
    ) {
        let mut children = cluster.world.children.iter_mut();
        let (_, child) = children
            .find(|(known, child)| *known == resource && child.name == name)
            .unwrap();
        let mut live = child.live.value();
        *live.pointer_mut(pointer).unwrap() = value;
        child.live = Live::of(&live);
    }
    for (resource, name, pointer, value, is_mended) in [
        (
            types::DEPLOYMENT,
            "server",
            "/spec/replicas",
            json!(7),
            true,
        ),
        (
            types::DEPLOYMENT,
            "server",
            "/spec/template/spec/containers/0/image",
            json!("evil:1"),
            true,
        ),
        (
            types::QUOTA,
            "tenant",
            "/spec/hard/pods",
            json!("1000"),
            true,
        ),
        (
            types::QUOTA,
            "tenant",
            "/spec/hard/limits.cpu",
            json!("2000m"),
            false,
        ),
        (
            types::NETWORK_POLICY,
            "default-deny",
            "/spec/ingress",
            json!([{}]),
            true,
        ),
        (
            types::ROLE_BINDING,
            "tenant-owner",
            "/subjects",
            json!([]),
            true,
        ),
        (
            types::SERVICE,
            "redis",
            "/spec/selector",
            json!({ "app": "mine" }),
            true,
        ),
    ] {
        let mut cluster = running();
        change(&mut cluster, resource, name, pointer, value);
        let effects = effects_of(&cluster.decide());
        let wanted = format!("apply {} {name}", resource.kind);
        assert_eq!(
            effects.contains(&wanted),
            is_mended,
            "{pointer}: {effects:?}"
        );
    }
    let mut cluster = running();
    let mut children = cluster.world.children.iter_mut();
    let (_, server) = children
        .find(|(known, _)| *known == types::DEPLOYMENT)
        .unwrap();
    let mut live = server.live.value();
    live["spec"]["paused"] = json!(false);
    live["metadata"]["labels"]["team"] = json!("blue");
    server.live = Live::of(&live);
    assert_eq!(effects_of(&cluster.decide()), Vec::<String>::new());
}

#[test]
fn r53_a_removed_rule_removes_its_policy() {
    let mut spec = Cluster::full_spec();
    let rule =
        |port: u16| json!({ "from": [{ "namespace": "monitor" }], "ports": [{ "port": port }] });
    spec["networkPolicy"] = json!({ "ingressRules": [rule(1), rule(2)] });
    let mut cluster = Cluster::new(spec.clone());
    cluster.settle();
    spec["networkPolicy"] = json!({ "ingressRules": [rule(1)] });
    cluster.change(spec.clone());
    assert_eq!(
        effects_of(&cluster.decide()),
        ["delete NetworkPolicy ingress-1"]
    );
    cluster.settle();
    spec["networkPolicy"] = json!({ "enabled": false });
    cluster.change(spec);
    let effects = effects_of(&cluster.decide());
    assert!(
        effects.len() == 4
            && effects
                .iter()
                .all(|one| one.starts_with("delete NetworkPolicy")),
        "{effects:?}"
    );
    cluster.settle();
    let condition = cluster
        .status()
        .progress
        .condition("NetworkIsolated")
        .unwrap();
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        ("False", "PoliciesDisabled")
    );
}

#[test]
fn r54_no_allowed_namespace_means_nobody() {
    let policies = |allowed: Value| {
        let mut spec = Cluster::full_spec();
        spec["networkPolicy"] = json!({ "allowedNamespaces": allowed });
        let mut cluster = Cluster::new(spec);
        cluster.settle();
        let children = cluster.world.children.into_iter();
        let policies = children.filter(|(known, _)| *known == types::NETWORK_POLICY);
        policies
            .map(|(_, child)| (child.name, child.live.value()))
            .collect::<Vec<_>>()
    };
    let nobody = policies(json!([]));
    let names: Vec<&str> = nobody.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["default-deny", "allow-dns", "allow-inside"]);
    for (name, live) in &nobody {
        let within = json!([{ "from": [{ "podSelector": {} }] }]);
        let wanted = if name == "allow-inside" {
            within
        } else {
            json!([])
        };
        // A rule with an empty `from` would allow everybody.
        assert_eq!(live.pointer("/spec/ingress"), Some(&wanted), "{name}");
    }
    let someone = policies(json!(["front"]));
    let (_, live) = someone.last().unwrap();
    assert_eq!(
        live.pointer("/spec/ingress/0/from/0/namespaceSelector/matchLabels"),
        Some(&json!({ "kubernetes.io/metadata.name": "front" }))
    );
}

#[test]
fn r57_each_field_of_resources_bounds_something() {
    let mut spec = Cluster::full_spec();
    let whole = bounds(spec.clone());
    let all: [(&str, &[&str]); 4] = [
        ("cpu", &["request", "limit"]),
        ("memory", &["request", "limit"]),
        ("storage", &["total", "perVolume"]),
        ("pods", &["limit"]),
    ];
    for (field, parts) in all {
        for part in parts {
            let mut less = spec.clone();
            less["resources"][field]
                .as_object_mut()
                .unwrap()
                .remove(*part);
            if field == "pods" {
                less["resources"].as_object_mut().unwrap().remove(field);
            }
            assert_ne!(bounds(less), whole, "{field}.{part}");
        }
    }
    spec["resources"] = json!({});
    assert_ne!(bounds(spec), whole);
}

fn bounds(spec: Value) -> Vec<(String, Value)> {
    let mut cluster = Cluster::new(spec);
    cluster.settle();
    let children = cluster.world.children.into_iter();
    children
        .filter(|(known, _)| [types::QUOTA, types::LIMITS].contains(known))
        .map(|(known, child)| {
            (
                [known.kind, &child.name].join(" "),
                child.live.value()["spec"].clone(),
            )
        })
        .collect()
}

#[test]
fn a_policy_of_someone_else_is_said_at_once() {
    let mut cluster = running();
    cluster.world.foreign_policies.push("open-all".to_owned());
    cluster.settle();
    for kind in ["NetworkIsolated", "NetworkPoliciesReady"] {
        let condition = cluster.status().progress.condition(kind).unwrap();
        assert_eq!(condition.status, "False", "{kind}");
        assert_eq!(condition.reason, Reason::UnmanagedPolicy.name());
        assert!(condition.message.contains("'open-all'"));
    }
}

/// If the API server rejects a creation, the effects after it are not applied.
#[test]
fn r53_what_opens_goes_before_anything_is_made() {
    let mut spec = Cluster::full_spec();
    spec["owners"] = json!([{ "kind": "User", "name": "alice" }]);
    spec["networkPolicy"] = json!({ "ingressRules": [{ "from": [{ "namespace": "front" }], "ports": [{ "port": 80 }] }] });
    let mut cluster = Cluster::new(spec.clone());
    cluster.settle();
    spec["owners"] = json!([]);
    spec["networkPolicy"] = json!({});
    spec["server"]["image"] = json!("notes:2");
    cluster.change(spec);
    let effects = effects_of(&cluster.decide());
    let at = |start: &str| {
        effects
            .iter()
            .position(|one| one.starts_with(start))
            .unwrap()
    };
    assert!(
        at("delete RoleBinding") < at("apply Deployment"),
        "{effects:?}"
    );
    assert!(
        at("delete NetworkPolicy ingress") < at("apply Deployment"),
        "{effects:?}"
    );
}

#[test]
fn what_is_in_the_way_is_named() {
    let mut cluster = running();
    let service = |cluster: &mut Cluster, is_deleting: bool| {
        let mut all = cluster.world.children.iter_mut();
        let (_, child) = all
            .find(|(resource, child)| *resource == types::SERVICE && child.name == "server")
            .unwrap();
        child.is_deleting = is_deleting;
    };
    service(&mut cluster, true);
    let waiting = cluster.settle();
    assert_eq!(waiting.phase, TenantPhase::Provisioning);
    let words = &waiting.verdict.message;
    assert!(
        words.contains("Service 'server' is being deleted"),
        "{words}"
    );
    cluster.pass(121);
    assert_eq!(cluster.settle().phase, TenantPhase::Degraded);
    service(&mut cluster, false);
    assert_eq!(cluster.settle().phase, TenantPhase::Running);
    cluster.world.secret.as_mut().unwrap().is_deleting = true;
    let words = cluster.settle().verdict.message;
    assert!(
        words.contains("Secret 'tenant-redis' is being deleted"),
        "{words}"
    );
}
