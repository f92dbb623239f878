//! Switches on the bug that the environment of a test build names.

use std::env::{self, VarError};

use anyhow::{Context, Error, Result};

const VARIABLE: &str = "ORCHESTRATOR_MUTANT";

/// Reads the name of the mutant. An unknown name is rejected, because it would test nothing.
pub(crate) fn choose() -> Result<()> {
    match env::var(VARIABLE) {
        Ok(name) => mutant::choose(&name).map_err(Error::msg).context(VARIABLE),
        Err(VarError::NotPresent) => Ok(()),
        Err(error @ VarError::NotUnicode(_)) => Err(error).context(VARIABLE),
    }
}

/// Logs a warning that this is no release.
pub(crate) fn warn() {
    match mutant::chosen() {
        Some(mutant) => {
            tracing::warn!("this is a test build: mutant '{}' is on", mutant.about().id);
        }
        None => tracing::warn!("this is a test build: no mutant is on"),
    }
}
