//! Amounts of Kubernetes, read without the product's own parser: a mistake there must not hide itself.

use anyhow::{Context, Result};
use serde_json::Value;

/// Digits after the point that are kept: `n` is the smallest suffix.
const DIGITS: usize = 9;

/// An amount in billionths; nothing if it is none, or too large to be one.
#[expect(
    clippy::manual_ok_err,
    reason = "`Result::ok` is banned; a text that is no amount is no error here"
)]
pub(super) fn billionths(value: &Value) -> Option<i128> {
    let read = match value {
        Value::String(text) => read(text),
        Value::Number(number) => read(&number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    match read {
        Ok(amount) => Some(amount),
        // A text that is no amount is compared as a text.
        Err(_no_amount) => None,
    }
}

/// Whether both are amounts, and the same.
pub(super) fn is_amount(found: &Value, asked: &Value) -> bool {
    let found = billionths(found);
    found.is_some() && found == billionths(asked)
}

fn read(text: &str) -> Result<i128> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && !matches!(letter, '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let part = part.get(..DIGITS).unwrap_or(part);
    let digits: i128 = format!("{whole}{part}").parse()?;
    // In billionths, and without the point.
    let missing = u32::try_from(DIGITS - part.len())?;
    let (base, power) = meaning(suffix)?;
    let scaled = 10_i128.checked_pow(missing);
    let scaled = scaled.and_then(|ten| digits.checked_mul(ten));
    let factor = base.checked_pow(power.unsigned_abs());
    let (scaled, factor) = scaled.zip(factor).context("too large")?;
    if power < 0 {
        // A part of a billionth counts as one, as in Kubernetes.
        let more = i128::from(scaled % factor != 0);
        return Ok(scaled / factor + more);
    }
    scaled.checked_mul(factor).context("too large")
}

/// Base and power of a suffix.
fn meaning(suffix: &str) -> Result<(i128, i32)> {
    Ok(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (1024, 1),
        "Mi" => (1024, 2),
        "Gi" => (1024, 3),
        "Ti" => (1024, 4),
        "Pi" => (1024, 5),
        "Ei" => (1024, 6),
        exponent => {
            let power = exponent.strip_prefix(['e', 'E']);
            (10, power.context("no suffix")?.parse()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_amount_has_many_names() {
        for (one, other) in [
            (json!("1"), json!(1)),
            (json!("500m"), json!("0.5")),
            (json!("1Gi"), json!("1024Mi")),
            (json!("1.5Ki"), json!("1536")),
            (json!("2e3"), json!("2k")),
            (json!("1E3"), json!("1000")),
            (json!("1000000n"), json!("1m")),
        ] {
            assert!(is_amount(&one, &other), "{one} {other}");
        }
        for (one, other) in [
            (json!("1"), json!("1m")),
            (json!("1M"), json!("1Mi")),
            (json!("1E"), json!("1e1")),
            (json!(null), json!(null)),
            (json!("many"), json!("many")),
            (json!(""), json!("")),
        ] {
            assert!(!is_amount(&one, &other), "{one} {other}");
        }
    }
}
