//! Gives a claim of the application its restored volume, and retains the replaced one.
//!
//! # Guarantees
//! - Nothing is deleted before both volumes were read back with the policy `Retain`, and before the stored status has the
//!   restored volume and the commit.
//! - Each completed step is recognized from the existing objects, so a crash at any time repeats none of them.
//! - A claim of the same name that someone else created is neither adopted nor deleted.

use std::collections::BTreeMap;

use api::{
    Reason,
    apps::{PlannedName, PlannedRestore, RestoredVolume, rollback_intent},
    decide::{Effect, LiveRead, Manifest, Target},
    names,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Owner,
    volume::{
        CLAIM, LiveClaim, LiveVolume, ORIGINAL_POLICY, REPLACED_BY, RETAIN, VOLUME, VolumeObjects,
        read,
    },
};
use crate::{discover::Problem, upgrade::SOURCE_PVC};

/// Prefixes of annotations that belong to the binding of a claim, not to its user.
const BINDING: [&str; 3] = [
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
];

/// The swap of one volume.
#[derive(Debug, Clone, Copy)]
pub struct Swap<'a> {
    /// The request.
    pub owner: Owner<'a>,
    /// The volume in the plan.
    pub planned: &'a PlannedRestore,
    /// The restored volume in the stored status.
    pub restored: &'a RestoredVolume,
    /// The objects.
    pub seen: &'a VolumeObjects,
    /// Whether the volumes and the claim were read from the API server.
    pub confirmed: bool,
}

/// The next step of a swap.
#[derive(Debug, Clone, PartialEq)]
pub enum SwapStep {
    /// Carry out these changes.
    Act(Vec<Effect>, String),
    /// Read these objects from the API server, and decide again.
    Confirm(Vec<LiveRead>),
    /// Wait for the cluster.
    Wait(String),
    /// Wait for a user.
    Blocked(Problem),
    /// The claim has the restored volume.
    Done,
}

