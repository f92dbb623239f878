//! The containers of a run's Pod. A TaskRun's Pod has one relevant container. A DocsRun's Pod has
//! three that run one after the other: two init containers and the main container.

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus, Pod};

/// The container in which the agent runs.
pub(crate) const AGENT: &str = "agent";

/// The containers of a DocsRun, in the order in which they run.
pub(crate) const STEPS: [&str; 3] = ["clone", AGENT, "publish"];

/// Returns whether the Pod is a DocsRun's, in which the agent runs as an init container.
pub(crate) fn is_in_steps(pod: &Pod) -> bool {
    let spec = pod.spec.iter();
    let init = spec.flat_map(|spec| spec.init_containers.iter());
    init.flat_map(|all| all.iter()).any(|one| one.name == AGENT)
}

/// Returns a container of the Pod by its name, including init containers.
pub(crate) fn named<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flat_map(|all| all.iter());
    init.chain(&spec.containers).find(|one| one.name == name)
}

/// Returns the status of a container of the Pod.
pub(crate) fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let all = lists.into_iter().flat_map(|list| list.iter());
    all.flat_map(|list| list.iter())
        .find(|one| one.name == name)
}

/// Returns whether the container has started and therefore has a log. A container that the runtime
/// could not start has ended, but never ran.
pub(crate) fn has_started(pod: &Pod, name: &str) -> bool {
    let state = status(pod, name).and_then(|one| one.state.as_ref());
    let has_run = |ended: &ContainerStateTerminated| {
        let reason = ended.reason.as_deref();
        !matches!(reason, Some("StartError" | "ContainerCannotRun"))
    };
    state.is_some_and(|state| {
        state.running.is_some() || state.terminated.as_ref().is_some_and(has_run)
    })
}

/// Returns whether the kubelet evicted the Pod. It then removes the containers with their logs.
pub(crate) fn is_evicted(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.is_some_and(|status| status.reason.as_deref() == Some("Evicted"))
}

/// Returns the status of the current container: the first step that has not succeeded, otherwise
/// the last step.
pub(crate) fn current(pod: &Pod) -> Option<&ContainerStatus> {
    if !is_in_steps(pod) {
        return status(pod, AGENT);
    }
    let ended_well = |one: &&ContainerStatus| {
        let state = one.state.as_ref();
        let ended = state.and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    };
    let steps = || STEPS.into_iter().filter_map(|name| status(pod, name));
    steps()
        .find(|one| !ended_well(one))
        .or_else(|| steps().next_back())
}
