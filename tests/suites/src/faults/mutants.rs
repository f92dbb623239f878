//! `cargo xtask mutants`: puts one bug at a time into the operator, and looks whether the suites see it.

mod cases;
mod detector;
mod program;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use ::mutant::{About, Mutant};
use anyhow::{Result, ensure};
use clap::Args;
use testbed::{
    build,
    commands::{require_root, runtime},
};
use testkit::{
    faults::{
        campaign::{self, Learning, Lesson, Manner},
        oracles::{Oracle, Violation},
        plan::{Class, Plan},
        scenario_run::QUIET,
        specs::Random,
    },
    junit::{self, CaseResult},
    layout, report_age,
};
use tokio::{sync::Semaphore, task::JoinSet};

use self::detector::{Detector, detectors};
use super::{
    seed::seed,
    stand::{Cast, Stand},
    tested_operator::TestedOperator,
};

/// The name of its JUnit file.
const SUITE: &str = "mutants";

/// Chooses the bug of a test build.
const SWITCH: &str = "ORCHESTRATOR_MUTANT";

/// Plays of mutants at a time: most of them wait for what never comes.
const PLAYS: usize = 12;

/// The most words of one sighting on the page.
const WORDS: usize = 160;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Only these
    names: Vec<String>,
    /// So many, chosen by the seed among those that plays can see: they share one cluster
    #[arg(long, conflicts_with = "names")]
    rotate: Option<usize>,
    /// Chooses them [default: the variable ORCHESTRATOR_SEED, or the commit's first digits]
    #[arg(long)]
    seed: Option<u64>,
    /// Run nothing; print the mutants
    #[arg(long)]
    list: bool,
    /// Run nothing; compile the operator with the mutants, and check that it says which one is on
    #[arg(long, conflicts_with_all = ["names", "rotate", "list", "report"])]
    build: bool,
    /// Write the page of the docs; all mutants must be run
    #[arg(long, conflicts_with_all = ["names", "rotate"])]
    report: bool,
}

/// Something that saw a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sighting {
    /// The play or the case.
    detector: String,
    /// All oracles that spoke, each once.
    oracles: Vec<String>,
    /// The first words, those of the mutant's own oracle if it spoke.
    words: String,
}

/// A mutant, and everything that saw it.
struct Found {
    about: About,
    seen: Vec<Sighting>,
    /// The time of all plays and cases with it.
    took: Duration,
}

impl Found {
    /// What counts: any sighting, or one by the oracle of the mutant's class.
    fn killer(&self) -> Option<&Sighting> {
        self.seen.iter().find(|one| is_enough(&self.about, one))
    }

    /// The names of all that saw it.
    fn oracles(&self) -> String {
        let all: BTreeSet<&str> = self
            .seen
            .iter()
            .flat_map(|one| one.oracles.iter().map(String::as_str))
            .collect();
        all.into_iter().collect::<Vec<_>>().join(", ")
    }
}

fn is_enough(about: &About, sighting: &Sighting) -> bool {
    match about.oracle() {
        None => true,
        Some(oracle) => sighting.oracles.iter().any(|one| one == oracle),
    }
}

