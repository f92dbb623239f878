//! Reads a [`World`] from a cluster.
//!
//! # Guarantees
//! - Only GET and LIST. Of Secrets and ConfigMaps, only the metadata is read.
//! - Each request has a limit and a timeout, and the number of requests is bounded (about 60).
//! - A read that is forbidden or fails becomes an entry in `unreadable`. Only the target itself and
//!   the run or Tenant that it belongs to must be readable.
//!
//! # Caveats
//! The reads are not one snapshot. They happen within a second or so of each other.

mod details;
mod read;
mod tenant;

use std::{fmt, time::Duration};

use api::{
    Timestamp,
    kinds::{self, KindRow, OperatorRow},
    tasks::{AGENT, DOCS_RUN, TASK_RUN},
    tenants::TENANT,
};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        coordination::v1::Lease,
        core::v1::{LimitRange, Namespace, Pod, ResourceQuota},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};
use serde_json::Value;

use crate::world::{
    AgentView, JobView, Known, Meta, ObjectRef, ObjectView, PodView, RunView, TenantView,
    Unreadable, World,
};
use read::{Read, Reader};

/// Maximum number of objects that are read one by one: Pods of a run, their claims, objects that an
/// Agent references.
const EACH: usize = 12;

/// The server's messages about an unknown kind.
const UNKNOWN_KIND: &[&str] = &["could not find the requested resource", "page not found"];

/// The object to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The object's kind.
    pub kind: TargetKind,
    /// The object's namespace. It is ignored for a Tenant, which is cluster-scoped.
    pub namespace: String,
    /// The object's name.
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
    /// A Tenant.
    Tenant,
    /// A Job, whether it belongs to a run or not.
    Job,
    /// A Pod of a run, of a Tenant, or of neither.
    Pod,
    /// A kind of ours without rules of its own.
    Other(&'static KindRow),
}

impl TargetKind {
    /// Parses a name of a kind, as users write it.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "job" | "jobs" | "job.batch" | "jobs.batch" => Some(Self::Job),
            "pod" | "pods" | "po" => Some(Self::Pod),
            word => {
                let row = kinds::all().find(|row| row.has_name(word))?;
                let known = [Self::TaskRun, Self::DocsRun, Self::Agent, Self::Tenant];
                let mut known = known.into_iter();
                let known = known.find(|kind| kind.row() == Some(row));
                Some(known.unwrap_or(Self::Other(row)))
            }
        }
    }

    /// Returns the row of the kind, if it is one of ours.
    #[must_use]
    pub fn row(self) -> Option<&'static KindRow> {
        match self {
            Self::TaskRun => Some(&TASK_RUN),
            Self::DocsRun => Some(&DOCS_RUN),
            Self::Agent => Some(&AGENT),
            Self::Tenant => Some(&TENANT),
            Self::Other(row) => Some(row),
            Self::Job | Self::Pod => None,
        }
    }

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TaskRun => TASK_RUN.name(),
            Self::DocsRun => DOCS_RUN.name(),
            Self::Agent => AGENT.name(),
            Self::Tenant => TENANT.name(),
            Self::Other(row) => row.name(),
            Self::Job => "Job",
            Self::Pod => "Pod",
        }
    }
}

/// Options for reading.
#[derive(Debug, Clone)]
pub struct Options {
    /// The current time, from which ages are calculated.
    pub now: Timestamp,
    /// The operator's namespace. Default: the Lease is searched in all namespaces.
    pub operator_namespace: Option<String>,
    /// Timeout of one request.
    pub timeout: Duration,
}

impl Options {
    /// Returns the default options.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self {
            now,
            operator_namespace: None,
            timeout: Duration::from_secs(10),
        }
    }
}

/// The reason why nothing can be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatherError {
    /// The target does not exist.
    NotFound(ObjectRef),
    /// The cluster does not know the kind, because its CRD is not installed.
    NotInstalled(ObjectRef),
    /// The target could not be read, so it is unknown whether it exists.
    Unreadable(Unreadable),
}

