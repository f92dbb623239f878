//! The kinds of the apps operator: a [`ManagedApp`] is an application that Flux applies. An [`UpgradeRequest`] upgrades it,
//! and a [`RollbackRequest`] returns it to the state before an upgrade.

#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod managed_app;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod operations;
mod permissions;
mod reasons;
mod rollback_phase;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod rollback_request;
mod rollback_status;
mod status;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod timeouts;
mod upgrade_git;
mod upgrade_phase;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod upgrade_request;
mod upgrade_status;

use crate::{decide::ResourceType, kinds::OperatorRow, policy};

pub use managed_app::{
    ApprovalPolicy, FluxRef, MANAGED_APP, ManagedApp, ManagedAppSpec, ScaleDownSetting,
    SnapshotDeletion,
};
pub use operations::{
    ActiveOperation, ClaimRef, LastUpgrade, MAX_NAMED_CLAIMS, MAX_REJECTED_VERSIONS,
    MAX_RESTORE_POINTS, MAX_RETAINED_VOLUMES, RestorePoint, RetainedVolume, RetainedVolumePolicy,
    SnapshotRetention, VolumeSnapshotPolicy, reclaim_intent,
};
pub use rollback_phase::RollbackPhase;
pub use rollback_request::{ROLLBACK_REQUEST, RollbackRequest, RollbackRequestSpec};
pub use rollback_status::{
    PlannedRestore, RestoreTimeouts, RestoredVolume, RollbackFailure, RollbackPlan,
    RollbackRequestStatus, rollback_condition, rollback_intent,
};
pub use status::{
    AppPhase, AppliedRevision, DeployedRelease, ManagedAppStatus, NamespacedName,
    UnprotectedVolume, Volume, Workload,
};
pub use timeouts::{HealthCheckSettings, TimeoutSettings};
pub use upgrade_git::{
    AppGit, ChartField, CommitAuthor, DocumentName, ImageField, MAX_EVIDENCE_IMAGES,
    MAX_PLANNED_EDITS, PlannedCommit, PlannedDocument, PlannedEdit, PlannedSource, PushAttempt,
    PushFailure, PushOutcome, PushedCommit, ReconciledVersion, UpgradeEvidence, VersionsBefore,
};
pub use upgrade_phase::{PLAN_TIME, PUSH_TIME, UpgradePhase};
pub use upgrade_request::{
    Approval, ApprovalDecision, ImageTag, TargetVersion, UPGRADE_REQUEST, UpgradeRequest,
    UpgradeRequestSpec,
};
pub use upgrade_status::{
    ApprovedPlan, Downtime, FluxKind, ImageChange, MAX_PLANNED_VOLUMES, MAX_PLANNED_WORKLOADS,
    PhaseTimeouts, PlannedFluxObject, PlannedName, PlannedVolume, PlannedWorkload, ScalableKind,
    ScaleDownPolicy, TakenSnapshot, UndoneStep, UpgradeFailure, UpgradePlan, UpgradeRequestStatus,
    VersionChange, upgrade_condition, upgrade_intent,
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

/// GitRepositories of Flux.
pub const GIT_REPOSITORY: ResourceType = ResourceType::new(
    "source.toolkit.fluxcd.io",
    "v1",
    "GitRepository",
    "gitrepositories",
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
    summary: "Applications that Flux applies, their upgrades and rollbacks",
    lease: LEASE,
    needs_all_namespaces: None,
    kinds: &[MANAGED_APP, UPGRADE_REQUEST, ROLLBACK_REQUEST],
    permissions: permissions::PERMISSIONS,
    policies: policy::of_apps,
    reasons: reasons::REASONS,
};
