//! Mistakes of users with the messages that they get, and valid objects.
//!
//! [`crate::bounds`] tests the bounds of the schema one by one. This module tests common mistakes
//! and every CEL rule.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use api::{
    tasks::{Agent, TaskRun},
    tenants::Tenant,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::json;
use testkit::{
    cluster::Tier,
    suite::{self, Env},
};

use crate::{
    support::{
        Answer, Kind, causes, create, install, remove, taken, would_create, would_create_named,
        would_update,
    },
    wrong::{self, Wrong, apps, changed, docs, files, second_version, tenants},
};

/// Checks the response to a wrong object. Returns it as an error if it is not the expected
/// rejection.
fn judge(wrong: &Wrong, answer: &Answer) -> Result<(), String> {
    let refusal = match answer {
        Ok(_) => return Err("accepted".to_owned()),
        Err(refusal) => refusal,
    };
    // A cause without a field: after one error, the API server did not evaluate the other rules.
    let causes = causes(refusal)
        .into_iter()
        .filter(|(field, _)| field != "<nil>");
    let (here, elsewhere): (Vec<_>, Vec<_>) = causes.partition(|(field, _)| field == wrong.field);
    let is_told = here.iter().any(|(_, said)| said.contains(wrong.says));
    if refusal.code == 422 && is_told && elsewhere.is_empty() {
        Ok(())
    } else {
        Err(format!("{}: {}", refusal.code, refusal.message))
    }
}

/// Collects the messages of all rules in a schema.
fn messages(schema: &JSONSchemaProps, out: &mut BTreeSet<String>) {
    for rule in schema
        .x_kubernetes_validations
        .iter()
        .flat_map(|all| all.iter())
    {
        out.extend(rule.message.clone());
    }
    for property in schema.properties.iter().flat_map(|all| all.values()) {
        messages(property, out);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        messages(items, out);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        messages(values, out);
    }
}

