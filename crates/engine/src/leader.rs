//! Leadership by a Lease.
//!
//! # Guarantees
//! - Every write of the Lease names the version that it was decided from: of two candidates, one
//!   wins.
//! - A Lease is expired when its record did not change for its duration *by our own monotonic
//!   clock*; the times in it, written by other machines, are never compared with ours.
//! - A leader that could not renew stops leading at two thirds of the duration, counted from
//!   before its last successful request was sent. [`Leading`] carries that moment, so that this
//!   holds for a process that was frozen, too: it need not have noticed.
//! - A stop hands over at once: the Lease is released, and candidates watch it.
//!
//! # Caveats
//! Requests that are on their way when the Lease is lost arrive. Writes must therefore be harmless
//! when repeated.

use std::{future::pending, pin::pin, time::Duration};

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

use crate::{clock::Clock, fault::words, health::Health, metrics::Metrics, supervise::Shutdown};

mod leading;
mod standing;
#[cfg(test)]
mod tests;

pub use leading::Leading;
pub use standing::Durations;
use standing::{Act, Sight, Standing};

/// A stop waits for the release no longer: the next leader then waits for the expiry.
const RELEASE: Duration = Duration::from_secs(1);

/// Which Lease, and who we are.
#[derive(Debug, Clone)]
pub struct Candidacy {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Unique among all processes that ever compete, restarts of the same Pod included: a Lease
    /// with this holder is taken at once.
    pub identity: String,
    /// The times.
    pub durations: Durations,
}

/// The Lease could not be released at the stop. Others lead once it has expired.
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
    standing: Standing,
    /// Failed requests in a row.
    failures: u32,
    /// Lost races since the last wait.
    conflicts: u32,
    /// A write was sent whose answer never came: the Lease may be ours.
    is_unsure: bool,
    /// Until when we lead, if we do.
    until: watch::Sender<Option<Instant>>,
    clock: Clock,
    metrics: Metrics,
    health: Health,
}

/// How a request ended.
enum Answer {
    Found(Option<Lease>),
    Written(Lease),
    /// Somebody else wrote since we looked.
    Outdated,
    /// It is not known whether it was done.
    Failed(String),
}

impl Leader {
    /// A candidate that does not lead yet. It changes `orchestrator_leader` and tells `health`.
    #[must_use]
    pub fn new(
        client: Client,
        candidacy: Candidacy,
        clock: Clock,
        metrics: Metrics,
        health: Health,
    ) -> Self {
        let Candidacy {
            namespace,
            name,
            identity,
            durations,
        } = candidacy;
        metrics.leading(false);
        Self {
            leases: Api::namespaced(client, &namespace),
            label: format!("{namespace}/{name}"),
            name,
            standing: Standing::new(identity, durations, Instant::now()),
            failures: 0,
            conflicts: 0,
            is_unsure: false,
            until: watch::Sender::new(None),
            clock,
            metrics,
            health,
        }
    }

    /// Whether this process leads now, and news of it.
    #[must_use]
    pub fn status(&self) -> Leading {
        Leading::new(self.until.subscribe())
    }