impl fmt::Display for GatherError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(object) => {
                let ObjectRef { kind, name, .. } = object;
                match &object.namespace {
                    Some(namespace) => {
                        write!(
                            out,
                            "{kind} '{name}' does not exist in namespace '{namespace}'"
                        )
                    }
                    None => write!(out, "{kind} '{name}' does not exist"),
                }
            }
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

/// Reads the objects that an explanation of the target needs.
///
/// # Errors
/// The target, or the run or Tenant that it belongs to, cannot be read.
pub async fn gather(
    client: Client,
    target: Target,
    options: Options,
) -> Result<World, GatherError> {
    let is_cluster_scoped = target.kind.row().is_some_and(|row| !row.is_namespaced);
    let object = if is_cluster_scoped {
        ObjectRef::cluster(target.kind.name(), &target.name)
    } else {
        ObjectRef::namespaced(target.kind.name(), &target.namespace, &target.name)
    };
    let mut world = World::new(Time(options.now), object.clone());
    let mut reader = Reader {
        client,
        namespace: target.namespace.clone(),
        timeout: options.timeout,
    };
    let operator = options.operator_namespace.as_deref();
    match target.kind {
        TargetKind::TaskRun | TargetKind::DocsRun => {
            let run = run(&reader, target.kind.name(), &target.name).await?;
            world.run = Some(run.ok_or(GatherError::NotFound(object))?);
        }
        TargetKind::Agent => {
            let agent = ours(&reader, &AGENT, &target.name).await?;
            world.agent = Some(AgentView::read(
                &agent.ok_or(GatherError::NotFound(object))?,
            ));
        }
        TargetKind::Tenant => {
            let tenant = ours(&reader, &TENANT, &target.name).await?;
            let tenant = TenantView::read(&tenant.ok_or(GatherError::NotFound(object))?);
            reader.namespace.clone_from(&tenant.namespace);
            world.tenant = Some(tenant);
        }
        TargetKind::Other(row) => {
            let found = ours(&reader, row, &target.name).await?;
            let found = found.ok_or(GatherError::NotFound(object))?;
            world.object = Some(ObjectView::read(row.name(), &found));
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
            match tenant_of_pod(&reader, &pod).await? {
                Some(tenant) => {
                    reader.namespace.clone_from(&tenant.namespace);
                    world.tenant = Some(tenant);
                }
                None => world.run = run_of_pod(&reader, &pod).await?,
            }
            world.pods.push(pod);
        }
    }
    if world.tenant.is_some() {
        Box::pin(tenant::around(&reader, &mut world, operator)).await;
    } else {
        Box::pin(around(&reader, &mut world, operator)).await;
    }
    Box::pin(details::details(&reader, &mut world)).await;
    Ok(world)
}

fn must<T>(read: Read<T>) -> Result<T, GatherError> {
    read.map_err(GatherError::Unreadable)
}

/// Reads an object of our own kinds as JSON. So an object that does not match its type can still be
/// explained.
async fn ours(reader: &Reader, row: &KindRow, name: &str) -> Result<Option<Value>, GatherError> {
    let resource = ApiResource {
        group: row.resource.group.to_owned(),
        version: row.resource.version.to_owned(),
        api_version: row.resource.api_version(),
        kind: row.name().to_owned(),
        plural: row.resource.plural.to_owned(),
    };
    let api: Api<DynamicObject> = if row.is_namespaced {
        Api::namespaced_with(reader.client.clone(), &reader.namespace, &resource)
    } else {
        Api::all_with(reader.client.clone(), &resource)
    };
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
        // The server sends different messages for a missing object and for an unknown kind.
        Err(error) if UNKNOWN_KIND.iter().any(|words| error.why.contains(words)) => Err(
            GatherError::NotInstalled(ObjectRef::cluster(&resource.kind, name)),
        ),
        Err(error) if error.why.contains("not found") => Ok(None),
        Err(error) => Err(GatherError::Unreadable(error)),
    }
}

