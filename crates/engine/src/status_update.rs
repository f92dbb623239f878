//! The status after an error, and the patch that writes a status. The status after a decision is
//! [`api::decide::Decision::next_status`].

use std::time::Duration;

use api::{
    Lifecycle, Phase, Status, Timestamp, Verdict,
    decide::{ConditionUpdate, Decision, ErrorClass, ReconcileError},
    status::Retry,
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value};

/// The state that a decision observed before its effects or its status write failed.
pub(crate) struct Observed<S> {
    pub(crate) status: S,
    pub(crate) conditions: Vec<ConditionUpdate>,
    /// Deadline of the effects, for a run.
    pub(crate) effects_deadline: Option<Timestamp>,
}

impl<S: Status> Observed<S> {
    pub(crate) fn of(decision: &Decision<S>) -> Self {
        Self {
            status: decision.status.clone(),
            conditions: decision.conditions.clone(),
            effects_deadline: decision.effects_deadline,
        }
    }
}

/// Returns the stored status with the verdict of the error, the step and the retry. Returns `None`
/// if the object is finished, because then its status must not change.
///
/// A long-lived object must not keep reporting stale observations while reconciliation fails. That
/// can last for days.
pub(crate) fn status_after_error<S: Status>(
    stored: &S,
    fault: &ReconcileError,
    observed: Option<&Observed<S>>,
    retry: Option<Retry>,
    generation: i64,
    now: Timestamp,
) -> Option<S> {
    if stored.is_over() {
        return None;
    }
    let verdict = verdict_of(fault);
    let mut status = stored.clone();
    let phase = stored.phase_in_fault(fault.class)?;
    status.set_phase(phase);
    let attempt = status.attempt().number;
    if S::LIFECYCLE == Lifecycle::LongLived {
        status.observed(observed.map(|observed| &observed.status));
    }
    let progress = status.progress_mut();
    if stored.phase() != Some(phase) {
        progress.begin_phase(now);
    }
    progress.apply_verdict(S::LIFECYCLE, &verdict, generation, now);
    match (S::LIFECYCLE, observed) {
        (Lifecycle::RunToCompletion, _) => {
            // Without it, a run would wait indefinitely for an effect that always fails.
            let deadline = observed.and_then(|observed| observed.effects_deadline);
            let deadline = deadline.map(|deadline| Time(time::whole(deadline)));
            progress.deadline_at = deadline.or(progress.deadline_at.take());
        }
        (Lifecycle::LongLived, Some(observed)) => {
            for update in &observed.conditions {
                progress.apply_condition(update, generation, now);
            }
        }
        (Lifecycle::LongLived, None) => {
            let message = format!("not known: {}", fault.message);
            progress.mark_unknown(fault.reason, &message, generation, now);
        }
    }
    progress.advance_phase_history(phase.name(), false, attempt, &verdict, now);
    progress.retry = retry;
    Some(status)
}

/// Converts an error to the verdict that users read.
pub(crate) fn verdict_of(fault: &ReconcileError) -> Verdict {
    match fault.class {
        ErrorClass::Transient | ErrorClass::Conflict | ErrorClass::Denied => {
            Verdict::working(fault.reason, &fault.message)
        }
        ErrorClass::Invalid | ErrorClass::Failed | ErrorClass::Bug => {
            Verdict::stalled(fault.reason, &fault.message)
        }
    }
}

/// Returns whether the status has to be written.
pub(crate) fn has_changed<S: Status>(old: &S, new: &S) -> bool {
    old != new
}

/// Returns the merge patch that changes `old` to `new`, with `now` as the time of the write. Fields that
/// our types do not know stay unchanged.
pub(crate) fn status_patch<S: Status>(
    old: &S,
    new: &S,
    now: Timestamp,
) -> Result<Value, serde_json::Error> {
    let mut new = new.clone();
    new.progress_mut().last_updated = Some(Time(now));
    let (old, new) = (serde_json::to_value(old)?, serde_json::to_value(&new)?);
    Ok(merge_patch(&old, &new))
}

/// Minimum interval between status writes that change only messages or counters, with a precision of one
/// second. Transitions are written immediately.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(3);

