//! Where things are on this machine.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// Overrides the cache folder of built parts and images.
pub const CACHE_VARIABLE: &str = "ORCHESTRATOR_TESTBED_CACHE";
/// Overrides the folder of running clusters and their logs.
pub const STATE_VARIABLE: &str = "ORCHESTRATOR_TESTBED_STATE";

/// The checkout that this crate was compiled from.
///
/// Caveat: fixed at compile time, because tests of other crates run in their own folder.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The folder with recipes, image declarations and manifests.
pub fn testbed() -> PathBuf {
    repository().join("testbed")
}

/// Finished parts and images, made if it is not there: `$ORCHESTRATOR_TESTBED_CACHE`, else in the user's cache folder.
///
/// # Errors
/// When none of the three variables that could name it is set, or it cannot be made.
pub fn cache() -> Result<PathBuf> {
    if let Some(folder) = variable(CACHE_VARIABLE) {
        return one_spelling(Path::new(&folder));
    }
    let base = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .with_context(|| {
            format!("no cache folder: set {CACHE_VARIABLE}, XDG_CACHE_HOME or HOME")
        })?;
    one_spelling(&base.join("orchestrator-testbed"))
}

/// Running clusters and kept logs; made if it is not there.
///
/// Guarantees: one folder has one spelling. Names of control groups are derived from it.
///
/// # Errors
/// When it cannot be made, or is so long that the path of a socket in it would not fit.
pub fn state() -> Result<PathBuf> {
    let folder = variable(STATE_VARIABLE).map_or_else(
        || PathBuf::from("/var/tmp/orchestrator-testbed"),
        PathBuf::from,
    );
    let folder = one_spelling(&folder)?;
    // A unix socket's path ends at 108 bytes; the name of a cluster has at most 40.
    let length = folder.as_os_str().len();
    ensure!(
        length <= 48,
        "'{}' is too long for sockets in it: at most 48 bytes",
        folder.display()
    );
    Ok(folder)
}

fn one_spelling(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)
        .and_then(|()| folder.canonicalize())
        .with_context(|| format!("cannot use the folder '{}'", folder.display()))
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
