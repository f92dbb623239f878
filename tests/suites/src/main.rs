//! The suites and campaigns on a cluster, and the commands of the testbed.
//!
//! `cargo xtask` has the same commands and passes their arguments on to this program.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line talks by printing"
)]

mod bench;
mod cases;
mod cluster_tests;
mod e2e;
mod faults;
mod flux;
mod regressions;
mod source_edits;
mod test_binaries;
mod testbed_isolation;
mod unit;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use testbed::{
    build,
    commands::{self, require_root, runtime},
};

/// The suites of the project, one command each
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

// `xtask` lists the same commands with the same lines.
#[derive(Subcommand)]
enum Suite {
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
    Testbed(Testbed),
}

#[derive(Subcommand)]
enum Testbed {
    #[command(flatten)]
    Cluster(commands::Command),
    /// Verify, case by case, that clusters behave like real ones
    Verify {
        /// Only these cases (default: all)
        cases: Vec<String>,
    },
    /// Show that clusters do not see each other and leave nothing behind, killed or not
    Isolation {
        /// Only these cases (default: all)
        cases: Vec<String>,
    },
}

fn main() -> ExitCode {
    let Arguments { suite } = Arguments::parse();
    let result = match suite {
        Suite::Test { filter } => cluster_tests::run(filter.as_deref()),
        Suite::Unit { whole, build } => unit::run(whole, build),
        Suite::E2e(command) => e2e::run(command),
        Suite::Attacks { whole, cases } => e2e::run(e2e::Command::Attacks { whole, cases }),
        Suite::Bench(command) => bench::run(command),
        Suite::Faults(command) => faults::run(&command),
        Suite::Mutants(arguments) => faults::mutants::run(&arguments),
        Suite::Regressions { ids } => regressions::run(&ids),
        Suite::Testbed(command) => run_testbed(command),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_testbed(command: Testbed) -> Result<ExitCode> {
    match command {
        Testbed::Cluster(command) => commands::run(command),
        Testbed::Verify { cases } => check(verify::run(&cases)),
        Testbed::Isolation { cases } => check(testbed_isolation::run(&cases)),
    }
}

/// Runs a suite that checks the testbed.
fn check(suite: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    require_root()?;
    build::programs()?;
    runtime()?.block_on(suite)
}
