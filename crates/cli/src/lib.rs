//! The command line `orc`. A link named `kubectl-orc` makes it a plugin of kubectl.
//!
//! The arguments become a command (`arguments`). The command reads or acts through a
//! [`kube::Client`], and pure functions render the result. [`run()`] needs no process, so tests can
//! call it.

mod arguments;
mod commands;
mod complete;
mod containers;
mod environment;
mod exit;
mod failure;
mod files;
mod leadership;
mod operators;
mod output;
mod reference;
mod related;
mod server;
mod session;
mod state;
mod target;
mod text;
mod view;
mod watching;

use std::{
    ffi::{OsStr, OsString},
    io::{Write, stderr, stdout},
    path::Path,
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches};

use crate::{
    arguments::{Arguments, Cluster, Context, Verb},
    failure::Failure,
    session::Session,
};
pub use crate::{environment::Environment, exit::Exit, reference::reference};

/// Maximum width of help texts, in columns. Help is wrapped to the terminal, but longer lines are
/// hard to read.
const HELP_WIDTH: usize = 100;

/// Runs the process.
#[must_use]
pub fn main() -> ExitCode {
    let environment = Environment::of_process();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let exit = match runtime {
        Ok(runtime) => runtime.block_on(run(
            arguments(std::env::args_os().collect()),
            &environment,
            &mut stdout(),
            &mut stderr(),
        )),
        Err(error) => {
            let failure = Failure::client(format!("cannot start: {error}"));
            say(&environment, &mut stderr(), &failure)
        }
    };
    ExitCode::from(exit.code())
}

/// Returns the arguments of a process. Under its name for kubectl's completion, all of them are the
/// line to complete.
fn arguments(process: Vec<OsString>) -> Vec<OsString> {
    let mut process = process.into_iter();
    let program = process.next().unwrap_or_default();
    let is_plugin = Path::new(&program).file_name() == Some(OsStr::new(complete::PLUGIN));
    let command = is_plugin.then(|| OsString::from(complete::COMMAND));
    command.into_iter().chain(process).collect()
}

/// Runs one command. `arguments` do not include the program's name.
pub async fn run(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments
        .first()
        .is_some_and(|first| first == complete::COMMAND)
    {
        return complete::run(arguments.split_off(1), environment, out).await;
    }
    let arguments = match parse(arguments, environment) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error, out, err),
    };
    let mut session = Session::new(environment, out, err, arguments.cluster);
    match run_command(arguments.verb, &mut session).await {
        Ok(exit) => exit,
        Err(failure) => {
            let failure = operators::explained(failure, &session).await;
            match session.report(&failure) {
                Ok(()) => failure.exit(),
                // The standard error cannot be written either, so there is no way to report the
                // failure.
                Err(_unwritable) => Exit::Client,
            }
        }
    }
}

/// Returns the clap definition of the command line, under the command that users type.
fn command(environment: &Environment) -> clap::Command {
    let width = (environment.size)().map_or(80, |(width, _)| width.min(HELP_WIDTH));
    Arguments::command()
        .bin_name(environment.program)
        .term_width(width)
}

fn parse(arguments: Vec<OsString>, environment: &Environment) -> Result<Arguments, clap::Error> {
    let arguments = arguments::with_folder_docs(arguments::with_help_behind(arguments));
    let mut command = command(environment);
    let mut matches_of = |arguments: Vec<OsString>| {
        let program = [OsString::from(environment.program)];
        command.try_get_matches_from_mut(program.into_iter().chain(arguments))
    };
    let matches = matches_of(arguments.clone())?;
    let parsed = Arguments::from_arg_matches(&matches)?;
    let Some(format) = parsed.output else {
        return Ok(parsed);
    };
    let matches = matches_of(arguments::with_format_behind(arguments, format))?;
    Arguments::from_arg_matches(&matches)
}

fn usage(error: &clap::Error, out: &mut dyn Write, err: &mut dyn Write) -> Exit {
    let text = error.render().to_string();
    let (written, exit) = if error.use_stderr() {
        (err.write_all(text.as_bytes()), Exit::Client)
    } else {
        (out.write_all(text.as_bytes()), Exit::Ok)
    };
    match written {
        Ok(()) => exit,
        Err(_unwritable) => Exit::Client,
    }
}

fn say(environment: &Environment, err: &mut dyn Write, failure: &Failure) -> Exit {
    let mut nowhere = std::io::sink();
    let mut session = Session::new(environment, &mut nowhere, err, Cluster::default());
    match session.report(failure) {
        Ok(()) => failure.exit(),
        Err(_unwritable) => Exit::Client,
    }
}

