//! `docs/requirements.md` is complete and claims nothing that is not there; and what the other
//! pages name exists.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use testkit::layout;

/// The rows that must be there: how their ids begin, the first and the last number.
const ROWS: &[(&str, u32, u32)] = &[
    ("S0.", 1, 9),
    ("S1.", 1, 13),
    ("S2.", 1, 12),
    ("S3.", 1, 12),
    ("S4.", 1, 11),
    ("R", 1, 23),
    ("R", 30, 42),
    ("R", 50, 57),
    ("R", 60, 70),
];

/// The folders with code of ours.
const CODE: &[&str] = &["crates", "examples", "testbed", "tests", "xtask"];

/// The topics of the developer's guide (S2.12), by their pages.
const GUIDE: &[&str] = &[
    "architecture.md",
    "developing/reconcile-loop.md",
    "developing/errors.md",
    "developing/status.md",
    "developing/finalizers.md",
    "developing/ownership.md",
    "developing/events.md",
    "developing/caching.md",
    "developing/rate-limits.md",
    "developing/testing.md",
    "developing/debugging.md",
    "developing/practices.md",
];

fn ids() -> Vec<String> {
    let of = |(start, first, last): &(&str, u32, u32)| {
        let is_regression = *start == "R";
        (*first..=*last)
            .map(|number| match is_regression {
                true => format!("R{number:02}"),
                false => format!("{start}{number}"),
            })
            .collect::<Vec<_>>()
    };
    ROWS.iter().flat_map(of).collect()
}

/// One row of the list.
struct Row {
    id: String,
    status: String,
    proof: String,
    open: String,
}

/// The rows whose first cell is an id.
fn rows(page: &str) -> Result<Vec<Row>> {
    let is_id = |cell: &str| {
        let mut letters = cell.chars();
        matches!(letters.next(), Some('S' | 'R'))
            && letters.all(|letter| letter.is_ascii_digit() || letter == '.')
    };
    let mut rows = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if !cells.first().is_some_and(|cell| is_id(cell)) {
            continue;
        }
        let [id, asked, status, proof, open] = cells[..] else {
            anyhow::bail!("'{line}' has {} cells instead of 5", cells.len());
        };
        ensure!(!asked.is_empty(), "{id}: nothing is asked");
        rows.push(Row {
            id: id.to_owned(),
            status: status.to_owned(),
            proof: proof.to_owned(),
            open: open.to_owned(),
        });
    }
    Ok(rows)
}

/// What is between single backticks, outside of fenced blocks.
fn inline_code(page: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            found.extend(line.split('`').skip(1).step_by(2));
        }
    }
    found
}

/// All files below a folder whose name ends so.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, ending)?);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Whether this text of a source file has a test of this name.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let begins = format!("fn {name}(");
    let is_test = |index: usize| {
        lines[..index]
            .iter()
            .rev()
            .take_while(|line| line.starts_with('#') || line.starts_with("//"))
            .any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
    };
    (0..lines.len()).any(|index| lines[index].contains(&begins) && is_test(index))
}

/// Whether a suite of `cargo xtask` has a case of this name; with an id, one that shows it.
fn has_case(source: &str, name: &str, id: Option<&str>) -> bool {
    [
        "name: ",
        "case(",
        "case!(",
        "case!(\n            ",
        "on_bench!(",
        "on_bench!(\n            ",
        "on_scene!(",
        "on_scene!(\n            ",
        "on_stage!(",
        "on_stage!(\n            ",
        "alone!(",
        "alone!(\n            ",
    ]
    .iter()
    .any(|before| {
        let begins = format!("{before}\"{name}\"");
        source.match_indices(&begins).any(|(index, _)| {
            let shows = source[index + begins.len()..].trim_start_matches([',', ' ', '\n']);
            id.is_none_or(|id| shows.starts_with(&format!("\"{id}: ")))
        })
    })
}

/// The folders with the commands of `cargo xtask`.
const COMMANDS: &[&str] = &["testbed/src", "tests/suites/src", "xtask/src"];

/// The code of all commands of `cargo xtask`.
fn commands(root: &Path) -> Result<String> {
    let mut sources = String::new();
    for folder in COMMANDS {
        sources.push_str(&code(&root.join(folder))?);
    }
    Ok(sources)
}

