//! The real parts of a cluster, built from pinned Go modules.
//!
//! One folder in `testbed/parts/` is one part: `go.mod` and `go.sum` pin every version, sum and
//! replacement; `part.toml` says what Go's files cannot (see [`Recipe`]). The binaries are the
//! `tool` lines of `go.mod`, or the folder's own `main.go`.

mod build;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

pub use build::{Built, build};

use crate::layout;

/// Bumped when the way of building changes so that old results are wrong.
const RECIPE_FORMAT: &str = "1";

/// `part.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The module whose version is the part's version.
    pub module: String,
    /// Build tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Linker flags beside `-s -w`; `{version}` stands for the version as in `go.mod`.
    #[serde(default)]
    pub ldflags: Vec<String>,
    /// Whether the build needs a C compiler.
    #[serde(default)]
    pub cgo: bool,
    /// Binaries whose name differs from the last element of their package: made = wanted.
    #[serde(default)]
    pub rename: BTreeMap<String, String>,
    /// Files or folders of the module that are kept beside the binaries (manifests, CRDs).
    #[serde(default)]
    pub keep: Vec<String>,
    /// The same of other modules that `go.mod` requires, by module.
    #[serde(default)]
    pub keep_of: BTreeMap<String, Vec<String>>,
}

impl Recipe {
    /// Returns the modules of which something is kept, with the kept paths.
    fn kept(&self) -> impl Iterator<Item = (&str, &[String])> {
        let own = (self.module.as_str(), self.keep.as_slice());
        let others = self.keep_of.iter();
        let others = others.map(|(module, kept)| (module.as_str(), kept.as_slice()));
        std::iter::once(own)
            .chain(others)
            .filter(|(_, kept)| !kept.is_empty())
    }
}

/// One part: its recipe, and where its result is or will be.
#[derive(Debug, Clone)]
pub struct Part {
    /// Name of its folder.
    pub name: String,
    /// Version of [`Recipe::module`].
    pub version: String,
    /// Its `part.toml`.
    pub recipe: Recipe,
    /// Folder of the recipe.
    pub source: PathBuf,
    key: String,
}

impl Part {
    /// Reads one recipe.
    ///
    /// # Errors
    /// When a file is missing or unreadable, or `go.mod` does not require the module.
    pub fn read(source: &Path) -> Result<Self> {
        let name = source
            .file_name()
            .and_then(|name| name.to_str())
            .with_context(|| format!("'{}' has no usable folder name", source.display()))?
            .to_owned();
        let text = read(&source.join("part.toml"))?;
        let recipe: Recipe =
            toml::from_str(&text).with_context(|| format!("part '{name}': part.toml"))?;
        for kept in recipe.kept().flat_map(|(_, kept)| kept) {
            ensure!(
                Path::new(kept)
                    .components()
                    .all(|part| matches!(part, std::path::Component::Normal(_))),
                "part '{name}': keep '{kept}' must be a path inside the module"
            );
        }
        let modules = read(&source.join("go.mod"))?;
        let version = required_version(&modules, &recipe.module).with_context(|| {
            format!("part '{name}': go.mod does not require '{}'", recipe.module)
        })?;
        let key = key(source)?;
        Ok(Self {
            name,
            version,
            recipe,
            source: source.to_owned(),
            key,
        })
    }

    /// All parts of this checkout, by name.
    ///
    /// # Errors
    /// As [`Part::read`].
    pub fn all() -> Result<Vec<Self>> {
        let folder = layout::testbed().join("parts");
        let mut sources = Vec::new();
        for entry in fs::read_dir(&folder)
            .with_context(|| format!("no recipes in '{}'", folder.display()))?
        {
            sources.push(entry?.path());
        }
        sources.sort();
        sources.iter().map(|source| Self::read(source)).collect()
    }

    /// Where the finished part lies in `cache`. It exists only when complete.
    pub fn folder(&self, cache: &Path) -> PathBuf {
        cache.join("parts").join(format!(
            "{}-{}-{}",
            self.name,
            self.version,
            &self.key[..12]
        ))
    }
}

