//! Where things are on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Overrides the cache folder of built parts and images.
pub const CACHE_VARIABLE: &str = "ORCHESTRATOR_TESTBED_CACHE";
/// Overrides the folder of running clusters and their logs.
pub const STATE_VARIABLE: &str = "ORCHESTRATOR_TESTBED_STATE";

/// The checkout that this crate was compiled from.
///
/// Caveat: fixed at compile time, because tests of other crates run in their own folder.
pub fn repository() -> &'static Path {
    // crates/testkit -> crates -> repository
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The folder with recipes, image declarations and manifests.
pub fn testbed() -> PathBuf {
    repository().join("testbed")
}

/// Finished parts and images: `$ORCHESTRATOR_TESTBED_CACHE`, else in the user's cache folder.
///
/// # Errors
/// When none of the three variables that could name it is set.
pub fn cache() -> Result<PathBuf> {
    let by_environment = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = by_environment(CACHE_VARIABLE) {
        return Ok(PathBuf::from(folder));
    }
    let base = by_environment("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| by_environment("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .with_context(|| {
            format!("no cache folder: set {CACHE_VARIABLE}, XDG_CACHE_HOME or HOME")
        })?;
    Ok(base.join("orchestrator-testbed"))
}

/// Running clusters and kept logs. Short on purpose: unix socket paths end at 108 bytes.
pub fn state() -> PathBuf {
    std::env::var_os(STATE_VARIABLE)
        .filter(|value| !value.is_empty())
        .map_or_else(
            || PathBuf::from("/var/tmp/orchestrator-testbed"),
            PathBuf::from,
        )
}
