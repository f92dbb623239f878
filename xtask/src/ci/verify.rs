//! Verifies the testbed itself: all cases if its files changed since they last passed on this machine, else the
//! two cases that depend on the machine.

use std::fs;

use anyhow::{Context, Result};
use testbed::build;
use testkit::layout;

use super::lanes::Runner;

/// Files that the testbed is made of.
const TESTBED: &[&str] = &[
    "Cargo.lock",
    "testbed",
    "tests/suites/src/flux.rs",
    "tests/suites/src/testbed_isolation.rs",
    "tests/suites/src/verify",
];

pub(super) fn run(run: &Runner) -> Result<()> {
    let file = layout::cache()?.join("testbed-verified");
    let now = state()?;
    let verified = fs::read_to_string(&file).unwrap_or_default();
    if now.as_deref().is_some_and(|now| now == verified) {
        println!("the testbed's files are those of the last verification: two of its cases run");
        return run.xtask(&["testbed", "isolation", "start-times", "owner-killed"]);
    }
    run.xtask(&["testbed", "verify"])?;
    run.xtask(&["testbed", "isolation"])?;
    if let Some(now) = now {
        fs::write(&file, now).context("cannot record the verification")?;
    }
    Ok(())
}

/// Returns the Git objects of the testbed's files, or nothing if any of them was changed since the
/// last commit.
fn state() -> Result<Option<String>> {
    let git = |arguments: &[&str]| build::git(&[arguments, TESTBED].concat());
    let changed = git(&["status", "--porcelain", "--"])?;
    if !changed.is_empty() {
        return Ok(None);
    }
    Ok(Some(git(&["ls-tree", "-r", "HEAD", "--"])?))
}
