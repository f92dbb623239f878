//! Streams: server-sent events, and logs that are followed.
//!
//! # Guarantees
//! - Streams of one caller on the same runs share one watch at the API server.
//! - A stream holds a position and at most one event, so a slow client costs no memory.
//! - A client that resumes with `Last-Event-ID` gets each change once, or `resync` and a snapshot.

pub(crate) mod cursor;
pub(crate) mod hub;
pub(crate) mod log;
pub(crate) mod object;
pub(crate) mod runs;
pub(crate) mod sse;
pub(crate) mod state;
mod watch;

use std::{convert::Infallible, pin::Pin, time::Duration};

use futures::Stream;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep_until},
};

/// The body of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The texts of a stream.
pub(crate) type Texts = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// Maximum age of a stream. A permission that is revoked ends within this time.
const LIFETIME: Duration = Duration::from_secs(300);

/// Interval between comments on a silent stream.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Maximum size of a piece of a stream.
const PIECE: usize = 16 * 1024;

/// Returns the body with these texts.
pub(crate) fn body(texts: Texts) -> Body {
    use futures::StreamExt;
    let pieces = texts.flat_map(|text| {
        let mut rest = text;
        let pieces = std::iter::from_fn(move || match rest.len() {
            0 => None,
            size => Some(Ok::<_, Infallible>(Frame::data(
                rest.split_to(size.min(PIECE)),
            ))),
        });
        futures::stream::iter(pieces)
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// When a stream ends by itself.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    at: Instant,
    closing: Receiver<bool>,
}

impl Ends {
    /// Returns the end of a stream that begins now: at its maximum age, before its connection is closed,
    /// and when the server stops.
    pub(crate) fn new(connection: Instant, closing: Receiver<bool>) -> Self {
        Self {
            at: connection.min(Instant::now() + LIFETIME),
            closing,
        }
    }

    /// Returns the reason if the stream must end now.
    pub(crate) fn reached(&self) -> Option<&'static str> {
        if *self.closing.borrow() {
            return Some("Closing");
        }
        (Instant::now() >= self.at).then_some("Expired")
    }

    /// Waits until the stream must end, and returns the reason.
    pub(crate) async fn wait(&mut self) -> &'static str {
        let stopped = async {
            match self.closing.wait_for(|is_closing| *is_closing).await {
                Ok(_on) => {}
                Err(_server_is_gone) => {}
            }
        };
        tokio::select! {
            () = stopped => "Closing",
            () = sleep_until(self.at) => "Expired",
        }
    }
}

/// Returns the last event of a stream.
pub(crate) fn end(reason: &str, detail: &str) -> String {
    let data = serde_json::json!({ "reason": reason, "detail": detail });
    sse::event("end", None, &data.to_string())
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_large_text_is_sent_in_pieces() {
        let text = vec![7; 2 * PIECE + 1];
        let texts = futures::stream::iter([Bytes::from(text.clone()), Bytes::new()]);
        let mut body = body(texts.boxed());
        let mut sizes = Vec::new();
        let mut all = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.into_data().unwrap();
            sizes.push(data.len());
            all.extend_from_slice(&data);
        }
        assert_eq!(sizes, [PIECE, PIECE, 1]);
        assert_eq!(all, text);
    }

    #[tokio::test]
    async fn a_stream_ends_before_its_connection_and_with_the_server() {
        let (close, closing) = tokio::sync::watch::channel(false);
        let mut ends = Ends::new(Instant::now(), closing.clone());
        assert_eq!(ends.wait().await, "Expired");
        let mut ends = Ends::new(Instant::now() + LIFETIME, closing);
        close.send_replace(true);
        assert_eq!(ends.wait().await, "Closing");
    }
}
