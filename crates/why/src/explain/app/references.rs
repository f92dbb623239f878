//! References of a ManagedApp, and the discovery of its objects: reasons for which the status is the evidence.

use api::apps::{HELM_RELEASE, KUSTOMIZATION};

use super::*;

/// Explains a reason that is about a reference or about the discovery.
pub(super) fn find(app: App<'_>) -> Option<Finding> {
    Some(match app.reason()? {
        Reason::FluxNotInstalled => not_installed(app),
        Reason::FluxObjectNotFound => not_found(app),
        Reason::FluxObjectUnreadable => unreadable(app),
        Reason::NamespaceNotWatched => not_watched(app),
        Reason::AppOverlaps => overlap(app),
        Reason::NotInInventory | Reason::HelmReleaseAmbiguous | Reason::NoWorkloadsFound => {
            inventory(app)
        }
        Reason::RemoteCluster => remote(app),
        Reason::ReleaseUnreadable
        | Reason::ReleaseChangedOutsideFlux
        | Reason::DiscoveryMismatch => release(app),
        _ => return None,
    })
}

/// Returns the first object of Flux that the message names.
fn named(app: App<'_>) -> ObjectRef {
    let helm = app
        .helm_release()
        .filter(|_| app.message().contains("HelmRelease '"));
    let is_kustomization = app.message().contains("Kustomization '");
    helm.filter(|_| !is_kustomization)
        .unwrap_or_else(|| app.kustomization())
}

fn not_installed(app: App<'_>) -> Finding {
    let object = named(app);
    let resource = match object.kind.as_str() {
        "HelmRelease" => HELM_RELEASE,
        _ => KUSTOMIZATION,
    };
    let crd = format!("{}.{}", resource.plural, resource.group);
    let crd_object = ObjectRef::cluster("CustomResourceDefinition", &crd);
    let (kind, name) = (&object.kind, &object.name);
    if app.has(&object).is_some() {
        return finding! { Waiting "Wait: the type is installed by now, and the operator finds it within 30 seconds.";
            Waiting crd_object, "ExistsNow", "is installed by now; it was missing when the operator reported {kind} '{name}'";
            seen app.said(); newer; then app.look_again(), operator::log(app.world);
        };
    }
    finding! { Blocked "Install Flux. The operator finds it within 30 seconds, without a restart.";
        Error crd_object, Reason::FluxNotInstalled, "is not installed, so nothing applies {kind} '{name}'"; seen app.said();
        shell "kubectl get crd {crd}" => "whether the type is installed by now"; then app.look_again();
    }
}

fn not_found(app: App<'_>) -> Finding {
    let object = named(app);
    let (kind, name) = (object.kind.clone(), object.name.clone());
    let within = object.namespace.clone().unwrap_or_default();
    if app.has(&object) == Some(true) {
        return finding! { Waiting "Wait: {kind} '{name}' exists by now, and the operator reports it within seconds.";
            Waiting object, "ExistsNow", "exists by now; it was missing when the operator reported it";
            seen app.said(); newer; then app.look_again(), operator::log(app.world);
        };
    }
    let advice = match kind.as_str() {
        "HelmRelease" => {
            "Find out what deleted it: Flux creates it again at its next reconciliation."
        }
        _ => {
            "Create it. If the name is wrong, create another ManagedApp: 'kustomizationRef' is immutable."
        }
    };
    finding! { Blocked (advice);
        Error object, Reason::FluxObjectNotFound, "does not exist, and the ManagedApp needs it"; seen app.not_found();
        then commands::list(&kind, &within, "those that exist"), app.look_again();
    }
}

fn unreadable(app: App<'_>) -> Finding {
    let object = named(app);
    finding! { Blocked "Compare the versions of Flux and of the operator. If the message is about permissions, compare the operator's permissions with those of its chart.";
        Error object.clone(), Reason::FluxObjectUnreadable, "exists, and the operator cannot read it"; seen app.said();
        then object.yaml("the object as it is stored"), operator::log(app.world);
    }
}

