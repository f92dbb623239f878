//! The output of `cargo test`, read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};

/// How many characters of a failure are printed.
const SHOWN: usize = 160;

/// The tests that ran, by their paths.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// The message of a failed test.
    messages: BTreeMap<String, String>,
}

impl Outcomes {
    pub(super) fn read(log: &Path) -> Result<Self> {
        let text = fs::read(log).with_context(|| format!("cannot read '{}'", log.display()))?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    pub(super) fn parse(text: &str) -> Self {
        let mut found = Self::default();
        // A program that a test starts may print in the middle of the test's line. The list of failures
        // at the end is whole.
        let mut is_list = false;
        // The test whose output is read, and whether its next line is a message.
        let (mut speaker, mut is_next) = (None, false);
        for line in text.lines() {
            if let Some(name) = section(line) {
                speaker = Some(name);
            } else if line == "failures:" {
                speaker = None;
            }
            // A panic that the test expects comes before the one that fails it, so the last counts.
            if let Some(name) = speaker
                && (is_next || line.starts_with("Error: "))
            {
                found.messages.insert(name.to_owned(), line.to_owned());
            }
            is_next = line.starts_with("thread '") && line.contains(" panicked at ");
            if line == "failures:" {
                is_list = true;
            } else if let Some(name) = line.strip_prefix("    ").filter(|_| is_list) {
                found.failed.insert(name.to_owned());
            } else if !line.is_empty() {
                is_list = false;
            }
            let Some((name, result)) = line
                .strip_prefix("test ")
                .and_then(|line| line.split_once(" ... "))
            else {
                continue;
            };
            match result {
                "ok" => found.passed.insert(name.to_owned()),
                "FAILED" => found.failed.insert(name.to_owned()),
                _ => false,
            };
        }
        found
    }

    /// The first test that failed and whose name contains `filter`, with its message.
    pub(super) fn first_failure(&self, filter: &str) -> Option<String> {
        let name = self.failed(filter).into_iter().next()?;
        let message = self.messages.get(&name).map_or("", String::as_str);
        let message: String = message.trim().chars().take(SHOWN).collect();
        Some(format!("{name}: {message}"))
    }

    /// The tests that passed and whose name contains `filter`.
    pub(super) fn passed(&self, filter: &str) -> Vec<String> {
        named(&self.passed, filter)
    }

    /// The tests that failed and whose name contains `filter`.
    pub(super) fn failed(&self, filter: &str) -> Vec<String> {
        named(&self.failed, filter)
    }
}

/// The test whose output begins with this line.
fn section(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

fn named(tests: &BTreeSet<String>, filter: &str) -> Vec<String> {
    let of_name = tests.iter().filter(|name| name.contains(filter));
    of_name.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_lines_and_from_the_list_of_failures() {
        let found = Outcomes::parse(
            "   Compiling engine v0.1.0\n\
             running 3 tests\n\
             test a::r02_one ... ok\n\
             test a::r02_two ... a child says something\nFAILED\n\
             test a::r14_three ... ignored, cluster\n\
             \n\
             failures:\n\
             \n\
             ---- a::r02_two stdout ----\n\
             \n\
             thread 'a::r02_two' (17) panicked at src/toy.rs:1:2:\n\
             expected\n\
             thread 'a::r02_two' (17) panicked at src/a.rs:3:4:\n    indented words of the panic\n\
             stack backtrace:\n\
             \n\
             failures:\n    a::r02_two\n\
             \n\
             test result: FAILED. 1 passed; 1 failed\n    also no test\n",
        );
        assert_eq!(found.passed("r02_"), ["a::r02_one"]);
        assert_eq!(found.failed(""), ["a::r02_two"]);
        let message = "a::r02_two: indented words of the panic";
        assert_eq!(found.first_failure("r02_").as_deref(), Some(message));
        assert_eq!(found.first_failure("r14_"), None);
        assert_eq!(found.failed("r14_"), Vec::<String>::new());
        assert_eq!(found.passed("r14_"), Vec::<String>::new());
    }

    #[test]
    fn an_error_of_the_compiler_is_no_failed_test() {
        let found = Outcomes::parse("error[E0308]: mismatched types\nerror: could not compile\n");
        assert!(found.failed("").is_empty() && found.passed("").is_empty());
    }
}
