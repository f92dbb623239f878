//! The changed lines, for people who approve them.

use git::edits::DIFF_LIMIT;

use super::files::PlannedLine;

/// Maximum length of a line, in characters.
const LINE: usize = 200;

/// Returns the changed lines as a diff without context: lines around them may contain secrets. If the scalar
/// shares its line with other fields, the path of the field replaces the line. `clean` masks secrets.
pub(super) fn of(edits: &[PlannedLine], clean: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut file = "";
    for edit in edits {
        let planned = &edit.planned;
        let mut part = String::new();
        if file != planned.file {
            file = &planned.file;
            part.push_str(&format!("--- a/{file}\n+++ b/{file}\n"));
        }
        let line = planned.line;
        part.push_str(&format!("@@ -{line} +{line} @@\n"));
        let (before, after) = if edit.is_in_flow {
            let field = |value: &str| format!("{}: {value}", planned.field_path);
            (field(&planned.from), field(&planned.to))
        } else {
            (edit.before.clone(), edit.after.clone())
        };
        part.push_str(&format!(
            "-{}\n+{}\n",
            cut(&clean(&before)),
            cut(&clean(&after))
        ));
        if text.len() + part.len() + 4 > DIFF_LIMIT {
            text.push_str("…\n");
            break;
        }
        text.push_str(&part);
    }
    text
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use git::edits::{DocumentRef, PlannedEdit};

    use super::*;

    fn edit(file: &str, line: u32, is_in_flow: bool) -> PlannedLine {
        PlannedLine {
            planned: PlannedEdit {
                file: file.to_owned(),
                document: DocumentRef::default(),
                field_path: "spec.version".to_owned(),
                from: "1.2.0".to_owned(),
                to: "1.3.0".to_owned(),
                line,
                has_automation_marker: false,
            },
            is_in_flow,
            before: "  version: 1.2.0 # old".to_owned(),
            after: "  version: 1.3.0 # old".to_owned(),
        }
    }

    #[test]
    fn lines_are_shown_alone() {
        let edits = [
            edit("a.yaml", 3, false),
            edit("a.yaml", 9, true),
            edit("b.yaml", 1, false),
        ];
        assert_eq!(
            of(&edits, str::to_owned),
            "--- a/a.yaml\n+++ b/a.yaml\n\
             @@ -3 +3 @@\n-  version: 1.2.0 # old\n+  version: 1.3.0 # old\n\
             @@ -9 +9 @@\n-spec.version: 1.2.0\n+spec.version: 1.3.0\n\
             --- a/b.yaml\n+++ b/b.yaml\n\
             @@ -1 +1 @@\n-  version: 1.2.0 # old\n+  version: 1.3.0 # old\n"
        );
    }

    #[test]
    fn long_diffs_are_cut() {
        let mut long = edit("a.yaml", 1, false);
        long.before = "é".repeat(5000);
        let edits: Vec<PlannedLine> = (1..=16)
            .map(|line| PlannedLine {
                planned: edit("a.yaml", line, false).planned,
                ..long.clone()
            })
            .collect();
        let text = of(&edits, str::to_owned);
        assert!(text.len() <= DIFF_LIMIT, "{}", text.len());
        assert!(text.ends_with("…\n"), "{text}");
    }
}
