//! Questions to Git servers, beside the passes: a pass never waits for one.
//!
//! `observe` leaves a question and finds the answer at a later pass, which the answer wakes. So a
//! server that is slow, or that a thousand runs name, holds up nobody but its own runs: each host
//! has few of the questions that are under way at once.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{
    Reason, Timestamp,
    decide::Class,
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
use tokio::{
    sync::mpsc,
    task::{Id, JoinSet},
    time::timeout,
};

use crate::{
    run::docs::{Answer, Heads, Purpose, Question, RESOURCE, Settings},
    time,
};

/// The most questions under way at once, and of those to one host, and of one namespace: names of
/// hosts are free to whoever has a domain.
const AT_ONCE: usize = 32;
const PER_HOST: usize = 4;
const PER_NAMESPACE: usize = 8;
/// The most that wait for their turn. More are asked again by a later pass.
const WAITING: usize = 10_000;
/// How long a server has for all of an answer.
const LIMIT: Duration = Duration::from_secs(20);
/// How long the API server has for the Secret.
const SECRET_LIMIT: Duration = Duration::from_secs(10);
/// How long after a failure it is asked again: doubled each time, up to the second.
const AGAIN: Duration = Duration::from_secs(5);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// What passes see of the questions: they leave one, and find its answer.
#[derive(Debug, Clone)]
pub(crate) struct Lookups {
    known: Known,
    wanted: mpsc::Sender<Wanted>,
    settings: Arc<Settings>,
}

type Known = Arc<Mutex<HashMap<String, Entry>>>;

#[derive(Debug)]
struct Entry {
    question: Question,
    is_asked: bool,
    answer: Option<Answer>,
    failures: u32,
}

/// A question on its way.
#[derive(Debug)]
struct Wanted {
    key: Key,
    uid: String,
    url: String,
    secret: Option<NamedRef>,
    question: Question,
}

/// What works on the questions.
pub(crate) struct Desk {
    client: Client,
    clock: Clock,
    metrics: Metrics,
    lookups: Lookups,
    incoming: mpsc::Receiver<Wanted>,
}

/// A place for questions, and who answers them.
pub(crate) fn open(
    client: Client,
    clock: Clock,
    metrics: Metrics,
    settings: Settings,
) -> (Lookups, Desk) {
    let (wanted, incoming) = mpsc::channel(WAITING);
    let lookups = Lookups {
        known: Known::default(),
        wanted,
        settings: Arc::new(settings),
    };
    let desk = Desk {
        client,
        clock,
        metrics,
        lookups: lookups.clone(),
        incoming,
    };
    (lookups, desk)
}

impl Lookups {
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The answer to this question, if there is one by now; leaves the question otherwise, and again
    /// when the answer's time is over.
    pub(crate) fn ask(
        &self,
        run: &DocsRun,
        question: Option<Question>,
        now: Timestamp,
    ) -> Option<Answer> {
        let uid = run.uid().unwrap_or_default();
        let mut known = lock(&self.known);
        let Some(question) = question else {
            known.remove(&uid);
            return None;
        };
        let entry = known
            .entry(uid.clone())
            .and_modify(|entry| {
                if entry.question != question {
                    *entry = Entry::new(question.clone());
                }
            })
            .or_insert_with(|| Entry::new(question.clone()));
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
                question,
            };
            match self.wanted.try_send(wanted) {
                Ok(()) => entry.is_asked = true,
                Err(error) => tracing::warn!("a question to a Git server has to wait: {error}"),
            }
        }
        let mut answer = entry.answer.clone()?;
        if is_due {
            // The old words stay until there are new ones.
            answer.next_at = time::after(now, LIMIT.saturating_mul(2));
            answer.is_fresh = false;
        }
        Some(answer)
    }

    /// The run is gone.
    pub(crate) fn forget(&self, run: &DocsRun) {
        lock(&self.known).remove(run.uid().unwrap_or_default().as_str());
    }

    fn store(&self, wanted: &Wanted, heads: Result<Heads, (Reason, String)>, now: Timestamp) {
        let mut known = lock(&self.known);
        let Some(entry) = known.get_mut(&wanted.uid) else {
            return;
        };
        if entry.question != wanted.question {
            return;
        }
        entry.failures = match heads {
            Ok(_) => 0,
            Err(_) => entry.failures.saturating_add(1),
        };
        let doublings = entry.failures.saturating_sub(1).min(8);
        let wait = AGAIN
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(AGAIN_MAX);
        entry.is_asked = false;
        let since = entry.answer.as_ref().map_or(now, |first| first.since);
        entry.answer = Some(Answer {
            heads,
            since,
            next_at: time::after(now, wait),
            is_fresh: true,
        });
    }
}

