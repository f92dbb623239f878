//! Changes of a status that deserve an Event.

use api::{Phase, Reason, Status, Timestamp, Verdict, status::condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Returns the time of the last transition of the main condition.
pub(super) fn since<S: Status>(status: &S) -> Option<Timestamp> {
    main_condition(status).map(|known| known.last_transition_time.0)
}

fn main_condition<S: Status>(status: &S) -> Option<&Condition> {
    [condition::SUCCEEDED, condition::READY]
        .iter()
        .find_map(|kind| status.progress().condition(kind))
}

pub(super) fn phase_name<S: Status>(status: &S) -> &'static str {
    status.phase().map_or("Unknown", Phase::name)
}

/// Returns whether the change deserves an Event: another phase, another attempt or another reason.
pub(super) fn has_transitioned<S: Status>(stored: &S, status: &S) -> bool {
    let main = |status: &S| {
        let reason = main_condition(status).map(|known| known.reason.clone());
        let counters = (status.attempt(), status.epoch());
        (status.phase(), counters, reason)
    };
    main(stored) != main(status)
}

/// Returns the secondary conditions that deserve their own Event: a new warning or a recovery. A
/// condition is skipped if the main condition reports the same reason.
pub(super) fn changed_conditions<S: Status>(
    stored: &S,
    status: &S,
    main: &Verdict,
) -> Vec<(&'static str, Option<Timestamp>, Verdict)> {
    let changed = S::INDEPENDENT_CONDITIONS.iter().filter_map(|kind| {
        let now = status.progress().condition(kind)?;
        let before = stored.progress().condition(kind);
        let reason = Reason::from_name(&now.reason)?;
        let is_as_before =
            before.is_some_and(|one| one.status == now.status && one.reason == now.reason);
        let is_worth_it = now.status == "True" || reason.is_warning();
        if is_as_before || !is_worth_it || reason == main.reason {
            return None;
        }
        let message = format!("{kind} is {}: {}", now.status, now.message);
        let since = before.map(|one| one.last_transition_time.0);
        Some((*kind, since, Verdict::working(reason, message)))
    });
    changed.collect()
}
