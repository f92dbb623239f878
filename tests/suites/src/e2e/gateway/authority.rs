//! Whose permissions count: those of the caller, and nobody else's.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use api::{names, policy, tasks::TaskRun};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use testkit::{
    audit::Mark,
    suite::{Env, create, new_namespace},
    wait::{met, until},
};

use super::{
    attack_table::{Kind, listed, noted, succeeded_without_policies, withstood},
    client::{Answer, Call, action, delete, get, post},
    fixture::{Caller, HOME, Stage, TASKS, context, context_of, new_run, task},
};
use crate::e2e::{
    chart,
    policies::{Attempt, Bound, accepted, client_of, rejected},
};

/// A text in the objects of another namespace.
const CANARY: &str = "canary-of-another-namespace";

/// Requests of all sorts: the audit log has their callers only.
pub(super) async fn audited(env: Env) -> Result<String> {
    let audit = env.testbed("the audit log")?.audit();
    let stage = Stage::new(env.clone()).await?;
    let (ann, vic) = (stage.editor("ann").await?, stage.viewer("vic").await?);
    let mark = audit.mark(&env.client).await?;
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    let added = post(context_of(7), &context(2));
    stage.send(&ann, added).await?.is(200)?;
    for part in ["", "files", "why", "events", "logs"] {
        stage
            .send(&vic, get(stage.at("task-7", part)))
            .await?
            .is(200)?;
    }
    stage.send(&vic, get("/api/v1/whoami")).await?.is(200)?;
    for change in ["suspend", "resume", "cancel"] {
        stage
            .send(&ann, action(stage.at("task-7", change)))
            .await?
            .is(200)?;
    }
    let denied = stage.send(&vic, delete(stage.at("task-7", ""))).await?;
    denied.fails(403, "Denied")?;
    stage
        .send(&ann, delete(stage.at("task-7", "")))
        .await?
        .is(202)?;

    let entries = audit.entries(&env.client, mark).await?;
    let own = entries.iter().filter(|entry| {
        entry.agent.starts_with("orchestrator/")
            && (entry.request.namespace == env.namespace
                || entry.request.user.contains(&env.namespace))
    });
    let users: BTreeSet<&str> = own
        .clone()
        .map(|entry| entry.request.user.as_str())
        .collect();
    let wanted = BTreeSet::from([ann.user.as_str(), vic.user.as_str()]);
    ensure!(users == wanted, "requests of {users:?}");
    let writes = own.clone().filter(|entry| entry.request.is_write());
    let by_vic = writes.filter(|entry| {
        let is_review = entry.request.resource.starts_with("selfsubject");
        entry.request.user == vic.user && !is_review && entry.code < 300
    });
    ensure!(by_vic.count() == 0, "a viewer wrote");
    let gateway = &stage.gateway.operator.user;
    ensure!(
        entries.iter().all(|entry| entry.request.user != *gateway),
        "the gateway sent a request as itself"
    );
    let count = own.count();
    stage.done().await?;
    Ok(format!("{count} requests, all of their callers"))
}

/// After all other cases: the gateways used exactly the permissions that the chart grants them.
pub(super) async fn no_own_requests(env: Env) -> Result<String> {
    let audit = env.testbed("the audit log")?.audit();
    let account = format!("system:serviceaccount:{HOME}");
    let entries = audit.entries(&env.client, Mark::default()).await?;
    let own = entries.iter().map(|entry| &entry.request);
    let own = own.filter(|request| request.user.starts_with(&account));
    let used: BTreeSet<(String, String)> = own
        .map(|request| (request.verb.clone(), request.resource.clone()))
        .collect();
    let granted = chart::gateway_permissions().await?;
    ensure!(used == granted, "granted {granted:?}, used {used:?}");
    let all = entries.iter();
    let count = all.filter(|entry| entry.agent.starts_with("orchestrator/"));
    let count = count.count();
    ensure!(count > 0, "no other case ran, so there is nothing to judge");
    Ok(format!(
        "{count} requests of callers; of the gateways themselves: {} permissions granted, {} used",
        granted.len(),
        used.len()
    ))
}

