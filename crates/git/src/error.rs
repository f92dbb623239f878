//! Reasons for failures with a Git server. All parts share them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Reason for a failure with a Git server. Users see its name in `status.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// No response in time: name, connection, silence, or a response that is not git's.
    RepositoryUnreachable,
    /// The server does not have the repository, or does not show it to these credentials.
    RepositoryNotFound,
    /// The server rejects the credentials, or requires credentials and got none.
    AuthenticationFailed,
    /// The Secret lacks keys, or their values cannot be read.
    CredentialsInvalid,
    /// The server's certificate was not issued by a trusted authority, or not for its name.
    CertificateNotTrusted,
    /// The server's SSH host key is not in `known_hosts`, or differs from the key there.
    HostKeyUnknown,
    /// The server's name or address is not allowed.
    AddressNotAllowed,
    /// The branch does not exist.
    BranchNotFound,
    /// The repository is larger than allowed.
    RepositoryTooLarge,
    /// The directory is not in the commit.
    PathNotFound,
    /// Any other failure of clone.
    CloneFailed,
    /// The output is larger than allowed.
    OutputTooLarge,
    /// The server rejected the push, by a hook or because the branch is protected.
    PushRejected,
    /// The output branch is not at the expected commit.
    BranchMoved,
    /// Any other failure of publish.
    PublishFailed,
}

impl Reason {
    /// All reasons, for tables and docs.
    pub const ALL: [Self; 15] = [
        Self::RepositoryUnreachable,
        Self::RepositoryNotFound,
        Self::AuthenticationFailed,
        Self::CredentialsInvalid,
        Self::CertificateNotTrusted,
        Self::HostKeyUnknown,
        Self::AddressNotAllowed,
        Self::BranchNotFound,
        Self::RepositoryTooLarge,
        Self::PathNotFound,
        Self::CloneFailed,
        Self::OutputTooLarge,
        Self::PushRejected,
        Self::BranchMoved,
        Self::PublishFailed,
    ];

    /// Returns the name of the reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RepositoryUnreachable => "RepositoryUnreachable",
            Self::RepositoryNotFound => "RepositoryNotFound",
            Self::AuthenticationFailed => "AuthenticationFailed",
            Self::CredentialsInvalid => "CredentialsInvalid",
            Self::CertificateNotTrusted => "CertificateNotTrusted",
            Self::HostKeyUnknown => "HostKeyUnknown",
            Self::AddressNotAllowed => "AddressNotAllowed",
            Self::BranchNotFound => "BranchNotFound",
            Self::RepositoryTooLarge => "RepositoryTooLarge",
            Self::PathNotFound => "PathNotFound",
            Self::CloneFailed => "CloneFailed",
            Self::OutputTooLarge => "OutputTooLarge",
            Self::PushRejected => "PushRejected",
            Self::BranchMoved => "BranchMoved",
            Self::PublishFailed => "PublishFailed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The failure of a request to a server. The message gives the attempt, the finding and the next step. It
/// contains no secret, and the server's text in it is cleaned and bounded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// The reason.
    pub reason: Reason,
    /// The message.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_stored_ones() {
        for reason in Reason::ALL {
            let stored = serde_json::to_string(&reason).unwrap();
            assert_eq!(stored, format!("\"{reason}\""));
            assert_eq!(serde_json::from_str::<Reason>(&stored).unwrap(), reason);
        }
    }
}
