//! What users do to runs, each as one function with typed errors.
//!
//! No terminal and no files: the command line reads files and prints, the REST API reads bodies
//! and answers; both call this.
//!
//! # Guarantees
//! - Nothing is checked first and done afterwards: a write carries what it was decided from (its
//!   `resourceVersion`), so a change in between is seen by the server, not lost.
//! - Each loop over such changes ends after [`TRIES`] tries.
//!
//! # Caveats
//! Requests have no limit of their own; the caller bounds the whole action. A client that repeats
//! requests by itself (kube's `default_retry`) makes an own success look like a conflict.

mod context;
mod docs;
mod error;
mod files;
mod outcome;
mod run;
mod steer;
mod submit;

pub use context::{Added, add as add_context};
pub use docs::{Docs, run_docs_again, submit_docs};
pub use error::{Error, Request};
pub use files::{FILES, Files, FilesError};
pub use outcome::{Outcome, outcome};
pub use run::{Run, RunKind, Stand};
pub use steer::{Change, Changed, change, run_again};
pub use submit::{Submission, Trial, submit};

/// How often a write is tried whose object changes meanwhile. The operator writes a status a few
/// times in a run's life, so a second try nearly always does.
pub const TRIES: usize = 5;

/// Whether a run has at each try the version that it had at the first.
fn same_version(
    first_seen: &mut Option<i64>,
    run: &api::tasks::TaskRun,
    name: &str,
) -> Result<(), Error> {
    let found = run.spec.context_version;
    let known = *first_seen.get_or_insert(found);
    if known == found {
        return Ok(());
    }
    Err(Error::Conflict {
        name: name.to_owned(),
        wanted: known.saturating_add(1),
        found,
    })
}

/// The field manager of what is written here, except of added context.
pub const MANAGER: &str = "orc";
