use api::{
    Reason,
    decide::{Effect, ErrorClass, Input, ReconcileError, ResourceType},
    tenants::{ExpectedResult, TenantPhase, condition},
};
use pods::{ContainerState, ContainerView, Exit, PodPhase};
use serde_json::json;

use super::{
    super::{TenantDecision, decide, is_waiting_for_a_turn},
    cluster::{Cluster, effects_of},
    judging::pod,
};
use crate::{
    build::probe::{PLAN, is_bounded_by},
    view::PodView,
    world::{Address, Neighbour},
};

/// Returns a running Tenant with these fields in its spec.
pub(super) fn running(more: &serde_json::Value) -> Cluster {
    let mut spec = Cluster::full_spec();
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    let mut cluster = Cluster::new(spec);
    cluster.settle();
    cluster.ready("redis", 1);
    cluster.ready("server", 2);
    for component in ["redis", "server"] {
        let mut one = pod(component, cluster.now);
        one.is_ready = true;
        one.address = Some(format!("10.0.0.{}", component.len()));
        cluster.world.pods.push(one);
    }
    let spec = serde_json::from_value(Cluster::full_spec()).unwrap();
    cluster.world.neighbour = Some(Neighbour {
        name: "other".to_owned(),
        spec,
        addresses: vec![Address {
            component: "redis",
            address: "10.0.1.5".to_owned(),
            port: 6379,
        }],
    });
    cluster
}

/// Adds the probe Pods of a decision to the world, and returns their plans.
pub(super) fn made(cluster: &mut Cluster, decision: &TenantDecision) -> Vec<(String, Vec<String>)> {
    let mut plans = Vec::new();
    for effect in &decision.effects {
        let Effect::Ensure(manifest) = effect else {
            continue;
        };
        assert_eq!(manifest.resource, ResourceType::POD);
        let plan = manifest.body["metadata"]["annotations"][PLAN]
            .as_str()
            .unwrap();
        let lines = plan.lines().map(str::to_owned).collect();
        plans.push((manifest.name.clone(), lines));
        let template = pod("probe", cluster.now);
        let view = PodView {
            pod: pods::PodView {
                name: manifest.name.clone(),
                ..template.pod.clone()
            },
            plan: Some(plan.to_owned()),
            ..template
        };
        let namespace = manifest.namespace.clone().unwrap();
        cluster.world.probes.push((namespace, view));
    }
    plans
}

/// Makes each Pod report the expected result of each connection, with one exception.
pub(super) fn told(cluster: &mut Cluster, except: &str) {
    for (_, pod) in &mut cluster.world.probes {
        let lines = pod.plan.as_ref().unwrap().lines().map(|line| {
            let is_wanted = line.starts_with('+') != (!except.is_empty() && line.contains(except));
            format!("{} words\n", u8::from(is_wanted))
        });
        pod.container.state = ContainerState::Ended(Exit {
            reason: "Completed".to_owned(),
            message: lines.collect(),
            ..Exit::default()
        });
        pod.phase = PodPhase::Succeeded;
    }
}

pub(super) fn isolated(cluster: &Cluster) -> (String, String) {
    let known = cluster
        .status()
        .progress
        .condition(condition::NETWORK_ISOLATED)
        .unwrap();
    (known.status.clone(), known.reason.clone())
}

pub(super) fn is(value: &str, reason: Reason) -> (String, String) {
    (value.to_owned(), reason.name().to_owned())
}

