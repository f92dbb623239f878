//! Seeds and case counts of property tests.
//!
//! Ordinary runs try a share of the cases. Its seed follows the commit, so each commit tries other
//! cases and each run of one commit the same. `ORCHESTRATOR_WHOLE=1` tries all of them.
//!
//! A failing case prints the seed that makes it the first case of the next run:
//!
//! ```text
//! ORCHESTRATOR_SEED=1234 cargo test -p tasks --lib the_test
//! ```

use std::{io::Write, sync::OnceLock};

use anyhow::{Context, Result};
use testbed::build;

/// Sets the seed: a decimal number or a commit id.
pub const SEED_VARIABLE: &str = "ORCHESTRATOR_SEED";
/// Any value but `0` asks for the whole counts.
pub const WHOLE_VARIABLE: &str = "ORCHESTRATOR_WHOLE";

/// The seed where neither the environment nor Git gives one.
const FIXED: u64 = 20_261_116;

/// The distance between the states of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the seed of this run: `$ORCHESTRATOR_SEED`, else the start of the checked-out commit's
/// id, else a fixed number.
///
/// Prints it and its source to standard error at the first call of a process, past the capture of
/// the test harness.
///
/// # Errors
/// When `$ORCHESTRATOR_SEED` is neither a number nor a commit id.
pub fn seed() -> Result<u64> {
    static SEED: OnceLock<Result<u64, String>> = OnceLock::new();
    let found = SEED.get_or_init(|| {
        let (seed, source) = find().map_err(|error| format!("{error:#}"))?;
        let line = format!("{SEED_VARIABLE}={seed} ({source})\n");
        // A closed standard error is no reason to fail: a failing case prints its seed, too.
        match std::io::stderr().write_all(line.as_bytes()) {
            Ok(()) | Err(_) => Ok(seed),
        }
    });
    found.clone().map_err(anyhow::Error::msg)
}

/// Returns the number of cases to try: `ordinary`, or `whole` in a whole run.
pub fn scaled(ordinary: u64, whole: u64) -> u64 {
    match std::env::var_os(WHOLE_VARIABLE) {
        Some(value) if value != "0" && !value.is_empty() => whole,
        Some(_) | None => ordinary,
    }
}

/// Returns the seed of one case of a run. The first case has the run's own seed, so that a failing
/// case can be tried alone.
pub fn of_case(run: u64, index: u64) -> u64 {
    if index == 0 {
        return run;
    }
    // Mixed: generators with neighboring seeds draw the same numbers, one place apart.
    let mut mixed = run.wrapping_add(index.wrapping_mul(STEP));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn find() -> Result<(u64, String)> {
    if let Some(value) = std::env::var_os(SEED_VARIABLE).filter(|value| !value.is_empty()) {
        let value = value.to_string_lossy();
        return Ok((parse(&value)?, "from the environment".to_owned()));
    }
    Ok(match head() {
        Ok(commit) => (parse(&commit)?, format!("from commit {commit}")),
        Err(error) => (FIXED, format!("fixed: {error:#}")),
    })
}

/// Reads a decimal number, or the first 16 digits of a commit id.
fn parse(value: &str) -> Result<u64> {
    let is_commit = value.len() == 40 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (digits, radix) = match is_commit {
        true => (&value[..16], 16),
        false => (value, 10),
    };
    u64::from_str_radix(digits, radix).with_context(|| {
        format!("{SEED_VARIABLE}='{value}' is neither a decimal number nor a commit id")
    })
}

/// Returns the id of the checked-out commit.
///
/// # Errors
/// When there is no Git, or no commit.
pub fn head() -> Result<String> {
    let commit = build::git(&["rev-parse", "--verify", "HEAD"])?;
    Ok(commit.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_is_a_number_or_a_commit() {
        let commit = "00000000000000ff3e1c0e2d6a6a8f0f6b1f7a55";
        assert_eq!(parse(commit).unwrap(), 255);
        assert_eq!(parse("1234567890123456").unwrap(), 1_234_567_890_123_456);
        for wrong in ["", "seven", "-1", "0xff", "ff", "18446744073709551616"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("='{wrong}'")), "{error}");
        }
    }

    #[test]
    fn the_first_case_has_the_seed_of_the_run_and_no_two_are_the_same() {
        assert_eq!(of_case(7, 0), 7);
        let cases: BTreeSet<u64> = (0..10_000).map(|index| of_case(7, index)).collect();
        assert_eq!(cases.len(), 10_000);
        assert_ne!(of_case(7, 1), of_case(8, 1));
    }
}
