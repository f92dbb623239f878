//! Differences between the files of two versions, line by line. Pure.

use api::tasks::File;
use schemars::JsonSchema;
use serde::Serialize;

/// Number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// Maximum number of changed lines that are compared exactly. Beyond it, all lines between the first and
/// the last change are reported as replaced.
const CHANGES: usize = 500;

/// The kind of change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Change {
    /// Only the new version has the file.
    Added,
    /// Only the old version has the file.
    Removed,
    /// Both versions have the file, with other content.
    Changed,
}

/// The differences of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileDiff {
    /// Name of the file.
    pub(crate) filename: String,
    /// The kind of change of the file.
    pub(crate) change: Change,
    /// The parts that differ, in order.
    pub(crate) hunks: Vec<Hunk>,
}

/// A part of a file that differs, as in a unified diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hunk {
    /// Number of the first old line, from 1.
    pub(crate) old_start: usize,
    /// Number of old lines.
    pub(crate) old_lines: usize,
    /// Number of the first new line, from 1.
    pub(crate) new_start: usize,
    /// Number of new lines.
    pub(crate) new_lines: usize,
    /// The lines. Each begins with a space, `-` or `+`.
    pub(crate) lines: Vec<String>,
}

/// Returns the differences of all files that differ, by name.
pub(crate) fn diff(old: &[File], new: &[File]) -> Vec<FileDiff> {
    let find = |files: &[File], name: &str| {
        let mut files = files.iter();
        let found = files.find(|file| file.filename == name);
        found.map(|file| file.content.clone())
    };
    let mut names: Vec<&str> = old.iter().chain(new).map(|file| &*file.filename).collect();
    names.sort_unstable();
    names.dedup();
    let mut diffs = Vec::new();
    for name in names {
        let (before, after) = (find(old, name), find(new, name));
        let change = match (&before, &after) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            (Some(before), Some(after)) if before == after => continue,
            (Some(_), Some(_)) => Change::Changed,
        };
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        diffs.push(FileDiff {
            filename: name.to_owned(),
            change,
            hunks: hunks(&before, &after),
        });
    }
    diffs
}

/// One line of both versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Same,
    Removed,
    Added,
}

fn hunks(old: &str, new: &str) -> Vec<Hunk> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let steps = steps(&old, &new);
    let mut hunks: Vec<Hunk> = Vec::new();
    let (mut at_old, mut at_new) = (0, 0);
    let mut index = 0;
    while let Some(step) = steps.get(index) {
        if *step == Step::Same {
            (at_old, at_new, index) = (at_old + 1, at_new + 1, index + 1);
            continue;
        }
        // From some lines before the change, to the first long part without changes.
        let before = CONTEXT
            .min(at_old)
            .min(at_new)
            .min(since_change(&steps, index));
        let end = end_of_hunk(&steps, index);
        let (mut old_at, mut new_at) = (at_old - before, at_new - before);
        let mut hunk = Hunk {
            old_start: old_at + 1,
            old_lines: 0,
            new_start: new_at + 1,
            new_lines: 0,
            lines: Vec::new(),
        };
        for step in steps.iter().take(end).skip(index - before) {
            let (sign, line) = match step {
                Step::Same => (' ', old.get(old_at)),
                Step::Removed => ('-', old.get(old_at)),
                Step::Added => ('+', new.get(new_at)),
            };
            let line = line.copied().unwrap_or_default();
            hunk.lines.push(format!("{sign}{line}"));
            let (is_old, is_new) = (*step != Step::Added, *step != Step::Removed);
            hunk.old_lines += usize::from(is_old);
            hunk.new_lines += usize::from(is_new);
            old_at += usize::from(is_old);
            new_at += usize::from(is_new);
        }
        hunks.push(hunk);
        (at_old, at_new, index) = (old_at, new_at, end);
    }
    hunks
}

/// Returns the number of unchanged lines directly before a step.
fn since_change(steps: &[Step], index: usize) -> usize {
    let before = steps.iter().take(index).rev();
    before.take_while(|step| **step == Step::Same).count()
}

