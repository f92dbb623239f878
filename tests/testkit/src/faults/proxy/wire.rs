//! A client's connection, which can be reset, and which tells when all was handed to the kernel.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// The connection ends here.
#[derive(Debug)]
pub(super) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the connection is cut")
    }
}

impl std::error::Error for Cut {}

type Act = Box<dyn FnOnce() + Send>;

/// What a request's handler says to the connection that the request came by.
#[derive(Default)]
pub(super) struct Line {
    is_reset: AtomicBool,
    after_flush: Mutex<Option<Act>>,
}

impl Line {
    /// When the connection ends, it ends by RST.
    pub(super) fn reset(&self) -> Cut {
        self.is_reset.store(true, Ordering::Relaxed);
        Cut
    }

    /// `act` is done when what is written so far is with the kernel.
    pub(super) fn after_flush(&self, act: Act) {
        let mut slot = self
            .after_flush
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *slot = Some(act);
    }

    fn flushed(&self) {
        let act = self
            .after_flush
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(act) = act {
            act();
        }
    }
}

/// Hands `act` to the line when it is dropped: as part of a body, when that was written whole.
pub(super) struct AtEnd {
    line: Arc<Line>,
    act: Option<Act>,
}

impl AtEnd {
    pub(super) fn new(line: Arc<Line>, act: Act) -> Self {
        Self {
            line,
            act: Some(act),
        }
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(act) = self.act.take() {
            self.line.after_flush(act);
        }
    }
}

pub(super) struct Wire {
    stream: TlsStream<TcpStream>,
    line: Arc<Line>,
}

impl Wire {
    pub(super) fn new(stream: TlsStream<TcpStream>, line: Arc<Line>) -> Self {
        Self { stream, line }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.line.is_reset.load(Ordering::Relaxed) {
            match self.stream.get_ref().0.set_zero_linger() {
                // It fails on a socket that the client has reset already.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.line.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
