//! `cargo xtask unit`: the tests that need no root and no cluster.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::{Context, Result, ensure};
use testbed::build;
use testkit::junit;

use crate::test_binaries;

/// Binaries at once: some wait for servers while others compute.
const BINARIES: usize = 3;

/// The name of its JUnit file.
const SUITE: &str = "unit";

/// Asks property and fuzz tests for their whole counts of cases.
const WHOLE_VARIABLE: &str = "ORCHESTRATOR_WHOLE";

pub(crate) fn run(is_whole: bool, builds_only: bool) -> Result<ExitCode> {
    if builds_only {
        test_binaries::build()?;
        return Ok(ExitCode::SUCCESS);
    }
    junit::clear(SUITE)?;
    let mut environment = BTreeMap::new();
    if is_whole {
        environment.insert(WHOLE_VARIABLE, "1".to_owned());
    }
    let binaries = test_binaries::all()?;
    let outcome = test_binaries::run(SUITE, binaries, &[], &environment, BINARIES)?;
    let has_passed = outcome.end()?;
    let status = build::cargo(&["test", "--workspace", "--doc", "--quiet"])
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "examples in the documentation fail");
    Ok(if has_passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
