//! Faults of the whole cluster. Each case has it for itself, and repairs it whatever it saw.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::tasks::TaskRun;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use testkit::{
    operator,
    suite::Env,
    wait::{met, until},
};

use super::{
    super::{children::until_gone, shell::Shell},
    fixture::{Bench, Cause, Seen, Why, explained, named, submitted},
};

/// The API server reads a changed CRD within this time.
const READ: Duration = Duration::from_secs(30);

/// An operator that is ready compares the CRDs with its own every 30 s.
const CHECKED: Duration = Duration::from_secs(40);

/// The way out where a CRD is missing or too old.
const APPLY_CRDS: &str =
    "kubectl apply --server-side --recursive -f charts/orchestrator/generated/crds";

/// `kubectl cordon` of the only node.
pub(super) async fn cordoned(env: Env) -> Result<Seen> {
    let bench = Bench::new(env).await?;
    let shell = Shell::of_case(&bench.env)?;
    bench.agent("parked", "sleep 3", json!({})).await?;
    shell.check("kubectl cordon node-0").await?;
    let cause = Cause::at_once("Unschedulable", &["unschedulable"]);
    let why = Why::command(
        &["Node node-0", "someone cordoned it"],
        "kubectl uncordon node-0",
    );
    let seen = submitted(&bench, "parked", json!({}), cause, why).await;
    shell.check("kubectl uncordon node-0").await?;
    let seen = seen?;
    bench.finished("parked", Duration::from_secs(90)).await?;
    bench.done().await?;
    Ok(seen)
}

/// The CRD of a kind, as this release has it.
fn crd(plural: &str) -> Result<CustomResourceDefinition> {
    let mut all = api::tasks::OPERATOR.crds().into_iter();
    let found = all.find(|crd| crd.spec.names.plural == plural);
    found.with_context(|| format!("no CRD '{plural}'"))
}

/// The CRD of TaskRuns after an edit of its schema.
fn edited(edit: fn(&mut Value) -> bool) -> Result<Value> {
    let mut crd = serde_json::to_value(crd("taskruns")?)?;
    crd["apiVersion"] = json!("apiextensions.k8s.io/v1");
    crd["kind"] = json!("CustomResourceDefinition");
    let schema = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties");
    let is_edited = edit(schema.context("no schema")?);
    ensure!(is_edited, "there was nothing to edit");
    Ok(crd)
}

/// An old CRD: the status has no `disruptions`.
fn without_disruptions(schema: &mut Value) -> bool {
    let status = schema.pointer_mut("/status/properties");
    let fields = status.and_then(Value::as_object_mut);
    fields.is_some_and(|fields| fields.remove("disruptions").is_some())
}

/// A CRD that lets `taskId` be missing.
fn without_required_task(schema: &mut Value) -> bool {
    let required = schema.pointer_mut("/spec/required");
    let Some(fields) = required.and_then(Value::as_array_mut) else {
        return false;
    };
    let before = fields.len();
    fields.retain(|field| field != "taskId");
    fields.len() < before
}

/// Stores a CRD as the one who installed it does.
async fn store(client: &Client, crd: &Value) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd["metadata"]["name"].as_str().context("no name")?;
    let params = PatchParams::apply("testkit").force();
    crds.patch(name, &params, &Patch::Apply(crd)).await?;
    Ok(())
}

async fn repair(client: &Client) -> Result<()> {
    operator::install(client, api::tasks::OPERATOR.crds()).await
}

/// The API server drops the field without a word, so the operator must say that the CRD is too old.
pub(super) async fn old_crd(env: Env) -> Result<Seen> {
    let bench = Bench::new(env).await?;
    let client = bench.env.client.clone();
    let since = Instant::now();
    store(&client, &edited(without_disruptions)?).await?;
    let words = ["taskruns.orchestrator.io", "disruptions"];
    let seen = async {
        not_ready(&bench, &words).await?;
        let seconds = since.elapsed().as_secs_f64();
        bench.submit("pruned", json!({})).await?;
        let says = [
            "taskruns.orchestrator.io",
            "is older than this release",
            "status.disruptions",
        ];
        let why = Why::note(&says, APPLY_CRDS);
        let why = explained(&bench.env, "pruned", &why).await?;
        anyhow::Ok((seconds, why))
    }
    .await;
    repair(&client).await?;
    let (seconds, why) = seen?;
    bench.stopped().await?;
    Ok(Seen {
        reason: "/readyz: CRD too old".to_owned(),
        seconds: Some(seconds),
        why,
    })
}

