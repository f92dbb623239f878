//! `cargo xtask e2e …`: the product as its users have it, on a real cluster.

mod apps;
pub(crate) mod attacks;
pub(crate) mod budget;
mod chart;
mod children;
mod docs;
mod events;
pub(crate) mod first_user;
mod fixture;
mod fleet;
pub(crate) mod gateway;
mod install;
mod notebooks;
mod policies;
mod processor;
mod quickstart;
mod reading;
mod shell;
mod status_history;
mod tasks;
mod tenants;
mod why;
mod writes;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, ensure};
use api::names;
use clap::Subcommand;
use kube::api::ListParams;
use serde_json::Value;
use testbed::{
    build,
    commands::{require_root, runtime},
    operator_image,
};
use testkit::{
    cluster::{Addition, Cluster},
    parts,
    suite::{Case, Place, When},
};

/// A suite of cases on the real node: one operator's.
struct Suite {
    name: &'static str,
    cases: fn() -> Vec<Case>,
    /// Cases use the image of the steps around an agent, which must be compiled and loaded.
    needs_toolbox: bool,
    /// Cases at once: they wait more than they work.
    parallel: usize,
}

/// All of them. A new operator adds its suite here, and its cases run in CI.
const SUITES: &[Suite] = &[
    Suite {
        name: "attacks",
        cases: all_attacks,
        needs_toolbox: false,
        parallel: 8,
    },
    Suite {
        name: "tasks",
        cases: tasks::cases,
        needs_toolbox: false,
        parallel: 8,
    },
    Suite {
        name: "docs",
        cases: docs::cases,
        needs_toolbox: true,
        parallel: 8,
    },
    Suite {
        name: "first-user",
        cases: first_user::share,
        needs_toolbox: false,
        parallel: first_user::PARALLEL,
    },
    Suite {
        name: "tenants",
        cases: tenants::cases,
        needs_toolbox: true,
        // A Tenant has two containers, which start on two cores.
        parallel: 6,
    },
];

/// What others may try, against every operator.
fn all_attacks() -> Vec<Case> {
    let mut cases = tasks::attacks();
    cases.extend(tenants::attacks());
    cases
}

