//! Many plays: learns each scenario, plays all plans a few at a time, and counts.

mod tally;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use futures::{FutureExt, future::BoxFuture};
use tokio::{sync::Semaphore, task::JoinSet};

pub use self::tally::{Share, Tally};
use super::{
    oracles::{Outcome, Violation},
    plan::{self, Class, Learned, Plan},
    scenario_run::{QUIET, Scenario, ScenarioResult, ScenarioRun, Theatre},
    silent,
};

pub use super::scenario_run::NO_END;

/// A point that was not reached is tried so often: a scenario's requests are not the same each time.
const TRIES: usize = 3;

/// A fault-free play, twice.
#[derive(Clone)]
pub struct Lesson {
    /// Where it was played.
    pub theatre: Arc<Theatre>,
    /// The scenario.
    pub scenario: Arc<dyn Scenario>,
    /// Its requests.
    pub learned: Learned,
    /// Its end.
    pub outcome: Arc<Outcome>,
}

/// The fault-free plays of all scenarios.
#[derive(Clone, Default)]
pub struct Learning {
    /// The scenarios that can be hit.
    pub lessons: Vec<Lesson>,
    /// Scenarios that went wrong without any fault, as `SCENARIO/`. No plan of theirs can be judged.
    pub divergences: Vec<(String, Vec<Violation>)>,
    /// Scenarios whose fault-free play could not be judged.
    pub unjudged: Vec<(String, String)>,
    /// The files about those that went wrong.
    pub kept: Vec<PathBuf>,
    /// How long both plays of each scenario took.
    pub times: Vec<(String, Duration)>,
}

impl Learning {
    /// Whether no scenario went wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.divergences.is_empty() && self.unjudged.is_empty()
    }

    /// Returns how long one play of each scenario took.
    #[must_use]
    pub fn play_times(&self) -> BTreeMap<&str, Duration> {
        let all = self.times.iter();
        all.map(|(id, took)| (id.trim_end_matches('/'), *took / 2))
            .collect()
    }

    /// How long a scenario took.
    fn took(&self, scenario: &str) -> Duration {
        let mut times = self.times.iter();
        let found = times.find(|(id, _)| id.strip_suffix('/') == Some(scenario));
        found.map_or(Duration::ZERO, |(_, took)| *took)
    }

    fn points(&self) -> [usize; 3] {
        points(&self.lessons)
    }

    /// Adds the two plays of a scenario.
    fn add(&mut self, id: String, took: Duration, taught: Result<Taught>) -> Option<Knowledge> {
        self.times.push((id.clone(), took));
        match taught {
            Ok(Taught::Learned(learned, outcome)) => return Some((learned, outcome)),
            Ok(Taught::Diverges(violations, kept)) => {
                self.divergences.push((id, violations));
                self.kept.extend(kept);
            }
            Err(error) => self.unjudged.push((id, format!("{error:#}"))),
        }
        None
    }
}

/// The requests of a scenario, and its end.
type Knowledge = (Learned, Arc<Outcome>);

/// What two fault-free plays came to.
enum Taught {
    Learned(Learned, Arc<Outcome>),
    /// One of them went wrong.
    Diverges(Vec<Violation>, Option<PathBuf>),
}

/// Plays a scenario without faults: compared with this end if there is one, and quiet for so long.
type Faultless = dyn Fn(Option<Arc<Outcome>>, Duration) -> BoxFuture<'static, Result<ScenarioResult>>
    + Send
    + Sync;

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
    /// How long all its plays took.
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

/// Plays each scenario twice without a fault; the second must end as the first did. Their requests may
/// differ. A play that goes wrong is not repeated: it is a divergence like any other.
///
/// # Errors
/// When a task panics.
pub async fn learn(
    scenarios: &[(Arc<Theatre>, Arc<dyn Scenario>)],
    parallel: usize,
    quiet: Duration,
) -> Result<Learning> {
    let gate = Arc::new(Semaphore::new(parallel));
    let mut plays = JoinSet::new();
    // Long ones first: they would be waited for at the end.
    let mut order: Vec<_> = scenarios.iter().enumerate().collect();
    order.sort_by_key(|(_, (_, scenario))| std::cmp::Reverse(scenario.limit()));
    for (place, (theatre, scenario)) in order {
        let (theatre, gate) = (Arc::clone(theatre), Arc::clone(&gate));
        let scenario = Arc::clone(scenario);
        plays.spawn(async move {
            let _permit = gate.acquire().await;
            let begin = Instant::now();
            let play = {
                let (theatre, scenario) = (Arc::clone(&theatre), Arc::clone(&scenario));
                move |baseline, quiet| {
                    let (theatre, scenario) = (Arc::clone(&theatre), Arc::clone(&scenario));
                    async move { faultless(&theatre, &scenario, baseline, quiet).await }.boxed()
                }
            };
            let taught = twice(&play, quiet).await;
            (place, theatre, scenario, begin.elapsed(), taught)
        });
    }
    let mut ended = BTreeMap::new();
    while let Some(one) = plays.join_next().await {
        let (place, theatre, scenario, took, taught) = one?;
        ended.insert(place, (theatre, scenario, took, taught));
    }
    let mut learning = Learning::default();
    for (theatre, scenario, took, taught) in ended.into_values() {
        let id = format!("{}/", scenario.name());
        if let Some((learned, outcome)) = learning.add(id, took, taught) {
            learning.lessons.push(Lesson {
                theatre,
                scenario,
                learned,
                outcome,
            });
        }
    }
    Ok(learning)
}

