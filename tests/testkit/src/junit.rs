//! Results of suites as JUnit XML, one file per suite, for tools that read test results.
//!
//! A case that failed and ran again keeps each failure: as `flakyFailure` if it passed in the end, otherwise as `failure`
//! and `rerunFailure`. These are the elements of Maven Surefire.

use std::{
    fmt, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Names the directory for the files. Without it, no file is written. `cargo xtask ci` sets it for each stage.
pub const DIRECTORY_VARIABLE: &str = "ORCHESTRATOR_JUNIT";

/// Bytes of one message that a file keeps: the output of a test binary may have megabytes.
const MESSAGE_LIMIT: usize = 4096;

/// Removes the file that an earlier run of the suite has written. Without this, a suite that fails before it writes one
/// would leave old results behind.
///
/// # Errors
/// When the file exists and cannot be removed.
pub fn clear(suite: &str) -> Result<()> {
    match directory() {
        Some(directory) => clear_in(&directory, suite),
        None => Ok(()),
    }
}

fn clear_in(directory: &Path, suite: &str) -> Result<()> {
    let path = file(directory, suite);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove '{}'", path.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the directory that [`DIRECTORY_VARIABLE`] names.
fn directory() -> Option<PathBuf> {
    let value = std::env::var_os(DIRECTORY_VARIABLE)?;
    (!value.is_empty()).then(|| value.into())
}

fn file(directory: &Path, suite: &str) -> PathBuf {
    directory.join(format!("{suite}.xml"))
}

/// How one try of a case ended.
#[derive(Debug, Clone)]
pub enum CaseResult {
    /// Passed, with its evidence.
    Passed(String),
    /// Failed, with the message.
    Failed(String),
    /// Failed, with the message, and runs once more. The next result of its class and name belongs to the same case.
    Repeated(String),
    /// Could not run or could not show anything, with the reason.
    Skipped(String),
}

impl CaseResult {
    /// Returns the result of a step without evidence.
    pub fn of(result: &Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed(String::new()),
            Err(error) => Self::Failed(format!("{error:#}")),
        }
    }
}

/// The results of one suite, in the order in which cases ended.
#[derive(Debug)]
pub struct Report {
    suite: String,
    start: Instant,
    cases: Vec<TestCase>,
}

#[derive(Debug)]
struct TestCase {
    class: String,
    name: String,
    /// The time of all tries.
    took: Duration,
    /// The messages of failed tries.
    failures: Vec<String>,
    /// The last try.
    end: End,
}

#[derive(Debug)]
enum End {
    Passed(String),
    Failed,
    /// A second try follows. Without its result, the case has failed.
    Repeated,
    Skipped(String),
}

impl Report {
    /// Starts the report of a suite. Its file is `SUITE.xml`.
    pub fn new(suite: &str) -> Self {
        Self {
            suite: suite.to_owned(),
            start: Instant::now(),
            cases: Vec::new(),
        }
    }

    /// Adds one try of a case. An empty class stands for the suite.
    pub fn add(&mut self, class: &str, name: &str, took: Duration, result: CaseResult) {
        let class = match class {
            "" => self.suite.as_str(),
            class => class,
        };
        let is_first_try = |case: &TestCase| {
            matches!(case.end, End::Repeated) && case.class == class && case.name == name
        };
        let mut case = match self.cases.iter().position(is_first_try) {
            Some(index) => self.cases.remove(index),
            None => TestCase {
                class: class.to_owned(),
                name: name.to_owned(),
                took: Duration::ZERO,
                failures: Vec::new(),
                end: End::Failed,
            },
        };
        case.took += took;
        match result {
            CaseResult::Passed(seen) => case.end = End::Passed(seen),
            CaseResult::Failed(message) => {
                case.failures.push(message);
                case.end = End::Failed;
            }
            CaseResult::Repeated(message) => {
                case.failures.push(message);
                case.end = End::Repeated;
            }
            // A case that failed before has failed.
            CaseResult::Skipped(why) if case.failures.is_empty() => case.end = End::Skipped(why),
            CaseResult::Skipped(_) => case.end = End::Failed,
        }
        self.cases.push(case);
    }

    /// Changes a case that passed to skipped: a test harness has no third result. Returns false, and adds a skipped case, if
    /// there is no such case.
    pub fn skip(&mut self, class: &str, name: &str, why: &str) -> bool {
        let has_passed = |case: &&mut TestCase| {
            let is_named = case.class == class && case.name == name;
            is_named && matches!(case.end, End::Passed(_)) && case.failures.is_empty()
        };
        match self.cases.iter_mut().find(has_passed) {
            Some(case) => {
                case.end = End::Skipped(why.to_owned());
                true
            }
            None => {
                let result = CaseResult::Skipped(why.to_owned());
                self.add(class, name, Duration::ZERO, result);
                false
            }
        }
    }

    /// Adds a failed case if a step outside of the cases failed, such as the stop of a cluster. Without it, the suite would
    /// fail while its file has no failed case.
    pub fn add_step(&mut self, name: &str, result: &Result<()>) {
        if result.is_err() {
            self.add("", name, Duration::ZERO, CaseResult::of(result));
        }
    }

    /// Writes the file into the directory that [`DIRECTORY_VARIABLE`] names, over an older one of the suite.
    ///
    /// # Errors
    /// When the directory or the file cannot be written.
    pub fn write(&self) -> Result<()> {
        match directory() {
            Some(directory) => self.write_to(&directory),
            None => Ok(()),
        }
    }

    /// Writes the file into this directory.
    ///
    /// # Errors
    /// When the directory or the file cannot be written.
    pub fn write_to(&self, directory: &Path) -> Result<()> {
        let path = file(directory, &self.suite);
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&path, self.to_string()))
            .with_context(|| format!("cannot write '{}'", path.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut failed, mut skipped, mut flaky) = (0, 0, 0);
        for case in &self.cases {
            match case.end {
                End::Passed(_) => flaky += usize::from(!case.failures.is_empty()),
                End::Failed | End::Repeated => failed += 1,
                End::Skipped(_) => skipped += 1,
            }
        }
        let (suite, tests) = (text(&self.suite), self.cases.len());
        let seconds = self.start.elapsed().as_secs_f64();
        writeln!(
            out,
            r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="{suite}" tests="{tests}" failures="{failed}" errors="0" skipped="{skipped}" flakes="{flaky}" time="{seconds:.3}">"#
        )?;
        for case in &self.cases {
            write!(out, "{case}")?;
        }
        writeln!(out, "</testsuite></testsuites>")
    }
}

