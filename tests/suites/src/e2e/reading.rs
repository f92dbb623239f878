//! What a run's status says.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context, Result, ensure};
use api::{Phase, Status, names, status::condition};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use testkit::wait::until;

/// Whether a status describes the present spec. A change of the spec leaves the old status for a moment.
/// The status of a finished run stays.
pub(super) fn is_current<S: Status>(status: &S, generation: Option<i64>) -> bool {
    let progress = status.progress();
    let is_unseen = progress.observed_generation == -1;
    is_unseen
        || Some(progress.observed_generation) == generation
        || progress.is_true(condition::FINISHED)
}

/// What holds at every instant. S0.3: a status is never empty, because the CRD has a default.
pub(super) fn sane<S: Status>(status: Option<&S>, generation: Option<i64>) -> Result<()> {
    let status = status.context("S0.3: no status, although the CRD has a default")?;
    let progress = status.progress();
    let phase = phase_of(status);
    let has_message = progress
        .message
        .as_ref()
        .is_some_and(|text| !text.is_empty());
    ensure!(
        !phase.is_empty() && has_message,
        "S0.3: phase '{phase}', message {:?}",
        progress.message
    );
    if progress.observed_generation == -1 {
        let first = S::Phase::TABLE.first().map(|row| row.phase.name());
        let is_unseen = first == Some(phase.as_str()) && progress.conditions.is_empty();
        ensure!(is_unseen, "not as before the first look: {}", brief(status));
        return Ok(());
    }
    let is = |kind: &str| progress.is_true(kind);
    ensure!(
        !(is(condition::RECONCILING) && is(condition::STALLED)),
        "Reconciling and Stalled: {}",
        brief(status)
    );
    ensure!(
        progress.observed_generation <= generation.unwrap_or(0),
        "observedGeneration from the future"
    );
    let is_over = phase == "Succeeded" || phase == "Failed";
    ensure!(
        is(condition::FINISHED) == is_over,
        "Finished and phase {phase} disagree"
    );
    ensure!(
        is(condition::SUCCEEDED) == (phase == "Succeeded"),
        "Succeeded and phase {phase} disagree"
    );
    if phase == "Failed" {
        ensure!(is(condition::STALLED), "failed, but not Stalled");
    }
    if !is_over {
        ensure!(
            is(condition::RECONCILING) || is(condition::STALLED),
            "neither at work nor given up"
        );
    }
    Ok(())
}

pub(super) fn phase_of<S: Status>(status: &S) -> String {
    status
        .phase()
        .map_or(String::new(), |phase| phase.name().to_owned())
}

pub(super) fn reason_of<S: Status>(status: &S) -> &str {
    status
        .progress()
        .condition(condition::SUCCEEDED)
        .map_or("", |one| one.reason.as_str())
}

/// A status in one line.
pub(super) fn brief<S: Status>(status: &S) -> String {
    let message = status.progress().message.as_deref().unwrap_or("no message");
    format!("{} {}: {message}", phase_of(status), reason_of(status))
}

/// S0.8: checks that the log has a line at level info for the creation of a child, with the run.
pub(super) fn logs_creation(log: &str, run: &str, kind: &str, child: &str) -> Result<()> {
    let words = [
        r#""level":"INFO""#.to_owned(),
        format!(r#""object":"{run}""#),
        r#""effect":"created""#.to_owned(),
        format!(r#""target_kind":"{kind}""#),
        format!(r#""target_object":"{child}""#),
    ];
    let is_it = |line: &str| words.iter().all(|word| line.contains(word));
    ensure!(
        log.lines().any(is_it),
        "S0.8: no line of the log has {words:?}: {log}"
    );
    Ok(())
}

pub(super) fn says_all<S: Status>(status: &S, words: &[&str]) -> Result<()> {
    let message = status.progress().message.as_deref().unwrap_or_default();
    for word in words {
        ensure!(message.contains(word), "'{word}' is not in '{message}'");
    }
    Ok(())
}

/// Waits until a run that has ended has told its outcome and is held by nobody.
///
/// One that ended before it got a finalizer has none to wait for: its outcome is written after its
/// status, too.
pub(super) async fn freed<R>(runs: &Api<R>, name: &str) -> Result<R>
where
    R: Resource + Clone + Debug + DeserializeOwned,
{
    let limit = Duration::from_secs(5);
    until("the outcome to be told", limit, async || {
        let seen = runs.get(name).await?;
        let is_told = seen.annotations().contains_key(names::OUTCOME);
        Ok(if is_told && seen.finalizers().is_empty() {
            Ok(seen)
        } else {
            Err(format!("{:?}, told: {is_told}", seen.finalizers()))
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use api::tasks::TaskRunStatus;
    use serde_json::{Value, json};

    use super::*;

    fn is_sane(status: Value) -> bool {
        let status: TaskRunStatus = serde_json::from_value(status).unwrap();
        sane(Some(&status), Some(1)).is_ok()
    }

    #[test]
    fn an_empty_status_is_an_error() {
        let default = json!({
            "phase": "Pending", "message": "waiting for the operator to look at it",
            "observedGeneration": -1,
        });
        assert!(is_sane(default.clone()));
        assert!(sane::<TaskRunStatus>(None, Some(1)).is_err());
        for field in ["phase", "message"] {
            let mut status = default.clone();
            status[field] = Value::Null;
            assert!(!is_sane(status), "without {field}");
        }
        assert!(!is_sane(json!({})));
    }
}
