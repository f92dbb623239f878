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
use http::{HeaderName, Request, Response, header::HOST, request::Parts};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kube::Client;
use serde_json::json;
use tokio::{
    sync::{Semaphore, watch},
    time::{self, timeout},
};

use crate::{
    authors::Authors,
    bodies,
    body_memory::{BodyMemory, SIGN_INS},
    limits::{Admission, Exceeded, Held, Limits},
    observer::Observer,
    openapi,
    perform::{Caller, Opened, Stage, author, client_of, open, perform},
    problem::{Problem, Reason},
    request::{Command, StreamQuery, Surface, action, check_browser, check_header, check_host},
    results::{Reply, stream_response},
    routes::{self, Matched, Operation},
    server::InFlight,
    session::Sessions,
    streams::{Body, Ends, hub::Hub},
    token::{Digest, Origin, Token},
};

/// Maximum size of a body. The files of a run have 900 KiB, and JSON may escape each byte.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Maximum size of the body of a sign-in: a token of 16 KiB.
const SIGN_IN_LIMIT: usize = 20 * 1024;

/// Maximum time until the body has arrived.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for the whole request after its header.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of lists of runs at the same time. Each needs about 10 MiB.
const LISTS: usize = 8;

/// The label of requests without a route in metrics.
const NO_ROUTE: &str = "other";

/// Settings of the server.
#[derive(Clone)]
pub struct Settings {
    /// Namespace of the endpoints below `/api/v1/pm`.
    pub pm_namespace: String,
    /// Maximum number of streams of one caller at the same time.
    pub streams_per_caller: u32,
    /// Names of the server, without a port. Requests for other names are rejected. Empty: all
    /// names are accepted.
    pub hosts: Vec<String>,
    /// Header with the token, from an authenticating proxy.
    pub proxy_header: Option<HeaderName>,
    /// Keys of the sessions of browsers. `None`: browsers cannot sign in.
    pub sessions: Option<Sessions>,
    /// Receives the events of the gateway.
    pub observer: Arc<dyn Observer>,
    /// Returns the time of day, for explanations.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Settings")
            .field("pm_namespace", &self.pm_namespace)
            .field("streams_per_caller", &self.streams_per_caller)
            .field("hosts", &self.hosts)
            .field("proxy_header", &self.proxy_header)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

/// Everything that the requests of a process share.
pub(crate) struct App {
    client: Client,
    settings: Settings,
    authors: Authors,
    limits: Mutex<Limits>,
    body_memory: Mutex<BodyMemory>,
    lists: Semaphore,
    hub: Hub,
}

/// The connection of a request.
pub(crate) struct Peer {
    pub(crate) from: IpAddr,
    /// When the connection is closed.
    pub(crate) ends: time::Instant,
    /// Whether the server stops.
    pub(crate) closing: watch::Receiver<bool>,
    /// Counts the request while it is in flight.
    pub(crate) in_flight: InFlight,
}

/// The answer to a request.
enum Answer {
    Whole(Reply),
    Stream(Opened),
}

impl App {
    /// Creates the state of a process. The client has no credentials.
    pub(crate) fn new(client: Client, settings: Settings) -> Self {
        Self {
            client,
            settings,
            authors: Authors::default(),
            limits: Mutex::default(),
            body_memory: Mutex::default(),
            lists: Semaphore::new(LISTS),
            hub: Hub::default(),
        }
    }

    /// Handles a request of this connection.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> Response<Body> {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let surface = Surface::of(path);
        let matched = routes::find(parts.method.as_str(), path);
        let label = match &matched {
            Ok(matched) => matched.route.path,
            Err(_) => NO_ROUTE,
        };
        let answer = match matched {
            Ok(matched) => {
                let reply = self.reply(&matched, &parts, body, peer);
                match timeout(RESPONSE_TIMEOUT, reply).await {
                    Ok(answer) => answer,
                    Err(_elapsed) => Err(no_response()),
                }
            }
            Err(problem) => Err(problem),
        };
        let observer = &self.settings.observer;
        let response = match answer {
            Ok(Answer::Whole(reply)) => reply.into_response(),
            Ok(Answer::Stream(opened)) => stream_response(opened),
            Err(problem) => {
                if is_rejection(problem.reason) {
                    observer.rejected(problem.reason.name());
                }
                Reply::problem(&problem, surface).into_response()
            }
        };
        let code = response.status().as_u16();
        observer.responded(label, code, started.elapsed());
        tracing::debug!(method = %parts.method, path, code, "handled a request");
        response
    }

