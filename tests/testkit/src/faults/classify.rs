//! What a request asks for, from its head and body. Pure.

use http::{Method, Uri};
use serde::Deserialize;

use super::point::Route;

/// A request in the words of RBAC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What for.
    pub route: Route,
    /// Empty for the core group.
    pub group: String,
    /// Empty for cluster-scoped objects and lists over all namespaces.
    pub namespace: String,
    /// The object's; empty where it has none yet, or another one in each play.
    pub name: String,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With all objects, then a bookmark that ends them.
    Listing,
    /// Anywhere: the server chooses, so it can never be too late.
    Anywhere,
    /// After a version that the client knows.
    Resumed,
}

/// The request's verb, resource and object.
///
/// `body` is that of a create, whose object has its name nowhere else.
#[must_use]
pub fn classify(method: &Method, uri: &Uri, body: &[u8]) -> Asked {
    let parts: Vec<&str> = uri
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        ["api" | "apis", ..] => ("", &[][..]),
        _ => return Asked::of(verb(method, true, false), "nonresource"),
    };
    // `namespaces/x/status` is the namespace's own.
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize", ..] => ("", rest),
        ["namespaces", namespace, inside @ ..] if !inside.is_empty() => (*namespace, inside),
        _ => ("", rest),
    };
    let watches = matches!(parameter(uri, "watch"), Some("true" | "1"));
    let mut asked = match rest {
        [] => Asked::of(verb(method, true, false), "discovery"),
        [plural] => {
            let mut asked = Asked::of(verb(method, false, watches), *plural);
            if asked.route.verb == "create" {
                asked.name = name_in(body);
            }
            asked
        }
        [plural, name] => Asked {
            name: (*name).to_owned(),
            ..Asked::of(verb(method, true, false), *plural)
        },
        [plural, name, part, ..] => Asked {
            name: (*name).to_owned(),
            ..Asked::of(verb(method, true, false), format!("{plural}/{part}"))
        },
    };
    group.clone_into(&mut asked.group);
    namespace.clone_into(&mut asked.namespace);
    if asked.route.resource == "events" {
        asked.name.clear();
    }
    asked
}

/// Where the watch of this address begins.
#[must_use]
pub fn start(uri: &Uri) -> Start {
    if matches!(parameter(uri, "sendInitialEvents"), Some("true" | "1")) {
        return Start::Listing;
    }
    match parameter(uri, "resourceVersion") {
        None | Some("" | "0") => Start::Anywhere,
        Some(_) => Start::Resumed,
    }
}

impl Asked {
    fn of(verb: &str, resource: impl Into<String>) -> Self {
        Self {
            route: Route::new(verb, resource),
            group: String::new(),
            namespace: String::new(),
            name: String::new(),
        }
    }
}

fn verb(method: &Method, is_one: bool, watches: bool) -> &'static str {
    match (method.as_str(), is_one) {
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) if watches => "watch",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "other",
    }
}

fn parameter<'a>(uri: &'a Uri, wanted: &str) -> Option<&'a str> {
    uri.query()?
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find_map(|(name, value)| (name == wanted).then_some(value))
}

