//! The chart's policies against a stolen token of the operator, and against planted children.

use anyhow::{Context, Result};
use api::{
    names,
    policy::{self, LABEL_WRITERS, PROTECTED_NAMESPACES},
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    super::policies::{Attempt, Bound, accepted, client_of, fresh, rejected},
    fixture::{BUSYBOX, Bench, Expect, busy},
};

/// The account of the operator creates a privileged Job, takes what belongs to others, and deletes it.
pub(super) async fn stolen_token(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let namespace = env.namespace.as_str();
    bench.start("busy", &busy(600)).await?;
    let run = bench.running("busy").await?;
    let jobs = bench.jobs_of(&run).await?;
    let job = fresh(jobs.first().context("no Job")?, "tried")?;
    let job = without_controller_labels(job);

    let foreign = json!({ "metadata": { "name": "foreign" } });
    env.create::<ConfigMap>(foreign).await?;
    let foreign = json!({
        "metadata": { "name": "foreign" },
        "spec": { "suspend": true, "template": { "spec": pod() } },
    });
    env.create::<Job>(foreign).await?;
    let mighty = json!({ "metadata": { "name": "mighty" } });
    env.create::<ServiceAccount>(mighty).await?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": { "name": format!("{namespace}-mighty") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "mighty", "namespace": namespace }],
    }))?;
    let bindings: Api<ClusterRoleBinding> = Api::all(env.client.clone());
    bindings.create(&PostParams::default(), &binding).await?;

    let thief = client_of(env, &bench.operator.user)?;
    let attempts = thefts(namespace, &job);
    // Without the policies, each attempt succeeds: otherwise it would show nothing.
    accepted(&thief, &attempts).await?;
    let mut policies = policy::task_operator();
    policy::fill(&mut policies, PROTECTED_NAMESPACES, &["kube-system"]);
    for policy in &mut policies {
        let spec = policy.spec.get_or_insert_default();
        spec.match_conditions = Some(vec![policy::by_user(&bench.operator.user)]);
    }
    let bound = Bound::new(env, policies, None).await?;
    rejected(&thief, &attempts).await?;
    let copy = Attempt::create(
        "a Job as the operator builds it",
        &jobs_path(namespace),
        job,
        "",
    );
    accepted(&thief, &[copy]).await?;

    // The operator itself works under its policies: it suspends, resumes, ends and cleans up.
    bench.suspend("busy").await?;
    bench.rests("busy", "runs nothing").await?;
    let said = bench
        .plays("quick", "sleep 3", json!({}), Expect::default())
        .await?;
    bench.deletes(&run).await?;
    bound.release().await?;
    bindings
        .delete(&format!("{namespace}-mighty"), &DeleteParams::default())
        .await?;
    Ok(format!(
        "{} attempts rejected; a run: {said}",
        attempts.len()
    ))
}

fn pod() -> Value {
    json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "agent", "image": BUSYBOX, "command": ["sleep", "600"] }],
    })
}

fn jobs_path(namespace: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/jobs")
}

/// The API server sets these labels and the selector of a Job by itself.
fn without_controller_labels(mut job: Value) -> Value {
    if let Some(spec) = job["spec"].as_object_mut() {
        spec.remove("selector");
    }
    for at in ["/metadata/labels", "/spec/template/metadata/labels"] {
        if let Some(labels) = job.pointer_mut(at).and_then(Value::as_object_mut) {
            labels.retain(|key, _| !key.contains("controller-uid") && !key.contains("job-name"));
        }
    }
    job
}

