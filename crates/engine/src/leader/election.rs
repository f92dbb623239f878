//! The decisions of an election: the known state of the Lease, and the next action.

use std::time::Duration;

use api::names;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use tokio::time::Instant;

/// The durations of an election, in a proportion that keeps two processes from leading at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimings {
    /// Time without a renewal after which another candidate may take the Lease.
    pub(super) lease: Duration,
    /// Interval of the leader's renewals.
    pub(super) renew: Duration,
    /// Time without a renewal after which the leader stops, well before another may take over.
    pub(super) give_up: Duration,
    /// Timeout of one request.
    pub(super) request: Duration,
    /// Pause after a failed request. It is longer, at most `renew`, while not leading.
    pub(super) retry: Duration,
}

/// Longest timeout of a request, however long the Lease is.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

impl Default for LeaseTimings {
    /// Returns 15 s for the Lease, with a renewal every 5 s.
    fn default() -> Self {
        Self::of(Duration::from_secs(15), Duration::from_secs(5))
    }
}

impl LeaseTimings {
    /// Returns the durations that follow from the two configurable ones. A leader gives up
    /// after two thirds of the Lease. So at least two requests fit between the time of a
    /// renewal and that moment.
    ///
    /// # Errors
    /// If a renewal that failed once could not be repeated in time.
    pub fn new(lease: Duration, renew: Duration) -> Result<Self, String> {
        if !(1..=3600).contains(&lease.as_secs()) || lease.subsec_nanos() != 0 {
            return Err(format!(
                "a Lease lasts a whole number of seconds, 1 to 3600; found {lease:?}"
            ));
        }
        if renew < Duration::from_millis(100) || renew * 3 > lease {
            return Err(format!(
                "a Lease of {lease:?} is renewed at most every {:?} (a third of it), \
                 and at least every 100 ms apart; found {renew:?}",
                lease / 3
            ));
        }
        Ok(Self::of(lease, renew))
    }

    fn of(lease: Duration, renew: Duration) -> Self {
        let give_up = lease * 2 / 3;
        Self {
            lease,
            renew,
            give_up,
            request: MAX_REQUEST_TIMEOUT.min((give_up - renew) * 3 / 5),
            retry: renew / 10,
        }
    }
}

/// The fields that a renewal changes. If the record stays the same, the Lease is not being renewed.
#[derive(Debug, Clone, PartialEq)]
struct Record {
    holder: Option<String>,
    renewed: Option<MicroTime>,
    transitions: i32,
}

/// An observed Lease.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// The Lease as observed, with the resourceVersion that a write must carry.
    pub(super) lease: Lease,
    record: Record,
    /// Time of the first observation of this record, by our clock. Other clocks may be wrong.
    since: Instant,
}

/// The known state of the Lease.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LeaseView {
    /// Nothing is known, or nothing certain.
    Unknown,
    /// The Lease does not exist.
    Absent,
    /// The Lease exists.
    Present(Box<Seen>),
}

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ElectionAction {
    /// Read the Lease.
    Read,
    /// Create the Lease.
    Create,
    /// Write our identity into a Lease that is free, expired or ours.
    Take,
    /// Renew the Lease that we hold.
    Renew,
    /// Stop leading, for this reason.
    StepDown(String),
    /// Do nothing before this moment, unless an event of the Lease arrives.
    Wait(Instant),
}

/// The state of a candidate.
#[derive(Debug, Clone)]
pub(super) struct ElectionState {
    pub(super) identity: String,
    pub(super) durations: LeaseTimings,
    pub(super) view: LeaseView,
    /// While holding the Lease: the moment before the last successful write was sent.
    pub(super) held: Option<Instant>,
    /// End of the pause after a failed request.
    pub(super) not_before: Instant,
}

impl ElectionState {
    pub(super) fn new(identity: String, durations: LeaseTimings, now: Instant) -> Self {
        Self {
            identity,
            durations,
            view: LeaseView::Unknown,
            held: None,
            not_before: now,
        }
    }

    /// Returns until when we may lead, if we do.
    pub(super) fn until(&self) -> Option<Instant> {
        self.held.map(|renewed| renewed + self.durations.give_up)
    }

