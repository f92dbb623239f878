//! Durations as users write them. Timestamps that survive storage are in [`api::time`].

use std::time::Duration;

pub use api::time::{after, whole};

/// Returns `wait` in milliseconds, or the maximum of the type if `wait` is longer.
pub fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

/// Formats `wait` as users write it: `1h30m`, `10s`, `500ms`.
pub fn format_duration(wait: Duration) -> String {
    if wait < Duration::from_secs(1) {
        return format!("{}ms", wait.as_millis());
    }
    let seconds = wait.as_secs();
    [
        (seconds / 3600, "h"),
        (seconds % 3600 / 60, "m"),
        (seconds % 60, "s"),
    ]
    .iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, unit)| format!("{count}{unit}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_said_as_it_is_written() {
        for (wait, expected) in [
            (Duration::ZERO, "0ms"),
            (Duration::from_millis(500), "500ms"),
            (Duration::from_secs(10), "10s"),
            (Duration::from_secs(90), "1m30s"),
            (Duration::from_secs(600), "10m"),
            (Duration::from_secs(3605), "1h5s"),
            (Duration::from_secs(7 * 24 * 3600), "168h"),
        ] {
            assert_eq!(format_duration(wait), expected);
        }
    }
}
