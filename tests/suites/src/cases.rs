//! Runs cases on fresh clusters of the tiers that they need.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use testbed::commands::announce;
use testkit::{
    cluster::{Addition, Cluster, Tier},
    junit::{self, CaseResult},
    suite::{self, Case, Place, Summary},
    times,
};

use crate::e2e::{attacks::Tally, first_user::Table, gateway};

/// A case of an operator, on the real node: its name, what it shows, and the function.
macro_rules! case {
    ($name:literal, $shows:literal, $run:path) => {
        crate::cases::case!(@ $name, $shows, |env| futures::FutureExt::boxed($run(env)))
    };
    (@ $name:literal, $shows:literal, $run:expr) => {
        testkit::suite::Case {
            name: $name,
            shows: $shows,
            tier: testkit::cluster::Tier::Node,
            additions: &[],
            suite: "",
            when: testkit::suite::When::Together,
            limit: std::time::Duration::from_secs(400),
            run: $run,
        }
    };
}
pub(crate) use case;

/// The same for one that gets a bench with an operator, which is judged when the case is done.
macro_rules! on_bench {
    ($name:literal, $shows:literal, $run:path) => {
        crate::cases::case!(@ $name, $shows, |env| {
            futures::FutureExt::boxed(async move {
                let bench = self::fixture::Bench::new(env).await?;
                let said = $run(&bench).await?;
                bench.done().await?;
                anyhow::Ok(said)
            })
        })
    };
}
pub(crate) use on_bench;

/// The same for one that has the cluster for itself, because it stops what the others need.
macro_rules! alone {
    ($name:literal, $shows:literal, $run:path) => {
        testkit::suite::Case {
            when: testkit::suite::When::Alone,
            ..crate::cases::case!($name, $shows, $run)
        }
    };
}
pub(crate) use alone;

/// The same for one that judges all others of its cluster.
macro_rules! last {
    ($name:literal, $shows:literal, $run:path) => {
        testkit::suite::Case {
            when: testkit::suite::When::Last,
            ..crate::cases::case!($name, $shows, $run)
        }
    };
}
pub(crate) use last;

/// Runs all cases, or those whose names are given; clusters are named after `suite`.
pub(crate) async fn run(
    suite: &str,
    cases: Vec<Case>,
    only: &[String],
    parallel: usize,
) -> Result<ExitCode> {
    run_prepared(suite, cases, only, parallel, async |_| Ok(())).await
}