#[test]
fn what_is_refused_and_what_passes_proves_it() {
    for (except, wanted) in [
        ("", is("True", Reason::Isolated)),
        (
            "- tcp 10.0.1.5:6379",
            is("False", Reason::PolicyNotEnforced),
        ),
        (
            "- tcp 10.0.0.5:6379",
            is("False", Reason::PolicyNotEnforced),
        ),
        (
            "+ tcp 10.0.0.5:6379",
            is("False", Reason::PolicyNotEnforced),
        ),
        ("+ dns", is("False", Reason::DNSUnreachable)),
    ] {
        let mut cluster = running(&json!({}));
        let first = cluster.decide();
        cluster.record(&first);
        assert_eq!(
            isolated(&cluster),
            is("Unknown", Reason::IsolationCheckPending)
        );
        let plans = made(&mut cluster, &first);
        assert_eq!(plans.len(), 2);
        assert_eq!(
            plans[0].1,
            [
                "+ dns kubernetes.default.svc",
                "+ tcp 10.0.0.5:6379",
                "+ tcp 10.0.0.6:3030",
                "- tcp 10.0.1.5:6379"
            ]
        );
        assert_eq!(
            plans[1].1,
            [
                "+ dns kubernetes.default.svc",
                "- tcp 10.0.0.5:6379",
                "- tcp 10.0.0.6:3030"
            ]
        );
        // While the Pods run, there are no effects and no result.
        let waiting = cluster.decide();
        assert_eq!(effects_of(&waiting), Vec::<String>::new());
        told(&mut cluster, except);
        let end = cluster.decide();
        assert_eq!(effects_of(&end), Vec::<String>::new(), "recorded first");
        cluster.record(&end);
        assert_eq!(isolated(&cluster), wanted, "{except}");
        assert_eq!(
            cluster
                .status()
                .isolation
                .as_ref()
                .unwrap()
                .connections
                .len(),
            7
        );
        let last = effects_of(&cluster.decide());
        assert!(
            last.len() == 2 && last.iter().all(|one| one.starts_with("delete Pod")),
            "{last:?}"
        );
    }
}

#[test]
fn a_pod_that_tells_nothing_proves_nothing() {
    let mut cluster = running(&json!({}));
    let first = cluster.decide();
    made(&mut cluster, &first);
    told(&mut cluster, "");
    let (_, pod) = &mut cluster.world.probes[1];
    pod.phase = PodPhase::Pending;
    pod.container = ContainerView::default();
    pod.unschedulable = Some("0/1 nodes are available".to_owned());
    let waiting = cluster.decide();
    assert!(waiting.requeue_at.is_some());
    assert!(waiting.status.isolation.is_none());
    cluster.pass(121);
    let end = cluster.decide();
    cluster.record(&end);
    assert_eq!(
        isolated(&cluster),
        is("Unknown", Reason::IsolationCheckFailed)
    );
    let known = cluster.status().progress.clone();
    let said = &known
        .condition(condition::NETWORK_ISOLATED)
        .unwrap()
        .message;
    assert!(said.contains("0/1 nodes are available"), "{said}");
    // The check is repeated.
    cluster.world.probes.clear();
    assert_eq!(effects_of(&cluster.decide()), Vec::<String>::new());
    cluster.pass(61);
    assert_eq!(effects_of(&cluster.decide()).len(), 2);
}

/// The customer can use up the quota of the probe Pods. That must not break everything else.
#[test]
fn pods_that_are_refused_prove_nothing_and_stop_nothing() {
    let mut cluster = running(&json!({}));
    let first = cluster.decide();
    let is_optional = |effect: &Effect| matches!(effect, Effect::Ensure(one) if one.optional);
    assert!(first.effects.iter().all(is_optional));
    let fault = ReconcileError::new(
        ErrorClass::Denied,
        Reason::QuotaExceeded,
        "exceeded quota: tenant-probes",
    );
    let refused = decide(&Input {
        object: &cluster.tenant,
        world: &cluster.world,
        now: cluster.now,
        fault: Some(&fault),
        refused: true,
        confirmed: true,
        overdue: false,
    });
    assert_eq!(effects_of(&refused), Vec::<String>::new());
    assert_eq!(refused.phase, TenantPhase::Running);
    cluster.record(&refused);
    assert_eq!(
        isolated(&cluster),
        is("Unknown", Reason::IsolationCheckFailed)
    );
    let status = cluster.status().clone();
    // isolated/create-pods:#1=403x2
    let fact = status.progress.condition(condition::NETWORK_ISOLATED);
    let said = fact.map_or("", |fact| fact.message.as_str());
    assert!(said.contains("cannot be made"), "{said}");
    assert!(
        status.isolation.unwrap().last_proved_at.is_none(),
        "nothing was tried"
    );
    // The check is not repeated immediately, but soon.
    assert_eq!(effects_of(&cluster.decide()), Vec::<String>::new());
    cluster.pass(61);
    assert_eq!(effects_of(&cluster.decide()).len(), 2);
}

