//! What may see a mutant, from the words of the table.

use std::fmt;

use anyhow::{Context, Result};
use testkit::faults::point::Injection;

/// Something that may see a mutant.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Detector {
    /// A scenario with these faults.
    ScenarioRun(String, Vec<Injection>),
    /// A case of `cargo xtask e2e SUITE`.
    Case(String, String),
    /// The leader frozen past its Lease.
    Freeze,
}

impl fmt::Display for Detector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScenarioRun(scenario, script) => {
                let script: Vec<String> = script.iter().map(ToString::to_string).collect();
                write!(out, "{scenario}/{}", script.join("+"))
            }
            Self::Case(suite, case) => write!(out, "e2e {suite} {case}"),
            Self::Freeze => out.write_str("faults replicas, the leader frozen"),
        }
    }
}

/// From the words of the table: `; ` between plays; `SCENARIO`, `SCENARIO, FAULT with FAULT`,
/// `e2e SUITE: CASE`, or `freeze`.
pub(super) fn detectors(words: &str) -> Result<Vec<Detector>> {
    words
        .split("; ")
        .map(|one| detector(one).with_context(|| format!("cannot read '{one}'")))
        .collect()
}

fn detector(words: &str) -> Result<Detector> {
    if words == "freeze" {
        return Ok(Detector::Freeze);
    }
    if let Some(case) = words.strip_prefix("e2e ") {
        let (suite, case) = case.split_once(": ").context("no case")?;
        return Ok(Detector::Case(suite.to_owned(), case.to_owned()));
    }
    let (scenario, script) = match words.split_once(", ") {
        None => (words, Vec::new()),
        Some((scenario, faults)) => {
            let script: Result<_> = faults.split(" with ").map(str::parse).collect();
            (scenario, script?)
        }
    };
    Ok(Detector::ScenarioRun(scenario.to_owned(), script))
}

#[cfg(test)]
mod tests {
    use ::mutant::Mutant;

    use super::*;

    #[test]
    fn every_mutant_says_what_can_see_it() {
        for mutant in Mutant::ALL {
            let about = mutant.about();
            let found = detectors(about.seen_by);
            assert!(found.is_ok(), "{}: {found:?}", about.id);
        }
    }

    #[test]
    fn words_of_the_table_become_plays() {
        let read = |words: &str| {
            let all = detectors(words).unwrap();
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            all.join(" | ")
        };
        for (words, wanted) in [
            ("retry", "retry/"),
            (
                "success, create-jobs=lost-504 with watch-jobs=stale-2000",
                "success/create-jobs:#1=lost-504+watch-jobs=stale-2000",
            ),
            (
                "success, create-jobs=403x9; e2e tasks: quota",
                "success/create-jobs:#1=403x9 | e2e tasks quota",
            ),
            (
                "success, patch-taskruns.status#2=500",
                "success/patch-taskruns.status:#2=500",
            ),
            ("freeze", "faults replicas, the leader frozen"),
        ] {
            assert_eq!(read(words), wanted);
        }
        for wrong in [
            "success, create-jobs",
            "success, create-jobs=no",
            "e2e tasks",
        ] {
            assert!(detectors(wrong).is_err(), "{wrong}");
        }
    }
}
