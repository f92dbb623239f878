use api::{
    Reason, State,
    decide::{FinalizerAction, LiveRead},
    names,
    tenants::TenantPhase,
};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;

use super::{
    super::TenantDecision,
    cluster::{Cluster, effects_of},
};
use crate::view::NamespaceView;

#[test]
fn r56_a_namespace_is_told_to_go_and_waited_for() {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.delete();
    let uid = cluster.world.namespace.clone().unwrap().uid;
    // The intent is announced first.
    let first = cluster.decide();
    assert_eq!(effects_of(&first), Vec::<String>::new());
    assert_eq!(first.status.intent, Some(format!("delete {uid}")));
    cluster.record(&first);
    let second = cluster.decide();
    assert_eq!(effects_of(&second), ["delete Namespace tenant-shop"]);
    let waiting = cluster.settle();
    assert_eq!(waiting.verdict.reason, Reason::Deleting);
    assert!(!cluster.is_released);
    assert!(waiting.requeue_at.is_some());
    // After its deadline, the message names the blocking resources. The deletion continues.
    let namespace = cluster.world.namespace.as_mut().unwrap();
    namespace.remaining = vec![
        "Some content has finalizers remaining: example.com/hold in 1 resource instances"
            .to_owned(),
    ];
    cluster.pass(901);
    let stuck = cluster.settle();
    assert_eq!(stuck.phase, TenantPhase::Terminating);
    assert_eq!(stuck.verdict.state, State::Stalled);
    assert_eq!(stuck.verdict.reason, Reason::DeletionBlocked);
    assert!(
        stuck.verdict.message.contains("example.com/hold"),
        "{:?}",
        stuck.verdict
    );
    cluster.world.namespace = None;
    cluster.settle();
    assert!(cluster.is_released);
}

#[test]
fn r56_the_deadline_of_the_spec_ends_the_wait() {
    for (deadline, seconds) in [("5m", 300), ("2h", 7200)] {
        let mut spec = Cluster::full_spec();
        spec["deletion"] = json!({ "policy": "Delete", "deadline": deadline });
        let mut cluster = Cluster::new(spec);
        cluster.settle();
        cluster.delete();
        let end = cluster.now + std::time::Duration::from_secs(seconds);
        cluster.pass(seconds - 1);
        let waiting = cluster.settle();
        assert_eq!(waiting.verdict.reason, Reason::Deleting, "{deadline}");
        assert_eq!(waiting.requeue_at, Some(end), "{deadline}");
        cluster.pass(1);
        let stuck = cluster.settle();
        assert_eq!(stuck.verdict.reason, Reason::DeletionBlocked, "{deadline}");
        assert!(!cluster.is_released);
    }
}

#[test]
fn r56_a_deadline_that_is_extended_counts_from_the_deletion() {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.delete();
    cluster.settle();
    cluster.pass(901);
    assert_eq!(
        cluster.settle().verdict.reason,
        Reason::DeletionBlocked,
        "the default of 15 minutes"
    );
    let mut spec = Cluster::full_spec();
    spec["deletion"] = json!({ "policy": "Delete", "deadline": "20m" });
    cluster.change(spec);
    assert_eq!(cluster.settle().verdict.reason, Reason::Deleting);
    cluster.pass(299);
    assert_eq!(cluster.settle().verdict.reason, Reason::DeletionBlocked);
}

#[test]
fn what_is_retained_can_be_taken_back() {
    let mut spec = Cluster::full_spec();
    spec["deletion"] = json!({ "policy": "Retain" });
    let mut cluster = Cluster::new(spec);
    cluster.settle();
    cluster.delete();
    let announced = cluster.decide();
    assert_eq!(effects_of(&announced), Vec::<String>::new());
    cluster.record(&announced);
    let effects = effects_of(&cluster.decide());
    assert_eq!(effects.last().unwrap(), "patch Namespace tenant-shop");
    // A7: the workloads keep running, so the namespace stays closed and limited. Owners lose their
    // permissions.
    let deleted: Vec<&String> = effects
        .iter()
        .filter(|one| one.starts_with("delete "))
        .collect();
    assert_eq!(deleted, ["delete RoleBinding tenant-owner"]);
    for left in [
        "NetworkPolicy default-deny",
        "NetworkPolicy allow-dns",
        "NetworkPolicy allow-inside",
        "ResourceQuota tenant",
        "ResourceQuota tenant-objects",
        "ResourceQuota tenant-probes",
        "LimitRange tenant",
        "Deployment server",
        "StatefulSet redis",
        "Service redis",
        "ConfigMap redis",
        "Secret tenant-redis",
    ] {
        assert!(
            effects.contains(&format!("patch {left}")),
            "{left}: {effects:?}"
        );
    }
    cluster.settle();
    assert!(cluster.is_released);
    let namespace = cluster.world.namespace.clone().unwrap();
    assert_eq!(namespace.retained_from.as_deref(), Some("shop"));
    assert_eq!((namespace.owner_uid, namespace.deleting), (None, None));

    // Another Tenant of the same name adopts the namespace, with the same password.
    cluster.tenant.metadata.deletion_timestamp = None;
    cluster.tenant.metadata.uid = Some("uid-again".to_owned());
    cluster.tenant.status = None;
    let secret = cluster.world.secret.clone().unwrap().uid;
    let effects = effects_of(&cluster.decide());
    assert!(
        effects.contains(&"patch Secret tenant-redis".to_owned()),
        "{effects:?}"
    );
    cluster.settle();
    assert_eq!(cluster.world.secret.unwrap().uid, secret);
}

