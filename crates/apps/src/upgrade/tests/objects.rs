//! Changes of simulated objects, as the API server and the controllers make them.

use api::{Timestamp, claim::Lock, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::upgrade::{
    commit_step::CommitStep,
    flux_target::{FluxTarget, REQUESTED_AT},
    scale_target::{Scale, ScaleTarget},
    storage::{ContentView, SnapshotView, Snapshots},
};

pub(crate) fn bump(version: &mut String) {
    let number: u64 = version.parse().unwrap();
    *version = (number + 1).to_string();
}

pub(super) fn add(snapshots: &mut Snapshots, view: &SnapshotView) {
    if let Snapshots::Found(all) = snapshots
        && all.iter().all(|one| one.name != view.name)
    {
        all.push(view.clone());
    }
}

pub(super) fn mark(snapshots: &mut Snapshots, uid: &str) {
    if let Snapshots::Found(all) = snapshots {
        for one in all.iter_mut().filter(|one| one.uid == uid) {
            one.is_deleting = true;
        }
    }
}

pub(crate) fn mark_job(step: &mut CommitStep, uid: &str) {
    for one in step.jobs.iter_mut().filter(|one| one.uid == uid) {
        one.is_deleting = true;
    }
}

/// A snapshot makes one step: content, then taken, then ready.
pub(super) fn take(one: &mut SnapshotView, now: Timestamp) {
    match &mut one.content {
        None => {
            one.content_name = Some(format!("content-{}", one.name));
            one.content = Some(ContentView {
                snapshot_uid: Some(one.uid.clone()),
                driver: "csi.example.com".to_owned(),
                handle: Some("handle".to_owned()),
                is_ready: false,
            });
        }
        Some(_) if one.taken.is_none() => one.taken = Some(now),
        Some(content) => {
            content.is_ready = true;
            one.is_ready = true;
        }
    }
}

/// Applies a merge patch as the API server does, and reads the object as `observe` does.
pub(crate) fn patched(one: &mut FluxTarget, patch: &Value) {
    let mut annotations = serde_json::Map::new();
    if let Some(requested) = &one.requested {
        annotations.insert(REQUESTED_AT.to_owned(), json!(requested));
    }
    if let Lock::Held(holder) = &one.lock {
        let mut lock = json!(holder);
        if let Some(note) = &one.note {
            lock["restore"] = note.details()["restore"].clone();
        }
        annotations.insert(names::LOCK.to_owned(), json!(lock.to_string()));
    }
    if let Some(changes) = patch["metadata"]["annotations"].as_object() {
        for (name, value) in changes {
            annotations.remove(name);
            if !value.is_null() {
                annotations.insert(name.clone(), value.clone());
            }
        }
    }
    let suspend = patch["spec"].get("suspend").cloned();
    let suspend = suspend.unwrap_or_else(|| json!(one.suspend));
    let is_changed = suspend != json!(one.suspend);
    let meta: ObjectMeta = serde_json::from_value(json!({
        "namespace": one.namespace,
        "name": one.name,
        "uid": one.uid,
        "resourceVersion": one.version,
        "generation": one.generation + i64::from(is_changed),
        "annotations": annotations,
    }))
    .unwrap();
    let status = json!({
        "lastHandledReconcileAt": one.handled,
        "conditions": [{ "type": "Ready", "message": one.activity }],
    });
    let object = json!({ "spec": { "suspend": suspend }, "status": status });
    *one = FluxTarget::read(one.kind, &meta, &object).unwrap();
    bump(&mut one.version);
}

pub(crate) fn scale(one: &mut ScaleTarget, spec: &Value) {
    match &mut one.scale {
        Scale::Replicas { desired, .. } => {
            *desired = i32::try_from(spec["replicas"].as_i64().unwrap()).unwrap();
        }
        Scale::Schedule { suspend } => *suspend = spec["suspend"].as_bool(),
    }
    one.generation += 1;
    bump(&mut one.version);
}
