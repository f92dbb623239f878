//! A client of streams: reads server-sent events in chunks, as they come.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout, timeout_at},
};

use super::{
    client::{Answer, Call, Connection, Https, split},
    document,
};

/// For the next event. A silent stream has a comment every 15 s.
const LIMIT: Duration = Duration::from_secs(60);

/// For the event that a case waits for. A permission that was removed ends a stream after 90 s.
const WHOLE: Duration = Duration::from_secs(150);

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) data: Value,
}

/// An open stream. Dropping it cuts the connection.
pub(super) struct EventStream {
    connection: Connection,
    /// Bytes of chunks that are not complete.
    raw: Vec<u8>,
    /// Text of events that are not complete.
    text: Vec<u8>,
    is_over: bool,
    /// The position after the last event.
    pub(super) last_id: String,
    pub(super) head: Answer,
}

impl EventStream {
    /// Opens a stream, whose response must be as the OpenAPI document says.
    pub(super) async fn open(https: &Https, call: &Call) -> Result<Self> {
        let mut connection = https.open().await?;
        connection.write_all(call.head(&[]).as_bytes()).await?;
        connection.flush().await?;
        let mut raw: Vec<u8> = Vec::new();
        let head = loop {
            if let Some((head, rest)) = split(&raw) {
                let head = Answer::of_head(head)?;
                raw = rest.to_vec();
                break head;
            }
            let read = timeout(LIMIT, connection.read_buf(&mut raw)).await??;
            ensure!(read > 0, "the connection ended before the response");
        };
        head.has_headers()?;
        document::check(call.method.as_str(), &call.target, &head)?;
        head.is(200)?;
        Ok(Self {
            connection,
            raw,
            text: Vec::new(),
            is_over: false,
            last_id: String::new(),
            head,
        })
    }

    /// Reads more text. Returns whether the response goes on.
    pub(super) async fn more(&mut self) -> Result<bool> {
        loop {
            if let Some(chunk) = take_chunk(&mut self.raw)? {
                self.is_over = chunk.is_empty();
                self.text.extend_from_slice(&chunk);
                return Ok(!self.is_over);
            }
            let read = timeout(LIMIT, self.connection.read_buf(&mut self.raw))
                .await
                .context("no event and no comment")??;
            ensure!(read > 0, "the connection was cut");
        }
    }

    /// Returns the next event, or `None` after the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(block) = take_block(&mut self.text) {
                let (event, id) = parse(&block)?;
                if let Some(id) = id {
                    self.last_id = id;
                }
                if event.is_some() {
                    return Ok(event);
                }
                continue;
            }
            if self.is_over || !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// Returns all events up to the one that is wanted.
    pub(super) async fn until(&mut self, is_wanted: impl Fn(&Event) -> bool) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < WHOLE {
            let Some(event) = self.next_until(begin + WHOLE).await? else {
                bail!("the stream ended after {events:?}");
            };
            let is_last = is_wanted(&event);
            events.push(event);
            if is_last {
                return Ok(events);
            }
        }
        bail!("not within {WHOLE:?}: {events:?}")
    }

    /// Comments come for as long as the stream is open, so they are no progress.
    async fn next_until(&mut self, end: Instant) -> Result<Option<Event>> {
        let next = timeout_at(end, self.next()).await;
        next.context("only comments came")?
    }

    /// Returns the text that was read and is no event. It is the log, if the response is text.
    pub(super) fn plain(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

/// Removes the next chunk, if it is complete. The last chunk is empty.
fn take_chunk(raw: &mut Vec<u8>) -> Result<Option<Vec<u8>>> {
    let Some(end) = raw.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let size = std::str::from_utf8(&raw[..end])?;
    let size = usize::from_str_radix(size.trim(), 16).context("the size of a chunk")?;
    let (begin, after) = (end + 2, end + 2 + size);
    if raw.len() < after + 2 {
        return Ok(None);
    }
    let chunk = raw[begin..after].to_vec();
    raw.drain(..after + 2);
    Ok(Some(chunk))
}

/// Removes the next block of lines, if it is complete.
fn take_block(text: &mut Vec<u8>) -> Option<String> {
    let end = text.windows(2).position(|two| two == b"\n\n")?;
    let block = String::from_utf8_lossy(&text[..end]).into_owned();
    text.drain(..end + 2);
    Some(block)
}

/// Reads a block: an event, if it has data, and a position.
fn parse(block: &str) -> Result<(Option<Event>, Option<String>)> {
    let (mut name, mut data, mut id) = (String::new(), None, None);
    for line in block.lines() {
        match line.split_once(": ").unwrap_or((line, "")) {
            ("event", value) => value.clone_into(&mut name),
            ("data", value) => data = Some(serde_json::from_str(value)?),
            ("id" | "id:", value) => id = Some(value.to_owned()),
            // A comment.
            ("" | ":", _) => {}
            (field, _) => bail!("the field '{field}' in '{block}'"),
        }
    }
    Ok((data.map(|data| Event { name, data }), id))
}

/// The runs that a client knows from the events of a stream.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Name and row.
    pub(super) runs: BTreeMap<String, Value>,
    /// How often each name came since the last `resync`, snapshots not counted.
    pub(super) changes: BTreeMap<String, usize>,
}

