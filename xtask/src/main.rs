//! Every chore of the project. `cargo xtask --help` is the map.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line talks by printing"
)]

mod cases;
mod check;
mod cluster_tests;
mod e2e;
mod faults;
mod generate;
mod image;
mod isolation;
mod prove;
mod testbed;
mod tools;

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
    /// Before a commit: fmt, clippy, generated files, unit tests, deny, docs. No root, no cluster
    Check,
    /// What CI runs: `check`, then the testbed and everything on it
    Ci,
    /// Write what follows from the types in `api`: CRDs, permissions, reference pages
    Generate {
        /// Write nothing; fail if anything differs
        #[arg(long)]
        check: bool,
    },
    /// The tests that need root or a cluster: starts one of each tier, runs them, ends it
    Test {
        /// Only tests whose name contains this
        filter: Option<String>,
    },
    /// The operator's image, as an archive for a cluster's nodes; needs no Docker
    Image {
        /// Instead, the image of the steps around a DocsRun's agent; needs root and the network
        #[arg(long)]
        toolbox: bool,
    },
    /// The product as its users have it, on a real cluster
    #[command(subcommand)]
    E2e(e2e::Command),
    /// Crashes at every write, lost answers, refusals and old caches, judged by oracles
    #[command(subcommand)]
    Faults(faults::Command),
    /// Puts one bug at a time into the operator, and looks whether the suites see it
    Mutants {
        /// Only these
        names: Vec<String>,
        /// Write the page of the docs
        #[arg(long)]
        report: bool,
    },
    /// The real cluster for tests: build its parts, start it, prove that it works
    #[command(subcommand)]
    Testbed(testbed::Command),
}

fn main() -> ExitCode {
    let Arguments { chore } = Arguments::parse();
    let result = match chore {
        Chore::Check => check::check(),
        Chore::Ci => check::ci(),
        Chore::Generate { check } => generate::run(check),
        Chore::Test { filter } => cluster_tests::run(filter.as_deref()),
        Chore::Image { toolbox } => image::run(toolbox).map(|()| ExitCode::SUCCESS),
        Chore::E2e(command) => e2e::run(command),
        Chore::Faults(command) => faults::run(&command),
        Chore::Mutants { names, report } => faults::mutants::run(&names, report),
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
