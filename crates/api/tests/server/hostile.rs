//! Text and fields that try to become a privilege, a path, a label or a template. They are
//! rejected, dropped, or stored as plain text.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use api::{
    names,
    tasks::{TaskRun, docs_names, names as children},
};
use http::{Method, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
};

use crate::{
    fixtures::{agent_spec, docs_spec, tenant_spec},
    support::{Kind, create, install, remove, send, taken, would_create},
    wrong::changed,
};

/// Returns fields of a Pod that would free a container from its limits, as pointer and value.
fn privileges() -> Vec<(&'static str, Value)> {
    vec![
        ("/privileged", json!(true)),
        ("/securityContext", json!({ "privileged": true })),
        ("/podSecurityContext", json!({ "runAsUser": 0 })),
        ("/capabilities", json!({ "add": ["SYS_ADMIN"] })),
        ("/allowPrivilegeEscalation", json!(true)),
        ("/runAsGroup", json!(0)),
        ("/fsGroup", json!(0)),
        ("/hostNetwork", json!(true)),
        ("/hostPID", json!(true)),
        ("/hostIPC", json!(true)),
        ("/hostUsers", json!(true)),
        ("/hostPath", json!("/")),
        ("/shareProcessNamespace", json!(true)),
        ("/volumes/0/hostPath", json!({ "path": "/" })),
        ("/volumes/0/projected", json!({ "sources": [] })),
        ("/volumes/0/csi", json!({ "driver": "secrets" })),
        ("/volumes/0/secretRef/namespace", json!("kube-system")),
        ("/volumes/0/subPath", json!("..")),
        ("/volumes/0/mountPropagation", json!("Bidirectional")),
        (
            "/volumeMounts",
            json!([{ "name": "host", "mountPath": "/host" }]),
        ),
        (
            "/volumeDevices",
            json!([{ "name": "disk", "devicePath": "/dev/x" }]),
        ),
        (
            "/initContainers",
            json!([{ "name": "first", "image": "evil:1" }]),
        ),
        (
            "/containers",
            json!([{ "name": "agent", "image": "evil:1" }]),
        ),
        ("/ephemeralContainers", json!([{ "name": "late" }])),
        (
            "/lifecycle",
            json!({ "postStart": { "exec": { "command": ["id"] } } }),
        ),
        ("/nodeName", json!("control-plane")),
        ("/schedulerName", json!("mine")),
        (
            "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/namespaces",
            json!(["kube-system"]),
        ),
        (
            "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/namespaceSelector",
            json!({}),
        ),
        ("/template", json!({ "spec": { "hostPID": true } })),
        ("/podTemplate", json!({ "spec": { "hostPID": true } })),
        ("/automountServiceAccountToken", json!(true)),
        ("/serviceAccount", json!("admin")),
        ("/ports", json!([{ "hostPort": 22 }])),
        ("/workspace/hostPath", json!({ "path": "/" })),
        ("/workspace/volumeName", json!("another-volume")),
        (
            "/env/1/valueFrom/secretKeyRef/namespace",
            json!("kube-system"),
        ),
        (
            "/env/1/valueFrom/fieldRef",
            json!({ "fieldPath": "spec.nodeName" }),
        ),
        ("/envFrom/0/secretRef/namespace", json!("kube-system")),
        ("/imagePullSecrets/0/namespace", json!("kube-system")),
        ("/tolerations/0/nodeName", json!("control-plane")),
    ]
}

/// Returns fields of a DocsRun that would give the agent more access, or make git do something
/// else.
fn docs_privileges() -> Vec<(&'static str, Value)> {
    vec![
        ("/image", json!("evil:1")),
        ("/command", json!(["id"])),
        (
            "/env",
            json!([{ "name": "GIT_SSH_COMMAND", "value": "id" }]),
        ),
        ("/serviceAccountName", json!("admin")),
        ("/securityContext", json!({ "privileged": true })),
        (
            "/volumes",
            json!([{ "name": "host", "hostPath": { "path": "/" } }]),
        ),
        (
            "/containers",
            json!([{ "name": "clone", "image": "evil:1" }]),
        ),
        ("/hostNetwork", json!(true)),
        ("/insecureSkipTLSVerify", json!(true)),
        ("/submodules", json!(true)),
        ("/hooks", json!({ "pre-push": "id" })),
        ("/gitConfig", json!({ "core.sshCommand": "id" })),
        ("/proxy", json!("http://evil.example")),
        ("/credentials", json!({ "password": "x" })),
        ("/credentialsSecretRef/namespace", json!("kube-system")),
        ("/credentialsSecretRef/key", json!("token")),
        ("/output/force", json!(true)),
        ("/output/repositoryUrl", json!("https://evil.example/x")),
        ("/output/remote", json!("evil")),
        ("/output/author", json!("root <root@example.com>")),
        ("/instructions/0/mode", json!(0o4755)),
        ("/instructions/0/path", json!("/etc/passwd")),
        ("/workspace", json!({ "hostPath": { "path": "/" } })),
    ]
}

