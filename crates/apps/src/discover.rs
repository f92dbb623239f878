//! Discovers the objects of an application from the inventories of Flux and the release of Helm.
//!
//! # Guarantees
//! - Pure: the same inventories and the same release give the same objects.
//! - No label, name prefix or live Pod decides that a workload belongs to the application.
//! - Two sources that contradict each other are an error, never a guess.

use std::{collections::BTreeSet, slice, sync::Arc};

use api::{
    Reason,
    apps::{FluxRef, NamespacedName},
};

use crate::{
    flux::{HelmReleaseView, KustomizationView},
    object::{ObjectId, ObjectKind},
    origin::is_own,
};

/// The reason why the objects are not known, or why the application is not healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Reason of the condition.
    pub reason: Reason,
    /// The blocker and the next step.
    pub message: String,
}

impl Problem {
    /// Creates a problem.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// The objects in the release of Helm, as they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseRead {
    /// The configuration does not allow it, so the inventory of the HelmRelease counts alone.
    Disabled,
    /// The objects in the manifest of the newest release.
    Objects(Arc<BTreeSet<ObjectId>>),
    /// The Secret cannot be read or decoded.
    Unreadable(String),
    /// Helm stored a newer release than the history of the HelmRelease has. This is its version.
    Newer(i64),
}

/// Returns the name of a referenced object. Without a namespace, it is in the namespace of the ManagedApp.
#[must_use]
pub fn resolve(reference: &FluxRef, own_namespace: &str) -> NamespacedName {
    let namespace = reference.namespace.as_deref().unwrap_or(own_namespace);
    NamespacedName::new(namespace, &reference.name)
}

/// Returns the HelmRelease of an application, if it has one.
///
/// # Errors
/// If the reference is not in the inventory, or if it is missing and the inventory has several HelmReleases.
pub fn helm_release(
    reference: Option<&FluxRef>,
    own_namespace: &str,
    kustomization: &KustomizationView,
) -> Result<Option<NamespacedName>, Problem> {
    let inventory = kustomization.inventory.iter().flat_map(|all| all.iter());
    let found: Vec<NamespacedName> = inventory
        .filter(|object| object.kind == ObjectKind::HelmRelease)
        .map(|object| NamespacedName::new(&object.namespace, &object.name))
        .collect();
    let name = &kustomization.flux.name;
    if let Some(reference) = reference {
        let wanted = resolve(reference, own_namespace);
        return if found.contains(&wanted) {
            Ok(Some(wanted))
        } else {
            Err(Problem::new(
                Reason::NotInInventory,
                format!(
                    "HelmRelease '{wanted}' is not in the inventory of Kustomization '{name}', which has {}. Correct 'spec.helmReleaseRef'",
                    listed(&found)
                ),
            ))
        };
    }
    match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        several => Err(Problem::new(
            Reason::HelmReleaseAmbiguous,
            format!(
                "Kustomization '{name}' has {}. Set 'spec.helmReleaseRef' to the one of this application",
                listed(several)
            ),
        )),
    }
}

/// Checks that the Kustomization applied the HelmRelease of its inventory. The author of a ManagedApp needs permission on
/// a HelmRelease in `spec.helmReleaseRef`, but not on one that is found in the inventory.
///
/// # Errors
/// If the HelmRelease is in another namespace, and its labels do not name the Kustomization.
pub fn check_origin(
    reference: Option<&FluxRef>,
    kustomization: &KustomizationView,
    helm: &HelmReleaseView,
) -> Result<(), Problem> {
    let owner = ObjectId::named(ObjectKind::Kustomization, &kustomization.flux.name);
    let namespace = &helm.flux.name.namespace;
    if reference.is_some() || is_own(namespace, &helm.flux.appliers, slice::from_ref(&owner)) {
        return Ok(());
    }
    let id = ObjectId::named(ObjectKind::HelmRelease, &helm.flux.name);
    Err(foreign(&id, kustomization, None))
}

/// Returns the problem of an object in a namespace of others that Flux did not apply. The object is named only if an
/// inventory has it: the release may be that of others, and its names are not known to the author.
#[must_use]
pub fn foreign(
    id: &ObjectId,
    kustomization: &KustomizationView,
    helm: Option<&HelmReleaseView>,
) -> Problem {
    let inventories = [
        kustomization.inventory.as_ref(),
        helm.and_then(|helm| helm.inventory.as_ref()),
    ];
    let mut inventories = inventories.into_iter().flat_map(|one| one.into_iter());
    let subject = if inventories.any(|one| one.contains(id)) {
        id.to_string()
    } else {
        "an object of the release".to_owned()
    };
    let name = &kustomization.flux.name;
    let message = format!(
        "{subject} belongs to Kustomization '{name}' by its inventory, but not by the labels that Flux sets. Let Flux reconcile it"
    );
    Problem::new(Reason::DiscoveryMismatch, message)
}

