//! The Jobs that run `step commit` for a request, as they are observed.
//!
//! # Caveats
//! A user who may create Pods in the namespace can forge a report. Such a user can also read the credentials and push
//! by themselves. A report alone is never a success: Flux has to apply the commit.

use api::{Timestamp, external::Reply};
use attempts::step::StepSettings;
use git::edits::CommitReport;
use k8s_openapi::api::core::v1::Pod;
use pods::{ContainerState, ContainerView, JobEnd, JobView, PodView, controller_uid};

use crate::pod::AppPod;

/// Name of the step and of its container.
pub const CONTAINER: &str = "commit";

/// Reason of the kubelet for a container with a program that could not be started.
const START_ERROR: &str = "StartError";

/// The Jobs of a request, and the configuration of new ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommitStep {
    /// The operator's configuration.
    pub settings: StepSettings,
    /// The Jobs.
    pub jobs: Vec<StepJob>,
    /// Reply with the log of the Job that makes the plan, once it has reported.
    pub log: Option<Reply<String>>,
}

impl CommitStep {
    /// Returns the Job with this name.
    #[must_use]
    pub fn job(&self, name: &str) -> Option<&StepJob> {
        self.jobs.iter().find(|job| job.name == name)
    }
}

/// A Job that runs the step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepJob {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Whether the Job is being deleted.
    pub is_deleting: bool,
    /// Whether the container has started in any Pod of the Job.
    pub has_started: bool,
    /// State of the step.
    pub state: StepState,
    /// The newest Pod.
    pub pod: Option<PodName>,
}

/// A Pod with a log that can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodName {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Node.
    pub node: String,
}

/// State of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum StepState {
    /// The container has not started.
    #[default]
    Pending,
    /// The container has not started, because of this.
    Blocked(String),
    /// The container runs, or its end is not reported yet.
    Running,
    /// The step has reported.
    Reported(CommitReport),
    /// The Job ended without a report of the step.
    Ended(String),
}

/// A Pod of such a Job, reduced to the fields that decisions read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepPod {
    /// UID of its Job.
    pub job_uid: Option<String>,
    /// Fields of any Pod.
    pub pod: PodView,
    /// The container of the step.
    pub container: ContainerView,
    /// Why the container does not start.
    pub cause: Option<String>,
}

impl From<&Pod> for StepPod {
    fn from(pod: &Pod) -> Self {
        Self {
            job_uid: controller_uid(&pod.metadata, "batch/v1", "Job"),
            pod: PodView::from(pod),
            container: ContainerView::find(pod, CONTAINER).unwrap_or_default(),
            cause: AppPod::from(pod).cause.map(|cause| cause.message),
        }
    }
}

impl StepPod {
    fn has_started(&self) -> bool {
        let started = |state: &ContainerState| match state {
            ContainerState::Running { .. } => true,
            ContainerState::Ended(exit) => exit.reason != START_ERROR,
            ContainerState::Unknown | ContainerState::Waiting(_) => false,
        };
        started(&self.container.state) || started(&self.container.before)
    }

    fn report(&self) -> Option<CommitReport> {
        CommitReport::read(&self.container.last_exit()?.message)
    }

    fn created(&self) -> Option<Timestamp> {
        self.pod.created
    }
}

impl StepJob {
    /// Reads a Job with its Pods. Pods of other Jobs are ignored. `warning` is the newest warning about the Job.
    #[must_use]
    pub fn read(namespace: &str, job: &JobView, pods: &[StepPod], warning: Option<&str>) -> Self {
        let mut own: Vec<&StepPod> = pods
            .iter()
            .filter(|pod| pod.job_uid.as_ref() == Some(&job.uid))
            .collect();
        own.sort_by_key(|pod| pod.created());
        let newest = own.last().copied();
        let has_started = own.iter().any(|pod| pod.has_started());
        Self {
            namespace: namespace.to_owned(),
            name: job.name.clone(),
            uid: job.uid.clone(),
            is_deleting: job.deleting.is_some(),
            has_started,
            state: state(job, &own, warning),
            pod: newest.and_then(|pod| {
                Some(PodName {
                    name: pod.pod.name.clone(),
                    uid: pod.pod.uid.clone(),
                    node: pod.pod.node.clone()?,
                })
            }),
        }
    }
}