/// Returns fields of a Tenant that would open it, or free its programs from their limits.
fn tenant_privileges() -> Vec<(&'static str, Value)> {
    let host = json!([{ "name": "host", "hostPath": { "path": "/" } }]);
    vec![
        ("/podSecurity", json!("privileged")),
        (
            "/labels",
            json!({ "pod-security.kubernetes.io/enforce": "privileged" }),
        ),
        ("/role", json!("cluster-admin")),
        ("/roles", json!(["cluster-admin"])),
        ("/owners/0/role", json!("admin")),
        ("/owners/0/apiGroup", json!("")),
        ("/resources/scopes", json!(["Terminating"])),
        ("/server/securityContext", json!({ "privileged": true })),
        ("/server/hostNetwork", json!(true)),
        ("/server/hostPort", json!(80)),
        ("/server/volumes", host.clone()),
        (
            "/server/initContainers",
            json!([{ "name": "a", "image": "evil:1" }]),
        ),
        ("/server/serviceAccountName", json!("admin")),
        ("/server/nodeName", json!("control-plane")),
        ("/server/serviceType", json!("NodePort")),
        ("/server/externalIPs", json!(["192.0.2.1"])),
        ("/server/envFrom", json!([{ "secretRef": { "name": "a" } }])),
        (
            "/server/env/1/valueFrom/secretKeyRef/namespace",
            json!("kube-system"),
        ),
        ("/redis/command", json!(["sh"])),
        ("/redis/volumes", host),
        ("/redis/password", json!("known")),
        ("/redis/storage/volumeName", json!("another-volume")),
        ("/redis/storage/hostPath", json!("/")),
        ("/networkPolicy/defaultAllow", json!(true)),
        (
            "/networkPolicy/ingressRules/0/from/0/podSelector",
            json!({}),
        ),
        (
            "/networkPolicy/ingressRules/0/ports/0/endPort",
            json!(65535),
        ),
        ("/deletion/force", json!(true)),
    ]
}