#[test]
fn a_tenant_can_be_let_go_by_force() {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.delete();
    let annotations = [("orchestrator.io/force-delete".to_owned(), "true".to_owned())];
    cluster.tenant.metadata.annotations = Some(annotations.into_iter().collect());
    let decision = cluster.settle();
    assert_eq!(effects_of(&decision), Vec::<String>::new());
    assert!(cluster.is_released);
}

#[test]
fn when_the_definition_goes_every_namespace_stays_as_it_is() {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.delete();
    cluster.world.is_definition_going = true;
    let announced = cluster.decide();
    assert_eq!(effects_of(&announced), Vec::<String>::new());
    assert!(announced.verdict.message.contains("left as it is"));
    cluster.record(&announced);
    let effects = effects_of(&cluster.decide());
    assert!(
        effects.iter().all(|effect| effect.starts_with("patch ")),
        "{effects:?}"
    );
    cluster.settle();
    assert!(cluster.is_released);
    let left = cluster.world.namespace.clone().unwrap();
    assert!(left.deleting.is_none());
    assert_eq!(left.retained_from.as_deref(), Some("shop"));
}

/// The label is for selection, and someone may remove it before anything was recorded.
#[test]
fn a_namespace_without_its_label_is_still_taken_away() {
    let mut cluster = Cluster::full();
    let namespace = crate::build::namespace(crate::build::BuildContext::new(
        &cluster.tenant,
        &cluster.world.settings,
    ));
    let mut object: Namespace = serde_json::from_value(namespace.body).unwrap();
    object.metadata.uid = Some("uid-of-place".to_owned());
    object.metadata.labels = None;
    cluster.world.namespace = Some(NamespaceView::from(&object));
    cluster.delete();
    let announced = cluster.decide();
    cluster.record(&announced);
    assert_eq!(
        effects_of(&cluster.decide()),
        ["delete Namespace tenant-shop"]
    );
    assert!(!cluster.is_released);
}

#[test]
fn of_what_is_being_taken_away_nothing_is_said() {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.ready("redis", 1);
    cluster.ready("server", 2);
    assert_eq!(cluster.settle().phase, TenantPhase::Running);
    cluster.delete();
    cluster.settle();
    let status = cluster.status();
    assert_eq!(
        (&status.server_status, &status.redis_status),
        (&None, &None)
    );
    let own = [
        "RedisReady",
        "ServerReady",
        "QuotaReady",
        "NetworkPoliciesReady",
    ];
    for kind in own {
        let known = status.progress.condition(kind).unwrap();
        assert_eq!(
            (known.status.as_str(), known.reason.as_str()),
            ("Unknown", "Deleting")
        );
    }
}

/// Returns the types that are read before a decision, in order.
fn reads(decision: &TenantDecision) -> Vec<&'static str> {
    let kind = |read: &LiveRead| match read {
        LiveRead::Object { resource, .. } | LiveRead::Children { resource, .. } => resource.kind,
    };
    decision.confirm.iter().map(kind).collect()
}

/// C1: a silent watch of namespaces left the namespace of a Tenant with the policy `Delete` behind.
#[test]
fn a_tenant_is_let_go_only_after_a_live_read() {
    const CHILDREN: [&str; 8] = [
        "ResourceQuota",
        "LimitRange",
        "RoleBinding",
        "NetworkPolicy",
        "ConfigMap",
        "Service",
        "Deployment",
        "StatefulSet",
    ];
    for policy in ["Delete", "Retain"] {
        let mut cluster = Cluster::new(json!({ "deletion": { "policy": policy } }));
        cluster.settle();
        cluster.delete();
        let namespace = cluster.world.namespace.take();
        let decision = cluster.decide_unconfirmed();
        let wanted: Vec<&str> = ["Namespace", "Pod"].into_iter().chain(CHILDREN).collect();
        assert_eq!(reads(&decision), wanted, "{policy}");
        assert!(matches!(
            cluster.decide().finalizer,
            FinalizerAction::Remove { .. }
        ));
        // The namespace existed after all.
        cluster.world.namespace = namespace;
        assert_eq!(
            cluster.decide().finalizer,
            FinalizerAction::Keep,
            "{policy}"
        );
    }
    // Retained objects are marked after all of them were found.
    let mut cluster = Cluster::new(json!({ "deletion": { "policy": "Retain" } }));
    cluster.settle();
    cluster.delete();
    let announced = cluster.decide();
    cluster.record(&announced);
    assert_eq!(reads(&cluster.decide_unconfirmed()), CHILDREN);
    assert!(!cluster.decide().effects.is_empty());
    // A forced deletion releases the Tenant without reads.
    let annotations = cluster.tenant.metadata.annotations.get_or_insert_default();
    annotations.insert(names::FORCE_DELETE.to_owned(), "true".to_owned());
    assert_eq!(reads(&cluster.decide_unconfirmed()), [""; 0]);
}
