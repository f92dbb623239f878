//! Flux is installed on a cluster in which the operator and a ManagedApp wait for it.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use serde_json::json;
use testkit::{
    cluster::{Addition, Cluster, Tier},
    git::Server,
    suite::{Env, new_namespace},
};
use tokio::runtime::Handle;

use super::{
    cluster::equals,
    fixture::{Bench, LIMIT, RARELY},
    manifests::{BUSYBOX, deployment},
};

const CRD: &str = "kustomizations.kustomize.toolkit.fluxcd.io";

/// A cluster of its own, because all other cases need Flux.
pub(super) async fn installed_later(env: Env) -> Result<String> {
    env.testbed("a cluster without Flux")?;
    let name = format!("e2e-apps-{}-bare", std::process::id());
    let cluster = blocking(async move || Cluster::start(&name, Tier::Node).await).await??;
    let git = Server::in_cluster(&cluster)?;
    let bench = Bench::with(place(env, &cluster).await?, git, "").await?;
    let crds: Api<CustomResourceDefinition> = Api::all(bench.env.client.clone());
    ensure!(crds.get_opt(CRD).await?.is_none(), "'{CRD}' exists already");
    bench.manage("app", "app").await?;
    let named = bench.quoted("Kustomization", "app");
    let (message, _) = bench.reports("app", "FluxNotInstalled", &[&named]).await?;

    let (cluster, added) = blocking(async move || {
        let mut cluster = cluster;
        let added = cluster.add(&[Addition::Flux]).await;
        (cluster, added)
    })
    .await?;
    added?;
    // It is the same process: nothing starts an operator again.
    let begin = Instant::now();
    bench
        .reports("app", "FluxObjectNotFound", &[&named])
        .await?;
    let found = begin.elapsed();
    let web = [deployment("web", BUSYBOX, &[])];
    let source = bench.apply(("app", RARELY), &web).await?;
    bench.ready("app", &source.revision()?, LIMIT).await?;
    equals(&bench, "app", &[("Deployment", "web")]).await?;
    bench.done().await?;
    blocking(async move || cluster.stop().await).await??;
    Ok(format!(
        "{message}; found {:.1} s after Flux was available, then Ready",
        found.as_secs_f64()
    ))
}

/// Returns the place of a case on another cluster.
pub(super) async fn place(mut env: Env, cluster: &Cluster) -> Result<Env> {
    env.config = cluster.config().await?;
    env.client = Client::try_from(env.config.clone())?;
    let metadata = json!({ "generateName": "t-no-flux-" });
    env.namespace = new_namespace(&env.client, metadata).await?;
    Ok(env)
}

/// Runs work on a cluster in a thread of its own: its future cannot move between threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl AsyncFnOnce() -> T + Send + 'static,
) -> Result<T> {
    let handle = Handle::current();
    tokio::task::spawn_blocking(move || handle.block_on(work()))
        .await
        .context("the thread panicked")
}
