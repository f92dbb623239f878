//! Suggested commands with real object names. Each command is built in one place.

use api::kinds;

use super::*;

/// Returns the resource name for kubectl. Our kinds use their short names, because other projects
/// also have a `taskrun`.
pub(super) fn resource(kind: &str) -> String {
    match kinds::named(kind) {
        Some(row) => row.short_name.to_owned(),
        None if kind == "PersistentVolumeClaim" => "pvc".to_owned(),
        None => kind.to_lowercase(),
    }
}

impl ObjectRef {
    fn kubectl(&self, verb: &str, flags: &str, purpose: impl Into<String>) -> Command {
        let named = self.namespace.as_deref().filter(|name| !name.is_empty());
        let namespace = named.map_or_else(String::new, |name| format!(" -n {name}"));
        let (kind, name) = (resource(&self.kind), &self.name);
        shell!("kubectl {verb} {kind} {name}{namespace}{flags}" => (purpose))
    }

    pub(super) fn describe(&self, purpose: impl Into<String>) -> Command {
        self.kubectl("describe", "", purpose)
    }

    pub(super) fn yaml(&self, purpose: impl Into<String>) -> Command {
        self.kubectl("get", " -o yaml", purpose)
    }

    pub(super) fn edit(&self, purpose: impl Into<String>) -> Command {
        self.kubectl("edit", "", purpose)
    }

    pub(super) fn delete(&self, purpose: impl Into<String>) -> Command {
        self.kubectl("delete", "", purpose)
    }

    /// Returns the command that removes our finalizer without waiting.
    pub(super) fn force_delete(&self, purpose: impl Into<String>) -> Command {
        let annotation = format!(" {}=true", api::names::FORCE_DELETE);
        self.kubectl("annotate", &annotation, purpose)
    }

    /// Returns the command that prints an object with its managed fields, which show the field
    /// managers.
    pub(super) fn who(&self, purpose: impl Into<String>) -> Command {
        self.kubectl("get", " -o yaml --show-managed-fields", purpose)
    }
}

/// Returns the command that lists all objects of a kind in a namespace.
pub(super) fn list(kind: &str, within: &str, purpose: &str) -> Command {
    shell!("kubectl get {} -n {within}", resource(kind) => (purpose))
}

/// Returns the command that creates a missing object. Values come from files, because a command
/// line is stored and visible to others.
pub(super) fn create(need: &str, name: &str, key: Option<&str>, within: &str) -> Command {
    let values = key.map_or_else(
        || ", its values from files".to_owned(),
        |key| format!(" with the key '{key}', its value from a file"),
    );
    let key = key.unwrap_or("<KEY>");
    match need {
        "Secret" => shell! {
            "kubectl create secret generic {name} -n {within} --from-file={key}=<FILE>" => "create Secret '{name}'{values}"
        },
        "ConfigMap" => shell! {
            "kubectl create configmap {name} -n {within} --from-file={key}=<FILE>" => "create ConfigMap '{name}'{values}"
        },
        "ServiceAccount" => shell! {
            "kubectl create serviceaccount {name} -n {within}" => "create ServiceAccount '{name}'; it may need rights: ask its owner"
        },
        "PersistentVolumeClaim" => shell! {
            "kubectl get pvc -n {within}" => "those that exist; create '{name}', or name one of these in the Agent's 'volumes'"
        },
        _ => shell! {
            "kubectl get {}", need.to_lowercase() => "those that exist; '{name}' must be created by an administrator of the cluster"
        },
    }
}

impl Run<'_> {
    pub(super) fn edit_agent(self, purpose: impl Into<String>) -> Command {
        self.agent().edit(purpose)
    }

    /// Returns an `orc` command for the run.
    pub(super) fn orc(self, verb: &str, flags: &str, purpose: impl Into<String>) -> Command {
        shell!("orc {verb} {} -n {}{flags}", self.argument(), self.namespace => (purpose))
    }

    /// Returns the command that runs the run's agent again, with the same files.
    pub(super) fn retry(self) -> Command {
        let purpose = match &self.view.docs {
            Some(_) => "run it again: another DocsRun with the same spec and branch",
            None => "run it again with the same files",
        };
        self.orc("retry", "", purpose)
    }

    /// Returns the retry command for the case that the Agent was changed. Otherwise the run
    /// continues automatically.
    pub(super) fn retry_after_edit(self) -> Command {
        self.orc("retry", "", "only if you changed the Agent: run it again")
    }

    /// Returns the command that prints the log of the current container.
    pub(super) fn logs(self, pod: &PodView) -> Command {
        let is_well = pod.state().exit().is_some_and(|exit| exit.code == 0);
        match docs::step_of(self, pod).filter(|_| !is_well) {
            Some(step) => self.orc(
                "logs",
                &format!(" -c {step}"),
                format!("what '{step}' wrote"),
            ),
            None => self.orc("logs", "", "what the agent wrote"),
        }
    }

    pub(super) fn follow(self, pod: &PodView) -> Command {
        let (flag, writer) = match docs::step_of(self, pod) {
            Some(step) => (format!(" -c {step} -f"), format!("'{step}'")),
            None => (" -f".to_owned(), "the agent".to_owned()),
        };
        self.orc(
            "logs",
            &flag,
            format!("what {writer} writes, as it writes it"),
        )
    }

    pub(super) fn wait(self) -> Command {
        self.orc("wait", "", "wait for the end")
    }
}

/// Returns the command that prints the time of the last heartbeat of a node's kubelet.
pub(super) fn heartbeat(node: &str) -> Command {
    shell! {
        "kubectl get lease {node} -n kube-node-lease -o jsonpath='{{.spec.renewTime}}{{\"\\n\"}}'"
            => "when that node was last heard of (seconds ago: it is alive)"
    }
}

pub(super) fn node(name: &str) -> Command {
    ObjectRef::cluster("Node", name).describe("the node's state, and what runs on it")
}

/// Returns the command that allows Pods on a cordoned node.
pub(super) fn uncordon(node: &str) -> Command {
    shell!("kubectl uncordon {node}" => "let Pods onto it again, if its maintenance is over")
}

/// Returns the command that prints the allocated resources of each node.
pub(super) fn allocated() -> Command {
    shell! {
        "kubectl describe nodes | grep -A8 'Allocated resources'" => "how much of each node is taken"
    }
}

/// Returns the command that applies the CRDs.
pub(super) fn apply_crds() -> Command {
    Command::new(
        api::crd::APPLY,
        "apply the CRDs, in the sources of the operator's version",
    )
}

/// Returns the command that prints the state of the API server.
pub(super) fn readyz() -> Command {
    shell!("kubectl get --raw '/readyz?verbose'" => "the API server's state")
}

/// Returns the command that shows whether the controllers of Kubernetes run.
pub(super) fn controllers() -> Command {
    shell! {
        "kubectl get lease kube-controller-manager -n kube-system -o yaml" => "is 'renewTime' seconds old?"
    }
}

/// Returns the command that lists the storage classes.
pub(super) fn storage_classes() -> Command {
    shell!("kubectl get storageclass" => "those that exist")
}
