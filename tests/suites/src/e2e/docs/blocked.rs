//! Runs that are blocked at one of their steps, for as long as a case wants: a state that stays can be
//! waited for.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Result, ensure};
use api::tasks::{DocsRun, DocsRunStatus};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::DeleteParams};
use serde_json::{Value, json};
use testkit::{
    git::{Activity, Behaviour, Entry, Hook, Repository},
    wait::{met, until},
};

use super::super::merge;
use super::fixture::{Bench, LIMIT, WRITER};

/// A clone of [`ballast`] at this speed takes minutes, and is not so slow that git gives up.
const BYTES_A_SECOND: u32 = 4096;
const BALLAST: usize = 1_000_000;

/// Seconds that a server takes for a push: time enough to see it on a machine with much to do.
pub(super) const HOOK: u32 = 15;

/// Where a run is held.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// The operator asks the repository, which does not answer.
    Asking,
    /// There is no Agent.
    Agentless,
    /// The repository comes slowly.
    Cloning,
    /// The agent runs, for so many seconds.
    Writing(u32),
    /// The server received the push, and looks at it for so many seconds.
    Pushing(u32),
    /// The server took the push, and does not say so for so many seconds.
    Pushed(u32),
    /// The push was reported, and the operator cannot ask for it: its Secret is gone.
    Verifying,
}

/// The push, before and after the server accepted it, each with the name of its run.
pub(super) const PUSH: [(&str, Step); 2] = [
    ("pushed", Step::Pushing(HOOK)),
    ("taken", Step::Pushed(HOOK)),
];

/// A run that is there.
pub(super) struct BlockedRun {
    pub(super) run: DocsRun,
    pub(super) repository: Repository,
}

/// An agent that takes its time, ends at once when it is told to, and writes another page in each
/// Pod: what a second one wrote cannot be taken for the first one's.
pub(super) fn writer(seconds: u32) -> String {
    format!(
        "trap 'exit 143' TERM; sleep {seconds} & wait $!\n{WRITER}\n\
         cat /etc/hostname >> \"$ORCHESTRATOR_OUTPUT_DIR/index.md\""
    )
}

/// Submits a run of this name, with a repository, an Agent and a Secret of the same name, and waits
/// until it is at this step.
pub(super) async fn blocked(bench: &Bench, name: &str, step: Step) -> Result<BlockedRun> {
    blocked_with(bench, name, step, json!({})).await
}

/// The same; `more` is merged into its spec.
pub(super) async fn blocked_with(
    bench: &Bench,
    name: &str,
    step: Step,
    more: Value,
) -> Result<BlockedRun> {
    let repository = bench.repository(name).await?;
    bench.secret(name, &bench.git.credentials_https()).await?;
    let seconds = |count: u32| Duration::from_secs(count.into());
    let mut script = writer(1);
    match step {
        Step::Agentless => {}
        Step::Asking => repository.set_behaviour(&Behaviour::Silent)?,
        Step::Cloning => {
            repository.commit("main", "More", &[("ballast", Entry::File(&ballast()))])?;
            repository.set_behaviour(&Behaviour::Slow(BYTES_A_SECOND))?;
        }
        Step::Writing(count) => script = writer(count),
        Step::Pushing(count) => repository.set_hook(&Hook::SlowBefore(seconds(count)))?,
        Step::Pushed(count) => repository.set_hook(&Hook::SlowAfter(seconds(count)))?,
        Step::Verifying => script = writer(4),
    }
    if !matches!(step, Step::Agentless) {
        bench.agent(name, &script, json!({})).await?;
    }
    let mut spec = json!({ "credentialsSecretRef": { "name": name } });
    merge(&mut spec, more);
    bench.submit(name, spec).await?;
    // On the heap: all of a case's states together are more than a thread's stack holds.
    Box::pin(arrives(bench, name, step, &repository)).await?;
    let run = bench.runs().get(name).await?;
    Ok(BlockedRun { run, repository })
}

