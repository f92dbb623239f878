//! From what a fault-free play showed to the plans that hit it.

#[cfg(test)]
mod tests;

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
    /// A watch that is open and silent.
    Silent,
    /// Several at once, by a seed.
    Compound,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Write,
        Self::Route,
        Self::Watch,
        Self::Silent,
        Self::Compound,
    ];

    /// In a report.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Write => "writes × crash before, after, relayed, lost answer, refusal",
            Self::Route => "kinds of requests × refusals and broken answers",
            Self::Watch => "watches × late, together, cut, 410",
            Self::Silent => "watches × silent for 15 s and 120 s",
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
    // Without faults: as it was learned.
    let parts = words.split('+').filter(|_| !words.is_empty());
    let script: Result<Vec<Injection>> = parts.map(str::parse).collect();
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
                    // No later than alone: oracles count on it.
                    0 => WatchFault::Stale(500 + dice.below(LATE - 500)),
                    1 => WatchFault::Collapsed(500 + dice.below(LATE - 500)),
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

/// Whether a plan hits nothing but requests that not every fault-free play makes.
#[must_use]
pub fn varies(learned: &[(&'static str, Learned)], plan: &Plan) -> bool {
    let is_varying = |injection: &Injection| match injection {
        Injection::Request { point, .. } => learned
            .iter()
            .any(|(name, one)| *name == plan.scenario && one.varying.contains(point)),
        Injection::Watch { .. } => false,
    };
    !plan.script.is_empty() && plan.script.iter().all(is_varying)
}

/// A share of `plans` of this size, of all classes and scenarios: of each those that are first by a hash
/// of the seed and their id. With fewer plans than groups, the seed chooses the groups, too: over all
/// seeds none is left out.
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
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|((class, scenario), _)| rank(seed, &format!("{class:?} {scenario}")));
    let mut groups: Vec<Vec<Plan>> = groups.into_iter().map(|(_, group)| group).collect();
    let mut chosen = Vec::new();
    while chosen.len() < size && groups.iter().any(|group| !group.is_empty()) {
        for group in &mut groups {
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
pub(super) fn rank(seed: u64, words: &str) -> u64 {
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
