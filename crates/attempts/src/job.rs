//! The Job of an attempt.

use std::time::Duration;

use k8s_openapi::api::{
    batch::v1::{
        JobSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
    },
    core::v1::PodTemplateSpec,
};

use crate::BACKSTOP;

/// Builds the spec of a Job that runs one Pod of this template, once, for `limit` at most.
pub fn job_spec(template: PodTemplateSpec, limit: Duration) -> JobSpec {
    JobSpec {
        active_deadline_seconds: Some(whole_seconds(limit.saturating_add(BACKSTOP))),
        backoff_limit: Some(0),
        completions: Some(1),
        parallelism: Some(1),
        // A second Pod before the first has ended would run the work twice at once.
        pod_replacement_policy: Some("Failed".to_owned()),
        pod_failure_policy: Some(ignore_disruptions()),
        template,
        ..JobSpec::default()
    }
}

fn whole_seconds(limit: Duration) -> i64 {
    let seconds = limit
        .as_secs()
        .saturating_add(u64::from(limit.subsec_nanos() > 0));
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
