//! The seed of a run: it follows the commit, so that over time every plan is played.

use std::process::Command;

use anyhow::{Context, Result};
use testkit::layout;

/// Names a seed for every suite that has one.
const VARIABLE: &str = "ORCHESTRATOR_SEED";

/// Where there is no commit.
const FIXED: u64 = 7;

/// A seed, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seed {
    /// The number.
    pub(crate) number: u64,
    /// For people.
    pub(crate) origin: String,
}

/// The seed that was asked for, that of the environment, or that of the commit.
///
/// # Errors
/// When the environment has one that is not a number.
pub(crate) fn seed(asked: Option<u64>) -> Result<Seed> {
    let variable = std::env::var(VARIABLE).unwrap_or_default();
    choose(asked, &variable, head().as_deref())
}

fn choose(asked: Option<u64>, variable: &str, commit: Option<&str>) -> Result<Seed> {
    let of = |number, origin: &str| Seed {
        number,
        origin: origin.to_owned(),
    };
    if let Some(number) = asked {
        return Ok(of(number, "--seed"));
    }
    if !variable.is_empty() {
        let number = variable.parse();
        let number = number.with_context(|| format!("{VARIABLE}='{variable}' is no number"))?;
        return Ok(of(number, VARIABLE));
    }
    let short = commit.and_then(|commit| commit.get(..8));
    let number = short.map(|short| u64::from_str_radix(short, 16));
    Ok(match (number, short) {
        (Some(Ok(number)), Some(short)) => of(number, &format!("commit {short}")),
        (Some(_) | None, _) => of(FIXED, "fixed: there is no commit"),
    })
}

/// The commit that is checked out, if there is Git and one.
fn head() -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(layout::repository())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_seed_counts() {
        let commit = Some("0000001fabcdef");
        for (asked, variable, commit, number, origin) in [
            (Some(3), "5", commit, 3, "--seed"),
            (None, "5", commit, 5, VARIABLE),
            (None, "", commit, 31, "commit 0000001f"),
            (
                None,
                "",
                Some("0000001g"),
                FIXED,
                "fixed: there is no commit",
            ),
            (None, "", None, FIXED, "fixed: there is no commit"),
        ] {
            let found = choose(asked, variable, commit).unwrap();
            assert_eq!((found.number, found.origin.as_str()), (number, origin));
        }
        assert!(choose(None, "many", commit).is_err());
    }
}
