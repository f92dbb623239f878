//! A Pod of a workload that is not ready: node, image, program, probe, volume.

use super::*;

/// Returns the Pods that are neither ready nor over.
pub(super) fn unready<'a>(app: App<'a>) -> impl Iterator<Item = &'a PodView> {
    app.world.pods.iter().filter(|pod| {
        let is_over = ["Succeeded", "Failed"].contains(&pod.phase.as_str());
        let ready = pod.condition("Ready");
        let is_ready = ready.is_some_and(|known| known.status == "True");
        pod.meta.deleting.is_none() && !is_ready && !is_over
    })
}

/// Returns the newest Pod that is not ready.
pub(super) fn newest(app: App<'_>) -> Option<&PodView> {
    unready(app).max_by_key(|pod| pod.meta.created.clone())
}

/// Explains why a Pod is not ready, or returns `None` if it may just be starting.
pub(super) fn find(app: App<'_>, pod: &PodView) -> Option<Finding> {
    lost(app, pod)
        .or_else(|| unplaced(pod))
        .or_else(|| {
            pod.containers
                .iter()
                .find_map(|one| container(app, pod, one))
        })
        .or_else(|| warned(app, pod))
}

fn events(pod: &PodView) -> Command {
    pod.object().describe("its conditions and Events")
}

fn logs(pod: &PodView, container: &str, flag: &str, purpose: &str) -> Command {
    let (name, within) = (&pod.meta.name, &pod.meta.namespace);
    shell!("kubectl logs {name} -n {within} -c {container}{flag} --tail=50" => (purpose))
}

/// Explains a Pod on an unready node. The state of such a Pod is unknown.
fn lost(app: App<'_>, pod: &PodView) -> Option<Finding> {
    let node = app.lost_node(pod)?;
    let link = stop::on_lost_node(pod, node, Reason::NotReady, "it");
    Some(stop::node_lost(app.world, node, "").below([link]))
}

fn unplaced(pod: &PodView) -> Option<Finding> {
    let said = pod.unscheduled()?;
    let since = said.since.as_ref().or(pod.meta.created.as_ref());
    Some(finding! {
        Blocked "The words are the scheduler's. Make room on a node, provide the volume, or change the requests in Git.";
        Error pod.object(), pods::unscheduled_reason(&said.message), "has no node: {}", said.message;
        since since; seen said.evidence();
        then events(pod), commands::allocated();
    })
}

fn container(app: App<'_>, pod: &PodView, container: &ContainerView) -> Option<Finding> {
    let name = &container.name;
    if let ContainerState::Waiting(said) = &container.state
        && let Some(failure) = StartFailure::of(&said.reason, &said.message, 0)
    {
        let report = Report::of(app.world, pod, container);
        let (reason, message) = (failure.reason(), &said.message);
        let sentence = match failure {
            StartFailure::Image => {
                format!("image '{}' cannot be pulled: {message}", container.image)
            }
            StartFailure::Root
            | StartFailure::Missing
            | StartFailure::NotExecutable
            | StartFailure::NotStartable => {
                format!("container '{name}' cannot be started: {message}")
            }
        };
        return Some(finding! {
            Blocked "The words are the kubelet's. Correct in Git what they name; Flux applies it, and the kubelet tries again by itself.";
            link report.link(pod.object(), reason, sentence);
            then events(pod);
        });
    }
    let is_crashing = match &container.state {
        ContainerState::Waiting(said) => said.reason == "CrashLoopBackOff",
        ContainerState::Ended(exit) => exit.code != 0,
        ContainerState::Running { .. } | ContainerState::Unknown => container.restarts > 0,
    };
    if !is_crashing {
        return None;
    }
    let exit = container.last_exit();
    let at = exit.and_then(|exit| exit.finished).map(Time);
    let how = exit.map_or_else(String::new, |exit| {
        let ago = app.ago(at.as_ref());
        format!(": it exited with code {} ({}){ago}", exit.code, exit.reason)
    });
    let code = exit.map_or(0, |exit| exit.code);
    let restarts = container.restarts;
    Some(finding! {
        Blocked "Read its log: the program itself reports why it ends. Correct it in Git; Flux applies it.";
        Error pod.object(), Reason::CrashLoop, "container '{name}' ends again and again{how}; it was restarted {restarts} times";
        since pod.meta.created.as_ref(); seen (format!("container '{name}' ended before")) => (format!("exit code {code}")), at.as_ref();
        then logs(pod, name, " --previous", "the log before it ended"), events(pod);
    })
}

/// Explains the newest warning about a Pod, of the kubelet or of a volume driver.
fn warned(app: App<'_>, pod: &PodView) -> Option<Finding> {
    let warnings = app.world.warnings(&pod.meta.uid);
    let event = warnings.first()?;
    let known = pods::warning_reason(&event.reason, &event.message, event.count);
    let is_probe = event.reason == "Unhealthy";
    let reason = known.or_else(|| is_probe.then_some(Reason::ProbeFailed))?;
    let container = pod.current().map_or("", |one| one.name.as_str());
    let log = is_probe.then(|| logs(pod, container, "", "the log of the program"));
    Some(finding! {
        Blocked "The words are the kubelet's or the volume driver's. Correct what they name; the kubelet tries again by itself.";
        Error pod.object(), reason, "is not ready: {}", event.message;
        since event.first.as_ref(); seen event.evidence();
        then log, events(pod);
    })
}

/// Explains a Pod that is starting without a problem so far.
pub(super) fn starting(app: App<'_>, pod: &PodView) -> Finding {
    let state = pod.current().map(|one| &one.state);
    let waiting = state.and_then(|state| state.waiting());
    let (source, text) = match waiting {
        Some(said) => (
            format!("container waiting: {}", said.reason),
            said.message.as_str(),
        ),
        None => ("status.phase".to_owned(), pod.phase.as_str()),
    };
    let created = pod.meta.created.as_ref();
    finding! { Waiting "Wait: it is starting. If it stays so, the Pod's Events have the cause.";
        Waiting pod.object(), Reason::Progressing, "is starting{}", pod.on_node();
        since created; seen (source) => (text), created;
        then events(pod), app.look_again();
    }
}
