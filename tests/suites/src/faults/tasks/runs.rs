//! Scenarios of TaskRuns and Agents.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use api::tasks::{Agent, TaskRun};
use futures::FutureExt;
use k8s_openapi::{
    api::{
        core::v1::{Event, Pod, ResourceQuota, ServiceAccount},
        node::v1::RuntimeClass,
        scheduling::v1::PriorityClass,
        storage::v1::StorageClass,
    },
    jiff,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{
    faults::{
        point::Route,
        proxy::Traced,
        scenario_run::{Scenario, Stage},
    },
    suite,
    wait::met,
};

use super::{
    super::actions::{self, Actions, find, merged},
    agent, at_gate, at_gate_within, gone, stands, tells, waits,
};

const RUNS: &str = "taskruns";

/// Time after which a second agent should have started. It is long enough for the backoff of each fault.
const SOON: Duration = Duration::from_secs(60);

pub(super) fn scenarios() -> Vec<Arc<dyn Scenario>> {
    actions::all([
        Actions::new("success", |stage| success(stage).boxed()),
        Actions::new("retry", |stage| retry(stage).boxed()),
        Actions::new("supersede", |stage| supersede(stage).boxed()),
        Actions::new("suspend", |stage| suspend(stage).boxed()),
        Actions::new("cancel", |stage| cancel(stage).boxed()),
        Actions::new("delete", |stage| delete(stage).boxed()),
        Actions {
            stirs: &[
                "events",
                "priorityclasses",
                "runtimeclasses",
                "storageclasses",
            ],
            ..Actions::new("agent", |stage| change_of_agent(stage).boxed())
        },
        Actions::new("restart", |stage| restart(stage).boxed()),
        Actions {
            replicas: 2,
            ..Actions::new("replicas", |stage| failover(stage).boxed())
        },
    ])
}

/// Those that take too long to be hit at each point: mutants are seen by them.
pub(super) fn slow() -> Vec<Arc<dyn Scenario>> {
    actions::all([
        Actions::new("backoff", |stage| backoff(stage).boxed()),
        Actions::new("old-readiness", |stage| old_readiness(stage).boxed()),
        Actions::new("revise", |stage| revise(stage).boxed()),
    ])
}

/// The run `work` of the Agent `work`; `more` is merged into its spec.
async fn submit(stage: &Stage, more: Value) -> Result<()> {
    let spec = json!({
        "taskId": 7, "serviceName": "work", "agentName": "work",
        "markdownFiles": [{ "filename": "task.md", "content": "the task\n" }],
    });
    let run = json!({
        "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
        "metadata": { "name": "work" }, "spec": merged(spec, more),
    });
    suite::create::<TaskRun>(&stage.api(), run).await?;
    Ok(())
}

async fn patch(stage: &Stage, patch: Value) -> Result<()> {
    let runs: Api<TaskRun> = stage.api();
    let params = PatchParams::default();
    runs.patch("work", &params, &Patch::Merge(patch)).await?;
    Ok(())
}

/// A script that does its work, tells of it, and returns a result.
fn works(stage: &Stage) -> String {
    let done = tells(stage, "done");
    format!("{done}printf '{{\"answer\":\"42\"}}' > $ORCHESTRATOR_RESULT_FILE\n")
}

/// A run whose agent waits at its gate.
async fn waiting(stage: &Stage) -> Result<()> {
    agent(stage, &(waits(stage, "go") + &works(stage)), json!({})).await?;
    submit(stage, json!({})).await?;
    at_gate(stage, RUNS, "go").await
}

/// Opens the gate; the run succeeds.
async fn succeeds(stage: &Stage) -> Result<()> {
    stage.side_effects.open(&stage.namespace, "go");
    stands(stage, RUNS, "Succeeded", "Succeeded").await
}

/// Starts, succeeds, and its children are cleaned up soon.
async fn success(stage: &Stage) -> Result<()> {
    agent(
        stage,
        &works(stage),
        json!({ "results": [{ "name": "answer", "required": true }] }),
    )
    .await?;
    submit(stage, json!({ "childTTL": { "succeeded": "1s" } })).await?;
    stands(stage, RUNS, "Succeeded", "Succeeded").await
}

/// Fails once, and succeeds by its second attempt.
async fn retry(stage: &Stage) -> Result<()> {
    let script = format!("[ $ORCHESTRATOR_ATTEMPT != 1 ] || exit 3\n{}", works(stage));
    agent(stage, &script, json!({})).await?;
    let retry = json!({ "maxAttempts": 3, "backoff": { "initial": "8s", "max": "8s" } });
    submit(stage, json!({ "retry": retry })).await?;
    stands(stage, RUNS, "Succeeded", "Succeeded").await?;
    let mut pods = stage.api::<Pod>().list(&ListParams::default()).await?.items;
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone().map(|time| time.0));
    let [first, second] = pods.as_slice() else {
        bail!("{} Pods, wanted 2", pods.len());
    };
    let status = first.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let state = containers.and_then(|all| all.first()?.state.as_ref()?.terminated.as_ref());
    let ended = state.and_then(|end| end.finished_at.as_ref());
    let ended = ended.context("the first Pod has not ended")?.0;
    let begun = second.metadata.creation_timestamp.as_ref();
    let begun = begun.context("a Pod without a time")?.0;
    let waited = begun.duration_since(ended).as_secs();
    // Both times are whole seconds.
    ensure!(
        waited >= 7,
        "the second attempt began {waited} s after the first, wanted 8"
    );
    Ok(())
}

