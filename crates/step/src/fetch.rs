//! `step fetch`: writes the files of a commit for the kernel, and copies of the notebooks for the runner.
//!
//! # Guarantees
//! - Each commit is fetched by its ID (F1). A golden notebook without a repository of its own comes from the notebook's
//!   commit (F3).
//! - The copies are regular files of the commit, read from its objects. A path through a symbolic link has no file.
//! - A file is copied completely or not at all. Its checksum is in the record that the runner compares.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Instant,
};

use git::{
    Commit, Credentials,
    edits::sha256,
    fetch::{
        FetchReason, FetchReport, GOLDEN_FILE, MAX_NOTEBOOK, NOTEBOOK_FILE, NotebookReason,
        SOURCE_FILE, Source,
    },
};
use rustix::{fs::Mode, process::umask};

use crate::{
    Layout, clone,
    command::Git,
    connect,
    failure::{Failure, Step},
    progress::ProgressLog,
    repository::Place,
    settings::{Common, Environment, FetchSettings, Golden},
    with_git,
};

/// The reason why a notebook cannot be validated.
#[derive(Debug)]
enum FetchError {
    Notebook(NotebookReason, String),
    Git(Failure),
}

impl From<Failure> for FetchError {
    fn from(failure: Failure) -> Self {
        Self::Git(failure)
    }
}

/// The contents of the notebooks of one repository.
struct Contents {
    notebook: Vec<u8>,
    golden: Option<Vec<u8>>,
}

/// Runs the step, and returns and prints its result.
pub(crate) fn run(environment: &Environment, start: Instant, out: &mut dyn Write) -> FetchReport {
    let settings = match FetchSettings::read(environment, start) {
        Ok(settings) => settings,
        Err(failure) => {
            let report = report(Err(FetchError::Git(failure)));
            ProgressLog::new(out, "step").line(&summary(&report));
            return report;
        }
    };
    let mut progress = ProgressLog::new(out, &settings.common.run_name);
    let report = report(perform(&settings, environment, &mut progress));
    progress.line(&summary(&report));
    report
}

/// Returns whether the container exits with a failure.
pub(crate) fn has_failed(report: &FetchReport) -> bool {
    match report {
        FetchReport::Failed { .. } => true,
        FetchReport::Fetched { .. } => false,
    }
}

fn report(done: Result<Commit, FetchError>) -> FetchReport {
    match done {
        Ok(commit) => FetchReport::Fetched { commit },
        Err(FetchError::Notebook(reason, message)) => {
            FetchReport::failed(FetchReason::Notebook(reason), &message)
        }
        Err(FetchError::Git(failure)) => {
            FetchReport::failed(FetchReason::Git(failure.reason), &failure.message)
        }
    }
}

/// Returns the last line of the log.
fn summary(report: &FetchReport) -> String {
    match report {
        FetchReport::Fetched { commit } => format!("the notebook of commit {commit} is fetched"),
        FetchReport::Failed { reason, message } => format!("{reason}: {message}"),
    }
}

fn perform(
    settings: &FetchSettings,
    environment: &Environment,
    progress: &mut ProgressLog<'_>,
) -> Result<Commit, FetchError> {
    // The kernel and the runner run as other users of the same group.
    umask(Mode::from_raw_mode(0o002));
    clone::check_empty(&settings.source, Step::Fetch)?;
    let common = &settings.common;
    let contents = with_git(
        common,
        progress,
        |folder, credentials| {
            let folders = vec![folder.to_owned(), settings.source.clone()];
            open(
                settings,
                common,
                environment,
                (folder, folders),
                credentials,
            )
        },
        |git, progress| separate(check_out(settings, git, progress)),
    )??;
    let golden = match &settings.golden {
        Some(Golden {
            commit,
            path,
            server: Some(server),
        }) => {
            let content = with_git(
                server,
                progress,
                |folder, credentials| {
                    let folders = vec![folder.to_owned()];
                    open(
                        settings,
                        server,
                        environment,
                        (folder, folders),
                        credentials,
                    )
                },
                |git, progress| separate(golden_of(git, commit, path, progress)),
            )??;
            Some(content)
        }
        Some(Golden { server: None, .. }) | None => contents.golden,
    };
    write_inputs(settings, &contents.notebook, golden.as_deref())?;
    copy_program(&settings.program)?;
    Ok(settings.commit.clone())
}

/// Separates failures of git, in which [`with_git`] masks the credentials.
fn separate<T>(done: Result<T, FetchError>) -> Result<Result<T, FetchError>, Failure> {
    match done {
        Err(FetchError::Git(failure)) => Err(failure),
        other @ (Ok(_) | Err(FetchError::Notebook(..))) => Ok(other),
    }
}

