//! Mistakes that people make, each with the expected message.

use serde_json::{Value, json};

use crate::support::Kind;

/// A spec that must be rejected.
pub(crate) struct Wrong {
    pub(crate) what: &'static str,
    pub(crate) spec: Value,
    /// The only field that the response must name.
    pub(crate) field: &'static str,
    /// Text that the response must contain.
    pub(crate) says: &'static str,
}

/// Rows of `what: changes of a valid spec => field that is named, words about it;`. A change sets a
/// field, or removes it if the value is `(gone())`.
macro_rules! wrong {
    ($valid:expr; $($what:literal: $($field:ident = $value:tt),+ => $at:expr, $says:expr;)+) => {
        vec![$(Wrong {
            what: $what,
            spec: changed($valid, &[$((stringify!($field), json!($value))),+]),
            field: $at,
            says: $says,
        }),+]
    };
}

pub(crate) mod apps;
pub(crate) mod docs;
pub(crate) mod tenants;

/// Returns a valid spec with changes.
pub(crate) fn changed(mut spec: Value, changes: &[(&str, Value)]) -> Value {
    for (field, value) in changes {
        match spec.as_object_mut() {
            Some(map) if *value == gone() => drop(map.remove(*field)),
            Some(_) | None => spec[*field] = value.clone(),
        }
    }
    spec
}

/// Returns a placeholder for a field that is removed.
fn gone() -> Value {
    json!("(gone)")
}

/// Returns volumes of Secrets at these paths, with this name or with a name of its own for each.
fn secrets_at(paths: &[&str], name: &str) -> Value {
    let volume = |(index, path): (usize, &&str)| {
        let name = match name {
            "" => format!("volume-{index}"),
            name => name.to_owned(),
        };
        json!({ "name": name, "mountPath": path, "secretRef": { "name": "s" } })
    };
    paths.iter().enumerate().map(volume).collect()
}

/// Returns an affinity to nodes with this requirement.
fn node_term(requirement: Value) -> Value {
    let terms = json!([{ "matchExpressions": [requirement] }]);
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } })
}

/// Returns files with these names.
pub(crate) fn files(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| json!({ "filename": name, "content": name }))
        .collect()
}

/// Returns a run to change: version 2, with the files `a.md` and `b.md`.
pub(crate) fn second_version() -> Value {
    let files = files(&["a.md", "b.md"]);
    let changes = [("contextVersion", json!(2)), ("markdownFiles", files)];
    changed(Kind::TaskRun.least(), &changes)
}

const DURATION: &str = "must be a duration from '1s' to '168h', such as '90s', '15m' or '1h30m'";
const HOUR: &str = "must be a duration from '1s' to '1h', such as";
const YEAR: &str = "must be a duration from '0s' to '8760h', such as";
const DAY: &str = "must be a duration from '1s' to '24h', such as";
const QUANTITY: &str = "must be a quantity that is not negative, such as 2, '500m' or '1Gi'";
const ORDER: &str = "'initial' must not be longer than 'max'";
const PATH: &str = "must be an absolute path, such as '/workspace/context'";
const TAKEN: &str = "must not be, be in or hold '/proc'";
const FREE: &str = "or '/workspace'; choose a folder of its own, such as '/data'";
const VOLUME: &str =
    "takes exactly one of 'secretRef', 'configMapRef' and 'persistentVolumeClaimRef'";
const APART: &str = "'mountPath' of a volume must not be, or be in, that of another one";
const RESERVED: &str = "must not have keys of Orchestrator";
const TERM: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]";
const PULL: &str = "must be one of 'Always', 'IfNotPresent', 'Never'";
const OURS: &str = "must not be 'HOME' nor begin with 'ORCHESTRATOR_': Orchestrator sets those";
const KEY: &str = "takes exactly one of 'secretKeyRef' and 'configMapKeyRef'";
const FROM: &str = "takes exactly one of 'secretRef' and 'configMapRef'";
const NAME: &str = "should match '^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'";
const FILE: &str = "should match '^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$'";
const SAME: &str = "cannot be changed; submit another TaskRun";
const TOGETHER: &str = "'markdownFiles' may change only together with a higher 'contextVersion'";

