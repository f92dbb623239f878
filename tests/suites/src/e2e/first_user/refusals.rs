//! Requests that are rejected before an object exists. The rejection itself must name the cause.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::{policy, tasks::TaskRun};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{Api, Resource, api::PostParams, core::DynamicObject};
use serde_json::{Value, json};
use testkit::{operator, suite::Env};

use super::{
    super::{
        chart,
        fixture::RunKind,
        merge,
        policies::{Attempt, Bound, client_of, rejected},
        shell::Shell,
        tasks::Tasks,
    },
    fixture::{Seen, flat},
};

/// The user of the trial.
const USER: &str = "anna";

/// A user who may create runs, but may not use the Agent.
pub(super) async fn no_permission(env: Env) -> Result<Seen> {
    operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
    let rules = json!([{
        "apiGroups": ["orchestrator.io"], "resources": ["taskruns"], "verbs": ["create", "get", "list"],
    }]);
    let role = json!({ "metadata": { "name": USER }, "rules": rules });
    env.create::<Role>(role).await?;
    let binding = json!({
        "metadata": { "name": USER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": USER },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER }],
    });
    env.create::<RoleBinding>(binding).await?;
    let mut policies = policy::tasks();
    policies.retain(|policy| policy.metadata.name.as_deref() == Some("use-agent"));
    ensure!(policies.len() == 1, "the chart has no policy 'use-agent'");
    let bound = Bound::new(&env, policies, Some(&env.namespace)).await?;
    let seen = refused_use(&env).await;
    bound.release().await?;
    seen
}

async fn refused_use(env: &Env) -> Result<Seen> {
    const SAYS: &str = "'anna' must be allowed to 'use' the Agent 'ok'";
    let version = TaskRun::api_version(&());
    let path = format!("/apis/{version}/namespaces/{}/taskruns", env.namespace);
    let run = run(json!({ "agentName": "ok" }));
    let attempt = Attempt::create("a run of an Agent of others", &path, run, SAYS);
    // A policy acts a moment after it was stored.
    rejected(&client_of(env, USER)?, &[attempt]).await?;
    let shell = Shell::of_case(env)?;
    let since = Instant::now();
    let kubectl = format!(
        "kubectl create --as {USER} --namespace {} --filename -",
        env.namespace
    );
    let manifest = self::run(json!({ "agentName": "ok" }));
    let output = shell
        .run(&format!("printf %s '{manifest}' | {kubectl}"))
        .await?;
    let seconds = since.elapsed().as_secs_f64();
    ensure!(
        !output.status.success() && output.stderr.contains(SAYS),
        "kubectl said: {}",
        output.stderr
    );
    let kubeconfig = shell.kubeconfig_of(env, USER).await?;
    let line = format!(
        "orc submit Cargo.toml --service shop --task-id 7 --agent ok --namespace {} --kubeconfig {}",
        env.namespace,
        kubeconfig.display()
    );
    let output = shell.run(&line).await?;
    let said = flat(&output.stderr);
    ensure!(
        output.status.code() == Some(4)
            && said.contains("not allowed to create")
            && said.contains(SAYS),
        "'{line}' {}: {said}",
        output.status
    );
    has_way_out(&shell, &env.namespace, &said).await?;
    Ok(Seen {
        reason: "403 Forbidden".to_owned(),
        seconds: Some(seconds),
        why: said,
    })
}

/// The output ends with a command that answers whether the user may use the Agent.
async fn has_way_out(shell: &Shell, namespace: &str, said: &str) -> Result<()> {
    let command = format!("kubectl auth can-i use agents.orchestrator.io/ok -n {namespace}");
    let (_, rest) = said
        .split_once(command.as_str())
        .with_context(|| format!("no '{command}' in: {said}"))?;
    let line = format!("{command}{rest}");
    let output = shell.run(&line).await?;
    ensure!(
        output.stdout.starts_with("no"),
        "'{line}' printed '{}' and '{}'",
        output.stdout,
        output.stderr
    );
    Ok(())
}

/// A TaskRun that is valid but for these fields of its spec. A field that is null is left out.
fn run(wrong: Value) -> Value {
    let mut spec = Tasks::spec(&(), "run");
    merge(&mut spec, wrong);
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    json!({
        "apiVersion": TaskRun::api_version(&()), "kind": TaskRun::kind(&()),
        "metadata": { "name": "run" }, "spec": spec,
    })
}

/// Invalid fields of a spec, and the words of the rejection.
fn invalid() -> Vec<(Value, &'static [&'static str])> {
    let file = |name: &str| json!({ "filename": name, "content": "text" });
    vec![
        (json!({ "taskId": null }), &["spec.taskId", "Required"]),
        (
            json!({ "taskId": 0 }),
            &["spec.taskId", "greater than or equal to 1"],
        ),
        (json!({ "taskId": "seven" }), &["spec.taskId", "integer"]),
        (
            json!({ "serviceName": "" }),
            &["spec.serviceName", "at least 1"],
        ),
        (
            json!({ "agentName": "Not A Name" }),
            &["spec.agentName", "should match"],
        ),
        (
            json!({ "contextVersion": 0 }),
            &["spec.contextVersion", "greater than or equal to 1"],
        ),
        (
            json!({ "markdownFiles": [] }),
            &["spec.markdownFiles", "at least 1"],
        ),
        (
            json!({ "markdownFiles": [file("../a.md")] }),
            &["spec.markdownFiles[0].filename", "should match"],
        ),
        (
            json!({ "markdownFiles": [file("a.md"), file("a.md")] }),
            &["spec.markdownFiles[1]", "Duplicate"],
        ),
        (json!({ "timeout": "soon" }), &["spec.timeout", "'1s'"]),
        (
            json!({ "retry": { "maxAttempts": 0 } }),
            &["spec.retry.maxAttempts", "greater than or equal to 1"],
        ),
    ]
}

/// The API server rejects each of eleven specs, and names the field.
pub(super) async fn invalid_specs(env: Env) -> Result<Seen> {
    operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
    let resource = kube::core::ApiResource::erase::<TaskRun>(&());
    let runs: Api<DynamicObject> =
        Api::namespaced_with(env.client.clone(), &env.namespace, &resource);
    let since = Instant::now();
    let all = invalid();
    let mut said = String::new();
    for (wrong, words) in &all {
        let object = serde_json::from_value(run(wrong.clone()))?;
        let created = runs.create(&PostParams::default(), &object).await;
        let Err(kube::Error::Api(status)) = created else {
            anyhow::bail!("{wrong} was not rejected: {created:?}");
        };
        said = status.message.clone();
        for word in *words {
            ensure!(said.contains(word), "{wrong}: no '{word}' in '{said}'");
        }
    }
    Ok(Seen {
        reason: format!("{} of {} rejected", all.len(), all.len()),
        seconds: Some(since.elapsed().as_secs_f64()),
        why: said,
    })
}

/// helm rejects an unknown key before anything is installed.
pub(super) async fn unknown_key(_env: Env) -> Result<Seen> {
    const KEY: &str = "concurency";
    let shell = Shell::without_cluster()?;
    let since = Instant::now();
    let line = chart::template("orchestrator", &format!("--set config.{KEY}=4"));
    let output = shell.run(&line).await?;
    let said = flat(&output.stderr);
    ensure!(
        !output.status.success() && said.contains(KEY),
        "'{line}' {}: {said}",
        output.status
    );
    Ok(Seen {
        reason: "helm: schema".to_owned(),
        seconds: Some(since.elapsed().as_secs_f64()),
        why: said,
    })
}
