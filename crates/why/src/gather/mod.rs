//! Reads a [`World`] from a cluster.
//!
//! # Guarantees
//! - Only GET and LIST; Secrets and ConfigMaps by their metadata alone.
//! - Each request has a limit and a timeout; the number of requests is bounded (about 60).
//! - A read that is forbidden or fails is an entry of `unreadable`; only the target itself and the
//!   run that it belongs to must be readable.
//!
//! # Caveats
//! The reads are not one snapshot: they are made within a second or so of each other.

mod read;

use std::{fmt, time::Duration};

use api::{
    Reason, Timestamp,
    status::condition,
    tasks::{Agent, DocsRun, TaskRun},
};
use futures::future::join_all;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        coordination::v1::Lease,
        core::v1::{
            ConfigMap, Event, LimitRange, Namespace, Node, PersistentVolumeClaim, Pod,
            ResourceQuota, Secret, ServiceAccount,
        },
        node::v1::RuntimeClass,
        scheduling::v1::PriorityClass,
        storage::v1::{CSIDriver, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};
use serde_json::Value;

use crate::{
    explain::LEASE,
    said,
    world::{
        AgentView, ClaimView, JobView, Known, Meta, NodeView, ObjectRef, OtherView, PodView,
        RunView, Unreadable, World,
    },
};
use read::{Read, Reader};

/// The most objects that are read one by one: Pods of a run, their claims, what an Agent names.
const EACH: usize = 12;

/// What the server answers about a kind that it does not know.
const UNKNOWN_KIND: &[&str] = &["could not find the requested resource", "page not found"];

/// What to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its kind.
    pub kind: TargetKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The kinds that can be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// A run of a task.
    TaskRun,
    /// A run that writes documentation.
    DocsRun,
    /// An Agent.
    Agent,
    /// A Job, of a run or not.
    Job,
    /// A Pod, of a run or not.
    Pod,
}

impl TargetKind {
    /// The name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TaskRun => "TaskRun",
            Self::DocsRun => "DocsRun",
            Self::Agent => "Agent",
            Self::Job => "Job",
            Self::Pod => "Pod",
        }
    }
}

/// How to read.
#[derive(Debug, Clone)]
pub struct Options {
    /// The time that ages are counted to.
    pub now: Timestamp,
    /// The operator's namespace; without it, its Lease is looked for in all.
    pub operator_namespace: Option<String>,
    /// How long one request may take.
    pub timeout: Duration,
}

impl Options {
    /// The usual ones.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self {
            now,
            operator_namespace: None,
            timeout: Duration::from_secs(10),
        }
    }
}

/// Why nothing can be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatherError {
    /// The target does not exist.
    NotFound(ObjectRef),
    /// The cluster does not know the kind: its CRD is not installed.
    NotInstalled(ObjectRef),
    /// The target exists or not: it could not be read.
    Unreadable(Unreadable),
}

impl fmt::Display for GatherError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(object) => write!(
                out,
                "{} '{}' does not exist in namespace '{}'",
                object.kind,
                object.name,
                object.namespace.as_deref().unwrap_or_default()
            ),
            Self::NotInstalled(object) => write!(
                out,
                "this cluster has no {}: Orchestrator's CRDs are not installed",
                object.kind
            ),
            Self::Unreadable(what) if what.forbidden => {
                write!(out, "not allowed to read {}: {}", what.what, what.why)
            }
            Self::Unreadable(what) => write!(out, "cannot read {}: {}", what.what, what.why),
        }
    }
}

impl std::error::Error for GatherError {}

