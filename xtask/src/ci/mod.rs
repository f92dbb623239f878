//! `cargo xtask check` and `cargo xtask ci`: stages in two lanes, each measured, and a summary.

mod lanes;
mod pure;
mod summary;
mod verify;
mod whole;

use std::{
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Result, bail};
use testbed::{
    build, operator_image,
    tools::{DENY, MDBOOK},
};
use testkit::{junit, load::Ticks, process};

use self::lanes::{Ended, Priority, Runner, Stage};

const fn stage(name: &'static str, priority: Priority, work: fn(&Runner) -> Result<()>) -> Stage {
    Stage {
        name,
        priority,
        after: None,
        repeats: false,
        work,
    }
}

/// One that has time limits: a host that gives the processors to other machines makes it fail.
const fn timed(name: &'static str, work: fn(&Runner) -> Result<()>) -> Stage {
    Stage {
        repeats: true,
        ..stage(name, Priority::Normal, work)
    }
}

/// Needs no root and no cluster. The quick ones first: they fail most often.
const CHECKS: &[Stage] = &[
    stage("fmt", Priority::Normal, |run| {
        run.cargo(&["fmt", "--all", "--check"])
    }),
    stage("generate", Priority::Normal, |run| {
        run.xtask(&["generate", "--check"])
    }),
    stage("wording", Priority::Normal, |run| run.xtask(&["wording"])),
    stage("clippy", Priority::Idle, clippy),
    stage("pure", Priority::Idle, pure::check),
    stage("deny", Priority::Idle, deny),
    stage("docs", Priority::Idle, docs),
];

/// Tests of steps and Git servers have time limits. At a lower priority beside clusters they took ten times as
/// long and exceeded them.
const UNIT_TESTS: Stage = Stage {
    after: Some(TESTS_BUILD.name),
    ..timed("unit tests", |run| run.xtask(&["unit"]))
};

/// Writes the list of test binaries. Without it, the stages that run tests fail.
const TESTS_BUILD: Stage = stage("tests build", Priority::Idle, |run| {
    run.xtask(&["unit", "--build"])
});

/// Compiled beside the first clusters; later ones run them.
const COMPILED: &[Stage] = &[
    stage("toolbox image", Priority::Idle, |run| {
        run.xtask(&["image", "--toolbox"])
    }),
    TESTS_BUILD,
    stage("image", Priority::Idle, |run| run.xtask(&["image"])),
];

/// A test of the feature, which the workspace's tests are built without, and the program.
const MUTANTS: Stage = stage("mutants build", Priority::Idle, |run| {
    run.cargo(&[
        "test",
        "--quiet",
        "--package",
        "mutant",
        "--features",
        "switches",
    ])?;
    run.xtask(&["mutants", "--build"])
});

/// Needs root, and builds for 45 minutes when the cache is empty.
const CLUSTER: &[Stage] = &[
    stage("testbed build", Priority::Normal, |run| {
        run.xtask(&["testbed", "build"])
    }),
    timed("e2e fleet", |run| {
        // A share: 500 take five minutes.
        run.xtask(&["e2e", "fleet", "--tenants", "40", "--quiet", "15"])
    }),
    Stage {
        after: Some("toolbox image"),
        // Its cases run twice, not all of it.
        ..stage("e2e", Priority::Normal, |run| {
            run.xtask_beside(&["e2e", "together"], &["e2e", "alone"])
        })
    },
    timed("e2e apps", |run| run.xtask(&["e2e", "apps"])),
    timed("e2e gateway", |run| {
        // A share: all cases take longer than the minute that this suite has.
        run.xtask(&["e2e", "gateway", "--share"])
    }),
    UNIT_TESTS,
    timed("cluster tests", |run| run.xtask(&["test"])),
    // A share: the whole takes hours. A false success does not depend on time, so it does not run twice.
    stage("faults", Priority::Normal, |run| {
        run.xtask(&["faults", "share"])
    }),
    Stage {
        after: Some("mutants build"),
        // Both wait more than they work, and the budget must hold on a busy machine, too.
        ..timed("mutants and budget", |run| {
            // Some others with each commit: all take more than an hour.
            run.xtask_beside(&["mutants", "--rotate", "3"], &["e2e", "budget"])
        })
    },
    Stage {
        after: Some("image"),
        ..timed("install and memory", |run| {
            // A share: 50,000 runs take half an hour. The case 'large-files' of e2e has large objects.
            let memory = [
                "bench", "memory", "--from", "500", "--to", "5500", "--large", "0",
            ];
            run.xtask_beside(&["e2e", "install"], &memory)
        })
    },
    timed("testbed verify", verify::run),
];

