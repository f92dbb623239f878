//! Results of campaigns, for the JUnit file.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use testkit::{
    faults::campaign::{self, Tally},
    junit::{CaseResult, Report},
};

/// Returns one case for each plan and for each scenario without faults.
///
/// A plan whose fault did not happen has shown nothing, so it is skipped.
pub(super) fn of(suite: &str, tally: &Tally) -> Report {
    let times: BTreeMap<&str, Duration> = tally
        .times
        .iter()
        .map(|(id, took)| (id.as_str(), *took))
        .collect();
    let mut ends: BTreeMap<&str, CaseResult> = times
        .keys()
        .map(|id| (*id, CaseResult::Passed(String::new())))
        .collect();
    for id in &tally.unreached {
        let why = "its fault did not happen".to_owned();
        ends.insert(id, CaseResult::Skipped(why));
    }
    for (id, violations) in &tally.divergences {
        ends.insert(id, CaseResult::Failed(campaign::words(violations)));
    }
    for (id, why) in &tally.unjudged {
        ends.insert(id, CaseResult::Failed(format!("not judged: {why}")));
    }
    let mut results = Report::new(suite);
    for (id, end) in ends {
        let scenario = id.split('/').next().unwrap_or(id);
        let took = times.get(id).copied().unwrap_or_default();
        results.add(&format!("{suite}.{scenario}"), id, took, end);
    }
    let has_failure = !tally.divergences.is_empty() || !tally.unjudged.is_empty();
    if !has_failure && !tally.is_clean() {
        let why = format!(
            "{} plans whose fault did not happen are too many",
            tally.unreached.len()
        );
        let end = CaseResult::Failed(why);
        results.add("", "faults that did not happen", Duration::ZERO, end);
    }
    results
}

/// Returns the result of a campaign that is one case.
pub(super) fn whole(is_clean: bool, violations: &[String], report: String) -> CaseResult {
    match (is_clean, violations) {
        (true, _) => CaseResult::Passed(report),
        (false, []) => CaseResult::Failed(report),
        (false, violations) => CaseResult::Failed(violations.join("\n")),
    }
}

/// Returns the result of a part of a campaign, which may not have been played.
pub(super) fn of_part<T>(played: &Result<T>, result: impl Fn(&T) -> CaseResult) -> CaseResult {
    match played {
        Ok(report) => result(report),
        Err(error) => CaseResult::Failed(format!("not played: {error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plan_is_one_case_also_one_that_was_not_judged() {
        let second = Duration::from_secs(1);
        let tally = Tally {
            times: vec![
                ("a/".to_owned(), second),
                ("a/x".to_owned(), second),
                ("a/y".to_owned(), second),
            ],
            unreached: vec!["a/y".to_owned()],
            unjudged: vec![("a/z".to_owned(), "no server".to_owned())],
            ..Tally::default()
        };
        let xml = of("faults-tasks", &tally).to_string();
        for wanted in [
            r#"tests="4" failures="1" errors="0" skipped="1""#,
            r#"<testcase classname="faults-tasks.a" name="a/x" time="1.000">"#,
            r#"<skipped message="its fault did not happen"/>"#,
            r#"<failure message="not judged: no server">"#,
        ] {
            assert!(xml.contains(wanted), "no '{wanted}' in {xml}");
        }
    }

    #[test]
    fn too_many_plans_without_their_fault_are_a_failure() {
        let tally = Tally {
            unreached: vec!["a/x".to_owned(), "a/y".to_owned()],
            ..Tally::default()
        };
        assert!(!tally.is_clean());
        let xml = of("faults-tasks", &tally).to_string();
        let counts = r#"tests="3" failures="1" errors="0" skipped="2""#;
        assert!(xml.contains(counts), "{xml}");
    }
}
