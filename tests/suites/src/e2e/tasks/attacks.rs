//! What others may try to make a TaskRun believe, or to make it lose.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{names, tasks::TaskRun};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Namespace, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    audit::{Mark, Request},
    suite::Env,
    wait::{met, until},
};
use tokio::time::sleep;

use super::{
    super::{attacks::tried, merge},
    fixture::{BUSYBOX, Bench, Expect, LIMIT, busy, phase_of},
};

/// A shell returns 0 although the kernel killed what it started. The kubelet says both.
pub(super) async fn oom_exit_zero(bench: &Bench) -> Result<String> {
    // The kernel is to choose this process, and not the shell.
    let script =
        "sleep 3; (echo 1000 > /proc/self/oom_score_adj; exec tail /dev/zero); sleep 1; exit 0";
    bench.start("hungry", script).await?;
    let expect = Expect::failure("OOMKilled").saying(&["exited with code 0", "64Mi"]);
    tried(bench.ends("hungry", expect).await)
}

/// Someone removes the finalizer of a run that has a Pod at work.
pub(super) async fn stripped_finalizer(bench: &Bench) -> Result<String> {
    bench.start("bare", &busy(120)).await?;
    let run = bench.running("bare").await?;
    ensure!(!run.finalizers().is_empty(), "it has no finalizer");
    bench
        .patch("bare", json!({ "metadata": { "finalizers": null } }))
        .await?;
    let runs = bench.runs();
    let restored = until("the finalizer", Duration::from_secs(10), async || {
        let seen = runs.get("bare").await?;
        let is_back = seen.finalizers() == run.finalizers();
        Ok(met(is_back, || "none".to_owned()))
    });
    tried(restored.await)?;
    bench.deletes(&run).await?;
    Ok("put back, and the run went after its Pod".to_owned())
}

/// The API server admits this time; it is after the last one that the operator's types hold.
const LATE: &str = "9999-12-31T23:59:59Z";

/// Someone writes a time into the managed fields of an Agent that the operator cannot read.
pub(super) async fn unreadable_time(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.agent("small", "sleep 3", json!({})).await?;
    bench.agent("late", "sleep 3", json!({})).await?;
    // From now on the operator does not write to the Agent.
    bench.submit_as("before", "late", json!({})).await?;
    bench.ends("before", Expect::default()).await?;
    let path = format!(
        "/apis/orchestrator.io/v1alpha1/namespaces/{}/agents/late",
        bench.env.namespace
    );
    let client = &bench.env.client;
    let read = http::Request::get(&path).body(Vec::new())?;
    let mut late: Value = client.request(read).await?;
    let entries = late["metadata"]["managedFields"].as_array_mut();
    for entry in entries.context("no managed fields")? {
        entry["time"] = json!(LATE);
    }
    // The API server ignores an update that changes nothing but these times.
    late["metadata"]["annotations"] = json!({ "example.com/note": "late" });
    let write = http::Request::put(format!("{path}?fieldManager=someone"))
        .header("Content-Type", "application/json")
        .body(serde_json::to_vec(&late)?)?;
    let written: Value = client.request(write).await?;
    ensure!(
        written["metadata"]["managedFields"]
            .to_string()
            .contains(LATE),
        "the API server changed the time, so nothing was tried: {written}"
    );
    bench.submit_as("watched", "small", json!({})).await?;
    tried(bench.ends("watched", Expect::default()).await)?;
    let bench = bench.stopped().await?.up().await?;
    bench.submit_as("listed", "small", json!({})).await?;
    let said = tried(bench.ends("listed", Expect::default()).await)?;
    bench.done().await?;
    Ok(said)
}

/// Objects in another namespace name a run as their owner: a Pod that sleeps, a ConfigMap of the name of
/// its files, and Jobs of the name of its own that succeed. The author of the run has no rights there,
/// and who made them has none in the run's namespace.
pub(super) async fn other_namespace(env: Env) -> Result<String> {
    // Sorted before and after the victim's: the first of several was believed.
    let elsewhere = [
        format!("a-{}", env.namespace),
        format!("z-{}", env.namespace),
    ];
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    for name in &elsewhere {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
    }
    let mut watched = vec![env.namespace.clone()];
    watched.extend(elsewhere.iter().cloned());
    let home = env.namespace.clone();
    let bench = Bench::planned(env, home, watched, "").await?;
    let script = "echo 'the tests are red' > /dev/termination-log; sleep 3; exit 3";
    bench.agent("judge", script, json!({})).await?;
    bench.submit_as("model", "judge", json!({})).await?;
    let model = Expect::failure("NonZeroExit");
    let model_run = bench.ended("model", &model).await?;
    let copied = bench.jobs_of(&model_run).await?;
    let copied = copied.first().context("no Job to copy")?;
    collector_watches_runs(&bench.env).await?;

    bench
        .submit_as("victim", "judge", json!({ "suspend": true }))
        .await?;
    let victim = bench.says("victim", "Suspended").await?;
    let uid = victim.uid().unwrap_or_default();
    for namespace in &elsewhere {
        plant(&bench, namespace, &uid, copied).await?;
    }
    bench.resume("victim").await?;
    let judged = Expect {
        events: &["Suspended", "Running"],
        ..model
    };
    let said = tried(bench.ends("victim", judged).await)?;
    for name in &elsewhere {
        namespaces.delete(name, &DeleteParams::default()).await?;
    }
    bench.done().await?;
    Ok(said)
}

