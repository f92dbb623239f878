//! The contract of `step commit`: edits of versions in the files of a repository.
//!
//! ```text
//! operator ──▶ Request, mode Plan ──▶ step: reads, edits, pushes nothing ──▶ Plan in the log, its digest in the report
//! operator ──▶ Request, mode Commit ──▶ step: one commit ──▶ CommitReport
//! ```
//!
//! [`Request`] is the content of a variable, [`CommitReport`] that of the termination message. [`Plan`] is
//! too large for the message, so it is a line of the log, and the report has its SHA-256.

mod plan;
mod reason;
mod report;
mod request;
mod value;

pub use plan::{DIFF_LIMIT, FileDigest, Plan, PlannedEdit, sha256};
pub use reason::{CommitReason, EditError, EditReason};
pub use report::CommitReport;
pub use request::{Author, Change, DocumentRef, Edit, MAX_EDITS, Mode, REQUEST_LIMIT, Request};
pub use value::new_value;
