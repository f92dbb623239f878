//! Cargo's test binaries, run several at a time: most of their tests wait, and `cargo test` runs one
//! binary after another.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use testbed::build::{self, TEST_BINARIES_VARIABLE};
use testkit::{
    junit::{self, CaseResult},
    process,
    suite::{BINARY_VARIABLE, Summary},
    times,
};

/// A compiled test harness.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TestBinary {
    /// Package and target, for people: `tasks lib`.
    pub(crate) name: String,
    program: PathBuf,
    /// Cargo runs tests in the directory of their package.
    folder: PathBuf,
}

/// How a run of test binaries went.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Counts of tests; ignored ones are not counted.
    pub(crate) summary: Summary,
    /// Binaries that failed, with their whole output.
    pub(crate) failed: Vec<(String, String)>,
    /// Each test that ran.
    pub(crate) results: junit::Report,
}

/// Returns the test binaries of the workspace: those that CI has built, or built now.
pub(crate) fn all() -> Result<Vec<TestBinary>> {
    if let Some(list) = std::env::var_os(TEST_BINARIES_VARIABLE) {
        let text = fs::read_to_string(&list).context("the list of test binaries")?;
        return Ok(serde_json::from_str(&text)?);
    }
    compile()
}

/// Compiles all tests, and writes their list where `cargo xtask ci` wants it.
pub(crate) fn build() -> Result<()> {
    let binaries = compile()?;
    if let Some(list) = std::env::var_os(TEST_BINARIES_VARIABLE) {
        fs::write(list, serde_json::to_string(&binaries)?)?;
    }
    Ok(())
}

/// Compiles all tests and all programs of the workspace.
fn compile() -> Result<Vec<TestBinary>> {
    let output = build::cargo(&["test", "--workspace", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the tests do not compile");
    let binaries = listed(&String::from_utf8(output.stdout)?)?;
    ensure!(!binaries.is_empty(), "cargo built no test binary");
    Ok(binaries)
}

/// Reads the test harnesses from Cargo's messages.
fn listed(messages: &str) -> Result<Vec<TestBinary>> {
    let mut binaries = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("a message of cargo")?;
        let Some(program) = message["executable"].as_str() else {
            continue;
        };
        if message["profile"]["test"] != true {
            continue;
        }
        let target = &message["target"];
        let manifest = message["manifest_path"].as_str().context("no manifest")?;
        let folder = Path::new(manifest).parent().context("no directory")?;
        let package = folder.file_name().context("a package without a name")?;
        binaries.push(TestBinary {
            name: format!(
                "{} {}",
                package.to_string_lossy(),
                match target["kind"][0].as_str() {
                    Some("lib") => "lib",
                    Some(_) | None => target["name"].as_str().unwrap_or_default(),
                }
            ),
            program: program.into(),
            folder: folder.to_owned(),
        });
    }
    Ok(binaries)
}

impl TestBinary {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // Cargo sets it, and a test checks that.
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null());
        command
    }

    /// Counts the tests that these arguments select.
    pub(crate) fn count(&self, arguments: &[&str]) -> Result<usize> {
        let output = self
            .command()
            .args(["--list", "--format", "terse"])
            .args(arguments)
            .output()?;
        ensure!(
            output.status.success(),
            "'{} --list' {}",
            self.name,
            process::ended(output.status)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter(|line| line.ends_with(": test")).count())
    }
}

