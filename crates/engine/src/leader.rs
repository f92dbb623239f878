//! Leader election with a Lease.
//!
//! # Guarantees
//! - Every write of the Lease carries the version that it was decided from, so only one of two
//!   candidates succeeds.
//! - A Lease is expired if its record did not change for its duration *by our own monotonic clock*.
//!   The times in the record come from other machines and are never compared with ours.
//! - A leader that could not renew stops leading at two thirds of the duration. The time counts
//!   from before its last successful request was sent. [`Leadership`] carries the end of that time. So
//!   the guarantee also holds for a process that was frozen and has not noticed.
//! - A shutdown hands over at once: the Lease is released, and candidates watch it.
//!
//! # Caveats
//! Requests in flight when the Lease is lost still arrive. So writes must be
//! harmless when repeated.

use std::{future::pending, pin::pin, time::Duration};

use api::error::chain;
use futures::{Stream, StreamExt};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    cache::version_of, clock::Clock, health::Health, metrics::Metrics, supervise::Shutdown,
};

mod election;
mod leadership;
#[cfg(test)]
mod tests;

pub use election::LeaseTimings;
use election::{ElectionAction, ElectionState, LeaseView};
pub use leadership::{HeldLease, Leadership};

/// Longest wait for the release at a shutdown. After it, the next leader waits for the expiry.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The Lease and the identity of a candidate.
#[derive(Debug, Clone)]
pub struct ElectionConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Identity of this process. It must be unique among all processes that ever compete, including
    /// restarts of the same Pod: a Lease with this holder is taken at once.
    pub identity: String,
    /// The durations of the election.
    pub durations: LeaseTimings,
}

/// The Lease could not be released at the shutdown. Others lead once it has expired.
#[derive(Debug, thiserror::Error)]
#[error(
    "the Lease '{lease}' could not be released, so that the next leader waits until it expires: {cause}"
)]
pub struct NotReleased {
    lease: String,
    cause: String,
}

/// A candidate for leadership.
pub struct Leader {
    leases: Api<Lease>,
    name: String,
    label: String,
    state: ElectionState,
    /// Number of failed requests in a row.
    failures: u32,
    /// Number of lost races since the last wait.
    conflicts: u32,
    /// Whether the response of a write is missing, so that the Lease may be ours.
    is_unsure: bool,
    /// The version of the write that acquired the Lease, if we lead.
    acquired_version: u64,
    /// The Lease, if we lead.
    held: watch::Sender<Option<HeldLease>>,
    clock: Clock,
    metrics: Metrics,
    health: Health,
}

/// Outcome of a request.
enum Answer {
    Found(Option<Lease>),
    Written(Lease),
    /// Another process wrote since our last read.
    Outdated,
    /// It is not known whether the request was carried out.
    Failed(String),
}

impl Leader {
    /// Returns a candidate that does not lead yet. It sets `orchestrator_leader`, and
    /// reports to `health`.
    #[must_use]
    pub fn new(
        client: Client,
        config: ElectionConfig,
        clock: Clock,
        metrics: Metrics,
        health: Health,
    ) -> Self {
        let ElectionConfig {
            namespace,
            name,
            identity,
            durations,
        } = config;
        metrics.leading(false);
        Self {
            leases: Api::namespaced(client, &namespace),
            label: format!("{namespace}/{name}"),
            name,
            state: ElectionState::new(identity, durations, Instant::now()),
            failures: 0,
            conflicts: 0,
            is_unsure: false,
            acquired_version: 0,
            held: watch::Sender::new(None),
            clock,
            metrics,
            health,
        }
    }

    /// Returns the leadership of this process, with notifications of its changes.
    #[must_use]
    pub fn status(&self) -> Leadership {
        Leadership::new(self.held.subscribe())
    }