/// Returns Agents that must be rejected.
pub(crate) fn agents() -> Vec<Wrong> {
    wrong! { Kind::Agent.least();
        "no image": image = (gone()) => "spec.image", "Required value";
        "empty image": image = "" => "spec.image", "at least 1 chars";
        "image like an option": image = "-v" => "spec.image", "should match '^[A-Za-z0-9]";
        "image with a space": image = "agent :1" => "spec.image", "should match '^[A-Za-z0-9]";
        "image as a number": image = 7 => "spec.image", "must be of type string";
        "command as text": command = "/bin/sh" => "spec.command", "must be of type array";
        "root": runAsUser = 0 => "spec.runAsUser", "greater than or equal to 1";
        "pull policy": imagePullPolicy = "Sometimes" => "spec.imagePullPolicy", PULL;
        "pull policy in lower case": imagePullPolicy = "always" => "spec.imagePullPolicy", PULL;

        "no unit": timeout = "5" => "spec.timeout", DURATION;
        "a number": timeout = 5 => "spec.timeout", "must be of type string";
        "negative": timeout = "-1s" => "spec.timeout", DURATION;
        "no time at all": timeout = "0s" => "spec.timeout", DURATION;
        "days": timeout = "1d" => "spec.timeout", DURATION;
        "too long": timeout = "169h" => "spec.timeout", DURATION;
        "empty duration": timeout = "" => "spec.timeout", DURATION;
        "start takes days": startTimeout = "25h" => "spec.startTimeout", DAY;
        "no attempt": retry = { "maxAttempts": 0 } => "spec.retry.maxAttempts", "greater than or equal to 1";
        "11 attempts": retry = { "maxAttempts": 11 } => "spec.retry.maxAttempts", "less than or equal to 10";
        "initial above max": retry = { "backoff": { "initial": "10m" } } => "spec.retry.backoff", ORDER;
        "long initial": retry = { "backoff": { "initial": "2h", "max": "3h" } } => "spec.retry.backoff.initial", HOUR;
        "initial of garbage": retry = { "backoff": { "initial": "soon" } } => "spec.retry.backoff.initial", HOUR;
        "long max": retry = { "backoff": { "max": "25h" } } => "spec.retry.backoff.max", DAY;

        "our variable": env = [{ "name": "ORCHESTRATOR_RUN", "value": "x" }] => "spec.env[0].name", OURS;
        "home": env = [{ "name": "A" }, { "name": "HOME", "value": "/" }] => "spec.env[1].name", OURS;
        "variable with a sign": env = [{ "name": "A=B" }] => "spec.env[0].name", "should match '^[A-Za-z_]";
        "variable twice": env = [{ "name": "A" }, { "name": "A" }] => "spec.env[1]", "Duplicate value";
        "value and source": env = [{ "name": "A", "value": "x", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }]
            => "spec.env[0]", "takes either 'value' or 'valueFrom', not both";
        "source of nothing": env = [{ "name": "A", "valueFrom": {} }] => "spec.env[0].valueFrom", KEY;
        "source of nulls": env = [{ "name": "A", "valueFrom": { "secretKeyRef": null, "configMapKeyRef": null } }]
            => "spec.env[0].valueFrom", KEY;
        "two sources": env = [{ "name": "A", "valueFrom": {
            "secretKeyRef": { "name": "s", "key": "k" }, "configMapKeyRef": { "name": "s", "key": "k" } } }]
            => "spec.env[0].valueFrom", KEY;
        "source without a key": env = [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "s" } } }]
            => "spec.env[0].valueFrom.secretKeyRef.key", "Required value";
        "variables from nothing": envFrom = [{ "prefix": "A_" }] => "spec.envFrom[0]", FROM;
        "variables from two": envFrom = [{ "secretRef": { "name": "a" }, "configMapRef": { "name": "b" } }]
            => "spec.envFrom[0]", FROM;
        "our prefix": envFrom = [{ "prefix": "ORCHESTRATOR_", "secretRef": { "name": "a" } }]
            => "spec.envFrom[0]", "'prefix' must not begin with 'ORCHESTRATOR_'; choose another";

        "bad quantity": resources = { "requests": { "cpu": "much" } } => "spec.resources.requests[cpu]", QUANTITY;
        "bad unit": resources = { "limits": { "memory": "1GB" } } => "spec.resources.limits[memory]", QUANTITY;
        "negative quantity": resources = { "limits": { "cpu": "-1" } } => "spec.resources.limits[cpu]", QUANTITY;
        "negative number": resources = { "limits": { "cpu": (-1) } } => "spec.resources.limits[cpu]", QUANTITY;
        "fraction without quotes": resources = { "limits": { "cpu": 0.5 } }
            => "spec.resources.limits.cpu", "must be of type integer,string";
        "requests above limits": resources = { "requests": { "cpu": "1500m" }, "limits": { "cpu": 1 } }
            => "spec.resources", "'requests' must not be more than 'limits'";
        "no workspace": workspace = { "size": "0" } => "spec.workspace.size", "must be more than zero";
        "number zero": workspace = { "size": 0 } => "spec.workspace.size", "must be more than zero";
        "workspace of garbage": workspace = { "size": "big" } => "spec.workspace.size", QUANTITY;
        "class with a slash": workspace = { "storageClassName": "a/b" } => "spec.workspace.storageClassName", NAME;

        "relative path": contextPath = "context" => "spec.contextPath", PATH;
        "path of nothing": contextPath = "/" => "spec.contextPath", PATH;
        "path with a slash at its end": contextPath = "/context/" => "spec.contextPath", PATH;
        "path upwards": contextPath = "/context/../etc" => "spec.contextPath", PATH;
        "path in /etc": contextPath = "/etc/context" => "spec.contextPath", TAKEN;
        "path is /proc": contextPath = "/proc" => "spec.contextPath", TAKEN;
        "path over the home": contextPath = "/home" => "spec.contextPath", TAKEN;
        "path is the workspace": contextPath = "/workspace" => "spec.contextPath", "nor be '/workspace' itself";

        "account in upper case": serviceAccountName = "Writer" => "spec.serviceAccountName", NAME;
        "result twice": results = [{ "name": "a" }, { "name": "a" }] => "spec.results[1]", "Duplicate value";
        "result with a space": results = [{ "name": "a b" }] => "spec.results[0].name", "should match '^[A-Za-z]";
        "instruction in a folder": instructions = (files(&["a/b.md"])) => "spec.instructions[0].filename", FILE;
        "node label's key": nodeSelector = { "disk type": "ssd" } => "spec.nodeSelector", "keys must be those of labels";
        "node label's value": nodeSelector = { "disk": "a b" } => "spec.nodeSelector.disk", "should match";
        "toleration's operator": tolerations = [{ "key": "a", "operator": "Like" }]
            => "spec.tolerations[0].operator", "supported values: \"Equal\", \"Exists\"";
        "toleration of nothing": tolerations = [{}]
            => "spec.tolerations[0]", "without 'key', 'operator' must be 'Exists'";
        "toleration of any value": tolerations = [{ "key": "a", "operator": "Exists", "value": "b" }]
            => "spec.tolerations[0]", "'value' must be empty where 'operator' is 'Exists'";
        "toleration's time": tolerations = [{ "key": "a", "tolerationSeconds": 1 }]
            => "spec.tolerations[0]", "'tolerationSeconds' needs the 'effect' 'NoExecute'";

        "volume of nothing": volumes = [{ "name": "a", "mountPath": "/a" }] => "spec.volumes[0]", VOLUME;
        "volume of two": volumes = [{ "name": "a", "mountPath": "/a", "secretRef": { "name": "s" }, "configMapRef": { "name": "c" } }]
            => "spec.volumes[0]", VOLUME;
        "writable Secret": volumes = [{ "name": "a", "mountPath": "/a", "secretRef": { "name": "s" }, "readOnly": false }]
            => "spec.volumes[0]", "'readOnly' can be false only with 'persistentVolumeClaimRef'";
        "volume twice": volumes = (secrets_at(&["/a", "/b"], "same")) => "spec.volumes[1]", "Duplicate value";
        "volume's name": volumes = [{ "name": "A b", "mountPath": "/a", "secretRef": { "name": "s" } }]
            => "spec.volumes[0].name", "should match";
        "17 volumes": volumes = (secrets_at(&["/a"; 17], "")) => "spec.volumes", "must have at most 16 items";
        "volume at a relative path": volumes = (secrets_at(&["data"], "")) => "spec.volumes[0].mountPath", PATH;
        "volume upwards": volumes = (secrets_at(&["/data/../etc"], "")) => "spec.volumes[0].mountPath", PATH;
        "volume over the workspace": volumes = (secrets_at(&["/workspace"], "")), contextPath = "/context" => "spec.volumes[0].mountPath", FREE;
        "volume in the workspace": volumes = (secrets_at(&["/workspace/source/docs"], "")) => "spec.volumes[0].mountPath", FREE;
        "volume over the home": volumes = (secrets_at(&["/home"], "")) => "spec.volumes[0].mountPath", FREE;
        "volume over the token": volumes = (secrets_at(&["/var/run/secrets/kubernetes.io/serviceaccount"], ""))
            => "spec.volumes[0].mountPath", FREE;
        "volume over the result": volumes = (secrets_at(&["/dev/termination-log"], "")) => "spec.volumes[0].mountPath", FREE;
        "a volume over the files": volumes = (secrets_at(&["/opt/context"], "")), contextPath = "/opt/context/files"
            => "spec.volumes", "'mountPath' of a volume must not be, be in or hold 'contextPath'";
        "two volumes at one path": volumes = (secrets_at(&["/a", "/a"], "")) => "spec.volumes", APART;
        "a volume in another": volumes = (secrets_at(&["/a", "/a/b"], "")) => "spec.volumes", APART;
        "a volume around another": volumes = (secrets_at(&["/a/b", "/a"], "")) => "spec.volumes", APART;

        "our label": podLabels = { "orchestrator.io/uid": "u" } => "spec.podLabels", RESERVED;
        "label of a subdomain of ours": podLabels = { "docs.orchestrator.io/uid": "u" } => "spec.podLabels", RESERVED;
        "our plain label": podLabels = { "task-id": "7" } => "spec.podLabels", RESERVED;
        "label of a Job": podLabels = { "batch.kubernetes.io/job-name": "j" } => "spec.podLabels", RESERVED;
        "old label of a Job": podLabels = { "controller-uid": "u" } => "spec.podLabels", RESERVED;
        "label's key": podLabels = { "a b": "c" } => "spec.podLabels", "keys must be those of labels";
        "label's value": podLabels = { "a": "b c" } => "spec.podLabels.a", "should match";
        "our annotation": podAnnotations = { "orchestrator.io/attempt-spec": "{}" } => "spec.podAnnotations", RESERVED;
        "another security profile": podAnnotations = { "container.apparmor.security.beta.kubernetes.io/agent": "unconfined" }
            => "spec.podAnnotations", "must not have keys of security profiles";
        "annotation's key": podAnnotations = { "a b": "c" } => "spec.podAnnotations", "keys must be those of annotations";
        "long annotation": podAnnotations = { "a": ("b".repeat(4097)) } => "spec.podAnnotations.a", "may not be more than 4096";

        "affinity to no node": affinity = { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [] } } }
            => "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", "at least 1 items";
        "affinity without values": affinity = (node_term(json!({ "key": "a", "operator": "In" })))
            => TERM, "'In' and 'NotIn' need 'values'";
        "affinity with too many values": affinity = (node_term(json!({ "key": "a", "operator": "Exists", "values": ["b"] })))
            => TERM, "'Exists' and 'DoesNotExist' take no 'values'";
        "affinity above no number": affinity = (node_term(json!({ "key": "a", "operator": "Gt", "values": ["b"] })))
            => TERM, "'Gt' and 'Lt' need one number in 'values'";
        "affinity's weight": affinity = { "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 101, "podAffinityTerm": { "labelSelector": {}, "topologyKey": "zone" } }] } }
            => "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight", "less than or equal to 100";
    }
}