/// Empty for a body that is no object, or one whose name the server makes.
fn name_in(body: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        name: Option<String>,
    }
    match serde_json::from_slice::<Object>(body) {
        Ok(object) => object.metadata.name.unwrap_or_default(),
        Err(_no_object) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let named = r#"{"metadata":{"name":"a"}}"#;
        let jobs = "/apis/batch/v1/namespaces/n/jobs";
        let job = "/apis/batch/v1/namespaces/n/jobs/a";
        let cases = [
            // method, path, body -> verb, resource, group, namespace, name
            ("POST", jobs, named, "create", "jobs", "batch", "n", "a"),
            (
                "POST",
                jobs,
                r#"{"metadata":{"generateName":"a-"}}"#,
                "create",
                "jobs",
                "batch",
                "n",
                "",
            ),
            (
                "POST",
                jobs,
                "no object",
                "create",
                "jobs",
                "batch",
                "n",
                "",
            ),
            ("PATCH", job, named, "patch", "jobs", "batch", "n", "a"),
            (
                "PUT",
                "/apis/batch/v1/namespaces/n/jobs/a/status?fieldManager=x",
                named,
                "update",
                "jobs/status",
                "batch",
                "n",
                "a",
            ),
            ("DELETE", job, "", "delete", "jobs", "batch", "n", "a"),
            (
                "DELETE",
                jobs,
                "",
                "deletecollection",
                "jobs",
                "batch",
                "n",
                "",
            ),
            ("GET", job, "", "get", "jobs", "batch", "n", "a"),
            ("GET", jobs, "", "list", "jobs", "batch", "n", ""),
            (
                "GET",
                "/apis/batch/v1/jobs?&watch=true&resourceVersion=4",
                "",
                "watch",
                "jobs",
                "batch",
                "",
                "",
            ),
            (
                "GET",
                "/apis/batch/v1/jobs?watch=false",
                "",
                "list",
                "jobs",
                "batch",
                "",
                "",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/n/pods/p-x7k2q",
                "",
                "delete",
                "pods",
                "",
                "n",
                "p-x7k2q",
            ),
            (
                "GET",
                "/api/v1/namespaces/n/pods/p/log?follow=true",
                "",
                "get",
                "pods/log",
                "",
                "n",
                "p",
            ),
            (
                "POST",
                "/api/v1/namespaces/n/pods/p/eviction",
                named,
                "create",
                "pods/eviction",
                "",
                "n",
                "p",
            ),
            (
                "POST",
                "/api/v1/namespaces/n/events",
                named,
                "create",
                "events",
                "",
                "n",
                "",
            ),
            (
                "PATCH",
                "/apis/events.k8s.io/v1/namespaces/n/events/a.17",
                "",
                "patch",
                "events",
                "events.k8s.io",
                "n",
                "",
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/n/leases/l",
                named,
                "update",
                "leases",
                "coordination.k8s.io",
                "n",
                "l",
            ),
            (
                "GET",
                "/api/v1/namespaces",
                "",
                "list",
                "namespaces",
                "",
                "",
                "",
            ),
            (
                "GET",
                "/api/v1/namespaces/n",
                "",
                "get",
                "namespaces",
                "",
                "",
                "n",
            ),
            (
                "POST",
                "/api/v1/namespaces",
                named,
                "create",
                "namespaces",
                "",
                "",
                "a",
            ),
            (
                "PUT",
                "/api/v1/namespaces/n/finalize",
                "",
                "update",
                "namespaces/finalize",
                "",
                "",
                "n",
            ),
            (
                "GET",
                "/api/v1/nodes/status",
                "",
                "get",
                "nodes",
                "",
                "",
                "status",
            ),
            (
                "GET",
                "/apis/batch/v1",
                "",
                "get",
                "discovery",
                "batch",
                "",
                "",
            ),
            ("GET", "/apis", "", "get", "discovery", "", "", ""),
            ("GET", "/api/v1", "", "get", "discovery", "", "", ""),
            ("GET", "/version", "", "get", "nonresource", "", "", ""),
            ("GET", "/", "", "get", "nonresource", "", "", ""),
        ];
        for (method, address, body, verb, resource, group, namespace, name) in cases {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let asked = classify(&method, &address.parse().unwrap(), body.as_bytes());
            let wanted = Asked {
                route: Route::new(verb, resource),
                group: group.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            assert_eq!(asked, wanted, "{method} {address}");
        }
    }

    #[test]
    fn only_a_watch_after_a_version_can_be_too_late() {
        let cases = [
            ("watch=true&resourceVersion=17", Start::Resumed),
            ("watch=true&resourceVersion=0", Start::Anywhere),
            ("watch=true&resourceVersion=", Start::Anywhere),
            ("watch=true", Start::Anywhere),
            (
                "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                Start::Listing,
            ),
            (
                "watch=true&sendInitialEvents=true&resourceVersion=17",
                Start::Listing,
            ),
            (
                "watch=true&sendInitialEvents=false&resourceVersion=17",
                Start::Resumed,
            ),
        ];
        for (query, wanted) in cases {
            let uri: Uri = format!("/api/v1/pods?{query}").parse().unwrap();
            assert_eq!(start(&uri), wanted, "{query}");
        }
    }
}
