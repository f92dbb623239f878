//! Every task of the project. `cargo xtask --help` is the map.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line talks by printing"
)]

mod ci;
mod generate;
mod runner;
mod suites;
mod wording;

use std::{ffi::OsString, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use testbed::operator_image::{self, Product};

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
    /// Write all files that follow from the types: CRDs, permissions, reference pages
    Generate {
        /// Write nothing; fail if anything differs
        #[arg(long)]
        check: bool,
    },
    /// Count unclear words in pages and comments; fails above a ceiling and at banned phrases
    Wording,
    /// The tests that need root or a cluster: starts one of each tier, runs them, ends it
    #[command(disable_help_flag = true)]
    Test(PassedOn),
    /// Run the tests that need no root and no cluster, several binaries at a time
    #[command(disable_help_flag = true)]
    Unit(PassedOn),
    /// The operator's image, as an archive for a cluster's nodes; needs no Docker
    Image {
        /// Instead, the image of the steps around a DocsRun's agent; needs root and the network
        #[arg(long)]
        toolbox: bool,
        /// Instead, the image of the notebook runner; needs root and the network
        #[arg(long, conflicts_with = "toolbox")]
        runner: bool,
    },
    /// The notebook runner; needs Python and the network
    Runner {
        #[command(subcommand)]
        task: RunnerTask,
    },
    /// The product as its users have it, on a real cluster
    #[command(disable_help_flag = true)]
    E2e(PassedOn),
    /// What others may try, on the real node; ends with the number of attacks and of those that succeeded
    #[command(disable_help_flag = true)]
    Attacks(PassedOn),
    /// Measurements with limits, of which CI runs a share
    #[command(disable_help_flag = true)]
    Bench(PassedOn),
    /// Crashes at every write, lost answers, refusals and old caches, judged by oracles
    #[command(disable_help_flag = true)]
    Faults(PassedOn),
    /// Puts one bug at a time into the operator, and looks whether the suites see it
    #[command(disable_help_flag = true)]
    Mutants(PassedOn),
    /// Put each bug of an earlier system back, one at a time, and require that the test with its id fails;
    /// the same for tests that once could not fail
    #[command(disable_help_flag = true)]
    Regressions(PassedOn),
    /// The real cluster for tests: build its parts, start it, verify that it works
    #[command(disable_help_flag = true)]
    Testbed(PassedOn),
}

#[derive(Subcommand)]
enum RunnerTask {
    /// Run its tests with the supervisor of the product, and compare it with nbval and papermill
    Test {
        /// Leave the comparison out, which takes ten minutes
        #[arg(long)]
        quick: bool,
    },
}

/// Arguments that the program of the suites reads.
#[derive(Args)]
struct PassedOn {
    /// Arguments of the suite; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    let Arguments { task } = Arguments::parse();
    let result = match task {
        Task::Check => ci::check(),
        Task::Ci { whole, report } => ci::ci(whole, report),
        Task::Generate { check } => generate::run(check),
        Task::Wording => wording::run(),
        Task::Image { toolbox, runner } => {
            let product = match (toolbox, runner) {
                (true, _) => Product::Toolbox,
                (false, true) => Product::Runner,
                (false, false) => Product::Operator,
            };
            operator_image::run(product).map(|()| ExitCode::SUCCESS)
        }
        Task::Runner {
            task: RunnerTask::Test { quick },
        } => runner::test(quick),
        Task::Test(passed) => suites::run("test", &passed.arguments),
        Task::Unit(passed) => suites::run("unit", &passed.arguments),
        Task::E2e(passed) => suites::run("e2e", &passed.arguments),
        Task::Attacks(passed) => suites::run("attacks", &passed.arguments),
        Task::Bench(passed) => suites::run("bench", &passed.arguments),
        Task::Faults(passed) => suites::run("faults", &passed.arguments),
        Task::Mutants(passed) => suites::run("mutants", &passed.arguments),
        Task::Regressions(passed) => suites::run("regressions", &passed.arguments),
        Task::Testbed(passed) => suites::run("testbed", &passed.arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