/// The code below a folder.
fn code(folder: &Path) -> Result<String> {
    let mut sources = String::new();
    for file in files(folder, ".rs")? {
        sources.push_str(&fs::read_to_string(file)?);
    }
    Ok(sources)
}

/// The code of one suite, such as `e2e docs`: the file of that name and the folder beside it. A
/// case of the same name in another suite proves nothing.
fn suite(root: &Path, command: &str) -> Result<String> {
    let mut names = vec![command];
    // The suite that installs the chart renders it first.
    if command == "e2e install" {
        names.push("e2e chart");
    }
    let mut sources = String::new();
    for name in names {
        let path = root.join("tests/suites/src").join(name.replace(' ', "/"));
        let file = path.with_extension("rs");
        if file.is_file() {
            sources.push_str(&fs::read_to_string(file)?);
        }
        if path.is_dir() {
            sources.push_str(&code(&path)?);
        }
    }
    Ok(sources)
}

/// What is wrong with one proof; nothing if it is there.
fn wrong(root: &Path, proof: &str) -> Result<Option<String>> {
    let (place, name) = match proof.split_once(": ") {
        Some((place, name)) => (place, Some(name)),
        None => (proof, None),
    };
    let is_there = if let Some(command) = place.strip_prefix("cargo xtask ") {
        let sources = commands(root)?;
        let is_command = command.split(' ').all(|word| {
            let (first, rest) = word.split_at(1);
            let variant = format!("\n    {}{rest}", first.to_uppercase());
            sources.contains(&variant)
        });
        let has_case = |name| Ok::<_, anyhow::Error>(has_case(&suite(root, command)?, name, None));
        is_command && name.map_or(Ok(true), has_case)?
    } else {
        let path = root.join(place);
        let source = if path.is_file() {
            fs::read_to_string(path)?
        } else {
            String::new()
        };
        name.is_some_and(|name| has_test(&source, name))
    };
    Ok((!is_there).then(|| format!("there is no '{proof}'")))
}

/// What is wrong with the list.
fn problems(root: &Path, page: &str) -> Result<Vec<String>> {
    let rows = rows(page)?;
    let wanted = ids();
    let mut problems = Vec::new();
    let found: Vec<&String> = rows.iter().map(|row| &row.id).collect();
    for id in &wanted {
        match found.iter().filter(|one| **one == id).count() {
            1 => {}
            count => problems.push(format!("{id} has {count} rows")),
        }
    }
    for Row {
        id,
        status,
        proof,
        open,
    } in &rows
    {
        if !wanted.contains(id) {
            problems.push(format!("{id}: nobody asked for it"));
        }
        let proofs = inline_code(proof);
        for proof in &proofs {
            problems.extend(wrong(root, proof)?.map(|why| format!("{id}: {why}")));
        }
        let mut carries_id = false;
        for (place, name) in proofs.iter().filter_map(|proof| proof.split_once(": ")) {
            let cases = match place.strip_prefix("cargo xtask ") {
                Some(command) => suite(root, command)?,
                None => String::new(),
            };
            carries_id |=
                name.starts_with(&id.to_lowercase()) || has_case(&cases, name, Some(id.as_str()));
        }
        let fault = match status.as_str() {
            "proven" if proofs.is_empty() => "is proven without a proof",
            "proven" if !open.is_empty() => "is proven and still open",
            "proven" if id.starts_with('R') && !carries_id => {
                "is proven without a test that carries its id"
            }
            "partly" if proofs.is_empty() => "is partly proven without a proof",
            "partly" | "not yet" if open.is_empty() => "does not say what is still open",
            "not yet" if !proof.is_empty() => "is not yet proven and has a proof",
            "proven" | "partly" | "not yet" => continue,
            _ => "has an unknown status",
        };
        problems.push(format!("{id} {fault}"));
    }
    Ok(problems)
}

#[test]
fn every_row_is_there_and_claims_only_what_exists() -> Result<()> {
    let root = layout::repository();
    let page = fs::read_to_string(root.join("docs/requirements.md"))?;
    let problems = problems(root, &page)?;
    ensure!(
        problems.is_empty(),
        "docs/requirements.md:\n{}",
        problems.join("\n")
    );
    Ok(())
}

