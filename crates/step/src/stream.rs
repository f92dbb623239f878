//! Writes the commit as a stream for `git fast-import`. No work tree, index, filter, attribute or hook is
//! involved.

use std::io::{self, Write};

use crate::plan::Plan;

/// The ref of the commit in our own repository.
pub(crate) const REF: &str = "refs/heads/publish";

/// Author and committer of the commits of DocsRuns.
pub(crate) const AUTHOR: &str = "Orchestrator <orchestrator@localhost>";

/// Writes the stream. The same input gives the same commit.
///
/// # Errors
/// When writing to `out` fails.
pub(crate) fn write(
    out: &mut dyn Write,
    author: &str,
    parent: &str,
    seconds: u64,
    message: &str,
    plan: &Plan,
) -> io::Result<()> {
    writeln!(out, "feature done")?;
    writeln!(out, "commit {REF}")?;
    writeln!(out, "committer {author} {seconds} +0000")?;
    data(out, message.as_bytes())?;
    writeln!(out, "from {parent}")?;
    // Deletions come first, because a file may replace a directory, and a directory may replace a file.
    for path in &plan.deletes {
        writeln!(out, "D {}", quoted(path))?;
    }
    for file in &plan.writes {
        let mode = if file.executable { "100755" } else { "100644" };
        writeln!(out, "M {mode} inline {}", quoted(&file.path))?;
        data(out, &file.content)?;
    }
    writeln!(out, "done")
}

fn data(out: &mut dyn Write, content: &[u8]) -> io::Result<()> {
    writeln!(out, "data {}", content.len())?;
    out.write_all(content)?;
    writeln!(out)
}

/// Quotes a path as a C string. Paths have no control characters, but this function does not rely on it.
fn quoted(path: &str) -> String {
    let mut text = String::from("\"");
    for byte in path.bytes() {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            other => text.push_str(&format!("\\{other:03o}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::Taken;

    #[test]
    fn stream_has_deletions_then_files() {
        let plan = Plan {
            writes: vec![
                Taken {
                    path: "d/a b".to_owned(),
                    executable: false,
                    content: b"one\nD \"d/x\"\n".to_vec(),
                },
                Taken {
                    path: "d/run".to_owned(),
                    executable: true,
                    content: Vec::new(),
                },
            ],
            deletes: vec!["d/old".to_owned()],
            ..Plan::default()
        };
        let mut out = Vec::new();
        write(&mut out, AUTHOR, "c0ffee", 7, "Words\n", &plan).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "feature done\n\
             commit refs/heads/publish\n\
             committer Orchestrator <orchestrator@localhost> 7 +0000\n\
             data 6\nWords\n\n\
             from c0ffee\n\
             D \"d/old\"\n\
             M 100644 inline \"d/a b\"\n\
             data 12\none\nD \"d/x\"\n\n\
             M 100755 inline \"d/run\"\n\
             data 0\n\n\
             done\n"
        );
    }

    #[test]
    fn paths_are_quoted() {
        assert_eq!(quoted("a\"b\\c"), r#""a\"b\\c""#);
        assert_eq!(quoted("a\nb"), r#""a\012b""#);
        assert_eq!(quoted("ő"), r#""\305\221""#);
    }
}
