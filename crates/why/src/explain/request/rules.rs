//! The rules about requests: for each reason, the object that blocks, a sentence about it, and the next command.

use super::*;

/// The object that a reason is about if the message of the status names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// The ManagedApp.
    App,
    /// The live state of the application, down to the Pod. Without a problem there, the HelmRelease.
    Live,
    /// The UpgradeRequest that a rollback references.
    Upgrade,
    /// The Kustomization of the plan.
    Kustomization,
    /// The HelmRelease of the plan.
    HelmRelease,
    /// The GitRepository of the plan.
    Source,
    /// The Job of `step commit`, down to its Pod.
    Step,
    /// The first claim of the plan.
    Claim,
    /// The first snapshot of the request.
    Snapshot,
    /// The first workload of the plan.
    Workload,
}

/// The command that comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait, and repeat `orc why`.
    Wait,
    /// Approve the plan.
    Approve,
    /// Submit another request.
    Again,
    /// Return to the state before the upgrade.
    RollBack,
    /// Read the end of the branch.
    Branch,
    /// Release the request without waiting.
    Force,
}

/// A rule about one reason.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) reason: Reason,
    pub(crate) about: About,
    pub(super) sentence: &'static str,
    pub(super) next: Next,
}

/// Declares the table of rules.
macro_rules! rules {
    ($($reason:ident: $about:ident, $sentence:literal, $next:ident;)+) => {
        /// All rules. A reason of a request without one has no chain, and a test fails for it.
        pub(crate) const RULES: &[Rule] = &[$(Rule {
            reason: Reason::$reason,
            about: About::$about,
            sentence: $sentence,
            next: Next::$next,
        },)+];
    };
}

