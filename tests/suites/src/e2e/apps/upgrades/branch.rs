//! Other people and the server of a branch, while a request commits to it.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use api::apps::{PushOutcome, UpgradeRequest};
use serde_json::json;
use testkit::{
    git::{Entry, Hook, Repository},
    suite::Env,
    wait::{met, until},
};

use super::{
    evidence::{
        Scales, changed_lines, commits_of, flux_is_free, head, no_snapshots, release_file, scales,
    },
    fixture::{App, Bench, END, PHASE, RELEASE_FILE, Setup, UNDONE},
    volume::{SlowClass, starts, store_pod},
};
use crate::flux::BRANCH;

/// Commits of others during one push.
const OTHERS: usize = 20;
/// Time between two of them.
const PAUSE: Duration = Duration::from_millis(150);
/// The server takes so long to decide about a push. Others move the branch meanwhile.
const SLOW: Duration = Duration::from_millis(700);
/// Tries of one commit: a push may change the branch at the same time.
const TRIES: usize = 20;

/// Commits a file as someone else. The branch may move at the same time.
async fn commit(repository: &Repository, path: &str) -> Result<String> {
    let change = [(path, Entry::File(b"of others"))];
    let mut last = String::new();
    for _ in 0..TRIES {
        match repository.commit(BRANCH, &format!("Add {path}"), &change) {
            Ok(id) => return Ok(id),
            Err(error) => last = format!("{error:#}"),
        }
        tokio::time::sleep(PAUSE / 10).await;
    }
    bail!("'{path}' was not committed: {last}")
}

pub(super) async fn busy(bench: &Bench) -> Result<String> {
    let app = bench.launch(Setup::store("app")).await?;
    let repository = app.source.repository();
    repository.set_hook(&Hook::SlowBefore(SLOW))?;
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "GitCommit", END)
        .await?;
    until("the first push", PHASE, async || {
        let pushes = repository.activity()?.pushes;
        Ok(met(pushes > 0, || "none".to_owned()))
    })
    .await?;
    let mut others = Vec::new();
    for number in 0..OTHERS {
        others.push(commit(repository, &format!("others/{number}")).await?);
        tokio::time::sleep(PAUSE).await;
    }
    bench.succeeds::<UpgradeRequest>("up", END).await?;

    let uid = bench.uid::<UpgradeRequest>("up").await?;
    let own = commits_of(&app, &uid)?;
    ensure!(own.len() == 1, "commits of the request: {own:?}");
    let log = repository.log(BRANCH)?;
    let lost = others
        .iter()
        .find(|id| !log.iter().any(|commit| commit.id == **id));
    ensure!(lost.is_none(), "the commit {lost:?} of others is lost");
    let files = repository.files(BRANCH)?;
    let count = files.keys().filter(|path| path.starts_with("others/"));
    ensure!(count.count() == OTHERS, "the branch has {files:?}");
    let changed = changed_lines(&app, &own[0].parents[0], &own[0].id)?;
    ensure!(changed.len() == 1, "changed lines: {changed:?}");
    let activity = repository.activity()?;
    ensure!(
        activity.accepted == 1 && activity.pushes > 1,
        "the branch did not move during a push: {activity:?}"
    );
    Ok(format!(
        "{} pushes until one was accepted; 1 commit of the request and {OTHERS} of others",
        activity.pushes
    ))
}

/// A request that pushed nothing is undone. Nothing of it is left.
async fn is_undone(bench: &Bench, app: &App, counts: &Scales) -> Result<()> {
    let env = &bench.env;
    let uid = bench.uid::<UpgradeRequest>("up").await?;
    let own = commits_of(app, &uid)?;
    ensure!(own.is_empty(), "commits of the request: {own:?}");
    no_snapshots(env).await?;
    flux_is_free(env, &app.name).await?;
    let now = scales(env).await?;
    ensure!(now == *counts, "{now:?} instead of {counts:?}");
    bench.settled(app).await
}

