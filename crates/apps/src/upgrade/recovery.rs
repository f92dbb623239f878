//! Recovers locks of requests that were removed by force: a lock has the state from before its request.
//!
//! The next request of the application does it. Without one, the ManagedApp does.

use std::collections::BTreeSet;

use api::{
    apps::{PlannedWorkload, ROLLBACK_REQUEST, UPGRADE_REQUEST},
    claim::Lock,
    decide::{Effect, LiveRead},
    names,
};
use serde_json::json;

use super::{
    flux_target::{FluxTarget, REQUESTED_AT, resume_token},
    read,
    scale_target::ScaleTarget,
};

/// The locks of the Flux objects of an application.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Locks {
    /// The Flux objects. What applies another object comes before it.
    pub flux: Vec<FluxTarget>,
    /// The workloads in the locks.
    pub workloads: Vec<ScaleTarget>,
    /// UIDs of the holders that may still release their locks: they have not ended, or the operator does not observe them.
    pub active: BTreeSet<String>,
}

impl Locks {
    /// Returns the objects with the lock of a request that does not exist or has ended.
    #[must_use]
    pub fn lost(&self) -> Vec<&FluxTarget> {
        let is_lost = |one: &&FluxTarget| match &one.lock {
            Lock::Held(holder) => !self.active.contains(&holder.uid),
            // Nobody knows who wrote an unreadable lock.
            Lock::Free | Lock::Unreadable => false,
        };
        self.flux.iter().filter(is_lost).collect()
    }
}

/// Returns the workloads in the locks of these objects, in these namespaces. Whoever may change a lock must not let the
/// operator scale workloads anywhere else.
#[must_use]
pub fn noted<'a>(
    flux: impl IntoIterator<Item = &'a FluxTarget>,
    namespaces: &BTreeSet<String>,
) -> Vec<&'a PlannedWorkload> {
    let notes = flux.into_iter().filter_map(|one| one.note.as_ref());
    let workloads = notes.flat_map(|note| note.workloads.iter());
    workloads
        .filter(|one| namespaces.contains(&one.namespace))
        .collect()
}

/// Returns the reads that a recovery depends on: the holders, the objects with the locks, and the workloads in the locks.
/// `namespace` is that of a holder whose lock has none.
pub(crate) fn reads<'a>(
    lost: impl IntoIterator<Item = &'a FluxTarget>,
    namespace: &str,
) -> Vec<LiveRead> {
    let mut reads: Vec<LiveRead> = Vec::new();
    let mut add = |one: LiveRead| {
        if !reads.contains(&one) {
            reads.push(one);
        }
    };
    for target in lost {
        let holder = match &target.lock {
            Lock::Held(holder) => holder,
            Lock::Free | Lock::Unreadable => continue,
        };
        let row = if holder.kind == ROLLBACK_REQUEST.name() {
            &ROLLBACK_REQUEST
        } else {
            &UPGRADE_REQUEST
        };
        let of_holder = holder.namespace.as_deref().unwrap_or(namespace);
        add(read(row.resource, of_holder, &holder.name));
        add(read(
            target.kind.resource(),
            &target.namespace,
            &target.name,
        ));
        let workloads = target.note.iter().flat_map(|note| note.workloads.iter());
        for one in workloads {
            add(read(one.kind.resource(), &one.namespace, &one.name));
        }
    }
    reads
}

/// Returns the next effects, with a message: first those that restore the replica counts, then those that resume Flux. Each
/// effect follows from the locks alone, so a crash between two of them needs no handling of its own. `uid` is that of the
/// object that recovers the locks.
pub(crate) fn next(
    lost: &[&FluxTarget],
    workloads: &[ScaleTarget],
    uid: &str,
) -> (Vec<Effect>, String) {
    let mut restores = Vec::new();
    let mut stopped = Vec::new();
    for note in lost.iter().filter_map(|target| target.note.as_ref()) {
        for planned in &note.workloads {
            let mut all = workloads.iter();
            let live = all.find(|live| live.kind == planned.kind && live.uid == planned.uid);
            let live = live.filter(|live| live.needs_restore(planned));
            if let Some(live) = live.filter(|live| !stopped.contains(&live.id())) {
                stopped.push(live.id());
                restores.push(live.restore(planned));
            }
        }
    }
    if restores.is_empty() {
        let resumed: Vec<String> = lost.iter().map(|one| one.id().to_string()).collect();
        let resumes = lost.iter().rev();
        return (
            resumes.map(|target| resume(uid, target)).collect(),
            format!("resumes {} of an earlier request", resumed.join(", ")),
        );
    }
    let stopped: Vec<String> = stopped.iter().map(ToString::to_string).collect();
    let message = format!(
        "restores the scale of {}, which an earlier request stopped",
        stopped.join(", ")
    );
    (restores, message)
}

