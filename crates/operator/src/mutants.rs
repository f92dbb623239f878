//! The bug that a test build has, if its environment names one.

use std::env::{self, VarError};

use anyhow::{Context, Error, Result};

const VARIABLE: &str = "ORCHESTRATOR_MUTANT";

/// Reads which one it is. A name that is not known would test nothing, so it is refused.
pub(crate) fn choose() -> Result<()> {
    match env::var(VARIABLE) {
        Ok(name) => mutant::choose(&name).map_err(Error::msg).context(VARIABLE),
        Err(VarError::NotPresent) => Ok(()),
        Err(error @ VarError::NotUnicode(_)) => Err(error).context(VARIABLE),
    }
}

/// Says that this is no release.
pub(crate) fn warn() {
    match mutant::chosen() {
        Some(mutant) => {
            tracing::warn!("this is a test build: mutant '{}' is on", mutant.about().id);
        }
        None => tracing::warn!("this is a test build: no mutant is on"),
    }
}
