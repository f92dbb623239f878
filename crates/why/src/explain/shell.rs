//! Quotes arguments of suggested commands that come from a spec. Otherwise the author of the spec
//! could inject a command.

/// Quotes `text` as one argument for a shell.
pub(super) fn word(text: &str) -> String {
    let is_plain = |letter: char| {
        letter.is_ascii_alphanumeric()
            || matches!(letter, '-' | '_' | '.' | '/' | ':' | '@' | '+' | ',')
    };
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Returns host and port of an ssh address.
pub(super) fn server(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("ssh://")?;
    let place = rest.split('/').next()?;
    let place = place.rsplit('@').next()?;
    let (host, after) = match place.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => place.find(':').map_or((place, ""), |at| place.split_at(at)),
    };
    let port = match after.strip_prefix(':') {
        Some(port) if !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => port,
        Some(_) | None => "22",
    };
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests;
