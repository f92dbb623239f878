//! Restores, swaps and undos of one volume.

use api::{apps::RollbackRequestStatus, names};
use attempts::step::StepSettings;
use serde_json::{Value, json};

use super::storage::{Fault, OWNER, Storage, claim_key, key, old_claim};
use crate::rollback::{
    restore::{self, RestoreStep},
    volume::VolumeObjects,
};

const TEMPORARY: &str = "data-restore-01234567";
const POD: &str = "data-bind-01234567";

/// Returns the number of writes of a run without a fault.
fn writes() -> usize {
    let mut storage = Storage::new();
    storage.run();
    storage.writes.len()
}

/// Returns labels, annotations without those of the binding, and the spec without the name of the volume.
fn described(claim: &Value) -> Value {
    let mut annotations = claim["metadata"]["annotations"].clone();
    if let Some(all) = annotations.as_object_mut() {
        all.retain(|name, _| !name.contains("volume.") && !name.starts_with("pv."));
    }
    let mut spec = claim["spec"].clone();
    spec["volumeName"] = Value::Null;
    json!({
        "namespace": claim["metadata"]["namespace"],
        "name": claim["metadata"]["name"],
        "labels": claim["metadata"]["labels"],
        "annotations": annotations,
        "spec": spec,
    })
}

