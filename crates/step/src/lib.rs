//! The steps of a DocsRun's Pod before and after the agent: `step clone` and `step publish`. Also
//! `step commit`, which edits versions in a repository for an upgrade, and `step probe`, which tries
//! connections for the isolation check of a Tenant. For notebooks, `step fetch` fetches a notebook with its
//! golden notebook, and `step kernel` supervises the kernel in the user's image.
//!
//! ```text
//! clone (our image, credentials) ──▶ agent (the user's image) ──▶ publish (our image, credentials)
//!        writes STEP_SOURCE                 changes it                 reads it, trusts none of it
//! ```
//!
//! All settings are environment variables (`STEP_*`). The real `git` and `ssh` do all work with Git. The
//! step reports its result with a [`git::Report`] in the file `STEP_REPORT`, and with the exit code. The
//! code is 0 for success, also without changes, and 1 for a failure. `step commit` gets a
//! [`git::edits::Request`] and reports a [`git::edits::CommitReport`]. `step fetch` reports a
//! [`git::fetch::FetchReport`].
//!
//! Guarantees: no file of the agent is executed, followed or read as configuration. A secret is neither in
//! an argument nor in the report nor in the output. Every wait, read and write on the disk is bounded.
//!
//! Caveats: `STEP_SCRATCH` contains copies of the credentials while the step runs, so the agent must not
//! mount it. It needs space for `STEP_LIMIT_MIB`, and for publish 100 MiB more. The agent's file at a path
//! replaces the file of the output branch.

mod address;
mod askpass;
mod bind;
mod child;
mod clone;
mod collect;
mod command;
mod commit;
mod edits;
mod failure;
mod fetch;
mod git_errors;
mod kernel;
mod names;
mod plan;
mod probe;
mod progress;
mod publish;
mod push;
mod repository;
mod secret;
mod settings;
mod signals;
mod stream;

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use git::{Credentials, Report, Url, credentials::mask, edits::CommitReport};
use rustix::{fs::Mode, process::umask};

use crate::{
    child::Bounds,
    collect::LIMITS,
    command::Git,
    failure::{Failure, Step},
    progress::ProgressLog,
    repository::Place,
    secret::Home,
    settings::{CommitSettings, Common, Environment, REPORT, Settings},
};

/// Exit code of a wrong call, for which no report can be written.
const USAGE: u8 = 2;

