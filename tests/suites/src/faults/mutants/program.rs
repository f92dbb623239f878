//! The operator with the mutants: a program beside the one that users run.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use testbed::build;
use testkit::layout;

use super::{SWITCH, source};
use crate::source_edits::Tree;

/// Compiles it, in a copy of the repository that has the edits. All packages at once and in the target
/// directory of the other programs, so that it shares its dependencies with them.
pub(super) fn build() -> Result<PathBuf> {
    let repository = layout::repository();
    let texts = source::texts(repository)?;
    let tree = Tree::with_texts(repository, &repository.join("target/mutants"), &texts)?;
    let folder = folder()?;
    let target = folder.parent().context("no target directory")?;
    let status = build::cargo(&["build", "--quiet", "--workspace"])
        .args(["--bin", "orchestrator-mutants"])
        .args(["--features", "operator/mutants"])
        .current_dir(tree.root())
        .env("CARGO_TARGET_DIR", target)
        .status()
        .context("cannot run cargo")?;
    ensure!(
        status.success(),
        "the operator with the mutants cannot be compiled"
    );
    path()
}

/// The compiled program.
pub(super) fn path() -> Result<PathBuf> {
    let path = folder()?.join("orchestrator-mutants");
    ensure!(path.is_file(), "'{}' does not exist", path.display());
    Ok(path)
}

/// The directory of the workspace's programs, which is below the target directory.
fn folder() -> Result<PathBuf> {
    let program = testkit::process::this_program()?;
    let folder = program.parent().context("this program is in no folder")?;
    Ok(folder.to_owned())
}

/// Checks that it says which mutant is on, and ends if nobody knows that mutant: a play with a wrong
/// switch would be one of the operator that users run.
pub(super) fn check() -> Result<()> {
    for (mutant, words) in [
        (None, "this is a test build: no mutant is on"),
        (
            Some("hot-loop"),
            "this is a test build: mutant 'hot-loop' is on",
        ),
        (Some("none-such"), "no mutant 'none-such'"),
        (Some("Hot-Loop"), "no mutant 'Hot-Loop'"),
        (Some(""), "no mutant ''"),
    ] {
        let said = said(mutant)?;
        // A known one gets as far as its cluster, which is not there.
        let is_known = !words.starts_with("no mutant '");
        ensure!(
            said.contains(words) && said.contains("--kubeconfig") == is_known,
            "with the mutant {mutant:?} the operator does not say '{words}': {said}"
        );
    }
    Ok(())
}

fn said(mutant: Option<&str>) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("config.yaml");
    fs::write(&config, "concurrency: 4\n")?;
    let mut command = Command::new(path()?);
    command
        .arg("--config")
        .arg(&config)
        .env_clear()
        .stdin(Stdio::null());
    if let Some(mutant) = mutant {
        command.env(SWITCH, mutant);
    }
    let output = command.output()?;
    ensure!(output.status.code() == Some(1), "{}", output.status);
    Ok(String::from_utf8(output.stderr)?)
}
