//! What a schema does not say: specs to begin with, and values for patterns and rules.
//!
//! Caveat: every repository here is at an address that is refused before anyone asks it, or has a
//! name that cannot be resolved.

use serde_json::{Value, json};

/// Kind, name and spec of what changes begin with.
pub(super) fn bases() -> Vec<(&'static str, &'static str, Value)> {
    let files = json!([
        {"filename": "task.md", "content": "do it"},
        {"filename": "more.md", "content": "and that"},
    ]);
    let with = |mut spec: Value, agent: &str, more: &[(&str, Value)]| {
        spec["agentName"] = json!(agent);
        for (key, value) in more {
            spec[*key] = value.clone();
        }
        spec
    };
    let task = |agent: &str, more: &[(&str, Value)]| {
        let spec = json!({ "taskId": 7, "serviceName": "shop", "markdownFiles": files });
        with(spec, agent, more)
    };
    let docs = |agent: &str, more: &[(&str, Value)]| {
        let spec = json!({ "repositoryUrl": REFUSED, "sourceBranch": "main" });
        with(spec, agent, more)
    };
    let keep = json!({"succeeded": "1h", "failed": "2h"});
    vec![
        ("Agent", "bare", json!({"image": "agents/writer:1"})),
        ("Agent", "full", full_agent()),
        (
            "TaskRun",
            "full",
            task(
                AGENT,
                &[
                    ("timeout", json!("30m")),
                    ("childTTL", keep.clone()),
                    (
                        "retry",
                        json!({"maxAttempts": 2, "backoff": {"initial": "10s", "max": "1m"}}),
                    ),
                ],
            ),
        ),
        ("TaskRun", "held", task(AGENT, &[("suspend", json!(true))])),
        ("TaskRun", "waits", task("nobody", &[])),
        (
            "DocsRun",
            "refused",
            docs(
                AGENT,
                &[
                    ("model", json!("large")),
                    ("instructions", files.clone()),
                    ("credentialsSecretRef", json!({"name": "git-key"})),
                    ("childTTL", keep),
                    (
                        "output",
                        json!({"branch": "docs/api", "path": "docs/", "commitMessage": "docs: api"}),
                    ),
                ],
            ),
        ),
        (
            "DocsRun",
            "held",
            docs(
                AGENT,
                &[("suspend", json!(true)), ("timeout", json!("30m"))],
            ),
        ),
        ("DocsRun", "waits", docs("nobody", &[])),
    ]
}

/// The Agent that runs name; the other one does not exist.
pub const AGENT: &str = "writer";

const REFUSED: &str = "https://127.0.0.1:1/team/shop.git";

fn full_agent() -> Value {
    json!({
        "image": "agents/writer:1",
        "command": ["/bin/agent"],
        "args": ["--quick"],
        "env": [
            {"name": "MODE", "value": "fast"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        ],
        "envFrom": [{"prefix": "MORE_", "configMapRef": {"name": "more"}}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"cpu": "2", "memory": "1Gi"},
        },
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": [{"name": "registry"}],
        "runAsUser": 1000,
        "serviceAccountName": "default",
        "contextPath": "/workspace/context",
        "workspace": {"size": "2Gi"},
        "instructions": [{"filename": "how.md", "content": "like this"}],
        "timeout": "1h",
        "startTimeout": "10m",
        "retry": {"maxAttempts": 3, "backoff": {"initial": "10s", "max": "5m"}},
        "results": [{"name": "answer", "required": true}],
        "nodeSelector": {"disktype": "ssd"},
        "tolerations": [
            {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 60},
        ],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"team": "writers"}}, "topologyKey": "kubernetes.io/hostname",
            }},
        ]}},
        "podLabels": {"team": "writers"},
        "podAnnotations": {"example.com/owner": "a person"},
    })
}