/// Reads what an explanation of the target needs.
///
/// # Errors
/// When the target, or the run that it belongs to, cannot be read.
pub async fn gather(
    client: Client,
    target: Target,
    options: Options,
) -> Result<World, GatherError> {
    let object = ObjectRef::namespaced(target.kind.name(), &target.namespace, &target.name);
    let mut world = World::new(Time(options.now), object.clone());
    let reader = Reader {
        client,
        namespace: target.namespace.clone(),
        timeout: options.timeout,
    };
    match target.kind {
        TargetKind::TaskRun | TargetKind::DocsRun => {
            let run = run(&reader, target.kind.name(), &target.name).await?;
            world.run = Some(run.ok_or(GatherError::NotFound(object))?);
        }
        TargetKind::Agent => {
            let agent = ours::<Agent>(&reader, &target.name).await?;
            world.agent = Some(AgentView::read(
                &agent.ok_or(GatherError::NotFound(object))?,
            ));
        }
        TargetKind::Job => {
            let job = must(reader.get(&reader.here::<Job>(), &target.name).await)?;
            let job = JobView::from(&job.ok_or(GatherError::NotFound(object))?);
            world.run = run_of(&reader, &job.meta).await?;
            world.jobs.push(job);
        }
        TargetKind::Pod => {
            let pod = must(reader.get(&reader.here::<Pod>(), &target.name).await)?;
            let pod = PodView::from(&pod.ok_or(GatherError::NotFound(object))?);
            world.run = run_of_pod(&reader, &pod).await?;
            world.pods.push(pod);
        }
    }
    around(&reader, &mut world, options.operator_namespace.as_deref()).await;
    details(&reader, &mut world).await;
    Ok(world)
}

fn must<T>(read: Read<T>) -> Result<T, GatherError> {
    read.map_err(GatherError::Unreadable)
}

/// An object of ours as JSON: one that does not fit its type is still explained.
async fn ours<K: Resource<DynamicType = ()>>(
    reader: &Reader,
    name: &str,
) -> Result<Option<Value>, GatherError> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(reader.client.clone(), &reader.namespace, &resource);
    let what = format!("{} '{name}'", resource.kind);
    match reader.timed(&what, api.get(name)).await {
        Ok(found) => {
            let metadata = serde_json::to_value(&found.metadata);
            let mut value = found.data;
            if let (Value::Object(fields), Ok(metadata)) = (&mut value, metadata) {
                fields.insert("metadata".to_owned(), metadata);
            }
            Ok(Some(value))
        }
        // The server's words differ for an object and for a kind that it does not know.
        Err(error) if UNKNOWN_KIND.iter().any(|words| error.why.contains(words)) => {
            let object = ObjectRef::namespaced(&resource.kind, &reader.namespace, name);
            Err(GatherError::NotInstalled(object))
        }
        Err(error) if error.why.contains("not found") => Ok(None),
        Err(error) => Err(GatherError::Unreadable(error)),
    }
}

/// A run of this kind; none if there is no such run, or no such kind of run.
async fn run(reader: &Reader, kind: &str, name: &str) -> Result<Option<RunView>, GatherError> {
    Ok(match kind {
        "TaskRun" => ours::<TaskRun>(reader, name)
            .await?
            .map(|run| RunView::read(&run)),
        "DocsRun" => ours::<DocsRun>(reader, name)
            .await?
            .map(|run| RunView::read_docs(&run)),
        _ => None,
    })
}

/// The run of this UID that something names. Where its kind is not installed, there is none.
async fn named(
    reader: &Reader,
    kind: &str,
    name: &str,
    uid: &str,
) -> Result<Option<RunView>, GatherError> {
    match run(reader, kind, name).await {
        Ok(found) => Ok(found.filter(|run| run.meta.uid == uid)),
        Err(GatherError::NotInstalled(_)) => Ok(None),
        Err(error @ (GatherError::NotFound(_) | GatherError::Unreadable(_))) => Err(error),
    }
}

/// The run that a Job belongs to, by the owner's UID.
async fn run_of(reader: &Reader, job: &Meta) -> Result<Option<RunView>, GatherError> {
    match &job.owner {
        Some(owner) => named(reader, &owner.kind, &owner.name, &owner.uid).await,
        None => Ok(None),
    }
}

/// The run that a Pod belongs to: by its Job, or by its label when that is gone.
async fn run_of_pod(reader: &Reader, pod: &PodView) -> Result<Option<RunView>, GatherError> {
    if let Some(owner) = pod.meta.owner.as_ref().filter(|owner| owner.kind == "Job") {
        let job = must(reader.get(&reader.here::<Job>(), &owner.name).await)?;
        let job = job.map(|job| JobView::from(&job));
        if let Some(job) = job.filter(|job| job.meta.uid == owner.uid) {
            return run_of(reader, &job.meta).await;
        }
    }
    let (Some(name), Some(uid)) = (&pod.meta.run_name, &pod.meta.run_uid) else {
        return Ok(None);
    };
    let kind = pod.meta.run_kind.as_deref().unwrap_or("TaskRun");
    named(reader, kind, name, uid).await
}

