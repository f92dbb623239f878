//! From what a fault-free play showed to the plans that hit it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::{
    point::{Fault, Injection, Point, Route, WatchFault},
    proxy::Traced,
};

/// The election's own object: the same in every scenario, so it is hit in the first alone.
const LEASES: &str = "leases";

/// How late a stale watch is, and how long events are kept together, in milliseconds.
const LATE: u32 = 2500;

/// Renewals of a Lease are many and all alike: these are hit.
const RENEWALS: u32 = 2;

/// What a fault-free play of a scenario showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Learned {
    /// Each state-changing request.
    pub writes: BTreeSet<Point>,
    /// Each kind of request.
    pub routes: BTreeSet<Route>,
    /// The plurals of what is watched and changed.
    pub watched: BTreeSet<String>,
    /// Writes that not every play made.
    pub varying: BTreeSet<Point>,
}

impl Learned {
    /// From the requests of one play, and the resources of which something was seen to change.
    #[must_use]
    pub fn of(trace: &[Traced], changed: &BTreeSet<String>) -> Self {
        let mut learned = Self::default();
        for Traced { point, .. } in trace {
            let route = &point.route;
            // A watch that tells nothing cannot be late.
            let has_news = route.resource == LEASES || changed.contains(&route.resource);
            if route.verb == "watch" && has_news {
                learned.watched.insert(route.resource.clone());
            }
            learned.routes.insert(route.clone());
            let is_renewal = route.resource == LEASES && point.nth > RENEWALS;
            if route.is_write() && !is_renewal {
                learned.writes.insert(point.clone());
            }
        }
        learned
    }

    /// Without what another scenario shows as well.
    #[must_use]
    pub fn without_election(mut self) -> Self {
        self.writes.retain(|point| point.route.resource != LEASES);
        self.watched.remove(LEASES);
        self
    }

    /// Without what is hit in the scenario that this one begins as. What is told, or is not written there
    /// each time, is not left out: the same number may be another moment.
    #[must_use]
    pub fn without_beginning(mut self, beginning: &Self) -> Self {
        let is_told = |point: &Point| {
            let resource = point.route.resource.as_str();
            resource == "events" || resource.ends_with("/status")
        };
        let is_hit =
            |point: &Point| beginning.writes.contains(point) && !beginning.varying.contains(point);
        self.writes.retain(|point| is_told(point) || !is_hit(point));
        self
    }

    /// What either showed.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let either = self.writes.symmetric_difference(&other.writes);
        self.varying = either.cloned().collect();
        self.writes.extend(other.writes);
        self.routes.extend(other.routes);
        self.watched.extend(other.watched);
        self
    }
}

/// Which part of the catalogue a plan belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A write, hit by a crash or a lost answer.
    Write,
    /// A kind of request, refused or broken.
    Route,
    /// A watch that is late, cut, or too old.
    Watch,
    /// Several at once, by a seed.
    Compound,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Write, Self::Route, Self::Watch, Self::Compound];

    /// In a report.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Write => "writes × crash before, after, relayed, lost answer, refusal",
            Self::Route => "kinds of requests × refusals and broken answers",
            Self::Watch => "watches × late, together, cut, 410",
            Self::Compound => "seeded compound schedules",
        }
    }
}

/// One play with faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Which scenario is played.
    pub scenario: &'static str,
    /// Of which part of the catalogue it is.
    pub class: Class,
    /// What is hit.
    pub script: Vec<Injection>,
    /// The seed of a compound one.
    pub seed: Option<u64>,
}

impl Plan {
    /// What reproduces it: `SCENARIO/…`.
    #[must_use]
    pub fn id(&self) -> String {
        let what = match self.seed {
            Some(seed) => format!("seed-{seed}"),
            None => {
                let parts: Vec<String> = self.script.iter().map(ToString::to_string).collect();
                parts.join("+")
            }
        };
        format!("{}/{what}", self.scenario)
    }
}

/// The plan of an id that lists its faults: it need not be learned again to be played again.
///
/// # Errors
/// When something of it is no fault.
pub fn of_words(scenario: &'static str, words: &str) -> Result<Plan> {
    let script: Result<Vec<Injection>> = words.split('+').map(str::parse).collect();
    Ok(Plan {
        scenario,
        class: Class::Compound,
        script: script?,
        seed: None,
    })
}

