//! A database in a HelmRelease: its upgrade with a snapshot, and the way back.

use anyhow::{Context, Result, ensure};
use api::{
    Status,
    apps::{RollbackRequest, UpgradeRequest, UpgradeRequestStatus},
};
use serde_json::json;

use super::{
    database::{
        CLAIM, DATABASE, checksum, checksum_of_snapshot, columns, count, fill, query, start,
    },
    evidence::{
        changed_lines, claim, claim_names, commits_of, comparable, deployed, diff, durations,
        flux_is_free, head, images, policy_and_phase, release_file, scales, snapshots, volume_of,
    },
    fixture::{App, Bench, END, Setup},
    volume::{adopt, delete_pod},
};
use crate::flux::{KUSTOMIZE, dynamic, revision};

/// Rows of the case with the large table.
const MANY: usize = 1_000_000;
/// Rows of the other cases.
pub(super) const ROWS: usize = 50_000;

/// The evidence in the status is that of the cluster, and of the Git server.
async fn is_true(bench: &Bench, status: &UpgradeRequestStatus, commit: &str) -> Result<()> {
    let env = &bench.env;
    let evidence = status.evidence.as_ref().context("no evidence")?;
    let release = evidence.release.as_ref().context("no release")?;
    let (version, chart) = deployed(env, "shop").await?;
    ensure!(
        (release.version, &release.chart_version) == (version, &chart) && chart == "2.0.0",
        "evidence of release {release:?}, deployed are version {version} and chart {chart}"
    );
    let applied = dynamic(env, KUSTOMIZE, "Kustomization").get("shop").await?;
    let applied = &applied.data["status"]["lastAppliedRevision"];
    ensure!(
        evidence.commit == commit
            && evidence.revision == revision(commit)
            && *applied == *evidence.revision,
        "evidence of commit '{}' at '{}'; Flux applied {applied}, and the branch is at '{commit}'",
        evidence.commit,
        evidence.revision
    );
    let images: Vec<String> = images(env).await?.into_iter().collect();
    ensure!(
        evidence.images == images,
        "evidence of the images {:?} instead of {images:?}",
        evidence.images
    );
    ensure!(
        images.iter().any(|image| image.ends_with("/app:2")),
        "the new image does not run: {images:?}"
    );
    Ok(())
}

/// Exactly one commit, with one changed line. Comments and ends of lines are unchanged.
fn is_one_line(app: &App, uid: &str, before: &str) -> Result<String> {
    let commits = commits_of(app, uid)?;
    let [commit] = commits.as_slice() else {
        anyhow::bail!("{} commits of the request", commits.len());
    };
    ensure!(
        commit.parents == [before] && commit.id == head(app)?,
        "the commit {commit:?} is not the only one after '{before}'"
    );
    let changed = changed_lines(app, before, &commit.id)?;
    let wanted =
        ["1.0.0", "2.0.0"].map(|version| format!("      version: {version} # of the chart\r"));
    let [old, new] = wanted;
    ensure!(changed == [(old, new)], "changed lines: {changed:?}");
    Ok(commit.id.clone())
}

