//! What is watched, what of it is kept, and whom a change wakes.

use std::sync::Arc;

use api::{
    decide::ResourceType,
    names,
    tenants::{Tenant, namespace_of},
};
use engine::{Cache, Hub, Watch};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{
        ConfigMap, Event, LimitRange, Namespace, PersistentVolumeClaim, Pod, ResourceQuota, Secret,
        Service,
    },
    discovery::v1::EndpointSlice,
    networking::v1::NetworkPolicy,
    rbac::v1::RoleBinding,
};
use kube::{Resource, ResourceExt};
use mutant::Mutant;
use serde::Serialize;

use crate::{
    build::{
        SECRET, Settings,
        probe::{self, PROBE},
        types,
    },
    view::{
        ChildView, ClaimView, EndpointsView, NamespaceView, PodView, QuotaView, SecretView,
        Warning, WorkloadView,
    },
};

/// Something in a Tenant's namespace, with the UID of the Tenant that its label names.
#[derive(Debug)]
pub(super) struct Owned<V> {
    pub(super) owner_uid: String,
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) view: V,
}

impl<V> Owned<V> {
    fn new<K: Resource>(object: &K, view: V) -> Self {
        Self {
            owner_uid: object.labels().get(names::UID).cloned().unwrap_or_default(),
            uid: object.uid().unwrap_or_default(),
            namespace: object.namespace().unwrap_or_default(),
            view,
        }
    }

    fn words(&self) -> Vec<String> {
        vec![
            self.owner_uid.clone(),
            self.uid.clone(),
            in_namespace(&self.namespace),
        ]
    }
}

/// A word of an index: everything in a namespace.
pub(super) fn in_namespace(name: &str) -> String {
    ["namespace/", name].concat()
}

fn child<K: Resource + Serialize>(object: &K) -> ChildView {
    // What cannot be written as JSON differs from everything that is wanted, and is applied again.
    let value = serde_json::to_value(object).unwrap_or_default();
    ChildView::of(object.meta(), &value)
}

pub(super) fn all<K, T>(thin: fn(K) -> T, index: fn(&T) -> Vec<String>) -> Watch<K, T> {
    Watch {
        labels: None,
        fields: None,
        thin,
        index,
    }
}

fn ours<K, T>(thin: fn(K) -> T, index: fn(&T) -> Vec<String>) -> Watch<K, T> {
    Watch {
        labels: Some([names::KIND, "=Tenant"].concat()),
        ..all(thin, index)
    }
}

pub(super) fn words(tenant: &Tenant) -> Vec<String> {
    let name = tenant.name_any();
    vec![
        tenant.uid().unwrap_or_default(),
        in_namespace(&namespace_of(&name, &tenant.spec)),
    ]
}

/// Everything that Tenants are made of.
#[derive(Debug, Clone)]
pub(super) struct Caches {
    /// All of them: who has the name that a Tenant wants matters, and who offers one.
    pub(super) namespaces: Cache<NamespaceView>,
    pub(super) quotas: Cache<Owned<(ChildView, QuotaView)>>,
    pub(super) limits: Cache<Owned<ChildView>>,
    pub(super) bindings: Cache<Owned<ChildView>>,
    /// All of them: one of someone else can open a Tenant.
    pub(super) policies: Cache<Owned<ChildView>>,
    pub(super) config_maps: Cache<Owned<ChildView>>,
    pub(super) services: Cache<Owned<ChildView>>,
    pub(super) deployments: Cache<Owned<(ChildView, WorkloadView)>>,
    pub(super) stateful_sets: Cache<Owned<(ChildView, WorkloadView)>>,
    /// Those of one name; what is in them is not kept.
    pub(super) secrets: Cache<Owned<SecretView>>,
    pub(super) pods: Cache<Owned<PodView>>,
    pub(super) claims: Cache<Owned<ClaimView>>,
    pub(super) endpoints: Cache<Owned<EndpointsView>>,
    pub(super) warnings: [Cache<Warning>; 3],
}