#[test]
fn what_is_refused_where_everything_is_refused_proves_nothing() {
    let mut cluster = running(&json!({}));
    cluster.world.outside_policies = vec!["default-deny".to_owned()];
    let decision = cluster.decide();
    assert_eq!(effects_of(&decision), Vec::<String>::new());
    cluster.record(&decision);
    assert_eq!(
        isolated(&cluster),
        is("Unknown", Reason::IsolationCheckFailed)
    );
    let policy = |labels: serde_json::Value, types: &[&str]| json!({ "spec": { "podSelector": { "matchLabels": labels }, "policyTypes": types } });
    assert!(is_bounded_by(&policy(json!({}), &["Egress"])));
    assert!(is_bounded_by(&policy(
        json!({ "orchestrator.io/component": "probe" }),
        &["Ingress", "Egress"]
    )));
    assert!(!is_bounded_by(&policy(json!({}), &["Ingress"])));
    assert!(!is_bounded_by(&policy(
        json!({ "app.kubernetes.io/name": "orchestrator" }),
        &["Egress"]
    )));
}

#[test]
fn what_was_tried_must_still_be_there() {
    let mut cluster = running(&json!({}));
    let first = cluster.decide();
    made(&mut cluster, &first);
    told(&mut cluster, "");
    // The other Tenant's Redis has a new address, so the blocked connection verifies nothing.
    let neighbour = cluster.world.neighbour.as_mut().unwrap();
    neighbour.addresses[0].address = "10.0.1.77".to_owned();
    let again = cluster.decide();
    let effects = effects_of(&again);
    assert!(
        effects.len() == 1 && effects[0].starts_with("delete Pod"),
        "{effects:?}"
    );
    assert!(again.status.isolation.is_none());
    // The old Pod is being deleted. The new Pod has the same name and must wait.
    cluster.world.probes[0].1.stop_asked = Some(cluster.now);
    assert_eq!(effects_of(&cluster.decide()), Vec::<String>::new());
    cluster.world.probes.remove(0);
    let effects = effects_of(&cluster.decide());
    assert!(
        effects.len() == 1 && effects[0].starts_with("create Pod"),
        "{effects:?}"
    );
}

fn proven() -> Cluster {
    let mut cluster = running(&json!({}));
    let first = cluster.decide();
    made(&mut cluster, &first);
    told(&mut cluster, "");
    let end = cluster.decide();
    cluster.record(&end);
    cluster.world.probes.clear();
    assert_eq!(isolated(&cluster), is("True", Reason::Isolated));
    cluster
}

#[test]
fn a_proof_holds_for_a_day_and_for_these_policies() {
    let mut cluster = proven();
    assert_eq!(effects_of(&cluster.settle()), Vec::<String>::new());
    cluster.pass(24 * 3600 - 1);
    assert_eq!(effects_of(&cluster.settle()), Vec::<String>::new());
    cluster.pass(3601);
    let due = cluster.decide();
    assert_eq!(effects_of(&due).len(), 2);
    cluster.record(&due);
    assert_eq!(
        isolated(&cluster),
        is("True", Reason::Isolated),
        "until then"
    );

    // Someone changed a policy, and it was repaired. It was different in between.
    let mut cluster = proven();
    let policy = cluster
        .world
        .children
        .iter_mut()
        .find(|(_, child)| child.name == "default-deny");
    policy.unwrap().1.generation += 2;
    let changed = cluster.decide();
    cluster.record(&changed);
    assert_eq!(
        isolated(&cluster),
        is("Unknown", Reason::IsolationCheckPending)
    );
    assert_eq!(effects_of(&changed).len(), 2);

    // With an unmanaged policy, no check helps.
    let mut cluster = proven();
    cluster.world.foreign_policies = vec!["by-hand".to_owned()];
    let opened = cluster.decide();
    cluster.record(&opened);
    assert_eq!(isolated(&cluster), is("False", Reason::UnmanagedPolicy));

    // The policy was deleted. A result from before the policy existed is invalid now.
    cluster.world.foreign_policies.clear();
    let again = cluster.decide();
    cluster.record(&again);
    assert_eq!(
        isolated(&cluster),
        is("Unknown", Reason::IsolationCheckPending)
    );
    assert_eq!(effects_of(&again).len(), 2, "it is tried again");
    let status = cluster.tenant.status.as_ref().unwrap();
    let said = status.progress.condition("NetworkIsolated").unwrap();
    assert!(said.message.contains("are trying the connections"));
}