pub(super) async fn upgrade(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            values: json!({ "storage": "1Gi" }),
            line_end: "\r\n",
            ..Setup::shop("shop")
        })
        .await?;
    fill(env, MANY).await?;
    let before = checksum(env, DATABASE).await?;
    let (base, counts) = (head(&app)?, scales(env).await?);

    let status = bench.upgraded("up", &app, "2.0.0").await?;
    let uid = bench.uid::<UpgradeRequest>("up").await?;
    let commit = is_one_line(&app, &uid, &base)?;
    is_true(bench, &status, &commit).await?;
    flux_is_free(env, "shop").await?;
    ensure!(scales(env).await? == counts, "other scales than {counts:?}");
    // The new version has migrated the data, and has all rows.
    let (now, rows) = (columns(env, DATABASE).await?, count(env, DATABASE).await?);
    ensure!(
        now == "id" && rows == MANY.to_string(),
        "columns {now}, {rows} rows"
    );

    // The snapshot has the data from before.
    let taken = snapshots(env).await?;
    let [snapshot] = taken.as_slice() else {
        anyhow::bail!("{} snapshots", taken.len());
    };
    ensure!(
        snapshot.data["status"]["readyToUse"] == true,
        "the snapshot has {}",
        snapshot.data["status"]
    );
    let name = snapshot.metadata.name.as_deref().unwrap_or_default();
    let restored = checksum_of_snapshot(env, name, "1Gi").await?;
    ensure!(restored == before, "{restored} instead of {before}");
    let downtime = status.downtime.as_ref().context("no downtime")?;
    let (from, to) = (downtime.from.as_ref(), downtime.to.as_ref());
    let seconds = to
        .zip(from)
        .map(|(to, from)| to.0.as_second() - from.0.as_second());
    Ok(format!(
        "{restored}, before and in the snapshot; 1 line of 1 commit; database stopped for {seconds:?} s ({})",
        durations(status.progress())
    ))
}

pub(super) async fn rollback(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench.launch(Setup::shop("shop")).await?;
    fill(env, ROWS).await?;
    let before = checksum(env, DATABASE).await?;
    let (file, counts) = (release_file(&app, &head(&app)?)?, scales(env).await?);
    let old_claim = claim(env, CLAIM).await?;
    bench.upgraded("up", &app, "2.0.0").await?;
    let (newer, _) = deployed(env, "shop").await?;
    query(env, DATABASE, "insert into items default values").await?;
    let base = head(&app)?;

    bench.roll_back("back", "up").await?;
    bench.succeeds::<RollbackRequest>("back", END).await?;
    let uid = bench.uid::<RollbackRequest>("back").await?;
    let commits = commits_of(&app, &uid)?;
    ensure!(
        commits.len() == 1 && commits[0].parents == [base],
        "commits of the rollback: {commits:?}"
    );
    let now = release_file(&app, &head(&app)?)?;
    ensure!(now == file, "the file is '{now}' instead of '{file}'");
    let (version, chart) = deployed(env, "shop").await?;
    ensure!(
        chart == "1.0.0" && version > newer,
        "release {version} with chart {chart}, after release {newer}"
    );
    let restored = checksum(env, DATABASE).await?;
    ensure!(restored == before, "{restored} instead of {before}");
    bench.settled(&app).await?;
    flux_is_free(env, "shop").await?;
    ensure!(scales(env).await? == counts, "other scales than {counts:?}");

    // R37: the claim is the same, but for its identity and its volume. Nothing else is left.
    let new_claim = claim(env, CLAIM).await?;
    let (same, other) = (comparable(&old_claim)?, comparable(&new_claim)?);
    ensure!(same == other, "the claim was {same}, and is {other}");
    println!(
        "        the claim '{CLAIM}' before and after the rollback:\n{}",
        diff(&old_claim, &new_claim)?
    );
    let (old, new) = (volume_of(&old_claim)?, volume_of(&new_claim)?);
    ensure!(
        old != new && old_claim.metadata.uid != new_claim.metadata.uid,
        "the claim has its old volume '{old}'"
    );
    let names = claim_names(env).await?;
    ensure!(names == [CLAIM], "claims {names:?}");
    let (policy, _) = policy_and_phase(env, &new).await?;
    ensure!(policy == "Delete", "the new volume has the policy {policy}");
    // The old volume has the data of the new version.
    let kept = policy_and_phase(env, &old).await?;
    ensure!(
        kept == ("Retain".to_owned(), "Released".to_owned()),
        "the old volume is {kept:?}"
    );
    adopt(env, &old, "old", "256Mi").await?;
    start(env, "old", "old").await?;
    let found = (columns(env, "old").await?, count(env, "old").await?);
    let wanted = ("id".to_owned(), (ROWS + 1).to_string());
    ensure!(found == wanted, "the old volume has {found:?}");
    delete_pod(env, "old").await?;
    Ok(format!(
        "{restored}, as before; the replaced volume is retained, with {} rows of version 2",
        found.1
    ))
}