/// Headers with which servers and proxies name another user.
pub(super) async fn impersonation(stage: &Stage) -> Result<String> {
    let (ann, vic) = (stage.editor("ann").await?, stage.viewer("vic").await?);
    let headers = [
        ("impersonate-user", "admin"),
        ("impersonate-group", "system:masters"),
        ("impersonate-uid", "1"),
        ("impersonate-extra-scopes", "all"),
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-scopes", "all"),
        ("x-forwarded-user", "admin"),
        ("x-forwarded-groups", "system:masters"),
        ("x-forwarded-email", "admin"),
        ("x-auth-request-user", "admin"),
        ("x-original-user", "admin"),
        ("forwarded", "for=127.0.0.1;by=admin"),
        ("proxy-authorization", "Basic YWRtaW46YWRtaW4="),
        ("x-http-method-override", "DELETE"),
    ];
    for (name, value) in headers {
        let who = get("/api/v1/whoami").with(name, value);
        let body = stage.send(&ann, who).await?.is(200)?;
        let is_ann = body["username"] == ann.user && !body.to_string().contains("masters");
        withstood(
            Kind::Identity,
            name,
            is_ann.then_some(()).context("another user"),
        )?;
        let submit = post(TASKS, &task(7)).with(name, value);
        let answer = stage.send(&vic, submit).await?;
        withstood(Kind::Identity, name, answer.refuses(403, &vic.user))?;
    }
    let all = headers
        .iter()
        .fold(post(TASKS, &task(8)), |call, (name, value)| {
            call.with(name, *value)
        });
    stage.send(&ann, all).await?.is(200)?;
    let run = stage.run("task-8").await?;
    let author = run.annotations().get(names::SUBMITTED_BY);
    ensure!(author == Some(&ann.user), "submitted by {author:?}");
    stage.has_runs(1).await?;
    Ok(listed(headers.iter().map(|(name, _)| *name)))
}

/// A namespace with a run, in which the callers of the case have no permissions.
struct Elsewhere {
    namespace: String,
    runs: Api<TaskRun>,
    before: Value,
}

impl Elsewhere {
    async fn new(stage: &Stage) -> Result<Self> {
        let client = &stage.env.client;
        let namespace = new_namespace(client, json!({ "generateName": "t-elsewhere-" })).await?;
        let runs: Api<TaskRun> = Api::namespaced(client.clone(), &namespace);
        let run = json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "theirs", "labels": { "canary": CANARY } },
            "spec": {
                "taskId": 7, "serviceName": CANARY, "agentName": "writer",
                "markdownFiles": [{ "filename": "task.md", "content": CANARY }],
            },
        });
        let run = create(&runs, run).await?;
        Ok(Self {
            namespace,
            runs,
            before: serde_json::to_value(run)?,
        })
    }

    fn at(&self, part: &str) -> String {
        format!("/api/v1/namespaces/{}/taskruns{part}", self.namespace)
    }

    /// Nothing was created or changed.
    async fn is_untouched(&self) -> Result<()> {
        let found = self.runs.list(&ListParams::default()).await?.items;
        let [run] = found.as_slice() else {
            anyhow::bail!("{} runs", found.len());
        };
        let now = serde_json::to_value(run)?;
        for field in ["metadata", "spec"] {
            ensure!(now[field] == self.before[field], "{field}: {}", now[field]);
        }
        Ok(())
    }

    async fn done(self, stage: &Stage) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(stage.env.client.clone());
        let gone = DeleteParams::default();
        namespaces.delete(&self.namespace, &gone).await?;
        Ok(())
    }
}

/// A rejection that tells nothing about the object.
fn tells_nothing(answer: &Answer) -> Result<()> {
    answer.fails(403, "Denied")?;
    let text = answer.text();
    ensure!(!text.contains(CANARY), "it tells of the object: {text}");
    Ok(())
}

