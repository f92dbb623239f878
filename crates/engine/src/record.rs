//! What is written into a status after a fault, and the difference that a write is. What a decision
//! leads to is [`api::decide::Decision::settled`].

use api::{
    Phase, Status, Timestamp, Verdict,
    decide::{Class, Fault},
    status::Retry,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mutant::Mutant;
use serde_json::{Map, Value};

/// The status after a fault: the stored one, with the error, the step and the retry. `None` if
/// nothing may be said, because the object's work is over.
pub(crate) fn failed<S: Status>(
    stored: &S,
    fault: &Fault,
    retry: Option<Retry>,
    generation: i64,
    now: Timestamp,
) -> Option<S> {
    if stored.is_over() && !mutant::on(Mutant::FaultAfterEnd) {
        return None;
    }
    let verdict = verdict_of(fault);
    let mut status = stored.clone();
    let phase = match stored.phase() {
        Some(phase) => phase,
        None => S::Phase::TABLE.first()?.phase,
    };
    status.set_phase(phase);
    let attempt = status.attempt();
    let progress = status.progress_mut();
    progress.stand(S::SHAPE, &verdict, generation, now);
    progress.step(phase.name(), false, attempt, &verdict, now);
    progress.retry = retry;
    Some(status)
}

/// What a fault says to a user.
pub(crate) fn verdict_of(fault: &Fault) -> Verdict {
    match fault.class {
        Class::Transient | Class::Conflict | Class::Denied => {
            Verdict::working(fault.reason, &fault.message)
        }
        Class::Invalid | Class::Failed | Class::Bug => {
            Verdict::stalled(fault.reason, &fault.message)
        }
    }
}

/// The merge patch that turns `old` into `new`; `None` if there is nothing to do. Fields that our
/// types do not know are not touched.
pub(crate) fn difference<S: Status>(
    old: &S,
    new: &S,
    now: Timestamp,
) -> Result<Option<Value>, serde_json::Error> {
    if old == new && !mutant::on(Mutant::HotLoop) {
        return Ok(None);
    }
    let mut new = new.clone();
    new.progress_mut().last_updated = Some(Time(now));
    let patch = merge_patch(&serde_json::to_value(old)?, &serde_json::to_value(&new)?);
    Ok(Some(patch))
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
    use serde_json::json;

    use super::*;

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
