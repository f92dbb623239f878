//! Selects the claims of which an upgrade takes snapshots.

use std::collections::BTreeSet;

use api::{
    Reason,
    apps::{ClaimRef, NamespacedName, PlannedVolume, VolumeSnapshotPolicy},
};

use crate::{discover::Problem, world::Objects};

/// Returns the claims that the policy names, or all except those that it excludes (S1.4). `namespace` is that of the
/// ManagedApp.
///
/// # Errors
/// If the policy names a claim that does not belong to the application: its snapshot would protect nothing.
pub(super) fn claims<'a>(
    policy: &VolumeSnapshotPolicy,
    namespace: &str,
    objects: &'a Objects,
) -> Result<BTreeSet<&'a NamespacedName>, Problem> {
    let named = |all: &[ClaimRef]| -> BTreeSet<NamespacedName> {
        let names = all.iter().map(|one| {
            let namespace = one.namespace.as_deref().unwrap_or(namespace);
            NamespacedName::new(namespace, &one.name)
        });
        names.collect()
    };
    let (included, excluded) = (named(&policy.included), named(&policy.excluded));
    let all: BTreeSet<&NamespacedName> = objects.claims.iter().map(|one| &one.name).collect();
    if let Some(unknown) = included.iter().find(|name| !all.contains(*name)) {
        return Err(Problem::new(
            Reason::NoVolumesFound,
            format!(
                "PersistentVolumeClaim '{unknown}' in 'volumeSnapshots.pvcs' does not belong to the application"
            ),
        ));
    }
    let is_selected = |name: &&NamespacedName| {
        let is_included = included.is_empty() || included.contains(*name);
        is_included && !excluded.contains(*name)
    };
    let selected: BTreeSet<&NamespacedName> = all.iter().copied().filter(is_selected).collect();
    if selected.is_empty() && !all.is_empty() {
        return Err(nothing("'volumeSnapshots.excludePVCs' excludes"));
    }
    Ok(selected)
}

/// Returns the volumes with one of the access modes of the policy.
///
/// # Errors
/// If there is none: the upgrade would protect nothing (R30).
pub(super) fn with_modes(
    policy: &VolumeSnapshotPolicy,
    mut volumes: Vec<PlannedVolume>,
) -> Result<Vec<PlannedVolume>, Problem> {
    if policy.access_modes.is_empty() {
        return Ok(volumes);
    }
    volumes.retain(|volume| {
        let mut modes = volume.access_modes.iter();
        modes.any(|mode| policy.access_modes.contains(mode))
    });
    if volumes.is_empty() {
        return Err(nothing("'volumeSnapshots.accessModes' excludes"));
    }
    Ok(volumes)
}

fn nothing(cause: &str) -> Problem {
    Problem::new(
        Reason::NoVolumesFound,
        format!("{cause} all PersistentVolumeClaims of the application"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::ClaimMember;

    fn objects(names: &[&str]) -> Objects {
        let claims = names.iter().map(|name| ClaimMember {
            name: NamespacedName::new("shop", name),
            live: None,
        });
        Objects {
            claims: claims.collect(),
            ..Objects::default()
        }
    }

    fn refs(names: &[&str], namespace: Option<&str>) -> Vec<ClaimRef> {
        let refs = names.iter().map(|name| ClaimRef {
            name: (*name).to_owned(),
            namespace: namespace.map(str::to_owned),
        });
        refs.collect()
    }

    fn selected(policy: &VolumeSnapshotPolicy, names: &[&str]) -> Result<Vec<String>, String> {
        let objects = objects(names);
        let found = claims(policy, "shop", &objects);
        let found = found.map_err(|problem| problem.reason.name().to_owned())?;
        Ok(found.into_iter().map(|name| name.name.clone()).collect())
    }

    /// Policy, claims of the application, selected claims.
    type Row<'a> = (
        VolumeSnapshotPolicy,
        &'a [&'a str],
        Result<Vec<String>, String>,
    );

    #[test]
    fn s1_4_claims_are_named_or_excluded() {
        let all = VolumeSnapshotPolicy::default();
        let included = |included| VolumeSnapshotPolicy {
            included,
            ..VolumeSnapshotPolicy::default()
        };
        let excluded = |excluded| VolumeSnapshotPolicy {
            excluded,
            ..VolumeSnapshotPolicy::default()
        };
        let names = |names: &[&str]| -> Result<Vec<String>, String> {
            Ok(names.iter().map(|name| (*name).to_owned()).collect())
        };
        let rejected = || Err("NoVolumesFound".to_owned());
        let table: [Row<'_>; 9] = [
            (all.clone(), &["a", "b"], names(&["a", "b"])),
            // The check for an application without volumes comes before.
            (all, &[], names(&[])),
            (included(refs(&["b"], None)), &["a", "b"], names(&["b"])),
            (
                included(refs(&["b"], Some("shop"))),
                &["a", "b"],
                names(&["b"]),
            ),
            // A claim of the same name in another namespace is another one.
            (
                included(refs(&["b"], Some("other"))),
                &["a", "b"],
                rejected(),
            ),
            (included(refs(&["c"], None)), &["a", "b"], rejected()),
            (excluded(refs(&["a"], None)), &["a", "b"], names(&["b"])),
            (excluded(refs(&["c"], None)), &["a"], names(&["a"])),
            (excluded(refs(&["a", "b"], None)), &["a", "b"], rejected()),
        ];
        for (policy, claims, expected) in table {
            assert_eq!(selected(&policy, claims), expected, "{policy:?}");
        }
    }

    #[test]
    fn volumes_are_selected_by_their_access_modes() {
        let volume = |name: &str, modes: &[&str]| PlannedVolume {
            pvc: name.to_owned(),
            access_modes: modes.iter().map(|mode| (*mode).to_owned()).collect(),
            ..PlannedVolume::default()
        };
        let volumes = || {
            vec![
                volume("a", &["ReadWriteOnce"]),
                volume("b", &["ReadWriteMany", "ReadOnlyMany"]),
            ]
        };
        // Columns: access modes of the policy, number of selected volumes.
        for (modes, expected) in [
            (vec![], Some(2)),
            (vec!["ReadWriteOnce"], Some(1)),
            (vec!["ReadOnlyMany"], Some(1)),
            (vec!["ReadWriteOnce", "ReadWriteMany"], Some(2)),
            (vec!["ReadWriteOncePod"], None),
        ] {
            let policy = VolumeSnapshotPolicy {
                access_modes: modes.iter().map(|mode| (*mode).to_owned()).collect(),
                ..VolumeSnapshotPolicy::default()
            };
            let found = with_modes(&policy, volumes());
            let count = match &found {
                Ok(found) => Some(found.len()),
                Err(problem) => {
                    assert_eq!(problem.reason, Reason::NoVolumesFound);
                    None
                }
            };
            assert_eq!(count, expected, "{modes:?}");
        }
    }
}
