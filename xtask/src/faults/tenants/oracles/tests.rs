use std::{sync::Arc, time::Instant};

use serde_json::{Value, json};

use super::*;

const UID: &str = "uid-of-tenant";
const PLACE: &str = "tenant-a";

/// What was seen of one Tenant; each step a second after the last.
struct Play {
    start: Instant,
    seen: Vec<Seen>,
}

impl Play {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            seen: Vec::new(),
        }
    }

    fn see(&mut self, change: Change, resource: &str, name: &str, uid: &str, object: Value) {
        let version = 10 + self.seen.len() as u64;
        self.seen.push(Seen {
            at: self.start + Duration::from_secs(version),
            resource: resource.into(),
            change,
            name: name.into(),
            uid: uid.into(),
            version,
            object: Arc::new(object),
        });
    }

    fn tenant(&mut self, more: Value) {
        let mut object = json!({
            "metadata": { "generation": 1, "finalizers": ["tenants.orchestrator.io/finalizer"] },
            "spec": { "deletion": { "policy": "Delete" } },
        });
        merge(&mut object, more);
        self.see(Change::Modified, "tenants", "a", UID, object);
    }

    fn says(&mut self, kind: &str, phase: &str) {
        let conditions = json!([{ "type": kind, "status": "True" }]);
        let status = json!({ "phase": phase, "observedGeneration": 1, "conditions": conditions });
        self.tenant(json!({ "status": status }));
    }

    fn place(&mut self, more: Value) {
        let mut object = json!({ "metadata": { "labels": { names::UID: UID } } });
        merge(&mut object, more);
        self.see(
            Change::Modified,
            "namespaces",
            PLACE,
            "uid-of-place",
            object,
        );
    }

    fn child(&mut self, resource: &str, name: &str, spec: Value) {
        let object = json!({
            "metadata": { "namespace": PLACE, "labels": { names::UID: UID } }, "spec": spec,
        });
        let uid = format!("{resource}-{name}");
        self.see(Change::Modified, resource, name, &uid, object);
    }

    /// A bare one with all that it needs.
    fn made() -> Self {
        let mut play = Self::new();
        play.tenant(json!({}));
        play.place(json!({}));
        play.child("resourcequotas", "tenant-probes", json!({}));
        let closed = json!({ "hard": { "services.nodeports": "0" } });
        play.child("resourcequotas", "tenant-objects", closed);
        let both = json!({ "policyTypes": ["Ingress", "Egress"], "podSelector": {} });
        play.child("networkpolicies", "default-deny", both);
        play.child("networkpolicies", "allow-dns", json!({}));
        play.child("networkpolicies", "allow-inside", json!({}));
        play
    }

    fn judged(&self) -> String {
        let view = View::new(&self.seen);
        let all = [
            green::false_greens(&view),
            green::unproven(&view),
            green::disagreements(&view),
            places::taken(&view),
            places::ended(&view),
            places::unheld(&view),
            places::renewed(&view),
            places::outlived(&view),
        ];
        all.concat().join("; ")
    }
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn says(play: &Play, words: &str) {
    let said = play.judged();
    assert!(said.contains(words), "'{words}' is not in '{said}'");
}

#[test]
fn a_tenant_with_all_of_it_is_green() {
    let mut play = Play::made();
    play.says("Ready", "Running");
    assert_eq!(play.judged(), "");
}

#[test]
fn a_green_needs_each_child() {
    for gone in 1..7 {
        let mut play = Play::made();
        let missing = play.seen.remove(gone);
        play.says("Ready", "Running");
        says(&play, &format!("{}/{}", missing.resource, missing.name));
    }
    let mut play = Play::made();
    play.child(
        "networkpolicies",
        "default-deny",
        json!({ "ingress": [{}] }),
    );
    play.says("Ready", "Running");
    assert_eq!(play.judged(), "", "a moment ago it was right");
    for _ in 0..8 {
        play.says("Ready", "Running");
    }
    says(&play, "networkpolicies/default-deny was not as it must be");
}

/// A Tenant that is not ready can still lie about its parts.
#[test]
fn a_condition_needs_what_it_speaks_for() {
    let mut play = Play::made();
    play.says("NetworkPoliciesReady", "Degraded");
    play.says("QuotaReady", "Degraded");
    assert_eq!(play.judged(), "");
    play.child(
        "networkpolicies",
        "default-deny",
        json!({ "ingress": [{}] }),
    );
    for _ in 0..9 {
        play.says("QuotaReady", "Degraded");
    }
    assert_eq!(play.judged(), "");
    play.says("NetworkPoliciesReady", "Degraded");
    says(
        &play,
        "says NetworkPoliciesReady=True, but networkpolicies/default-deny was not",
    );
}

#[test]
fn a_green_needs_what_works_to_be_ready() {
    let redis = json!({ "spec": { "redis": {} } });
    let mut play = Play::made();
    play.tenant(redis.clone());
    play.child("statefulsets", "redis", json!({}));
    let status = json!({ "phase": "Running", "observedGeneration": 1, "conditions": [
        { "type": "Ready", "status": "True" },
    ] });
    let mut claim = redis;
    claim["status"] = status;
    play.tenant(claim);
    says(&play, "statefulsets/redis was never as it must be");
    says(&play, "secrets/tenant-redis was never");
}