/// Reads of a run in a namespace in which the caller has no permissions.
pub(super) async fn reads_elsewhere(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let elsewhere = Elsewhere::new(stage).await?;
    let attacks = [
        ("the run", elsewhere.at("/theirs")),
        ("its files", elsewhere.at("/theirs/files")),
        ("a file", elsewhere.at("/theirs/files/task.md")),
        ("its log", elsewhere.at("/theirs/logs")),
        ("its explanation", elsewhere.at("/theirs/why")),
        ("its Events", elsewhere.at("/theirs/events")),
        ("a run that does not exist", elsewhere.at("/missing")),
        ("its stream", elsewhere.at("/theirs/stream")),
        (
            "a DocsRun",
            format!("/api/v1/namespaces/{}/docsruns/theirs", elsewhere.namespace),
        ),
        ("its followed log", elsewhere.at("/theirs/logs?follow=true")),
        ("its differences", elsewhere.at("/theirs/diff?from=1&to=1")),
        (
            "the runs of the namespace",
            format!("/api/v1/runs?namespace={}", elsewhere.namespace),
        ),
        (
            "their stream",
            format!("/api/v1/runs/stream?namespace={}", elsewhere.namespace),
        ),
        ("the runs of all namespaces", "/api/v1/runs".to_owned()),
        (
            "the stream of all namespaces",
            "/api/v1/runs/stream".to_owned(),
        ),
        (
            "the Agents of the namespace",
            format!("/api/v1/agents?namespace={}", elsewhere.namespace),
        ),
        ("the Agents of all namespaces", "/api/v1/agents".to_owned()),
        ("all namespaces", "/api/v1/namespaces".to_owned()),
        ("all Tenants", "/api/v1/tenants".to_owned()),
        ("a Tenant", "/api/v1/tenants/acme".to_owned()),
        (
            "a Tenant's explanation",
            "/api/v1/tenants/acme/why".to_owned(),
        ),
    ];
    for (name, path) in &attacks {
        let answer = stage.send(&ann, get(path.clone())).await?;
        withstood(Kind::Namespace, name, tells_nothing(&answer))?;
    }
    // A list of several namespaces has the runs of those that the caller may read.
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    let both = format!("{},{}", stage.env.namespace, elsewhere.namespace);
    let list = get(format!("/api/v1/runs?namespace={both}&kind=taskruns"));
    let list = stage.send(&ann, list).await?;
    list.is(200)?;
    let text = list.text();
    ensure!(text.contains("task-7"), "the own run is missing: {text}");
    let is_hidden = (!text.contains(CANARY) && !text.contains("theirs")).then_some(());
    let is_hidden = is_hidden.with_context(|| text.clone());
    withstood(Kind::Namespace, "their runs beside the own ones", is_hidden)?;
    elsewhere.done(stage).await?;
    Ok(listed(attacks.iter().map(|(name, _)| *name)))
}

/// Actions on a run in a namespace in which the caller has no permissions.
pub(super) async fn actions_elsewhere(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let elsewhere = Elsewhere::new(stage).await?;
    let submit = post(elsewhere.at(""), &new_run("mine", "writer"));
    let docs = json!({
        "name": "guide", "repositoryUrl": "https://git.example/team/shop",
        "sourceBranch": "main", "agentName": "writer",
    });
    let files = json!({ "files": [{ "filename": "more.md", "content": "x" }] });
    let docs_path = format!("/api/v1/namespaces/{}/docsruns", elsewhere.namespace);
    let attacks: Vec<(&str, Call)> = vec![
        ("submit", submit.clone()),
        (
            "submit with a key",
            submit.clone().with("idempotency-key", "k"),
        ),
        (
            "submit without storing",
            post(elsewhere.at("?dryRun=true"), &new_run("mine", "writer")),
        ),
        (
            "submit the name of their run",
            post(elsewhere.at(""), &new_run("theirs", "writer")),
        ),
        ("submit a DocsRun", post(docs_path, &docs)),
        ("add context", post(elsewhere.at("/theirs/context"), &files)),
        ("cancel", action(elsewhere.at("/theirs/cancel"))),
        ("suspend", action(elsewhere.at("/theirs/suspend"))),
        ("resume", action(elsewhere.at("/theirs/resume"))),
        ("retry", action(elsewhere.at("/theirs/retry"))),
        ("delete", delete(elsewhere.at("/theirs"))),
    ];
    for (name, call) in &attacks {
        let answer = stage.send(&ann, call.clone()).await?;
        withstood(Kind::Namespace, name, tells_nothing(&answer))?;
    }
    withstood(
        Kind::Namespace,
        "a change of their run",
        elsewhere.is_untouched().await,
    )?;
    elsewhere.done(stage).await?;
    Ok(listed(attacks.iter().map(|(name, _)| *name)))
}