fn assert_swapped(storage: &Storage, context: &str) {
    assert!(storage.is_done, "{context}");
    let claim = storage.claim("data").unwrap();
    assert_eq!(described(claim), described(&old_claim()), "{context}");
    assert_eq!(claim["spec"]["volumeName"], "pv-new", "{context}");
    assert_eq!(claim["status"]["phase"], "Bound", "{context}");
    assert!(claim["metadata"]["ownerReferences"].is_null(), "{context}");
    let new = storage.volume("pv-new").unwrap();
    assert_eq!(new["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    let policy = &new["spec"]["persistentVolumeReclaimPolicy"];
    assert_eq!(policy, "Delete", "{context}");
    assert_eq!(new["metadata"]["annotations"], json!({}), "{context}");
    assert_eq!(storage.claim(TEMPORARY), None, "{context}");
    assert!(!storage.real.contains_key(&key("Pod", POD)), "{context}");
}

fn assert_old_is_retained(storage: &Storage, context: &str) {
    let old = storage.volume("pv-old").unwrap();
    let policy = &old["spec"]["persistentVolumeReclaimPolicy"];
    assert_eq!(policy, "Retain", "{context}");
    let annotations = &old["metadata"]["annotations"];
    let original = &annotations["orchestrator.io/original-reclaim-policy"];
    assert_eq!(original, "Delete", "{context}");
}

fn assert_untouched(storage: &Storage, context: &str) {
    let before = Storage::new();
    assert_eq!(storage.real, before.real, "{context}");
}

/// R37: namespace, labels, annotations, class, modes and size are those of the replaced claim; owners are not.
#[test]
fn r37_a_restored_claim_repeats_everything_but_its_owners() {
    let mut storage = Storage::new();
    storage.run();
    assert_swapped(&storage, "run");
    assert_old_is_retained(&storage, "run");
    assert_eq!(
        storage.writes,
        [
            "create PersistentVolumeClaim data-restore-01234567",
            "create Pod data-bind-01234567",
            "status: restored",
            "status: commit",
            "patch PersistentVolume pv-old",
            "patch PersistentVolume pv-new",
            "delete Pod data-bind-01234567",
            "delete PersistentVolumeClaim data-restore-01234567",
            "patch PersistentVolumeClaim data",
            "delete PersistentVolumeClaim data",
            "patch PersistentVolume pv-new",
            "create PersistentVolumeClaim data",
            "patch PersistentVolume pv-new",
            "patch PersistentVolumeClaim data",
        ]
    );
}

/// T6: a crash, a lost response and old caches at any write change neither the result nor the number of claims.
#[test]
fn r37_a_fault_at_any_write_changes_nothing() {
    for number in 0..writes() {
        for fault in Fault::all(number) {
            let mut storage = Storage::faulty(fault);
            storage.run();
            let context = format!("{fault:?}: {:?}", storage.writes);
            assert_swapped(&storage, &context);
            assert_old_is_retained(&storage, &context);
            let created = storage.writes.iter();
            let created = created.filter(|one| *one == "create PersistentVolumeClaim data");
            assert_eq!(created.count(), 1, "{context}");
        }
    }
}

/// Pitfall 24: the chart of the new version has deleted the claim and its volume. Only the snapshot is left.
#[test]
fn r37_a_claim_that_was_deleted_is_restored_from_its_snapshot() {
    let count = {
        let mut storage = Storage::without_claim();
        storage.run();
        assert_swapped(&storage, "missing");
        assert_eq!(storage.volume("pv-old"), None);
        storage.writes.len()
    };
    for number in 0..count {
        for fault in Fault::all(number) {
            let mut storage = Storage::without_claim();
            storage.fault = Some(fault);
            storage.run();
            assert_swapped(&storage, &format!("{fault:?}: {:?}", storage.writes));
        }
    }
}

/// OA3: a patch that was answered is no evidence. The policy is read back from the API server.
#[test]
fn a_claim_is_deleted_only_after_its_volumes_were_read_as_retained() {
    let mut storage = Storage::new();
    storage.reverts_policy = true;
    for _ in 0..40 {
        storage.step();
    }
    assert_eq!(
        described(storage.claim("data").unwrap()),
        described(&old_claim())
    );
    assert!(storage.claim(TEMPORARY).is_some());
    storage.reverts_policy = false;
    storage.run();
    assert_swapped(&storage, "reverted");
    assert_old_is_retained(&storage, "reverted");
}

/// Pitfall 17: a StatefulSet that someone scaled up creates an empty claim of the name. It is neither adopted nor deleted.
#[test]
fn r37_a_claim_of_someone_else_is_never_adopted() {
    let mut storage = Storage::new();
    storage.run_until(|storage| storage.claim("data").is_none());
    let other = json!({
        "metadata": {
            "namespace": "shop", "name": "data", "uid": "other", "resourceVersion": "1",
            "annotations": {},
        },
        "spec": { "accessModes": ["ReadWriteOnce"] },
        "status": { "phase": "Pending" },
    });
    storage.real.insert(claim_key("data"), other);
    storage.sync();
    for _ in 0..10 {
        storage.step();
    }
    let problem = storage.blocked.clone().unwrap();
    assert_eq!(problem.reason.name(), "PVCNameTaken");
    assert!(
        problem
            .message
            .contains("PersistentVolumeClaim 'shop/data'")
    );
    let claim = storage.claim("data").unwrap();
    assert_eq!(claim["metadata"]["uid"], "other");
    assert!(claim["metadata"]["deletionTimestamp"].is_null());
    // The user deletes it, and the operator continues by itself.
    storage.real.remove(&claim_key("data"));
    storage.run();
    assert_swapped(&storage, "taken");
}

/// The volume is reserved for the name, so the cluster binds it to a claim of someone else, too.
#[test]
fn r37_a_claim_that_took_the_reserved_volume_is_not_adopted() {
    let mut storage = Storage::new();
    storage.run_until(|storage| {
        let new = storage.volume("pv-new");
        new.is_some_and(|new| new["spec"]["claimRef"]["name"] == "data")
    });
    let mut other = old_claim();
    other["metadata"]["uid"] = json!("other");
    other["spec"]["volumeName"] = Value::Null;
    other["status"]["phase"] = json!("Pending");
    storage.real.insert(claim_key("data"), other);
    storage.sync();
    for _ in 0..10 {
        storage.step();
    }
    let claim = storage.claim("data").unwrap();
    assert_eq!(claim["spec"]["volumeName"], "pv-new", "it is bound");
    let problem = storage.blocked.clone().unwrap();
    assert_eq!(problem.reason.name(), "PVCNameTaken");
    assert!(!storage.is_done);
}

/// A finalizer keeps the claim: the message names it, and the swap continues when it is removed.
#[test]
fn a_claim_that_is_not_deleted_is_named() {
    let mut storage = Storage::new();
    let claim = storage.real.get_mut(&claim_key("data")).unwrap();
    claim["metadata"]["finalizers"] = json!(["example.com/backup"]);
    storage.sync();
    storage.run_until(|storage| storage.claim(TEMPORARY).is_some());
    storage
        .run_until(|storage| storage.status.commit.is_some() && storage.claim(TEMPORARY).is_none());
    storage.keeps_claims = true;
    for _ in 0..10 {
        storage.step();
    }
    let message = storage.message.clone();
    assert!(
        message.contains("PersistentVolumeClaim 'shop/data'"),
        "{message}"
    );
    assert!(message.contains("example.com/backup"), "{message}");
    storage.keeps_claims = false;
    storage.run();
    assert_eq!(
        storage.claim("data").unwrap()["spec"]["volumeName"],
        "pv-new"
    );
}

/// False success "VolumeRestore": bound to an empty volume. Nothing is deleted, and the undo leaves nothing.
#[test]
fn a_restore_that_fails_loses_nothing() {
    type Break = fn(&mut Storage);
    let table: [(Break, &str); 5] = [
        (|storage| storage.exit = 3, "RestoredVolumeEmpty"),
        (|storage| storage.exit = 1, "RestoreNoProgress"),
        (|storage| storage.drops_source = true, "RestoredVolumeEmpty"),
        (|storage| storage.snapshot = None, "RollbackNotAvailable"),
        (
            |storage| storage.snapshot.as_mut().unwrap().uid = "another".to_owned(),
            "RollbackNotAvailable",
        ),
    ];
    for (change, reason) in table {
        let mut storage = Storage::new();
        change(&mut storage);
        storage.run();
        let failure = storage.failure.clone().unwrap();
        assert_eq!(failure.reason.name(), reason, "{}", failure.message);
        assert!(storage.status.restored.is_empty(), "{reason}");
        storage.is_undone = true;
        storage.run();
        assert_untouched(&storage, reason);
    }
}

/// R35: an undo at any time before the commit leaves the cluster as before, with a fault at any write, too.
#[test]
fn r35_a_restore_is_undone_completely() {
    for steps in 0..8 {
        for number in 0..8 {
            for fault in Fault::all(number) {
                let mut storage = Storage::faulty(fault);
                for _ in 0..steps {
                    if storage.status.restored.is_empty() {
                        storage.step();
                    }
                }
                // The undo begins with a read of everything, after the writes of the phase before have arrived.
                storage.sync();
                storage.is_undone = true;
                storage.run();
                let context = format!("{steps} steps, {fault:?}: {:?}", storage.writes);
                assert_untouched(&storage, &context);
            }
        }
    }
}

/// The Pod decides the zone, reads both volumes, and cannot change the owner of the user's files.
#[test]
fn the_pod_is_restricted_and_changes_no_file() {
    let mut storage = Storage::new();
    storage.run_until(|storage| storage.real.contains_key(&key("Pod", POD)));
    let pod = &storage.real[&key("Pod", POD)];
    let spec = &pod["spec"];
    assert!(spec["nodeName"].is_null());
    assert!(spec["securityContext"]["fsGroup"].is_null());
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(spec["automountServiceAccountToken"], false);
    let affinity = &spec["affinity"]["nodeAffinity"];
    assert!(affinity["requiredDuringSchedulingIgnoredDuringExecution"].is_object());
    let volumes = spec["volumes"].as_array().unwrap();
    let claims: Vec<&Value> = volumes
        .iter()
        .filter_map(|one| one.get("persistentVolumeClaim"))
        .collect();
    assert_eq!(claims.len(), 2);
    assert!(claims.iter().all(|one| one["readOnly"] == true));
    let mounts = spec["containers"][0]["volumeMounts"].as_array().unwrap();
    for path in ["/new", "/old"] {
        let mut found = mounts.iter().filter(|one| one["mountPath"] == path);
        assert_eq!(found.next().unwrap()["readOnly"], true, "{path}");
    }
}

/// A claim of the temporary name that someone else created is not used.
#[test]
fn a_temporary_claim_of_someone_else_is_not_used() {
    let mut storage = Storage::new();
    storage.run_until(|storage| storage.claim(TEMPORARY).is_some());
    let claim = storage.real.get_mut(&claim_key(TEMPORARY)).unwrap();
    claim["metadata"]["labels"][names::UID] = json!("other");
    storage.sync();
    storage.run();
    let failure = storage.failure.clone().unwrap();
    assert_eq!(failure.reason.name(), "RestoreNoProgress");
    assert_eq!(
        storage.status,
        RollbackRequestStatus {
            plan: storage.status.plan.clone(),
            ..RollbackRequestStatus::default()
        }
    );
}

/// Without any observed object, the first step is the temporary claim, with the snapshot as its source.
#[test]
fn the_temporary_claim_repeats_class_and_modes() {
    let storage = Storage::new();
    let seen = VolumeObjects {
        snapshot: storage.snapshot.clone(),
        ..VolumeObjects::default()
    };
    let settings = StepSettings::default();
    let step = restore::next(&OWNER, &settings, &storage.planned, &seen);
    let RestoreStep::Act(effect, _) = &step else {
        panic!("{step:?}");
    };
    let api::decide::Effect::Ensure(manifest) = effect.as_ref() else {
        panic!("{effect:?}");
    };
    assert_eq!(
        manifest.body["spec"],
        json!({
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "2Gi" } },
            "storageClassName": "fast",
            "volumeMode": "Filesystem",
            "dataSourceRef": {
                "apiGroup": "snapshot.storage.k8s.io",
                "kind": "VolumeSnapshot",
                "name": "shop-data",
            },
        })
    );
    assert_eq!(manifest.requires_intent.as_deref(), Some("change"));
}
