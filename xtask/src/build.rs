//! Compiles the workspace once, for every task that needs its programs or its tests.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use testkit::layout;

/// Set by `cargo xtask ci`, which has built everything. Without it, each task would wait for the lock
/// on the target directory while clippy holds it.
pub(crate) const BUILT_VARIABLE: &str = "ORCHESTRATOR_BUILT";

/// Whether `cargo xtask ci` has built everything.
pub(crate) fn is_built() -> bool {
    std::env::var_os(BUILT_VARIABLE).is_some()
}

/// Builds all programs of the workspace, beside this one: operator, command line, steps, volume driver.
///
/// All of them in one command: with `--package`, Cargo chooses features for that package alone and
/// compiles most dependencies once more.
pub(crate) fn programs() -> Result<()> {
    if is_built() {
        return Ok(());
    }
    let status = cargo(&["build", "--quiet", "--workspace", "--bins"])
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the workspace's programs cannot be built");
    Ok(())
}

/// Returns this very cargo, in the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(layout::repository());
    command
}
