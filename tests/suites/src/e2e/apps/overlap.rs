//! Two ManagedApps with a common object: the older one is valid.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::status::condition;
use kube::{ResourceExt, api::DeleteParams};

use super::{
    fixture::{Bench, LIMIT, RARELY},
    manifests::{BUSYBOX, claim, deployment},
};

/// Creation times have seconds. Between ManagedApps of one second, the UID decides.
const SECOND: Duration = Duration::from_millis(1100);

/// `app` and `twin` have the same Kustomization. `reader` has another one, whose Deployment mounts the claim of `app`.
pub(super) async fn overlap(bench: &Bench) -> Result<String> {
    let objects = [claim("files"), deployment("web", BUSYBOX, &["files"])];
    let source = bench.launch("app", &objects).await?;
    let reader = [deployment("reader", BUSYBOX, &["files"])];
    let of_reader = bench.apply(("reader", RARELY), &reader).await?;
    for (name, kustomization) in [("twin", "app"), ("reader", "reader")] {
        tokio::time::sleep(SECOND).await;
        bench.manage(name, kustomization).await?;
    }
    is_in_order(bench, &["app", "twin", "reader"]).await?;
    let older = format!("ManagedApp '{}/app'", bench.env.namespace);
    let kustomization = bench.quoted("Kustomization", "app");
    let volume = bench.quoted("PersistentVolumeClaim", "files");
    let (message, _) = bench
        .reports("twin", "AppOverlaps", &[&kustomization, &older])
        .await?;
    bench
        .reports("reader", "AppOverlaps", &[&volume, &older])
        .await?;
    let status = bench.status("app").await?;
    ensure!(
        status.progress.is_true(condition::READY),
        "the older one is not Ready: {:?}",
        status.progress.message
    );

    // The next one becomes valid when an older one is deleted.
    bench.apps().delete("app", &DeleteParams::default()).await?;
    bench.ready("twin", &source.revision()?, LIMIT).await?;
    let older = format!("ManagedApp '{}/twin'", bench.env.namespace);
    bench
        .reports("reader", "AppOverlaps", &[&volume, &older])
        .await?;
    bench
        .apps()
        .delete("twin", &DeleteParams::default())
        .await?;
    bench.ready("reader", &of_reader.revision()?, LIMIT).await?;
    Ok(message)
}

/// The creation times are in this order.
async fn is_in_order(bench: &Bench, names: &[&str]) -> Result<()> {
    let mut times = Vec::new();
    for name in names {
        let app = bench.apps().get(name).await?;
        times.push(app.creation_timestamp().map(|time| time.0));
    }
    let is_rising = times.windows(2).all(|pair| pair[0] < pair[1]);
    ensure!(is_rising, "{names:?} were created at {times:?}");
    Ok(())
}
