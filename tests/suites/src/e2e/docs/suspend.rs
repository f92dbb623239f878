//! Runs that are suspended, and runs that are called off.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tasks::DocsRun;
use futures::future::try_join;
use kube::ResourceExt;
use serde_json::json;
use testkit::git::{Behaviour, Hook, Repository};

use super::{
    super::children::until_left,
    blocked::{BlockedRun, PUSH, Step, blocked, blocked_with, idle, nothing_or_one, writer},
    fixture::{Bench, Expect, LIMIT, brief, says_all},
};

pub(super) async fn suspended_before(bench: &Bench) -> Result<String> {
    let repository = bench.repository("early").await?;
    bench.agent("early", &writer(1), json!({})).await?;
    bench.submit("early", json!({ "suspend": true })).await?;
    let seen = bench.says("early", "Suspended").await?;
    bench.is_at_rest(&seen)?;
    let status = seen.status.clone().unwrap_or_default();
    says_all(&status, &["suspended before it was started"])?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // What it works on is what is there when it starts.
    let visits = repository.activity()?.read_visits;
    ensure!(visits == 0 && status.base_commit.is_none(), "{visits}");
    ensure!(bench.jobs_of(&seen).await?.is_empty(), "a Job");
    ensure!(bench.maps_of(&seen).await?.is_empty(), "a ConfigMap");
    bench.resume("early").await?;
    ends_well(bench, &seen, &repository).await?;
    // The same while the repository is being asked.
    let asked = blocked(bench, "asked", Step::Asking).await?;
    bench.suspend("asked").await?;
    let words = "suspended before it was started";
    bench.rests("asked", words).await?;
    asked.repository.set_behaviour(&Behaviour::Normal)?;
    bench.resume("asked").await?;
    ends_well(bench, &asked.run, &asked.repository).await?;
    Ok(brief(&status))
}

async fn ends_well(bench: &Bench, run: &DocsRun, repository: &Repository) -> Result<()> {
    let expect = Expect::after(&["Suspended"]);
    let name = run.name_any();
    let seen = bench.pushed(&name, repository, &expect).await?;
    ensure!(nothing_or_one(&seen, repository)?, "{name}: no commit");
    bench.deletes(&seen).await
}

/// Suspended during a step, the attempt begins again from its start when it is let go.
async fn suspended(bench: &Bench, name: &str, step: Step) -> Result<Repository> {
    let BlockedRun { run, repository } = blocked(bench, name, step).await?;
    bench.suspend(name).await?;
    let seen = bench.rests(name, "runs nothing").await?;
    let status = seen.status.clone().unwrap_or_default();
    ensure!(status.attempts == 1, "{} attempts", status.attempts);
    bench.is_held(&seen).await?;
    repository.set_behaviour(&Behaviour::Normal)?;
    repository.set_hook(&Hook::Accept)?;
    bench.resume(name).await?;
    ends_well(bench, &run, &repository).await?;
    Ok(repository)
}

/// What the server does with a push whose sender is gone is its own affair: the second Pod finds
/// it, or pushes. A clone begins again.
pub(super) async fn suspended_at_push(bench: &Bench) -> Result<String> {
    let clone = suspended(bench, "cloned", Step::Cloning);
    let push = async {
        let mut said = Vec::new();
        for (name, step) in PUSH {
            let seen = suspended(bench, name, step).await?.activity()?;
            said.push(format!("{name}: {} pushes", seen.pushes));
        }
        anyhow::Ok(said)
    };
    // On the heap: all of a case's states together are more than a thread's stack holds.
    let (_, said) = try_join(Box::pin(clone), Box::pin(push)).await?;
    // The first Pod's commit was there: the second one found it.
    ensure!(
        said.last().is_some_and(|last| last == "taken: 1 pushes"),
        "{said:?}"
    );
    Ok(said.join(", "))
}

