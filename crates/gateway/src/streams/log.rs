//! A log that is followed. The kubelet ends such a connection now and then, so it is opened again
//! from the last line.

use std::{io, pin::Pin, time::Duration};

use api::Timestamp;
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt, stream::unfold};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Ends, HEARTBEAT, Texts, end, sse};

/// Maximum length of a piece of a line.
const PIECE: usize = 16 * 1024;

/// Pause before a log is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// A line of a log: its time, and its number among those of that time, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    time: Timestamp,
    number: u32,
}

impl Mark {
    /// Reads the id of an event.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (time, number) = text.split_once('_')?;
        match (time.parse(), number.parse()) {
            (Ok(time), Ok(number)) => Some(Self { time, number }),
            (Ok(_) | Err(_), Ok(_) | Err(_)) => None,
        }
    }

    fn text(self) -> String {
        format!("{}_{}", self.time, self.number)
    }
}

/// How the lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// As they are, or each with its time.
    Text { timestamps: bool },
    /// As server-sent events.
    Events,
}

/// Which log to follow.
pub(crate) struct Source {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
    pub(crate) tail: Option<i64>,
    pub(crate) from: Option<Timestamp>,
}

/// A part of a line.
#[derive(Debug, PartialEq)]
struct Piece {
    bytes: Vec<u8>,
    is_start: bool,
    is_end: bool,
}

type Reader = Pin<Box<dyn AsyncBufRead + Send>>;

struct LogStream {
    source: Source,
    format: Format,
    ends: Ends,
    heartbeat: Instant,
    reader: Option<Reader>,
    lines: Lines,
    order: Order,
    is_over: bool,
}

/// Returns the texts of a log. `mark` is the last line that the client has.
///
/// # Errors
/// The API server does not return the log.
pub(crate) async fn texts(
    source: Source,
    format: Format,
    mark: Option<Mark>,
    ends: Ends,
    guard: impl Send + 'static,
) -> Result<Texts, kube::Error> {
    let mut stream = LogStream {
        source,
        format,
        ends,
        heartbeat: Instant::now() + HEARTBEAT,
        reader: None,
        lines: Lines::default(),
        order: Order::new(mark),
        is_over: false,
    };
    stream.open().await?;
    let texts = unfold((stream, guard), |(mut stream, guard)| async move {
        let text = stream.next().await?;
        Some((Bytes::from(text), (stream, guard)))
    });
    Ok(texts.boxed())
}

