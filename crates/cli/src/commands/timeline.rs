//! The timeline of a run or a Tenant as lines. All functions are pure.

use actions::Object;
use api::{Timestamp, status::PhaseRecord};

use crate::{
    state,
    text::{Paint, Tone, between, clean, hour, span, wrap},
};

/// Maximum number of phases shown while waiting. `describe` shows all of them.
const PHASES: usize = 8;

/// Maximum number of lines for the message.
const MESSAGE: usize = 3;

/// A line and its meaning.
pub(crate) type Line = (Tone, String);

/// Renders one object in full: phases with times, the message, the deadline.
pub(crate) fn block(object: &Object, now: Timestamp, width: usize) -> Vec<Line> {
    let (name, standing) = (clean(&object.name.name), state::standing(object));
    let version = object.version();
    let version = version.map_or_else(String::new, |version| format!("version {version}  "));
    let mut lines = vec![(
        standing.tone,
        format!("{name}  {version}{}", standing.text()),
    )];
    let Some(progress) = object.current() else {
        return lines;
    };
    let history = &progress.phase_history;
    for record in history.iter().skip(history.len().saturating_sub(PHASES)) {
        lines.push(phase_line(record, now));
    }
    let message = progress.message.as_deref().unwrap_or_default();
    let room = width.saturating_sub(4);
    let mut words = wrap(message, room);
    if words.len() > MESSAGE {
        words.truncate(MESSAGE);
        if let Some(last) = words.last_mut() {
            *last = api::status::bounded(&format!("{last} …"), room);
        }
    }
    lines.extend(
        words
            .into_iter()
            .map(|words| (Tone::Plain, format!("    {words}"))),
    );
    if let Some(deadline) = &progress.deadline_at
        && object.outcome().is_none()
    {
        let left = between(now, deadline.0);
        let words = if left >= 0 {
            format!("    deadline in {}, at {}", span(left), hour(deadline.0))
        } else {
            format!(
                "    deadline passed {} ago, at {}",
                span(-left),
                hour(deadline.0)
            )
        };
        lines.push((Tone::Dim, words));
    }
    lines
}

fn phase_line(record: &PhaseRecord, now: Timestamp) -> Line {
    let (symbol, tone) = match record.outcome.as_str() {
        "Succeeded" | "Ready" => ("✓", Tone::Good),
        "Failed" => ("✗", Tone::Bad),
        "Stalled" => ("!", Tone::Bad),
        "Completed" => ("→", Tone::Dim),
        _ => ("●", Tone::Busy),
    };
    let end = record.finished_at.as_ref().map_or(now, |time| time.0);
    let is_going = record.finished_at.is_none();
    let took = between(record.started_at.0, end);
    let mut parts = vec![
        format!("  {symbol} {:<9}", clean(&record.phase)),
        hour(record.started_at.0),
    ];
    if took > 0 || is_going {
        let word = if is_going { "for" } else { "took" };
        parts.push(format!("{word} {}", span(took)));
    }
    parts.extend(record.attempt.map(|number| format!("attempt {number}")));
    if !matches!(record.reason.as_str(), "" | "Progressing") && record.reason != record.phase {
        parts.push(clean(&record.reason));
    }
    (tone, parts.join("  "))
}

/// Renders one object in one line, for several objects or for output to a file.
pub(crate) fn sentence(object: &Object) -> String {
    let (name, standing) = (clean(&object.name.name), state::standing(object));
    let version = object.version();
    let version = version.map_or_else(String::new, |version| format!("v{version} "));
    let progress = object.current();
    match progress.and_then(|progress| progress.message.as_deref()) {
        Some(message) => format!("{name} {version}{}: {}", standing.text(), clean(message)),
        None => format!("{name} {version}{}", standing.text()),
    }
}

/// Colors the lines and cuts them to the terminal's width. A line that wraps could not be redrawn.
pub(crate) fn drawn(lines: &[Line], width: usize, paint: Paint) -> String {
    let mut out = String::new();
    for (tone, text) in lines {
        let text = if text.chars().count() > width {
            api::status::bounded(text, width)
        } else {
            text.clone()
        };
        out.push_str(&paint.apply(*tone, &text));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::tests::{a_run, condition};

    fn running() -> Object {
        a_run(
            &json!({}),
            &json!({
                "phase": "Running", "contextVersion": 1, "attempts": 2,
                "message": "the agent's container runs on node 'node-0'",
                "deadlineAt": "2026-01-01T01:00:30Z",
                "conditions": [condition("Succeeded", "Unknown", "Progressing")],
                "phaseHistory": [
                    { "phase": "Pending", "attempt": 1, "startedAt": "2026-01-01T00:00:00Z",
                        "finishedAt": "2026-01-01T00:00:04Z", "outcome": "Completed",
                        "reason": "Progressing", "message": "" },
                    { "phase": "Running", "attempt": 1, "startedAt": "2026-01-01T00:00:04Z",
                        "finishedAt": "2026-01-01T00:00:20Z", "outcome": "Completed",
                        "reason": "NonZeroExit", "message": "" },
                    { "phase": "Running", "attempt": 2, "startedAt": "2026-01-01T00:00:30Z",
                        "outcome": "Working", "reason": "Progressing", "message": "" },
                ],
            }),
        )
    }

    #[test]
    fn a_new_version_shows_nothing_of_the_old_one() {
        let failed = json!({ "phase": "Failed", "contextVersion": 1, "message": "exited with code 3",
            "conditions": [condition("Succeeded", "False", "NonZeroExit"), condition("Stalled", "True", "NonZeroExit")] });
        let again = a_run(&json!({ "contextVersion": 2 }), &failed);
        assert_eq!(sentence(&again), "shop-7 v2 ○ Pending");
        assert_eq!(again.message(), "the operator has not seen version 2 yet");
    }

    #[test]
    fn a_run_shows_its_phases_message_and_deadline() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let lines = block(&running(), now, 60);
        assert_eq!(
            drawn(&lines, 60, Paint { is_on: false }),
            "shop-7  version 1  ● Running\n\
             \x20 → Pending    00:00:00Z  took 4s  attempt 1\n\
             \x20 → Running    00:00:04Z  took 16s  attempt 1  NonZeroExit\n\
             \x20 ● Running    00:00:30Z  for 30s  attempt 2\n\
             \x20   the agent's container runs on node 'node-0'\n\
             \x20   deadline in 59m, at 01:00:30Z\n"
        );
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        for width in [10, 20, 40] {
            let text = drawn(
                &block(&running(), now, width),
                width,
                Paint { is_on: false },
            );
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
        }
    }

    #[test]
    fn a_plain_line_says_it_all() {
        assert_eq!(
            sentence(&running()),
            "shop-7 v1 ● Running: the agent's container runs on node 'node-0'"
        );
    }
}
