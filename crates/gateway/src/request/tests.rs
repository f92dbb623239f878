//! Tables of requests and their actions.

use http::{HeaderName, HeaderValue};

use super::*;
use crate::routes;

fn headers(all: &[(&str, &str)]) -> HeaderMap {
    let all = all.iter().map(|(name, value)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    });
    let mut map = HeaderMap::new();
    for (name, value) in all {
        map.append(name, value);
    }
    map
}

fn read(method: &str, address: &str, body: &str) -> Result<Action, String> {
    read_with(method, address, body, &[])
}

fn read_with(
    method: &str,
    address: &str,
    body: &str,
    all: &[(&str, &str)],
) -> Result<Action, String> {
    let (path, query) = match address.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (address, None),
    };
    let matched = routes::find(method, path).map_err(|problem| problem.detail)?;
    let found = action(&matched, query, &headers(all), body.as_bytes(), "pm");
    match found {
        Ok(Command::Once(action)) => Ok(action),
        Ok(Command::Stream(query)) => Err(format!("a stream: {query:?}")),
        Err(problem) => Err(format!("{} {}", problem.reason.status(), problem.detail)),
    }
}

/// Reads a request for a stream.
fn stream(address: &str, all: &[(&str, &str)]) -> Option<StreamQuery> {
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let matched = routes::find("GET", path).unwrap();
    match action(&matched, Some(query), &headers(all), b"", "pm") {
        Ok(Command::Stream(query)) => Some(query),
        Ok(Command::Once(_)) | Err(_) => None,
    }
}

fn run(kind: &'static KindRow, name: &str) -> Target {
    Target {
        namespace: "team".to_owned(),
        name: ObjectName::new(kind, name),
    }
}

const RUN: &str = "/api/v1/namespaces/team/taskruns/shop-7";

#[test]
fn s3_12_context_of_the_seed_is_the_next_version() {
    let body = r#"{"version":3,"additional_context":"More."}"#;
    let found = read("POST", "/api/v1/pm/tasks/7/context", body).unwrap();
    let wanted = Action::AddContext {
        target: Target {
            namespace: "pm".to_owned(),
            name: ObjectName::new(&TASK_RUN, "task-7"),
        },
        files: vec![File {
            filename: String::new(),
            content: "More.".to_owned(),
        }],
        expected: Some(2),
        dry_run: DryRun::Off,
    };
    assert_eq!(found, wanted);
    let least = format!(r#"{{"version":{},"additional_context":""}}"#, i64::MIN);
    assert!(read("POST", "/api/v1/pm/tasks/7/context", &least).is_ok());
}

#[test]
fn s3_11_a_task_of_the_seed_is_submitted_in_its_namespace() {
    let body = r#"{"id":7,"service_name":"shop","agent_name":"writer",
        "markdown_files":[{"filename":"a.md","content":"A"}]}"#;
    let key = [("Idempotency-Key", "k1")];
    let found = read_with("POST", "/api/v1/pm/tasks", body, &key).unwrap();
    let Action::Submit {
        namespace,
        run: NewRun::Task(run),
        dry_run,
        key,
    } = found
    else {
        panic!("{found:?}");
    };
    assert_eq!((namespace.as_str(), dry_run), ("pm", DryRun::Off));
    assert_eq!(run.metadata.name.as_deref(), Some("task-7"));
    assert_eq!(key.as_deref(), Some("k1"));
}