/// Returns the effect that removes a lost lock, and restores the suspension that the lock has. The resource version
/// makes it a compare-and-swap.
fn resume(uid: &str, target: &FluxTarget) -> Effect {
    let annotations = json!({ names::LOCK: null, REQUESTED_AT: resume_token(uid) });
    let mut patch = json!({ "metadata": { "annotations": annotations } });
    if let Some(note) = &target.note {
        patch["spec"] = json!({ "suspend": note.suspend });
    }
    Effect::Patch {
        target: target.target(),
        subresource: None,
        patch,
    }
}

#[cfg(test)]
mod tests {
    use api::{
        apps::{FluxKind, ScalableKind},
        claim::Holder,
    };

    use super::*;
    use crate::upgrade::{
        flux_target::LockNote,
        scale_target::Scale,
        tests::fixtures::{flux_target, scale_target},
    };

    fn locked(lock: Lock, workloads: Vec<PlannedWorkload>) -> FluxTarget {
        FluxTarget {
            lock,
            note: Some(LockNote {
                suspend: None,
                workloads,
            }),
            ..flux_target(FluxKind::Kustomization, "kustomization", Some(true))
        }
    }

    fn held(uid: &str) -> Lock {
        Lock::Held(Holder {
            kind: UPGRADE_REQUEST.name().to_owned(),
            namespace: None,
            name: "up".to_owned(),
            uid: uid.to_owned(),
        })
    }

    fn database(replicas: i32) -> ScaleTarget {
        let scale = Scale::Replicas {
            desired: replicas,
            current: replicas,
            observed: 2,
        };
        scale_target(ScalableKind::StatefulSet, "db", scale)
    }

    #[test]
    fn a_lock_is_lost_when_its_holder_can_not_release_it() {
        for (lock, expected) in [
            (Lock::Free, false),
            (Lock::Unreadable, false),
            (held("active"), false),
            (held("dead"), true),
        ] {
            let context = format!("{lock:?}");
            let locks = Locks {
                flux: vec![locked(lock, Vec::new())],
                active: ["active".to_owned()].into(),
                ..Locks::default()
            };
            assert_eq!(!locks.lost().is_empty(), expected, "{context}");
        }
    }

    /// The counts come first: a resumed Flux would not restore those that are not in its manifests.
    #[test]
    fn the_counts_are_restored_before_flux_is_resumed() {
        let target = locked(held("dead"), vec![database(3).planned(true)]);
        // Columns: replicas now, whether the count is restored.
        for (replicas, expected) in [(0, true), (3, false), (1, false)] {
            let (effects, message) = next(&[&target], &[database(replicas)], "uid");
            let [Effect::Patch { patch, .. }] = effects.as_slice() else {
                panic!("{effects:?}");
            };
            let restored = json!({ "spec": { "replicas": 3 } });
            assert_eq!(*patch == restored, expected, "{replicas}: {message}");
            assert_eq!(message.starts_with("restores"), expected, "{message}");
            let is_resumed = patch["metadata"]["annotations"].get(names::LOCK).is_some();
            assert_eq!(is_resumed, !expected, "{patch}");
        }
    }

    /// An author of a lock may change the Kustomization of one namespace only.
    #[test]
    fn workloads_of_other_namespaces_are_not_restored() {
        let mut elsewhere = database(3).planned(true);
        elsewhere.namespace = "bank".to_owned();
        let target = locked(held("dead"), vec![database(3).planned(true), elsewhere]);
        let found = noted([&target], &["shop".to_owned()].into());
        let namespaces: Vec<&str> = found.iter().map(|one| &*one.namespace).collect();
        assert_eq!(namespaces, ["shop"]);
    }
}
