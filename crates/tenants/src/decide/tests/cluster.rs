//! A simulated cluster with one Tenant. It applies effects as the API server does.

use api::{
    Timestamp,
    deadline::{self, PhaseInput},
    decide::{Effect, FinalizerAction, Input, Manifest, ResourceType},
    names,
    tenants::{Tenant, TenantPhase, TenantStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};

use crate::{
    build::{NOTES, SECRET, Settings, types},
    decide::{TenantDecision, decide},
    view::{ChildView, EndpointsView, NamespaceView, QuotaView, SecretView, WorkloadView},
    world::TenantWorld,
};

pub(super) struct Cluster {
    pub(super) tenant: Tenant,
    pub(super) world: TenantWorld,
    pub(super) now: Timestamp,
    pub(super) is_released: bool,
    made: u32,
}

/// Returns the effects of a decision as text.
pub(super) fn effects_of(decision: &TenantDecision) -> Vec<String> {
    decision
        .effects
        .iter()
        .map(|effect| match effect {
            Effect::Ensure(one) => format!("create {} {}", one.resource.kind, one.name),
            Effect::Apply(one) => format!("apply {} {}", one.resource.kind, one.name),
            Effect::Delete(one) => format!("delete {} {}", one.resource.kind, one.name),
            Effect::Patch { target, .. } => {
                format!("patch {} {}", target.resource.kind, target.name)
            }
        })
        .collect()
}

impl Cluster {
    pub(super) fn full_spec() -> Value {
        json!({
            "owners": [{ "kind": "User", "name": "ann" }],
            "resources": {
                "cpu": { "request": "1", "limit": "2" },
                "memory": { "request": "1Gi", "limit": "2Gi" },
                "storage": { "total": "2Gi", "perVolume": "1Gi" },
                "pods": { "limit": 10 },
            },
            "redis": { "image": "redis:7", "storage": { "size": "1Gi" } },
            "server": { "image": "server:1", "replicas": 2 },
            "deletion": { "policy": "Delete" },
        })
    }

    pub(super) fn full() -> Self {
        Self::new(Self::full_spec())
    }

    pub(super) fn new(spec: Value) -> Self {
        let tenant = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "Tenant",
            "metadata": { "name": "shop", "uid": "uid-shop", "generation": 1 },
            "spec": spec,
        }))
        .unwrap();
        let world = TenantWorld {
            namespace: None,
            children: Vec::new(),
            secret: None,
            fresh_password: "secret".to_owned(),
            server: None,
            redis: None,
            pods: Vec::new(),
            claims: Vec::new(),
            endpoints: Vec::new(),
            quotas: Vec::new(),
            warnings: Vec::new(),
            foreign_policies: Vec::new(),
            retained_policies: Vec::new(),
            outside_policies: Vec::new(),
            probes: Vec::new(),
            probing: 0,
            neighbour: None,
            is_definition_going: false,
            settings: Settings::default(),
        };
        Self {
            tenant,
            world,
            now: Timestamp::from_second(1_700_000_000).unwrap(),
            is_released: false,
            made: 0,
        }
    }

    pub(super) fn change(&mut self, spec: Value) {
        self.tenant.spec = serde_json::from_value(spec).unwrap();
        let generation = self.tenant.metadata.generation.unwrap();
        self.tenant.metadata.generation = Some(generation + 1);
    }

    pub(super) fn status(&self) -> &TenantStatus {
        self.tenant.status.as_ref().unwrap()
    }

    pub(super) fn delete(&mut self) {
        self.tenant.metadata.deletion_timestamp = Some(Time(self.now));
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.now += std::time::Duration::from_secs(seconds);
    }

    /// Decides from the caches alone.
    pub(super) fn decide_unconfirmed(&self) -> TenantDecision {
        self.decide_with(false)
    }

    pub(super) fn decide(&self) -> TenantDecision {
        self.decide_with(true)
    }

    /// Decides with an overdue phase and a requeue time, as the engine does.
    fn decide_with(&self, confirmed: bool) -> TenantDecision {
        let stored = self.tenant.status.clone().unwrap_or_default();
        let overdue = deadline::is_overdue(&stored, &self.phase_input(), self.now);
        let mut decision = decide(&Input {
            object: &self.tenant,
            world: &self.world,
            now: self.now,
            fault: None,
            refused: false,
            confirmed,
            overdue,
        });
        let status = self.next_status(&decision);
        let is_told = overdue && stored.phase == status.phase;
        let deadline = deadline::requeue_at(&status, is_told, &self.phase_input(), self.now);
        decision.requeue_at = decision.requeue_at.into_iter().chain(deadline).min();
        decision
    }

    fn phase_input(&self) -> PhaseInput<'_, TenantPhase> {
        PhaseInput {
            spec: &self.tenant.spec,
            created: None,
            progress: None,
        }
    }

    fn next_status(&self, decision: &TenantDecision) -> TenantStatus {
        let stored = self.tenant.status.clone().unwrap_or_default();
        let generation = self.tenant.metadata.generation.unwrap();
        decision.next_status(&stored, &self.phase_input(), generation, self.now)
    }

    /// Decides and applies effects until nothing is left to do.
    pub(super) fn settle(&mut self) -> TenantDecision {
        for _ in 0..10 {
            let decision = self.decide();
            for effect in &decision.effects {
                self.act(effect);
            }
            let before = self.tenant.status.clone();
            self.record(&decision);
            if matches!(decision.finalizer, FinalizerAction::Remove { .. }) {
                self.is_released = true;
                return decision;
            }
            if decision.effects.is_empty() && before == self.tenant.status {
                return decision;
            }
        }
        panic!("it does not come to rest: {:?}", effects_of(&self.decide()));
    }

    pub(super) fn record(&mut self, decision: &TenantDecision) {
        self.tenant.status = Some(self.next_status(decision));
    }

    /// Makes all replicas of a workload exist and be ready.
    pub(super) fn ready(&mut self, name: &str, replicas: i32) {
        let workload = if name == "redis" {
            &mut self.world.redis
        } else {
            &mut self.world.server
        };
        let workload = workload.as_mut().unwrap();
        workload.observed = workload.generation;
        workload.replicas = replicas;
        workload.updated = replicas;
        workload.ready = replicas;
        self.world.endpoints.retain(|known| known.service != name);
        self.world.endpoints.push(EndpointsView {
            service: name.to_owned(),
            ready: usize::try_from(replicas).unwrap(),
            not_ready: 0,
        });
    }

    fn uid(&mut self) -> String {
        self.made += 1;
        format!("uid-{}", self.made)
    }

    pub(super) fn act(&mut self, effect: &Effect) {
        match effect {
            Effect::Ensure(manifest) if manifest.resource == types::NAMESPACE => {
                let uid = self.uid();
                self.world.namespace = Some(namespace(manifest, &uid));
            }
            Effect::Ensure(manifest) => {
                assert_eq!(manifest.resource, types::SECRET);
                let uid = self.uid();
                let mut meta = meta_of(manifest);
                meta.uid = Some(uid);
                self.world.secret = Some(SecretView::from(&meta));
            }
            Effect::Apply(manifest) => self.apply(manifest),
            Effect::Delete(target) if target.resource == types::NAMESPACE => {
                let namespace = self.world.namespace.as_mut().unwrap();
                assert_eq!(namespace.uid, target.uid);
                namespace.deleting = Some(self.now);
            }
            Effect::Delete(target) if target.resource == types::SECRET => {
                self.world.secret = None;
            }
            Effect::Delete(target) => {
                self.forget(target.resource, &target.name);
            }
            Effect::Patch { target, patch, .. } => self.patch(target.resource, &target.name, patch),
        }
    }

    pub(super) fn forget(&mut self, resource: ResourceType, name: &str) {
        self.world
            .children
            .retain(|(known, child)| !(*known == resource && child.name == name));
        if resource == types::DEPLOYMENT {
            self.world.server = None;
        }
        if resource == types::STATEFUL_SET {
            self.world.redis = None;
        }
    }

    fn patch(&mut self, resource: ResourceType, name: &str, patch: &Value) {
        let labels = &patch["metadata"]["labels"];
        let annotations = &patch["metadata"]["annotations"];
        let is_left = annotations[names::RETAINED_FROM].is_string();
        if resource == types::NAMESPACE {
            let namespace = self.world.namespace.as_mut().unwrap();
            for (name, value) in labels.as_object().unwrap() {
                namespace.labels.retain(|(known, _)| known != name);
                if let Some(value) = value.as_str() {
                    namespace.labels.push((name.clone(), value.to_owned()));
                }
            }
            let label = |name: &str| {
                let mut all = namespace.labels.iter();
                all.find(|(known, _)| known == name)
                    .map(|(_, value)| value.clone())
            };
            (namespace.owner_uid, namespace.owner_name) = (label(names::UID), label(names::NAME));
            for name in NOTES {
                let Some(value) = annotations.get(*name) else {
                    continue;
                };
                namespace.notes.retain(|(known, _)| known != name);
                if let Some(value) = value.as_str() {
                    namespace.notes.push(((*name).to_owned(), value.to_owned()));
                }
            }
            if let Some(from) = annotations.get(names::RETAINED_FROM) {
                namespace.retained_from = from.as_str().map(str::to_owned);
                namespace.adopt = None;
            }
        } else if resource == types::SECRET {
            let secret = self.world.secret.as_mut().unwrap();
            secret.owner_uid = labels[names::UID].as_str().map(str::to_owned);
            secret.has_label = secret.owner_uid.is_some();
            secret.retained_from = annotations[names::RETAINED_FROM]
                .as_str()
                .map(str::to_owned);
        } else {
            assert!(is_left, "{resource:?} {name}");
            self.forget(resource, name);
        }
    }

    fn apply(&mut self, manifest: &Manifest) {
        let found = self.world.child(manifest).map(|child| child.uid.clone());
        assert_eq!(found, manifest.expected_uid, "{}", manifest.name);
        let uid = match found {
            Some(uid) => uid,
            None => self.uid(),
        };
        let mut meta = meta_of(manifest);
        meta.uid = Some(uid);
        let child = ChildView::of(&meta, &manifest.body);
        let is_known = |known: &(ResourceType, ChildView)| {
            known.0 == manifest.resource && known.1.name == manifest.name
        };
        self.world.children.retain(|known| !is_known(known));
        self.world.children.push((manifest.resource, child));
        if manifest.resource == types::QUOTA {
            let hard = manifest.body["spec"]["hard"].as_object().unwrap();
            let hard = hard
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect();
            self.world
                .quotas
                .retain(|known| known.name != manifest.name);
            self.world.quotas.push(QuotaView {
                name: manifest.name.clone(),
                hard,
                used: Vec::new(),
            });
        }
        let replicas = &manifest.body["spec"]["replicas"];
        let wanted = i32::try_from(replicas.as_i64().unwrap_or(0)).unwrap();
        let slot = if manifest.resource == types::DEPLOYMENT {
            &mut self.world.server
        } else if manifest.resource == types::STATEFUL_SET {
            &mut self.world.redis
        } else {
            return;
        };
        let before = slot.clone().unwrap_or_default();
        *slot = Some(WorkloadView {
            generation: before.generation + 1,
            wanted,
            ..before
        });
    }
}

fn meta_of(manifest: &Manifest) -> ObjectMeta {
    let mut meta: ObjectMeta = serde_json::from_value(manifest.body["metadata"].clone()).unwrap();
    meta.name = Some(manifest.name.clone());
    assert!(manifest.name != SECRET || manifest.resource == types::SECRET);
    meta
}

pub(super) fn namespace(manifest: &Manifest, uid: &str) -> NamespaceView {
    let mut meta = meta_of(manifest);
    meta.uid = Some(uid.to_owned());
    NamespaceView::from(&k8s_openapi::api::core::v1::Namespace {
        metadata: meta,
        ..Default::default()
    })
}
