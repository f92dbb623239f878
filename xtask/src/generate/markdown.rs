//! Markdown that shows any text as it is.

use super::NOTE;

/// The first line of a page, and its title.
pub(super) fn page(title: &str) -> String {
    format!("<!-- {NOTE} -->\n# {title}\n")
}

/// Text for a table's cell: on one line, and nothing in it is markup except code in backticks.
pub(super) fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (index, part) in text.split('`').enumerate() {
        if index > 0 {
            out.push('`');
        }
        let is_code = index % 2 == 1;
        for letter in part.chars() {
            match letter {
                // In a table, also within code.
                '|' => out.push_str("\\|"),
                '<' | '>' | '*' | '_' | '[' | ']' | '\\' if !is_code => {
                    out.push('\\');
                    out.push(letter);
                }
                other => out.push(other),
            }
        }
    }
    out
}

/// Code for a table's cell.
///
/// Caveat: code with a backtick in it would end early; nothing in the schemas has one.
pub(super) fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|").replace('\n', " "))
}

/// A table; `head` and each row are cells.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in rows {
        out.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_code_stays_code() {
        assert_eq!(
            cell("the triple <key,value>,\n\nnot a_b | `a_b|<c>`"),
            r"the triple \<key,value\>, not a\_b \| `a_b\|<c>`"
        );
        assert_eq!(code("^(a|b)$"), r"`^(a\|b)$`");
    }

    #[test]
    fn a_table_has_a_line_per_row() {
        let rows = [["1".to_owned(), "2".to_owned()]];
        assert_eq!(
            table(["a", "b"], &rows),
            "| a | b |\n|---|---|\n| 1 | 2 |\n"
        );
    }
}
