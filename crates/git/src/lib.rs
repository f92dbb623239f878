//! Types and functions for Git servers, for the operator and its steps.
//!
//! The default part is pure. [`url::Url`] and [`networks::Networks`] decide which servers are allowed.
//! [`refs`] checks the names that git receives. [`credentials::Credentials`] is the content of a Secret.
//! [`report::Report`] is the result that a step reports to the operator. [`edits`] is the contract of the
//! step that edits versions, and [`fetch`] that of the step that fetches notebooks.
//!
//! The feature `remote` adds `remote::heads`, which asks a server for the commits of branches, and
//! `remote::references`, which asks also for those of tags.

pub mod commit;
pub mod credentials;
pub mod edits;
pub mod error;
pub mod fetch;
pub mod networks;
pub mod refs;
#[cfg(feature = "remote")]
pub mod remote;
pub mod report;
pub mod url;

pub use commit::Commit;
pub use credentials::{Credentials, CredentialsError};
pub use error::{Reason, RemoteError};
pub use networks::{Networks, Refused};
pub use report::{Files, Report};
pub use url::{Scheme, Url, UrlError};
