//! The last campaign as a page of the docs.

use std::fmt::Write;

use api::status::bounded;
use testkit::{
    faults::campaign::{Lesson, Tally, words},
    report_age,
};

/// More of one sort are counted, not named.
const NAMED: usize = 40;

/// The most that is said of one divergence.
const WORDS: usize = 240;

/// The page.
pub(super) fn page(operator: &str, lessons: &[Lesson], tally: &Tally) -> String {
    let mut text = format!(
        "<!-- Written by `cargo xtask faults {operator} --report` -->\n\
         # Fault campaign of {operator}: the last report\n\n\
         {}\n\
         What it is and what it means: [failure modes](../concepts/failure-modes.md).\n\n\
         ```text\n",
        report_age::header()
    );
    text.push_str(&tally.to_string());
    text.push_str("```\n\n| scenario | writes | kinds of requests | watched resources that change |\n|---|---|---|---|\n");
    for lesson in lessons {
        let (name, learned) = (lesson.scenario.name(), &lesson.learned);
        let (writes, routes) = (learned.writes.len(), learned.routes.len());
        let watched = learned.watched.len();
        line(
            &mut text,
            format_args!("| `{name}` | {writes} | {routes} | {watched} |"),
        );
    }
    let divergences = tally.divergences.iter();
    let divergences = divergences
        .map(|(id, violations)| format!("`{id}`: {}", bounded(&words(violations), WORDS)));
    let unjudged = tally.unjudged.iter();
    let unjudged = unjudged.map(|(id, why)| format!("`{id}`: {why}"));
    let unreached = tally.unreached.iter().map(|id| {
        let why = match tally.varying.contains(id) {
            true => " (not every play makes this request)",
            false => "",
        };
        format!("`{id}`{why}")
    });
    let untouched = tally.untouched().map(|point| format!("`{point}`"));
    list(&mut text, "Divergences", divergences.collect());
    list(&mut text, "Not judged", unjudged.collect());
    list(
        &mut text,
        "Writes that were not reached by any fault",
        untouched.collect(),
    );
    list(
        &mut text,
        "Not reached: the request did not come again in three plays",
        unreached.collect(),
    );
    text
}

fn list(text: &mut String, title: &str, lines: Vec<String>) {
    line(text, format_args!("\n## {title}\n"));
    if lines.is_empty() {
        line(text, format_args!("None."));
    }
    for one in lines.iter().take(NAMED) {
        line(text, format_args!("- {one}"));
    }
    if lines.len() > NAMED {
        line(text, format_args!("- and {} more", lines.len() - NAMED));
    }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // To a String nothing can fail.
    let (Ok(()) | Err(_)) = writeln!(text, "{words}");
}

#[cfg(test)]
mod tests {
    use testkit::faults::campaign::Share;

    use super::*;

    #[test]
    fn the_page_names_its_commit_and_what_no_fault_reached() {
        let mut tally = Tally::default();
        let of = |hit| Share { hit, planned: 5 };
        tally.writes.insert("a/create-jobs:#1".to_owned(), of(5));
        tally.writes.insert("a/create-jobs:#2".to_owned(), of(0));
        tally.unreached = vec!["a/create-jobs:#2=reset".to_owned()];
        let text = page("tasks", &[], &tally);
        for wanted in [
            "Run on ",
            "write points: 1 of 2 hit by at least one fault",
            "## Writes that were not reached by any fault\n\n- `a/create-jobs:#2`\n",
            "- `a/create-jobs:#2=reset`\n",
        ] {
            assert!(text.contains(wanted), "no '{wanted}' in {text}");
        }
    }
}