/// The same, on clusters of ours to which something is done first.
pub(crate) async fn run_prepared(
    suite: &str,
    mut cases: Vec<Case>,
    only: &[String],
    parallel: usize,
    prepare: impl AsyncFn(&Cluster) -> Result<()>,
) -> Result<ExitCode> {
    junit::clear(suite)?;
    if let Some(unknown) = only
        .iter()
        .find(|name| !cases.iter().any(|case| case.name == *name))
    {
        let known: Vec<&str> = cases.iter().map(|case| case.name).collect();
        bail!("no case '{unknown}'; there are {}", known.join(", "));
    }
    cases.retain(|case| only.is_empty() || only.iter().any(|name| name == case.name));
    let places = places(suite, &cases).await?;
    for place in places.values() {
        if let Place::Testbed(cluster) = place {
            prepare(cluster).await?;
        }
    }
    let mut results = junit::Report::new(suite);
    let mut print = |line: &str| println!("{line}");
    let summary = suite::run(cases, &places, parallel, &mut results, &mut print).await;
    let stopped = stop(places).await;
    if let Some(table) = Table::now() {
        println!("{table}");
    }
    let tally = Tally::now();
    let attacks = tally.iter().map(ToString::to_string);
    // The suite of the gateway ends with the number of its cases, `attacks` with that of the attacks.
    let lines: Vec<String> = match gateway::Table::now() {
        Some(table) => [table.to_string()]
            .into_iter()
            .chain(attacks)
            .chain([summary.to_string()])
            .collect(),
        None => [summary.to_string()].into_iter().chain(attacks).collect(),
    };
    println!("{}", lines.join("\n"));
    if let Some(tally) = &tally {
        // Without this, an attack that succeeded only in the first try of a case would be a flaky pass.
        if !tally.is_clean() {
            let result = CaseResult::Failed(tally.to_string());
            results.add("attacks", "all attacks", Duration::ZERO, result);
        }
    }
    results.add_step("stop of the clusters", &stopped);
    if !summary.is_success() {
        summary.add_failure(&mut results);
    }
    let written = results.write();
    stopped?;
    written?;
    let withstood = tally.is_none_or(|tally| tally.is_clean());
    Ok(if summary.is_success() && withstood {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn places(suite: &str, cases: &[Case]) -> Result<BTreeMap<Tier, Place>> {
    let mut tiers: Vec<Tier> = cases.iter().map(|case| case.tier).collect();
    tiers.sort();
    tiers.dedup();
    let mut places = BTreeMap::new();
    if let Some(external) = Place::external() {
        external.check().await?;
        // A contributor's cluster has an API server and nodes; fake nodes it has not.
        tiers.retain(|tier| *tier != Tier::Kwok);
        places.extend(tiers.into_iter().map(|tier| (tier, external.clone())));
        return Ok(places);
    }
    for tier in tiers {
        let mut cluster = Cluster::start(
            &format!("{suite}-{}-{}", std::process::id(), tier.name()),
            tier,
        )
        .await?;
        cluster.add(&additions(cases, tier)).await?;
        announce(&cluster);
        places.insert(tier, Place::Testbed(Arc::new(cluster)));
    }
    Ok(places)
}

/// Additions that any case of a tier needs, each once.
fn additions(cases: &[Case], tier: Tier) -> Vec<Addition> {
    let of_tier = cases.iter().filter(|case| case.tier == tier);
    let needed: BTreeSet<Addition> = of_tier
        .flat_map(|case| case.additions.iter().copied())
        .collect();
    needed.into_iter().collect()
}

/// Ends all of them, also when one does not end.
async fn stop(places: BTreeMap<Tier, Place>) -> Result<()> {
    let mut result = Ok(());
    for place in places.into_values() {
        if let Place::Testbed(cluster) = place {
            let ended = match Arc::into_inner(cluster) {
                Some(cluster) => cluster.stop().await,
                None => Err(anyhow!("a case still holds its cluster")),
            };
            result = result.and(ended);
        }
    }
    result
}

/// Lines of cases as they end, and their sum.
pub(crate) struct Report {
    pub(crate) summary: Summary,
    results: junit::Report,
}

impl Report {
    /// Starts a suite, without the JUnit file of an earlier run.
    ///
    /// # Errors
    /// When that file cannot be removed.
    pub(crate) fn start(suite: &str) -> Result<Self> {
        junit::clear(suite)?;
        Ok(Self {
            summary: Summary::default(),
            results: junit::Report::new(suite),
        })
    }

    /// Prints how a case ended; whether it passed.
    pub(crate) fn case(&mut self, name: &str, start: Instant, result: Result<String>) -> bool {
        let (word, said) = match &result {
            Ok(seen) => {
                self.summary.passed += 1;
                ("ok     ", seen.clone())
            }
            Err(error) => {
                self.summary.failed += 1;
                ("FAILED ", format!("{error:#}"))
            }
        };
        let took = start.elapsed();
        if let Err(error) = times::record(name, took) {
            println!("the duration of '{name}' was not recorded: {error}");
        }
        println!("{word} {name:<16} {:>5.1} s  {said}", took.as_secs_f64());
        let has_passed = result.is_ok();
        let result = if has_passed {
            CaseResult::Passed(said)
        } else {
            CaseResult::Failed(said)
        };
        self.results.add("", name, took, result);
        has_passed
    }

    /// A case that had no chance, because one before it failed.
    pub(crate) fn skipped(&mut self, name: &str, why: &str) {
        self.summary.skipped += 1;
        println!("skipped {name:<16} {:>5}    {why}", "");
        let result = CaseResult::Skipped(why.to_owned());
        self.results.add("", name, Duration::ZERO, result);
    }

    /// Prints the sum and writes the JUnit file. A suite with skipped cases has failed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn end(mut self) -> Result<ExitCode> {
        println!("{}", self.summary);
        let is_success = self.summary.is_success() && self.summary.skipped == 0;
        if !is_success {
            self.summary.add_failure(&mut self.results);
        }
        self.results.write()?;
        Ok(if is_success {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_gets_each_addition_of_its_cases_once() {
        let case = |tier, additions: &'static [Addition]| Case {
            tier,
            additions,
            ..case!(@ "x", "nothing", |_| Box::pin(async { Ok(String::new()) }))
        };
        let cases = [
            case(Tier::Node, &[Addition::Flux, Addition::Shop]),
            case(Tier::Node, &[]),
            case(Tier::Node, &[Addition::Snapshots, Addition::Flux]),
            case(Tier::Node, &[Addition::Notebooks]),
            case(Tier::Api, &[]),
        ];
        assert_eq!(additions(&cases, Tier::Node), Addition::ALL);
        assert_eq!(additions(&cases, Tier::Api), []);
    }
}