/// Returns runs that must be rejected.
pub(crate) fn runs() -> Vec<Wrong> {
    let numbered: Vec<String> = (0..129).map(|number| format!("{number}.md")).collect();
    let numbered: Vec<&str> = numbered.iter().map(String::as_str).collect();
    wrong! { Kind::TaskRun.least();
        "no task": taskId = (gone()) => "spec.taskId", "Required value";
        "no service": serviceName = (gone()) => "spec.serviceName", "Required value";
        "no agent": agentName = (gone()) => "spec.agentName", "Required value";
        "no files": markdownFiles = (gone()) => "spec.markdownFiles", "Required value";
        "task zero": taskId = 0 => "spec.taskId", "greater than or equal to 1";
        "negative task": taskId = (-7) => "spec.taskId", "greater than or equal to 1";
        "huge task": taskId = 2147483648_i64 => "spec.taskId", "less than or equal to 2147483647";
        "task as text": taskId = "7" => "spec.taskId", "must be of type integer";
        "fraction of a task": taskId = 7.5 => "spec.taskId", "must be of type int64";
        "a line break in the service": serviceName = "shop\nlabels: {admin: true}" => "spec.serviceName", "no control characters";
        "colors in the service": serviceName = "\u{1b}[31mred" => "spec.serviceName", "no control characters";
        "NUL in the service": serviceName = "\u{0}" => "spec.serviceName", "no control characters";
        "empty service": serviceName = "" => "spec.serviceName", "at least 1 chars";
        "long service": serviceName = ("s".repeat(254)) => "spec.serviceName", "may not be more than 253";
        "agent in upper case": agentName = "Writer" => "spec.agentName", NAME;
        "agent of another namespace": agentName = "other/writer" => "spec.agentName", NAME;
        "empty agent": agentName = "" => "spec.agentName", "at least 1 chars";
        "version zero": contextVersion = 0 => "spec.contextVersion", "greater than or equal to 1";

        "empty list": markdownFiles = [] => "spec.markdownFiles", "at least 1 items";
        "129 files": markdownFiles = (files(&numbered)) => "spec.markdownFiles", "must have at most 128 items";
        "file twice": markdownFiles = (files(&["a", "b", "a"])) => "spec.markdownFiles[2]", "Duplicate value";
        "file without content": markdownFiles = [{ "filename": "a" }] => "spec.markdownFiles[0].content", "Required value";
        "file without a name": markdownFiles = [{ "content": "a" }] => "spec.markdownFiles[0].filename", "Required value";
        "file in a folder": markdownFiles = (files(&["docs/a.md"])) => "spec.markdownFiles[0].filename", FILE;
        "file upwards": markdownFiles = (files(&[".."])) => "spec.markdownFiles[0].filename", FILE;
        "hidden file": markdownFiles = (files(&[".env"])) => "spec.markdownFiles[0].filename", FILE;
        "file with a space": markdownFiles = (files(&["my task"])) => "spec.markdownFiles[0].filename", FILE;
        "empty name": markdownFiles = (files(&[""])) => "spec.markdownFiles[0].filename", "at least 1 chars";
        "long name": markdownFiles = (files(&[&"a".repeat(254)]))
            => "spec.markdownFiles[0].filename", "may not be more than 253";

        "no unit": timeout = "5" => "spec.timeout", DURATION;
        "too long": timeout = "169h" => "spec.timeout", DURATION;
        "11 attempts": retry = { "maxAttempts": 11 } => "spec.retry.maxAttempts", "less than or equal to 10";
        "initial above max": retry = { "backoff": { "initial": "1h" } } => "spec.retry.backoff", ORDER;

        "suspend as text": suspend = "yes" => "spec.suspend", "must be of type boolean";
        "cancel as a number": cancel = 1 => "spec.cancel", "must be of type boolean";
        "children kept for nothing": childTTL = {} => "spec.childTTL", "must name 'succeeded', 'failed' or both";
        "children kept for nulls": childTTL = { "succeeded": null } => "spec.childTTL", "must name 'succeeded', 'failed' or both";
        "children kept for a negative time": childTTL = { "failed": "-1s" } => "spec.childTTL.failed", YEAR;
        "children kept for more than a year": childTTL = { "succeeded": "8761h" } => "spec.childTTL.succeeded", YEAR;
        "children kept for days": childTTL = { "failed": "7d" } => "spec.childTTL.failed", YEAR;
    }
}

