//! Builds worlds about Tenant `acme` from objects as the API server returns them.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        coordination::v1::Lease,
        core::v1::{Event, LimitRange, Namespace, Node, PersistentVolumeClaim, Pod, ResourceQuota},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use why::{
    ObjectRef, World,
    explanation::State,
    world::{Known, Meta, NodeView, OtherView, TenantView, Unreadable},
};

use crate::{
    Case,
    build::{NOW, at, merge},
};

pub(crate) const PLACE: &str = "tenant-acme";
pub(crate) const SERVER: &str = "server-7d9f-x2k9p";
pub(crate) const PROBE: &str = "probe-acme-inside-5f3c0a1b2c";

fn time(clock: &str) -> Time {
    Time(at(clock).parse().unwrap())
}

fn from<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn case(
    name: &'static str,
    site: Site,
    state: State,
    blocker: Option<(&'static str, &'static str, &'static str)>,
) -> Case {
    Case {
        name,
        world: site.0,
        state,
        blocker,
    }
}

fn condition(kind: &str, value: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": value, "reason": reason, "message": message,
        "observedGeneration": 1, "lastTransitionTime": at("10:00:20") })
}

/// Returns a status like the operator's, written at 10:02:11.
pub(crate) fn status(
    phase: &str,
    reason: &str,
    message: &str,
    isolated: (&str, &str, &str),
) -> Value {
    let ready = if phase == "Running" { "True" } else { "False" };
    let (value, why, words) = isolated;
    let mut conditions = vec![condition("Ready", ready, reason, message)];
    if !why.is_empty() {
        conditions.push(condition("NetworkIsolated", value, why, words));
    }
    json!({
        "observedGeneration": 1, "phase": phase, "message": message,
        "lastUpdated": at("10:02:11"), "namespace": PLACE, "namespaceUid": "place-uid",
        "conditions": conditions,
    })
}

pub(crate) const UNKNOWN: (&str, &str, &str) = (
    "Unknown",
    "IsolationCheckPending",
    "not known yet: the connections are tried once everything is ready",
);
const PROVEN: (&str, &str, &str) = (
    "True",
    "Isolated",
    "4 connections were refused that must be, 3 passed that must",
);

/// Returns the status of a ready Tenant with this isolation condition.
pub(crate) fn running(isolated: (&str, &str, &str)) -> Value {
    let message = "namespace 'tenant-acme': redis 1/1, server 2/2 ready";
    status("Running", "Ready", message, isolated)
}

/// Returns the status of a Tenant with a component that is not ready.
pub(crate) fn degraded(reason: &str, message: &str) -> Value {
    status("Degraded", reason, message, UNKNOWN)
}

/// Adds the results of an isolation check.
pub(crate) fn with_isolation(mut status: Value, isolation: Value) -> Value {
    let mut all =
        json!({ "lastProvedAt": at("10:00:20"), "result": "Isolated", "policies": "5f3c" });
    merge(&mut all, isolation);
    status["isolation"] = all;
    status
}

/// A world about Tenant `acme`.
pub(crate) struct Site(pub(crate) World);

impl Site {
    /// Creates a world with this status of the Tenant and without its children. An operator leads.
    pub(crate) fn bare(status: Value) -> Self {
        Self(World::new(time(NOW), ObjectRef::cluster("Tenant", "acme")))
            .tenant(json!({ "status": status }))
            .lease(Some("orchestrator-tenants-5c7b-fghij"), "10:05:08")
            .place(json!({}))
            .policies(&["default-deny", "allow-dns", "allow-inside"])
    }

    /// Creates a world with a ready Redis and a ready server.
    pub(crate) fn ready(status: Value) -> Self {
        Self::bare(status).redis(json!({})).server(json!({}))
    }

    pub(crate) fn proven() -> Self {
        let status = with_isolation(running(PROVEN), json!({ "connections": tried(&[]) }));
        Self::ready(status)
    }