    /// Competes, leads, and competes again after a loss, until shutdown; then releases the Lease.
    ///
    /// # Errors
    /// Only when it held the Lease and could not release it. All other failures are logged, counted
    /// as requests, and tried again.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), NotReleased> {
        let one = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = pin!(watcher(self.leases.clone(), one).default_backoff());
        let mut listed = None;
        while !shutdown.is_on() {
            let act = self.standing.next(Instant::now());
            if !matches!(act, Act::StepDown(_)) {
                self.announce(self.standing.until());
            }
            match act {
                Act::StepDown(why) => self.step_down(&why),
                Act::Wait(until) => {
                    self.conflicts = 0;
                    tokio::select! {
                        () = shutdown.wait() => {}
                        () = sleep_until(until) => {}
                        event = next(&mut events) => self.hear(event, &mut listed),
                    }
                }
                Act::Look | Act::Create | Act::Take | Act::Renew => {
                    let start = Instant::now();
                    tokio::select! {
                        () = shutdown.wait() => {}
                        answer = self.ask(&act) => self.learn(&act, answer, start),
                    }
                }
            }
        }
        self.announce(None);
        self.release().await
    }

    async fn ask(&mut self, act: &Act) -> Answer {
        let limit = match self.standing.until() {
            Some(until) => until.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        };
        let limit = limit.min(self.standing.durations.request);
        match timeout(limit, self.send(act)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Answer::Failed(format!("no answer within {limit:?}")),
        }
    }

    async fn send(&mut self, act: &Act) -> Answer {
        if *act == Act::Look {
            return match self.leases.get_opt(&self.name).await {
                Ok(found) => Answer::Found(found),
                Err(error) => Answer::Failed(describe(&error)),
            };
        }
        let mut lease = self.standing.claim(MicroTime(self.clock.now()));
        self.is_unsure = true;
        let written = if *act == Act::Create {
            lease.metadata.name = Some(self.name.clone());
            self.leases.create(&parameters(), &lease).await
        } else {
            self.leases.replace(&self.name, &parameters(), &lease).await
        };
        match written {
            Ok(lease) => Answer::Written(lease),
            // A 404 at a create is the namespace's.
            Err(error) if is_outdated(&error) && (*act != Act::Create || is_conflict(&error)) => {
                Answer::Outdated
            }
            Err(error) => Answer::Failed(describe(&error)),
        }
    }

    fn learn(&mut self, act: &Act, answer: Answer, start: Instant) {
        let now = Instant::now();
        let durations = self.standing.durations;
        match answer {
            Answer::Found(found) => {
                self.standing.looked(found, now);
                self.settled();
            }
            Answer::Written(lease) => {
                self.standing.looked(Some(lease), now);
                self.standing.held = Some(start);
                self.settled();
            }
            Answer::Outdated => {
                self.standing.sight = Sight::Unknown;
                self.settled();
                // One is a race that was lost. A server that refuses for ever must not be asked
                // without a pause.
                if self.conflicts > 0 {
                    self.standing.not_before = now + durations.retry;
                }
                self.conflicts += 1;
            }
            Answer::Failed(why) => {
                tracing::warn!(lease = self.label, "{act:?} of the Lease failed: {why}");
                let pause = match self.standing.held {
                    Some(_) => durations.retry,
                    None => durations
                        .renew
                        .min(durations.retry * 2_u32.pow(self.failures.min(8))),
                };
                self.failures = self.failures.saturating_add(1);
                self.standing.not_before = now + pause;
            }
        }
    }

    /// What the last write did is known.
    fn settled(&mut self) {
        self.is_unsure = false;
        self.failures = 0;
    }

    fn hear(&mut self, event: watcher::Result<Event<Lease>>, listed: &mut Option<Lease>) {
        let found = match event {
            Ok(Event::Init) => return *listed = None,
            Ok(Event::InitApply(lease)) => return *listed = Some(lease),
            Ok(Event::InitDone) => listed.take(),
            Ok(Event::Apply(lease)) => Some(lease),
            Ok(Event::Delete(_)) => None,
            Err(error) => {
                // Until the watch is back, the expiry makes us look.
                tracing::warn!(lease = self.label, "the watch of the Lease broke: {error}");
                return self.metrics.watch_error("leases");
            }
        };
        self.standing.heard(found, Instant::now());
    }

    fn step_down(&mut self, why: &str) {
        tracing::warn!(lease = self.label, "lost the Lease: {why}");
        self.announce(None);
        self.standing.held = None;
    }

    fn announce(&self, until: Option<Instant>) {
        let (now, is_leading) = (Instant::now(), until.is_some());
        let mut has_turned = false;
        self.until.send_if_modified(|known| {
            let was_over = known.is_none_or(|known| known <= now);
            has_turned = known.is_some() != is_leading;
            *known = until;
            // Who asked after the time was over found that we do not lead, and waits for news.
            has_turned || (was_over && is_leading)
        });
        if has_turned {
            self.metrics.leading(is_leading);
            self.health.leading(is_leading);
            let identity = &self.standing.identity;
            if is_leading {
                tracing::info!(lease = self.label, identity, "leading");
            } else {
                tracing::info!(lease = self.label, identity, "not leading any more");
            }
        }
    }

    async fn release(mut self) -> Result<(), NotReleased> {
        if self.standing.held.is_none() && !self.is_unsure {
            return Ok(());
        }
        if self.is_unsure {
            self.standing.sight = Sight::Unknown;
        }
        let failed = match timeout(RELEASE, self.surrender()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => describe(&error),
            Err(_elapsed) => format!("no answer within {RELEASE:?}"),
        };
        Err(NotReleased {
            lease: self.label,
            cause: failed,
        })
    }

    /// Until it is not ours. Bounded by its caller; each round needs another writer.
    async fn surrender(&mut self) -> kube::Result<()> {
        loop {
            if self.standing.sight == Sight::Unknown {
                let found = self.leases.get_opt(&self.name).await?;
                self.standing.looked(found, Instant::now());
            }
            let Some(lease) = self.standing.surrender(MicroTime(self.clock.now())) else {
                return Ok(());
            };
            match self.leases.replace(&self.name, &parameters(), &lease).await {
                Ok(_) => {
                    tracing::info!(lease = self.label, "the Lease is released");
                    return Ok(());
                }
                Err(error) if is_outdated(&error) => self.standing.sight = Sight::Unknown,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The watch goes on for ever; if it did not, the expiry would still make us look.
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

/// Somebody else wrote or made it.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// It is not what we looked at, or not there any more.
fn is_outdated(error: &kube::Error) -> bool {
    is_conflict(error) || matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        format!("{} ({})", status.message, status.code)
    } else {
        words(error)
    }
}