#[test]
fn the_readiness_of_what_was_changed_is_not_the_old_one() {
    let mut play = Play::made();
    let set = |play: &mut Play, generation: i64, observed: i64| {
        let object = json!({
            "metadata": { "namespace": PLACE, "generation": generation, "labels": { names::UID: UID } },
            "status": { "observedGeneration": observed, "readyReplicas": 1 },
        });
        play.see(Change::Modified, "statefulsets", "redis", "set", object);
    };
    set(&mut play, 1, 1);
    let claim = json!({
        "spec": { "redis": {} },
        "status": { "phase": "Running", "observedGeneration": 1, "conditions": [
            { "type": "Ready", "status": "True" },
        ] },
    });
    play.tenant(claim.clone());
    assert!(!play.judged().contains("statefulsets"), "{}", play.judged());
    set(&mut play, 2, 1);
    play.tenant(claim);
    says(
        &play,
        "statefulsets/redis was not yet what it was changed to",
    );
}

#[test]
fn a_policy_that_nobody_asked_for_is_no_green() {
    let mut play = Play::made();
    play.child("networkpolicies", "allow-namespaces", json!({}));
    play.says("Ready", "Running");
    says(&play, "networkpolicies/allow-namespaces is not wanted");
}

#[test]
fn isolation_needs_pods_that_told() {
    let mut play = Play::made();
    let probe = |play: &mut Play, namespace: &str, told: &str| {
        let object = json!({
            "metadata": {
                "namespace": namespace,
                "labels": { names::UID: UID, "orchestrator.io/component": "probe" },
                "annotations": { "orchestrator.io/plan": "+ dns x\n- tcp y" },
            },
            "status": { "phase": "Succeeded", "containerStatuses": [
                { "state": { "terminated": { "message": told } } },
            ] },
        });
        play.see(Change::Modified, "pods", "p", namespace, object);
    };
    probe(&mut play, PLACE, "1 ok\n0 refused");
    probe(&mut play, "home", "1 ok\n1 open");
    play.says("NetworkIsolated", "Provisioning");
    says(&play, "no Pod outside had told so");
    let mut play = Play::made();
    probe(&mut play, PLACE, "1 ok\n0 refused");
    probe(&mut play, "home", "1 ok\n0 refused");
    play.says("NetworkIsolated", "Provisioning");
    assert_eq!(play.judged(), "");
    // Opened in between: what they told is of before.
    play.child("networkpolicies", "by-hand", json!({}));
    for _ in 0..LATE.as_secs() {
        play.place(json!({}));
    }
    play.says("NetworkIsolated", "Provisioning");
    says(&play, "since the last change of its policies no Pod inside");
}

#[test]
fn a_namespace_is_taken_only_if_it_is_offered() {
    let foreign = json!({ "metadata": { "labels": { names::UID: "other" } } });
    let mut play = Play::new();
    play.place(foreign.clone());
    play.tenant(json!({}));
    play.place(json!({}));
    says(&play, "nobody had offered it");
    let mut play = Play::new();
    play.place(foreign.clone());
    play.tenant(json!({}));
    play.child("resourcequotas", "tenant-probes", json!({}));
    says(&play, "was written into namespace");
    let mut play = Play::new();
    play.place(foreign);
    play.tenant(json!({}));
    play.place(json!({ "metadata": {
        "labels": { names::UID: "other" }, "annotations": { names::ADOPT: "a" },
    } }));
    play.place(json!({}));
    play.child("resourcequotas", "tenant-probes", json!({}));
    assert_eq!(play.judged(), "");
}

#[test]
fn a_namespace_ends_only_as_announced() {
    let going = json!({ "metadata": { "deletionTimestamp": "now" } });
    let announced = json!({
        "metadata": { "deletionTimestamp": "now" },
        "status": { "intent": "delete uid-of-place" },
    });
    let mut play = Play::made();
    play.tenant(going.clone());
    play.place(going.clone());
    says(&play, "that was not announced");
    let mut play = Play::made();
    play.tenant(announced.clone());
    play.place(going.clone());
    assert_eq!(play.judged(), "");
    let mut retained = announced.clone();
    retained["spec"] = json!({ "deletion": { "policy": "Retain" } });
    let mut play = Play::made();
    play.tenant(retained);
    play.place(going);
    says(&play, "was to be retained");
}

#[test]
fn a_tenant_goes_after_its_namespace() {
    let deleted = json!({ "spec": { "deletion": { "policy": "Delete" } } });
    let labelled = json!({ "metadata": { "labels": { names::UID: UID } } });
    let mut play = Play::made();
    let gone = Change::Deleted;
    play.see(gone, "tenants", "a", UID, deleted);
    play.see(gone, "namespaces", PLACE, "uid-of-place", labelled);
    says(&play, "tenants/a was gone before namespace");
}

#[test]
fn children_are_made_by_who_is_held() {
    let mut play = Play::new();
    play.tenant(json!({ "metadata": { "finalizers": [] } }));
    play.place(json!({}));
    says(&play, "was made before its Tenant was held");
}

#[test]
fn a_password_is_made_once() {
    let mut play = Play::made();
    for uid in ["one", "two"] {
        let object = json!({ "metadata": { "namespace": PLACE } });
        play.see(Change::Added, "secrets", "tenant-redis", uid, object);
    }
    says(&play, "2 different secrets/tenant-redis");
}