/// Takes what was read, or notes that it could not be.
fn keep<T>(world: &mut World, read: Read<T>) -> Option<T> {
    match read {
        Ok(found) => Some(found),
        Err(what) => {
            if !world.unreadable.contains(&what) {
                world.unreadable.push(what);
            }
            None
        }
    }
}

/// A list with what is kept of each, and a note if it was cut.
fn keep_list<K, V>(
    world: &mut World,
    what: &str,
    read: Read<(Vec<K>, bool)>,
    view: impl Fn(&K) -> V,
) -> Option<Vec<V>> {
    let (items, more) = keep(world, read)?;
    if more {
        world.cut.push(what.to_owned());
    }
    Some(items.iter().map(view).collect())
}

/// What surrounds the target, all at once.
async fn around(reader: &Reader, world: &mut World, operator: Option<&str>) {
    let uid = world.run.as_ref().map(|run| run.meta.uid.clone());
    let of_run = uid
        .as_ref()
        .map(|uid| ListParams::default().labels(&format!("{}={uid}", api::names::UID)));
    let agent_name = world.run.as_ref().map(|run| run.agent_name.clone());
    let (jobs_api, pods_api) = (reader.here::<Job>(), reader.here::<Pod>());
    let (quotas_api, ranges_api) = (reader.here::<ResourceQuota>(), reader.here::<LimitRange>());
    let namespaces: Api<Namespace> = Api::all(reader.client.clone());
    let leases = match operator {
        Some(namespace) => Api::<Lease>::namespaced(reader.client.clone(), namespace),
        None => Api::all(reader.client.clone()),
    };
    let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let (jobs, pods, quotas, ranges, namespace, leases, agent) = tokio::join!(
        optional(of_run.clone().map(|params| reader.list(&jobs_api, params))),
        optional(of_run.map(|params| reader.list(&pods_api, params))),
        reader.list(&quotas_api, ListParams::default()),
        reader.list(&ranges_api, ListParams::default()),
        reader.get(&namespaces, &reader.namespace),
        reader.list(&leases, named),
        optional(
            agent_name
                .as_deref()
                .map(|name| ours::<Agent>(reader, name))
        ),
    );
    if let Some(jobs) =
        jobs.and_then(|jobs| keep_list(world, "Jobs", jobs, |job| JobView::from(job)))
    {
        world.jobs = jobs;
    }
    if let Some(pods) =
        pods.and_then(|pods| keep_list(world, "Pods", pods, |pod| PodView::from(pod)))
    {
        world.pods = pods;
    }
    world.quotas =
        keep_list(world, "ResourceQuotas", quotas, |quota| quota.into()).unwrap_or_default();
    world.limit_ranges =
        keep_list(world, "LimitRanges", ranges, |range| range.into()).unwrap_or_default();
    world.namespace = keep(world, namespace).and_then(|found| found.map(|found| (&found).into()));
    world.leases = keep_list(world, "Leases", leases, |lease| lease.into());
    match agent {
        Some(Ok(Some(agent))) => world.agent = Some(AgentView::read(&agent)),
        Some(Ok(None)) => {
            let name = agent_name.unwrap_or_default();
            let object = ObjectRef::namespaced("Agent", &reader.namespace, &name);
            world.known.push(known(object, false));
        }
        Some(Err(GatherError::Unreadable(what))) => world.unreadable.push(what),
        Some(Err(GatherError::NotFound(_) | GatherError::NotInstalled(_))) | None => {}
    }
}

async fn optional<T>(read: Option<impl Future<Output = T>>) -> Option<T> {
    match read {
        Some(read) => Some(read.await),
        None => None,
    }
}

fn known(object: ObjectRef, exists: bool) -> Known {
    Known {
        object,
        exists,
        provisioner: None,
    }
}

