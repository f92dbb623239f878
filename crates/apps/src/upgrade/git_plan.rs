//! The part of the plan that is about Git: a Job of `step commit` reads the branch, edits in memory, and pushes nothing.

use std::collections::BTreeSet;

use api::{
    Reason,
    apps::{
        AppGit, CommitAuthor, ImageChange, PlannedCommit, PlannedDocument, PlannedEdit,
        PlannedSource, UpgradePlan,
    },
    decide::Manifest,
};
use git::{
    Commit,
    edits::{
        Author, Change, CommitReport, DocumentRef, Edit, Mode, Plan, PlannedEdit as StepEdit,
        Request as StepRequest,
    },
};

use super::{
    Request,
    commit_job::{self, PLAN_STEP_TIME, Work},
    commit_step::{StepJob, StepState},
    images,
    world::AppState,
};
use crate::{
    discover::Problem,
    flux::{KustomizationView, SourceView, commit_of},
    world::Seen,
};

/// Kind of the only source that an upgrade can change.
const GIT_REPOSITORY: &str = "GitRepository";

/// Path of the version in a HelmRelease.
const VERSION_FIELD: &str = "spec.chart.spec.version";

/// The next step of the plan.
pub(super) enum GitStep {
    /// The plan of the step was read.
    Planned(Box<GitChange>),
    /// The Job does not exist.
    Create(Box<Manifest>),
    /// The Job works.
    Wait(Problem),
    /// The request is rejected.
    Reject(Problem),
}

/// The change in Git, as the step planned it.
pub(super) struct GitChange {
    /// The commit.
    pub(super) commit: PlannedCommit,
    /// The images of the plan, with their tags before.
    pub(super) images: Vec<ImageChange>,
    /// Facts that do not prevent the upgrade.
    pub(super) warnings: Vec<String>,
}

fn reject(reason: Reason, message: impl Into<String>) -> GitStep {
    GitStep::Reject(Problem::new(reason, message))
}

fn wait(message: String) -> GitStep {
    GitStep::Wait(Problem::new(Reason::PlanTimeout, message))
}

/// Returns the reason of the API for a reason of the step.
pub(super) fn reason_of(name: &str) -> Reason {
    Reason::from_name(name).unwrap_or(Reason::CommitFailed)
}

/// Returns the next step of an upgrade. `plan` has everything but the change in Git.
pub(super) fn step(request: &Request<'_>, state: &AppState, plan: &UpgradePlan) -> GitStep {
    match Repository::of(request, state) {
        Ok(target) => with_target(request, &target, plan),
        Err(step) => step,
    }
}

/// Returns the next step of a rollback.
pub(super) fn step_back(
    request: &Request<'_>,
    state: &AppState,
    plan: &UpgradePlan,
    wanted: Wanted<'_>,
) -> GitStep {
    match Repository::of(request, state) {
        Ok(target) => with_target(request, &Repository { wanted, ..target }, plan),
        Err(step) => step,
    }
}

fn with_target(request: &Request<'_>, target: &Repository<'_>, plan: &UpgradePlan) -> GitStep {
    let name = commit_job::plan_name(request.name());
    let Some(job) = request.world.commit.job(&name) else {
        return create(request, target, plan, name);
    };
    if job.is_deleting {
        return wait(format!("waits until an earlier Job '{name}' is deleted"));
    }
    match &job.state {
        StepState::Pending => wait(format!("waits for the Pod of Job '{name}'")),
        StepState::Blocked(cause) => wait(format!("Job '{name}' does not start: {cause}")),
        StepState::Running => wait(format!("Job '{name}' reads the branch '{}'", target.branch)),
        StepState::Ended(why) => reject(
            Reason::CommitFailed,
            format!("Job '{name}' ended without a plan: {why}"),
        ),
        StepState::Reported(report) => reported(request, job, report, target, plan),
    }
}

