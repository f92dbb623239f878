//! `cargo xtask regressions`: puts each bug of an earlier system back by a listed edit, and requires
//! that the test with its id fails. The same for tests that once could not fail.

mod cluster;
mod edits;
mod outcome;

use std::{
    collections::BTreeSet,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use testkit::{
    junit::{self, CaseResult},
    layout,
};

use self::{
    cluster::TestCluster,
    edits::{Needs, Regression, Suite},
    outcome::Outcomes,
};
use crate::source_edits::Tree;

/// The name of its JUnit file.
const SUITE: &str = "regressions";

/// Limit of one compilation: the first one compiles all dependencies.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// Limit of one run of the tests of one id, or of the controls of one suite.
const TEST_LIMIT: Duration = Duration::from_mins(10);

/// Tries all regressions, or those with these ids, in a copy of the repository.
///
/// # Guarantees
/// No file of the checkout is written, except below its target directory.
pub(crate) fn run(ids: &[String]) -> Result<ExitCode> {
    junit::clear(SUITE)?;
    let chosen = chosen(ids)?;
    let folder = layout::repository().join("target/regressions");
    let mut stage = Stage {
        tree: Tree::new(layout::repository(), &folder)?,
        cluster: None,
    };
    let begin = Instant::now();
    let mut missed = BTreeSet::new();
    let mut results = junit::Report::new(SUITE);
    for (suite, rows) in by_suite(&chosen) {
        let controls = stage.controls(suite, &rows);
        if let Err(error) = &controls {
            println!("the controls of {} failed: {error:#}", suite.name());
        }
        for row in rows {
            let begin = Instant::now();
            let caught = match &controls {
                Ok(controls) => control(row, controls).and_then(|()| stage.play(row)),
                Err(_) => Err(anyhow!("the controls failed")),
            };
            let is_caught = caught.is_ok();
            let (word, said) = match caught {
                Ok(failure) => ("caught", failure),
                Err(error) => {
                    missed.insert(row.id);
                    ("MISSED", format!("{}: {error:#}", row.bug))
                }
            };
            let took = begin.elapsed();
            let seconds = took.as_secs_f64();
            println!("{} {word} {seconds:>6.1} s  {said}", row.id);
            let result = if is_caught {
                CaseResult::Passed(said)
            } else {
                CaseResult::Failed(said)
            };
            results.add(&suite.name(), &row.log(), took, result);
        }
    }
    let stopped = stage.cluster.take().map_or(Ok(()), TestCluster::stop);
    results.add_step("stop of the cluster", &stopped);
    let written = results.write();
    println!(
        "{} edits, {:.0} s",
        chosen.len(),
        begin.elapsed().as_secs_f64()
    );
    for (what, is_of_earlier_system) in [("regressions", true), ("defects of tests", false)] {
        let of_kind = |row: &&&Regression| row.is_of_earlier_system() == is_of_earlier_system;
        let ids: BTreeSet<&str> = chosen.iter().filter(of_kind).map(|row| row.id).collect();
        println!(
            "{what}: {} of {}",
            ids.difference(&missed).count(),
            ids.len()
        );
    }
    stopped?;
    written?;
    Ok(if missed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The rows of these ids; all rows without any.
fn chosen(ids: &[String]) -> Result<Vec<&'static Regression>> {
    let all: Vec<&Regression> = edits::all().collect();
    if let Some(unknown) = ids.iter().find(|id| all.iter().all(|one| one.id != **id)) {
        bail!("no edit is listed for '{unknown}'");
    }
    let is_chosen = |one: &&Regression| ids.is_empty() || ids.iter().any(|id| one.id == id);
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// The rows of each suite, in the order of the table. Those on a cluster come last: it is started once.
fn by_suite<'a>(rows: &[&'a Regression]) -> Vec<(Suite, Vec<&'a Regression>)> {
    let mut groups: Vec<(Suite, Vec<&Regression>)> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|(suite, _)| *suite == row.suite) {
            Some((_, group)) => group.push(row),
            None => groups.push((row.suite, vec![row])),
        }
    }
    groups.sort_by_key(|(suite, _)| suite.needs);
    groups
}

