//! Every field that we write is stored, and every other field has the default that we know.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use api::{
    apps::{ManagedApp, ManagedAppSpec, ManagedAppStatus},
    notebooks::{NotebookValidationJob, NotebookValidationJobSpec, NotebookValidationJobStatus},
    tasks::{
        Agent, AgentSpec, AgentStatus, DocsRun, DocsRunSpec, DocsRunStatus, TaskRun, TaskRunSpec,
        TaskRunStatus,
    },
    tenants::{Tenant, TenantSpec, TenantStatus},
};
use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::object::{HasSpec, HasStatus};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
};

use crate::{
    fixtures::{
        agent_spec, agent_status, app_spec, app_status, docs_spec, docs_status, notebook_spec,
        notebook_status, run_spec, run_status, tenant_spec, tenant_status,
    },
    support::{Kind, create, install, remove, send, send_as, taken, would_create},
    wrong::changed,
};

const NAME: &str = "whole";

/// Returns some fields of the fixtures, by the names that users read. The list is literal, because
/// types and CRDs change together.
fn by_name(kind: Kind) -> Vec<(&'static str, Value)> {
    match kind {
        Kind::Agent => vec![
            ("/status/observedGeneration", json!(5)),
            ("/status/retry/attempt", json!(4)),
        ],
        Kind::TaskRun => vec![
            ("/status/phase", json!("Failed")),
            ("/status/contextVersion", json!(3)),
            ("/status/jobName", json!("shop-42-v3-a2")),
            ("/status/configMapName", json!("shop-42-v3-files")),
            ("/status/attempts", json!(2)),
            ("/status/history/0/contextVersion", json!(2)),
        ],
        Kind::DocsRun => vec![
            ("/status/jobName", json!("shop-docs-a2")),
            ("/status/configMapName", json!("shop-docs-files")),
            ("/status/changedFiles/count", json!(21)),
            ("/status/leftOut/count", json!(1)),
        ],
        Kind::Tenant => vec![
            ("/status/redisStatus/readyReplicas", json!(2)),
            ("/status/serverStatus/totalReplicas", json!(3)),
            ("/status/isolation/result", json!("PolicyNotEnforced")),
        ],
        Kind::ManagedApp => vec![
            ("/spec/kustomizationRef/namespace", json!("flux-system")),
            ("/status/release/chartVersion", json!("2.0.0")),
            ("/status/git/versions/chart", json!("2.0.0")),
            ("/status/workloads/0/inInventory", json!(true)),
            ("/status/volumes/0/storageClassName", json!("fast")),
            ("/status/unprotectedVolumes/0/type", json!("hostPath")),
        ],
        Kind::Notebook => vec![
            ("/spec/notebook/git/ref", json!("refs/heads/main")),
            (
                "/status/commit",
                json!("0123456789abcdef0123456789abcdef01234567"),
            ),
            ("/status/cells/currentSince", json!("2023-11-14T22:13:25Z")),
            ("/status/results/0/match", json!("Mismatched")),
            (
                "/status/comparisonResult/diffs/0/diffType",
                json!("OutputMismatch"),
            ),
            ("/status/report/configMapName", json!("sales-nb-results")),
        ],
    }
}

/// Creates an object with this spec, patches this status, and reads it as JSON and as our type.
async fn stored<K>(env: &Env, kind: Kind, spec: &K::Spec, status: &K::Status) -> Result<(Value, K)>
where
    K: HasSpec + HasStatus + DeserializeOwned,
    K::Spec: Serialize,
    K::Status: Serialize,
{
    let name = kind.name(env, NAME);
    let object = kind.object(&name, &serde_json::to_value(spec)?);
    taken(create(env, kind, &object).await?)?;
    let path = kind.path(&env.namespace, &format!("/{name}"));
    let (patch, content) = (json!({ "status": status }), "application/merge-patch+json");
    let (query, status) = ("fieldValidation=Strict", format!("{path}/status"));
    let answer = send_as(
        &env.client,
        Method::PATCH,
        content,
        &status,
        query,
        Some(&patch),
    );
    taken(answer.await?).context("the status was not taken")?;
    let raw = taken(send(&env.client, Method::GET, &path, "", None).await?)?;
    for (pointer, value) in by_name(kind) {
        assert_eq!(raw.pointer(pointer), Some(&value), "{kind:?}: {pointer}");
    }
    Ok((raw.clone(), serde_json::from_value(raw)?))
}