/// The change in Git that a plan is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// The version of an upgrade.
    Upgrade,
    /// The exchange of the values of an upgrade. A value that is not the one of the upgrade any more is
    /// `VersionChangedInGit`.
    Back(&'a PlannedCommit),
    /// No change: an earlier rollback has exchanged the values of the upgrade already. The step only verifies it.
    Nothing(&'a PlannedCommit),
}

/// The repository of an application.
struct Repository<'a> {
    git: &'a AppGit,
    source: &'a SourceView,
    kustomization: &'a KustomizationView,
    url: &'a str,
    branch: &'a str,
    author: CommitAuthor,
    wanted: Wanted<'a>,
}

impl<'a> Repository<'a> {
    /// Returns the repository, or the step that ends or delays the plan.
    fn of(request: &'a Request<'_>, state: &'a AppState) -> Result<Self, GitStep> {
        let Some(git) = &state.app.spec.git else {
            let name = request.app_name();
            return Err(reject(
                Reason::NoVersionPath,
                format!("ManagedApp '{name}' has no 'spec.git'"),
            ));
        };
        let Some(kustomization) = state.world.kustomization.present() else {
            return Err(wait("the Kustomization is not known yet".to_owned()));
        };
        let source = kustomization.source.as_ref();
        let Some(reference) = source.filter(|source| source.kind == GIT_REPOSITORY) else {
            return Err(reject(
                Reason::SourceNotSupported,
                "the source of the Kustomization is no GitRepository",
            ));
        };
        let id = format!("GitRepository '{}/{}'", reference.namespace, reference.name);
        let source = match &request.world.source {
            Seen::Present(source) => source.as_ref(),
            Seen::NotInstalled => {
                let message = "the API server does not serve GitRepositories";
                return Err(reject(Reason::FluxNotInstalled, message));
            }
            Seen::NotWatched => {
                let message = format!("{id} is in a namespace that the operator does not watch");
                return Err(reject(Reason::NamespaceNotWatched, message));
            }
            Seen::Unreadable(why) => {
                let problem = Problem::new(Reason::FluxObjectUnreadable, format!("{id}: {why}"));
                return Err(GitStep::Wait(problem));
            }
            Seen::Absent => {
                let message = format!("{id} does not exist");
                let problem = Problem::new(Reason::FluxObjectNotFound, message);
                return Err(GitStep::Wait(problem));
            }
        };
        if let Some(pinned) = &source.pinned {
            let message = format!("{id} does not follow a branch, but '{pinned}'");
            return Err(reject(Reason::SourcePinned, message));
        }
        if source.is_verified {
            let message = format!("{id} verifies signatures, and commits are not signed");
            return Err(reject(Reason::SignatureRequired, message));
        }
        if source.is_suspended {
            let message = format!("{id} is suspended, so Flux would not fetch the commit");
            return Err(reject(Reason::AlreadySuspended, message));
        }
        let author = git.author.clone().unwrap_or_else(|| CommitAuthor {
            name: "Orchestrator".to_owned(),
            email: format!("orchestrator@{}.invalid", request.namespace()),
        });
        Ok(Self {
            git,
            source,
            kustomization,
            url: git.url.as_deref().unwrap_or(&source.url),
            branch: git.branch.as_deref().unwrap_or(&source.branch),
            author,
            wanted: Wanted::Upgrade,
        })
    }

    /// Returns the request in mode Plan.
    fn request(&self, app: &str, plan: &UpgradePlan) -> StepRequest {
        let path = self.kustomization.path.as_deref().unwrap_or_default();
        let path = path.trim_start_matches("./").trim_matches('/');
        let applied = plan.revision.as_deref().and_then(applied_commit);
        StepRequest {
            mode: Mode::Plan,
            branch: self.branch.to_owned(),
            directory: if path == "." { "" } else { path }.to_owned(),
            applied,
            author: Author {
                name: self.author.name.clone(),
                email: self.author.email.clone(),
            },
            summary: self.summary(app, plan),
            edits: match self.wanted {
                Wanted::Upgrade => self.edits(plan),
                Wanted::Back(upgrade) => exact(upgrade, true),
                Wanted::Nothing(upgrade) => exact(upgrade, false),
            },
        }
    }