    pub(crate) fn tenant(mut self, more: Value) -> Self {
        let mut tenant = json!({
            "metadata": {
                "name": "acme", "uid": "tenant-uid", "generation": 1,
                "creationTimestamp": at("10:00:00"),
                "finalizers": ["tenants.orchestrator.io/finalizer"],
                "managedFields": [
                    { "manager": "kubectl", "operation": "Apply", "time": at("10:00:00") },
                    { "manager": "orchestrator", "operation": "Update", "subresource": "status",
                        "time": at("10:02:11") },
                ],
            },
            "spec": {
                "deletion": { "policy": "Delete" },
                "server": { "image": "registry.example/shop:2.1", "replicas": 2,
                    "env": [{ "name": "A", "value": "b" }],
                    "probes": { "readiness": { "path": "/health" } } },
                "redis": { "image": "registry.example/redis:7", "storage": { "size": "1Gi",
                    "storageClassName": "fast" } },
            },
        });
        merge(&mut tenant, more);
        self.0.tenant = Some(TenantView::read(&tenant));
        self
    }

    /// Sets the status and other fields of the Tenant.
    pub(crate) fn with(self, status: Value, more: Value) -> Self {
        let mut all = json!({ "status": status });
        merge(&mut all, more);
        self.tenant(all)
    }

