//! `cargo xtask test`: Cargo's ignored tests, with clusters for them.

use std::{collections::BTreeMap, fs, process::ExitCode};

use anyhow::{Result, ensure};
use futures::future::join_all;
use testbed::{
    build,
    commands::{announce, require_root, runtime},
};
use testkit::{
    cluster::{Cluster, SUITES_VARIABLE, Tier},
    junit,
    suite::{self, Place},
};

use crate::test_binaries;

/// Tests at once in one binary, and binaries at once: nearly all of them wait for a cluster. With more,
/// candidates with Leases of 3 s lose them on two cores.
const THREADS: &str = "--test-threads=4";
const BINARIES: usize = 2;

/// The name of its JUnit file.
const SUITE: &str = "cluster-tests";

pub(crate) fn run(filter: Option<&str>) -> Result<ExitCode> {
    junit::clear(SUITE)?;
    require_root()?;
    build::programs()?;
    let mut arguments = vec!["--ignored"];
    arguments.extend(filter);
    // Known before anything is started: a filter that matches nothing.
    let mut binaries = Vec::new();
    for binary in test_binaries::all()? {
        if binary.count(&arguments)? > 0 {
            binaries.push(binary);
        }
    }
    ensure!(
        !binaries.is_empty(),
        "no test that needs root or a cluster matches '{}'",
        filter.unwrap_or_default()
    );
    arguments.push(THREADS);

    let name = format!("test-{}", std::process::id());
    let skipped = std::env::temp_dir().join(format!("{name}-skipped"));
    let runtime = runtime()?;
    let clusters = runtime.block_on(clusters(&name))?;
    fs::write(&skipped, "")?;
    let program = testkit::process::this_program()?;
    let environment = BTreeMap::from([
        (SUITES_VARIABLE, program.display().to_string()),
        (suite::RUN_VARIABLE, name.clone()),
        (suite::SKIPPED_VARIABLE, skipped.display().to_string()),
    ]);
    let ran = test_binaries::run(SUITE, binaries, &arguments, &environment, BINARIES);
    let stopped = runtime.block_on(stop(clusters));
    let cannot = fs::read_to_string(&skipped)?;
    fs::remove_file(&skipped)?;
    let mut outcome = ran?;
    for line in cannot.lines() {
        let [binary, test, why] = suite::read_skipped(line);
        println!("cannot run on this cluster: {binary}: {test}: {why}");
        outcome.skip(binary, test, why);
    }
    outcome.results.add_step("stop of the clusters", &stopped);
    let ended = outcome.end();
    stopped?;
    Ok(if ended? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
