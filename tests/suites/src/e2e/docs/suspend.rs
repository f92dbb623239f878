//! Runs that are suspended, and runs that are called off.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tasks::{DocsRun, DocsRunStatus};
use futures::future::try_join;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde_json::json;
use testkit::{
    git::{Behaviour, Hook, Repository},
    suite::Env,
    wait::until,
};

use super::{
    blocked::{BlockedRun, HOOK, Step, blocked, blocked_with, idle, nothing_or_one, says, writer},
    fixture::{Bench, Expect, LIMIT, brief, phase_of, reason_of, says_all},
};

fn is_suspended(status: &DocsRunStatus) -> bool {
    reason_of(status) == "Suspended"
}

/// Suspended: no time counts, and nothing runs.
fn is_at_rest(status: &DocsRunStatus) -> Result<()> {
    ensure!(phase_of(status) == "Pending", "{}", brief(status));
    ensure!(
        status.progress.deadline_at.is_none() && status.started_at.is_none(),
        "a time counts: {:?} {:?}",
        status.progress.deadline_at,
        status.started_at
    );
    ensure!(
        status.disruptions == 0,
        "{} disruptions",
        status.disruptions
    );
    Ok(())
}

pub(super) async fn suspended_before(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let repository = bench.repository("early").await?;
    bench.agent("early", &writer(1), json!({})).await?;
    bench.submit("early", json!({ "suspend": true })).await?;
    let seen = bench
        .until("early", LIMIT, "suspended", is_suspended)
        .await?;
    let status = seen.status.clone().unwrap_or_default();
    is_at_rest(&status)?;
    says_all(&status, &["suspended before it was started"])?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // What it works on is what is there when it starts.
    let visits = repository.activity()?.read_visits;
    ensure!(visits == 0 && status.base_commit.is_none(), "{visits}");
    ensure!(bench.jobs_of(&seen).await?.is_empty(), "a Job");
    ensure!(bench.maps_of(&seen).await?.is_empty(), "a ConfigMap");
    resumes(&bench, "early").await?;
    ends_well(&bench, &seen, &repository).await?;
    // The same while the repository is being asked.
    let asked = blocked(&bench, "asked", Step::Asking).await?;
    suspends(&bench, "asked", "suspended before it was started").await?;
    asked.repository.set_behaviour(&Behaviour::Normal)?;
    resumes(&bench, "asked").await?;
    ends_well(&bench, &asked.run, &asked.repository).await?;
    bench.done().await?;
    Ok(brief(&status))
}

async fn resumes(bench: &Bench, name: &str) -> Result<()> {
    let patch = json!({ "spec": { "suspend": false } });
    bench.patch(name, patch).await?;
    Ok(())
}

/// Suspends a run and waits until it says so, with these words.
async fn suspends(bench: &Bench, name: &str, words: &str) -> Result<DocsRun> {
    let patch = json!({ "spec": { "suspend": true } });
    bench.patch(name, patch).await?;
    let seen = bench
        .until(name, LIMIT, "suspended and stopped", |status| {
            is_suspended(status) && says(status).contains(words)
        })
        .await?;
    is_at_rest(&seen.status.clone().unwrap_or_default())?;
    Ok(seen)
}

async fn ends_well(bench: &Bench, run: &DocsRun, repository: &Repository) -> Result<()> {
    let expect = Expect {
        events: &["Suspended", "Succeeded"],
        ..Expect::default()
    };
    let name = run.name_any();
    let seen = bench.pushed(&name, repository, &expect).await?;
    ensure!(nothing_or_one(&seen, repository)?, "{name}: no commit");
    bench.deletes(&seen).await
}

/// Suspended during a step, the attempt begins again from its start when it is let go.
async fn suspended(bench: &Bench, name: &str, step: Step) -> Result<BlockedRun> {
    let held = blocked(bench, name, step).await?;
    let seen = suspends(bench, name, "runs nothing").await?;
    let status = seen.status.clone().unwrap_or_default();
    ensure!(status.attempts == 1, "{} attempts", status.attempts);
    let jobs = bench.jobs_of(&seen).await?;
    let is_held = |job: &Job| job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
    ensure!(jobs.len() == 1 && jobs.iter().all(is_held), "{jobs:?}");
    until("its Pod to be gone", LIMIT, async || {
        let count = bench.pods_of(&seen).await?.len();
        Ok(if count == 0 {
            Ok(())
        } else {
            Err(format!("{count} Pods"))
        })
    })
    .await?;
    held.repository.set_behaviour(&Behaviour::Normal)?;
    held.repository.set_hook(&Hook::Accept)?;
    Ok(held)
}

