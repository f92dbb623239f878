use std::{sync::Arc, time::Instant};

use serde_json::{Value, json};

use super::*;

const UID: &str = "uid-of-tenant";
const PLACE: &str = "tenant-a";

/// What was seen of one Tenant; each step a second after the last.
struct ScenarioRun {
    start: Instant,
    seen: Vec<Seen>,
}

impl ScenarioRun {
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
        let few = json!({ "hard": { "pods": "2", "limits.cpu": "1", "limits.memory": "1Mi" } });
        play.child("resourcequotas", "tenant-probes", few);
        let mut closed =
            json!({ "hard": { "services.nodeports": "0", "services.loadbalancers": "0" } });
        for name in [
            "pods",
            "configmaps",
            "secrets",
            "services",
            "persistentvolumeclaims",
            "deployments.apps",
            "statefulsets.apps",
            "jobs.batch",
            "cronjobs.batch",
        ] {
            closed["hard"][format!("count/{name}")] = json!("9");
        }
        play.child("resourcequotas", "tenant-objects", closed);
        let pods = json!({ "hard": { "pods": "250" } });
        let counted = json!({
            "metadata": { "namespace": PLACE, "labels": { names::UID: UID } },
            "spec": pods, "status": pods,
        });
        let uid = "resourcequotas-tenant";
        play.see(Change::Modified, "resourcequotas", "tenant", uid, counted);
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

fn says(play: &ScenarioRun, words: &str) {
    let said = play.judged();
    assert!(said.contains(words), "'{words}' is not in '{said}'");
}

#[test]
fn a_tenant_with_all_of_it_is_green() {
    let mut play = ScenarioRun::made();
    play.says("Ready", "Running");
    assert_eq!(play.judged(), "");
}

#[test]
fn a_green_needs_each_child() {
    for gone in 1..8 {
        let mut play = ScenarioRun::made();
        let missing = play.seen.remove(gone);
        play.says("Ready", "Running");
        says(&play, &format!("{}/{}", missing.resource, missing.name));
    }
    let mut play = ScenarioRun::made();
    play.child(
        "networkpolicies",
        "default-deny",
        json!({ "ingress": [{}] }),
    );
    play.says("Ready", "Running");
    assert_eq!(play.judged(), "", "a moment ago it was right");
    for _ in 0..LATE.as_secs() {
        play.says("Ready", "Running");
    }
    says(&play, "networkpolicies/default-deny was not as it must be");
}

/// The watches of a campaign are 2.5 s late at most: more is no excuse.
#[test]
fn a_green_over_a_child_that_is_wrong_for_four_seconds_is_a_lie() {
    let mut play = ScenarioRun::made();
    let open = json!({ "ingress": [{}] });
    play.child("networkpolicies", "default-deny", open);
    for _ in 0..3 {
        play.says("Ready", "Running");
    }
    assert_eq!(play.judged(), "", "three seconds");
    play.says("Ready", "Running");
    says(
        &play,
        "networkpolicies/default-deny was not as it must be for 4 s",
    );
}

/// A Tenant that is not ready can still lie about its parts.
#[test]
fn a_condition_needs_what_it_speaks_for() {
    let mut play = ScenarioRun::made();
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
    let redis = json!({ "spec": { "redis": redis() } });
    let mut play = ScenarioRun::made();
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
    let mut play = ScenarioRun::made();
    let set = |play: &mut ScenarioRun, generation: i64, observed: i64| {
        let mut object = redis_set();
        object["metadata"]["generation"] = json!(generation);
        object["status"] = json!({ "observedGeneration": observed, "readyReplicas": 1 });
        play.see(Change::Modified, "statefulsets", "redis", "set", object);
    };
    set(&mut play, 1, 1);
    let claim = json!({
        "spec": { "redis": redis() },
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

fn redis() -> Value {
    json!({ "image": "redis:7", "storage": { "size": "1Gi" } })
}

fn redis_set() -> Value {
    let secret = json!({ "secretKeyRef": { "name": "tenant-redis", "key": "password" } });
    let container = json!({
        "name": "redis", "image": "redis:7", "readinessProbe": {},
        "env": [{ "name": "REDISCLI_AUTH", "valueFrom": secret }],
    });
    json!({
        "metadata": { "namespace": PLACE, "generation": 1, "labels": { names::UID: UID } },
        "spec": {
            "replicas": 1,
            "volumeClaimTemplates": [
                { "spec": { "resources": { "requests": { "storage": "1024Mi" } } } },
            ],
            "template": { "spec": { "containers": [container] } },
        },
        "status": { "observedGeneration": 1, "readyReplicas": 1 },
    })
}

/// A spec with everything that the oracle compares.
fn asked() -> Value {
    json!({
        "resources": {
            "cpu": { "request": "1", "limit": "2" }, "storage": { "perVolume": "512Mi" },
        },
        "redis": redis(),
        "server": {
            "image": "notes:1", "replicas": 2, "port": 8080,
            "resources": { "requests": { "cpu": "10m" }, "limits": { "memory": "64Mi" } },
            "env": [{ "name": "GREETING", "value": "hello" }],
            "probes": { "readiness": { "path": "/health", "periodSeconds": 1 } },
        },
    })
}

fn deployment() -> Value {
    let container = json!({
        "name": "server", "image": "notes:1",
        "resources": { "requests": { "cpu": "0.01" }, "limits": { "memory": "65536Ki" } },
        "env": [
            { "name": "PORT", "value": "8080" }, { "name": "HOME", "value": "/tmp" },
            { "name": "REDIS_PASSWORD" }, { "name": "REDIS_URL" },
            { "name": "GREETING", "value": "hello" },
        ],
        "readinessProbe": {
            "httpGet": { "path": "/health", "port": 8080, "scheme": "HTTP" },
            "periodSeconds": 1, "failureThreshold": 3,
        },
    });
    json!({
        "metadata": { "namespace": PLACE, "generation": 1, "labels": { names::UID: UID } },
        "spec": { "replicas": 2, "template": { "spec": { "containers": [container] } } },
        "status": {
            "observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2,
        },
    })
}

/// A whole Tenant that says that it is ready, after this was done to one of its children.
fn with(resource: &str, name: &str, change: impl Fn(&mut Value)) -> String {
    let mut play = ScenarioRun::made();
    let bounds = json!({ "requests.cpu": "1", "limits.cpu": "2", "pods": "250" });
    let service = |name: &str, port: u16| {
        json!({
            "selector": { "orchestrator.io/component": name },
            "ports": [{ "port": port, "targetPort": port }],
        })
    };
    let ready = json!({ "endpoints": [{ "conditions": { "ready": true } }] });
    let limits = json!({ "spec": { "limits": [
        { "type": "Container", "default": { "cpu": "500m" }, "defaultRequest": { "cpu": "50m" } },
        { "type": "PersistentVolumeClaim", "max": { "storage": "512Mi" } },
    ] } });
    for (of, called, more) in [
        (
            "resourcequotas",
            "tenant",
            json!({ "spec": { "hard": bounds }, "status": { "hard": bounds } }),
        ),
        ("limitranges", "tenant", limits),
        (
            "secrets",
            "tenant-redis",
            json!({ "data": { "password": "YQ==", "auth.conf": "YQ==" } }),
        ),
        ("configmaps", "redis", json!({})),
        (
            "services",
            "redis",
            json!({ "spec": service("redis", 6379) }),
        ),
        (
            "services",
            "server",
            json!({ "spec": service("server", 8080) }),
        ),
        ("endpointslices", "redis", ready.clone()),
        ("endpointslices", "server", ready),
        ("statefulsets", "redis", redis_set()),
        ("deployments", "server", deployment()),
    ] {
        let labels = json!({ names::UID: UID, "kubernetes.io/service-name": called });
        let mut object = json!({ "metadata": { "namespace": PLACE, "labels": labels } });
        merge(&mut object, more);
        if (of, called) == (resource, name) {
            change(&mut object);
        }
        play.see(
            Change::Modified,
            of,
            called,
            &format!("{of}-{called}"),
            object,
        );
    }
    let status = json!({ "phase": "Running", "observedGeneration": 1, "conditions": [
        { "type": "Ready", "status": "True" },
    ] });
    play.tenant(json!({ "spec": asked(), "status": status }));
    play.judged()
}

#[test]
fn a_green_needs_each_child_as_the_spec_asks() {
    assert_eq!(with("none", "none", |_| {}), "");
    // CONTAINER and CLAIM stand for their paths in a workload.
    let whole = |path: &str| {
        let path = path.replace("CONTAINER", "spec/template/spec/containers/0");
        path.replace(
            "CLAIM",
            "spec/volumeClaimTemplates/0/spec/resources/requests",
        )
    };
    for (at, wrong) in [
        ("deployments/server /CONTAINER/image", json!("notes:0")),
        ("deployments/server /CONTAINER/env/4/value", json!("bye")),
        ("deployments/server /CONTAINER/env/0/value", json!("3030")),
        ("deployments/server /CONTAINER/env/4/name", json!("OTHER")),
        (
            "deployments/server /CONTAINER/resources/limits/memory",
            json!("64M"),
        ),
        (
            "deployments/server /CONTAINER/resources/requests",
            json!({}),
        ),
        (
            "deployments/server /CONTAINER/readinessProbe/httpGet/path",
            json!("/"),
        ),
        (
            "deployments/server /CONTAINER/readinessProbe/periodSeconds",
            json!(10),
        ),
        ("deployments/server /spec/replicas", json!(1)),
        ("statefulsets/redis /CONTAINER/image", json!("redis:6")),
        ("statefulsets/redis /CONTAINER/env", json!([])),
        ("statefulsets/redis /spec/replicas", json!(0)),
        ("statefulsets/redis /CLAIM/storage", json!("1G")),
        ("services/server /spec/ports/0/targetPort", json!(80)),
        ("services/server /spec/selector", json!({})),
        ("services/redis /spec/ports", json!([])),
        ("limitranges/tenant /spec/limits/0/default/cpu", json!("3")),
        (
            "limitranges/tenant /spec/limits/0/defaultRequest",
            json!({}),
        ),
        (
            "limitranges/tenant /spec/limits/1/max/storage",
            json!("1Gi"),
        ),
        ("secrets/tenant-redis /data/password", json!("")),
    ] {
        let (object, path) = at.split_once(' ').unwrap();
        let (resource, name) = object.split_once('/').unwrap();
        let said = with(resource, name, |object| {
            *object.pointer_mut(&whole(path)).unwrap() = wrong.clone();
        });
        let wanted = format!("{object} was never as it must be");
        assert!(said.contains(&wanted), "{at}={wrong}: '{said}'");
    }
}

#[test]
fn a_policy_that_nobody_asked_for_is_no_green() {
    let mut play = ScenarioRun::made();
    play.child("networkpolicies", "allow-namespaces", json!({}));
    play.says("Ready", "Running");
    says(&play, "networkpolicies/allow-namespaces is not wanted");
}

#[test]
fn isolation_needs_pods_that_told() {
    let probe_with = |play: &mut ScenarioRun, namespace: &str, own: Value| {
        let object = json!({
            "metadata": {
                "namespace": namespace,
                "labels": { names::UID: UID, "orchestrator.io/component": "probe" },
                "annotations": { "orchestrator.io/probe-plan": "+ dns x\n- tcp y" },
            },
            // An injected container goes on, and the kubelet reports the end of the Pod later.
            "status": { "phase": "Running", "containerStatuses": [
                { "name": "injected", "restartCount": 0, "state": { "running": {} } },
                own,
            ] },
        });
        play.see(Change::Modified, "pods", "p", namespace, object);
    };
    let container = |name: &str, code: i64, restarts: i64, told: &str| {
        json!({ "name": name, "restartCount": restarts,
            "state": { "terminated": { "exitCode": code, "message": told } } })
    };
    let probe = |play: &mut ScenarioRun, namespace: &str, told: &str| {
        probe_with(play, namespace, container("probe", 0, 0, told));
    };
    for (name, code, restarts) in [("injected-too", 0, 0), ("probe", 1, 0), ("probe", 0, 1)] {
        let mut play = ScenarioRun::made();
        probe(&mut play, PLACE, "1 ok\n0 refused");
        probe_with(
            &mut play,
            "home",
            container(name, code, restarts, "1 ok\n0 refused"),
        );
        play.says("NetworkIsolated", "Provisioning");
        says(&play, "no Pod outside had told so");
    }
    let mut play = ScenarioRun::made();
    probe(&mut play, PLACE, "1 ok\n0 refused");
    probe(&mut play, "home", "1 ok\n1 open");
    play.says("NetworkIsolated", "Provisioning");
    says(&play, "no Pod outside had told so");
    let mut play = ScenarioRun::made();
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
    let mut play = ScenarioRun::new();
    play.place(foreign.clone());
    play.tenant(json!({}));
    play.place(json!({}));
    says(&play, "nobody had offered it");
    let mut play = ScenarioRun::new();
    play.place(foreign.clone());
    play.tenant(json!({}));
    play.child("resourcequotas", "tenant-probes", json!({}));
    says(&play, "was written into namespace");
    let mut play = ScenarioRun::new();
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
    let mut play = ScenarioRun::made();
    play.tenant(going.clone());
    play.place(going.clone());
    says(&play, "that was not announced");
    let mut play = ScenarioRun::made();
    play.tenant(announced.clone());
    play.place(going.clone());
    assert_eq!(play.judged(), "");
    let mut retained = announced.clone();
    retained["spec"] = json!({ "deletion": { "policy": "Retain" } });
    let mut play = ScenarioRun::made();
    play.tenant(retained);
    play.place(going);
    says(&play, "was to be retained");
}

#[test]
fn a_tenant_goes_after_its_namespace() {
    let deleted = json!({ "spec": { "deletion": { "policy": "Delete" } } });
    let labelled = json!({ "metadata": { "labels": { names::UID: UID } } });
    let mut play = ScenarioRun::made();
    let gone = Change::Deleted;
    play.see(gone, "tenants", "a", UID, deleted);
    play.see(gone, "namespaces", PLACE, "uid-of-place", labelled);
    says(&play, "tenants/a was gone before namespace");
}

#[test]
fn children_are_made_by_who_is_held() {
    let mut play = ScenarioRun::new();
    play.tenant(json!({ "metadata": { "finalizers": [] } }));
    play.place(json!({}));
    says(&play, "was made before its Tenant was held");
}

#[test]
fn a_password_is_made_once() {
    let mut play = ScenarioRun::made();
    for uid in ["one", "two"] {
        let object = json!({ "metadata": { "namespace": PLACE } });
        play.see(Change::Added, "secrets", "tenant-redis", uid, object);
    }
    says(&play, "2 different secrets/tenant-redis");
}
