//! Every task of the project. `cargo xtask --help` is the map.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line talks by printing"
)]

mod bench;
mod build;
mod cases;
mod ci;
mod cluster_tests;
mod e2e;
mod faults;
mod generate;
mod image;
mod regressions;
mod source_edits;
mod test_binaries;
mod testbed;
mod testbed_isolation;
mod tools;
mod unit;
mod verify;
mod wording;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Every task of the project, one command each.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Before a commit: fmt, clippy, generated files, wording, unit tests, deny, docs. No root, no cluster
    Check,
    /// Run what CI runs: `check`, and beside it everything on the testbed
    Ci {
        /// Add everything of which CI plays a share: campaigns, mutants, the testbed; takes hours
        #[arg(long)]
        whole: bool,
        /// Write the table of stages in CONTRIBUTING.md
        #[arg(long)]
        report: bool,
    },
    /// Write what follows from the types in `api`: CRDs, permissions, reference pages
    Generate {
        /// Write nothing; fail if anything differs
        #[arg(long)]
        check: bool,
    },
    /// Count unclear words in pages and comments; fails above a ceiling and at banned phrases
    Wording,
    /// The tests that need root or a cluster: starts one of each tier, runs them, ends it
    Test {
        /// Only tests whose name contains this
        filter: Option<String>,
    },
    /// Run the tests that need no root and no cluster, several binaries at a time
    Unit {
        /// Run property and fuzz tests with their whole counts of cases
        #[arg(long)]
        whole: bool,
        /// Compile the tests, and run none
        #[arg(long)]
        build: bool,
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
    /// What others may try, on the real node; ends with the number of attacks and of those that succeeded
    Attacks {
        /// With the sizes that CI has no time for: a flood of three minutes
        #[arg(long)]
        whole: bool,
        /// Only these cases
        cases: Vec<String>,
    },
    /// Measurements with limits, of which CI runs a share
    #[command(subcommand)]
    Bench(bench::Command),
    /// Crashes at every write, lost answers, refusals and old caches, judged by oracles
    #[command(subcommand)]
    Faults(faults::Command),
    /// Puts one bug at a time into the operator, and looks whether the suites see it
    Mutants(faults::mutants::Arguments),
    /// Put each bug of an earlier system back, one at a time, and require that the test with its id fails;
    /// the same for tests that once could not fail
    Regressions {
        /// Only these, such as R03
        ids: Vec<String>,
    },
    /// The real cluster for tests: build its parts, start it, verify that it works
    #[command(subcommand)]
    Testbed(testbed::Command),
}

fn main() -> ExitCode {
    let Arguments { task } = Arguments::parse();
    let result = match task {
        Task::Check => ci::check(),
        Task::Ci { whole, report } => ci::ci(whole, report),
        Task::Generate { check } => generate::run(check),
        Task::Wording => wording::run(),
        Task::Test { filter } => cluster_tests::run(filter.as_deref()),
        Task::Unit { whole, build } => unit::run(whole, build),
        Task::Image { toolbox } => image::run(toolbox).map(|()| ExitCode::SUCCESS),
        Task::E2e(command) => e2e::run(command),
        Task::Attacks { whole, cases } => e2e::run(e2e::Command::Attacks { whole, cases }),
        Task::Bench(command) => bench::run(command),
        Task::Faults(command) => faults::run(&command),
        Task::Mutants(arguments) => faults::mutants::run(&arguments),
        Task::Regressions { ids } => regressions::run(&ids),
        Task::Testbed(command) => testbed::run(command),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
