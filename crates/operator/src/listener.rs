//! A listener that a flood of connections cannot stop.
//!
//! The number of open connections is bounded. A full listener still accepts connections: it closes the
//! oldest connection that has not sent a request. So the kubelet is served while other clients keep any
//! number of silent connections open.

mod room;
mod stream;

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::supervise::Shutdown;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioTimer;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep, timeout},
};

use room::{Open, Room, Stage, make_room};
use stream::Shared;

/// Maximum time for a complete request header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size of a request header in bytes. hyper allows no smaller limit.
const HEADER_BYTES: usize = 8 * 1024;

/// Maximum time for a whole connection, which is one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of connections that the kernel queues until they are accepted. A kernel may allow fewer. If this
/// queue is full, the kernel drops new connections, and the kubelet tries again only after a second.
const BACKLOG: u32 = 4096;

/// Pause after a failed accept: the process may be out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Minimum time between two warnings about closed connections.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Opens a listener.
///
/// # Errors
/// When the address is in use or does not belong to this machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Without this option, a restarted process could not listen while its old connections end.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until shutdown: one request for each connection, at most `limit` connections.
///
/// # Errors
/// None: a failure on a connection ends that connection only.
pub async fn serve<R>(
    name: &'static str,
    listener: TcpListener,
    limit: usize,
    respond: R,
    shutdown: Shutdown,
) -> Result<(), Infallible>
where
    R: Fn(&Method, &str) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    let mut connections = Connections::new(name, limit);
    loop {
        let wait = connections.make_room();
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            Some(ended) = connections.tasks.join_next_with_id() => connections.ended(ended),
            () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            accepted = listener.accept(), if wait.is_none() => match accepted {
                Ok((stream, from)) => connections.start(stream, from, respond.clone()),
                // The client has already closed the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(listener = name, "cannot accept a connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// The open connections of a listener.
struct Connections {
    name: &'static str,
    limit: usize,
    tasks: JoinSet<()>,
    /// Oldest first. A closed connection is removed immediately, but its task may exist for a moment.
    open: VecDeque<Connection>,
    closed: u64,
    warned: Option<Instant>,
}

struct Connection {
    task: Id,
    abort: tokio::task::AbortHandle,
    from: SocketAddr,
    since: Instant,
    stream: Shared,
    has_header: Arc<AtomicBool>,
}

impl Connections {
    fn new(name: &'static str, limit: usize) -> Self {
        Self {
            name,
            limit,
            tasks: JoinSet::new(),
            open: VecDeque::new(),
            closed: 0,
            warned: None,
        }
    }

    fn start<R>(&mut self, stream: TcpStream, from: SocketAddr, respond: R)
    where
        R: Fn(&Method, &str) -> Response<Full<Bytes>> + Send + Sync + 'static,
    {
        let stream = Shared::new(stream);
        let has_header = Arc::new(AtomicBool::new(false));
        let abort = self
            .tasks
            .spawn(connection(stream.clone(), Arc::clone(&has_header), respond));
        self.open.push_back(Connection {
            task: abort.id(),
            abort,
            from,
            since: Instant::now(),
            stream,
            has_header,
        });
    }

    /// Closes connections beyond the limit. Returns how long the listener must wait before it accepts
    /// another connection, or `None` if it may accept now.
    fn make_room(&mut self) -> Option<Duration> {
        loop {
            // Tasks of closed connections keep their sockets until they are scheduled.
            if self.tasks.len() >= 2 * self.limit.max(1) {
                return Some(room::HEADER_GRACE);
            }
            if self.open.len() <= self.limit {
                return None;
            }
            let now = Instant::now();
            let open: Vec<Open> = self.open.iter().map(|one| one.snapshot(now)).collect();
            let has_unread = |index| {
                let connection: Option<&Connection> = self.open.get(index);
                connection.is_some_and(|connection| connection.stream.has_unread())
            };
            match make_room(self.limit, &open, has_unread) {
                Room::Available => return None,
                Room::Wait(wait) => return Some(wait),
                Room::Close(index) => self.close(index, now),
            }
        }
    }

    fn close(&mut self, index: usize, now: Instant) {
        let Some(connection) = self.open.remove(index) else {
            return;
        };
        if let Err(error) = connection.stream.reset_on_close() {
            tracing::debug!(listener = self.name, "cannot reset a connection: {error}");
        }
        connection.abort.abort();
        self.closed += 1;
        let is_due = self
            .warned
            .is_none_or(|warned| now - warned >= WARNING_INTERVAL);
        if is_due {
            self.warned = Some(now);
            tracing::warn!(
                listener = self.name,
                closed = self.closed,
                from = %connection.from,
                "more than {} open connections: closed the oldest without a request; \
                 restrict access to this port by a NetworkPolicy",
                self.limit
            );
        }
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let task = match ended {
            Ok((task, ())) => task,
            Err(error) => {
                if !error.is_cancelled() {
                    tracing::error!(listener = self.name, "a connection's task failed: {error}");
                }
                error.id()
            }
        };
        self.open.retain(|connection| connection.task != task);
    }
}

impl Connection {
    fn snapshot(&self, now: Instant) -> Open {
        Open {
            age: now - self.since,
            stage: if self.has_header.load(Ordering::Relaxed) {
                Stage::Responding
            } else {
                Stage::AwaitingHeader
            },
        }
    }
}

async fn connection<R>(stream: Shared, has_header: Arc<AtomicBool>, respond: R)
where
    R: Fn(&Method, &str) -> Response<Full<Bytes>>,
{
    let (has_header, respond) = (&*has_header, &respond);
    let service = service_fn(|request: Request<_>| async move {
        has_header.store(true, Ordering::Relaxed);
        Ok::<_, Infallible>(respond(request.method(), request.uri().path()))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(stream, service);
    match timeout(CONNECTION_TIMEOUT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection broke: {error}"),
        Err(_elapsed) => tracing::debug!("a connection was closed after {CONNECTION_TIMEOUT:?}"),
    }
}

#[cfg(test)]
mod tests;
