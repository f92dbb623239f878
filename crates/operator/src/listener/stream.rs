//! A TCP connection that hyper reads and writes while the listener can examine it.

use std::{
    io::{self, ErrorKind},
    mem::MaybeUninit,
    net::Shutdown,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use socket2::SockRef;
use tokio::net::TcpStream;

/// Number of bytes to read at once. A request header of the kubelet or of Prometheus fits.
const CHUNK: usize = 1024;

/// A connection with two owners: hyper, and the listener that may close it.
#[derive(Debug, Clone)]
pub(super) struct Shared(Arc<TcpStream>);

impl Shared {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Returns whether bytes of the client wait in the socket. Asks the kernel, because the readiness in
    /// the runtime may be outdated.
    pub(super) fn has_unread(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        // A closed or broken connection has nothing to read.
        SockRef::from(&*self.0)
            .peek(&mut byte)
            .is_ok_and(|count| count > 0)
    }

    /// Makes the connection end with a reset. Otherwise each closed connection of a flood would stay in the
    /// kernel's table for a minute.
    pub(super) fn reset_on_close(&self) -> io::Result<()> {
        self.0.set_zero_linger()
    }
}

impl Read for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut chunk = [0; CHUNK];
        let size = CHUNK.min(buffer.remaining());
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(&mut chunk[..size]) {
                Ok(count) => {
                    buffer.put_slice(&chunk[..count]);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Write for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}