#[test]
fn a_row_that_claims_too_much_is_found() -> Result<()> {
    let this = "tests/testkit/tests/requirements.rs";
    let test = format!("`{this}: a_row_that_claims_too_much_is_found`");
    let table = [
        (format!("| S0.1 | a | proven | {test} | |"), ""),
        (
            format!("| S0.1 | a | partly | {test}, `cargo xtask check` | b |"),
            "",
        ),
        (
            "| S0.1 | a | proven | `cargo xtask e2e install` | |".to_owned(),
            "",
        ),
        ("| S0.1 | a | not yet | | b |".to_owned(), ""),
        (
            "| S0.1 | a | proven | in words | |".to_owned(),
            "without a proof",
        ),
        (format!("| S0.1 | a | proven | {test} | b |"), "still open"),
        (format!("| R01 | a | proven | {test} | |"), "carries its id"),
        ("| S0.1 | a | partly | | b |".to_owned(), "without a proof"),
        (
            format!("| S0.1 | a | partly | {test} | |"),
            "what is still open",
        ),
        (
            format!("| S0.1 | a | not yet | {test} | b |"),
            "has a proof",
        ),
        (format!("| S0.1 | a | done | {test} | |"), "unknown status"),
        (format!("| S9.1 | a | proven | {test} | |"), "nobody asked"),
        (
            format!("| S0.1 | a | proven | `{this}: rows` | |"),
            "there is no",
        ),
        (format!("| S0.1 | a | proven | `{this}` | |"), "there is no"),
        (
            "| S0.1 | a | proven | `no/such.rs: rows` | |".to_owned(),
            "there is no",
        ),
        (
            "| S0.1 | a | proven | `cargo xtask guess` | |".to_owned(),
            "there is no",
        ),
        (
            "| S0.1 | a | proven | `cargo xtask e2e install: guess` | |".to_owned(),
            "there is no",
        ),
        (
            "| S0.1 | a | proven | `cargo xtask e2e tenants: kill-ask` | |".to_owned(),
            "there is no",
        ),
        (
            "| S0.1 | a | proven | `cargo xtask e2e docs: kill-ask` | |".to_owned(),
            "",
        ),
        (
            "| R20 | a | proven | `cargo xtask e2e tenants: name-taken` | |".to_owned(),
            "carries its id",
        ),
    ];
    for (row, wanted) in table {
        let found = problems(layout::repository(), &row)?;
        let found: Vec<&String> = found
            .iter()
            .filter(|one| !one.ends_with("has 0 rows"))
            .collect();
        match found[..] {
            [] => ensure!(wanted.is_empty(), "nothing was found in '{row}'"),
            [one] => ensure!(!wanted.is_empty() && one.contains(wanted), "'{row}': {one}"),
            _ => anyhow::bail!("'{row}': {found:?}"),
        }
    }
    let twice = problems(
        layout::repository(),
        &format!("{0}{0}", "| S0.1 | a | not yet | | b |\n"),
    )?;
    ensure!(twice.contains(&"S0.1 has 2 rows".to_owned()) && twice.len() == ids().len());
    ensure!(
        rows("| S0.1 | a | proven |").is_err(),
        "a row without its cells"
    );
    Ok(())
}

#[test]
fn a_case_is_known_by_its_name_and_by_what_it_shows() {
    let source = "case!(\n            \"quiet\",\n            \"R07: nothing is written\",\n) \
                  case!(\"retry\", \"two failures\", end::retry) Check { name: \"kept\", } \
                  on_bench!(\"success\", \"R01: it succeeds\", end::success) \
                  on_stage!(\n            \"at-once\",\n            \"R21: 50 submissions\",\n)";
    for (name, id, wanted) in [
        ("quiet", None, true),
        ("quiet", Some("R07"), true),
        ("quiet", Some("R08"), false),
        ("retry", None, true),
        ("retry", Some("R07"), false),
        ("kept", None, true),
        ("success", Some("R01"), true),
        ("at-once", Some("R21"), true),
        ("R07: nothing is written", None, false),
        ("gone", None, false),
    ] {
        assert_eq!(has_case(source, name, id), wanted, "{name} {id:?}");
    }
}

