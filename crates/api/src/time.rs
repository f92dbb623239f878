//! Timestamps that survive storage. An object stores whole seconds. A timestamp with a fraction
//! would differ after it is read back, so every reconciliation would write the status.

use std::time::Duration;

use jiff::Timestamp;

/// Returns `time` without the fraction of a second, which an object cannot store.
#[must_use]
pub fn whole(time: Timestamp) -> Timestamp {
    match Timestamp::from_second(time.as_second()) {
        Ok(whole) => whole,
        Err(_) => time,
    }
}

/// Returns the instant `wait` after `start`, rounded up to a whole second. If that is too far in
/// the future, returns the last representable instant.
#[must_use]
pub fn after(start: Timestamp, wait: Duration) -> Timestamp {
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

#[cfg(test)]
mod tests {
    use super::*;

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