/// What happened to the log.
enum Got {
    Piece(Piece),
    /// The connection to the kubelet ended.
    Closed,
    Heartbeat,
    Ends(&'static str),
}

impl LogStream {
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if self.is_over {
                return None;
            }
            if let Some(reason) = self.ends.reached() {
                return self.end(reason, "connect again to go on");
            }
            let Some(reader) = self.reader.as_mut() else {
                if let Err(error) = self.open().await {
                    return self.end("Failed", &error.to_string());
                }
                continue;
            };
            let got = tokio::select! {
                piece = self.lines.next(reader) => match piece {
                    Ok(Some(piece)) => Got::Piece(piece),
                    Ok(None) | Err(_) => Got::Closed,
                },
                () = sleep_until(self.heartbeat) => Got::Heartbeat,
                reason = self.ends.wait() => Got::Ends(reason),
            };
            match got {
                Got::Piece(piece) => {
                    if let Some(text) = self.write(&piece) {
                        return Some(text);
                    }
                }
                Got::Closed => {
                    self.reader = None;
                    if has_ended(&self.source).await {
                        return self.end("Complete", "the container has ended");
                    }
                    sleep(PAUSE).await;
                }
                Got::Heartbeat => {
                    self.heartbeat = Instant::now() + HEARTBEAT;
                    if self.format == Format::Events {
                        return Some(sse::comment(None).into_bytes());
                    }
                }
                Got::Ends(reason) => return self.end(reason, "connect again to go on"),
            }
        }
    }

    /// Opens the log from the last line.
    async fn open(&mut self) -> Result<(), kube::Error> {
        let known = self.order.last.map(|mark| mark.time);
        let how = LogParams {
            container: Some(self.source.container.clone()),
            follow: true,
            timestamps: true,
            // With a position, the number of lines is known.
            tail_lines: self.source.tail.filter(|_| known.is_none()),
            since_time: known.map(whole_second).or(self.source.from),
            ..LogParams::default()
        };
        let api: Api<Pod> = Api::namespaced(self.source.client.clone(), &self.source.namespace);
        let reader = api.log_stream(&self.source.pod, &how).await?;
        self.reader = Some(Box::pin(reader));
        self.lines = Lines::default();
        self.order.again();
        Ok(())
    }

    /// Ends the stream, with an event if it has events.
    fn end(&mut self, reason: &str, detail: &str) -> Option<Vec<u8>> {
        self.is_over = true;
        (self.format == Format::Events).then(|| end(reason, detail).into_bytes())
    }

    /// Returns the text of a piece, or `None` if the client has it.
    fn write(&mut self, piece: &Piece) -> Option<Vec<u8>> {
        let (time, text) = match piece.is_start {
            true => split(&piece.bytes),
            false => (None, piece.bytes.as_slice()),
        };
        if piece.is_start {
            self.order.line(time);
        }
        if self.order.is_known {
            return None;
        }
        let time = time.map(|time| time.to_string());
        Some(match self.format {
            Format::Text { timestamps } => {
                let mut line = Vec::new();
                if let Some(time) = time.filter(|_| timestamps) {
                    line.extend_from_slice(time.as_bytes());
                    line.push(b' ');
                }
                line.extend_from_slice(text);
                if piece.is_end {
                    line.push(b'\n');
                }
                line
            }
            Format::Events => {
                let id = self.order.last.filter(|_| piece.is_end).map(Mark::text);
                let data = json!({
                    "time": time,
                    "text": String::from_utf8_lossy(text),
                    "isEnd": piece.is_end,
                });
                sse::event("line", id.as_deref(), &data.to_string()).into_bytes()
            }
        })
    }
}

/// Returns whether the log is complete. A Pod that cannot be read counts as ended.
async fn has_ended(source: &Source) -> bool {
    let api: Api<Pod> = Api::namespaced(source.client.clone(), &source.namespace);
    match api.get(&source.pod).await {
        Ok(pod) => !crate::logs::is_running(&pod, &source.container),
        Err(kube::Error::Api(_)) => true,
        Err(_no_response) => false,
    }
}

/// Returns the time at the beginning of a line, and the rest. A line of the kubelet itself has no time.
fn split(line: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let Some(space) = line.iter().take(40).position(|byte| *byte == b' ') else {
        return (None, line);
    };
    let (time, rest) = line.split_at(space);
    let time = std::str::from_utf8(time).unwrap_or_default();
    match time.parse() {
        Ok(time) => (Some(time), rest.get(1..).unwrap_or_default()),
        Err(_) => (None, line),
    }
}

/// Rounds down to a second: the kubelet knows no fractions.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Which lines the client has. After the log was opened again, the first ones repeat.
#[derive(Debug)]
struct Order {
    /// The last line that the client has.
    last: Option<Mark>,
    /// The position from which the log was opened again.
    skip: Option<Mark>,
    /// Number of lines with the time of `skip` since then.
    repeated: u32,
    /// Whether the client has the current line.
    is_known: bool,
}

impl Order {
    fn new(last: Option<Mark>) -> Self {
        Self {
            last,
            skip: None,
            repeated: 0,
            is_known: false,
        }
    }

    /// Records that the log was opened again.
    fn again(&mut self) {
        self.skip = self.last;
        self.repeated = 0;
    }

