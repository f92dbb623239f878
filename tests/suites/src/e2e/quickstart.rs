//! The README's quickstart as a list of steps: what a reader types, and what the README says that
//! he will see.

use anyhow::{Context, Result, ensure};

const BEGIN: &str = "<!-- quickstart:begin -->";
const END: &str = "<!-- quickstart:end -->";
/// Before a command.
const PROMPT: &str = "$ ";
/// Alone on a line: any lines. Within a line: anything.
const ANYTHING: &str = "…";

/// One command of the README.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// As typed; lines that end in a backslash are joined.
    pub(crate) command: String,
    /// What the README shows below it; nothing means that it does not say.
    pub(crate) shown: Vec<String>,
}

/// The steps of all `console` blocks between the marks.
///
/// # Errors
/// When the marks or the blocks are missing or unpaired: nothing to run is not success.
pub(crate) fn steps(readme: &str) -> Result<Vec<Step>> {
    let (_, rest) = readme
        .split_once(BEGIN)
        .with_context(|| format!("no '{BEGIN}'"))?;
    let (text, _) = rest
        .split_once(END)
        .with_context(|| format!("no '{END}' after '{BEGIN}'"))?;
    let mut steps: Vec<Step> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for line in text.lines() {
        if line.starts_with("```") {
            ensure!(!goes_on, "a command ends in a backslash");
            ensure!(
                inside || line == "```console",
                "'{line}': only blocks of 'console' can be run"
            );
            inside = !inside;
            continue;
        }
        if !inside {
            continue;
        }
        if goes_on {
            let step = steps.last_mut().context("no command to go on with")?;
            let (part, more) = joined(line.trim());
            step.command.push_str(part);
            goes_on = more;
        } else if let Some(command) = line.strip_prefix(PROMPT) {
            let (part, more) = joined(command);
            steps.push(Step {
                command: part.to_owned(),
                shown: Vec::new(),
            });
            goes_on = more;
        } else {
            let step = steps
                .last_mut()
                .with_context(|| format!("'{line}' stands before any command"))?;
            step.shown.push(line.to_owned());
        }
    }
    ensure!(!inside, "a block has no end");
    ensure!(!steps.is_empty(), "no commands");
    Ok(steps)
}

/// A line of a command, and whether it goes on in the next one.
fn joined(line: &str) -> (&str, bool) {
    line.strip_suffix('\\')
        .map_or((line, false), |part| (part, true))
}

/// Whether what was printed is what the README shows, apart from what differs each time.
///
/// # Errors
/// When it is not: both, as they were compared.
pub(crate) fn compare(shown: &[String], printed: &str) -> Result<()> {
    if shown.is_empty() {
        return Ok(());
    }
    let all = |lines: &mut dyn Iterator<Item = &str>| -> Vec<String> {
        lines
            .map(normal)
            .filter(|line: &String| !line.is_empty())
            .collect()
    };
    let shown = all(&mut shown.iter().map(String::as_str));
    let printed = all(&mut printed.lines());
    ensure!(
        lines_match(&shown, &printed),
        "the README shows\n  {}\nbut printed was\n  {}",
        shown.join("\n  "),
        printed.join("\n  ")
    );
    Ok(())
}

/// How much a size may differ from the one on the page.
const SIZE_TOLERANCE: f64 = 0.2;

/// Compares the figures on a page with the printed ones: sizes within a tolerance, times as upper bounds.
/// Without `compares_sizes`, only times are compared: images of the test profile have other sizes.
///
/// # Errors
/// When a figure on the page is wrong.
pub(crate) fn compare_figures(shown: &[String], printed: &str, compares_sizes: bool) -> Result<()> {
    for line in shown.iter().filter(|line| !figures(line).is_empty()) {
        let wanted = normal(line);
        let real = printed
            .lines()
            .find(|real| line_matches(&wanted, &normal(real)))
            .with_context(|| format!("no line like '{line}' was printed"))?;
        for ((on_page, unit), (measured, _)) in figures(line).into_iter().zip(figures(real)) {
            let is_right = match unit.as_str() {
                "MB" => !compares_sizes || (measured - on_page).abs() <= on_page * SIZE_TOLERANCE,
                _ => measured <= on_page,
            };
            ensure!(
                is_right,
                "the page says {on_page} {unit}, measured were {measured} {unit}: '{}'",
                real.trim()
            );
        }
    }
    Ok(())
}

