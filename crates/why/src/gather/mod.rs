//! Reads a [`World`] from a cluster.
//!
//! # Guarantees
//! - Only GET and LIST. Of Secrets and ConfigMaps, only the metadata is read.
//! - Each request has a limit and a timeout, and the number of requests is bounded (about 65).
//! - A read that is forbidden or fails becomes an entry in `unreadable`. Only the target itself and
//!   the run or Tenant that it belongs to must be readable.
//!
//! # Caveats
//! The reads are not one snapshot. They happen within a second or so of each other.

mod app;
mod details;
mod installation;
mod notebook;
mod read;
mod request;
mod tenant;

use std::{fmt, time::Duration};

use api::{
    Timestamp,
    apps::{MANAGED_APP, ROLLBACK_REQUEST, UPGRADE_REQUEST},
    kinds::{self, KindRow, OperatorRow},
    names,
    notebooks::NOTEBOOK_VALIDATION_JOB,
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
use kube::{Api, Client, api::ListParams};
use serde_json::Value;

use crate::world::{
    AgentView, AppView, JobView, Meta, NotebookView, ObjectRef, ObjectView, PodView, RequestView,
    RunView, TenantView, Unreadable, World,
};
use read::{List, Read, Reader};

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
    /// A ManagedApp.
    ManagedApp,
    /// A NotebookValidationJob.
    Notebook,
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
                let known = [
                    Self::TaskRun,
                    Self::DocsRun,
                    Self::Agent,
                    Self::Tenant,
                    Self::ManagedApp,
                    Self::Notebook,
                ];
                let known = known.into_iter().find(|kind| kind.row() == Some(row));
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
            Self::ManagedApp => Some(&MANAGED_APP),
            Self::Notebook => Some(&NOTEBOOK_VALIDATION_JOB),
            Self::Other(row) => Some(row),
            Self::Job | Self::Pod => None,
        }
    }

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        let built_in = if self == Self::Job { "Job" } else { "Pod" };
        self.row().map_or(built_in, KindRow::name)
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
        let text = one_of! { self;
            Self::NotFound(ObjectRef { kind, name, namespace: Some(within) }) => "{kind} '{name}' does not exist in namespace '{within}'";
            Self::NotFound(ObjectRef { kind, name, namespace: None }) => "{kind} '{name}' does not exist";
            Self::NotInstalled(ObjectRef { kind, .. }) => "this cluster has no {kind}: Orchestrator's CRDs are not installed";
            Self::Unreadable(Unreadable { what, why, forbidden: true }) => "not allowed to read {what}: {why}";
            Self::Unreadable(Unreadable { what, why, forbidden: false }) => "cannot read {what}: {why}";
        };
        out.write_str(&text)
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
    let kind = target.kind.name();
    let mut reader = Reader {
        client,
        namespace: target.namespace.clone(),
        timeout: options.timeout,
    };
    let is_here = target.kind.row().is_none_or(|row| row.is_namespaced);
    let object = match is_here {
        true => ObjectRef::namespaced(kind, &target.namespace, &target.name),
        false => ObjectRef::cluster(kind, &target.name),
    };
    let mut world = World::new(Time(options.now), object.clone());
    let missing = || GatherError::NotFound(object);
    match target.kind {
        TargetKind::TaskRun | TargetKind::DocsRun => {
            let run = run(&reader, kind, &target.name).await?;
            world.run = Some(run.ok_or_else(missing)?);
        }
        TargetKind::Agent => {
            let agent = ours(&reader, kind, &target.name).await?;
            world.agent = Some(AgentView::read(&agent.ok_or_else(missing)?));
        }
        TargetKind::Tenant => {
            let tenant = ours(&reader, kind, &target.name).await?;
            world.tenant = Some(TenantView::read(&tenant.ok_or_else(missing)?));
        }
        TargetKind::ManagedApp => {
            let app = ours(&reader, kind, &target.name).await?;
            world.app = Some(AppView::read(&app.ok_or_else(missing)?));
        }
        TargetKind::Notebook => {
            let job = ours(&reader, kind, &target.name).await?;
            world.notebook = Some(NotebookView::read(&job.ok_or_else(missing)?));
        }
        TargetKind::Other(row) => {
            let found = ours(&reader, kind, &target.name).await?;
            let found = found.ok_or_else(missing)?;
            if [UPGRADE_REQUEST, ROLLBACK_REQUEST].contains(row) {
                world.request = Some(RequestView::read(kind, &found));
            } else {
                world.object = Some(ObjectView::read(kind, &found));
            }
        }
        TargetKind::Job => {
            let job = reader.get(reader.here::<Job>(), &target.name).await;
            let job = JobView::from(&must(job)?.ok_or_else(missing)?);
            world.run = run_of(&reader, &job.meta).await?;
            world.notebook = notebook_of(&reader, &job.meta).await?;
            world.jobs.push(job);
        }
        TargetKind::Pod => {
            let pod = reader.get(reader.here::<Pod>(), &target.name).await;
            let pod = PodView::from(&must(pod)?.ok_or_else(missing)?);
            world.tenant = tenant_of_pod(&reader, &pod).await?;
            if world.tenant.is_none() {
                world.run = run_of_pod(&reader, &pod).await?;
                world.notebook = notebook_of(&reader, &pod.meta).await?;
            }
            world.pods.push(pod);
        }
    }
    let operator = options.operator_namespace.as_deref();
    if let Some(tenant) = &world.tenant {
        reader.namespace.clone_from(&tenant.namespace);
        Box::pin(tenant::around(&reader, &mut world, operator)).await;
    } else if world.request.is_some() {
        Box::pin(request::around(&mut reader, &mut world, operator)).await;
    } else if world.app.is_some() {
        Box::pin(app::around(&mut reader, &mut world, operator)).await;
    } else if world.notebook.is_some() {
        Box::pin(notebook::around(&reader, &mut world, operator)).await;
    } else {
        Box::pin(around(&reader, &mut world, operator)).await;
    }
    Box::pin(details::details(&reader, &mut world)).await;
    Box::pin(installation::installation(&reader, &mut world, operator)).await;
    Ok(world)
}