async fn twice(play: &Faultless, quiet: Duration) -> Result<Taught> {
    let first = play(None, QUIET).await?;
    if !first.violations.is_empty() {
        return Ok(Taught::Diverges(first.violations, first.kept));
    }
    let outcome = Arc::new(first.outcome);
    let second = play(Some(Arc::clone(&outcome)), quiet).await?;
    if !second.violations.is_empty() {
        return Ok(Taught::Diverges(second.violations, second.kept));
    }
    Ok(Taught::Learned(first.learned.and(second.learned), outcome))
}

async fn faultless(
    theatre: &Theatre,
    scenario: &Arc<dyn Scenario>,
    baseline: Option<Arc<Outcome>>,
    quiet: Duration,
) -> Result<ScenarioResult> {
    let run = ScenarioRun {
        scenario: scenario.as_ref(),
        script: &[],
        baseline: baseline.as_deref(),
        environment: &[],
        quiet,
    };
    let played = theatre.run(run).await;
    played.with_context(|| format!("'{}' without faults", scenario.name()))
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

/// Returns all plans with a silent watch for what was learned.
#[must_use]
pub fn silent_plans(lessons: &[Lesson]) -> Vec<Plan> {
    let known = known(lessons);
    let all = known.iter();
    all.flat_map(|(name, learned)| silent::plans(name, learned))
        .collect()
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
/// When a task panics, or a plan's scenario was not learned.
pub async fn run(
    learning: &Learning,
    mut plans: Vec<Plan>,
    manner: &Manner,
    mut told: impl FnMut(&str, &Result<Verdict>),
) -> Result<Tally> {
    let begin = Instant::now();
    // Long ones first: they would be waited for at the end.
    let length = |plan: &Plan| learning.took(plan.scenario) + silent::longest(&plan.script);
    plans.sort_by_key(|plan| std::cmp::Reverse(length(plan)));
    let mut tally = Tally::of(learning);
    let known = known(&learning.lessons);
    let gate = Arc::new(Semaphore::new(manner.parallel));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut plays = JoinSet::new();
    for plan in plans {
        let Some(lesson) = learning
            .lessons
            .iter()
            .find(|lesson| lesson.scenario.name() == plan.scenario)
        else {
            return Err(anyhow!("no scenario '{}'", plan.scenario));
        };
        let (gate, lesson) = (Arc::clone(&gate), lesson.clone());
        let (is_over, environment) = (Arc::clone(&is_over), manner.environment.clone());
        plays.spawn(async move {
            let _permit = gate.acquire().await;
            if is_over.load(Ordering::Relaxed) {
                return None;
            }
            let verdict = attempt(&lesson, plan.clone(), &environment).await;
            Some((plan, verdict))
        });
    }
    while let Some(ended) = plays.join_next().await {
        let Some((plan, verdict)) = ended? else {
            continue;
        };
        told(&plan.id(), &verdict);
        let varies = plan::varies(&known, &plan);
        if tally.add(&plan, varies, verdict) && manner.stops_at_first {
            is_over.store(true, Ordering::Relaxed);
        }
    }
    tally.took = begin.elapsed();
    Ok(tally)
}

async fn attempt(lesson: &Lesson, plan: Plan, environment: &[(String, String)]) -> Result<Verdict> {
    let mut tries = 0;
    let mut took = Duration::ZERO;
    loop {
        tries += 1;
        let run = ScenarioRun {
            scenario: lesson.scenario.as_ref(),
            script: &plan.script,
            baseline: Some(&lesson.outcome),
            environment,
            quiet: QUIET,
        };
        let played = lesson.theatre.run(run).await?;
        took += played.took;
        // That a watch told nothing is no matter of luck.
        let is_of_watches = matches!(plan.class, Class::Watch | Class::Silent);
        let is_final = is_of_watches || tries == TRIES;
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
                took,
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
