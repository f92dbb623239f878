//! Times in a form that people read: the time of day, and the age.

use api::Timestamp;

/// Formats a time with its age: `10:02:11Z (3m ago)`, `10:06:11Z (in 1m)`. The date is added for
/// another day.
pub(crate) fn at(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(at.as_second());
    let age = match seconds {
        0 => "now".to_owned(),
        1.. => format!("{} ago", span(seconds)),
        ..=-1 => format!("in {}", span(seconds.saturating_neg())),
    };
    format!("{} ({age})", clock(now, at))
}

/// Formats the time of an event that has happened, with its age. An event after `now` is of a cluster whose
/// clock is ahead of ours, or it happened while we read: it is shown as `now`.
pub(crate) fn past(now: Timestamp, event: Timestamp) -> String {
    match event > now {
        true => format!("{} (now)", clock(now, event)),
        false => at(now, event),
    }
}

/// Formats a time of day: `10:02:11Z`. The date is added if it is not the day of `now`.
pub(crate) fn clock(now: Timestamp, at: Timestamp) -> String {
    let day = |time: Timestamp| time.strftime("%Y-%m-%d").to_string();
    let time = at.strftime("%H:%M:%SZ");
    if day(now) == day(at) {
        time.to_string()
    } else {
        format!("{} {time}", day(at))
    }
}

/// Formats a duration: `42s`, `3m`, `1h 5m`, `2d 3h`. It has the two largest units, and seconds
/// only below ten minutes.
pub(crate) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let parts = match (days, hours, minutes) {
        (1.., _, _) => [(days, "d"), (hours, "h")],
        (_, 1.., _) => [(hours, "h"), (minutes, "m")],
        (_, _, 10..) => [(minutes, "m"), (0, "s")],
        _ => [(minutes, "m"), (seconds % 60, "s")],
    };
    let words: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if words.is_empty() {
        "0s".to_owned()
    } else {
        words.join(" ")
    }
}

#[cfg(test)]
mod tests;
