//! Runs the tenants operator on the engine: observes Tenants, and limits concurrent isolation checks.

mod caches;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

use api::{
    GROUP, Reason, Timestamp,
    decide::{Decision, ErrorClass, Input, ReconcileError, ResourceType},
    tenants::{Tenant, TenantSpec, TenantStatus, namespace_of},
};
use engine::{
    Cache, Context, Controller, Key, Kind, Scope, WatchManager,
    children::{Child, in_namespace, with_uid},
    fault::{Request, from_kube},
    supervise::Supervisor,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt};

use self::caches::{Caches, TENANT, all, tenant_index_keys, views};
use crate::{
    build::{REDIS, SECRET, SERVER, Settings, probe::PROBE},
    decide,
    view::{ChildView, ClaimView, PodView, WorkloadView},
    world::{Address, Neighbour, TenantWorld},
};

/// Starts the watches and the controller of the operator.
pub fn start(context: Context, settings: Settings, supervisor: &mut Supervisor) {
    let (client, metrics, health) = (
        context.client.clone(),
        context.metrics.clone(),
        context.health.clone(),
    );
    let mut watches = WatchManager::new(client, metrics, health, Scope::All);
    let tenants = watches.cluster(
        (GROUP, "tenants"),
        all(|tenant: Tenant| tenant, tenant_index_keys),
    );
    let caches = Caches::watch(&mut watches);
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
    let probe_namespace = settings.probe_namespace.clone();
    let kind = TenantKind {
        client: context.client.clone(),
        tenants: tenants.clone(),
        names,
        caches: caches.clone(),
        settings,
        slots: Mutex::default(),
    };
    let controller = Controller::new(kind, tenants.clone(), context);
    caches.connect(&probe_namespace, &tenants, &controller.handle());
    let started = watches.start(supervisor);
    let shutdown = supervisor.shutdown();
    supervisor.spawn("Tenants", controller.run(started, shutdown));
}

/// Implementation of [`Kind`] for Tenants.
struct TenantKind {
    client: Client,
    tenants: Cache<Tenant>,
    /// Names of all Tenants, sorted.
    names: Arc<Mutex<BTreeSet<String>>>,
    caches: Caches,
    settings: Settings,
    /// UIDs of Tenants with an isolation check, and how long each counts without an observed probe Pod.
    slots: Mutex<BTreeMap<String, Timestamp>>,
}

impl TenantKind {
    /// Returns the number of other Tenants with a running isolation check. Reserves a slot for this Tenant
    /// if the limit is not reached.
    ///
    /// Several Tenants are reconciled at the same time, before any of their probe Pods is observed.
    fn reserve_slot(&self, uid: &str, now: Timestamp) -> usize {
        let probes = self.caches.pods.by_index(PROBE);
        // Count only the probe Pods in the operator's namespace. An owner can label Pods in the Tenant's
        // namespace at will.
        let mut owners: BTreeSet<String> = probes
            .iter()
            .filter(|pod| pod.namespace == self.settings.probe_namespace)
            .filter(|pod| {
                // An abandoned Pod occupies no slot.
                let is_old = pod.view.created.is_none_or(|at| at + OLD < now);
                !pod.view.phase.is_over() && !is_old
            })
            .map(|pod| pod.owner_uid.clone())
            .collect();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|_, until| *until > now);
        owners.extend(slots.keys().cloned());
        owners.remove(uid);
        if owners.len() < decide::MAX_CONCURRENT_CHECKS {
            let until = now.saturating_add(SLOT_TTL).unwrap_or(Timestamp::MAX);
            slots.insert(uid.to_owned(), until);
        }
        owners.len()
    }

    /// Returns another Tenant with a ready component. It is the next one by name, so that some Tenant
    /// probes each Tenant.
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
            let namespace_name = namespace_of(&key.name, &tenant.spec);
            // A Tenant may request a namespace that another Tenant owns.
            let namespace = self.caches.namespaces.get(&Key {
                namespace: None,
                name: namespace_name.clone(),
            })?;
            if tenant.metadata.deletion_timestamp.is_some() || namespace.owner_uid != tenant.uid() {
                return None;
            }
            let pods = self.caches.pods.by_index(&in_namespace(&namespace_name));
            let addresses = Address::all(&tenant.spec, pods.iter().map(|pod| &pod.view));
            (!addresses.is_empty()).then(|| Neighbour {
                name: key.name,
                spec: tenant.spec.clone(),
                addresses,
            })
        })
    }

    /// Returns whether the CRD of Tenants is being deleted. Reads the API server directly, because a cache
    /// may lag: the CRD's deletion starts before the deletion of any Tenant.
    async fn is_crd_deleting(&self) -> Result<bool, ReconcileError> {
        let known: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let request = Request {
            verb: "get",
            resource: "customresourcedefinitions",
            name: CRD_NAME,
        };
        let found = tokio::time::timeout(CRD_TIMEOUT, known.get_metadata_opt(CRD_NAME));
        let found = found.await.map_err(|_elapsed| {
            let message = "no answer to 'get customresourcedefinitions' within 10 s";
            ReconcileError::new(ErrorClass::Transient, Reason::ApiUnavailable, message)
        })?;
        let found = found.map_err(|error| from_kube(request, &error))?;
        Ok(found.is_none_or(|crd| crd.metadata.deletion_timestamp.is_some()))
    }
}