    /// Returns the reason of the API for a reason of the step.
    fn reason_of(&self, name: &str) -> Reason {
        let reason = reason_of(name);
        let is_verified = match self.wanted {
            Wanted::Upgrade | Wanted::Back(_) => false,
            Wanted::Nothing(_) => true,
        };
        if is_verified && reason == Reason::VersionChangedInGit {
            // Flux has not applied the value that Git has.
            Reason::GitAheadOfCluster
        } else {
            reason
        }
    }

    /// Returns the first line of the commit message.
    fn summary(&self, app: &str, plan: &UpgradePlan) -> String {
        let verb = match self.wanted {
            Wanted::Upgrade => "Upgrade",
            Wanted::Back(_) | Wanted::Nothing(_) => "Return",
        };
        // The first line of a message is short, and an upgrade may have many images.
        let count = plan.images.len();
        let to = if plan.changes_chart() || count == 1 {
            plan.versions().to
        } else {
            format!("{count} new images")
        };
        format!("{verb} {app} to {to}")
    }

    /// Returns the edits of an upgrade.
    fn edits(&self, plan: &UpgradePlan) -> Vec<Edit> {
        let chart = plan.changes_chart().then(|| self.chart_edit(plan));
        let fields = self.git.images.iter();
        let images = fields.filter_map(|field| {
            let mut wanted = plan.images.iter();
            let change = wanted.find(|image| image.name == field.image)?;
            let tag = change.to.strip_prefix(&change.name)?.strip_prefix(':')?;
            Some(Edit {
                file: field.file.clone(),
                document: images::document(field),
                field_path: field.field_path.clone(),
                change: Change::Image {
                    image: field.image.clone(),
                    tag: tag.to_owned(),
                },
            })
        });
        chart.into_iter().chain(images).collect()
    }

    /// Returns the edit of the version of the chart.
    fn chart_edit(&self, plan: &UpgradePlan) -> Edit {
        let mut helm = plan.flux_objects.iter().rev();
        let helm = helm.find(|one| one.kind == api::apps::FluxKind::HelmRelease);
        let field_path = self.git.chart.field_path.clone();
        Edit {
            file: self.git.chart.file.clone(),
            document: DocumentRef {
                kind: Some("HelmRelease".to_owned()),
                name: helm.map(|helm| helm.name.clone()),
                ..DocumentRef::default()
            },
            field_path: field_path.unwrap_or_else(|| VERSION_FIELD.to_owned()),
            change: Change::Version {
                to: plan.chart.to.clone(),
            },
        }
    }
}

/// Returns the edits of a commit, or the edits that undo it.
fn exact(commit: &PlannedCommit, is_exchanged: bool) -> Vec<Edit> {
    let values = |edit: &PlannedEdit| {
        let (before, after) = (edit.from.clone(), edit.to.clone());
        if is_exchanged {
            (after, before)
        } else {
            (before, after)
        }
    };
    let edits = commit.edits.iter().map(|edit| Edit {
        file: Some(edit.file.clone()),
        document: DocumentRef {
            api_version: edit.document.api_version.clone(),
            kind: edit.document.kind.clone(),
            name: edit.document.name.clone(),
            namespace: edit.document.namespace.clone(),
        },
        field_path: edit.field_path.clone(),
        change: {
            let (from, to) = values(edit);
            Change::Exact { from, to }
        },
    });
    edits.collect()
}

/// Returns the commit of a revision of Flux. Without one, the commits since then are not counted.
fn applied_commit(revision: &str) -> Option<Commit> {
    let Ok(commit) = Commit::parse(commit_of(revision)?) else {
        return None;
    };
    Some(commit)
}