/// Maximum number of names in a message.
const NAMED: usize = 3;

fn listed(names: &[NamespacedName]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(NAMED)
        .map(|name| format!("'{name}'"))
        .collect();
    let more = names.len().saturating_sub(NAMED);
    match (names.len(), more) {
        (0, _) => "no HelmRelease".to_owned(),
        (1, _) => format!("the HelmRelease {}", shown.concat()),
        (count, 0) => format!("{count} HelmReleases: {}", shown.join(", ")),
        (count, more) => format!("{count} HelmReleases: {} and {more} more", shown.join(", ")),
    }
}

/// Returns the workloads and the claims of an application.
///
/// # Errors
/// If the release cannot be read, is not the one that Flux knows, or contradicts the inventory.
pub fn objects(
    kustomization: &KustomizationView,
    release: Option<(&HelmReleaseView, &ReleaseRead)>,
) -> Result<BTreeSet<ObjectId>, Problem> {
    let inventory = kustomization.inventory.iter().flat_map(|all| all.iter());
    let mut found: BTreeSet<ObjectId> = inventory.cloned().collect();
    if let Some((helm, read)) = release {
        found.extend(release_objects(helm, read)?);
    }
    found.retain(|object| object.kind.is_workload() || object.kind == ObjectKind::Claim);
    Ok(found)
}

fn release_objects(
    helm: &HelmReleaseView,
    read: &ReleaseRead,
) -> Result<BTreeSet<ObjectId>, Problem> {
    let name = &helm.flux.name;
    let unreadable = |why: String| Problem::new(Reason::ReleaseUnreadable, why);
    let Some(newest) = &helm.newest else {
        return Err(unreadable(format!(
            "HelmRelease '{name}' has no release in its history. Let Flux reconcile it"
        )));
    };
    let release = format!("release '{}' version {}", newest.name, newest.version);
    match (read, &helm.inventory) {
        (ReleaseRead::Disabled, Some(inventory)) => Ok(inventory.clone()),
        (ReleaseRead::Disabled, None) => Err(unreadable(format!(
            "HelmRelease '{name}' has no inventory, and the configuration does not allow to read the release Secret. Upgrade helm-controller to 1.5 or newer, or set 'apps.helm.readReleaseSecrets'"
        ))),
        (ReleaseRead::Unreadable(why), _) => Err(unreadable(format!(
            "{release} of HelmRelease '{name}' cannot be read: {why}"
        ))),
        (ReleaseRead::Newer(newer), _) => Err(Problem::new(
            Reason::ReleaseChangedOutsideFlux,
            format!(
                "Helm stored version {newer} of release '{}', but HelmRelease '{name}' knows version {} only: someone changed the release by hand. Let Flux reconcile it",
                newest.name, newest.version
            ),
        )),
        (ReleaseRead::Objects(objects), None) => Ok(objects.as_ref().clone()),
        (ReleaseRead::Objects(objects), Some(inventory)) => {
            match first_difference(objects, inventory) {
                None => Ok(objects.union(inventory).cloned().collect()),
                // The release may be that of others, whose names are not known to the author.
                Some((_, has, lacks)) if helm.has_storage_elsewhere() => Err(Problem::new(
                    Reason::DiscoveryMismatch,
                    format!(
                        "a workload is in {has} of HelmRelease '{name}', but not in {lacks}. Let Flux reconcile the HelmRelease"
                    ),
                )),
                Some((object, has, lacks)) => Err(Problem::new(
                    Reason::DiscoveryMismatch,
                    format!(
                        "{object} is in {has} of HelmRelease '{name}', but not in {lacks}. Let Flux reconcile the HelmRelease"
                    ),
                )),
            }
        }
    }
}

/// Returns the first workload that only one of the two has, the one that has it and the one that lacks it. Claims may
/// differ: Helm keeps a claim with the policy `keep`.
fn first_difference<'a>(
    manifest: &'a BTreeSet<ObjectId>,
    inventory: &'a BTreeSet<ObjectId>,
) -> Option<(&'a ObjectId, &'static str, &'static str)> {
    let (release, list) = ("the release", "the inventory");
    let workload = |object: &&&ObjectId| object.kind.is_workload();
    let only_release = manifest.difference(inventory).collect::<Vec<_>>();
    let only_list = inventory.difference(manifest).collect::<Vec<_>>();
    let first = only_release.iter().find(workload);
    let first = first.map(|object| (*object, release, list));
    first.or_else(|| {
        let first = only_list.iter().find(workload);
        first.map(|object| (*object, list, release))
    })
}

#[cfg(test)]
mod tests;