impl Caches {
    pub(super) fn watch(hub: &mut Hub) -> Self {
        fn warnings(hub: &mut Hub, kind: &str) -> Cache<Warning> {
            let fields = ["type=Warning,involvedObject.kind=", kind].concat();
            hub.namespaced(
                ("", "events"),
                Watch {
                    labels: None,
                    fields: Some(fields),
                    thin: |event: Event| Warning::from(&event),
                    index: |warning| vec![warning.object_uid.clone()],
                },
            )
        }
        Self {
            namespaces: hub.cluster(
                ("", "namespaces"),
                all(
                    |one: Namespace| NamespaceView::from(&one),
                    |view| vec![in_namespace(&view.name)],
                ),
            ),
            quotas: hub.namespaced(
                ("", "resourcequotas"),
                ours(
                    |one: ResourceQuota| Owned::new(&one, (child(&one), QuotaView::from(&one))),
                    Owned::words,
                ),
            ),
            limits: hub.namespaced(
                ("", "limitranges"),
                ours(
                    |one: LimitRange| Owned::new(&one, child(&one)),
                    Owned::words,
                ),
            ),
            bindings: hub.namespaced(
                ("rbac.authorization.k8s.io", "rolebindings"),
                ours(
                    |one: RoleBinding| Owned::new(&one, child(&one)),
                    Owned::words,
                ),
            ),
            policies: hub.namespaced(
                ("networking.k8s.io", "networkpolicies"),
                all(
                    |one: NetworkPolicy| Owned::new(&one, child(&one)),
                    Owned::words,
                ),
            ),
            config_maps: hub.namespaced(
                ("", "configmaps"),
                ours(|one: ConfigMap| Owned::new(&one, child(&one)), Owned::words),
            ),
            services: hub.namespaced(
                ("", "services"),
                ours(|one: Service| Owned::new(&one, child(&one)), Owned::words),
            ),
            deployments: hub.namespaced(
                ("apps", "deployments"),
                ours(
                    |one: Deployment| Owned::new(&one, (child(&one), WorkloadView::from(&one))),
                    Owned::words,
                ),
            ),
            stateful_sets: hub.namespaced(
                ("apps", "statefulsets"),
                ours(
                    |one: StatefulSet| Owned::new(&one, (child(&one), WorkloadView::from(&one))),
                    Owned::words,
                ),
            ),
            secrets: hub.namespaced(
                ("", "secrets"),
                Watch {
                    labels: None,
                    fields: Some(["metadata.name=", SECRET].concat()),
                    thin: |one: Secret| Owned::new(&one, SecretView::from(&one.metadata)),
                    index: Owned::words,
                },
            ),
            pods: hub.namespaced(
                ("", "pods"),
                ours(
                    |one: Pod| Owned::new(&one, PodView::from(&one)),
                    |pod| {
                        let mut words = pod.words();
                        words.extend((pod.view.component == PROBE).then(|| PROBE.to_owned()));
                        words
                    },
                ),
            ),
            claims: hub.namespaced(
                ("", "persistentvolumeclaims"),
                ours(
                    |one: PersistentVolumeClaim| Owned::new(&one, ClaimView::from(&one)),
                    Owned::words,
                ),
            ),
            endpoints: hub.namespaced(
                ("discovery.k8s.io", "endpointslices"),
                ours(
                    |one: EndpointSlice| Owned::new(&one, EndpointsView::from(&one)),
                    Owned::words,
                ),
            ),
            warnings: [
                warnings(hub, "Pod"),
                warnings(hub, "StatefulSet"),
                warnings(hub, "PersistentVolumeClaim"),
            ],
        }
    }

    pub(super) fn wake(&self, tenants: &Cache<Tenant>, handle: &engine::Handle) {
        let Self {
            namespaces,
            quotas,
            limits,
            bindings,
            policies,
            config_maps,
            services,
            deployments,
            stateful_sets,
            secrets,
            pods,
            claims,
            endpoints,
            warnings,
        } = self;
        {
            let (tenants, handle) = (tenants.clone(), handle.clone());
            namespaces.on_change(move |change| {
                if !mutant::on(Mutant::NamespaceUnheard) {
                    touch(&tenants, &handle, &in_namespace(&change.key.name));
                }
            });
        }
        wake_owner(quotas, tenants, handle);
        wake_owner(limits, tenants, handle);
        wake_owner(bindings, tenants, handle);
        wake_owner(policies, tenants, handle);
        wake_owner(config_maps, tenants, handle);
        wake_owner(services, tenants, handle);
        wake_owner(deployments, tenants, handle);
        wake_owner(stateful_sets, tenants, handle);
        wake_owner(secrets, tenants, handle);
        wake_owner(pods, tenants, handle);
        wake_owner(claims, tenants, handle);
        wake_owner(endpoints, tenants, handle);
        let [of_pods, of_sets, of_claims] = warnings;
        wake_by_warning(of_pods, pods, tenants, handle);
        wake_by_warning(of_sets, stateful_sets, tenants, handle);
        wake_by_warning(of_claims, claims, tenants, handle);
    }

