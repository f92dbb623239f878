//! Hashes the content of an object that we create, as far as it determines the programs that run.
//! With the hash we recognize our own objects among unmanaged objects of the same name.
//!
//! The creator of an object chooses its labels, annotations and owner references, so they prove
//! nothing. We compare the content instead. For a ConfigMap, that is its data. For a Pod, it is the
//! containers of our operators, with everything that they can access.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Names of the containers that our operators create. Webhooks may inject other containers.
pub const CONTAINERS: &[&str] = &["agent", "clone", "commit", "publish", "probe"];

/// The path where the API server mounts the token of a ServiceAccount.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns the hash of the content of an object of this kind, or `None` for a kind that is not
/// compared.
///
/// # Guarantees
/// - Fields that the API server fills in do not change the hash.
/// - The hash has 128 bits, so nobody can find another content with the same hash.
#[must_use]
pub fn hash(kind: &str, object: &Value) -> Option<u128> {
    let content = match kind {
        "ConfigMap" => data(object),
        "Job" => pod(object.pointer("/spec/template/spec")?),
        "Pod" => pod(object.pointer("/spec")?),
        _ => return None,
    };
    let digest = Sha256::digest(content.to_string().as_bytes());
    let number = digest
        .iter()
        .take(16)
        .fold(0, |number, byte| number << 8 | u128::from(*byte));
    Some(number)
}

fn data(map: &Value) -> Value {
    json!([
        field(map, "data"),
        field(map, "binaryData"),
        field(map, "immutable")
    ])
}

/// Returns the content of a Pod spec, or of the Pod spec in a template.
fn pod(spec: &Value) -> Value {
    let list = |name: &str| {
        spec.get(name)
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice)
    };
    let (init, ordinary) = (list("initContainers"), list("containers"));
    let mounted: BTreeSet<&str> = init
        .iter()
        .chain(ordinary)
        .filter(|one| is_counted(one))
        .flat_map(volumes)
        .collect();
    // Another container counts if it mounts a volume of our containers.
    let counted = |list: &[Value]| -> Vec<Value> {
        let counts = |one: &&Value| {
            is_counted(one) || volumes(one).iter().any(|name| mounted.contains(name))
        };
        list.iter().filter(counts).map(container).collect()
    };
    let is_mounted =
        |volume: &&Value| text(volume, "name").is_some_and(|name| mounted.contains(name));
    let host: Vec<Option<&Value>> = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"]
        .into_iter()
        .map(|name| field(spec, name))
        .collect();
    json!({
        "init": counted(init),
        "containers": counted(ordinary),
        "volumes": list("volumes").iter().filter(is_mounted).map(source).collect::<Vec<_>>(),
        "account": text(spec, "serviceAccountName").unwrap_or("default"),
        "securityContext": field(spec, "securityContext"),
        "host": host,
    })
}

fn is_counted(container: &Value) -> bool {
    text(container, "name").is_some_and(|name| CONTAINERS.contains(&name))
}

/// Returns the names of the volumes that a container mounts, without the volume of its token.
fn volumes(container: &Value) -> Vec<&str> {
    mounts(container)
        .into_iter()
        .filter_map(|mount| text(mount, "name"))
        .collect()
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

/// Returns a field, or `None` if its value is empty.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).filter(|value| !is_empty(value))
}

fn mounts(container: &Value) -> Vec<&Value> {
    let all = container.get("volumeMounts").and_then(Value::as_array);
    let is_ours = |mount: &&Value| mount.get("mountPath").and_then(Value::as_str) != Some(TOKEN);
    all.map_or_else(Vec::new, |all| all.iter().filter(is_ours).collect())
}

fn container(container: &Value) -> Value {
    let field = |name: &str| field(container, name);
    let mount = |mount: &Value| -> Vec<Option<Value>> {
        ["name", "mountPath", "subPath", "subPathExpr", "readOnly"]
            .into_iter()
            .map(|name| self::field(mount, name).cloned())
            .collect()
    };
    let variables = container.get("env").and_then(Value::as_array);
    json!({
        "name": field("name"),
        "image": field("image"),
        "command": field("command"),
        "args": field("args"),
        "workingDir": field("workingDir"),
        "env": variables.map_or_else(Vec::new, |all| all.iter().map(variable).collect()),
        "envFrom": field("envFrom"),
        "lifecycle": field("lifecycle"),
        "securityContext": field("securityContext"),
        "mounts": mounts(container).into_iter().map(mount).collect::<Vec<_>>(),
    })
}

/// Returns an environment variable without the fields that the API server fills in.
fn variable(variable: &Value) -> Value {
    let mut variable = variable.clone();
    for (source, filled) in [("fieldRef", "apiVersion"), ("resourceFieldRef", "divisor")] {
        let source = variable.pointer_mut(&format!("/valueFrom/{source}"));
        if let Some(Value::Object(fields)) = source {
            fields.remove(filled);
        }
    }
    if text(&variable, "value") == Some("")
        && let Value::Object(fields) = &mut variable
    {
        fields.remove("value");
    }
    variable
}

/// Returns the source of a volume, without the modes and sizes that the API server fills in.
fn source(volume: &Value) -> Value {
    let name = volume.get("name");
    let of = |kind: &str, field: &str| {
        let source = volume.get(kind)?;
        Some(json!([name, kind, source.get(field), source.get("items")]))
    };
    let plain = |kind: &str| volume.get(kind).map(|_| json!([name, kind]));
    of("configMap", "name")
        .or_else(|| of("secret", "secretName"))
        .or_else(|| plain("emptyDir"))
        .or_else(|| plain("ephemeral"))
        .unwrap_or_else(|| volume.clone())
}

