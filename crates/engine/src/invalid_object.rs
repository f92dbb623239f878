//! Reports undecodable objects on the objects themselves.

use api::{
    Lifecycle, Reason, Status, Timestamp, Verdict, names,
    status::{Attempt, condition},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::{
    apply::ResourcePath,
    cache::InvalidObject,
    events::Transition,
    key::Key,
    kind::Kind,
    reconcile::{Outcome, Reconciler},
};

impl<K: Kind> Reconciler<K> {
    /// Reports an undecodable object on the object itself, after reading its current state.
    ///
    /// # Guarantees
    /// - The conditions of a finished object stay unchanged: only an Event reports it.
    /// - A report that is already stored is not written again. Otherwise our own write would trigger
    ///   the next report.
    /// - An object in deletion is released if its author requests that. Otherwise the message names the
    ///   annotation for it.
    pub(crate) async fn report_invalid_object(
        &self,
        key: &Key,
        invalid: &InvalidObject,
    ) -> Result<Outcome, api::decide::ReconcileError> {
        let now = self.clock.now();
        let path = ResourcePath {
            resource: K::RESOURCE,
            namespace: key.namespace.as_deref(),
            name: &key.name,
            subresource: None,
        };
        let known = self.applier.get(path).await?;
        // Checked after the read, because the read took time.
        if !self.leading.is_leader() {
            return Ok(Outcome::Abandoned);
        }
        let text = |pointer: &str| known.pointer(pointer).and_then(Value::as_str);
        let version = text("/metadata/resourceVersion");
        // Another object has this name now, or the object changed and may be decodable. The watch will
        // deliver it.
        if text("/metadata/uid") != Some(invalid.uid.as_str())
            || version != Some(invalid.version.as_str())
        {
            return Ok(Outcome::Skipped);
        }
        let is_deleting = text("/metadata/deletionTimestamp").is_some();
        let finalizers = known
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array);
        let has_finalizer =
            finalizers.is_some_and(|names| names.iter().any(|name| name == K::FINALIZER));
        let force_delete = known
            .pointer("/metadata/annotations")
            .and_then(|all| all.get(names::FORCE_DELETE));
        if is_deleting && has_finalizer && force_delete.and_then(Value::as_str) == Some("true") {
            let others: Vec<&Value> = finalizers
                .into_iter()
                .flat_map(|names| names.iter())
                .filter(|name| *name != K::FINALIZER)
                .collect();
            let patch = json!({ "metadata": { "finalizers": others } });
            self.applier
                .patch(path, &invalid.uid, version, patch)
                .await?;
            return Ok(Outcome::Completed(None));
        }

        let mut message = format!(
            "this object does not fit the operator's schema, so it is left alone: {}",
            invalid.error
        );
        if is_deleting && has_finalizer {
            message.push_str("; to release it as it is, set the annotation 'orchestrator.io/force-delete: \"true\"'");
        }
        let verdict = Verdict::stalled(Reason::Undecodable, message);
        let is_known = text("/status/message") == Some(verdict.message.as_str())
            && known.pointer("/status/observedGeneration") == Some(&json!(invalid.generation));
        if is_known {
            return Ok(Outcome::Completed(None));
        }
        let meta = ObjectMeta {
            name: Some(key.name.clone()),
            namespace: key.namespace.clone(),
            uid: Some(invalid.uid.clone()),
            generation: Some(invalid.generation),
            ..ObjectMeta::default()
        };
        let transition = Transition {
            meta: &meta,
            since: None,
            attempt: Attempt::default(),
            phase: "Unknown",
            verdict: &verdict,
        };
        self.publish(&transition, now).await;

        let stored = known
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        let is_finished =
            |one: &Value| one["type"] == condition::FINISHED && one["status"] == "True";
        if stored.is_some_and(|all| all.iter().any(is_finished)) {
            return Ok(Outcome::Completed(None));
        }
        if !self.leading.is_leader() {
            return Ok(Outcome::Abandoned);
        }
        let mut progress = api::CommonStatus::default();
        progress.apply_verdict(
            <K::Status as Status>::LIFECYCLE,
            &verdict,
            invalid.generation,
            now,
        );
        // Conditions that we do not derive here stay. `Reconciling` does not: it would
        // contradict `Stalled`.
        let mut conditions: Vec<Value> = progress.conditions.iter().map(|one| json!(one)).collect();
        let derived: Vec<&str> = progress
            .conditions
            .iter()
            .map(|one| one.type_.as_str())
            .collect();
        let stays = |one: &&Value| {
            let kind = one["type"].as_str().unwrap_or_default();
            !derived.contains(&kind) && kind != condition::RECONCILING
        };
        conditions.extend(
            stored
                .into_iter()
                .flat_map(|all| all.iter())
                .filter(stays)
                .map(|one| unknown(K::Status::LIFECYCLE, one, now)),
        );
        let body = json!({ "status": {
            "conditions": conditions,
            "reason": progress.reason,
            "message": progress.message,
            "observedGeneration": invalid.generation,
        }});
        let path = ResourcePath {
            subresource: Some("status"),
            ..path
        };
        self.applier
            .patch(path, &invalid.uid, version, body)
            .await?;
        Ok(Outcome::Completed(None))
    }
}

/// Sets a true condition of a long-lived object to `Unknown`, because nobody checks it any more. It
/// works on JSON, because the stored status may be the undecodable part. For a decoded status,
/// [`api::CommonStatus::mark_unknown`] does the same.
fn unknown(lifecycle: Lifecycle, condition: &Value, now: Timestamp) -> Value {
    let mut one = condition.clone();
    if lifecycle == Lifecycle::LongLived && one["status"] == "True" {
        one["status"] = json!("Unknown");
        one["reason"] = json!(Reason::Undecodable.name());
        one["message"] = json!("not known: the object does not fit the operator's schema");
        one["lastTransitionTime"] = json!(Time(now));
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_looks_at_is_not_said_to_be_true() {
        let now = Timestamp::UNIX_EPOCH;
        let stored = |value: &str| json!({ "type": "NetworkIsolated", "status": value, "odd": 1 });
        let after = unknown(Lifecycle::LongLived, &stored("True"), now);
        assert_eq!(
            (&after["status"], &after["odd"]),
            (&json!("Unknown"), &json!(1))
        );
        assert_eq!(after["reason"], "Undecodable");
        assert_eq!(
            unknown(Lifecycle::LongLived, &stored("False"), now),
            stored("False")
        );
        assert_eq!(
            unknown(Lifecycle::RunToCompletion, &stored("True"), now),
            stored("True")
        );
    }
}
