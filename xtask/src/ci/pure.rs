//! Decisions compile without an async runtime and without a client: all that they need is in their
//! arguments.

use anyhow::{Result, bail};
use api::kinds::OPERATORS;
use testbed::build;

use super::lanes::Runner;

/// Crates that decide, beside those of the operators.
const PACKAGES: &[&str] = &["api", "attempts", "git", "pods", "why", "yaml-edit"];

/// Dependencies that do I/O.
const BANNED: &[&str] = &["tokio ", "kube-client ", "hyper "];

pub(super) fn check(run: &Runner) -> Result<()> {
    let mut arguments = vec!["check", "--quiet", "--no-default-features"];
    let of_operators = OPERATORS.iter().map(|operator| operator.name);
    for package in PACKAGES.iter().copied().chain(of_operators) {
        let output = build::cargo(&["tree", "--package", package, "--no-default-features"])
            .args(["--edges", "normal", "--prefix", "none"])
            .output()?;
        if !output.status.success() {
            bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr));
        }
        let tree = String::from_utf8(output.stdout)?;
        for banned in BANNED {
            if let Some(line) = tree.lines().find(|line| line.starts_with(banned)) {
                bail!("'{package}' without its default features needs '{line}'");
            }
        }
        arguments.extend(["--package", package]);
    }
    run.cargo(&arguments)
}
