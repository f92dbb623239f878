//! Compiles the workspace once, for every task that needs its programs or its tests.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::layout;

/// Set by `cargo xtask ci`, which has built everything. Without it, each task would wait for the lock
/// on the target directory while clippy holds it.
pub const BUILT_VARIABLE: &str = "ORCHESTRATOR_BUILT";

/// Names a file with the list of test binaries, for the stages of `cargo xtask ci` after the one that builds
/// them.
pub const TEST_BINARIES_VARIABLE: &str = "ORCHESTRATOR_TEST_BINARIES";

/// Returns whether `cargo xtask ci` has built everything.
pub fn is_built() -> bool {
    std::env::var_os(BUILT_VARIABLE).is_some()
}

/// Builds all programs of the workspace, beside this one: operator, command line, steps, volume driver.
///
/// All of them in one command: with `--package`, Cargo chooses features for that package alone and
/// compiles most dependencies once more.
///
/// # Errors
/// When they do not compile.
pub fn programs() -> Result<()> {
    build(&["--bins"])
}

/// Builds one program of the workspace, with the features that it has in [`programs`].
///
/// # Errors
/// When it does not compile.
pub fn program(name: &str) -> Result<()> {
    build(&["--bin", name])
}

fn build(targets: &[&str]) -> Result<()> {
    if is_built() {
        return Ok(());
    }
    let status = cargo(&["build", "--quiet", "--workspace"])
        .args(targets)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the workspace's programs cannot be built");
    Ok(())
}

/// Returns the output of a command of Git in the repository.
///
/// # Errors
/// When Git does not exist, or the command fails: with the first line of its error output.
pub fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(layout::repository())
        .stdin(Stdio::null())
        .output()
        .context("cannot run git")?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().next().unwrap_or("no reason");
        bail!("git {}: {first}", arguments.join(" "));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns this very cargo, in the repository.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(layout::repository());
    command
}
