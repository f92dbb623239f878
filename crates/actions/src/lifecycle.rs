//! Cancels, suspends or resumes an object, or runs a run again.

use api::{
    Phase, Reason,
    status::condition::SUCCEEDED,
    tasks::{RunPhase, TASK_RUN},
};
use kube::{
    Client,
    api::{Patch, PatchParams, ValidationDirective},
};
use serde_json::{Value, json};

use crate::{
    Error, MANAGER, Object, ObjectName, Outcome, Request, TRIES, get, objects, same_version,
};

/// A change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Cancel the run. This cannot be undone.
    Cancel,
    /// Suspend the object.
    Suspend,
    /// Resume the object.
    Resume,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The current object.
    pub object: Object,
    /// Whether the change was written now. Otherwise the object already had this state.
    pub is_new: bool,
}

/// Changes one field of an unfinished run or of a long-lived object.
///
/// # Guarantees
/// A run that finishes meanwhile is not changed. Otherwise a finished run would be marked as
/// cancelled and could get no further version.
///
/// # Errors
/// [`Error::Finished`], [`Error::Cancelled`], [`Error::Deleting`], or an error of the server.
pub async fn change(
    client: &Client,
    namespace: &str,
    name: &ObjectName,
    change: Change,
) -> Result<Changed, Error> {
    write(client, namespace, name, |object| wanted(object, change)).await
}

/// Runs a TaskRun again that has finished, or whose container cannot start. The run gets the next
/// context version with the same files. Corrections made meanwhile (to an image, a limit) apply to
/// it.
///
/// # Errors
/// [`Error::NotFinished`], [`Error::Blocked`], [`Error::Cancelled`], [`Error::Deleting`], [`Error::Conflict`] if
/// someone created a version meanwhile, or an error of the server.
pub async fn run_again(client: &Client, namespace: &str, name: &str) -> Result<Object, Error> {
    let mut first_seen = None;
    let run = ObjectName::new(&TASK_RUN, name);
    let changed = write(client, namespace, &run, |run| {
        let version = run.version().unwrap_or_default();
        same_version(&mut first_seen, version, &run.name)?;
        again(run, version)
    });
    Ok(changed.await?.object)
}

/// Reads the object, decides, and writes on condition that the object has not changed since. If it
/// has changed, the function starts again.
pub(crate) async fn write(
    client: &Client,
    namespace: &str,
    name: &ObjectName,
    mut decide: impl FnMut(&Object) -> Result<Option<Value>, Error>,
) -> Result<Changed, Error> {
    let api = objects(client, name.kind, Some(namespace));
    let how = PatchParams {
        dry_run: false,
        force: false,
        field_manager: Some(MANAGER.to_owned()),
        field_validation: Some(ValidationDirective::Strict),
    };
    for _ in 0..TRIES {
        let object = get(client, namespace, name).await?;
        let Some(spec) = decide(&object)? else {
            let is_new = false;
            return Ok(Changed { object, is_new });
        };
        let patch = json!({
            "metadata": { "resourceVersion": object.metadata.resource_version },
            "spec": spec,
        });
        match api.patch(&name.name, &how, &Patch::Merge(patch)).await {
            Ok(written) => {
                let object = Object::new(name.kind, written);
                let is_new = true;
                return Ok(Changed { object, is_new });
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Request::about("patch", name, namespace).failed(error)),
        }
    }
    Err(Error::Busy(name.clone()))
}

/// Returns the field to be written, or `None` if the object already has this state.
fn wanted(object: &Object, change: Change) -> Result<Option<Value>, Error> {
    let outcome = object.outcome();
    if change == Change::Cancel && outcome == Some(Outcome::Cancelled) {
        return Ok(None);
    }
    // The deletion of a long-lived object may wait for a user, and its spec still applies then.
    if object.name.is_ending() {
        object.check_not_deleting()?;
    }
    let is_cancelled = object.is_set("spec.cancel");
    let is_suspended = object.is_set("spec.suspend");
    // Checked before the outcome: a finished run can run again, but not a cancelled one.
    if is_cancelled && change != Change::Cancel {
        return Err(Error::Cancelled(object.name.clone()));
    }
    if let Some(outcome) = outcome {
        return Err(Error::Finished {
            run: object.name.clone(),
            outcome,
            version: object.version(),
        });
    }
    Ok(match change {
        Change::Cancel => (!is_cancelled).then(|| json!({ "cancel": true })),
        Change::Suspend => (!is_suspended).then(|| json!({ "suspend": true })),
        Change::Resume => is_suspended.then(|| json!({ "suspend": false })),
    })
}

