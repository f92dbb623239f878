//! `cargo xtask unit`: the tests that need no root and no cluster.

use std::{collections::BTreeMap, process::ExitCode, time::Instant};

use anyhow::{Context, Result, ensure};
use testbed::build;
use testkit::junit::{self, CaseResult};

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
    let mut outcome = test_binaries::run(SUITE, binaries, &[], &environment, BINARIES)?;
    let begin = Instant::now();
    let examples = examples();
    let result = CaseResult::of(&examples);
    outcome
        .results
        .add("documentation", "examples", begin.elapsed(), result);
    let ended = outcome.end();
    examples?;
    Ok(if ended? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the examples in the documentation.
fn examples() -> Result<()> {
    let status = build::cargo(&["test", "--workspace", "--doc", "--quiet"])
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "examples in the documentation fail");
    Ok(())
}
