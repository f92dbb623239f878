//! Lines of a watch that wait for their turn. Pure.

use std::{collections::VecDeque, time::Duration};

use serde::Deserialize;
use tokio::time::Instant;

use super::super::point::WatchFault;

/// When so much waits, no more is read from the server.
const ROOM: usize = 32 * 1024 * 1024;

/// What a line of a watch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of an object that was there when the watch began.
    Initial,
    /// The bookmark after the last of these.
    InitialEnd,
    /// Of a change.
    Event,
    /// A bookmark or an error: no event, but its place among them matters.
    Mark,
}

#[derive(Deserialize)]
struct Typed {
    r#type: String,
}

/// Returns whether this line of a watch says that an object was deleted.
pub(super) fn is_deletion(line: &[u8]) -> bool {
    serde_json::from_slice::<Typed>(line).is_ok_and(|typed| typed.r#type == "DELETED")
}

/// `is_listing`: the watch still sends what was there when it began.
pub(super) fn kind(line: &[u8], is_listing: bool) -> Kind {
    #[derive(Deserialize)]
    struct Bookmark {
        object: Object,
    }
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        annotations: std::collections::BTreeMap<String, String>,
    }
    let Ok(Typed { r#type }) = serde_json::from_slice(line) else {
        return Kind::Mark;
    };
    match (r#type.as_str(), is_listing) {
        ("BOOKMARK", true) => match serde_json::from_slice::<Bookmark>(line) {
            Ok(bookmark)
                if bookmark
                    .object
                    .metadata
                    .annotations
                    .get("k8s.io/initial-events-end")
                    == Some(&"true".to_owned()) =>
            {
                Kind::InitialEnd
            }
            Ok(_) | Err(_) => Kind::Mark,
        },
        ("ADDED" | "MODIFIED" | "DELETED", true) => Kind::Initial,
        ("ADDED" | "MODIFIED" | "DELETED", false) => Kind::Event,
        _ => Kind::Mark,
    }
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    kind: Kind,
    line: Vec<u8>,
}

/// A queue of lines: none overtakes another.
#[derive(Debug, Default)]
pub(super) struct DelayedLines {
    lines: VecDeque<Waiting>,
    bytes: usize,
}

impl DelayedLines {
    /// `fault` is what holds an event back.
    pub(super) fn push(
        &mut self,
        line: Vec<u8>,
        kind: Kind,
        fault: Option<WatchFault>,
        now: Instant,
    ) {
        let wanted = match fault {
            Some(WatchFault::Stale(late)) => now + milliseconds(late),
            Some(WatchFault::Collapsed(late)) => {
                let gathering = self.lines.iter().rev().find(|waiting| waiting.due > now);
                gathering.map_or(now + milliseconds(late), |waiting| waiting.due)
            }
            Some(
                WatchFault::Cut(_)
                | WatchFault::Gone(_)
                | WatchFault::MissedDeletion
                | WatchFault::Silent(_),
            )
            | None => now,
        };
        let due = self
            .lines
            .back()
            .map_or(wanted, |last| wanted.max(last.due));
        self.bytes += line.len();
        self.lines.push_back(Waiting { due, kind, line });
    }

    /// The next line whose time has come; in a `calm` every line's has.
    pub(super) fn pop(&mut self, now: Instant, is_calm: bool) -> Option<(Kind, Vec<u8>)> {
        let is_due = self.lines.front()?.due <= now || is_calm;
        let waiting = is_due.then(|| self.lines.pop_front())??;
        self.bytes -= waiting.line.len();
        Some((waiting.kind, waiting.line))
    }

    /// When there is something again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.lines.front().map(|waiting| waiting.due)
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes < ROOM
    }

    /// Nothing of it will be sent.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.bytes = 0;
    }
}

fn milliseconds(count: u32) -> Duration {
    Duration::from_millis(u64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        let end = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#;
        let added = r#"{"type":"ADDED","object":{"metadata":{"annotations":{"a":"b"}}}}"#;
        let error = r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#;
        let cases = [
            (added, true, Kind::Initial),
            (added, false, Kind::Event),
            (r#"{"object":{},"type":"MODIFIED"}"#, false, Kind::Event),
            (r#"{"type":"DELETED","object":{}}"#, false, Kind::Event),
            (end, true, Kind::InitialEnd),
            (end, false, Kind::Mark),
            (bookmark, true, Kind::Mark),
            (bookmark, false, Kind::Mark),
            (error, true, Kind::Mark),
            (error, false, Kind::Mark),
            ("no event", false, Kind::Mark),
        ];
        for (line, is_listing, wanted) in cases {
            assert_eq!(kind(line.as_bytes(), is_listing), wanted, "{line}");
        }
    }

    #[test]
    fn lines_come_in_order_at_their_time() {
        let stale = Some(WatchFault::Stale(100));
        let collapsed = Some(WatchFault::Collapsed(100));
        type Sent = (u64, Kind, Option<WatchFault>);
        // What is sent at which millisecond, and when it comes.
        let cases: [(&[Sent], &[u64]); 7] = [
            (&[(0, Kind::Event, None), (5, Kind::Event, None)], &[0, 5]),
            (
                &[(0, Kind::Event, stale), (30, Kind::Event, stale)],
                &[100, 130],
            ),
            // A bookmark that overtook would tell of a version whose events have not come.
            (
                &[(0, Kind::Event, stale), (30, Kind::Mark, None)],
                &[100, 100],
            ),
            (
                &[(0, Kind::Mark, None), (30, Kind::Event, stale)],
                &[0, 130],
            ),
            (
                &[
                    (0, Kind::Event, collapsed),
                    (30, Kind::Event, collapsed),
                    (60, Kind::Mark, None),
                    (90, Kind::Event, collapsed),
                ],
                &[100; 4],
            ),
            (
                &[(0, Kind::Event, collapsed), (150, Kind::Event, collapsed)],
                &[100, 250],
            ),
            // The last is sent when all is calm.
            (
                &[(0, Kind::Event, stale), (30, Kind::Event, None)],
                &[100, 100],
            ),
        ];
        for (sent, wanted) in cases {
            let start = Instant::now();
            let mut delayed = DelayedLines::default();
            let mut came = Vec::new();
            for time in 0..400 {
                let now = start + Duration::from_millis(time);
                for (number, (at, kind, fault)) in (0u8..).zip(sent) {
                    if *at == time {
                        delayed.push(vec![number], *kind, *fault, now);
                    }
                }
                while let Some((_, line)) = delayed.pop(now, false) {
                    came.push((line[0], time));
                }
            }
            let wanted: Vec<(u8, u64)> = (0u8..).zip(wanted.iter().copied()).collect();
            assert_eq!(came, wanted, "{sent:?}");
        }
    }

    #[test]
    fn a_calm_releases_all_at_once() {
        let now = Instant::now();
        let mut delayed = DelayedLines::default();
        for number in 0..3 {
            delayed.push(
                vec![number],
                Kind::Event,
                Some(WatchFault::Stale(9_000)),
                now,
            );
        }
        assert_eq!(delayed.pop(now, false), None);
        let came: Vec<_> = std::iter::from_fn(|| delayed.pop(now, true)).collect();
        assert_eq!(came.len(), 3);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut delayed = DelayedLines::default();
        let now = Instant::now();
        delayed.push(vec![0; ROOM - 1], Kind::Event, None, now);
        assert!(delayed.has_room());
        delayed.push(vec![0; 1], Kind::Event, None, now);
        assert!(!delayed.has_room());
        delayed.pop(now, false);
        assert!(delayed.has_room());
    }
}
