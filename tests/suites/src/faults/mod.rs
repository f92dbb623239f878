//! `cargo xtask faults …`: crashes, lost answers, refusals and old caches, on the real node.

mod actions;
mod apps;
pub(crate) mod mutants;
mod replicas;
mod report;
mod results;
pub(crate) mod seed;
mod share;
mod stand;
mod tasks;
mod tenants;
mod tested_operator;
mod transitions;

use std::{
    collections::BTreeMap,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use testbed::{
    build,
    commands::{require_root, runtime},
};
use testkit::{
    faults::{
        campaign::{self, Learning, Lesson, Manner, Tally, Verdict},
        plan::{self, Plan},
        scenario_run::QUIET,
        silent,
    },
    junit::{self, CaseResult},
    layout, operator,
};
use tokio::runtime::Runtime;

use self::{
    stand::{Cast, Stand},
    tested_operator::TestedOperator,
};

/// Plays wait more than they work.
const PARALLEL: usize = 10;

/// A whole campaign watches each scenario's end for so long, once.
const LONG_QUIET: Duration = Duration::from_secs(60);

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Some plans of all operators, by a seed, then replicas and transitions, on one cluster: CI
    Share(share::Arguments),
    /// Two operators with one Lease: the leader is killed, stopped and frozen, again and again
    Replicas {
        /// How often it is killed
        #[arg(long, default_value_t = 20)]
        kills: usize,
        /// How often it is asked to stop
        #[arg(long, default_value_t = 20)]
        terms: usize,
        /// How often it is frozen
        #[arg(long, default_value_t = 5)]
        freezes: usize,
    },
    /// Specs made from the CRDs' schemas, on live objects: taken and acted upon, or refused
    Transitions {
        /// How many
        #[arg(long, default_value_t = 2000)]
        count: usize,
        /// Which
        #[arg(long, default_value_t = 7)]
        seed: u64,
        /// Only the one of this name
        #[arg(long)]
        only: Option<String>,
    },
    /// Every plan of the operator of this name (`tasks`, `tenants` …), or some of them; see `OPERATOR --help`
    #[command(external_subcommand)]
    Operator(Vec<String>),
}

/// Plays every plan of an operator, or some of them.
#[derive(Parser)]
#[command(no_binary_name = true)]
pub(crate) struct Arguments {
    /// Only the plan of this id; may be repeated
    #[arg(long = "plan")]
    plans: Vec<String>,
    /// Only plans of this scenario; may be repeated
    #[arg(long = "scenario")]
    scenarios: Vec<String>,
    /// Compound schedules, by seeds from 0 [default: the operator's]
    #[arg(long)]
    compound: Option<u64>,
    /// Only plans with one watch that is open and silent, for 15 s and 120 s
    #[arg(long, conflicts_with_all = ["compound", "report"])]
    silent: bool,
    /// How many plays there are at a time [default: 10, with --silent 16]
    #[arg(long)]
    parallel: Option<usize>,
    /// Play nothing; print the plans
    #[arg(long)]
    list: bool,
    /// Write the page of the docs
    #[arg(long)]
    report: bool,
}

/// Runs one of them.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Share(arguments) => prepare()?.block_on(share::run(arguments)),
        Command::Replicas {
            kills,
            terms,
            freezes,
        } => one_case("replicas", async {
            let report = replicas::run([*kills, *terms, *freezes]).await?;
            anyhow::Ok((report.to_string(), report.is_clean(), report.result()))
        }),
        Command::Transitions { count, seed, only } => one_case("transitions", async {
            let report = match only {
                Some(name) => transitions::run_only(name).await?,
                None => transitions::run(*count, *seed).await?,
            };
            anyhow::Ok((report.to_string(), report.is_clean(), report.result()))
        }),
        Command::Operator(words) => {
            let (tested, arguments) = named(words)?;
            prepare()?.block_on(whole(tested, &arguments))
        }
    }
}

