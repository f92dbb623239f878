//! Every chore of the project. `cargo xtask --help` is the map.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line talks by printing"
)]

mod isolation;
mod prove;
mod testbed;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Every chore of the project, one command each.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// The real cluster for tests: build its parts, start it, prove that it works
    #[command(subcommand)]
    Testbed(testbed::Command),
}

fn main() -> ExitCode {
    let Arguments { chore } = Arguments::parse();
    let result = match chore {
        Chore::Testbed(command) => testbed::run(command),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
