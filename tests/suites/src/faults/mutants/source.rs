//! The source of the operator with the mutants: the repository's files with the edits of `tests/mutants`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use crate::source_edits::Edit;

/// The edits, in files that `README.md` beside them explains.
const EDITS: &str = "tests/mutants/edits";

/// Files that only the copy has, by their paths in it.
const FILES: &str = "tests/mutants/files";

/// An edit that puts mutants into a file.
#[derive(Debug, PartialEq, Eq)]
struct MutantEdit {
    /// File and line of the edit itself.
    place: String,
    /// The names of the mutants, or `every mutant` for an edit that all of them need, such as an import.
    mutants: Vec<String>,
    file: String,
    old: String,
    new: String,
}

impl MutantEdit {
    /// Returns the text of its file with the edit. `earlier` is the text with earlier edits.
    fn applied(&self, repository: &Path, earlier: Option<&String>) -> Result<String> {
        let edit = Edit {
            file: &self.file,
            old: &self.old,
            new: &self.new,
        };
        match earlier {
            Some(text) => edit.applied(text),
            None => {
                let text = fs::read_to_string(repository.join(&self.file))
                    .with_context(|| format!("cannot read '{}'", self.file))?;
                edit.applied(&text)
            }
        }
    }
}

/// Returns the texts of all edited and added files, by their paths in the repository.
///
/// # Errors
/// When edits do not fit. The message names all of them.
pub(super) fn texts(repository: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut texts: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut wrong = Vec::new();
    for edit in edits(repository)? {
        let path = PathBuf::from(&edit.file);
        match edit.applied(repository, texts.get(&path)) {
            Ok(text) => {
                texts.insert(path, text);
            }
            Err(error) => wrong.push(format!(
                "{}: the edit of '{}' does not fit: {error:#}",
                edit.place,
                edit.mutants.join("', '")
            )),
        }
    }
    ensure!(
        wrong.is_empty(),
        "{}\nThe edited code has changed. Write its present lines into the edit, as '-' lines and as context; \
         see tests/mutants/README.md",
        wrong.join("\n")
    );
    let folder = repository.join(FILES);
    add_files(&folder, &folder, &mut texts)?;
    Ok(texts)
}

/// Adds the files below `folder`, by their paths below `root`.
fn add_files(root: &Path, folder: &Path, texts: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let entries = fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot read '{}'", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            add_files(root, &path, texts)?;
        } else {
            let text = fs::read_to_string(&path)?;
            texts.insert(path.strip_prefix(root)?.to_owned(), text);
        }
    }
    Ok(())
}

/// Returns all edits, in the order of the names of their files.
fn edits(repository: &Path) -> Result<Vec<MutantEdit>> {
    let mut names = Vec::new();
    let entries = fs::read_dir(repository.join(EDITS));
    for entry in entries.with_context(|| format!("cannot read '{EDITS}'"))? {
        names.push(format!("{EDITS}/{}", entry?.file_name().to_string_lossy()));
    }
    names.sort();
    let mut edits = Vec::new();
    for name in names {
        let text = fs::read_to_string(repository.join(&name))
            .with_context(|| format!("cannot read '{name}'"))?;
        edits.extend(parse(&name, &text)?);
    }
    Ok(edits)
}

/// Reads a file of edits: `--- FILE`, then for each edit `@@ MUTANT, MUTANT` and its lines as in a diff.
fn parse(name: &str, text: &str) -> Result<Vec<MutantEdit>> {
    let mut edits: Vec<MutantEdit> = Vec::new();
    let mut file = None;
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        if let Some(path) = line.strip_prefix("--- ") {
            file = Some(path);
            is_open = false;
        } else if let Some(mutants) = line.strip_prefix("@@ ") {
            let file = file.with_context(|| format!("{place}: no line '--- FILE' before it"))?;
            edits.push(MutantEdit {
                place,
                mutants: mutants.split(", ").map(str::to_owned).collect(),
                file: file.to_owned(),
                old: String::new(),
                new: String::new(),
            });
            is_open = true;
        } else {
            let open = edits.last_mut().filter(|_| is_open);
            let edit = open.with_context(|| format!("{place}: no line '@@ MUTANTS' before it"))?;
            let (is_old, is_new, rest) = match line.split_at_checked(1) {
                Some((" ", rest)) => (true, true, rest),
                Some(("-", rest)) => (true, false, rest),
                Some(("+", rest)) => (false, true, rest),
                // Editors remove the space of an empty line of context.
                None if line.is_empty() => (true, true, ""),
                Some(_) | None => bail!("{place}: a line must begin with ' ', '-' or '+'"),
            };
            for (is_meant, part) in [(is_old, &mut edit.old), (is_new, &mut edit.new)] {
                if is_meant {
                    part.push_str(rest);
                    part.push('\n');
                }
            }
        }
    }
    for MutantEdit { old, new, .. } in &mut edits {
        // Empty lines between edits are no context.
        while old.ends_with("\n\n") && new.ends_with("\n\n") {
            old.pop();
            new.pop();
        }
    }
    Ok(edits)
}