/// The claim with the name of the plan.
enum Found<'a> {
    /// It does not exist.
    Nothing,
    /// It is the one that is replaced.
    Replaced(&'a LiveClaim),
    /// It is the new one.
    Restored(&'a LiveClaim),
    /// Someone else created it.
    Other(&'a LiveClaim),
}

/// Metadata and spec of a claim, as [`LiveClaim::source`] has them.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Source {
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    spec: Value,
}

/// Returns the next step.
#[must_use]
pub fn next(swap: &Swap<'_>) -> SwapStep {
    let Some(new) = &swap.seen.new else {
        let message = format!("PersistentVolume '{}' does not exist", swap.restored.pv);
        return SwapStep::Blocked(Problem::new(Reason::VolumeSwapBlocked, message));
    };
    match swap.found(new) {
        Found::Restored(claim) => swap.finish(claim, new),
        Found::Other(claim) => SwapStep::Blocked(Problem::new(
            Reason::PVCNameTaken,
            format!(
                "someone else created {}; the restored volume is '{}'",
                claim.id(),
                new.name
            ),
        )),
        Found::Replaced(claim) => swap
            .retain(new, Some(&claim.source))
            .or_else(|| swap.free())
            .unwrap_or_else(|| swap.remove(claim)),
        Found::Nothing => swap
            .retain(new, None)
            .or_else(|| swap.free())
            .unwrap_or_else(|| swap.create(new)),
    }
}

impl<'a> Swap<'a> {
    fn found(&self, new: &LiveVolume) -> Found<'a> {
        let Some(claim) = &self.seen.claim else {
            return Found::Nothing;
        };
        if self.planned.pvc_uid.as_ref() == Some(&claim.uid) {
            return Found::Replaced(claim);
        }
        let has_volume = claim.volume.as_ref() == Some(&new.name);
        let is_marked = claim.is_marked && claim.owner.as_deref() == Some(self.owner.uid);
        // The last step removes the mark, after the volume has its former policy. Before it, a claim without the mark is
        // one that took the reserved volume, for example of a StatefulSet that someone scaled up.
        let is_bound = new.claim_uid.as_ref() == Some(&claim.uid);
        let is_complete = is_bound && new.original.is_none();
        if has_volume && (is_marked || is_complete) {
            Found::Restored(claim)
        } else {
            Found::Other(claim)
        }
    }

    fn intent(&self) -> String {
        rollback_intent::swap(&self.planned.pvc)
    }

    fn intended(&self, target: Target) -> Target {
        target.requires_intent(self.intent())
    }

    fn patch(&self, target: Target, patch: Value) -> Effect {
        Effect::Patch {
            target: self.intended(target),
            subresource: None,
            patch,
        }
    }

    /// Keeps both volumes when their claims are deleted. The restored one gets the description of the claim, which would
    /// be lost with the claim.
    fn retain(&self, new: &LiveVolume, source: Option<&String>) -> Option<SwapStep> {
        let old = self.seen.old.as_ref();
        let mut effects = Vec::new();
        if let Some(old) = old.filter(|old| old.policy != RETAIN || old.original.is_none()) {
            let patch = json!({
                "metadata": { "annotations": { ORIGINAL_POLICY: old.original_policy() } },
                "spec": { "persistentVolumeReclaimPolicy": RETAIN },
            });
            effects.push(self.patch(old.target(), patch));
        }
        let is_kept = new.policy == RETAIN && new.original.is_some() && new.source.is_some();
        if !is_kept {
            let described = new.source.as_ref().or(source);
            let Some(source) = described.or(self.seen.snapshot_source.as_ref()) else {
                let message = format!(
                    "{} does not exist, and its snapshot has no description of it",
                    self.planned.id()
                );
                let problem = Problem::new(Reason::VolumeSwapBlocked, message);
                return Some(SwapStep::Blocked(problem));
            };
            let original = new.original.as_deref();
            let original = original.unwrap_or_else(|| old.unwrap_or(new).original_policy());
            let patch = json!({
                "metadata": { "annotations": { ORIGINAL_POLICY: original, SOURCE_PVC: source } },
                "spec": { "persistentVolumeReclaimPolicy": RETAIN },
            });
            effects.push(self.patch(new.target(), patch));
        }
        if !effects.is_empty() {
            let message = format!("retains the volumes of {}", self.planned.id());
            return Some(SwapStep::Act(effects, message));
        }
        // A write that seemed to succeed is no evidence. The claims are deleted only after this read.
        (!self.confirmed).then(|| SwapStep::Confirm(self.reads(new)))
    }

    fn reads(&self, new: &LiveVolume) -> Vec<LiveRead> {
        let old = self.planned.pv.as_deref();
        let volumes = old.into_iter().chain([new.name.as_str()]);
        let mut reads: Vec<LiveRead> = volumes.map(|name| read(VOLUME, None, name)).collect();
        let Self { planned, .. } = self;
        reads.push(read(CLAIM, Some(&planned.namespace), &planned.pvc));
        reads
    }

    /// Deletes the Pod and the temporary claim, so that the restored volume is free.
    fn free(&self) -> Option<SwapStep> {
        free(self.seen, |target| self.intended(target))
    }

    /// Deletes the claim that is replaced, by its UID.
    fn remove(&self, claim: &LiveClaim) -> SwapStep {
        let id = claim.id();
        if claim.is_deleting {
            return SwapStep::Wait(claim.describe_deletion());
        }
        if claim.replaced_by.as_deref() != Some(self.owner.uid) {
            let patch = json!({ "metadata": { "annotations": { REPLACED_BY: self.owner.uid } } });
            let effect = self.patch(claim.target(), patch);
            return SwapStep::Act(vec![effect], format!("announces the replacement of {id}"));
        }
        let effect = Effect::Delete(self.intended(claim.target()));
        SwapStep::Act(
            vec![effect],
            format!("deletes {id}, whose volume is retained"),
        )
    }

    /// Reserves the restored volume for the claim, and creates the claim.
    fn create(&self, new: &LiveVolume) -> SwapStep {
        let planned = self.planned;
        let wanted = (planned.namespace.clone(), planned.pvc.clone());
        // The UID is that of a claim that does not exist any more.
        if new.claim.as_ref() != Some(&wanted) || new.claim_uid.is_some() {
            let patch = json!({ "spec": { "claimRef": {
                "apiVersion": CLAIM.version, "kind": CLAIM.kind,
                "namespace": planned.namespace, "name": planned.pvc,
                "uid": null, "resourceVersion": null,
            } } });
            let effect = self.patch(new.target(), patch);
            let message = format!("reserves PersistentVolume '{}'", new.name);
            return SwapStep::Act(vec![effect], message);
        }
        let text = new.source.as_deref().unwrap_or_default();
        match serde_json::from_str(text) {
            Ok(source) => {
                let claim = self.claim(source, new);
                let message = format!("creates {} with the restored volume", planned.id());
                SwapStep::Act(vec![Effect::Ensure(Box::new(claim))], message)
            }
            Err(error) => {
                let name = &new.name;
                let message =
                    format!("annotation '{SOURCE_PVC}' of PersistentVolume '{name}': {error}");
                SwapStep::Blocked(Problem::new(Reason::VolumeSwapBlocked, message))
            }
        }
    }

    /// Builds the claim: labels, annotations, class, modes and size of the replaced one (R37). It has no owner
    /// reference: with an owner that was deleted, the claim would be collected. A StatefulSet sets its own.
    fn claim(&self, source: Source, new: &LiveVolume) -> Manifest {
        let mut spec = serde_json::Map::new();
        for field in ["accessModes", "resources", "storageClassName", "volumeMode"] {
            let value = source.spec.get(field).filter(|value| !value.is_null());
            if let Some(value) = value {
                spec.insert(field.to_owned(), value.clone());
            }
        }
        spec.insert("volumeName".to_owned(), json!(new.name));
        let mut manifest = Manifest::new(
            CLAIM,
            Some(&self.planned.namespace),
            &self.planned.pvc,
            self.owner.uid,
            source.labels.unwrap_or_default(),
            json!({ "spec": spec }),
        );
        // The labels are exactly those of the replaced claim, so an annotation names the owner.
        let annotations = &mut manifest.body["metadata"]["annotations"];
        for (name, value) in source.annotations.unwrap_or_default() {
            let is_binding = BINDING.iter().any(|prefix| name.starts_with(prefix));
            if !is_binding && name != REPLACED_BY {
                annotations[name.as_str()] = json!(value);
            }
        }
        annotations[names::UID] = json!(self.owner.uid);
        manifest
            .requires_intent(self.intent())
            .undoing()
            .observed_by_name()
    }

    /// Waits for the binding. Then the restored volume gets the reclaim policy of the replaced one, and the claim loses the
    /// annotations of the request.
    fn finish(&self, claim: &LiveClaim, new: &LiveVolume) -> SwapStep {
        if claim.is_deleting {
            return SwapStep::Wait(claim.describe_deletion());
        }
        if !claim.is_bound || new.claim_uid.as_ref() != Some(&claim.uid) {
            let message = format!("waits until {} is bound to '{}'", claim.id(), new.name);
            return SwapStep::Wait(message);
        }
        if let Some(original) = &new.original {
            let patch = json!({
                "metadata": { "annotations": { ORIGINAL_POLICY: null, SOURCE_PVC: null } },
                "spec": { "persistentVolumeReclaimPolicy": original },
            });
            let effect = self.patch(new.target(), patch);
            let message = format!("sets the reclaim policy of '{}' to '{original}'", new.name);
            return SwapStep::Act(vec![effect], message);
        }
        if claim.is_marked {
            let marks = json!({ names::UID: null, names::SPEC_HASH: null });
            let patch = json!({ "metadata": { "annotations": marks } });
            let effect = self.patch(claim.target(), patch);
            return SwapStep::Act(vec![effect], format!("completes {}", claim.id()));
        }
        SwapStep::Done
    }
}

/// Deletes the Pod and the temporary claim of a volume, and waits until they do not exist. Returns `None` if they do not.
pub(super) fn free(seen: &VolumeObjects, intended: impl Fn(Target) -> Target) -> Option<SwapStep> {
    let delete = |target: Target, id: PlannedName| {
        let effect = Effect::Delete(intended(target));
        SwapStep::Act(vec![effect], format!("deletes {id}"))
    };
    if let Some(binder) = &seen.binder {
        return Some(if binder.is_deleting {
            SwapStep::Wait(binder.describe_deletion())
        } else {
            delete(binder.target(), binder.id())
        });
    }
    let claim = seen.temporary.as_ref()?;
    Some(if claim.is_deleting {
        SwapStep::Wait(claim.describe_deletion())
    } else {
        delete(claim.target(), claim.id())
    })
}