/// Returns whether a value is the same as an absent one for the API server: `null`, `false`, or an
/// empty string, list or object.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Value {
        json!({
            "serviceAccountName": "agents", "restartPolicy": "Never",
            "containers": [{
                "name": "agent", "image": "a:1", "command": ["/bin/agent"], "args": ["--fast"],
                "env": [{ "name": "A", "value": "1" }],
                "securityContext": { "runAsNonRoot": true },
                "volumeMounts": [{ "name": "context", "mountPath": "/context", "readOnly": true }],
            }],
            "volumes": [
                { "name": "context", "configMap": { "name": "shop-7-v1-files" } },
                { "name": "home", "emptyDir": {} },
            ],
        })
    }

    fn of(spec: &Value) -> Option<u128> {
        hash("Pod", &json!({ "spec": spec }))
    }

    #[test]
    fn what_the_api_server_and_injectors_add_changes_nothing() {
        let mut live = template();
        let agent = &mut live["containers"][0];
        agent["imagePullPolicy"] = json!("IfNotPresent");
        agent["terminationMessagePath"] = json!("/dev/termination-log");
        agent["resources"] = json!({ "limits": { "memory": "64Mi" } });
        agent["volumeMounts"] = json!([
            { "name": "context", "mountPath": "/context", "readOnly": true },
            { "name": "kube-api-access-x", "mountPath": TOKEN, "readOnly": true },
        ]);
        live["volumes"][0]["configMap"]["defaultMode"] = json!(420);
        live["volumes"][1] = json!({ "name": "kube-api-access-x", "projected": {} });
        live["hostNetwork"] = json!(false);
        live["nodeName"] = json!("node-0");
        live["tolerations"] = json!([{ "key": "node.kubernetes.io/not-ready" }]);
        live["containers"] =
            json!([live["containers"][0], { "name": "istio-proxy", "image": "i:1" }]);
        let node = |field: Value| json!([{ "name": "NODE", "valueFrom": { "fieldRef": field } }]);
        live["containers"][0]["env"] =
            node(json!({ "fieldPath": "spec.nodeName", "apiVersion": "v1" }));
        let mut wanted = template();
        wanted["containers"][0]["env"] = node(json!({ "fieldPath": "spec.nodeName" }));
        assert!(of(&live).is_some());
        assert_eq!(of(&live), of(&wanted));
        let job = json!({ "spec": { "template": { "spec": wanted } } });
        assert_eq!(hash("Job", &job), of(&live), "the Pods of a Job");
    }

    #[test]
    fn whatever_decides_what_runs_counts() {
        type Change = fn(&mut Value);
        let changes: [(&str, Change); 13] = [
            ("image", |pod| {
                pod["containers"][0]["image"] = json!("evil:1")
            }),
            ("command", |pod| {
                pod["containers"][0]["command"] = json!(["/bin/sh"])
            }),
            ("arguments", |pod| {
                pod["containers"][0]["args"] = json!(["--slow"])
            }),
            ("a variable", |pod| {
                pod["containers"][0]["env"][0]["value"] = json!("2")
            }),
            ("one more variable", |pod| {
                let variables = &mut pod["containers"][0]["env"];
                *variables = json!([variables[0], { "name": "LD_PRELOAD", "value": "/x" }]);
            }),
            ("a hook", |pod| {
                pod["containers"][0]["lifecycle"] = json!({ "postStart": { "exec": {} } });
            }),
            ("a mount", |pod| {
                pod["containers"][0]["volumeMounts"][0]["mountPath"] = json!("/elsewhere");
            }),
            ("the files", |pod| {
                pod["volumes"][0]["configMap"]["name"] = json!("mine");
            }),
            ("where files come from", |pod| {
                pod["volumes"][0] = json!({ "name": "context", "hostPath": { "path": "/" } });
            }),
            ("a container beside it that reaches its files", |pod| {
                pod["initContainers"] = json!([{
                    "name": "helper", "image": "evil:1",
                    "volumeMounts": [{ "name": "context", "mountPath": "/x" }],
                }]);
            }),
            ("the account", |pod| {
                pod["serviceAccountName"] = json!("admin")
            }),
            ("the host's network", |pod| pod["hostNetwork"] = json!(true)),
            ("privileges", |pod| {
                pod["containers"][0]["securityContext"]["privileged"] = json!(true);
            }),
        ];
        for (name, change) in changes {
            let mut other = template();
            change(&mut other);
            assert_ne!(of(&other), of(&template()), "{name}");
        }
    }

    #[test]
    fn the_data_of_a_config_map_counts() {
        let map = |data: Value| hash("ConfigMap", &json!({ "immutable": true, "data": data }));
        assert_eq!(map(json!({ "a": "1" })), map(json!({ "a": "1" })));
        assert_ne!(map(json!({ "a": "1" })), map(json!({ "a": "2" })));
        assert_ne!(map(json!({ "a": "1" })), map(json!({ "a": "1", "b": "" })));
        let changeable = hash("ConfigMap", &json!({ "data": { "a": "1" } }));
        assert_ne!(map(json!({ "a": "1" })), changeable);
        assert_eq!(hash("Secret", &json!({ "data": {} })), None);
    }
}