/// Returns changes of [`second_version`] that must be rejected.
pub(crate) fn changes() -> Vec<Wrong> {
    wrong! { second_version();
        "another task": taskId = 8 => "spec.taskId", SAME;
        "another service": serviceName = "web" => "spec.serviceName", SAME;
        "another agent": agentName = "reader" => "spec.agentName", SAME;
        "an earlier version": contextVersion = 1 => "spec.contextVersion", "may only grow";
        "other text": markdownFiles = [{ "filename": "a.md", "content": "other" }, { "filename": "b.md", "content": "b.md" }]
            => "spec.markdownFiles", TOGETHER;
        "another file": markdownFiles = (files(&["a.md", "b.md", "c.md"])) => "spec.markdownFiles", TOGETHER;
        "a file less": contextVersion = 3, markdownFiles = (files(&["b.md"]))
            => "spec.markdownFiles", "an earlier file may not disappear: 'a.md' is missing";
        "a file renamed": contextVersion = 3, markdownFiles = (files(&["a.md", "c.md"]))
            => "spec.markdownFiles", "an earlier file may not disappear: 'b.md' is missing";
    }
}

/// Returns a cancelled run.
pub(crate) fn cancelled() -> Value {
    changed(second_version(), &[("cancel", json!(true))])
}

/// Returns changes of [`cancelled`] that must be rejected.
pub(crate) fn changes_of_cancelled() -> Vec<Wrong> {
    wrong! { cancelled();
        "uncancelled": cancel = false => "spec.cancel", "cannot be taken back; submit another TaskRun";
        "uncancelled by leaving it out": cancel = (gone()) => "spec.cancel", "cannot be taken back; submit another TaskRun";
        "started again": contextVersion = 3
            => "spec.contextVersion", "a cancelled run cannot be started again; submit another TaskRun";
    }
}

