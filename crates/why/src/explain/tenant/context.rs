//! A Tenant with its world, and helper functions for the explanations.

use super::*;

impl<'a> Tenant<'a> {
    /// Returns a reference to the Tenant's namespace.
    pub(in crate::explain) fn place(self) -> ObjectRef {
        ObjectRef::cluster("Namespace", self.namespace)
    }

    /// Returns the Pods of a component.
    pub(super) fn pods(self, component: &str) -> impl Iterator<Item = &'a PodView> {
        let pods = self.world.pods.iter();
        pods.filter(move |pod| {
            pod.meta.namespace == self.namespace && pod.meta.component.as_deref() == Some(component)
        })
    }

    /// Returns the Pods that probe the Tenant's connections, from inside and from outside.
    pub(super) fn probes(self) -> impl Iterator<Item = &'a PodView> {
        let pods = self.world.pods.iter();
        pods.filter(|pod| pod.meta.component.as_deref() == Some("probe"))
    }

    pub(super) fn workload(self, name: &str) -> Option<&'a WorkloadView> {
        let mut all = self.world.workloads.iter();
        all.find(|known| known.meta.name == name)
    }

    /// Returns the numbers of ready and unready endpoints of a Service, or `None` if they may not
    /// be read.
    pub(super) fn endpoints(self, service: &str) -> Option<(usize, usize)> {
        let all = self.world.endpoints.iter();
        let all = all.filter(|known| known.service == service);
        let sum = all.fold((0, 0), |(ready, not), known| {
            (ready + known.ready, not + known.not_ready)
        });
        self.may_read("endpointslices").then_some(sum)
    }

    /// Returns whether an object carries this Tenant's UID.
    pub(super) fn is_ours(self, meta: &Meta) -> bool {
        meta.run_uid == Some(names::label_value(&self.meta.uid))
    }

    /// Returns whether this Tenant owns the namespace.
    pub(super) fn is_own(self, namespace: &NamespaceView) -> bool {
        if namespace.meta.run_uid.is_some() {
            return self.is_ours(&namespace.meta);
        }
        let known = self.view.status.namespace_uid.as_ref();
        namespace.meta.retained_from.is_none() && known == Some(&namespace.meta.uid)
    }

    /// Returns the command that prints the log of a component's container, or of its previous
    /// instance.
    pub(super) fn logs(self, pod: &PodView, is_before: bool) -> Command {
        let container = main(pod).map_or("", |one| one.name.as_str());
        let (name, within) = (&pod.meta.name, &pod.meta.namespace);
        let (flag, purpose) = match is_before {
            true => (" --previous", "what it wrote before it ended"),
            false => ("", "what it writes"),
        };
        shell!("kubectl logs {name} -n {within} -c {container}{flag} --tail=50" => (purpose))
    }
}

/// Returns the main container, which has its component's name. Other containers were injected.
pub(super) fn main(pod: &PodView) -> Option<&ContainerView> {
    let named = pod.meta.component.as_deref().unwrap_or_default();
    let by_name = pod.containers.iter().find(|one| one.name == named);
    by_name.or_else(|| pod.containers.first())
}

/// Returns whether the Pod's condition `Ready` is true.
pub(super) fn is_ready(pod: &PodView) -> bool {
    let known = pod.condition("Ready");
    known.is_some_and(|known| known.status == "True")
}

/// Returns the field of the spec that requests the Pod's component.
pub(super) fn part(pod: &PodView) -> &str {
    pod.meta.component.as_deref().unwrap_or("server")
}
