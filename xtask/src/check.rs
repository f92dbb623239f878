//! `cargo xtask check` and `cargo xtask ci`: stages, each timed, and a summary.

use std::{
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use testkit::layout;

use crate::tools::{DENY, MDBOOK};

/// One stage: its name, and what it does.
type Stage = (&'static str, fn() -> Result<()>);

/// Needs no root and no cluster.
const CHECKS: &[Stage] = &[
    ("fmt", || cargo(&["fmt", "--all", "--check"])),
    ("clippy", || {
        cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "--deny",
            "warnings",
        ])
    }),
    ("generate", || xtask(&["generate", "--check"])),
    ("pure", pure),
    ("unit tests", || cargo(&["test", "--workspace", "--quiet"])),
    ("deny", || {
        // The advisory database is not reachable from every machine; see CONTRIBUTING.md.
        run(Command::new(DENY.path()?).args([
            "--workspace",
            "check",
            "bans",
            "licenses",
            "sources",
        ]))
    }),
    ("docs", || {
        run(Command::new(MDBOOK.path()?).args(["build", "docs"]))?;
        run(cargo_command(&[
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
            "--quiet",
        ])
        .env("RUSTDOCFLAGS", "--deny warnings"))
    }),
];

/// Needs root, and builds for 20 minutes when the cache is empty.
const CLUSTER: &[Stage] = &[
    ("testbed build", || xtask(&["testbed", "build"])),
    ("cluster tests", || xtask(&["test"])),
    ("e2e tasks", || xtask(&["e2e", "tasks"])),
    ("e2e docs", || xtask(&["e2e", "docs"])),
    ("e2e tenants", || xtask(&["e2e", "tenants"])),
    ("e2e fleet", || {
        // A share: 500 take five minutes.
        xtask(&["e2e", "fleet", "--tenants", "40", "--quiet", "15"])
    }),
    ("faults", || {
        // Shares: the wholes take hours. One of each class and scenario is the least of a share.
        xtask(&["faults", "tasks", "--share"])?;
        xtask(&["faults", "tenants", "--share", "--size", "41"])?;
        xtask(&[
            "faults",
            "replicas",
            "--kills",
            "2",
            "--terms",
            "2",
            "--freezes",
            "1",
        ])?;
        xtask(&["faults", "transitions", "--count", "300"])
    }),
    ("e2e budget", || xtask(&["e2e", "budget"])),
    ("e2e install", || xtask(&["e2e", "install"])),
    ("prove", || xtask(&["testbed", "prove"])),
    ("isolation", || xtask(&["testbed", "isolation"])),
];

/// Crates whose thinking must not need an async runtime or a client.
const PURE: &[&str] = &["api", "git", "tasks", "tenants", "why"];

/// Decisions compile without an async runtime and without a client: what they need is in their
/// arguments.
fn pure() -> Result<()> {
    for package in PURE {
        let output = cargo_command(&["tree", "--package", package, "--no-default-features"])
            .args(["--edges", "normal", "--prefix", "none"])
            .current_dir(layout::repository())
            .output()?;
        if !output.status.success() {
            bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr));
        }
        let tree = String::from_utf8(output.stdout)?;
        for banned in ["tokio ", "kube-client ", "hyper "] {
            if let Some(line) = tree.lines().find(|line| line.starts_with(banned)) {
                bail!("'{package}' without its default features needs '{line}'");
            }
        }
        cargo(&[
            "check",
            "--quiet",
            "--package",
            package,
            "--no-default-features",
        ])?;
    }
    Ok(())
}

/// What a contributor runs before a commit.
pub(crate) fn check() -> Result<ExitCode> {
    stages(CHECKS.iter())
}

/// What CI runs.
pub(crate) fn ci() -> Result<ExitCode> {
    stages(CHECKS.iter().chain(CLUSTER))
}

/// Runs stages until one fails; prints the time of each and all of them at the end.
fn stages<'a>(stages: impl Iterator<Item = &'a Stage>) -> Result<ExitCode> {
    let begin = Instant::now();
    let mut summary = Vec::new();
    let mut failed = None;
    for (name, work) in stages {
        println!("== {name}");
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("== {name}: {word} in {:.0} s\n", took.as_secs_f64());
        summary.push((*name, word, took));
        if let Err(error) = result {
            failed = Some(format!("{name}: {error:#}"));
            break;
        }
    }
    println!("== summary");
    for (name, word, took) in summary {
        println!("{name:<14} {word:<6} {:>6.0} s", took.as_secs_f64());
    }
    println!(
        "{:<21} {:>6.0} s",
        "all",
        Duration::as_secs_f64(&begin.elapsed())
    );
    match failed {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => bail!("{why}"),
    }
}

fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments);
    command
}

fn cargo(arguments: &[&str]) -> Result<()> {
    run(&mut cargo_command(arguments))
}

/// A process of its own: a stage that crashes is a failed stage.
fn xtask(arguments: &[&str]) -> Result<()> {
    run(Command::new(testkit::process::this_program()?).args(arguments))
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .current_dir(layout::repository())
        .status()
        .with_context(|| format!("cannot run '{program}'"))?;
    if !status.success() {
        bail!("'{program}' {}", testkit::process::ended(status));
    }
    Ok(())
}