/// Returns the end of the hunk with the change at this step.
fn end_of_hunk(steps: &[Step], index: usize) -> usize {
    let mut end = index;
    let mut same = 0;
    for (at, step) in steps.iter().enumerate().skip(index) {
        if *step == Step::Same {
            same += 1;
            if same > 2 * CONTEXT {
                break;
            }
        } else {
            same = 0;
            end = at + 1;
        }
    }
    (end + CONTEXT).min(steps.len())
}

/// Returns a shortest way from the old to the new lines.
fn steps(old: &[&str], new: &[&str]) -> Vec<Step> {
    let starts = old.iter().zip(new);
    let first = starts.take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (
        old.get(first..).unwrap_or_default(),
        new.get(first..).unwrap_or_default(),
    );
    let ends = old_rest.iter().rev().zip(new_rest.iter().rev());
    let last = ends.take_while(|(old, new)| old == new).count();
    let (old_middle, new_middle) = (
        old_rest.get(..old_rest.len() - last).unwrap_or_default(),
        new_rest.get(..new_rest.len() - last).unwrap_or_default(),
    );
    let mut steps = vec![Step::Same; first];
    match shortest(old_middle, new_middle) {
        Some(middle) => steps.extend(middle),
        None => {
            steps.extend(vec![Step::Removed; old_middle.len()]);
            steps.extend(vec![Step::Added; new_middle.len()]);
        }
    }
    steps.extend(vec![Step::Same; last]);
    steps
}

/// Finds a shortest way by the algorithm of Myers. Returns `None` if it has too many changes.
fn shortest(old: &[&str], new: &[&str]) -> Option<Vec<Step>> {
    let limit = CHANGES.min(old.len() + new.len());
    // The farthest old line on each diagonal, for each number of changes. Diagonal `k` is at `k + limit + 1`.
    let mut farthest = vec![0_usize; 2 * limit + 3];
    let mut trace: Vec<Vec<usize>> = Vec::new();
    for changes in 0..=limit {
        trace.push(farthest.clone());
        for index in (limit + 1 - changes..=limit + 1 + changes).step_by(2) {
            let is_down = goes_down(&farthest, index, limit + 1, changes);
            let mut at_old = match is_down {
                true => at(&farthest, index + 1),
                false => at(&farthest, index - 1) + 1,
            };
            let mut at_new = (at_old + limit + 1).checked_sub(index)?;
            while old.get(at_old).is_some() && old.get(at_old) == new.get(at_new) {
                (at_old, at_new) = (at_old + 1, at_new + 1);
            }
            if let Some(known) = farthest.get_mut(index) {
                *known = at_old;
            }
            if at_old >= old.len() && at_new >= new.len() {
                return Some(way(&trace, old.len(), new.len(), limit + 1));
            }
        }
    }
    None
}

fn at(farthest: &[usize], index: usize) -> usize {
    farthest.get(index).copied().unwrap_or_default()
}

/// Returns whether the way to this diagonal comes from an added line.
fn goes_down(farthest: &[usize], index: usize, zero: usize, changes: usize) -> bool {
    index + changes == zero
        || index != zero + changes && at(farthest, index - 1) < at(farthest, index + 1)
}

