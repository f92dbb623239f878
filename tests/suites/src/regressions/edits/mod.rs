//! The listed edits: for each regression, the change that puts the bug back, and the tests that must
//! fail then. For each test that once could not fail, a change that it must see.

mod api;
mod chart;
mod defects;
mod engine;
mod operator;
mod tasks;
mod tenants;

use std::process::Command;

use testbed::build;

use crate::source_edits::Edit;

/// A bug, and the tests that must see it.
#[derive(Debug)]
pub(super) struct Regression {
    /// Of a bug of an earlier system: the id of the row in `docs/requirements.md`, such as `R03`, with which
    /// the names of its tests begin. Of a defect of a test: the name of that test.
    pub(super) id: &'static str,
    /// The bug that the edits put back.
    pub(super) bug: &'static str,
    /// The edits, applied together.
    pub(super) edits: &'static [Edit<'static>],
    /// Where the tests are.
    pub(super) suite: Suite,
}

/// A set of test binaries that one command of Cargo runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Suite {
    pub(super) package: &'static str,
    pub(super) target: Target,
    pub(super) needs: Needs,
}

/// A target of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Unit tests of the library.
    Lib,
    /// Unit tests of the program of this name.
    Bin(&'static str),
    /// Integration tests of this name.
    Test(&'static str),
}

/// Requirements of a suite beyond Cargo. All but the first mark their tests as ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Needs {
    Nothing,
    /// The built parts of the testbed.
    Testbed,
    /// A running API server.
    Cluster,
}

/// All edits.
pub(super) fn all() -> impl Iterator<Item = &'static Regression> {
    regressions().chain(defects::EDITS)
}

/// The edits that put bugs of earlier systems back.
fn regressions() -> impl Iterator<Item = &'static Regression> {
    [
        api::EDITS,
        engine::EDITS,
        tasks::EDITS,
        tenants::EDITS,
        operator::EDITS,
        chart::EDITS,
    ]
    .into_iter()
    .flat_map(|edits| edits.iter())
}

impl Regression {
    /// Whether it is a bug of an earlier system.
    pub(super) fn is_of_earlier_system(&self) -> bool {
        self.id.starts_with('R')
    }

    /// The beginning of the names of its tests, such as `r03_`.
    pub(super) fn filter(&self) -> String {
        if self.is_of_earlier_system() {
            format!("{}_", self.id.to_ascii_lowercase())
        } else {
            self.id.to_owned()
        }
    }

    /// The name of its log. Edits of one id have different logs.
    pub(super) fn log(&self) -> String {
        let of_id = all().filter(|other| other.id == self.id);
        let before = of_id.take_while(|other| !std::ptr::eq(*other, self));
        format!("{}-{}", self.id, before.count() + 1)
    }
}

impl Suite {
    /// Unit tests of a package with one program, which has its name.
    const fn bin(package: &'static str) -> Self {
        Self {
            package,
            target: Target::Bin(package),
            needs: Needs::Nothing,
        }
    }

    const fn lib(package: &'static str) -> Self {
        Self {
            package,
            target: Target::Lib,
            needs: Needs::Nothing,
        }
    }

    const fn test(package: &'static str, name: &'static str, needs: Needs) -> Self {
        Self {
            package,
            target: Target::Test(name),
            needs,
        }
    }

    /// The command that compiles and runs its tests.
    pub(super) fn cargo_test(&self) -> Command {
        // With the suites, which need nearly all crates, each package has the same features: dependencies are
        // compiled once and not once for each package. They have no library and no integration tests.
        let mut command = build::cargo(&["test", "--package", self.package, "--package", "suites"]);
        match self.target {
            Target::Lib => command.arg("--lib"),
            Target::Bin(name) => command.args(["--bin", name]),
            Target::Test(name) => command.args(["--test", name]),
        };
        command
    }

    /// A name for its log.
    pub(super) fn name(&self) -> String {
        let target = match self.target {
            Target::Lib => "lib",
            Target::Bin(name) | Target::Test(name) => name,
        };
        format!("{}-{target}-{:?}", self.package, self.needs)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use testkit::layout;

    use super::*;

    #[test]
    fn each_regression_has_an_edit() {
        let numbers = (1..=23).chain(50..=57);
        let wanted: BTreeSet<String> = numbers.map(|number| format!("R{number:02}")).collect();
        let listed: BTreeSet<String> = regressions().map(|row| row.id.to_owned()).collect();
        assert_eq!(listed, wanted);
        assert_eq!(listed.len(), 31);
        assert!(regressions().all(Regression::is_of_earlier_system));
        let defects: Vec<&Regression> = all().filter(|row| !row.is_of_earlier_system()).collect();
        assert_eq!(defects.len(), defects::EDITS.len());
    }

    #[test]
    fn each_old_text_is_in_its_file_exactly_once() {
        let mut wrong = Vec::new();
        for row in all() {
            assert!(!row.edits.is_empty(), "{}", row.id);
            for edit in row.edits {
                let text = fs::read_to_string(layout::repository().join(edit.file)).unwrap();
                match edit.applied(&text) {
                    Ok(edited) => assert_ne!(edited, text, "{}", row.id),
                    Err(error) => wrong.push(format!("{}: {error}", row.id)),
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn each_suite_has_a_test_of_the_id() {
        fn has(path: &Path, begins: &str) -> bool {
            if path.is_dir() {
                let entries = fs::read_dir(path).unwrap();
                return entries
                    .into_iter()
                    .any(|one| has(&one.unwrap().path(), begins));
            }
            let is_source = path.extension().is_some_and(|ending| ending == "rs");
            is_source && fs::read_to_string(path).unwrap().contains(begins)
        }
        for row in all() {
            let package = match row.suite.package {
                package @ "xtask" => package.to_owned(),
                package @ ("suites" | "testkit") => format!("tests/{package}"),
                package => format!("crates/{package}"),
            };
            let package = layout::repository().join(package);
            let source = match row.suite.target {
                Target::Lib | Target::Bin(_) => package.join("src"),
                Target::Test(name) if package.join("tests").join(name).is_dir() => {
                    package.join("tests").join(name)
                }
                Target::Test(name) => package.join("tests").join(format!("{name}.rs")),
            };
            let begins = format!("fn {}", row.filter());
            let is_there = source.exists() && has(&source, &begins);
            assert!(is_there, "{}: {}", row.id, source.display());
        }
    }

    #[test]
    fn logs_of_one_id_differ() {
        let logs: BTreeSet<String> = all().map(Regression::log).collect();
        assert_eq!(logs.len(), all().count());
    }
}
