//! Kubernetes quantities as numbers, only for comparisons.

use std::collections::BTreeMap;

/// Amounts by resource.
pub(super) type Amounts = BTreeMap<String, String>;

/// Parses a quantity: `500m` is 0.5, `1Gi` is 1073741824. Returns `None` if the text is not a
/// quantity.
pub(super) fn value(text: &str) -> Option<f64> {
    const SUFFIXES: &[(&str, f64)] = &[
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
    ];
    let (number, factor) = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))
        .unwrap_or((text, 1.0));
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Some(number * factor),
        Ok(_) | Err(_) => None,
    }
}

/// Parses `pods=1,limits.cpu=2` into pairs.
pub(super) fn pairs(text: &str) -> Vec<(&str, &str)> {
    let pairs = text.split(',');
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .collect()
}

#[cfg(test)]
mod tests;
