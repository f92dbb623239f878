//! Runs in odd places: with evidence that is gone, under hostile names, out of a backup; and what
//! other tools make of all of them.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use api::{
    names,
    tasks::{Agent, TaskRun},
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use serde_json::json;
use testkit::{suite::Env, wait::until};

use super::{
    super::{children::until_gone, events, status_history, why},
    fixture::{Bench, COLLECTED, Expect, LIMIT, brief, busy, phase_of, reason_of, says_all},
};

/// The Pod goes unread while no operator is there: nobody knows what it returned.
pub(super) async fn evidence_lost(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    bench.start("unread", "sleep 4").await?;
    let pod = bench.pod_of(&bench.running("unread").await?)?;
    let down = bench.stopped().await?;
    let jobs: Api<Job> = down.env.api();
    until("the Job to be complete", LIMIT, async || {
        let job = jobs.get("unread-7-v1").await?;
        let done = job.status.and_then(|status| status.completion_time);
        Ok(done.map(drop).ok_or_else(|| "not yet".to_owned()))
    })
    .await?;
    let pods: Api<Pod> = down.env.api();
    pods.delete(&pod, &DeleteParams::default()).await?;
    until_gone(&pods, &pod, LIMIT).await?;
    let bench = down.up().await?;
    let expect = Expect::failure("EvidenceLost")
        .saying(&["Job 'unread-7-v1' is complete", "its Pod no longer exists"]);
    let said = bench.ends("unread", expect).await?;
    bench.done().await?;
    Ok(said)
}

/// Names as long as they may be, and services that are no names at all.
pub(super) async fn hostile_names(bench: &Bench) -> Result<String> {
    let long = |length: usize| "n".repeat(length);
    let dotted = [long(63), long(63), long(63), long(61)].join(".");
    ensure!(dotted.len() == 253, "{}", dotted.len());
    let agent = dotted.clone();
    let script = "sleep 3; printf '%s' \"$ORCHESTRATOR_SERVICE\" | wc -c | { read n; echo \"{\\\"bytes\\\": $n}\"; } > /dev/termination-log";
    bench.agent(&agent, script, json!({})).await?;
    let cases = [
        (long(63), long(63)),
        (dotted, "s".repeat(253)),
        ("spaces".to_owned(), " my service \"and' more ".to_owned()),
        ("unicode".to_owned(), "Ünïcödé-Dienst-名前-🚀".to_owned()),
        (
            "template".to_owned(),
            "$(HOME)-{{x}}-${PATH}-`id`".to_owned(),
        ),
        ("dashes".to_owned(), "--".to_owned()),
        ("upper".to_owned(), "UPPER_and.lower".to_owned()),
    ];
    for (name, service) in &cases {
        bench
            .submit_as(name, &agent, json!({ "serviceName": service }))
            .await?;
    }
    let mut made = BTreeSet::new();
    for (name, service) in &cases {
        let seen = bench
            .ended(name, &Expect::default())
            .await
            .with_context(|| format!("service '{service}'"))?;
        let result = seen.status.clone().and_then(|status| status.attempt.result);
        let bytes = result.and_then(|result| result.results.get("bytes").cloned());
        ensure!(
            bytes == Some(service.len().to_string()),
            "the agent read {bytes:?} bytes of '{service}'"
        );
        let jobs = bench.jobs_of(&seen).await?;
        let maps = bench.maps_of(&seen).await?;
        let metas = jobs.iter().map(|job| &job.metadata);
        let metas = metas.chain(maps.iter().map(|map| &map.metadata));
        for meta in metas {
            check(meta)?;
            let child = meta.name.clone().unwrap_or_default();
            ensure!(made.insert(child.clone()), "'{child}' of two runs");
        }
        bench.deletes(&seen).await?;
    }
    Ok(format!("{} children of {} runs", made.len(), cases.len()))
}

/// A child's name and labels are short and valid (the API server checks the latter).
fn check(meta: &ObjectMeta) -> Result<()> {
    let name = meta.name.as_deref().unwrap_or_default();
    let inside = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-');
    ensure!(
        name.len() <= 63 && name.chars().all(inside) && !name.starts_with('-'),
        "the name '{name}'"
    );
    let labels = meta.labels.clone().unwrap_or_default();
    for key in [names::KIND, names::NAME, names::UID, names::SERVICE_NAME] {
        let value = labels.get(key).with_context(|| format!("no label {key}"))?;
        ensure!(!value.is_empty() && value.len() <= 63, "{key}: '{value}'");
    }
    Ok(())
}

/// The object as a backup has it: without what the API server and the operator gave it.
fn backup(run: &TaskRun, with_annotations: bool) -> TaskRun {
    let annotations = run.metadata.annotations.clone();
    TaskRun {
        metadata: ObjectMeta {
            name: run.metadata.name.clone(),
            annotations: annotations.filter(|_| with_annotations),
            ..ObjectMeta::default()
        },
        spec: run.spec.clone(),
        status: None,
    }
}

