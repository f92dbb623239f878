//! Tables of addresses.

use super::*;

#[test]
fn each_address_has_its_operation() {
    let run = "/api/v1/namespaces/team/taskruns/shop-7";
    let cases = [
        ("GET", "/api/v1/openapi.json", Operation::OpenApi),
        ("GET", "/api/v1/whoami/", Operation::WhoAmI),
        ("GET", "/api/v1/runs", Operation::Runs),
        ("GET", "/api/v1/runs/stream", Operation::RunsStream),
        ("POST", "/auth/session", Operation::SignIn),
        ("DELETE", "/auth/session", Operation::SignOut),
        ("GET", "/api/v1/tenants/acme", Operation::Tenant),
        ("GET", "/api/v1/tenants/acme/why", Operation::TenantWhy),
        ("POST", "/api/v1/pm/tasks", Operation::PmSubmit),
        ("POST", "/api/v1/pm/tasks/7/context", Operation::PmContext),
        (
            "POST",
            "/api/v1/namespaces/team/taskruns",
            Operation::Submit,
        ),
        (
            "POST",
            "/api/v1/namespaces/team/docsruns/",
            Operation::Submit,
        ),
        ("GET", run, Operation::Get),
        ("DELETE", run, Operation::Delete),
    ];
    for (method, path, wanted) in cases {
        let found = find(method, path).unwrap();
        assert_eq!(found.route.operation, wanted, "{method} {path}");
    }
    for (part, method, wanted) in [
        ("context", "POST", Operation::Context),
        ("cancel", "POST", Operation::Change(Change::Cancel)),
        ("suspend", "POST", Operation::Change(Change::Suspend)),
        ("resume", "POST", Operation::Change(Change::Resume)),
        ("retry", "POST", Operation::Retry),
        ("logs", "GET", Operation::Logs),
        ("files", "GET", Operation::Files),
        ("files/a.md", "GET", Operation::File),
        ("why", "GET", Operation::Why),
        ("events", "GET", Operation::Events),
        ("diff", "GET", Operation::Diff),
        ("stream", "GET", Operation::RunStream),
        ("record", "GET", Operation::Record),
    ] {
        let path = format!("{run}/{part}");
        let found = find(method, &path).unwrap();
        assert_eq!(found.route.operation, wanted, "{part}");
        assert_eq!(found.value("namespace"), "team");
        assert_eq!(found.run(), ObjectName::new(&TASK_RUN, "shop-7"));
    }
    let guide = find("GET", "/api/v1/namespaces/team/docsruns/guide").unwrap();
    assert_eq!(guide.run(), ObjectName::new(&DOCS_RUN, "guide"));
}

#[test]
fn other_addresses_and_methods_are_refused() {
    for (method, path, status, allow) in [
        ("GET", "/", 404, None),
        ("GET", "/api/v1", 404, None),
        ("GET", "/api/v1/namespaces/team/pods/x", 404, None),
        ("GET", "/api/v1/namespaces/team/taskruns//why", 404, None),
        (
            "GET",
            "/api/v1/namespaces/team/taskruns/x/status",
            404,
            None,
        ),
        ("GET", "/apis/orchestrator.io/v1/taskruns", 404, None),
        ("POST", "/api/v1/whoami", 405, Some("GET")),
        ("GET", "/api/v1/pm/tasks", 405, Some("POST")),
        (
            "PUT",
            "/api/v1/namespaces/team/taskruns/x",
            405,
            Some("GET, DELETE"),
        ),
    ] {
        let problem = find(method, path).unwrap_err();
        assert_eq!(problem.reason.status(), status, "{method} {path}");
        assert_eq!(problem.allow.as_deref(), allow, "{method} {path}");
    }
}

/// The client of the API server puts names into paths as they are.
#[test]
fn no_value_leaves_its_segment() {
    let long = "a".repeat(254);
    for name in [
        "..",
        ".",
        "a%2Fb",
        "a%2f..",
        "A",
        "a_b",
        "-a",
        "a-",
        "a..b",
        "a?b",
        "a#b",
        "a b",
        "a;b",
        "\u{e4}",
        long.as_str(),
    ] {
        for path in [
            format!("/api/v1/namespaces/team/taskruns/{name}"),
            format!("/api/v1/namespaces/{name}/taskruns/x"),
            format!("/api/v1/tenants/{name}"),
        ] {
            let problem = find("GET", &path).unwrap_err();
            assert_eq!(problem.reason, Reason::InvalidRequest, "{path}");
        }
    }
    let run = "/api/v1/namespaces/team/taskruns/x/files";
    for name in ["..", ".a", "a%2fb", "a\u{0}", "-a"] {
        assert!(find("GET", &format!("{run}/{name}")).is_err(), "{name}");
    }
    for id in ["0", "-1", "+1", "x", "1.5", "9223372036854775808"] {
        let path = format!("/api/v1/pm/tasks/{id}/context");
        assert!(find("POST", &path).is_err(), "{id}");
    }
    assert!(find("GET", "/api/v1/namespaces/a.b/taskruns/x").is_err());
    assert!(find("GET", "/api/v1/namespaces/team/taskruns/a.b-1").is_ok());
}

#[test]
fn no_two_routes_have_the_same_address() {
    for (index, one) in ROUTES.iter().enumerate() {
        let mut others = ROUTES.iter().skip(index + 1);
        assert!(
            others.all(|other| (one.verb, one.path) != (other.verb, other.path)),
            "{one:?}"
        );
    }
}