/// Plays a campaign that is one case: its report, whether that is clean, and the result.
fn one_case(
    name: &str,
    played: impl Future<Output = Result<(String, bool, CaseResult)>>,
) -> Result<ExitCode> {
    let suite = format!("faults-{name}");
    junit::clear(&suite)?;
    let runtime = prepare()?;
    let begin = Instant::now();
    let (report, is_clean, result) = runtime.block_on(played)?;
    print!("{report}");
    let mut results = junit::Report::new(&suite);
    results.add("", name, begin.elapsed(), result);
    results.write()?;
    Ok(ending(is_clean))
}

/// Builds everything that a cluster with operators needs.
fn prepare() -> Result<Runtime> {
    require_root()?;
    build::programs()?;
    runtime()
}

/// The operator of this name, and its options.
fn named(words: &[String]) -> Result<(&'static TestedOperator, Arguments)> {
    let (name, options) = words.split_first().context("which operator?")?;
    let tested = TestedOperator::named(name).with_context(|| {
        let names = TestedOperator::names();
        format!(
            "there is no operator '{name}'; there are: {names}; see 'cargo xtask faults --help'"
        )
    })?;
    Ok((tested, Arguments::parse_from(options)))
}

fn ending(is_clean: bool) -> ExitCode {
    if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn whole(tested: &'static TestedOperator, arguments: &Arguments) -> Result<ExitCode> {
    junit::clear(&suite(tested, arguments))?;
    let stand = Stand::start(&[tested], operator::built()?).await?;
    let played = campaign(&stand, tested, arguments).await;
    let stopped = stand.stop().await;
    let (code, results) = played?;
    // After the page: an error here must not discard the results of hours.
    let written = results.map_or(Ok(()), |mut results| {
        results.add_step("stop of the cluster", &stopped);
        results.write()
    });
    stopped?;
    written?;
    Ok(code)
}

/// Returns the name of the JUnit file of a campaign.
fn suite(tested: &TestedOperator, arguments: &Arguments) -> String {
    let silent = if arguments.silent { "-silent" } else { "" };
    format!("faults-{}{silent}", tested.row.name)
}

/// Plays the plans, prints the tally and writes the page. Returns no results if the plans are only listed.
async fn campaign(
    stand: &Stand,
    tested: &'static TestedOperator,
    arguments: &Arguments,
) -> Result<(ExitCode, Option<junit::Report>)> {
    let wanted = &arguments.scenarios;
    let is_asked = |name: &str| {
        (wanted.is_empty() && arguments.plans.is_empty())
            || wanted.iter().any(|one| one == name)
            || is_planned(name, &arguments.plans)
    };
    let cast: Vec<Cast> = stand
        .scenarios()
        .filter(|(_, one)| is_asked(one.name()))
        .cloned()
        .collect();
    ensure!(!cast.is_empty(), "there is no such scenario");
    let is_whole = arguments.plans.is_empty() && !arguments.list && !arguments.silent;
    let quiet = if is_whole { LONG_QUIET } else { QUIET };
    let learning = learned(&cast, arguments.parallel.unwrap_or(PARALLEL), quiet).await?;
    let compound = arguments.compound.unwrap_or(tested.compound);
    let (mut plans, parallel) = match arguments.silent {
        true => (campaign::silent_plans(&learning.lessons), silent::PARALLEL),
        false => (campaign::plans(&learning.lessons, compound), PARALLEL),
    };
    let parallel = arguments.parallel.unwrap_or(parallel);
    if !arguments.plans.is_empty() {
        plans = chosen(&learning.lessons, plans, &arguments.plans)?;
    }
    if arguments.list {
        for plan in &plans {
            println!("{}", plan.id());
        }
        return Ok((ending(learning.is_clean()), None));
    }
    if arguments.silent {
        let took = silent::estimate(&plans, &learning.play_times(), parallel);
        let (count, minutes) = (plans.len(), took.as_secs().div_ceil(60));
        println!("{count} plans, {parallel} at a time: at most about {minutes} min");
    }
    let tally = play(&learning, plans, parallel).await?;
    print!("{tally}");
    if arguments.report {
        let path = layout::repository().join(tested.page);
        let page = report::page(tested.row.name, &learning.lessons, &tally);
        std::fs::write(path, page)?;
    }
    let results = results::of(&suite(tested, arguments), &tally);
    Ok((ending(tally.is_clean()), Some(results)))
}

/// Whether one of these ids of plans is of this scenario.
fn is_planned(scenario: &str, ids: &[String]) -> bool {
    ids.iter().any(|id| id.split('/').next() == Some(scenario))
}

/// Learns the scenarios, and says what they showed.
async fn learned(cast: &[Cast], parallel: usize, quiet: Duration) -> Result<Learning> {
    let learning = campaign::learn(cast, parallel, quiet).await?;
    for lesson in &learning.lessons {
        println!(
            "learned {:<12} {} writes ({} not each time), {} kinds of requests, {} watched resources",
            lesson.scenario.name(),
            lesson.learned.writes.len(),
            lesson.learned.varying.len(),
            lesson.learned.routes.len(),
            lesson.learned.watched.len()
        );
    }
    for (id, violations) in &learning.divergences {
        let words = campaign::words(violations);
        println!("DIVERGES without any fault: {id}: {words}");
    }
    for path in &learning.kept {
        println!("  see {}", path.display());
    }
    for (id, why) in &learning.unjudged {
        println!("BROKEN without any fault: {id}: {why}");
    }
    Ok(learning)
}

/// The plans of these ids: as they were made, or as they are written.
fn chosen(lessons: &[Lesson], plans: Vec<Plan>, ids: &[String]) -> Result<Vec<Plan>> {
    let silent = campaign::silent_plans(lessons);
    let mut known: BTreeMap<String, Plan> = silent
        .into_iter()
        .chain(plans)
        .map(|plan| (plan.id(), plan))
        .collect();
    let mut chosen = Vec::new();
    for id in ids {
        let plan = match known.remove(id) {
            Some(plan) => plan,
            None => {
                let (scenario, words) = id.split_once('/').context("an id is SCENARIO/FAULTS")?;
                let mut lessons = lessons.iter();
                let lesson = lessons.find(|lesson| lesson.scenario.name() == scenario);
                let lesson = lesson.with_context(|| {
                    format!("scenario '{scenario}' is not known, or went wrong without any fault")
                })?;
                written(lesson, words).with_context(|| format!("there is no plan '{id}'"))?
            }
        };
        chosen.push(plan);
    }
    Ok(chosen)
}

/// `seed-7`, or faults.
fn written(lesson: &Lesson, words: &str) -> Result<Plan> {
    let scenario = lesson.scenario.name();
    match words.strip_prefix("seed-") {
        Some(seed) => Ok(plan::compound(scenario, &lesson.learned, seed.parse()?)),
        None => plan::of_words(scenario, words),
    }
}

async fn play(learning: &Learning, plans: Vec<Plan>, parallel: usize) -> Result<Tally> {
    let (all, mut done) = (plans.len(), 0);
    let manner = Manner {
        parallel,
        stops_at_first: false,
        environment: Vec::new(),
    };
    campaign::run(learning, plans, &manner, |id, verdict| {
        done += 1;
        println!("{done:>5}/{all} {}", line(id, verdict));
    })
    .await
}

/// How a plan ended, in one line.
fn line(id: &str, verdict: &Result<Verdict>) -> String {
    match verdict {
        Err(error) => format!("BROKEN    {id}: {error:#}"),
        Ok(verdict) => {
            let took = verdict.took.as_secs_f64();
            // A seed says little to who was not there.
            let script: Vec<String> = match verdict.plan.seed {
                Some(_) => verdict
                    .plan
                    .script
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                None => Vec::new(),
            };
            let script = script.join("+");
            if verdict.violations.is_empty() && verdict.was_reached {
                format!("ok        {took:>5.1} s  {id} {script}")
            } else if verdict.violations.is_empty() {
                format!("unreached {took:>5.1} s  {id} {script}")
            } else {
                let words = campaign::words(&verdict.violations);
                let kept = verdict.kept.as_deref().unwrap_or(Path::new("no file"));
                format!(
                    "DIVERGES  {took:>5.1} s  {id} {script}: {words}; see {}",
                    kept.display()
                )
            }
        }
    }
}