rules! {
    // In progress.
    OperationActive: App, "is locked or changed by another request, which this one waits for", Wait;
    Planning: App, "is checked, and its state is frozen in the plan", Wait;
    AwaitingApproval: App, "requires the decision of a user about the plan in 'status.plan'", Approve;
    Suspending: Kustomization, "is suspended; its controller has to confirm it", Wait;
    ScalingDown: Workload, "is stopped; its Pods have to end, and its volumes have to be free", Wait;
    Snapshotting: Snapshot, "is not ready yet", Wait;
    Committing: Step, "pushes the commit with the new version", Wait;
    Reverting: Step, "pushes the commit with the version before the upgrade", Wait;
    Applying: Live, "is reconciled to the version in Git", Wait;
    CheckingHealth: Live, "has to be healthy for long enough", Wait;
    Restoring: Claim, "is restored from its snapshot to a new volume", Wait;
    Swapping: Claim, "gets its restored volume", Wait;
    Undoing: Kustomization, "is returned to the state before the request", Wait;
    LockRecovered: Kustomization, "had the lock of a request that was removed by hand", Wait;
    Comparing: Live, "applies a change, so the plan is not made yet", Wait;

    // Rejected before any change: the application and Flux.
    AppNotFound: App, "does not exist, or is being deleted", Again;
    AppOverlaps: App, "shares an object with an older ManagedApp", Again;
    FluxNotInstalled: Kustomization, "has a type that the API server does not serve", Again;
    FluxObjectNotFound: Kustomization, "does not exist", Again;
    FluxObjectUnreadable: Kustomization, "cannot be read by the operator", Again;
    NotInInventory: HelmRelease, "is not in the inventory of the Kustomization", Again;
    HelmReleaseAmbiguous: Kustomization, "has several HelmReleases in its inventory", Again;
    NamespaceNotWatched: Kustomization, "is in a namespace that the operator does not watch", Again;
    NoWorkloadsFound: Kustomization, "applied no workload with replicas", Again;
    RemoteCluster: Kustomization, "applies to another cluster ('spec.kubeConfig')", Again;
    AlreadySuspended: Kustomization, "is suspended already, so Flux would not apply the new version", Again;
    SuspendOwnedByParent: Kustomization, "has a 'spec.suspend' that another applier sets again and again", Again;
    ReconcileDisabled: HelmRelease, "has an annotation that keeps Flux from changing it", Again;
    SourceNotSupported: Kustomization, "has no GitRepository as its source, or no HelmRelease with a chart version", Again;
    SourcePinned: Source, "does not follow a branch", Again;
    SignatureRequired: Source, "verifies signatures, and the commits of the operator have none", Again;

    // Rejected before any change: the version and the release.
    NoVersionPath: App, "has no usable 'spec.git'", Again;
    FileNotFound: Kustomization, "has no file below its path with the HelmRelease", Again;
    FileAmbiguous: Kustomization, "has several files or documents with the HelmRelease", Again;
    FileEncrypted: Source, "has the version in a file that is encrypted with SOPS", Again;
    FileNotEditable: Source, "has the version in a file that cannot be edited", Again;
    FieldNotFound: Source, "has no field with the version in its file", Again;
    FieldNotEditable: Source, "has the version in a field whose edit could have another effect", Again;
    VersionIsRange: HelmRelease, "requests a range of versions", Again;
    VersionIsVariable: HelmRelease, "gets its version from a variable", Again;
    GitAheadOfCluster: Kustomization, "has not applied the version that Git has", Again;
    NothingToChange: HelmRelease, "requests the target version already", Again;
    ReleaseUnreadable: HelmRelease, "has a release that the operator cannot read", Again;
    ReleaseChangedOutsideFlux: HelmRelease, "has a newer release than Flux reports", Again;
    DiscoveryMismatch: HelmRelease, "has a release and an inventory with different objects", Again;

    // Rejected before any change: volumes, workloads and requests.
    NoVolumesFound: App, "has no PersistentVolumeClaim", Again;
    VolumeNotBound: Claim, "is not bound to a volume", Again;
    VolumeNotSnapshottable: Claim, "has a volume that belongs to no CSI driver", Again;
    SnapshotsNotInstalled: App, "needs VolumeSnapshots, which the API server does not serve", Again;
    SnapshotClassMissing: Claim, "has a CSI driver without a VolumeSnapshotClass", Again;
    SnapshotClassAmbiguous: Claim, "has a CSI driver with several default VolumeSnapshotClasses", Again;
    WorkloadNotScalable: Workload, "mounts a volume of the application, and cannot be stopped", Again;
    PVCsDeletedOnScaleDown: Workload, "would delete its claims when it is stopped", Again;
    PlanTooLarge: App, "has more workloads or volumes than a plan can hold", Again;
    PlanTimeout: App, "was not known well enough in the time for the plan", Again;
    ApprovalDenied: App, "requires a decision, and a user denied the plan", Again;
    UpgradeNotFound: Upgrade, "does not exist", Again;
    UpgradeNotFinished: Upgrade, "has not ended", Again;
    RollbackNotAvailable: Upgrade, "pushed nothing, or has lost a snapshot", Again;

    // Undone.
    PlanOutdated: Kustomization, "was changed, deleted or recreated during the request", Again;
    SuspendNotObserved: Kustomization, "has a controller that did not confirm the suspension", Again;
    SuspendReverted: Kustomization, "was resumed, or lost its lock, during the request", Again;
    LockedByOther: Kustomization, "is locked by another request", Again;
    PodsNotTerminated: Workload, "has a Pod that did not end, or a volume that was not detached", Again;
    WorkloadScaledUp: Workload, "was scaled up by someone during the request", Again;
    VolumeReplaced: Claim, "was replaced during the request", Again;
    SnapshotNoProgress: Snapshot, "made no progress for too long", Again;
    SnapshotCapExceeded: Snapshot, "was not ready in the time for all snapshots", Again;
    RestoreNoProgress: Claim, "was not restored: its new volume made no progress for too long", Again;
    RestoreCapExceeded: Claim, "was not restored in the time for all volumes", Again;
    RestoredVolumeEmpty: Claim, "has a snapshot whose restored volume is empty", Again;
    VersionChangedInGit: Source, "has another version on its branch than the plan expects", Branch;
    CommitFailed: Step, "could not change the version in Git", Again;
    PushRejected: Source, "has a server that rejected the push", Again;
    BranchMoved: Source, "has a branch that others moved during each attempt", Again;
    RepositoryUnreachable: Source, "has a server that does not respond", Again;
    RepositoryNotFound: Source, "has a repository that the server does not have, or does not show", Again;
    AuthenticationFailed: Source, "has a server that rejected the credentials of the ManagedApp", Again;
    CredentialsInvalid: App, "references a Secret whose credentials have another form", Again;
    CertificateNotTrusted: Source, "has a server whose certificate is not trusted", Again;
    HostKeyUnknown: Source, "has a server whose host key is not the known one", Again;
    AddressNotAllowed: Source, "has an address that the operator may not connect to", Again;
    BranchNotFound: Source, "does not have the branch", Again;
    RepositoryTooLarge: Source, "is larger than the operator allows", Again;
    PathNotFound: Kustomization, "has a path that the repository does not have", Again;
    CloneFailed: Step, "could not read the repository", Again;
    PublishFailed: Step, "could not push the commit", Again;

    // After the commit.
    PushOutcomeUnknown: Source, "may have the commit on its branch", Branch;
    SourceNotUpdated: Source, "has not fetched the commit", RollBack;
    CommitHadNoEffect: Kustomization, "applied the commit, and the version stays the same", RollBack;
    HelmUpgradeFailed: Live, "could not be upgraded", RollBack;
    HelmRemediated: HelmRelease, "was rolled back by Flux, and the old version may run on new data", RollBack;
    ReconcileTimeout: Live, "has not applied the version in time", RollBack;
    Unhealthy: Live, "is not healthy", RollBack;

    // Stalled, or removed.
    UndoBlocked: Kustomization, "is not as before yet: the undo is blocked", Force;
    VolumeSwapBlocked: Claim, "does not get its restored volume: the swap is blocked", Wait;
    PVCNameTaken: Claim, "was created by someone else during the swap", Wait;
    DeletionBlocked: Kustomization, "keeps the request from being deleted", Force;
    ForceDeleted: Kustomization, "was left as it was when the request was removed", Again;
    Deleting: Kustomization, "is returned to the state before the request, which is being deleted", Wait;
}

/// Returns the rule about a reason.
pub(crate) fn of(reason: Reason) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.reason == reason)
}