/// Returns when a message-only change may be written, or `None` to write it now.
///
/// The observations in the status of a long-lived object change as often as others change their objects.
/// Without a bound, one of them could flood the API server with our status writes.
pub(crate) fn throttled_until<S: Status>(
    stored: &S,
    status: &S,
    now: Timestamp,
) -> Option<Timestamp> {
    if S::LIFECYCLE != Lifecycle::LongLived || stored == status {
        return None;
    }
    let written = stored.progress().last_updated.as_ref()?.0;
    let at = written
        .saturating_add(MESSAGE_INTERVAL)
        .unwrap_or(Timestamp::MAX);
    // Another clock wrote a time in the future.
    let is_recent = written <= now && now < at;
    (is_recent && differs_only_in_messages(stored, status)).then_some(at)
}

fn differs_only_in_messages<S: Status>(stored: &S, status: &S) -> bool {
    let mut plain = status.clone();
    plain.observed(Some(stored));
    let (old, new) = (stored.progress(), plain.progress_mut());
    new.message.clone_from(&old.message);
    for (new, old) in new.conditions.iter_mut().zip(&old.conditions) {
        new.message.clone_from(&old.message);
    }
    for (new, old) in new.phase_history.iter_mut().zip(&old.phase_history) {
        new.message.clone_from(&old.message);
    }
    plain == *stored
}

fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(before) if before == value => {}
            Some(before @ Value::Object(_)) if value.is_object() => {
                patch.insert(name.clone(), merge_patch(before, value));
            }
            Some(_) | None => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use api::{
        Reason,
        tenants::{self, Component, ComponentPhase, TenantStatus},
    };
    use serde_json::json;

    use super::*;

    /// An error can last for days. Meanwhile no condition stays true without a check.
    #[test]
    fn r50_a_fault_leaves_no_condition_as_it_was() {
        let now = Timestamp::UNIX_EPOCH;
        let update = |kind: &'static str, value: bool| ConditionUpdate {
            kind,
            value: Some(value),
            reason: Reason::Isolated,
            message: "tried".to_owned(),
        };
        let mut stored = TenantStatus::default();
        stored
            .progress
            .apply_verdict(Lifecycle::LongLived, &Verdict::ready("runs"), 1, now);
        stored.progress.apply_condition(
            &update(tenants::condition::NETWORK_ISOLATED, true),
            1,
            now,
        );
        stored
            .progress
            .apply_condition(&update(tenants::condition::QUOTA_READY, false), 1, now);
        let component = Component {
            phase: ComponentPhase::Running,
            message: String::new(),
            ready_replicas: 1,
            total_replicas: 1,
        };
        stored.server_status = Some(component.clone());
        let fault = ReconcileError::new(ErrorClass::Denied, Reason::Denied, "it may not");
        let status_of = |status: &TenantStatus, kind: &str| {
            status.progress.condition(kind).unwrap().status.clone()
        };

        let status = status_after_error(&stored, &fault, None, None, 1, now).unwrap();
        assert_eq!(status_of(&status, "Ready"), "False");
        assert_eq!(
            status_of(&status, tenants::condition::NETWORK_ISOLATED),
            "Unknown"
        );
        assert_eq!(status_of(&status, tenants::condition::QUOTA_READY), "False");
        assert_eq!(status.server_status, None);

        let observed = Observed {
            status: TenantStatus {
                server_status: Some(Component {
                    ready_replicas: 0,
                    ..component.clone()
                }),
                ..TenantStatus::default()
            },
            conditions: vec![update(tenants::condition::NETWORK_ISOLATED, false)],
            effects_deadline: None,
        };
        let status = status_after_error(&stored, &fault, Some(&observed), None, 1, now).unwrap();
        assert_eq!(
            status_of(&status, tenants::condition::NETWORK_ISOLATED),
            "False"
        );
        assert_eq!(status.server_status, observed.status.server_status);
    }

    /// The deadline of a phase must not end another one.
    #[test]
    fn a_fault_that_changes_the_phase_begins_another_clock() {
        use tenants::TenantPhase::{Provisioning, Terminating};
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let fault = ReconcileError::new(ErrorClass::Denied, Reason::Denied, "it may not");
        let after = |phase| {
            let mut stored = TenantStatus {
                phase: Some(phase),
                ..TenantStatus::default()
            };
            stored.progress.phase_started_at = Some(Time(at(100)));
            stored.progress.deadline_at = Some(Time(at(220)));
            let status = status_after_error(&stored, &fault, None, None, 1, at(150)).unwrap();
            let progress = status.progress;
            (progress.phase_started_at, progress.deadline_at)
        };
        assert_eq!(after(Provisioning), (Some(Time(at(150))), None));
        let kept = (Some(Time(at(100))), Some(Time(at(220))));
        assert_eq!(after(Terminating), kept);
    }

    /// The wait has a stored end for each reason of a rejection.
    #[test]
    fn an_error_of_a_run_is_stored_with_the_deadline_of_its_effects() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let observed = |effects_deadline| Observed {
            status: api::tasks::TaskRunStatus::default(),
            conditions: Vec::new(),
            effects_deadline,
        };
        let after = |stored: Option<i64>, decided: Option<i64>, class, reason| {
            let mut status = api::tasks::TaskRunStatus::default();
            status.progress.deadline_at = stored.map(|seconds| Time(at(seconds)));
            status.phase = stored.map(|_| api::tasks::RunPhase::Pending);
            let fault = ReconcileError::new(class, reason, "no");
            let observed = observed(decided.map(at));
            let status = status_after_error(&status, &fault, Some(&observed), None, 1, at(5));
            status.unwrap().progress.deadline_at.map(|time| time.0)
        };
        for class in ErrorClass::ALL.iter().copied() {
            for reason in Reason::all() {
                let name = format!("{class:?} {reason}");
                assert_eq!(
                    after(None, Some(600), class, reason),
                    Some(at(600)),
                    "{name}"
                );
                assert_eq!(
                    after(Some(9), Some(600), class, reason),
                    Some(at(600)),
                    "{name}"
                );
                assert_eq!(after(Some(9), None, class, reason), Some(at(9)), "{name}");
            }
        }
    }

    /// The write budget: only message-only changes wait for the next interval.
    #[test]
    fn other_words_wait_and_turns_do_not() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut stored = TenantStatus::default();
        let progress = &mut stored.progress;
        progress.apply_verdict(
            Lifecycle::LongLived,
            &Verdict::working(Reason::Progressing, "waits for a"),
            1,
            at(100),
        );
        progress.last_updated = Some(Time(at(100)));
        let component = |ready_replicas| {
            Some(Component {
                phase: ComponentPhase::Provisioning,
                message: format!("{ready_replicas} of 3"),
                ready_replicas,
                total_replicas: 3,
            })
        };
        stored.server_status = component(1);
        let with = |verdict: &Verdict, generation, ready| {
            let mut status = stored.clone();
            status
                .progress
                .apply_verdict(Lifecycle::LongLived, verdict, generation, at(101));
            status.server_status = component(ready);
            status
        };
        let message_only = with(&Verdict::working(Reason::Progressing, "waits for b"), 1, 2);
        let wait = |status: &TenantStatus, now| throttled_until(&stored, status, at(now));

        assert_eq!(wait(&message_only, 101), Some(at(103)));
        assert_eq!(wait(&message_only, 103), None);
        assert_eq!(wait(&message_only, 99), None, "another clock");
        assert_eq!(wait(&stored, 101), None, "nothing to say");
        let other = |change: fn(&mut TenantStatus)| {
            let mut status = message_only.clone();
            change(&mut status);
            status
        };
        let apart = |status: &mut TenantStatus| {
            let update = ConditionUpdate {
                kind: tenants::condition::NETWORK_ISOLATED,
                value: Some(false),
                reason: Reason::PolicyNotEnforced,
                message: String::new(),
            };
            status
                .progress
                .apply_condition(&update, 1, Timestamp::UNIX_EPOCH);
        };
        let transitions = [
            with(&Verdict::working(Reason::NotReady, "waits for b"), 1, 2),
            with(&Verdict::ready("runs"), 1, 3),
            with(&Verdict::working(Reason::Progressing, "waits for b"), 2, 2),
            other(apart),
            other(|status| status.phase = Some(tenants::TenantPhase::Degraded)),
            other(|status| status.namespace_uid = Some("another".to_owned())),
            other(|status| status.intent = Some("delete".to_owned())),
            other(|status| status.progress.deadline_at = Some(Time(Timestamp::UNIX_EPOCH))),
        ];
        for status in transitions {
            assert_eq!(wait(&status, 101), None, "{status:?}");
        }
    }

    #[test]
    fn a_merge_patch_sets_changes_and_removes() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1], "f": 4});
        let new = json!({"a": 1, "b": {"c": 5}, "e": [1, 2], "g": 6});
        assert_eq!(
            merge_patch(&old, &new),
            json!({"b": {"c": 5, "d": null}, "e": [1, 2], "f": null, "g": 6})
        );
    }
}
