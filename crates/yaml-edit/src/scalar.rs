//! How a scalar is written.

use granit_parser::ScalarStyle;

use crate::Rejection;

/// Maximum length of a new value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1024;

/// Texts without quotes that a parser of YAML 1.1 or 1.2 does not take for a string. In lower case.
const WORDS: [&str; 12] = [
    "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity",
];

/// Checks whether a new value can be written on one line.
pub(crate) fn check(value: &str) -> Result<(), Rejection> {
    if value.is_empty() {
        return Err(Rejection::NewValue("is empty"));
    }
    if value.len() > MAX_VALUE_BYTES {
        return Err(Rejection::NewValue("is longer than 1024 bytes"));
    }
    let is_special = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    if value.chars().any(is_special) {
        return Err(Rejection::NewValue("contains a control character"));
    }
    if value.contains("{{") {
        return Err(Rejection::NewValue("contains a template ('{{')"));
    }
    Ok(())
}

/// Returns a value in the style of the old one. Gives it quotes if it would not be a string without.
pub(crate) fn written(value: &str, style: ScalarStyle) -> String {
    match style {
        ScalarStyle::Plain if is_plain(value) => value.to_owned(),
        ScalarStyle::SingleQuoted => format!("'{}'", value.replace('\'', "''")),
        ScalarStyle::Plain
        | ScalarStyle::DoubleQuoted
        | ScalarStyle::Literal
        | ScalarStyle::Folded => {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{escaped}\"")
        }
    }
}

/// Returns whether `written` can be the text of this value, so that the position of the parser is right.
pub(crate) fn is_written_as(value: &str, style: ScalarStyle, written: &str) -> bool {
    let inner = |quote: char| written.strip_prefix(quote)?.strip_suffix(quote);
    match style {
        ScalarStyle::Plain => written == value,
        ScalarStyle::SingleQuoted => {
            inner('\'').is_some_and(|inner| inner.replace("''", "'") == value)
        }
        ScalarStyle::DoubleQuoted => {
            inner('"').is_some_and(|inner| inner.contains('\\') || inner == value)
        }
        ScalarStyle::Literal | ScalarStyle::Folded => false,
    }
}

/// Returns whether a scalar without quotes has no value.
pub(crate) fn is_null(written: &str) -> bool {
    matches!(written, "" | "~" | "null" | "Null" | "NULL")
}

/// Returns whether a value is a string without quotes, in a block and in brackets, for all parsers.
fn is_plain(value: &str) -> bool {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "._+/@:-".contains(c);
    value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !value.ends_with(':')
        && value.chars().all(is_safe)
        && !WORDS.contains(&value.to_ascii_lowercase().as_str())
        && !is_number(value)
        && !is_date(value)
}

/// Returns whether a parser may take a value for a number. Parsers of YAML 1.1 ignore `_`, and read `1:30`
/// as a number of base 60.
fn is_number(value: &str) -> bool {
    let text = value.replace('_', "").to_ascii_lowercase();
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(digits) = text.strip_prefix("0x") {
        return digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    }
    if let Some(digits) = text.strip_prefix("0o").or_else(|| text.strip_prefix("0b")) {
        return are_digits(digits);
    }
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, ""));
    let exponent = exponent.trim_start_matches(['+', '-']);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_decimal = [whole, fraction, exponent].into_iter().all(are_digits);
    let is_sexagesimal = text.contains(':') && are_digits(&text.replace([':', '.'], ""));
    is_decimal || is_sexagesimal
}

/// Returns whether a parser may take a value for a date or a time.
fn is_date(value: &str) -> bool {
    let parts: Vec<&str> = value.splitn(3, '-').collect();
    let has_digits = |text: &str, count: usize| {
        text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    match parts.as_slice() {
        [year, month, day] => {
            has_digits(year, 4)
                && (has_digits(month, 1) || has_digits(month, 2))
                && day.starts_with(|c: char| c.is_ascii_digit())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_need_no_quotes() {
        for value in [
            "1.2.3",
            "v1",
            "1.2.3-rc.1+build.5",
            "1.25-alpine",
            "latest",
            "nginx:1.25",
            "ghcr.io/a/b:1@sha256:0f",
            "2024-01",
            "2024-01-x",
            "10.0.0.1",
            "1e",
            "deadbeef",
            "yes-1",
            "0xg",
        ] {
            // `1e` gets quotes that it does not need.
            let expected = value != "1e";
            assert_eq!(is_plain(value), expected, "{value}");
        }
    }

    #[test]
    fn values_that_need_quotes() {
        for value in [
            "1",
            "1.2",
            "1.20",
            "1.",
            "1e5",
            "1E-5",
            "1_000",
            "0x1F",
            "0o17",
            "0b1",
            "017",
            "1:30",
            "12:30:45.5",
            "2024-01-15",
            "2024-1-5T00",
            "true",
            "No",
            "ON",
            "y",
            "null",
            "NaN",
            "~1",
            "-1",
            ".5",
            "+1",
            "*1",
            "&a",
            "!a",
            "a b",
            "a: b",
            "a #b",
            "a:",
            "[a]",
            "{a}",
            "a,b",
            "'a'",
            "\"",
            "é",
            "@a",
            "`a",
            "%a",
            "|",
            ">",
            "=",
            "<<",
            ">=1.2 <2",
        ] {
            assert!(!is_plain(value), "{value}");
        }
    }

    #[test]
    fn styles_stay() {
        use ScalarStyle::{DoubleQuoted, Plain, SingleQuoted};
        for (value, style, expected) in [
            ("1.2.3", Plain, "1.2.3"),
            ("1.2", Plain, "\"1.2\""),
            ("1.2", SingleQuoted, "'1.2'"),
            ("1.2", DoubleQuoted, "\"1.2\""),
            ("it's", SingleQuoted, "'it''s'"),
            ("a\"\\", DoubleQuoted, "\"a\\\"\\\\\""),
        ] {
            assert_eq!(written(value, style), expected);
            let style = if expected.starts_with('"') {
                DoubleQuoted
            } else {
                style
            };
            assert!(is_written_as(value, style, expected), "{expected}");
        }
    }

    #[test]
    fn new_values_have_one_line() {
        assert_eq!(check("1.2"), Ok(()));
        for value in ["", "a\nb", "a\rb", "a\u{2028}b", "\u{feff}a", "{{ a }}"] {
            assert!(check(value).is_err(), "{value:?}");
        }
        assert!(check(&"a".repeat(MAX_VALUE_BYTES + 1)).is_err());
    }
}