/// Returns the way back from the end.
fn way(trace: &[Vec<usize>], old: usize, new: usize, zero: usize) -> Vec<Step> {
    let (mut at_old, mut at_new) = (old, new);
    let mut steps = Vec::new();
    for (changes, farthest) in trace.iter().enumerate().rev() {
        let index = (zero + at_old).saturating_sub(at_new);
        let is_down = goes_down(farthest, index, zero, changes);
        let before = match is_down {
            true => index + 1,
            false => index.saturating_sub(1),
        };
        let (from_old, from_new) = match changes {
            0 => (0, 0),
            _ => {
                let from = at(farthest, before);
                (from, (from + zero).saturating_sub(before))
            }
        };
        while at_old > from_old && at_new > from_new {
            steps.push(Step::Same);
            (at_old, at_new) = (at_old - 1, at_new - 1);
        }
        if changes > 0 {
            steps.push(match is_down {
                true => Step::Added,
                false => Step::Removed,
            });
            (at_old, at_new) = (from_old, from_new);
        }
    }
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        text.split_terminator(' ').collect()
    }

    /// Applies steps to the old lines, and returns the new ones and the number of changes.
    fn applied(old: &[&str], new: &[&str], steps: &[Step]) -> (Vec<String>, usize) {
        let (mut at_old, mut at_new, mut found) = (0, 0, Vec::new());
        for step in steps {
            match step {
                Step::Same => {
                    found.push(old[at_old].to_owned());
                    (at_old, at_new) = (at_old + 1, at_new + 1);
                }
                Step::Removed => at_old += 1,
                Step::Added => {
                    found.push(new[at_new].to_owned());
                    at_new += 1;
                }
            }
        }
        assert_eq!((at_old, at_new), (old.len(), new.len()));
        let changes = steps.iter().filter(|step| **step != Step::Same).count();
        (found, changes)
    }

    #[test]
    fn steps_lead_from_the_old_to_the_new_lines_with_the_fewest_changes() {
        for (old, new, wanted) in [
            ("", "", 0),
            ("a", "a", 0),
            ("", "a b", 2),
            ("a b", "", 2),
            ("a b c a b b a", "c b a b a c", 5),
            ("a b c", "a x c", 2),
            ("a b c d e", "b c d e f", 2),
            ("a a a", "a a", 1),
            ("x a b y", "z a b w", 4),
        ] {
            let (old, new) = (lines(old), lines(new));
            let steps = steps(&old, &new);
            let (found, changes) = applied(&old, &new, &steps);
            assert_eq!(found, new, "{old:?}");
            assert_eq!(changes, wanted, "{old:?} {new:?}");
        }
    }

    #[test]
    fn too_many_changes_are_one_replacement() {
        let (old, new): (Vec<String>, Vec<String>) = (0..CHANGES)
            .map(|number| (format!("old {number}"), format!("new {number}")))
            .unzip();
        let (old, new): (Vec<&str>, Vec<&str>) = (
            old.iter().map(String::as_str).collect(),
            new.iter().map(String::as_str).collect(),
        );
        let (found, changes) = applied(&old, &new, &steps(&old, &new));
        assert_eq!(found, new);
        assert_eq!(changes, 2 * CHANGES);
    }

    #[test]
    fn a_hunk_has_the_lines_around_its_changes() {
        let old: Vec<String> = (1..=30).map(|number| number.to_string()).collect();
        let mut new = old.clone();
        new[4] = "five".to_owned();
        new.remove(20);
        let found = hunks(&old.join("\n"), &new.join("\n"));
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0],
            Hunk {
                old_start: 2,
                old_lines: 7,
                new_start: 2,
                new_lines: 7,
                lines: [" 2", " 3", " 4", "-5", "+five", " 6", " 7", " 8"]
                    .map(str::to_owned)
                    .to_vec(),
            }
        );
        assert_eq!((found[1].old_start, found[1].new_start), (18, 18));
        assert_eq!((found[1].old_lines, found[1].new_lines), (7, 6));
    }

    #[test]
    fn files_are_added_removed_changed_or_left_out() {
        let file = |name: &str, content: &str| File {
            filename: name.to_owned(),
            content: content.to_owned(),
        };
        let old = [file("a", "1\n"), file("b", "1"), file("c", "1")];
        let new = [file("a", "1\n"), file("b", "2"), file("d", "1")];
        let found = diff(&old, &new);
        let found: Vec<(&str, Change)> = found
            .iter()
            .map(|file| (file.filename.as_str(), file.change))
            .collect();
        assert_eq!(
            found,
            [
                ("b", Change::Changed),
                ("c", Change::Removed),
                ("d", Change::Added)
            ]
        );
    }
}