    /// What carries a Tenant's UID in its namespace. A copy elsewhere, labels and all, is not its.
    pub(super) fn of(&self, uid: &str, namespace: &str) -> Vec<(ResourceType, ChildView)> {
        fn plain<V: Send + Sync + 'static>(
            (cache, uid, namespace): (&Cache<Owned<V>>, &str, &str),
            resource: ResourceType,
            child: fn(&V) -> &ChildView,
        ) -> Vec<(ResourceType, ChildView)> {
            own(cache, uid, namespace)
                .iter()
                .map(|one| (resource, child(&one.view).clone()))
                .collect()
        }
        let same: fn(&ChildView) -> &ChildView = |child| child;
        let mut children = plain((&self.limits, uid, namespace), types::LIMITS, same);
        let bindings = (&self.bindings, uid, namespace);
        children.extend(plain(bindings, types::ROLE_BINDING, same));
        let policies = (&self.policies, uid, namespace);
        children.extend(plain(policies, types::NETWORK_POLICY, same));
        let maps = (&self.config_maps, uid, namespace);
        children.extend(plain(maps, ResourceType::CONFIG_MAP, same));
        let services = (&self.services, uid, namespace);
        children.extend(plain(services, types::SERVICE, same));
        let quotas = (&self.quotas, uid, namespace);
        children.extend(plain(quotas, types::QUOTA, |one| &one.0));
        let deployments = (&self.deployments, uid, namespace);
        children.extend(plain(deployments, types::DEPLOYMENT, |one| &one.0));
        let sets = (&self.stateful_sets, uid, namespace);
        children.extend(plain(sets, types::STATEFUL_SET, |one| &one.0));
        children
    }

    /// Policies in a Tenant's namespace that are not its: those of others, and those that it left when it
    /// was another.
    pub(super) fn others(
        &self,
        uid: &str,
        name: &str,
        namespace: &str,
    ) -> (Vec<String>, Vec<ChildView>) {
        let all = self.policies.find(&in_namespace(namespace));
        let (left, foreign): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|policy| policy.owner_uid != uid)
            .map(|policy| policy.view.clone())
            .partition(|policy| policy.retained_from.as_deref() == Some(name));
        let mut foreign: Vec<String> = foreign.into_iter().map(|policy| policy.name).collect();
        foreign.sort();
        foreign.truncate(NAMED);
        (foreign, left)
    }

    /// Policies that bound the Pods that try from outside.
    pub(super) fn outside(&self, settings: &Settings) -> Vec<String> {
        let all = self.policies.find(&in_namespace(&settings.probe_namespace));
        let mut names: Vec<String> = all
            .iter()
            .filter(|policy| probe::is_bounded_by(&policy.view.live.value()))
            .map(|policy| policy.view.name.clone())
            .collect();
        names.sort();
        names.truncate(NAMED);
        names
    }
}

/// So many of several are named.
const NAMED: usize = 5;

/// What carries a UID in a namespace.
pub(super) fn own<V: Send + Sync + 'static>(
    cache: &Cache<Owned<V>>,
    uid: &str,
    namespace: &str,
) -> Vec<Arc<Owned<V>>> {
    let mut found = cache.find(uid);
    found.retain(|one| one.namespace == namespace);
    found
}

fn touch(tenants: &Cache<Tenant>, handle: &engine::Handle, word: &str) {
    for (key, _) in tenants.find_keyed(word) {
        handle.touch(&key);
    }
}

/// By its label; what is not labelled, by the namespace that it is in.
fn wake_owner<V: Send + Sync + 'static>(
    cache: &Cache<Owned<V>>,
    tenants: &Cache<Tenant>,
    handle: &engine::Handle,
) {
    let (tenants, handle) = (tenants.clone(), handle.clone());
    cache.on_change(move |change| {
        for one in change.old.into_iter().chain(change.new) {
            touch(&tenants, &handle, &one.owner_uid);
            touch(&tenants, &handle, &in_namespace(&one.namespace));
        }
    });
}

fn wake_by_warning<V: Send + Sync + 'static>(
    warnings: &Cache<Warning>,
    objects: &Cache<Owned<V>>,
    tenants: &Cache<Tenant>,
    handle: &engine::Handle,
) {
    let (objects, tenants, handle) = (objects.clone(), tenants.clone(), handle.clone());
    warnings.on_change(move |change| {
        // An Event that expires is no news.
        let Some(warning) = change.new else { return };
        for object in objects.find(&warning.object_uid) {
            touch(&tenants, &handle, &in_namespace(&object.namespace));
        }
    });
}

pub(super) fn views<V: Clone + Send + Sync + 'static>(
    cache: &Cache<Owned<V>>,
    word: &str,
) -> Vec<V> {
    cache
        .find(word)
        .iter()
        .map(|one| one.view.clone())
        .collect()
}
