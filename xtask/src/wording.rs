//! `cargo xtask wording`: counts words that stand for a missing noun, in pages and comments.
//!
//! The guide is docs/developing/writing.md. A text with more than the limits of its groups fails the check.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use testbed::build;
use testkit::layout;

/// Words that are counted together.
struct Group {
    name: &'static str,
    words: &'static [&'static str],
    /// The most occurrences in 1,000 words.
    limit: f64,
}

const GROUPS: [Group; 4] = [
    Group {
        name: "what",
        words: &["what", "whatever"],
        limit: 2.0,
    },
    Group {
        name: "say",
        words: &[
            "say", "says", "saying", "said", "tell", "tells", "telling", "told", "words",
        ],
        limit: 1.0,
    },
    Group {
        name: "who",
        words: &["who", "whose", "whom", "whoever"],
        limit: 1.0,
    },
    Group {
        name: "look",
        words: &["look", "looks", "looked", "looking"],
        limit: 1.0,
    },
];

/// Phrases that have a plain form.
const BANNED: &[(&str, &str)] = &[
    ("made anew", "recreated"),
    ("colour", "color"),
    ("licence", "license"),
    ("gravest", "most severe"),
];

/// Prints the counts; fails above a limit and at a banned phrase.
pub(crate) fn run() -> Result<ExitCode> {
    let files = files()?;
    let mut too_many = Vec::new();
    println!("of 1,000 words:  what   say   who  look");
    for text in &texts()? {
        let words = words_of(text, &files)?;
        ensure!(!words.is_empty(), "'{text}' has no text");
        let counts = counts(&words);
        let columns: String = counts.iter().map(|count| format!("{count:>6.1}")).collect();
        println!("{text:<15}{columns}");
        for (Group { name, limit, .. }, count) in GROUPS.iter().zip(counts) {
            if count > *limit {
                too_many.push(format!(
                    "{text}: '{name}' {count:.1} times in 1,000 words, at most {limit}"
                ));
            }
        }
    }
    too_many.extend(banned(&files)?);
    for line in &too_many {
        println!("{line}; see docs/developing/writing.md");
    }
    Ok(if too_many.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The comments of each product crate, then the pages.
fn texts() -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(layout::repository().join("crates"))? {
        texts.push(format!("crates/{}", entry?.file_name().to_string_lossy()));
    }
    texts.push("docs".to_owned());
    texts.sort();
    Ok(texts)
}

/// All pages and sources that Git knows.
fn files() -> Result<Vec<PathBuf>> {
    let text = build::git(&["ls-files", "*.md", "*.rs"])?;
    Ok(text.lines().map(PathBuf::from).collect())
}

/// Returns whether a page is written by `cargo xtask generate` or another command, or is the guide itself, which has to
/// quote the words.
fn is_left_out(path: &Path) -> bool {
    path.starts_with("docs/reference")
        || path == Path::new("docs/developing/writing.md")
        || path.starts_with("tests/suites/src/regressions")
        || path == Path::new("xtask/src/wording.rs")
}

fn words_of(name: &str, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for path in files {
        let is_page = path.extension().is_some_and(|ending| ending == "md");
        let belongs = if name == "docs" {
            is_page
        } else {
            !is_page && path.starts_with(name)
        };
        if !belongs || is_left_out(path) {
            continue;
        }
        let text = read(path)?;
        let prose = if is_page {
            prose(&text)
        } else {
            prose(&comments(&text))
        };
        words.extend(split(&prose));
    }
    Ok(words)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(layout::repository().join(path))
        .with_context(|| format!("cannot read '{}'", path.display()))
}

/// The comments of a source file, without their marks.
fn comments(source: &str) -> String {
    let lines = source
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("//"));
    let lines = lines.map(|line| line.trim_start_matches(['/', '!']).trim_start());
    lines.collect::<Vec<_>>().join("\n")
}

/// Markdown without blocks and spans of code.
fn prose(markdown: &str) -> String {
    let mut is_code = false;
    let mut text = String::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if is_code {
            continue;
        }
        for (number, part) in line.split('`').enumerate() {
            if number % 2 == 0 {
                text.push_str(part);
            }
        }
        text.push('\n');
    }
    text
}

fn split(prose: &str) -> impl Iterator<Item = String> {
    let words = prose.split(|letter: char| !letter.is_alphabetic() && letter != '\'');
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_lowercase)
}

/// How often each group occurs in 1,000 words.
fn counts(words: &[String]) -> [f64; 4] {
    GROUPS.map(|group| {
        let found = words.iter();
        let found = found.filter(|word| group.words.contains(&word.as_str()));
        found.count() as f64 * 1000.0 / words.len() as f64
    })
}

/// Where banned phrases are: in pages, comments and messages.
fn banned(files: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in files.iter().filter(|path| !is_left_out(path)) {
        for (number, line) in read(path)?.lines().enumerate() {
            let line = line.to_lowercase();
            for (phrase, instead) in BANNED {
                if line.contains(phrase) {
                    found.push(format!(
                        "{}:{}: '{phrase}' instead of '{instead}'",
                        path.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comments_count_and_no_code_in_them() {
        let source = "//! What it is.\nlet what = \"what\";\n    /// Says `what`.\n// ```\n// what\n// ```\n";
        let words: Vec<String> = split(&prose(&comments(source))).collect();
        assert_eq!(words, ["what", "it", "is", "says"]);
    }

    #[test]
    fn groups_are_counted_per_thousand_words() {
        let words: Vec<String> = split("What he said, whose words are told. Fine").collect();
        assert_eq!(words.len(), 8);
        assert_eq!(counts(&words), [125.0, 375.0, 125.0, 0.0]);
    }
}
