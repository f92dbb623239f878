//! `cargo xtask runner`: the tests of the notebook runner, in a Python environment of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use testbed::{build, layout};

/// Location of the Python environment, from the repository.
const ENVIRONMENT: &str = "target/runner-python";
/// The pinned packages of the tests, in the directory of the runner.
const REQUIREMENTS: &str = "requirements-test.txt";
/// File in the environment with the requirements that it has. It is written last.
const INSTALLED: &str = "installed.txt";
/// Names the supervisor of kernels for the tests: that of the product.
const STEP_VARIABLE: &str = "STEP_PROGRAM";

/// Runs the tests of the runner with the supervisor of the product, and prints the figures of the pairs of images. Unless
/// `quick` is set, also compares the runner with nbval and papermill, which takes ten minutes.
///
/// # Errors
/// When Python or the packages are missing, or `step` does not compile.
pub(crate) fn test(quick: bool) -> Result<ExitCode> {
    let runner = layout::repository().join("runner");
    let python = python(&runner)?;
    let step = build::program("step")?;
    let all: [&[&str]; 3] = [
        &["-m", "pytest"],
        &["-m", "tests.image_pairs"],
        &["-m", "tests.others"],
    ];
    let count = if quick { 2 } else { all.len() };
    for arguments in all.iter().take(count) {
        let status = Command::new(&python)
            .args(*arguments)
            .env(STEP_VARIABLE, &step)
            .current_dir(&runner)
            .status()
            .with_context(|| format!("cannot run '{}'", python.display()))?;
        if !status.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the Python of the environment, which has exactly the pinned packages.
fn python(runner: &Path) -> Result<PathBuf> {
    let requirements = runner.join(REQUIREMENTS);
    let wanted = fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read '{}'", requirements.display()))?;
    let environment = layout::repository().join(ENVIRONMENT);
    let (installed, python) = (environment.join(INSTALLED), environment.join("bin/python"));
    if is_current(&installed, &wanted)? {
        return Ok(python);
    }
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&environment))?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--require-hashes", "-r"])
        .arg(&requirements))?;
    fs::write(&installed, wanted)
        .with_context(|| format!("cannot write '{}'", installed.display()))?;
    Ok(python)
}

/// Returns whether the environment has these requirements.
fn is_current(installed: &Path, wanted: &str) -> Result<bool> {
    if !installed.try_exists()? {
        return Ok(false);
    }
    Ok(fs::read_to_string(installed)? == wanted)
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("cannot run '{name}'"))?;
    ensure!(status.success(), "'{name}' failed: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_with_other_requirements_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let installed = folder.path().join(INSTALLED);
        assert!(!is_current(&installed, "a==1").unwrap());
        fs::write(&installed, "a==1").unwrap();
        assert!(is_current(&installed, "a==1").unwrap());
        assert!(!is_current(&installed, "a==2").unwrap());
    }
}