/// A newer version of the context takes the place of one that runs.
async fn supersede(stage: &Stage) -> Result<()> {
    let script = waits(stage, "v$ORCHESTRATOR_CONTEXT_VERSION") + &works(stage);
    agent(stage, &script, json!({})).await?;
    submit(stage, json!({})).await?;
    at_gate(stage, RUNS, "v1").await?;
    let files = json!([{ "filename": "task.md", "content": "another task\n" }]);
    patch(
        stage,
        json!({ "spec": { "contextVersion": 2, "markdownFiles": files } }),
    )
    .await?;
    let soon = at_gate_within(stage, RUNS, "v2", SOON).await;
    // Also if the second agent did not start: then the first one ends, and must not count as the second.
    stage.side_effects.open(&stage.namespace, "v1");
    if soon.is_err() {
        at_gate(stage, RUNS, "v2").await?;
    }
    stage.side_effects.open(&stage.namespace, "v2");
    stands(stage, RUNS, "Succeeded", "Succeeded").await
}

/// A newer version of the context comes after the success of the version before it, whose Job still exists.
async fn revise(stage: &Stage) -> Result<()> {
    let script = waits(stage, "v$ORCHESTRATOR_CONTEXT_VERSION") + &works(stage);
    agent(stage, &script, json!({})).await?;
    submit(stage, json!({})).await?;
    stage.side_effects.open(&stage.namespace, "v1");
    stands(stage, RUNS, "Succeeded", "Succeeded").await?;
    let files = json!([{ "filename": "task.md", "content": "another task\n" }]);
    patch(
        stage,
        json!({ "spec": { "contextVersion": 2, "markdownFiles": files } }),
    )
    .await?;
    at_gate_within(stage, RUNS, "v2", SOON).await?;
    stage.side_effects.open(&stage.namespace, "v2");
    stands(stage, RUNS, "Succeeded", "Succeeded").await
}

/// Held while its agent runs, and let go.
async fn suspend(stage: &Stage) -> Result<()> {
    waiting(stage).await?;
    patch(stage, json!({ "spec": { "suspend": true } })).await?;
    stage
        .until("suspended, without a Pod", super::LIMIT, |seen| {
            let (phase, reason) = super::standing(seen, RUNS);
            let pods = seen.iter().filter(|one| one.resource == "pods").count();
            met(reason == "Suspended" && pods == 0, || {
                format!("{phase} {reason}, {pods} Pods")
            })
        })
        .await?;
    stage.side_effects.open(&stage.namespace, "go");
    patch(stage, json!({ "spec": { "suspend": false } })).await?;
    stands(stage, RUNS, "Succeeded", "Succeeded").await
}