/// Runs the program with its arguments (without its name) and variables.
pub fn run(
    arguments: impl Iterator<Item = OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
    out: &mut dyn Write,
) -> ExitCode {
    let start = Instant::now();
    let environment: Environment = variables.collect();
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    if let Some(folder) = environment.get(&OsString::from(askpass::FOLDER)) {
        return answer(arguments.first(), Path::new(folder), &environment, out);
    }
    if arguments.first().is_some_and(|name| name == "probe") {
        return tried(&environment, out);
    }
    if arguments.first().is_some_and(|name| name == "kernel") {
        return supervised(&environment, out);
    }
    if arguments.first().is_some_and(|name| name == "bind") {
        return bound(out);
    }
    let step = match arguments.as_slice() {
        [name] => Step::parse(name),
        _ => None,
    };
    let Some(step) = step else {
        return told(
            out,
            "usage: step clone|publish|commit|fetch, with settings in STEP_* variables, step probe, in PROBE_*, step kernel, in ORCHESTRATOR_*, or step bind",
        );
    };
    let Some(report) = environment.get(&OsString::from(REPORT)).map(PathBuf::from) else {
        return told(out, &format!("the variable {REPORT} is not set"));
    };
    if let Err(error) = signals::end_on_terminate() {
        return told(out, &format!("cannot wait for signals: {error}"));
    }
    let (text, has_failed) = match step {
        Step::Clone => finished(&files_step(step, clone::run, &environment, start, out)),
        Step::Publish => finished(&files_step(step, publish::run, &environment, start, out)),
        Step::Commit => {
            let done = commit_step(&environment, start, out);
            (done.write(), edits::has_failed(&done))
        }
        Step::Fetch => {
            let done = fetch::run(&environment, start, out);
            (done.write(), fetch::has_failed(&done))
        }
    };
    // The file belongs to the kubelet, so it is not replaced.
    if let Err(error) = write_in_place(&report, &text) {
        return told(
            out,
            &format!("cannot write '{}': {error}", report.display()),
        );
    }
    if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Returns the text of a report, and whether it is a failure.
fn finished(report: &Report) -> (String, bool) {
    let has_failed = match report {
        Report::Failed { .. } => true,
        Report::Cloned { .. }
        | Report::Pushed { .. }
        | Report::Found { .. }
        | Report::NoChanges { .. } => false,
    };
    (report.write(), has_failed)
}

fn write_in_place(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// Tries the connections of a plan.
fn tried(environment: &Environment, out: &mut dyn Write) -> ExitCode {
    let variable = |name: &str| environment.get(&OsString::from(name));
    let (Some(plan), Some(report)) = (variable("PROBE_PLAN"), variable("PROBE_REPORT")) else {
        return told(out, "the variables PROBE_PLAN and PROBE_REPORT must be set");
    };
    let text = match probe::run(&plan.to_string_lossy()) {
        Ok(text) => text,
        Err(error) => return told(out, &error),
    };
    let path = PathBuf::from(report);
    match write_in_place(&path, &text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => told(out, &format!("cannot write '{}': {error}", path.display())),
    }
}

/// Runs a kernel beside its runner.
fn supervised(environment: &Environment, out: &mut dyn Write) -> ExitCode {
    if let Err(error) = signals::end_on_terminate() {
        return told(out, &format!("cannot wait for signals: {error}"));
    }
    let ended = kernel::run(environment, &mut ProgressLog::new(out, "kernel"));
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => told(out, &error),
    }
}

/// Compares the volumes that a binder Pod mounts.
fn bound(out: &mut dyn Write) -> ExitCode {
    let (is_empty, text) = bind::compare(Path::new("/old"), Path::new("/new"));
    ProgressLog::new(out, "bind").line(&text);
    if is_empty {
        ExitCode::from(bind::EMPTY)
    } else {
        ExitCode::SUCCESS
    }
}

fn told(out: &mut dyn Write, text: &str) -> ExitCode {
    ProgressLog::new(out, "step").line(text);
    ExitCode::from(USAGE)
}

/// Answers git's prompt for the username or the password.
fn answer(
    question: Option<&String>,
    folder: &Path,
    environment: &Environment,
    out: &mut dyn Write,
) -> ExitCode {
    let url = environment
        .get(&OsString::from(askpass::URL))
        .map(|url| Url::parse(&url.to_string_lossy(), true));
    let (Some(question), Some(Ok(url))) = (question, url) else {
        return ExitCode::FAILURE;
    };
    let Ok(credentials) = secret::read(url.scheme(), Some(folder)) else {
        return ExitCode::FAILURE;
    };
    match askpass::answer(question, &url, &credentials).map(|answer| writeln!(out, "{answer}")) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(_)) | None => ExitCode::FAILURE,
    }
}