/// Waits until `/readyz` fails with these words.
async fn not_ready(bench: &Bench, words: &[&str]) -> Result<()> {
    until("/readyz to fail", CHECKED, async || {
        let (code, text) = bench.operator.page("/readyz").await?;
        let says_all = words.iter().all(|word| text.contains(word));
        Ok(met(code == 503 && says_all, || format!("{code} {text}")))
    })
    .await
}

/// A stored run that the operator cannot read.
pub(super) async fn undecodable(env: Env) -> Result<Seen> {
    let bench = Bench::new(env).await?;
    let client = bench.env.client.clone();
    store(&client, &edited(without_required_task)?).await?;
    let seen = without_task(&bench).await;
    repair(&client).await?;
    let seen = seen?;
    bench.stopped().await?;
    Ok(seen)
}

async fn without_task(bench: &Bench) -> Result<Seen> {
    let resource = ApiResource::erase::<TaskRun>(&());
    let runs: Api<DynamicObject> =
        Api::namespaced_with(bench.env.client.clone(), &bench.env.namespace, &resource);
    let run = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": "odd" },
        "spec": {
            "serviceName": "odd", "agentName": "odd",
            "markdownFiles": [{ "filename": "task.md", "content": "the task\n" }],
        },
    });
    let run = serde_json::from_value(run)?;
    until("a run without a task to be accepted", READ, async || {
        let created = runs.create(&PostParams::default(), &run).await;
        Ok(created.map(drop).map_err(|error| error.to_string()))
    })
    .await?;
    let cause = Cause::at_once("Undecodable", &["taskId"]);
    let why = Why::command(&["Undecodable", "taskId"], "kubectl edit otr odd");
    let seen = named(bench, "odd", Instant::now(), &cause, &why).await;
    // The next schema does not have it.
    runs.delete("odd", &DeleteParams::default()).await?;
    seen
}

/// The CRD of DocsRuns is gone while the operator runs.
pub(super) async fn crd_missing(env: Env) -> Result<Seen> {
    let bench = Bench::new(env).await?;
    let client = bench.env.client.clone();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd("docsruns")?.name_any();
    crds.delete(&name, &DeleteParams::default()).await?;
    let seen = async {
        until_gone(&crds, &name, READ).await?;
        let since = Instant::now();
        not_ready(&bench, &[&name]).await?;
        let seconds = since.elapsed().as_secs_f64();
        let line = format!("orc why docsrun/gone --namespace {}", bench.env.namespace);
        let output = Shell::of_case(&bench.env)?.run(&line).await?;
        let said = output.stderr;
        let cause = format!("CRD '{name}' is missing");
        // Nothing can be explained without the kind, so the error itself has the command.
        for words in [cause.as_str(), APPLY_CRDS] {
            ensure!(said.contains(words), "'{line}': no '{words}' in: {said}");
        }
        anyhow::Ok((seconds, said))
    }
    .await;
    repair(&client).await?;
    let (seconds, why) = seen?;
    bench.stopped().await?;
    Ok(Seen {
        reason: "/readyz: no CRD".to_owned(),
        seconds: Some(seconds),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crd_is_made_old_or_too_tolerant() {
        let field = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        let new = serde_json::to_value(crd("taskruns").unwrap()).unwrap();
        let old = edited(without_disruptions).unwrap();
        assert!(new.pointer(field).unwrap().get("disruptions").is_some());
        assert!(old.pointer(field).unwrap().get("disruptions").is_none());
        let required = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/required";
        let tolerant = edited(without_required_task).unwrap();
        let has = |crd: &Value| {
            let fields = crd.pointer(required).unwrap().as_array().unwrap().clone();
            fields.contains(&json!("taskId"))
        };
        assert!(has(&new) && !has(&tolerant));
        assert!(edited(|_| false).is_err());
    }
}
