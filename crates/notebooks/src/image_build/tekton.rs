//! The state of a PipelineRun of Tekton (`tekton.dev/v1`).

use api::{
    Reason,
    status::{MAX_MESSAGE_CHARS, bounded},
};
use serde_json::Value;

use super::{BuildOutcome, BuildState, Digest, ImageReference, Tekton};

/// Returns the state of a PipelineRun. `repository` is the one that the build must push to.
///
/// # Guarantees
/// Only `Succeeded=True` with both results completes a build (F7). `Succeeded=Unknown` is never final, whatever its reason.
#[must_use]
pub fn pipeline_run_state(run: Option<&Value>, spec: &Tekton, repository: &str) -> BuildState {
    let Some(run) = run else {
        return BuildState::Absent;
    };
    let conditions = run
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let mut all = conditions.iter();
    let Some(succeeded) = all.find(|one| text(one, "type") == "Succeeded") else {
        return BuildState::Waiting(
            Reason::Building,
            "Tekton has not started the PipelineRun".to_owned(),
        );
    };
    let (status, reason) = (text(succeeded, "status"), text(succeeded, "reason"));
    let message = bounded(text(succeeded, "message"), MAX_MESSAGE_CHARS - 100);
    match status {
        "True" => BuildState::Finished(complete(run, spec, repository, reason)),
        "False" => BuildState::Finished(failed(run, reason, &message)),
        _ => BuildState::Running,
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn complete(run: &Value, spec: &Tekton, repository: &str, reason: &str) -> BuildOutcome {
    let result = |name: &str| {
        let results = run.pointer("/status/results")?.as_array()?;
        let found = results.iter().find(|one| text(one, "name") == name)?;
        Some(text(found, "value").trim()).filter(|value| !value.is_empty())
    };
    let missing = |name: &str| {
        // `Completed` means that tasks were skipped.
        let message =
            format!("the PipelineRun ended with the reason '{reason}', but has no result '{name}'");
        BuildOutcome::failed(Reason::ImageReferenceMissing, message)
    };
    let Some(url) = result(&spec.url_result) else {
        return missing(&spec.url_result);
    };
    let Some(digest) = result(&spec.digest_result) else {
        return missing(&spec.digest_result);
    };
    if without_tag(url) != repository {
        let message = format!(
            "the PipelineRun pushed to '{}' instead of '{repository}'",
            bounded(url, 200)
        );
        return BuildOutcome::failed(Reason::ImageMismatch, message);
    }
    let reference =
        Digest::parse(digest).and_then(|digest| ImageReference::new(repository, digest));
    reference.map_or_else(
        || {
            let message = format!(
                "the result '{}' of the PipelineRun is no digest: '{}'",
                spec.digest_result,
                bounded(digest, 100)
            );
            BuildOutcome::failed(Reason::ImageReferenceMissing, message)
        },
        BuildOutcome::Complete,
    )
}

/// Returns the repository of an image. Its last part may have a tag, a digest or both.
fn without_tag(url: &str) -> &str {
    let name = url.split_once('@').map_or(url, |(name, _)| name);
    match name.rsplit_once(':') {
        // A colon before the last slash begins the port of the registry.
        Some((repository, tag)) if !tag.contains('/') => repository,
        Some(_) | None => name,
    }
}

fn failed(run: &Value, reason: &str, message: &str) -> BuildOutcome {
    let found = match reason {
        "CouldntGetPipeline" => Reason::PipelineNotFound,
        "PipelineRunTimeout" => Reason::BuildTimeout,
        // We cancel a run only after the decision to stop it is stored.
        "Cancelled" | "CancelledRunFinally" | "StoppedRunFinally" => Reason::Disrupted,
        _ => Reason::BuildFailed,
    };
    BuildOutcome::Failed {
        reason: found,
        step: failed_task(run),
        message: format!("the PipelineRun failed with the reason '{reason}': {message}"),
    }
}

/// Returns the name of the task that the PipelineRun lists as failed, if it lists one.
fn failed_task(run: &Value) -> Option<String> {
    let children = run.pointer("/status/childReferences")?.as_array()?;
    match children.as_slice() {
        // With several tasks, only the message names the failed one.
        [one] => Some(bounded(text(one, "pipelineTaskName"), 100)).filter(|name| !name.is_empty()),
        _ => None,
    }
}