#[test]
fn each_request_is_its_action() {
    let shop = || run(&TASK_RUN, "shop-7");
    let page = |limit, cursor: Option<&str>| Page {
        limit,
        cursor: cursor.map(str::to_owned),
    };
    let cases = [
        (
            "GET",
            format!("{RUN}?version=2&uid=u"),
            Action::Get {
                target: shop(),
                version: Some(2),
                uid: Some("u".to_owned()),
            },
        ),
        (
            "POST",
            format!("{RUN}/cancel"),
            Action::Change(shop(), Change::Cancel),
        ),
        ("POST", format!("{RUN}/retry"), Action::Retry(shop())),
        ("DELETE", RUN.to_owned(), Action::Delete(shop())),
        (
            "GET",
            format!("{RUN}/files/a.md?version=1"),
            Action::File {
                target: shop(),
                version: Some(1),
                filename: "a.md".to_owned(),
            },
        ),
        ("GET", format!("{RUN}/why"), Action::Why(shop())),
        (
            "GET",
            "/api/v1/agents?namespace=team&limit=3&cursor=a%2Bb".to_owned(),
            Action::List {
                kind: &AGENT,
                namespace: Some("team".to_owned()),
                page: page(3, Some("a+b")),
            },
        ),
        (
            "GET",
            "/api/v1/namespaces".to_owned(),
            Action::Namespaces(page(50, None)),
        ),
        (
            "GET",
            "/api/v1/tenants/acme/why".to_owned(),
            Action::Why(Target {
                namespace: String::new(),
                name: ObjectName::new(&TENANT, "acme"),
            }),
        ),
        (
            "GET",
            format!(
                "{RUN}/logs?attempt=2&container=agent&tail=9&timestamps=true&from=2026-01-01T00:00:00Z"
            ),
            Action::Logs(
                shop(),
                LogQuery {
                    version: None,
                    attempt: Some(2),
                    container: Some("agent".to_owned()),
                    tail: Some(9),
                    from: Some("2026-01-01T00:00:00Z".parse().unwrap()),
                    timestamps: true,
                },
            ),
        ),
    ];
    for (method, address, wanted) in cases {
        assert_eq!(read(method, &address, "").unwrap(), wanted, "{address}");
    }
}

#[test]
fn what_would_have_no_effect_is_refused() {
    let context = r#"{"files":[{"content":"x"}]}"#;
    let key = vec![("Idempotency-Key", "k")];
    for (method, address, body, all, wanted) in [
        (
            "GET",
            format!("{RUN}?force=true"),
            "",
            vec![],
            "unknown parameter 'force'",
        ),
        (
            "GET",
            format!("{RUN}?uid=a&uid=b"),
            "",
            vec![],
            "'uid' occurs twice",
        ),
        (
            "GET",
            format!("{RUN}?version="),
            "",
            vec![],
            "is no integer",
        ),
        (
            "GET",
            format!("{RUN}?version=-1"),
            "",
            vec![],
            "is no integer",
        ),
        (
            "GET",
            format!("{RUN}?version=99999999999999999999"),
            "",
            vec![],
            "too large",
        ),
        (
            "GET",
            format!("{RUN}/logs?from=soon"),
            "",
            vec![],
            "must be a time",
        ),
        (
            "GET",
            "/api/v1/agents?limit=0".to_owned(),
            "",
            vec![],
            "from 1 to 100",
        ),
        (
            "GET",
            "/api/v1/agents?limit=101".to_owned(),
            "",
            vec![],
            "from 1 to 100",
        ),
        (
            "GET",
            "/api/v1/agents?namespace=..".to_owned(),
            "",
            vec![],
            "not the name",
        ),
        (
            "GET",
            "/api/v1/runs?kind=pods".to_owned(),
            "",
            vec![],
            "'kind' must be",
        ),
        (
            "GET",
            "/api/v1/runs?namespace=team,..".to_owned(),
            "",
            vec![],
            "has '..'",
        ),
        (
            "GET",
            "/api/v1/runs?name=a/b".to_owned(),
            "",
            vec![],
            "not the name of a run",
        ),
        (
            "GET",
            "/api/v1/runs?cursor=x".to_owned(),
            "",
            vec![],
            "start again",
        ),
        (
            "GET",
            "/api/v1/runs?minDuration=-5s".to_owned(),
            "",
            vec![],
            "must not be negative",
        ),
        (
            "GET",
            "/api/v1/runs?limit=1001".to_owned(),
            "",
            vec![],
            "from 1 to 1000",
        ),
        (
            "GET",
            "/api/v1/runs/stream?namespace=a,b".to_owned(),
            "",
            vec![],
            "more than one name",
        ),
        (
            "GET",
            "/api/v1/runs/stream?limit=5".to_owned(),
            "",
            vec![],
            "unknown parameter 'limit'",
        ),
        (
            "GET",
            format!("{RUN}/diff?from=1"),
            "",
            vec![],
            "'to' is missing",
        ),
        (
            "POST",
            format!("{RUN}/cancel"),
            r#"{"at":1}"#,
            vec![],
            "unknown field 'at'",
        ),
        (
            "POST",
            format!("{RUN}/context"),
            context,
            key.clone(),
            "is for new runs",
        ),
        (
            "POST",
            "/api/v1/namespaces/team/docsruns/guide/context".to_owned(),
            context,
            vec![],
            "DocsRun 'guide' has no versions",
        ),
    ] {
        let said = read_with(method, &address, body, &all).unwrap_err();
        assert!(
            said.starts_with("400 ") && said.contains(wanted),
            "{address}: {said}"
        );
    }
    for address in [
        "/api/v1/archive".to_owned(),
        format!("{RUN}/record"),
        "/api/v1/runs?source=archive".to_owned(),
    ] {
        let said = read("GET", &address, "").unwrap_err();
        assert!(
            said.starts_with("404 the archive is not installed"),
            "{said}"
        );
    }
}

