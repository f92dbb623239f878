//! `cargo xtask e2e …`: the product as its users have it, on a real cluster.

mod budget;
mod chart;
mod children;
mod docs;
mod events;
mod fleet;
mod install;
mod quickstart;
mod reading;
mod shell;
mod sight;
mod tasks;
mod tenants;
mod why;

use std::{process::ExitCode, time::Instant};

use anyhow::{Result, ensure};
use api::names;
use clap::Subcommand;
use kube::api::ListParams;
use serde_json::Value;
use testkit::suite::{Place, Summary};

use crate::testbed::{build_driver, require_root, runtime};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// What 500 runs cost the API server, on fake nodes
    Budget,
    /// DocsRuns from creation to every end, on the real node, with real Git servers
    Docs {
        /// Only these cases
        cases: Vec<String>,
    },
    /// What many Tenants cost the API server and the operator, on fake nodes
    Fleet {
        /// How many
        #[arg(long, default_value_t = 500)]
        tenants: usize,
        /// For how many seconds nothing may be written once they run
        #[arg(long, default_value_t = 60)]
        quiet: u64,
    },
    /// The chart as it is rendered and, by the README's own commands, as it is installed and used
    Install,
    /// TaskRuns from creation to every end, on the real node
    Tasks {
        /// Only these cases
        cases: Vec<String>,
    },
    /// Tenants from creation to every end, on the real node, with real Redis
    Tenants {
        /// Only these cases
        cases: Vec<String>,
    },
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    require_root()?;
    match command {
        Command::Install => {
            ensure!(
                Place::external().is_none(),
                "this one needs a cluster of the testbed: it loads images on the node"
            );
            build_driver()?;
            build("cli")?;
            // Here it may take its minutes; where the README builds it, a cluster waits.
            crate::image::build()?;
            runtime()?.block_on(install::run())
        }
        Command::Budget => {
            build_operator()?;
            runtime()?.block_on(budget::run())
        }
        Command::Fleet { tenants, quiet } => {
            build_operator()?;
            let quiet = std::time::Duration::from_secs(quiet);
            runtime()?.block_on(fleet::run(tenants, quiet))
        }
        Command::Docs { cases } => {
            build_driver()?;
            build_operator()?;
            build("cli")?;
            runtime()?.block_on(docs::run(&cases))
        }
        Command::Tasks { cases } => {
            build_driver()?;
            build_operator()?;
            runtime()?.block_on(tasks::run(&cases))
        }
        Command::Tenants { cases } => {
            build_driver()?;
            build_operator()?;
            runtime()?.block_on(tenants::run(&cases))
        }
    }
}

/// The operator as tests run it, beside this program.
pub(crate) fn build_operator() -> Result<()> {
    if std::env::var_os(testkit::operator::BINARY_VARIABLE).is_some() {
        return Ok(());
    }
    build("operator")
}

fn build(package: &str) -> Result<()> {
    let status = std::process::Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", package])
        .current_dir(testkit::layout::repository())
        .status()?;
    ensure!(status.success(), "'{package}' cannot be built");
    Ok(())
}

/// All that belongs to this run.
fn children(uid: &str) -> ListParams {
    ListParams::default().labels(&[names::UID, "=", uid].concat())
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

/// Lines of cases as they end, and their sum.
#[derive(Default)]
struct Report {
    summary: Summary,
}

impl Report {
    /// Prints how a case ended; whether it passed.
    fn case(&mut self, name: &str, start: Instant, result: Result<String>) -> bool {
        let (word, said) = match &result {
            Ok(seen) => {
                self.summary.passed += 1;
                ("ok     ", seen.clone())
            }
            Err(error) => {
                self.summary.failed += 1;
                ("FAILED ", format!("{error:#}"))
            }
        };
        let took = start.elapsed().as_secs_f64();
        println!("{word} {name:<16} {took:>5.1} s  {said}");
        result.is_ok()
    }

    /// A case that had no chance, because one before it failed.
    fn skipped(&mut self, name: &str, why: &str) {
        self.summary.skipped += 1;
        println!("skipped {name:<16} {:>5}    {why}", "");
    }

    /// Prints the sum; what was skipped is not success.
    fn end(self) -> ExitCode {
        println!("{}", self.summary);
        if self.summary.is_success() && self.summary.skipped == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
