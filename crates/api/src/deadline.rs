//! Deadlines of phases, as stored in the status. A table declares them ([`crate::phase::Deadline`]),
//! the engine stores them, and `decide` reads [`crate::decide::Input::overdue`].
//!
//! The stored start of a phase counts, and the limits of the current spec. So a restart of the
//! operator begins no wait again, and a user can extend one.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    Phase, Status, names,
    phase::Deadline,
    status::{CommonStatus, PhaseProgress},
    time,
};

/// Accepted difference between the clocks of two machines. A stored time that is further ahead, or
/// further before the creation of the object, is not believed.
const SKEW: Duration = Duration::from_secs(60);

/// How often progress is recorded at most, per idle limit. Without a bound, each step of a fast
/// operation would be a status write. A deadline is late by at most one of these parts.
const RECORDS_PER_IDLE_LIMIT: u32 = 8;

/// Facts about an object that the deadline of its phase depends on.
pub struct PhaseInput<'a, P: Phase> {
    /// The spec, for the limits.
    pub spec: &'a P::Spec,
    /// Time at which the object was created.
    pub created: Option<Timestamp>,
    /// The observed progress: a text that changes with each step. `None` if it is not known.
    pub progress: Option<String>,
}

/// Returns whether the stored phase is past its deadline.
#[must_use]
pub fn is_overdue<S: Status>(stored: &S, input: &PhaseInput<'_, S::Phase>, now: Timestamp) -> bool {
    let mut status = stored.clone();
    advance(&mut status, stored, None, input, now);
    let deadline = status.progress().deadline_at.as_ref();
    deadline.is_some_and(|deadline| deadline.0 <= now)
}

/// Sets the start, the deadline and the progress of the phase of `status`, which follows `stored`.
///
/// `since` is the start of the phase, if the cluster reports it. Otherwise a phase begins now.
pub(crate) fn advance<S: Status>(
    status: &mut S,
    stored: &S,
    since: Option<Timestamp>,
    input: &PhaseInput<'_, S::Phase>,
    now: Timestamp,
) {
    let Some((phase, row)) = status.phase().and_then(|phase| Some((phase, phase.row()?))) else {
        return;
    };
    let is_same = stored.phase() == Some(phase) && stored.epoch() == status.epoch();
    let nothing = CommonStatus::default();
    let known = if is_same { stored.progress() } else { &nothing };
    let stored_start = known.phase_started_at.as_ref().map(|time| time.0);
    let start = || {
        let start = stored_start
            .or(since)
            .or_else(|| start_in_history(known, phase.name()));
        let start = start.filter(|start| is_plausible(*start, input.created, now));
        time::whole(start.unwrap_or(now))
    };
    // A status of an earlier release has no start. It gets one when it needs one: all statuses
    // would be written after an upgrade otherwise.
    let start_if_new = || if is_same { stored_start } else { Some(start()) };
    let (started, deadline, progress) = match &row.deadline {
        Deadline::None { .. } => (start_if_new(), None, None),
        Deadline::Decided { .. } => {
            let decided = status.progress().deadline_at.as_ref();
            let decided = decided.map(|time| time::after(time.0, Duration::ZERO));
            (start_if_new(), decided, None)
        }
        Deadline::After { limit, .. } => {
            let start = start();
            let end = time::after(start, (limit.of)(input.spec));
            (Some(start), Some(end), None)
        }
        Deadline::Progress { idle, cap, .. } => {
            let (start, idle) = (start(), (idle.of)(input.spec));
            let progress = recorded(known.phase_progress.as_ref(), idle, input, now);
            let cap = time::after(start, (cap.of)(input.spec));
            let end = time::after(progress.changed_at.0, idle).min(cap);
            (Some(start), Some(end), Some(progress))
        }
    };
    let common = status.progress_mut();
    common.phase_started_at = started.map(Time);
    common.deadline_at = deadline.map(Time);
    common.phase_progress = progress;
}

/// Returns when to reconcile an object for its deadline.
///
/// `is_told` is whether `decide` already decided about this phase as overdue.
#[must_use]
pub fn requeue_at<S: Status>(
    status: &S,
    is_told: bool,
    input: &PhaseInput<'_, S::Phase>,
    now: Timestamp,
) -> Option<Timestamp> {
    let row = status.phase()?.row()?;
    let common = status.progress();
    let deadline = common.deadline_at.as_ref()?.0;
    let coming = Some(deadline).filter(|deadline| now < *deadline);
    match &row.deadline {
        Deadline::None { .. } | Deadline::Decided { .. } => coming,
        // A phase can be over when it begins: the cluster knows its start.
        Deadline::After { .. } => coming.or_else(|| (!is_told).then_some(now)),
        Deadline::Progress { idle, .. } => {
            let idle = (idle.of)(input.spec);
            let stored = common.phase_progress.as_ref();
            let unrecorded = stored.filter(|stored| has_changed(stored, input));
            let record = unrecorded.map(|stored| next_record(stored, idle));
            let coming = coming.or_else(|| (!is_told).then_some(now));
            coming.map(|coming| record.map_or(coming, |record| record.min(coming)))
        }
    }
}

/// Returns the progress to store: the stored one, or the observed one if that is new.
fn recorded<P: Phase>(
    stored: Option<&PhaseProgress>,
    idle: Duration,
    input: &PhaseInput<'_, P>,
    now: Timestamp,
) -> PhaseProgress {
    let is_kept = |stored: &&PhaseProgress| {
        is_plausible(stored.changed_at.0, input.created, now)
            && (!has_changed(stored, input) || now < next_record(stored, idle))
    };
    match stored.filter(is_kept) {
        Some(stored) => stored.clone(),
        None => PhaseProgress {
            fingerprint: fingerprint(input.progress.as_deref().unwrap_or_default()),
            changed_at: Time(time::whole(now)),
        },
    }
}

/// Returns whether the observed progress is not the stored one. Unknown progress is no change.
fn has_changed<P: Phase>(stored: &PhaseProgress, input: &PhaseInput<'_, P>) -> bool {
    let seen = input.progress.as_deref().map(fingerprint);
    seen.is_some_and(|seen| seen != stored.fingerprint)
}

fn next_record(stored: &PhaseProgress, idle: Duration) -> Timestamp {
    time::after(stored.changed_at.0, idle / RECORDS_PER_IDLE_LIMIT)
}

/// Returns a hash of the progress. Its length is bounded, and it reveals no content.
fn fingerprint(progress: &str) -> String {
    names::hash(progress)
}

/// Returns the start of a phase that an earlier release recorded.
fn start_in_history(known: &CommonStatus, phase: &str) -> Option<Timestamp> {
    let last = known.phase_history.last()?;
    (last.phase == phase && last.finished_at.is_none()).then_some(last.started_at.0)
}

fn is_plausible(time: Timestamp, created: Option<Timestamp>, now: Timestamp) -> bool {
    let is_past = time <= time::after(now, SKEW);
    is_past && created.is_none_or(|created| created <= time::after(time, SKEW))
}

#[cfg(test)]
mod tests;
