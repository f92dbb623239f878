//! Who stops a Pod from outside: it uses no attempt, the run goes on, and there is one commit in
//! the end.

use anyhow::{Context, Result, ensure};
use api::tasks::DocsRun;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, EvictParams},
};
use testkit::git::Hook;

use super::{
    blocked::{BlockedRun, PUSH, Step, blocked, nothing_or_one},
    fixture::{Bench, Expect, says_all},
};

/// While the agent runs, a DocsRun is stopped and goes on as a TaskRun: once is enough.
const WORK: (&str, Step) = ("written", Step::Writing(5));

/// Releases the push. The run succeeds, in this many Jobs; what was pushed by the first Pod is not pushed
/// again. How often it was pushed.
async fn goes_on(
    bench: &Bench,
    held: &BlockedRun,
    step: Step,
    (event, jobs): (&'static str, usize),
) -> Result<(DocsRun, String)> {
    held.repository.set_hook(&Hook::Accept)?;
    // The push of the first Pod came through for sure.
    let has_pushed = matches!(step, Step::Pushed(_));
    let name = held.run.name_any();
    let events = [event];
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
    says_all(&run.status.clone().unwrap_or_default(), &["is on branch"]).context(name.clone())?;
    bench.deletes(&run).await?;
    Ok((run, format!("{name}: {}", seen.pushes)))
}

/// The Job controller replaces what was evicted: the same Job.
pub(super) async fn evicted(bench: &Bench) -> Result<String> {
    let pods: Api<Pod> = bench.env.api();
    let mut said = Vec::new();
    for (name, step) in [WORK].into_iter().chain(PUSH) {
        let held = blocked(bench, name, step).await?;
        let pod = bench.pod_of(&held.run)?;
        pods.evict(&pod, &EvictParams::default()).await?;
        let (run, pushes) = goes_on(bench, &held, step, ("Disrupted", 1)).await?;
        let second = run.status.and_then(|status| status.attempt.result);
        let second = second.and_then(|result| result.pod_name);
        ensure!(second.is_some_and(|second| second != pod), "another Pod");
        said.push(pushes);
    }
    Ok(told(&said))
}

/// What a Pod returns after it was told to stop is no result: another Job follows.
pub(super) async fn pod_by_hand(bench: &Bench) -> Result<String> {
    let pods: Api<Pod> = bench.env.api();
    let mut said = Vec::new();
    for (name, step) in PUSH {
        let held = blocked(bench, name, step).await?;
        pods.delete(&bench.pod_of(&held.run)?, &DeleteParams::default())
            .await?;
        let (run, pushes) = goes_on(bench, &held, step, ("Disrupted", 2)).await?;
        let job = run.status.and_then(|status| status.attempt.job_name);
        ensure!(job == Some(format!("{name}-docs-d1")), "{job:?}");
        said.push(pushes);
    }
    Ok(told(&said))
}

pub(super) async fn job_by_hand(bench: &Bench) -> Result<String> {
    let jobs: Api<Job> = bench.env.api();
    let mut said = Vec::new();
    let ways = [DeleteParams::foreground(), DeleteParams::background()];
    for ((name, step), way) in PUSH.into_iter().zip(ways) {
        let held = blocked(bench, name, step).await?;
        jobs.delete(&format!("{name}-docs"), &way).await?;
        let (_, pushes) = goes_on(bench, &held, step, ("JobLost", 1)).await?;
        said.push(pushes);
    }
    Ok(told(&said))
}

fn told(said: &[String]) -> String {
    format!("one commit each; pushes: {}", said.join(", "))
}
