//! The text of server-sent events. Pure.

/// Writes one event. The data must be JSON, which has no line breaks.
pub(crate) fn event(name: &str, id: Option<&str>, data: &str) -> String {
    let mut text = format!("event: {name}\n");
    if let Some(id) = id {
        text.push_str("id: ");
        text.push_str(id);
        text.push('\n');
    }
    text.push_str("data: ");
    text.push_str(data);
    text.push_str("\n\n");
    text
}

/// Writes a comment, which keeps the connection open. A position is stored by the client without an
/// event.
pub(crate) fn comment(id: Option<&str>) -> String {
    match id {
        Some(id) => format!(": \nid: {id}\n\n"),
        None => ": \n\n".to_owned(),
    }
}

/// Writes the position of a client: one version for each watched resource.
pub(crate) fn write_id(parts: &[u64]) -> String {
    let parts: Vec<String> = parts.iter().map(u64::to_string).collect();
    parts.join("-")
}

/// Reads the position of a client, with this number of versions.
pub(crate) fn read_id(text: &str, count: usize) -> Option<Vec<u64>> {
    let mut parts = Vec::new();
    for part in text.split('-') {
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        match part.parse() {
            Ok(number) if is_number && parts.len() < count => parts.push(number),
            Ok(_) | Err(_) => return None,
        }
    }
    (parts.len() == count).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_block_of_lines() {
        assert_eq!(
            event("put", Some("7"), r#"{"a":"b\nc"}"#),
            "event: put\nid: 7\ndata: {\"a\":\"b\\nc\"}\n\n"
        );
        assert_eq!(event("live", None, "{}"), "event: live\ndata: {}\n\n");
        assert_eq!(
            event("resync", Some(""), "{}"),
            "event: resync\nid: \ndata: {}\n\n"
        );
        assert_eq!(comment(Some("7-8")), ": \nid: 7-8\n\n");
    }

    #[test]
    fn an_id_has_one_number_for_each_resource() {
        assert_eq!(read_id(&write_id(&[7, 8]), 2), Some(vec![7, 8]));
        for (text, count) in [
            ("", 1),
            ("7", 2),
            ("7-8", 1),
            ("-7", 1),
            ("+7", 1),
            ("7-", 2),
            ("99999999999999999999", 1),
            ("7\n", 1),
        ] {
            assert_eq!(read_id(text, count), None, "{text:?}");
        }
    }
}