/// The measured figures in a line, with their units.
fn figures(line: &str) -> Vec<(f64, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let figure = |pair: &[&str]| match pair {
        [number, unit] if is_unit(unit) => match bare(number).parse() {
            Ok(number) => Some((number, bare(unit).to_owned())),
            Err(_not_a_number) => None,
        },
        _ => None,
    };
    words.windows(2).filter_map(figure).collect()
}

fn is_unit(word: &str) -> bool {
    matches!(bare(word), "s" | "MB")
}

fn lines_match(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == ANYTHING => {
            (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(real, more)| line_matches(line, real) && lines_match(rest, more)),
    }
}

fn line_matches(shown: &str, real: &str) -> bool {
    match shown.split_once(ANYTHING) {
        None => shown == real,
        Some((before, after)) => real.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(index, _)| index)
                .chain([rest.len()])
                .any(|index| line_matches(after, &rest[index..]))
        }),
    }
}

/// A line without what differs from run to run: width of columns, ages, sizes, random names.
fn normal(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut normal = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let has_unit = words.get(index + 1).is_some_and(|next| is_unit(next));
        let is_measured = has_unit && is_number(word);
        normal.push(
            if is_measured || is_age(word) || is_time(word) || is_commit(word) {
                "N".to_owned()
            } else {
                without_random_end(word)
            },
        );
    }
    normal.join(" ")
}

/// A word without the punctuation around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|letter: char| !letter.is_alphanumeric())
}

fn is_number(word: &str) -> bool {
    bare(word).parse::<f64>().is_ok()
}

/// `5s`, `2m30s`, `1.5s`, `4d`: numbers with units, and nothing else.
fn is_age(word: &str) -> bool {
    let word = bare(word);
    let mut parts = word.split_inclusive(|letter: char| letter.is_ascii_alphabetic());
    word.ends_with(['s', 'm', 'h', 'd'])
        && parts.all(|part| {
            part.strip_suffix(['s', 'm', 'h', 'd'])
                .is_some_and(|number| !number.is_empty() && number.parse::<f64>().is_ok())
        })
}

/// `2026-03-01T08:00:00Z`, or `08:00:00Z`.
fn is_time(word: &str) -> bool {
    let is_like = |shape: &str| {
        let word = bare(word);
        word.len() == shape.len()
            && word.bytes().zip(shape.bytes()).all(|(letter, wanted)| {
                letter == wanted || (wanted == b'0' && letter.is_ascii_digit())
            })
    };
    is_like("0000-00-00T00:00:00Z") || is_like("00:00:00Z")
}

fn is_commit(word: &str) -> bool {
    let word = bare(word);
    word.len() == 40 && word.bytes().all(|letter| letter.is_ascii_hexdigit())
}

