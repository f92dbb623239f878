//! Programs that chores need and that Cargo can build: installed once, into the testbed's cache.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use testkit::{layout, lock::Lock};

/// A program from the Rust registry, pinned.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
    arguments: &'static [&'static str],
}

/// Licences, bans and sources of dependencies.
pub(crate) const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    arguments: &[],
};
/// The book in `docs/`.
pub(crate) const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    arguments: &["--no-default-features", "--features", "search"],
};

impl Tool {
    /// Its path; builds it first if the cache lacks it.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        let folder = layout::cache()?.join("tools");
        std::fs::create_dir_all(&folder)?;
        let root = folder.join(format!("{}-{}", self.name, self.version));
        let program = root.join("bin").join(self.name);
        let _lock = Lock::take(&folder.join("lock"), &mut |holder| {
            println!("waiting: {holder} is installing tools")
        })?;
        if !program.is_file() {
            println!("installing {} {}", self.name, self.version);
            // A debug build takes a third of the time, and neither tool has much to do here.
            let status = Command::new(env!("CARGO"))
                .args([
                    "install",
                    "--quiet",
                    "--locked",
                    "--debug",
                    "--version",
                    self.version,
                    "--root",
                ])
                .arg(&root)
                .args(self.arguments)
                .arg(self.name)
                .env("CARGO_TARGET_DIR", folder.join("target"))
                .status()
                .context("cannot run cargo")?;
            std::fs::remove_dir_all(folder.join("target"))
                .context("cannot remove the tool's build folder")?;
            ensure!(
                status.success(),
                "{} {} does not build",
                self.name,
                self.version
            );
        }
        Ok(program)
    }
}
