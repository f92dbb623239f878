//! The endpoints `/livez` and `/readyz` on one listener, and `/metrics` on another.
//!
//! They are separate so that a NetworkPolicy can allow a scraper to reach the metrics without the probes.
//! Also, no number of scrapes delays a probe.

use std::convert::Infallible;

use engine::{
    health::Health,
    metrics::{CONTENT_TYPE, Metrics},
    supervise::Shutdown,
};
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE as KIND},
};
use http_body_util::Full;
use hyper::body::Bytes;
use tokio::net::TcpListener;

use crate::listener;

/// Maximum number of open connections to the probes. Each costs about 12 KiB, so all together at most
/// 3 MiB.
const PROBE_CONNECTIONS: usize = 256;

/// Maximum number of open connections to the metrics. Lower than for the probes: each may buffer a whole
/// page.
const METRICS_CONNECTIONS: usize = 64;

/// Serves `/livez` and `/readyz` until shutdown.
///
/// # Errors
/// None: a failure on a connection ends that connection only.
pub async fn serve_probes(
    listener: TcpListener,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let respond = move |method: &Method, path: &str| probe(method, path, &health);
    listener::serve("probes", listener, PROBE_CONNECTIONS, respond, shutdown).await
}

/// Serves `/metrics` until shutdown.
///
/// # Errors
/// None: a failure on a connection ends that connection only.
pub async fn serve_metrics(
    listener: TcpListener,
    metrics: Metrics,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let respond = move |method: &Method, path: &str| scrape(method, path, &metrics);
    listener::serve("metrics", listener, METRICS_CONNECTIONS, respond, shutdown).await
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn probe(method: &Method, path: &str, health: &Health) -> Response<Full<Bytes>> {
    let plain = PLAIN;
    let (status, kind, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/livez") => verdict(health.live(), plain),
        (&Method::GET | &Method::HEAD, "/readyz") => verdict(health.ready(), plain),
        (_, "/livez" | "/readyz") => not_allowed(),
        _ => not_found("this port has /livez and /readyz\n"),
    };
    response(status, kind, text)
}

fn scrape(method: &Method, path: &str, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, kind, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, CONTENT_TYPE, metrics.text())
        }
        (_, "/metrics") => not_allowed(),
        _ => not_found("this port has /metrics\n"),
    };
    response(status, kind, text)
}

type Page = (StatusCode, &'static str, String);

fn not_allowed() -> Page {
    let text = "GET or HEAD only\n".to_owned();
    (StatusCode::METHOD_NOT_ALLOWED, PLAIN, text)
}

fn not_found(text: &str) -> Page {
    (StatusCode::NOT_FOUND, PLAIN, text.to_owned())
}

fn verdict(verdict: Result<(), String>, kind: &'static str) -> Page {
    match verdict {
        Ok(()) => (StatusCode::OK, kind, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, kind, format!("{why}\n")),
    }
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Pages {
        health: Health,
        metrics: Metrics,
    }

    impl Pages {
        fn new() -> Self {
            let (health, metrics) = (Health::default(), Metrics::default());
            Self { health, metrics }
        }

        fn probe(&self, path: &str) -> (u16, String) {
            text(probe(&Method::GET, path, &self.health))
        }

        fn scrape(&self, path: &str) -> (u16, String) {
            text(scrape(&Method::GET, path, &self.metrics))
        }
    }

    fn text(response: Response<Full<Bytes>>) -> (u16, String) {
        let status = response.status().as_u16();
        (status, format!("{response:?}"))
    }

    #[test]
    fn pages_say_what_health_and_metrics_say() {
        let pages = Pages::new();
        let (status, ready) = pages.probe("/readyz");
        assert!(status == 503 && ready.contains("no controller"), "{ready}");
        pages.health.set_synced("TaskRun", true);
        let (status, ready) = pages.probe("/readyz");
        assert!(status == 200 && ready.contains("ok\\n"), "{ready}");
        assert_eq!(pages.probe("/livez").0, 200);
        pages.metrics.leading(true);
        let (status, text) = pages.scrape("/metrics");
        assert!(status == 200 && text.contains("application/openmetrics-text;"));
        assert!(text.contains("orchestrator_leader 1"), "{text}");
    }

    #[test]
    fn r16_a_controller_that_ended_fails_liveness() {
        let pages = Pages::new();
        pages.health.task_ended("taskruns", "panicked: oh");
        let (status, live) = pages.probe("/livez");
        assert!(status == 503 && live.contains("taskruns"), "{live}");
    }

    #[test]
    fn other_paths_and_methods_are_rejected() {
        let Pages { health, metrics } = Pages::new();
        let (get, head, post) = (Method::GET, Method::HEAD, Method::POST);
        for (method, path, on_probes, on_metrics) in [
            (&get, "/", 404, 404),
            (&get, "/health", 404, 404),
            (&get, "/livez/", 404, 404),
            (&get, "/livez", 200, 404),
            (&head, "/livez", 200, 404),
            (&post, "/livez", 405, 404),
            (&post, "/readyz", 405, 404),
            (&get, "/metrics", 404, 200),
            (&head, "/metrics", 404, 200),
            (&post, "/metrics", 404, 405),
        ] {
            let (probed, _) = text(probe(method, path, &health));
            let (scraped, _) = text(scrape(method, path, &metrics));
            assert_eq!(
                (probed, scraped),
                (on_probes, on_metrics),
                "{method} {path}"
            );
        }
    }
}
