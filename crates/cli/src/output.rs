//! Objects as JSON and YAML.

use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;

/// Returns an object without `managedFields`, as kubectl prints it.
pub(crate) fn plain<T: Serialize>(object: &T) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(object).map_err(|error| unprintable(&error))?;
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Ok(value)
}

pub(crate) fn json<T: Serialize>(data: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(data).map_err(|error| unprintable(&error))?;
    Ok(format!("{text}\n"))
}

pub(crate) fn yaml<T: Serialize>(data: &T) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(data).map_err(|error| unprintable(&error))?;
    Ok(if text.ends_with('\n') {
        text
    } else {
        format!("{text}\n")
    })
}

fn unprintable(error: &dyn std::error::Error) -> Failure {
    Failure::client(format!("cannot print this object: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_reads_back_as_it_was() {
        let hostile = json!({
            "metadata": { "name": "shop-7", "managedFields": [1] },
            "spec": { "yes": "yes", "number": "7", "empty": "", "colon": "a: b # c", "tab": "\ta",
                "lines": "# Title\n\n- a\n\n  indented\n", "trailing": "a  \nb\n\n\n", "wide": "ä✓",
                "long": "word ".repeat(60), "none": null, "list": [], "map": {}, "float": 1.5 },
        });
        let printed = plain(&hostile).unwrap();
        assert_eq!(printed["metadata"], json!({ "name": "shop-7" }));
        let back: Value = serde_saphyr::from_str(&yaml(&printed).unwrap()).unwrap();
        assert_eq!(back, printed);
        let back: Value = serde_json::from_str(&json(&printed).unwrap()).unwrap();
        assert_eq!(back, printed);
    }
}