fn create(
    request: &Request<'_>,
    target: &Repository<'_>,
    plan: &UpgradePlan,
    name: String,
) -> GitStep {
    let step = target.request(request.app_name(), plan);
    if let Err(why) = step.check() {
        return reject(
            Reason::NoVersionPath,
            format!("'spec.git' of the ManagedApp cannot be used: {why}"),
        );
    }
    let work = Work {
        name,
        url: target.url,
        secret: &target.git.credentials_secret_ref.name,
        step: &step,
        timeout: PLAN_STEP_TIME,
        start: PLAN_STEP_TIME,
    };
    match commit_job::plan_job(request.object, &request.world.commit.settings, &work) {
        Ok(job) => GitStep::Create(Box::new(job)),
        Err(error) => reject(Reason::InternalError, format!("the Job: {error}")),
    }
}

fn reported(
    request: &Request<'_>,
    job: &StepJob,
    report: &CommitReport,
    target: &Repository<'_>,
    plan: &UpgradePlan,
) -> GitStep {
    let digest = match report {
        CommitReport::Planned { digest, .. } => digest,
        CommitReport::Failed { reason, message } => {
            return reject(target.reason_of(reason.as_str()), message.clone());
        }
        CommitReport::Pushed { .. }
        | CommitReport::Found { .. }
        | CommitReport::Uncertain { .. } => {
            return reject(
                Reason::CommitFailed,
                format!("Job '{}' did not report a plan", job.name),
            );
        }
    };
    let log = request.world.commit.log.as_ref();
    let Some(text) = log.and_then(|log| log.success()) else {
        let why = log.and_then(|log| log.failure()).map_or_else(
            || format!("reads the plan from the log of Job '{}'", job.name),
            |error| error.message.clone(),
        );
        return wait(why);
    };
    match Plan::find(text, digest) {
        Ok(found) => planned(request, target, plan, found),
        Err(why) => reject(Reason::CommitFailed, why),
    }
}

/// Compares the plan of the step with the live versions, and returns the change in Git.
fn planned(
    request: &Request<'_>,
    target: &Repository<'_>,
    plan: &UpgradePlan,
    found: Plan,
) -> GitStep {
    let is_upgrade = matches!(target.wanted, Wanted::Upgrade);
    let is_change = !matches!(target.wanted, Wanted::Nothing(_));
    let state = request.world.app.as_ref();
    let live = state.map(|state| images::live(&state.world.discovery));
    let live = live.unwrap_or_default();
    let mut changes = plan.images.clone();
    for edit in &found.edits {
        let objection = match images::of_edit(target.git, edit) {
            // The step has verified the values of the upgrade. Helm may have returned the Pod templates.
            Some(_) if !is_upgrade => None,
            // The ManagedApp may name other fields than at the time of the upgrade.
            None if !is_upgrade && !plan.changes_chart() => None,
            None => chart_objection(target.wanted, plan, edit),
            Some(image) => image_objection(&mut changes, image, &live, edit),
        };
        if let Some(problem) = objection {
            return GitStep::Reject(problem);
        }
    }
    // The step repeats no field that has the new value already.
    for change in changes.iter_mut().filter(|one| one.from.is_empty()) {
        change.from.clone_from(&change.to);
    }
    let warnings = warnings(target, plan, &found);
    let Plan {
        base,
        edits,
        files: _,
        diff,
        unapplied_commits,
    } = found;
    let edits = edits.into_iter().filter(|_| is_change);
    let edits = edits.map(|edit| PlannedEdit {
        file: edit.file,
        document: PlannedDocument {
            api_version: edit.document.api_version,
            kind: edit.document.kind,
            name: edit.document.name,
            namespace: edit.document.namespace,
        },
        field_path: edit.field_path,
        from: edit.from,
        to: edit.to,
    });
    let commit = PlannedCommit {
        source: PlannedSource {
            namespace: target.source.name.namespace.clone(),
            name: target.source.name.name.clone(),
            uid: target.source.uid.clone(),
            revision: target.source.revision.clone(),
        },
        url: target.url.to_owned(),
        branch: target.branch.to_owned(),
        credentials_secret: target.git.credentials_secret_ref.name.clone(),
        author: target.author.clone(),
        summary: target.summary(request.app_name(), plan),
        base: base.to_string(),
        edits: edits.collect(),
        diff: if is_change { diff } else { String::new() },
        unapplied_commits,
    };
    GitStep::Planned(Box::new(GitChange {
        commit,
        images: changes,
        warnings,
    }))
}

