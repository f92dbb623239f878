//! `cargo xtask test`: Cargo's ignored tests, with clusters for them.

use std::{
    fs,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use testkit::{
    cluster::{Cluster, Tier, XTASK_VARIABLE},
    layout,
    suite::{self, Place},
};

use crate::testbed::{build_driver, runtime};

pub(crate) fn run(filter: Option<&str>) -> Result<ExitCode> {
    build_driver()?;
    let name = format!("test-{}", std::process::id());
    let skipped = std::env::temp_dir().join(format!("{name}-skipped"));
    fs::write(&skipped, "")?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["test", "--workspace", "--quiet", "--"])
        .arg("--ignored")
        .args(filter)
        .current_dir(layout::repository())
        .env(XTASK_VARIABLE, std::env::current_exe()?)
        .env(suite::RUN_VARIABLE, &name)
        .env(suite::SKIPPED_VARIABLE, &skipped);
    let runtime = runtime()?;
    let clusters = if Place::external().is_some() {
        Vec::new()
    } else {
        runtime.block_on(try_join_all(Tier::ALL.map(|tier| start(&name, tier))))?
    };
    let status = cargo.status().context("cannot run cargo");
    runtime.block_on(try_join_all(clusters.into_iter().map(Cluster::stop)))?;
    let cannot = fs::read_to_string(&skipped)?;
    fs::remove_file(&skipped)?;
    for line in cannot.lines() {
        println!("cannot run on this cluster: {line}");
    }
    Ok(if status?.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn start(run: &str, tier: Tier) -> Result<Cluster> {
    let cluster = Cluster::start(&suite::shared_name(run, tier), tier).await?;
    if let Some(times) = &cluster.times {
        println!("cluster '{}' started: {times}", cluster.folders.name);
    }
    Ok(cluster)
}