/// Returns `spec` with `value` at a path that its schema does not have.
fn planted(mut spec: Value, pointer: &str, value: &Value) -> Result<Value> {
    let (parent, field) = pointer.rsplit_once('/').context("no field")?;
    let place = spec.pointer_mut(parent).context("no such place")?;
    place[field] = value.clone();
    Ok(spec)
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_privilege_is_refused_by_name_or_dropped() -> Result<()> {
    suite::test(Tier::Api, "privileges", async |env| {
        install(&env.client).await?;
        let of_agents = privileges().into_iter().map(|one| (Kind::Agent, one));
        let of_docs = docs_privileges()
            .into_iter()
            .map(|one| (Kind::DocsRun, one));
        let of_tenants = tenant_privileges()
            .into_iter()
            .map(|one| (Kind::Tenant, one));
        for (kind, (pointer, value)) in of_agents.chain(of_docs).chain(of_tenants) {
            let path = kind.path(&env.namespace, "");
            let whole = match kind {
                Kind::DocsRun => json!(docs_spec()),
                Kind::Tenant => json!(tenant_spec()),
                Kind::Agent | Kind::TaskRun | Kind::ManagedApp | Kind::Notebook => {
                    json!(agent_spec())
                }
            };
            let clean = taken(would_create(&env, kind, &whole).await?)?;
            let spec = planted(whole.clone(), pointer, &value)?;
            let strict = would_create(&env, kind, &spec).await?;
            let refusal = strict
                .err()
                .with_context(|| format!("{pointer} was taken"))?;
            let field = pointer.rsplit('/').next().unwrap_or_default();
            ensure!(
                refusal.code == 400
                    && refusal.message.contains("unknown field")
                    && refusal.message.contains(field),
                "{pointer}: {}: {}",
                refusal.code,
                refusal.message
            );
            // Most tools do not use strict validation. The field is then not stored, so no child
            // can have it.
            for lax in ["Warn", "Ignore"] {
                let query = format!("fieldValidation={lax}&dryRun=All");
                let object = kind.object("tried", &spec);
                let answer = send(&env.client, Method::POST, &path, &query, Some(&object)).await?;
                let stored = taken(answer).with_context(|| pointer.to_owned())?;
                ensure!(
                    stored["spec"] == clean["spec"],
                    "{pointer}: {}",
                    stored["spec"]
                );
            }
        }
        let count = privileges().len() + docs_privileges().len() + tenant_privileges().len();
        println!("{count} privileges refused, or dropped");
        Ok(())
    })
    .await
}

/// A status in a new object, or in an update of the object, is dropped.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_status_is_written_as_a_status_only() -> Result<()> {
    suite::test(Tier::Api, "forged", async |env| {
        install(&env.client).await?;
        for (kind, field, value) in [
            (Kind::TaskRun, "contextVersion", json!(1)),
            (Kind::DocsRun, "commit", json!("0123")),
            (Kind::Tenant, "intent", json!("delete 0123")),
            (Kind::ManagedApp, "versionsMatch", json!(true)),
        ] {
            let name = kind.name(&env, "forged");
            let phase = match kind {
                Kind::Tenant => "Running",
                Kind::Agent | Kind::ManagedApp => "Ready",
                Kind::TaskRun | Kind::DocsRun | Kind::Notebook => "Succeeded",
            };
            let mut object = kind.object(&name, &kind.least());
            object["status"] = json!({ "phase": phase, field: value, "message": "done" });
            let made = taken(create(&env, kind, &object).await?)?;
            assert_eq!(made["status"]["observedGeneration"], -1, "{made}");
            assert_eq!(made["status"]["phase"], "Pending", "{made}");
            assert!(made["status"].get(field).is_none(), "{made}");

            let mut changed = made.clone();
            changed["status"] = object["status"].clone();
            let path = kind.path(&env.namespace, &format!("/{name}"));
            let answer = send(&env.client, Method::PUT, &path, "", Some(&changed)).await?;
            assert_eq!(taken(answer)?["status"], made["status"]);
            if kind == Kind::Tenant {
                remove(&env, kind, &name).await?;
            }
        }
        Ok(())
    })
    .await
}