/// Tries all mutants, or some of them.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen = chosen(arguments)?;
    if arguments.list {
        for (about, _) in &chosen {
            let oracle = about.oracle().unwrap_or("any");
            let About {
                id, class, seen_by, ..
            } = about;
            println!("{id:<26} {class}; by {oracle}: {seen_by}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.build {
        program::build()?;
        program::check()?;
        return Ok(ExitCode::SUCCESS);
    }
    junit::clear(SUITE)?;
    require_root()?;
    build::programs()?;
    let binary = match build::is_built() {
        true => program::path()?,
        false => program::build()?,
    };
    program::check()?;
    let begin = Instant::now();
    let found = runtime()?.block_on(hunt(chosen, &binary))?;
    for one in found.iter().filter(|one| one.killer().is_none()) {
        println!("{}", line(one));
    }
    let sum = format!("{}, {:.0} s", sum(&found), begin.elapsed().as_secs_f64());
    println!("{sum}");
    if arguments.report {
        let path = layout::repository().join(report_age::MUTANTS_PAGE);
        std::fs::write(&path, page(&found, &sum))?;
    }
    write_results(&found)?;
    Ok(if found.iter().all(|one| one.killer().is_some()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Writes the JUnit file: a mutant that survived is a failed case.
fn write_results(found: &[Found]) -> Result<()> {
    let mut results = junit::Report::new(SUITE);
    for one in found {
        let result = match one.killer() {
            Some(_) => CaseResult::Passed(line(one)),
            None => CaseResult::Failed(line(one)),
        };
        results.add("", one.about.id, one.took, result);
    }
    results.write()
}

/// The mutants that were asked for, with what may see them.
fn chosen(arguments: &Arguments) -> Result<Vec<(About, Vec<Detector>)>> {
    let mut chosen = Vec::new();
    for name in &arguments.names {
        ensure!(
            Mutant::named(name).is_some(),
            "there is no mutant '{name}'; 'cargo xtask mutants --list' has them"
        );
    }
    for mutant in Mutant::ALL {
        let about = mutant.about();
        let names = &arguments.names;
        if names.is_empty() || names.iter().any(|name| name == about.id) {
            chosen.push((about, detectors(about.seen_by)?));
        }
    }
    if let Some(count) = arguments.rotate {
        let seed = seed(arguments.seed)?;
        println!("seed {} ({})", seed.number, seed.origin);
        chosen = rotated(chosen, count, seed.number);
    }
    Ok(chosen)
}

/// So many of those that plays can see.
fn rotated<T>(all: Vec<(T, Vec<Detector>)>, count: usize, seed: u64) -> Vec<(T, Vec<Detector>)> {
    let is_played = |detector: &Detector| matches!(detector, Detector::ScenarioRun(..));
    let mut left: Vec<_> = all
        .into_iter()
        .filter(|(_, detectors)| detectors.iter().any(is_played))
        .collect();
    let mut random = Random::new(seed);
    let mut some = Vec::new();
    while some.len() < count && !left.is_empty() {
        let (mutant, mut detectors) = left.swap_remove(random.below(left.len()));
        detectors.retain(is_played);
        some.push((mutant, detectors));
    }
    some
}

async fn hunt(chosen: Vec<(About, Vec<Detector>)>, binary: &Path) -> Result<Vec<Found>> {
    let is_played = |detector: &Detector| matches!(detector, Detector::ScenarioRun(..));
    let has_plays = chosen
        .iter()
        .any(|(_, detectors)| detectors.iter().any(is_played));
    let mut found: Vec<Found> = if has_plays {
        let operators: Vec<&'static TestedOperator> = TestedOperator::ALL.iter().collect();
        let stand = Stand::start(&operators, binary.to_owned()).await?;
        let result = plays(&stand, &chosen).await;
        stand.stop().await?;
        result?
    } else {
        let all = chosen.iter();
        all.map(|(about, _)| Found {
            about: *about,
            seen: Vec::new(),
            took: Duration::ZERO,
        })
        .collect()
    };
    let left: Vec<(usize, Detector)> = chosen
        .iter()
        .enumerate()
        .filter(|(place, _)| found.get(*place).is_some_and(|one| one.killer().is_none()))
        .flat_map(|(place, (_, detectors))| {
            detectors
                .iter()
                .map(move |detector| (place, detector.clone()))
        })
        .filter(|(_, detector)| !is_played(detector))
        .collect();
    for (place, took, sighting) in cases::run(&chosen, left, binary).await? {
        if let Some(one) = found.get_mut(place) {
            one.took += took;
            one.seen.extend(sighting);
        }
    }
    Ok(found)
}

/// Plays the scenarios that can see each mutant until one does.
async fn plays(stand: &Stand, chosen: &[(About, Vec<Detector>)]) -> Result<Vec<Found>> {
    let used = |name: &str| {
        let mut detectors = chosen.iter().flat_map(|(_, detectors)| detectors.iter());
        detectors.any(|detector| matches!(detector, Detector::ScenarioRun(of, _) if of == name))
    };
    let slow = stand.operators.iter().flat_map(|one| &one.slow);
    let cast: Vec<Cast> = stand
        .scenarios()
        .chain(slow)
        .filter(|(_, scenario)| used(scenario.name()))
        .cloned()
        .collect();
    // The control: the same build without a bug must be seen by nobody.
    let learning = super::learned(&cast, PLAYS, QUIET).await?;
    ensure!(
        learning.is_clean(),
        "a scenario goes wrong without a mutant and without a fault"
    );
    control(&learning, chosen).await?;
    let learning = Arc::new(learning);
    let gate = Arc::new(Semaphore::new(PLAYS));
    let mut hunts = JoinSet::new();
    for (place, (about, detectors)) in chosen.iter().cloned().enumerate() {
        let (gate, learning) = (Arc::clone(&gate), Arc::clone(&learning));
        hunts.spawn(async move {
            let _permit = gate.acquire().await;
            let begin = Instant::now();
            let mut found = Found {
                about,
                seen: Vec::new(),
                took: Duration::ZERO,
            };
            for detector in &detectors {
                if found.killer().is_none()
                    && let Some(plan) = plan_of(detector, &learning.lessons)
                {
                    found
                        .seen
                        .extend(seen(&learning, plan?, about, detector).await?);
                }
            }
            found.took = begin.elapsed();
            anyhow::Ok((place, found))
        });
    }
    let mut found = BTreeMap::new();
    while let Some(ended) = hunts.join_next().await {
        let (place, one) = ended??;
        if one.killer().is_some() {
            println!("{}", line(&one));
        }
        found.insert(place, one);
    }
    Ok(found.into_values().collect())
}

/// Plays each script once without a bug: what is red anyway sees nothing.
async fn control(learning: &Learning, chosen: &[(About, Vec<Detector>)]) -> Result<()> {
    let mut plans: BTreeMap<String, Plan> = BTreeMap::new();
    for detector in chosen.iter().flat_map(|(_, detectors)| detectors.iter()) {
        if let Some(plan) = plan_of(detector, &learning.lessons) {
            let plan = plan?;
            if !plan.script.is_empty() {
                plans.insert(plan.id(), plan);
            }
        }
    }
    let manner = Manner {
        parallel: PLAYS,
        stops_at_first: false,
        environment: Vec::new(),
    };
    let plans = plans.into_values().collect();
    let tally = campaign::run(learning, plans, &manner, |_, _| {}).await?;
    for (id, violations) in &tally.divergences {
        println!("without a mutant {id}: {}", campaign::words(violations));
    }
    for (id, why) in &tally.unjudged {
        println!("without a mutant {id}: {why}");
    }
    for id in &tally.unreached {
        println!("without a mutant {id} hits nothing");
    }
    ensure!(
        tally.divergences.is_empty() && tally.unjudged.is_empty() && tally.unreached.is_empty(),
        "the plays above say nothing of mutants"
    );
    Ok(())
}

async fn seen(
    learning: &Learning,
    plan: Plan,
    about: About,
    detector: &Detector,
) -> Result<Option<Sighting>> {
    let manner = Manner {
        parallel: 1,
        stops_at_first: true,
        environment: vec![(SWITCH.to_owned(), about.id.to_owned())],
    };
    let tally = campaign::run(learning, vec![plan], &manner, |_, _| {}).await?;
    for (id, why) in &tally.unjudged {
        println!("not judged {} {id}: {why}", about.id);
    }
    let first = tally.divergences.first();
    Ok(first.and_then(|(_, violations)| sighting(&about, detector.to_string(), violations)))
}

/// Everything that one play said.
fn sighting(about: &About, detector: String, violations: &[Violation]) -> Option<Sighting> {
    let own = |one: &&Violation| about.oracle() == Some(short(one.oracle).as_str());
    let first = violations.iter().find(own).or(violations.first())?;
    let oracles: BTreeSet<String> = violations.iter().map(name).collect();
    Some(Sighting {
        detector,
        oracles: oracles.into_iter().collect(),
        words: first.to_string(),
    })
}

/// `O0` of `O0 no false green`.
fn short(oracle: Oracle) -> String {
    let words = oracle.to_string();
    words.split(' ').next().unwrap_or_default().to_owned()
}

/// The oracle that spoke. That a play does not come to its end is seen by its own wait, not by an oracle.
fn name(violation: &Violation) -> String {
    match violation.words.starts_with(campaign::NO_END) {
        true => "the play's own wait".to_owned(),
        false => short(violation.oracle),
    }
}

fn plan_of(detector: &Detector, lessons: &[Lesson]) -> Option<Result<Plan>> {
    let Detector::ScenarioRun(name, script) = detector else {
        return None;
    };
    let known = lessons.iter().find(|one| one.scenario.name() == name);
    Some(match known {
        None => Err(anyhow::anyhow!("no scenario '{name}'")),
        Some(lesson) => Ok(Plan {
            scenario: lesson.scenario.name(),
            class: Class::Compound,
            script: script.clone(),
            seed: None,
        }),
    })
}

fn line(found: &Found) -> String {
    let (id, oracles) = (found.about.id, found.oracles());
    match (found.killer(), found.about.oracle()) {
        (
            Some(Sighting {
                detector, words, ..
            }),
            _,
        ) => {
            format!("killed    {id:<26} by {oracles}: {detector}: {words}")
        }
        (None, Some(oracle)) if !found.seen.is_empty() => {
            format!("SURVIVED  {id:<26} seen by another oracle only ({oracles}), wanted {oracle}")
        }
        (None, _) => format!("SURVIVED  {id}"),
    }
}

/// How many there are of which sort.
fn sum(found: &[Found]) -> String {
    let killed = found.iter().filter(|one| one.killer().is_some()).count();
    let survived = found.len() - killed;
    let by_another = |one: &&Found| one.killer().is_none() && !one.seen.is_empty();
    let by_another = found.iter().filter(by_another).count();
    let by_oracle = |one: &&Found| {
        let killer = one.killer();
        killer.is_some_and(|killer| killer.oracles.iter().any(|name| name.starts_with('O')))
    };
    let by_oracle = found.iter().filter(by_oracle).count();
    format!(
        "{} mutants, {killed} killed ({by_oracle} of them by an oracle), {survived} survived \
         ({by_another} of them seen by another oracle only)",
        found.len()
    )
}

/// The page of the docs.
fn page(found: &[Found], sum: &str) -> String {
    let mut text = format!(
        "<!-- Written by `cargo xtask mutants --report` -->\n# Mutants\n\n{}\n\
         Bugs that were put into the operator on purpose, one at a time, to see whether the suites notice.\n\
         Each is a switch of a test build; no release has them. A mutant of the class *false success* must be\n\
         seen by the oracle O0, one of *secret leakage* by O7: other sightings do not count for these.\n\n{sum}.\n\n\
         | mutant | class | change | seen in | by | message |\n|---|---|---|---|---|---|\n",
        report_age::header()
    );
    for one in found {
        let About {
            id, class, words, ..
        } = one.about;
        let (detector, said) = match (one.killer(), one.seen.is_empty()) {
            (Some(killer), _) => (format!("`{}`", killer.detector), killer.words.as_str()),
            (None, false) => ("**survived**: seen by another oracle only".to_owned(), ""),
            (None, true) => ("**survived**: seen by nobody".to_owned(), ""),
        };
        let said = said.replace('|', "/").replace(['\n', '<', '>'], " ");
        let said = api::status::bounded(&said, WORDS);
        let oracles = one.oracles();
        text.push_str(&format!(
            "| `{id}` | {class} | {words} | {detector} | {oracles} | {said} |\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: &str, said: &[&[(Oracle, &str)]]) -> Found {
        let about = Mutant::named(id).unwrap().about();
        let all = said.iter().map(|violations| {
            let violations: Vec<Violation> = violations
                .iter()
                .map(|(oracle, words)| Violation {
                    oracle: *oracle,
                    words: (*words).to_owned(),
                })
                .collect();
            sighting(&about, "play/".to_owned(), &violations).unwrap()
        });
        let seen = all.collect();
        let took = Duration::ZERO;
        Found { about, seen, took }
    }

    #[test]
    fn a_lie_counts_as_seen_by_its_oracle_only() {
        let other: &[(Oracle, &str)] = &[
            (Oracle::SameEnd, "other words"),
            (Oracle::Quiet, "it writes"),
        ];
        let own: &[(Oracle, &str)] = &[
            (Oracle::SameEnd, "it did not come to its end: waited"),
            (Oracle::NoFalseGreen, "says so, but"),
        ];
        let survived = found("push-unconfirmed", &[other]);
        assert!(survived.killer().is_none());
        let said = line(&survived);
        assert!(
            said.contains("SURVIVED") && said.contains("another oracle only (O1, O5), wanted O0"),
            "{said}"
        );
        let killed = found("push-unconfirmed", &[other, own]);
        let killer = killed.killer().unwrap();
        assert_eq!(killer.words, "O0 no false green: says so, but");
        assert_eq!(killed.oracles(), "O0, O1, O5, the play's own wait");
        assert!(found("body-logged", &[own]).killer().is_none());
        assert!(found("hot-loop", &[other]).killer().is_some());
        assert_eq!(
            sum(&[survived, killed, found("hot-loop", &[])]),
            "3 mutants, 1 killed (1 of them by an oracle), 2 survived (1 of them seen by another oracle only)"
        );
    }

    #[test]
    fn the_page_names_all_oracles() {
        let both: &[(Oracle, &str)] = &[(Oracle::NoLeak, "a | b"), (Oracle::Quiet, "c")];
        let text = page(
            &[found("body-logged", &[both]), found("hot-loop", &[])],
            "2",
        );
        assert!(
            text.contains("| `play/` | O5, O7 | O7 no panic, no leak: a / b |"),
            "{text}"
        );
        assert!(text.contains("**survived**: seen by nobody"), "{text}");
    }

    #[test]
    fn over_time_every_mutant_that_plays_can_see_has_its_turn() {
        let all = || -> Vec<(&str, Vec<Detector>)> {
            let abouts = Mutant::ALL.iter().map(|mutant| mutant.about());
            abouts
                .map(|about| (about.id, detectors(about.seen_by).unwrap()))
                .collect()
        };
        let ids = |some: Vec<(&'static str, Vec<Detector>)>| -> Vec<&str> {
            some.into_iter().map(|(id, _)| id).collect()
        };
        let some = ids(rotated(all(), 5, 3));
        assert_eq!(some.len(), 5);
        assert_eq!(some, ids(rotated(all(), 5, 3)));
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            seen.extend(ids(rotated(all(), 5, seed)));
        }
        assert_eq!(seen.len(), rotated(all(), usize::MAX, 0).len());
        assert!(!seen.contains("name-cut"), "only a case sees it");
    }
}
