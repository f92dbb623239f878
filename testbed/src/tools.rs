//! Programs that tasks need and that Cargo can build: installed once, into the testbed's cache.

#![expect(clippy::print_stdout, reason = "an installation takes minutes")]

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{layout, lock::Lock, process};

/// Another checkout's tasks install a tool in a few minutes, two tools at most.
const LOCK_LIMIT: Duration = Duration::from_secs(30 * 60);

/// A program from the Rust registry, pinned.
pub struct Tool {
    name: &'static str,
    version: &'static str,
    arguments: &'static [&'static str],
}

/// Licenses, bans and sources of dependencies.
pub const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    arguments: &[],
};
/// The book in `docs/`.
pub const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    arguments: &["--no-default-features", "--features", "search"],
};

impl Tool {
    /// Returns its path; builds it first if the cache lacks it.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn path(&self) -> Result<PathBuf> {
        let folder = layout::cache()?.join("tools");
        std::fs::create_dir_all(&folder)?;
        let root = folder.join(format!("{}-{}", self.name, self.version));
        let program = root.join("bin").join(self.name);
        let _lock = Lock::take(&folder.join("lock"), LOCK_LIMIT, &mut |holder| {
            println!("waiting: {holder} is installing tools")
        })?;
        if !program.is_file() {
            println!("installing {} {}", self.name, self.version);
            self.install(Path::new(env!("CARGO")), &root, &folder.join("target"))?;
        }
        Ok(program)
    }

    fn install(&self, cargo: &Path, root: &Path, target: &Path) -> Result<()> {
        // A debug build takes a third of the time, and neither tool has much to do here.
        let status = Command::new(cargo)
            .args([
                "install",
                "--quiet",
                "--locked",
                "--debug",
                "--version",
                self.version,
                "--root",
            ])
            .arg(root)
            .args(self.arguments)
            .arg(self.name)
            .env("CARGO_TARGET_DIR", target)
            .env("RUSTC", cargo.with_file_name("rustc"))
            .status()
            .context("cannot run cargo")?;
        // Also after a failure: it is large. But the failure is what the caller must hear of.
        let removed = match fs::remove_dir_all(target) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
        ensure!(
            status.success(),
            "{} {} does not build: 'cargo install' {}",
            self.name,
            self.version,
            process::ended(status)
        );
        removed.with_context(|| format!("cannot remove '{}'", target.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stands for a folder that no install made.
    const NONE: &str = "/no/such/folder";

    #[test]
    fn a_failed_install_is_told_also_when_it_made_no_folder() {
        let error = DENY
            .install(Path::new("false"), Path::new(NONE), Path::new(NONE))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cargo-deny") && error.contains("exited with 1"),
            "{error}"
        );
    }

    #[test]
    fn a_failed_install_is_told_before_a_folder_that_cannot_be_removed() {
        let install = |cargo: &str| {
            let file = Path::new("/dev/null/target");
            DENY.install(Path::new(cargo), Path::new(NONE), file)
        };
        let error = install("false").unwrap_err().to_string();
        assert!(error.contains("does not build"), "{error}");
        let error = install("true").unwrap_err().to_string();
        assert!(error.contains("cannot remove"), "{error}");
    }

    #[test]
    fn an_install_that_made_no_folder_is_fine() {
        DENY.install(Path::new("true"), Path::new(NONE), Path::new(NONE))
            .unwrap();
    }
}
