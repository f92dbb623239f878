//! A stolen token of the operator of runs can create only objects that the operator builds.

use anyhow::{Result, ensure};
use api::{
    names,
    policy::{self, POWERFUL_SERVICE_ACCOUNTS, PROTECTED_NAMESPACES},
    tasks::OPERATOR,
};
use http::Method;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod, ServiceAccount},
    rbac::v1::PolicyRule,
};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
};

use crate::{
    arena::{rule, with},
    asks::{Ask, folder, grant, judge, take_away, until_refused, until_taken},
    policies::{bind, client_of, make, named, unbind, warnings},
    support::{Kind, create, install, taken},
};

const LABELS: &str = "with the label 'orchestrator.io/kind' of a run only";
const OWNER: &str = "with one owner reference, to the run of their labels";
const KEPT: &str = "changes neither the owner of a Job nor the labels that name it";
const FILES: &str = "creates ConfigMaps for the files of a run only";
const PLACES: &str = "creates nothing in protected namespaces";
const HOST: &str = "creates Pods without access to their node";
const LEVEL: &str = "creates Pods of the Pod Security level 'restricted' only";
const VOLUMES: &str = "creates Pods with the volumes of a run only";
const CONTAINERS: &str = "creates Pods with the containers of a run only";
const TOKEN: &str = "say whether its token is mounted";
const PODS: &str = "changes Pods with the label 'orchestrator.io/kind' of a run only";
const POD_MARKS: &str = "changes no labels, annotations, finalizers or owners of a Pod";
const POD_FIELDS: &str = "changes no field of a Pod but 'spec.activeDeadlineSeconds'";
const POWER: &str = "mounts no token of a ServiceAccount that may read Secrets";

fn metadata(kind: &str, name: &str) -> Value {
    json!({
        "name": name,
        "labels": { names::KIND: kind, names::UID: "u-1", names::NAME: "a" },
        "ownerReferences": [{
            "apiVersion": "orchestrator.io/v1", "kind": kind, "name": "a", "uid": "u-1",
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}

fn context() -> Value {
    json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] }, "runAsNonRoot": true })
}

fn container(name: &str) -> Value {
    json!({ "name": name, "image": "a:1", "securityContext": context() })
}

/// Returns a Pod spec as the operator builds it for a TaskRun.
fn pod() -> Value {
    json!({
        "restartPolicy": "Never",
        "serviceAccountName": "default",
        "automountServiceAccountToken": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container("agent")],
        "volumes": [
            { "name": "context", "configMap": { "name": "shop-7-v1-files" } },
            { "name": "workspace", "emptyDir": { "sizeLimit": "1Gi" } },
        ],
    })
}

fn ask(
    what: &str,
    method: Method,
    path: String,
    body: Option<Value>,
    says: Option<&'static str>,
) -> Ask {
    Ask {
        what: what.to_owned(),
        method,
        path,
        body,
        refused: says,
    }
}

/// Returns a request for a Job with this Pod.
fn job(env: &Env, what: &str, kind: &str, pod: Value, says: Option<&'static str>) -> Ask {
    let metadata = metadata(kind, "tried");
    let template = json!({ "metadata": { "labels": metadata["labels"] }, "spec": pod });
    let body = json!({ "metadata": metadata, "spec": { "template": template } });
    ask(
        what,
        Method::POST,
        folder("batch", &env.namespace, "jobs"),
        Some(body),
        says,
    )
}

