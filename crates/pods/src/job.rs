//! Reduced view of a Job.

use api::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use crate::container::short;

/// Reduced view of a Job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobView {
    /// Name of the Job.
    pub name: String,
    /// UID of the Job.
    pub uid: String,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Time since which the Job is being deleted.
    pub deleting: Option<Timestamp>,
    /// Whether the Job is suspended, so that it runs no Pod.
    pub suspended: bool,
    /// Time at which the Job controller started the Job. The Job's own limit counts from there.
    pub started: Option<Timestamp>,
    /// The Job's own limit (`activeDeadlineSeconds`), in seconds.
    pub limit_seconds: Option<i64>,
    /// Time at which the Job controller resumed the Job after a suspension.
    pub resumed: Option<Timestamp>,
    /// Whether the Job controller has counted a Pod that ended.
    pub counted: bool,
    /// End of the Job, from its conditions.
    pub end: Option<JobEnd>,
}

/// End of a Job, from its conditions. Counters do not show the end: they change before the Job is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// `Complete=True`.
    Complete {
        /// Transition time of the condition.
        at: Option<Timestamp>,
    },
    /// `Failed=True`.
    Failed {
        /// Transition time of the condition.
        at: Option<Timestamp>,
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
}

impl JobEnd {
    /// Returns the transition time of the condition that reports the end.
    #[must_use]
    pub fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Complete { at } | Self::Failed { at, .. } => *at,
        }
    }

    fn of(job: &Job) -> Option<Self> {
        let conditions = job.status.as_ref()?.conditions.as_ref()?;
        let found = |kind: &str| {
            conditions
                .iter()
                .find(|condition| condition.type_ == kind && condition.status == "True")
        };
        // A Job with both conditions is not a success.
        if let Some(failed) = found("Failed") {
            return Some(Self::Failed {
                at: failed.last_transition_time.as_ref().map(|time| time.0),
                reason: short(failed.reason.as_ref()),
                message: short(failed.message.as_ref()),
            });
        }
        found("Complete").map(|complete| Self::Complete {
            at: complete.last_transition_time.as_ref().map(|time| time.0),
        })
    }
}

impl From<&Job> for JobView {
    fn from(job: &Job) -> Self {
        let (meta, spec) = (&job.metadata, job.spec.as_ref());
        let started = job
            .status
            .as_ref()
            .and_then(|status| status.start_time.as_ref());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            deleting: meta.deletion_timestamp.as_ref().map(|time| time.0),
            suspended: spec.and_then(|spec| spec.suspend) == Some(true),
            started: started.map(|time| time.0),
            limit_seconds: spec.and_then(|spec| spec.active_deadline_seconds),
            resumed: resumed(job),
            counted: has_counted(job),
            end: JobEnd::of(job),
        }
    }
}

/// Returns when the Job was resumed. Returns `Timestamp::MAX` while the controller still reports the Job as suspended:
/// until then, all its Pods are from before the resumption.
fn resumed(job: &Job) -> Option<Timestamp> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let suspended = conditions
        .iter()
        .find(|condition| condition.type_ == "Suspended")?;
    if suspended.status == "True" {
        return Some(Timestamp::MAX);
    }
    suspended.last_transition_time.as_ref().map(|time| time.0)
}

/// Returns whether a Pod of the Job ended. The Job controller records this before it removes its finalizer from the
/// Pod, so before the Pod can disappear. It does not count Pods that it stopped for a suspension, or Pods that
/// `podFailurePolicy` ignores.
fn has_counted(job: &Job) -> bool {
    let Some(status) = &job.status else {
        return false;
    };
    let is_listed = |uids: &Option<Vec<String>>| uids.as_ref().is_some_and(|uids| !uids.is_empty());
    let uncounted = status.uncounted_terminated_pods.as_ref();
    uncounted.is_some_and(|pods| is_listed(&pods.succeeded) || is_listed(&pods.failed))
        || status.succeeded.is_some_and(|count| count > 0)
        || status.failed.is_some_and(|count| count > 0)
}
