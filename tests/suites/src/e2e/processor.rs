//! `cargo xtask e2e processor`: processor time of operators that were compiled differently, side by
//! side on fake nodes.

use std::{
    collections::BTreeMap, fs, path::PathBuf, process::ExitCode, sync::OnceLock, time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use testkit::{
    cluster::Tier,
    operator::Operator,
    suite::{Case, Env, When},
};

use super::budget;

/// Each operator has so many turns, alternately: the machine is not the same all the time.
const TURNS: usize = 2;

/// Ticks of the kernel's counters of processor time, per second; Linux has this on all machines.
const TICKS: f64 = 100.0;

static BINARIES: OnceLock<Vec<PathBuf>> = OnceLock::new();

pub(super) async fn run(binaries: &[PathBuf]) -> Result<ExitCode> {
    ensure!(!binaries.is_empty(), "no binary to measure");
    BINARIES.get_or_init(|| binaries.to_vec());
    let case = Case {
        name: "processor",
        shows: "processor time of operators per 1,000 TaskRuns",
        suite: "",
        tier: Tier::Kwok,
        additions: &[],
        when: When::Alone,
        limit: Duration::from_secs(1800),
        run: |env| measure(env).boxed(),
    };
    crate::cases::run("e2e-processor", vec![case], &[], 1).await
}

async fn measure(env: Env) -> Result<String> {
    let binaries = BINARIES.get().context("no binaries")?;
    let mut seconds: BTreeMap<&PathBuf, Vec<f64>> = BTreeMap::new();
    for turn in 0..TURNS {
        for binary in binaries {
            let plan = budget::prepare(&env, binary.clone()).await?;
            let operator = Operator::start(&env.client, &env.config, &plan).await?;
            if turn == 0 && seconds.is_empty() {
                budget::ready_agent(&env.api()).await?;
            }
            let before = processor_seconds(&operator)?;
            budget::submit(&env).await?;
            budget::finished(&env).await?;
            budget::cleaned(&env).await?;
            let used = processor_seconds(&operator)? - before;
            operator.stop().await?;
            budget::remove(&env).await?;
            let per_thousand = used * 1000.0 / budget::RUNS as f64;
            println!(
                "{}: {per_thousand:.2} s per 1,000 TaskRuns",
                binary.display()
            );
            seconds.entry(binary).or_default().push(per_thousand);
        }
    }
    let lines = seconds.iter().map(|(binary, all)| {
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        format!("'{}' {mean:.2} s", binary.display())
    });
    Ok(lines.collect::<Vec<_>>().join(", "))
}

/// Returns the processor time that a process has used, in user and kernel mode.
fn processor_seconds(operator: &Operator) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", operator.pid()?))?;
    // The name in parentheses may contain blanks.
    let (_, fields) = stat
        .rsplit_once(')')
        .context("no name in the process's stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let mut ticks = 0;
    // utime and stime, the 14th and 15th field; the state after the name is the third.
    for field in fields.get(11..13).context("a short stat of the process")? {
        ticks += field.parse::<u64>()?;
    }
    Ok(ticks as f64 / TICKS)
}