/// Returns Jobs with one property that the operator never builds.
fn jobs(env: &Env) -> Vec<Ask> {
    let pod_with = |more: Value| with(pod(), &more);
    let one = |more: Value| json!({ "containers": [with(container("agent"), &more)] });
    let secured = |more: Value| one(json!({ "securityContext": with(context(), &more) }));
    let as_pod =
        |more: Value| json!({ "securityContext": with(pod()["securityContext"].clone(), &more) });
    let volume = |source: Value| json!({ "volumes": [with(json!({ "name": "a" }), &source)] });
    let claim = |more: Value| {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": { "requests": { "storage": "1Gi" } },
        });
        volume(json!({ "ephemeral": { "volumeClaimTemplate": { "spec": with(spec, &more) } } }))
    };
    let tokens =
        json!({ "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }] } });
    let snapshot = json!({ "kind": "PersistentVolumeClaim", "name": "data" });
    let mounted = json!({ "serviceAccountName": "mighty", "automountServiceAccountToken": true });
    let rows = [
        ("the node's network", json!({ "hostNetwork": true }), HOST),
        ("the node's processes", json!({ "hostPID": true }), HOST),
        ("the node's memory", json!({ "hostIPC": true }), HOST),
        (
            "a node of its choice",
            json!({ "nodeName": "node-1" }),
            HOST,
        ),
        (
            "a port of the node",
            one(json!({ "ports": [{ "containerPort": 80, "hostPort": 80 }] })),
            HOST,
        ),
        (
            "privileged",
            one(json!({ "securityContext": { "privileged": true } })),
            LEVEL,
        ),
        (
            "no security context",
            one(json!({ "securityContext": null })),
            LEVEL,
        ),
        (
            "escalation",
            secured(json!({ "allowPrivilegeEscalation": true })),
            LEVEL,
        ),
        (
            "an added capability",
            secured(json!({ "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] } })),
            LEVEL,
        ),
        (
            "capabilities kept",
            secured(json!({ "capabilities": {} })),
            LEVEL,
        ),
        (
            "root in a container",
            secured(json!({ "runAsNonRoot": false, "runAsUser": 0 })),
            LEVEL,
        ),
        (
            "root for the Pod",
            as_pod(json!({ "runAsNonRoot": false, "runAsUser": 0 })),
            LEVEL,
        ),
        (
            "no seccomp",
            as_pod(json!({ "seccompProfile": { "type": "Unconfined" } })),
            LEVEL,
        ),
        (
            "no seccomp in a container",
            secured(json!({ "seccompProfile": { "type": "Unconfined" } })),
            LEVEL,
        ),
        (
            "no AppArmor",
            secured(json!({ "appArmorProfile": { "type": "Unconfined" } })),
            LEVEL,
        ),
        (
            "a sysctl",
            as_pod(json!({ "sysctls": [{ "name": "kernel.shm_rmid_forced", "value": "1" }] })),
            LEVEL,
        ),
        (
            "a folder of the node",
            volume(json!({ "hostPath": { "path": "/" } })),
            VOLUMES,
        ),
        ("a token by a volume", volume(tokens), VOLUMES),
        (
            "a Secret by a volume",
            volume(json!({ "secret": { "secretName": "s" } })),
            VOLUMES,
        ),
        (
            "a ConfigMap of others",
            volume(json!({ "configMap": { "name": "settings" } })),
            VOLUMES,
        ),
        (
            "a claim of others",
            volume(json!({ "persistentVolumeClaim": { "claimName": "data" } })),
            VOLUMES,
        ),
        (
            "a volume of its choice",
            claim(json!({ "volumeName": "disk" })),
            VOLUMES,
        ),
        (
            "a copy of others' data",
            claim(json!({ "dataSource": snapshot })),
            VOLUMES,
        ),
        (
            "another container",
            json!({ "containers": [container("agent"), container("b")] }),
            CONTAINERS,
        ),
        (
            "one before the agent",
            json!({ "initContainers": [container("b")] }),
            CONTAINERS,
        ),
        (
            "a container that is repeated",
            json!({ "restartPolicy": "OnFailure" }),
            CONTAINERS,
        ),
        (
            "nothing said of a token",
            json!({ "automountServiceAccountToken": null }),
            TOKEN,
        ),
        ("the token of an administrator", mounted, POWER),
    ];
    rows.into_iter()
        .map(|(what, more, says)| job(env, what, "TaskRun", pod_with(more), Some(says)))
        .collect()
}

/// Returns other writes that the operator never makes.
fn others(env: &Env) -> Vec<Ask> {
    let here = env.namespace.as_str();
    let at = |resource: &str| folder("", here, resource);
    let map = |what: &str, metadata: Value, says| {
        ask(
            what,
            Method::POST,
            at("configmaps"),
            Some(json!({ "metadata": metadata })),
            Some(says),
        )
    };
    let changed = |field: &str, value: Value| {
        let mut metadata = metadata("TaskRun", "a-files");
        metadata[field] = value;
        metadata
    };
    let mut unowned = metadata("TaskRun", "a-files");
    unowned["ownerReferences"][0]["uid"] = json!("u-2");
    let mut foreign = metadata("TaskRun", "a-files");
    foreign["ownerReferences"][0]["apiVersion"] = json!("apps/v1");
    let elsewhere = |what: &str, namespace: &str| {
        let body = json!({ "metadata": metadata("TaskRun", "a-files") });
        ask(
            what,
            Method::POST,
            folder("", namespace, "configmaps"),
            Some(body),
            Some(PLACES),
        )
    };
    let delete =
        |resource: String, says| ask("a delete", Method::DELETE, resource, None, Some(says));
    let patch = |path: String, body: Value, says| {
        ask("a patch", Method::PATCH, path, Some(body), Some(says))
    };
    let job = |name: &str| folder("batch", here, &format!("jobs/{name}"));
    let of_pod = |name: &str, body: Value, says| patch(at(&format!("pods/{name}")), body, says);
    let another_image = with(container("agent"), &json!({ "image": "b:1" }));
    // The API server adds the first two to each Pod, and lets nobody change them.
    let of_server = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
    let tolerations = json!([
        of_server("node.kubernetes.io/not-ready"),
        of_server("node.kubernetes.io/unreachable"),
        { "operator": "Exists" },
    ]);
    let lease = |what: &str, name: &str, says| {
        let path = folder("coordination.k8s.io", here, "leases");
        ask(
            what,
            Method::POST,
            path,
            Some(json!({ "metadata": { "name": name } })),
            says,
        )
    };
    vec![
        map("no labels", json!({ "name": "a-files" }), LABELS),
        map(
            "labels of a Tenant",
            changed(
                "labels",
                json!({ names::KIND: "Tenant", names::UID: "u-1" }),
            ),
            LABELS,
        ),
        map("no owner", changed("ownerReferences", json!([])), OWNER),
        map("another owner", unowned, OWNER),
        map("an owner of another group", foreign, OWNER),
        map(
            "no UID",
            changed("labels", json!({ names::KIND: "TaskRun" })),
            OWNER,
        ),
        map("another name", changed("name", json!("aws-auth")), FILES),
        elsewhere("kube-system", "kube-system"),
        elsewhere("kube-public", "kube-public"),
        delete(at("configmaps/foreign"), LABELS),
        delete(job("foreign"), LABELS),
        patch(
            job("foreign"),
            json!({ "spec": { "suspend": false } }),
            LABELS,
        ),
        patch(
            job("ours"),
            json!({ "metadata": { "labels": { names::UID: "u-2" } } }),
            KEPT,
        ),
        patch(
            job("ours"),
            json!({ "metadata": { "ownerReferences": null } }),
            KEPT,
        ),
        of_pod("foreign", limit(), PODS),
        of_pod(
            "ours",
            json!({ "spec": { "containers": [another_image, container("sidecar")] } }),
            POD_FIELDS,
        ),
        of_pod(
            "ours",
            json!({ "spec": { "tolerations": tolerations } }),
            POD_FIELDS,
        ),
        of_pod(
            "ours",
            json!({ "metadata": { "labels": { names::NAME: "b" } } }),
            POD_MARKS,
        ),
        of_pod(
            "ours",
            json!({ "metadata": { "annotations": { "a": "b" } } }),
            POD_MARKS,
        ),
        of_pod(
            "ours",
            json!({ "metadata": { "finalizers": ["a.example/b"] } }),
            POD_MARKS,
        ),
        of_pod(
            "ours",
            json!({ "metadata": { "ownerReferences": null } }),
            POD_MARKS,
        ),
        lease(
            "another Lease",
            "orchestrator-tenants",
            Some("writes the Lease 'orchestrator-tasks' only"),
        ),
        patch(
            Kind::TaskRun.path(here, "/stored"),
            json!({ "spec": { "cancel": true } }),
            "changes no spec of a run",
        ),
        patch(
            Kind::DocsRun.path(here, "/stored"),
            json!({ "spec": { "cancel": true } }),
            "changes no spec of a run",
        ),
        patch(
            Kind::TaskRun.path(here, "/stored"),
            json!({ "metadata": { "labels": { "team": "red" } } }),
            "changes no label of a run except",
        ),
    ]
}

/// Returns a patch that sets the limit of a Pod.
fn limit() -> Value {
    json!({ "spec": { "activeDeadlineSeconds": 1 } })
}

/// Returns the usual requests of the operator.
fn usual(env: &Env) -> Vec<Ask> {
    let here = env.namespace.as_str();
    let mut docs = pod();
    docs["containers"] = json!([container("publish")]);
    docs["initContainers"] = json!([container("clone"), container("agent")]);
    docs["volumes"] = json!([
        { "name": "credentials", "secret": { "secretName": "git" } },
        { "name": "workspace", "ephemeral": { "volumeClaimTemplate": { "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": { "requests": { "storage": "1Gi" } },
        } } } },
    ]);
    let mut agents = pod();
    agents["volumes"] = json!([
        { "name": "volume-keys", "secret": { "secretName": "keys" } },
        { "name": "volume-rules", "configMap": { "name": "rules" } },
        { "name": "volume-data", "persistentVolumeClaim": { "claimName": "data" } },
    ]);
    let lent = |name: &str| {
        with(
            pod(),
            &json!({ "serviceAccountName": name, "automountServiceAccountToken": true }),
        )
    };
    let files = json!({ "metadata": metadata("TaskRun", "a-files"), "immutable": true });
    let ours = || folder("batch", here, "jobs/ours");
    let finalizer = json!({ "metadata": { "finalizers": ["taskruns.orchestrator.io/finalizer"] } });
    vec![
        job(env, "a TaskRun's Job", "TaskRun", pod(), None),
        job(env, "a DocsRun's Job", "DocsRun", docs, None),
        job(env, "volumes of an Agent", "TaskRun", agents, None),
        job(
            env,
            "a token that reaches little",
            "TaskRun",
            lent("default"),
            None,
        ),
        job(
            env,
            "a token that the installation permits",
            "TaskRun",
            lent("permitted"),
            None,
        ),
        job(
            env,
            "another account without its token",
            "TaskRun",
            with(pod(), &json!({ "serviceAccountName": "mighty" })),
            None,
        ),
        ask(
            "a run's files",
            Method::POST,
            folder("", here, "configmaps"),
            Some(files),
            None,
        ),
        ask(
            "a suspension",
            Method::PATCH,
            ours(),
            Some(json!({ "spec": { "suspend": false } })),
            None,
        ),
        ask(
            "the limit of a Job",
            Method::PATCH,
            ours(),
            Some(json!({ "spec": { "activeDeadlineSeconds": 1, "parallelism": 0 } })),
            None,
        ),
        ask(
            "the limit of a Pod",
            Method::PATCH,
            folder("", here, "pods/ours"),
            Some(limit()),
            None,
        ),
        ask("the end of a Job", Method::DELETE, ours(), None, None),
        ask(
            "the labels of a run",
            Method::PATCH,
            Kind::TaskRun.path(here, "/stored"),
            Some(json!({ "metadata": { "labels": {
                names::AGENT: "writer", names::SERVICE_NAME: "shop", names::TASK_ID: "7",
            } } })),
            None,
        ),
        ask(
            "a finalizer",
            Method::PATCH,
            Kind::TaskRun.path(here, "/stored"),
            Some(finalizer),
            None,
        ),
        ask(
            "its Lease",
            Method::POST,
            folder("coordination.k8s.io", here, "leases"),
            Some(json!({ "metadata": { "name": "orchestrator-tasks" } })),
            None,
        ),
    ]
}

/// Creates unmanaged objects, one of ours, and runs.
async fn things(env: &Env) -> Result<()> {
    install(&env.client).await?;
    for name in ["mighty", "permitted"] {
        let account = ServiceAccount {
            metadata: named(name),
            ..ServiceAccount::default()
        };
        make(&env.api(), &account).await?;
    }
    let foreign = ConfigMap {
        metadata: named("foreign"),
        ..ConfigMap::default()
    };
    make(&env.api(), &foreign).await?;
    let run = create(
        env,
        Kind::TaskRun,
        &Kind::TaskRun.object("a", &Kind::TaskRun.least()),
    )
    .await?;
    let mut ours = metadata("TaskRun", "ours");
    // The garbage collector deletes an object whose owner does not exist.
    ours["ownerReferences"][0]["uid"] = taken(run)?["metadata"]["uid"].clone();
    for (name, metadata) in [("foreign", json!({ "name": "foreign" })), ("ours", ours)] {
        let mut spec = pod();
        if name == "ours" {
            // A webhook of the cluster may add a container. The Job can still be suspended.
            spec["containers"] = json!([container("agent"), container("sidecar")]);
        }
        let of_pod = with(spec.clone(), &json!({ "serviceAccountName": "permitted" }));
        let one: Pod = serde_json::from_value(json!({ "metadata": metadata, "spec": of_pod }))?;
        make(&env.api(), &one).await?;
        let job: Job = serde_json::from_value(json!({
            "metadata": metadata, "spec": { "suspend": true, "template": { "spec": spec } },
        }))?;
        make(&env.api(), &job).await?;
    }
    for kind in [Kind::TaskRun, Kind::DocsRun] {
        taken(create(env, kind, &kind.object("stored", &kind.least())).await?)?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_stolen_token_creates_only_what_the_operator_builds() -> Result<()> {
    suite::test(Tier::Api, "stolen", async |env| {
        things(&env).await?;
        let user = format!("system:serviceaccount:{}:orchestrator-tasks", env.namespace);
        let rules: Vec<PolicyRule> = OPERATOR
            .permissions
            .iter()
            .map(|row| rule(row.group, row.resource, row.verbs))
            .collect();
        let roles =
            ["tasks", "mighty", "permitted"].map(|name| format!("{}-{name}", env.namespace));
        grant(&env, &roles[0], &user, rules).await?;
        for (role, account, resource, verb) in [
            (&roles[1], "mighty", "secrets", "get"),
            (&roles[2], "permitted", "pods", "create"),
        ] {
            let account = format!("system:serviceaccount:{}:{account}", env.namespace);
            grant(&env, role, &account, vec![rule("", resource, &[verb])]).await?;
        }
        let operator = client_of(&env, &user)?;
        let attacks = || jobs(&env).into_iter().chain(others(&env));
        // Without the policies, each attack succeeds. Otherwise it would prove nothing.
        let open: Vec<Ask> = attacks()
            .map(|one| Ask {
                refused: None,
                ..one
            })
            .collect();
        until_taken(&operator, &open[0]).await?;
        judge(&operator, &open).await?;

        let mut policies = policy::task_operator();
        policy::fill(
            &mut policies,
            PROTECTED_NAMESPACES,
            &["kube-public", "kube-system"],
        );
        let permitted = format!("{}/permitted", env.namespace);
        policy::fill(&mut policies, POWERFUL_SERVICE_ACCOUNTS, &[&permitted]);
        for policy in &mut policies {
            let spec = policy.spec.get_or_insert_default();
            spec.match_conditions = Some(vec![policy::by_user(&user)]);
        }
        let policies = bind(&env, policies, None).await?;
        let closed: Vec<Ask> = attacks().collect();
        for one in &closed {
            until_refused(&operator, one).await?;
        }
        let strange = warnings(&env, &policies).await?;
        ensure!(strange.is_empty(), "{}", strange.join("\n"));
        println!("{}", judge(&operator, &closed).await?);
        println!("{}", judge(&operator, &usual(&env)).await?);
        // The policies do not apply to other users.
        judge(&env.client, &open).await?;
        unbind(&env, &policies).await?;
        take_away(&env, &roles).await
    })
    .await
}
