//! The operator's requests while Flux reconciles at its intervals and nothing changes.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::ResourceExt;
use serde_json::json;
use testkit::{audit::Request, cluster::FLUX_NAMESPACE};

use super::{
    fixture::{Bench, LIMIT, brief},
    manifests::{BUSYBOX, deployment},
};
use crate::flux::{charts, release};

/// Interval of the objects of Flux.
const INTERVAL: &str = "5s";
/// Nothing may be written for this time.
const QUIET: Duration = Duration::from_secs(60);
/// The last message is written within this time.
const SETTLED: Duration = Duration::from_secs(5);
/// Least number of writes of Flux to each status in [`QUIET`]: otherwise its intervals are not live.
const LEAST: usize = 6;
/// Least number of renewals of the Lease in [`QUIET`]: otherwise the operator does not run.
const RENEWALS: usize = 5;

pub(super) async fn idle(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let _charts = charts(env).await?;
    let mut sleeper = release("sleeper", "sleeper", "1.0.0", &json!({ "text": "idle" }));
    sleeper["spec"]["interval"] = json!(INTERVAL);
    let objects = [deployment("web", BUSYBOX, &[]), sleeper];
    let source = bench.apply(("app", INTERVAL), &objects).await?;
    bench.manage("app", "app").await?;
    let revision = source.revision()?;
    bench
        .until("app", LIMIT, "Ready with its release", |status| {
            status.release.is_some()
        })
        .await?;
    bench.ready("app", &revision, LIMIT).await?;
    tokio::time::sleep(SETTLED).await;

    let before = bench.apps().get("app").await?.resource_version();
    let audit = env.testbed("the audit log")?.audit();
    let mark = audit.mark(&env.client).await?;
    tokio::time::sleep(QUIET).await;
    let counts = audit.counts(&env.client, mark).await?;
    let after = bench.apps().get("app").await?.resource_version();
    let status = bench.ready("app", &revision, LIMIT).await?;

    let user = &bench.operator.user;
    let is_lease = |request: &Request| request.resource.starts_with("leases");
    let writes =
        counts.of(|request| request.user == *user && request.is_write() && !is_lease(request));
    let renewals =
        counts.of(|request| request.user == *user && request.is_write() && is_lease(request));
    let reads =
        counts.of(|request| request.user == *user && !request.is_write() && !is_lease(request));
    let secrets = counts.of(|request| request.user == *user && request.resource == "secrets");
    ensure!(
        writes == 0 && before == after,
        "{writes} writes in {} s, version {before:?}, then {after:?}:\n{counts}",
        QUIET.as_secs()
    );
    ensure!(
        renewals >= RENEWALS,
        "the operator did not run: {renewals} renewals of its Lease"
    );
    // A release is read once, not at each interval.
    ensure!(secrets == 0, "{secrets} requests for Secrets:\n{counts}");
    let of_flux = format!("system:serviceaccount:{FLUX_NAMESPACE}:");
    let mut reconciled = Vec::new();
    for resource in [
        "kustomizations.kustomize.toolkit.fluxcd.io/status",
        "helmreleases.helm.toolkit.fluxcd.io/status",
    ] {
        let count = counts.of(|request| {
            let is_here = request.namespace == env.namespace && request.resource == resource;
            is_here && request.is_write() && request.user.starts_with(&of_flux)
        });
        ensure!(
            count >= LEAST,
            "Flux wrote '{resource}' {count} times in {} s at an interval of {INTERVAL}:\n{counts}",
            QUIET.as_secs()
        );
        reconciled.push(count.to_string());
    }
    Ok(format!(
        "0 writes and {reads} reads in {} s, beside {renewals} renewals of the Lease; Flux wrote its status {} times: {}",
        QUIET.as_secs(),
        reconciled.join(" and "),
        brief(&status)
    ))
}
