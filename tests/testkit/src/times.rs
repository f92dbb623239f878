//! Durations of cases, collected in a file for the summary of a CI stage.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    time::Duration,
};

/// Names the file that collects durations; set by `cargo xtask ci` for each stage.
pub const FILE_VARIABLE: &str = "ORCHESTRATOR_TIMES";

/// Appends the duration of a case to the stage's file. Without such a file it does nothing.
///
/// # Errors
/// When the file cannot be written.
pub fn record(case: &str, took: Duration) -> io::Result<()> {
    let Some(path) = std::env::var_os(FILE_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    append(Path::new(&path), case, took)
}

fn append(path: &Path, case: &str, took: Duration) -> io::Result<()> {
    let mut file = fs::File::options().create(true).append(true).open(path)?;
    // One write: processes that run at the same time share the file.
    file.write_all(format!("{:.3}\t{case}\n", took.as_secs_f64()).as_bytes())
}

/// Returns the slowest cases of a stage's file, the slowest first; none if nothing was recorded.
///
/// # Errors
/// When the file exists and cannot be read, or a line has no duration.
pub fn slowest(path: &Path, count: usize) -> io::Result<Vec<(Duration, String)>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut cases = Vec::new();
    for line in text.lines() {
        let seconds = line
            .split_once('\t')
            .map(|(seconds, case)| (seconds.parse(), case));
        let Some((Ok(seconds), case)) = seconds else {
            return Err(io::Error::other(format!("'{line}' has no duration")));
        };
        let took = Duration::try_from_secs_f64(seconds)
            .map_err(|error| io::Error::other(format!("'{line}': {error}")))?;
        cases.push((took, case.to_owned()));
    }
    cases.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    cases.truncate(count);
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first_and_no_more_than_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times");
        assert_eq!(slowest(&path, 3).unwrap(), []);
        for (case, milliseconds) in [("a", 5), ("b", 20), ("c", 10)] {
            append(&path, case, Duration::from_millis(milliseconds)).unwrap();
        }
        let cases: Vec<String> = slowest(&path, 2)
            .unwrap()
            .into_iter()
            .map(|it| it.1)
            .collect();
        assert_eq!(cases, ["b", "c"]);
    }

    #[test]
    fn a_line_without_a_duration_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times");
        for line in ["word\tcase\n", "case\n", "-1\tcase\n", "nan\tcase\n"] {
            fs::write(&path, line).unwrap();
            assert!(slowest(&path, 2).is_err(), "{line}");
        }
    }
}