async fn cancels(bench: &Bench, name: &str, expect: &Expect<'_>) -> Result<DocsRun> {
    bench.cancel(name).await?;
    let seen = bench.ended(name, expect).await?;
    bench.stays_cancelled(name).await?;
    Ok(seen)
}

fn cancelled<'a>(attempts: u32, says: &'a [&'a str]) -> Expect<'a> {
    Expect {
        says,
        attempts,
        // What an attempt left stays.
        jobs: if attempts == 0 { 0 } else { 1 },
        ..Expect::failure("Cancelled")
    }
}

pub(super) async fn cancelled_before(bench: &Bench) -> Result<String> {
    blocked(bench, "asked", Step::Asking).await?;
    blocked(bench, "agentless", Step::Agentless).await?;
    let repository = bench.repository("paused").await?;
    bench.submit("paused", json!({ "suspend": true })).await?;
    bench.says("paused", "Suspended").await?;
    let mut said = String::new();
    for name in ["asked", "agentless", "paused"] {
        let expect = cancelled(0, &["before it was started"]);
        let seen = cancels(bench, name, &expect).await?;
        ensure!(bench.maps_of(&seen).await?.is_empty(), "files without need");
        said = brief(&seen.status.clone().unwrap_or_default());
        bench.deletes(&seen).await?;
    }
    ensure!(repository.activity()?.read_visits == 0, "it was asked");
    Ok(said)
}

/// Before the push begins, nothing can have been pushed, and the message does not doubt it.
async fn cancelled_at_work(bench: &Bench) -> Result<()> {
    for (name, step) in [("cloned", Step::Cloning), ("written", Step::Writing(600))] {
        let held = blocked(bench, name, step).await?;
        let expect = cancelled(1, &["during attempt 1"]);
        let seen = cancels(bench, name, &expect).await?;
        bench.has_stopped(&seen).await?;
        ensure!(!nothing_or_one(&seen, &held.repository)?, "{name}: pushed");
        let said = brief(&seen.status.clone().unwrap_or_default());
        ensure!(!said.contains("pushed"), "{said}");
        bench.deletes(&seen).await?;
    }
    Ok(())
}

/// From then on nobody knows what the server made of it, and the message says so.
async fn cancelled_during_push(bench: &Bench) -> Result<String> {
    let mut said = String::new();
    for (name, step) in PUSH {
        let held = blocked(bench, name, step).await?;
        let look = format!(
            "git ls-remote {} refs/heads/docs/{name}",
            held.run.spec.repository_url
        );
        let words = ["during attempt 1", "whether it pushed is not known", &look];
        let seen = cancels(bench, name, &cancelled(1, &words)).await?;
        bench.has_stopped(&seen).await?;
        said = brief(&seen.status.clone().unwrap_or_default());
        idle(&held.repository).await?;
        nothing_or_one(&seen, &held.repository)?;
        bench.deletes(&seen).await?;
    }
    Ok(said)
}

pub(super) async fn cancelled_at_push(bench: &Bench) -> Result<String> {
    // On the heap: all of a case's states together are more than a thread's stack holds.
    let work = Box::pin(cancelled_at_work(bench));
    let push = Box::pin(cancelled_during_push(bench));
    let ((), said) = try_join(work, push).await?;
    Ok(said)
}

pub(super) async fn cancelled_at_verification(bench: &Bench) -> Result<String> {
    let keep = json!({ "childTTL": { "failed": "8s" } });
    let held = blocked_with(bench, "unread", Step::Verifying, keep).await?;
    let commit = held.run.status.clone().unwrap_or_default().commit;
    let commit = commit.context("no commit")?;
    let words = ["before the server confirmed", &commit];
    let expect = cancelled(1, &words);
    let seen = cancels(bench, "unread", &expect).await?;
    ensure!(nothing_or_one(&seen, &held.repository)?, "it was pushed");
    until_left(&bench.env, &seen, (0, 0, 0), LIMIT).await?;
    let said = brief(&seen.status.clone().unwrap_or_default());
    bench.deletes(&seen).await?;
    Ok(said)
}