/// Returns the value as we read it, with our defaults.
fn ours<T: Serialize + DeserializeOwned>(written: Value) -> Result<Value> {
    Ok(serde_json::to_value(serde_json::from_value::<T>(written)?)?)
}

/// Collects the paths of all fields in a schema, without names that users choose.
fn fields_of_schema(path: &str, schema: &JSONSchemaProps, out: &mut BTreeSet<String>) {
    for (name, property) in schema.properties.iter().flat_map(|all| all.iter()) {
        let path = format!("{path}.{name}");
        fields_of_schema(&path, property, out);
        out.insert(path);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        fields_of_schema(&format!("{path}[]"), items, out);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        fields_of_schema(path, values, out);
    }
}

/// Collects the paths of all fields in an object.
fn fields_of_value(path: &str, value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                let path = format!("{path}.{name}");
                fields_of_value(&path, inner, out);
                out.insert(path);
            }
        }
        Value::Array(list) => {
            for inner in list {
                fields_of_value(&format!("{path}[]"), inner, out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Fields of a type that is used in two places, if a rule rejects the field in one of them.
const NOWHERE: &[&str] = &[
    ".spec.networkPolicy.ingressRules[].from[].internet",
    // A rule forbids them beside `pvcs`.
    ".spec.volumeSnapshots.excludePVCs",
    ".spec.volumeSnapshots.excludePVCs[].name",
    ".spec.volumeSnapshots.excludePVCs[].namespace",
];

/// Checks that an object of ours sets every field that its schema has.
fn ensure_whole(kind: Kind, object: &Value) -> Result<()> {
    let (mut wanted, mut found) = (BTreeSet::new(), BTreeSet::new());
    fields_of_schema("", &kind.schema()?, &mut wanted);
    fields_of_value("", object, &mut found);
    let is_tried = |path: &&String| !NOWHERE.contains(&path.as_str());
    let missing: Vec<_> = wanted.difference(&found).filter(is_tried).collect();
    ensure!(wanted.len() > 20, "a schema of {} fields", wanted.len());
    ensure!(
        missing.is_empty(),
        "{kind:?}: not tried, or in the schema only: {missing:?}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r05_every_field_written_is_read_back_equal() -> Result<()> {
    suite::test(Tier::Api, "r05", async |env| {
        install(&env.client).await?;
        let (spec, status) = (agent_spec(), agent_status()?);
        let (raw, _) = stored::<Agent>(&env, Kind::Agent, &spec, &status).await?;
        assert_eq!(raw["spec"], json!(spec));
        assert_eq!(raw["status"], json!(status));
        ensure_whole(Kind::Agent, &raw)?;

        let (spec, status) = (run_spec(), run_status()?);
        let (raw, _) = stored::<TaskRun>(&env, Kind::TaskRun, &spec, &status).await?;
        assert_eq!(raw["spec"], json!(spec));
        assert_eq!(raw["status"], json!(status));
        ensure_whole(Kind::TaskRun, &raw)?;

        let (spec, status) = (docs_spec(), docs_status()?);
        let (raw, _) = stored::<DocsRun>(&env, Kind::DocsRun, &spec, &status).await?;
        assert_eq!(raw["spec"], json!(spec));
        assert_eq!(raw["status"], json!(status));
        ensure_whole(Kind::DocsRun, &raw)?;

        let (spec, status) = (app_spec(), app_status()?);
        let (raw, _) = stored::<ManagedApp>(&env, Kind::ManagedApp, &spec, &status).await?;
        assert_eq!(raw["spec"], json!(spec));
        assert_eq!(raw["status"], json!(status));
        ensure_whole(Kind::ManagedApp, &raw)?;

        let (spec, status) = (notebook_spec(), notebook_status()?);
        let kind = Kind::Notebook;
        let (raw, _) = stored::<NotebookValidationJob>(&env, kind, &spec, &status).await?;
        assert_eq!(raw["spec"], json!(spec));
        assert_eq!(raw["status"], json!(status));
        ensure_whole(kind, &raw)?;

        let (spec, status) = (tenant_spec(), tenant_status()?);
        let (raw, _) = stored::<Tenant>(&env, Kind::Tenant, &spec, &status).await?;
        assert_eq!(raw["spec"], json!(spec));
        assert_eq!(raw["status"], json!(status));
        ensure_whole(Kind::Tenant, &raw)?;
        remove(&env, Kind::Tenant, &Kind::Tenant.name(&env, NAME)).await
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r06_each_type_survives_the_round_trip() -> Result<()> {
    suite::test(Tier::Api, "r06", async |env| {
        install(&env.client).await?;
        let (spec, status) = (agent_spec(), agent_status()?);
        let (_, read) = stored::<Agent>(&env, Kind::Agent, &spec, &status).await?;
        assert_eq!(read.spec, spec);
        assert_eq!(read.status, Some(status));

        let (spec, status) = (run_spec(), run_status()?);
        let (_, read) = stored::<TaskRun>(&env, Kind::TaskRun, &spec, &status).await?;
        assert_eq!(read.spec, spec);
        assert_eq!(read.status, Some(status));

        let (spec, status) = (docs_spec(), docs_status()?);
        let (_, read) = stored::<DocsRun>(&env, Kind::DocsRun, &spec, &status).await?;
        assert_eq!(read.spec, spec);
        assert_eq!(read.status, Some(status));

        let (spec, status) = (app_spec(), app_status()?);
        let (_, read) = stored::<ManagedApp>(&env, Kind::ManagedApp, &spec, &status).await?;
        assert_eq!(read.spec, spec);
        assert_eq!(read.status, Some(status));

        let (spec, status) = (notebook_spec(), notebook_status()?);
        let kind = Kind::Notebook;
        let (_, read) = stored::<NotebookValidationJob>(&env, kind, &spec, &status).await?;
        assert_eq!(read.spec, spec);
        assert_eq!(read.status, Some(status));

        let (spec, status) = (tenant_spec(), tenant_status()?);
        let (_, read) = stored::<Tenant>(&env, Kind::Tenant, &spec, &status).await?;
        assert_eq!(read.spec, spec);
        assert_eq!(read.status, Some(status));
        remove(&env, Kind::Tenant, &Kind::Tenant.name(&env, NAME)).await
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn what_is_left_out_gets_the_default_that_the_types_have() -> Result<()> {
    suite::test(Tier::Api, "defaults", async |env| {
        install(&env.client).await?;
        let (agent, run, docs, tenant) = (Kind::Agent, Kind::TaskRun, Kind::DocsRun, Kind::Tenant);
        let app = Kind::ManagedApp;
        let app_spec = ours::<ManagedAppSpec>(app.least())?;
        let (agent_spec, run_spec, docs_spec, tenant_spec) = (
            ours::<AgentSpec>(agent.least())?,
            ours::<TaskRunSpec>(run.least())?,
            ours::<DocsRunSpec>(docs.least())?,
            ours::<TenantSpec>(tenant.least())?,
        );
        let unseen = json!({
            "observedGeneration": -1,
            "phase": "Pending",
            "message": "waiting for the operator to look at it",
        });
        for (kind, spec, status) in [
            (agent, agent_spec, ours::<AgentStatus>(unseen.clone())?),
            (run, run_spec, ours::<TaskRunStatus>(unseen.clone())?),
            (docs, docs_spec, ours::<DocsRunStatus>(unseen.clone())?),
            (tenant, tenant_spec, ours::<TenantStatus>(unseen.clone())?),
            (app, app_spec, ours::<ManagedAppStatus>(unseen)?),
        ] {
            let object = kind.object(&kind.name(&env, "least"), &kind.least());
            let made = taken(create(&env, kind, &object).await?)?;
            assert_eq!(made["spec"], spec);
            assert_eq!(made["status"], status);
            assert_eq!(made["status"]["observedGeneration"], -1);
            match kind {
                Kind::Agent => {
                    assert_eq!(made["spec"]["runAsUser"], 65532);
                    assert_eq!(made["spec"]["timeout"], "3600s");
                    assert_eq!(made["spec"]["retry"]["backoff"]["max"], "300s");
                    assert_eq!(made["spec"]["contextPath"], "/workspace/context");
                }
                Kind::TaskRun => assert_eq!(made["spec"]["contextVersion"], 1),
                Kind::DocsRun => {
                    assert_eq!(made["spec"]["workingDirectory"], ".");
                    assert_eq!(made["spec"]["includeCodebase"], false);
                    let output = json!({ "path": "docs/", "requireChanges": true });
                    assert_eq!(made["spec"]["output"], output);
                }
                Kind::Tenant => {
                    let deletion = json!({ "policy": "Retain", "deadline": "900s" });
                    assert_eq!(made["spec"]["deletion"], deletion);
                    assert_eq!(made["spec"]["networkPolicy"], json!({ "enabled": true }));
                    assert_eq!(made["spec"]["isolation"], json!({ "probe": true }));
                    remove(&env, kind, &kind.name(&env, "least")).await?;
                }
                // The namespace of a reference is that of the ManagedApp.
                Kind::ManagedApp => assert_eq!(made["spec"], app.least()),
                Kind::Notebook => {}
            }
        }
        let kind = Kind::Notebook;
        let made = taken(create(&env, kind, &kind.object("least", &kind.least())).await?)?;
        assert_eq!(
            made["spec"],
            ours::<NotebookValidationJobSpec>(kind.least())?
        );
        let unseen = json!({
            "observedGeneration": -1,
            "phase": "Initializing",
            "message": "waiting for the operator to look at it",
        });
        assert_eq!(made["status"], ours::<NotebookValidationJobStatus>(unseen)?);
        assert_eq!(made["spec"]["podConfig"]["runAsUser"], 65532);
        assert_eq!(made["spec"]["results"]["store"], "Diff");
        // If a part of the object is set, the other parts still get their defaults.
        for (given, whole) in [
            (
                json!(null),
                json!({ "path": "docs/", "requireChanges": true }),
            ),
            (
                json!({}),
                json!({ "path": "docs/", "requireChanges": true }),
            ),
            (
                json!({ "branch": "a", "path": null }),
                json!({ "branch": "a", "path": "docs/", "requireChanges": true }),
            ),
            (
                json!({ "requireChanges": false }),
                json!({ "path": "docs/", "requireChanges": false }),
            ),
        ] {
            let spec = changed(docs.least(), &[("output", given)]);
            let made = taken(would_create(&env, docs, &spec).await?)?;
            assert_eq!(made["spec"]["output"], whole);
        }
        for (field, given, whole) in [
            (
                "server",
                json!({ "image": "a:1" }),
                json!({ "image": "a:1", "replicas": 1, "port": 3030 }),
            ),
            (
                "networkPolicy",
                json!({ "allowedNamespaces": [] }),
                json!({ "enabled": true, "allowedNamespaces": [] }),
            ),
            ("networkPolicy", json!(null), json!({ "enabled": true })),
            ("isolation", json!({}), json!({ "probe": true })),
            (
                "deletion",
                json!({ "policy": "Delete", "deadline": null }),
                json!({ "policy": "Delete", "deadline": "900s" }),
            ),
        ] {
            let spec = changed(tenant.least(), &[(field, given)]);
            let made = taken(would_create(&env, tenant, &spec).await?)?;
            assert_eq!(made["spec"][field], whole);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r06_a_phase_outside_of_the_enum_is_refused() -> Result<()> {
    suite::test(Tier::Api, "phases", async |env| {
        install(&env.client).await?;
        let kind = Kind::TaskRun;
        taken(create(&env, kind, &kind.object(NAME, &kind.least())).await?)?;
        let path = kind.path(&env.namespace, &format!("/{NAME}/status"));
        for (phase, is_taken) in [
            ("Pending", true),
            ("Running", true),
            ("Succeeded", true),
            ("Failed", true),
            ("Done", false),
            ("running", false),
            ("", false),
        ] {
            let patch = json!({ "status": { "phase": phase } });
            let content = "application/merge-patch+json";
            let answer = send_as(&env.client, Method::PATCH, content, &path, "", Some(&patch));
            match answer.await? {
                Ok(object) => {
                    ensure!(is_taken, "'{phase}' was taken");
                    ensure!(object["status"]["phase"] == phase);
                }
                Err(refusal) => {
                    let words = "status.phase: Unsupported value";
                    ensure!(!is_taken && refusal.message.contains(words), "{refusal:?}");
                }
            }
        }
        Ok(())
    })
    .await
}