#[cfg(test)]
mod tests {
    use ::mutant::Mutant;
    use testkit::layout;

    use super::*;

    /// Stands for the names of mutants in an edit that all of them need.
    const EVERY: &str = "every mutant";

    #[test]
    fn every_edit_fits_the_repository() {
        let texts = texts(layout::repository()).unwrap();
        let program = &texts[Path::new("crates/operator/src/bin/mutants.rs")];
        assert!(program.contains("operator::main()"), "{program}");
        let manifest = &texts[Path::new("crates/operator/Cargo.toml")];
        assert!(manifest.contains("orchestrator-mutants"), "{manifest}");
    }

    #[test]
    fn every_mutant_has_an_edit_with_its_switch() {
        let edits = edits(layout::repository()).unwrap();
        for mutant in Mutant::ALL {
            let id = mutant.about().id;
            let switch = format!("mutant::on(Mutant::{mutant:?})");
            let is_switch = |edit: &&MutantEdit| edit.new.contains(&switch);
            assert!(edits.iter().any(|edit| is_switch(&edit)), "{id}");
            for edit in edits.iter().filter(is_switch) {
                let is_named = edit.mutants.iter().any(|name| name == id);
                assert!(is_named, "{}: '{id}' is not named", edit.place);
            }
        }
        for edit in &edits {
            let is_every = edit.mutants == [EVERY];
            let are_known = edit.mutants.iter().all(|id| Mutant::named(id).is_some());
            assert!(is_every || are_known, "{}: {:?}", edit.place, edit.mutants);
            assert_ne!(edit.old, edit.new, "{}", edit.place);
        }
    }

    #[test]
    fn no_product_crate_has_a_mutant() {
        fn check(folder: &Path) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    check(&path);
                    continue;
                }
                let name = path.file_name().unwrap().to_string_lossy();
                if name.ends_with(".rs") || name == "Cargo.toml" {
                    let text = fs::read_to_string(&path).unwrap();
                    for word in ["mutant::", "Mutant::", "mutant.workspace", "mutant ="] {
                        assert!(!text.contains(word), "'{word}' in {}", path.display());
                    }
                }
            }
        }
        check(&layout::repository().join("crates"));
    }

    #[test]
    fn edits_are_read_like_a_diff() {
        let text = "--- a.rs\n@@ one, two\n a\n\n-b\n+c\n d\n\n@@ every mutant\n+use x;\n e\n--- b.rs\n@@ one\n-f\n+\n";
        let edit = |line: usize, mutants: &[&str], file: &str, old: &str, new: &str| MutantEdit {
            place: format!("x.diff:{line}"),
            mutants: mutants.iter().map(|name| (*name).to_owned()).collect(),
            file: file.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
        };
        let wanted = [
            edit(2, &["one", "two"], "a.rs", "a\n\nb\nd\n", "a\n\nc\nd\n"),
            edit(9, &[EVERY], "a.rs", "e\n", "use x;\ne\n"),
            edit(13, &["one"], "b.rs", "f\n", "\n"),
        ];
        assert_eq!(parse("x.diff", text).unwrap(), wanted);
        for (wrong, message) in [
            ("@@ one\n", "x.diff:1: no line '--- FILE'"),
            ("--- a.rs\n a\n", "x.diff:2: no line '@@ MUTANTS'"),
            ("--- a.rs\n@@ one\na\n", "x.diff:3: a line must begin"),
            ("--- a.rs\n@@ one\n a\n--- b.rs\n a\n", "x.diff:5: no line"),
        ] {
            let error = parse("x.diff", wrong).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn an_edit_that_does_not_fit_names_its_mutants_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a.rs", "one\ntwo\n");
        write("tests/mutants/files/new/b.rs", "added\n");
        write(
            "tests/mutants/edits/a.diff",
            "--- a.rs\n@@ first\n-one\n+1\n@@ second\n 1\n-two\n+2\n",
        );
        let all = texts(folder.path()).unwrap();
        assert_eq!(all[Path::new("a.rs")], "1\n2\n");
        assert_eq!(all[Path::new("new/b.rs")], "added\n");

        write("a.rs", "one\nthree\n");
        let error = texts(folder.path()).unwrap_err().to_string();
        for part in [
            "tests/mutants/edits/a.diff:5: the edit of 'second' does not fit",
            "0 times in 'a.rs'",
            "tests/mutants/README.md",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
