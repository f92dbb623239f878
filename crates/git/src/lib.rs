//! Git servers as the operator and its steps see them.
//!
//! The default part is pure: [`url::Url`] and [`networks::Networks`] say which servers may be
//! talked to, [`refs`] which names may be handed to git, [`credentials::Credentials`] what a
//! Secret holds, [`report::Report`] what a step tells the operator.
//!
//! The feature `remote` adds `remote::heads`, which asks a server where branches are.

pub mod commit;
pub mod credentials;
pub mod error;
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
