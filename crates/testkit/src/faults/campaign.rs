//! Many plays: learns each scenario, plays all plans a few at a time, and counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    oracles::{Oracle, Outcome, Violation},
    plan::{self, Class, Learned, Plan},
    play::{Piece, Played, QUIET, Scenario, Theatre},
};

/// A point that was not reached is tried so often: a scenario's requests are not the same each time.
const TRIES: usize = 3;

/// One plan in so many may miss its point; a suite that misses more tests something else.
const MISSED: usize = 20;

/// A fault-free play, twice.
#[derive(Clone)]
pub struct Lesson {
    /// The scenario.
    pub scenario: Arc<dyn Scenario>,
    /// Its requests.
    pub learned: Learned,
    /// Its end.
    pub outcome: Arc<Outcome>,
    /// What went wrong the first time, if it had to be learned again. To be shown: it is no accident if
    /// it comes again.
    pub disturbed: Option<String>,
}

/// How a plan ended.
#[derive(Debug)]
pub struct Verdict {
    /// The plan.
    pub plan: Plan,
    /// What the oracles said; nothing is good.
    pub violations: Vec<Violation>,
    /// Whether at least one of its faults happened.
    pub was_reached: bool,
    /// How many of its faults happened, of how many.
    pub faults: (usize, usize),
    /// How long the last play took.
    pub took: Duration,
    /// What there is to read about one that went wrong.
    pub kept: Option<PathBuf>,
}

/// How plans are played.
#[derive(Debug, Clone)]
pub struct Manner {
    /// How many at a time.
    pub parallel: usize,
    /// Whether one divergence is enough.
    pub stops_at_first: bool,
    /// More of the operators' environment.
    pub environment: Vec<(String, String)>,
}

/// The sum of a campaign.
#[derive(Debug, Default)]
pub struct Tally {
    /// Write points, kinds of requests, watched resources.
    pub points: [usize; 3],
    /// Plans of each class: all, and those whose point was not reached.
    pub plans: BTreeMap<Class, (usize, usize)>,
    /// Plans with a violation.
    pub divergences: Vec<(String, Vec<Violation>)>,
    /// Plans that could not be judged: they count as divergences.
    pub unjudged: Vec<(String, String)>,
    /// Points that were not reached.
    pub unreached: Vec<String>,
    /// How many faults happened, of how many that were planned.
    pub faults: (usize, usize),
    /// From the first play to the last.
    pub took: Duration,
}

impl Tally {
    /// How many plans showed a green that was not true.
    #[must_use]
    pub fn false_greens(&self) -> usize {
        let all = self.divergences.iter();
        all.filter(|(_, violations)| {
            violations
                .iter()
                .any(|one| one.oracle == Oracle::NoFalseGreen)
        })
        .count()
    }

    /// Whether every plan ended as it should, and nearly every one hit what it was meant to.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let all: usize = self.plans.values().map(|(count, _)| count).sum();
        let has_hit = self.unreached.len() <= all / MISSED;
        self.divergences.is_empty() && self.unjudged.is_empty() && has_hit
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [writes, routes, watched] = self.points;
        writeln!(
            out,
            "points: {writes} writes, {routes} kinds of requests, {watched} watched resources"
        )?;
        let mut all = 0;
        for (class, (count, unreached)) in &self.plans {
            all += count;
            write!(out, "plans: {count:>5}  {}", class.words())?;
            match unreached {
                0 => writeln!(out)?,
                some => writeln!(out, " ({some} not reached)")?,
            }
        }
        let (hit, planned) = self.faults;
        writeln!(out, "faults: {hit} of {planned} happened")?;
        writeln!(
            out,
            "{all} plans, {} divergences, {} not judged, {} false greens, {:.0} s",
            self.divergences.len(),
            self.unjudged.len(),
            self.false_greens(),
            self.took.as_secs_f64()
        )
    }
}

