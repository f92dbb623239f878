//! The watches, the views that the caches keep, and the Tenants that a change requeues.

use std::sync::Arc;

use api::{
    decide::ResourceType,
    names,
    tenants::{Tenant, namespace_of},
    warning::Warning,
};
use engine::{
    Cache, Watch, WatchManager,
    children::{Child, in_namespace, with_uid},
};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::{
        ConfigMap, LimitRange, Namespace, PersistentVolumeClaim, Pod, ResourceQuota, Secret,
        Service,
    },
    discovery::v1::EndpointSlice,
    networking::v1::NetworkPolicy,
    rbac::v1::RoleBinding,
};
use kube::{Resource, ResourceExt};
use serde::Serialize;

use crate::{
    build::{
        SECRET, Settings,
        probe::{self, PROBE},
        types,
    },
    view::{
        ChildView, ClaimView, EndpointsView, NamespaceView, PodView, QuotaView, SecretView,
        WorkloadView,
    },
};

fn child<K: Resource + Serialize>(object: &K) -> ChildView {
    // An object that cannot be serialized differs from every manifest, so we apply it again.
    let value = serde_json::to_value(object).unwrap_or_default();
    ChildView::of(object.meta(), &value)
}

pub(super) fn all<K: 'static, T: 'static>(
    transform: fn(K) -> T,
    index: fn(&T) -> Vec<String>,
) -> Watch<K, T> {
    Watch {
        labels: None,
        fields: None,
        transform: Arc::new(move |object, _| transform(object)),
        index,
    }
}

fn ours<K: 'static, T: 'static>(
    transform: fn(K) -> T,
    index: fn(&T) -> Vec<String>,
) -> Watch<K, T> {
    Watch {
        labels: Some([names::KIND, "=Tenant"].concat()),
        ..all(transform, index)
    }
}

pub(super) fn tenant_index_keys(tenant: &Tenant) -> Vec<String> {
    let name = tenant.name_any();
    vec![
        by_tenant_uid(&tenant.uid().unwrap_or_default()),
        in_namespace(&namespace_of(&name, &tenant.spec)),
    ]
}

/// Index key of a Tenant by UID, for its probe Pod in the operator's namespace.
fn by_tenant_uid(uid: &str) -> String {
    ["uid/", uid].concat()
}

/// Caches of all objects of Tenants.
#[derive(Debug, Clone)]
pub(super) struct Caches {
    /// All namespaces: another owner may have the requested name, or offer a namespace for adoption.
    pub(super) namespaces: Cache<NamespaceView>,
    pub(super) quotas: Cache<Child<(ChildView, QuotaView)>>,
    pub(super) limits: Cache<Child<ChildView>>,
    pub(super) bindings: Cache<Child<ChildView>>,
    /// All policies: an unmanaged policy can allow traffic into a Tenant.
    pub(super) policies: Cache<Child<ChildView>>,
    pub(super) config_maps: Cache<Child<ChildView>>,
    pub(super) services: Cache<Child<ChildView>>,
    pub(super) deployments: Cache<Child<(ChildView, WorkloadView)>>,
    pub(super) stateful_sets: Cache<Child<(ChildView, WorkloadView)>>,
    /// Secrets with one fixed name, without their data.
    pub(super) secrets: Cache<Child<SecretView>>,
    pub(super) pods: Cache<Child<PodView>>,
    pub(super) claims: Cache<Child<ClaimView>>,
    pub(super) endpoints: Cache<Child<EndpointsView>>,
    pub(super) warnings: [Cache<Warning>; 3],
}