/// A run that had ended, restored without its status, does not run again.
pub(super) async fn restored(bench: &Bench) -> Result<String> {
    bench.agent("good", "sleep 3", json!({})).await?;
    bench.agent("bad", "sleep 3; exit 3", json!({})).await?;
    let failed = Expect::failure("NonZeroExit");
    let mut said = String::new();
    for (name, expect) in [("good", Expect::default()), ("bad", failed)] {
        bench.submit(name, json!({})).await?;
        let before = bench.ended(name, &expect).await?;
        bench.deletes(&before).await?;
        let after = bench
            .runs()
            .create(&PostParams::default(), &backup(&before, true))
            .await?;
        ensure!(after.uid() != before.uid(), "another object");
        let seen = bench.finished(name, LIMIT).await?;
        let status = seen.status.clone().unwrap_or_default();
        ensure!(
            phase_of(&status) == expect.phase && reason_of(&status) == expect.reason,
            "{}",
            brief(&status)
        );
        says_all(&status, &["restored", "nothing was started"])?;
        let told = events::reasons(&bench.env, &seen.uid().unwrap_or_default()).await?;
        ensure!(told == [expect.reason], "Events {told:?}");
        bench
            .stays_at(&seen, (0, 0), Duration::from_secs(3))
            .await?;
        said = brief(&status);
        bench.deletes(&seen).await?;
    }
    Ok(said)
}

/// A run that is lost with its finalizer while its Job runs on, and comes back without a trace of
/// that: the Job is somebody else's, and nothing runs beside it.
pub(super) async fn orphaned(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    // The first one runs until its Job is deleted.
    bench.start("twin", &busy(600)).await?;
    let before = bench.running("twin").await?;
    let down = bench.stopped().await?;
    let runs = down.runs();
    runs.delete("twin", &DeleteParams::orphan()).await?;
    let free = json!({ "metadata": { "finalizers": null } });
    until("the run to be gone", COLLECTED, async || {
        let seen = runs.get_opt("twin").await?;
        let is_free = seen.as_ref().is_none_or(|seen| {
            // The garbage collector lets the children go first.
            seen.finalizers().iter().any(|name| name == "orphan")
        });
        if seen.is_some() && !is_free {
            let params = PatchParams::default();
            runs.patch("twin", &params, &Patch::Merge(&free)).await?;
        }
        Ok(match seen {
            None => Ok(()),
            Some(seen) => Err(format!("{:?}", seen.finalizers())),
        })
    })
    .await?;
    // The second one ends soon.
    let agents: Api<Agent> = down.env.api();
    let command = json!({ "spec": { "command": ["/bin/sh", "-c", "sleep 3"] } });
    agents
        .patch("twin", &PatchParams::default(), &Patch::Merge(command))
        .await?;
    let bench = down.up().await?;
    bench
        .runs()
        .create(&PostParams::default(), &backup(&before, false))
        .await?;
    let says = [
        "twin-7-v1-files",
        "belongs to an earlier TaskRun",
        "Delete it",
    ];
    let seen = bench.waits_for("twin", "ChildNameTaken", &says).await?;
    let status = seen.status.clone().unwrap_or_default();
    bench
        .stays_at(&seen, (0, 0), Duration::from_secs(3))
        .await?;
    bench
        .stays_at(&before, (1, 1), Duration::from_secs(1))
        .await?;
    // Whoever knows that it is garbage removes it, and the run goes on.
    let jobs: Api<Job> = bench.env.api();
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = bench.env.api();
    jobs.delete("twin-7-v1", &DeleteParams::foreground())
        .await?;
    maps.delete("twin-7-v1-files", &DeleteParams::default())
        .await?;
    let expect = Expect::after(&["ChildNameTaken", "Running"]).within(Duration::from_secs(120));
    bench.ends("twin", expect).await?;
    bench.done().await?;
    Ok(brief(&status))
}

/// What the library that other tools ask says of every version of every run that the API server
/// showed, in all cases: each compares its own when it is done. This one has each status for sure.
pub(super) async fn kstatus(env: Env) -> Result<String> {
    env.testbed("the library kstatus")?;
    let bench = Bench::new(env).await?;
    bench.agent("good", "sleep 3", json!({})).await?;
    bench.agent("bad", "sleep 3; exit 3", json!({})).await?;
    bench.agent("stuck", &busy(600), json!({})).await?;
    let mut runs = Vec::new();
    for name in ["good", "bad", "stuck"] {
        runs.push(bench.submit(name, json!({})).await?);
    }
    bench.running("stuck").await?;
    for name in ["good", "bad"] {
        bench.finished(name, LIMIT).await?;
    }
    for run in &runs {
        bench.deletes(run).await?;
    }
    bench.done().await?;
    let tally = status_history::tally();
    for status in ["InProgress", "Current", "Failed", "Terminating"] {
        ensure!(tally.contains_key(status), "never {status}: {tally:?}");
    }
    let sum: usize = tally.values().sum();
    Ok(format!(
        "{sum} versions as expected: {tally:?}; {}",
        why::tally()
    ))
}