/// Returns specs with a field that does not exist, and the name of that field. Without strict
/// validation, the API server drops such a field silently.
pub(crate) fn unknown_fields() -> Vec<(Kind, Value, &'static str)> {
    let agent = |field, value| changed(Kind::Agent.least(), &[(field, value)]);
    let run = |field, value| changed(Kind::TaskRun.least(), &[(field, value)]);
    let docs = |field, value| changed(Kind::DocsRun.least(), &[(field, value)]);
    let tenant = |field, value| changed(Kind::Tenant.least(), &[(field, value)]);
    let app = |field, value| changed(Kind::ManagedApp.least(), &[(field, value)]);
    vec![
        // Fields of unfinished features do not exist.
        (
            Kind::ManagedApp,
            app("suspendRef", json!({ "name": "parent" })),
            "spec.suspendRef",
        ),
        (
            Kind::ManagedApp,
            app("versionPolicy", json!({ "track": "minor" })),
            "spec.versionPolicy",
        ),
        (
            Kind::Agent,
            agent("imagePullPolice", json!("Always")),
            "spec.imagePullPolice",
        ),
        (
            Kind::Agent,
            agent("workspace", json!({ "sise": "1Gi" })),
            "spec.workspace.sise",
        ),
        (Kind::TaskRun, run("agent", json!("writer")), "spec.agent"),
        (
            Kind::TaskRun,
            run("childTTL", json!({ "succeded": "1h" })),
            "spec.childTTL.succeded",
        ),
        (Kind::DocsRun, docs("branch", json!("main")), "spec.branch"),
        (
            Kind::DocsRun,
            docs("output", json!({ "force": true })),
            "spec.output.force",
        ),
        (
            Kind::DocsRun,
            docs(
                "credentialsSecretRef",
                json!({ "name": "a", "namespace": "b" }),
            ),
            "spec.credentialsSecretRef.namespace",
        ),
        (
            Kind::Tenant,
            tenant("registry", json!("registry.example")),
            "spec.registry",
        ),
        (
            Kind::Tenant,
            tenant("resources", json!({ "gpu": { "limit": 1 } })),
            "spec.resources.gpu",
        ),
        (
            Kind::Tenant,
            tenant("networkPolicy", json!({ "allowAll": true })),
            "spec.networkPolicy.allowAll",
        ),
    ]
}
