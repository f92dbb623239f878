//! The tenants family on the engine: what is observed, and by which turns.

mod caches;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

use api::{
    GROUP, Reason, Timestamp,
    decide::{Class, Decision, Fault, Input, NoExternal, ResourceType},
    tenants::{Tenant, TenantStatus, namespace_of},
};
use engine::{
    Cache, Context, Controller, Hub, Key, Kind, Scope,
    fault::{Request, from_kube},
    supervise::Supervisor,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt};

use self::caches::{Caches, Owned, all, in_namespace, own, views, words};
use crate::{
    build::{REDIS, SECRET, SERVER, Settings, probe::PROBE},
    decide,
    view::{ChildView, ClaimView, PodView, WorkloadView},
    world::{Address, Neighbour, TenantWorld},
};

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

/// 32 hexadecimal digits that nobody can guess.
fn password() -> Result<String, Fault> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::bug(format!("the system gives no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
