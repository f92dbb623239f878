//! Starts the program of the suites, which is in `tests/suites`.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};
use testbed::build;

/// The name of the program.
const PROGRAM: &str = "suites";

/// Builds the program unless `cargo xtask ci` has, and becomes it: signals and the exit code are its own.
///
/// # Errors
/// When it cannot be built or started. Otherwise, this function does not return.
pub(crate) fn run(suite: &str, arguments: &[OsString]) -> Result<ExitCode> {
    let program = build::program(PROGRAM)?;
    let error = Command::new(&program).arg(suite).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run '{}'", program.display()))
}