/// What depends on what was found: Events, claims, nodes, and things that are only named.
async fn details(reader: &Reader, world: &mut World) {
    let claims: Vec<String> = world
        .pods
        .iter()
        .flat_map(|pod| pod.claims.clone())
        .take(EACH)
        .collect();
    let claims_api = reader.here::<PersistentVolumeClaim>();
    let found = join_all(claims.iter().map(|name| reader.get(&claims_api, name))).await;
    for (name, read) in claims.iter().zip(found) {
        match keep(world, read) {
            Some(Some(claim)) => world.claims.push(ClaimView::from(&claim)),
            Some(None) => {
                let object =
                    ObjectRef::namespaced("PersistentVolumeClaim", &reader.namespace, name);
                world.known.push(known(object, false));
            }
            None => {}
        }
    }
    events(reader, world).await;
    nodes(reader, world).await;
    needs(reader, world).await;
    classes(reader, world).await;
    others(reader, world).await;
}

/// Events about each object by its UID: those of the newest Jobs and Pods.
async fn events(reader: &Reader, world: &mut World) {
    let run = world.run.iter().map(|run| &run.meta);
    let newest = |mut all: Vec<Meta>| {
        all.sort_by_key(|meta| std::cmp::Reverse(meta.created.clone()));
        all.into_iter().take(EACH / 3).map(|meta| meta.uid)
    };
    let mut uids: Vec<String> = run.map(|meta| meta.uid.clone()).collect();
    uids.extend(newest(
        world.jobs.iter().map(|job| job.meta.clone()).collect(),
    ));
    uids.extend(newest(
        world.pods.iter().map(|pod| pod.meta.clone()).collect(),
    ));
    uids.extend(newest(
        world
            .claims
            .iter()
            .map(|claim| claim.meta.clone())
            .collect(),
    ));
    uids.retain(|uid| !uid.is_empty());
    let api = reader.here::<Event>();
    let reads = uids.iter().map(|uid| {
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        reader.list(&api, params)
    });
    for read in join_all(reads).await {
        let found = keep_list(world, "Events", read, |event| event.into());
        world.events.extend(found.unwrap_or_default());
    }
}

/// The nodes of the Pods; all of them, up to a bound, if a Pod has no place.
async fn nodes(reader: &Reader, world: &mut World) {
    let api: Api<Node> = Api::all(reader.client.clone());
    let keys: Vec<String> = world
        .pods
        .iter()
        .flat_map(|pod| pod.node_selector.keys().cloned())
        .collect();
    let unplaced = |pod: &PodView| {
        pod.node.is_none()
            && pod
                .conditions
                .iter()
                .any(|known| known.kind == "PodScheduled" && known.status == "False")
    };
    if world.pods.iter().any(unplaced) {
        let read = reader.list(&api, ListParams::default()).await;
        let found = keep_list(world, "Nodes", read, |node| NodeView::read(node, &keys));
        world.nodes = found.unwrap_or_default();
        return;
    }
    let mut names: Vec<String> = world
        .pods
        .iter()
        .filter_map(|pod| pod.node.clone())
        .collect();
    names.sort();
    names.dedup();
    names.truncate(EACH);
    let reads = join_all(names.iter().map(|name| reader.get(&api, name))).await;
    for (name, read) in names.iter().zip(reads) {
        match keep(world, read) {
            Some(Some(node)) => world.nodes.push(NodeView::read(&node, &keys)),
            Some(None) => world
                .known
                .push(known(ObjectRef::cluster("Node", name), false)),
            None => {}
        }
    }
}

