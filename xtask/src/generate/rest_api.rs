//! The OpenAPI document, as the gateway returns it.

use anyhow::Result;
use serde_json::json;

use super::{NOTE, Output};

const PATH: &str = "docs/reference/openapi.json";

pub(super) fn output() -> Result<Output> {
    let mut document = gateway::document();
    document["x-generated"] = json!(NOTE);
    let text = serde_json::to_string_pretty(&document)?;
    Ok(Output {
        path: PATH.to_owned(),
        text: format!("{text}\n"),
    })
}
