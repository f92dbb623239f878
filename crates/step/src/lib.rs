//! The steps of a DocsRun's Pod before and after the agent: `step clone` and `step publish`. Also
//! `step probe`, which tries connections for the isolation check of a Tenant.
//!
//! ```text
//! clone (our image, credentials) ──▶ agent (the user's image) ──▶ publish (our image, credentials)
//!        writes STEP_SOURCE                 changes it                 reads it, trusts none of it
//! ```
//!
//! All settings are environment variables (`STEP_*`). The real `git` and `ssh` do all work with Git. The
//! step reports its result with a [`git::Report`] in the file `STEP_REPORT`, and with the exit code. The
//! code is 0 for success, also without changes, and 1 for a failure.
//!
//! Guarantees: no file of the agent is executed, followed or read as configuration. A secret is neither in
//! an argument nor in the report nor in the output. Every wait, read and write on the disk is bounded.
//!
//! Caveats: `STEP_SCRATCH` contains copies of the credentials while the step runs, so the agent must not
//! mount it. It needs space for `STEP_LIMIT_MIB`, and for publish 100 MiB more. The agent's file at a path
//! replaces the file of the output branch.

mod address;
mod askpass;
mod child;
mod clone;
mod collect;
mod command;
mod commit;
mod failure;
mod git_errors;
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

use git::{Credentials, Report, Url, credentials::mask};
use rustix::{fs::Mode, process::umask};

use crate::{
    child::Bounds,
    collect::LIMITS,
    command::Git,
    failure::{Failure, Step},
    progress::ProgressLog,
    repository::Place,
    secret::Home,
    settings::{Environment, REPORT, Settings},
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
    let step = match arguments.as_slice() {
        [name] => Step::parse(name),
        _ => None,
    };
    let Some(step) = step else {
        return told(
            out,
            "usage: step clone|publish, with settings in STEP_* variables, or step probe, in PROBE_*",
        );
    };
    let Some(report) = environment.get(&OsString::from(REPORT)).map(PathBuf::from) else {
        return told(out, &format!("the variable {REPORT} is not set"));
    };
    if let Err(error) = signals::end_on_terminate() {
        return told(out, &format!("cannot wait for signals: {error}"));
    }
    let done = match Settings::read(step, &environment, start) {
        Ok(settings) => work(&settings, &environment, out),
        Err(failure) => {
            ProgressLog::new(out, "step").line(&format!("{}: {}", failure.reason, failure.message));
            Report::failed(failure.reason, &failure.message)
        }
    };
    if let Err(error) = write_report(&report, &done) {
        return told(
            out,
            &format!("cannot write '{}': {error}", report.display()),
        );
    }
    match done {
        Report::Failed { .. } => ExitCode::FAILURE,
        Report::Cloned { .. }
        | Report::Pushed { .. }
        | Report::Found { .. }
        | Report::NoChanges { .. } => ExitCode::SUCCESS,
    }
}

/// Writes the report in place. The file belongs to the kubelet, so it is not replaced.
fn write_report(path: &Path, report: &Report) -> io::Result<()> {
    write_in_place(path, &report.write())
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

/// Runs the step, and returns and prints its result.
fn work(settings: &Settings, environment: &Environment, out: &mut dyn Write) -> Report {
    let mut progress = ProgressLog::new(out, &settings.run_name);
    let folder = settings.scratch.join("step");
    let credentials = secret::read(settings.url.scheme(), settings.credentials.as_deref());
    let done = credentials.and_then(|credentials| {
        let done = prepare(settings, environment, &folder, credentials.clone())
            .and_then(|git| perform(settings, &git, &mut progress));
        done.map_err(|failure| Failure {
            message: mask(&failure.message, &credentials),
            ..failure
        })
    });
    if let Err(error) = remove(&folder) {
        progress.line(&format!("cannot remove '{}': {error}", folder.display()));
    }
    let report = match done {
        Ok(report) => report,
        Err(failure) => Report::failed(failure.reason, &failure.message),
    };
    progress.line(&summary(&report));
    report
}

fn perform(
    settings: &Settings,
    git: &Git,
    progress: &mut ProgressLog<'_>,
) -> Result<Report, Failure> {
    match settings.step {
        Step::Clone => clone::run(settings, git, progress),
        Step::Publish => publish::run(settings, git, progress),
    }
}

/// Checks the server's address and creates the private directory.
fn prepare(
    settings: &Settings,
    environment: &Environment,
    folder: &Path,
    credentials: Credentials,
) -> Result<Git, Failure> {
    let failed = |what: &str, error: io::Error| settings.step.failed(format!("{what}: {error}"));
    let repository = match settings.step {
        Step::Publish => folder.join("repository.git"),
        Step::Clone => {
            // The agent may run as another user of the same group.
            umask(Mode::from_raw_mode(0o002));
            clone::check_empty(settings)?;
            match clone::place(settings) {
                Place::Bare => folder.join("repository.git"),
                Place::With(source) => source.join(".git"),
            }
        }
    };
    let address = address::find(&settings.url, &settings.networks, settings.deadline)?;
    let made = remove(folder)
        .and_then(|()| DirBuilder::new().mode(0o700).create(folder))
        .and_then(|()| Home::make(&folder.join("home"), &credentials));
    let what = format!("cannot make the private folder '{}'", folder.display());
    let home = made.map_err(|error| failed(&what, error))?;
    let program = std::env::current_exe()
        .map_err(|error| failed("this program does not know its path", error))?;
    let allowed = settings.disk_mib << 20;
    let (folders, disk_bytes) = match settings.step {
        Step::Clone => (vec![folder.to_owned(), settings.source.clone()], allowed),
        // The agent's files need space in addition to the repository, also in packed form.
        Step::Publish => (vec![folder.to_owned()], allowed + 2 * LIMITS.total_bytes),
    };
    Ok(Git {
        step: settings.step,
        url: settings.url.clone(),
        address,
        credentials,
        credentials_folder: settings.credentials.clone(),
        home,
        program,
        path: command::trusted_path(
            environment
                .get(&OsString::from("PATH"))
                .map(OsString::as_os_str),
            &settings.source,
        ),
        repository,
        bounds: Bounds {
            deadline: settings.deadline,
            folders,
            disk_bytes,
        },
        disk_mib: settings.disk_mib,
        timeout: settings.timeout,
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
