//! How old a report is: its page names the commit that it was run on, and says by itself when the code
//! has changed since.

use std::{fs, io::ErrorKind, process::Command};

use anyhow::{Context, Result};
use api::kinds::OPERATORS;

use crate::{layout, seed};

/// The page of the fault campaigns on the tasks operator.
pub const TASKS_PAGE: &str = "docs/reference/fault-report.md";
/// The page of the fault campaigns on the tenants operator.
pub const TENANTS_PAGE: &str = "docs/reference/fault-report-tenants.md";
/// The page of the fault campaigns on the apps operator.
pub const APPS_PAGE: &str = "docs/reference/fault-report-apps.md";
/// The page of the mutants.
pub const MUTANTS_PAGE: &str = "docs/reference/mutants.md";

/// All pages of reports.
pub const PAGES: &[&str] = &[TASKS_PAGE, TENANTS_PAGE, APPS_PAGE, MUTANTS_PAGE];

/// The code that the reports speak of, beside that of the operators.
const SOURCES: &[&str] = &[
    "crates/api/src",
    "crates/attempts/src",
    "crates/engine/src",
    "crates/pods/src",
];

/// Begins the line that names a page's commit.
const MARK: &str = "<!-- commit: ";

/// Begins the line that is there if the code has changed.
const BANNER: &str = "> **Older than the code.** ";

/// What is known of a page's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    Current,
    /// The code is another one now.
    Old,
    /// There is no Git here, or no such commit: a clone may have no history.
    Unknown,
}

/// Returns the lines of a page about the commit that is checked out.
pub fn header() -> String {
    let Ok(commit) = seed::head() else {
        return "Run on an unknown commit.\n".to_owned();
    };
    let short = commit.get(..7).unwrap_or(&commit);
    let more = match age_of(short) {
        Age::Current => "",
        Age::Old | Age::Unknown => ", with changes that were not committed",
    };
    format!("{MARK}{short} -->\nRun on commit `{short}`{more}.\n")
}

/// Returns all pages that exist, as they should be: path and text.
///
/// # Errors
/// When one cannot be read.
pub fn pages() -> Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for &path in PAGES {
        match fs::read_to_string(layout::repository().join(path)) {
            Ok(text) => {
                let age = commit_of(&text).map_or(Age::Unknown, age_of);
                pages.push((path.to_owned(), dated(&text, age)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read '{path}'")),
        }
    }
    Ok(pages)
}

fn commit_of(page: &str) -> Option<&str> {
    let mut lines = page.lines();
    let line = lines.find_map(|line| line.strip_prefix(MARK))?;
    let commit = line.trim_end_matches("-->").trim();
    let is_hash = commit.len() >= 7 && commit.chars().all(|one| one.is_ascii_hexdigit());
    is_hash.then_some(commit)
}

/// Whether the code is the one of this commit, changes that are not committed included.
fn age_of(commit: &str) -> Age {
    let of_operators = OPERATORS.iter();
    let of_operators = of_operators.map(|operator| format!("crates/{}/src", operator.name));
    let ended = Command::new("git")
        .args(["diff", "--quiet", commit, "--"])
        .args(SOURCES)
        .args(of_operators)
        .current_dir(layout::repository())
        .output();
    match ended.map(|output| output.status.code()) {
        Ok(Some(0)) => Age::Current,
        Ok(Some(1)) => Age::Old,
        Ok(_) | Err(_) => Age::Unknown,
    }
}

/// The page with the banner if it is old, without it if it is not; as it is if nobody knows.
fn dated(page: &str, age: Age) -> String {
    let Some(commit) = commit_of(page) else {
        return page.to_owned();
    };
    let wanted = match age {
        Age::Unknown => return page.to_owned(),
        Age::Current => None,
        Age::Old => Some(format!(
            "{BANNER}This page was written on commit `{commit}`; the engine changed since."
        )),
    };
    let mut lines: Vec<&str> = Vec::new();
    let mut is_after_banner = false;
    for line in page.lines() {
        let is_banner = line.starts_with(BANNER);
        // With the empty line that follows it.
        if !(is_banner || is_after_banner && line.is_empty()) {
            lines.push(line);
        }
        is_after_banner = is_banner;
    }
    if let Some(banner) = &wanted {
        let title = lines.iter().position(|line| line.starts_with("# "));
        let after = title.map_or(0, |title| title + 1);
        lines.splice(after..after, ["", banner.as_str()]);
    }
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<!-- Written -->\n# Title\n\n<!-- commit: 58eff63 -->\nRun on commit `58eff63`.\n\nText.\n";

    #[test]
    fn an_old_page_says_so_and_a_new_one_does_not() {
        let old = dated(PAGE, Age::Old);
        let banner = "# Title\n\n> **Older than the code.** This page was written on commit `58eff63`; the engine changed since.\n\n<!-- commit";
        assert!(old.contains(banner), "{old}");
        assert_eq!(dated(&old, Age::Old), old, "once is enough");
        assert_eq!(dated(&old, Age::Unknown), old);
        let new = dated(&old, Age::Current);
        assert!(!new.contains("Older"), "{new}");
        assert!(new.contains("Run on commit `58eff63`"), "{new}");
        assert_eq!(dated(PAGE, Age::Unknown), PAGE);
    }

    #[test]
    fn a_page_names_its_commit_or_has_no_age() {
        assert_eq!(commit_of(PAGE), Some("58eff63"));
        for none in ["", "<!-- commit: -->", "<!-- commit: several -->"] {
            assert_eq!(commit_of(none), None, "{none}");
            assert_eq!(dated(none, Age::Old), none);
        }
    }

    #[test]
    fn a_commit_that_is_not_here_is_unknown() {
        assert_eq!(age_of("0000000"), Age::Unknown);
    }

    #[test]
    fn every_report_names_its_commit() {
        for (path, text) in pages().unwrap() {
            assert!(commit_of(&text).is_some(), "{path}");
            let found = fs::read_to_string(layout::repository().join(&path)).unwrap();
            assert_eq!(found, text, "{path}: run 'cargo xtask generate'");
        }
    }
}
