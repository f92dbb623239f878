//! Compares quantities such as `500m` or `1Gi` by their value.

/// Returns the value of a quantity in billionths of its unit. Returns `None` if the text is not a
/// quantity, or if the value is out of range.
///
/// ```
/// use api::quantity::parse;
/// assert_eq!(parse("1000m"), parse("1"));
/// assert_eq!(parse("1Ki"), parse("1024"));
/// assert!(parse("1Gi") > parse("1G"));
/// assert_eq!(parse("a lot"), None);
/// ```
#[must_use]
pub fn parse(text: &str) -> Option<i128> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (amount, unit) = text.split_at_checked(end)?;
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    if whole.len() > 18 || fraction.len() > 9 || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let digits = |text: &str| match (text.is_empty(), text.parse::<i128>()) {
        (true, _) => Some(0),
        (false, Ok(number)) => Some(number),
        (false, Err(_not_a_number)) => None,
    };
    // At most nine, as checked above.
    let places = fraction.bytes().fold(0_u32, |count, _| count + 1);
    let billionths = digits(whole)?
        .checked_mul(BILLION)?
        .checked_add(digits(fraction)?.checked_mul(10_i128.checked_pow(9 - places)?)?)?;
    let (factor, divisor) = scale(unit)?;
    // Fractions of a billionth are rounded up, as the API server does.
    let product = billionths.checked_mul(factor)?;
    Some(product.div_euclid(divisor) + i128::from(product.rem_euclid(divisor) != 0))
}

const BILLION: i128 = 1_000_000_000;

/// Returns the multiplier and the divisor of a unit.
fn scale(unit: &str) -> Option<(i128, i128)> {
    let thousands = |power: u32| Some((1000_i128.checked_pow(power)?, 1));
    let binary = |power: u32| Some((1024_i128.checked_pow(power)?, 1));
    match unit {
        "" => Some((1, 1)),
        "n" => Some((1, BILLION)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => thousands(1),
        "M" => thousands(2),
        "G" => thousands(3),
        "T" => thousands(4),
        "P" => thousands(5),
        "E" => thousands(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let size = |power: i32| 10_i128.checked_pow(power.unsigned_abs().min(30));
            match exponent.strip_prefix(['e', 'E'])?.parse::<i32>() {
                Ok(power) if power < 0 => Some((1, size(power)?)),
                Ok(power) => Some((size(power)?, 1)),
                Err(_not_a_number) => None,
            }
        }
    }
}

/// Returns the smaller of two quantities, or the first if one of them is not a quantity.
#[must_use]
pub fn smaller<'a>(one: &'a str, other: &'a str) -> &'a str {
    match (parse(one), parse(other)) {
        (Some(left), Some(right)) if right < left => other,
        (Some(_) | None, Some(_) | None) => one,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};
    use testkit::seed::seed;

    use super::*;

    #[test]
    fn quantities_are_compared_by_what_they_mean() {
        for (one, other) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("2E3", "2000"),
            ("1E", "1000P"),
            ("1000u", "1m"),
            ("0", "0m"),
            (".5", "0.5"),
        ] {
            assert!(parse(one).is_some(), "{one}");
            assert_eq!(parse(one), parse(other), "{one} {other}");
        }
        assert_eq!(smaller("1Gi", "1G"), "1G");
        assert_eq!(smaller("1", "x"), "1");
    }

    #[test]
    fn what_is_none_is_none() {
        for wrong in [
            "",
            ".",
            "-1",
            "1.2.3",
            "1 Gi",
            "Gi",
            "1gi",
            "1KI",
            "1e",
            "0x1",
            "1e99999999999",
            "9999999999999999999",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
        #[test]
        fn r51_no_text_is_a_panic(text in ".{0,40}") {
            let _meaning: Option<i128> = parse(&text);
        }
    }
}
