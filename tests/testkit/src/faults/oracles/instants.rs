//! O6: what holds of each version of a status, and from one to the next.

use std::collections::{BTreeMap, HashMap};

use api::{Reason, names, status::condition};
use serde_json::Value;

use super::{agent_end, ends::epoch, is_ours, is_run, which};
use crate::faults::object_history::Seen;

pub(super) fn untruths(seen: &[Seen]) -> Vec<String> {
    let mut words = Vec::new();
    let mut objects: BTreeMap<(&str, &str), Vec<&Seen>> = BTreeMap::new();
    for one in seen.iter().filter(|one| is_ours(one)) {
        objects
            .entry((&one.resource, &one.uid))
            .or_default()
            .push(one);
    }
    for versions in objects.values_mut() {
        versions.sort_by_key(|one| one.version);
        let mut before = Before::default();
        for one in versions.iter() {
            let mut say = |what: &str| words.push(format!("{}: {what}", which(one)));
            before.follow(one, &mut say);
            alone(one, &mut say);
            if is_unaware(one, seen) {
                say("says that it has seen this spec, but goes on although it is suspended");
            }
        }
    }
    words
}

fn generation(seen: &Seen) -> i64 {
    seen.object["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// -1 as long as nobody has looked.
fn observed(seen: &Seen) -> i64 {
    let observed = &seen.object["status"]["observedGeneration"];
    observed.as_i64().unwrap_or(-1)
}

fn phase(seen: &Seen) -> &str {
    seen.object["status"]["phase"].as_str().unwrap_or_default()
}

fn is_over(seen: &Seen) -> bool {
    is_run(seen) && matches!(phase(seen), "Succeeded" | "Failed")
}

fn conditions(seen: &Seen) -> &[Value] {
    let conditions = seen.object["status"]["conditions"].as_array();
    conditions.map_or(&[], Vec::as_slice)
}

/// What the versions before said.
#[derive(Default)]
struct Before {
    observed: Option<i64>,
    /// By condition.
    observed_by: HashMap<String, i64>,
    epoch: i64,
    /// The end that the run came to, and in which epoch.
    end: Option<(i64, String)>,
}

impl Before {
    fn follow(&mut self, seen: &Seen, say: &mut dyn FnMut(&str)) {
        let now = observed(seen);
        if let Some(before) = self.observed.filter(|before| now < *before) {
            say(&format!("observedGeneration fell from {before} to {now}"));
        }
        self.observed = Some(now);
        for one in conditions(seen) {
            let kind = one["type"].as_str().unwrap_or_default();
            let now = one["observedGeneration"].as_i64().unwrap_or(0);
            let before = self.observed_by.insert(kind.to_owned(), now);
            if let Some(before) = before.filter(|before| now < *before) {
                say(&format!(
                    "observedGeneration of {kind} fell from {before} to {now}"
                ));
            }
        }
        if !is_run(seen) {
            return;
        }
        let now = epoch(seen);
        if now < self.epoch {
            say(&format!("its version fell from {} to {now}", self.epoch));
        }
        self.epoch = now;
        match &self.end {
            Some((ended, end)) if *ended == now && phase(seen) != end => say(&format!(
                "left its end '{end}' for '{}' within version {now}",
                phase(seen)
            )),
            Some(_) | None => {}
        }
        if is_over(seen) {
            self.end = Some((now, phase(seen).to_owned()));
        }
    }
}

/// What holds of a version for itself.
fn alone(seen: &Seen, say: &mut dyn FnMut(&str)) {
    let (generation, observed) = (generation(seen), observed(seen));
    if observed > generation {
        say(&format!(
            "observedGeneration {observed} of generation {generation}"
        ));
    }
    for one in conditions(seen) {
        let of = one["observedGeneration"].as_i64().unwrap_or(0);
        if of > generation {
            say(&format!(
                "observedGeneration {of} of {}, at generation {generation}",
                one["type"]
            ));
        }
    }
    if seen.is_true(condition::RECONCILING) && seen.is_true(condition::STALLED) {
        say("Reconciling and Stalled");
    }
    if !is_run(seen) || observed == -1 {
        return;
    }
    if seen.is_true(condition::SUCCEEDED) != (phase(seen) == "Succeeded") {
        say(&format!(
            "Succeeded and the phase '{}' disagree",
            phase(seen)
        ));
    }
    if seen.is_true(condition::FINISHED) != is_over(seen) {
        say(&format!(
            "Finished and the phase '{}' disagree",
            phase(seen)
        ));
    }
    let of = |part: &str| seen.object[part]["contextVersion"].as_i64();
    // Until a run goes, it is not started again.
    let is_deleting = !seen.object["metadata"]["deletionTimestamp"].is_null();
    if let (Some(wanted), Some(known)) = (of("spec"), of("status"))
        && is_over(seen)
        && observed == generation
        && known < wanted
        && !is_deleting
    {
        say(&format!(
            "says that it has seen version {wanted}, and speaks of {known}"
        ));
    }
}

/// A TaskRun that says that it has seen the spec that suspends it, and that its agent runs on.
///
/// Only where that is certain: not while it is cancelled, deleted or given up, not after an error,
/// and not once anything of it has ended, which is read first.
fn is_unaware(run: &Seen, all: &[Seen]) -> bool {
    let (spec, status) = (&run.object["spec"], &run.object["status"]);
    let reason = run
        .condition(condition::SUCCEEDED)
        .map_or(&Value::Null, |known| &known["reason"]);
    let goes_on = run.resource == "taskruns"
        && phase(run) == "Running"
        && *reason == Reason::Progressing.name()
        && status["result"].is_null()
        && status["retry"].is_null();
    let is_held = spec["suspend"] == true
        && spec["cancel"] != true
        && run.object["metadata"]["deletionTimestamp"].is_null();
    let has_ended = |one: &Seen| match one.resource.as_str() {
        "pods" => agent_end(one).is_some(),
        "jobs" => ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"]
            .iter()
            .any(|kind| one.is_true(kind)),
        _ => false,
    };
    observed(run) == generation(run)
        && goes_on
        && is_held
        && !all.iter().any(|one| {
            one.label(names::UID) == Some(&run.uid) && one.version < run.version && has_ended(one)
        })
}
