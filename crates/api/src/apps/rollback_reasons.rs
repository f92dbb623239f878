//! The reasons of RollbackRequests, beside those of UpgradeRequests.

use crate::reason::reasons;

reasons! {
    // Normal progress.
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

    // Rejected before any change.
    UpgradeNotFound: "The UpgradeRequest that `upgradeRequestRef` names does not exist.",
        "Submit another RollbackRequest with the name of an existing UpgradeRequest.";
    UpgradeNotFinished: "The UpgradeRequest has not ended.",
        "Wait until it has ended, or delete it, then submit another RollbackRequest.";
    RollbackNotAvailable: "The UpgradeRequest pushed nothing, or one of its snapshots does not exist or is not ready.",
        "The message names the snapshot. Restore the data from a backup.";

    // Failed, and undone.
    RestoreNoProgress: "The restore of a volume made no progress for too long.",
        "The message names the claim and its Pod. Nothing was deleted; fix it, then submit another RollbackRequest.";
    RestoreCapExceeded: "The volumes were not restored in the time for all of them together.",
        "The message names the claim. Find out why the storage system is slow, then submit another RollbackRequest.";
    RestoredVolumeEmpty: "A restored volume has no content, or was not restored from its snapshot.",
        "Check the snapshot that the message names, and whether the StorageClass supports snapshots. Nothing was deleted.";

    // Stalled. The operator continues.
    VolumeSwapBlocked: "The swap of the volumes takes longer than it should. Flux stays suspended, and the workloads stay stopped.",
        "The message names the claim and its finalizers. Fix it; the operator continues by itself.";
    PVCNameTaken: "Someone else created a PersistentVolumeClaim with the name of a claim that the rollback replaces.",
        "Delete the claim that the message names after you have checked its data. The operator continues by itself.";
}
