//! The sections that `describe` shows for each kind: labels, and where their values are. All
//! functions are pure.

mod notebook;

use std::collections::BTreeMap;

use actions::Object;
use api::{
    Timestamp,
    apps::MANAGED_APP,
    kinds::KindRow,
    notebooks::NOTEBOOK_VALIDATION_JOB,
    tasks::{AGENT, ChangedFiles, DOCS_RUN, File, TASK_RUN},
    tenants::{TENANT, TenantSpec, namespace_of},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use self::Shown::{At, Choice, Each, Files, Of, Parts, Since, Span, Words};
use crate::text::{between, bytes, count, moment, span};

/// A title and groups of fields. A section without values is left out.
pub(super) type Section = (&'static str, &'static [&'static [Field]]);

/// A label and its value. A field without a value is left out.
type Field = (&'static str, Shown);

/// A text, the path of a value, and another text. Without the value, they are left out.
type Part = (&'static str, &'static str, &'static str);

/// The value of a field.
pub(super) enum Shown {
    /// The text or the number at this path.
    At(&'static str),
    /// Texts and numbers one after the other.
    Parts(&'static [Part]),
    /// The first text if the value at this path is true, otherwise the second.
    Choice(&'static str, &'static str, &'static str),
    /// The duration at this path.
    Span(&'static str),
    /// The time at this path, and how long ago it was.
    Since(&'static str),
    /// The texts at this path, as a command line.
    Words(&'static str),
    /// The items of the list at this path, each as this text.
    Each(&'static str, fn(&Value) -> String),
    /// Number, size and names of the files at this path.
    Files(&'static str),
    /// A value that is not at one path.
    Of(fn(&Object) -> String),
}

/// The sections of each kind. A kind without an entry is described by its spec.
const PAGES: &[(KindRow, &[Section])] = &[
    (AGENT, &[("Agent", &[AGENT_SPEC])]),
    (
        TASK_RUN,
        &[
            ("Task", &[TASK_SPEC, STOPPED]),
            ("Status", &[&[("Version", Of(version))], ATTEMPT]),
            ("Result of the last attempt", &[RESULT]),
        ],
    ),
    (
        DOCS_RUN,
        &[
            ("Documentation", &[DOCS_SPEC, STOPPED]),
            ("Status", &[PUSHED, ATTEMPT]),
            ("Result of the last attempt", &[RESULT]),
        ],
    ),
    (
        TENANT,
        &[("Tenant", &[TENANT_SPEC]), ("Status", &[TENANT_STATUS])],
    ),
    (
        MANAGED_APP,
        &[
            ("App", &[APP_SPEC]),
            ("Versions", &[APP_VERSIONS]),
            ("Objects", &[APP_OBJECTS]),
        ],
    ),
    (
        NOTEBOOK_VALIDATION_JOB,
        &[
            ("Notebook", &[notebook::SPEC, STOPPED]),
            ("Status", &[notebook::STATUS, ATTEMPT]),
            ("Result of the last attempt", &[RESULT]),
        ],
    ),
];

const AGENT_SPEC: &[Field] = &[
    ("Image", At("spec.image")),
    ("Command", Words("spec.command")),
    ("Arguments", Words("spec.args")),
    ("Account", At("spec.serviceAccountName")),
    ("User", At("spec.runAsUser")),
    ("Timeout", Span("spec.timeout")),
    ("To start", Span("spec.startTimeout")),
    ("Attempts", At("spec.retry.maxAttempts")),
    ("Results", Each("spec.results", expected_result)),
    ("Instructions", Each("spec.instructions", filename)),
];

const TASK_SPEC: &[Field] = &[
    ("Task", At("spec.taskId")),
    ("Service", At("spec.serviceName")),
    ("Agent", At("spec.agentName")),
    ("Version", At("spec.contextVersion")),
    ("Files", Files("spec.markdownFiles")),
    ("Timeout", Span("spec.timeout")),
    (
        "Attempts",
        Parts(&[("at most ", "spec.retry.maxAttempts", "")]),
    ),
];

const DOCS_SPEC: &[Field] = &[
    ("Repository", At("spec.repositoryUrl")),
    ("Reads branch", At("spec.sourceBranch")),
    ("Works in", At("spec.workingDirectory")),
    ("Agent sees", CHECKOUT),
    ("Agent", At("spec.agentName")),
    ("Model", At("spec.model")),
    ("Instructions", Files("spec.instructions")),
    ("Secret", At("spec.credentialsSecretRef.name")),
    ("Pushes to", Of(output_branch)),
    ("Takes over", At("spec.output.path")),
    (
        "No changes",
        Choice("spec.output.requireChanges", "", "allowed"),
    ),
    ("Message", At("spec.output.commitMessage")),
    ("Timeout", Span("spec.timeout")),
];

const CHECKOUT: Shown = Choice(
    "spec.includeCodebase",
    "the whole checkout",
    "that folder only",
);

const STOPPED: &[Field] = &[
    ("Suspended", Choice("spec.suspend", "yes", "")),
    ("Cancelled", Choice("spec.cancel", "yes", "")),
];

/// The result in the repository: branch, commit, and changed files.
const PUSHED: &[Field] = &[
    ("Base commit", At("status.baseCommit")),
    ("Branch", At("status.branch")),
    ("Before", Of(head_before)),
    ("Commit", At("status.commit")),
    (
        "Changed files",
        Of(|run| changed(run, "status.changedFiles")),
    ),
    ("Left out", Of(|run| changed(run, "status.leftOut"))),
];

const ATTEMPT: &[Field] = &[
    ("Attempts", At("status.attempts")),
    ("Disruptions", Of(disruptions)),
    ("Job", At("status.jobName")),
    ("ConfigMap", At("status.configMapName")),
    ("Pod", Parts(POD)),
    ("Started", Since("status.startedAt")),
    ("Finished", Since("status.finishedAt")),
    ("Deadline", Since("status.deadlineAt")),
    ("Next try", Of(next_try)),
];

const POD: &[Part] = &[
    ("", "status.pod.name", ""),
    (" on node '", "status.pod.node", "'"),
];

const RESULT: &[Field] = &[
    ("Reason", At("status.result.reason")),
    ("Exit code", At("status.result.exitCode")),
    ("Signal", At("status.result.signal")),
    ("Message", At("status.result.message")),
    ("Results", Of(results)),
    ("Image", At("status.result.imageID")),
    ("Pod", At("status.result.podName")),
    ("Node", At("status.result.node")),
];

/// Values of environment variables and of the Redis configuration are not shown.
const TENANT_SPEC: &[Field] = &[
    ("Customer", At("spec.displayName")),
    ("About", At("spec.description")),
    ("Namespace", Of(namespace)),
    ("Owners", Each("spec.owners", owner)),
    ("Server", Of(server)),
    ("Redis", Parts(REDIS)),
    ("Policies", Of(policies)),
    ("Let in", Each("spec.networkPolicy.allowedNamespaces", text)),
    ("On deletion", Of(deletion)),
    ("Suspended", Choice("spec.suspend", "yes", "")),
];

const TENANT_STATUS: &[Field] = &[
    ("Server", Parts(SERVER_STATUS)),
    ("Redis", Parts(REDIS_STATUS)),
    ("Used", Of(used)),
];

const REDIS: &[Part] = &[
    ("", "spec.redis.image", ""),
    (", ", "spec.redis.storage.size", ""),
    (" of class '", "spec.redis.storage.storageClassName", "'"),
];

const SERVER_STATUS: &[Part] = &[
    ("", "status.serverStatus.phase", ": "),
    ("", "status.serverStatus.message", ""),
];

const REDIS_STATUS: &[Part] = &[
    ("", "status.redisStatus.phase", ": "),
    ("", "status.redisStatus.message", ""),
];

const APP_SPEC: &[Field] = &[
    (
        "Kustomization",
        Of(|app| reference(app, "spec.kustomizationRef")),
    ),
    (
        "HelmRelease",
        Of(|app| reference(app, "spec.helmReleaseRef")),
    ),
];

const APP_VERSIONS: &[Field] = &[
    ("Revision", At("status.git.revision")),
    (
        "Requested",
        Of(|app| text(app.at("status.git.versions.chart"))),
    ),
    ("Chart", At("status.release.chartVersion")),
    ("App version", At("status.release.appVersion")),
    ("Release", Parts(RELEASE)),
    ("Match", Of(versions_match)),
];

const APP_OBJECTS: &[Field] = &[
    ("HelmRelease", Parts(HELM_RELEASE)),
    ("Workloads", Each("status.workloads", workload)),
    ("Volumes", Each("status.volumes", volume)),
    (
        "Unprotected",
        Each("status.unprotectedVolumes", unprotected),
    ),
];

const RELEASE: &[Part] = &[
    ("", "status.release.name", ""),
    (", version ", "status.release.version", ""),
];

const HELM_RELEASE: &[Part] = &[
    ("", "status.helmRelease.namespace", "/"),
    ("", "status.helmRelease.name", ""),
];

/// Returns the sections of a kind, if it has any of its own.
pub(super) fn sections(kind: &KindRow) -> Option<&'static [Section]> {
    let page = PAGES.iter().find(|(row, _)| row == kind);
    page.map(|(_, sections)| *sections)
}

impl Shown {
    /// Returns the value, or an empty text.
    pub(super) fn text(&self, object: &Object, now: Timestamp) -> String {
        match self {
            At(path) => text(object.at(path)),
            Parts(parts) => {
                let known = parts
                    .iter()
                    .filter(|(_, path, _)| !object.at(path).is_null());
                let words = known.map(|(before, path, after)| {
                    format!("{before}{}{after}", text(object.at(path)))
                });
                words.collect()
            }
            Choice(path, yes, _) if object.is_set(path) => (*yes).to_owned(),
            Choice(_, _, no) => (*no).to_owned(),
            Span(path) => duration(object, path),
            Since(path) => object
                .part::<Time>(path)
                .map_or_else(String::new, |time| since(time.0, now)),
            Words(path) => each(object.at(path), text, " "),
            Each(path, item) => each(object.at(path), *item, ", "),
            Files(path) => {
                let files: Vec<File> = object.part(path).unwrap_or_default();
                let size = files.iter().map(|file| file.content.len()).sum();
                let names = each(object.at(path), filename, ", ");
                match files.len() {
                    0 => String::new(),
                    count => format!("{count}, {}: {names}", bytes(size)),
                }
            }
            Of(value) => value(object),
        }
    }
}

fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_null() => String::new(),
        None => value.to_string(),
    }
}

fn each(list: &Value, item: fn(&Value) -> String, separator: &str) -> String {
    let items = list.as_array().into_iter().flat_map(|all| all.iter());
    items.map(item).collect::<Vec<String>>().join(separator)
}

fn duration(object: &Object, path: &str) -> String {
    let duration: Option<api::Duration> = object.part(path);
    duration.map_or_else(String::new, |duration| {
        let seconds = std::time::Duration::from(duration).as_secs();
        span(i64::try_from(seconds).unwrap_or(i64::MAX))
    })
}

fn since(time: Timestamp, now: Timestamp) -> String {
    let ago = between(time, now);
    let when = if ago >= 0 {
        format!("{} ago", span(ago))
    } else {
        format!("in {}", span(-ago))
    };
    format!("{} ({when})", moment(time))
}

fn filename(file: &Value) -> String {
    text(&file["filename"])
}

fn expected_result(result: &Value) -> String {
    match result["required"].as_bool() {
        Some(true) => format!("{} (required)", text(&result["name"])),
        Some(false) | None => text(&result["name"]),
    }
}

fn version(run: &Object) -> String {
    match (run.recorded_version(), run.version()) {
        (Some(version), Some(wanted)) if version != wanted => {
            format!("{version}; version {wanted} is not looked at yet")
        }
        (Some(_) | None, _) => String::new(),
    }
}

fn disruptions(run: &Object) -> String {
    let count = run.at("status.disruptions").as_i64();
    let count = count.filter(|count| *count > 0);
    count.map_or_else(String::new, |count| count.to_string())
}

fn next_try(object: &Object) -> String {
    let progress = object.progress.as_ref();
    let Some(retry) = progress.and_then(|progress| progress.retry.as_ref()) else {
        return String::new();
    };
    let next = match (&retry.next_at, &retry.every) {
        (Some(at), _) => moment(at.0),
        (None, Some(every)) => format!("every {every} at the latest"),
        (None, None) => String::new(),
    };
    let tries = match retry.attempt {
        1 => "1 try".to_owned(),
        tries => format!("{tries} tries"),
    };
    format!("{next} ({tries} without success so far, {})", retry.class)
}

fn results(run: &Object) -> String {
    let results: BTreeMap<String, String> = run.part("status.result.results").unwrap_or_default();
    let words = results.iter().map(|(key, value)| format!("{key}={value}"));
    words.collect::<Vec<String>>().join(", ")
}

fn output_branch(run: &Object) -> String {
    match run.text("spec.output.branch") {
        "" => format!("docs/{}", run.name.name),
        branch => branch.to_owned(),
    }
}

fn head_before(run: &Object) -> String {
    match (run.text("status.branch"), run.text("status.branchHead")) {
        ("", _) => String::new(),
        (_, "") => "there was no such branch".to_owned(),
        (_, head) => head.to_owned(),
    }
}

fn changed(run: &Object, path: &str) -> String {
    let Some(ChangedFiles { count, first }) = run.part(path) else {
        return String::new();
    };
    let more = match usize::try_from(count) {
        Ok(count) if count > first.len() => ", …",
        Ok(_) | Err(_) => "",
    };
    format!("{count}: {}{more}", first.join(", "))
}

fn namespace(tenant: &Object) -> String {
    let spec: Option<TenantSpec> = tenant.part("spec");
    spec.map_or_else(String::new, |spec| namespace_of(&tenant.name.name, &spec))
}

fn owner(owner: &Value) -> String {
    let (kind, name) = (text(&owner["kind"]), text(&owner["name"]));
    match owner["namespace"].as_str() {
        Some(namespace) => format!("{kind} '{namespace}/{name}'"),
        None => format!("{kind} '{name}'"),
    }
}

fn server(tenant: &Object) -> String {
    let server = tenant.at("spec.server");
    let replicas = server["replicas"].as_u64().map(usize::try_from);
    let replicas = count(replicas.unwrap_or(Ok(0)).unwrap_or(usize::MAX), "replica");
    match text(&server["image"]).as_str() {
        "" => String::new(),
        image => format!("{image}, {replicas}, port {}", text(&server["port"])),
    }
}

fn policies(tenant: &Object) -> String {
    let is_on = tenant.is_set("spec.networkPolicy.enabled");
    let words = match (is_on, tenant.is_set("spec.isolation.probe")) {
        (false, _) => "off",
        (true, true) => "on, proven by trying",
        (true, false) => "on, not proven",
    };
    words.to_owned()
}

fn deletion(tenant: &Object) -> String {
    let policy = tenant.text("spec.deletion.policy");
    let deadline = duration(tenant, "spec.deletion.deadline");
    format!("{policy}, blocked after {deadline}")
}

/// Formats the usage: `cpu 150m requested, 1500m limit; pods 3`.
fn used(tenant: &Object) -> String {
    let usage = tenant.at("status.usage");
    let mut words = Vec::new();
    for name in ["cpu", "memory", "storage"] {
        let used = &usage[name];
        words.extend(match (used["request"].as_str(), used["limit"].as_str()) {
            (Some(request), Some(limit)) => {
                Some(format!("{name} {request} requested, {limit} limit"))
            }
            (Some(one), None) | (None, Some(one)) => Some(format!("{name} {one}")),
            (None, None) => used.is_object().then(|| name.to_owned()),
        });
    }
    let pods = usage["pods"]["used"].as_str();
    words.extend(pods.map(|pods| format!("pods {pods}")));
    words.join("; ")
}

fn reference(app: &Object, path: &str) -> String {
    let reference = app.at(path);
    let own = app.metadata.namespace.as_deref().unwrap_or_default();
    let namespace = reference["namespace"].as_str().unwrap_or(own);
    match text(&reference["name"]).as_str() {
        "" => String::new(),
        name => format!("{namespace}/{name}"),
    }
}

/// Describes whether the requested chart is deployed. Nothing is known of a range.
fn versions_match(app: &Object) -> String {
    let words = match app.at("status.versionsMatch").as_bool() {
        Some(true) => "yes",
        Some(false) => "no: the requested version is not deployed",
        None => "",
    };
    words.to_owned()
}

/// Formats a workload: `Deployment shop/web 1/2 (web:2)`.
fn workload(workload: &Value) -> String {
    let [kind, namespace, name] = ["kind", "namespace", "name"].map(|field| text(&workload[field]));
    let counts = match (workload["ready"].as_i64(), workload["desired"].as_i64()) {
        (Some(ready), Some(desired)) => format!(" {ready}/{desired}"),
        (_, None) | (None, Some(_)) => String::new(),
    };
    let images = match each(&workload["images"], text, ", ") {
        images if images.is_empty() => images,
        images => format!(" ({images})"),
    };
    format!("{kind} {namespace}/{name}{counts}{images}")
}

fn volume(volume: &Value) -> String {
    let [namespace, name, phase] = ["namespace", "name", "phase"].map(|field| text(&volume[field]));
    match text(&volume["size"]).as_str() {
        "" => format!("{namespace}/{name} {phase}"),
        size => format!("{namespace}/{name} {size} {phase}"),
    }
}

fn unprotected(volume: &Value) -> String {
    let [workload, name, kind] = ["workload", "volume", "type"].map(|field| text(&volume[field]));
    format!("'{name}' of {workload} ({kind})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_described_by_its_status() {
        let app = crate::state::tests::a_managed_app(&serde_json::json!({
            "git": { "revision": "main@sha1:0123", "versions": { "chart": "2.0.0" } },
            "release": { "name": "shop", "version": 3, "chartVersion": "1.0.0" },
            "versionsMatch": false,
            "workloads": [{ "kind": "Deployment", "namespace": "shop", "name": "web",
                "inInventory": true, "desired": 2, "ready": 1, "images": ["web:2"] }],
            "volumes": [{ "namespace": "shop", "name": "data", "phase": "Bound", "size": "1Gi" }],
            "unprotectedVolumes": [{ "workload": "Deployment shop/web", "volume": "node",
                "type": "hostPath" }],
        }));
        let now = Timestamp::UNIX_EPOCH;
        let shown = |fields: &[Field], label: &str| {
            let mut fields = fields.iter();
            let found = fields.find(|(known, _)| *known == label);
            found.map_or_else(String::new, |(_, shown)| shown.text(&app, now))
        };
        for (fields, label, expected) in [
            (APP_SPEC, "Kustomization", "flux-system/shop"),
            (APP_SPEC, "HelmRelease", ""),
            (APP_VERSIONS, "Requested", "2.0.0"),
            (APP_VERSIONS, "Release", "shop, version 3"),
            (
                APP_VERSIONS,
                "Match",
                "no: the requested version is not deployed",
            ),
            (APP_OBJECTS, "HelmRelease", ""),
            (APP_OBJECTS, "Workloads", "Deployment shop/web 1/2 (web:2)"),
            (APP_OBJECTS, "Volumes", "shop/data 1Gi Bound"),
            (
                APP_OBJECTS,
                "Unprotected",
                "'node' of Deployment shop/web (hostPath)",
            ),
        ] {
            assert_eq!(shown(fields, label), expected, "{label}");
        }
    }

    /// A path is a text, so the compiler does not notice a renamed field.
    #[test]
    fn each_field_is_in_the_schema_of_its_kind() {
        for (kind, sections) in PAGES {
            let crd = (kind.derived_crd)();
            let schema = crd.spec.versions[0].schema.as_ref().unwrap();
            let root = schema.open_api_v3_schema.as_ref().unwrap();
            let groups = sections.iter().flat_map(|(_, groups)| groups.iter());
            for (label, shown) in groups.flat_map(|group| group.iter()) {
                let paths = match shown {
                    At(path) | Choice(path, ..) | Span(path) | Since(path) => vec![*path],
                    Words(path) | Each(path, _) | Files(path) => vec![*path],
                    Parts(parts) => parts.iter().map(|(_, path, _)| *path).collect(),
                    Of(_) => Vec::new(),
                };
                for path in paths {
                    let mut names = path.split('.');
                    let below = names.try_fold(root, |at, name| at.properties.as_ref()?.get(name));
                    assert!(below.is_some(), "{kind:?}, {label}: {path}");
                }
            }
        }
    }
}
