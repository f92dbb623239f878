//! Tests of decisions, in a simulated cluster that applies their effects.

mod cluster;
mod deleting;
mod drifting;
mod fields;
mod judging;
mod proving;
mod taking;

use api::{Reason, tenants::TenantPhase};
use cluster::{Cluster, effects_of};
use serde_json::json;

#[test]
fn a_tenant_without_workloads_is_complete() {
    let mut cluster = Cluster::new(json!({ "deletion": { "policy": "Delete" } }));
    let decision = cluster.settle();
    assert_eq!(
        decision.phase,
        TenantPhase::Running,
        "{:?}",
        decision.verdict
    );
    assert!(decision.verdict.message.contains("tenant-shop"));
    assert!(cluster.status().redis_status.is_none());
}

#[test]
fn r50_running_needs_everything_to_be_ready() {
    let mut cluster = Cluster::full();
    let decision = cluster.settle();
    assert_eq!(decision.phase, TenantPhase::Provisioning);
    cluster.ready("redis", 1);
    assert_eq!(cluster.settle().phase, TenantPhase::Provisioning);
    cluster.ready("server", 2);
    let decision = cluster.settle();
    assert_eq!(
        decision.phase,
        TenantPhase::Running,
        "{:?}",
        decision.verdict
    );
    for kind in [
        "NamespaceReady",
        "QuotaReady",
        "RedisReady",
        "ServerReady",
        "NetworkPoliciesReady",
    ] {
        assert!(cluster.status().progress.is_true(kind), "{kind}");
    }
}

#[test]
fn what_is_settled_is_left_alone() {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.ready("redis", 1);
    cluster.ready("server", 2);
    cluster.settle();
    let before = cluster.status().clone();
    let decision = cluster.decide();
    assert_eq!(effects_of(&decision), Vec::<String>::new());
    cluster.record(&decision);
    assert_eq!(*cluster.status(), before);
}

#[test]
fn r52_the_order_of_a_configuration_does_not_matter() {
    let spec = |config: &str| {
        let mut spec = Cluster::full_spec();
        spec["redis"]["config"] = serde_json::from_str(config).unwrap();
        spec
    };
    let mut one = Cluster::new(spec(
        r#"{"timeout": "5", "maxmemory": "10mb", "appendonly": "no", "hz": "9", "maxclients": "7"}"#,
    ));
    let other = spec(
        r#"{"maxclients": "7", "appendonly": "no", "timeout": "5", "hz": "9", "maxmemory": "10mb"}"#,
    );
    one.settle();
    let mut children = one.world.children.iter();
    let map = children.find(|(_, child)| child.live.value().pointer("/data/redis.conf").is_some());
    let text = map.unwrap().1.live.value()["data"]["redis.conf"].clone();
    // With five directives, a random order is this one in 1 of 120 runs.
    let wanted = "appendonly no\nhz 9\nmaxclients 7\nmaxmemory 10mb\ntimeout 5\n";
    assert!(text.as_str().unwrap().ends_with(wanted), "{text}");
    one.change(other);
    assert_eq!(effects_of(&one.decide()), Vec::<String>::new());
}

#[test]
fn suspended_is_said_when_nothing_runs() {
    let mut cluster = Cluster::full();
    cluster.settle();
    cluster.ready("redis", 1);
    cluster.ready("server", 2);
    cluster.settle();
    let mut spec = Cluster::full_spec();
    spec["suspend"] = json!(true);
    cluster.change(spec);
    assert_eq!(cluster.settle().phase, TenantPhase::Provisioning);
    cluster.ready("redis", 0);
    cluster.ready("server", 0);
    assert_eq!(cluster.settle().phase, TenantPhase::Suspended);
    cluster.change(Cluster::full_spec());
    cluster.settle();
    cluster.ready("redis", 1);
    cluster.ready("server", 2);
    assert_eq!(cluster.settle().phase, TenantPhase::Running);
}

/// An injected container keeps the Pods running after their probes have ended.
#[test]
fn probes_beside_an_injected_container_prove_the_isolation() {
    let mut cluster = proving::running(&json!({}));
    let first = cluster.decide();
    cluster.record(&first);
    proving::made(&mut cluster, &first);
    proving::told(&mut cluster, "");
    for (_, pod) in &mut cluster.world.probes {
        pod.phase = pods::PodPhase::Running;
    }
    let end = cluster.decide();
    cluster.record(&end);
    assert_eq!(
        proving::isolated(&cluster),
        proving::is("True", Reason::Isolated)
    );
}