impl Caches {
    pub(super) fn watch(watches: &mut WatchManager) -> Self {
        Self {
            namespaces: watches.cluster(
                ("", "namespaces"),
                all(
                    |one: Namespace| NamespaceView::from(&one),
                    |view| vec![in_namespace(&view.name)],
                ),
            ),
            quotas: watches.namespaced(
                ("", "resourcequotas"),
                ours(
                    |one: ResourceQuota| Child::new(&one, (child(&one), QuotaView::from(&one))),
                    Child::words,
                ),
            ),
            limits: watches.namespaced(
                ("", "limitranges"),
                ours(
                    |one: LimitRange| Child::new(&one, child(&one)),
                    Child::words,
                ),
            ),
            bindings: watches.namespaced(
                ("rbac.authorization.k8s.io", "rolebindings"),
                ours(
                    |one: RoleBinding| Child::new(&one, child(&one)),
                    Child::words,
                ),
            ),
            policies: watches.namespaced(
                ("networking.k8s.io", "networkpolicies"),
                all(
                    |one: NetworkPolicy| Child::new(&one, child(&one)),
                    Child::words,
                ),
            ),
            config_maps: watches.namespaced(
                ("", "configmaps"),
                ours(|one: ConfigMap| Child::new(&one, child(&one)), Child::words),
            ),
            services: watches.namespaced(
                ("", "services"),
                ours(|one: Service| Child::new(&one, child(&one)), Child::words),
            ),
            deployments: watches.namespaced(
                ("apps", "deployments"),
                ours(
                    |one: Deployment| Child::new(&one, (child(&one), WorkloadView::from(&one))),
                    Child::words,
                ),
            ),
            stateful_sets: watches.namespaced(
                ("apps", "statefulsets"),
                ours(
                    |one: StatefulSet| Child::new(&one, (child(&one), WorkloadView::from(&one))),
                    Child::words,
                ),
            ),
            secrets: watches.namespaced(
                ("", "secrets"),
                Watch {
                    labels: None,
                    fields: Some(["metadata.name=", SECRET].concat()),
                    transform: Arc::new(|one: Secret, _| {
                        Child::new(&one, SecretView::from(&one.metadata))
                    }),
                    index: Child::words,
                },
            ),
            pods: watches.namespaced(
                ("", "pods"),
                ours(
                    |one: Pod| Child::new(&one, PodView::from(&one)),
                    |pod| {
                        let mut index_keys = pod.words();
                        index_keys.extend((pod.view.component == PROBE).then(|| PROBE.to_owned()));
                        index_keys
                    },
                ),
            ),
            claims: watches.namespaced(
                ("", "persistentvolumeclaims"),
                ours(
                    |one: PersistentVolumeClaim| Child::new(&one, ClaimView::from(&one)),
                    Child::words,
                ),
            ),
            endpoints: watches.namespaced(
                ("discovery.k8s.io", "endpointslices"),
                ours(
                    |one: EndpointSlice| Child::new(&one, EndpointsView::from(&one)),
                    Child::words,
                ),
            ),
            warnings: [
                watches.warnings("Pod"),
                watches.warnings("StatefulSet"),
                watches.warnings("PersistentVolumeClaim"),
            ],
        }
    }