/// Cancelled while its agent runs.
async fn cancel(stage: &Stage) -> Result<()> {
    waiting(stage).await?;
    patch(stage, json!({ "spec": { "cancel": true } })).await?;
    stands(stage, RUNS, "Failed", "Cancelled").await?;
    // The agent was stopped, and its log stays.
    let pods: Api<Pod> = stage.api();
    let found = pods.list(&ListParams::default()).await?.items;
    let [pod] = found.as_slice() else {
        bail!("{} Pods, wanted the one that was stopped", found.len());
    };
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    ensure!(phase == Some("Failed"), "the Pod is {phase:?}");
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    pods.logs(name, &LogParams::default())
        .await
        .context("the log of the agent that was cancelled")?;
    Ok(())
}

/// Deleted while its agent runs.
async fn delete(stage: &Stage) -> Result<()> {
    waiting(stage).await?;
    let runs: Api<TaskRun> = stage.api();
    runs.delete("work", &DeleteParams::default()).await?;
    gone(stage, RUNS).await
}

/// A run waits for its Agent, the Agent for its ServiceAccount; then the Agent changes, which
/// concerns no run that has begun.
async fn change_of_agent(stage: &Stage) -> Result<()> {
    submit(stage, json!({})).await?;
    stands(stage, RUNS, "Pending", "AgentNotFound").await?;
    let script = waits(stage, "go") + &works(stage);
    agent(stage, &script, json!({ "serviceAccountName": "worker" })).await?;
    ready(stage, "False").await?;
    let worker = json!({ "metadata": { "name": "worker" } });
    suite::create::<ServiceAccount>(&stage.api(), worker).await?;
    ready(stage, "True").await?;
    at_gate(stage, RUNS, "go").await?;
    for (account, is_ready) in [("none", "False"), ("worker", "True")] {
        names_account(stage, account).await?;
        ready(stage, is_ready).await?;
    }
    stir(stage).await?;
    succeeds(stage).await
}

async fn names_account(stage: &Stage, name: &str) -> Result<()> {
    let agents: Api<Agent> = stage.api();
    let other = json!({ "spec": { "serviceAccountName": name } });
    agents
        .patch("work", &PatchParams::default(), &Patch::Merge(other))
        .await?;
    Ok(())
}

/// A run comes just after its Agent was changed to name something that is missing: what was said of the
/// Agent before that is no reason to start.
async fn old_readiness(stage: &Stage) -> Result<()> {
    agent(stage, &works(stage), json!({})).await?;
    ready(stage, "True").await?;
    names_account(stage, "worker").await?;
    submit(stage, json!({})).await?;
    stands(stage, RUNS, "Pending", "AgentNotReady").await?;
    let worker = json!({ "metadata": { "name": "worker" } });
    suite::create::<ServiceAccount>(&stage.api(), worker).await?;
    stands(stage, RUNS, "Succeeded", "Succeeded").await
}

/// Changes everything else that is watched, of which nothing concerns the run.
async fn stir(stage: &Stage) -> Result<()> {
    let name = format!("stir-{}", stage.namespace);
    let meta = json!({ "name": name });
    let priorities: Api<PriorityClass> = Api::all(stage.client.clone());
    let runtimes: Api<RuntimeClass> = Api::all(stage.client.clone());
    let storages: Api<StorageClass> = Api::all(stage.client.clone());
    let priority = json!({ "metadata": meta, "value": 1 });
    suite::create(&priorities, priority).await?;
    let runtime = json!({ "metadata": meta, "handler": "none" });
    suite::create(&runtimes, runtime).await?;
    let storage = json!({ "metadata": meta, "provisioner": "none.example" });
    suite::create(&storages, storage).await?;
    for kind in ["Job", "Pod"] {
        let event = json!({
            "metadata": { "name": format!("stir-{}", kind.to_lowercase()) },
            "involvedObject": { "kind": kind, "name": "none", "namespace": stage.namespace, "uid": "none" },
            "type": "Warning", "reason": "Stirred", "message": "of nobody",
        });
        suite::create::<Event>(&stage.api(), event).await?;
    }
    let gone = DeleteParams::default();
    priorities.delete(&name, &gone).await?;
    runtimes.delete(&name, &gone).await?;
    storages.delete(&name, &gone).await?;
    Ok(())
}

