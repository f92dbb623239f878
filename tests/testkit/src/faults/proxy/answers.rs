//! Answers of the proxy's own, as the API server words them.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::{super::classify::Asked, wire::Cut};

/// The body of what goes to a client.
pub(super) type Outgoing = UnsyncBoxBody<Bytes, Cut>;

/// Of one connection, not of the message.
const HOP_BY_HOP: [header::HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

pub(super) fn strip(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

/// A refusal as the API server makes it.
pub(super) fn refusal(code: u16, asked: &Asked) -> Response<Outgoing> {
    let (reason, message) = words(code, asked);
    let mut response = failure(code, reason, &message, asked);
    if code == 429 {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// A failure of the proxy itself: `reason` is none of the API server's.
pub(super) fn failure(code: u16, reason: &str, message: &str, asked: &Asked) -> Response<Outgoing> {
    let mut details = json!({"name": asked.name, "group": asked.group, "kind": plural(asked)});
    if code == 429 {
        details["retryAfterSeconds"] = json!(1);
    }
    let status = status(code, reason, message, &details);
    json_response(code, status.to_string())
}

/// A watch's answer to a version that is too old.
pub(super) fn expired() -> Response<Outgoing> {
    let message = "The resourceVersion for the provided watch is too old.";
    let object = status(410, "Expired", message, &json!({}));
    let event = json!({"type": "ERROR", "object": object});
    json_response(200, format!("{event}\n"))
}

fn json_response(code: u16, text: String) -> Response<Outgoing> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

fn status(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code,
    })
}

fn plural(asked: &Asked) -> &str {
    let resource = asked.route.resource.as_str();
    resource
        .split_once('/')
        .map_or(resource, |(plural, _)| plural)
}

fn words(code: u16, asked: &Asked) -> (&'static str, String) {
    let (name, kind) = (&asked.name, plural(asked));
    let kind = if asked.group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{}", asked.group)
    };
    match code {
        403 => (
            "Forbidden",
            format!("{kind} \"{name}\" is forbidden: a fault was injected"),
        ),
        409 => (
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {kind} \"{name}\": the object has been modified; please apply your changes to the latest version and try again"
            ),
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later"
                .to_owned(),
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request".to_owned(),
        ),
        504 => (
            "Timeout",
            "Timeout: request did not complete within the allotted timeout".to_owned(),
        ),
        _ => (
            "InternalError",
            "Internal error occurred: a fault was injected".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::{super::super::classify::classify, *};

    #[tokio::test]
    async fn a_refusal_is_a_status_of_the_api_server() {
        let address = "/apis/batch/v1/namespaces/n/jobs/a/status".parse().unwrap();
        let asked = classify(&Method::PATCH, &address, b"");
        let cases = [
            (403, "Forbidden", None),
            (409, "Conflict", None),
            (429, "TooManyRequests", Some("1")),
            (500, "InternalError", None),
            (503, "ServiceUnavailable", None),
            (504, "Timeout", None),
        ];
        for (code, reason, retry) in cases {
            let response = refusal(code, &asked);
            assert_eq!(response.status(), code);
            let after = response.headers().get(header::RETRY_AFTER);
            assert_eq!(after.map(|value| value.to_str().unwrap()), retry, "{code}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let said: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(said["kind"], "Status");
            assert_eq!(said["code"], code);
            assert_eq!(said["reason"], reason);
            assert_eq!(said["details"]["kind"], "jobs");
            assert_eq!(said["details"]["name"], "a");
        }
    }
}