fn must<T>(read: Read<T>) -> Result<T, GatherError> {
    read.map_err(GatherError::Unreadable)
}

/// Reads an object of our own kinds as JSON. So an object that does not match its type can still be
/// explained. Returns `None` if it does not exist, or if the kind is not one of ours.
async fn ours(reader: &Reader, kind: &str, name: &str) -> Result<Option<Value>, GatherError> {
    let Some((api, _)) = reader.kind(kind, name) else {
        return Ok(None);
    };
    match reader
        .timed(&format!("{kind} '{name}'"), api.get(name))
        .await
    {
        Ok(found) => {
            let metadata = serde_json::to_value(&found.metadata);
            let mut value = found.data;
            if let (Value::Object(fields), Ok(metadata)) = (&mut value, metadata) {
                fields.insert("metadata".to_owned(), metadata);
            }
            Ok(Some(value))
        }
        // The message may contain that a role was not found. That is no evidence about the object.
        Err(error) if error.forbidden => Err(GatherError::Unreadable(error)),
        // The server sends different messages for a missing object and for an unknown kind.
        Err(error) if UNKNOWN_KIND.iter().any(|words| error.why.contains(words)) => {
            Err(GatherError::NotInstalled(ObjectRef::cluster(kind, name)))
        }
        Err(error) if error.why.contains("not found") => Ok(None),
        Err(error) => Err(GatherError::Unreadable(error)),
    }
}

/// Returns `None` for an object of a kind that is not installed.
fn installed<T>(read: Result<Option<T>, GatherError>) -> Result<Option<T>, GatherError> {
    match read {
        Err(GatherError::NotInstalled(_)) => Ok(None),
        Ok(_) | Err(GatherError::NotFound(_) | GatherError::Unreadable(_)) => read,
    }
}

/// Returns the Tenant that a Pod belongs to, by name and UID. After a Tenant of the same name has
/// adopted a retained namespace, the Pods that kept running carry no UID. Such a Pod belongs to the
/// Tenant if it is in the Tenant's namespace.
async fn tenant_of_pod(reader: &Reader, pod: &PodView) -> Result<Option<TenantView>, GatherError> {
    if pod.meta.run_kind.as_deref() != Some(TENANT.name()) {
        return Ok(None);
    }
    let name = pod.meta.run_name.as_deref().unwrap_or_default();
    let found = installed(ours(reader, TENANT.name(), name).await)?;
    let is_of = |tenant: &TenantView| match &pod.meta.run_uid {
        Some(uid) => *uid == names::label_value(&tenant.meta.uid),
        None => pod.meta.namespace == tenant.namespace,
    };
    Ok(found.map(|tenant| TenantView::read(&tenant)).filter(is_of))
}

/// Reads a run of this kind. Returns `None` if the run does not exist, or if the kind is not a kind
/// of run.
async fn run(reader: &Reader, kind: &str, name: &str) -> Result<Option<RunView>, GatherError> {
    let read: fn(&Value) -> RunView = if kind == TASK_RUN.name() {
        RunView::read
    } else if kind == DOCS_RUN.name() {
        RunView::read_docs
    } else {
        return Ok(None);
    };
    let found = ours(reader, kind, name).await?;
    Ok(found.map(|run| read(&run)))
}

/// Reads the run with this name and UID. Returns `None` if its kind is not installed.
async fn named(
    reader: &Reader,
    kind: &str,
    name: &str,
    uid: &str,
) -> Result<Option<RunView>, GatherError> {
    let found = installed(run(reader, kind, name).await)?;
    Ok(found.filter(|run| run.meta.uid == uid))
}