pub(super) async fn version_changed(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let class = SlowClass::new(env, 8).await?;
    let app = bench
        .launch(Setup {
            app: json!({ "volumeSnapshots": { "volumeSnapshotClassName": class.name } }),
            ..Setup::store("app")
        })
        .await?;
    let counts = scales(env).await?;
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "Snapshot", END)
        .await?;
    let file = release_file(&app, &head(&app)?)?;
    let other = file.replace("version: 1.0.0", "version: 1.1.0");
    ensure!(file != other, "no version in '{file}'");
    let change = [(RELEASE_FILE, Entry::File(other.as_bytes()))];
    app.source.push("Use 1.1.0", &change).await?;
    let state = bench
        .fails::<UpgradeRequest>("up", UNDONE, "VersionChangedInGit", &[])
        .await?;
    is_undone(bench, &app, &counts).await?;
    ensure!(
        release_file(&app, &head(&app)?)? == other,
        "the file of others was changed"
    );
    // Flux applies the version of others, as it would have done without the request.
    let found = starts(env, &store_pod("app")).await?;
    ensure!(found == ["1.0.0", "1.1.0"], "started versions: {found:?}");
    class.release().await?;
    Ok(state.progress.message.unwrap_or_default())
}

/// The server has accepted the push, and no response arrives.
pub(super) async fn lost_response(env: Env) -> Result<String> {
    let mut bench = Bench::new(env).await?;
    let app = bench.launch(Setup::store("app")).await?;
    let repository = app.source.repository();
    repository.set_hook(&Hook::SlowAfter(END))?;
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "GitCommit", END)
        .await?;
    until("the server to accept the push", PHASE, async || {
        let accepted = repository.activity()?.accepted;
        Ok(met(accepted == 1, || format!("{accepted} pushes accepted")))
    })
    .await?;
    bench.git.stop()?;
    let unknown = bench
        .reach::<UpgradeRequest>("up", PHASE, "another attempt", |state| {
            state.push.as_ref().is_some_and(|push| push.number > 1)
        })
        .await?;
    let push = unknown.push.as_ref();
    ensure!(
        push.is_some_and(|push| push.is_uncertain),
        "the first attempt is not uncertain: {push:?}"
    );
    repository.set_hook(&Hook::Accept)?;
    bench.git.resume()?;
    let state = bench.succeeds::<UpgradeRequest>("up", END).await?;
    let uid = bench.uid::<UpgradeRequest>("up").await?;
    let own = commits_of(&app, &uid)?;
    let commit = state.commit.as_ref();
    ensure!(
        own.len() == 1 && commit.is_some_and(|commit| commit.id == own[0].id),
        "commits {own:?}, and {commit:?} in the status"
    );
    ensure!(
        commit.is_some_and(|commit| commit.outcome == PushOutcome::Found),
        "the commit was not found, but {commit:?}"
    );
    let activity = repository.activity()?;
    ensure!(
        activity.pushes == 1,
        "pushed {} times, although the first push was accepted",
        activity.pushes
    );
    bench.settled(&app).await?;
    bench.done().await?;
    Ok("1 push, whose response was lost; the next attempt found its commit".to_owned())
}

pub(super) async fn protected(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench.launch(Setup::store("app")).await?;
    let (base, counts) = (head(&app)?, scales(env).await?);
    let repository = app.source.repository();
    repository.set_hook(&Hook::Refuse("protected branch".to_owned()))?;
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    let parts = ["protected branch"];
    let state = bench
        .fails::<UpgradeRequest>("up", UNDONE, "PushRejected", &parts)
        .await?;
    let activity = repository.activity()?;
    ensure!(
        head(&app)? == base && activity.accepted == 0 && activity.pushes == 1,
        "the branch has moved, or not one push was rejected: {activity:?}"
    );
    is_undone(bench, &app, &counts).await?;
    let found = starts(env, &store_pod("app")).await?;
    ensure!(found == ["1.0.0"], "started versions: {found:?}");
    Ok(state.progress.message.unwrap_or_default())
}
