//! Ends connections whose client takes nothing of what it was sent.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// A connection on which a write that makes no progress fails after some time. Reads may be silent.
#[derive(Debug)]
pub(crate) struct Stall<S> {
    inner: S,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Stall<S> {
    pub(crate) fn new(inner: S, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            timer: Box::pin(sleep(limit)),
            is_waiting: false,
        }
    }

    /// Turns a result of a write that waits for too long into an error.
    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.is_waiting = false;
            return polled;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.timer.as_mut().poll(context));
        let error = "the client takes nothing";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stall<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stall<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.limited(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.limited(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(context);
        self.limited(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_client_that_takes_nothing_ends_its_connection() {
        let limit = Duration::from_millis(100);
        let (mut client, server) = duplex(8);
        let mut server = Stall::new(server, limit);
        server.write_all(b"12345678").await.unwrap();
        let stalled = server.write_all(b"9").await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        // One that takes its time, but goes on, does not.
        let mut read = [0; 8];
        client.read_exact(&mut read).await.unwrap();
        server.write_all(b"9").await.unwrap();
    }
}