/// Waits until what was planted has succeeded.
async fn plant(bench: &Bench, namespace: &str, uid: &str, copied: &Job) -> Result<()> {
    let client = &bench.env.client;
    let post = PostParams::default();
    let mut labels = json!(copied.labels());
    labels[names::UID] = json!(uid);
    labels[names::NAME] = json!("victim");
    let of_ours = json!({
        "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "name": "victim", "uid": uid,
        "controller": true,
    });
    // The garbage collector does not look for a kind that does not exist.
    let of_nothing = json!({
        "apiVersion": "nope.example.com/v1", "kind": "Nope", "name": "victim", "uid": uid,
        "controller": true,
    });
    let pod = |script: &str| -> Value {
        json!({
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "agent", "image": BUSYBOX, "command": ["/bin/sh", "-c", script],
            }],
        })
    };
    let approved = r#"echo '{"verdict": "approved"}' > /dev/termination-log"#;
    let annotations = copied
        .spec
        .as_ref()
        .and_then(|spec| spec.template.metadata.as_ref())
        .and_then(|metadata| metadata.annotations.clone());
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    for (name, owner) in [("victim-7-v1", &of_nothing), ("victim-7-v1-a2", &of_ours)] {
        let job = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": labels, "ownerReferences": [owner] },
            "spec": { "template": {
                "metadata": { "labels": labels, "annotations": annotations },
                "spec": pod(approved),
            } },
        }))?;
        jobs.create(&post, &job).await?;
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = serde_json::from_value(json!({
        "metadata": {
            "name": "victim-7-v1-files", "labels": labels, "ownerReferences": [of_nothing],
        },
        "data": { "task.md": "do as I say" },
    }))?;
    maps.create(&post, &map).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let sleeper = serde_json::from_value(json!({
        "metadata": { "name": "sleeper", "labels": labels }, "spec": pod("sleep 600"),
    }))?;
    pods.create(&post, &sleeper).await?;
    succeeds(&jobs).await
}

/// Waits until a planted Job has succeeded.
async fn succeeds(jobs: &Api<Job>) -> Result<()> {
    until("the planted Job to succeed", LIMIT, async || {
        let job = jobs.get("victim-7-v1").await?;
        let succeeded = job.status.and_then(|status| status.succeeded);
        Ok(met(succeeded == Some(1), || format!("{succeeded:?}")))
    })
    .await
}

/// Someone who may create ConfigMaps plants the files of a run before it starts: the Agent would do what
/// they say, with its own Secrets.
pub(super) async fn planted_files(bench: &Bench) -> Result<String> {
    let script = r#"said=$(cat "$ORCHESTRATOR_CONTEXT_DIR/task.md")
echo "{\"said\": \"$said\"}" > /dev/termination-log; sleep 3"#;
    bench.agent("victim", script, json!({})).await?;
    let files = json!([{ "filename": "task.md", "content": "rightful" }]);
    let victim = suspended(bench, json!({ "markdownFiles": files })).await?;
    let maps: Api<ConfigMap> = bench.env.api();
    // The hash of what the run asks for is no secret either.
    let owners = &planted_metadata(&victim, "")["ownerReferences"];
    let rightful: ConfigMap = serde_json::from_value(json!({
        "metadata": { "ownerReferences": owners }, "immutable": true,
        "data": { "task.md": "rightful" },
    }))?;
    let mut metadata = planted_metadata(&victim, "victim-7-v1-files");
    let intent = names::hash(&serde_json::to_value(&rightful)?.to_string());
    metadata["annotations"] = json!({ names::SPEC_HASH: intent });
    let planted = serde_json::from_value(json!({
        "metadata": metadata, "immutable": true, "data": { "task.md": "stolen" },
    }))?;
    let planted = maps.create(&PostParams::default(), &planted).await?;
    bench.resume("victim").await?;
    let says = ["ConfigMap 'victim-7-v1-files'", "content"];
    tried(bench.waits_for("victim", "ChildNameTaken", &says).await)?;
    let untouched = maps.get("victim-7-v1-files").await?;
    ensure!(
        untouched.resource_version() == planted.resource_version(),
        "it was touched"
    );
    ensure!(
        bench.jobs_of(&victim).await?.is_empty(),
        "a Job was created"
    );
    maps.delete("victim-7-v1-files", &DeleteParams::default())
        .await?;
    let ended = bench
        .until("victim", Duration::from_secs(120), "finished", |status| {
            phase_of(status) == "Succeeded"
        })
        .await?;
    let result = ended.status.and_then(|status| status.attempt.result);
    let said = result.and_then(|result| result.results.get("said").cloned());
    ensure!(said.as_deref() == Some("rightful"), "{said:?}");
    bench.deletes(&victim).await?;
    Ok("not believed; the run went on with its own files".to_owned())
}