/// Kubernetes makes names unique by five letters, and a Deployment's Pods by up to ten before
/// them, all from an alphabet without vowels: no word of ours is made of it.
fn without_random_end(word: &str) -> String {
    let is_random = |part: &str| {
        part.bytes()
            .all(|letter| b"bcdfghjklmnpqrstvwxz2456789".contains(&letter))
    };
    let quotes = word.len() - word.trim_end_matches(['\'', '"', ':', ',', ';']).len();
    let (word, after) = word.split_at(word.len() - quotes);
    match word.rsplit_once('-') {
        Some((name, end)) if end.len() == 5 && is_random(end) => match name.rsplit_once('-') {
            // A hash is a number of up to ten digits.
            Some((name, hash)) if (5..=10).contains(&hash.len()) && is_random(hash) => {
                format!("{name}-N-N{after}")
            }
            Some(_) | None => format!("{name}-N{after}"),
        },
        Some(_) | None => format!("{word}{after}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> String {
        format!("before\n{BEGIN}\nprose\n```console\n{text}\n```\nmore prose\n{END}\nafter")
    }

    #[test]
    fn commands_and_what_they_print_are_read() {
        let text = block("$ helm install x \\\n    --wait\nNAME: x\n…\n$ kubectl get pods");
        let step = |command: &str, shown: &[&str]| Step {
            command: command.to_owned(),
            shown: shown.iter().map(|line| (*line).to_owned()).collect(),
        };
        assert_eq!(
            steps(&text).unwrap(),
            [
                step("helm install x --wait", &["NAME: x", "…"]),
                step("kubectl get pods", &[])
            ]
        );
    }

    #[test]
    fn a_readme_that_cannot_be_run_is_refused_with_the_reason() {
        for (text, reason) in [
            ("nothing".to_owned(), "no '<!-- quickstart:begin"),
            (format!("{BEGIN} x"), "no '<!-- quickstart:end"),
            (format!("{BEGIN} x {END}"), "no commands"),
            (
                format!("{BEGIN}\n```console\n$ a\n{END}"),
                "a block has no end",
            ),
            (format!("{BEGIN}\n```yaml\na: b\n```\n{END}"), "console"),
            (block("output"), "before any command"),
            (block("$ a \\"), "backslash"),
        ] {
            let error = steps(&text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_differs_each_time_is_not_compared() {
        for (shown, printed) in [
            ("first-run   Succeeded   5s", "first-run Succeeded 2m30s\n"),
            (
                "orchestrator-tasks-5d4f8c7b9d-x2vbn 1/1 Running 0 4s",
                "orchestrator-tasks-6b8d9f7c48-9kq2z   1/1   Running   0   11s",
            ),
            (
                "image a:0.1.0: 9.1 MB in 'x', 34 s",
                "image a:0.1.0: 12.0 MB in 'x', 1 s",
            ),
            (
                "Pod 'shop-2-v1-vt8tn' on node '…': exit code 3",
                "Pod 'shop-2-v1-9kq2z' on node 'node-0': exit code 3",
            ),
            (
                "2026-03-01T08:00:00Z until 08:00:01Z",
                "2027-12-31T23:59:59Z until 11:22:33Z",
            ),
            (
                "commit 0123456789012345678901234567890123456789 is there",
                "commit 426a58a013ba7502076dc8da1d103ab62d3d9898 is there",
            ),
            ("a …\n…\nz", "a b c\nd\ne\n\nz"),
            ("a\n…", "a"),
        ] {
            let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
            compare(&shown, printed).unwrap();
        }
    }

    #[test]
    fn what_should_be_the_same_is_compared() {
        for (shown, printed) in [
            ("first-run Succeeded 5s", "first-run Failed 5s"),
            ("first-run", "first-run\nsecond-run"),
            ("first-run\nsecond-run", "first-run"),
            ("words: 6", "words: 7"),
            ("until 2026-03-01T08:00:00Z", "until 2026-03-01"),
            (
                "commit 0123456789012345678901234567890123456789",
                "commit 012345678901",
            ),
            ("shop-1-tasks", "shop-1-trees"),
            ("exit code …, gone", "exit code 3"),
            ("a\n…\nz", "a\nb"),
        ] {
            let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
            let error = compare(&shown, printed).unwrap_err().to_string();
            assert!(error.contains("the README shows"), "{error}");
        }
    }

    #[test]
    fn figures_on_a_page_are_compared() {
        let line = |size: &str, time: &str| format!("image a:1: {size} MB in 'x', {time} s");
        for (shown, printed, compares_sizes, wrong) in [
            (line("25.9", "600"), line("25.9", "1"), true, None),
            (line("25.9", "600"), line("30.9", "600"), true, None),
            (line("25.9", "600"), line("21.0", "507"), true, None),
            (
                line("15.7", "600"),
                line("25.9", "1"),
                true,
                Some("25.9 MB"),
            ),
            (line("25.9", "600"), line("20.0", "1"), true, Some("20 MB")),
            (line("15.7", "600"), line("25.9", "1"), false, None),
            (
                line("25.9", "440"),
                line("25.9", "507"),
                false,
                Some("507 s"),
            ),
            ("no figure".to_owned(), "other text".to_owned(), true, None),
            (
                line("1", "1"),
                "other text".to_owned(),
                true,
                Some("no line like"),
            ),
        ] {
            let found = compare_figures(std::slice::from_ref(&shown), &printed, compares_sizes);
            let found = found.err().map(|error| error.to_string());
            match (&found, wrong) {
                (None, None) => {}
                (Some(found), Some(wrong)) if found.contains(wrong) => {}
                _ => panic!("'{shown}' and '{printed}': {found:?}"),
            }
        }
    }

    #[test]
    fn nothing_shown_promises_nothing() {
        compare(&[], "anything").unwrap();
    }

    #[test]
    fn the_readme_of_this_repository_can_be_run() {
        let readme = testkit::layout::repository().join("README.md");
        steps(&std::fs::read_to_string(readme).unwrap()).unwrap();
    }
}