/// Text that programs trip over, with a name for each.
pub(super) const ODD: &[(&str, &str)] = &[
    ("empty", ""),
    ("blank", " "),
    ("capital", "A"),
    ("nul", "a\u{0}b"),
    ("line-break", "a\nb: c\r\n"),
    ("escape", "\u{1b}[31mred\u{7}"),
    ("right-to-left", "a\u{202e}b\u{2066}"),
    ("emoji", "\u{1F469}\u{200d}\u{1F680}"),
    ("combining", "e\u{301}\u{301}\u{301}"),
    ("last-letter", "\u{10ffff}\u{feff}\u{fffd}"),
    ("option", "--upload-pack=touch"),
    ("variable", "$(HOME)$((x)"),
    ("template", "{{ .Values }}{% x %}${y}"),
    ("up", "../../etc/passwd"),
    ("quotes", "'\"`;|&<>\\"),
    ("digits", "00000000000000000000000000000012"),
    ("json", "{\"a\": [1, null]}"),
    ("yaml", "- &a [*a, !!b c]"),
];

/// Keys of maps.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("empty", ""),
    ("plain", "disktype"),
    ("cpu", "cpu"),
    ("domain", "example.com/gpu"),
    ("capital", "Zone"),
    ("slashes", "a/b/c"),
    ("blank", "a b"),
    ("unicode", "日本"),
    ("nul", "a\u{0}"),
    ("dots", "..."),
    ("ours", "orchestrator.io/uid"),
];

/// Quantities, and what is like one.
pub(super) const QUANTITIES: &[&str] = &[
    "0",
    "1",
    "500m",
    "1m",
    "1Gi",
    "2.5Gi",
    "999999999999999999Ei",
    "0.000000001",
    "1e3",
    "-1",
    "+1",
    "1Ki ",
    "Gi",
    "",
    "\u{661}",
];

/// What a pattern allows, and what it does not. Nothing for one that is not known here: a test
/// fails then.
pub(super) fn of_pattern(
    pattern: &str,
) -> Option<(&'static [&'static str], &'static [&'static str])> {
    let found: (&[&str], &[&str]) = match pattern {
        // The name of an object.
        "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" => (
            &["does-not-exist", "a.b-c.d", "0", "a..b"],
            &["-a", "a-", "A", "a_b", "a/b", "a b", "."],
        ),
        // The name of a volume.
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" => (
            &["data", "a-b", "0"],
            &["-a", "a-", "A", "a.b", "a_b", "a b"],
        ),
        // An image.
        "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$" => (
            &[
                "a",
                "registry.invalid:5000/a/b:1.0",
                "a@sha256:0000000000000000000000000000000000000000000000000000000000000000",
                "a:::b//c@@",
            ],
            &["-a", "/a", "a b", "a$b", "ü"],
        ),
        // A variable.
        "^[A-Za-z_][A-Za-z0-9_.-]*$" => (
            &["A", "_", "a.b-c", "HOME", "ORCHESTRATOR_RUN", "PATH"],
            &["0a", "a b", "a=b", "-a"],
        ),
        // A key of a Secret.
        "^[-._a-zA-Z0-9]+$" => (&["a", "..", "-", "ca.crt"], &["a b", "a/b", "ü"]),
        // A file.
        "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$" => (
            &["a", "task.md", "a..b", "A_-", "CON"],
            &["../a", "a/b", ".a", "-a", "a b", "a\\b"],
        ),
        // A result.
        "^[A-Za-z][A-Za-z0-9_.-]*$" => (&["a", "answer", "a.b-c_"], &["0", "_a", "a b"]),
        // The key of a label.
        "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$" => (
            &["a", "A_b", "example.com/zone", "kubernetes.io/hostname"],
            &["-a", "a/", "/a", "a/b/c", "A.b/c", "a b"],
        ),
        // The value of a label.
        "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$" => {
            (&["", "a", "a_b.c-d"], &["-a", "a-", "a b", "a/b"])
        }
        _ => return None,
    };
    Some(found)
}