fn clippy(run: &Runner) -> Result<()> {
    let mut arguments = vec!["clippy", "--workspace", "--all-targets", "--quiet"];
    arguments.extend(["--", "--deny", "warnings"]);
    run.cargo(&arguments)
}

/// Advisories are left out: their database is not reachable from every machine; see CONTRIBUTING.md.
fn deny(run: &Runner) -> Result<()> {
    run.run(Command::new(DENY.path()?).args([
        "--workspace",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

fn docs(run: &Runner) -> Result<()> {
    run.run(Command::new(MDBOOK.path()?).args(["build", "docs"]))?;
    let arguments = [
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--quiet",
    ];
    run.run(build::cargo(&arguments).env("RUSTDOCFLAGS", "--deny warnings"))
}

/// Stages of the two lanes of [`lanes::run`].
type Lanes = [Vec<&'static Stage>; 2];

/// Runs what a contributor runs before a commit, one stage after another.
pub(crate) fn check() -> Result<ExitCode> {
    run(check_lanes(), false, false)
}

fn check_lanes() -> Lanes {
    let last = [&TESTS_BUILD, &UNIT_TESTS];
    [CHECKS.iter().chain(last).collect(), Vec::new()]
}

/// Runs what CI runs. `is_whole` adds campaigns of hours; `report` writes the table in CONTRIBUTING.md.
pub(crate) fn ci(is_whole: bool, report: bool) -> Result<ExitCode> {
    run(ci_lanes(is_whole), is_whole, report)
}

fn ci_lanes(is_whole: bool) -> Lanes {
    let whole = if is_whole { whole::STAGES } else { &[] };
    let main = CLUSTER.iter().chain(whole).collect();
    let shadow = COMPILED.iter().chain(CHECKS).chain([&MUTANTS]).collect();
    [main, shadow]
}

fn run([main, shadow]: Lanes, is_whole: bool, report: bool) -> Result<ExitCode> {
    let (begin, before) = (Instant::now(), Ticks::now()?);
    let mut stages = junit::Report::new("stages");
    let earlier = summary::before()?;
    let program = process::this_program()?;
    let folder = program.with_file_name("ci");
    println!("== build");
    let mut environment = lanes::built(&folder)?;
    if !is_whole {
        let profile = operator_image::TEST_PROFILE.to_owned();
        environment.insert(operator_image::PROFILE_VARIABLE, profile);
    }
    let mut ended = vec![Ended {
        name: "build",
        lane: "",
        took: earlier + begin.elapsed(),
        load: Ticks::now()?.load_since(before),
        failure: None,
        first_failure: None,
    }];
    ended.extend(lanes::run(&folder, &main, &shadow, &environment)?);
    let took = earlier + begin.elapsed();
    let text = summary::table(&ended, took, Ticks::now()?.load_since(before));
    println!("== summary\n{text}");
    let results = folder.join(lanes::RESULTS);
    println!("JUnit files: {}", results.display());
    ended.iter().for_each(|stage| stage.add_to(&mut stages));
    let written = stages.write_to(&results);
    if let Some(failed) = ended.iter().find(|stage| stage.failure.is_some()) {
        let failure = failed.failure.as_deref().unwrap_or_default();
        bail!("{}: {failure}", failed.name);
    }
    if report {
        summary::write(&text)?;
    }
    written?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_another_one_waits_for_is_in_the_other_lane_or_before_it() {
        for [main, shadow] in [check_lanes(), ci_lanes(false), ci_lanes(true)] {
            for (place, stage) in main.iter().enumerate() {
                let mut others = main.iter().take(place).chain(&shadow);
                let runs = |name: &str| others.any(|other| other.name == name);
                assert!(stage.after.is_none_or(runs), "{}", stage.name);
            }
            assert!(shadow.iter().all(|stage| stage.after.is_none()));
            assert!(main.iter().any(|stage| stage.name == UNIT_TESTS.name));
        }
    }
}
