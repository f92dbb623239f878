//! The data that is read about an object of a kind without rules of its own.

use api::CommonStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::Meta;

/// An object of any kind of ours, with the part of its status that all kinds have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectView {
    /// The kind.
    pub kind: String,
    /// The metadata.
    pub meta: Meta,
    /// The time of the last change by a manager other than the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Time>,
    /// The error if its status cannot be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undecodable: Option<String>,
    /// Its status.
    pub status: CommonStatus,
}