impl Known {
    /// Applies an event, as a client has to.
    pub(super) fn apply(&mut self, event: &Event) -> Result<()> {
        let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
        match event.name.as_str() {
            "snapshot" => {
                for row in event.data.as_array().context("a snapshot is a list")? {
                    self.runs.insert(name(row), row.clone());
                }
            }
            "put" => {
                let name = name(&event.data);
                *self.changes.entry(name.clone()).or_default() += 1;
                self.runs.insert(name, event.data.clone());
            }
            "delete" => {
                let name = name(&event.data);
                *self.changes.entry(name.clone()).or_default() += 1;
                self.runs.remove(&name);
            }
            "resync" => *self = Self::default(),
            "live" => {}
            other => bail!("the event '{other}': {}", event.data),
        }
        Ok(())
    }

    pub(super) fn apply_all(&mut self, events: &[Event]) -> Result<()> {
        events.iter().try_for_each(|event| self.apply(event))
    }

    /// Returns the names of the runs.
    pub(super) fn names(&self) -> Vec<&str> {
        self.runs.keys().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn chunks_are_taken_when_they_are_complete() {
        let mut raw = b"5\r\nhel".to_vec();
        assert_eq!(take_chunk(&mut raw).unwrap(), None);
        raw.extend_from_slice(b"lo\r\n0\r\n\r\n");
        assert_eq!(take_chunk(&mut raw).unwrap(), Some(b"hello".to_vec()));
        assert_eq!(take_chunk(&mut raw).unwrap(), Some(Vec::new()));
        assert!(take_chunk(&mut b"x\r\n".to_vec()).is_err());
    }

    #[test]
    fn a_block_is_an_event_or_a_comment() {
        let mut text = b"event: put\nid: 7\ndata: {\"name\":\"a\"}\n\n: \nid: 8\n\nevent".to_vec();
        let block = take_block(&mut text).unwrap();
        let (event, id) = parse(&block).unwrap();
        let event = event.unwrap();
        assert_eq!(
            (event.name.as_str(), &event.data),
            ("put", &json!({ "name": "a" }))
        );
        assert_eq!(id.as_deref(), Some("7"));
        let comment = parse(&take_block(&mut text).unwrap()).unwrap();
        assert_eq!(comment, (None, Some("8".to_owned())));
        assert_eq!(take_block(&mut text), None);
        assert_eq!(
            parse("event: resync\nid: \ndata: {}").unwrap().1.as_deref(),
            Some("")
        );
        assert!(parse("retry: 5").is_err());
    }

    #[test]
    fn a_client_knows_what_the_events_say() {
        let event = |name: &str, data: Value| Event {
            name: name.to_owned(),
            data,
        };
        let mut known = Known::default();
        let events = [
            event("snapshot", json!([{ "name": "a" }, { "name": "b" }])),
            event("live", json!({})),
            event("put", json!({ "name": "c" })),
            event("delete", json!({ "name": "a" })),
        ];
        known.apply_all(&events).unwrap();
        assert_eq!(known.names(), ["b", "c"]);
        assert_eq!(known.changes["c"], 1);
        known.apply(&event("resync", json!({}))).unwrap();
        assert!(known.names().is_empty());
        assert!(known.apply(&event("end", json!({}))).is_err());
    }
}
