//! Golden files, recorded worlds and the schema: files that must match the code.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use why::{Explanation, World, explain, render};

use crate::all;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// Compares the text with the file, or writes the file.
fn same(path: &Path, text: &str) {
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, text).unwrap();
        return;
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == text,
        "{} differs; read the new text and run with UPDATE_GOLDEN=1:\n--- found\n{found}\n--- wanted\n{text}",
        path.display()
    );
}

fn golden(name: &str, world: &World) {
    let text = render(&explain(world), 100, false);
    same(&folder("golden").join(format!("{name}.txt")), &text);
}

#[test]
fn each_world_reads_as_its_golden() {
    for case in all() {
        golden(case.name, &case.world);
    }
}

/// Compares worlds that were recorded from real clusters: see `tests/worlds/README.md`.
#[test]
fn each_recorded_world_reads_as_its_golden() {
    for (name, world) in recorded() {
        golden(&name, &world);
    }
}

fn recorded() -> Vec<(String, World)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder("worlds")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "json") {
            let text = fs::read_to_string(&path).unwrap();
            let world = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            found.push((name, world));
        }
    }
    found
}

#[test]
fn no_golden_is_left_over_and_no_name_is_taken_twice() {
    let mut known: BTreeSet<String> = BTreeSet::new();
    let cases = all().into_iter().map(|case| case.name.to_owned());
    for name in cases.chain(recorded().into_iter().map(|(name, _)| name)) {
        assert!(known.insert(name.clone()), "{name} twice");
    }
    for entry in fs::read_dir(folder("golden")).unwrap() {
        let name = entry
            .unwrap()
            .path()
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        assert!(
            known.contains(&name),
            "golden/{name}.txt belongs to no world"
        );
    }
}

#[test]
fn the_schema_does_not_drift() {
    let schema = schemars::schema_for!(Explanation);
    let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/why.schema.json");
    same(&path, &text);
}

/// The examples in the docs must match the real output.
#[test]
fn the_docs_show_a_golden() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/why.md");
    let docs = fs::read_to_string(path).unwrap();
    for name in ["secret-missing.txt", "tenant-policy-not-enforced.txt"] {
        let golden = fs::read_to_string(folder("golden").join(name)).unwrap();
        assert!(
            docs.contains(&golden),
            "docs/reference/why.md has another example:\n{golden}"
        );
    }
}