async fn arrives(bench: &Bench, name: &str, step: Step, repository: &Repository) -> Result<()> {
    match step {
        Step::Asking => active(repository, "asked", |seen| seen.read_visits > 0).await?,
        Step::Agentless => drop(bench.says(name, "AgentNotFound").await?),
        Step::Cloning => {
            bench.says(name, "Cloning").await?;
            active(repository, "fetched from", |seen| seen.fetches > 0).await?;
        }
        Step::Writing(_) => drop(bench.running(name).await?),
        Step::Pushing(_) => {
            bench.says(name, "Publishing").await?;
            active(repository, "pushed to", |seen| seen.pushes > 0).await?;
            ensure!(repository.activity()?.accepted == 0, "the push is through");
        }
        Step::Pushed(_) => {
            bench.says(name, "Publishing").await?;
            active(repository, "changed", |seen| seen.accepted > 0).await?;
        }
        Step::Verifying => {
            bench.running(name).await?;
            let secrets: Api<Secret> = bench.env.api();
            secrets.delete(name, &DeleteParams::default()).await?;
            bench
                .until(name, LIMIT, "verifying in vain", |status| {
                    says(status).contains("SecretNotFound")
                })
                .await?;
        }
    }
    Ok(())
}

/// What a status says.
pub(super) fn says(status: &DocsRunStatus) -> &str {
    status.progress.message.as_deref().unwrap_or_default()
}

/// Waits until a repository was visited so.
pub(super) async fn active(
    repository: &Repository,
    what: &str,
    wanted: impl Fn(&Activity) -> bool,
) -> Result<()> {
    let what = format!("'{}' to be {what}", repository.name);
    until(&what, LIMIT, async || {
        let seen = repository.activity()?;
        Ok(met(wanted(&seen), || format!("{seen:?}")))
    })
    .await
}

/// Waits until the server has finished with a push whose sender may be gone: no process works in the
/// repository, neither git's nor a hook's.
pub(super) async fn idle(repository: &Repository) -> Result<()> {
    let what = format!("the server to finish with '{}'", repository.name);
    until(&what, LIMIT, async || {
        let working = processes_in(&repository.folder)?;
        Ok(met(working.is_empty(), || format!("processes {working:?}")))
    })
    .await
}

/// The processes whose working directory is this one.
fn processes_in(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        // A process that ended meanwhile has none.
        let working = fs::read_link(entry.path().join("cwd"));
        if working.is_ok_and(|working| working == folder) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

/// Bytes that cannot be compressed.
fn ballast() -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut bytes = Vec::with_capacity(BALLAST);
    while bytes.len() < BALLAST {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes.extend(state.to_le_bytes());
    }
    bytes
}

/// The remote is whole, and has of this run nothing or one commit on the base; whether it has one.
pub(super) fn nothing_or_one(run: &DocsRun, repository: &Repository) -> Result<bool> {
    let output = Command::new("git")
        .args(["fsck", "--full", "--no-dangling"])
        .current_dir(&repository.folder)
        .output()?;
    ensure!(
        output.status.success(),
        "git fsck: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let name = run.name_any();
    let branch = run.output_branch();
    let branches = repository.branches()?;
    let known = |found: &&String| **found == "main" || **found == branch;
    ensure!(branches.keys().all(|found| known(&found)), "{branches:?}");
    let Some(head) = branches.get(&branch) else {
        return Ok(false);
    };
    let log = repository.log(&branch)?;
    let trailer = ("Orchestrator-Run".to_owned(), run.uid().unwrap_or_default());
    let ours = log.iter().filter(|one| one.trailers.contains(&trailer));
    ensure!(ours.count() == 1, "{name}: {log:?}");
    let is_on_base = log.first().is_some_and(|one| {
        one.id == *head && one.parents.first() == branches.get("main") && one.parents.len() == 1
    });
    ensure!(is_on_base, "{name}: {log:?}");
    ensure!(
        repository.read(head, "docs/index.md")?.is_some(),
        "{name}: the page is not there"
    );
    Ok(true)
}
