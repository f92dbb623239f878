//! Git and Flux alone do not return the data. A RollbackRequest does.

use anyhow::{Result, ensure};
use api::apps::{RollbackRequest, UpgradeRequest};
use kube::api::ListParams;
use serde_json::json;
use testkit::git::Entry;

use super::{
    database::{CLAIM, DATABASE, checksum, columns, fill},
    evidence::{
        claim, commits_of, flux_is_free, head, helm, release_file, scales, until_deployed,
        volume_of,
    },
    fixture::{Bench, END, RELEASE_FILE, Setup, UNDONE},
    helm::ROWS,
};
use crate::{flux::condition, verify::shop::crashes};

/// The program of version 1 on migrated data.
const REFUSAL: &str = "version 1 cannot use the data of a newer version";

/// A version that crash-loops must not occupy helm-controller until its timeout.
fn without_wait() -> serde_json::Value {
    json!({ "upgrade": { "disableWait": true } })
}

pub(super) async fn control(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            release: without_wait(),
            ..Setup::shop("shop")
        })
        .await?;
    fill(env, ROWS).await?;
    let before = checksum(env, DATABASE).await?;
    let (file, counts) = (release_file(&app, &head(&app)?)?, scales(env).await?);
    bench.upgraded("up", &app, "2.0.0").await?;

    // The experiment: someone reverts the commit, and Flux applies it.
    let revert = [(RELEASE_FILE, Entry::File(file.as_bytes()))];
    app.source.push("Revert the upgrade", &revert).await?;
    until_deployed(env, "shop", "1.0.0", 2).await?;
    crashes(env, "1", REFUSAL).await?;
    let columns_of_flux = columns(env, DATABASE).await?;
    let [ready, reason, _] = condition(&helm(env, "shop").await?, "Ready");
    ensure!(
        columns_of_flux == "id",
        "the columns are {columns_of_flux}, although Flux restores no data"
    );

    // The repair. Git has the version from before already, so nothing is pushed.
    let base = head(&app)?;
    bench.roll_back("back", "up").await?;
    bench.succeeds::<RollbackRequest>("back", END).await?;
    let uid = bench.uid::<RollbackRequest>("back").await?;
    ensure!(
        head(&app)? == base && commits_of(&app, &uid)?.is_empty(),
        "the rollback has pushed a commit"
    );
    let restored = checksum(env, DATABASE).await?;
    ensure!(restored == before, "{restored} instead of {before}");
    bench.settled(&app).await?;
    flux_is_free(env, "shop").await?;
    ensure!(scales(env).await? == counts, "other scales than {counts:?}");
    Ok(format!(
        "Git and Flux alone: chart 1.0.0, columns '{columns_of_flux}', HelmRelease Ready={ready} ({reason}), and version 1 \
         crash-loops; with a RollbackRequest: {restored}, as before, and version 1 is ready"
    ))
}

pub(super) async fn automatic(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            release: without_wait(),
            app: json!({ "autoRollback": true, "phaseTimeouts": { "healthCheck": "40s" } }),
            ..Setup::shop("shop")
        })
        .await?;
    fill(env, ROWS).await?;
    let before = checksum(env, DATABASE).await?;
    let (file, counts) = (release_file(&app, &head(&app)?)?, scales(env).await?);
    let old = volume_of(&claim(env, CLAIM).await?)?;
    bench.upgrade("up", "shop", "3.0.0", json!({})).await?;
    bench
        .in_phase::<UpgradeRequest>("up", "HealthCheck", END)
        .await?;
    crashes(env, "3", "version 3 fails after its migration").await?;
    let migrated = columns(env, DATABASE).await?;
    ensure!(migrated == "id", "version 3 left the columns {migrated}");
    let name = "up-rollback";
    let failed = bench
        .fails::<UpgradeRequest>("up", UNDONE, "Unhealthy", &[name])
        .await?;
    ensure!(failed.commit.is_some(), "nothing was pushed");

    // R34: one rollback, which does not wait for its own upgrade. Pods of version 3 migrate at each start until it stops
    // them.
    bench.succeeds::<RollbackRequest>(name, END).await?;
    let all = bench.rollbacks().list(&ListParams::default()).await?.items;
    ensure!(all.len() == 1, "{} RollbackRequests", all.len());
    let restored = checksum(env, DATABASE).await?;
    ensure!(restored == before, "{restored} instead of {before}");
    let now = release_file(&app, &head(&app)?)?;
    ensure!(now == file, "the file is '{now}' instead of '{file}'");
    let new = volume_of(&claim(env, CLAIM).await?)?;
    ensure!(old != new, "the claim has its old volume");
    bench.settled(&app).await?;
    flux_is_free(env, "shop").await?;
    ensure!(scales(env).await? == counts, "other scales than {counts:?}");
    Ok(format!(
        "{restored}, as before, although version 3 migrated at each start"
    ))
}
