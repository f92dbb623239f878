//! A simulated cluster with one volume: carries out the steps of a rollback by the rules of the engine, with its faults.

use std::collections::BTreeMap;

use api::{
    Status, Timestamp,
    apps::{
        PlannedRestore, PushOutcome, PushedCommit, RestoredVolume, RollbackPlan,
        RollbackRequestStatus,
    },
    decide::{Effect, Manifest, Target},
    names,
};
use attempts::step::StepSettings;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    discover::Problem,
    rollback::{
        Owner,
        restore::{self, RestoreStep, binder_name, claim_name},
        swap::{self, Swap, SwapStep},
        volume::{Binder, LiveClaim, LiveVolume, REPLACED_BY, VolumeObjects},
    },
    upgrade::storage::SnapshotView,
};

pub(super) const OWNER: Owner<'static> = Owner {
    name: "back",
    uid: "0123456789-rollback",
};

/// Maximum number of reconciliations of a run.
const MAX_STEPS: usize = 200;

/// Reconciliations for which the caches are old.
const LAG: usize = 4;

/// A fault at one write, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The operator is killed before the write.
    CrashBefore(usize),
    /// The operator is killed after the write.
    CrashAfter(usize),
    /// The response is lost, and the caches do not have the write for some time.
    LostResponse(usize),
    /// The caches are old for some time from this write on. The write itself succeeds.
    Stale(usize),
}

impl Fault {
    pub(super) fn all(number: usize) -> [Self; 4] {
        [
            Self::CrashBefore(number),
            Self::CrashAfter(number),
            Self::LostResponse(number),
            Self::Stale(number),
        ]
    }
}

type Key = (String, String);
type Objects = BTreeMap<Key, Value>;

pub(super) fn key(kind: &str, name: &str) -> Key {
    (kind.to_owned(), name.to_owned())
}

pub(super) fn claim_key(name: &str) -> Key {
    key("PersistentVolumeClaim", name)
}

pub(super) fn volume_key(name: &str) -> Key {
    key("PersistentVolume", name)
}

/// A reconciliation that did not complete.
struct Aborted;

/// The cluster and one request.
pub(super) struct Storage {
    pub(super) real: Objects,
    cache: Objects,
    pub(super) planned: PlannedRestore,
    pub(super) status: RollbackRequestStatus,
    pub(super) fault: Option<Fault>,
    pub(super) writes: Vec<String>,
    /// Whether the request is undone.
    pub(super) is_undone: bool,
    pub(super) is_done: bool,
    pub(super) failure: Option<Problem>,
    pub(super) blocked: Option<Problem>,
    pub(super) message: String,
    pub(super) snapshot: Option<SnapshotView>,
    pub(super) snapshot_source: Option<String>,
    /// Exit code of the Pod.
    pub(super) exit: i32,
    /// Whether the API server drops `dataSourceRef`.
    pub(super) drops_source: bool,
    /// Whether someone sets the reclaim policy back at once.
    pub(super) reverts_policy: bool,
    /// Whether a finalizer keeps deleted claims.
    pub(super) keeps_claims: bool,
    lag: usize,
    count: u64,
}

pub(super) fn old_claim() -> Value {
    json!({
        "metadata": {
            "namespace": "shop", "name": "data", "uid": "data-uid", "resourceVersion": "1",
            "labels": { "app": "shop", "app.kubernetes.io/managed-by": "Helm" },
            "annotations": {
                "meta.helm.sh/release-name": "shop",
                "kustomize.toolkit.fluxcd.io/prune": "disabled",
                "pv.kubernetes.io/bind-completed": "yes",
                "volume.kubernetes.io/selected-node": "node-1",
                "volume.beta.kubernetes.io/storage-provisioner": "csi.example.com",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "gone",
            }],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "volumeMode": "Filesystem", "volumeName": "pv-old",
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": { "phase": "Bound" },
    })
}

