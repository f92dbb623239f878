//! The reasons of the apps operator, beside the shared ones of [`crate::reason`].

use crate::reason::reasons;

reasons! {
    // ManagedApps: Flux and the references.
    FluxNotInstalled: "The API server does not serve Kustomizations or HelmReleases of Flux, so the state of the application is not known.",
        "Install Flux. The operator finds it within 30 seconds, without a restart.";
    FluxObjectNotFound: "A Kustomization or HelmRelease of the application does not exist.",
        "Create the object that the message names, or correct the reference. `kustomizationRef` is immutable: create another ManagedApp.";
    FluxObjectUnreadable: "A Kustomization or HelmRelease exists, but the operator cannot read it: it has an unexpected form, or its watch does not work.",
        "The message has the error. Compare the installed version of Flux with the supported one, and the permissions of the operator with those of its chart.";
    NotInInventory: "The HelmRelease that `helmReleaseRef` names is not in the inventory of the Kustomization.",
        "Correct `helmReleaseRef`, or let the Kustomization apply the HelmRelease.";
    HelmReleaseAmbiguous: "The inventory of the Kustomization has several HelmReleases, and `helmReleaseRef` is not set.",
        "Set `helmReleaseRef` to the HelmRelease of the application.";
    RemoteCluster: "The Kustomization or the HelmRelease applies its objects to another cluster (`spec.kubeConfig`). The operator does not see them.",
        "Create the ManagedApp in the cluster in which the application runs.";
    NamespaceNotWatched: "An object of the application is in a namespace that the operator does not watch.",
        "Add the namespace to the value `watchNamespaces` of the chart.";
    AppOverlaps: "An older ManagedApp has the same Kustomization, HelmRelease, workload or PersistentVolumeClaim. Only the older one is reported.",
        "Delete one of the two ManagedApps, or separate the applications.";
    AlreadySuspended: "The Kustomization or the HelmRelease is suspended, so Flux does not apply the application.",
        "Find out why it was suspended. Set its `spec.suspend` to false when Flux shall continue.";

    // ManagedApps: discovery of the release.
    ReleaseUnreadable: "The release Secret of Helm cannot be read or decoded, so the objects of the application are not known.",
        "The message has the error. Check the permissions of the operator, and whether the Secret of the newest release exists.";
    ReleaseChangedOutsideFlux: "Helm stored a newer release than the HelmRelease reports: someone changed the release by hand.",
        "Compare `helm history` with the HelmRelease, and let Flux reconcile the HelmRelease.";
    DiscoveryMismatch: "The release Secret of Helm and the inventory of the HelmRelease list different objects, or an object of another namespace lacks the labels that Flux sets.",
        "Let Flux reconcile the Kustomization and the HelmRelease (annotation `reconcile.fluxcd.io/requestedAt`). If the difference stays, report it with the message.";
    NoWorkloadsFound: "Flux applied no Deployment, StatefulSet or DaemonSet, so nothing shows that the application works.",
        "Check that the ManagedApp references the Kustomization of the application, and not its parent.";

    // ManagedApps: health.
    #[normal] Comparing: "Flux applies a change, so the state of the application is not final.",
        "Wait. The message names the object of Flux and its own message.";
    Unhealthy: "Flux reports a failure, or a workload of the application is not ready.",
        "The message names the object and the cause. `orc why` follows it to the deepest blocker.";

    // UpgradeRequests: normal progress.
    #[normal] OperationActive: "A request of the application is active, or has locked one of its Flux objects.",
        "Wait. The message names the request.";
    #[normal] Planning: "The operator checks the request and freezes the state of the application.",
        "Wait. The message names the blocker.";
    #[normal] AwaitingApproval: "The ManagedApp requires the decision of a user about the plan of an upgrade.",
        "Read `status.plan`. Then set `spec.approval` of the UpgradeRequest, with your user name in `by`.";
    #[normal] Suspending: "The operator suspends the Flux objects of the application and waits for their controllers.",
        "Wait. The message names the object of Flux.";
    #[normal] ScalingDown: "The operator stops the workloads that mount a volume of the application.",
        "Wait. The message names the workload, the Pod or the volume.";
    #[normal] Snapshotting: "The operator takes snapshots of the volumes of the application.",
        "Wait. The message names the snapshot.";
    #[normal] Committing: "A Job pushes the commit with the new version.",
        "Wait. The message names the Job and its Pod.";
    #[normal] Applying: "Flux is resumed and applies the new version.",
        "Wait. The message names the object of Flux and its own message.";
    #[normal] CheckingHealth: "The new version is applied. The operator waits until the application is healthy for long enough.",
        "Wait. The message names the workload.";
    #[normal] Undoing: "The operator returns the application to the state before the request.",
        "Wait. The message names the object, and the status has the reason of the failure.";
    #[normal] LockRecovered: "An earlier request ended without an undo, because its finalizer was removed. The next request, or the ManagedApp, restores the replica counts from its lock and resumes Flux.",
        "Nothing. Find out who removed the finalizer of the request that the message names.";
    #[normal] FluxSuspended: "Flux has confirmed that it is suspended, and the request holds the locks.",
        "Nothing.";
    #[normal] FluxResumed: "The operator resumed Flux and released the locks of the request.",
        "Nothing.";
    #[normal] WorkloadsStopped: "All workloads that mount a volume of the application are stopped, and the volumes are free.",
        "Nothing.";
    #[normal] WorkloadsRestored: "The replica counts are as before the request.",
        "Nothing.";
    #[normal] SnapshotsTaken: "Each volume of the application has a snapshot that is ready.",
        "Nothing.";
    #[normal] CommitPushed: "The commit with the new version is on the branch.",
        "Nothing.";
    #[normal] VersionApplied: "Flux has applied the new version, and its release is deployed.",
        "Nothing.";
    #[normal] HealthVerified: "The application was healthy with the new version for long enough.",
        "Nothing.";

    // UpgradeRequests: rejected before any change.
    AppNotFound: "The ManagedApp that `managedAppRef` names does not exist.",
        "Create the ManagedApp, or submit an UpgradeRequest with another name in `managedAppRef`.";
    NoVersionPath: "The ManagedApp has no `git`, or no item in `git.images` for an image, so the operator does not know how to change the version in Git.",
        "Set `git` of the ManagedApp, with a Secret that may push, then submit another UpgradeRequest.";
    SnapshotsNotInstalled: "The API server does not serve VolumeSnapshots, so the volumes of the application cannot be protected.",
        "Install the CRDs and the controller of external-snapshotter, then submit another UpgradeRequest.";
    SuspendOwnedByParent: "Another applier owns `spec.suspend` of a Flux object, and would resume it during the upgrade.",
        "Remove `spec.suspend` from the manifest of the object that the message names, then submit another UpgradeRequest.";
    ReconcileDisabled: "An annotation keeps Flux from applying changes to the HelmRelease.",
        "Remove the annotation that the message names, then submit another UpgradeRequest.";
    VersionIsRange: "The HelmRelease requests a range of versions, so no change of one version selects the target.",
        "Request one version in Git, then submit another UpgradeRequest.";
    VersionIsVariable: "The version in Git is a variable that Flux replaces, so an edit of the file would not change it.",
        "Write the version into the manifest, or change the variable by hand. Then submit another UpgradeRequest.";
    GitAheadOfCluster: "The version in Git is another one than Flux has applied.",
        "Let Flux apply the branch, or correct the version in Git. Then submit another UpgradeRequest.";
    FileNotFound: "No file below the path of the Kustomization contains the document with the version.",
        "Check the file in `git` of the ManagedApp, and the path of the Kustomization.";
    FileAmbiguous: "Several files, or several documents of one file, contain the document with the version.",
        "Set the file in `git` of the ManagedApp to the one that Flux applies.";
    FileEncrypted: "The file with the version is encrypted with SOPS.",
        "Move the version into a file that is not encrypted.";
    FileNotEditable: "The file with the version is a link, no YAML, a template, or too large.",
        "The message names the file and the cause. Write the version into a plain YAML file.";
    FieldNotFound: "The document in Git does not have the field with the version.",
        "Check the field path in `git` of the ManagedApp, or write the version into the manifest.";
    FieldNotEditable: "An edit of the field could have an effect elsewhere, for example through an anchor.",
        "The message names the field. Write the version as one plain value.";
    SourcePinned: "The GitRepository follows a tag, a commit or a range of versions, so a commit on a branch changes nothing.",
        "Let the GitRepository follow a branch, then submit another UpgradeRequest.";
    SignatureRequired: "The GitRepository verifies signatures (`spec.verify`), and the operator's commits are not signed.",
        "Upgrade the application in Git without the operator.";
    NothingToChange: "The application already requests the target version.",
        "Nothing, or submit an UpgradeRequest with another version.";
    SourceNotSupported: "The application has no HelmRelease with a chart version that an upgrade could change.",
        "Upgrade its images with `git.images` of the ManagedApp, or upgrade it in Git without the operator.";
    NoVolumesFound: "No PersistentVolumeClaim of the application was found, so an upgrade would protect nothing.",
        "Check `volumes` in the status of the ManagedApp, and that it references the Kustomization of the application.";
    VolumeNotBound: "A PersistentVolumeClaim of the application is not bound to a volume.",
        "Find out why the claim that the message names is not bound, then submit another UpgradeRequest.";
    VolumeNotSnapshottable: "A volume of the application does not belong to a CSI driver, so it cannot have a snapshot.",
        "Move the data of the claim that the message names to a volume of a CSI driver.";
    SnapshotClassMissing: "No VolumeSnapshotClass exists for the CSI driver of a volume.",
        "Create a VolumeSnapshotClass for the driver that the message names.";
    SnapshotClassAmbiguous: "Several VolumeSnapshotClasses are the default of the CSI driver of a volume.",
        "Make one of the classes that the message names the only default.";
    WorkloadNotScalable: "A Pod mounts a volume of the application, and the operator cannot stop the owner of the Pod.",
        "Stop the owner that the message names, or let it mount another volume.";
    PVCsDeletedOnScaleDown: "A StatefulSet deletes its PersistentVolumeClaims when it is scaled down.",
        "Set `persistentVolumeClaimRetentionPolicy.whenScaled` to `Retain`, then submit another UpgradeRequest.";
    PlanTooLarge: "The application has more workloads or volumes than one plan can hold.",
        "Divide the application into several ManagedApps.";
    PlanTimeout: "The plan could not be made in time.",
        "The message names the blocker. Fix it, then submit another UpgradeRequest.";

    ApprovalDenied: "A user denied the plan of the upgrade.",
        "Ask the user that the message names. Then submit another UpgradeRequest.";

    // UpgradeRequests: failed, and undone.
    PlanOutdated: "An object of the plan was changed, deleted or recreated before the request could lock or stop it.",
        "Let Flux reconcile the application, then submit another UpgradeRequest.";
    SuspendNotObserved: "A controller of Flux did not confirm in time that it is suspended.",
        "The message names the object. Check the controller of Flux, and whether it is still busy with an action of Helm.";
    SuspendReverted: "Someone resumed a Flux object or removed its lock during the request.",
        "Find out who did it; the message names the object. Then submit another UpgradeRequest.";
    LockedByOther: "Another request has locked a Flux object of the application.",
        "Wait until the request that the message names has ended, then submit another UpgradeRequest.";
    PodsNotTerminated: "A Pod did not end in time, or a volume was not detached in time.",
        "The message names the Pod, its node and its finalizers, or the volume. Fix it, then submit another UpgradeRequest.";
    WorkloadScaledUp: "Someone scaled up a workload that the request had stopped.",
        "The message names the workload. Pause the autoscaler (KEDA) or the person that did it, then submit another UpgradeRequest.";
    VolumeReplaced: "A PersistentVolumeClaim or its volume was replaced during the request, so its snapshot is about other data.",
        "Find out who replaced the claim that the message names, then submit another UpgradeRequest.";
    SnapshotNoProgress: "A snapshot made no progress for too long.",
        "The message names the snapshot and the last error of its driver.";
    SnapshotCapExceeded: "The snapshots were not ready in the time for all of them together.",
        "The message names the snapshot. Set a higher limit, or find out why the storage system is slow.";
    VersionChangedInGit: "Someone changed the version in Git after the plan.",
        "Compare the branch with the plan in the status, then submit another UpgradeRequest.";
    CommitFailed: "The step that changes the version in Git failed.",
        "The message has the error of the step or of its Pod.";

    // UpgradeRequests: failed after the commit. Flux is resumed, and the snapshots are kept.
    PushOutcomeUnknown: "It is not known whether the commit is on the branch.",
        "Look at the branch with the command in the message. Flux is resumed and applies what is there.";
    SourceNotUpdated: "The GitRepository of Flux did not fetch the commit in time.",
        "Check the GitRepository that the message names. Flux is resumed, and applies the commit when it is fetched.";
    CommitHadNoEffect: "Flux applied the commit, and the HelmRelease still requests the version from before.",
        "Check that the edited file is the one that the Kustomization applies, and that no patch replaces the version.";
    HelmUpgradeFailed: "Flux could not upgrade the release of Helm.",
        "The message has the error of Helm. Fix the chart or its values, or return to the version before.";
    HelmRemediated: "Flux rolled the release of Helm back. The old chart may run on data that the new version has changed.",
        "Check the application. A restore of the snapshots in the status loses the data that was written after them.";
    ReconcileTimeout: "Flux did not apply the new version in time.",
        "The message names the object of Flux and its own message.";

    // UpgradeRequests: stalled. Without `force-delete`, the operator continues.
    UndoBlocked: "The undo takes longer than it should. Flux objects may still be locked, and workloads may still be stopped.",
        "The message names the object and the error. Fix it; the operator continues by itself.";
    ForceDeleted: "The annotation `orchestrator.io/force-delete` removed the finalizer of the request before the undo was complete.",
        "Resume the Flux objects and scale up the workloads that the message names. The next UpgradeRequest of the application does it, too.";

    // RollbackRequests: normal progress.
    #[normal] Restoring: "The operator provisions new volumes from the snapshots. Nothing is deleted.",
        "Wait. The message names the claim or the Pod.";
    #[normal] Reverting: "A Job pushes the commit with the version before the upgrade.",
        "Wait. The message names the Job and its Pod.";
    #[normal] Swapping: "The operator gives the claims of the application the restored volumes.",
        "Wait. The message names the claim or the volume.";
    #[normal] VolumesRestored: "Each volume of the application has a restored copy.",
        "Nothing.";
    #[normal] VolumesSwapped: "Each claim of the application has its restored volume. The replaced volumes are retained.",
        "Nothing.";

    // RollbackRequests: rejected before any change.
    UpgradeNotFound: "The UpgradeRequest that `upgradeRequestRef` names does not exist.",
        "Submit another RollbackRequest with the name of an existing UpgradeRequest.";
    UpgradeNotFinished: "The UpgradeRequest has not ended.",
        "Wait until it has ended, or delete it, then submit another RollbackRequest.";
    RollbackNotAvailable: "The UpgradeRequest pushed nothing, or one of its snapshots does not exist or is not ready.",
        "The message names the snapshot. Restore the data from a backup.";

    // RollbackRequests: failed, and undone.
    RestoreNoProgress: "The restore of a volume made no progress for too long.",
        "The message names the claim and its Pod. Nothing was deleted; fix it, then submit another RollbackRequest.";
    RestoreCapExceeded: "The volumes were not restored in the time for all of them together.",
        "The message names the claim. Find out why the storage system is slow, then submit another RollbackRequest.";
    RestoredVolumeEmpty: "A restored volume has no content, or was not restored from its snapshot.",
        "Check the snapshot that the message names, and whether the StorageClass supports snapshots. Nothing was deleted.";

    // RollbackRequests: stalled. The operator continues.
    VolumeSwapBlocked: "The swap of the volumes takes longer than it should. Flux stays suspended, and the workloads stay stopped.",
        "The message names the claim and its finalizers. Fix it; the operator continues by itself.";
    PVCNameTaken: "Someone else created a PersistentVolumeClaim with the name of a claim that the rollback replaces.",
        "Delete the claim that the message names after you have checked its data. The operator continues by itself.";
}
