//! The view of an object of a kind without rules of its own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::ours::{changed, part, status};
use crate::world::{Meta, ObjectView};

impl ObjectView {
    /// Reads an object of this kind.
    #[must_use]
    pub fn read(kind: &str, object: &Value) -> Self {
        let meta: ObjectMeta = part(object, "metadata").unwrap_or_default();
        let (status, undecodable) = status(object);
        Self {
            kind: kind.to_owned(),
            meta: Meta::from(&meta),
            changed: changed(&meta),
            undecodable,
            status,
        }
    }
}
