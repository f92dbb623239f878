//! `step commit`: edits versions in files of a branch, and pushes them as one commit.
//!
//! ```text
//! head of the branch ──▶ own commit there? ──▶ edit files ──▶ commit ──▶ push with a lease
//!       ▲                                                                      │
//!       └───────────────────── somebody else moved the branch ◀────────────────┘
//! ```

mod diff;
mod files;

use std::{collections::BTreeSet, convert::Infallible};

use git::{
    Commit, Reason,
    credentials::mask,
    edits::{CommitReason, CommitReport, EditError, EditReason, FileDigest, Mode, Plan, sha256},
};

use crate::{
    collect::Taken,
    command::{Git, SHORT},
    commit::{self, Draft, Object},
    edits::files::Edited,
    failure::Failure,
    names, plan,
    progress::ProgressLog,
    push::{NotPushed, Push, Pushed},
    repository::Place,
    settings::CommitSettings,
};

/// Space on the disk in addition to the repository: for the new objects.
pub(crate) const EXTRA_BYTES: u64 = 64 << 20;

/// Maximum number of pushes to a branch that others move at the same time.
const ATTEMPTS: usize = 5;
/// Number of commits in which the step searches for its own commit. Others may have pushed on top.
const HISTORY: u32 = 100;
/// Maximum size of the log of these commits, in bytes.
const LOG: usize = 8 << 20;

/// The reason why there is no commit, or none for certain.
#[derive(Debug)]
enum Stop {
    Edit(EditError),
    Git(Failure),
    Uncertain { commit: Commit, message: String },
}

impl From<EditError> for Stop {
    fn from(error: EditError) -> Self {
        Stop::Edit(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Git(failure)
    }
}

/// Runs the step. Its report contains no secret.
pub(crate) fn run(
    settings: &CommitSettings,
    git: &Git,
    progress: &mut ProgressLog<'_>,
) -> CommitReport {
    match perform(settings, git, progress) {
        Ok(report) => report,
        Err(Stop::Edit(error)) => CommitReport::failed(
            CommitReason::Edit(error.reason),
            &mask(&error.message, &git.credentials),
        ),
        Err(Stop::Git(failure)) => failed(&Failure {
            message: mask(&failure.message, &git.credentials),
            ..failure
        }),
        Err(Stop::Uncertain { commit, message }) => CommitReport::Uncertain {
            commit,
            message: mask(&message, &git.credentials),
        },
    }
}

/// Returns the report of a failure before which nothing was pushed.
pub(crate) fn failed(failure: &Failure) -> CommitReport {
    let reason = match failure.reason {
        Reason::CloneFailed | Reason::PublishFailed => CommitReason::Edit(EditReason::CommitFailed),
        reason @ (Reason::RepositoryUnreachable
        | Reason::RepositoryNotFound
        | Reason::AuthenticationFailed
        | Reason::CredentialsInvalid
        | Reason::CertificateNotTrusted
        | Reason::HostKeyUnknown
        | Reason::AddressNotAllowed
        | Reason::BranchNotFound
        | Reason::RepositoryTooLarge
        | Reason::PathNotFound
        | Reason::OutputTooLarge
        | Reason::PushRejected
        | Reason::BranchMoved) => CommitReason::Git(reason),
    };
    CommitReport::failed(reason, &failure.message)
}

/// Returns whether the container exits with a failure.
pub(crate) fn has_failed(report: &CommitReport) -> bool {
    match report {
        CommitReport::Failed { .. } | CommitReport::Uncertain { .. } => true,
        CommitReport::Planned { .. } | CommitReport::Pushed { .. } | CommitReport::Found { .. } => {
            false
        }
    }
}

/// Returns the last line of the log.
pub(crate) fn summary(report: &CommitReport) -> String {
    match report {
        CommitReport::Planned { base, edits, .. } => {
            format!("planned {edits} edits on commit {base}; nothing was pushed")
        }
        CommitReport::Pushed { commit } => format!("pushed commit {commit}"),
        CommitReport::Found { commit } => {
            format!("commit {commit} was pushed by an earlier attempt")
        }
        CommitReport::Failed { reason, message } => format!("{reason}: {message}"),
        CommitReport::Uncertain { commit, message } => {
            format!("commit {commit} may have been pushed: {message}")
        }
    }
}

fn perform(
    settings: &CommitSettings,
    git: &Git,
    progress: &mut ProgressLog<'_>,
) -> Result<CommitReport, Stop> {
    let branch = &settings.request.branch;
    for attempt in 1..=ATTEMPTS {
        progress.line(&format!("reading branch '{branch}' of {}", git.url));
        let head = git.head(branch)?.ok_or_else(|| {
            let message = format!("{} has no branch '{branch}'", git.url);
            Failure::new(Reason::BranchNotFound, message)
        })?;
        if attempt == 1 {
            git.init(Place::Bare, "commit", &head)?;
        }
        if let Some(report) = on_head(settings, git, &head, progress)? {
            return Ok(report);
        }
        progress.line(&format!("branch '{branch}' moved meanwhile"));
    }
    let message = format!(
        "somebody else moved branch '{branch}' during each of {ATTEMPTS} attempts; nothing was pushed, run again"
    );
    Err(Failure::new(Reason::BranchMoved, message).into())
}

/// Edits and pushes on a commit of the branch. Returns `None` if the branch moved.
fn on_head(
    settings: &CommitSettings,
    git: &Git,
    head: &Commit,
    progress: &mut ProgressLog<'_>,
) -> Result<Option<CommitReport>, Stop> {
    let request = &settings.request;
    progress.line(&format!("fetching commit {head}"));
    if let Err(failure) = git.fetch(&BTreeSet::from([head.as_str()]), HISTORY) {
        // A server may reject the id of a commit that was the head a moment ago.
        if git.head(&request.branch)?.as_ref() == Some(head) {
            return Err(failure.into());
        }
        return Ok(None);
    }
    let history = history(git, head)?;
    if request.mode == Mode::Commit
        && let Some(commit) = own(settings, git, history.as_slice())?
    {
        return Ok(Some(CommitReport::Found { commit }));
    }
    let edited = files::edit(git, head, request)?;
    let commit = create(settings, git, head, &edited)?;
    let find = |_: Option<Commit>| -> Result<Infallible, Failure> {
        Err(Failure::new(Reason::BranchMoved, "the branch moved"))
    };
    let push: Push<'_, Infallible> = Push {
        git,
        branch: &request.branch,
        head: Some(head),
        commit: &commit,
        find: &find,
    };
    match request.mode {
        Mode::Plan => {
            push.check_access()?;
            let plan = Plan {
                base: head.clone(),
                diff: diff::of(&edited.edits, |line| mask(line, &git.credentials)),
                files: edited
                    .files
                    .iter()
                    .map(|(path, file)| FileDigest {
                        path: path.clone(),
                        sha256: sha256(&file.before),
                    })
                    .collect(),
                unapplied_commits: unapplied(settings, git, head, &history)?,
                edits: edited.edits.into_iter().map(|edit| edit.planned).collect(),
            };
            report_plan(git, &plan, progress).map(Some)
        }
        Mode::Commit => {
            progress.line(&format!("pushing commit {commit}"));
            match push.run() {
                Ok(Pushed::Now) => Ok(Some(CommitReport::Pushed { commit })),
                Ok(Pushed::Before(never)) => match never {},
                Err(NotPushed::Certain(failure)) if failure.reason == Reason::BranchMoved => {
                    Ok(None)
                }
                Err(NotPushed::Certain(failure)) => Err(failure.into()),
                Err(NotPushed::Unknown(message)) => Err(Stop::Uncertain { commit, message }),
            }
        }
    }
}

