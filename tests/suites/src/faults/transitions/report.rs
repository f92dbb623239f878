//! What was played and what came of it.

use std::{collections::BTreeMap, fmt, time::Duration};

use testkit::junit::CaseResult;

use crate::faults::results;

/// How a transition was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Count {
    /// The live object took it.
    Taken,
    /// It did not; a new object did.
    New,
    /// Neither did.
    Refused,
}

/// One transition, played.
#[derive(Debug)]
pub(super) struct Played {
    name: String,
    kind: String,
    pub(super) outcome: Count,
    /// From each change of a live object to the status that speaks of it.
    pub(super) waits: Vec<Duration>,
    /// The reasons that were seen.
    pub(super) reasons: Vec<String>,
    /// What is worth a look, and no fault.
    pub(super) note: Option<String>,
    faults: Vec<String>,
}

impl Played {
    pub(super) fn new(name: &str, kind: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            outcome: Count::Refused,
            waits: Vec::new(),
            reasons: Vec::new(),
            note: None,
            faults: Vec::new(),
        }
    }

    pub(super) fn fault(&mut self, words: String) {
        self.faults.push(words);
    }
}

/// What came of all transitions.
#[derive(Debug)]
pub(crate) struct Report {
    seed: u64,
    counts: BTreeMap<(String, Count), usize>,
    waits: Vec<Duration>,
    reasons: BTreeMap<String, usize>,
    notes: Vec<String>,
    /// How long it took.
    pub(super) took: Duration,
    /// What the operator held before and after, in KiB.
    pub(super) memory: (u64, u64),
    /// Everything that must not be, with the name of its transition.
    pub(crate) violations: Vec<String>,
}

impl Report {
    pub(super) fn new(seed: u64, memory: u64) -> Self {
        Self {
            seed,
            counts: BTreeMap::new(),
            waits: Vec::new(),
            reasons: BTreeMap::new(),
            notes: Vec::new(),
            took: Duration::ZERO,
            memory: (memory, memory),
            violations: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, played: Played) {
        let Played {
            name,
            kind,
            outcome,
            waits,
            reasons,
            note,
            faults,
        } = played;
        *self.counts.entry((kind, outcome)).or_default() += 1;
        self.waits.extend(waits);
        for reason in reasons {
            *self.reasons.entry(reason).or_default() += 1;
        }
        let note = note.map(|note| format!("{name}: {note}"));
        self.notes.extend(note);
        let words = faults.into_iter().map(|fault| format!("{name}: {fault}"));
        self.violations.extend(words);
    }

    /// Whether something was played, and nothing was wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.violations.is_empty() && !self.counts.is_empty()
    }

    pub(crate) fn result(&self) -> CaseResult {
        results::whole(self.is_clean(), &self.violations, self.to_string())
    }

    /// The wait that this many of a hundred do not exceed.
    fn wait(&self, of_hundred: usize) -> Duration {
        let mut waits = self.waits.clone();
        waits.sort();
        let last = waits.len().saturating_sub(1);
        let index = waits.len() * of_hundred / 100;
        waits.get(index.min(last)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |kind: &str, count| {
            let key = (kind.to_owned(), count);
            self.counts.get(&key).copied().unwrap_or_default()
        };
        let all: usize = self.counts.values().sum();
        let took = self.took.as_secs_f64();
        writeln!(out, "{all} transitions in {took:.1} s, seed {}", self.seed)?;
        let kinds: std::collections::BTreeSet<&String> =
            self.counts.keys().map(|(kind, _)| kind).collect();
        for kind in kinds {
            let (taken, new) = (of(kind, Count::Taken), of(kind, Count::New));
            let refused = of(kind, Count::Refused);
            writeln!(
                out,
                "  {kind}: {taken} taken, {new} by a new object only, {refused} refused"
            )?;
        }
        let ms = |of_hundred| self.wait(of_hundred).as_millis();
        writeln!(
            out,
            "  changes seen in a status after: half {} ms, 99% {} ms, all {} ms",
            ms(50),
            ms(99),
            ms(100)
        )?;
        let reasons: Vec<String> = self
            .reasons
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        writeln!(out, "  reasons: {}", reasons.join(", "))?;
        let (before, after) = self.memory;
        writeln!(out, "  memory: {before} KiB before, {after} KiB after")?;
        for note in &self.notes {
            writeln!(out, "  note: {note}")?;
        }
        writeln!(out, "  {} violations", self.violations.len())?;
        for violation in &self.violations {
            writeln!(out, "  VIOLATION {violation}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_has_the_name_of_its_transition() {
        let mut report = Report::new(5, 1);
        assert!(!report.is_clean(), "nothing was played");
        report.add(Played::new("Agent/bare:image=empty", "Agent"));
        assert!(report.is_clean());
        let mut bad = Played::new("Agent/bare:image=null", "Agent");
        bad.outcome = Count::Taken;
        bad.waits = vec![Duration::from_millis(7), Duration::from_millis(9)];
        bad.fault("oh".to_owned());
        report.add(bad);
        assert!(!report.is_clean());
        let text = report.to_string();
        for wanted in [
            "2 transitions",
            "seed 5",
            "Agent: 1 taken, 0 by a new object only, 1 refused",
            "half 9 ms, 99% 9 ms",
            "VIOLATION Agent/bare:image=null: oh",
        ] {
            assert!(text.contains(wanted), "no '{wanted}' in {text}");
        }
    }
}