    pub(crate) fn place(mut self, more: Value) -> Self {
        let mut namespace = json!({ "metadata": {
            "name": PLACE, "uid": "place-uid", "creationTimestamp": at("10:00:01"),
            "labels": {
                "orchestrator.io/kind": "Tenant", "orchestrator.io/name": "acme",
                "orchestrator.io/uid": "tenant-uid",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
            "managedFields": [{ "manager": "orchestrator", "operation": "Update",
                "time": at("10:00:01") }],
        }});
        merge(&mut namespace, more);
        self.0.namespace = Some((&from::<Namespace>(namespace)).into());
        self
    }

    /// Sets an unmanaged namespace with these labels and annotations.
    pub(crate) fn foreign(mut self, labels: Value, annotations: Value) -> Self {
        let namespace = json!({ "metadata": {
            "name": PLACE, "uid": "foreign-uid", "creationTimestamp": at("07:30:00"),
            "labels": labels, "annotations": annotations,
            "managedFields": [{ "manager": "kubectl-create", "operation": "Update",
                "time": at("07:30:00") }],
        }});
        self.0.namespace = Some((&from::<Namespace>(namespace)).into());
        self
    }

    pub(crate) fn no_place(mut self) -> Self {
        self.0.namespace = None;
        self.known("Namespace", PLACE, false)
    }

    pub(crate) fn dying(self, since: &str, conditions: &[(&str, &str)]) -> Self {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, message)| {
                json!({ "type": kind, "status": "True", "reason": "SomeReason", "message": message,
                    "lastTransitionTime": at(since) })
            })
            .collect();
        self.place(json!({
            "metadata": { "deletionTimestamp": at(since) },
            "status": { "phase": "Terminating", "conditions": conditions },
        }))
    }

    pub(crate) fn left(mut self, kind: &str, name: &str, since: &str, finalizers: &[&str]) -> Self {
        let meta = json!({
            "name": name, "namespace": PLACE, "uid": format!("{name}-uid"),
            "creationTimestamp": at("10:00:02"), "deletionTimestamp": at(since),
            "deletionGracePeriodSeconds": 0, "finalizers": finalizers,
        });
        self.0.left.push(OtherView {
            kind: kind.to_owned(),
            resource: String::new(),
            meta: Meta::from(&from(meta)),
        });
        self
    }

    fn labels(component: &str) -> Value {
        json!({
            "orchestrator.io/kind": "Tenant", "orchestrator.io/name": "acme",
            "orchestrator.io/uid": "tenant-uid", "orchestrator.io/component": component,
        })
    }

    pub(crate) fn policies(mut self, names: &[&str]) -> Self {
        let policy = |name: &&str| {
            let meta = json!({
                "name": name, "namespace": PLACE, "uid": format!("{name}-uid"),
                "creationTimestamp": at("10:00:02"), "labels": Self::labels(""),
            });
            Meta::from(&from(meta))
        };
        self.0.policies = Some(names.iter().map(policy).collect());
        self
    }

    /// Adds a policy that someone created by hand.
    pub(crate) fn by_hand(mut self, name: &str, clock: &str) -> Self {
        let meta = json!({ "name": name, "namespace": PLACE, "uid": "other-uid",
            "creationTimestamp": at(clock) });
        let policies = self.0.policies.get_or_insert_default();
        policies.push(Meta::from(&from(meta)));
        self
    }

    /// Adds the StatefulSet of the Redis. It is ready unless `more` changes that.
    pub(crate) fn redis(mut self, more: Value) -> Self {
        let mut set = json!({
            "metadata": {
                "name": "redis", "namespace": PLACE, "uid": "redis-uid", "generation": 1,
                "creationTimestamp": at("10:00:03"), "labels": Self::labels("redis"),
            },
            "spec": { "replicas": 1, "serviceName": "redis", "selector": {}, "template": {} },
            "status": { "observedGeneration": 1, "replicas": 1, "readyReplicas": 1,
                "updatedReplicas": 1, "availableReplicas": 1 },
        });
        merge(&mut set, more);
        self.0.workloads.push((&from::<StatefulSet>(set)).into());
        self.endpoints("redis", 1)
    }

    /// Adds the Deployment of the server. It is ready unless `more` changes that.
    pub(crate) fn server(mut self, more: Value) -> Self {
        let mut deployment = json!({
            "metadata": {
                "name": "server", "namespace": PLACE, "uid": "server-uid", "generation": 1,
                "creationTimestamp": at("10:00:03"), "labels": Self::labels("server"),
            },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": { "observedGeneration": 1, "replicas": 2, "readyReplicas": 2,
                "updatedReplicas": 2, "availableReplicas": 2 },
        });
        merge(&mut deployment, more);
        self.0
            .workloads
            .push((&from::<Deployment>(deployment)).into());
        self.endpoints("server", 2)
    }

    /// Adds the Deployment of the server with these numbers of existing and ready Pods.
    pub(crate) fn server_with(self, replicas: i32, ready: i32) -> Self {
        self.server(
            json!({ "status": { "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": ready, "availableReplicas": ready } }),
        )
    }

    pub(crate) fn redis_with(self, replicas: i32, ready: i32) -> Self {
        self.redis(
            json!({ "status": { "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": ready, "availableReplicas": ready } }),
        )
    }

    pub(crate) fn endpoints(mut self, service: &str, ready: usize) -> Self {
        let endpoint = json!({ "addresses": ["10.0.0.1"], "conditions": { "ready": true } });
        let slice = json!({
            "metadata": { "name": service, "namespace": PLACE,
                "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "endpoints": vec![endpoint; ready],
        });
        self.0.endpoints.retain(|known| known.service != service);
        self.0
            .endpoints
            .push((&from::<EndpointSlice>(slice)).into());
        self
    }

    /// Adds a Pod of a component, on node-1.
    pub(crate) fn pod(mut self, component: &str, name: &str, more: Value) -> Self {
        let image = match component {
            "redis" => "registry.example/redis:7",
            "probe" => "registry.example/orchestrator-toolbox:0.3",
            _ => "registry.example/shop:2.1",
        };
        let mut labels = Self::labels(component);
        // Pods that keep running while a namespace is adopted again carry no UID.
        if component != "probe"
            && let Some(labels) = labels.as_object_mut()
        {
            labels.remove("orchestrator.io/uid");
        }
        let mut pod = json!({
            "metadata": {
                "name": name, "namespace": PLACE, "uid": format!("{name}-uid"),
                "creationTimestamp": at("10:00:05"), "labels": labels,
            },
            "spec": {
                "nodeName": "node-1",
                "containers": [{ "name": component, "image": image,
                    "resources": { "requests": { "cpu": "50m", "memory": "64Mi" } } }],
            },
            "status": { "phase": "Pending", "conditions": [{ "type": "Ready", "status": "False",
                "lastTransitionTime": at("10:00:05") }] },
        });
        if component == "redis" {
            pod["spec"]["volumes"] = json!([{ "name": "data",
                "persistentVolumeClaim": { "claimName": "data-redis-0" } }]);
        }
        merge(&mut pod, more);
        self.0.pods.push((&from::<Pod>(pod)).into());
        self
    }

    /// Adds a Pod with its container in this state.
    pub(crate) fn container(
        self,
        component: &str,
        name: &str,
        phase: &str,
        state: Value,
        more: Value,
    ) -> Self {
        let mut status = json!({ "name": component, "ready": false, "restartCount": 0, "image": "",
            "imageID": "", "state": state });
        merge(&mut status, more);
        self.pod(
            component,
            name,
            json!({ "status": { "phase": phase, "containerStatuses": [status] } }),
        )
        .node(json!({}))
    }

    /// Adds a Pod of the server with a waiting container, with this reason and message.
    pub(crate) fn waits(self, reason: &str, message: &str) -> Self {
        let state = json!({ "waiting": { "reason": reason, "message": message } });
        self.container("server", SERVER, "Pending", state, json!({}))
    }

    /// Adds a Pod without a node, with this message of the scheduler.
    pub(crate) fn unscheduled(self, component: &str, name: &str, message: &str) -> Self {
        self.pod(
            component,
            name,
            json!({
                "spec": { "nodeName": null },
                "status": { "phase": "Pending", "conditions": [{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": message, "lastTransitionTime": at("10:00:05"),
                }]},
            }),
        )
    }

    pub(crate) fn claim(mut self, phase: &str, more: Value) -> Self {
        let mut claim = json!({
            "metadata": {
                "name": "data-redis-0", "namespace": PLACE, "uid": "claim-uid",
                "creationTimestamp": at("10:00:04"), "labels": { "orchestrator.io/kind": "Tenant" },
            },
            "spec": { "storageClassName": "fast", "resources": { "requests": { "storage": "1Gi" } } },
            "status": { "phase": phase },
        });
        merge(&mut claim, more);
        let claim = from::<PersistentVolumeClaim>(claim);
        self.0.claims.push((&claim).into());
        self
    }

    pub(crate) fn event(mut self, about: (&str, &str, &str), reason: &str, message: &str) -> Self {
        let (kind, name, uid) = about;
        let event = json!({
            "metadata": { "name": "e", "namespace": PLACE },
            "involvedObject": { "kind": kind, "namespace": PLACE, "name": name, "uid": uid },
            "type": "Warning", "reason": reason, "message": message, "count": 7,
            "firstTimestamp": at("10:00:06"), "lastTimestamp": at("10:04:58"),
        });
        self.0.events.push((&from::<Event>(event)).into());
        self
    }

    pub(crate) fn of_server(self, reason: &str, message: &str) -> Self {
        self.event(("Pod", SERVER, &format!("{SERVER}-uid")), reason, message)
    }

    pub(crate) fn quota(mut self, name: &str, hard: Value, used: Value) -> Self {
        let quota =
            json!({ "metadata": { "name": name }, "status": { "hard": hard, "used": used } });
        self.0.quotas.push((&from::<ResourceQuota>(quota)).into());
        self
    }

    pub(crate) fn limit_range(mut self, name: &str, limits: Value) -> Self {
        let range = json!({ "metadata": { "name": name }, "spec": { "limits": limits } });
        self.0
            .limit_ranges
            .push((&from::<LimitRange>(range)).into());
        self
    }

    pub(crate) fn node(mut self, more: Value) -> Self {
        let mut node = json!({
            "metadata": { "name": "node-1" },
            "status": {
                "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" },
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                    "lastTransitionTime": at("08:00:00"),
                }],
            },
        });
        merge(&mut node, more);
        self.0.nodes = vec![NodeView::read(&from::<Node>(node), &[])];
        self
    }

    pub(crate) fn lost_node(self, since: &str) -> Self {
        self.node(json!({ "status": { "conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": at(since),
        }]}}))
    }

    pub(crate) fn known(mut self, kind: &str, name: &str, exists: bool) -> Self {
        let is_cluster = ["StorageClass", "CSIDriver", "Namespace"].contains(&kind);
        self.0.known.push(Known {
            object: ObjectRef {
                kind: kind.to_owned(),
                namespace: (!is_cluster).then(|| PLACE.to_owned()),
                name: name.to_owned(),
            },
            exists,
            provisioner: (kind == "StorageClass" && exists).then(|| "csi.example.io".to_owned()),
        });
        self
    }

    pub(crate) fn other(mut self, kind: &str, name: &str) -> Self {
        let meta = json!({ "name": name, "namespace": PLACE, "uid": "foreign",
            "creationTimestamp": at("07:30:00") });
        self.0.others.push(OtherView {
            kind: kind.to_owned(),
            resource: String::new(),
            meta: Meta::from(&from(meta)),
        });
        self
    }

    pub(crate) fn lease(mut self, holder: Option<&str>, renewed: &str) -> Self {
        let lease = json!({
            "metadata": { "name": "orchestrator-tenants", "namespace": "orchestrator" },
            "spec": {
                "holderIdentity": holder.unwrap_or_default(), "leaseDurationSeconds": 15,
                "renewTime": format!("2026-03-02T{renewed}.000000Z"),
            },
        });
        self.0.leases = Some(vec![(&from::<Lease>(lease)).into()]);
        self
    }

    /// Limits the world to a user who may read the Tenant and nothing else.
    pub(crate) fn few_rights(mut self) -> Self {
        let status = self.0.tenant.take();
        let mut world = World::new(time(NOW), ObjectRef::cluster("Tenant", "acme"));
        world.tenant = status;
        let names = [
            "Namespace 'tenant-acme'",
            "Deployment 'server'",
            "StatefulSet 'redis'",
            "pods",
            "persistentvolumeclaims",
            "endpointslices",
            "networkpolicies",
            "resourcequotas",
            "limitranges",
            "leases",
        ];
        world.unreadable = names
            .iter()
            .map(|what| Unreadable {
                what: (*what).to_owned(),
                forbidden: true,
                why: "forbidden".to_owned(),
            })
            .collect();
        Self(world)
    }
}