/// Waits until the Agent says so of its present spec.
async fn ready(stage: &Stage, wanted: &str) -> Result<()> {
    stage
        .until(&format!("the Agent Ready={wanted}"), super::LIMIT, |seen| {
            let agent = find(seen, "agents", "work").ok_or("no Agent")?;
            let object = &agent.object;
            let status = &object["status"];
            let ready = agent.condition("Ready");
            let is_current = status["observedGeneration"] == object["metadata"]["generation"];
            match ready {
                Some(ready) if is_current && ready["status"] == wanted => Ok(()),
                _ => Err(status.to_string()),
            }
        })
        .await
}

/// The operator is asked to stop while an agent runs, and another takes its place.
async fn restart(stage: &Stage) -> Result<()> {
    waiting(stage).await?;
    // It may be between two processes just now, by a fault.
    while stage.operator_set.signal(0, Signal::SIGTERM).is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    succeeds(stage).await
}

/// Two replicas; the one that leads is killed while an agent runs.
async fn failover(stage: &Stage) -> Result<()> {
    waiting(stage).await?;
    loop {
        if let Some(leader) = stage.operator_set.leader().await
            && stage.operator_set.signal(leader, Signal::SIGKILL).is_ok()
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    succeeds(stage).await
}

/// Nothing may be created until a quota goes. How long to wait for that is stored; then another's
/// clock is an hour ahead, and the operator starts anew.
async fn backoff(stage: &Stage) -> Result<()> {
    let hard = json!({ "hard": { "count/jobs.batch": "0" } });
    let quota = json!({ "metadata": { "name": "none" }, "spec": hard });
    let quotas: Api<ResourceQuota> = stage.api();
    suite::create(&quotas, quota).await?;
    agent(stage, &works(stage), json!({})).await?;
    submit(stage, json!({})).await?;
    stage
        .until("a stored retry", super::LIMIT, |seen| {
            let run = find(seen, RUNS, "work").ok_or("no run")?;
            let status = &run.object["status"];
            if status["retry"].is_null() {
                return Err(status["message"].to_string());
            }
            Ok(())
        })
        .await?;
    let creations = || {
        let trace = stage.operator_set.trace();
        let of_jobs = |traced: &&Traced| traced.point.route == Route::new("create", "jobs");
        trace.iter().filter(of_jobs).count()
    };
    let before = creations();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let more = creations() - before;
    // A fault may cost some attempts. An operator that does not wait needs milliseconds for one.
    ensure!(
        more <= 4,
        "in 2 s after a stored retry, the operator tried to create a Job {more} times"
    );
    stage.operator_set.kill_permanently(0).await?;
    let runs: Api<TaskRun> = stage.api();
    let made = runs.get("work").await?.metadata.creation_timestamp;
    let made = made.context("a run without a time")?.0;
    let ahead = made + jiff::SignedDuration::from_hours(1);
    let retry = json!({ "attempt": 1, "class": "Denied", "nextAt": ahead.to_string() });
    let patch = Patch::Merge(json!({ "status": { "retry": retry } }));
    runs.patch_status("work", &PatchParams::default(), &patch)
        .await?;
    quotas.delete("none", &DeleteParams::default()).await?;
    stage.operator_set.restart(0)?;
    stands(stage, RUNS, "Succeeded", "Succeeded").await
}
