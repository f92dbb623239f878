//! Connections: TLS, HTTP/1.1 and HTTP/2, all bounded.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Request;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::Client;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{Instant, interval, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    app::{App, Peer, Settings},
    stall::Stall,
    tls::{HTTP_2, Tls},
};

/// Maximum number of open connections. Each costs about 40 KiB with TLS.
const CONNECTIONS: usize = 4096;

/// Maximum time for the TLS handshake, and for the header of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of the header of a request: a token of 16 KiB, and others.
const HEADER_BYTES: usize = 32 * 1024;

/// Maximum number of headers.
const HEADERS: usize = 64;

/// Maximum number of concurrent requests of a connection with HTTP/2.
const STREAMS: u32 = 32;

/// Interval between pings of a silent connection with HTTP/2. A client that is gone is noticed.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Maximum age of a connection. Without a limit, connections would stay with one replica.
const LIFETIME: Duration = Duration::from_secs(300);

/// Time for the requests of a connection that is being closed, also when the server stops.
const GRACE: Duration = Duration::from_secs(20);

/// Maximum size of a response that waits for its client, for each stream of HTTP/2.
const SEND_BYTES: usize = 32 * 1024;

/// Maximum time in which a client takes nothing of a response.
const STALL: Duration = Duration::from_secs(30);

/// Age from which a connection without a request is closed in favor of a new one.
const IDLE: Duration = Duration::from_millis(100);

/// Interval between reads of the certificate. The kubelet updates a mounted Secret within a minute.
const RELOAD: Duration = Duration::from_secs(60);

/// Pause after a failed accept, and while no connection can be closed.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until shutdown, then completes the requests in flight. The caller bounds that time.
///
/// `client` must have no credentials: each request is sent with those of its caller only.
pub async fn serve(
    listener: TcpListener,
    mut tls: Tls,
    settings: Settings,
    client: Client,
    shutdown: impl Future<Output = ()>,
) {
    let app = Arc::new(App::new(client, settings));
    let (close, closing) = watch::channel(false);
    let mut connections = Connections::default();
    let mut reload = interval(RELOAD);
    let mut shutdown = pin!(shutdown);
    loop {
        let has_room = connections.make_room();
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.tasks.join_next_with_id() => connections.ended(ended),
            _ = reload.tick() => reload_certificate(&mut tls),
            () = sleep(PAUSE), if !has_room => {}
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, from)) => {
                    let connection = Connection {
                        from: from.ip(),
                        acceptor: tls.acceptor(),
                        app: Arc::clone(&app),
                        requests: Arc::default(),
                        closing: closing.clone(),
                    };
                    connections.start(stream, connection);
                }
                // The client has already closed the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    close.send_replace(true);
    while let Some(ended) = connections.tasks.join_next_with_id().await {
        connections.ended(ended);
    }
}

fn reload_certificate(tls: &mut Tls) {
    match tls.reload() {
        Ok(true) => tracing::info!("read a new certificate"),
        Ok(false) => {}
        Err(error) => tracing::warn!("the certificate stays as it was: {error}"),
    }
}

/// The open connections.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    /// Oldest first.
    open: VecDeque<Open>,
}

struct Open {
    task: Id,
    abort: AbortHandle,
    requests: Arc<AtomicUsize>,
    since: Instant,
}

impl Connections {
    fn start(&mut self, stream: TcpStream, connection: Connection) {
        let requests = Arc::clone(&connection.requests);
        let abort = self.tasks.spawn(connection.run(stream));
        self.open.push_back(Open {
            task: abort.id(),
            abort,
            requests,
            since: Instant::now(),
        });
    }

