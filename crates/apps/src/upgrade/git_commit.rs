//! Pushes the commit with the new version, and finds out whether it is on the branch.
//!
//! # Guarantees
//! - The intent with the base commit and the UID of the request is stored before the first Job is created.
//! - Each attempt is one Job. It first searches the branch for the commit of an earlier attempt, so a crash, a lost response
//!   and a Pod on a lost node leave one commit.
//! - The request is undone only if it is certain that no attempt has pushed. If it is not certain, further attempts find
//!   out, up to a limit. Then the outcome is unknown, and nothing is undone in Git or deleted.

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    apps::{
        PushAttempt, PushFailure, PushOutcome, PushedCommit, UpgradePhase, UpgradePlan,
        UpgradeRequestStatus, VersionsBefore, upgrade_condition, upgrade_intent,
    },
    decide::{ConditionUpdate, Decision, Effect, LiveRead, ResourceType, Target},
    time,
};
use git::{
    Reason as GitReason,
    edits::{CommitReason, CommitReport, EditReason},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    MAX_AGE, Request, UpgradeDecision,
    commit_job::{self, Work},
    commit_step::{StepJob, StepState},
    git_plan, guard, read, scale_down,
    undo::{self, SETTLE_TIME},
};
use crate::discover::Problem;

/// Delay before another attempt. It bounds the number of Jobs of a request.
const RETRY_DELAY: Duration = Duration::from_secs(20);

/// Begins the phase: stores the intent to push.
pub(super) fn begin(request: &Request<'_>, mut status: UpgradeRequestStatus) -> UpgradeDecision {
    let base = status.plan.as_ref().map(|plan| plan.commit.base.clone());
    let base = base.unwrap_or_default();
    status.intent = Some(upgrade_intent::push(&base, request.uid()));
    status.before_commit = Some(versions_before(request, &status));
    status.push = Some(attempt(1, request.now));
    request.advance(
        status,
        UpgradePhase::GitCommit,
        Reason::Committing,
        "pushes the commit with the new version",
    )
}

/// Returns the versions of the suspended objects of Flux. Without an observation, those of the plan count.
fn versions_before(request: &Request<'_>, status: &UpgradeRequestStatus) -> VersionsBefore {
    let plan = status.plan.as_ref();
    let live = request.world.live.as_ref();
    let source = request.world.source.present();
    let applied = live.and_then(|live| live.kustomization.present());
    let newest = live.and_then(|live| live.release()?.newest.as_ref());
    VersionsBefore {
        source: source
            .and_then(|source| source.revision.clone())
            .or_else(|| plan?.commit.source.revision.clone()),
        applied: applied
            .and_then(|found| found.revision.clone())
            .or_else(|| plan?.revision.clone()),
        release_version: newest
            .map(|newest| newest.version)
            .or_else(|| Some(plan?.release.as_ref()?.version)),
    }
}

fn attempt(number: u32, starts: Timestamp) -> PushAttempt {
    PushAttempt {
        number,
        started_at: Time(time::whole(starts)),
        job_uid: None,
        has_started: false,
        is_abandoned: false,
        is_uncertain: false,
        failure: None,
    }
}

/// Returns the deletions of the Jobs of a request whose commit has its outcome. Nothing waits for them: the cluster deletes
/// a Job that ended after some time.
pub(super) fn job_deletions<'a>(request: &Request<'a>) -> impl Iterator<Item = Effect> + use<'a> {
    let is_rejected = request.refused;
    let jobs = request.world.commit.jobs.iter();
    let jobs = jobs.filter(move |job| !job.is_deleting && !is_rejected);
    jobs.map(|job| deletion(job).optional())
}

fn deletion(job: &StepJob) -> Effect {
    Effect::Delete(Target {
        resource: ResourceType::JOB,
        namespace: Some(job.namespace.clone()),
        name: job.name.clone(),
        uid: job.uid.clone(),
        version: None,
        requires_intent: None,
        optional: false,
    })
}

