//! The Job of an attempt.

use std::time::Duration;

use api::decide::{Manifest, ResourceType};
use attempts::job_spec;
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{BuildContext, manifest, owner, pod_template::pod_template};

/// Builds the Job of an attempt.
pub(crate) fn job(context: &BuildContext<'_>) -> Result<Manifest, serde_json::Error> {
    let BuildContext {
        run_spec,
        agent,
        job: name,
        ..
    } = *context;
    let timeout = run_spec.spec.timeout.unwrap_or(agent.spec.timeout.into());
    let limit = Duration::from(agent.spec.start_timeout)
        .saturating_add(timeout)
        .saturating_add(run_spec.spec.after_main);
    let job = Job {
        metadata: ObjectMeta {
            owner_references: Some(vec![owner(&run_spec)]),
            ..ObjectMeta::default()
        },
        spec: Some(job_spec(pod_template(context)?, limit)),
        status: None,
    };
    let manifest = manifest(
        ResourceType::JOB,
        &run_spec,
        name,
        serde_json::to_value(&job)?,
    );
    Ok(match run_spec.requires_intent() {
        Some(intent) => manifest.requires_intent(intent),
        None => manifest,
    })
}
