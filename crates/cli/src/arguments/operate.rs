//! Arguments of the commands that read results, delete runs, and check an installation.

use std::time::Duration;

use actions::ObjectName;
use clap::Args;

use super::{DataFormat, duration};
use crate::target;

/// `delete`
#[derive(Debug, Args)]
#[command(
    after_help = "The Jobs, the Pods, their logs and the ConfigMaps of a run are deleted with it. A run that is in progress is stopped first."
)]
pub(crate) struct Delete {
    /// Names of runs; docsrun/NAME for a DocsRun
    #[arg(value_name = "RUN", required = true, value_parser = target::run)]
    pub(crate) runs: Vec<ObjectName>,
    /// Wait until the runs no longer exist
    #[arg(long)]
    pub(crate) wait: bool,
    /// Timeout, such as 30s, 10m or 1h30m [default: none]
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// `result`
#[derive(Debug, Args)]
pub(crate) struct RunResult {
    /// Name of the run; docsrun/NAME for a DocsRun
    #[arg(value_name = "RUN", value_parser = target::run)]
    pub(crate) run: ObjectName,
    /// Name of one result, to print only its value [default: all results]
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<DataFormat>,
}

/// `check`
#[derive(Debug, Args)]
#[command(
    after_help = "Checks the CRDs, Deployments, Leases, admission policies, webhooks of others, versions, and your own permissions. Ends with exit code 0 if no check failed, otherwise with 1. A warning is no failure: it marks a part that you may not read, or that limits only you."
)]
pub(crate) struct Check {}

/// `uninstall`
#[derive(Debug, Args)]
#[command(
    after_help = "Lists unfinished runs and objects with finalizers of Orchestrator in all namespaces. Without the operator, their deletion would wait indefinitely: the output has the commands for this case, too. Ends with exit code 0 if there are none, otherwise with 1."
)]
pub(crate) struct Uninstall {
    /// Check only, and change nothing
    #[arg(long)]
    pub(crate) check: bool,
}

/// `version`
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<DataFormat>,
}