/// Decides about a request in `GitCommit`, in deletion or not.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    let (Some(plan), Some(push)) = (request.plan(), &request.stored.push) else {
        return undo::without_plan(request);
    };
    let push = Push {
        request,
        plan,
        name: commit_job::commit_name(request.name(), push.number),
        stored: push,
    };
    match request.world.commit.job(&push.name) {
        None if request.fault.is_some() && !request.confirmed => request.confirm(push.reads()),
        None if push.stored.job_uid.is_some() => push.vanished(),
        None => match request.fault {
            // The create was rejected, and an earlier one had created nothing either, so this attempt has not pushed.
            Some(fault) => push.failed(&Problem::new(fault.reason, fault.message.clone())),
            None => push.not_created(),
        },
        Some(job) => push.observed(job),
    }
}

/// The current attempt.
struct Push<'a> {
    request: &'a Request<'a>,
    plan: &'a UpgradePlan,
    name: String,
    stored: &'a PushAttempt,
}

impl Push<'_> {
    fn timeout(&self) -> Duration {
        self.plan.timeouts.git_commit.into()
    }

    fn reads(&self) -> Vec<LiveRead> {
        let namespace = self.request.namespace();
        vec![read(ResourceType::JOB, namespace, &self.name)]
    }

    /// Stays in the phase with this state of the attempt.
    fn wait(&self, push: PushAttempt, message: String) -> UpgradeDecision {
        let request = self.request;
        let mut status = request.stored.clone();
        status.push = Some(push);
        let verdict = Verdict::working(Reason::Committing, message);
        Decision::status_only(status, UpgradePhase::GitCommit, verdict)
            .requeue_at(time::after(request.now, MAX_AGE))
    }

    /// There is no Job yet, or the response to its create was lost.
    fn not_created(&self) -> UpgradeDecision {
        let request = self.request;
        if request.overdue {
            return self.too_late();
        }
        let is_first = self.stored.number == 1;
        if request.is_deleting() && is_first {
            // A create of a killed operator may still arrive.
            let settled = time::after(self.stored.started_at.0, SETTLE_TIME);
            if request.now < settled {
                let message = format!("checks that Job '{}' was not created", self.name);
                return self.wait(self.stored.clone(), message).requeue_at(settled);
            }
            return if request.confirmed {
                request.fail(&super::deletion::deleting())
            } else {
                request.confirm(self.reads())
            };
        }
        if is_first && let Some(problem) = self.broken() {
            return if request.confirmed {
                request.fail(&problem)
            } else {
                let mut reads = request.reads_of_plan();
                reads.extend(self.reads());
                request.confirm(reads)
            };
        }
        let starts = self.stored.started_at.0;
        if request.now < starts {
            let failure = self.stored.failure.as_ref();
            let why = failure.map_or("", |failure| failure.message.as_str());
            let message = format!("tries again as Job '{}': {why}", self.name);
            return self.wait(self.stored.clone(), message).requeue_at(starts);
        }
        self.create()
    }

    /// Returns why the commit would not be applied in the right order. After the first attempt, its outcome counts.
    fn broken(&self) -> Option<Problem> {
        let request = self.request;
        let is_running = request.stored.restarted_at.is_some();
        let scaled = || scale_down::scaled_up(request, self.plan).filter(|_| !is_running);
        guard::broken(request).or_else(scaled)
    }

    fn create(&self) -> UpgradeDecision {
        let request = self.request;
        let commit = &self.plan.commit;
        let step = commit_job::commit_request(commit, commit.summary.clone());
        let work = Work {
            name: self.name.clone(),
            url: &commit.url,
            secret: &commit.credentials_secret,
            step: &step,
            timeout: self.timeout(),
            start: self.timeout(),
        };
        let settings = &request.world.commit.settings;
        match commit_job::commit_job(request.object, settings, &work, &commit.base) {
            Ok(job) => {
                let message = format!("starts Job '{}', which pushes the commit", self.name);
                self.wait(self.stored.clone(), message)
                    .with(Effect::Ensure(Box::new(job)))
            }
            Err(error) => self.failed(&Problem::new(
                Reason::InternalError,
                format!("the Job: {error}"),
            )),
        }
    }

    /// The Job was observed, and does not exist any more. Its Pod was deleted before it.
    fn vanished(&self) -> UpgradeDecision {
        let request = self.request;
        if !request.confirmed {
            return request.confirm(self.reads());
        }
        let is_abandoned = self.stored.is_abandoned && !self.stored.has_started;
        match self.stored.failure.as_ref().filter(|_| is_abandoned) {
            Some(failure) => self.failed(&Problem::new(
                git_plan::reason_of(&failure.reason),
                failure.message.clone(),
            )),
            None => self.uncertain(&Problem::new(
                Reason::CommitFailed,
                format!("Job '{}' was deleted before its report was read", self.name),
            )),
        }
    }

    fn observed(&self, job: &StepJob) -> UpgradeDecision {
        let push = PushAttempt {
            job_uid: Some(job.uid.clone()),
            has_started: self.stored.has_started || job.has_started,
            ..self.stored.clone()
        };
        if let StepState::Reported(report) = &job.state {
            return self.reported(report);
        }
        if self.request.overdue {
            return self.too_late();
        }
        let name = &self.name;
        if job.is_deleting {
            return self.wait(push, format!("waits until Job '{name}' is deleted"));
        }
        match &job.state {
            StepState::Running => {
                let branch = &self.plan.commit.branch;
                self.wait(push, format!("Job '{name}' pushes to branch '{branch}'"))
            }
            StepState::Pending => self.pending(job, push, "its Pod does not start"),
            StepState::Blocked(cause) => self.pending(job, push, cause),
            StepState::Ended(why) => {
                let message = format!("Job '{name}' ended without a report: {why}");
                let problem = Problem::new(Reason::CommitFailed, message);
                if push.has_started {
                    self.uncertain(&problem)
                } else {
                    self.failed(&problem)
                }
            }
            StepState::Reported(report) => self.reported(report),
        }
    }

    /// The container has not started. After the time of the attempt, its Job is deleted, so that it cannot push later.
    fn pending(&self, job: &StepJob, mut push: PushAttempt, cause: &str) -> UpgradeDecision {
        let request = self.request;
        let message = format!("Job '{}' does not push yet: {cause}", self.name);
        let end = time::after(self.stored.started_at.0, self.timeout());
        let is_in_time = request.now < end && !request.is_deleting();
        if push.has_started || is_in_time {
            let decision = self.wait(push, message);
            return if request.now < end {
                decision.requeue_at(end)
            } else {
                decision
            };
        }
        if !request.confirmed {
            return request.confirm(self.reads());
        }
        // Stored before the deletion: a Job that vanished for another reason may have pushed.
        if !push.is_abandoned {
            push.is_abandoned = true;
            push.failure = Some(PushFailure {
                reason: Reason::CommitFailed.name().to_owned(),
                message: message.clone(),
            });
            return self.wait(push, message).requeue_at(request.now);
        }
        self.wait(push, message).with(deletion(job))
    }

    fn reported(&self, report: &CommitReport) -> UpgradeDecision {
        match report {
            CommitReport::Pushed { commit } => self.pushed(commit.as_str(), PushOutcome::Pushed),
            CommitReport::Found { commit } => self.pushed(commit.as_str(), PushOutcome::Found),
            CommitReport::Failed { reason, message } => {
                let problem = Problem::new(git_plan::reason_of(reason.as_str()), message.clone());
                if is_retried(*reason) && self.may_retry() {
                    self.next(&problem, self.stored.is_uncertain)
                } else {
                    self.failed(&problem)
                }
            }
            CommitReport::Uncertain { message, .. } => {
                self.uncertain(&Problem::new(Reason::CommitFailed, message.clone()))
            }
            CommitReport::Planned { .. } => self.uncertain(&Problem::new(
                Reason::CommitFailed,
                format!("Job '{}' reported a plan instead of a commit", self.name),
            )),
        }
    }

    /// Returns whether another attempt begins after one that pushed nothing.
    fn may_retry(&self) -> bool {
        let started = self.request.stored.progress.phase_started_at.as_ref();
        let started = started.map_or(self.request.now, |started| started.0);
        let end = time::after(started, self.timeout());
        self.request.now < end && !self.request.is_deleting()
    }

    /// This attempt has not pushed.
    fn failed(&self, problem: &Problem) -> UpgradeDecision {
        if !self.stored.is_uncertain {
            return self.request.fail(problem);
        }
        // An earlier attempt may have pushed, and only a commit on the branch shows it.
        self.next(problem, true)
    }

    /// This attempt may have pushed.
    fn uncertain(&self, problem: &Problem) -> UpgradeDecision {
        self.next(problem, true)
    }

    fn next(&self, problem: &Problem, is_uncertain: bool) -> UpgradeDecision {
        let request = self.request;
        if request.overdue {
            return self.outcome_unknown();
        }
        let starts = time::after(request.now, RETRY_DELAY);
        let push = PushAttempt {
            is_uncertain,
            failure: Some(PushFailure {
                reason: problem.reason.name().to_owned(),
                message: problem.message.clone(),
            }),
            ..attempt(self.stored.number.saturating_add(1), starts)
        };
        let message = format!("tries again: {}", problem.message);
        self.wait(push, message).requeue_at(starts)
    }

    /// The time of the phase is over.
    fn too_late(&self) -> UpgradeDecision {
        let exists = self.request.world.commit.job(&self.name).is_some();
        if exists || self.stored.is_uncertain || self.stored.job_uid.is_some() {
            return self.outcome_unknown();
        }
        // The cache may lack a Job whose create had no response.
        if !self.request.confirmed {
            return self.request.confirm(self.reads());
        }
        let failure = self.stored.failure.as_ref();
        let message = failure.map_or_else(
            || format!("Job '{}' was not created in time", self.name),
            |failure| failure.message.clone(),
        );
        self.request
            .fail(&Problem::new(Reason::CommitFailed, message))
    }

    fn outcome_unknown(&self) -> UpgradeDecision {
        let branch = &self.plan.commit.branch;
        let uid = self.request.uid();
        self.request.fail(&Problem::new(
            Reason::PushOutcomeUnknown,
            format!(
                "it is not known whether the commit is on branch '{branch}'. Look for it with: git fetch origin {branch} && git log --grep 'Orchestrator-Run: {uid}' FETCH_HEAD"
            ),
        ))
    }

    /// The commit is on the branch.
    fn pushed(&self, id: &str, outcome: PushOutcome) -> UpgradeDecision {
        let request = self.request;
        let mut status = request.stored.clone();
        status.commit = Some(PushedCommit {
            id: id.to_owned(),
            outcome,
            at: Time(time::whole(request.now)),
        });
        let branch = &self.plan.commit.branch;
        let mut decision = request.advance(
            status,
            UpgradePhase::Reconcile,
            Reason::Applying,
            format!("commit {id} is on branch '{branch}'; Flux applies it"),
        );
        decision.conditions.push(ConditionUpdate {
            kind: upgrade_condition::GIT_COMMITTED,
            value: Some(true),
            reason: Reason::CommitPushed,
            message: format!("commit {id} is on branch '{branch}'"),
        });
        decision
    }
}

