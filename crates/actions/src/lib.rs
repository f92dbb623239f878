//! The actions of users on runs and on requests, each as one function with typed errors.
//!
//! This crate uses no terminal and reads no files. The command line reads files and prints, the
//! REST API reads bodies and responds, and both call this crate.
//!
//! # Guarantees
//! - No action relies on an earlier check. A write carries the `resourceVersion` of the object that
//!   it was decided from, so the server detects a change in between.
//! - Each loop over such changes ends after [`TRIES`] tries.
//!
//! # Caveats
//! Requests have no timeout of their own; the caller bounds the whole action. With a client that
//! repeats requests automatically (kube's `default_retry`), our own success can appear as a
//! conflict.

mod caller;
mod context;
mod delete;
mod docs;
mod error;
mod files;
mod lifecycle;
mod object;
mod outcome;
mod requests;
mod submit;

pub use caller::who_am_i;
pub use context::{Added, add as add_context};
pub use delete::{Deleted, delete};
pub use docs::run_docs_again;
pub use error::{Error, Request};
pub use files::{FILES, FilesError, check as check_files};
pub use lifecycle::{Change, Changed, blocked_by, change, run_again};
pub use object::{Object, ObjectName, get, objects};
pub use outcome::Outcome;
pub use requests::{decide, request_rollback, request_upgrade};
pub use submit::{DryRun, Run, Submission, run_name, submit, submit_as};

/// Maximum number of tries for a write to an object that changes meanwhile. The operator writes a
/// status only a few times in a run's life, so the second try nearly always succeeds.
pub const TRIES: usize = 5;

/// Checks that the run still has the context version that it had at the first try.
fn same_version(first_seen: &mut Option<i64>, found: i64, run: &ObjectName) -> Result<(), Error> {
    let known = *first_seen.get_or_insert(found);
    if known == found {
        return Ok(());
    }
    Err(Error::Conflict {
        run: run.clone(),
        wanted: known.saturating_add(1),
        found,
    })
}

/// The field manager of all writes in this crate, except for added context.
pub const MANAGER: &str = "orc";