/// Actions of a caller that may only read, on a run of the own namespace.
pub(super) async fn viewer_writes(stage: &Stage) -> Result<String> {
    let (ann, vic) = (stage.editor("ann").await?, stage.viewer("vic").await?);
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    let before = stage.run("task-7").await?;
    let files = json!({ "files": [{ "filename": "more.md", "content": "x" }] });
    let attacks: Vec<(&str, Call)> = vec![
        ("submit", post(stage.taskruns(), &new_run("mine", "writer"))),
        (
            "submit without storing",
            post(
                format!("{}?dryRun=true", stage.taskruns()),
                &new_run("mine", "writer"),
            ),
        ),
        ("add context", post(stage.at("task-7", "context"), &files)),
        ("cancel", action(stage.at("task-7", "cancel"))),
        ("suspend", action(stage.at("task-7", "suspend"))),
        ("delete", delete(stage.at("task-7", ""))),
    ];
    for (name, call) in &attacks {
        let answer = stage.send(&vic, call.clone()).await?;
        withstood(Kind::Permission, name, answer.fails(403, "Denied"))?;
    }
    // Nothing is to be written: the run is not suspended, and has not finished.
    let resumed = action(stage.at("task-7", "resume"));
    let body = stage.send(&vic, resumed).await?.is(200)?;
    ensure!(body["changed"] == false, "{body}");
    let retried = action(stage.at("task-7", "retry"));
    stage.send(&vic, retried).await?.fails(409, "NotFinished")?;
    let after = stage.run("task-7").await?;
    ensure!(
        after.resource_version() == before.resource_version(),
        "it was written to"
    );
    stage.has_runs(1).await?;
    Ok(listed(attacks.iter().map(|(name, _)| *name)))
}

/// Permission for runs is not permission for their Events.
pub(super) async fn events_need_permission(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let runs_only = json!([
        { "apiGroups": ["orchestrator.io"], "resources": ["taskruns"], "verbs": ["get"] },
    ]);
    let rita = stage.caller("rita", runs_only).await?;
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    stage
        .send(&rita, get(stage.at("task-7", "")))
        .await?
        .is(200)?;
    for (part, name) in [("events", "Events of a run"), ("logs", "the log of a run")] {
        let answer = stage.send(&rita, get(stage.at("task-7", part))).await?;
        let body = withstood(Kind::Permission, name, answer.fails(403, "Denied"))?;
        let detail = body["detail"].as_str().unwrap_or_default();
        ensure!(detail.contains("list pods"), "{detail}");
    }
    Ok("403 for Events and logs; the detail names the permission".to_owned())
}

/// Names of authors that are not the caller's.
pub(super) async fn authors(stage: &Stage) -> Result<String> {
    let env = &stage.env;
    let (ann, bob) = (stage.editor("ann").await?, stage.editor("bob").await?);
    stage.send(&ann, post(TASKS, &task(7))).await?.is(200)?;
    let path = format!(
        "/apis/orchestrator.io/v1/namespaces/{}/taskruns",
        env.namespace
    );
    let by = |author: &str| {
        json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "forged", "annotations": { names::SUBMITTED_BY: author } },
            "spec": {
                "taskId": 8, "serviceName": "shop", "agentName": "writer",
                "markdownFiles": [{ "filename": "task.md", "content": "x" }],
            },
        })
    };
    let changed =
        |value: Value| json!({ "metadata": { "annotations": { names::SUBMITTED_BY: value } } });
    let says = "has the name of the author";
    let one = format!("{path}/task-7");
    let attempts = [
        Attempt::create("a run of an administrator", &path, by("admin"), says),
        Attempt::create("a run of another user", &path, by(&ann.user), says),
        Attempt::create("a run of nobody", &path, by(""), says),
        Attempt::patch("another author", &one, changed(json!(bob.user)), says),
        Attempt::patch("no author", &one, changed(Value::Null), says),
    ];
    let client = client_of(env, &bob.user)?;
    // Without the policy, each attempt succeeds: otherwise it would show nothing.
    accepted(&client, &attempts).await?;
    for attempt in &attempts {
        succeeded_without_policies(attempt.what);
    }
    let mut policies = policy::tasks();
    policies.retain(|policy| policy.name_any().ends_with("submitted-by"));
    ensure!(policies.len() == 1, "{} policies", policies.len());
    let bound = Bound::new(env, policies, Some(&env.namespace)).await?;
    rejected(&client, &attempts).await?;
    for attempt in &attempts {
        noted(Kind::Policy, attempt.what, Ok(()))?;
    }
    let own = Attempt::create("a run of the caller", &path, by(&bob.user), "");
    accepted(&client, &[own]).await?;

    // The gateway names its caller, and cannot be told another name.
    stage.send(&bob, post(TASKS, &task(8))).await?.is(200)?;
    let run = stage.run("task-8").await?;
    let author = run.annotations().get(names::SUBMITTED_BY);
    ensure!(author == Some(&bob.user), "submitted by {author:?}");
    let mut body = new_run("mine", "writer");
    body["metadata"] = json!({ "annotations": { names::SUBMITTED_BY: "admin" } });
    let answer = stage.send(&bob, post(stage.taskruns(), &body)).await?;
    withstood(
        Kind::Identity,
        "metadata in the body",
        answer.fails(400, "InvalidRequest"),
    )?;
    let mut body = task(9);
    body["submitted_by"] = json!("admin");
    let answer = stage.send(&bob, post(TASKS, &body)).await?;
    withstood(
        Kind::Identity,
        "an author in the body",
        answer.refuses(400, "submitted_by"),
    )?;
    // Another author extends a run; its author stays.
    let added = post(context_of(7), &context(2));
    stage.send(&bob, added).await?.is(200)?;
    let run = stage.run("task-7").await?;
    let author = run.annotations().get(names::SUBMITTED_BY);
    ensure!(author == Some(&ann.user), "submitted by {author:?}");
    bound.release().await?;
    let names = attempts.iter().map(|attempt| attempt.what);
    Ok(listed(
        names.chain(["metadata in the body", "an author in the body"]),
    ))
}