    async fn reply(
        self: &Arc<Self>,
        matched: &Matched<'_>,
        parts: &Parts,
        body: Incoming,
        peer: Peer,
    ) -> Result<Answer, Problem> {
        let route = matched.route;
        check_host(host(parts), &self.settings.hosts)?;
        if route.operation == Operation::OpenApi {
            return Ok(Answer::Whole(Reply::prepared(openapi::text())));
        }
        check_header(route.verb, host(parts), &parts.headers)?;
        if route.operation == Operation::SignOut {
            check_browser(route.verb, &parts.headers)?;
            let reply = Reply::session(&json!({}), Sessions::no_cookies());
            return Ok(Answer::Whole(reply));
        }
        if route.operation == Operation::SignIn {
            check_browser(route.verb, &parts.headers)?;
            return self.sign_in(body, peer.from).await.map(Answer::Whole);
        }
        let now = (self.settings.now)();
        let (token, _unverified) = self.token(matched, parts, peer.from, now)?;
        let is_accepted = Arc::new(AtomicBool::new(false));
        let caller = self.caller(&token, &is_accepted, now);
        let from = peer.from;
        let performed = async {
            // A caller that the API server does not know must not occupy memory.
            let is_known = route.bodies.is_empty() || self.limits().is_accepted(token.digest);
            if !is_known {
                author(&caller).await?;
            }
            let (body, _reserved) = self.read(body, BODY_LIMIT, token.digest).await?;
            let query = parts.uri.query();
            let namespace = &self.settings.pm_namespace;
            let command = action(matched, query, &parts.headers, &body, namespace)?;
            drop(body);
            match command {
                Command::Once(action) => {
                    let done = perform(action, &caller).await?;
                    let surface = Surface::of(parts.uri.path());
                    let reply = Reply::success(done, route.status, surface);
                    Ok(Answer::Whole(reply))
                }
                Command::Stream(query) => self.open(query, &caller, parts, peer).await,
            }
        };
        let performed = performed.await;
        self.record(performed.as_ref().err(), token.digest, from, &is_accepted);
        performed
    }