fn persistent_volume(name: &str, claim: &str, uid: &str) -> Value {
    json!({
        "metadata": { "name": name, "uid": format!("{name}-uid"), "resourceVersion": "1" },
        "spec": {
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": { "namespace": "shop", "name": claim, "uid": uid },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [] } },
        },
    })
}

impl Storage {
    pub(super) fn new() -> Self {
        let mut real = Objects::new();
        real.insert(claim_key("data"), old_claim());
        real.insert(
            volume_key("pv-old"),
            persistent_volume("pv-old", "data", "data-uid"),
        );
        Self {
            cache: real.clone(),
            real,
            planned: PlannedRestore {
                namespace: "shop".to_owned(),
                pvc: "data".to_owned(),
                pvc_uid: Some("data-uid".to_owned()),
                pv: Some("pv-old".to_owned()),
                snapshot: "shop-data".to_owned(),
                snapshot_uid: "snapshot".to_owned(),
                size: "2Gi".to_owned(),
                storage_class: Some("fast".to_owned()),
                access_modes: vec!["ReadWriteOnce".to_owned()],
                volume_mode: Some("Filesystem".to_owned()),
            },
            status: RollbackRequestStatus {
                plan: Some(RollbackPlan::default()),
                ..RollbackRequestStatus::default()
            },
            fault: None,
            writes: Vec::new(),
            is_undone: false,
            is_done: false,
            failure: None,
            blocked: None,
            message: String::new(),
            snapshot: Some(SnapshotView {
                uid: "snapshot".to_owned(),
                is_ready: true,
                ..SnapshotView::default()
            }),
            snapshot_source: None,
            exit: 0,
            drops_source: false,
            reverts_policy: false,
            keeps_claims: false,
            lag: 0,
            count: 0,
        }
    }