#[test]
fn a_key_is_one_line_of_visible_characters() {
    let long = "k".repeat(256);
    for (all, is_valid) in [
        (vec![("idempotency-key", "3f2a-1")], true),
        (vec![("idempotency-key", &long[1..])], true),
        (vec![("idempotency-key", long.as_str())], false),
        (vec![("idempotency-key", "")], false),
        (vec![("idempotency-key", "a b")], false),
        (
            vec![("idempotency-key", "a"), ("idempotency-key", "a")],
            false,
        ),
    ] {
        let found = idempotency_key(&headers(&all));
        assert_eq!(found.is_ok(), is_valid, "{all:?}");
    }
}

#[test]
fn requests_of_other_sites_and_other_bodies_are_refused() {
    let json = ("content-type", "application/json");
    let (get, post, delete) = (Verb::Get, Verb::Post, Verb::Delete);
    for (verb, all, wanted) in [
        (get, vec![], None),
        (post, vec![json], None),
        (
            post,
            vec![("content-type", "Application/JSON; charset=utf-8")],
            None,
        ),
        (post, vec![], Some(415)),
        (post, vec![("content-type", "text/plain")], Some(415)),
        (
            post,
            vec![("content-type", "application/x-www-form-urlencoded")],
            Some(415),
        ),
        (post, vec![("content-type", "application/jsonx")], Some(415)),
        (post, vec![json, ("content-type", "text/plain")], Some(415)),
        (post, vec![json, ("content-encoding", "gzip")], Some(415)),
        (post, vec![json, ("content-encoding", "identity")], None),
        (get, vec![("content-length", "0")], None),
        (get, vec![("content-length", "2")], Some(400)),
        (delete, vec![("transfer-encoding", "chunked")], Some(400)),
        (post, vec![json, ("sec-fetch-site", "same-origin")], None),
        (post, vec![json, ("sec-fetch-site", "none")], None),
        (post, vec![json, ("sec-fetch-site", "same-site")], Some(403)),
        (get, vec![("sec-fetch-site", "cross-site")], Some(403)),
        (
            post,
            vec![json, ("origin", "https://orc.example:8443")],
            None,
        ),
        (
            post,
            vec![json, ("origin", "http://orc.example:8443")],
            Some(403),
        ),
        (
            post,
            vec![json, ("origin", "https://orc.example")],
            Some(403),
        ),
        (
            post,
            vec![json, ("origin", "https://evil.example")],
            Some(403),
        ),
        (post, vec![json, ("origin", "null")], Some(403)),
    ] {
        let found = check_header(verb, Some("orc.example:8443"), &headers(&all));
        let found = found.err().map(|problem| problem.reason.status());
        assert_eq!(found, wanted, "{verb:?} {all:?}");
    }
    let own = headers(&[("origin", "https://")]);
    assert!(check_header(Verb::Get, None, &own).is_err(), "no host");
}