/// Cases of all suites at once.
const POOL: usize = 8;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the cases of all suites that need a cluster for themselves, one after another
    Alone,
    /// ManagedApps on the real node, with the real controllers of Flux, a Git server and charts
    Apps {
        /// Only these cases
        cases: Vec<String>,
    },
    /// What others may try, on the real node: each case fails if it succeeds
    Attacks {
        /// With the sizes that CI has no time for: a flood of three minutes
        #[arg(long)]
        whole: bool,
        /// Only these cases
        cases: Vec<String>,
    },
    /// What 500 runs cost the API server, on fake nodes
    Budget,
    /// DocsRuns from creation to every end, on the real node, with real Git servers
    Docs {
        /// Only these cases
        cases: Vec<String>,
    },
    /// The faults of a first user: each must be named within 10 s, and `orc why` must name a way out; ends with a
    /// table. CI runs a share
    FirstUser {
        /// Only these rows of the trial's table, such as 7b
        rows: Vec<String>,
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
    /// The REST API on the real node: every status code, races, tokens, runs to their end, and attacks. CI runs a share
    Gateway {
        /// Only the cases that CI runs
        #[arg(long, conflicts_with = "cases")]
        share: bool,
        /// Only these cases
        cases: Vec<String>,
    },
    /// The chart as it is rendered and, by the README's own commands, as it is installed and used
    Install {
        /// With the gateway: enabled, disabled, upgraded, downgraded and uninstalled while runs are active
        #[arg(long)]
        whole: bool,
    },
    /// NotebookValidationJobs on the real node, with real kernels, the notebook runner and Git servers. Not in CI
    Notebooks {
        /// Only these cases
        cases: Vec<String>,
    },
    /// Measure the processor time of operators that were compiled differently, on fake nodes
    Processor {
        /// Operators to compare
        binaries: Vec<PathBuf>,
    },
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
    /// Run the cases of all suites that can share a cluster, on one
    Together,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    require_root()?;
    build::programs()?;
    match command {
        Command::Install { whole } => {
            ensure!(
                Place::external().is_none(),
                "this one needs a cluster of the testbed: it loads images on the node"
            );
            // Here it may take its minutes; where the README builds it, a cluster waits.
            operator_image::build()?;
            runtime()?.block_on(install::run(whole))
        }
        Command::Apps { cases } => {
            ensure!(
                Place::external().is_none(),
                "this one needs a cluster of the testbed: it starts the controllers of Flux"
            );
            let all = apps::cases();
            runtime()?.block_on(perform("apps", all, &cases, true, apps::PARALLEL))
        }
        Command::Budget => runtime()?.block_on(budget::run()),
        Command::Fleet { tenants, quiet } => {
            let quiet = std::time::Duration::from_secs(quiet);
            runtime()?.block_on(fleet::run(tenants, quiet))
        }
        Command::Processor { binaries } => runtime()?.block_on(processor::run(&binaries)),
        Command::Attacks { whole, cases } => {
            let size = if whole {
                attacks::Size::Whole
            } else {
                attacks::Size::Share
            };
            attacks::set_size(size);
            runtime()?.block_on(suite("attacks", &cases))
        }
        Command::FirstUser { rows } => {
            ensure!(
                Place::external().is_none(),
                "this one needs a cluster of the testbed: it breaks CRDs and cordons the node"
            );
            let all = first_user::cases();
            runtime()?.block_on(perform(
                "first-user",
                all,
                &rows,
                false,
                first_user::PARALLEL,
            ))
        }
        Command::Gateway { share, cases } => {
            let all = match share {
                true => gateway::share(),
                false => gateway::cases(),
            };
            runtime()?.block_on(perform("gateway", all, &cases, false, gateway::PARALLEL))
        }
        Command::Notebooks { cases } => {
            ensure!(
                Place::external().is_none(),
                "this one needs a cluster of the testbed: it loads images on the node"
            );
            let all = notebooks::cases();
            runtime()?.block_on(perform("notebooks", all, &cases, true, notebooks::PARALLEL))
        }
        Command::Docs { cases } => runtime()?.block_on(suite("docs", &cases)),
        Command::Tasks { cases } => runtime()?.block_on(suite("tasks", &cases)),
        Command::Tenants { cases } => runtime()?.block_on(suite("tenants", &cases)),
        Command::Together => runtime()?.block_on(pool("together", When::Alone, POOL)),
        Command::Alone => runtime()?.block_on(pool("alone", When::Together, 1)),
    }
}

/// Runs the cases of one suite, or those whose names are given.
async fn suite(name: &str, only: &[String]) -> Result<ExitCode> {
    let suite = SUITES.iter().find(|suite| suite.name == name);
    let suite = suite.with_context(|| format!("no suite '{name}'"))?;
    perform(
        name,
        (suite.cases)(),
        only,
        suite.needs_toolbox,
        suite.parallel,
    )
    .await
}

/// Runs the cases of all suites but those of one kind.
async fn pool(name: &str, without: When, parallel: usize) -> Result<ExitCode> {
    let mut cases = Vec::new();
    for suite in SUITES {
        cases.extend((suite.cases)().into_iter().map(|case| Case {
            suite: suite.name,
            ..case
        }));
    }
    cases.retain(|case| case.when != without);
    perform(name, cases, &[], true, parallel).await
}

async fn perform(
    name: &str,
    cases: Vec<Case>,
    only: &[String],
    needs_toolbox: bool,
    parallel: usize,
) -> Result<ExitCode> {
    if Place::external().is_none() {
        // Known now, not after the first case.
        parts::binary("kstatus", "kstatus")?;
    }
    let needs_runner = cases
        .iter()
        .any(|case| case.additions.contains(&Addition::Notebooks));
    let prepare = async |cluster: &Cluster| {
        if needs_runner {
            let loaded = operator_image::load_runner(cluster).await?;
            ensure!(loaded == notebooks::RUNNER, "'{loaded}' was loaded");
        }
        if needs_toolbox {
            let loaded = operator_image::load_toolbox(cluster).await?;
            ensure!(loaded == docs::TOOLBOX, "'{loaded}' was loaded");
        }
        Ok(())
    };
    let code =
        crate::cases::run_prepared(&format!("e2e-{name}"), cases, only, parallel, prepare).await;
    tenants::abandon().await;
    code
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
