//! The reasons of the apps operator, beside the shared ones of [`crate::reason`].

use crate::reason::reasons;

reasons! {
    // Flux and the references of a ManagedApp.
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

    // Discovery of the release.
    ReleaseUnreadable: "The release Secret of Helm cannot be read or decoded, so the objects of the application are not known.",
        "The message has the error. Check the permissions of the operator, and whether the Secret of the newest release exists.";
    ReleaseChangedOutsideFlux: "Helm stored a newer release than the HelmRelease reports: someone changed the release by hand.",
        "Compare `helm history` with the HelmRelease, and let Flux reconcile the HelmRelease.";
    DiscoveryMismatch: "The release Secret of Helm and the inventory of the HelmRelease list different objects, or an object of another namespace lacks the labels that Flux sets.",
        "Let Flux reconcile the Kustomization and the HelmRelease (annotation `reconcile.fluxcd.io/requestedAt`). If the difference stays, report it with the message.";
    NoWorkloadsFound: "Flux applied no Deployment, StatefulSet or DaemonSet, so nothing shows that the application works.",
        "Check that the ManagedApp references the Kustomization of the application, and not its parent.";

    // Health.
    #[normal] Comparing: "Flux applies a change, so the state of the application is not final.",
        "Wait. The message names the object of Flux and its own message.";
    Unhealthy: "Flux reports a failure, or a workload of the application is not ready.",
        "The message names the object and the cause. `orc why` follows it to the deepest blocker.";
}
