//! Cancels, suspends or resumes a run, or runs it again.

use api::{
    Phase, Reason,
    status::condition::SUCCEEDED,
    tasks::{RunPhase, TaskRun},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, ValidationDirective},
};
use serde_json::{Value, json};

use crate::{
    Error, MANAGER, Outcome, Request, Run, RunKind, RunStatusView, TRIES, outcome, same_version,
};

/// A change to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Cancel the run. This cannot be undone.
    Cancel,
    /// Suspend the run.
    Suspend,
    /// Resume the run.
    Resume,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Changed<R = TaskRun> {
    /// The change was written, and the operator will act on it.
    Now(Box<R>),
    /// The run already had this state, and nothing was written.
    Before(Box<R>),
}

impl<R> Changed<R> {
    /// Returns the current run.
    #[must_use]
    pub fn run(&self) -> &R {
        match self {
            Self::Now(run) | Self::Before(run) => run,
        }
    }
}

/// Changes one field of an unfinished run.
///
/// # Guarantees
/// A run that finishes meanwhile is not changed. Otherwise a finished run would be marked as
/// cancelled and could get no further version.
///
/// # Errors
/// [`Error::Finished`], [`Error::Cancelled`], [`Error::Deleting`], or an error of the server.
pub async fn change<R: Run>(
    client: &Client,
    namespace: &str,
    name: &str,
    change: Change,
) -> Result<Changed<R>, Error> {
    write(client, namespace, name, |run| wanted(run, name, change)).await
}

/// Runs a run again that has finished or that is blocked before its start. The run gets the next
/// context version with the same files. Corrections made meanwhile (to an image, a limit) apply to
/// it.
///
/// # Errors
/// [`Error::NotFinished`], [`Error::Cancelled`], [`Error::Deleting`], [`Error::Conflict`] if
/// someone created a version meanwhile, or an error of the server.
pub async fn run_again(client: &Client, namespace: &str, name: &str) -> Result<TaskRun, Error> {
    let mut first_seen = None;
    let changed = write(client, namespace, name, |run| {
        same_version(&mut first_seen, run, name)?;
        again(run, name)
    })
    .await?;
    match changed {
        Changed::Now(run) | Changed::Before(run) => Ok(*run),
    }
}

/// Reads the run, decides, and writes on condition that the run has not changed since. If the run
/// has changed, the function starts again.
async fn write<R: Run>(
    client: &Client,
    namespace: &str,
    name: &str,
    mut decide: impl FnMut(&R) -> Result<Option<Value>, Error>,
) -> Result<Changed<R>, Error> {
    let runs: Api<R> = Api::namespaced(client.clone(), namespace);
    let how = PatchParams {
        dry_run: false,
        force: false,
        field_manager: Some(MANAGER.to_owned()),
        field_validation: Some(ValidationDirective::Strict),
    };
    for _ in 0..TRIES {
        let run = runs
            .get(name)
            .await
            .map_err(|error| Request::of_kind(R::KIND, "get", namespace, name).failed(error))?;
        let Some(spec) = decide(&run)? else {
            return Ok(Changed::Before(Box::new(run)));
        };
        let patch = json!({
            "metadata": { "resourceVersion": run.meta().resource_version },
            "spec": spec,
        });
        match runs.patch(name, &how, &Patch::Merge(patch)).await {
            Ok(run) => return Ok(Changed::Now(Box::new(run))),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                return Err(Request::of_kind(R::KIND, "patch", namespace, name).failed(error));
            }
        }
    }
    Err(Error::Busy {
        kind: R::KIND,
        name: name.to_owned(),
    })
}

/// Returns the field to be written, or `None` if the run already has this state.
fn wanted<R: Run>(run: &R, name: &str, change: Change) -> Result<Option<Value>, Error> {
    let outcome = outcome(run);
    if change == Change::Cancel && outcome == Some(Outcome::Cancelled) {
        return Ok(None);
    }
    if run.meta().deletion_timestamp.is_some() {
        return Err(Error::Deleting {
            kind: R::KIND,
            name: name.to_owned(),
        });
    }
    if let Some(outcome) = outcome {
        return Err(Error::Finished {
            kind: R::KIND,
            name: name.to_owned(),
            phase: outcome.phase(),
            reason: outcome.reason().to_owned(),
            version: run.context_version(),
        });
    }
    if run.is_cancelled() && change != Change::Cancel {
        return Err(Error::Cancelled {
            kind: R::KIND,
            name: name.to_owned(),
        });
    }
    Ok(match change {
        Change::Cancel if run.is_cancelled() => None,
        Change::Cancel => Some(json!({ "cancel": true })),
        Change::Suspend => (!run.is_suspended()).then(|| json!({ "suspend": true })),
        Change::Resume => run.is_suspended().then(|| json!({ "suspend": false })),
    })
}

fn again(run: &TaskRun, name: &str) -> Result<Option<Value>, Error> {
    if run.metadata.deletion_timestamp.is_some() {
        return Err(Error::Deleting {
            kind: RunKind::Task,
            name: name.to_owned(),
        });
    }
    if run.spec.cancel {
        return Err(Error::Cancelled {
            kind: RunKind::Task,
            name: name.to_owned(),
        });
    }
    let version = run.spec.context_version;
    let status = run.status_view();
    if outcome(run).is_none() && !status.is_some_and(is_blocked) {
        let phase = status.and_then(|status| status.phase);
        return Err(Error::NotFinished {
            kind: RunKind::Task,
            name: name.to_owned(),
            version: Some(version),
            phase: phase.unwrap_or(RunPhase::Pending).name(),
        });
    }
    let mut change = json!({ "contextVersion": version.saturating_add(1) });
    if run.spec.suspend {
        // The run is still suspended from before. Without this, the new version would never start.
        change["suspend"] = json!(false);
    }
    Ok(Some(change))
}

/// Returns whether the run is blocked by a problem before its start. Then no container runs that a
/// new version would stop.
fn is_blocked(status: RunStatusView<'_>) -> bool {
    let ordinary = [Reason::Progressing, Reason::Suspended, Reason::Deleting];
    let reason = status.progress.condition(SUCCEEDED);
    status.phase == Some(RunPhase::Pending)
        && reason.is_some_and(|known| ordinary.iter().all(|word| word.name() != known.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(spec: Value, reason: Option<&str>) -> TaskRun {
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
        serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "shop-7" }, "spec": all,
            "status": { "contextVersion": 2, "phase": "Running", "conditions": conditions },
        }))
        .unwrap()
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
            let found = wanted(&run(spec.clone(), reason), "shop-7", change);
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
            let status = blocked.status.as_mut().unwrap();
            status.phase = serde_json::from_value(json!(phase)).unwrap();
            status
                .progress
                .conditions
                .retain(|known| known.type_ != "Finished");
            assert_eq!(
                again(&blocked, "shop-7").is_ok(),
                wanted,
                "{phase} {reason}"
            );
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
            match (again(&run(spec.clone(), reason), "shop-7"), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, Some(expected), "{spec}"),
                (Err(error), Err(words)) => {
                    assert!(error.to_string().contains(words), "{error}");
                }
                (found, expected) => panic!("{spec}: {found:?}, not {expected:?}"),
            }
        }
    }
}