/// What the token of the operator is good for without the policies. `job` is one of its own.
fn thefts(namespace: &str, job: &Value) -> Vec<Attempt> {
    let (jobs, maps) = (
        jobs_path(namespace),
        format!("/api/v1/namespaces/{namespace}/configmaps"),
    );
    let changed = |field: &str, value: Value| {
        let mut job = job.clone();
        job["spec"]["template"]["spec"][field] = value;
        job
    };
    let secured = |value: Value| {
        let mut job = job.clone();
        job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = value;
        job
    };
    let mut plain = pod();
    plain["hostPID"] = json!(true);
    plain["containers"][0]["securityContext"] = json!({ "privileged": true, "runAsUser": 0 });
    let bare = json!({ "metadata": { "name": "x" }, "spec": { "template": { "spec": plain } } });
    let host = json!([{ "name": "host", "hostPath": { "path": "/" } }]);
    let mut with_host = changed("volumes", host);
    with_host["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "host", "mountPath": "/host" }]);
    let mut with_token = changed("serviceAccountName", json!("mighty"));
    with_token["spec"]["template"]["spec"]["automountServiceAccountToken"] = json!(true);
    let mut elsewhere = job.clone();
    elsewhere["metadata"]["name"] = json!("x");
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let run = format!("/apis/orchestrator.io/v1/namespaces/{namespace}/taskruns/busy");
    vec![
        Attempt::create(
            "a privileged Job in kube-system",
            &jobs_path("kube-system"),
            bare,
            "rejected: CREATE of jobs",
        ),
        Attempt::create(
            "a run's Job in kube-system",
            &jobs_path("kube-system"),
            elsewhere,
            "creates nothing in protected namespaces",
        ),
        Attempt::create(
            "a privileged run",
            &jobs,
            secured(json!({ "privileged": true })),
            "level 'restricted' only",
        ),
        Attempt::create(
            "a run as root",
            &jobs,
            secured(json!({ "runAsNonRoot": false, "runAsUser": 0 })),
            "level 'restricted' only",
        ),
        Attempt::create(
            "the node's network",
            &jobs,
            changed("hostNetwork", json!(true)),
            "without access to their node",
        ),
        Attempt::create(
            "the node's processes",
            &jobs,
            changed("hostPID", json!(true)),
            "without access to their node",
        ),
        Attempt::create(
            "the node's files",
            &jobs,
            with_host,
            "with the volumes of a run only",
        ),
        Attempt::create(
            "the token of an administrator",
            &jobs,
            with_token,
            "mounts no token of a ServiceAccount",
        ),
        Attempt::create(
            "a ConfigMap of nobody",
            &maps,
            json!({ "metadata": { "name": "x" } }),
            "of a run only",
        ),
        Attempt::delete(
            "a foreign ConfigMap",
            &format!("{maps}/foreign"),
            "of a run only",
        ),
        Attempt::delete("a foreign Job", &format!("{jobs}/foreign"), "of a run only"),
        Attempt::patch(
            "a foreign Job resumed",
            &format!("{jobs}/foreign"),
            json!({ "spec": { "suspend": false } }),
            "of a run only",
        ),
        Attempt::create(
            "the Lease of the other operator",
            &lease,
            json!({ "metadata": { "name": "orchestrator-tenants" } }),
            "writes the Lease 'orchestrator-tasks' only",
        ),
        Attempt::patch(
            "the spec of a run",
            &run,
            json!({ "spec": { "cancel": true } }),
            "changes no spec of a run",
        ),
    ]
}

/// A user of a namespace plants children of a run: its files, its Job, its Pod.
pub(super) async fn planted_children(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let mallory = format!("mallory-{}", env.namespace);
    let role = json!({
        "metadata": { "name": "mallory" },
        "rules": [
            { "apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["create", "get", "patch"] },
            { "apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "patch"] },
        ],
    });
    env.create::<Role>(role).await?;
    let binding = json!({
        "metadata": { "name": "mallory" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mallory" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": mallory }],
    });
    env.create::<RoleBinding>(binding).await?;
    bench.agent("held", "sleep 3", json!({})).await?;
    bench.submit("held", json!({ "suspend": true })).await?;
    let held = bench.says("held", "Suspended").await?;
    let uid = held.uid().unwrap_or_default();
    let client = client_of(env, &mallory)?;
    let attempts = plants(&env.namespace, &uid);
    // Without the policies, each attempt succeeds: otherwise it would show nothing.
    accepted(&client, &attempts).await?;
    let mut policies = policy::tasks();
    policies.retain(|policy| policy.name_any().ends_with("labels"));
    policy::fill(&mut policies, LABEL_WRITERS, &[&bench.operator.user]);
    let bound = Bound::new(env, policies, Some(&env.namespace)).await?;
    rejected(&client, &attempts).await?;
    accepted(&client, &ordinary(&env.namespace)).await?;

    // The Job controller, the scheduler, the kubelet and the garbage collector work as before.
    bench.resume("held").await?;
    let expect = Expect::after(&["Suspended", "Running"]);
    let ended = bench.ended("held", &expect).await?;
    let jobs = bench.jobs_of(&ended).await?;
    let job = jobs.first().context("no Job")?.name_any();
    let path = format!("{}/{job}", jobs_path(&env.namespace));
    let note = json!({ "metadata": { "annotations": { "note": "seen" } } });
    accepted(
        &client,
        &[Attempt::patch("a note on a run's Job", &path, note, "")],
    )
    .await?;
    let moved = json!({ "metadata": { "labels": { names::UID: "another" } } });
    rejected(
        &client,
        &[Attempt::patch("a Job for another run", &path, moved, SAYS)],
    )
    .await?;
    bench.deletes(&ended).await?;
    bound.release().await?;
    Ok(format!(
        "{} attempts rejected; the run succeeded",
        attempts.len() + 1
    ))
}

const SAYS: &str = "only operators set the labels";

fn plants(namespace: &str, uid: &str) -> Vec<Attempt> {
    let labels = json!({ names::KIND: "TaskRun", names::UID: uid });
    let owner = json!([{
        "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "name": "held", "uid": uid, "controller": true,
    }]);
    let core = |resource: &str| format!("/api/v1/namespaces/{namespace}/{resource}");
    let labelled = json!({ "name": "held-7-v1-files", "labels": labels });
    let owned = json!({ "name": "held-7-v1-files", "ownerReferences": owner });
    let map =
        |metadata: &Value| json!({ "metadata": metadata, "data": { "task.md": "do as I say" } });
    let job = |metadata: Value, template: Value| json!({ "metadata": metadata, "spec": { "template": { "metadata": template, "spec": pod() } } });
    let create =
        |what: &'static str, path: &str, body: Value| Attempt::create(what, path, body, SAYS);
    vec![
        create("files by labels", &core("configmaps"), map(&labelled)),
        create("files by an owner", &core("configmaps"), map(&owned)),
        create(
            "a Pod by labels",
            &core("pods"),
            json!({ "metadata": labelled, "spec": pod() }),
        ),
        create(
            "a Pod by an owner",
            &core("pods"),
            json!({ "metadata": owned, "spec": pod() }),
        ),
        create(
            "a Job by labels",
            &jobs_path(namespace),
            job(labelled.clone(), json!({})),
        ),
        create(
            "a Job by an owner",
            &jobs_path(namespace),
            job(owned.clone(), json!({})),
        ),
        create(
            "a Job whose Pods have labels",
            &jobs_path(namespace),
            job(json!({ "name": "x" }), json!({ "labels": labels })),
        ),
    ]
}

fn ordinary(namespace: &str) -> Vec<Attempt> {
    let core = |resource: &str| format!("/api/v1/namespaces/{namespace}/{resource}");
    let metadata = json!({ "name": "ordinary", "labels": { "app": "a" } });
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u" }]);
    let owned = json!({ "name": "ordinary", "ownerReferences": owner });
    vec![
        Attempt::create(
            "an ordinary ConfigMap",
            &core("configmaps"),
            json!({ "metadata": metadata }),
            "",
        ),
        Attempt::create(
            "an ordinary Pod",
            &core("pods"),
            json!({ "metadata": metadata, "spec": pod() }),
            "",
        ),
        Attempt::create(
            "a Pod of another owner",
            &core("pods"),
            json!({ "metadata": owned, "spec": pod() }),
            "",
        ),
        Attempt::create(
            "an ordinary Job",
            &jobs_path(namespace),
            json!({ "metadata": metadata, "spec": { "template": { "spec": pod() } } }),
            "",
        ),
    ]
}
