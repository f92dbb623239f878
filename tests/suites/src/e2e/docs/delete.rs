//! A run is deleted, at each of its steps: it and its children go, and the remote has whole commits
//! only.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::names;
use kube::{ResourceExt, api::DeleteParams};
use serde_json::json;
use testkit::{git::Hook, suite::Env};

use super::{
    super::{
        children::{Doomed, until_gone},
        fixture::RunKind,
    },
    blocked::{BlockedRun, HOOK, PUSH, Step, blocked, idle, nothing_or_one, says, writer},
    fixture::{Bench, Docs, Expect, LIMIT, reason_of, says_all},
};

const FINALIZER: &str = "docsruns.orchestrator.io/finalizer";

/// Deletes a run that has children: its finalizer holds it until they are gone.
async fn goes(bench: &Bench, held: &BlockedRun) -> Result<()> {
    let name = held.run.name_any();
    ensure!(
        held.run.finalizers() == [FINALIZER],
        "{name}: {:?}",
        held.run.finalizers()
    );
    bench.deletes(&held.run).await
}

pub(super) async fn before(bench: &Bench) -> Result<String> {
    for (name, step) in [("asked", Step::Asking), ("agentless", Step::Agentless)] {
        let held = blocked(bench, name, step).await?;
        // Nothing was made that it would have to wait for.
        ensure!(bench.jobs_of(&held.run).await?.is_empty(), "a Job");
        ensure!(held.run.finalizers().is_empty(), "{name} is held");
        bench.deletes(&held.run).await?;
        let has_pushed = nothing_or_one(&held.run, &held.repository)?;
        ensure!(!has_pushed, "{name}: pushed");
    }
    Ok("gone while it was asked for, and while there was no Agent".to_owned())
}

pub(super) async fn at_work(bench: &Bench) -> Result<String> {
    for (name, step) in [("cloned", Step::Cloning), ("written", Step::Writing(600))] {
        let held = blocked(bench, name, step).await?;
        goes(bench, &held).await?;
        let has_pushed = nothing_or_one(&held.run, &held.repository)?;
        ensure!(!has_pushed, "{name}: pushed");
    }
    Ok("gone with Job, Pod and ConfigMap".to_owned())
}

/// What the remote has then is nothing or one whole commit, and the next run of that name works on
/// it.
pub(super) async fn at_push(bench: &Bench) -> Result<String> {
    let mut said = Vec::new();
    for (name, step) in PUSH {
        let held = blocked(bench, name, step).await?;
        goes(bench, &held).await?;
        // The server may go on with what it received.
        idle(&held.repository).await?;
        let has_pushed = nothing_or_one(&held.run, &held.repository)?;
        ensure!(
            has_pushed == (held.repository.activity()?.accepted == 1),
            "{name}: {:?}",
            held.repository.activity()?
        );
        said.push(format!("{name}: {}", u8::from(has_pushed)));
        held.repository.set_hook(&Hook::Accept)?;
        bench.submit(name, json!({})).await?;
        let run = bench
            .pushed(name, &held.repository, &Expect::default())
            .await?;
        bench.deletes(&run).await?;
    }
    ensure!(
        said.last().is_some_and(|last| last == "taken: 1"),
        "{said:?}"
    );
    Ok(format!("commits on the remote: {}", said.join(", ")))
}

pub(super) async fn verifying(bench: &Bench) -> Result<String> {
    let held = blocked(bench, "unread", Step::Verifying).await?;
    goes(bench, &held).await?;
    ensure!(nothing_or_one(&held.run, &held.repository)?, "not pushed");
    Ok("gone, and its commit stays".to_owned())
}

/// A run that is over is not held: no operator is needed.
pub(super) async fn over(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let repository = bench.repository("good").await?;
    bench.agent("good", &writer(1), json!({})).await?;
    bench.agent("bad", "exit 3", json!({})).await?;
    bench.submit("good", json!({})).await?;
    let url = bench.git.https_url("good");
    bench.submit("bad", json!({ "repositoryUrl": url })).await?;
    let good = bench
        .pushed("good", &repository, &Expect::default())
        .await?;
    let bad = bench.ended("bad", &Expect::failure("NonZeroExit")).await?;
    let down = bench.stopped().await?;
    let runs = down.runs();
    for name in ["good", "bad"] {
        runs.delete(name, &DeleteParams::default()).await?;
        until_gone(&runs, name, Duration::from_secs(5)).await?;
    }
    let bench = down.up().await?;
    for run in [&good, &bad] {
        bench.is_gone(run, LIMIT).await?;
    }
    ensure!(nothing_or_one(&good, &repository)?, "its commit is gone");
    bench.done().await?;
    Ok("gone with their children, by the garbage collector alone".to_owned())
}

pub(super) async fn operator_down(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let writes = blocked(&bench, "writes", Step::Writing(600)).await?;
    let pushes = blocked(&bench, "pushes", Step::Pushing(HOOK)).await?;
    // Stopped well: its Lease is free at once.
    let down = bench.stopped().await?;
    let runs = down.runs();
    for held in [&writes, &pushes] {
        runs.delete(&held.run.name_any(), &DeleteParams::default())
            .await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    for held in [&writes, &pushes] {
        let seen = runs.get(&held.run.name_any()).await?;
        ensure!(seen.finalizers() == [FINALIZER], "it is held");
    }
    let bench = down.up().await?;
    for held in [&writes, &pushes] {
        bench.is_gone(&held.run, LIMIT).await?;
    }
    ensure!(!nothing_or_one(&writes.run, &writes.repository)?, "pushed");
    nothing_or_one(&pushes.run, &pushes.repository)?;
    bench.done().await?;
    Ok("held while it was down, gone when it was back".to_owned())
}

pub(super) async fn with_namespace(mut env: Env) -> Result<String> {
    let doomed = Doomed::new(&env).await?;
    let home = std::mem::replace(&mut env.namespace, doomed.name.clone());
    let watched = vec![doomed.name.clone()];
    let bench = Bench::planned(env, home, watched, Docs::LINES).await?;
    blocked(&bench, "agentless", Step::Agentless).await?;
    blocked(&bench, "asked", Step::Asking).await?;
    blocked(&bench, "unread", Step::Verifying).await?;
    blocked(&bench, "written", Step::Writing(600)).await?;
    let last = blocked(&bench, "pushed", Step::Pushing(HOOK)).await?;
    doomed.delete().await?;
    nothing_or_one(&last.run, &last.repository)?;
    bench.done().await?;
    Ok("five runs and their namespace are gone".to_owned())
}

/// Its Pod does not stop for half a minute: who does not want to wait need not.
pub(super) async fn forced(bench: &Bench) -> Result<String> {
    bench.repository("forced").await?;
    let script = "trap '' TERM; while true; do sleep 1; done";
    bench.start("forced", script).await?;
    let run = bench.running("forced").await?;
    bench.delete("forced").await?;
    let seen = bench
        .until("forced", Duration::from_secs(10), "deleting", |status| {
            reason_of(status) == "Deleting" && says(status).contains("Job 'forced-docs'")
        })
        .await?;
    let status = seen.status.unwrap_or_default();
    says_all(&status, &["to stop"])?;
    let force = json!({ "metadata": { "annotations": { names::FORCE_DELETE: "true" } } });
    bench.patch("forced", force).await?;
    until_gone(&bench.runs(), "forced", Duration::from_secs(5)).await?;
    bench.is_gone(&run, LIMIT).await?;
    Ok(format!("{}; then it was gone at once", says(&status)))
}
