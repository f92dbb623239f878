//! The operator is killed, at each step of a run, and another one takes over: one commit on the
//! remote, one result, one attempt.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::DeleteParams};
use nix::sys::signal::Signal;
use testkit::{
    git::{Behaviour, Entry},
    suite::Env,
    wait::{met, until},
};
use tokio::time::Instant;

use super::{
    super::{children::forbid_jobs, fixture::WithoutOperator},
    blocked::{BlockedRun, HOOK, Step, active, blocked, nothing_or_one, writer},
    fixture::{Bench, Docs, Expect, LIMIT, brief, children, phase_of, reason_of},
};

/// A Lease that is over soon after its holder was killed.
const SHORT_LEASE: &str = "    allowedNetworks: [198.18.0.0/24]\n\
     leaderElection: { leaseDurationSeconds: 6, renewSeconds: 2 }\n";

/// Kills the operator while a run is at this step.
async fn killed(env: Env, name: &str, step: Step) -> Result<(WithoutOperator<Docs>, BlockedRun)> {
    let bench = Bench::configured(env, SHORT_LEASE).await?;
    let held = blocked(&bench, name, step).await?;
    Ok((bench.killed().await?, held))
}

/// The run of this name succeeds under the operator that took over.
async fn succeeds(bench: Bench, held: &BlockedRun) -> Result<String> {
    let name = held.run.name_any();
    let start = Instant::now();
    let run = bench
        .pushed(&name, &held.repository, &Expect::default())
        .await?;
    let took = start.elapsed().as_secs_f64();
    ensure!(nothing_or_one(&run, &held.repository)?, "no commit");
    ensure!(run.uid() == held.run.uid(), "another run");
    let result = run.status.clone().and_then(|status| status.attempt.result);
    let code = result.and_then(|result| result.exit_code);
    ensure!(code == Some(0), "{code:?}");
    let pushes = held.repository.activity()?.pushes;
    ensure!(pushes == 1, "{pushes} pushes");
    bench.deletes(&run).await?;
    bench.done().await?;
    Ok(format!(
        "one commit by one push, {took:.1} s after the new start"
    ))
}

pub(super) async fn asking(env: Env) -> Result<String> {
    let (down, held) = killed(env, "asked", Step::Asking).await?;
    held.repository.set_behaviour(&Behaviour::Normal)?;
    succeeds(down.up().await?, &held).await
}

pub(super) async fn writing(env: Env) -> Result<String> {
    let (down, held) = killed(env, "written", Step::Writing(8)).await?;
    succeeds(down.up().await?, &held).await
}

pub(super) async fn pushing(env: Env) -> Result<String> {
    let (down, held) = killed(env, "pushed", Step::Pushing(HOOK)).await?;
    succeeds(down.up().await?, &held).await
}

pub(super) async fn unanswered(env: Env) -> Result<String> {
    let (down, held) = killed(env, "unanswered", Step::Pushed(HOOK)).await?;
    succeeds(down.up().await?, &held).await
}

async fn until_over(down: &WithoutOperator<Docs>, uid: &str) -> Result<()> {
    let pods: Api<Pod> = down.env.api();
    until("the Pod to end", LIMIT, async || {
        let pods = pods.list(&children(uid)).await?.items;
        let phases: Vec<_> = pods
            .into_iter()
            .map(|pod| pod.status.and_then(|status| status.phase))
            .collect();
        let is_over = phases == [Some("Succeeded".to_owned())];
        Ok(met(is_over, || format!("{phases:?}")))
    })
    .await
}

/// Twice: before the end of the push was recorded, and before the server confirmed it.
pub(super) async fn recording(env: Env) -> Result<String> {
    let (down, held) = killed(env, "recorded", Step::Pushed(HOOK)).await?;
    until_over(&down, &held.run.uid().unwrap_or_default()).await?;
    let seen = down.runs().get("recorded").await?;
    let status = seen.status.unwrap_or_default();
    ensure!(
        reason_of(&status) == "Publishing" && status.commit.is_none(),
        "{}",
        brief(&status)
    );
    held.repository.set_behaviour(&Behaviour::Silent)?;
    let visits = held.repository.activity()?.read_visits;
    let bench = down.up().await?;
    let seen = bench.says("recorded", "Verifying").await?;
    let status = seen.status.unwrap_or_default();
    ensure!(
        phase_of(&status) == "Running" && status.commit.is_some(),
        "{}",
        brief(&status)
    );
    active(&held.repository, "asked once more", |seen| {
        seen.read_visits > visits
    })
    .await?;
    let down = bench.killed().await?;
    held.repository.set_behaviour(&Behaviour::Normal)?;
    succeeds(down.up().await?, &held).await
}

/// Between the record of what is worked on and the Job. The branch moves meanwhile.
pub(super) async fn recorded_base(env: Env) -> Result<String> {
    let bench = Bench::configured(env, SHORT_LEASE).await?;
    let repository = bench.repository("based").await?;
    let base = repository.head("main")?;
    let quotas = forbid_jobs(&bench.env).await?;
    bench.start("based", &writer(1)).await?;
    let run = bench.says("based", "QuotaExceeded").await?;
    let status = run.status.clone().unwrap_or_default();
    ensure!(status.base_commit == base, "{status:?}");
    ensure!(bench.jobs_of(&run).await?.is_empty(), "a Job");
    let said = brief(&status);
    let down = bench.killed().await?;
    repository.commit("main", "Meanwhile", &[("new", Entry::File(b"new\n"))])?;
    quotas.delete("no-jobs", &DeleteParams::default()).await?;
    let bench = down.up().await?;
    let run = bench
        .pushed("based", &repository, &Expect::default())
        .await?;
    let status = run.status.clone().unwrap_or_default();
    ensure!(status.base_commit == base, "{status:?}");
    bench.deletes(&run).await?;
    bench.done().await?;
    Ok(said)
}

/// Two operators, and the first is told to stop during the push.
pub(super) async fn hand_over(env: Env) -> Result<String> {
    let mut bench = Bench::new(env).await?;
    let second = bench.another().await?;
    let held = blocked(&bench, "handed", Step::Pushing(HOOK)).await?;
    ensure!(
        bench.operator.is_leading().await? && !second.is_leading().await?,
        "one leads"
    );
    let start = Instant::now();
    bench.operator.signal(Signal::SIGTERM)?;
    let took = until("the second to lead", Duration::from_secs(5), async || {
        Ok(if second.is_leading().await? {
            Ok(start.elapsed())
        } else {
            Err("not yet".to_owned())
        })
    })
    .await?;
    bench.operator = second;
    let said = succeeds(bench, &held).await?;
    Ok(format!("led after {:.2} s; {said}", took.as_secs_f64()))
}