const DURATIONS: &[&str] = &[
    "1s",
    "1m",
    "90s",
    "1h30m",
    "1ms",
    "999ms",
    "0s",
    "0.5s",
    "168h",
    "168h0m1s",
    "24h",
    "8760h",
    "8761h",
    "999999h",
    "-1s",
    "+1s",
    "1",
    "1d",
    "1h 1m",
    "1us",
    "1e3s",
    "0001s",
    "1h1h1h1h",
    "1h1h1h1h1h",
    "s",
    "infinity",
];
const BRANCHES: &[&str] = &[
    "main",
    "docs/api",
    "a+b#c=d",
    "HEAD",
    "refs/heads/a",
    "-a",
    "a..b",
    "a//b",
    "a.lock",
    "a.lock/b",
    "a/",
    "a.",
    "/a",
    "a/.b",
    "@",
    "a@{1}",
    "a~1",
    "a^b",
    "a:b",
    "a?b",
    "a*b",
    "a[b",
];
const FOLDERS: &[&str] = &[
    ".",
    "docs/",
    "services/api",
    "a b/c",
    "..",
    "../a",
    "a/../b",
    "/a",
    "a//b",
    ".git",
    "a/.GIT",
    ".gitmodules",
    "-a",
    "./a",
    "a/./b",
    "~",
];

/// Samples for fields with a rule, by the field's name.
pub(super) fn of_field(key: &str) -> &'static [&'static str] {
    match key {
        "timeout" | "startTimeout" | "initial" | "max" | "succeeded" | "failed" => DURATIONS,
        "sourceBranch" | "branch" => BRANCHES,
        "workingDirectory" | "path" => FOLDERS,
        "contextPath" | "mountPath" => &[
            "/context",
            "/workspace/context/more",
            "/workspace",
            "/etc",
            "/etc/x",
            "/",
            "/proc/1",
            "/var",
            "/var/run/secrets/x",
            "/a/../etc",
            "/a//b",
            "a",
            "/tmpfile",
        ],
        "imagePullPolicy" => &["Always", "IfNotPresent", "Never", "never", "Sometimes"],
        "repositoryUrl" => &[
            "https://127.0.0.1:1/a",
            "https://localhost:1/a",
            "https://[::1]:1/a",
            "https://[::ffff:127.0.0.1]/a",
            "https://10.0.0.1/a",
            "https://169.254.169.254/latest/meta-data",
            "https://0.0.0.0/a",
            "https://kubernetes.default.svc/a",
            "https://no-such-host.invalid/a",
            "ssh://git@127.0.0.1:1/a",
            "ssh://git@[::1]/a",
            "http://127.0.0.1:1/a",
            "https://user:password@127.0.0.1/a",
            "https://127.0.0.1:65536/a",
            "https://127.0.0.1:0/a",
            "https://127.0.0.1/a?b",
            "https://127.0.0.1/a#b",
            "https://127.0.0.1/../a",
            "https://127.0.0.1/%2e%2e/a",
            "https://127.0.0.1/-a",
            "https://2130706433/a",
            "https://0x7f.1/a",
            "https://[::1%25lo]/a",
            "git@127.0.0.1:a",
            "file:///etc/passwd",
            "ext::sh -c touch",
            "--upload-pack=touch",
        ],
        "commitMessage" => &[
            "docs: all of it",
            "one\n\ntwo",
            "Orchestrator-Run: 0",
            "orchestrator-run : 0",
            "# only a comment",
            "\n\n",
        ],
        "serviceName" => &["Shop & Söhne", "a--b", "-a", "shop.", "日本"],
        "model" => &["large-2", "a/b:c", "gross\u{df}"],
        "filename" => &["end", "README.md"],
        "content" => &["# Title\n\n- a\n", "\u{0}\u{1}"],
        _ => &[],
    }
}

/// A text that fits a field which must have one.
pub(super) fn fitting(key: &str) -> &'static str {
    match key {
        "timeout" | "startTimeout" | "initial" | "max" | "succeeded" | "failed" => "1m",
        "repositoryUrl" => REFUSED,
        "amount" => "1",
        "mountPath" => "/data",
        _ => "a",
    }
}