/// Whether the tests of this id ran and passed without the edit.
fn control(row: &Regression, controls: &Outcomes) -> Result<()> {
    let (failed, passed) = (
        controls.failed(&row.filter()),
        controls.passed(&row.filter()),
    );
    ensure!(
        failed.is_empty(),
        "{} fails without the edit",
        failed.join(", ")
    );
    ensure!(!passed.is_empty(), "no test '{}…' ran", row.filter());
    Ok(())
}

/// The copy of the repository, and the cluster once a suite needs it.
struct Stage {
    tree: Tree,
    cluster: Option<TestCluster>,
}

impl Stage {
    /// Runs the tests of all ids of a suite in the unedited tree.
    fn controls(&mut self, suite: Suite, rows: &[&Regression]) -> Result<Outcomes> {
        if suite.needs == Needs::Cluster && self.cluster.is_none() {
            self.cluster = Some(TestCluster::start()?);
        }
        let filters: BTreeSet<String> = rows.iter().map(|row| row.filter()).collect();
        let filters: Vec<String> = filters.into_iter().collect();
        self.test(suite, &filters, &format!("control-{}", suite.name()))
    }

    /// Puts one bug back and runs the tests with its id; the first that failed, and its message.
    fn play(&self, row: &Regression) -> Result<String> {
        let originals = self.tree.apply(row.edits)?;
        let tested = self.test(row.suite, &[row.filter()], &row.log());
        self.tree.restore(&originals)?;
        let outcomes = tested?;
        let passed = || outcomes.passed(&row.filter()).join(", ");
        outcomes
            .first_failure(&row.filter())
            .with_context(|| format!("passed: {}", passed()))
    }

    /// Compiles and runs the tests of these names.
    fn test(&self, suite: Suite, filters: &[String], log: &str) -> Result<Outcomes> {
        self.tree.clear_log(log)?;
        let mut build = suite.cargo_test();
        build.arg("--no-run");
        self.tree.run(&mut build, log, BUILD_LIMIT)?;
        let mut test = suite.cargo_test();
        test.arg("--").args(filters);
        if suite.needs != Needs::Nothing {
            test.arg("--ignored");
        }
        if let Some(cluster) = &self.cluster {
            cluster.set(&mut test)?;
        }
        let ended = self.tree.run(&mut test, log, TEST_LIMIT);
        let outcomes = Outcomes::read(&self.tree.log(log))?;
        match ended {
            // A failed test is an outcome; anything else that ends Cargo is an error.
            Err(error) if outcomes.failed("").is_empty() => Err(error),
            Ok(()) | Err(_) => Ok(outcomes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_choose_rows_and_unknown_ones_are_rejected() {
        let all = chosen(&[]).unwrap();
        assert_eq!(all.len(), edits::all().count());
        let some = chosen(&["R16".to_owned(), "R03".to_owned()]).unwrap();
        assert!(some.iter().all(|row| ["R03", "R16"].contains(&row.id)));
        assert!(some.iter().any(|row| row.id == "R03"));
        let error = chosen(&["R99".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("'R99'"), "{error}");
    }

    #[test]
    fn rows_on_a_cluster_come_last_and_each_suite_once() {
        let all = chosen(&[]).unwrap();
        let groups = by_suite(&all);
        assert_eq!(
            groups.iter().map(|(_, rows)| rows.len()).sum::<usize>(),
            all.len()
        );
        assert!(groups.is_sorted_by_key(|(suite, _)| suite.needs));
        for (index, (suite, _)) in groups.iter().enumerate() {
            assert!(groups[..index].iter().all(|(other, _)| other != suite));
        }
    }

    #[test]
    fn a_control_must_run_and_pass() {
        let row = edits::all().find(|row| row.id == "R03").unwrap();
        let outcomes = |text: &str| Outcomes::parse(text);
        assert!(control(row, &outcomes("test a::r03_b ... ok\n")).is_ok());
        let error = control(row, &outcomes("test a::r04_b ... ok\n")).unwrap_err();
        assert!(error.to_string().contains("no test 'r03_…' ran"), "{error}");
        let error = control(row, &outcomes("test a::r03_b ... FAILED\n")).unwrap_err();
        assert!(error.to_string().contains("a::r03_b fails"), "{error}");
    }
}