/// Returns whether an attempt with this failure, which pushed nothing, is repeated: others were faster, or the server did
/// not respond.
fn is_retried(reason: CommitReason) -> bool {
    match reason {
        CommitReason::Git(GitReason::BranchMoved | GitReason::RepositoryUnreachable) => true,
        CommitReason::Git(
            GitReason::RepositoryNotFound
            | GitReason::AuthenticationFailed
            | GitReason::CredentialsInvalid
            | GitReason::CertificateNotTrusted
            | GitReason::HostKeyUnknown
            | GitReason::AddressNotAllowed
            | GitReason::BranchNotFound
            | GitReason::RepositoryTooLarge
            | GitReason::PathNotFound
            | GitReason::CloneFailed
            | GitReason::OutputTooLarge
            | GitReason::PushRejected
            | GitReason::PublishFailed,
        )
        | CommitReason::Edit(
            EditReason::FileNotFound
            | EditReason::FileAmbiguous
            | EditReason::FileEncrypted
            | EditReason::FileNotEditable
            | EditReason::FieldNotFound
            | EditReason::FieldNotEditable
            | EditReason::VersionIsRange
            | EditReason::VersionIsVariable
            | EditReason::NothingToChange
            | EditReason::VersionChangedInGit
            | EditReason::CommitFailed,
        ) => false,
    }
}
