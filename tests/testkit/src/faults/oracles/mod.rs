//! What must hold of a play, whatever was done to it: pure functions of what was seen.

mod ends;
mod green;
mod instants;
mod jobs;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use api::{GROUP, status::bounded};

use super::{canonical::Canonical, object_history::Seen, side_effect_log::Effect};
use crate::audit::Entry;

/// What an agent tells the side-effect log when its work is done.
pub const DONE: &str = "done";
/// The agent's container.
const AGENT: &str = "agent";
/// The kinds that end.
const RUNS: [&str; 2] = ["taskruns", "docsruns"];
/// The first words of a violation by Jobs or Pods of one run that are at work at the same time.
pub const TWO_AT_ONCE: &str = "two at work at the same time";
/// Of one oracle no more is said: the rest has the same cause.
const MOST: usize = 20;
/// The longest words of a violation.
const WORDS: usize = 600;

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oracle {
    /// No `Succeeded=True` or `Ready=True` that nothing bears out, at no instant.
    NoFalseGreen,
    /// The end state is that of the play without faults.
    SameEnd,
    /// So are the creates and deletes.
    SameObjects,
    /// One committed effect, and one end, per run.
    OneEffect,
    /// Nothing is left of what was deleted.
    NothingLeft,
    /// Nothing is written when all is done, and nothing is told again and again.
    Quiet,
    /// Each version of a status is true.
    TrueAtEveryInstant,
    /// No panic, and no secret where everybody reads.
    NoLeak,
}

impl fmt::Display for Oracle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoFalseGreen => "O0 no false green",
            Self::SameEnd => "O1 same end",
            Self::SameObjects => "O2 same objects",
            Self::OneEffect => "O3 one effect",
            Self::NothingLeft => "O4 nothing left",
            Self::Quiet => "O5 quiet",
            Self::TrueAtEveryInstant => "O6 true at every instant",
            Self::NoLeak => "O7 no panic, no leak",
        })
    }
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub oracle: Oracle,
    /// What was seen instead.
    pub words: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.oracle, self.words)
    }
}

/// What was seen of one play.
pub struct Evidence<'a> {
    /// The play's own namespace.
    pub home: &'a str,
    /// By the object history, which must have caught up.
    pub seen: &'a [Seen],
    /// The operator's own requests about this namespace, from the play's begin to its end.
    pub audit: &'a [Entry],
    /// Those of them since all was done; `None` if that was not waited for.
    pub quiet: Option<&'a [Entry]>,
    /// By the side-effect log, which is to be whole.
    pub effects: &'a [Effect],
    /// The operator's lines.
    pub logs: &'a [String],
    /// The operator's page of metrics.
    pub metrics: &'a str,
    /// Texts that are in Secrets and nowhere else.
    pub canaries: &'a [String],
    /// Texts that specs may have, and that no log, metric, Event or status repeats.
    pub private: &'a [String],
    /// What only the operator's suite knows: whether the world bears out this version of an Agent that says
    /// `Ready=True` or of a run that says `Succeeded=True`, beyond its Pod and its effect.
    pub bears_out: &'a dyn Fn(&Seen) -> Result<(), String>,
    /// How long a watch of the operator was silent at most: by this time it may notice a change later.
    pub silence: Duration,
}

/// How a play without faults ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The end state.
    pub canonical: Canonical,
    /// How many creates of the operator were carried out, by resource.
    pub creates: BTreeMap<String, usize>,
    /// How many objects it deleted, by resource. To ask again for the same one is no second.
    pub deletes: BTreeMap<String, usize>,
    /// How many different Jobs, Pods and ConfigMaps there were.
    pub objects: BTreeMap<String, usize>,
    /// How often each run (`resource/name`) told that it was done.
    pub effects: BTreeMap<String, usize>,
    /// How many of the operator's Events say the same.
    pub told: BTreeMap<String, Told>,
}

/// How often the same was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    /// In all.
    pub times: usize,
    /// With nothing else about the object in between.
    pub in_a_row: usize,
}

impl Outcome {
    /// Of what was seen.
    #[must_use]
    pub fn of(evidence: &Evidence<'_>) -> Self {
        Self {
            canonical: Canonical::of(evidence.seen, evidence.home),
            creates: ends::creates(evidence.audit),
            deletes: ends::deletes(evidence.audit),
            objects: ends::objects(evidence.seen),
            effects: ends::effects(evidence),
            told: ends::told(evidence.seen, evidence.home),
        }
    }
}

/// All promises that were not kept, compared with the play without faults.
#[must_use]
pub fn judge(evidence: &Evidence<'_>, baseline: &Outcome) -> Vec<Violation> {
    let found = Outcome::of(evidence);
    let said = [
        (Oracle::NoFalseGreen, green::false_greens(evidence)),
        (
            Oracle::SameEnd,
            ends::other_end(evidence.seen, &found, baseline),
        ),
        (
            Oracle::SameObjects,
            ends::other_objects(&found, baseline, ends::called_off(evidence.seen)),
        ),
        (
            Oracle::OneEffect,
            ends::other_effects(evidence, &found, baseline),
        ),
        (Oracle::OneEffect, jobs::at_once(evidence.seen)),
        (Oracle::NothingLeft, ends::left(evidence, &found, baseline)),
        (Oracle::Quiet, ends::noise(evidence)),
        (Oracle::Quiet, ends::spam(&found, baseline)),
        (Oracle::Quiet, ends::hammering(evidence)),
        (
            Oracle::TrueAtEveryInstant,
            instants::untruths(evidence.seen),
        ),
        (Oracle::NoLeak, ends::leaks(evidence)),
    ];
    let violations = said.into_iter().flat_map(|(oracle, words)| {
        few(words).into_iter().map(move |words| Violation {
            oracle,
            words: bounded(&words, WORDS),
        })
    });
    violations.collect()
}

/// Each once, and not too many.
fn few(mut words: Vec<String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    words.retain(|one| known.insert(one.clone()));
    let more = words.len().saturating_sub(MOST);
    words.truncate(MOST);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words
}

fn is_ours(seen: &Seen) -> bool {
    let version = seen.object["apiVersion"].as_str().unwrap_or_default();
    version.split('/').next() == Some(GROUP)
}

fn is_run(seen: &Seen) -> bool {
    RUNS.contains(&seen.resource.as_str())
}

/// `resource/name` of a version, and which.
fn which(seen: &Seen) -> String {
    format!(
        "{}/{} at version {}",
        seen.resource, seen.name, seen.version
    )
}

/// The state of the agent's container in a Pod, wherever it stands in the row.
fn agent_end(pod: &Seen) -> Option<i64> {
    let status = &pod.object["status"];
    ["containerStatuses", "initContainerStatuses"]
        .iter()
        .filter_map(|field| status[*field].as_array())
        .flat_map(|containers| containers.iter())
        .filter(|container| container["name"] == AGENT)
        .find_map(|container| container["state"]["terminated"]["exitCode"].as_i64())
}
