//! One request: forwarded, or hit by a fault.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow};
use http::{Request, Response, StatusCode, header, request};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use kube::client::Body;
use tokio::time::{Instant, timeout};

use super::{
    super::{
        classify::{Asked, Start, classify, start},
        point::Fault,
    },
    Shared,
    answers::{Outgoing, expired, failure, refusal, strip},
    stream::{Delivery, broken_after},
    wire::{AtEnd, Cut, Line},
};

/// The API server itself takes 3 MiB.
const REQUEST: usize = 4 * 1024 * 1024;

/// An answer that is to be halved.
const ANSWER: usize = 64 * 1024 * 1024;

/// The API server gives up after 60 s.
const HEAD: Duration = Duration::from_secs(70);

pub(super) async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    line: Arc<Line>,
) -> Result<Response<Outgoing>, Cut> {
    let (mut head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, REQUEST).collect().await else {
        // The client went, or sends what no API server would take.
        return Err(Cut);
    };
    let body = body.to_bytes();
    let mut asked = classify(&head.method, &head.uri, &body);
    shared.part.plain(&mut asked);
    if let Some(uri) = shared.part.selection(&asked, &head.uri) {
        head.uri = uri;
    }
    let start = (asked.route.verb == "watch").then(|| start(&head.uri));
    let now = Instant::now().into_std();
    let Some(arrival) = shared.script().arrive(now, &asked, start) else {
        let message = "the fault proxy has had more requests than one play can have";
        return Ok(failure(500, "TraceFull", message, &asked));
    };
    if arrival.is_gone {
        return Ok(expired());
    }
    let exchange = Exchange {
        shared,
        line,
        asked,
        start,
        number: arrival.number,
    };
    match arrival.fault {
        None => {
            let answer = exchange.forward(head, body).await;
            Ok(exchange.or_failure(answer.map(|answer| exchange.pass(answer, None))))
        }
        Some((injection, fault)) => exchange.hit(injection, fault, head, body).await,
    }
}

struct Exchange {
    shared: Arc<Shared>,
    line: Arc<Line>,
    asked: Asked,
    start: Option<Start>,
    number: usize,
}

impl Exchange {
    async fn hit(
        &self,
        injection: usize,
        fault: Fault,
        head: request::Parts,
        body: Bytes,
    ) -> Result<Response<Outgoing>, Cut> {
        let is_carried_out = match fault {
            Fault::KillBefore | Fault::Refused(_) | Fault::Reset => false,
            Fault::KillAfter
            | Fault::KillRelayed
            | Fault::LostByReset
            | Fault::LostByTimeout
            | Fault::Truncated => true,
        };
        let answer = if is_carried_out {
            match self.forward(head, body).await {
                Ok(answer) => answer,
                Err(error) => return Ok(self.or_failure(Err(error))),
            }
        } else {
            Response::new(Body::empty())
        };
        let hit = || self.shared.script().hit(injection);
        match fault {
            Fault::KillBefore | Fault::KillAfter => {
                self.shared.kill(injection);
                Err(self.line.reset())
            }
            Fault::KillRelayed => Ok(self.pass_and_kill(answer, injection)),
            Fault::Reset | Fault::LostByReset => {
                hit();
                Err(self.line.reset())
            }
            Fault::LostByTimeout => {
                hit();
                Ok(refusal(504, &self.asked))
            }
            Fault::Refused(code) => {
                hit();
                Ok(refusal(code, &self.asked))
            }
            Fault::Truncated if self.start.is_some() && answer.status() == StatusCode::OK => {
                Ok(self.pass(answer, Some(injection)))
            }
            Fault::Truncated => {
                let halved = halve(answer).await;
                if halved.is_ok() {
                    hit();
                }
                Ok(self.or_failure(halved))
            }
        }
    }

    /// To the server and back, up to the answer's head: then it is carried out.
    async fn forward(&self, head: request::Parts, body: Bytes) -> Result<Response<Body>> {
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = head.method;
        *request.uri_mut() = head.uri;
        *request.headers_mut() = head.headers;
        let headers = request.headers_mut();
        strip(headers);
        for name in [
            header::HOST,
            header::CONTENT_LENGTH,
            header::ACCEPT_ENCODING,
        ] {
            headers.remove(name);
        }
        let answer = timeout(HEAD, self.shared.upstream.send(request))
            .await
            .with_context(|| format!("no answer within {} s", HEAD.as_secs()))??;
        let code = answer.status().as_u16();
        self.shared.script().answered(self.number, code);
        Ok(answer)
    }

    fn pass(&self, answer: Response<Body>, truncated_by: Option<usize>) -> Response<Outgoing> {
        let (mut head, body) = answer.into_parts();
        strip(&mut head.headers);
        let resource = &self.asked.route.resource;
        let is_touched = truncated_by.is_some() || self.shared.script().has_watch_fault(resource);
        let body = match self.start {
            Some(start) if is_touched && head.status == StatusCode::OK => {
                head.headers.remove(header::CONTENT_LENGTH);
                let is_listing = start == Start::Listing;
                let shared = Arc::clone(&self.shared);
                Delivery::new(shared, resource.clone(), body, is_listing, truncated_by).into_body()
            }
            Some(_) | None => body.map_err(|_broken| Cut).boxed_unsync(),
        };
        Response::from_parts(head, body)
    }

    fn pass_and_kill(&self, answer: Response<Body>, injection: usize) -> Response<Outgoing> {
        let shared = Arc::clone(&self.shared);
        let kill = Box::new(move || shared.kill(injection));
        let passed = self.pass(answer, None);
        if self.start.is_some() {
            // A watch has no end to wait for.
            self.line.after_flush(kill);
            return passed;
        }
        let at_end = AtEnd::new(Arc::clone(&self.line), kill);
        passed.map(|body| {
            let guarded = body.map_frame(move |frame| {
                let _held = &at_end;
                frame
            });
            guarded.boxed_unsync()
        })
    }

    fn or_failure(&self, answer: Result<Response<Outgoing>>) -> Response<Outgoing> {
        answer.unwrap_or_else(|error| {
            let message = format!("the fault proxy got no answer: {error:#}");
            failure(502, "BadGateway", &message, &self.asked)
        })
    }
}

/// The whole head, half of the body.
async fn halve(answer: Response<Body>) -> Result<Response<Outgoing>> {
    let (mut head, body) = answer.into_parts();
    let whole = timeout(HEAD, Limited::new(body, ANSWER).collect())
        .await
        .context("the answer does not end")?
        .map_err(|error| anyhow!("the answer does not come whole: {error}"))?
        .to_bytes();
    strip(&mut head.headers);
    head.headers
        .insert(header::CONTENT_LENGTH, whole.len().into());
    let half = whole.slice(..whole.len() / 2);
    Ok(Response::from_parts(head, broken_after(half)))
}
