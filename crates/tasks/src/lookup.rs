//! Asynchronous queries to Git servers: a reconciliation never waits for one.
//!
//! `observe` enqueues a query. The response triggers a later reconciliation, which reads it. A slow
//! server, or one that a thousand runs reference, delays only its own runs: each host gets only a
//! few of the concurrent queries, and namespaces take turns.

mod queue;

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{
    Reason, Timestamp,
    decide::ErrorClass,
    tasks::{DocsRun, NamedRef},
};
use engine::{
    Handle, Key,
    clock::Clock,
    fault::{Request, from_kube},
    metrics::Metrics,
    supervise::Shutdown,
};
use git::{Credentials, Networks, Scheme, Url, remote};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tokio::{sync::Notify, task::JoinSet, time::timeout};

use self::queue::{FairQueue, Limits, Place};
use crate::{
    run::docs::{
        Heads, LookupLoad, LsRemoteRequest, LsRemoteResponse, Purpose, QUERY_TIME, RESOURCE,
        Settings,
    },
    time,
};

/// Maximum numbers of queries. A later reconciliation repeats a query that did not fit.
const LIMITS: Limits = Limits {
    in_flight: 32,
    per_host: 4,
    per_namespace: 8,
    waiting: 1000,
};
/// Timeout for the complete response of a Git server.
const LIMIT: Duration = Duration::from_secs(20);
/// Timeout for reading the Secret from the API server.
const SECRET_LIMIT: Duration = Duration::from_secs(10);
// A deadline leaves time for one query. Otherwise, a run could fail although the response to its query is still to come.
const _: () = assert!(LIMIT.as_secs() + SECRET_LIMIT.as_secs() <= QUERY_TIME.as_secs());
/// Delay before a failed query is repeated. It doubles with each failure, up to `RETRY_MAX`.
const RETRY_INITIAL: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Handle through which reconciliations enqueue queries and read responses.
#[derive(Debug, Clone)]
pub(crate) struct GitLookups {
    known: Known,
    queue: Arc<Mutex<FairQueue<Wanted>>>,
    /// Wakes the worker when a query was queued.
    queued: Arc<Notify>,
    settings: Arc<Settings>,
}

type Known = Arc<Mutex<HashMap<String, Entry>>>;

#[derive(Debug)]
struct Entry {
    request: LsRemoteRequest,
    is_asked: bool,
    /// Whether the query is no longer in the queue, and has no response yet.
    is_in_flight: bool,
    answer: Option<LsRemoteResponse>,
    failures: u32,
}

/// A query that is queued or in progress.
#[derive(Debug)]
struct Wanted {
    key: Key,
    uid: String,
    url: String,
    secret: Option<NamedRef>,
    request: LsRemoteRequest,
}

/// Worker that executes the queries.
pub(crate) struct GitLookupWorker {
    client: Client,
    clock: Clock,
    metrics: Metrics,
    lookups: GitLookups,
}

/// Creates the handle for queries, and the worker that executes them.
pub(crate) fn new(
    client: Client,
    clock: Clock,
    metrics: Metrics,
    settings: Settings,
) -> (GitLookups, GitLookupWorker) {
    let lookups = GitLookups::new(LIMITS, settings);
    let worker = GitLookupWorker {
        client,
        clock,
        metrics,
        lookups: lookups.clone(),
    };
    (lookups, worker)
}

