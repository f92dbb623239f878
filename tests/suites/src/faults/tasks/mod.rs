//! The scenarios of the tasks operator.

mod docs;
mod runs;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use api::tasks::Agent;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use testkit::{
    faults::{
        object_history::Seen,
        scenario_run::{Scenario, Stage},
    },
    git::Server,
    suite,
    wait::met,
};

use super::actions::{find, merged};

/// The image of the agents.
pub(super) const BUSYBOX: &str = "testbed.local/busybox:1";

/// The longest wait for a step, with an API server that refuses and an operator that is killed.
const LIMIT: Duration = Duration::from_secs(100);

/// All of them.
pub(super) fn scenarios(git: &Arc<Server>) -> Vec<Arc<dyn Scenario>> {
    let mut all = runs::scenarios();
    all.extend(docs::scenarios(git));
    all
}

/// Those that are played for mutants only.
pub(super) fn slow(git: &Arc<Server>) -> Vec<Arc<dyn Scenario>> {
    let mut all = runs::slow();
    all.push(docs::lost(git));
    all
}

/// What the operator watches, for the object history.
pub(super) fn watched() -> Vec<kube::core::ApiResource> {
    use api::tasks::{DocsRun, TaskRun};
    use k8s_openapi::api::{
        batch::v1::Job,
        core::v1::{ConfigMap, Pod, ServiceAccount},
        events::v1::Event,
    };
    use kube::core::ApiResource;
    vec![
        ApiResource::erase::<Agent>(&()),
        ApiResource::erase::<TaskRun>(&()),
        ApiResource::erase::<DocsRun>(&()),
        ApiResource::erase::<Job>(&()),
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Event>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
    ]
}

/// A line of an agent's script: tells the side-effect log what was done.
fn tells(stage: &Stage, what: &str) -> String {
    let place = stage.side_effects.address();
    format!(
        "wget -q -O /dev/null http://{place}/did/$ORCHESTRATOR_NAMESPACE/$ORCHESTRATOR_UID/{what} || exit 9\n"
    )
}

/// Lines of an agent's script: waits at a gate, and ends at once when it is told to.
fn waits(stage: &Stage, gate: &str) -> String {
    let place = stage.side_effects.address();
    format!(
        "trap 'exit 143' TERM\n\
         wget -q -O /dev/null http://{place}/gate/$ORCHESTRATOR_NAMESPACE/{gate} & wait $!\n"
    )
}

/// A Secret whose content must show nowhere.
async fn secret(stage: &Stage) -> Result<()> {
    let canary = format!("canary-{}", stage.namespace);
    stage.canary(&canary);
    let data = json!({ "token": canary });
    let secret = json!({ "metadata": { "name": "canary" }, "stringData": data });
    suite::create::<Secret>(&stage.api(), secret).await?;
    Ok(())
}

/// An Agent that runs a script and knows a secret, and a plain text that is in the body of its Job;
/// `more` is merged into its spec.
async fn agent(stage: &Stage, script: &str, more: Value) -> Result<()> {
    secret(stage).await?;
    let private = format!("private-{}", stage.namespace);
    stage.private(&private);
    let spec = json!({
        "image": BUSYBOX,
        "command": ["/bin/sh", "-c", script],
        "env": [
            { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "canary", "key": "token" } } },
            { "name": "PRIVATE", "value": private },
        ],
        "resources": { "requests": { "cpu": "1m", "memory": "4Mi" }, "limits": { "memory": "64Mi" } },
    });
    let agent = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
        "metadata": { "name": "work" }, "spec": merged(spec, more),
    });
    suite::create::<Agent>(&stage.api(), agent).await?;
    Ok(())
}

/// Phase and reason of a run, for waits.
fn standing(seen: &[Seen], resource: &str) -> (String, String) {
    let Some(run) = find(seen, resource, "work") else {
        return ("gone".to_owned(), String::new());
    };
    let status = &run.object["status"];
    let phase = status["phase"].as_str().unwrap_or("none").to_owned();
    let main = run.condition("Succeeded");
    let reason = main.and_then(|one| one["reason"].as_str()).unwrap_or("");
    (phase, reason.to_owned())
}

/// Waits until the run `work` stands so; an empty reason means any.
async fn stands(stage: &Stage, resource: &str, phase: &str, reason: &str) -> Result<()> {
    stage
        .until(&format!("{phase} {reason}"), LIMIT, |seen| {
            let (is, why) = standing(seen, resource);
            let is_so = is == phase && (reason.is_empty() || why == reason);
            met(is_so, || format!("{is} {why}"))
        })
        .await
}

/// Waits until the run `work` and all its children are gone.
async fn gone(stage: &Stage, resource: &str) -> Result<()> {
    stage
        .until("everything to be gone", LIMIT, |seen| {
            let left: Vec<String> = seen
                .iter()
                .filter(|one| {
                    let is_map = one.resource == "configmaps" && one.name != "kube-root-ca.crt";
                    is_map || [resource, "jobs", "pods"].contains(&one.resource.as_str())
                })
                .map(|one| format!("{}/{}", one.resource, one.name))
                .collect();
            met(left.is_empty(), || left.join(", "))
        })
        .await
}

/// Waits until somebody is at this gate and the run `work` says that it runs.
async fn at_gate(stage: &Stage, resource: &str, gate: &str) -> Result<()> {
    at_gate_within(stage, resource, gate, LIMIT).await
}

async fn at_gate_within(stage: &Stage, resource: &str, gate: &str, limit: Duration) -> Result<()> {
    let (side_effects, namespace) = (&stage.side_effects, &stage.namespace);
    stage
        .until("the agent at its gate", limit, |seen| {
            let count = side_effects.waiting(namespace, gate);
            let (phase, reason) = standing(seen, resource);
            met(count > 0 && phase == "Running", || {
                format!("{count} at the gate, {phase} {reason}")
            })
        })
        .await
}