/// A step around an agent.
type FilesStep = fn(&Settings, &Git, &mut ProgressLog<'_>) -> Result<Report, Failure>;

/// Runs a step around an agent, and returns and prints its result.
fn files_step(
    step: Step,
    perform: FilesStep,
    environment: &Environment,
    start: Instant,
    out: &mut dyn Write,
) -> Report {
    let settings = match Settings::read(step, environment, start) {
        Ok(settings) => settings,
        Err(failure) => {
            ProgressLog::new(out, "step").line(&format!("{}: {}", failure.reason, failure.message));
            return Report::failed(failure.reason, &failure.message);
        }
    };
    let mut progress = ProgressLog::new(out, &settings.common.run_name);
    let done = with_git(
        &settings.common,
        &mut progress,
        |folder, credentials| prepare(&settings, environment, folder, credentials),
        |git, progress| perform(&settings, git, progress),
    );
    let report = match done {
        Ok(report) => report,
        Err(failure) => Report::failed(failure.reason, &failure.message),
    };
    progress.line(&summary(&report));
    report
}

/// Runs `step commit`, and returns and prints its result.
fn commit_step(environment: &Environment, start: Instant, out: &mut dyn Write) -> CommitReport {
    let settings = match CommitSettings::read(environment, start) {
        Ok(settings) => settings,
        Err(failure) => {
            let report = edits::failed(&failure);
            ProgressLog::new(out, "step").line(&edits::summary(&report));
            return report;
        }
    };
    let mut progress = ProgressLog::new(out, &settings.common.run_name);
    let done = with_git(
        &settings.common,
        &mut progress,
        |folder, credentials| {
            let layout = Layout {
                repository: folder.join("repository.git"),
                folders: vec![folder.to_owned()],
                disk_bytes: (settings.common.disk_mib << 20) + edits::EXTRA_BYTES,
                untrusted: &settings.common.scratch,
            };
            connect(&settings.common, environment, folder, credentials, layout)
        },
        |git, progress| Ok(edits::run(&settings, git, progress)),
    );
    let report = match done {
        Ok(report) => report,
        Err(failure) => edits::failed(&failure),
    };
    progress.line(&edits::summary(&report));
    report
}

/// Runs an operation with a private directory, and deletes it afterwards.
fn with_git<Done>(
    common: &Common,
    progress: &mut ProgressLog<'_>,
    prepare: impl FnOnce(&Path, Credentials) -> Result<Git, Failure>,
    perform: impl FnOnce(&Git, &mut ProgressLog<'_>) -> Result<Done, Failure>,
) -> Result<Done, Failure> {
    let folder = common.scratch.join("step");
    let credentials = secret::read(common.url.scheme(), common.credentials.as_deref());
    let done = credentials.and_then(|credentials| {
        let done = prepare(&folder, credentials.clone()).and_then(|git| perform(&git, progress));
        done.map_err(|failure| Failure {
            message: mask(&failure.message, &credentials),
            ..failure
        })
    });
    if let Err(error) = remove(&folder) {
        progress.line(&format!("cannot remove '{}': {error}", folder.display()));
    }
    done
}

/// The files of a step.
struct Layout<'a> {
    repository: PathBuf,
    /// The directories that git writes to, and their maximum total size.
    folders: Vec<PathBuf>,
    disk_bytes: u64,
    /// A directory from which no program is started.
    untrusted: &'a Path,
}

/// Checks the agent's directory, and connects.
fn prepare(
    settings: &Settings,
    environment: &Environment,
    folder: &Path,
    credentials: Credentials,
) -> Result<Git, Failure> {
    let step = settings.common.step;
    let repository = match step {
        Step::Publish | Step::Commit | Step::Fetch => folder.join("repository.git"),
        Step::Clone => {
            // The agent may run as another user of the same group.
            umask(Mode::from_raw_mode(0o002));
            clone::check_empty(&settings.source, step)?;
            match clone::place(settings) {
                Place::Bare => folder.join("repository.git"),
                Place::With(source) => source.join(".git"),
            }
        }
    };
    let allowed = settings.common.disk_mib << 20;
    let (folders, disk_bytes) = match step {
        Step::Clone => (vec![folder.to_owned(), settings.source.clone()], allowed),
        // The agent's files need space in addition to the repository, also in packed form.
        Step::Publish | Step::Commit | Step::Fetch => {
            (vec![folder.to_owned()], allowed + 2 * LIMITS.total_bytes)
        }
    };
    let layout = Layout {
        repository,
        folders,
        disk_bytes,
        untrusted: &settings.source,
    };
    connect(&settings.common, environment, folder, credentials, layout)
}

/// Checks the server's address and creates the private directory.
fn connect(
    common: &Common,
    environment: &Environment,
    folder: &Path,
    credentials: Credentials,
    layout: Layout<'_>,
) -> Result<Git, Failure> {
    let failed = |what: &str, error: io::Error| common.step.failed(format!("{what}: {error}"));
    let address = address::find(&common.url, &common.networks, common.deadline)?;
    let made = remove(folder)
        .and_then(|()| DirBuilder::new().mode(0o700).create(folder))
        .and_then(|()| Home::make(&folder.join("home"), &credentials));
    let what = format!("cannot make the private folder '{}'", folder.display());
    let home = made.map_err(|error| failed(&what, error))?;
    let program = std::env::current_exe()
        .map_err(|error| failed("this program does not know its path", error))?;
    Ok(Git {
        step: common.step,
        url: common.url.clone(),
        address,
        credentials,
        credentials_folder: common.credentials.clone(),
        home,
        program,
        path: command::trusted_path(
            environment
                .get(&OsString::from("PATH"))
                .map(OsString::as_os_str),
            layout.untrusted,
        ),
        repository: layout.repository,
        bounds: Bounds {
            deadline: common.deadline,
            folders: layout.folders,
            disk_bytes: layout.disk_bytes,
        },
        disk_mib: common.disk_mib,
        timeout: common.timeout,
    })
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn summary(report: &Report) -> String {
    match report {
        Report::Cloned { commit } => format!("commit {commit} is there"),
        Report::Pushed {
            commit, changed, ..
        } => format!(
            "pushed commit {commit} with {} changed files",
            changed.count
        ),
        Report::Found { commit, .. } => format!("commit {commit} was pushed by an earlier try"),
        Report::NoChanges { .. } => "nothing changed, nothing was pushed".to_owned(),
        Report::Failed { reason, message } => format!("{reason}: {message}"),
    }
}
