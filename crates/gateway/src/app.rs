//! The way of one request, from its header to its response.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use api::Timestamp;
use http::{Request, Response, header::HOST, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use kube::Client;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::{
    authors::Authors,
    limits::{Admission, Exceeded, Limits},
    openapi,
    perform::{Caller, author, client_of, perform},
    problem::{Problem, Reason},
    request::{Surface, action, check_header},
    results::Reply,
    routes::{self, Operation},
    token::Token,
};

/// Maximum size of a body. The files of a run have 900 KiB, and JSON may escape each byte.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Maximum time until the body has arrived.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for the whole request after its header.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of all bodies at the same time, in KiB. Objects and requests made from a body need
/// about five times its size.
const BODIES_KIB: usize = 48 * 1024;

/// Settings of the server.
#[derive(Clone)]
pub struct Settings {
    /// Namespace of the endpoints below `/api/v1/pm`.
    pub pm_namespace: String,
    /// Returns the time of day, for explanations.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Settings")
            .field("pm_namespace", &self.pm_namespace)
            .finish_non_exhaustive()
    }
}

/// Everything that the requests of a process share.
pub(crate) struct App {
    client: Client,
    settings: Settings,
    authors: Authors,
    limits: Mutex<Limits>,
    bodies: Semaphore,
}

impl App {
    /// Creates the state of a process. The client has no credentials.
    pub(crate) fn new(client: Client, settings: Settings) -> Self {
        Self {
            client,
            settings,
            authors: Authors::default(),
            limits: Mutex::default(),
            bodies: Semaphore::new(BODIES_KIB),
        }
    }

    /// Handles a request from this address.
    pub(crate) async fn handle(
        &self,
        request: Request<Incoming>,
        from: IpAddr,
    ) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let surface = Surface::of(parts.uri.path());
        let reply = match timeout(RESPONSE_TIMEOUT, self.reply(&parts, body, from)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(problem)) => Reply::problem(&problem, surface),
            Err(_elapsed) => {
                let seconds = RESPONSE_TIMEOUT.as_secs();
                let detail = format!(
                    "no response within {seconds} s; the outcome is unknown; read the object again"
                );
                Reply::problem(&Problem::new(Reason::Unanswered, detail), surface)
            }
        };
        tracing::debug!(
            method = %parts.method,
            path = parts.uri.path(),
            status = reply.status,
            "handled a request"
        );
        reply.into_response()
    }

    async fn reply(&self, parts: &Parts, body: Incoming, from: IpAddr) -> Result<Reply, Problem> {
        let path = parts.uri.path();
        let surface = Surface::of(path);
        let matched = routes::find(parts.method.as_str(), path)?;
        let route = matched.route;
        if route.operation == Operation::OpenApi {
            return Ok(Reply::prepared(openapi::text()));
        }
        check_header(route.verb, host(parts), &parts.headers)?;
        let (token, _unverified) = self.token(parts, from)?;
        let is_accepted = Arc::new(AtomicBool::new(false));
        let caller = Caller {
            client: client_of(&self.client, &token, &is_accepted),
            token: &token,
            authors: &self.authors,
            now: (self.settings.now)(),
        };
        let performed = async {
            // A caller that the API server does not know must not occupy memory.
            let is_known = route.bodies.is_empty() || self.limits().is_accepted(token.digest);
            if !is_known {
                author(&caller).await?;
            }
            let (body, _held) = self.read(body).await?;
            let query = parts.uri.query();
            let namespace = &self.settings.pm_namespace;
            let action = action(&matched, query, &parts.headers, &body, namespace)?;
            drop(body);
            perform(action, &caller).await
        };
        let performed = performed.await;
        match &performed {
            Err(problem) if problem.reason == Reason::Unauthenticated => {
                self.authors.remove(token.digest);
                self.limits().failed(token.digest, from, Instant::now());
            }
            Ok(_) | Err(_) if is_accepted.load(Ordering::Relaxed) => {
                self.limits().accepted(token.digest);
            }
            Ok(_) | Err(_) => {}
        }
        Ok(Reply::success(performed?, route.status, surface))
    }

    /// Reads the token, and counts the request.
    fn token(
        &self,
        parts: &Parts,
        from: IpAddr,
    ) -> Result<(Token, Option<Unverified<'_>>), Problem> {
        let now = Instant::now();
        let token = match Token::of(&parts.headers) {
            Ok(token) => token,
            Err(problem) => {
                self.limits().refuse(from, now).map_err(exceeded)?;
                return Err(problem);
            }
        };
        let admission = self.limits().admit(token.digest, from, now);
        Ok(match admission.map_err(exceeded)? {
            Admission::Accepted => (token, None),
            Admission::Unverified => (token, Some(Unverified { app: self, from })),
        })
    }

    /// Reads a body. The permits count its memory until they are dropped.
    async fn read(&self, body: Incoming) -> Result<(Vec<u8>, Vec<SemaphorePermit<'_>>), Problem> {
        match timeout(BODY_TIMEOUT, self.collect(body)).await {
            Ok(found) => found,
            Err(_elapsed) => {
                let seconds = BODY_TIMEOUT.as_secs();
                let detail = format!("the body did not arrive within {seconds} s");
                Err(Problem::new(Reason::SlowRequest, detail))
            }
        }
    }

    async fn collect(
        &self,
        mut body: Incoming,
    ) -> Result<(Vec<u8>, Vec<SemaphorePermit<'_>>), Problem> {
        let (mut bytes, mut held) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| Problem::invalid(format!("the body broke off: {error}")))?;
            let Ok(data) = frame.into_data() else {
                // Trailers have no meaning here.
                continue;
            };
            if bytes.len().saturating_add(data.len()) > BODY_LIMIT {
                let detail = format!("a body may have {BODY_LIMIT} bytes");
                return Err(Problem::new(Reason::TooLarge, detail));
            }
            let size = u32::try_from(data.len().div_ceil(1024)).unwrap_or(u32::MAX);
            let permit = self
                .bodies
                .acquire_many(size)
                .await
                .map_err(|error| Problem::new(Reason::Unanswered, error.to_string()))?;
            held.push(permit);
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, held))
    }

    fn limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request with a token that the API server has not accepted yet. Dropping it ends its count.
struct Unverified<'a> {
    app: &'a App,
    from: IpAddr,
}

impl Drop for Unverified<'_> {
    fn drop(&mut self) {
        self.app.limits().ended(self.from);
    }
}

fn exceeded(limit: Exceeded) -> Problem {
    Problem::new(Reason::TooManyRequests, limit.detail())
}

/// Returns the host of a request. HTTP/2 has it in the address.
fn host(parts: &Parts) -> Option<&str> {
    if let Some(authority) = parts.uri.authority() {
        return Some(authority.as_str());
    }
    let Ok(host) = parts.headers.get(HOST)?.to_str() else {
        return None;
    };
    Some(host)
}