fn report_plan(
    git: &Git,
    plan: &Plan,
    progress: &mut ProgressLog<'_>,
) -> Result<CommitReport, Stop> {
    let (frame, digest) = plan.frame();
    progress
        .frame(&frame)
        .map_err(|error| git.step.failed(format!("cannot write the plan: {error}")))?;
    Ok(CommitReport::Planned {
        base: plan.base.clone(),
        edits: u32::try_from(plan.edits.len()).unwrap_or(u32::MAX),
        digest,
    })
}

/// Returns the newest commits of the branch.
fn history(git: &Git, head: &Commit) -> Result<Vec<(Commit, Object)>, Failure> {
    let count = format!("--max-count={HISTORY}");
    let arguments = [
        "log",
        "-z",
        &count,
        "--format=%H%n%P%n%B",
        head.as_str(),
        "--",
    ];
    let log = git.local(&arguments, None, LOG)?;
    log.split(|byte| *byte == 0)
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            Object::parse_log(entry)
                .ok_or_else(|| git.step.failed("the output of 'git log' cannot be read"))
        })
        .collect()
}

/// Returns the commit of an earlier attempt: with the trailer of this request, at most one parent, and all
/// new values. A parent of the oldest commit is not fetched.
fn own(
    settings: &CommitSettings,
    git: &Git,
    history: &[(Commit, Object)],
) -> Result<Option<Commit>, Stop> {
    for (commit, object) in history {
        let is_candidate =
            object.has_trailer(&settings.common.run_uid) && object.parents.len() <= 1;
        if is_candidate && files::has_new_values(git, commit, &settings.request)? {
            return Ok(Some(commit.clone()));
        }
    }
    Ok(None)
}

/// Creates the commit, and checks that it changes the edited files only.
fn create(
    settings: &CommitSettings,
    git: &Git,
    head: &Commit,
    edited: &Edited,
) -> Result<Commit, Failure> {
    let (common, request) = (&settings.common, &settings.request);
    let writes = edited.files.iter().map(|(path, file)| Taken {
        path: path.clone(),
        executable: file.is_executable,
        content: file.after.clone(),
    });
    let draft = Draft {
        author: format!("{} <{}>", request.author.name.trim(), request.author.email),
        parent: head.clone(),
        seconds: common.commit_time,
        message: commit::message(&request.summary, &common.run_name, &common.run_uid),
        plan: plan::Plan {
            writes: writes.collect(),
            ..plan::Plan::default()
        },
    };
    let commit = commit::create(git, draft)?;
    let changed = git.changed(head, &commit)?;
    let is_expected = changed.len() == edited.files.len()
        && changed
            .iter()
            .zip(edited.files.keys())
            .all(|(found, expected)| found == expected.as_bytes());
    if is_expected {
        return Ok(commit);
    }
    let paths: Vec<String> = changed.iter().map(|path| names::shown(path)).collect();
    Err(git.step.failed(format!(
        "the commit would change other files: '{}'",
        paths.join("', '")
    )))
}

/// Counts the commits that Flux has not applied.
fn unapplied(
    settings: &CommitSettings,
    git: &Git,
    head: &Commit,
    history: &[(Commit, Object)],
) -> Result<Option<u32>, Failure> {
    let Some(applied) = &settings.request.applied else {
        return Ok(None);
    };
    if !history.iter().any(|(commit, _)| commit == applied) {
        return Ok(None);
    }
    let except = format!("^{applied}");
    let count = git.local(
        &["rev-list", "--count", head.as_str(), &except, "--"],
        None,
        SHORT,
    )?;
    match String::from_utf8_lossy(&count).trim().parse::<u32>() {
        Ok(count) => Ok(Some(count)),
        Err(error) => Err(git.step.failed(format!("'git rev-list' failed: {error}"))),
    }
}
