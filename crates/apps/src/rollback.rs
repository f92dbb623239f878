//! Decides about RollbackRequests: restores snapshots to new volumes, and gives the claims of an application these volumes.
//!
//! # Guarantees
//! - New volumes exist, and are not empty, before anything is deleted.
//! - Nothing is deleted before Git has the version from before: [`swap`] requires the stored commit.
//! - The replaced volumes are retained.
//!
//! # Caveats
//! The kind is not installed by the chart, and it has no controller.

pub mod automatic;
pub mod restore;
pub mod swap;
#[cfg(test)]
mod tests;
pub mod volume;

/// The RollbackRequest that owns an object.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
}