    pub(super) fn faulty(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::new()
        }
    }

    /// The chart of the new version has deleted the claim with its volume.
    pub(super) fn without_claim() -> Self {
        let mut storage = Self::new();
        storage.real.clear();
        storage.planned.pvc_uid = None;
        storage.planned.pv = None;
        let claim: LiveClaim = read(&old_claim(), LiveClaim::read);
        storage.snapshot_source = Some(claim.source);
        storage.sync();
        storage
    }

    /// The caches have the current state.
    pub(super) fn sync(&mut self) {
        self.cache = self.real.clone();
    }

    pub(super) fn claim(&self, name: &str) -> Option<&Value> {
        self.real.get(&claim_key(name))
    }

    pub(super) fn volume(&self, name: &str) -> Option<&Value> {
        self.real.get(&volume_key(name))
    }

    fn has_ended(&self) -> bool {
        self.is_done || (self.failure.is_some() && !self.is_undone)
    }

    /// Reconciles until the volume is swapped, undone or failed.
    pub(super) fn run(&mut self) {
        self.run_until(|_| false);
    }

    /// Reconciles until the condition holds or the request has ended.
    pub(super) fn run_until(&mut self, is_reached: impl Fn(&Self) -> bool) {
        for _ in 0..MAX_STEPS {
            if self.has_ended() || is_reached(self) {
                return;
            }
            self.step();
        }
        panic!("no end: {}: {:?}", self.message, self.writes);
    }

    /// One reconciliation, then the controllers of the cluster act.
    pub(super) fn step(&mut self) {
        self.blocked = None;
        match self.reconcile() {
            Ok(()) | Err(Aborted) => {}
        }
        self.tick();
        self.lag = self.lag.saturating_sub(1);
        if self.lag == 0 {
            self.sync();
        }
    }

    fn objects(&self) -> VolumeObjects {
        let get = |kind: &str, name: &str| self.cache.get(&key(kind, name));
        let claim = |name: &str| get("PersistentVolumeClaim", name);
        let volume = |name: &str| get("PersistentVolume", name);
        let temporary = claim(&claim_name(&OWNER, &self.planned));
        let old = self.planned.pv.as_deref().and_then(volume);
        let new = self.status.restored.first().and_then(|one| volume(&one.pv));
        let pod = get("Pod", &binder_name(&OWNER, &self.planned));
        VolumeObjects {
            claim: claim("data").map(|one| read(one, LiveClaim::read)),
            temporary: temporary.map(|one| read(one, LiveClaim::read)),
            binder: pod.map(|one| read(one, |pod| Binder::read(pod, None))),
            old: old.map(|one| read(one, LiveVolume::read)),
            new: new.map(|one| read(one, LiveVolume::read)),
            snapshot: self.snapshot.clone(),
            snapshot_source: self.snapshot_source.clone(),
        }
    }

    fn reconcile(&mut self) -> Result<(), Aborted> {
        if self.is_undone {
            return match restore::undo(&self.objects()) {
                Some(step) => self.carry_out(step),
                None => {
                    // As for an upgrade, the end is decided from live reads.
                    self.sync();
                    self.is_done = restore::undo(&self.objects()).is_none();
                    Ok(())
                }
            };
        }
        let Some(restored) = self.status.restored.first().cloned() else {
            return self.restore();
        };
        if self.status.commit.is_none() {
            return self.write("status: commit", |storage| {
                storage.status.commit = Some(PushedCommit {
                    id: "ab".repeat(20),
                    outcome: PushOutcome::Pushed,
                    at: Time(Timestamp::UNIX_EPOCH),
                });
                None
            });
        }
        let step = self.next(&restored, false);
        let step = if matches!(step, SwapStep::Confirm(_)) {
            self.sync();
            self.next(&restored, true)
        } else {
            step
        };
        self.carry_out(step)
    }

    fn next(&self, restored: &RestoredVolume, confirmed: bool) -> SwapStep {
        swap::next(&Swap {
            owner: OWNER,
            planned: &self.planned,
            restored,
            seen: &self.objects(),
            confirmed,
        })
    }

    fn restore(&mut self) -> Result<(), Aborted> {
        let settings = StepSettings::default();
        match restore::next(&OWNER, &settings, &self.planned, &self.objects()) {
            RestoreStep::Act(effect, message) => {
                self.message = message;
                self.apply(&effect)
            }
            RestoreStep::Wait(message) => {
                self.message = message;
                Ok(())
            }
            RestoreStep::Failed(problem) => {
                self.failure = Some(problem);
                Ok(())
            }
            RestoreStep::Done(restored) => self.write("status: restored", |storage| {
                storage.status.restored = vec![restored];
                None
            }),
        }
    }

    fn carry_out(&mut self, step: SwapStep) -> Result<(), Aborted> {
        match step {
            SwapStep::Act(effects, message) => {
                self.message = message;
                effects.iter().try_for_each(|effect| self.apply(effect))
            }
            SwapStep::Confirm(reads) => panic!("asked twice for {reads:?}"),
            SwapStep::Wait(message) => {
                self.message = message;
                Ok(())
            }
            SwapStep::Blocked(problem) => {
                self.blocked = Some(problem);
                Ok(())
            }
            SwapStep::Done => {
                self.is_done = true;
                Ok(())
            }
        }
    }

    /// Carries out a write, with the fault that is planned for it.
    fn write(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Self) -> Option<Key>,
    ) -> Result<(), Aborted> {
        let number = self.writes.len();
        if self.fault == Some(Fault::CrashBefore(number)) {
            self.fault = None;
            self.sync();
            return Err(Aborted);
        }
        let is_lost = self.fault == Some(Fault::LostResponse(number));
        if is_lost || self.fault == Some(Fault::Stale(number)) {
            self.lag = LAG;
        }
        self.writes.push(name.to_owned());
        let changed = change(self);
        if self.fault == Some(Fault::CrashAfter(number)) {
            self.fault = None;
            self.sync();
            return Err(Aborted);
        }
        if is_lost {
            self.fault = None;
            return Err(Aborted);
        }
        // The engine puts the response of a write into the caches.
        if let Some(key) = changed
            && let Some(object) = self.real.get(&key)
        {
            self.cache.insert(key, object.clone());
        }
        Ok(())
    }

    fn check_intent(&self, intent: Option<&str>) {
        let is_stored = intent.is_none_or(|intent| self.status.has_intent(intent));
        assert!(is_stored, "{intent:?} is not stored: {:?}", self.writes);
    }

    fn apply(&mut self, effect: &Effect) -> Result<(), Aborted> {
        match effect {
            Effect::Ensure(manifest) => self.create(manifest),
            Effect::Delete(target) => self.delete(target),
            Effect::Patch { target, patch, .. } => self.patch(target, patch),
            Effect::Apply(manifest) => panic!("{} is applied", manifest.name),
        }
    }

    fn create(&mut self, manifest: &Manifest) -> Result<(), Aborted> {
        self.check_intent(manifest.requires_intent.as_deref());
        let key = key(manifest.resource.kind, &manifest.name);
        if let Some(found) = self.real.get(&key) {
            let uid = |part: &str| found["metadata"][part][names::UID].as_str();
            let is_ours = uid("labels") == Some(OWNER.uid) || uid("annotations") == Some(OWNER.uid);
            assert!(is_ours || manifest.observed_by_name, "{key:?} is adopted");
            self.sync();
            return Err(Aborted);
        }
        let mut object = manifest.body.clone();
        let name = format!("create {} {}", manifest.resource.kind, manifest.name);
        self.write(&name, |storage| {
            storage.count += 1;
            object["metadata"]["uid"] = json!(format!("uid-{}", storage.count));
            object["metadata"]["resourceVersion"] = json!("1");
            object["status"] = json!({ "phase": "Pending" });
            if storage.drops_source {
                object["spec"]["dataSourceRef"] = Value::Null;
            }
            storage.real.insert(key.clone(), object);
            Some(key)
        })
    }

    fn delete(&mut self, target: &Target) -> Result<(), Aborted> {
        self.check_intent(target.requires_intent.as_deref());
        let key = key(target.resource.kind, &target.name);
        if self.uid_of(&key) != Some(target.uid.as_str()) {
            self.sync();
            return Err(Aborted);
        }
        if target.uid == "data-uid" {
            self.check_retained();
        }
        self.write(&format!("delete {} {}", key.0, key.1), |storage| {
            let meta = storage.real.get_mut(&key).unwrap();
            meta["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
            bump(meta);
            Some(key)
        })
    }

    /// No claim may be deleted before its volume is retained and its deletion is announced.
    fn check_retained(&self) {
        for name in ["pv-old", "pv-new"] {
            let volume = self.volume(name).unwrap();
            let policy = &volume["spec"]["persistentVolumeReclaimPolicy"];
            assert_eq!(policy, "Retain", "{name}");
        }
        let claim = self.claim("data").unwrap();
        assert_eq!(claim["metadata"]["annotations"][REPLACED_BY], OWNER.uid);
        assert!(self.status.commit.is_some());
    }

    fn patch(&mut self, target: &Target, patch: &Value) -> Result<(), Aborted> {
        self.check_intent(target.requires_intent.as_deref());
        let key = key(target.resource.kind, &target.name);
        let found = self.real.get(&key).map(|one| &one["metadata"]);
        let is_same = found.is_some_and(|meta| {
            let version = meta["resourceVersion"].as_str();
            meta["uid"] == json!(target.uid)
                && (target.version.is_none() || target.version.as_deref() == version)
        });
        if !is_same {
            self.sync();
            return Err(Aborted);
        }
        let is_reverted = self.reverts_policy && key.0 == "PersistentVolume";
        self.write(&format!("patch {} {}", key.0, key.1), |storage| {
            let object = storage.real.get_mut(&key).unwrap();
            merge(object, patch);
            bump(object);
            Some(key.clone())
        })?;
        if is_reverted {
            // The caches do not have this change for some time.
            let object = self.real.get_mut(&key).unwrap();
            object["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
            bump(object);
            self.lag = LAG;
        }
        Ok(())
    }

    fn uid_of(&self, key: &Key) -> Option<&str> {
        self.real.get(key)?["metadata"]["uid"].as_str()
    }

    /// The controllers of the cluster act once.
    fn tick(&mut self) {
        let keys: Vec<Key> = self.real.keys().cloned().collect();
        for key in keys {
            match key.0.as_str() {
                "Pod" => self.tick_pod(&key),
                "PersistentVolumeClaim" => self.tick_claim(&key),
                _ => {}
            }
        }
    }

    fn tick_pod(&mut self, key: &Key) {
        let exit = self.exit;
        let temporary = claim_name(&OWNER, &self.planned);
        let is_bound = self
            .claim(&temporary)
            .is_some_and(|claim| claim["status"]["phase"] == "Bound");
        let pod = self.real.get_mut(key).unwrap();
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            self.real.remove(key);
        } else if is_bound && pod["status"]["phase"] == "Pending" {
            let phase = if exit == 0 { "Succeeded" } else { "Failed" };
            pod["status"] = json!({
                "phase": phase,
                "containerStatuses": [{
                    "name": "bind", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": { "terminated": { "exitCode": exit } },
                }],
            });
            bump(pod);
        }
    }

    fn tick_claim(&mut self, key: &Key) {
        let claim = self.real[key].clone();
        let uid = claim["metadata"]["uid"].as_str().unwrap().to_owned();
        if !claim["metadata"]["deletionTimestamp"].is_null() {
            if !self.keeps_claims {
                self.real.remove(key);
                self.release(&uid);
            }
            return;
        }
        if claim["status"]["phase"] == "Bound" {
            return;
        }
        let has_pod = self.real.keys().any(|(kind, _)| kind == "Pod");
        let volume = match claim["spec"]["volumeName"].as_str() {
            Some(name) => name.to_owned(),
            None if has_pod && !claim["spec"]["dataSourceRef"].is_null() => {
                let object = persistent_volume("pv-new", &key.1, &uid);
                self.real.insert(volume_key("pv-new"), object);
                "pv-new".to_owned()
            }
            // A volume that is reserved for the name is bound to any claim of the name.
            None => match self.reserved(&key.1) {
                Some(name) => name,
                None => return,
            },
        };
        let Some(object) = self.real.get_mut(&volume_key(&volume)) else {
            return;
        };
        let reference = &mut object["spec"]["claimRef"];
        let is_free = reference["uid"].is_null() || reference["uid"] == json!(uid);
        if reference["name"] != json!(key.1) || !is_free {
            return;
        }
        reference["uid"] = json!(uid);
        bump(object);
        let claim = self.real.get_mut(key).unwrap();
        claim["spec"]["volumeName"] = json!(volume);
        claim["status"]["phase"] = json!("Bound");
        claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
        bump(claim);
    }

    fn reserved(&self, claim: &str) -> Option<String> {
        let mut all = self.real.iter();
        let found = all.find(|((kind, _), object)| {
            let reference = &object["spec"]["claimRef"];
            kind == "PersistentVolume" && reference["name"] == claim && reference["uid"].is_null()
        });
        found.map(|((_, name), _)| name.clone())
    }

    /// The claim with this UID was deleted: the reclaim policy of its volume decides.
    fn release(&mut self, uid: &str) {
        self.real.retain(|(kind, _), object| {
            kind != "PersistentVolume"
                || object["spec"]["claimRef"]["uid"] != uid
                || object["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        });
    }
}

fn read<T: DeserializeOwned, V>(object: &Value, convert: impl Fn(&T) -> V) -> V {
    convert(&serde_json::from_value(object.clone()).unwrap())
}

fn bump(object: &mut Value) {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let number: u64 = version.parse().unwrap();
    object["metadata"]["resourceVersion"] = json!((number + 1).to_string());
}

/// Applies a merge patch as the API server does.
fn merge(object: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    let fields = object.as_object_mut().unwrap();
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}
