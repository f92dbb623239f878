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
        then object.who("'metadata.managedFields' names the manager that suspended it");
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

/// Explains an object of Flux that is being deleted. Its condition `Ready` shows an earlier state.
pub(super) fn deleted(app: App<'_>) -> Option<Finding> {
    let flux = app.flux().find(|flux| flux.meta.deleting.is_some())?;
    let object = flux.object();
    let since = flux.meta.deleting.as_ref();
    let finalizers = flux.meta.finalizers.join(", ");
    Some(finding! {
        Blocked "Create it again, or delete the ManagedApp. If it stays, the controller behind its finalizer cannot finish.";
        Error object.clone(), Reason::Unhealthy, "is being deleted, so Flux does not apply the application any more";
        since since; seen "metadata.finalizers" => (finalizers), since;
        then object.describe("its conditions and its Events"), logs(flux);
    })
}

/// Returns the condition with which Flux reports a failure of the current spec.
fn failure(flux: &FluxView) -> Option<&ConditionView> {
    let is_waiting = |ready: &&ConditionView| WAITING_REASONS.contains(&ready.reason.as_str());
    let ready = flux.ready.as_ref().filter(|_| flux.is_current());
    let failed = ready.filter(|ready| ready.status == "False" && !is_waiting(ready));
    flux.stalled.as_ref().or(failed)
}

/// Reasons of `Ready=False` with which Flux only waits for another object.
const WAITING_REASONS: [&str; 3] = [
    "DependencyNotReady",
    "HealthCheckCanceled",
    "SourceNotReady",
];

fn failing(app: App<'_>) -> Option<Finding> {
    let source = failing_source(app);
    let mut all = app.flux().filter_map(|flux| Some((flux, failure(flux)?)));
    let found = all.next().or_else(|| {
        // An object that waits for its source fails if the source does.
        let flux = app.flux().find(|flux| !flux.is_ready())?;
        Some((flux, flux.ready.as_ref()?)).filter(|_| source.is_some())
    });
    let Some((flux, said)) = found else {
        return failed_release(app);
    };
    let object = flux.object();
    let advice = match &source {
        Some(_) => {
            "Correct the source: its address, its credentials or its name. Flux tries again by itself at its interval."
        }
        None => {
            "The words are those of Flux. Correct the source or the values that they name; Flux tries again by itself at its interval."
        }
    };
    let state = match &flux.stalled {
        Some(_) => "is stalled until its spec changes",
        None => "is not ready",
    };
    let health = match &source {
        Some(_) => Health::Waiting,
        None => Health::Error,
    };
    let of_source = source.as_ref().map(|link| {
        let purpose = "the conditions and the Events of the source";
        link.object.describe(purpose)
    });
    Some(finding! {
        Blocked (advice);
        (health) object.clone(), (&said.reason), "{state}: {}", said.message;
        since said.since.as_ref(); seen said.evidence();
        link source;
        then of_source, object.describe("its conditions, its history and its Events"), logs(flux);
    })
}

/// Returns the link of the deepest source that fails or does not exist.
fn failing_source(app: App<'_>) -> Option<Link> {
    let mut sources = app.world.sources.iter().rev();
    let failed = sources.find_map(|source| Some((source, failure(source)?)));
    if let Some((source, said)) = failed {
        return Some(link! {
            Error source.object(), (&said.reason), "is not ready: {}", said.message;
            since said.since.as_ref(); seen said.evidence();
        });
    }
    let all = app.flux().chain(&app.world.sources);
    let mut references = all.filter_map(|flux| flux.source.clone());
    let missing = references.find(|source| app.has(source) == Some(false))?;
    Some(link! {
        Error missing, "NotFound", "does not exist, and Flux needs it"; seen app.not_found();
    })
}

/// Explains a release that failed, although no condition reports it now: Flux tries again.
fn failed_release(app: App<'_>) -> Option<Finding> {
    let is_failed = |flux: &&FluxView| {
        let status = flux.release_status.as_deref().unwrap_or("deployed");
        let is_open = status.starts_with("pending-") || status == "uninstalling";
        status != "deployed" && !is_open && flux.is_observed()
    };
    let flux = app.flux().find(is_failed)?;
    let object = flux.object();
    let status = flux.release_status.clone().unwrap_or_default();
    let evidence = app.seen("status.history", status.clone());
    Some(finding! {
        Blocked "Read the history and the Events of the HelmRelease: they have the error of Helm. Flux tries again as often as its retries allow.";
        Error object.clone(), Reason::Unhealthy, "has a newest release that is '{status}'"; seen evidence;
        then object.describe("its conditions, its history and its Events"), logs(flux);
    })
}

fn changing(app: App<'_>) -> Option<Finding> {
    let is_unknown = |flux: &FluxView| {
        let ready = flux.ready.as_ref();
        ready.is_some_and(|ready| ready.status == "Unknown")
    };
    // At each interval Flux reconciles for a moment, and a ready ManagedApp stays ready.
    let is_interval = |flux: &FluxView| {
        app.progress.is_true(READY) && flux.is_observed() && flux.is_applied() && is_unknown(flux)
    };
    let is_changing = |flux: &&FluxView| !flux.is_ready() && !is_interval(flux);
    let flux = app.flux().find(is_changing)?;
    let object = flux.object();
    let generation = flux.meta.generation;
    let (sentence, evidence) = match &flux.ready {
        Some(ready) if ready.status != "True" && flux.is_current() => (
            format!("applies a change: {}", ready.message),
            ready.evidence(),
        ),
        _ if !flux.is_observed() => (
            "has a spec that its controller has not reconciled yet".to_owned(),
            app.seen(
                "status.observedGeneration",
                format!("{}, the spec's generation is {generation}", flux.observed),
            ),
        ),
        Some(_) => {
            let version = |version: &Option<String>| version.clone().unwrap_or_default();
            let (attempted, applied) = (version(&flux.attempted), version(&flux.applied));
            (
                format!("applies version '{attempted}', and '{applied}' is the applied one"),
                app.seen("status.lastAttemptedRevision", attempted),
            )
        }
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