    /// Competes, leads, and competes again after a loss, until shutdown. Then releases the Lease.
    ///
    /// # Errors
    /// Only if it held the Lease and could not release it. All other failures are logged, counted
    /// as requests, and retried.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), NotReleased> {
        let one = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = pin!(watcher(self.leases.clone(), one).default_backoff());
        let mut listed = None;
        while !shutdown.is_on() {
            let act = self.state.next(Instant::now());
            if !matches!(act, ElectionAction::StepDown(_)) {
                self.announce(self.state.until());
            }
            match act {
                ElectionAction::StepDown(why) => self.step_down(&why),
                ElectionAction::Wait(until) => {
                    self.conflicts = 0;
                    tokio::select! {
                        () = shutdown.wait() => {}
                        () = sleep_until(until) => {}
                        event = next(&mut events) => self.on_watch_event(event, &mut listed),
                    }
                }
                ElectionAction::Read
                | ElectionAction::Create
                | ElectionAction::Take
                | ElectionAction::Renew => {
                    let start = Instant::now();
                    tokio::select! {
                        () = shutdown.wait() => {}
                        answer = self.send_with_timeout(&act) => self.on_answer(&act, answer, start),
                    }
                }
            }
        }
        self.announce(None);
        self.release().await
    }

    async fn send_with_timeout(&mut self, act: &ElectionAction) -> Answer {
        let limit = match self.state.until() {
            Some(until) => until.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        };
        let limit = limit.min(self.state.durations.request);
        match timeout(limit, self.send(act)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Answer::Failed(format!("no answer within {limit:?}")),
        }
    }

    async fn send(&mut self, act: &ElectionAction) -> Answer {
        if *act == ElectionAction::Read {
            return match self.leases.get_opt(&self.name).await {
                Ok(found) => Answer::Found(found),
                Err(error) => Answer::Failed(describe(&error)),
            };
        }
        let mut lease = self.state.claim(MicroTime(self.clock.now()));
        self.is_unsure = true;
        let written = if *act == ElectionAction::Create {
            lease.metadata.name = Some(self.name.clone());
            self.leases.create(&parameters(), &lease).await
        } else {
            self.leases.replace(&self.name, &parameters(), &lease).await
        };
        match written {
            Ok(lease) => Answer::Written(lease),
            // A 404 at a create means that the namespace does not exist.
            Err(error)
                if is_outdated(&error)
                    && (*act != ElectionAction::Create || is_conflict(&error)) =>
            {
                Answer::Outdated
            }
            Err(error) => Answer::Failed(describe(&error)),
        }
    }

    fn on_answer(&mut self, act: &ElectionAction, answer: Answer, start: Instant) {
        let now = Instant::now();
        let durations = self.state.durations;
        match answer {
            Answer::Found(found) => {
                self.state.on_read(found, now);
                self.settled();
            }
            Answer::Written(lease) => {
                if self.state.held.is_none() {
                    self.acquired_version = version_of(&lease.metadata);
                }
                self.state.on_read(Some(lease), now);
                self.state.held = Some(start);
                self.settled();
            }
            Answer::Outdated => {
                self.state.view = LeaseView::Unknown;
                self.settled();
                // One conflict is a lost race. A server that rejects every write must not get
                // requests without a pause.
                if self.conflicts > 0 {
                    self.state.not_before = now + durations.retry;
                }
                self.conflicts += 1;
            }
            Answer::Failed(why) => {
                tracing::warn!(lease = self.label, "{act:?} of the Lease failed: {why}");
                let pause = match self.state.held {
                    Some(_) => durations.retry,
                    None => durations
                        .renew
                        .min(durations.retry * 2_u32.pow(self.failures.min(8))),
                };
                self.failures = self.failures.saturating_add(1);
                self.state.not_before = now + pause;
            }
        }
    }

    /// Records that the outcome of the last write is known.
    fn settled(&mut self) {
        self.is_unsure = false;
        self.failures = 0;
    }

    fn on_watch_event(&mut self, event: watcher::Result<Event<Lease>>, listed: &mut Option<Lease>) {
        let found = match event {
            Ok(Event::Init) => return *listed = None,
            Ok(Event::InitApply(lease)) => return *listed = Some(lease),
            Ok(Event::InitDone) => listed.take(),
            Ok(Event::Apply(lease)) => Some(lease),
            Ok(Event::Delete(_)) => None,
            Err(error) => {
                // Until the watch is back, the expiry triggers a read.
                tracing::warn!(lease = self.label, "the watch of the Lease broke: {error}");
                return self.metrics.watch_error("leases");
            }
        };
        self.state.on_event(found, Instant::now());
    }

    fn step_down(&mut self, why: &str) {
        tracing::warn!(lease = self.label, "lost the Lease: {why}");
        self.announce(None);
        self.state.held = None;
    }

    fn announce(&self, until: Option<Instant>) {
        let (now, is_leading) = (Instant::now(), until.is_some());
        let mut has_changed = false;
        self.held.send_if_modified(|known| {
            let was_over = known.is_none_or(|known| known.until <= now);
            has_changed = known.is_some() != is_leading;
            *known = until.map(|until| HeldLease {
                until,
                acquired_version: self.acquired_version,
            });
            // A reader that asked after the expiry found no leadership, and waits
            // for a notification.
            has_changed || (was_over && is_leading)
        });
        if has_changed {
            self.metrics.leading(is_leading);
            self.health.leading(is_leading);
            let identity = &self.state.identity;
            if is_leading {
                tracing::info!(lease = self.label, identity, "leading");
            } else {
                tracing::info!(lease = self.label, identity, "not leading any more");
            }
        }
    }

    async fn release(mut self) -> Result<(), NotReleased> {
        if self.state.held.is_none() && !self.is_unsure {
            return Ok(());
        }
        if self.is_unsure {
            self.state.view = LeaseView::Unknown;
        }
        let failed = match timeout(RELEASE_TIMEOUT, self.surrender()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => format!("no answer within {RELEASE_TIMEOUT:?}"),
        };
        Err(NotReleased {
            lease: self.label,
            cause: failed,
        })
    }

    /// Repeats until the Lease is not ours. The caller bounds it; each round needs another writer.
    async fn surrender(&mut self) -> kube::Result<()> {
        loop {
            if self.state.view == LeaseView::Unknown {
                let found = self.leases.get_opt(&self.name).await?;
                self.state.on_read(found, Instant::now());
            }
            let Some(lease) = self.state.surrender(MicroTime(self.clock.now())) else {
                return Ok(());
            };
            match self.leases.replace(&self.name, &parameters(), &lease).await {
                Ok(_) => {
                    tracing::info!(lease = self.label, "the Lease is released");
                    return Ok(());
                }
                Err(error) if is_outdated(&error) => self.state.view = LeaseView::Unknown,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the next event. The watch never ends. If it did, the expiry would still trigger a read.
async fn next<E>(events: &mut (impl Stream<Item = E> + Unpin)) -> E {
    match events.next().await {
        Some(event) => event,
        None => pending().await,
    }
}

fn parameters() -> PostParams {
    PostParams {
        field_manager: Some(api::MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Returns whether another process wrote or created the Lease.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Returns whether the Lease changed since our last read, or does not exist any more.
fn is_outdated(error: &kube::Error) -> bool {
    is_conflict(error) || matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        format!("{} ({})", status.message, status.code)
    } else {
        chain(error)
    }
}
