//! Who stops a Pod from outside: it uses no attempt, the run goes on, and there is one commit in
//! the end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tasks::DocsRun;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, EvictParams},
};
use serde_json::json;
use testkit::{
    audit::{Entry, Request},
    git::Hook,
    suite::Env,
};

use super::{
    super::events,
    held::{HOOK, Held, Step, held, held_with, nothing_or_one, says, writer},
    kit::{Bench, Expect, LIMIT, reason_of},
};

/// At each step: a name, and whether the first Pod's push came through for sure.
const STEPS: [(&str, Step, bool); 3] = [
    ("written", Step::Writing(5), false),
    ("pushed", Step::Pushing(HOOK), false),
    ("taken", Step::Pushed(HOOK), true),
];

fn pod_name(run: &DocsRun) -> Result<String> {
    let status = run.status.as_ref();
    let pod = status.and_then(|status| status.pod.as_ref());
    Ok(pod.context("no Pod in the status")?.name.clone())
}

/// The run succeeds, in this many Jobs; what was pushed by the first Pod is not pushed again.
async fn goes_on(
    bench: &Bench,
    held: &Held,
    (event, jobs): (&'static str, usize),
    has_pushed: bool,
) -> Result<DocsRun> {
    let name = held.run.name_any();
    let events = [event, "Succeeded"];
    let expect = Expect {
        events: &events,
        disruptions: 1,
        jobs,
        ..Expect::default()
    };
    let run = bench
        .pushed(&name, &held.repository, &expect)
        .await
        .with_context(|| name.clone())?;
    ensure!(nothing_or_one(&run, &held.repository)?, "{name}: no commit");
    let seen = held.repository.activity()?;
    ensure!(
        seen.accepted == 1 && (!has_pushed || seen.pushes == 1),
        "{name}: {seen:?}"
    );
    let message = says(&run.status.clone().unwrap_or_default()).to_owned();
    ensure!(message.contains("is on branch"), "{name}: {message}");
    Ok(run)
}

/// The Job controller replaces what was evicted: the same Job.
pub(super) async fn evicted(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let pods: Api<Pod> = bench.env.api();
    let mut said = Vec::new();
    for (name, step, has_pushed) in STEPS {
        let held = held(&bench, name, step).await?;
        let pod = pod_name(&held.run)?;
        pods.evict(&pod, &EvictParams::default()).await?;
        held.repository.set_hook(&Hook::Accept)?;
        let run = goes_on(&bench, &held, ("Disrupted", 1), has_pushed).await?;
        let second = run.status.clone().and_then(|status| status.result);
        let second = second.and_then(|result| result.pod_name);
        ensure!(second.is_some_and(|second| second != pod), "another Pod");
        said.push(format!("{name}: {}", held.repository.activity()?.pushes));
        bench.deletes(&run).await?;
    }
    bench.done().await?;
    Ok(format!("one commit each; pushes: {}", said.join(", ")))
}

/// What a Pod returns after it was told to stop is no result: another Job follows.
pub(super) async fn pod_by_hand(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let pods: Api<Pod> = bench.env.api();
    let mut said = Vec::new();
    for (name, step, has_pushed) in STEPS {
        let held = held(&bench, name, step).await?;
        pods.delete(&pod_name(&held.run)?, &DeleteParams::default())
            .await?;
        held.repository.set_hook(&Hook::Accept)?;
        let run = goes_on(&bench, &held, ("Disrupted", 2), has_pushed).await?;
        let job = run.status.clone().and_then(|status| status.job_name);
        ensure!(job == Some(format!("{name}-docs-d1")), "{job:?}");
        said.push(format!("{name}: {}", held.repository.activity()?.pushes));
        bench.deletes(&run).await?;
    }
    bench.done().await?;
    Ok(format!("one commit each; pushes: {}", said.join(", ")))
}

pub(super) async fn job_by_hand(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let jobs: Api<Job> = bench.env.api();
    let mut said = Vec::new();
    let ways = [
        DeleteParams::background(),
        DeleteParams::foreground(),
        DeleteParams::background(),
    ];
    for ((name, step, has_pushed), way) in STEPS.into_iter().zip(ways) {
        let held = held(&bench, name, step).await?;
        jobs.delete(&format!("{name}-docs"), &way).await?;
        held.repository.set_hook(&Hook::Accept)?;
        let run = goes_on(&bench, &held, ("JobLost", 1), has_pushed).await?;
        said.push(format!("{name}: {}", held.repository.activity()?.pushes));
        bench.deletes(&run).await?;
    }
    bench.done().await?;
    Ok(format!("one commit each; pushes: {}", said.join(", ")))
}

/// What the operator wrote for one run from its creation to its end, in order.
fn writes(entries: &[Entry], user: &str) -> Vec<String> {
    let is_of_run = |request: &Request| {
        let of_others = ["leases", "events", "agents"];
        request.user == user
            && request.is_write()
            && !of_others
                .iter()
                .any(|other| request.resource.starts_with(other))
    };
    entries
        .iter()
        .filter(|entry| is_of_run(&entry.request))
        .map(|entry| {
            let resource = entry.request.resource.replace(".orchestrator.io", "");
            format!("{} {resource}", entry.request.verb)
        })
        .collect()
}

/// What can be pushed is recorded first, then the run is held, then its children are made; each
/// step is recorded once, and the finalizer goes with the outcome.
fn is_ordinary(writes: &[String]) -> bool {
    let head = [
        "patch docsruns/status",
        "patch docsruns",
        "create configmaps",
        "create jobs.batch",
    ];
    let Some((last, records)) = writes.get(head.len()..).and_then(<[_]>::split_last) else {
        return false;
    };
    writes[..head.len()] == head
        && last == "patch docsruns"
        // Job, clone, agent, publish, verify, end; a quick clone or push is not seen.
        && (4..=6).contains(&records.len())
        && records.iter().all(|record| record == "patch docsruns/status")
}

pub(super) async fn quiet(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let cluster = bench.env.testbed("the audit log")?;
    let audit = cluster.audit();
    let user = bench.operator.user.clone();
    // The writes of one ordinary run.
    let repository = bench.repository("done").await?;
    bench.agent("done", &writer(1), json!({})).await?;
    let mark = audit.mark(&bench.env.client).await?;
    bench.submit("done", json!({})).await?;
    let done = bench
        .pushed("done", &repository, &Expect::default())
        .await?;
    let entries = audit.entries(&bench.env.client, mark).await?;
    let ordinary = writes(&entries, &user);
    let mut told = events::ours(&bench.env, &done.uid().unwrap_or_default()).await?;
    told.sort_by_key(|event| event.event_time.clone());
    let told: Vec<String> = told
        .into_iter()
        .map(|event| {
            format!(
                "{} {}",
                event.reason.unwrap_or_default(),
                event.note.unwrap_or_default()
            )
        })
        .collect();
    let again = entries
        .iter()
        .filter(|entry| entry.request.user == user && entry.code == 409)
        .count();
    ensure!(
        again == 0 && is_ordinary(&ordinary),
        "{again} refused; {ordinary:#?}, {told:#?}"
    );

    // All that waits or is over.
    let never = json!({ "repositoryUrl": "https://198.18.0.1:1/none.git" });
    held(&bench, "agentless", Step::Agentless).await?;
    held(&bench, "unanswered", Step::Asking).await?;
    held(&bench, "unread", Step::Verifying).await?;
    held(&bench, "written", Step::Writing(600)).await?;
    held_with(&bench, "paused", Step::Writing(600), json!({})).await?;
    bench
        .patch("paused", json!({ "spec": { "suspend": true } }))
        .await?;
    bench.agent("unreachable", "true", json!({})).await?;
    bench.agent("bad", "exit 3", json!({})).await?;
    bench.submit("unreachable", never).await?;
    let url = bench.git.https_url("done");
    bench.submit("bad", json!({ "repositoryUrl": url })).await?;
    bench.ended("bad", &Expect::failure("NonZeroExit")).await?;
    for name in ["unanswered", "unreachable"] {
        bench.says(name, "RepositoryUnreachable").await?;
    }
    bench
        .until("paused", LIMIT, "suspended", |status| {
            reason_of(status) == "Suspended" && says(status).contains("runs nothing")
        })
        .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mark = audit.mark(&bench.env.client).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let counts = audit.counts(&bench.env.client, mark).await?;
    let of_ours = |request: &Request| request.user == user && request.is_write();
    let is_lease = |request: &Request| request.resource.starts_with("leases");
    let count = counts.of(|request| of_ours(request) && !is_lease(request));
    let renewals = counts.of(|request| of_ours(request) && is_lease(request));
    ensure!(count == 0, "{count} writes in 60 s:\n{counts}");
    ensure!(
        renewals >= 5,
        "the operator was not there: {renewals} renewals"
    );
    bench.done().await?;
    Ok(format!(
        "one run: {} writes ({}), {} Events; then none in 60 s for 8 runs",
        ordinary.len(),
        ordinary.join(", "),
        told.len()
    ))
}
