//! The operator is killed in each phase of an upgrade and of its rollback. Stored deadlines stay, and nothing is done twice.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use api::{
    Status,
    apps::{RollbackRequest, UpgradeRequest},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use testkit::suite::Env;

use super::{
    evidence::{claim_names, commits_of, flux_is_free, scales, snapshots},
    fixture::{Bench, Operation, Setup},
    volume::{SlowClass, starts, store_claim, store_pod},
};
use crate::e2e::reading::{brief, phase_of};

/// The next operator leads when the Lease of the killed one is over.
const LEASE: &str = "leaderElection: { leaseDurationSeconds: 6, renewSeconds: 2 }\n";

/// Phases of an upgrade that wait for something.
const OF_UPGRADE: [&str; 7] = [
    "Plan",
    "Suspend",
    "ScaleDown",
    "Snapshot",
    "GitCommit",
    "Reconcile",
    "HealthCheck",
];
/// Those of a rollback.
const OF_ROLLBACK: [&str; 8] = [
    "Plan",
    "Suspend",
    "ScaleDown",
    "VolumeRestore",
    "GitRevert",
    "VolumeSwap",
    "Reconcile",
    "HealthCheck",
];
/// Progress moves the deadlines of these phases.
const PROGRESSING: [&str; 2] = ["Snapshot", "VolumeRestore"];

/// Time between two reads of the status. A phase may be over within half a second.
const READ: Duration = Duration::from_millis(30);
/// A request with an operator that is killed in each phase ends within this time.
const WHOLE: Duration = Duration::from_secs(180);

/// A phase as its beginning stored it.
#[derive(Debug, Clone, PartialEq)]
struct Begun {
    phase: String,
    started: Option<Time>,
    deadline: Option<Time>,
}

impl Begun {
    fn of<S: Status>(state: &S) -> Self {
        let (phase, progress) = (phase_of(state), state.progress());
        let deadline = progress.deadline_at.clone();
        Self {
            started: progress.phase_started_at.clone(),
            deadline: deadline.filter(|_| !PROGRESSING.contains(&phase.as_str())),
            phase,
        }
    }
}

/// Kills the operator once in each phase of a request. Returns the phases.
async fn killed_in_each<R: Operation>(bench: &mut Bench, name: &str) -> Result<Vec<String>> {
    let begin = Instant::now();
    let mut seen: Vec<Begun> = Vec::new();
    loop {
        let state = bench.state::<R>(name).await?;
        let now = Begun::of(&state);
        if state.is_over() {
            ensure!(now.phase == "Succeeded", "{}", brief(&state));
            return Ok(seen.into_iter().map(|one| one.phase).collect());
        }
        ensure!(
            begin.elapsed() < WHOLE,
            "not over after {} s: {}",
            WHOLE.as_secs(),
            brief(&state)
        );
        match seen.iter().find(|one| one.phase == now.phase) {
            // A request in Pending may not have been reconciled yet.
            _ if now.phase == "Pending" => {}
            Some(stored) => ensure!(
                *stored == now,
                "another operator has moved the deadline: {stored:?}, then {now:?}"
            ),
            None => {
                ensure!(
                    now.deadline.is_some() || is_progressing(&now),
                    "no deadline: {now:?}"
                );
                seen.push(now);
                bench.replace_operator().await?;
            }
        }
        tokio::time::sleep(READ).await;
    }
}

fn is_progressing(phase: &Begun) -> bool {
    PROGRESSING.contains(&phase.phase.as_str())
}

/// The operator was killed in all of these phases.
fn has_all(phases: &[String], wanted: &[&str]) -> Result<()> {
    let missed = wanted
        .iter()
        .find(|phase| !phases.iter().any(|seen| seen == **phase));
    ensure!(missed.is_none(), "not killed in {missed:?}: {phases:?}");
    Ok(())
}

pub(super) async fn each_phase(env: Env) -> Result<String> {
    let mut bench = Bench::configured(env, LEASE).await?;
    let env = bench.env.clone();
    let class = SlowClass::new(&env, 4).await?;
    let app = bench
        .launch(Setup {
            values: json!({ "grace": 3 }),
            app: json!({
                "healthCheck": { "stableFor": "3s" },
                "volumeSnapshots": { "volumeSnapshotClassName": class.name },
            }),
            ..Setup::store("app")
        })
        .await?;
    let counts = scales(&env).await?;
    bench.upgrade("up", "app", "2.0.0", json!({})).await?;
    let phases = killed_in_each::<UpgradeRequest>(&mut bench, "up").await?;
    has_all(&phases, &OF_UPGRADE)?;
    bench.settled(&app).await?;
    let uid = bench.uid::<UpgradeRequest>("up").await?;
    let own = commits_of(&app, &uid)?;
    ensure!(own.len() == 1, "commits of the upgrade: {own:?}");
    let taken = snapshots(&env).await?.len();
    ensure!(taken == 1, "{taken} snapshots of 1 volume");
    let started = starts(&env, &store_pod("app")).await?;
    ensure!(
        started == ["1.0.0", "2.0.0"],
        "started versions: {started:?}"
    );

    bench.roll_back("back", "up").await?;
    let back = killed_in_each::<RollbackRequest>(&mut bench, "back").await?;
    has_all(&back, &OF_ROLLBACK)?;
    bench.settled(&app).await?;
    let uid = bench.uid::<RollbackRequest>("back").await?;
    let own = commits_of(&app, &uid)?;
    ensure!(own.len() == 1, "commits of the rollback: {own:?}");
    let names = claim_names(&env).await?;
    ensure!(names == [store_claim("app")], "claims {names:?}");
    let started = starts(&env, &store_pod("app")).await?;
    ensure!(started == ["1.0.0"], "started versions: {started:?}");
    let now = scales(&env).await?;
    ensure!(now == counts, "{now:?} instead of {counts:?}");
    flux_is_free(&env, "app").await?;
    class.release().await?;
    bench.done().await?;
    Ok(format!(
        "killed in {} phases of an upgrade and {} of its rollback; 1 commit each",
        phases.len(),
        back.len()
    ))
}