/// What the server does with a push whose sender is gone is its own affair: the second Pod finds
/// it, or pushes. A clone begins again.
pub(super) async fn suspended_at_push(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let clone = async {
        let held = suspended(&bench, "cloned", Step::Cloning).await?;
        resumes(&bench, "cloned").await?;
        ends_well(&bench, &held.run, &held.repository).await
    };
    let push = async {
        let mut said = Vec::new();
        for (name, step) in [
            ("pushed", Step::Pushing(HOOK)),
            ("taken", Step::Pushed(HOOK)),
        ] {
            let held = suspended(&bench, name, step).await?;
            resumes(&bench, name).await?;
            ends_well(&bench, &held.run, &held.repository).await?;
            let seen = held.repository.activity()?;
            said.push(format!("{name}: {} pushes", seen.pushes));
        }
        anyhow::Ok(said)
    };
    // On the heap: all of a case's states together are more than a thread's stack holds.
    let ((), said) = try_join(Box::pin(clone), Box::pin(push)).await?;
    // The first Pod's commit was there: the second one found it.
    ensure!(
        said.last().is_some_and(|last| last == "taken: 1 pushes"),
        "{said:?}"
    );
    bench.done().await?;
    Ok(said.join(", "))
}

async fn cancels(bench: &Bench, name: &str, expect: &Expect<'_>) -> Result<DocsRun> {
    bench
        .patch(name, json!({ "spec": { "cancel": true } }))
        .await?;
    let seen = bench.ended(name, expect).await?;
    let taken_back = bench
        .patch(name, json!({ "spec": { "cancel": false } }))
        .await;
    let refused = taken_back.err().context("it was taken back")?.to_string();
    ensure!(refused.contains("cannot be taken back"), "{refused}");
    Ok(seen)
}

fn cancelled<'a>(attempts: u32, says: &'a [&'a str]) -> Expect<'a> {
    Expect {
        phase: "Failed",
        reason: "Cancelled",
        says,
        events: &["Cancelled"],
        attempts,
        jobs: 0,
        ..Expect::default()
    }
}

pub(super) async fn cancelled_before(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    blocked(&bench, "asked", Step::Asking).await?;
    blocked(&bench, "agentless", Step::Agentless).await?;
    let repository = bench.repository("paused").await?;
    bench.submit("paused", json!({ "suspend": true })).await?;
    bench
        .until("paused", LIMIT, "suspended", is_suspended)
        .await?;
    let mut said = String::new();
    for name in ["asked", "agentless", "paused"] {
        let expect = cancelled(0, &["before it was started"]);
        let seen = cancels(&bench, name, &expect).await?;
        ensure!(bench.maps_of(&seen).await?.is_empty(), "files without need");
        said = brief(&seen.status.clone().unwrap_or_default());
        bench.deletes(&seen).await?;
    }
    ensure!(repository.activity()?.read_visits == 0, "it was asked");
    bench.done().await?;
    Ok(said)
}

/// Before the push begins, nothing can have been pushed, and the message does not doubt it.
async fn cancelled_at_work(bench: &Bench) -> Result<()> {
    for (name, step) in [("cloned", Step::Cloning), ("written", Step::Writing(600))] {
        let held = blocked(bench, name, step).await?;
        let expect = cancelled(1, &["during attempt 1"]);
        let seen = cancels(bench, name, &expect).await?;
        ensure!(bench.pods_of(&seen).await?.is_empty(), "a Pod is left");
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
    for (name, step) in [
        ("pushed", Step::Pushing(HOOK)),
        ("taken", Step::Pushed(HOOK)),
    ] {
        let held = blocked(bench, name, step).await?;
        let look = format!(
            "git ls-remote {} refs/heads/docs/{name}",
            held.run.spec.repository_url
        );
        let words = ["during attempt 1", "whether it pushed is not known", &look];
        let seen = cancels(bench, name, &cancelled(1, &words)).await?;
        ensure!(bench.pods_of(&seen).await?.is_empty(), "a Pod is left");
        said = brief(&seen.status.clone().unwrap_or_default());
        idle(&held.repository).await?;
        nothing_or_one(&seen, &held.repository)?;
        bench.deletes(&seen).await?;
    }
    Ok(said)
}

pub(super) async fn cancelled_at_push(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    // On the heap: all of a case's states together are more than a thread's stack holds.
    let work = Box::pin(cancelled_at_work(&bench));
    let push = Box::pin(cancelled_during_push(&bench));
    let ((), said) = try_join(work, push).await?;
    bench.done().await?;
    Ok(said)
}

pub(super) async fn cancelled_at_verification(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let keep = json!({ "childTTL": { "failed": "8s" } });
    let held = blocked_with(&bench, "unread", Step::Verifying, keep).await?;
    let commit = held.run.status.clone().unwrap_or_default().commit;
    let commit = commit.context("no commit")?;
    let words = ["before the server confirmed", &commit];
    let expect = Expect {
        // The Job ended by itself; it stays as long as the run says.
        jobs: 1,
        ..cancelled(1, &words)
    };
    let seen = cancels(&bench, "unread", &expect).await?;
    ensure!(nothing_or_one(&seen, &held.repository)?, "it was pushed");
    until("its children to go", LIMIT, async || {
        let left = (
            bench.jobs_of(&seen).await?.len(),
            bench.pods_of(&seen).await?.len(),
            bench.maps_of(&seen).await?.len(),
        );
        Ok(if left == (0, 0, 0) {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        })
    })
    .await?;
    let said = brief(&seen.status.clone().unwrap_or_default());
    bench.deletes(&seen).await?;
    bench.done().await?;
    Ok(said)
}
