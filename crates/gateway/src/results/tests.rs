//! Responses and their headers.

use api::tasks::{DOCS_RUN, TASK_RUN};

use super::*;

fn body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

fn submitted(kind: &'static KindRow) -> Done {
    Done::Submitted {
        namespace: "team".to_owned(),
        kind,
        name: "task-7".to_owned(),
        run: json!({ "kind": "x" }),
    }
}

#[test]
fn s3_11_a_submission_has_the_body_of_its_surface() {
    let seed = Reply::success(submitted(&TASK_RUN), 200, Surface::Pm);
    assert_eq!(seed.status, 200);
    assert_eq!(
        body(&seed),
        json!({ "success": true, "message": "Task submitted successfully",
            "data": { "name": "task-7", "namespace": "team" } })
    );
    let native = Reply::success(submitted(&DOCS_RUN), 201, Surface::Native);
    assert_eq!(native.status, 201);
    assert_eq!(
        native.headers,
        [(
            LOCATION,
            "/api/v1/namespaces/team/docsruns/task-7".to_owned()
        )]
    );
    assert_eq!(body(&native)["run"]["kind"], "x");
}

#[test]
fn s3_12_added_context_has_the_body_of_its_surface() {
    let added = || Done::Added {
        name: "task-7".to_owned(),
        namespace: "team".to_owned(),
        version: 3,
        files: vec!["context-v3.md".to_owned()],
    };
    let seed = body(&Reply::success(added(), 200, Surface::Pm));
    assert_eq!(
        (&seed["success"], &seed["data"]["version"]),
        (&json!(true), &json!(3))
    );
    let native = body(&Reply::success(added(), 201, Surface::Native));
    assert_eq!(native, json!({ "version": 3, "files": ["context-v3.md"] }));
}

#[test]
fn an_error_has_the_body_of_its_surface() {
    let mut conflict = Problem::new(Reason::Conflict, "it is at version 4");
    conflict.current = Some(4);
    let seed = Reply::problem(&conflict, Surface::Pm);
    assert_eq!((seed.status, seed.media), (409, JSON));
    assert_eq!(
        body(&seed),
        json!({ "success": false, "message": "it is at version 4", "data": { "current": 4 } })
    );
    let native = Reply::problem(&conflict, Surface::Native);
    assert_eq!((native.status, native.media), (409, PROBLEM));
    assert_eq!(body(&native)["current"], 4);

    for (reason, wanted) in [
        (Reason::Unauthenticated, vec![(WWW_AUTHENTICATE, "Bearer")]),
        (Reason::TooManyRequests, vec![(RETRY_AFTER, "1")]),
        (Reason::Busy, vec![(RETRY_AFTER, "1")]),
        (Reason::Denied, vec![]),
    ] {
        let reply = Reply::problem(&Problem::new(reason, ""), Surface::Native);
        let found: Vec<(HeaderName, &str)> = reply
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str()))
            .collect();
        assert_eq!(found, wanted, "{reason:?}");
    }
}

#[test]
fn no_response_is_cached_framed_or_executed() {
    let log = Done::Log(b"<script>".to_vec(), LogState::Open);
    let response = Reply::success(log, 200, Surface::Native).into_response();
    let header = |name: &str| response.headers()[name].to_str().unwrap();
    for (name, wanted) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("orc-log-state", "open"),
        ("orc-log-source", "live"),
    ] {
        assert_eq!(header(name), wanted);
    }
    assert!(header("content-security-policy").contains("default-src 'none'"));
}

#[test]
fn a_hostile_header_is_left_out() {
    let mut problem = Problem::new(Reason::MethodNotAllowed, "");
    problem.allow = Some("GET\r\nSet-Cookie: a=b".to_owned());
    let response = Reply::problem(&problem, Surface::Native).into_response();
    assert_eq!(response.status(), 405);
    assert!(!response.headers().contains_key("allow"));
    assert!(!response.headers().contains_key("set-cookie"));
}