    fn caller<'a>(
        &'a self,
        token: &'a Token,
        is_accepted: &Arc<AtomicBool>,
        now: Timestamp,
    ) -> Caller<'a> {
        Caller {
            client: client_of(&self.client, token, is_accepted),
            token,
            authors: &self.authors,
            lists: &self.lists,
            now,
        }
    }

    /// Opens a stream, and counts it until it ends.
    async fn open(
        self: &Arc<Self>,
        query: StreamQuery,
        caller: &Caller<'_>,
        parts: &Parts,
        peer: Peer,
    ) -> Result<Answer, Problem> {
        let held = match &query {
            StreamQuery::Runs(_) | StreamQuery::Run(_) => Held::Stream,
            StreamQuery::Log { .. } => Held::Log,
        };
        let digest = caller.token.digest;
        let per_caller = self.settings.streams_per_caller;
        let opened = self.limits().open(digest, held, per_caller);
        opened.map_err(exceeded)?;
        let guard = Slot {
            app: Arc::clone(self),
            caller: digest,
            held,
            _in_flight: peer.in_flight,
        };
        guard.report();
        let last_id = match parts.headers.get("last-event-id").map(|id| id.to_str()) {
            None => None,
            Some(Ok(id)) => Some(id).filter(|id| !id.is_empty()),
            Some(Err(_not_text)) => Some("invalid"),
        };
        let stage = Stage {
            hub: &self.hub,
            now: Arc::clone(&self.settings.now),
            ends: Ends::new(peer.ends, peer.closing),
            last_id,
            guard,
        };
        open(query, caller, stage).await.map(Answer::Stream)
    }

    /// Signs a browser in, after the API server has accepted its token.
    async fn sign_in(&self, body: Incoming, from: IpAddr) -> Result<Reply, Problem> {
        let Some(sessions) = &self.settings.sessions else {
            let detail = "browsers cannot sign in: the gateway has no key for sessions";
            return Err(Problem::new(Reason::NotInstalled, detail));
        };
        let (body, _reserved) = self.read(body, SIGN_IN_LIMIT, SIGN_INS).await?;
        let text = bodies::sign_in(&body)?;
        let token = Token::parse(text.as_bytes(), "token")?;
        let _unverified = self.admit(&token, from)?;
        let now = (self.settings.now)();
        let is_accepted = Arc::new(AtomicBool::new(false));
        let name = author(&self.caller(&token, &is_accepted, now)).await;
        self.record(name.as_ref().err(), token.digest, from, &is_accepted);
        let name = name?;
        let (cookies, expires) = sessions.cookies(&text, now)?;
        let body = json!({ "username": name, "expires": expires.to_string() });
        Ok(Reply::session(&body, cookies))
    }

    /// Records whether the API server accepted the token of a request.
    fn record(
        &self,
        problem: Option<&Problem>,
        token: Digest,
        from: IpAddr,
        is_accepted: &AtomicBool,
    ) {
        if problem.is_some_and(|problem| problem.reason == Reason::Unauthenticated) {
            self.authors.remove(token);
            self.limits().failed(token, from, Instant::now());
        } else if is_accepted.load(Ordering::Relaxed) {
            self.limits().accepted(token);
        }
    }

    /// Finds the token, and counts the request.
    fn token(
        &self,
        matched: &Matched<'_>,
        parts: &Parts,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<(Token, Option<Unverified<'_>>), Problem> {
        let Settings {
            proxy_header,
            sessions,
            ..
        } = &self.settings;
        let found = Token::find(
            &parts.headers,
            proxy_header.as_ref(),
            sessions.as_ref(),
            now,
        );
        let (token, origin) = match found {
            Ok(found) => found,
            Err(problem) => {
                let refused = self.limits().refuse(from, Instant::now());
                refused.map_err(exceeded)?;
                return Err(problem);
            }
        };
        if origin == Origin::Browser {
            check_browser(matched.route.verb, &parts.headers)?;
        }
        let unverified = self.admit(&token, from)?;
        Ok((token, unverified))
    }

    /// Counts a request with this token.
    fn admit(&self, token: &Token, from: IpAddr) -> Result<Option<Unverified<'_>>, Problem> {
        let admission = self.limits().admit(token.digest, from, Instant::now());
        Ok(match admission.map_err(exceeded)? {
            Admission::Accepted => None,
            Admission::Unverified => Some(Unverified { app: self, from }),
        })
    }

    /// Reads a body. Its memory is counted until the reservation is dropped.
    async fn read(
        &self,
        body: Incoming,
        limit: usize,
        caller: Digest,
    ) -> Result<(Vec<u8>, Reserved<'_>), Problem> {
        match timeout(BODY_TIMEOUT, self.collect(body, limit, caller)).await {
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
        limit: usize,
        caller: Digest,
    ) -> Result<(Vec<u8>, Reserved<'_>), Problem> {
        let mut bytes = Vec::new();
        let mut reserved = Reserved {
            app: self,
            caller,
            bytes: 0,
        };
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| Problem::invalid(format!("the body broke off: {error}")))?;
            let Ok(data) = frame.into_data() else {
                // Trailers have no meaning here.
                continue;
            };
            if bytes.len().saturating_add(data.len()) > limit {
                let detail = format!("a body may have {limit} bytes");
                return Err(Problem::new(Reason::TooLarge, detail));
            }
            // Without a wait: clients that hold memory decide when they release it.
            reserved.grow(data.len()).map_err(exceeded)?;
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, reserved))
    }

    fn body_memory(&self) -> MutexGuard<'_, BodyMemory> {
        let memory = self.body_memory.lock();
        memory.unwrap_or_else(PoisonError::into_inner)
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

/// The memory of a body. Dropping it ends its count.
struct Reserved<'a> {
    app: &'a App,
    caller: Digest,
    bytes: usize,
}

impl Reserved<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.app.body_memory().take(self.caller, bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.app.body_memory().release(self.caller, self.bytes);
    }
}

/// An open stream. Dropping it ends its count.
struct Slot {
    app: Arc<App>,
    caller: Digest,
    held: Held,
    _in_flight: InFlight,
}

impl Slot {
    fn report(&self) {
        let count = self.app.limits().all_open();
        self.app.settings.observer.streams(count);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.app.limits().close(self.caller, self.held);
        self.report();
    }
}

fn no_response() -> Problem {
    let seconds = RESPONSE_TIMEOUT.as_secs();
    let detail =
        format!("no response within {seconds} s; the outcome is unknown; read the object again");
    Problem::new(Reason::Unanswered, detail)
}

/// Returns whether a request was rejected by the gateway itself, or for its token.
fn is_rejection(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Unauthenticated
            | Reason::CrossOrigin
            | Reason::OtherHost
            | Reason::SlowRequest
            | Reason::TooLarge
            | Reason::UnsupportedMediaType
            | Reason::TooManyRequests
    )
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
