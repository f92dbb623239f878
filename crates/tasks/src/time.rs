//! Timestamps that survive storage. An object stores whole seconds. A timestamp with a fraction
//! would differ after it is read back, so every reconciliation would write the status.

use std::time::Duration;

use api::Timestamp;

/// Returns `time` without the fraction of a second, which an object cannot store.
pub(crate) fn whole(time: Timestamp) -> Timestamp {
    match Timestamp::from_second(time.as_second()) {
        Ok(whole) => whole,
        Err(_) => time,
    }
}

/// Returns the instant `wait` after `start`, rounded up to a whole second. If that is too far in
/// the future, returns the last representable instant.
pub(crate) fn after(start: Timestamp, wait: Duration) -> Timestamp {
    let end = match start.checked_add(wait) {
        Ok(end) => end,
        Err(_) => return whole(Timestamp::MAX),
    };
    if end.subsec_nanosecond() > 0 {
        match whole(end).checked_add(Duration::from_secs(1)) {
            Ok(end) => end,
            Err(_) => whole(Timestamp::MAX),
        }
    } else {
        end
    }
}

/// Returns `wait` in milliseconds, or the maximum of the type if `wait` is longer.
pub(crate) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

/// Formats `wait` as users write it: `1h30m`, `10s`, `500ms`.
pub(crate) fn format_duration(wait: Duration) -> String {
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

    #[test]
    fn a_deadline_is_whole_never_early_and_never_overflows() {
        let start = Timestamp::from_millisecond(1_700_000_000_001).unwrap();
        assert_eq!(
            after(start, Duration::from_secs(1)).as_millisecond(),
            1_700_000_002_000
        );
        assert_eq!(whole(start).as_millisecond(), 1_700_000_000_000);
        let end = whole(Timestamp::MAX);
        for wait in [Duration::MAX, Duration::from_secs(u64::from(u32::MAX))] {
            assert_eq!(after(end, wait), end);
        }
        assert_eq!(after(Timestamp::MAX, Duration::ZERO), end);
        assert_eq!(after(Timestamp::MIN, Duration::MAX), end);
    }
}