/// Whether what the Agent and the Pods name exists, and the run's own files.
async fn needs(reader: &Reader, world: &mut World) {
    let agents = world.agent.iter().flat_map(|agent| &agent.needs);
    let pods = world.pods.iter().flat_map(|pod| &pod.needs);
    let mut things: Vec<(String, String)> = agents
        .chain(pods)
        .map(|need| (need.kind.clone(), need.name.clone()))
        .collect();
    let files = world
        .run
        .as_ref()
        .and_then(|run| run.status.config_map_name.clone());
    things.extend(files.map(|name| ("ConfigMap".to_owned(), name)));
    let docs = world.run.as_ref().and_then(|run| run.docs.as_ref());
    let secret = docs.and_then(|docs| docs.secret.clone());
    things.extend(secret.map(|name| ("Secret".to_owned(), name)));
    things.sort();
    things.dedup();
    things.retain(|(kind, _)| kind != "StorageClass");
    things.truncate(2 * EACH);
    let reads = things.iter().map(|(kind, name)| async move {
        let client = || reader.client.clone();
        match kind.as_str() {
            "Secret" => reader.exists(&reader.here::<Secret>(), name).await,
            "ConfigMap" => reader.exists(&reader.here::<ConfigMap>(), name).await,
            "ServiceAccount" => reader.exists(&reader.here::<ServiceAccount>(), name).await,
            "RuntimeClass" => {
                reader
                    .exists(&Api::<RuntimeClass>::all(client()), name)
                    .await
            }
            _ => {
                reader
                    .exists(&Api::<PriorityClass>::all(client()), name)
                    .await
            }
        }
    });
    for ((kind, name), read) in things.iter().zip(join_all(reads).await) {
        let object = match kind.as_str() {
            "RuntimeClass" | "PriorityClass" => ObjectRef::cluster(kind, name),
            _ => ObjectRef::namespaced(kind, &reader.namespace, name),
        };
        if let Some(exists) = keep(world, read) {
            world.known.push(known(object, exists));
        }
    }
}

/// The storage classes of the claims and of the Agent, and whether their drivers are there.
async fn classes(reader: &Reader, world: &mut World) {
    let of_claims = world.claims.iter().filter_map(|claim| claim.class.clone());
    let needs = world.agent.iter().flat_map(|agent| &agent.needs);
    let of_agent = needs
        .filter(|need| need.kind == "StorageClass")
        .map(|need| need.name.clone());
    let mut names: Vec<String> = of_claims.chain(of_agent).collect();
    names.sort();
    names.dedup();
    names.truncate(EACH);
    let api: Api<StorageClass> = Api::all(reader.client.clone());
    let drivers: Api<CSIDriver> = Api::all(reader.client.clone());
    for name in names {
        let read = reader.get(&api, &name).await;
        let Some(found) = keep(world, read) else {
            continue;
        };
        let provisioner = found.map(|class| class.provisioner);
        world.known.push(Known {
            object: ObjectRef::cluster("StorageClass", &name),
            exists: provisioner.is_some(),
            provisioner: provisioner.clone(),
        });
        // Those within Kubernetes have no driver object.
        let outside = provisioner.filter(|driver| !driver.starts_with("kubernetes.io/"));
        if let Some(driver) = outside {
            let read = reader.exists(&drivers, &driver).await;
            if let Some(exists) = keep(world, read) {
                world
                    .known
                    .push(known(ObjectRef::cluster("CSIDriver", &driver), exists));
            }
        }
    }
}

/// The object that stands where a child should be, if the status says that one does.
async fn others(reader: &Reader, world: &mut World) {
    let Some(progress) = world.run.as_ref().map(|run| run.status.progress.clone()) else {
        return;
    };
    let condition = progress.condition(condition::SUCCEEDED);
    if condition.is_none_or(|said| said.reason != Reason::ChildNameTaken.name()) {
        return;
    }
    let message = progress.message.unwrap_or_default();
    let Some((kind, name)) = said::taken(&message) else {
        return;
    };
    let what = format!("{kind} '{name}'");
    let meta = match kind {
        "Job" => {
            let api = reader.here::<Job>();
            let read = reader.timed(&what, api.get_metadata_opt(name)).await;
            keep(world, read).map(|found| found.map(|found| found.metadata))
        }
        "ConfigMap" => {
            let api = reader.here::<ConfigMap>();
            let read = reader.timed(&what, api.get_metadata_opt(name)).await;
            keep(world, read).map(|found| found.map(|found| found.metadata))
        }
        _ => None,
    };
    match meta {
        Some(Some(meta)) => world.others.push(OtherView {
            kind: kind.to_owned(),
            meta: Meta::from(&meta),
        }),
        Some(None) => {
            let object = ObjectRef::namespaced(kind, &reader.namespace, name);
            world.known.push(known(object, false));
        }
        None => {}
    }
}