    /// Returns whether another connection may be accepted. If there are too many, the oldest one
    /// without a request is closed, so silent clients keep nobody out.
    fn make_room(&mut self) -> bool {
        if self.open.len() < CONNECTIONS {
            return true;
        }
        let now = Instant::now();
        let open = self.open.iter();
        let open = open.map(|one| (one.requests.load(Ordering::Relaxed), now - one.since));
        let Some(index) = oldest_idle(open) else {
            return false;
        };
        if let Some(closed) = self.open.remove(index) {
            closed.abort.abort();
        }
        true
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let task = match ended {
            Ok((task, ())) => task,
            Err(error) => {
                if !error.is_cancelled() {
                    tracing::error!("the task of a connection failed: {error}");
                }
                error.id()
            }
        };
        self.open.retain(|connection| connection.task != task);
    }
}

/// Returns the index of the oldest connection without a request. Each has its number of requests
/// and its age, oldest first.
fn oldest_idle(mut open: impl Iterator<Item = (usize, Duration)>) -> Option<usize> {
    open.position(|(requests, age)| requests == 0 && age >= IDLE)
}

/// A connection, and everything that it needs.
struct Connection {
    from: IpAddr,
    acceptor: TlsAcceptor,
    app: Arc<App>,
    /// Number of requests in flight.
    requests: Arc<AtomicUsize>,
    closing: watch::Receiver<bool>,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        let accepted = async {
            stream.set_nodelay(true)?;
            self.acceptor.accept(stream).await
        };
        let stream = match timeout(HEADER_TIMEOUT, accepted).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(from = %self.from, "no TLS connection: {error}");
                return;
            }
            Err(_elapsed) => return,
        };
        if let Err(error) = self.serve(stream).await {
            tracing::debug!("a connection broke: {error}");
        }
    }

    async fn serve(self, stream: TlsStream<TcpStream>) -> Result<(), hyper::Error> {
        let is_http_2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
        let Self {
            from,
            acceptor: _,
            app,
            requests,
            closing,
        } = self;
        let ends = Instant::now() + LIFETIME;
        let of_streams = closing.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let app = Arc::clone(&app);
            let peer = Peer {
                from,
                ends,
                closing: of_streams.clone(),
                in_flight: InFlight::new(&requests),
            };
            async move { Ok::<_, Infallible>(app.handle(request, peer).await) }
        });
        let io = TokioIo::new(Stall::new(stream, STALL));
        let until = until_closing(closing);
        if is_http_2 {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS)
                .max_header_list_size(u32::try_from(HEADER_BYTES).unwrap_or(u32::MAX))
                .keep_alive_interval(PING_INTERVAL)
                .max_send_buf_size(SEND_BYTES)
                .serve_connection(io, service);
            let mut connection = pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => return ended,
                () = until => connection.as_mut().graceful_shutdown(),
            }
            within_grace(connection).await
        } else {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(HEADER_BYTES)
                .max_headers(HEADERS)
                .serve_connection(io, service);
            let mut connection = pin!(connection);
            tokio::select! {
                ended = connection.as_mut() => return ended,
                () = until => connection.as_mut().graceful_shutdown(),
            }
            within_grace(connection).await
        }
    }
}

/// Waits until the server stops, or the connection is too old.
async fn until_closing(mut closing: watch::Receiver<bool>) {
    let stopped = async {
        match closing.wait_for(|is_closing| *is_closing).await {
            Ok(_on) => {}
            Err(_server_is_gone) => {}
        }
    };
    tokio::select! {
        () = stopped => {}
        () = sleep(LIFETIME) => {}
    }
}

async fn within_grace(
    connection: impl Future<Output = Result<(), hyper::Error>>,
) -> Result<(), hyper::Error> {
    match timeout(GRACE, connection).await {
        Ok(ended) => ended,
        Err(_elapsed) => Ok(()),
    }
}

/// Counts a request while it is in flight.
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connection_without_a_request_is_closed() {
        let (young, old) = (Duration::from_millis(99), Duration::from_millis(100));
        for (open, wanted) in [
            (vec![], None),
            (vec![(0, old), (0, old)], Some(0)),
            (vec![(1, old), (0, old)], Some(1)),
            (vec![(2, old), (0, young)], None),
        ] {
            assert_eq!(oldest_idle(open.into_iter()), wanted);
        }
    }
}
