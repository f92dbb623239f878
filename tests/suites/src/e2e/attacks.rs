//! Counts what the cases of the suite `attacks` try.
//!
//! A case is one scene, in which often several things are tried. `cargo xtask attacks` ends with their number.

use std::{
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::Result;

static TRIED: AtomicUsize = AtomicUsize::new(0);
static SUCCEEDED: AtomicUsize = AtomicUsize::new(0);
static SIZE: OnceLock<Size> = OnceLock::new();

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// What CI has time for.
    Share,
    Whole,
}

/// Sets the size for all cases of this process; only the first call counts.
pub(super) fn set_size(size: Size) {
    SIZE.get_or_init(|| size);
}

pub(super) fn size() -> Size {
    SIZE.get().copied().unwrap_or(Size::Share)
}

/// Counts one attack. The result says whether it was withstood.
pub(super) fn tried<T>(withstood: Result<T>) -> Result<T> {
    TRIED.fetch_add(1, Ordering::Relaxed);
    if withstood.is_err() {
        SUCCEEDED.fetch_add(1, Ordering::Relaxed);
    }
    withstood
}

/// All attacks of this process.
pub(crate) struct Tally {
    tried: usize,
    succeeded: usize,
}

impl Tally {
    /// What was tried until now; `None` if nothing was.
    pub(crate) fn now() -> Option<Self> {
        let tally = Self {
            tried: TRIED.load(Ordering::Relaxed),
            succeeded: SUCCEEDED.load(Ordering::Relaxed),
        };
        (tally.tried > 0).then_some(tally)
    }

    /// Returns whether every attack was withstood, also those of a case that ran twice: a race that an attacker
    /// won on a slow host was won.
    pub(crate) fn is_clean(&self) -> bool {
        self.succeeded == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} attacks, {} succeeded", self.tried, self.succeeded)
    }
}
