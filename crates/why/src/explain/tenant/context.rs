//! A Tenant with its world, and helper functions for the explanations.

use api::{Reason, names, status::condition::READY};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::super::{commands, run_context};
use crate::{
    explanation::Command,
    world::{
        ContainerView, EndpointsView, Meta, NamespaceView, ObjectRef, PodView, TenantView,
        WorkloadView, World,
    },
};

/// A Tenant and its world.
#[derive(Clone, Copy)]
pub(super) struct TenantContext<'a> {
    pub(super) world: &'a World,
    pub(super) tenant: &'a TenantView,
}

impl<'a> TenantContext<'a> {
    pub(super) fn name(self) -> &'a str {
        &self.tenant.meta.name
    }

    pub(super) fn namespace(self) -> &'a str {
        &self.tenant.namespace
    }

    pub(super) fn object(self) -> ObjectRef {
        ObjectRef::cluster("Tenant", self.name())
    }

    /// Returns a reference to the Tenant's namespace.
    pub(super) fn place(self) -> ObjectRef {
        ObjectRef::cluster("Namespace", self.namespace())
    }

    pub(super) fn here(self, kind: &str, name: &str) -> ObjectRef {
        ObjectRef::namespaced(kind, self.namespace(), name)
    }

    pub(super) fn condition(self, kind: &str) -> Option<&'a Condition> {
        self.tenant.status.progress.condition(kind)
    }

    /// Returns the reason of the main condition.
    pub(super) fn reason(self) -> Option<Reason> {
        Reason::from_name(&self.condition(READY)?.reason)
    }

    pub(super) fn message(self) -> &'a str {
        let progress = &self.tenant.status.progress;
        progress.message.as_deref().unwrap_or_default()
    }

    pub(super) fn written(self) -> Option<&'a Time> {
        self.tenant.status.progress.last_updated.as_ref()
    }

    /// Returns the Pods of a component.
    pub(super) fn pods(self, component: &str) -> impl Iterator<Item = &'a PodView> {
        self.world.pods.iter().filter(move |pod| {
            pod.meta.namespace == self.tenant.namespace
                && pod.meta.component.as_deref() == Some(component)
        })
    }

    /// Returns the Pods that probe the Tenant's connections, from inside and from outside.
    pub(super) fn probes(self) -> impl Iterator<Item = &'a PodView> {
        let pods = self.world.pods.iter();
        pods.filter(|pod| pod.meta.component.as_deref() == Some("probe"))
    }

    pub(super) fn workload(self, name: &str) -> Option<&'a WorkloadView> {
        let all = self.world.workloads.iter();
        all.into_iter().find(|known| known.meta.name == name)
    }

    /// Returns the numbers of ready and unready endpoints of a Service, or `None` if they may not
    /// be read.
    pub(super) fn endpoints(self, service: &str) -> Option<(usize, usize)> {
        if !self.may_read("endpointslices") {
            return None;
        }
        let all = self.world.endpoints.iter();
        let of_service = all.filter(|known| known.service == service);
        Some(of_service.fold((0, 0), |sum, known: &EndpointsView| {
            (sum.0 + known.ready, sum.1 + known.not_ready)
        }))
    }

    /// Returns whether an object carries this Tenant's UID.
    pub(super) fn is_ours(self, meta: &Meta) -> bool {
        meta.run_uid.as_deref() == Some(&*names::label_value(&self.tenant.meta.uid))
    }

    /// Returns whether this Tenant owns the namespace.
    pub(super) fn is_own(self, namespace: &NamespaceView) -> bool {
        if namespace.meta.run_uid.is_some() {
            return self.is_ours(&namespace.meta);
        }
        let known = self.tenant.status.namespace_uid.as_ref();
        namespace.meta.retained_from.is_none() && known == Some(&namespace.meta.uid)
    }

    /// Returns whether no read of this resource was forbidden, such as `pods`.
    pub(super) fn may_read(self, what: &str) -> bool {
        run_context::may_read(self.world, what)
    }

    pub(super) fn exists(self, kind: &str, name: &str) -> Option<bool> {
        run_context::exists(self.world, kind, name)
    }

    pub(super) fn edit(self, purpose: &str) -> Command {
        commands::edit(&self.object(), purpose)
    }

    pub(super) fn look_again(self) -> Command {
        commands::again("Tenant", self.name(), "")
    }

    /// Returns the command that prints the log of a component's container, or of its previous
    /// instance.
    pub(super) fn logs(self, pod: &PodView, is_before: bool) -> Command {
        let container = main(pod).map_or("", |one| one.name.as_str());
        let (flag, purpose) = if is_before {
            (" --previous", "what it wrote before it ended")
        } else {
            ("", "what it writes")
        };
        Command::new(
            format!(
                "kubectl logs {} -n {} -c {container}{flag} --tail=50",
                pod.meta.name, pod.meta.namespace
            ),
            purpose,
        )
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
    pod.condition("Ready")
        .is_some_and(|known| known.status == "True")
}

/// Returns the field of the spec that requests the Pod's component.
pub(super) fn part(pod: &PodView) -> &str {
    pod.meta.component.as_deref().unwrap_or("server")
}