/// Runs `binaries` as the suite of this name, `parallel` at a time, and prints a line for each as it ends.
///
/// # Errors
/// When one cannot be started. A failed test is no error: see [`Outcome`].
pub(crate) fn run(
    suite: &str,
    binaries: Vec<TestBinary>,
    arguments: &[&str],
    environment: &BTreeMap<&str, String>,
    parallel: usize,
) -> Result<Outcome> {
    let queue = Mutex::new(binaries.into_iter());
    let outcome = Mutex::new(Outcome {
        summary: Summary::default(),
        failed: Vec::new(),
        results: junit::Report::new(suite),
    });
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(binary) = next else { return Ok(()) };
            let start = Instant::now();
            let output = binary
                .command()
                .envs(environment)
                // The test harness reports durations only with unstable options, which it accepts from
                // a stable compiler with this variable.
                .env("RUSTC_BOOTSTRAP", "1")
                // A suite that a test runs must not write beside the results of this one.
                .env_remove(junit::DIRECTORY_VARIABLE)
                .env(BINARY_VARIABLE, &binary.name)
                .args(["-Zunstable-options", "--report-time"])
                .args(arguments)
                .output()
                .with_context(|| format!("cannot run '{}'", binary.name))?;
            let took = start.elapsed();
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            outcome.add(&binary, &output, took)?;
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..parallel).map(|_| scope.spawn(work)).collect();
        let mut result = Ok(());
        for worker in workers {
            match worker.join() {
                Ok(ended) => result = result.and(ended),
                Err(_panic) => bail!("a thread that runs tests panicked"),
            }
        }
        result
    })?;
    Ok(outcome.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Outcome {
    fn add(&mut self, binary: &TestBinary, output: &Output, took: Duration) -> Result<()> {
        let text = String::from_utf8_lossy(&output.stdout);
        let mut counts = Summary::default();
        for line in text.lines() {
            if let Some((test, passed, took)) = test_line(line) {
                let result = if passed {
                    counts.passed += 1;
                    CaseResult::Passed(String::new())
                } else {
                    counts.failed += 1;
                    CaseResult::Failed(output_of(&text, test))
                };
                times::record(&format!("{}: {test}", binary.name), took)?;
                self.results.add(&binary.name, test, took, result);
            }
        }
        // A harness that dies names no failed test.
        if !output.status.success() && counts.failed == 0 {
            counts.failed = 1;
            let why = format!("the test binary {}", process::ended(output.status));
            let result = CaseResult::Failed(why);
            self.results.add(&binary.name, "test binary", took, result);
        }
        let word = if output.status.success() {
            "ok     "
        } else {
            "FAILED "
        };
        println!(
            "{word} {:<24} {:>5.1} s  {counts}",
            binary.name,
            took.as_secs_f64()
        );
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let ended = process::ended(output.status);
            self.failed.push((
                binary.name.clone(),
                format!("{text}\n{errors}\n'{}' {ended}", binary.name),
            ));
        }
        self.summary.passed += counts.passed;
        self.summary.failed += counts.failed;
        Ok(())
    }

    /// Counts a test as skipped that passed for its harness, which knows no third outcome.
    pub(crate) fn skip(&mut self, binary: &str, test: &str, why: &str) {
        let has_passed = self.results.skip(binary, test, why);
        self.summary.passed -= usize::from(has_passed);
        self.summary.skipped += 1;
    }

    /// Prints the output of binaries that failed, and the sum. Writes the JUnit file. Returns whether all passed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn end(mut self) -> Result<bool> {
        for (name, text) in &self.failed {
            println!("--- {name}\n{text}");
        }
        println!("{}", self.summary);
        let has_passed = self.failed.is_empty() && self.summary.is_success();
        if !has_passed {
            self.summary.add_failure(&mut self.results);
        }
        self.results.write()?;
        Ok(has_passed)
    }
}

/// Returns the output of a failed test from that of its binary.
fn output_of(text: &str, test: &str) -> String {
    let begin = format!("---- {test} stdout ----");
    let lines = text.lines().skip_while(|line| *line != begin).skip(1);
    // The list of failed tests follows the last output.
    let own = lines.take_while(|line| !line.starts_with("---- ") && *line != "failures:");
    own.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Reads a line of the test harness: name, whether it passed, duration.
fn test_line(line: &str) -> Option<(&str, bool, Duration)> {
    let (name, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let (word, time) = end.split_once(' ').unwrap_or((end, ""));
    let passed = match word {
        "ok" => true,
        "FAILED" => false,
        _ => return None,
    };
    let seconds = time.trim_matches(['<', '>', 's']).parse().unwrap_or(0.0);
    let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    // "name - should panic" is how the harness marks such a test.
    let name = name.split(" - ").next().unwrap_or(name);
    Some((name, passed, took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_harness_are_read() {
        let table = [
            ("test a::b ... ok <0.250s>", Some(("a::b", true, 250))),
            ("test a::b ... FAILED <1.000s>", Some(("a::b", false, 1000))),
            (
                "test a - should panic ... ok <0.001s>",
                Some(("a", true, 1)),
            ),
            ("test a::b ... ok", Some(("a::b", true, 0))),
            ("test a::b ... ignored, root", None),
            ("test result: ok. 3 passed; 0 failed", None),
            ("running 3 tests", None),
        ];
        for (line, wanted) in table {
            let read = test_line(line).map(|(name, passed, took)| (name, passed, took.as_millis()));
            assert_eq!(read, wanted, "{line}");
        }
    }

    #[test]
    fn the_output_of_a_failed_test_is_its_own() {
        let text = "test a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n\nthread 'a::b' panicked at x:\nfirst\n\n\
                    ---- a::c stdout ----\nError: second\n\n\nfailures:\n    a::b\n    a::c\n";
        assert_eq!(
            output_of(text, "a::b"),
            "thread 'a::b' panicked at x:\nfirst"
        );
        assert_eq!(output_of(text, "a::c"), "Error: second");
        assert_eq!(output_of(text, "a::d"), "");
    }

    #[test]
    fn only_test_harnesses_are_listed() {
        let message = |test: bool, executable: Value| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/r/crates/tasks/Cargo.toml",
                "target": { "kind": ["lib"], "name": "tasks" }, "profile": { "test": test },
                "executable": executable,
            })
            .to_string()
        };
        let messages = [
            message(true, "/t/tasks-1".into()),
            message(false, "/t/orchestrator".into()),
            message(true, Value::Null),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ]
        .join("\n");
        let names: Vec<String> = listed(&messages)
            .unwrap()
            .into_iter()
            .map(|it| it.name)
            .collect();
        assert_eq!(names, ["tasks lib"]);
    }
}