/// Returns the probed connections with the expected results, except for these.
pub(crate) fn tried(wrong: &[(usize, Option<bool>, &str)]) -> Vec<Value> {
    let (inside, outside) = ("a Pod of the Tenant", "a Pod outside");
    let all = [
        (inside, "the cluster's DNS", true, "10.96.0.1"),
        (inside, "its redis", true, "connected to 10.0.0.7:6379"),
        (
            inside,
            "redis of Tenant 'beta'",
            false,
            "no answer from 10.0.1.7:6379 within 3 s",
        ),
        (outside, "the cluster's DNS", true, "10.96.0.1"),
        (
            outside,
            "its redis",
            false,
            "no answer from 10.0.0.7:6379 within 3 s",
        ),
        (
            outside,
            "its server",
            false,
            "no answer from 10.0.0.8:3030 within 3 s",
        ),
    ];
    let one = |(index, (from, to, wanted, detail)): (usize, (&str, &str, bool, &str))| {
        let known = wrong.iter().find(|(known, _, _)| *known == index);
        let (passed, detail) = known.map_or((Some(wanted), detail), |(_, passed, detail)| {
            (*passed, detail)
        });
        let word = |allowed: bool| if allowed { "Allowed" } else { "Blocked" };
        json!({
            "from": from, "to": to, "expected": word(wanted),
            "observed": passed.map_or("Unknown", word), "detail": detail,
        })
    };
    all.into_iter().enumerate().map(one).collect()
}