#[test]
fn a_policy_that_an_earlier_tenant_left_is_not_overlooked() {
    let mut cluster = proven();
    let (_, mut left) = cluster
        .world
        .children
        .iter()
        .find(|(_, child)| child.name == "default-deny")
        .cloned()
        .unwrap();
    left.name = "rule-of-old".to_owned();
    left.is_deleting = true;
    cluster.world.retained_policies.push(left);
    let held = cluster.decide();
    cluster.record(&held);
    assert_eq!(
        isolated(&cluster),
        is("Unknown", Reason::IsolationCheckPending)
    );
    let status = cluster.tenant.status.as_ref().unwrap();
    let said = status.progress.condition("NetworkPoliciesReady").unwrap();
    assert_eq!(
        (said.status.as_str(), said.message.contains("'rule-of-old'")),
        ("False", true)
    );
}

#[test]
fn a_proof_that_cannot_be_renewed_ends() {
    let mut cluster = proven();
    let status = cluster.tenant.status.as_ref().unwrap();
    let last = status
        .isolation
        .as_ref()
        .unwrap()
        .last_proved_at
        .clone()
        .unwrap()
        .0;
    cluster.tenant.spec.suspend = true;
    cluster.settle();
    cluster.pass(26 * 3600);
    let later = cluster.decide();
    cluster.record(&later);
    assert_eq!(isolated(&cluster), is("True", Reason::Isolated), "two days");
    let end = last
        .saturating_add(std::time::Duration::from_secs(48 * 3600))
        .unwrap();
    assert_eq!(
        later.requeue_at,
        Some(end),
        "somebody looks when they are over"
    );
    cluster.pass(23 * 3600);
    let over = cluster.decide();
    cluster.record(&over);
    assert_eq!(
        isolated(&cluster),
        is("Unknown", Reason::IsolationCheckPending)
    );
}

#[test]
fn a_proof_of_one_side_says_so() {
    let cluster = proven();
    let status = cluster.tenant.status.as_ref().unwrap();
    let mut isolation = status.isolation.clone().unwrap();
    let said = |isolation: &api::tenants::Isolated| {
        super::super::isolation::condition_from(isolation).message
    };
    assert!(
        !said(&isolation).contains("could be tried"),
        "{}",
        said(&isolation)
    );
    isolation
        .connections
        .retain(|one| one.expected == ExpectedResult::Allowed || one.from == "a Pod outside");
    assert!(said(&isolation).ends_with("; no other Tenant had anything to be tried"));
    let mut isolation = status.isolation.clone().unwrap();
    isolation
        .connections
        .retain(|one| one.expected == ExpectedResult::Allowed || one.from != "a Pod outside");
    assert!(said(&isolation).ends_with("; nothing of this Tenant could be tried from outside"));
}

#[test]
fn what_a_rule_allows_must_pass_and_what_it_may_allow_is_not_tried() {
    let plan = |policy: serde_json::Value| {
        let mut cluster = running(&json!({ "networkPolicy": policy }));
        let first = cluster.decide();
        let plans = made(&mut cluster, &first);
        plans[1].1[1..].to_vec()
    };
    assert_eq!(
        plan(json!({ "allowedNamespaces": ["orchestrator"] })),
        ["- tcp 10.0.0.5:6379", "+ tcp 10.0.0.6:3030"]
    );
    let rule = |from: serde_json::Value, port: u16| json!({ "ingressRules": [{ "from": [from], "ports": [{ "port": port }] }] });
    assert_eq!(
        plan(rule(json!({ "namespace": "orchestrator" }), 6379)),
        ["+ tcp 10.0.0.5:6379", "- tcp 10.0.0.6:3030"]
    );
    assert_eq!(
        plan(rule(json!({ "network": "10.0.0.0/8" }), 6379)),
        ["- tcp 10.0.0.6:3030"]
    );
}

#[test]
fn nothing_to_try_is_not_isolated() {
    let mut cluster = Cluster::new(json!({ "deletion": { "policy": "Delete" } }));
    let end = cluster.settle();
    assert_eq!(isolated(&cluster), is("Unknown", Reason::NothingToProbe));
    assert!(end.requeue_at.is_some(), "another Tenant may come");
}

