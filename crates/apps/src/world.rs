//! The observed state that a decision about a ManagedApp depends on.

use std::{collections::BTreeSet, sync::Arc};

use api::{apps::NamespacedName, warning::Warning};

use crate::{
    discover::Problem,
    flux::{HelmReleaseView, KustomizationView},
    health::Member,
    object::{ObjectId, ObjectKind},
    operations::Operations,
    overlap::Overlap,
    workload::{ClaimView, WorkloadView},
};

/// An object of a type that may not be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<T> {
    /// The API server does not serve the type.
    NotInstalled,
    /// The namespace of the object is not watched.
    NotWatched,
    /// The object exists and cannot be read, or its watch does not work.
    Unreadable(String),
    /// The object does not exist.
    Absent,
    /// The object exists.
    Present(Arc<T>),
}

impl<T> Seen<T> {
    /// Returns the object, if it exists.
    #[must_use]
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(object) => Some(object),
            Self::NotInstalled | Self::NotWatched | Self::Unreadable(_) | Self::Absent => None,
        }
    }
}

/// A workload that is not in the inventory and mounts a claim of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounter {
    /// Kind of the workload; `Pod` for a Pod without a controller.
    pub kind: String,
    /// Namespace and name.
    pub name: NamespacedName,
    /// The live object, if the operator reads its kind.
    pub live: Option<Arc<WorkloadView>>,
}

/// A claim of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimMember {
    /// Namespace and name.
    pub name: NamespacedName,
    /// The live object, or `None` if it does not exist.
    pub live: Option<Arc<ClaimView>>,
}

/// The objects of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discovery {
    /// The objects cannot be discovered. The problem counts only if Flux itself reports none.
    Failed(Problem),
    /// The objects were discovered.
    Found(Objects),
}

/// The discovered objects of an application, with their live state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Objects {
    /// Workloads of the inventory.
    pub members: Vec<Member>,
    /// Other workloads that mount a claim of the application.
    pub mounters: Vec<Mounter>,
    /// Claims of the inventory, of Pod templates and of Pods.
    pub claims: Vec<ClaimMember>,
    /// Objects of the inventories in namespaces of others, whose labels do not show that Flux applied them. Nothing else
    /// is known about them.
    pub foreign: Vec<ObjectId>,
    /// Namespaces with objects of the application that the operator does not watch.
    pub unwatched: BTreeSet<String>,
}

impl Objects {
    /// Returns the ids of the workloads of the inventory, and of all claims.
    #[must_use]
    pub fn ids(&self) -> BTreeSet<ObjectId> {
        let claims = self.claims.iter();
        let claims = claims.map(|claim| ObjectId::named(ObjectKind::Claim, &claim.name));
        let members = self.members.iter().map(|member| member.id.clone());
        members.chain(claims).collect()
    }
}

/// Observed state of a ManagedApp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppWorld {
    /// Name of the Kustomization.
    pub kustomization_name: NamespacedName,
    /// The Kustomization.
    pub kustomization: Seen<KustomizationView>,
    /// The HelmRelease with its name, or the reason why it is not known which one it is. `Ok(None)` if the application
    /// has none.
    pub helm_release: Result<Option<(NamespacedName, Seen<HelmReleaseView>)>, Problem>,
    /// The objects of the application.
    pub discovery: Discovery,
    /// An object that an older ManagedApp has, too.
    pub overlap: Option<Overlap>,
    /// Warning Events about Pods of workloads that are not ready.
    pub warnings: Vec<Warning>,
    /// The requests of the application, or `None` if only its health is judged.
    pub operations: Option<Operations>,
}

impl AppWorld {
    /// Returns the HelmRelease, if the application has one and it exists.
    #[must_use]
    pub fn release(&self) -> Option<&HelmReleaseView> {
        match &self.helm_release {
            Ok(Some((_, seen))) => seen.present(),
            Ok(None) | Err(_) => None,
        }
    }
}
