//! Proof that Flux applied an object for an application: the labels that its controllers set on the live object.
//!
//! An inventory and a release are not proof. With the roles of Flux, an editor of a namespace may write the status of
//! Kustomizations and HelmReleases there, and the Secret of a release. So an entry may name an object in a namespace
//! that its author cannot read. Only an actor that may write that object can set its labels.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    health::Member,
    object::{ObjectId, ObjectKind},
    world::ClaimMember,
};

/// Returns the objects of Flux that the labels of an object name.
#[must_use]
pub fn appliers(labels: Option<&BTreeMap<String, String>>) -> BTreeSet<ObjectId> {
    let named = |kind: ObjectKind| {
        let label = |suffix: &str| labels?.get(&[kind.group(), suffix].concat());
        let (namespace, name) = (label("/namespace")?, label("/name")?);
        Some(ObjectId::new(kind, namespace, name))
    };
    let all = [ObjectKind::Kustomization, ObjectKind::HelmRelease].into_iter();
    all.filter_map(named).collect()
}

/// Returns whether an object in this namespace belongs to one of these objects of Flux: it is in the same namespace, or
/// its labels name the object of Flux.
#[must_use]
pub fn is_own(namespace: &str, appliers: &BTreeSet<ObjectId>, flux: &[ObjectId]) -> bool {
    flux.iter()
        .any(|one| one.namespace == namespace || appliers.contains(one))
}

/// Removes the live objects that do not belong to these objects of Flux. Returns their ids, in order. `listed` are the
/// objects that the inventories name; other claims are those of the workloads.
pub fn remove_foreign(
    members: &mut Vec<Member>,
    claims: &mut Vec<ClaimMember>,
    listed: &BTreeSet<ObjectId>,
    flux: &[ObjectId],
) -> Vec<ObjectId> {
    let mut foreign = BTreeSet::new();
    members.retain(|Member { id, live, .. }| {
        let live = live.as_ref();
        let is_own = live.is_none_or(|live| is_own(&id.namespace, &live.appliers, flux));
        if !is_own {
            foreign.insert(id.clone());
        }
        is_own
    });
    let kept: BTreeSet<&str> = members
        .iter()
        .map(|member| member.id.namespace.as_str())
        .collect();
    claims.retain(|ClaimMember { name, live }| {
        let id = ObjectId::named(ObjectKind::Claim, name);
        let live = live.as_ref();
        let is_applied = live.is_none_or(|live| is_own(&name.namespace, &live.appliers, flux));
        // A claim that only a workload mounts is in the namespace of the workload.
        let is_own =
            is_applied || (!listed.contains(&id) && kept.contains(name.namespace.as_str()));
        if !is_own && listed.contains(&id) {
            foreign.insert(id);
        }
        is_own
    });
    foreign.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::apps::NamespacedName;

    use super::*;
    use crate::workload::ClaimView;

    fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn flux() -> [ObjectId; 2] {
        [
            ObjectId::new(ObjectKind::Kustomization, "team", "shop"),
            ObjectId::new(ObjectKind::HelmRelease, "releases", "shop"),
        ]
    }

    const NONE: [(&str, &str); 0] = [];

    const BY_KUSTOMIZATION: [(&str, &str); 2] = [
        ("kustomize.toolkit.fluxcd.io/name", "shop"),
        ("kustomize.toolkit.fluxcd.io/namespace", "team"),
    ];

    const BY_HELM: [(&str, &str); 2] = [
        ("helm.toolkit.fluxcd.io/name", "shop"),
        ("helm.toolkit.fluxcd.io/namespace", "releases"),
    ];

    /// The table of objects: the namespace and the labels, and whether the application may show the object.
    #[test]
    fn an_object_of_another_namespace_needs_the_labels_of_flux() {
        let mixed = [BY_KUSTOMIZATION[0], BY_HELM[1]];
        let other = [
            ("kustomize.toolkit.fluxcd.io/name", "shop"),
            ("kustomize.toolkit.fluxcd.io/namespace", "other"),
        ];
        for (namespace, all, expected) in [
            ("team", &NONE[..], true),
            ("releases", &NONE[..], true),
            ("shop", &BY_KUSTOMIZATION[..], true),
            ("shop", &BY_HELM[..], true),
            ("shop", &NONE[..], false),
            ("shop", &mixed[..], false),
            ("shop", &other[..], false),
        ] {
            let found = appliers(Some(&labels(all)));
            assert_eq!(
                is_own(namespace, &found, &flux()),
                expected,
                "{namespace}, {all:?}"
            );
        }
        assert_eq!(appliers(None), BTreeSet::new());
    }

    /// Without this, an author could read the state of workloads in namespaces of others.
    #[test]
    fn objects_of_others_are_removed_and_named() {
        let claim = |namespace: &str, name: &str, all: &[(&str, &str)]| ClaimMember {
            name: NamespacedName::new(namespace, name),
            live: Some(Arc::new(ClaimView {
                appliers: appliers(Some(&labels(all))),
                ..ClaimView::default()
            })),
        };
        let mut members = vec![Member {
            id: ObjectId::new(ObjectKind::Deployment, "shop", "missing"),
            live: None,
            pods: Vec::new(),
        }];
        let mut claims = vec![
            claim("shop", "listed", &BY_KUSTOMIZATION),
            claim("shop", "mounted", &[]),
            claim("victim", "theirs", &[]),
            claim("elsewhere", "unlisted", &[]),
        ];
        let id = |namespace: &str, name: &str| ObjectId::new(ObjectKind::Claim, namespace, name);
        let listed = [id("shop", "listed"), id("victim", "theirs")].into();
        let foreign = remove_foreign(&mut members, &mut claims, &listed, &flux());
        assert_eq!(foreign, [id("victim", "theirs")]);
        assert_eq!(members.len(), 1);
        let left: Vec<&str> = claims.iter().map(|one| one.name.name.as_str()).collect();
        assert_eq!(left, ["listed", "mounted"]);
    }
}
