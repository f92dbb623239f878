//! `cargo xtask image --runner`: the notebook runner as an image archive, without Docker and without a registry.

#![expect(
    clippy::print_stderr,
    reason = "a command line reports its steps by printing"
)]

use std::{fs, path::Path};

use anyhow::{Result, bail, ensure};

use crate::{
    images::{self, DECLARATION, Image},
    layout,
    operator_image::{Built, REGISTRY, VERSION, placed, work_folder},
};

/// Location of the newest archive, from the repository.
pub(crate) const ARCHIVE: &str = "target/image/orchestrator-notebook-runner.tar";

/// Directory of the runner, from the repository.
const RUNNER: &str = "runner";
/// Name of the Python package, and of its directory.
const PACKAGE: &str = "notebook_runner";
const REQUIREMENTS: &str = "requirements.txt";

/// Builds the image of the notebook runner if one of its files changed.
///
/// # Caveats
/// Needs root and the network, for Debian's packages and those of `runner/requirements.txt`.
///
/// # Errors
/// When it cannot be built.
pub fn build() -> Result<Built> {
    let (folder, _lock) = work_folder()?;
    let image = declare(&folder.join("declaration/orchestrator-notebook-runner"))?;
    let archive = images::build(
        &image,
        &folder.join("archives"),
        &|source: &str| {
            bail!("the runner has no program of the workspace, but '{source}' is named")
        },
        &|step| eprintln!("{step}"),
    )?;
    Ok(Built {
        archive: placed(&archive, ARCHIVE)?,
        reference: image.reference(),
    })
}

/// Writes the declaration of `runner/image` with the tag of this version, and the files that its script installs.
fn declare(folder: &Path) -> Result<Image> {
    let runner = layout::repository().join(RUNNER);
    if folder.try_exists()? {
        // A module that was deleted in the sources must not stay in the image.
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    copy_files(&runner.join("image"), folder)?;
    fs::copy(runner.join(REQUIREMENTS), folder.join(REQUIREMENTS))?;
    let package = folder.join(PACKAGE);
    fs::create_dir(&package)?;
    copy_files(&runner.join(PACKAGE), &package)?;
    let tag = "tag = \"1\"\n";
    let declaration = fs::read_to_string(folder.join(DECLARATION))?;
    ensure!(declaration.contains(tag), "the runner has another tag");
    let declaration = declaration.replace(tag, &format!("tag = \"{VERSION}\"\n"));
    fs::write(folder.join(DECLARATION), declaration)?;
    Ok(Image::load(folder)?.in_registry(REGISTRY))
}

/// Copies the files of a directory, without its directories: Python writes `__pycache__` there.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_of_this_version_has_its_package_and_its_requirements() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("orchestrator-notebook-runner");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("stale.py"), "").unwrap();
        let image = declare(&folder).unwrap();
        let expected = format!("localhost/orchestrator-notebook-runner:{VERSION}");
        assert_eq!(image.reference(), expected);
        assert_eq!(image.sources().count(), 0);
        for file in [
            "setup.sh",
            REQUIREMENTS,
            "notebook_runner/__main__.py",
            "notebook_runner/settings.schema.json",
        ] {
            assert!(folder.join(file).is_file(), "{file}");
        }
        assert!(!folder.join("stale.py").exists());
        assert!(!folder.join(PACKAGE).join("__pycache__").exists());
    }

    /// pip accepts a requirement without a hash only if no other one has any.
    #[test]
    fn each_requirement_is_pinned_with_a_hash() {
        for name in [REQUIREMENTS, "requirements-test.txt"] {
            let path = layout::repository().join(RUNNER).join(name);
            let text = fs::read_to_string(path).unwrap();
            let requirements = text.replace("\\\n", " ");
            let lines = requirements
                .lines()
                .filter(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric()));
            let mut count = 0;
            for line in lines {
                assert!(
                    line.contains("==") && line.contains("--hash=sha256:"),
                    "{line}"
                );
                count += 1;
            }
            assert!(count > 10, "{name} has {count} requirements");
        }
    }

    /// The other way to build the image installs the same requirements for the same Python.
    #[test]
    fn the_containerfile_has_the_runner() {
        let containerfile = fs::read_to_string(layout::repository().join("Containerfile")).unwrap();
        assert!(containerfile.contains("AS notebook-runner\n"));
        assert!(containerfile.contains("COPY runner/requirements.txt"));
        let runner = layout::repository().join(RUNNER);
        let script = fs::read_to_string(runner.join("image/setup.sh")).unwrap();
        assert!(script.contains("/python3.11/"));
        assert!(containerfile.contains("docker.io/library/python:3.11-"));
    }
}
