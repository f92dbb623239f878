//! Why something with a git server failed: the words that all parts share.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why something with a git server failed. The names are what users read in `status.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// No answer in time: name, connection, silence, or an answer that is not git's.
    RepositoryUnreachable,
    /// The server does not know the repository, or does not show it to these credentials.
    RepositoryNotFound,
    /// The server does not accept the credentials, or wants some and got none.
    CredentialsRefused,
    /// The Secret lacks keys, or they cannot be read.
    CredentialsInvalid,
    /// The server's certificate was not issued by a trusted authority, or not for its name.
    CertificateNotTrusted,
    /// The server's SSH host key is not in `known_hosts`, or is another one.
    HostKeyUnknown,
    /// The server's name or address must not be talked to.
    AddressRefused,
    /// The branch does not exist.
    BranchNotFound,
    /// The repository is larger than what is allowed.
    RepositoryTooLarge,
    /// The directory is not in the commit.
    PathNotFound,
    /// Anything else of clone.
    CloneFailed,
    /// The output is larger than what is allowed.
    OutputTooLarge,
    /// The server refused the push: a hook, a protected branch.
    PushRefused,
    /// The output branch is not where it was.
    BranchMoved,
    /// Anything else of publish.
    PublishFailed,
}

impl Reason {
    /// All of them, for tables and docs.
    pub const ALL: [Self; 15] = [
        Self::RepositoryUnreachable,
        Self::RepositoryNotFound,
        Self::CredentialsRefused,
        Self::CredentialsInvalid,
        Self::CertificateNotTrusted,
        Self::HostKeyUnknown,
        Self::AddressRefused,
        Self::BranchNotFound,
        Self::RepositoryTooLarge,
        Self::PathNotFound,
        Self::CloneFailed,
        Self::OutputTooLarge,
        Self::PushRefused,
        Self::BranchMoved,
        Self::PublishFailed,
    ];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RepositoryUnreachable => "RepositoryUnreachable",
            Self::RepositoryNotFound => "RepositoryNotFound",
            Self::CredentialsRefused => "CredentialsRefused",
            Self::CredentialsInvalid => "CredentialsInvalid",
            Self::CertificateNotTrusted => "CertificateNotTrusted",
            Self::HostKeyUnknown => "HostKeyUnknown",
            Self::AddressRefused => "AddressRefused",
            Self::BranchNotFound => "BranchNotFound",
            Self::RepositoryTooLarge => "RepositoryTooLarge",
            Self::PathNotFound => "PathNotFound",
            Self::CloneFailed => "CloneFailed",
            Self::OutputTooLarge => "OutputTooLarge",
            Self::PushRefused => "PushRefused",
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

/// Why a server could not be asked. The message says what was tried, what was found and what to
/// do; it holds no secret, and what the server said in it is cleaned and bounded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// The reason.
    pub reason: Reason,
    /// The sentence.
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
