//! The state of an object, read from its status: for printing, and for waiting.

use actions::{Object, Outcome, blocked_by};
use api::{
    CommonStatus, Lifecycle, Reason,
    kinds::KindRow,
    status::condition::{READY, STALLED, SUCCEEDED},
    tenants::{TENANT, condition::NETWORK_ISOLATED},
};

use crate::{Exit, text::Tone, view::Standing};

/// Returns whether users can wait for an object of this kind.
pub(crate) fn is_awaited(kind: &KindRow) -> bool {
    kind.lifecycle == Lifecycle::RunToCompletion || *kind == TENANT
}

/// Returns the exit code for an object that needs no further waiting: a finished run, or a
/// long-lived object that is ready, or whose spec cannot be applied.
pub(crate) fn end(object: &Object) -> Option<Exit> {
    if object.name.is_ending() {
        return object.outcome().map(|outcome| Exit::of_outcome(&outcome));
    }
    let generation = object.metadata.generation.unwrap_or_default();
    let progress = object.progress.as_ref();
    // The status of an earlier spec does not count.
    let progress = progress.filter(|progress| progress.observed_generation >= generation)?;
    if object.metadata.deletion_timestamp.is_none() && progress.is_true(READY) {
        Some(Exit::Ok)
    } else {
        (object.phase() == "Failed").then_some(Exit::Failed)
    }
}

/// Returns whether the object cannot reach an end before a user resumes it. The spec decides: the
/// status follows later, and not while the operator is down.
pub(crate) fn is_suspended(object: &Object) -> bool {
    let is_stopping = object.is_set("spec.cancel") || object.metadata.deletion_timestamp.is_some();
    object.is_set("spec.suspend") && !is_stopping && end(object).is_none()
}

/// Describes an object that has not reached an end. A blocked run must not appear to make progress.
pub(crate) fn unfinished(object: &Object) -> String {
    let progress = object.current();
    let is_ending = object.name.is_ending();
    let main = if is_ending { SUCCEEDED } else { READY };
    let condition = progress.and_then(|progress| progress.condition(main));
    let reason = condition.map_or("", |known| known.reason.as_str());
    let is_stalled = progress.is_some_and(|progress| progress.is_true(STALLED));
    if is_suspended(object) {
        "is suspended and does not continue before it is resumed".to_owned()
    } else if object.metadata.deletion_timestamp.is_some() {
        "is being deleted".to_owned()
    } else if let Some(reason) = blocked_by(object) {
        format!("is blocked ({reason}) and has not started")
    } else if is_stalled && !reason.is_empty() {
        format!("is blocked ({reason})")
    } else if reason == Reason::Suspended.name() {
        "is suspended, but not by its spec".to_owned()
    } else if is_ending {
        "continues".to_owned()
    } else {
        match reason {
            "" | "Ready" => "is not ready for its latest spec yet".to_owned(),
            reason => format!("is not ready ({reason})"),
        }
    }
}

/// Returns whether there is nothing to explain about the object.
pub(crate) fn is_well(object: &Object) -> bool {
    standing(object).tone == Tone::Good || object.outcome() == Some(Outcome::Succeeded)
}

