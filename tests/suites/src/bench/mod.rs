//! `cargo xtask bench`: measurements with limits. CI runs a share of them.

mod memory;
mod queue;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value, json};
use testbed::{
    commands::{require_root, runtime},
    operator_image,
};
use testkit::{
    operator::{Operator, Plan},
    suite::Env,
    wait::until,
};

use crate::e2e::gateway::load;

/// Requests at once.
const AT_ONCE: usize = 16;
/// Time for the first lists of the operator: 50,000 runs are 3,100 pages.
const FIRST_LISTS: Duration = Duration::from_secs(300);

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The gateway beside a client without it: submits, a list of runs, 200 streams and 2,000 silent connections; ends
    /// with a table
    Gateway {
        /// Runs of the list
        #[arg(long, default_value_t = 10_000)]
        runs: usize,
        /// The operator to measure; by default that of the image is compiled
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Memory of the tasks operator: finished runs, a restart, large files and large foreign ConfigMaps
    Memory {
        /// Finished runs at the first measurement
        #[arg(long, default_value_t = 10_000)]
        from: usize,
        /// Finished runs at the second
        #[arg(long, default_value_t = 50_000)]
        to: usize,
        /// Suspended runs of 900 KiB, and then ConfigMaps of 1 MiB with our labels; 0 leaves this part out
        #[arg(long, default_value_t = 600)]
        large: usize,
        /// The operator to measure; by default that of the image is compiled
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Delay of a run while runs of another namespace are queued
    Queue {
        /// Queued runs of the other namespace
        #[arg(long, default_value_t = 10_000)]
        runs: usize,
        /// The operator to measure; by default that of the image is compiled
        #[arg(long)]
        binary: Option<PathBuf>,
    },
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    require_root()?;
    match command {
        Command::Gateway { runs, binary } => {
            let binary = operator(binary)?;
            runtime()?.block_on(load::run(load::Size { runs, binary }))
        }
        Command::Memory {
            from,
            to,
            large,
            binary,
        } => {
            let binary = operator(binary)?;
            let size = memory::Size {
                from,
                to,
                large,
                binary,
            };
            runtime()?.block_on(memory::run(size))
        }
        Command::Queue { runs, binary } => {
            let binary = operator(binary)?;
            runtime()?.block_on(queue::run(queue::Size { runs, binary }))
        }
    }
}

/// Returns the operator to measure.
fn operator(binary: Option<PathBuf>) -> Result<PathBuf> {
    binary.map_or_else(operator_image::operator, Ok)
}

/// Starts the operator and waits until it leads.
async fn start(env: &Env, plan: &Plan) -> Result<Operator> {
    let operator = Operator::start_within(FIRST_LISTS, &env.client, &env.config, plan).await?;
    until("it to lead", Duration::from_secs(120), async || {
        Ok(match operator.is_leading().await? {
            true => Ok(()),
            false => Err("it does not".to_owned()),
        })
    })
    .await?;
    Ok(operator)
}

fn task_run(name: &str, id: usize, files: &Value, is_suspended: bool) -> Value {
    json!({
        "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "metadata": { "name": name },
        "spec": {
            "taskId": id, "serviceName": "bench", "agentName": "budget", "suspend": is_suspended,
            "markdownFiles": files,
        },
    })
}
