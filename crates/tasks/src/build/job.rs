//! The Job of an attempt.

use std::time::Duration;

use api::{
    decide::{Manifest, ResourceType},
    tasks::AgentSpec,
};
use k8s_openapi::{
    api::batch::v1::{
        Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern,
        PodFailurePolicyRule,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{BuildContext, manifest, owner, pod_template::pod_template};
use crate::run::run_spec::RunSpec;

/// Margin of the Job's own limit beyond `startTimeout` and `timeout`. The operator ends an attempt
/// itself. The Job's limit applies only while no operator runs.
pub(crate) const BACKSTOP: Duration = Duration::from_secs(60);

/// Builds the Job of an attempt.
pub(crate) fn job(context: &BuildContext<'_>) -> Result<Manifest, serde_json::Error> {
    let BuildContext {
        run_spec,
        agent,
        job: name,
        ..
    } = *context;
    let job = Job {
        metadata: ObjectMeta {
            owner_references: Some(vec![owner(&run_spec)]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            active_deadline_seconds: Some(active_deadline(&run_spec, &agent.spec)),
            backoff_limit: Some(0),
            completions: Some(1),
            parallelism: Some(1),
            // A second Pod before the first has ended would run two agents at once.
            pod_replacement_policy: Some("Failed".to_owned()),
            pod_failure_policy: Some(ignore_disruptions()),
            template: pod_template(context)?,
            ..JobSpec::default()
        }),
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

fn active_deadline(run_spec: &RunSpec<'_>, agent: &AgentSpec) -> i64 {
    let timeout = run_spec.timeout.unwrap_or(agent.timeout.into());
    let whole = Duration::from(agent.start_timeout)
        .saturating_add(timeout)
        .saturating_add(run_spec.after_agent())
        .saturating_add(BACKSTOP);
    let seconds = whole
        .as_secs()
        .saturating_add(u64::from(whole.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn ignore_disruptions() -> PodFailurePolicy {
    PodFailurePolicy {
        rules: vec![PodFailurePolicyRule {
            action: "Ignore".to_owned(),
            on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                type_: "DisruptionTarget".to_owned(),
                status: "True".to_owned(),
            }]),
            on_exit_codes: None,
        }],
    }
}