    pub(super) fn connect(
        &self,
        probe_namespace: &str,
        tenants: &Cache<Tenant>,
        handle: &engine::Handle,
    ) {
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
                enqueue_all(&tenants, &handle, &in_namespace(&change.key.name));
            });
        }
        enqueue_owner(quotas, tenants, handle);
        enqueue_owner(limits, tenants, handle);
        enqueue_owner(bindings, tenants, handle);
        enqueue_owner(policies, tenants, handle);
        enqueue_owner(config_maps, tenants, handle);
        enqueue_owner(services, tenants, handle);
        enqueue_owner(deployments, tenants, handle);
        enqueue_owner(stateful_sets, tenants, handle);
        enqueue_owner(secrets, tenants, handle);
        enqueue_owner(pods, tenants, handle);
        enqueue_by_probe(pods, probe_namespace, tenants, handle);
        enqueue_owner(claims, tenants, handle);
        enqueue_owner(endpoints, tenants, handle);
        let [of_pods, of_sets, of_claims] = warnings;
        enqueue_by_warning(of_pods, pods, tenants, handle);
        enqueue_by_warning(of_sets, stateful_sets, tenants, handle);
        enqueue_by_warning(of_claims, claims, tenants, handle);
    }

    /// Returns the children of a Tenant in its namespace, by UID. A copy in another namespace is no child,
    /// even with all labels.
    pub(super) fn of(&self, uid: &str, namespace: &str) -> Vec<(ResourceType, ChildView)> {
        fn plain<V: Send + Sync + 'static>(
            (cache, uid, namespace): (&Cache<Child<V>>, &str, &str),
            resource: ResourceType,
            child: fn(&V) -> &ChildView,
        ) -> Vec<(ResourceType, ChildView)> {
            cache
                .children(TENANT, namespace, uid)
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

    /// Returns the policies in a Tenant's namespace that it does not own. The first list has the names of
    /// unmanaged policies, the second the policies that an earlier Tenant of the same name retained.
    pub(super) fn others(
        &self,
        uid: &str,
        name: &str,
        namespace: &str,
    ) -> (Vec<String>, Vec<ChildView>) {
        let all = self.policies.by_index(&in_namespace(namespace));
        let (left, foreign): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|policy| !policy.belongs_to(TENANT, uid))
            .map(|policy| policy.view.clone())
            .partition(|policy| policy.retained_from.as_deref() == Some(name));
        let mut foreign: Vec<String> = foreign.into_iter().map(|policy| policy.name).collect();
        foreign.sort();
        foreign.truncate(NAMED);
        (foreign, left)
    }

    /// Returns the names of policies that restrict the probe Pods in the operator's namespace.
    pub(super) fn outside(&self, settings: &Settings) -> Vec<String> {
        let all = self
            .policies
            .by_index(&in_namespace(&settings.probe_namespace));
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

/// Value of the kind label of children.
pub(super) const TENANT: &str = api::tenants::TENANT.name();

/// Maximum number of policy names in a message.
const NAMED: usize = 5;

fn enqueue_all(tenants: &Cache<Tenant>, handle: &engine::Handle, index_key: &str) {
    for key in tenants.keys_of(index_key) {
        handle.enqueue(&key);
    }
}

/// Requeues the Tenant of the namespace that contains the object, with or without a label.
fn enqueue_owner<V: Send + Sync + 'static>(
    cache: &Cache<Child<V>>,
    tenants: &Cache<Tenant>,
    handle: &engine::Handle,
) {
    let (tenants, handle) = (tenants.clone(), handle.clone());
    cache.on_change(move |change| {
        for one in change.old.into_iter().chain(change.new) {
            enqueue_all(&tenants, &handle, &in_namespace(&one.namespace));
        }
    });
}

/// Requeues the Tenant of a probe Pod in the operator's namespace. The label of this Pod has the UID of the
/// Tenant.
fn enqueue_by_probe(
    pods: &Cache<Child<PodView>>,
    namespace: &str,
    tenants: &Cache<Tenant>,
    handle: &engine::Handle,
) {
    let (tenants, handle) = (tenants.clone(), handle.clone());
    let namespace = namespace.to_owned();
    pods.on_change(move |change| {
        for pod in change.old.into_iter().chain(change.new) {
            if pod.namespace == namespace {
                enqueue_all(&tenants, &handle, &by_tenant_uid(&pod.owner_uid));
            }
        }
    });
}

fn enqueue_by_warning<V: Send + Sync + 'static>(
    warnings: &Cache<Warning>,
    objects: &Cache<Child<V>>,
    tenants: &Cache<Tenant>,
    handle: &engine::Handle,
) {
    let (objects, tenants, handle) = (objects.clone(), tenants.clone(), handle.clone());
    warnings.on_change(move |change| {
        // The expiry of an Event changes nothing.
        let Some(warning) = change.new else { return };
        for object in objects.by_index(&with_uid(&warning.namespace, &warning.object_uid)) {
            enqueue_all(&tenants, &handle, &in_namespace(&object.namespace));
        }
    });
}

pub(super) fn views<V: Clone + Send + Sync + 'static>(
    cache: &Cache<Child<V>>,
    index_key: &str,
) -> Vec<V> {
    cache
        .by_index(index_key)
        .iter()
        .map(|one| one.view.clone())
        .collect()
}