/// The author of a run needs the verb `use` on its Agent, also through the gateway.
pub(super) async fn use_of_agents(stage: &Stage) -> Result<String> {
    let env = &stage.env;
    let ann = stage.editor("ann").await?;
    let submit = |name: &str| {
        post(
            format!("{}?dryRun=true", stage.taskruns()),
            &new_run(name, "writer"),
        )
    };
    // Without the policy, it is accepted.
    stage.send(&ann, submit("first")).await?.is(201)?;
    let mut policies = policy::tasks();
    policies.retain(|policy| policy.name_any().ends_with("use-agent"));
    ensure!(policies.len() == 1, "{} policies", policies.len());
    let bound = Bound::new(env, policies, Some(&env.namespace)).await?;
    let limit = std::time::Duration::from_secs(30);
    until("the policy to act", limit, async || {
        let status = stage.send(&ann, submit("second")).await?.status;
        Ok(met(status == 403, || format!("{status}")))
    })
    .await?;
    let answer = stage.send(&ann, submit("third")).await?;
    let body = withstood(
        Kind::Permission,
        "an Agent without 'use'",
        answer.fails(403, "Denied"),
    )?;
    let detail = body["detail"].as_str().unwrap_or_default();
    ensure!(detail.contains("'use' the Agent 'writer'"), "{detail}");
    let seed = stage.send(&ann, post(TASKS, &task(7))).await?;
    withstood(
        Kind::Permission,
        "the same at the endpoint of the seed",
        seed.refuses(403, "use"),
    )?;
    stage.has_runs(0).await?;
    permit_use(env, &ann).await?;
    until("the permission to act", limit, async || {
        let status = stage.send(&ann, submit("fourth")).await?.status;
        Ok(met(status == 201, || format!("{status}")))
    })
    .await?;
    bound.release().await?;
    Ok("403 with the missing permission, then 201".to_owned())
}

async fn permit_use(env: &Env, caller: &Caller) -> Result<()> {
    let role = json!({
        "metadata": { "name": "user-of-writer" },
        "rules": [{ "apiGroups": ["orchestrator.io"], "resources": ["agents"], "resourceNames": ["writer"], "verbs": ["use"] }],
    });
    env.create::<Role>(role).await?;
    let binding = json!({
        "metadata": { "name": "user-of-writer" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user-of-writer" },
        "subjects": [{ "kind": "ServiceAccount", "name": caller.account, "namespace": caller.namespace }],
    });
    env.create::<RoleBinding>(binding).await?;
    Ok(())
}