/// Plays each scenario twice without a fault; the second must end as the first did.
///
/// # Errors
/// When a play without faults goes wrong, or is not repeatable.
pub async fn learn(
    theatre: &Arc<Theatre>,
    scenarios: &[Arc<dyn Scenario>],
    parallel: usize,
    quiet: Duration,
) -> Result<Vec<Lesson>> {
    let gate = Arc::new(Semaphore::new(parallel));
    let mut plays = JoinSet::new();
    for (place, scenario) in scenarios.iter().enumerate() {
        let (theatre, gate) = (Arc::clone(theatre), Arc::clone(&gate));
        let scenario = Arc::clone(scenario);
        plays.spawn(async move {
            let _permit = gate.acquire().await;
            // A machine with much to do may disturb one; two in a row are no accident.
            let lesson = match twice(&theatre, &scenario, quiet).await {
                Ok(lesson) => lesson,
                Err(first) => Lesson {
                    disturbed: Some(format!("{first:#}")),
                    ..twice(&theatre, &scenario, quiet).await?
                },
            };
            anyhow::Ok((place, lesson))
        });
    }
    let mut lessons = BTreeMap::new();
    let mut wrong = Vec::new();
    while let Some(ended) = plays.join_next().await {
        match ended? {
            Ok((place, lesson)) => {
                lessons.insert(place, lesson);
            }
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(lessons.into_values().collect())
}

async fn twice(theatre: &Theatre, scenario: &Arc<dyn Scenario>, quiet: Duration) -> Result<Lesson> {
    let first = faultless(theatre, scenario, None, QUIET).await?;
    let second = faultless(theatre, scenario, Some(&first.outcome), quiet).await?;
    Ok(Lesson {
        scenario: Arc::clone(scenario),
        learned: first.learned.and(second.learned),
        outcome: Arc::new(first.outcome),
        disturbed: None,
    })
}

async fn faultless(
    theatre: &Theatre,
    scenario: &Arc<dyn Scenario>,
    baseline: Option<&Outcome>,
    quiet: Duration,
) -> Result<Played> {
    let name = scenario.name();
    let piece = Piece {
        scenario: scenario.as_ref(),
        script: &[],
        baseline,
        environment: &[],
        quiet,
    };
    let played = theatre.play(piece).await;
    let played = played.with_context(|| format!("'{name}' without faults"))?;
    ensure!(
        played.violations.is_empty(),
        "'{name}' without faults: {}; {:?}",
        words(&played.violations),
        played.kept
    );
    Ok(played)
}

/// All plans for what was learned, with so many compound ones.
#[must_use]
pub fn plans(lessons: &[Lesson], compound: u64) -> Vec<Plan> {
    let known = known(lessons);
    let mut plans = Vec::new();
    for (place, (lesson, (name, learned))) in lessons.iter().zip(&known).enumerate() {
        let begins_as = lesson.scenario.begins_as();
        let beginning = known.iter().find(|(name, _)| Some(*name) == begins_as);
        let learned = match place {
            0 => learned.clone(),
            _ => learned.clone().without_election(),
        };
        let learned = match beginning {
            Some((_, beginning)) => learned.without_beginning(beginning),
            None => learned,
        };
        plans.extend(plan::of_writes(name, &learned));
        plans.extend(plan::of_watches(name, &learned));
    }
    plans.extend(plan::of_routes(&known));
    for (seed, (name, learned)) in (0..compound).zip(known.iter().cycle()) {
        plans.push(plan::compound(name, learned, seed));
    }
    plans
}

/// What was learned, by the scenarios' names.
#[must_use]
pub fn known(lessons: &[Lesson]) -> Vec<(&'static str, Learned)> {
    let all = lessons.iter();
    all.map(|lesson| (lesson.scenario.name(), lesson.learned.clone()))
        .collect()
}

/// Plays plans, and tells of each as it ends.
///
/// # Errors
/// When a task panics.
pub async fn run(
    theatre: &Arc<Theatre>,
    lessons: &[Lesson],
    plans: Vec<Plan>,
    manner: &Manner,
    mut told: impl FnMut(&str, &Result<Verdict>),
) -> Result<Tally> {
    let begin = Instant::now();
    let mut tally = Tally {
        points: points(lessons),
        ..Tally::default()
    };
    let gate = Arc::new(Semaphore::new(manner.parallel));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut plays = JoinSet::new();
    for plan in plans {
        let Some(lesson) = lessons
            .iter()
            .find(|lesson| lesson.scenario.name() == plan.scenario)
        else {
            return Err(anyhow!("no scenario '{}'", plan.scenario));
        };
        let (theatre, gate, lesson) = (Arc::clone(theatre), Arc::clone(&gate), lesson.clone());
        let (is_over, environment) = (Arc::clone(&is_over), manner.environment.clone());
        plays.spawn(async move {
            let _permit = gate.acquire().await;
            if is_over.load(Ordering::Relaxed) {
                return None;
            }
            let id = plan.id();
            let class = plan.class;
            Some((
                id,
                class,
                attempt(&theatre, &lesson, plan, &environment).await,
            ))
        });
    }
    while let Some(ended) = plays.join_next().await {
        let Some((id, class, verdict)) = ended? else {
            continue;
        };
        told(&id, &verdict);
        let counts = tally.plans.entry(class).or_default();
        counts.0 += 1;
        let is_bad = match verdict {
            Err(error) => {
                tally.unjudged.push((id, format!("{error:#}")));
                true
            }
            Ok(verdict) => {
                tally.faults.0 += verdict.faults.0;
                tally.faults.1 += verdict.faults.1;
                if !verdict.was_reached {
                    counts.1 += 1;
                    tally.unreached.push(id.clone());
                }
                let is_bad = !verdict.violations.is_empty();
                if is_bad {
                    tally.divergences.push((id, verdict.violations));
                }
                is_bad
            }
        };
        if is_bad && manner.stops_at_first {
            is_over.store(true, Ordering::Relaxed);
        }
    }
    tally.took = begin.elapsed();
    Ok(tally)
}

async fn attempt(
    theatre: &Theatre,
    lesson: &Lesson,
    plan: Plan,
    environment: &[(String, String)],
) -> Result<Verdict> {
    let mut tries = 0;
    loop {
        tries += 1;
        let piece = Piece {
            scenario: lesson.scenario.as_ref(),
            script: &plan.script,
            baseline: Some(&lesson.outcome),
            environment,
            quiet: QUIET,
        };
        let played = theatre.play(piece).await?;
        // That a watch told nothing is no matter of luck.
        let is_final = plan.class == Class::Watch || tries == TRIES;
        let was_reached = plan.script.is_empty() || played.hits.iter().any(|hit| *hit);
        if was_reached || is_final || !played.violations.is_empty() {
            return Ok(Verdict {
                violations: played.violations,
                was_reached,
                faults: (
                    played.hits.iter().filter(|hit| **hit).count(),
                    plan.script.len(),
                ),
                plan,
                took: played.took,
                kept: played.kept,
            });
        }
    }
}

fn points(lessons: &[Lesson]) -> [usize; 3] {
    let routes: BTreeSet<_> = lessons.iter().flat_map(|one| &one.learned.routes).collect();
    let watched: BTreeSet<_> = lessons
        .iter()
        .flat_map(|one| &one.learned.watched)
        .collect();
    let writes = lessons.iter().map(|one| one.learned.writes.len()).sum();
    [writes, routes.len(), watched.len()]
}

/// Violations in one line.
#[must_use]
pub fn words(violations: &[Violation]) -> String {
    let all: Vec<String> = violations.iter().map(ToString::to_string).collect();
    all.join("; ")
}