/// Returns why the edit of the version of the chart is rejected.
fn chart_objection(wanted: Wanted<'_>, plan: &UpgradePlan, edit: &StepEdit) -> Option<Problem> {
    // The version that Flux has applied, and the one that the commit writes.
    let (live, written) = match wanted {
        Wanted::Upgrade | Wanted::Back(_) => (&plan.chart.from, Some(&plan.chart.to)),
        Wanted::Nothing(_) => (&plan.chart.to, None),
    };
    if edit.from != *live {
        return Some(Problem::new(
            Reason::GitAheadOfCluster,
            format!(
                "'{}' requests version '{}', but Flux has applied '{live}'",
                edit.file, edit.from
            ),
        ));
    }
    let is_other = written.is_some_and(|written| edit.to != *written);
    is_other.then(|| other_value(edit))
}

/// Returns why the edit of an image is rejected. Completes the change of the image.
fn image_objection(
    changes: &mut [ImageChange],
    image: &str,
    live: &BTreeSet<&str>,
    edit: &StepEdit,
) -> Option<Problem> {
    let (from, to) = (
        images::reference(image, &edit.from),
        images::reference(image, &edit.to),
    );
    let mut wanted = changes.iter_mut();
    let Some(change) = wanted.find(|one| one.name == image && one.to == to) else {
        return Some(other_value(edit));
    };
    if !live.contains(&*from) {
        return Some(Problem::new(
            Reason::GitAheadOfCluster,
            format!(
                "'{}' requests image '{from}', but no Pod template of the application has it",
                edit.file
            ),
        ));
    }
    change.from = from;
    None
}

fn other_value(edit: &StepEdit) -> Problem {
    let message = format!("the step would write '{}' to '{}'", edit.to, edit.file);
    Problem::new(Reason::CommitFailed, message)
}

/// Returns facts that do not prevent the upgrade.
fn warnings(target: &Repository<'_>, plan: &UpgradePlan, found: &Plan) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(count) = found.unapplied_commits.filter(|count| *count > 0) {
        all.push(format!(
            "the branch is {count} commits ahead of the applied revision; Flux applies them together with the upgrade"
        ));
    }
    if let Some(edit) = found.edits.iter().find(|edit| edit.has_automation_marker) {
        all.push(format!(
            "line {} of '{}' has a marker of Flux's image automation, which may overwrite the version",
            edit.line, edit.file
        ));
    }
    if target.kustomization.is_forced {
        all.push("the Kustomization has 'spec.force', so Flux may recreate objects".to_owned());
    }
    if !plan.unprotected_volumes.is_empty() {
        let count = plan.unprotected_volumes.len();
        all.push(format!("{count} volumes are in no snapshot"));
    }
    all
}

#[cfg(test)]
mod tests {
    use git::{Reason as GitReason, edits::EditReason};

    use super::*;

    /// Each reason of the step is a reason of the API with the same name, so that it has a meaning and an advice.
    #[test]
    fn each_reason_of_the_step_is_known() {
        for reason in EditReason::ALL {
            assert_eq!(reason_of(reason.as_str()).name(), reason.as_str());
        }
        for reason in GitReason::ALL {
            assert_eq!(reason_of(reason.as_str()).name(), reason.as_str());
        }
        assert_eq!(reason_of("Another"), Reason::CommitFailed);
    }
}
