//! The operator's process: arguments, configuration, logs, HTTP endpoints, startup and shutdown.

use std::{io::IsTerminal, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;

pub mod arguments;
pub mod component;
pub mod config;
pub mod http;
pub mod listener;
pub mod logging;
mod operators;
mod rest_api;
pub mod run;

use arguments::Arguments;
use config::Config;
use logging::Format;

/// Runs the program. The exit code is 0 only after an orderly shutdown in which every task stopped without
/// an error.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match prepare(&arguments) {
        Ok(_) if arguments.check_config => Ok(()),
        Ok(config) => serve(arguments, config).inspect_err(|error| tracing::error!("{error:#}")),
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "there are no logs yet")]
            {
                eprintln!("orchestrator: {error:#}");
            }
            Err(error)
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(_already_said) => ExitCode::FAILURE,
    }
}

fn prepare(arguments: &Arguments) -> Result<Config> {
    let config = Config::load(&arguments.config, arguments.operator)?;
    if !arguments.check_config {
        let format = arguments.log_format.unwrap_or_else(|| {
            if std::io::stderr().is_terminal() {
                Format::Human
            } else {
                Format::Json
            }
        });
        logging::start(format, &config.log.filter)?;
    }
    Ok(config)
}

fn serve(arguments: Arguments, config: Config) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
    let ended = runtime.block_on(run::run(arguments, config));
    // Blocking work that hangs must not keep the process alive after a signal to stop.
    runtime.shutdown_background();
    ended
}
