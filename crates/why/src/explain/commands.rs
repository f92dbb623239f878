//! Suggested commands with real object names. Each command is built in one place.

use api::kinds;

use super::{docs, run_context::RunContext};
use crate::{
    explanation::Command,
    world::{ObjectRef, PodView},
};

/// Formats ` -n team`, or an empty string for a cluster-scoped object.
fn namespace(object: &ObjectRef) -> String {
    let named = object.namespace.as_deref().filter(|name| !name.is_empty());
    named.map_or_else(String::new, |name| format!(" -n {name}"))
}

/// Returns the resource name for kubectl. Our kinds use their short names, because other projects
/// also have a `taskrun`.
pub(super) fn resource(kind: &str) -> String {
    match kinds::named(kind) {
        Some(row) => row.short_name.to_owned(),
        None if kind == "PersistentVolumeClaim" => "pvc".to_owned(),
        None => kind.to_lowercase(),
    }
}

pub(super) fn describe(object: &ObjectRef, description: &str) -> Command {
    let command = format!(
        "kubectl describe {} {}{}",
        resource(&object.kind),
        object.name,
        namespace(object)
    );
    Command::new(command, description)
}

pub(super) fn yaml(object: &ObjectRef, description: &str) -> Command {
    let command = format!(
        "kubectl get {} {}{} -o yaml",
        resource(&object.kind),
        object.name,
        namespace(object)
    );
    Command::new(command, description)
}

pub(super) fn edit(object: &ObjectRef, description: &str) -> Command {
    let command = format!(
        "kubectl edit {} {}{}",
        resource(&object.kind),
        object.name,
        namespace(object)
    );
    Command::new(command, description)
}

pub(super) fn delete(object: &ObjectRef, description: &str) -> Command {
    let command = format!(
        "kubectl delete {} {}{}",
        resource(&object.kind),
        object.name,
        namespace(object)
    );
    Command::new(command, description)
}

/// Returns the command that lists all objects of a kind in a namespace.
pub(super) fn list(kind: &str, within: &str, description: &str) -> Command {
    Command::new(
        format!("kubectl get {} -n {within}", resource(kind)),
        description,
    )
}

/// Returns the command that prints an object with its managed fields, which show the field
/// managers.
pub(super) fn who(object: &ObjectRef, description: &str) -> Command {
    let Command {
        command,
        description,
    } = yaml(object, description);
    Command::new(format!("{command} --show-managed-fields"), description)
}

/// Returns the command that creates a missing object. Values come from files, because a command
/// line is stored and visible to others.
pub(super) fn create(need: &str, name: &str, key: Option<&str>, within: &str) -> Command {
    let with_key = key.map_or_else(
        || ", its values from files".to_owned(),
        |key| format!(" with the key '{key}', its value from a file"),
    );
    let key = key.unwrap_or("<KEY>");
    let (command, description) = match need {
        "Secret" => (
            format!("kubectl create secret generic {name} -n {within} --from-file={key}=<FILE>"),
            format!("create Secret '{name}'{with_key}"),
        ),
        "ConfigMap" => (
            format!("kubectl create configmap {name} -n {within} --from-file={key}=<FILE>"),
            format!("create ConfigMap '{name}'{with_key}"),
        ),
        "ServiceAccount" => (
            format!("kubectl create serviceaccount {name} -n {within}"),
            format!("create ServiceAccount '{name}'; it may need rights: ask its owner"),
        ),
        _ => (
            format!("kubectl get {}", need.to_lowercase()),
            format!("those that exist; '{name}' must be created by whoever runs the cluster"),
        ),
    };
    Command::new(command, description)
}

pub(super) fn edit_agent(context: RunContext<'_>, description: &str) -> Command {
    edit(&context.here("Agent", &context.run.agent_name), description)
}

/// Returns the command that runs the run's agent again, with the same files.
pub(super) fn retry(context: RunContext<'_>) -> Command {
    let description = match &context.run.docs {
        Some(_) => "run it again: another DocsRun with the same spec and branch",
        None => "run it again with the same files",
    };
    orc(context, "retry", "", description)
}

/// Returns an `orc` command for the run.
pub(super) fn orc(context: RunContext<'_>, verb: &str, flags: &str, description: &str) -> Command {
    let command = format!(
        "orc {verb} {} -n {}{flags}",
        context.argument(),
        context.namespace()
    );
    Command::new(command, description)
}

/// Returns the retry command for the case that the Agent was changed. Otherwise the run continues
/// automatically.
pub(super) fn retry_after_edit(context: RunContext<'_>) -> Command {
    let Command { command, .. } = retry(context);
    Command::new(command, "only if you changed the Agent: run it again")
}

/// Returns the command that prints the log of the current container.
pub(super) fn logs(context: RunContext<'_>, pod: &PodView) -> Command {
    let is_well = pod.state().exit().is_some_and(|exit| exit.code == 0);
    match docs::step_of(context, pod).filter(|_| !is_well) {
        Some(step) => orc(
            context,
            "logs",
            &format!(" -c {}", step.container()),
            &format!("what '{}' wrote", step.container()),
        ),
        None => orc(context, "logs", "", "what the agent wrote"),
    }
}

pub(super) fn follow(context: RunContext<'_>, pod: &PodView) -> Command {
    match docs::step_of(context, pod) {
        Some(step) => orc(
            context,
            "logs",
            &format!(" -c {} -f", step.container()),
            &format!("what '{}' writes, as it writes it", step.container()),
        ),
        None => orc(
            context,
            "logs",
            " -f",
            "what the agent writes, as it writes it",
        ),
    }
}

pub(super) fn wait(context: RunContext<'_>) -> Command {
    orc(context, "wait", "", "wait for the end")
}

/// Returns the command that repeats `orc why` for the run.
pub(super) fn look_again(context: RunContext<'_>) -> Command {
    again(context.kind(), &context.run.meta.name, context.namespace())
}

/// Returns the command that repeats `orc why` for an object. `within` is empty for a cluster-scoped
/// object.
pub(super) fn again(kind: &str, name: &str, within: &str) -> Command {
    let place = match within {
        "" => String::new(),
        within => format!(" -n {within}"),
    };
    Command::new(
        format!("orc why {}/{name}{place}", kind.to_lowercase()),
        "look again",
    )
}

/// Returns the command that prints the time of the last heartbeat of a node's kubelet.
pub(super) fn heartbeat(node: &str) -> Command {
    Command::new(
        format!(
            "kubectl get lease {node} -n kube-node-lease -o jsonpath='{{.spec.renewTime}}{{\"\\n\"}}'"
        ),
        "when that node was last heard of (seconds ago: it is alive)",
    )
}

pub(super) fn node(name: &str) -> Command {
    describe(
        &ObjectRef::cluster("Node", name),
        "the node's state, and what runs on it",
    )
}