/// Returns the state of the object for printing. A running Tenant that is not isolated is shown as
/// a problem.
pub(crate) fn standing(object: &Object) -> Standing {
    let kind = object.name.kind;
    let (is_ending, is_tenant) = (object.name.is_ending(), *kind == TENANT);
    let main = if is_ending { SUCCEEDED } else { READY };
    let unseen = CommonStatus::default();
    let progress = match object.current() {
        Some(progress) => progress,
        None if is_tenant => return Standing::new("○", "no status yet", Tone::Waiting),
        None => &unseen,
    };
    if !is_awaited(kind) {
        return if progress.is_true(main) {
            Standing::new("✓", main, Tone::Good)
        } else {
            let words = format!("not {}", main.to_lowercase());
            Standing::new("○", words, Tone::Waiting)
        };
    }
    let phase = object.phase();
    if object.metadata.deletion_timestamp.is_some() && phase != "Terminating" {
        return Standing::new("!", format!("{phase} (being deleted)"), Tone::Waiting);
    }
    let reason = progress.condition(main);
    let reason = reason.map_or("", |known| known.reason.as_str());
    let is_plain = ["", "Ready", Reason::Progressing.name(), phase].contains(&reason);
    // A failed run has the condition as well, and no user has to act on it.
    let is_over = is_ending && matches!(phase, "Succeeded" | "Failed");
    let is_stalled = progress.is_true(STALLED) && !is_over && !is_plain;
    let words = match (is_plain, is_stalled) {
        (true, _) => phase.to_owned(),
        (false, false) => format!("{phase} ({reason})"),
        (false, true) => format!("{phase} ({reason}), stalled"),
    };
    match phase {
        "Succeeded" => Standing::new("✓", words, Tone::Good),
        "Failed" => Standing::new("✗", words, Tone::Bad),
        "Degraded" => Standing::new("!", words, Tone::Bad),
        "Suspended" => Standing::new("‖", words, Tone::Waiting),
        "Terminating" => Standing::new("⊘", words, Tone::Waiting),
        "Running" if is_tenant => isolated(progress, &words),
        _ if is_ending && is_stalled => Standing::new("!", words, Tone::Bad),
        _ if is_ending && reason == Reason::Suspended.name() => {
            Standing::new("‖", words, Tone::Waiting)
        }
        "Running" => Standing::new("●", words, Tone::Busy),
        _ => Standing::new("○", words, Tone::Waiting),
    }
}