/// Returns the run that a Job belongs to, by the owner's UID.
async fn run_of(reader: &Reader, job: &Meta) -> Result<Option<RunView>, GatherError> {
    match &job.owner {
        Some(owner) => named(reader, &owner.kind, &owner.name, &owner.uid).await,
        None => Ok(None),
    }
}

/// Returns the NotebookValidationJob of a Job or a Pod, by the name and the UID in its labels.
async fn notebook_of(reader: &Reader, child: &Meta) -> Result<Option<NotebookView>, GatherError> {
    let kind = NOTEBOOK_VALIDATION_JOB.name();
    if child.run_kind.as_deref() != Some(kind) {
        return Ok(None);
    }
    let name = child.run_name.as_deref().unwrap_or_default();
    let found = installed(ours(reader, kind, name).await)?;
    let is_of = |job: &NotebookView| {
        let uid = names::label_value(&job.meta.uid);
        child.run_uid.as_ref() == Some(&uid)
    };
    Ok(found.map(|job| NotebookView::read(&job)).filter(is_of))
}

/// Returns the run that a Pod belongs to: by its Job, or by its labels if the Job no longer exists.
async fn run_of_pod(reader: &Reader, pod: &PodView) -> Result<Option<RunView>, GatherError> {
    if let Some(owner) = pod.meta.owner.as_ref().filter(|owner| owner.kind == "Job") {
        let job = must(reader.get(reader.here::<Job>(), &owner.name).await)?;
        let job = job.map(|job| JobView::from(&job));
        if let Some(job) = job.filter(|job| job.meta.uid == owner.uid) {
            return run_of(reader, &job.meta).await;
        }
    }
    let (Some(name), Some(uid)) = (&pod.meta.run_name, &pod.meta.run_uid) else {
        return Ok(None);
    };
    let kind = pod.meta.run_kind.as_deref().unwrap_or(TASK_RUN.name());
    named(reader, kind, name, uid).await
}

/// Reads the objects around the target concurrently.
async fn around(reader: &Reader, world: &mut World, operator: Option<&str>) {
    let run = world.run.as_ref();
    let labels = run.map(|run| format!("{}={}", names::UID, run.meta.uid));
    let of_run = labels.map(|labels| ListParams::default().labels(&labels));
    let agent = run.map(|run| run.agent_name.clone());
    let all = ListParams::default;
    let (jobs, pods, quotas, ranges, namespace, leases, agent) = tokio::join!(
        optional(
            of_run
                .clone()
                .map(|of| reader.list(reader.here::<Job>(), of))
        ),
        optional(of_run.map(|of| reader.list(reader.here::<Pod>(), of))),
        reader.list(reader.here::<ResourceQuota>(), all()),
        reader.list(reader.here::<LimitRange>(), all()),
        reader.get(reader.all::<Namespace>(), &reader.namespace),
        leases(reader, operator, world.operator_row()),
        optional(
            agent
                .as_deref()
                .map(|name| ours(reader, AGENT.name(), name))
        ),
    );
    if let Some(jobs) = jobs.and_then(|jobs| world.keep_list("Jobs", jobs)) {
        world.jobs = jobs;
    }
    if let Some(pods) = pods.and_then(|pods| world.keep_list("Pods", pods)) {
        world.pods = pods;
    }
    world.keep_limits(quotas, ranges);
    let namespace = world.keep(namespace).flatten();
    world.namespace = namespace.map(|found| (&found).into());
    world.leases = world.keep_list("Leases", leases);
    let name = world.run.as_ref().map(|run| run.agent_name.clone());
    match agent {
        Some(Ok(Some(agent))) => world.agent = Some(AgentView::read(&agent)),
        Some(Ok(None)) => {
            let name = name.unwrap_or_default();
            world.know(
                ObjectRef::namespaced(AGENT.name(), &reader.namespace, &name),
                false,
            );
        }
        Some(Err(GatherError::Unreadable(what))) => world.unreadable.push(what),
        Some(Err(GatherError::NotFound(_) | GatherError::NotInstalled(_))) | None => {}
    }
}

/// Reads the operator's Leases in its namespace, or in all namespaces.
async fn leases(reader: &Reader, operator: Option<&str>, of: &OperatorRow) -> List<Lease> {
    let api: Api<Lease> = match operator {
        Some(namespace) => Api::namespaced(reader.client.clone(), namespace),
        None => reader.all(),
    };
    let named = format!("metadata.name={}", of.lease);
    reader.list(api, ListParams::default().fields(&named)).await
}

async fn optional<T>(read: Option<impl Future<Output = T>>) -> Option<T> {
    match read {
        Some(read) => Some(read.await),
        None => None,
    }
}