    /// Records the start of a line.
    fn line(&mut self, time: Option<Timestamp>) {
        self.is_known = false;
        let Some(time) = time else {
            return;
        };
        if let Some(skip) = self.skip {
            if time == skip.time {
                self.repeated = self.repeated.saturating_add(1);
            }
            self.is_known = time < skip.time || time == skip.time && self.repeated <= skip.number;
            if self.is_known {
                return;
            }
        }
        let number = match self.last {
            Some(last) if last.time == time => last.number.saturating_add(1),
            Some(_) | None => 1,
        };
        self.last = Some(Mark { time, number });
    }
}

/// Reads lines in pieces, so that a line without an end needs no memory.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    is_inside: bool,
}

impl Lines {
    /// Returns the next piece. It can be cancelled: what was read stays here.
    async fn next(&mut self, reader: &mut Reader) -> io::Result<Option<Piece>> {
        loop {
            let read = reader.fill_buf().await?;
            if read.is_empty() {
                let bytes = std::mem::take(&mut self.bytes);
                return Ok((!bytes.is_empty()).then(|| self.piece(bytes, true)));
            }
            let room = PIECE.saturating_sub(self.bytes.len());
            let part = read.get(..room.min(read.len())).unwrap_or_default();
            let line_end = part.iter().position(|byte| *byte == b'\n');
            let size = line_end.unwrap_or(part.len());
            self.bytes
                .extend_from_slice(part.get(..size).unwrap_or_default());
            reader
                .as_mut()
                .consume(size + usize::from(line_end.is_some()));
            if line_end.is_some() || self.bytes.len() >= PIECE {
                let bytes = std::mem::take(&mut self.bytes);
                return Ok(Some(self.piece(bytes, line_end.is_some())));
            }
        }
    }

    fn piece(&mut self, bytes: Vec<u8>, is_end: bool) -> Piece {
        let is_start = !self.is_inside;
        self.is_inside = !is_end;
        Piece {
            bytes,
            is_start,
            is_end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(second: u32, nano: u32) -> Timestamp {
        format!("2026-01-01T00:00:{second:02}.{nano:09}Z")
            .parse()
            .unwrap()
    }

    #[test]
    fn lines_repeat_after_a_cut_and_are_written_once() {
        let all = [time(1, 5), time(2, 5), time(2, 5), time(2, 5), time(3, 0)];
        for cut in 0..=all.len() {
            let mut order = Order::new(None);
            let mut written = 0;
            for time in &all[..cut] {
                order.line(Some(*time));
                written += usize::from(!order.is_known);
            }
            // Another process, which has only the id.
            let mark = order.last.map(|mark| Mark::parse(&mark.text()).unwrap());
            let mut order = Order::new(mark);
            order.again();
            for time in &all {
                order.line(Some(*time));
                written += usize::from(!order.is_known);
            }
            assert_eq!(written, all.len(), "{cut}");
        }
    }

    #[tokio::test]
    async fn a_line_is_read_in_pieces() {
        let long = "x".repeat(PIECE + 1);
        let text = format!("first\n\n{long}\nlast");
        let mut reader: Reader = Box::pin(futures::io::Cursor::new(text.into_bytes()));
        let mut lines = Lines::default();
        let mut found = Vec::new();
        while let Some(piece) = lines.next(&mut reader).await.unwrap() {
            found.push((piece.bytes.len(), piece.is_start, piece.is_end));
        }
        assert_eq!(
            found,
            [
                (5, true, true),
                (0, true, true),
                (PIECE, true, false),
                (1, false, true),
                (4, true, true)
            ]
        );
    }

    #[test]
    fn a_line_begins_with_its_time() {
        let line = b"2026-01-01T00:00:01.5Z a b";
        assert_eq!(split(line), (Some(time(1, 500_000_000)), &b"a b"[..]));
        for line in [&b"unable to retrieve"[..], b"", b"nospace", b"\xff\xfe x"] {
            assert_eq!(split(line), (None, line));
        }
        assert_eq!(whole_second(time(1, 999_999_999)), time(1, 0));
    }

    #[test]
    fn a_hostile_mark_is_refused() {
        for text in [
            "",
            "_",
            "x_1",
            "2026-01-01T00:00:01Z_-1",
            "2026-01-01T00:00:01Z",
        ] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
    }
}