async fn answers(env: &Env) -> Result<Vec<(Wrong, Answer)>> {
    let run = Kind::TaskRun;
    let stored = taken(create(env, run, &run.object("stored", &second_version())).await?)?;
    let mut answers = Vec::new();
    for wrong in wrong::agents() {
        let answer = would_create(env, Kind::Agent, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    for wrong in wrong::runs() {
        let answer = would_create(env, run, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    for wrong in wrong::changes() {
        let answer = would_update(env, run, &stored, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    let cancelled = run.object("cancelled", &wrong::cancelled());
    let cancelled = taken(create(env, run, &cancelled).await?)?;
    for wrong in wrong::changes_of_cancelled() {
        let answer = would_update(env, run, &cancelled, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    answers.extend(answers_about_docs(env).await?);
    answers.extend(answers_about_tenants(env).await?);
    let app = Kind::ManagedApp;
    for wrong in apps::apps() {
        let answer = would_create(env, app, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    let stored = taken(create(env, app, &app.object("stored", &apps::whole())).await?)?;
    for wrong in apps::changes() {
        let answer = would_update(env, app, &stored, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    Ok(answers)
}

async fn answers_about_docs(env: &Env) -> Result<Vec<(Wrong, Answer)>> {
    let run = Kind::DocsRun;
    let mut answers = Vec::new();
    for wrong in docs::runs() {
        let answer = would_create(env, run, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    for name in docs::names() {
        let wrong = docs::unnamed();
        let answer = would_create_named(env, run, &name, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    for (name, spec, changes) in [
        ("whole", docs::whole(), docs::changes()),
        ("least", run.least(), docs::additions()),
        ("cancelled", docs::cancelled(), docs::changes_of_cancelled()),
    ] {
        let stored = taken(create(env, run, &run.object(name, &spec)).await?)?;
        for wrong in changes {
            let answer = would_update(env, run, &stored, &wrong.spec).await?;
            answers.push((wrong, answer));
        }
    }
    Ok(answers)
}

async fn answers_about_tenants(env: &Env) -> Result<Vec<(Wrong, Answer)>> {
    let kind = Kind::Tenant;
    let mut answers = Vec::new();
    for wrong in tenants::tenants() {
        let answer = would_create(env, kind, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    for name in tenants::names() {
        let wrong = tenants::unnamed();
        let answer = would_create_named(env, kind, &name, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    for (name, spec, changes) in [
        ("whole", tenants::whole(), tenants::changes()),
        ("least", kind.least(), tenants::additions()),
    ] {
        let name = kind.name(env, name);
        let stored = taken(create(env, kind, &kind.object(&name, &spec)).await?)?;
        for wrong in changes {
            let answer = would_update(env, kind, &stored, &wrong.spec).await?;
            answers.push((wrong, answer));
        }
        remove(env, kind, &name).await?;
    }
    Ok(answers)
}

/// Checks that each object was rejected with the expected message.
fn ensure_refused(answers: &[(Wrong, Answer)]) -> Result<()> {
    let mut failures = Vec::new();
    for (wrong, answer) in answers {
        let Wrong {
            what, field, says, ..
        } = wrong;
        if let Err(why) = judge(wrong, answer) {
            failures.push(format!("{what:?}: wanted '{field}: {says}', got {why}"));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Sends Tenants with these specs, and checks that each is rejected.
async fn refused_tenants(env: &Env, all: Vec<Wrong>) -> Result<usize> {
    let mut answers = Vec::new();
    for wrong in all {
        let answer = would_create(env, Kind::Tenant, &wrong.spec).await?;
        answers.push((wrong, answer));
    }
    ensure_refused(&answers)?;
    Ok(answers.len())
}

/// All quantities of a stored Tenant are valid, so every reader can parse them.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r51_what_is_no_quantity_is_refused() -> Result<()> {
    suite::test(Tier::Api, "r51", async |env| {
        install(&env.client).await?;
        let count = refused_tenants(&env, tenants::quantities()).await?;
        println!("{count} quantities refused");
        Ok(())
    })
    .await
}

/// An omitted field allows nobody, and an empty list stays empty.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r54_what_is_left_out_opens_nothing() -> Result<()> {
    suite::test(Tier::Api, "r54", async |env| {
        install(&env.client).await?;
        let count = refused_tenants(&env, tenants::connections()).await?;
        let nobody = json!({ "allowedNamespaces": [], "ingressRules": [] });
        let spec = changed(Kind::Tenant.least(), &[("networkPolicy", nobody)]);
        let made = taken(would_create(&env, Kind::Tenant, &spec).await?)?;
        let read: Tenant = serde_json::from_value(made)?;
        assert!(read.spec.network_policy.enabled);
        assert!(read.spec.network_policy.allowed_namespaces.is_empty());
        println!("{count} ways to open a Tenant refused");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn invalid_specs_are_refused() -> Result<()> {
    suite::test(Tier::Api, "refused", async |env| {
        install(&env.client).await?;
        let answers = answers(&env).await?;
        ensure_refused(&answers)?;

        let mut unheard = BTreeSet::new();
        messages(&Kind::Agent.schema()?, &mut unheard);
        messages(&Kind::TaskRun.schema()?, &mut unheard);
        messages(&Kind::DocsRun.schema()?, &mut unheard);
        messages(&Kind::Tenant.schema()?, &mut unheard);
        messages(&Kind::ManagedApp.schema()?, &mut unheard);
        for refusal in answers
            .iter()
            .filter_map(|(_, answer)| answer.as_ref().err())
        {
            unheard.retain(|words| !refusal.message.contains(words.as_str()));
        }
        ensure!(
            unheard.is_empty(),
            "rules that nothing here breaks: {unheard:?}"
        );
        println!("{} invalid specs refused", answers.len());
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn unknown_fields_are_refused_by_name() -> Result<()> {
    suite::test(Tier::Api, "unknown", async |env| {
        install(&env.client).await?;
        for (kind, spec, field) in wrong::unknown_fields() {
            match would_create(&env, kind, &spec).await? {
                Ok(_) => panic!("{field} was accepted"),
                Err(refusal) => {
                    assert_eq!(refusal.code, 400, "{}", refusal.message);
                    let words = format!("unknown field \"{field}\"");
                    assert!(refusal.message.contains(&words), "{}", refusal.message);
                }
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn valid_specs_are_accepted_and_understood() -> Result<()> {
    suite::test(Tier::Api, "accepted", async |env| {
        install(&env.client).await?;
        for (field, value) in [
            ("resources", json!({ "limits": { "cpu": 1, "memory": "64Mi", "example.com/gpu": 1 } })),
            ("resources", json!({ "requests": { "cpu": "1000m" }, "limits": { "cpu": 1 } })),
            ("workspace", json!({ "size": 1_073_741_824 })),
            ("workspace", json!({ "size": null })),
            ("timeout", json!("1s")),
            ("timeout", json!("168h")),
            ("timeout", json!("1h30m")),
            ("timeout", json!("1.5h")),
            ("timeout", json!("1500ms")),
            ("timeout", json!("0.001h")),
            ("timeout", json!(null)),
            ("contextPath", json!("/home/agent2/..context")),
            ("env", json!([{ "name": "HOME_2" }, { "name": "a.b-1", "value": "x", "valueFrom": null }])),
            ("envFrom", json!([{ "secretRef": { "name": "a" } }, { "secretRef": { "name": "a" }, "prefix": "_" }])),
            ("nodeSelector", json!({ "kubernetes.io/os": "linux", "empty": "" })),
            ("tolerations", json!([{ "operator": "Exists", "value": "" }, { "key": "a" }])),
            ("retry", json!({ "backoff": { "initial": "5m", "max": "300s" } })),
            ("volumes", json!([
                { "name": "a", "mountPath": "/data", "secretRef": { "name": "s" } },
                { "name": "b", "mountPath": "/data2", "configMapRef": { "name": "s" }, "readOnly": true },
                { "name": "c", "mountPath": "/home/agent2", "persistentVolumeClaimRef": { "name": "s" }, "readOnly": false },
            ])),
            ("podLabels", json!({ "app.kubernetes.io/name": "web", "team": "" })),
            ("podAnnotations", json!({ "example.com/text": "any text: {}" })),
            ("affinity", json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                { "labelSelector": {}, "topologyKey": "topology.kubernetes.io/zone" }] } })),
            ("image", json!("localhost:5000/a/b_c:1.0@sha256:00")),
        ] {
            let spec = changed(Kind::Agent.least(), &[(field, value)]);
            let made = taken(would_create(&env, Kind::Agent, &spec).await?)?;
            let read: Agent = serde_json::from_value(made)?;
            assert!(!read.spec.image.is_empty(), "{spec}");
        }
        for (field, value) in [
            ("serviceName", json!("Shop / Web: Ö")),
            ("contextVersion", json!(2_147_483_647)),
            ("timeout", json!(null)),
            ("markdownFiles", files(&["0", &"a".repeat(253), "A_b-c..d.md"])),
            ("retry", json!({})),
            ("suspend", json!(true)),
            ("suspend", json!(null)),
            ("cancel", json!(true)),
            ("childTTL", json!({ "succeeded": "0s" })),
            ("childTTL", json!({ "failed": "8760h" })),
            ("childTTL", json!({ "succeeded": "90s", "failed": null })),
            ("childTTL", json!(null)),
        ] {
            let spec = changed(Kind::TaskRun.least(), &[(field, value)]);
            let made = taken(would_create(&env, Kind::TaskRun, &spec).await?)?;
            let read: TaskRun = serde_json::from_value(made)?;
            assert_eq!(read.spec.task_id, 7, "{spec}");
        }
        for spec in tenants::accepted() {
            let made = taken(would_create(&env, Kind::Tenant, &spec).await?)?;
            let read: Tenant = serde_json::from_value(made)?;
            assert!(read.metadata.namespace.is_none(), "{spec}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn valid_changes_are_accepted() -> Result<()> {
    suite::test(Tier::Api, "changes", async |env| {
        install(&env.client).await?;
        let run = Kind::TaskRun;
        let stored = taken(create(&env, run, &run.object("stored", &second_version())).await?)?;
        let version = ("contextVersion", json!(3));
        let text = json!([{ "filename": "a.md", "content": "new" }, { "filename": "b.md", "content": "" }]);
        for changes in [
            vec![],
            vec![("markdownFiles", files(&["b.md", "a.md"]))],
            vec![version.clone()],
            vec![version.clone(), ("markdownFiles", files(&["a.md", "c.md", "b.md"]))],
            vec![version, ("markdownFiles", text)],
            vec![("timeout", json!("5m")), ("retry", json!({ "maxAttempts": 2 }))],
            vec![("suspend", json!(true))],
            vec![("cancel", json!(true))],
            vec![("cancel", json!(true)), ("suspend", json!(true))],
            vec![("childTTL", json!({ "succeeded": "1h" }))],
        ] {
            let spec = changed(second_version(), &changes);
            taken(would_update(&env, run, &stored, &spec).await?)?;
        }
        let cancelled = run.object("cancelled", &wrong::cancelled());
        let cancelled = taken(create(&env, run, &cancelled).await?)?;
        for changes in [
            vec![],
            vec![("childTTL", json!({ "failed": "0s" }))],
            vec![("suspend", json!(true))],
        ] {
            let spec = changed(wrong::cancelled(), &changes);
            taken(would_update(&env, run, &cancelled, &spec).await?)?;
        }

        let run = Kind::DocsRun;
        let stored = taken(create(&env, run, &run.object("stored", &docs::whole())).await?)?;
        for changes in [
            vec![],
            vec![("instructions", files(&["b.md", "a.md"]))],
            vec![("workingDirectory", json!(".")), ("includeCodebase", json!(false))],
            vec![("timeout", json!("5m"))],
            vec![("timeout", json!(null))],
            vec![("suspend", json!(true))],
            vec![("cancel", json!(true))],
            vec![("cancel", json!(true)), ("suspend", json!(true))],
            vec![("childTTL", json!({ "succeeded": "1h" }))],
        ] {
            let spec = changed(docs::whole(), &changes);
            taken(would_update(&env, run, &stored, &spec).await?)?;
        }
        let cancelled = run.object("cancelled", &docs::cancelled());
        let cancelled = taken(create(&env, run, &cancelled).await?)?;
        for changes in [
            vec![("childTTL", json!({ "failed": "0s" }))],
            vec![("suspend", json!(true))],
            vec![("timeout", json!("5m"))],
        ] {
            let spec = changed(docs::cancelled(), &changes);
            taken(would_update(&env, run, &cancelled, &spec).await?)?;
        }

        let app = Kind::ManagedApp;
        let stored = taken(create(&env, app, &app.object("stored", &apps::whole())).await?)?;
        taken(would_update(&env, app, &stored, &apps::accepted_change()).await?)?;

        let kind = Kind::Tenant;
        let name = kind.name(&env, "stored");
        let stored = taken(create(&env, kind, &kind.object(&name, &tenants::whole())).await?)?;
        for spec in tenants::accepted_changes() {
            taken(would_update(&env, kind, &stored, &spec).await?)?;
        }
        remove(&env, kind, &name).await
    })
    .await
}
