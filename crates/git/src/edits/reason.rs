//! Reasons for failures of `step commit`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Reason;

/// Reason for a failure that is about the files. Users see its name in `status.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EditReason {
    /// No file contains the document.
    FileNotFound,
    /// Several files contain the document, or one file contains it several times.
    FileAmbiguous,
    /// The file is encrypted with SOPS.
    FileEncrypted,
    /// The file is a link, is no YAML, is a template, or exceeds a limit.
    FileNotEditable,
    /// The field does not exist.
    FieldNotFound,
    /// An edit of the field could have an effect elsewhere: anchors, aliases, merge keys, tags, duplicate keys.
    /// Or its value is no version on one line.
    FieldNotEditable,
    /// The value is a range of versions.
    VersionIsRange,
    /// The value is a variable of Flux.
    VersionIsVariable,
    /// All values are already the new ones.
    NothingToChange,
    /// A value differs from the planned one.
    VersionChangedInGit,
    /// Any other failure of the step.
    CommitFailed,
}

impl EditReason {
    /// All reasons, for tables and docs.
    pub const ALL: [Self; 11] = [
        Self::FileNotFound,
        Self::FileAmbiguous,
        Self::FileEncrypted,
        Self::FileNotEditable,
        Self::FieldNotFound,
        Self::FieldNotEditable,
        Self::VersionIsRange,
        Self::VersionIsVariable,
        Self::NothingToChange,
        Self::VersionChangedInGit,
        Self::CommitFailed,
    ];

    /// Returns the name of the reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FileNotFound => "FileNotFound",
            Self::FileAmbiguous => "FileAmbiguous",
            Self::FileEncrypted => "FileEncrypted",
            Self::FileNotEditable => "FileNotEditable",
            Self::FieldNotFound => "FieldNotFound",
            Self::FieldNotEditable => "FieldNotEditable",
            Self::VersionIsRange => "VersionIsRange",
            Self::VersionIsVariable => "VersionIsVariable",
            Self::NothingToChange => "NothingToChange",
            Self::VersionChangedInGit => "VersionChangedInGit",
            Self::CommitFailed => "CommitFailed",
        }
    }
}

/// Reason for a failure of `step commit`: about the files, or about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommitReason {
    /// About the files.
    Edit(EditReason),
    /// About the server.
    Git(Reason),
}

impl CommitReason {
    /// Returns the name of the reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Edit(reason) => reason.as_str(),
            Self::Git(reason) => reason.as_str(),
        }
    }
}

impl fmt::Display for CommitReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// An edit that is rejected. The message names the file or the field, and repeats values only if they are
/// versions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EditError {
    /// The reason.
    pub reason: EditReason,
    /// The message.
    pub message: String,
}

impl EditError {
    /// Creates the error.
    pub fn new(reason: EditReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_stored_ones_and_unique() {
        for reason in EditReason::ALL {
            let stored = serde_json::to_string(&CommitReason::Edit(reason)).unwrap();
            assert_eq!(stored, format!("\"{}\"", reason.as_str()));
            let read: CommitReason = serde_json::from_str(&stored).unwrap();
            assert_eq!(read, CommitReason::Edit(reason));
            assert!(
                Reason::ALL
                    .iter()
                    .all(|other| other.as_str() != reason.as_str())
            );
        }
        for reason in Reason::ALL {
            let stored = serde_json::to_string(&reason).unwrap();
            let read: CommitReason = serde_json::from_str(&stored).unwrap();
            assert_eq!(read, CommitReason::Git(reason));
            assert_eq!(read.to_string(), reason.to_string());
        }
        assert!(serde_json::from_str::<CommitReason>("\"Whatever\"").is_err());
    }
}