/// Connects to a repository, with a private directory and all directories that git writes to.
fn open(
    settings: &FetchSettings,
    common: &Common,
    environment: &Environment,
    (folder, folders): (&Path, Vec<PathBuf>),
    credentials: Credentials,
) -> Result<Git, Failure> {
    let layout = Layout {
        repository: folder.join("repository.git"),
        folders,
        disk_bytes: common.disk_mib << 20,
        untrusted: &settings.source,
    };
    connect(common, environment, folder, credentials, layout)
}

fn fetch(git: &Git, commit: &Commit, progress: &mut ProgressLog<'_>) -> Result<(), Failure> {
    git.init(Place::Bare, "fetch", commit)?;
    progress.line(&format!("fetching commit {commit} from {}", git.url));
    git.fetch(&BTreeSet::from([commit.as_str()]), 1)
}

/// Writes the files of the notebook's commit, and reads the notebooks that it contains.
fn check_out(
    settings: &FetchSettings,
    git: &Git,
    progress: &mut ProgressLog<'_>,
) -> Result<Contents, FetchError> {
    let commit = &settings.commit;
    fetch(git, commit, progress)?;
    let missing = NotebookReason::NotebookNotFound;
    let notebook = content(git, commit, &settings.notebook, missing)?;
    let golden = match &settings.golden {
        Some(Golden {
            commit,
            path,
            server: None,
        }) => Some(content(git, commit, path, NotebookReason::GoldenNotFound)?),
        Some(Golden {
            server: Some(_), ..
        })
        | None => None,
    };
    git.check_size(commit, "")?;
    progress.line("writing all files for the kernel");
    let arguments = ["checkout", "--quiet", "--force", commit.as_str(), "--", "."];
    git.checkout(&settings.source, &arguments)?;
    Ok(Contents { notebook, golden })
}

/// Reads the golden notebook of a repository of its own.
fn golden_of(
    git: &Git,
    commit: &Commit,
    path: &str,
    progress: &mut ProgressLog<'_>,
) -> Result<Vec<u8>, FetchError> {
    fetch(git, commit, progress)?;
    content(git, commit, path, NotebookReason::GoldenNotFound)
}

/// Reads a regular file of a commit.
fn content(
    git: &Git,
    commit: &Commit,
    path: &str,
    missing: NotebookReason,
) -> Result<Vec<u8>, FetchError> {
    let Some(blob) = git.blob(commit, path)?.filter(|blob| !blob.is_link) else {
        let message = format!(
            "commit {commit} of {} has no regular file '{path}'; correct the path",
            git.url
        );
        return Err(FetchError::Notebook(missing, message));
    };
    if blob.size > MAX_NOTEBOOK {
        let message = format!(
            "'{path}' of {} has {} bytes; {} MiB are allowed",
            git.url,
            blob.size,
            MAX_NOTEBOOK >> 20
        );
        return Err(FetchError::Notebook(
            NotebookReason::NotebookInvalid,
            message,
        ));
    }
    let limit = usize::try_from(blob.size).unwrap_or(usize::MAX);
    Ok(git.content(&blob, limit)?)
}

/// Writes the copies, and the record of their commits and checksums.
fn write_inputs(
    settings: &FetchSettings,
    notebook: &[u8],
    golden: Option<&[u8]>,
) -> Result<(), Failure> {
    let source = Source {
        commit: settings.commit.clone(),
        notebook_sha256: sha256(notebook),
        golden_commit: settings.golden.as_ref().map(|golden| golden.commit.clone()),
        golden_sha256: golden.map(sha256),
    };
    write_new(&settings.inputs.join(NOTEBOOK_FILE), notebook)?;
    if let Some(golden) = golden {
        write_new(&settings.inputs.join(GOLDEN_FILE), golden)?;
    }
    write_new(
        &settings.inputs.join(SOURCE_FILE),
        source.write().as_bytes(),
    )
}

fn write_new(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let written = File::options()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(content));
    written.map_err(|error| failed("write", path, &error))
}

/// Copies this program for the supervisor of the kernel.
fn copy_program(path: &Path) -> Result<(), Failure> {
    let copied = std::env::current_exe()
        .and_then(|program| fs::copy(program, path))
        .and_then(|_bytes| fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
    copied.map_err(|error| failed("copy this program to", path, &error))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Step::Fetch.failed(format!("cannot {what} '{}': {error}", path.display()))
}
