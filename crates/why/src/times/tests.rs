use super::*;

#[test]
fn spans_have_two_units_at_most() {
    for (seconds, words) in [
        (0, "0s"),
        (42, "42s"),
        (60, "1m"),
        (192, "3m 12s"),
        (725, "12m"),
        (3900, "1h 5m"),
        (97_200, "1d 3h"),
        (-5, "0s"),
    ] {
        assert_eq!(span(seconds), words);
    }
}

#[test]
fn a_time_says_how_long_ago_and_when() {
    let now: Timestamp = "2026-03-02T10:05:11Z".parse().unwrap();
    for (at, words) in [
        ("2026-03-02T10:02:11Z", "10:02:11Z (3m ago)"),
        ("2026-03-02T10:05:11Z", "10:05:11Z (now)"),
        ("2026-03-02T10:06:11Z", "10:06:11Z (in 1m)"),
        ("2026-03-01T09:05:11Z", "2026-03-01 09:05:11Z (1d 1h ago)"),
    ] {
        assert_eq!(super::at(now, at.parse().unwrap()), words);
    }
}

#[test]
fn an_event_is_never_in_the_future() {
    let now: Timestamp = "2026-03-02T10:05:11Z".parse().unwrap();
    for (event, words) in [
        ("2026-03-02T10:02:11Z", "10:02:11Z (3m ago)"),
        ("2026-03-02T10:05:11Z", "10:05:11Z (now)"),
        ("2026-03-02T10:05:12Z", "10:05:12Z (now)"),
    ] {
        assert_eq!(past(now, event.parse().unwrap()), words);
    }
}
