//! `cargo xtask faults share`: some plans of every operator, by a seed, then replicas and transitions, all
//! on one cluster.

use std::{fmt, process::ExitCode, time::Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use testkit::{
    cluster::Cluster,
    faults::{
        campaign::{self, Learning, Tally},
        plan::{self, Plan},
        scenario_run::QUIET,
        silent,
    },
    junit, operator,
};

use super::{
    PARALLEL, chosen, ending, is_planned, learned, replicas, results,
    seed::{Seed, seed},
    stand::{Cast, Stand},
    tested_operator::TestedOperator,
    transitions,
};

/// The name of its JUnit file.
const SUITE: &str = "faults-share";

/// The plays that the summary names.
const SLOWEST: usize = 10;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Chooses the plans [default: the variable ORCHESTRATOR_SEED, or the commit's first digits]
    #[arg(long)]
    seed: Option<u64>,
    /// Plans per operator, such as `tasks=60,tenants=30` [default: each operator's own]
    #[arg(long = "plans", value_name = "OPERATOR=COUNT", value_delimiter = ',', value_parser = size)]
    sizes: Vec<(&'static str, usize)>,
    /// Only the plan of this id, and neither replicas nor transitions; may be repeated
    #[arg(long = "plan", value_name = "ID")]
    plans: Vec<String>,
    /// How often the leader of two replicas is killed
    #[arg(long, default_value_t = 2)]
    kills: usize,
    /// How often it is asked to stop
    #[arg(long, default_value_t = 2)]
    terms: usize,
    /// How often it is frozen
    #[arg(long, default_value_t = 1)]
    freezes: usize,
    /// How many specs are changed
    #[arg(long, default_value_t = 300)]
    transitions: usize,
    /// How many plays there are at a time
    #[arg(long, default_value_t = PARALLEL)]
    parallel: usize,
    /// Play nothing with faults; print the plans
    #[arg(long)]
    list: bool,
}

fn size(words: &str) -> Result<(&'static str, usize)> {
    let (name, count) = words.split_once('=').context("expected OPERATOR=COUNT")?;
    let tested = TestedOperator::named(name).with_context(|| {
        let names = TestedOperator::names();
        format!("there is no operator '{name}'; there are: {names}")
    })?;
    Ok((tested.row.name, count.parse()?))
}

impl Arguments {
    fn size_of(&self, tested: &TestedOperator) -> usize {
        let mut asked = self.sizes.iter().rev();
        let asked = asked.find(|(name, _)| *name == tested.row.name);
        asked.map_or(tested.share, |(_, count)| *count)
    }
}

/// What the plans of one operator are a share of.
struct Part {
    operator: &'static str,
    plans: usize,
    of: usize,
    /// More plans, with a silent watch: one for each watched resource.
    silent: usize,
}

/// Everything that was played.
struct Summary {
    seed: Seed,
    parts: Vec<Part>,
    tally: Tally,
    replicas: Option<replicas::Report>,
    transitions: Option<transitions::Report>,
    /// Parts that could not be played, and the reason.
    errors: Vec<String>,
}

impl Summary {
    fn is_clean(&self) -> bool {
        let replicas = self.replicas.as_ref();
        let transitions = self.transitions.as_ref();
        self.tally.is_clean()
            && self.errors.is_empty()
            && replicas.is_none_or(replicas::Report::is_clean)
            && transitions.is_none_or(transitions::Report::is_clean)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            parts,
            tally,
            replicas,
            transitions,
            errors,
        } = self;
        writeln!(out, "== faults: seed {} ({})", seed.number, seed.origin)?;
        for Part {
            operator,
            plans,
            of,
            silent,
        } in parts
        {
            writeln!(
                out,
                "{operator}: {plans} plans of {of}, {silent} with a silent watch"
            )?;
        }
        write!(out, "{tally}")?;
        for id in &tally.unreached {
            let why = match tally.varying.contains(id) {
                true => " (not every play makes this request)",
                false => "",
            };
            writeln!(out, "not reached: {id}{why}")?;
        }
        for (id, took) in tally.slowest(SLOWEST) {
            writeln!(out, "slowest: {:>6.1} s  {id}", took.as_secs_f64())?;
        }
        for (id, violations) in &tally.divergences {
            let words = campaign::words(violations);
            writeln!(out, "DIVERGES {id}: {words}")?;
        }
        for (id, why) in &tally.unjudged {
            writeln!(out, "BROKEN {id}: {why}")?;
        }
        if !tally.divergences.is_empty() {
            writeln!(out, "play one again: cargo xtask faults share --plan ID")?;
        }
        if let Some(report) = replicas {
            write!(out, "== replicas\n{report}")?;
        }
        if let Some(report) = transitions {
            write!(out, "== transitions\n{report}")?;
        }
        for error in errors {
            writeln!(out, "ERROR {error}")?;
        }
        let word = if self.is_clean() {
            "clean"
        } else {
            "NOT CLEAN"
        };
        writeln!(out, "== faults: {word}")
    }
}

/// Plays the share.
///
/// # Errors
/// When no plan could be played. Other errors, and violations by the operators, are in the summary.
pub(super) async fn run(arguments: &Arguments) -> Result<ExitCode> {
    junit::clear(SUITE)?;
    let seed = seed(arguments.seed)?;
    println!("seed {} ({})", seed.number, seed.origin);
    let operators: Vec<&'static TestedOperator> = TestedOperator::ALL.iter().collect();
    let stand = Stand::start(&operators, operator::built()?).await?;
    let played = plays(&stand, arguments, &seed).await;
    let cluster = stand.close();
    let (parts, tally) = match played {
        Ok(Some(played)) => played,
        Ok(None) => {
            cluster.stop().await?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => {
            cluster.stop().await?;
            return Err(error);
        }
    };
    let mut results = results::of(SUITE, &tally);
    let mut summary = Summary {
        seed,
        parts,
        tally,
        replicas: None,
        transitions: None,
        errors: Vec::new(),
    };
    let others = others(&cluster, arguments, &mut summary, &mut results).await;
    let stopped = cluster.stop().await;
    results.add_step("stop of the cluster", &stopped);
    let written = results.write();
    let errors = [others, stopped].into_iter().filter_map(Result::err);
    summary.errors = errors.map(|error| format!("{error:#}")).collect();
    print!("{summary}");
    written?;
    Ok(ending(summary.is_clean()))
}

/// The plans of all operators, in one round; nothing if they are only listed.
async fn plays(
    stand: &Stand,
    arguments: &Arguments,
    seed: &Seed,
) -> Result<Option<(Vec<Part>, Tally)>> {
    let ids = &arguments.plans;
    let is_asked = |name: &str| ids.is_empty() || is_planned(name, ids);
    let cast: Vec<Cast> = stand
        .scenarios()
        .filter(|(_, one)| is_asked(one.name()))
        .cloned()
        .collect();
    ensure!(!cast.is_empty(), "there is no such scenario");
    let learning = learned(&cast, arguments.parallel, QUIET).await?;
    let (parts, plans) = match ids.as_slice() {
        [] => shares(stand, &learning, arguments, seed.number),
        ids => {
            let plans = chosen(&learning.lessons, Vec::new(), ids)?;
            (Vec::new(), plans)
        }
    };
    if arguments.list {
        for plan in &plans {
            println!("{}", plan.id());
        }
        return Ok(None);
    }
    let tally = super::play(&learning, plans, arguments.parallel).await?;
    Ok(Some((parts, tally)))
}

/// The share of each operator.
fn shares(
    stand: &Stand,
    learning: &Learning,
    arguments: &Arguments,
    seed: u64,
) -> (Vec<Part>, Vec<Plan>) {
    let (mut parts, mut plans) = (Vec::new(), Vec::new());
    for one in &stand.operators {
        let tested = one.tested;
        let names: Vec<&str> = one.scenarios.iter().map(|(_, one)| one.name()).collect();
        let lessons: Vec<_> = learning
            .lessons
            .iter()
            .filter(|lesson| names.contains(&lesson.scenario.name()))
            .cloned()
            .collect();
        let all = campaign::plans(&lessons, tested.compound);
        let of = all.len();
        let some = plan::share(all, arguments.size_of(tested), seed);
        let silent = match arguments.size_of(tested) {
            0 => Vec::new(),
            _ => silent::share(&campaign::known(&lessons), seed),
        };
        parts.push(Part {
            operator: tested.row.name,
            plans: some.len(),
            of,
            silent: silent.len(),
        });
        plans.extend(some);
        plans.extend(silent);
    }
    (parts, plans)
}

/// Replicas, and then transitions: these take the node away.
///
/// # Errors
/// When one of them could not be played. `results` then has a failed case.
async fn others(
    cluster: &Cluster,
    arguments: &Arguments,
    summary: &mut Summary,
    results: &mut junit::Report,
) -> Result<()> {
    if !arguments.plans.is_empty() {
        return Ok(());
    }
    let counts = [arguments.kills, arguments.terms, arguments.freezes];
    if counts != [0, 0, 0] {
        let begin = Instant::now();
        let played = replicas::on(cluster, counts).await;
        let result = results::of_part(&played, replicas::Report::result);
        results.add("", "replicas", begin.elapsed(), result);
        summary.replicas = Some(played.context("replicas")?);
    }
    if arguments.transitions > 0 {
        let (begin, seed) = (Instant::now(), summary.seed.number);
        let played = transitions::on(cluster, arguments.transitions, seed).await;
        let result = results::of_part(&played, transitions::Report::result);
        results.add("", "transitions", begin.elapsed(), result);
        summary.transitions = Some(played.context("transitions")?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn an_operator_has_its_share_or_the_one_that_is_asked_for() {
        let read = |words: &[&str]| {
            let words = ["share"].iter().chain(words);
            <Line as clap::Parser>::try_parse_from(words).map(|line| line.arguments)
        };
        let sizes = |words: &[&str]| -> Vec<usize> {
            let arguments = read(words).unwrap();
            let all = TestedOperator::ALL.iter();
            all.map(|tested| arguments.size_of(tested)).collect()
        };
        let usual: Vec<usize> = TestedOperator::ALL
            .iter()
            .map(|tested| tested.share)
            .collect();
        assert_eq!(sizes(&[]), usual);
        assert_eq!(sizes(&["--plans", "tenants=1,tasks=2"])[..2], [2, 1]);
        assert_eq!(sizes(&["--plans", "tasks=2"])[1], usual[1]);
        for wrong in ["none=1", "tasks", "tasks=many"] {
            assert!(read(&["--plans", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_summary_names_the_seed_and_what_was_missed() {
        let mut tally = Tally {
            unreached: vec!["a/x".to_owned(), "a/y".to_owned()],
            varying: ["a/y".to_owned()].into(),
            ..Tally::default()
        };
        for second in 0..12 {
            let took = std::time::Duration::from_secs(second);
            tally.times.push((format!("a/{second}"), took));
        }
        let summary = Summary {
            seed: Seed {
                number: 31,
                origin: "commit 0000001f".to_owned(),
            },
            parts: vec![Part {
                operator: "tasks",
                plans: 60,
                of: 1981,
                silent: 11,
            }],
            tally,
            replicas: None,
            transitions: None,
            errors: vec!["replicas: no Lease".to_owned()],
        };
        let text = summary.to_string();
        for wanted in [
            "seed 31 (commit 0000001f)",
            "tasks: 60 plans of 1981, 11 with a silent watch",
            "not reached: a/x\n",
            "not reached: a/y (not every play makes this request)",
            "slowest:   11.0 s  a/11",
            "ERROR replicas: no Lease\n",
            "NOT CLEAN",
        ] {
            assert!(text.contains(wanted), "no '{wanted}' in {text}");
        }
        assert_eq!(text.matches("slowest:").count(), SLOWEST);
    }
}
