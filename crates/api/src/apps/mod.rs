//! The kind of the apps operator: a [`ManagedApp`] is an application that Flux applies.

#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod managed_app;
mod permissions;
mod reasons;
mod rollback_permissions;
mod rollback_phase;
mod rollback_reasons;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod rollback_request;
mod rollback_status;
mod status;
mod upgrade_git;
mod upgrade_permissions;
mod upgrade_phase;
mod upgrade_reasons;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod upgrade_request;
mod upgrade_status;

use crate::{Reason, decide::ResourceType, kinds::OperatorRow, policy};

pub use managed_app::{FluxRef, MANAGED_APP, ManagedApp, ManagedAppSpec};
pub use rollback_permissions::ROLLBACK_PERMISSIONS;
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
pub use upgrade_git::{
    AppGit, ChartField, CommitAuthor, MAX_EVIDENCE_IMAGES, MAX_PLANNED_EDITS, PlannedCommit,
    PlannedDocument, PlannedEdit, PlannedSource, PushAttempt, PushFailure, PushOutcome,
    PushedCommit, ReconciledVersion, UpgradeEvidence, VersionsBefore,
};
pub use upgrade_permissions::UPGRADE_PERMISSIONS;
pub use upgrade_phase::{PLAN_TIME, PUSH_TIME, UpgradePhase};
pub use upgrade_request::{TargetVersion, UPGRADE_REQUEST, UpgradeRequest, UpgradeRequestSpec};
pub use upgrade_status::{
    Downtime, FluxKind, MAX_PLANNED_VOLUMES, MAX_PLANNED_WORKLOADS, PhaseTimeouts,
    PlannedFluxObject, PlannedName, PlannedVolume, PlannedWorkload, ScalableKind, ScaleDownPolicy,
    TakenSnapshot, UndoneStep, UpgradeFailure, UpgradePlan, UpgradeRequestStatus, VersionChange,
    upgrade_condition, upgrade_intent,
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
    summary: "Applications that Flux applies",
    lease: LEASE,
    needs_all_namespaces: None,
    kinds: &[MANAGED_APP],
    permissions: permissions::PERMISSIONS,
    policies: policy::of_apps,
    reasons: reasons::REASONS,
};

/// Returns the reason of this name of an UpgradeRequest or a RollbackRequest, or `None` if this release does not know it.
/// Their reasons are not in the table of kinds, because the kinds are not.
#[must_use]
pub fn upgrade_reason(name: &str) -> Option<Reason> {
    let own = upgrade_reasons::REASONS.iter();
    let mut own = own.chain(rollback_reasons::REASONS).copied();
    own.find(|known| known.name() == name)
        .or_else(|| Reason::from_name(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_of_an_upgrade_explains_itself_and_is_found() {
        let mut names: BTreeSet<&str> = Reason::all().map(Reason::name).collect();
        let own = upgrade_reasons::REASONS.iter();
        for reason in own.chain(rollback_reasons::REASONS) {
            assert!(reason.meaning().ends_with('.'), "{reason}");
            assert!(reason.advice().ends_with('.'), "{reason}");
            assert_eq!(upgrade_reason(reason.name()), Some(*reason));
            assert!(names.insert(reason.name()), "{reason} is declared twice");
        }
        assert_eq!(upgrade_reason("Unhealthy"), Some(Reason::Unhealthy));
        assert_eq!(upgrade_reason("Other"), None);
    }
}
