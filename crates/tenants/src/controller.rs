//! The tenants family on the engine: what is watched, what wakes whom, what is observed.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

use api::{
    GROUP, Reason, Timestamp,
    decide::{Class, Decision, Fault, Input, NoExternal, ResourceType},
    names,
    tenants::{Tenant, TenantStatus, namespace_of},
};
use engine::{
    Cache, Context, Controller, Hub, Key, Kind, Scope, Watch,
    fault::{Request, from_kube},
    supervise::Supervisor,
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{
            ConfigMap, Event, LimitRange, Namespace, PersistentVolumeClaim, Pod, ResourceQuota,
            Secret, Service,
        },
        discovery::v1::EndpointSlice,
        networking::v1::NetworkPolicy,
        rbac::v1::RoleBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, Resource, ResourceExt};
use mutant::Mutant;
use serde::Serialize;

use crate::{
    build::{
        REDIS, SECRET, SERVER, Settings,
        probe::{self, PROBE},
        types,
    },
    decide,
    view::{
        ChildView, ClaimView, EndpointsView, NamespaceView, PodView, QuotaView, SecretView,
        Warning, WorkloadView,
    },
    world::{Address, Neighbour, TenantWorld},
};

/// Something in a Tenant's namespace, with the UID of the Tenant that its label names.
#[derive(Debug)]
struct Owned<V> {
    owner_uid: String,
    uid: String,
    namespace: String,
    view: V,
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
fn in_namespace(name: &str) -> String {
    ["namespace/", name].concat()
}

fn child<K: Resource + Serialize>(object: &K) -> ChildView {
    // What cannot be written as JSON differs from everything that is wanted, and is applied again.
    let value = serde_json::to_value(object).unwrap_or_default();
    ChildView::of(object.meta(), &value)
}

/// Starts the watches and the controller of the family.
pub fn start(context: Context, settings: Settings, supervisor: &mut Supervisor) {
    let (client, metrics, health) = (
        context.client.clone(),
        context.metrics.clone(),
        context.health.clone(),
    );
    let mut hub = Hub::new(client, metrics, health, Scope::All);
    let tenants = hub.cluster((GROUP, "tenants"), all(|tenant: Tenant| tenant, words));
    let caches = Caches::watch(&mut hub);
    let names: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    {
        let names = Arc::clone(&names);
        tenants.on_change(move |change| {
            let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
            if change.new.is_some() {
                names.insert(change.key.name.clone());
            } else {
                names.remove(&change.key.name);
            }
        });
    }
    let kind = TenantKind {
        client: context.client.clone(),
        tenants: tenants.clone(),
        names,
        caches: caches.clone(),
        settings,
        turns: Mutex::default(),
    };
    let controller = Controller::new(kind, tenants.clone(), context);
    caches.wake(&tenants, &controller.handle());
    let started = hub.start(supervisor);
    let shutdown = supervisor.shutdown();
    supervisor.spawn("Tenants", controller.run(started, shutdown));
}

fn all<K, T>(thin: fn(K) -> T, index: fn(&T) -> Vec<String>) -> Watch<K, T> {
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

fn words(tenant: &Tenant) -> Vec<String> {
    let name = tenant.name_any();
    vec![
        tenant.uid().unwrap_or_default(),
        in_namespace(&namespace_of(&name, &tenant.spec)),
    ]
}

/// Everything that Tenants are made of.
#[derive(Debug, Clone)]
struct Caches {
    /// All of them: who has the name that a Tenant wants matters, and who offers one.
    namespaces: Cache<NamespaceView>,
    quotas: Cache<Owned<(ChildView, QuotaView)>>,
    limits: Cache<Owned<ChildView>>,
    bindings: Cache<Owned<ChildView>>,
    /// All of them: one of someone else can open a Tenant.
    policies: Cache<Owned<ChildView>>,
    config_maps: Cache<Owned<ChildView>>,
    services: Cache<Owned<ChildView>>,
    deployments: Cache<Owned<(ChildView, WorkloadView)>>,
    stateful_sets: Cache<Owned<(ChildView, WorkloadView)>>,
    /// Those of one name; what is in them is not kept.
    secrets: Cache<Owned<SecretView>>,
    pods: Cache<Owned<PodView>>,
    claims: Cache<Owned<ClaimView>>,
    endpoints: Cache<Owned<EndpointsView>>,
    warnings: [Cache<Warning>; 3],
}

impl Caches {
    fn watch(hub: &mut Hub) -> Self {
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

    fn wake(&self, tenants: &Cache<Tenant>, handle: &engine::Handle) {
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
    fn of(&self, uid: &str, namespace: &str) -> Vec<(ResourceType, ChildView)> {
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
    fn others(&self, uid: &str, name: &str, namespace: &str) -> (Vec<String>, Vec<ChildView>) {
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
    fn outside(&self, settings: &Settings) -> Vec<String> {
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
fn own<V: Send + Sync + 'static>(
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

/// Tenants.
struct TenantKind {
    client: Client,
    tenants: Cache<Tenant>,
    /// Their names, in order.
    names: Arc<Mutex<BTreeSet<String>>>,
    caches: Caches,
    settings: Settings,
    /// Who tries connections, and until when that counts without a Pod.
    turns: Mutex<BTreeMap<String, Timestamp>>,
}

impl TenantKind {
    /// For how many other Tenants connections are being tried. Counts this one in, if there is room:
    /// several look at the same time, before any of their Pods is seen.
    fn turn(&self, uid: &str, now: Timestamp) -> usize {
        let trying = self.caches.pods.find(PROBE);
        // Those outside: Pods of his own an owner can label as he likes.
        let mut owners: BTreeSet<String> = trying
            .iter()
            .filter(|pod| pod.namespace == self.settings.probe_namespace)
            .filter(|pod| {
                let is_over = ["Succeeded", "Failed"].contains(&pod.view.phase.as_str());
                // One that nobody waits for any more holds no turn.
                let is_old = pod.view.created.is_none_or(|at| at + OLD < now);
                !is_over && !is_old
            })
            .map(|pod| pod.owner_uid.clone())
            .collect();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, until| *until > now);
        owners.extend(turns.keys().cloned());
        owners.remove(uid);
        if owners.len() < decide::AT_ONCE {
            let until = now.saturating_add(TURN).unwrap_or(Timestamp::MAX);
            turns.insert(uid.to_owned(), until);
        }
        owners.len()
    }

    /// Another Tenant that has something to be tried: the next one by name, so that all are tried by
    /// someone.
    fn neighbour(&self, me: &str) -> Option<Neighbour> {
        let after: Vec<String> = {
            let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            let later = names.range::<str, _>((Bound::Excluded(me), Bound::Unbounded));
            let earlier = names.range::<str, _>((Bound::Unbounded, Bound::Excluded(me)));
            later.chain(earlier).take(NEIGHBOURS).cloned().collect()
        };
        after.into_iter().find_map(|name| {
            let key = Key {
                namespace: None,
                name,
            };
            let tenant = self.tenants.get(&key)?;
            let place = namespace_of(&key.name, &tenant.spec);
            // It may ask for a namespace that is another's, and does not get it.
            let namespace = self.caches.namespaces.get(&Key {
                namespace: None,
                name: place.clone(),
            })?;
            if tenant.metadata.deletion_timestamp.is_some() || namespace.owner_uid != tenant.uid() {
                return None;
            }
            let pods = self.caches.pods.find(&in_namespace(&place));
            let addresses = Address::all(&tenant.spec, pods.iter().map(|pod| &pod.view));
            (!addresses.is_empty()).then(|| Neighbour {
                name: key.name,
                spec: tenant.spec.clone(),
                addresses,
            })
        })
    }

    /// Whether the definition of Tenants is being deleted. Asked of the API server itself: it was told
    /// so before any Tenant was, but a cache may hear of it later.
    async fn is_definition_going(&self) -> Result<bool, Fault> {
        let known: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let request = Request {
            verb: "get",
            resource: "customresourcedefinitions",
            name: DEFINITION,
        };
        let found = tokio::time::timeout(ANSWER, known.get_metadata_opt(DEFINITION));
        let found = found.await.map_err(|_elapsed| {
            let message = "no answer to 'get customresourcedefinitions' within 10 s";
            Fault::new(Class::Transient, Reason::ApiUnavailable, message)
        })?;
        let found = found.map_err(|error| from_kube(request, &error))?;
        Ok(found.is_none_or(|crd| crd.metadata.deletion_timestamp.is_some()))
    }
}

/// So many others are asked at most whether they have something to be tried.
const NEIGHBOURS: usize = 100;
/// After so long a Pod is one that does not come to its end.
const OLD: std::time::Duration = std::time::Duration::from_secs(180);
/// How long a Tenant keeps its turn without a Pod being seen.
const TURN: std::time::Duration = std::time::Duration::from_secs(10);
/// How long an answer may take.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(10);
/// The CRD of Tenants.
const DEFINITION: &str = "tenants.orchestrator.io";

impl Kind for TenantKind {
    type Object = Tenant;
    type Status = TenantStatus;
    type World = TenantWorld;
    type External = NoExternal;
    const RESOURCE: ResourceType = ResourceType::new(GROUP, "v1alpha1", "Tenant", "tenants");
    const FINALIZER: &'static str = "tenants.orchestrator.io/finalizer";

    fn status(object: &Tenant) -> Option<&TenantStatus> {
        object.status.as_ref()
    }

    async fn observe(&self, tenant: &Arc<Tenant>, now: Timestamp) -> Result<TenantWorld, Fault> {
        let caches = &self.caches;
        let uid = tenant.uid().unwrap_or_default();
        let name = namespace_of(&tenant.name_any(), &tenant.spec);
        let children = caches.of(&uid, &name);
        let (foreign_policies, left_policies) = caches.others(&uid, &tenant.name_any(), &name);
        // Those that try connections carry the UID, wherever they are; the others are in the namespace.
        let mut found = caches.pods.find(&in_namespace(&name));
        found.retain(|pod| pod.view.component != PROBE);
        let mut probes = caches.pods.find(&uid);
        probes.retain(|pod| {
            let is_place = [&name, &self.settings.probe_namespace].contains(&&pod.namespace);
            pod.view.component == PROBE && is_place
        });
        let probes = probes
            .iter()
            .map(|pod| (pod.namespace.clone(), pod.view.clone()))
            .collect();
        let pods: Vec<PodView> = found.iter().map(|pod| pod.view.clone()).collect();
        let claims: Vec<ClaimView> = views(&caches.claims, &in_namespace(&name));
        let warned = pods.iter().map(|pod| &pod.uid);
        let warned = warned.chain(claims.iter().map(|claim| &claim.uid));
        let warned = warned.chain(children.iter().map(|(_, child)| &child.uid));
        let warnings = warned
            .flat_map(|uid| caches.warnings.iter().flat_map(|cache| cache.find(uid)))
            .map(|warning| (*warning).clone())
            .collect();
        let key = |namespace: Option<&str>, name: &str| Key {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        let secret = caches.secrets.get(&key(Some(&name), SECRET));
        let server = own(&caches.deployments, &uid, &name);
        let redis = own(&caches.stateful_sets, &uid, &name);
        let workload = |found: &[Arc<Owned<(ChildView, WorkloadView)>>], word: &str| {
            let one = found.iter().find(|one| one.view.0.name == word);
            one.map(|one| one.view.1.clone())
        };
        let mut world = TenantWorld {
            namespace: caches
                .namespaces
                .get(&key(None, &name))
                .map(|namespace| (*namespace).clone()),
            secret: secret.map(|secret| secret.view.clone()),
            fresh_password: password()?,
            server: workload(&server, SERVER),
            redis: workload(&redis, REDIS),
            endpoints: own(&caches.endpoints, &uid, &name)
                .iter()
                .map(|one| one.view.clone())
                .collect(),
            quotas: own(&caches.quotas, &uid, &name)
                .iter()
                .map(|one| one.view.1.clone())
                .collect(),
            children,
            pods,
            claims,
            warnings,
            foreign_policies,
            left_policies,
            outside_policies: Vec::new(),
            probes,
            probing: 0,
            neighbour: None,
            is_definition_going: false,
            settings: self.settings.clone(),
        };
        let is_deleting = tenant.metadata.deletion_timestamp.is_some();
        // By force it is let go whatever becomes of the definition, and if that cannot be asked.
        if is_deleting && !decide::is_forced(tenant) {
            world.is_definition_going = self.is_definition_going().await?;
        } else if !is_deleting && decide::is_proof_due(tenant, &world, now) {
            world.neighbour = self.neighbour(&tenant.name_any());
            world.outside_policies = caches.outside(&self.settings);
            if decide::is_waiting_for_a_turn(tenant, &world, now) {
                world.probing = self.turn(&uid, now);
            }
        }
        Ok(world)
    }

    fn decide(input: &Input<'_, Tenant, TenantWorld>) -> Decision<TenantStatus, NoExternal> {
        decide::decide(input)
    }

    async fn perform(&self, _object: &Tenant, effect: &NoExternal) -> Result<(), Fault> {
        match *effect {}
    }
}

fn views<V: Clone + Send + Sync + 'static>(cache: &Cache<Owned<V>>, word: &str) -> Vec<V> {
    cache
        .find(word)
        .iter()
        .map(|one| one.view.clone())
        .collect()
}

/// 32 hexadecimal digits that nobody can guess.
fn password() -> Result<String, Fault> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::bug(format!("the system gives no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