impl fmt::Display for TestCase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, name) = (text(&self.class), text(&self.name));
        let seconds = self.took.as_secs_f64();
        writeln!(
            out,
            r#"<testcase classname="{class}" name="{name}" time="{seconds:.3}">"#
        )?;
        for (index, message) in self.failures.iter().enumerate() {
            let element = match (&self.end, index) {
                (End::Passed(_), _) => "flakyFailure",
                (End::Failed | End::Repeated | End::Skipped(_), 0) => "failure",
                (End::Failed | End::Repeated | End::Skipped(_), _) => "rerunFailure",
            };
            let line = text(message.lines().next().unwrap_or_default());
            let all = text(message);
            writeln!(out, r#"<{element} message="{line}">{all}</{element}>"#)?;
        }
        match &self.end {
            End::Passed(seen) if !seen.is_empty() => {
                writeln!(out, "<system-out>{}</system-out>", text(seen))?;
            }
            End::Skipped(why) => writeln!(out, r#"<skipped message="{}"/>"#, text(why))?,
            End::Passed(_) | End::Failed | End::Repeated => {}
        }
        writeln!(out, "</testcase>")
    }
}

/// Returns text for an element or an attribute: bounded, escaped, without the characters that XML forbids.
fn text(raw: &str) -> String {
    let mut escaped = String::new();
    for (place, letter) in raw.char_indices() {
        if place >= MESSAGE_LIMIT {
            escaped.push_str(&format!(" … {} bytes left out", raw.len() - place));
            break;
        }
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            '\u{fffe}' | '\u{ffff}' => {}
            _ if letter.is_control() => {}
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed() -> CaseResult {
        CaseResult::Passed(String::new())
    }

    fn failed(message: &str) -> CaseResult {
        CaseResult::Failed(message.to_owned())
    }

    fn repeated(message: &str) -> CaseResult {
        CaseResult::Repeated(message.to_owned())
    }

    fn skipped() -> CaseResult {
        CaseResult::Skipped("no node".to_owned())
    }

    fn report(cases: &[(&str, CaseResult)]) -> Report {
        let mut report = Report::new("e2e-tasks");
        for (name, result) in cases {
            report.add("", name, Duration::from_millis(1500), result.clone());
        }
        report
    }

    #[test]
    fn text_is_escaped_and_has_no_control_characters() {
        let table = [
            ("a <b> & \"c\"", "a &lt;b&gt; &amp; &quot;c&quot;"),
            ("]]>", "]]&gt;"),
            ("\u{1b}[31mred\u{0}\u{85}\u{ffff}", "[31mred"),
            ("two\r\nlines\tand 'ü' €", "two\nlines\tand 'ü' €"),
        ];
        for (raw, wanted) in table {
            assert_eq!(text(raw), wanted, "{raw:?}");
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let cut = text(&"€".repeat(2000));
        assert_eq!(cut.matches('€').count(), MESSAGE_LIMIT.div_ceil(3));
        assert!(cut.ends_with(" … 1902 bytes left out"), "{cut}");
        let whole = "x".repeat(MESSAGE_LIMIT);
        assert_eq!(text(&whole), whole);
    }

    #[test]
    fn counts_are_of_cases_not_of_tries() {
        let cases = [
            ("good", passed()),
            ("slow", repeated("late")),
            ("bad", repeated("first")),
            ("elsewhere", skipped()),
            ("slow", passed()),
            ("bad", failed("second")),
            ("lost", repeated("third")),
            ("lost", skipped()),
            ("unfinished", repeated("fourth")),
        ];
        let xml = report(&cases).to_string();
        let counts = r#"name="e2e-tasks" tests="6" failures="3" errors="0" skipped="1" flakes="1""#;
        assert!(xml.contains(counts), "{xml}");
        assert_eq!(xml.matches("<testcase ").count(), 6, "{xml}");
    }

    #[test]
    fn a_pass_hides_no_failure_of_another_case_of_the_same_name() {
        let cases = [("kept", failed("late")), ("kept", passed())];
        let xml = report(&cases).to_string();
        assert!(xml.contains(r#"tests="2" failures="1""#), "{xml}");
        assert!(xml.contains(r#"flakes="0""#), "{xml}");
    }

    #[test]
    fn a_step_is_a_case_only_if_it_failed() {
        let mut report = report(&[("good", passed())]);
        report.add_step("stop", &Ok(()));
        assert!(report.to_string().contains(r#"tests="1" failures="0""#));
        let failed = Err(anyhow::anyhow!("no answer").context("kubelet"));
        report.add_step("stop", &failed);
        let xml = report.to_string();
        assert!(xml.contains(r#"tests="2" failures="1""#), "{xml}");
        assert!(xml.contains(r#"message="kubelet: no answer""#), "{xml}");
    }

    #[test]
    fn a_passed_case_that_could_not_run_is_one_skipped_case() {
        let mut report = report(&[("good", passed()), ("bad", failed("late"))]);
        assert!(report.skip("e2e-tasks", "good", "no node"));
        let xml = report.to_string();
        assert!(xml.contains(r#"tests="2" failures="1""#), "{xml}");
        assert!(xml.contains(r#"skipped="1""#), "{xml}");
        for name in ["bad", "unknown"] {
            assert!(!report.skip("e2e-tasks", name, "no node"), "{name}");
        }
        let xml = report.to_string();
        assert!(xml.contains(r#"tests="4" failures="1""#), "{xml}");
        assert!(xml.contains(r#"skipped="3""#), "{xml}");
    }

    #[test]
    fn each_failed_try_is_in_the_file() {
        let cases = [
            ("slow", repeated("late\nthe log is in 'x'")),
            ("slow", passed()),
            ("bad", repeated("first")),
            ("bad", failed("second")),
        ];
        let xml = report(&cases).to_string();
        for wanted in [
            "<testcase classname=\"e2e-tasks\" name=\"slow\" time=\"3.000\">\n\
             <flakyFailure message=\"late\">late\nthe log is in 'x'</flakyFailure>\n</testcase>\n",
            "<failure message=\"first\">first</failure>\n\
             <rerunFailure message=\"second\">second</rerunFailure>\n</testcase>\n",
        ] {
            assert!(xml.contains(wanted), "no '{wanted}' in {xml}");
        }
    }

    #[test]
    fn the_file_of_an_earlier_run_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        report(&[("case", passed())])
            .write_to(folder.path())
            .unwrap();
        clear_in(folder.path(), "e2e").unwrap();
        assert!(folder.path().join("e2e-tasks.xml").exists());
        clear_in(folder.path(), "e2e-tasks").unwrap();
        assert!(!folder.path().join("e2e-tasks.xml").exists());
        fs::create_dir(folder.path().join("other.xml")).unwrap();
        let error = clear_in(folder.path(), "other").unwrap_err().to_string();
        assert!(error.contains("cannot remove"), "{error}");
    }

    #[test]
    fn the_file_has_the_name_of_the_suite() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("new");
        let seen = ("case", CaseResult::Passed("1 < 2".to_owned()));
        report(&[seen]).write_to(&directory).unwrap();
        let xml = fs::read_to_string(directory.join("e2e-tasks.xml")).unwrap();
        assert!(xml.starts_with("<?xml "), "{xml}");
        assert!(xml.contains("<system-out>1 &lt; 2</system-out>\n"), "{xml}");
        assert!(xml.ends_with("</testsuite></testsuites>\n"), "{xml}");
    }
}
