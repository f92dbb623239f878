//! The sum of a campaign.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use anyhow::Result;

use super::{Learning, Verdict};
use crate::faults::{
    oracles::{Oracle, Violation},
    plan::{Class, Plan},
    point::Injection,
    silent,
};

/// One plan in so many may miss its point; a suite that misses more tests something else.
const MISSED: usize = 20;

/// How many happened, of how many that were planned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Happened.
    pub hit: usize,
    /// Planned.
    pub planned: usize,
}

impl Share {
    fn add(&mut self, hit: usize, planned: usize) {
        self.hit += hit;
        self.planned += planned;
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.hit, self.planned)
    }
}

/// The sum of a campaign.
#[derive(Debug, Default)]
pub struct Tally {
    /// Write points, kinds of requests, watched resources.
    pub points: [usize; 3],
    /// How many scenarios were played without faults.
    pub faultless: usize,
    /// Plans of each class: all, and those whose point was not reached.
    pub plans: BTreeMap<Class, (usize, usize)>,
    /// Faults of each class.
    pub faults: BTreeMap<Class, Share>,
    /// The plans with a silent watch.
    pub silent: silent::Summary,
    /// Compound schedules of which each fault happened.
    pub whole_schedules: Share,
    /// Write points, as `SCENARIO/POINT`: their faults.
    pub writes: BTreeMap<String, Share>,
    /// Plays with a violation, those without a fault included.
    pub divergences: Vec<(String, Vec<Violation>)>,
    /// Plays that could not be judged: they count as divergences.
    pub unjudged: Vec<(String, String)>,
    /// Plans that hit nothing.
    pub unreached: Vec<String>,
    /// Those of them that are at requests that not every play makes.
    pub varying: BTreeSet<String>,
    /// How long each plan took, with all its plays; and each fault-free scenario.
    pub times: Vec<(String, Duration)>,
    /// From the first play to the last.
    pub took: Duration,
}

impl Tally {
    /// Starts with the fault-free plays: those that went wrong are divergences.
    #[must_use]
    pub fn of(learning: &Learning) -> Self {
        Self {
            points: learning.points(),
            faultless: learning.times.len(),
            divergences: learning.divergences.clone(),
            unjudged: learning.unjudged.clone(),
            times: learning.times.clone(),
            ..Self::default()
        }
    }

    /// Adds one plan; `varies` if not every play makes the requests that it hits. Returns whether it
    /// went wrong.
    pub(super) fn add(&mut self, plan: &Plan, varies: bool, verdict: Result<Verdict>) -> bool {
        let id = plan.id();
        let counts = self.plans.entry(plan.class).or_default();
        counts.0 += 1;
        let verdict = match verdict {
            Err(error) => {
                self.unjudged.push((id, format!("{error:#}")));
                return true;
            }
            Ok(verdict) => verdict,
        };
        let (hit, planned) = verdict.faults;
        self.faults.entry(plan.class).or_default().add(hit, planned);
        if plan.class == Class::Compound {
            self.whole_schedules.add(usize::from(hit == planned), 1);
        }
        if let (Class::Write, Some(Injection::Request { point, .. })) =
            (plan.class, plan.script.first())
        {
            let point = format!("{}/{point}", plan.scenario);
            self.writes.entry(point).or_default().add(hit, planned);
        }
        if !verdict.was_reached {
            counts.1 += 1;
            self.unreached.push(id.clone());
            if varies {
                self.varying.insert(id.clone());
            }
        }
        self.times.push((id.clone(), verdict.took));
        if plan.class == Class::Silent {
            self.silent.add(&verdict.violations);
        }
        let is_bad = !verdict.violations.is_empty();
        if is_bad {
            self.divergences.push((id, verdict.violations));
        }
        is_bad
    }

    /// How many plays showed a green that was not true.
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

    /// Write points that none of their faults reached.
    pub fn untouched(&self) -> impl Iterator<Item = &str> {
        let all = self.writes.iter();
        all.filter(|(_, share)| share.hit == 0)
            .map(|(point, _)| point.as_str())
    }

    /// The slowest, slowest first.
    #[must_use]
    pub fn slowest(&self, count: usize) -> Vec<&(String, Duration)> {
        let mut all: Vec<_> = self.times.iter().collect();
        all.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        all.truncate(count);
        all
    }

    /// Whether every play ended as it should, those without faults included, and nearly every plan hit
    /// its point. Plans at requests that not every play makes may miss.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let all: usize = self.plans.values().map(|(count, _)| count).sum();
        let missed = self.unreached.len() - self.varying.len();
        self.divergences.is_empty() && self.unjudged.is_empty() && missed <= all / MISSED
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [writes, routes, watched] = self.points;
        writeln!(
            out,
            "points: {writes} writes, {routes} kinds of requests, {watched} watched resources"
        )?;
        writeln!(
            out,
            "without faults: {} scenarios, twice each",
            self.faultless
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
        let mut single = Share::default();
        for (class, share) in &self.faults {
            if *class != Class::Compound {
                single.add(share.hit, share.planned);
            }
        }
        writeln!(out, "single faults: {single} happened")?;
        if let Some(share) = self.faults.get(&Class::Compound) {
            writeln!(
                out,
                "faults of compound schedules: {share} happened; all of them in {} schedules",
                self.whole_schedules
            )?;
        }
        if !self.writes.is_empty() {
            let all = self.writes.len();
            let hit = all - self.untouched().count();
            let each = |share: &&Share| share.hit == share.planned;
            let fully = self.writes.values().filter(each).count();
            writeln!(
                out,
                "write points: {hit} of {all} hit by at least one fault, {fully} by each of theirs"
            )?;
        }
        if self.silent.plans > 0 {
            writeln!(out, "silent watches: {}", self.silent)?;
        }
        writeln!(
            out,
            "{all} plans, {} divergences, {} not judged, {} false greens, {} not reached ({} of them \
             at requests that not every play makes), {:.0} s",
            self.divergences.len(),
            self.unjudged.len(),
            self.false_greens(),
            self.unreached.len(),
            self.varying.len(),
            self.took.as_secs_f64()
        )
    }
}
