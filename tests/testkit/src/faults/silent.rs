//! Plans in which one watch is open and silent while everything else works.
//!
//! The cache of that watch lacks each later change. An operator that takes an object for absent because its
//! cache lacks it fails a run that succeeded, starts a second Job, or leaves a namespace behind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use super::{
    oracles::{Oracle, TWO_AT_ONCE, Violation},
    plan::{Class, Learned, Plan, rank},
    point::{Injection, WatchFault},
};

/// The short silence in milliseconds: longer than each wait after which an operator used to believe its cache.
const SHORT: u32 = 15_000;

/// The long silence in milliseconds: longer than a client keeps a watch open that delivers nothing.
const LONG: u32 = 120_000;

/// Plays of silent plans at a time by default: they wait more than other plays do.
pub const PARALLEL: usize = 16;

/// Returns the plans of a scenario: each watched resource that changes × 15 s and 120 s.
#[must_use]
pub fn plans(scenario: &'static str, learned: &Learned) -> Vec<Plan> {
    let watched = learned.watched.iter();
    watched
        .flat_map(|resource| [SHORT, LONG].map(|time| plan(scenario, resource, time)))
        .collect()
}

/// Returns one plan of 15 s for each watched resource. The seed chooses its scenario among those in which the
/// resource changes.
#[must_use]
pub fn share(known: &[(&'static str, Learned)], seed: u64) -> Vec<Plan> {
    let watched: BTreeSet<&String> = known.iter().flat_map(|(_, one)| &one.watched).collect();
    let chosen = watched.into_iter().filter_map(|resource| {
        let (scenario, _) = known
            .iter()
            .filter(|(_, learned)| learned.watched.contains(resource))
            .min_by_key(|(scenario, _)| rank(seed, &format!("{scenario} {resource}")))?;
        Some(plan(scenario, resource, SHORT))
    });
    chosen.collect()
}

fn plan(scenario: &'static str, resource: &str, time: u32) -> Plan {
    Plan {
        scenario,
        class: Class::Silent,
        script: vec![Injection::Watch {
            resource: resource.to_owned(),
            fault: WatchFault::Silent(time),
        }],
        seed: None,
    }
}

/// Returns the longest silence of a script: what an operator can notice may come later by this time.
#[must_use]
pub fn longest(script: &[Injection]) -> Duration {
    let silences = script.iter().map(|injection| match injection {
        Injection::Watch { fault, .. } => fault.silence(),
        Injection::Request { .. } => Duration::ZERO,
    });
    silences.max().unwrap_or_default()
}

/// Returns how long plans take at most, `parallel` at a time, by the times of the scenarios without faults.
#[must_use]
pub fn estimate(plans: &[Plan], times: &BTreeMap<&str, Duration>, parallel: usize) -> Duration {
    let all: Duration = plans
        .iter()
        .map(|plan| {
            let took = times.get(plan.scenario).copied().unwrap_or_default();
            took + longest(&plan.script)
        })
        .sum();
    let parallel = u32::try_from(parallel.max(1)).unwrap_or(u32::MAX);
    all / parallel
}

/// The counts of the plays with silent watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Plans that were judged.
    pub plans: usize,
    /// Plays that ended otherwise than without faults.
    pub false_failures: usize,
    /// Plays in which two Jobs of one run were at work at the same time.
    pub second_jobs: usize,
    /// Plays that left a namespace behind that was to be deleted.
    pub namespaces: usize,
}

impl Summary {
    /// Adds the violations of one play.
    pub fn add(&mut self, violations: &[Violation]) {
        let any = |is_it: &dyn Fn(&Violation) -> bool| usize::from(violations.iter().any(is_it));
        self.plans += 1;
        self.false_failures += any(&|one| one.oracle == Oracle::SameEnd);
        self.second_jobs += any(&|one| one.words.starts_with(TWO_AT_ONCE));
        self.namespaces +=
            any(&|one| one.oracle == Oracle::NothingLeft && one.words.contains("namespace"));
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            plans,
            false_failures,
            second_jobs,
            namespaces,
        } = self;
        write!(
            out,
            "{plans} plans, {false_failures} false failures, {second_jobs} second Jobs, \
             {namespaces} namespaces left behind"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(watched: &[&str]) -> Learned {
        Learned {
            watched: watched.iter().map(|one| (*one).to_owned()).collect(),
            ..Learned::default()
        }
    }

    #[test]
    fn each_watched_resource_is_silent_for_two_times() {
        let plans = plans("success", &learned(&["jobs", "pods"]));
        let ids: Vec<String> = plans.iter().map(Plan::id).collect();
        assert_eq!(
            ids,
            [
                "success/watch-jobs=silent-15000",
                "success/watch-jobs=silent-120000",
                "success/watch-pods=silent-15000",
                "success/watch-pods=silent-120000",
            ]
        );
        for plan in plans {
            let id = plan.id();
            let (_, words) = id.split_once('/').unwrap();
            let again = super::super::plan::of_words("success", words).unwrap();
            assert_eq!(again.script, plan.script, "{id}");
        }
    }

    #[test]
    fn a_share_has_each_resource_once_and_over_all_seeds_each_scenario() {
        let known = [
            ("success", learned(&["jobs", "pods"])),
            ("agent", learned(&["agents", "jobs", "pods"])),
        ];
        let mut played = BTreeSet::new();
        for seed in 0..50 {
            let some = share(&known, seed);
            assert_eq!(some, share(&known, seed));
            let resources: BTreeSet<String> =
                some.iter().map(|plan| plan.script[0].to_string()).collect();
            assert_eq!((some.len(), resources.len()), (3, 3));
            played.extend(some.iter().map(Plan::id));
        }
        assert_eq!(played.len(), 5, "{played:?}");
    }

    #[test]
    fn the_estimate_is_the_time_of_all_plays_divided_by_those_at_a_time() {
        let plans = plans("success", &learned(&["jobs", "pods"]));
        let times = BTreeMap::from([("success", Duration::from_secs(15))]);
        // Twice 15 s and twice 120 s, with 15 s each.
        let seconds = |parallel| estimate(&plans, &times, parallel).as_secs();
        assert_eq!([seconds(1), seconds(10), seconds(0)], [330, 33, 330]);
        assert_eq!(longest(&[]), Duration::ZERO);
    }

    #[test]
    fn each_play_counts_once_by_what_went_wrong() {
        let violation = |oracle, words: &str| Violation {
            oracle,
            words: words.to_owned(),
        };
        let mut summary = Summary::default();
        summary.add(&[]);
        summary.add(&[
            violation(Oracle::SameEnd, "it failed"),
            violation(Oracle::SameEnd, "it failed in other words"),
        ]);
        summary.add(&[violation(
            Oracle::OneEffect,
            &format!("{TWO_AT_ONCE}: a, b"),
        )]);
        summary.add(&[violation(
            Oracle::NothingLeft,
            "tenants/a was gone before namespace 'b'",
        )]);
        summary.add(&[violation(Oracle::Quiet, "it writes")]);
        assert_eq!(
            summary.to_string(),
            "5 plans, 1 false failures, 1 second Jobs, 1 namespaces left behind"
        );
    }
}
