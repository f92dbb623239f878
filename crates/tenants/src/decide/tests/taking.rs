use api::{Reason, State, tenants::TenantPhase};
use serde_json::json;

use super::cluster::{Cluster, effects_of};
use crate::view::NamespaceView;

fn foreign() -> NamespaceView {
    NamespaceView {
        name: "tenant-shop".to_owned(),
        uid: "uid-foreign".to_owned(),
        version: "5".to_owned(),
        owner_uid: None,
        owner_name: None,
        labels: Vec::new(),
        notes: Vec::new(),
        retained_from: None,
        adopt: None,
        deleting: None,
        remaining: Vec::new(),
    }
}

#[test]
fn r55_a_foreign_namespace_is_refused_and_untouched() {
    let mut cluster = Cluster::full();
    let of_another = NamespaceView {
        owner_uid: Some("uid-other".to_owned()),
        owner_name: Some("other".to_owned()),
        ..foreign()
    };
    let offered_to_another = NamespaceView {
        retained_from: Some("other".to_owned()),
        adopt: Some("third".to_owned()),
        ..foreign()
    };
    // An offer has no effect while another Tenant owns the namespace.
    let offered_and_owned = NamespaceView {
        adopt: Some("shop".to_owned()),
        ..of_another.clone()
    };
    for namespace in [foreign(), of_another, offered_to_another, offered_and_owned] {
        cluster.world.namespace = Some(namespace.clone());
        let decision = cluster.settle();
        assert_eq!(effects_of(&decision), Vec::<String>::new());
        assert_eq!(decision.phase, TenantPhase::Pending);
        assert_eq!(decision.verdict.reason, Reason::NamespaceTaken);
        assert_eq!(decision.verdict.state, State::Stalled);
        assert!(decision.verdict.message.contains("'tenant-shop'"));
        assert_eq!(cluster.world.namespace, Some(namespace));
    }
    // The deletion of the Tenant does not change the namespace either.
    cluster.delete();
    let decision = cluster.settle();
    assert_eq!(effects_of(&decision), Vec::<String>::new());
    assert!(cluster.is_released);
}

/// The Tenant's policies would cut the operator off, and its deletion would delete the operator.
#[test]
fn the_namespace_of_the_operator_is_never_taken() {
    let own = |change: fn(&mut NamespaceView)| {
        let mut namespace = NamespaceView {
            name: "orchestrator".to_owned(),
            ..foreign()
        };
        change(&mut namespace);
        Some(namespace)
    };
    let cases = [
        ("not in the cache", None),
        ("not offered", own(|_| {})),
        ("offered", own(|one| one.adopt = Some("shop".to_owned()))),
        (
            "retained",
            own(|one| one.retained_from = Some("shop".to_owned())),
        ),
        (
            "adopted by an earlier release",
            own(|one| one.owner_uid = Some("uid-shop".to_owned())),
        ),
    ];
    for (name, namespace) in cases {
        let mut spec = Cluster::full_spec();
        spec["namespace"] = json!("orchestrator");
        let mut cluster = Cluster::new(spec);
        assert_eq!(cluster.world.settings.probe_namespace, "orchestrator");
        cluster.world.namespace.clone_from(&namespace);
        let decision = cluster.settle();
        assert_eq!(effects_of(&decision), Vec::<String>::new(), "{name}");
        assert_eq!(decision.verdict.reason, Reason::NamespaceTaken, "{name}");
        assert_eq!(decision.verdict.state, State::Stalled, "{name}");
        let message = &decision.verdict.message;
        assert!(message.contains("the operator's own"), "{message}");
        assert!(message.contains("another 'namespace'"), "{message}");
        // The spec's policy 'Delete' does not delete the operator.
        cluster.delete();
        let decision = cluster.settle();
        assert_eq!(effects_of(&decision), Vec::<String>::new(), "{name}");
        assert!(cluster.is_released, "{name}");
        assert_eq!(cluster.world.namespace, namespace, "{name}");
    }
}

#[test]
fn a_namespace_that_is_offered_is_taken() {
    for offer in [
        NamespaceView {
            retained_from: Some("shop".to_owned()),
            ..foreign()
        },
        NamespaceView {
            adopt: Some("shop".to_owned()),
            ..foreign()
        },
    ] {
        let mut cluster = Cluster::new(json!({ "deletion": { "policy": "Retain" } }));
        cluster.world.namespace = Some(offer);
        let first = cluster.decide();
        assert_eq!(effects_of(&first)[0], "patch Namespace tenant-shop");
        assert_eq!(cluster.settle().phase, TenantPhase::Running);
        let namespace = cluster.world.namespace.clone().unwrap();
        assert_eq!(namespace.owner_uid.as_deref(), Some("uid-shop"));
        assert_eq!((namespace.retained_from, namespace.adopt), (None, None));
    }
}

#[test]
fn a_namespace_that_is_being_deleted_is_waited_for() {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.world.namespace.as_mut().unwrap().deleting = Some(cluster.now);
    let decision = cluster.settle();
    assert_eq!(effects_of(&decision), Vec::<String>::new());
    assert_eq!(decision.verdict.reason, Reason::NamespaceTerminating);
    assert_eq!(decision.verdict.state, State::Working);
    // After the deletion, the namespace is created again.
    cluster.world.namespace = None;
    cluster.world.children.clear();
    cluster.world.secret = None;
    let decision = cluster.decide();
    assert_eq!(effects_of(&decision)[0], "create Namespace tenant-shop");
}

/// Someone removed the labels. The owner is still known, and data must not remain that the author wanted to
/// delete.
#[test]
fn a_namespace_without_its_label_is_still_ours() {
    let mut cluster = Cluster::full();
    cluster.settle();
    let strip = |cluster: &mut Cluster| {
        let namespace = cluster.world.namespace.as_mut().unwrap();
        namespace.labels.clear();
        (namespace.owner_uid, namespace.owner_name) = (None, None);
    };
    strip(&mut cluster);
    let decision = cluster.decide();
    assert_eq!(
        effects_of(&decision),
        ["patch Namespace tenant-shop"],
        "{:?}",
        decision.verdict
    );
    strip(&mut cluster);
    cluster.delete();
    cluster.settle();
    assert!(!cluster.is_released);
    assert!(cluster.world.namespace.as_ref().unwrap().deleting.is_some());
}

/// After a restore from a backup, a Tenant has another UID. It adopts its former objects when a user allows
/// it.
#[test]
fn a_restored_tenant_takes_what_it_had() {
    let mut cluster = Cluster::full();
    cluster.world.namespace = Some(NamespaceView {
        owner_uid: Some("uid-before".to_owned()),
        owner_name: Some("shop".to_owned()),
        ..foreign()
    });
    let decision = cluster.settle();
    assert_eq!(decision.verdict.reason, Reason::NamespaceTaken);
    assert!(
        decision
            .verdict
            .message
            .contains("orchestrator.io/adopt=shop")
    );
    cluster.world.namespace.as_mut().unwrap().adopt = Some("shop".to_owned());
    let decision = cluster.settle();
    assert_eq!(decision.phase, TenantPhase::Provisioning);
}