impl GitLookups {
    fn new(limits: Limits, settings: Settings) -> Self {
        Self {
            known: Known::default(),
            queue: Arc::new(Mutex::new(FairQueue::new(limits))),
            queued: Arc::default(),
            settings: Arc::new(settings),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the response to this query, if one exists. Enqueues the query if there is no
    /// response yet, or if the response has expired.
    pub(crate) fn ask(
        &self,
        run: &DocsRun,
        request: Option<LsRemoteRequest>,
        now: Timestamp,
    ) -> Option<LsRemoteResponse> {
        let uid = run.uid().unwrap_or_default();
        let mut known = lock(&self.known);
        let Some(request) = request else {
            known.remove(&uid);
            return None;
        };
        let entry = known
            .entry(uid.clone())
            .and_modify(|entry| {
                if entry.request != request {
                    *entry = Entry::new(request.clone());
                }
            })
            .or_insert_with(|| Entry::new(request.clone()));
        let is_due = entry.answer.as_ref().is_none_or(|old| now >= old.next_at);
        if is_due && !entry.is_asked {
            let wanted = Wanted {
                key: Key {
                    namespace: run.namespace(),
                    name: run.name_any(),
                },
                uid,
                url: run.spec.repository_url.clone(),
                secret: run.spec.credentials_secret_ref.clone(),
                request,
            };
            entry.is_asked = self.enqueue(wanted);
        }
        let mut answer = entry.answer.clone()?;
        if is_due {
            // Keep the old response until a new one arrives.
            answer.next_at = time::after(now, LIMIT.saturating_mul(2));
            answer.is_fresh = false;
        }
        Some(answer)
    }

    /// Queues a query. Returns whether its namespace has room for it.
    fn enqueue(&self, wanted: Wanted) -> bool {
        let place = Place {
            namespace: wanted.key.namespace.clone().unwrap_or_default(),
            host: host(&wanted.url),
        };
        let object = wanted.key.to_string();
        let has_room = lock(&self.queue).push(place, wanted);
        if has_room {
            self.queued.notify_one();
        } else {
            tracing::debug!(object, "too many queries of its namespace wait");
        }
        has_room
    }

    /// Removes the next query from the queue. A query that no run waits for any more is dropped.
    fn start_next(&self) -> Option<(Place, Wanted)> {
        loop {
            // `ask` locks the queue while it holds the map, so the two are locked one after the other here.
            let (place, wanted) = lock(&self.queue).start_next()?;
            let mut known = lock(&self.known);
            let entry = known.get_mut(&wanted.uid);
            if let Some(entry) = entry.filter(|entry| entry.request == wanted.request) {
                entry.is_in_flight = true;
                return Some((place, wanted));
            }
            drop(known);
            lock(&self.queue).finish(&place);
        }
    }

    /// Returns the numbers of queries, for a message about this run.
    pub(crate) fn load(&self, run: &DocsRun) -> LookupLoad {
        let uid = run.uid().unwrap_or_default();
        let is_own_in_flight = lock(&self.known)
            .get(&uid)
            .is_some_and(|entry| entry.is_in_flight);
        let namespace = run.namespace().unwrap_or_default();
        LookupLoad {
            is_own_in_flight,
            ..lock(&self.queue).load(&namespace)
        }
    }

    /// Drops the query and the response of a deleted run.
    pub(crate) fn forget(&self, run: &DocsRun) {
        lock(&self.known).remove(run.uid().unwrap_or_default().as_str());
    }

    fn store(&self, wanted: &Wanted, heads: Result<Heads, (Reason, String)>, now: Timestamp) {
        let mut known = lock(&self.known);
        let Some(entry) = known.get_mut(&wanted.uid) else {
            return;
        };
        if entry.request != wanted.request {
            return;
        }
        entry.failures = match heads {
            Ok(_) => 0,
            Err(_) => entry.failures.saturating_add(1),
        };
        let doublings = entry.failures.saturating_sub(1).min(8);
        let wait = RETRY_INITIAL
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(RETRY_MAX);
        entry.is_asked = false;
        entry.is_in_flight = false;
        let since = entry.answer.as_ref().map_or(now, |first| first.since);
        entry.answer = Some(LsRemoteResponse {
            heads,
            since,
            next_at: time::after(now, wait),
            is_fresh: true,
        });
    }
}

impl Entry {
    fn new(request: LsRemoteRequest) -> Self {
        Self {
            request,
            is_asked: false,
            is_in_flight: false,
            answer: None,
            failures: 0,
        }
    }
}

/// Locks the map or the queue. After a panic the lock is still usable: all entries are complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns host and port of a URL, only to distinguish servers. The default ports of all schemes are left out: a host
/// that serves https and ssh is one server, and would otherwise get the limit of two. An invalid URL reaches no server;
/// it counts by itself.
fn host(url: &str) -> String {
    // Whether plain http is allowed does not matter here.
    match Url::parse(url, true) {
        Ok(url) if matches!(url.port(), 22 | 80 | 443) => url.host().to_owned(),
        // The brackets separate the port from an IPv6 address.
        Ok(url) => format!("[{}]:{}", url.host(), url.port()),
        Err(_invalid) => url.to_lowercase(),
    }
}

impl GitLookupWorker {
    /// Executes queries until shutdown.
    pub(crate) async fn run(self, handle: Handle, shutdown: Shutdown) -> Result<(), Infallible> {
        let mut in_flight = HashMap::new();
        let mut tasks = JoinSet::new();
        loop {
            while let Some((place, wanted)) = self.lookups.start_next() {
                let (client, settings) = (self.client.clone(), self.lookups.settings.clone());
                let (url, namespace) = (wanted.url.clone(), wanted.key.namespace.clone());
                let (secret, branches) = (wanted.secret.clone(), wanted.request.branches.clone());
                let task = tasks.spawn(async move {
                    let credentials = data(&client, namespace.as_deref(), secret.as_ref()).await?;
                    heads(&settings, &url, &credentials, branches).await
                });
                in_flight.insert(task.id(), (place, wanted));
            }
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                () = self.lookups.queued.notified() => {}
                Some(ended) = tasks.join_next_with_id() => {
                    let (id, heads) = match ended {
                        Ok((id, heads)) => (id, heads),
                        Err(error) => {
                            let message = format!("the question ended badly: {error}");
                            (error.id(), Err((Reason::InternalError, message)))
                        }
                    };
                    if let Some((place, wanted)) = in_flight.remove(&id) {
                        lock(&self.lookups.queue).finish(&place);
                        self.log_response(&wanted, &heads);
                        self.lookups.store(&wanted, heads, self.clock.now());
                        handle.enqueue(&wanted.key);
                    }
                }
            }
        }
    }

    fn log_response(&self, wanted: &Wanted, heads: &Result<Heads, (Reason, String)>) {
        let object = wanted.key.to_string();
        let purpose = match &wanted.request.purpose {
            Purpose::Resolve => "resolve",
            Purpose::Verify(_) => "verify",
        };
        match heads {
            Ok(heads) => tracing::info!(object, purpose, ?heads, "the Git server answered"),
            Err((reason, message)) => {
                let class = if *reason == Reason::InternalError {
                    ErrorClass::Bug
                } else {
                    ErrorClass::Transient
                };
                self.metrics.error(RESOURCE.kind, class.name());
                tracing::warn!(object, purpose, %reason, "the Git server was not read: {message}");
            }
        }
    }
}

type SecretData = BTreeMap<String, Vec<u8>>;

/// Reads the data of the Secret. Returns an empty map if no Secret is referenced.
async fn data(
    client: &Client,
    namespace: Option<&str>,
    secret: Option<&NamedRef>,
) -> Result<SecretData, (Reason, String)> {
    let Some(NamedRef { name }) = secret else {
        return Ok(SecretData::new());
    };
    let namespace = namespace.unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let what = format!("Secret '{name}' in namespace '{namespace}'");
    match timeout(SECRET_LIMIT, secrets.get_opt(name)).await {
        Ok(Ok(Some(secret))) => match secret.data.filter(|data| !data.is_empty()) {
            Some(data) => Ok(data
                .into_iter()
                .map(|(key, value)| (key, value.0))
                .collect()),
            None => Err((Reason::CredentialsInvalid, format!("{what} is empty"))),
        },
        Ok(Ok(None)) => Err((
            Reason::SecretNotFound,
            format!("{what} does not exist; create it with the credentials for the repository"),
        )),
        // The error quotes the content that it cannot parse, so the message must not contain it.
        Ok(Err(kube::Error::SerdeError(_))) => Err((
            Reason::ApiUnavailable,
            format!("the API server's answer about {what} cannot be read"),
        )),
        Ok(Err(error)) => {
            let request = Request {
                verb: "get",
                resource: "secrets",
                name,
            };
            let fault = from_kube(request, &error);
            Err((fault.reason, fault.message))
        }
        Err(_too_late) => Err((
            Reason::ApiUnavailable,
            format!(
                "{what} could not be read within {}",
                time::format_duration(SECRET_LIMIT)
            ),
        )),
    }
}

async fn heads(
    settings: &Settings,
    url: &str,
    data: &SecretData,
    branches: Vec<String>,
) -> Result<Heads, (Reason, String)> {
    let refused = |error: &dyn std::fmt::Display| (Reason::AddressNotAllowed, error.to_string());
    let url = Url::parse(url, settings.plain_http).map_err(|error| refused(&error))?;
    let networks = Networks::parse(&settings.allowed_networks).map_err(|error| refused(&error))?;
    let credentials = credentials(url.scheme(), data)?;
    let question = remote::Question {
        url,
        credentials,
        networks,
        branches,
        timeout: LIMIT,
    };
    let heads = remote::heads(&question).await.map_err(|error| {
        let reason =
            Reason::from_name(error.reason.as_str()).unwrap_or(Reason::RepositoryUnreachable);
        (reason, error.message)
    })?;
    Ok(heads
        .into_iter()
        .map(|(branch, head)| (branch, head.map(|commit| commit.to_string())))
        .collect())
}

fn credentials(scheme: Scheme, data: &SecretData) -> Result<Credentials, (Reason, String)> {
    Credentials::from_data(scheme, data)
        .map_err(|error| (Reason::CredentialsInvalid, error.to_string()))
}

#[cfg(test)]
mod tests;
