//! Compiles the workspace once, for every task that needs its programs or its tests.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{layout, process};

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
    if is_built() {
        return Ok(());
    }
    let status = cargo(&["build", "--quiet", "--workspace", "--bins"])
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the workspace's programs cannot be built");
    Ok(())
}

/// Builds one program of the workspace, with the features that it has in [`programs`]. Returns its path: that of Cargo, or
/// beside this program if `cargo xtask ci` has built everything.
///
/// This program may be from another target directory or profile than the build. Then the file beside it is an old one.
///
/// # Errors
/// When it does not compile.
pub fn program(name: &str) -> Result<PathBuf> {
    if is_built() {
        return Ok(process::this_program()?.with_file_name(name));
    }
    let output = cargo(&["build", "--quiet", "--workspace", "--bin", name])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "'{name}' cannot be built");
    executable(&String::from_utf8(output.stdout)?, name)
}

/// Reads the path of a program from Cargo's messages.
fn executable(messages: &str, name: &str) -> Result<PathBuf> {
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("a message of cargo")?;
        if message["target"]["name"] == name
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(path.into());
        }
    }
    bail!("cargo does not report the path of '{name}'")
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

/// Returns this very cargo with its own compiler, in the repository.
pub fn cargo(arguments: &[&str]) -> Command {
    let cargo = Path::new(env!("CARGO"));
    let mut command = Command::new(cargo);
    command
        .args(arguments)
        .current_dir(layout::repository())
        // A compiler that the path finds may obey a file in a dependency's own folder that asks for
        // another release.
        .env("RUSTC", cargo.with_file_name("rustc"));
    command
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_is_where_cargo_reports_it() {
        let artifact = |name: &str, executable: Value| {
            let target = json!({ "kind": ["bin"], "name": name });
            json!({ "reason": "compiler-artifact", "target": target, "executable": executable })
                .to_string()
        };
        let messages = [
            artifact("serde", Value::Null),
            artifact("suites", Value::Null),
            artifact("orc", "/t/debug/orc".into()),
            artifact("suites", "/t/debug/suites".into()),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ]
        .join("\n");
        let path = executable(&messages, "suites").unwrap();
        assert_eq!(path, PathBuf::from("/t/debug/suites"));
        let error = executable(&messages, "xtask").unwrap_err().to_string();
        assert!(error.contains("'xtask'"), "{error}");
    }
}