/// Returns the Tenant that a Pod belongs to, by name and UID. After a Tenant of the same name has
/// adopted a retained namespace, the Pods that kept running carry no UID. Such a Pod belongs to the
/// Tenant if it is in the Tenant's namespace.
async fn tenant_of_pod(reader: &Reader, pod: &PodView) -> Result<Option<TenantView>, GatherError> {
    if pod.meta.run_kind.as_deref() != Some("Tenant") {
        return Ok(None);
    }
    let name = pod.meta.run_name.as_deref().unwrap_or_default();
    let found = match ours(reader, &TENANT, name).await {
        Ok(found) => found.map(|tenant| TenantView::read(&tenant)),
        Err(GatherError::NotInstalled(_)) => None,
        Err(error @ (GatherError::NotFound(_) | GatherError::Unreadable(_))) => return Err(error),
    };
    let is_of = |tenant: &TenantView| match pod.meta.run_uid.as_deref() {
        Some(uid) => uid == api::names::label_value(&tenant.meta.uid),
        None => pod.meta.namespace == tenant.namespace,
    };
    Ok(found.filter(is_of))
}

/// Reads a run of this kind. Returns `None` if the run does not exist, or if the kind is not a kind
/// of run.
async fn run(reader: &Reader, kind: &str, name: &str) -> Result<Option<RunView>, GatherError> {
    Ok(if kind == TASK_RUN.name() {
        let run = ours(reader, &TASK_RUN, name).await?;
        run.map(|run| RunView::read(&run))
    } else if kind == DOCS_RUN.name() {
        let run = ours(reader, &DOCS_RUN, name).await?;
        run.map(|run| RunView::read_docs(&run))
    } else {
        None
    })
}

/// Reads the run with this name and UID. Returns `None` if its kind is not installed.
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

/// Returns the run that a Job belongs to, by the owner's UID.
async fn run_of(reader: &Reader, job: &Meta) -> Result<Option<RunView>, GatherError> {
    match &job.owner {
        Some(owner) => named(reader, &owner.kind, &owner.name, &owner.uid).await,
        None => Ok(None),
    }
}

/// Returns the run that a Pod belongs to: by its Job, or by its labels if the Job no longer exists.
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

/// Returns the result of a read, or records that it failed.
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

/// Converts the items of a list, and records if the list is incomplete.
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

/// Reads the objects around the target concurrently.
async fn around(reader: &Reader, world: &mut World, operator: Option<&str>) {
    let uid = world.run.as_ref().map(|run| run.meta.uid.clone());
    let of_run = uid
        .as_ref()
        .map(|uid| ListParams::default().labels(&format!("{}={uid}", api::names::UID)));
    let agent_name = world.run.as_ref().map(|run| run.agent_name.clone());
    let (jobs_api, pods_api) = (reader.here::<Job>(), reader.here::<Pod>());
    let (quotas_api, ranges_api) = (reader.here::<ResourceQuota>(), reader.here::<LimitRange>());
    let namespaces: Api<Namespace> = Api::all(reader.client.clone());
    let leases = leases_in(reader, operator);
    let named = leases_of(world.operator());
    let (jobs, pods, quotas, ranges, namespace, leases, agent) = tokio::join!(
        optional(of_run.clone().map(|params| reader.list(&jobs_api, params))),
        optional(of_run.map(|params| reader.list(&pods_api, params))),
        reader.list(&quotas_api, ListParams::default()),
        reader.list(&ranges_api, ListParams::default()),
        reader.get(&namespaces, &reader.namespace),
        reader.list(&leases, named),
        optional(agent_name.as_deref().map(|name| ours(reader, &AGENT, name))),
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

/// Returns the API for the operator's Leases: in its namespace, or in all namespaces.
fn leases_in(reader: &Reader, operator: Option<&str>) -> Api<Lease> {
    match operator {
        Some(namespace) => Api::namespaced(reader.client.clone(), namespace),
        None => Api::all(reader.client.clone()),
    }
}

fn leases_of(operator: &OperatorRow) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={}", operator.lease))
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
