//! The pages `/livez`, `/readyz` and `/metrics`.
//!
//! Plain hyper: three pages need no router, and a client that sends its request slowly, or never,
//! must not hold a place for ever, which takes a limit that hyper has and servers on top of it do
//! not offer.

use std::{convert::Infallible, time::Duration};

use engine::{
    health::Health,
    metrics::{CONTENT_TYPE, Metrics},
    supervise::Shutdown,
};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE as KIND},
};
use http_body_util::Full;
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

/// Probes and scrapes come every few seconds, each on a connection of its own.
const CONNECTIONS: usize = 128;

/// A request's head is there by then, or never.
const HEAD: Duration = Duration::from_secs(3);

/// One connection is one request: it is over by then.
const CONNECTION: Duration = Duration::from_secs(10);

/// The pause after a failed accept: the machine may be out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until shutdown.
///
/// # Errors
/// None: what fails on a connection is that connection's end.
pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            Some(ended) = connections.join_next() => if let Err(error) = ended {
                tracing::error!("a connection's task was lost: {error}");
            },
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _from)) => {
                    connections.spawn(connection(stream, metrics.clone(), health.clone()));
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(PAUSE).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, metrics: Metrics, health: Health) {
    let (metrics, health) = (&metrics, &health);
    let service = service_fn(|request: Request<_>| async move {
        let page = page(request.method(), request.uri().path(), metrics, health);
        Ok::<_, Infallible>(page)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection broke: {error}"),
        Err(_elapsed) => tracing::debug!("a connection was cut after {CONNECTION:?}"),
    }
}

fn page(method: &Method, path: &str, metrics: &Metrics, health: &Health) -> Response<Full<Bytes>> {
    let plain = "text/plain; charset=utf-8";
    let (status, kind, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/livez") => verdict(health.live(), plain),
        (&Method::GET | &Method::HEAD, "/readyz") => verdict(health.ready(), plain),
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, CONTENT_TYPE, metrics.text())
        }
        (_, "/livez" | "/readyz" | "/metrics") => (
            StatusCode::METHOD_NOT_ALLOWED,
            plain,
            "GET or HEAD only\n".to_owned(),
        ),
        _ => {
            let text = "there are /livez, /readyz and /metrics\n";
            (StatusCode::NOT_FOUND, plain, text.to_owned())
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(KIND, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

fn verdict(verdict: Result<(), String>, kind: &'static str) -> (StatusCode, &'static str, String) {
    match verdict {
        Ok(()) => (StatusCode::OK, kind, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, kind, format!("{why}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use engine::supervise::Trigger;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::Instant,
    };

    use super::*;

    struct Server {
        address: SocketAddr,
        metrics: Metrics,
        health: Health,
        stop: Trigger,
        task: JoinSet<Result<(), Infallible>>,
    }

    async fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (metrics, health) = (Metrics::default(), Health::default());
        let (stop, shutdown) = Shutdown::pair();
        let mut task = JoinSet::new();
        task.spawn(serve(listener, metrics.clone(), health.clone(), shutdown));
        Server {
            address,
            metrics,
            health,
            stop,
            task,
        }
    }

    impl Server {
        async fn ask(&self, head: &str) -> String {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream
                .write_all(format!("{head}\r\n\r\n").as_bytes())
                .await
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        }

        async fn get(&self, path: &str) -> String {
            self.ask(&format!("GET {path} HTTP/1.1\r\nhost: x")).await
        }
    }

    #[tokio::test]
    async fn pages_say_what_health_and_metrics_say() {
        let server = start().await;
        let ready = server.get("/readyz").await;
        assert!(
            ready.starts_with("HTTP/1.1 503 ") && ready.contains("no controller"),
            "{ready}"
        );
        server.health.set_synced("TaskRun", true);
        let ready = server.get("/readyz?verbose").await;
        assert!(
            ready.starts_with("HTTP/1.1 200 ") && ready.ends_with("\r\n\r\nok\n"),
            "{ready}"
        );
        assert!(server.get("/livez").await.starts_with("HTTP/1.1 200 "));
        server.metrics.leading(true);
        let text = server.get("/metrics").await;
        assert!(
            text.contains("content-type: application/openmetrics-text;"),
            "{text}"
        );
        assert!(
            text.contains("\norchestrator_leader 1\n") && text.ends_with("# EOF\n"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn r16_a_controller_that_ended_fails_liveness() {
        let server = start().await;
        server.health.task_ended("taskruns", "panicked: oh");
        let live = server.get("/livez").await;
        assert!(
            live.starts_with("HTTP/1.1 503 ") && live.contains("taskruns"),
            "{live}"
        );
    }

    #[tokio::test]
    async fn other_paths_and_methods_are_refused() {
        let server = start().await;
        for (head, wanted) in [
            ("GET / HTTP/1.1\r\nhost: x", "404"),
            ("GET /health HTTP/1.1\r\nhost: x", "404"),
            ("GET /livez/ HTTP/1.1\r\nhost: x", "404"),
            (
                "POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 0",
                "405",
            ),
            ("HEAD /livez HTTP/1.1\r\nhost: x", "200"),
            ("nonsense", "400"),
        ] {
            let answer = server.ask(head).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {wanted} ")),
                "{head}: {answer}"
            );
        }
    }

    #[tokio::test]
    async fn who_says_nothing_is_cut_and_does_not_keep_others_waiting() {
        let server = start().await;
        let begin = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS - 1 {
            silent.push(TcpStream::connect(server.address).await.unwrap());
        }
        assert!(server.get("/livez").await.starts_with("HTTP/1.1 200 "));
        assert!(begin.elapsed() < HEAD, "it waited for the silent ones");
        let mut answer = Vec::new();
        for mut stream in silent {
            stream.read_to_end(&mut answer).await.unwrap();
        }
        assert!(begin.elapsed() < CONNECTION, "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn it_stops_at_once() {
        let mut server = start().await;
        let _open = TcpStream::connect(server.address).await.unwrap();
        server.stop.pull();
        let stopped = timeout(Duration::from_secs(1), server.task.join_next());
        stopped.await.unwrap().unwrap().unwrap().unwrap();
        assert!(TcpStream::connect(server.address).await.is_err());
    }
}