#[test]
fn a_list_of_runs_has_filters() {
    let address = "/api/v1/runs?namespace=b,a,b&kind=docsruns&phase=Failed&service=Shop%20Web\
                   &taskId=7&minDuration=90s&limit=3&cursor=2026-01-01T00:00:00Z_uid-1";
    let Action::Runs(found) = read("GET", address, "").unwrap() else {
        panic!("no list");
    };
    assert_eq!(found.kinds, [&DOCS_RUN]);
    assert_eq!(found.namespaces, ["a", "b"]);
    let service = api::names::label_value("Shop Web");
    let wanted = Filter {
        phase: Some("Failed".to_owned()),
        service: Some(service),
        task_id: Some("7".to_owned()),
        min_duration: Some(std::time::Duration::from_secs(90)),
        ..Filter::default()
    };
    assert_eq!(found.filter, wanted);
    assert_eq!((found.limit, found.after.is_some()), (3, true));
    let Action::Runs(all) = read("GET", "/api/v1/runs", "").unwrap() else {
        panic!("no list");
    };
    assert_eq!((all.kinds.len(), all.limit), (2, 50));
    assert_eq!((all.namespaces.len(), all.filter), (0, Filter::default()));
}

#[test]
fn some_requests_are_streams() {
    let events = [("accept", "text/event-stream")];
    let log = |is_events| StreamQuery::Log {
        target: run(&TASK_RUN, "shop-7"),
        query: LogQuery::default(),
        is_events,
    };
    let logs = format!("{RUN}/logs");
    assert_eq!(stream(&logs, &[]), None);
    assert_eq!(stream(&logs, &events), Some(log(true)));
    assert_eq!(
        stream(&format!("{logs}?follow=true"), &[]),
        Some(log(false))
    );
    let one = StreamQuery::Run(run(&TASK_RUN, "shop-7"));
    assert_eq!(stream(&format!("{RUN}/stream"), &[]), Some(one));
    assert!(matches!(
        stream("/api/v1/runs/stream", &[]),
        Some(StreamQuery::Runs(_))
    ));
}

#[test]
fn a_write_of_a_browser_needs_a_header_that_no_form_sends() {
    let (with, without) = (headers(&[("Orc-Request", "1")]), headers(&[]));
    for (verb, all, wanted) in [
        (Verb::Get, &without, None),
        (Verb::Post, &without, Some(403)),
        (Verb::Delete, &without, Some(403)),
        (Verb::Post, &with, None),
        (Verb::Delete, &with, None),
    ] {
        let found = check_browser(verb, all).err();
        assert_eq!(
            found.map(|problem| problem.reason.status()),
            wanted,
            "{verb:?}"
        );
    }
}

#[test]
fn a_request_for_another_host_is_refused() {
    let names = ["orc.example".to_owned(), "10.0.0.1".to_owned()];
    for (host, is_own) in [
        (Some("orc.example"), true),
        (Some("ORC.example:8443"), true),
        (Some("10.0.0.1:443"), true),
        (Some("evil.example"), false),
        (Some("orc.example.evil.example"), false),
        (Some("orc.example:443:evil"), false),
        (Some("orc.example."), false),
        (Some(""), false),
        (None, false),
    ] {
        let found = check_host(host, &names).map_err(|problem| problem.reason.status());
        assert_eq!(found, if is_own { Ok(()) } else { Err(421) }, "{host:?}");
        assert_eq!(check_host(host, &[]), Ok(()), "without names");
    }
}