#[test]
fn five_at_a_time_try() {
    let mut cluster = running(&json!({}));
    assert!(is_waiting_for_a_turn(
        &cluster.tenant,
        &cluster.world,
        cluster.now
    ));
    cluster.world.probing = 5;
    let waiting = cluster.decide();
    assert_eq!(effects_of(&waiting), Vec::<String>::new());
    assert!(waiting.requeue_at.is_some());
    cluster.record(&waiting);
    let isolated = cluster.status().progress.condition("NetworkIsolated");
    let words = &isolated.unwrap().message;
    assert!(words.contains("waits for its turn"), "{words}");
    cluster.world.probing = 4;
    assert_eq!(effects_of(&cluster.decide()).len(), 2);
}

#[test]
fn the_pods_that_try_from_outside_go_with_the_tenant() {
    let mut cluster = running(&json!({}));
    let first = cluster.decide();
    made(&mut cluster, &first);
    cluster.delete();
    cluster.world.namespace = None;
    let going = cluster.decide();
    assert_eq!(effects_of(&going).len(), 1);
    // We do not wait for a Pod inside, because an owner could create new ones indefinitely.
    let outside = cluster.world.settings.probe_namespace.clone();
    cluster
        .world
        .probes
        .retain(|(namespace, _)| *namespace != outside);
    cluster.settle();
    assert!(cluster.is_released);
}

/// An owner can create Pods in the Tenant's namespace with any name, labels and termination message.
#[test]
fn each_side_is_believed_only_where_it_was_made() {
    let mut cluster = running(&json!({}));
    let first = cluster.decide();
    made(&mut cluster, &first);
    told(&mut cluster, "");
    let outside = cluster.world.settings.probe_namespace.clone();
    for (namespace, _) in &mut cluster.world.probes {
        if *namespace == outside {
            *namespace = "tenant-shop".to_owned();
        }
    }
    let forged = cluster.decide();
    assert!(forged.status.isolation.is_none(), "nothing is proven");
    let effects = effects_of(&forged);
    assert!(
        effects.len() == 2 && effects[0].starts_with("delete Pod"),
        "the forged one goes: {effects:?}"
    );
    assert!(effects[1].starts_with("create Pod"), "{effects:?}");
}

#[test]
fn a_proof_of_a_clock_that_is_ahead_is_none() {
    let mut cluster = proven();
    cluster.now -= std::time::Duration::from_secs(3600);
    let decision = cluster.decide();
    assert_eq!(effects_of(&decision).len(), 2, "it is tried again");
    cluster.record(&decision);
    assert_eq!(
        isolated(&cluster),
        is("Unknown", Reason::IsolationCheckPending)
    );

    // The same is true for the time of a retry.
    let mut cluster = running(&json!({}));
    cluster.world.outside_policies = vec!["default-deny".to_owned()];
    let refused = cluster.decide();
    cluster.record(&refused);
    cluster.world.outside_policies.clear();
    assert_eq!(effects_of(&cluster.decide()), Vec::<String>::new());
    cluster.now -= std::time::Duration::from_secs(3600);
    assert_eq!(effects_of(&cluster.decide()).len(), 2);
}

#[test]
fn a_pod_that_tells_nothing_is_no_proof() {
    let mut cluster = proven();
    let proved = cluster.status().isolation.clone().unwrap().last_proved_at;
    cluster.pass(26 * 3600);
    let due = cluster.decide();
    let names: Vec<String> = made(&mut cluster, &due)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    cluster.pass(121);
    let end = cluster.decide();
    cluster.record(&end);
    assert_eq!(
        isolated(&cluster),
        is("Unknown", Reason::IsolationCheckFailed)
    );
    let isolation = cluster.status().isolation.clone().unwrap();
    assert_eq!(isolation.last_proved_at, proved, "it was not proven then");
    cluster.world.probes.clear();
    assert_eq!(effects_of(&cluster.decide()), Vec::<String>::new());
    cluster.pass(61);
    let again = cluster.decide();
    let others = made(&mut cluster, &again);
    assert_eq!(others.len(), 2);
    assert!(others.iter().all(|(name, _)| !names.contains(name)));
}
