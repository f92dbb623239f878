//! The kind of the apps operator: a [`ManagedApp`] is an application that Flux applies.

#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod managed_app;
mod permissions;
mod reasons;
mod status;

use crate::{decide::ResourceType, kinds::OperatorRow, policy};

pub use managed_app::{FluxRef, MANAGED_APP, ManagedApp, ManagedAppSpec};
pub use status::{
    AppPhase, AppliedRevision, DeployedRelease, ManagedAppStatus, NamespacedName,
    UnprotectedVolume, Volume, Workload,
};

/// Maximum number of entries in a list of the status.
pub const MAX_LISTED: usize = 32;

/// Maximum number of images of one workload in the status.
pub const MAX_IMAGES: usize = 16;

/// Kustomizations of Flux.
pub const KUSTOMIZATION: ResourceType = ResourceType::new(
    "kustomize.toolkit.fluxcd.io",
    "v1",
    "Kustomization",
    "kustomizations",
);

/// HelmReleases of Flux.
pub const HELM_RELEASE: ResourceType = ResourceType::new(
    "helm.toolkit.fluxcd.io",
    "v2",
    "HelmRelease",
    "helmreleases",
);

const LEASE: &str = "orchestrator-apps";

/// The row of the apps operator in the table of kinds.
pub const OPERATOR: OperatorRow = OperatorRow {
    name: "apps",
    summary: "Applications that Flux applies",
    lease: LEASE,
    needs_all_namespaces: None,
    kinds: &[MANAGED_APP],
    permissions: permissions::PERMISSIONS,
    policies: policy::of_apps,
    reasons: reasons::REASONS,
};