/// Every write of a scenario × crash before, after and relayed, an answer that is lost, and one that is a
/// refusal or broken.
///
/// Answers are lost in two ways and refused in eight; neighbouring points take turns.
#[must_use]
pub fn of_writes(scenario: &'static str, learned: &Learned) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (place, point) in learned.writes.iter().enumerate() {
        let lost = match place % 2 {
            0 => Fault::LostByReset,
            _ => Fault::LostByTimeout,
        };
        let refused = Fault::AT_ROUTES[place % Fault::AT_ROUTES.len()];
        for fault in [
            Fault::KillBefore,
            Fault::KillAfter,
            Fault::KillRelayed,
            lost,
            refused,
        ] {
            plans.push(Plan {
                scenario,
                class: Class::Write,
                script: vec![hit(point.clone(), fault, 1)],
                seed: None,
            });
        }
    }
    plans
}

/// Every kind of request × refusals and broken answers, in the first scenario that has it.
#[must_use]
pub fn of_routes(learned: &[(&'static str, Learned)]) -> Vec<Plan> {
    let routes: BTreeSet<&Route> = learned.iter().flat_map(|(_, one)| &one.routes).collect();
    let mut plans = Vec::new();
    for route in routes {
        for fault in Fault::AT_ROUTES {
            // What has nothing to tell cannot be cut in half.
            let is_torn = route.verb == "watch" && fault == Fault::Truncated;
            let has_it = |one: &Learned| {
                one.routes.contains(route) && (!is_torn || one.watched.contains(&route.resource))
            };
            let Some((scenario, _)) = learned.iter().find(|(_, one)| has_it(one)) else {
                continue;
            };
            plans.push(Plan {
                scenario,
                class: Class::Route,
                script: vec![hit(any(route), fault, 2)],
                seed: None,
            });
        }
    }
    plans
}

/// Every watched resource of a scenario × late, together, cut, and too old.
#[must_use]
pub fn of_watches(scenario: &'static str, learned: &Learned) -> Vec<Plan> {
    let faults = [
        WatchFault::Stale(LATE),
        WatchFault::Collapsed(LATE),
        WatchFault::Cut(1),
        WatchFault::Gone(1),
    ];
    let pairs = learned
        .watched
        .iter()
        .flat_map(|resource| faults.map(|fault| (resource.clone(), fault)));
    pairs
        .map(|(resource, fault)| Plan {
            scenario,
            class: Class::Watch,
            script: vec![Injection::Watch { resource, fault }],
            seed: None,
        })
        .collect()
}

/// A schedule of two to four faults, by its seed.
///
/// What is chosen is what is first by a hash of the seed and its own name: one thing more that was
/// learned this time changes few schedules.
#[must_use]
pub fn compound(scenario: &'static str, learned: &Learned, seed: u64) -> Plan {
    let mut dice = Dice(seed);
    let mut script = Vec::new();
    for _ in 0..2 + dice.below(3) {
        let draw = dice.roll();
        let injection = match dice.below(4) {
            0 | 1 => first(&learned.writes, draw).map(|point| {
                let fault = dice.of(&Fault::AT_WRITES).copied();
                hit(point.clone(), fault.unwrap_or(Fault::KillAfter), 1)
            }),
            2 => first(&learned.routes, draw).map(|route| {
                let fault = dice.of(&Fault::AT_ROUTES).copied();
                let mut point = any(route);
                point.nth = 1 + dice.below(3);
                hit(point, fault.unwrap_or(Fault::Reset), 1 + dice.below(2))
            }),
            _ => first(&learned.watched, draw).map(|resource| {
                let fault = match dice.below(4) {
                    0 => WatchFault::Stale(500 + dice.below(LATE)),
                    1 => WatchFault::Collapsed(500 + dice.below(LATE)),
                    2 => WatchFault::Cut(1 + dice.below(5)),
                    _ => WatchFault::Gone(1 + dice.below(5)),
                };
                let resource = resource.clone();
                Injection::Watch { resource, fault }
            }),
        };
        script.extend(injection);
    }
    Plan {
        scenario,
        class: Class::Compound,
        script,
        seed: Some(seed),
    }
}

/// Those that hit something in each play: not only writes that one of those that were learned from made.
#[must_use]
pub fn steady(learned: &[(&'static str, Learned)], plans: Vec<Plan>) -> Vec<Plan> {
    let varies = |scenario: &str, injection: &Injection| match injection {
        Injection::Request { point, .. } => learned
            .iter()
            .any(|(name, one)| *name == scenario && one.varying.contains(point)),
        Injection::Watch { .. } => false,
    };
    let is_steady = |plan: &Plan| !plan.script.iter().all(|one| varies(plan.scenario, one));
    plans.into_iter().filter(is_steady).collect()
}

/// A share of `plans` of this size, of all classes and scenarios: of each those that are first by a hash
/// of the seed and their id.
#[must_use]
pub fn share(plans: Vec<Plan>, size: usize, seed: u64) -> Vec<Plan> {
    // One after the other from each group: none is left out while another has many.
    let mut groups: BTreeMap<(Class, &'static str), Vec<Plan>> = BTreeMap::new();
    for plan in plans {
        let group = groups.entry((plan.class, plan.scenario));
        group.or_default().push(plan);
    }
    for group in groups.values_mut() {
        group.sort_by_key(|plan| std::cmp::Reverse(rank(seed, &plan.id())));
    }
    let mut chosen = Vec::new();
    while chosen.len() < size && groups.values().any(|group| !group.is_empty()) {
        for group in groups.values_mut() {
            if chosen.len() < size {
                chosen.extend(group.pop());
            }
        }
    }
    chosen
}

/// The one that is first by its hash.
fn first<T: ToString>(choices: &BTreeSet<T>, seed: u64) -> Option<&T> {
    choices
        .iter()
        .min_by_key(|choice| rank(seed, &choice.to_string()))
}

/// FNV-1a, mixed: the same on every machine and for ever.
fn rank(seed: u64, words: &str) -> u64 {
    let hash = words
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    Dice(hash ^ seed).roll()
}

fn hit(point: Point, fault: Fault, times: u32) -> Injection {
    Injection::Request {
        point,
        fault,
        times,
    }
}

fn any(route: &Route) -> Point {
    Point {
        route: route.clone(),
        name: String::new(),
        nth: 1,
    }
}

/// SplitMix64: the same numbers for the same seed, on every machine and for ever.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `limit`, which is not 0.
    fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.roll() % u64::from(limit.max(1))).unwrap_or_default()
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let count = u32::try_from(choices.len()).unwrap_or(u32::MAX);
        choices.get(self.below(count) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(verb: &str, resource: &str, name: &str, nth: u32) -> Point {
        Point {
            route: Route::new(verb, resource),
            name: name.to_owned(),
            nth,
        }
    }

    fn learned() -> Learned {
        Learned {
            writes: BTreeSet::from([
                point("create", "jobs", "work-1", 1),
                point("patch", "taskruns/status", "work", 1),
                point("patch", "taskruns/status", "work", 2),
            ]),
            routes: BTreeSet::from([
                Route::new("create", "jobs"),
                Route::new("patch", "taskruns/status"),
                Route::new("watch", "jobs"),
            ]),
            watched: BTreeSet::from(["jobs".to_owned(), "pods".to_owned()]),
            varying: BTreeSet::new(),
        }
    }

    #[test]
    fn every_write_is_hit_in_five_ways() {
        let plans = of_writes("success", &learned());
        assert_eq!(plans.len(), 3 * 5);
        let ids: BTreeSet<String> = plans.iter().map(Plan::id).collect();
        assert_eq!(ids.len(), plans.len(), "ids are unique");
        assert!(
            ids.contains("success/create-jobs:work-1#1=kill-before"),
            "{ids:?}"
        );
        for lost in ["lost-reset", "lost-504"] {
            assert!(ids.iter().any(|id| id.ends_with(lost)), "{ids:?}");
        }
    }

    #[test]
    fn every_route_is_hit_once_with_each_answer_in_the_first_scenario_that_has_it() {
        let mut second = learned();
        second.routes.insert(Route::new("delete", "jobs"));
        let plans = of_routes(&[("success", learned()), ("delete", second)]);
        assert_eq!(plans.len(), 4 * 8);
        let elsewhere = plans.iter().filter(|plan| plan.scenario == "delete");
        assert_eq!(elsewhere.count(), 8);
    }

    #[test]
    fn a_watch_is_cut_in_half_where_it_has_something_to_tell() {
        let torn = |learned: &[(&'static str, Learned)]| {
            let all = of_routes(learned).into_iter();
            let torn = all.filter(|plan| plan.id().contains("watch-jobs:#1=truncated"));
            torn.map(|plan| plan.scenario).collect::<Vec<_>>()
        };
        let silent = Learned {
            watched: BTreeSet::new(),
            ..learned()
        };
        assert_eq!(
            torn(&[("silent", silent.clone()), ("busy", learned())]),
            ["busy"]
        );
        assert!(torn(&[("silent", silent)]).is_empty());
    }

    #[test]
    fn a_beginning_is_hit_once_and_what_is_told_each_time() {
        let mut longer = learned();
        let last = point("delete", "jobs", "work-1", 1);
        longer.writes.insert(last.clone());
        let left = longer.clone().without_beginning(&learned()).writes;
        let told = |nth| point("patch", "taskruns/status", "work", nth);
        assert_eq!(left, BTreeSet::from([last.clone(), told(1), told(2)]));

        // Once, by a late watch, the beginning made this write: here it is another one.
        let mut beginning = learned();
        beginning.writes.insert(last.clone());
        beginning.varying.insert(last.clone());
        let left = longer.without_beginning(&beginning).writes;
        assert!(left.contains(&last));
    }

    #[test]
    fn what_one_of_two_plays_did_is_hit_but_not_in_a_share() {
        let seldom = point("patch", "taskruns/status", "work", 3);
        let mut once = learned();
        once.writes.insert(seldom.clone());
        let both = learned().and(once);
        assert_eq!(both.varying, BTreeSet::from([seldom.clone()]));
        let all = of_writes("success", &both);
        assert_eq!(all.len(), 4 * 5);
        let certain = point("patch", "taskruns/status", "work", 2);
        let known = [("success", both)];
        let left = steady(&known, all);
        assert_eq!(left.len(), 3 * 5);
        let ids: Vec<String> = left.iter().map(Plan::id).collect();
        assert!(ids.iter().all(|id| !id.contains("#3")), "{ids:?}");
        let mixed = Plan {
            script: vec![hit(seldom, Fault::Reset, 1), hit(certain, Fault::Reset, 1)],
            ..compound("success", &known[0].1, 1)
        };
        assert_eq!(steady(&known, vec![mixed]).len(), 1);
    }

    #[test]
    fn every_watched_resource_is_late_cut_and_too_old() {
        assert_eq!(of_watches("success", &learned()).len(), 2 * 4);
    }

    #[test]
    fn an_id_is_enough_to_play_it_again() {
        for plan in of_writes("success", &learned()) {
            let id = plan.id();
            let (_, words) = id.split_once('/').unwrap();
            let again = of_words("success", words).unwrap();
            assert_eq!(again.script, plan.script, "{id}");
        }
        assert!(of_words("success", "create-jobs").is_err());
    }

    #[test]
    fn one_point_more_changes_few_schedules() {
        let mut more = learned();
        more.writes.insert(point("delete", "jobs", "work-1", 1));
        let changed = (0..100)
            .filter(|seed| {
                compound("success", &learned(), *seed).script
                    != compound("success", &more, *seed).script
            })
            .count();
        assert!((1..60).contains(&changed), "{changed} of 100");
    }

    #[test]
    fn a_seed_is_a_schedule() {
        let one = compound("success", &learned(), 7);
        assert_eq!(one, compound("success", &learned(), 7));
        assert_eq!(one.id(), "success/seed-7");
        let others: BTreeSet<String> = (0..50)
            .map(|seed| format!("{:?}", compound("success", &learned(), seed).script))
            .collect();
        assert!(others.len() > 45, "{} different ones", others.len());
        for seed in 0..200 {
            let count = compound("success", &learned(), seed).script.len();
            assert!((2..=4).contains(&count), "{count} faults");
        }
    }

    #[test]
    fn a_share_is_fixed_and_leaves_no_group_out() {
        let mut all = of_writes("success", &learned());
        all.extend(of_watches("success", &learned()));
        all.push(compound("retry", &learned(), 1));
        let some = share(all.clone(), 6, 3);
        assert_eq!(some, share(all.clone(), 6, 3));
        assert_eq!(some.len(), 6);
        assert!(some.iter().any(|plan| plan.scenario == "retry"));
        for class in [Class::Write, Class::Watch, Class::Compound] {
            assert!(some.iter().any(|plan| plan.class == class), "{class:?}");
        }
        assert_eq!(share(all.clone(), 1000, 3).len(), all.len());
    }

    #[test]
    fn only_the_first_renewals_of_a_lease_are_points() {
        let traced = |point: Point| Traced {
            at: std::time::Instant::now(),
            point,
            namespace: String::new(),
            code: Some(200),
            fault: None,
        };
        let mut trace: Vec<Traced> = (1..=9)
            .map(|nth| traced(point("update", "leases", "tasks", nth)))
            .collect();
        trace.push(traced(point("watch", "jobs", "", 1)));
        trace.push(traced(point("watch", "nodes", "", 1)));
        trace.push(traced(point("create", "jobs", "work-1", 1)));
        let learned = Learned::of(&trace, &BTreeSet::from(["jobs".to_owned()]));
        assert_eq!(learned.writes.len(), 3);
        assert_eq!(learned.watched, BTreeSet::from(["jobs".to_owned()]));
        assert_eq!(learned.routes.len(), 4);
        assert_eq!(learned.without_election().writes.len(), 1);
    }
}