fn again(run: &Object, version: i64) -> Result<Option<Value>, Error> {
    run.check_not_deleting()?;
    if run.is_set("spec.cancel") {
        return Err(Error::Cancelled(run.name.clone()));
    }
    match (run.outcome(), blocked_by(run)) {
        (None, None) => {
            return Err(Error::NotFinished {
                run: run.name.clone(),
                version: Some(version),
                phase: run.phase().to_owned(),
            });
        }
        // The operator records a version together with its first Job. The next try creates that Job
        // from the changed Agent, so a version without a Job needs no successor.
        (None, Some(reason)) if run.recorded_version().is_none() => {
            let retry = run.progress.as_ref().and_then(|known| known.retry.clone());
            return Err(Error::Blocked {
                run: run.name.clone(),
                reason: reason.to_owned(),
                retry: retry.map(Box::new),
            });
        }
        (Some(_), _) | (None, Some(_)) => {}
    }
    let mut change = json!({ "contextVersion": version.saturating_add(1) });
    if run.is_set("spec.suspend") {
        // The run is still suspended from before. Without this, the new version would never start.
        change["suspend"] = json!(false);
    }
    Ok(Some(change))
}

/// Returns the reason why a run is blocked before its start, if it is. Then no container runs that
/// a new version would stop.
#[must_use]
pub fn blocked_by(run: &Object) -> Option<&str> {
    let ordinary = [Reason::Progressing, Reason::Suspended, Reason::Deleting];
    let progress = run.progress.as_ref();
    // Before the first Job, the status of a TaskRun has no version.
    let recorded = run.recorded_version();
    let progress = progress.filter(|_| recorded.is_none() || recorded == run.version());
    let condition = progress.and_then(|progress| progress.condition(SUCCEEDED));
    let reason = condition.map(|known| known.reason.as_str())?;
    let is_blocked = run.name.is_run()
        && run.outcome().is_none()
        && run.phase() == RunPhase::Pending.name()
        && ordinary.iter().all(|word| word.name() != reason);
    is_blocked.then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(spec: Value, reason: Option<&str>) -> Object {
        let mut all = json!({ "taskId": 7, "serviceName": "shop", "agentName": "writer",
            "contextVersion": 2, "markdownFiles": [] });
        for (key, value) in spec.as_object().unwrap() {
            all[key] = value.clone();
        }
        let condition = |kind: &str, value: &str| {
            json!({ "type": kind, "status": value, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let conditions = match reason {
            Some("Succeeded") => vec![
                condition("Finished", "True"),
                condition("Succeeded", "True"),
            ],
            Some(_) => vec![
                condition("Finished", "True"),
                condition("Succeeded", "False"),
            ],
            None => vec![],
        };
        let run = json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "shop-7" }, "spec": all,
            "status": { "contextVersion": 2, "phase": "Running", "conditions": conditions },
        });
        Object::new(&TASK_RUN, serde_json::from_value(run).unwrap())
    }

    #[test]
    fn what_a_change_writes() {
        let (plain, held, cancelled) = (
            json!({}),
            json!({ "suspend": true }),
            json!({ "cancel": true }),
        );
        let cases = [
            (
                &plain,
                None,
                Change::Cancel,
                Ok(Some(json!({ "cancel": true }))),
            ),
            (
                &held,
                None,
                Change::Cancel,
                Ok(Some(json!({ "cancel": true }))),
            ),
            (&cancelled, None, Change::Cancel, Ok(None)),
            (&cancelled, Some("Cancelled"), Change::Cancel, Ok(None)),
            (
                &cancelled,
                Some("Succeeded"),
                Change::Cancel,
                Err("has finished: Succeeded (Succeeded)"),
            ),
            (
                &plain,
                Some("Succeeded"),
                Change::Cancel,
                Err("has finished: Succeeded (Succeeded), version 2"),
            ),
            (
                &plain,
                Some("OOMKilled"),
                Change::Cancel,
                Err("has finished: Failed (OOMKilled), version 2"),
            ),
            (
                &plain,
                None,
                Change::Suspend,
                Ok(Some(json!({ "suspend": true }))),
            ),
            (&held, None, Change::Suspend, Ok(None)),
            (&cancelled, None, Change::Suspend, Err("was cancelled")),
            (
                &cancelled,
                Some("Cancelled"),
                Change::Resume,
                Err("was cancelled, and that cannot be undone"),
            ),
            (
                &plain,
                Some("Succeeded"),
                Change::Suspend,
                Err("has finished"),
            ),
            (&plain, None, Change::Resume, Ok(None)),
            (
                &held,
                None,
                Change::Resume,
                Ok(Some(json!({ "suspend": false }))),
            ),
        ];
        for (spec, reason, change, expected) in cases {
            let found = wanted(&run(spec.clone(), reason), change);
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{spec} {change:?}"),
                (Err(error), Err(words)) => {
                    assert!(error.to_string().contains(words), "{error}");
                }
                (found, expected) => panic!("{spec} {change:?}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn what_is_blocked_before_its_start_runs_again() {
        let cases = [
            ("Pending", "ImagePullFailed", true),
            ("Pending", "ChildNameTaken", true),
            ("Pending", "Progressing", false),
            ("Pending", "Suspended", false),
            ("Running", "Disrupted", false),
        ];
        for (phase, reason, wanted) in cases {
            let mut blocked = run(json!({}), Some(reason));
            blocked.data["status"]["phase"] = json!(phase);
            let progress = blocked.progress.as_mut().unwrap();
            progress
                .conditions
                .retain(|known| known.type_ != "Finished");
            assert_eq!(again(&blocked, 2).is_ok(), wanted, "{phase} {reason}");
        }
    }

    #[test]
    fn a_run_whose_job_is_rejected_is_tried_again_by_the_operator() {
        let cases = [
            (
                "QuotaExceeded",
                json!({ "attempt": 4, "class": "Denied", "nextAt": "2026-01-01T00:05:53Z" }),
                "TaskRun 'shop-7' is blocked (QuotaExceeded) and has not started; the operator tries again by itself, next at 2026-01-01T00:05:53Z",
            ),
            (
                "AdmissionDenied",
                json!({ "attempt": 1, "class": "Denied" }),
                "TaskRun 'shop-7' is blocked (AdmissionDenied) and has not started; the operator tries again by itself",
            ),
            (
                "Denied",
                json!({ "attempt": 12, "class": "Denied", "every": "5m" }),
                "TaskRun 'shop-7' is blocked (Denied) and has not started; the operator tries again by itself, at the latest every 300s",
            ),
            (
                "ChildNameTaken",
                json!(null),
                "TaskRun 'shop-7' is blocked (ChildNameTaken) and has not started; the operator tries again by itself",
            ),
            (
                "Progressing",
                json!(null),
                "TaskRun 'shop-7' has not finished: version 2 is Pending",
            ),
        ];
        for (reason, retry, expected) in cases {
            let status = json!({
                "phase": "Pending", "retry": retry,
                "conditions": [{
                    "type": "Succeeded", "status": "Unknown", "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            });
            let blocked = json!({
                "metadata": { "name": "shop-7" }, "spec": { "contextVersion": 2 }, "status": status,
            });
            let blocked = Object::new(&TASK_RUN, serde_json::from_value(blocked).unwrap());
            let error = again(&blocked, 2).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn only_what_finished_and_was_not_cancelled_runs_again() {
        let cases = [
            (
                json!({}),
                Some("OOMKilled"),
                Ok(json!({ "contextVersion": 3 })),
            ),
            (
                json!({}),
                Some("Succeeded"),
                Ok(json!({ "contextVersion": 3 })),
            ),
            (
                json!({}),
                None,
                Err("has not finished: version 2 is Running"),
            ),
            (
                json!({ "contextVersion": 3 }),
                Some("OOMKilled"),
                Err("version 3 is Pending"),
            ),
            (
                json!({ "cancel": true }),
                Some("Cancelled"),
                Err("was cancelled"),
            ),
        ];
        for (spec, reason, expected) in cases {
            let run = run(spec.clone(), reason);
            match (again(&run, run.version().unwrap()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, Some(expected), "{spec}"),
                (Err(error), Err(words)) => {
                    assert!(error.to_string().contains(words), "{error}");
                }
                (found, expected) => panic!("{spec}: {found:?}, not {expected:?}"),
            }
        }
    }

    /// A long-lived object has no outcome, and may be changed while it is being deleted.
    #[test]
    fn a_tenant_is_suspended_and_resumed() {
        let tenant = |suspend: bool| {
            let tenant = json!({ "metadata": { "name": "acme",
                "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": { "suspend": suspend },
                "status": { "phase": "Running" } });
            let row = &api::tenants::TENANT;
            Object::new(row, serde_json::from_value(tenant).unwrap())
        };
        let cases = [
            (false, Change::Suspend, Some(json!({ "suspend": true }))),
            (true, Change::Suspend, None),
            (true, Change::Resume, Some(json!({ "suspend": false }))),
            (false, Change::Resume, None),
        ];
        for (is_suspended, change, expected) in cases {
            assert_eq!(wanted(&tenant(is_suspended), change).unwrap(), expected);
        }
    }
}