fn service_names() -> Vec<String> {
    let mut all: Vec<String> = [
        "{{ .Values.secret }}",
        "{{ template \"x\" }}",
        "$(ORCHESTRATOR_UID)",
        "$(cat /etc/passwd)",
        "`id`",
        "'; rm -rf / #",
        "\"quoted\"",
        "..",
        "../../etc",
        "-rf",
        "--privileged",
        "a,b=c",
        "a in (b)",
        "!a",
        "\u{202e}pohs",
        " ",
        "SHOP",
        "shop",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    all.extend([
        "-".repeat(253),
        "\u{1f4a5}".repeat(253),
        "a".repeat(253),
        format!("{}b", "a".repeat(252)),
    ]);
    all
}

/// Creates a ConfigMap like that of a run. An additional label has the name of the run's Job.
async fn child(env: &Env, run: &TaskRun) -> Result<ConfigMap> {
    let service = names::label_value(&run.spec.service_name);
    let mut labels: BTreeMap<String, String> = names::child_labels("TaskRun", "hostile", "uid");
    labels.insert(names::SERVICE_NAME.to_owned(), service);
    labels.insert("job".to_owned(), children::job(&run.spec, 10, Some(5)));
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(children::config_map(&run.spec)),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let dry = PostParams {
        dry_run: true,
        field_manager: None,
    };
    let made = env.api::<ConfigMap>().create(&dry, &map).await;
    made.with_context(|| format!("{:?}", run.spec.service_name))
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_hostile_service_stays_a_word() -> Result<()> {
    suite::test(Tier::Api, "words", async |env| {
        install(&env.client).await?;
        let mut seen = BTreeSet::new();
        for service in service_names() {
            let spec = changed(Kind::TaskRun.least(), &[("serviceName", json!(service))]);
            let made = taken(would_create(&env, Kind::TaskRun, &spec).await?)?;
            let run: TaskRun = serde_json::from_value(made)?;
            assert_eq!(run.spec.service_name, service);
            let child = child(&env, &run).await?;
            let labels = child.metadata.labels.context("no labels")?;
            assert_eq!(labels.len(), 6, "{service:?}: {labels:?}");
            ensure!(
                seen.insert(child.metadata.name) && seen.insert(labels.get("job").cloned()),
                "{service:?} has the name of another service's child"
            );
        }
        println!("{} hostile names", service_names().len());
        Ok(())
    })
    .await
}

/// Returns run names that differ only in characters that a child's name cannot have, or after its
/// cut.
fn run_names() -> Vec<String> {
    let mut all: Vec<String> = [
        "a.b",
        "a-b",
        "a--b",
        "a",
        "a-docs",
        "a-docs-files",
        "a-docs-a2",
        "0",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    let long = [["a"; 60].concat(), ["b"; 60].concat(), ["c"; 60].concat()].join(".");
    all.extend([long.clone(), format!("{long}.d"), long.replace('.', "-")]);
    all
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn two_docs_runs_share_no_name_of_a_child() -> Result<()> {
    suite::test(Tier::Api, "children", async |env| {
        let mut seen = BTreeSet::new();
        for run in run_names() {
            for name in [
                docs_names::config_map(&run),
                docs_names::job(&run, 1, None),
                docs_names::job(&run, 2, None),
                docs_names::job(&run, 1, Some(1)),
                docs_names::job(&run, 10, Some(5)),
            ] {
                // As a name and as a label, because a Job's Pods have its name in a label.
                let mut labels = names::child_labels("DocsRun", &run, "uid");
                labels.insert("job".to_owned(), name.clone());
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(name.clone()),
                        labels: Some(labels),
                        ..ObjectMeta::default()
                    },
                    ..ConfigMap::default()
                };
                let dry = PostParams {
                    dry_run: true,
                    field_manager: None,
                };
                let made = env.api::<ConfigMap>().create(&dry, &map).await;
                made.with_context(|| format!("{run}: {name}"))?;
                ensure!(seen.insert(name.clone()), "{run}: '{name}' is another's");
            }
        }
        println!("{} names of children", seen.len());
        Ok(())
    })
    .await
}

/// Returns an object with files of `bytes` each.
fn heavy(kind: Kind, field: &str, count: usize, bytes: usize) -> Value {
    let files: Value = (0..count)
        .map(|index| json!({ "filename": format!("{index}.md"), "content": "x".repeat(bytes) }))
        .collect();
    let run = changed(kind.least(), &[(field, files)]);
    kind.object("heavy", &run)
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn what_is_too_heavy_is_not_stored() -> Result<()> {
    suite::test(Tier::Api, "heavy", async |env| {
        install(&env.client).await?;
        // More than a request may have, and more than etcd accepts.
        for (kind, field) in [
            (Kind::TaskRun, "markdownFiles"),
            (Kind::DocsRun, "instructions"),
        ] {
            for (count, bytes) in [(4, 900_000), (2, 900_000), (128, 15_000)] {
                let answer = create(&env, kind, &heavy(kind, field, count, bytes)).await?;
                let refusal = answer.err().context("it was stored")?;
                println!(
                    "{kind:?}: {count} files of {bytes}: {}: {}",
                    refusal.code, refusal.message
                );
                ensure!(refusal.message.contains("too large"), "{}", refusal.message);
            }
        }
        Ok(())
    })
    .await
}

/// Returns a few lines of YAML that expand to 9^9 elements.
fn yaml_bomb() -> String {
    let mut text = "apiVersion: orchestrator.io/v1alpha1\nkind: Agent\nmetadata: {name: bomb}\nspec:\n  image: a:1\n  a0: &a0 [x]\n".to_owned();
    for level in 1..=9 {
        let before = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("  a{level}: &a{level} [{before}]\n"));
    }
    text
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_yaml_bomb_is_refused() -> Result<()> {
    suite::test(Tier::Api, "bomb", async |env| {
        install(&env.client).await?;
        let path = Kind::Agent.path(&env.namespace, "");
        let request = Request::post(format!("{path}?dryRun=All"))
            .header("Content-Type", "application/yaml")
            .body(yaml_bomb().into_bytes())?;
        match env.client.request::<Value>(request).await {
            Ok(_) => bail!("it was taken"),
            Err(kube::Error::Api(refusal)) => {
                println!("{}: {}", refusal.code, refusal.message);
                ensure!(
                    refusal.message.contains("excessive aliasing"),
                    "{}",
                    refusal.message
                );
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    })
    .await
}