    /// Returns the next action.
    pub(super) fn next(&self, now: Instant) -> ElectionAction {
        let (act, due) = match self.held {
            Some(renewed) => {
                let until = renewed + self.durations.give_up;
                if now >= until {
                    let limit = self.durations.give_up;
                    return ElectionAction::StepDown(format!(
                        "it could not be renewed for {limit:?}"
                    ));
                }
                let (act, due) = match &self.view {
                    LeaseView::Unknown => (ElectionAction::Read, self.not_before),
                    LeaseView::Absent => {
                        return ElectionAction::StepDown("it was deleted".to_owned());
                    }
                    LeaseView::Present(seen) => match &seen.record.holder {
                        Some(holder) if *holder == self.identity => {
                            let due = renewed + self.durations.renew;
                            (ElectionAction::Renew, due.max(self.not_before))
                        }
                        Some(holder) => {
                            return ElectionAction::StepDown(format!(
                                "it was acquired by '{holder}'"
                            ));
                        }
                        None => {
                            return ElectionAction::StepDown("its holder was removed".to_owned());
                        }
                    },
                };
                (act, due.min(until))
            }
            None => match &self.view {
                LeaseView::Unknown => (ElectionAction::Read, self.not_before),
                LeaseView::Absent => (ElectionAction::Create, self.not_before),
                LeaseView::Present(seen) => (
                    ElectionAction::Take,
                    self.not_before.max(self.free_at(seen)),
                ),
            },
        };
        if now >= due {
            act
        } else {
            ElectionAction::Wait(due)
        }
    }

    /// Returns when we may take this Lease.
    fn free_at(&self, seen: &Seen) -> Instant {
        match &seen.record.holder {
            Some(holder) if *holder != self.identity => {
                // The holder's own duration counts, and ours only if the holder wrote none.
                let spec = seen.lease.spec.as_ref();
                let promised = spec.and_then(|spec| spec.lease_duration_seconds);
                let promised = promised.and_then(|seconds| match u64::try_from(seconds) {
                    Ok(0) | Err(_) => None,
                    Ok(seconds) => Some(Duration::from_secs(seconds)),
                });
                seen.since + promised.unwrap_or(self.durations.lease)
            }
            Some(_) | None => seen.since,
        }
    }

    /// Records the result of a read or of our own write. It is certain, because the server
    /// responded after our request.
    pub(super) fn on_read(&mut self, found: Option<Lease>, now: Instant) {
        self.view = match found {
            None => LeaseView::Absent,
            Some(lease) => {
                let record = record(&lease);
                let since = match &self.view {
                    LeaseView::Present(seen) if seen.record == record => seen.since,
                    LeaseView::Present(_) | LeaseView::Absent | LeaseView::Unknown => now,
                };
                LeaseView::Present(Box::new(Seen {
                    lease,
                    record,
                    since,
                }))
            }
        };
    }

    /// Records an event of the watch. The event may be older than our knowledge. While we hold the
    /// Lease, an event with another holder only triggers a read.
    pub(super) fn on_event(&mut self, found: Option<Lease>, now: Instant) {
        if self.held.is_none() {
            return self.on_read(found, now);
        }
        let holder = found.and_then(|lease| record(&lease).holder);
        if holder.as_deref() != Some(self.identity.as_str()) {
            self.view = LeaseView::Unknown;
        }
    }

    /// Returns the Lease to write in order to hold it from `time` on. The resourceVersion of the
    /// observed Lease makes the write fail if another process wrote since.
    pub(super) fn claim(&self, time: MicroTime) -> Lease {
        let mut lease = match &self.view {
            LeaseView::Present(seen) => seen.lease.clone(),
            LeaseView::Absent | LeaseView::Unknown => Lease::default(),
        };
        let is_new = lease.metadata.resource_version.is_none();
        let before = record(&lease);
        let spec = lease.spec.get_or_insert_default();
        if before.holder.as_deref() != Some(self.identity.as_str()) {
            spec.holder_identity = Some(self.identity.clone());
            spec.acquire_time = Some(time.clone());
            spec.lease_transitions = Some(before.transitions.saturating_add(i32::from(!is_new)));
        }
        spec.renew_time = Some(time);
        let seconds = i32::try_from(self.durations.lease.as_secs());
        spec.lease_duration_seconds = Some(seconds.unwrap_or(i32::MAX));
        // `orc version` reads it. All crates of a release have one version.
        let annotations = lease.metadata.annotations.get_or_insert_default();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        annotations.insert(names::VERSION.to_owned(), version);
        lease
    }

    /// Returns the Lease to write in order to release it, or `None` if it is not ours.
    pub(super) fn surrender(&self, time: MicroTime) -> Option<Lease> {
        let LeaseView::Present(seen) = &self.view else {
            return None;
        };
        if seen.record.holder.as_deref() != Some(self.identity.as_str()) {
            return None;
        }
        let mut lease = seen.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.renew_time = Some(time);
        Some(lease)
    }
}

fn record(lease: &Lease) -> Record {
    let default = LeaseSpec::default();
    let spec = lease.spec.as_ref().unwrap_or(&default);
    Record {
        holder: spec
            .holder_identity
            .clone()
            .filter(|holder| !holder.is_empty()),
        renewed: spec.renew_time.clone(),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}