/// Returns the state of a Job with these Pods, the oldest first.
fn state(job: &JobView, pods: &[&StepPod], warning: Option<&str>) -> StepState {
    let reports: Vec<CommitReport> = pods.iter().filter_map(|pod| pod.report()).collect();
    let is_on_branch = |report: &&CommitReport| match report {
        CommitReport::Pushed { .. } | CommitReport::Found { .. } => true,
        CommitReport::Planned { .. }
        | CommitReport::Failed { .. }
        | CommitReport::Uncertain { .. } => false,
    };
    // Of a Pod that was evicted and its replacement, a push counts more than a later failure.
    if let Some(report) = reports.iter().find(is_on_branch).or_else(|| reports.last()) {
        return StepState::Reported(report.clone());
    }
    let newest = pods.last();
    match &job.end {
        Some(JobEnd::Failed {
            reason, message, ..
        }) => {
            let exit = newest.and_then(|pod| pod.container.last_exit());
            let exit = exit.map_or_else(String::new, |exit| {
                format!(
                    "; its container exited with code {} ({})",
                    exit.code, exit.reason
                )
            });
            return StepState::Ended(format!("{reason}: {message}{exit}"));
        }
        Some(JobEnd::Complete { .. }) => {
            return StepState::Ended("it completed without a report".to_owned());
        }
        None => {}
    }
    match newest {
        Some(pod) if pod.has_started() => StepState::Running,
        Some(pod) => match &pod.cause {
            Some(cause) => StepState::Blocked(cause.clone()),
            None => StepState::Pending,
        },
        None => warning.map_or(StepState::Pending, |text| {
            StepState::Blocked(text.to_owned())
        }),
    }
}

#[cfg(test)]
mod tests {
    use git::{
        Commit,
        edits::{CommitReason, EditReason},
    };
    use serde_json::json;

    use super::*;

    fn commit() -> Commit {
        Commit::parse(&"ab".repeat(20)).unwrap()
    }

    fn failed() -> CommitReport {
        CommitReport::failed(CommitReason::Edit(EditReason::FileNotFound), "no file")
    }

    fn pushed() -> CommitReport {
        CommitReport::Pushed { commit: commit() }
    }

    fn job(end: Option<JobEnd>) -> JobView {
        JobView {
            name: "up-commit".to_owned(),
            uid: "job".to_owned(),
            end,
            ..JobView::default()
        }
    }

    fn pod(second: i64, state: serde_json::Value) -> StepPod {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "up-commit-x", "uid": format!("pod-{second}"),
                "creationTimestamp": Timestamp::from_second(second).unwrap().to_string(),
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": "up-commit", "uid": "job",
                    "controller": true,
                }],
            },
            "spec": { "nodeName": "node-1", "containers": [] },
            "status": { "containerStatuses": [{
                "name": CONTAINER, "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": state,
            }] },
        }))
        .unwrap();
        StepPod::from(&pod)
    }

    fn ended(report: &str) -> serde_json::Value {
        json!({ "terminated": { "exitCode": 1, "reason": "Error", "message": report } })
    }

    fn failure() -> Option<JobEnd> {
        Some(JobEnd::Failed {
            at: None,
            reason: "DeadlineExceeded".to_owned(),
            message: "too long".to_owned(),
        })
    }

    #[test]
    fn the_report_of_the_step_counts_before_the_end_of_its_job() {
        let running = || json!({ "running": {} });
        let waiting = || json!({ "waiting": { "reason": "ContainerCreating" } });
        // Columns: Pods, end of the Job, whether the container has started, state.
        let table = [
            (vec![], None, false, StepState::Pending),
            (vec![pod(1, waiting())], None, false, StepState::Pending),
            (vec![pod(1, running())], None, true, StepState::Running),
            (
                vec![pod(1, ended(&pushed().write()))],
                None,
                true,
                StepState::Reported(pushed()),
            ),
            (
                vec![pod(1, ended(&failed().write()))],
                failure(),
                true,
                StepState::Reported(failed()),
            ),
            // An evicted Pod had pushed before its replacement failed.
            (
                vec![
                    pod(2, ended(&failed().write())),
                    pod(1, ended(&pushed().write())),
                ],
                None,
                true,
                StepState::Reported(pushed()),
            ),
            // A Pod that ended without a report may be replaced.
            (vec![pod(1, ended("oops"))], None, true, StepState::Running),
            (
                vec![pod(1, ended("oops"))],
                failure(),
                true,
                StepState::Ended(
                    "DeadlineExceeded: too long; its container exited with code 1 (Error)"
                        .to_owned(),
                ),
            ),
            (
                vec![],
                failure(),
                false,
                StepState::Ended("DeadlineExceeded: too long".to_owned()),
            ),
        ];
        for (pods, end, has_started, expected) in table {
            let found = StepJob::read("shop", &job(end), &pods, None);
            assert_eq!(found.state, expected);
            assert_eq!(found.has_started, has_started, "{found:?}");
        }
    }

    #[test]
    fn a_pod_of_another_job_is_ignored() {
        let mut other = pod(1, ended(&pushed().write()));
        other.job_uid = Some("other".to_owned());
        let found = StepJob::read("shop", &job(None), &[other], Some("exceeded quota"));
        assert_eq!(found.state, StepState::Blocked("exceeded quota".to_owned()));
        assert_eq!(found.pod, None);
    }

    #[test]
    fn a_container_that_could_not_be_started_has_not_started() {
        let error = json!({ "terminated": { "exitCode": 128, "reason": "StartError" } });
        let found = StepJob::read("shop", &job(failure()), &[pod(1, error)], None);
        assert!(!found.has_started);
    }
}
