//! `cargo xtask test`: Cargo's ignored tests, with clusters for them.

use std::{
    fs,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use testkit::{
    cluster::{Cluster, Tier, XTASK_VARIABLE},
    layout,
    suite::{self, Place},
};

use crate::testbed::{announce, build_driver, require_root, runtime};

pub(crate) fn run(filter: Option<&str>) -> Result<ExitCode> {
    require_root()?;
    // Compiles before anything is started, and knows a filter that matches nothing.
    let listed = cargo(filter)
        .arg("--list")
        .stdout(Stdio::piped())
        .output()
        .context("cannot run cargo")?;
    ensure!(
        listed.status.success(),
        "the tests do not compile: {}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let count = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter(|line| line.ends_with(": test"))
        .count();
    ensure!(
        count > 0,
        "no test that needs root or a cluster matches '{}'",
        filter.unwrap_or_default()
    );

    build_driver()?;
    let name = format!("test-{}", std::process::id());
    let skipped = std::env::temp_dir().join(format!("{name}-skipped"));
    let runtime = runtime()?;
    let clusters = runtime.block_on(clusters(&name))?;
    fs::write(&skipped, "")?;
    let status = cargo(filter)
        .env(XTASK_VARIABLE, testkit::process::this_program()?)
        .env(suite::RUN_VARIABLE, &name)
        .env(suite::SKIPPED_VARIABLE, &skipped)
        .status();
    let stopped = runtime.block_on(stop(clusters));
    let cannot = fs::read_to_string(&skipped)?;
    fs::remove_file(&skipped)?;
    for line in cannot.lines() {
        println!("cannot run on this cluster: {line}");
    }
    stopped?;
    let status = status.context("cannot run cargo")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn cargo(filter: Option<&str>) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["test", "--workspace", "--quiet", "--", "--ignored"])
        .args(filter);
    command.current_dir(layout::repository());
    command
}

/// One of each tier, or none where the contributor has one.
async fn clusters(run: &str) -> Result<Vec<Cluster>> {
    if let Some(external) = Place::external() {
        external.check().await?;
        return Ok(Vec::new());
    }
    let starts =
        Tier::ALL.map(async |tier| Cluster::start(&suite::shared_name(run, tier), tier).await);
    let (mut started, mut failed) = (Vec::new(), None);
    for result in join_all(starts).await {
        match result {
            Ok(cluster) => started.push(cluster),
            Err(error) => failed = Some(error),
        }
    }
    if let Some(error) = failed {
        stop(started).await?;
        return Err(error);
    }
    started.iter().for_each(announce);
    Ok(started)
}

/// Ends all of them, also when one does not end.
async fn stop(clusters: Vec<Cluster>) -> Result<()> {
    join_all(clusters.into_iter().map(Cluster::stop))
        .await
        .into_iter()
        .collect()
}
