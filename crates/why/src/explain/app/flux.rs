//! Objects of Flux that are suspended, that fail, or that apply a change.

use super::*;

/// Namespace in which Flux installs its controllers by default.
const FLUX_NAMESPACE: &str = "flux-system";

/// Explains a suspended object of Flux. Its condition `Ready` shows an earlier state.
pub(super) fn suspended(app: App<'_>) -> Option<Finding> {
    let flux = app.flux().find(|flux| flux.suspend)?;
    let object = flux.object();
    let (kind, name) = (object.kind.to_lowercase(), &object.name);
    let within = object.namespace.as_deref().unwrap_or_default();
    Some(finding! {
        Blocked "Find out why it was suspended. Set its 'spec.suspend' to false when Flux shall continue: Flux then applies everything that changed in between.";
        Error object.clone(), Reason::AlreadySuspended, "is suspended by 'spec.suspend', so Flux does not apply the application";
        since flux.changed.as_ref(); seen "spec.suspend" => "true", flux.changed.as_ref();
        then object.who("'metadata.managedFields' names who suspended it");
        shell "kubectl patch {kind} {name} -n {within} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'" => "let Flux continue";
    })
}

/// Explains an object of Flux that fails, or that applies a change.
pub(super) fn find(app: App<'_>) -> Option<Finding> {
    failing(app).or_else(|| changing(app))
}

/// Returns the command that prints the lines about an object in the log of its controller.
fn logs(flux: &FluxView) -> Command {
    let controller = match flux.kind.as_str() {
        "HelmRelease" => "helm-controller",
        _ => "kustomize-controller",
    };
    let name = &flux.meta.name;
    shell! {
        "kubectl logs -n {FLUX_NAMESPACE} deployment/{controller} --since=15m | grep '\"{name}\"'" => "the log of its controller (Flux may be in another namespace)"
    }
}

fn failing(app: App<'_>) -> Option<Finding> {
    let is_false = |flux: &&FluxView| {
        let ready = flux.ready.as_ref();
        ready.is_some_and(|ready| ready.status == "False")
    };
    let flux = app.flux().find(is_false)?;
    let ready = flux.ready.as_ref()?;
    let object = flux.object();
    Some(finding! {
        Blocked "The words are those of Flux. Correct the source or the values that they name; Flux tries again by itself at its interval.";
        Error object.clone(), (&ready.reason), "is not ready: {}", ready.message;
        since ready.since.as_ref(); seen ready.evidence();
        then object.describe("its conditions, its history and its Events"), logs(flux);
    })
}

fn changing(app: App<'_>) -> Option<Finding> {
    let is_changing = |flux: &&FluxView| {
        let ready = flux.ready.as_ref();
        let is_true = ready.is_some_and(|ready| ready.status == "True");
        !is_true || flux.observed != flux.meta.generation
    };
    // At each interval Flux reconciles for a moment, and a ready ManagedApp stays ready.
    if app.progress.is_true(READY) {
        return None;
    }
    let flux = app.flux().find(is_changing)?;
    let object = flux.object();
    let generation = flux.meta.generation;
    let (sentence, evidence) = match &flux.ready {
        _ if flux.observed != generation => (
            "has a spec that its controller has not reconciled yet".to_owned(),
            app.seen(
                "status.observedGeneration",
                format!("{}, the spec's generation is {generation}", flux.observed),
            ),
        ),
        Some(ready) => (
            format!("applies a change: {}", ready.message),
            ready.evidence(),
        ),
        None => (
            "has no condition 'Ready' yet".to_owned(),
            app.seen("status.conditions", "none"),
        ),
    };
    let since = flux.ready.as_ref().and_then(|ready| ready.since.as_ref());
    Some(finding! {
        Waiting "Wait: Flux applies a change. Its own timeout ends the wait. If the message names a dependency, look at that object.";
        Waiting object.clone(), Reason::Comparing, (sentence); since since; seen evidence;
        then object.describe("its conditions and its Events"), logs(flux), app.look_again();
    })
}