fn isolated(progress: &CommonStatus, words: &str) -> Standing {
    let isolated = progress.condition(NETWORK_ISOLATED);
    match isolated.map(|known| known.status.as_str()) {
        Some("True") => Standing::new("✓", format!("{words}, isolated"), Tone::Good),
        Some("False") => Standing::new("!", format!("{words}, not isolated"), Tone::Bad),
        Some(_) | None => {
            let words = format!("{words}, not proven to be isolated");
            Standing::new("✓", words, Tone::Waiting)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use api::apps::{MANAGED_APP, ManagedApp};
    use api::tasks::{DOCS_RUN, DocsRun, TASK_RUN, TaskRun};
    use api::tenants::Tenant;
    use serde::{Serialize, de::DeserializeOwned};
    use serde_json::{Value, from_value, json, to_value};

    use super::*;

    /// Builds an object with the defaults of its schema, which are also those of its type.
    fn an_object<K: Serialize + DeserializeOwned>(kind: &'static KindRow, value: Value) -> Object {
        let typed: K = from_value(value).unwrap();
        Object::new(kind, from_value(to_value(typed).unwrap()).unwrap())
    }

    fn laid_over(mut all: Value, more: &Value) -> Value {
        for (key, value) in more.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    }

    /// Builds a TaskRun with a status like the operator's.
    pub(crate) fn a_run(spec: &Value, status: &Value) -> Object {
        let all = json!({
            "taskId": 7, "serviceName": "shop", "agentName": "writer", "contextVersion": 1,
            "markdownFiles": [{ "filename": "task.md", "content": "Do it." }],
        });
        let run = json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "shop-7", "namespace": "team", "uid": "u-1",
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": laid_over(all, spec), "status": status,
        });
        an_object::<TaskRun>(&TASK_RUN, run)
    }

    /// Builds a DocsRun with a status like the operator's.
    pub(crate) fn a_docs_run(spec: &Value, status: &Value) -> Object {
        let all = json!({ "repositoryUrl": "https://git.example/team/shop",
            "sourceBranch": "main", "agentName": "writer" });
        let run = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun",
            "metadata": { "name": "guide", "namespace": "team", "uid": "u-2",
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": laid_over(all, spec), "status": status,
        });
        an_object::<DocsRun>(&DOCS_RUN, run)
    }

    pub(crate) fn condition(kind: &str, value: &str, reason: &str) -> Value {
        json!({ "type": kind, "status": value, "reason": reason, "message": "as it is",
            "lastTransitionTime": "2026-01-01T00:01:00Z" })
    }

    #[test]
    fn a_status_of_an_earlier_version_is_not_this_ones_phase() {
        let status = json!({ "phase": "Succeeded", "contextVersion": 1 });
        let again = a_run(&json!({ "contextVersion": 2 }), &status);
        assert_eq!(again.phase(), "Pending");
        let docs = a_docs_run(&json!({}), &json!({ "phase": "Succeeded" }));
        assert_eq!(docs.phase(), "Succeeded");
    }

    #[test]
    fn runs_stand_as_their_status_says() {
        let main = |value, reason| condition("Succeeded", value, reason);
        let stalled = condition("Stalled", "True", "ChildNameTaken");
        let cases = [
            (
                json!({ "phase": "Pending", "observedGeneration": -1 }),
                "○ Pending",
            ),
            (
                json!({ "phase": "Running", "contextVersion": 1, "conditions": [main("Unknown", "Progressing")] }),
                "● Running",
            ),
            (
                json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", "ImagePullFailed")] }),
                "○ Pending (ImagePullFailed)",
            ),
            (
                json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", "Suspended")] }),
                "‖ Pending (Suspended)",
            ),
            (
                json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", "ChildNameTaken"), stalled] }),
                "! Pending (ChildNameTaken), stalled",
            ),
            (
                json!({ "phase": "Succeeded", "contextVersion": 1, "conditions": [main("True", "Succeeded")] }),
                "✓ Succeeded",
            ),
            (
                json!({ "phase": "Failed", "contextVersion": 1, "conditions": [main("False", "NonZeroExit")] }),
                "✗ Failed (NonZeroExit)",
            ),
        ];
        for (status, wanted) in cases {
            assert_eq!(standing(&a_run(&json!({}), &status)).text(), wanted);
        }
    }

    /// A wait that ends must not claim progress where there is none.
    #[test]
    fn what_has_not_ended_is_described_as_it_is() {
        let main = |value, reason| condition("Succeeded", value, reason);
        let pending = |reason| json!({ "phase": "Pending", "contextVersion": 1, "conditions": [main("Unknown", reason)] });
        // Without a version: the API server rejected the first Job.
        let rejected =
            json!({ "phase": "Pending", "conditions": [main("Unknown", "QuotaExceeded")] });
        let lost = json!({ "phase": "Running", "contextVersion": 1, "conditions":
            [main("Unknown", "NodeLost"), condition("Stalled", "True", "NodeLost")] });
        let held = json!({ "suspend": true });
        let suspended = "is suspended and does not continue before it is resumed";
        let cases = [
            (json!({}), json!({}), "continues"),
            (json!({}), pending("Progressing"), "continues"),
            (
                json!({}),
                pending("ImagePullFailed"),
                "is blocked (ImagePullFailed) and has not started",
            ),
            (
                json!({}),
                rejected,
                "is blocked (QuotaExceeded) and has not started",
            ),
            (json!({}), lost, "is blocked (NodeLost)"),
            (held.clone(), json!({}), suspended),
            (held, pending("Suspended"), suspended),
            (
                json!({ "suspend": true, "cancel": true }),
                pending("Progressing"),
                "continues",
            ),
            (
                json!({}),
                pending("Suspended"),
                "is suspended, but not by its spec",
            ),
            // The status describes an earlier version.
            (
                json!({ "contextVersion": 2 }),
                pending("ImagePullFailed"),
                "continues",
            ),
        ];
        for (spec, status, wanted) in cases {
            let run = a_run(&spec, &status);
            assert_eq!(unfinished(&run), wanted, "{spec} {status}");
            assert_eq!(is_suspended(&run), wanted == suspended, "{spec} {status}");
        }
        let mut dying = a_run(&json!({ "suspend": true }), &json!({}));
        dying.metadata.deletion_timestamp = dying.metadata.creation_timestamp.clone();
        assert_eq!(unfinished(&dying), "is being deleted");
        let degraded = json!({ "phase": "Degraded", "observedGeneration": 1,
            "conditions": [condition("Ready", "False", "CrashLoop")] });
        let tenant = a_tenant(1, &degraded);
        assert_eq!(unfinished(&tenant), "is not ready (CrashLoop)");
    }

    /// Builds a Tenant with a status like the operator's.
    pub(crate) fn a_tenant(generation: i64, status: &Value) -> Object {
        let tenant = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "Tenant",
            "metadata": { "name": "acme", "uid": "u-3", "generation": generation,
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "deletion": { "policy": "Retain" }, "owners": [{ "kind": "User", "name": "ann" }],
                "server": { "image": "shop:2", "replicas": 2 },
                "redis": { "image": "redis:7", "storage": { "size": "1Gi" } } },
            "status": status,
        });
        an_object::<Tenant>(&TENANT, tenant)
    }

    /// Builds a ManagedApp with a status like the operator's.
    pub(crate) fn a_managed_app(status: &Value) -> Object {
        let app = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "ManagedApp",
            "metadata": { "name": "shop", "namespace": "team", "uid": "u-1", "generation": 1 },
            "spec": { "kustomizationRef": { "name": "shop", "namespace": "flux-system" } },
            "status": status,
        });
        an_object::<ManagedApp>(&MANAGED_APP, app)
    }

    #[test]
    fn tenants_stand_as_their_status_says() {
        let status = |phase: &str, conditions: Value| json!({ "phase": phase, "observedGeneration": 1, "conditions": conditions });
        let ready = || condition("Ready", "True", "Ready");
        let isolated = |value, reason| condition("NetworkIsolated", value, reason);
        let taken = json!([
            condition("Ready", "False", "NamespaceTaken"),
            condition("Stalled", "True", "NamespaceTaken")
        ]);
        let cases = [
            (
                status("Running", json!([ready(), isolated("True", "Isolated")])),
                "✓ Running, isolated",
            ),
            (
                status(
                    "Running",
                    json!([ready(), isolated("False", "PolicyNotEnforced")]),
                ),
                "! Running, not isolated",
            ),
            (
                status(
                    "Running",
                    json!([ready(), isolated("Unknown", "ProbesDisabled")]),
                ),
                "✓ Running, not proven to be isolated",
            ),
            (
                status("Pending", taken),
                "○ Pending (NamespaceTaken), stalled",
            ),
            (
                status(
                    "Degraded",
                    json!([condition("Ready", "False", "CrashLoop")]),
                ),
                "! Degraded (CrashLoop)",
            ),
            (
                status(
                    "Suspended",
                    json!([condition("Ready", "False", "Suspended")]),
                ),
                "‖ Suspended",
            ),
        ];
        for (status, wanted) in cases {
            assert_eq!(standing(&a_tenant(1, &status)).text(), wanted);
        }
    }

    #[test]
    fn a_status_of_an_earlier_spec_says_nothing_of_this_one() {
        let status = json!({ "phase": "Running", "observedGeneration": 1,
            "conditions": [condition("Ready", "True", "Ready")] });
        assert_eq!(end(&a_tenant(1, &status)), Some(Exit::Ok));
        assert_eq!(end(&a_tenant(2, &status)), None);
        let failed = json!({ "phase": "Failed", "observedGeneration": 1 });
        assert_eq!(end(&a_tenant(1, &failed)), Some(Exit::Failed));
        assert_eq!(end(&a_tenant(2, &failed)), None);
    }
}
