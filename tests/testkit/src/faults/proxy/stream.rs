//! The events of one watch on their way from the server to a client.

use std::{mem, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    Shared,
    answers::Outgoing,
    delayed::{DelayedLines, Kind, is_deletion, kind},
    script::Turn,
    wire::Cut,
};

/// Objects have at most 1.5 MiB in storage.
const LINE: usize = 2 * 1024 * 1024;

/// hyper drops what it has not written yet when a body fails: the time to write it.
const WRITTEN: Duration = Duration::from_millis(50);

/// `bytes`, and then the connection ends in the middle of the answer.
pub(super) fn broken_after(bytes: Bytes) -> Outgoing {
    let first = stream::iter([Ok(Frame::data(bytes))]);
    let then = stream::once(async {
        sleep(WRITTEN).await;
        Err(Cut)
    });
    StreamBody::new(first.chain(then)).boxed_unsync()
}

/// The server's lines.
struct Lines {
    body: Body,
    buffer: Vec<u8>,
}

impl Lines {
    /// With its end of line; none at the end. Safe to be dropped and called again.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Cut> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Some(mem::replace(&mut self.buffer, rest)));
            }
            if self.buffer.len() > LINE {
                return Err(Cut);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(_broken)) => return Err(Cut),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Ok(Some(mem::take(&mut self.buffer))),
            }
        }
    }
}

/// How the stream stands.
enum Server {
    Sends(Lines),
    /// It is over when what is held has come.
    Ended,
    /// As that, but in the middle of the answer.
    Broke,
}

/// One watch.
pub(super) struct Delivery {
    shared: Arc<Shared>,
    resource: String,
    server: Server,
    is_listing: bool,
    /// The injection that ends it in the middle of its first line.
    truncated_by: Option<usize>,
    delayed: DelayedLines,
    calm: watch::Receiver<bool>,
}

impl Delivery {
    pub(super) fn new(
        shared: Arc<Shared>,
        resource: String,
        body: Body,
        is_listing: bool,
        truncated_by: Option<usize>,
    ) -> Self {
        Self {
            calm: shared.calm.subscribe(),
            shared,
            resource,
            server: Server::Sends(Lines {
                body,
                buffer: Vec::new(),
            }),
            is_listing,
            truncated_by,
            delayed: DelayedLines::default(),
        }
    }

    /// As the body of an answer. When the client goes, so does the watch at the server.
    pub(super) fn into_body(self) -> Outgoing {
        let frames = stream::unfold(self, |mut delivery| async {
            let sent = delivery.next().await?;
            Some((sent.map(Frame::data), delivery))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        loop {
            let due = self.due();
            if !due.is_empty() {
                return Some(Ok(Bytes::from(due)));
            }
            let wake = self.delayed.next().or_else(|| self.end_of_silence());
            let is_calm = *self.calm.borrow();
            match &mut self.server {
                Server::Ended if wake.is_none() => return None,
                Server::Broke if wake.is_none() => {
                    sleep(WRITTEN).await;
                    return Some(Err(Cut));
                }
                Server::Ended | Server::Broke => tokio::select! {
                    () = until(wake) => {}
                    Ok(()) = self.calm.changed(), if !is_calm => {}
                },
                Server::Sends(lines) => tokio::select! {
                    () = until(wake) => {}
                    Ok(()) = self.calm.changed(), if !is_calm => {}
                    line = lines.next(), if self.delayed.has_room() => match line {
                        Ok(Some(line)) => self.take(line),
                        Ok(None) => self.server = Server::Ended,
                        Err(Cut) => self.server = Server::Broke,
                    },
                },
            }
        }
    }

    /// The end of a stream is held back by a silence, too: a connection that stalls does not end.
    fn end_of_silence(&self) -> Option<Instant> {
        match self.server {
            Server::Sends(_) => None,
            Server::Ended | Server::Broke => {
                let now = Instant::now().into_std();
                let until = self.shared.script().silence(&self.resource, false, now);
                until.map(Instant::from_std)
            }
        }
    }

    fn take(&mut self, line: Vec<u8>) {
        let (now, kind) = (Instant::now(), kind(&line, self.is_listing));
        let fault = match kind {
            Kind::Event => self.shared.script().hold(&self.resource),
            Kind::InitialEnd => {
                self.is_listing = false;
                None
            }
            Kind::Initial | Kind::Mark => None,
        };
        let silence = match kind {
            Kind::Event | Kind::Mark if !self.is_listing => {
                let is_own_event = kind == Kind::Event && self.shared.part.is_own(&line);
                let mut script = self.shared.script();
                script.silence(&self.resource, is_own_event, now.into_std())
            }
            // A listing is always true, also while events are held back.
            Kind::Initial | Kind::InitialEnd | Kind::Event | Kind::Mark => None,
        };
        let earliest = silence.map_or(now, Instant::from_std);
        self.delayed.push(line, kind, fault, earliest);
    }

    /// What may go now; what comes together goes together.
    fn due(&mut self) -> Vec<u8> {
        let (now, is_calm) = (Instant::now(), *self.calm.borrow());
        let mut due = Vec::new();
        while let Some((kind, line)) = self.delayed.pop(now, is_calm) {
            let is_of_an_object = matches!(kind, Kind::Initial | Kind::Event);
            if let Some(injection) = self.truncated_by.filter(|_| is_of_an_object) {
                due.extend_from_slice(&line[..line.len() / 2]);
                self.shared.script().hit(injection);
                self.delayed.clear();
                self.server = Server::Broke;
                return due;
            }
            let turn = match kind {
                Kind::Event => {
                    let is_own_deletion = is_deletion(&line) && self.shared.part.is_own(&line);
                    self.shared.script().event(&self.resource, is_own_deletion)
                }
                Kind::Initial | Kind::InitialEnd | Kind::Mark => Turn::Pass,
            };
            match turn {
                Turn::Pass => due.extend_from_slice(&line),
                Turn::Last | Turn::End => {
                    if turn == Turn::Last {
                        due.extend_from_slice(&line);
                    }
                    self.delayed.clear();
                    self.server = Server::Ended;
                    return due;
                }
            }
        }
        due
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