/// Where the binaries and kept files of a built part are.
///
/// # Errors
/// When the part is unknown or not built, with the command that builds it.
pub fn folder_of(name: &str) -> Result<PathBuf> {
    let part = Part::read(&layout::testbed().join("parts").join(name))?;
    let folder = part.folder(&layout::cache()?);
    if !folder.is_dir() {
        bail!(
            "part '{name}' {} is not built: run 'cargo xtask testbed build'",
            part.version
        );
    }
    Ok(folder)
}

/// The path of a built binary.
///
/// # Errors
/// As [`folder_of`], or when the part has no such binary.
pub fn binary(part: &str, name: &str) -> Result<PathBuf> {
    let path = folder_of(part)?.join("bin").join(name);
    ensure!(path.is_file(), "part '{part}' has no binary '{name}'");
    Ok(path)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read '{}'", path.display()))
}

/// Hash over every file of the recipe, names and contents.
fn key(source: &Path) -> Result<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(source)? {
        files.push(entry?.path());
    }
    files.sort();
    let mut hash = Sha256::new();
    hash.update(RECIPE_FORMAT);
    for file in files {
        let content =
            fs::read(&file).with_context(|| format!("cannot read '{}'", file.display()))?;
        hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update([0]);
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(&content);
    }
    Ok(format!("{:x}", hash.finalize()))
}

/// The version that `go.mod` requires of `module`, after its replacement if it has one.
fn required_version(modules: &str, module: &str) -> Option<String> {
    let lines = || {
        modules.lines().map(str::trim).map(|line| {
            line.trim_start_matches("require ")
                .trim_start_matches("replace ")
        })
    };
    let replaced = lines().find_map(|line| {
        let (left, right) = line.split_once(" => ")?;
        (left.split_whitespace().next()? == module)
            .then(|| right.split_whitespace().nth(1).map(str::to_owned))?
    });
    replaced.or_else(|| {
        lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next()? == module)
                .then(|| words.next().map(str::to_owned))?
                .filter(|word| word.starts_with('v'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_found_in_every_form_of_go_mod() {
        let cases = [
            (
                "require k8s.io/kubernetes v1.36.3\n",
                "k8s.io/kubernetes",
                Some("v1.36.3"),
            ),
            (
                "require (\n\ta.b/c v1.0.0\n\ta.b/c/d v2.0.0 // indirect\n)\n",
                "a.b/c/d",
                Some("v2.0.0"),
            ),
            (
                "require a.b/c v1.0.0\nreplace a.b/c => e.f/c v1.0.1-fork\n",
                "a.b/c",
                Some("v1.0.1-fork"),
            ),
            (
                "replace (\n\ta.b/c => e.f/c v3.0.0\n)\n",
                "a.b/c",
                Some("v3.0.0"),
            ),
            ("tool a.b/c\nrequire a.b/cd v1.0.0\n", "a.b/c", None),
        ];
        for (text, module, wanted) in cases {
            assert_eq!(required_version(text, module).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn every_recipe_of_the_checkout_is_valid() {
        let parts = Part::all().unwrap();
        assert!(parts.iter().any(|part| part.name == "kubernetes"));
        for part in parts {
            assert!(
                part.source.join("go.sum").is_file(),
                "part '{}' has no go.sum",
                part.name
            );
            assert!(
                part.version.starts_with('v'),
                "part '{}' has version '{}'",
                part.name,
                part.version
            );
        }
    }

    #[test]
    fn key_changes_with_any_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("go.mod"), "a").unwrap();
        let first = key(folder.path()).unwrap();
        fs::write(folder.path().join("main.go"), "").unwrap();
        let second = key(folder.path()).unwrap();
        fs::write(folder.path().join("go.mod"), "b").unwrap();
        let third = key(folder.path()).unwrap();
        assert_ne!(first, second);
        assert_ne!(second, third);
    }
}