fn not_watched(app: App<'_>) -> Finding {
    let namespace = inside(app.message(), "in namespace '", "'").unwrap_or("?");
    let config = operator::config(app.world, "the operator's configuration: 'watchNamespaces'");
    finding! { Blocked "Ask an administrator of the operator to add namespace '{namespace}' to the chart's value 'watchNamespaces'.";
        Error ObjectRef::cluster("Namespace", namespace), Reason::NamespaceNotWatched, "has objects of the application, and the operator does not watch it";
        seen app.said(); then config, app.look_again();
    }
}

fn overlap(app: App<'_>) -> Finding {
    let (within, name) = messages::older_app(app.message()).unwrap_or(("?", "?"));
    let older = ObjectRef::namespaced("ManagedApp", within, name);
    finding! { Blocked "Delete one of the two ManagedApps, or separate the applications. Only the older one, '{within}/{name}', is reported.";
        Error older.clone(), Reason::AppOverlaps, "is older, and has an object of this application, too"; seen app.said();
        then older.describe("its workloads and volumes"), app.object().delete("only if the other one is the right one");
    }
}

/// Explains an inventory without the needed object.
fn inventory(app: App<'_>) -> Finding {
    let object = app.kustomization();
    let reason = app.main_reason();
    let (sentence, advice) = match app.reason() {
        Some(Reason::NotInInventory) => (
            "does not apply the HelmRelease that 'helmReleaseRef' names",
            "Correct 'helmReleaseRef', or let the Kustomization apply the HelmRelease.",
        ),
        Some(Reason::HelmReleaseAmbiguous) => (
            "applies several HelmReleases, and 'helmReleaseRef' names none",
            "Set 'helmReleaseRef' to the HelmRelease of this application.",
        ),
        _ => (
            "applied no Deployment, StatefulSet or DaemonSet",
            "Check that 'kustomizationRef' names the Kustomization of the application, and not its parent.",
        ),
    };
    let (name, within) = (
        &object.name,
        object.namespace.as_deref().unwrap_or_default(),
    );
    finding! { Blocked (advice);
        Error object.clone(), reason, (sentence); seen app.said();
        shell "kubectl get kustomization {name} -n {within} -o jsonpath='{{range .status.inventory.entries[*]}}{{.id}}{{\"\\n\"}}{{end}}'" => "the objects that it applied";
        then app.edit("correct the reference");
    }
}

fn remote(app: App<'_>) -> Finding {
    let object = named(app);
    finding! { Blocked "Create the ManagedApp in the cluster in which the application runs, and delete this one.";
        Error object.clone(), Reason::RemoteCluster, "applies its objects to another cluster ('spec.kubeConfig')"; seen app.said();
        then object.yaml("'spec.kubeConfig' names the cluster"), app.object().delete("if it is of no use here");
    }
}

/// Explains a release that is not the one that Flux knows.
fn release(app: App<'_>) -> Finding {
    let object = app.helm_release().unwrap_or_else(|| app.kustomization());
    let within = object.namespace.clone().unwrap_or_default();
    let release = app.view.status.release.as_ref();
    let release = release.map_or("?", |release| release.name.as_str());
    let (sentence, advice) = match app.reason() {
        Some(Reason::ReleaseUnreadable) => (
            "has a release that the operator cannot read",
            "The first lines have the error. Compare the operator's permissions with those of its chart, and check whether the Secret of the release exists.",
        ),
        Some(Reason::ReleaseChangedOutsideFlux) => (
            "has a release that someone changed by hand",
            "Compare the history of Helm with the HelmRelease, then let Flux reconcile it.",
        ),
        _ if app.message().contains(" by its inventory, but not by ") => (
            "has an inventory with an object that Flux did not apply",
            "Let Flux reconcile it. If Flux does not change the object, remove it from the application.",
        ),
        _ => (
            "has an inventory that differs from the release",
            "Let Flux reconcile it. If the difference stays, report it with this output.",
        ),
    };
    finding! { Blocked (advice);
        Error object.clone(), app.main_reason(), (sentence); seen app.said();
        shell "kubectl get secrets -n {within} -l owner=helm,name={release}" => "the releases that Helm stored, without their content";
        then object.describe("its conditions and its history");
    }
}