#[test]
fn s2_12_the_guide_has_a_page_for_each_topic() -> Result<()> {
    let docs = layout::repository().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md"))?;
    for page in GUIDE {
        ensure!(docs.join(page).is_file(), "{page} is missing");
        ensure!(
            summary.contains(&format!("]({page})")),
            "{page} is not in the summary"
        );
    }
    Ok(())
}

/// Cargo runs no test of a program with `test = false`, and no example in the docs of a library with
/// `doctest = false`.
#[test]
fn there_are_no_tests_where_cargo_is_told_to_run_none() -> Result<()> {
    let is_example = |line: &&str| {
        let text = line.trim_start();
        let text = text
            .strip_prefix("///")
            .or_else(|| text.strip_prefix("//!"));
        text.is_some_and(|text| text.trim().starts_with("```"))
    };
    let (mut libraries, mut programs) = (0, 0);
    let mut manifests = Vec::new();
    for folder in CODE {
        manifests.extend(files(&layout::repository().join(folder), "Cargo.toml")?);
    }
    for manifest in manifests {
        let settings = fs::read_to_string(&manifest)?;
        let sources = manifest
            .parent()
            .context("a file is in a folder")?
            .join("src");
        if settings.contains("\ndoctest = false\n") {
            libraries += 1;
            for file in files(&sources, ".rs")? {
                let text = fs::read_to_string(&file)?;
                let fences: Vec<&str> = text.lines().filter(is_example).collect();
                let is_run = fences
                    .iter()
                    .step_by(2)
                    .any(|fence| !fence.ends_with("```text"));
                ensure!(!is_run, "{}: no one runs its example", file.display());
            }
        }
        if settings.contains("\ntest = false\n") {
            programs += 1;
            let main = fs::read_to_string(sources.join("main.rs"))?;
            ensure!(
                !main.contains("#[test]") && !main.contains("\nmod "),
                "{}",
                manifest.display()
            );
        }
    }
    ensure!(libraries > 0 && programs > 0, "nothing was looked at");
    Ok(())
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn each_path(path: &str) -> Vec<String> {
    match path
        .split_once('{')
        .and_then(|(head, rest)| Some((head, rest.split_once('}')?)))
    {
        Some((head, (names, tail))) => names
            .split(',')
            .map(|name| format!("{head}{}{tail}", name.trim()))
            .collect(),
        None => vec![path.to_owned()],
    }
}

#[test]
fn tests_paths_and_pages_that_the_docs_name_exist() -> Result<()> {
    let root = layout::repository();
    let mut sources = String::new();
    for folder in CODE {
        for file in files(&root.join(folder), ".rs")? {
            sources.push_str(&fs::read_to_string(file)?);
        }
    }
    let mut missing = Vec::new();
    for page in files(&root.join("docs"), ".md")? {
        let text = fs::read_to_string(&page)?;
        for code in inline_code(&text) {
            // Names of this length are those of tests; metrics are told apart by their prefix.
            let is_name = code.matches('_').count() > 2
                && !code.starts_with("orchestrator_")
                && code
                    .chars()
                    .all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
            if is_name && !sources.contains(&format!("fn {code}(")) {
                missing.push(format!("{}: no test '{code}'", page.display()));
            }
            let is_path = CODE
                .iter()
                .any(|folder| code.starts_with(&format!("{folder}/")))
                && !code.contains(['<', ':', '*', ' ']);
            for path in each_path(code)
                .iter()
                .filter(|path| is_path && !root.join(path).exists())
            {
                missing.push(format!("{}: no file '{path}'", page.display()));
            }
        }
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once(')')?.0));
        for link in links.filter(|link| !link.contains("://")) {
            let file = link.split('#').next().unwrap_or_default();
            let target = page.parent().context("a page is in a folder")?.join(file);
            if file.ends_with(".md") && !target.exists() {
                missing.push(format!("{}: no page '{file}'", page.display()));
            }
        }
    }
    ensure!(missing.is_empty(), "{}", missing.join("\n"));
    Ok(())
}
