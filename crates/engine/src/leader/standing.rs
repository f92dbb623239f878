//! The thinking of an election: what is known of the Lease, and what to do next.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use tokio::time::Instant;

/// The times of an election, in a proportion that keeps two processes from leading at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durations {
    /// A Lease that was not renewed for this long may be taken.
    pub(super) lease: Duration,
    /// The leader renews this often.
    pub(super) renew: Duration,
    /// A leader that could not renew for this long stops leading: well before it may be taken over.
    pub(super) give_up: Duration,
    /// The limit of one request.
    pub(super) request: Duration,
    /// The pause after a failed request; longer, at most `renew`, while not leading.
    pub(super) retry: Duration,
}

/// The longest request, however long the Lease is.
const REQUEST: Duration = Duration::from_secs(4);

impl Default for Durations {
    /// 15 s, renewed every 5 s.
    fn default() -> Self {
        Self::of(Duration::from_secs(15), Duration::from_secs(5))
    }
}

impl Durations {
    /// From the two that can be set. The others follow: giving up after two thirds of the Lease,
    /// so that at least two requests fit between a renewal's time and that.
    ///
    /// # Errors
    /// When a renewal that failed once could not be repeated in time.
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
            request: REQUEST.min((give_up - renew) * 3 / 5),
            retry: renew / 10,
        }
    }
}

/// What a renewal changes. A Lease whose record stays the same is not being renewed.
#[derive(Debug, Clone, PartialEq)]
struct Record {
    holder: Option<String>,
    renewed: Option<MicroTime>,
    transitions: i32,
}

/// A Lease that was seen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// As it was, with the resourceVersion that a write must name.
    pub(super) lease: Lease,
    record: Record,
    /// When this record was seen first, by our own clock: another machine's may be wrong.
    since: Instant,
}

/// What is known of the Lease.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Sight {
    /// Nothing, or nothing certain.
    Unknown,
    /// There is none.
    Absent,
    /// There is this one.
    Present(Box<Seen>),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// Read the Lease.
    Look,
    /// Make one.
    Create,
    /// Write ourselves into one that is free, expired or ours.
    Take,
    /// Renew what we hold.
    Renew,
    /// Stop leading, for this reason.
    StepDown(String),
    /// Nothing before this moment, unless something is heard of the Lease.
    Wait(Instant),
}

/// How a candidate stands.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) identity: String,
    pub(super) durations: Durations,
    pub(super) sight: Sight,
    /// While holding: the moment before the last successful write was sent.
    pub(super) held: Option<Instant>,
    /// The pause after a failed request.
    pub(super) not_before: Instant,
}

impl Standing {
    pub(super) fn new(identity: String, durations: Durations, now: Instant) -> Self {
        Self {
            identity,
            durations,
            sight: Sight::Unknown,
            held: None,
            not_before: now,
        }
    }

    /// Until when we may lead, if we do.
    pub(super) fn until(&self) -> Option<Instant> {
        self.held.map(|renewed| renewed + self.durations.give_up)
    }

    /// What to do now.
    pub(super) fn next(&self, now: Instant) -> Act {
        let (act, due) = match self.held {
            Some(renewed) => {
                let until = renewed + self.durations.give_up;
                if now >= until {
                    let limit = self.durations.give_up;
                    return Act::StepDown(format!("it could not be renewed for {limit:?}"));
                }
                let (act, due) = match &self.sight {
                    Sight::Unknown => (Act::Look, self.not_before),
                    Sight::Absent => return Act::StepDown("it was deleted".to_owned()),
                    Sight::Present(seen) => match &seen.record.holder {
                        Some(holder) if *holder == self.identity => {
                            let due = renewed + self.durations.renew;
                            (Act::Renew, due.max(self.not_before))
                        }
                        Some(holder) => {
                            return Act::StepDown(format!("it was taken by '{holder}'"));
                        }
                        None => return Act::StepDown("its holder was removed".to_owned()),
                    },
                };
                (act, due.min(until))
            }
            None => match &self.sight {
                Sight::Unknown => (Act::Look, self.not_before),
                Sight::Absent => (Act::Create, self.not_before),
                Sight::Present(seen) => (Act::Take, self.not_before.max(self.free_at(seen))),
            },
        };
        if now >= due { act } else { Act::Wait(due) }
    }

    /// When we may take this Lease.
    fn free_at(&self, seen: &Seen) -> Instant {
        match &seen.record.holder {
            Some(holder) if *holder != self.identity => {
                // The holder's own promise; ours only where it made none.
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

    /// Takes note of what a read or an own write showed. Certain, because the server answered it
    /// after it was asked.
    pub(super) fn looked(&mut self, found: Option<Lease>, now: Instant) {
        self.sight = match found {
            None => Sight::Absent,
            Some(lease) => {
                let record = record(&lease);
                let since = match &self.sight {
                    Sight::Present(seen) if seen.record == record => seen.since,
                    Sight::Present(_) | Sight::Absent | Sight::Unknown => now,
                };
                Sight::Present(Box::new(Seen {
                    lease,
                    record,
                    since,
                }))
            }
        };
    }

    /// Takes note of what the watch told. It may be older than what we know: while we hold the
    /// Lease, news of another holder are a reason to look, not to believe.
    pub(super) fn heard(&mut self, found: Option<Lease>, now: Instant) {
        if self.held.is_none() {
            return self.looked(found, now);
        }
        let holder = found.and_then(|lease| record(&lease).holder);
        if holder.as_deref() != Some(self.identity.as_str()) {
            self.sight = Sight::Unknown;
        }
    }

    /// The Lease to write in order to hold it from `time` on; the seen one's resourceVersion makes
    /// the write fail if anybody else wrote since.
    pub(super) fn claim(&self, time: MicroTime) -> Lease {
        let mut lease = match &self.sight {
            Sight::Present(seen) => seen.lease.clone(),
            Sight::Absent | Sight::Unknown => Lease::default(),
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
        lease
    }

    /// The Lease to write in order to give it up; nothing if it is not ours.
    pub(super) fn surrender(&self, time: MicroTime) -> Option<Lease> {
        let Sight::Present(seen) = &self.sight else {
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