impl Entry {
    fn new(question: Question) -> Self {
        Self {
            question,
            is_asked: false,
            answer: None,
            failures: 0,
        }
    }
}

/// Whoever panicked with it left whole entries.
fn lock(known: &Known) -> MutexGuard<'_, HashMap<String, Entry>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The questions of one desk: those that wait, and those that are under way.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Wanted>,
    under_way: HashMap<Id, Wanted>,
}

impl Line {
    /// The next one whose host and namespace have room.
    fn next(&mut self) -> Option<Wanted> {
        if self.under_way.len() >= AT_ONCE {
            return None;
        }
        let (mut hosts, mut namespaces) = (HashMap::new(), HashMap::new());
        for wanted in self.under_way.values() {
            *hosts.entry(host(&wanted.url)).or_insert(0_usize) += 1;
            *namespaces.entry(&wanted.key.namespace).or_insert(0_usize) += 1;
        }
        let has_room = |wanted: &Wanted| {
            let of_host = hosts.get(&host(&wanted.url)).copied().unwrap_or(0);
            let of_namespace = namespaces.get(&wanted.key.namespace).copied();
            of_host < PER_HOST && of_namespace.unwrap_or(0) < PER_NAMESPACE
        };
        let index = self.waiting.iter().position(has_room)?;
        self.waiting.remove(index)
    }
}

/// The host and port of a URL: only to tell servers apart.
fn host(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or(rest);
    place.rsplit('@').next().unwrap_or(place).to_lowercase()
}

impl Desk {
    /// Answers until it is time to stop.
    pub(crate) async fn run(
        mut self,
        handle: Handle,
        shutdown: Shutdown,
    ) -> Result<(), Infallible> {
        let mut line = Line::default();
        let mut tasks = JoinSet::new();
        loop {
            while let Some(wanted) = line.next() {
                let (client, settings) = (self.client.clone(), self.lookups.settings.clone());
                let (url, namespace) = (wanted.url.clone(), wanted.key.namespace.clone());
                let (secret, branches) = (wanted.secret.clone(), wanted.question.branches.clone());
                let task = tasks.spawn(async move {
                    let credentials = data(&client, namespace.as_deref(), secret.as_ref()).await?;
                    heads(&settings, &url, &credentials, branches).await
                });
                line.under_way.insert(task.id(), wanted);
            }
            let has_room = line.waiting.len() < WAITING;
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                Some(wanted) = self.incoming.recv(), if has_room => line.waiting.push_back(wanted),
                Some(ended) = tasks.join_next_with_id() => {
                    let (id, heads) = match ended {
                        Ok((id, heads)) => (id, heads),
                        Err(error) => {
                            let message = format!("the question ended badly: {error}");
                            (error.id(), Err((Reason::InternalError, message)))
                        }
                    };
                    if let Some(wanted) = line.under_way.remove(&id) {
                        self.tell(&wanted, &heads);
                        self.lookups.store(&wanted, heads, self.clock.now());
                        handle.touch(&wanted.key);
                    }
                }
            }
        }
    }

    fn tell(&self, wanted: &Wanted, heads: &Result<Heads, (Reason, String)>) {
        let object = wanted.key.to_string();
        let purpose = match &wanted.question.purpose {
            Purpose::Resolve => "resolve",
            Purpose::Verify(_) => "verify",
        };
        match heads {
            Ok(heads) => tracing::info!(object, purpose, ?heads, "the Git server answered"),
            Err((reason, message)) => {
                let class = if *reason == Reason::InternalError {
                    Class::Bug
                } else {
                    Class::Transient
                };
                self.metrics.error(RESOURCE.kind, class.name());
                tracing::warn!(object, purpose, %reason, "the Git server was not read: {message}");
            }
        }
    }
}

type SecretData = BTreeMap<String, Vec<u8>>;

/// What the Secret holds; nothing if none is named.
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
        // The error quotes what it cannot read.
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
                time::words(SECRET_LIMIT)
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
    let refused = |error: &dyn std::fmt::Display| (Reason::AddressRefused, error.to_string());
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