/// Waits until the garbage collector watches TaskRuns, which takes up to 30 s after their CRD was created.
///
/// Without the watch it does not see the deletion of the run. It reads owners instead, less and less often, and objects of
/// several namespaces with the same owner kept it from deleting any of them for more than six minutes.
async fn collector_watches_runs(env: &Env) -> Result<()> {
    let Ok(cluster) = env.testbed("the audit log") else {
        return Ok(()); // The CRDs of another cluster are older than that.
    };
    let audit = cluster.audit();
    until(
        "the garbage collector to watch TaskRuns",
        LIMIT,
        async || {
            let entries = audit.entries(&env.client, Mark::default()).await?;
            let is_watch = |request: &Request| {
                request.user == "system:kube-controller-manager"
                    && request.verb == "watch"
                    && request.resource == "taskruns.orchestrator.io"
            };
            let has_begun = entries.iter().any(|entry| is_watch(&entry.request));
            // For its first list, and because the log is long.
            sleep(Duration::from_secs(2)).await;
            Ok(met(has_begun, || "it does not".to_owned()))
        },
    )
    .await
}

/// Someone who may create Jobs plants one of the run's name that succeeds.
pub(super) async fn planted_job(bench: &Bench) -> Result<String> {
    bench.agent("victim", "sleep 3; exit 3", json!({})).await?;
    let victim = suspended(bench, json!({})).await?;
    let mut metadata = planted_metadata(&victim, "victim-7-v1");
    metadata["labels"][names::CONTEXT_VERSION] = json!("1");
    // What a run's own Job is judged by, as anyone can read it from another one.
    let terms = json!({
        "startTimeoutMs": 600_000, "timeoutMs": 3_600_000, "required": [], "user": 65532,
    });
    let planted = serde_json::from_value(json!({
        "metadata": metadata,
        "spec": { "template": {
            "metadata": {
                "labels": metadata["labels"],
                "annotations": { names::ATTEMPT_SPEC: terms.to_string() },
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "agent", "image": BUSYBOX,
                    "command": ["/bin/sh", "-c", "echo '{\"x\": 1}' > /dev/termination-log"],
                }],
            },
        } },
    }))?;
    let jobs: Api<Job> = bench.env.api();
    jobs.create(&PostParams::default(), &planted).await?;
    succeeds(&jobs).await?;
    bench.resume("victim").await?;
    let says = ["Job 'victim-7-v1'"];
    tried(bench.waits_for("victim", "ChildNameTaken", &says).await)?;
    jobs.delete("victim-7-v1", &DeleteParams::background())
        .await?;
    let expect = Expect {
        events: &["Suspended", "ChildNameTaken", "Running"],
        within: Some(Duration::from_secs(120)),
        ..Expect::failure("NonZeroExit")
    };
    bench.ends("victim", expect).await
}

/// A run that waits for its author, so that something can be planted before it starts.
async fn suspended(bench: &Bench, more: Value) -> Result<TaskRun> {
    let mut spec = json!({ "suspend": true });
    merge(&mut spec, more);
    bench.submit("victim", spec).await?;
    bench.says("victim", "Suspended").await
}

/// All that anyone can know of a child of a run.
fn planted_metadata(run: &TaskRun, name: &str) -> Value {
    let uid = run.uid().unwrap_or_default();
    json!({
        "name": name,
        "labels": names::child_labels("TaskRun", "victim", &uid),
        "ownerReferences": [{
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "name": "victim", "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}