async fn run_command(verb: Verb, session: &mut Session<'_>) -> Result<Exit, Failure> {
    use actions::Change;
    use api::apps::ApprovalDecision;
    match verb {
        Verb::Get(verb) => commands::get::run(verb, session).await,
        Verb::Describe(verb) => commands::describe::run(verb, session).await,
        Verb::Tree(verb) => commands::tree::run(verb, session).await,
        Verb::Why(verb) => commands::why::run(verb, session).await,
        Verb::Logs(verb) => commands::logs::run(verb, session).await,
        Verb::Events(verb) => commands::events::run(verb, session).await,
        Verb::Submit(verb) => commands::submit::run(verb, session).await,
        Verb::Context(Context::Add(verb)) => commands::context::run(verb, session).await,
        Verb::Wait(verb) => commands::wait::run(verb, session).await,
        Verb::Result(verb) => commands::result::run(verb, session).await,
        Verb::Diff(verb) => commands::diff::run(verb, session).await,
        Verb::Golden(verb) => commands::golden::run(verb, session).await,
        Verb::Delete(verb) => commands::delete::run(verb, session).await,
        Verb::Cancel(verb) => commands::lifecycle::run(verb.target, Change::Cancel, session).await,
        Verb::Suspend(verb) => {
            commands::lifecycle::run(verb.target, Change::Suspend, session).await
        }
        Verb::Resume(verb) => commands::lifecycle::run(verb.target, Change::Resume, session).await,
        Verb::Retry(verb) => commands::retry::run(verb, session).await,
        Verb::Upgrade(verb) => commands::requests::upgrade(verb, session).await,
        Verb::Rollback(verb) => commands::requests::roll_back(verb, session).await,
        Verb::Approve(verb) => {
            commands::requests::decide(verb, ApprovalDecision::Approved, session).await
        }
        Verb::Deny(verb) => {
            commands::requests::decide(verb, ApprovalDecision::Denied, session).await
        }
        Verb::History(verb) => commands::history::run(verb, session).await,
        Verb::Check(verb) => commands::check::run(verb, session).await,
        Verb::Uninstall(verb) => commands::uninstall::run(verb, session).await,
        Verb::Version(verb) => commands::version::run(verb, session).await,
        Verb::Completion(verb) => commands::completion::run(&verb, session),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(program: &'static str, line: &str) -> (u8, String, String) {
        let environment = Environment {
            program,
            size: || Some((80, 24)),
            ..Environment::of_process()
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let arguments = line.split_whitespace().map(OsString::from);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let exit = runtime.block_on(run(arguments, &environment, &mut out, &mut err));
        (
            exit.code(),
            String::from_utf8(out).unwrap(),
            String::from_utf8(err).unwrap(),
        )
    }

    #[test]
    fn help_is_output_and_a_wrong_line_is_an_error() {
        let (code, out, err) = said("orc", "--help");
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains("Usage: orc [OPTIONS] <COMMAND>"), "{out}");
        let (code, out, err) = said("orc", "get --color");
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.contains("'--color'"), "{err}");
        let (code, _, err) = said("orc", "");
        assert!(code == 2 && err.contains("Usage: orc"), "{err}");
    }

    #[test]
    fn help_of_a_command_is_the_same_in_both_forms() {
        for (line, same) in [
            ("help", "--help"),
            ("help get", "get --help"),
            ("-n team help context add", "context add --help"),
            ("help submit docs", "submit docs --help"),
        ] {
            let (code, out, err) = said("orc", line);
            assert_eq!((code, err.as_str()), (0, ""), "{line}");
            assert_eq!(out, said("orc", same).1, "{line}");
        }
        let (code, _, err) = said("orc", "help approve");
        assert!(code == 2 && err.contains("'approve'"), "{err}");
        // An object may have this name.
        let line = ["get", "agent", "help"].map(OsString::from).to_vec();
        assert_eq!(arguments::with_help_behind(line.clone()), line);
    }

    #[test]
    fn a_format_before_the_command_is_the_commands() {
        let (code, _, err) = said("orc", "-o wide why x");
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("invalid value 'wide' for '--output"), "{err}");
        let (code, _, err) = said("orc", "-o json cancel x");
        assert!(
            code == 2 && err.contains("unexpected argument '--output"),
            "{err}"
        );
        for line in [["-o", "json", "version"], ["version", "-o", "json"]] {
            let line = line.map(OsString::from).to_vec();
            let arguments = parse(line, &Environment::of_process()).unwrap();
            let Verb::Version(version) = arguments.verb else {
                panic!("{:?}", arguments.verb);
            };
            assert_eq!(version.output, Some(crate::arguments::DataFormat::Json));
        }
        let line = ["-n", "team", "-o=yaml", "get", "runs"].map(OsString::from);
        let arguments = parse(line.to_vec(), &Environment::of_process()).unwrap();
        assert_eq!(arguments.cluster.namespace.as_deref(), Some("team"));
        let Verb::Get(get) = arguments.verb else {
            panic!("{:?}", arguments.verb);
        };
        assert_eq!(get.output, Some(crate::arguments::Format::Yaml));
    }

    #[test]
    fn one_namespace_and_all_of_them_exclude_each_other() {
        for line in ["get -A -n team", "-n team get -A"] {
            let (code, _, err) = said("orc", line);
            assert!(
                code == 2 && err.contains("give one of the two"),
                "{line}: {err}"
            );
        }
    }

    #[test]
    fn the_name_of_the_file_asks_for_a_completion() {
        let of = |line: &str| {
            let all = arguments(line.split(' ').map(OsString::from).collect());
            all.join(&OsString::from(" ")).into_string().unwrap()
        };
        assert_eq!(
            of("/bin/kubectl_complete-orc get --n"),
            "__complete get --n"
        );
        assert_eq!(of("/bin/orc get"), "get");
        assert_eq!(of("kubectl-orc"), "");
        let (code, out, err) = said("orc", "__complete vers");
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(
            out,
            "version\tPrint the versions of orc, Kubernetes and the operators\n:4\n"
        );
    }

    #[test]
    fn as_a_plugin_it_names_kubectl() {
        let (_, out, _) = said("kubectl orc", "context add --help");
        assert!(out.contains("Usage: kubectl orc context add"), "{out}");
    }

    #[test]
    fn help_fits_the_terminal() {
        for verb in Arguments::command().get_subcommands() {
            let (code, out, _) = said("orc", &format!("{} --help", verb.get_name()));
            assert_eq!(code, 0);
            // clap does not wrap the usage.
            for line in out.lines().filter(|line| !line.starts_with("Usage:")) {
                assert!(line.chars().count() <= 80, "{}: {line}", verb.get_name());
            }
        }
    }
}
