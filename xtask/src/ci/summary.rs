//! The table of stages, and its place in CONTRIBUTING.md.

use std::{env::VarError, fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use testbed::build;
use testkit::{layout, load::Load};

use super::lanes::Ended;

/// Marks the table in CONTRIBUTING.md.
const BEGIN: &str = "<!-- written by `.ci/run --report`: begin -->\n";
const END: &str = "<!-- written by `.ci/run --report`: end -->\n";

/// Set by `.ci/run`, which works on a copy: the checkout that it was called in.
const SOURCE_VARIABLE: &str = "ORCHESTRATOR_CI_SOURCE";
/// Set by `.ci/run`: the seconds that packages and the first build took.
const BEFORE_VARIABLE: &str = "ORCHESTRATOR_CI_BEFORE";

/// Minutes that suites of later issues may add.
const RESERVED: &[(&str, u64)] = &[("apps", 3), ("notebooks", 6)];

/// How long `.ci/run` took before it started this program; nothing without `.ci/run`.
pub(super) fn before() -> Result<Duration> {
    match std::env::var(BEFORE_VARIABLE) {
        Ok(text) => {
            let seconds = text.parse().context(BEFORE_VARIABLE)?;
            Ok(Duration::from_secs(seconds))
        }
        Err(VarError::NotPresent) => Ok(Duration::ZERO),
        Err(error @ VarError::NotUnicode(_)) => Err(error).context(BEFORE_VARIABLE),
    }
}

/// Returns the table as Markdown. Lanes overlap: the last line is the clock's.
pub(super) fn table(ended: &[Ended], took: Duration, load: Load) -> String {
    let mut text = "| stage | lane | seconds | processors busy |\n|---|---|---|---|\n".to_owned();
    for stage in ended {
        let failed = stage.failure.as_ref().map_or("", |_| " **FAILED**");
        let tries = stage.first_failure.as_ref().map_or("", |_| ", two tries");
        let seconds = stage.took.as_secs_f64();
        text.push_str(&format!(
            "| {}{tries}{failed} | {} | {seconds:.0} | {} |\n",
            stage.name, stage.lane, stage.load
        ));
    }
    let seconds = took.as_secs();
    text.push_str(&format!(
        "| **all** | | **{seconds}** ({} min) | {load} |\n",
        seconds.div_ceil(60)
    ));
    for (suite, minutes) in RESERVED {
        text.push_str(&format!("| reserved: {suite} | | {} | |\n", minutes * 60));
    }
    let reserved: u64 = RESERVED.iter().map(|(_, minutes)| minutes).sum();
    let total = seconds.div_ceil(60) + reserved;
    text.push_str(&format!("| **with reserves** | | **{total} min** | |\n"));
    text
}

/// Writes the table into CONTRIBUTING.md of the checkout that `.ci/run` was called in, with the commit that
/// was measured.
pub(super) fn write(table: &str) -> Result<()> {
    let source = std::env::var_os(SOURCE_VARIABLE);
    let folder = source.map_or_else(|| layout::repository().to_owned(), PathBuf::from);
    let path = folder.join("CONTRIBUTING.md");
    let page = fs::read_to_string(&path)?;
    let commit = build::git(&["rev-parse", "--short", "HEAD"])?;
    let text = format!("Commit {}.\n\n{table}", commit.trim());
    fs::write(path, replaced(&page, &text)?)?;
    Ok(())
}

fn replaced(page: &str, text: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("no begin of the table")?;
    let (_, after) = rest.split_once(END).context("no end of the table")?;
    Ok(format!("{before}{BEGIN}{text}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_fit_into_fifty_minutes_with_thirty_five_of_today() {
        let later: u64 = RESERVED.iter().map(|(_, minutes)| minutes).sum();
        assert!(35 + later <= 50);
    }

    #[test]
    fn the_page_has_a_place_for_the_table() {
        let page = fs::read_to_string(layout::repository().join("CONTRIBUTING.md")).unwrap();
        let written = replaced(&page, "new\n").unwrap();
        assert!(written.contains(&format!("{BEGIN}new\n{END}")), "{written}");
    }
}