/// Maximum number of other Tenants that are checked for a ready component.
const NEIGHBOURS: usize = 100;
/// Age after which an unfinished probe Pod counts as abandoned.
const OLD: std::time::Duration = std::time::Duration::from_secs(180);
/// How long a Tenant keeps its slot without an observed probe Pod.
const SLOT_TTL: std::time::Duration = std::time::Duration::from_secs(10);
/// Timeout of the request for the CRD.
const CRD_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// Name of the CRD of Tenants.
const CRD_NAME: &str = "tenants.orchestrator.io";

impl Kind for TenantKind {
    type Object = Tenant;
    type Status = TenantStatus;
    type World = TenantWorld;
    const RESOURCE: ResourceType = api::tenants::TENANT.resource;
    const FINALIZER: &'static str = "tenants.orchestrator.io/finalizer";

    fn status(object: &Tenant) -> Option<&TenantStatus> {
        object.status.as_ref()
    }

    fn phase_spec(object: &Tenant) -> &TenantSpec {
        &object.spec
    }

    async fn observe(
        &self,
        tenant: &Arc<Tenant>,
        now: Timestamp,
    ) -> Result<TenantWorld, ReconcileError> {
        let caches = &self.caches;
        let uid = tenant.uid().unwrap_or_default();
        let name = namespace_of(&tenant.name_any(), &tenant.spec);
        let children = caches.of(&uid, &name);
        let (foreign_policies, retained_policies) = caches.others(&uid, &tenant.name_any(), &name);
        // Probe Pods are found by the Tenant's UID in both namespaces. The other Pods are found by
        // namespace.
        let mut found = caches.pods.by_index(&in_namespace(&name));
        found.retain(|pod| pod.view.component != PROBE);
        let outside = &self.settings.probe_namespace;
        let mut probes = caches.pods.children(TENANT, &name, &uid);
        if *outside != name {
            probes.extend(caches.pods.children(TENANT, outside, &uid));
        }
        probes.retain(|pod| pod.view.component == PROBE);
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
            .map(|uid| with_uid(&name, uid))
            .flat_map(|index_key| {
                let all = caches.warnings.iter();
                all.flat_map(move |cache| cache.by_index(&index_key))
            })
            .map(|warning| (*warning).clone())
            .collect();
        let key = |namespace: Option<&str>, name: &str| Key {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        let secret = caches.secrets.get(&key(Some(&name), SECRET));
        let server = caches.deployments.children(TENANT, &name, &uid);
        let redis = caches.stateful_sets.children(TENANT, &name, &uid);
        let workload = |found: &[Arc<Child<(ChildView, WorkloadView)>>], name: &str| {
            let one = found.iter().find(|one| one.view.0.name == name);
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
            endpoints: caches
                .endpoints
                .children(TENANT, &name, &uid)
                .iter()
                .map(|one| one.view.clone())
                .collect(),
            quotas: caches
                .quotas
                .children(TENANT, &name, &uid)
                .iter()
                .map(|one| one.view.1.clone())
                .collect(),
            children,
            pods,
            claims,
            warnings,
            foreign_policies,
            retained_policies,
            outside_policies: Vec::new(),
            probes,
            probing: 0,
            neighbour: None,
            is_definition_going: false,
            settings: self.settings.clone(),
        };
        let is_deleting = tenant.metadata.deletion_timestamp.is_some();
        // A forced deletion releases the Tenant regardless of the CRD, even if reading the CRD fails.
        if is_deleting && !decide::is_forced(tenant) {
            world.is_definition_going = self.is_crd_deleting().await?;
        } else if !is_deleting && decide::is_proof_due(tenant, &world, now) {
            world.neighbour = self.neighbour(&tenant.name_any());
            world.outside_policies = caches.outside(&self.settings);
            if decide::is_waiting_for_a_turn(tenant, &world, now) {
                world.probing = self.reserve_slot(&uid, now);
            }
        }
        Ok(world)
    }

    fn decide(input: &Input<'_, Tenant, TenantWorld>) -> Decision<TenantStatus> {
        decide::decide(input)
    }
}

/// Generates a random password of 32 hexadecimal digits.
fn password() -> Result<String, ReconcileError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        ReconcileError::bug(format!("the system gives no random numbers: {error}"))
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
