//! O1 to O5 and O7: what came of a play.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::{GROUP, Reason, names, status::condition};
use serde_json::Value;

use super::{DONE, Evidence, Outcome, Told, is_ours, is_run};
use crate::{
    audit::Entry,
    faults::{
        canonical::difference,
        object_history::{Change, Seen, present},
        side_effect_log::Effect,
    },
};

/// Who tells our Events.
const CONTROLLER: &str = "orchestrator.io/controller";

/// So much more often than without faults may the same be told.
const FEW: usize = 3;

/// The most refused writes of a play.
const PATIENCE: usize = 60;

/// What is counted by its UIDs.
const COUNTED: [&str; 3] = ["configmaps", "jobs", "pods"];

pub(super) fn other_end(seen: &[Seen], found: &Outcome, baseline: &Outcome) -> Vec<String> {
    let mut words = difference(&baseline.canonical, &found.canonical);
    words.extend(doubled(seen));
    words
}

/// Phase histories with an entry that is there twice in a row: the first one went on.
fn doubled(seen: &[Seen]) -> Vec<String> {
    let mut words = Vec::new();
    for one in present(seen).into_iter().filter(|one| is_ours(one)) {
        let history = one.object["status"]["phaseHistory"].as_array();
        let pairs = history.map_or(&[][..], Vec::as_slice).windows(2);
        let is_same = |pair: &&[Value]| match pair {
            [first, second] => {
                first["phase"] == second["phase"] && first["attempt"] == second["attempt"]
            }
            _ => false,
        };
        for pair in pairs.filter(is_same) {
            let phase = pair.first().map_or(&Value::Null, |record| &record["phase"]);
            words.push(format!(
                "{}/{} has the phase {phase} twice in a row",
                one.resource, one.name
            ));
        }
    }
    words
}

/// An Event is a hint, and a Lease nobody's object; a review is a question.
fn is_object(resource: &str) -> bool {
    let group = resource.split_once('.').map_or("", |(_, group)| group);
    let plural = resource.split('.').next().unwrap_or_default();
    let is_review = matches!(group, "authorization.k8s.io" | "authentication.k8s.io");
    !resource.contains('/') && !matches!(plural, "events" | "leases") && !is_review
}

fn was_done(entry: &Entry) -> bool {
    (200..300).contains(&entry.code)
}

pub(super) fn creates(audit: &[Entry]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for entry in audit.iter().filter(|entry| was_done(entry)) {
        let request = &entry.request;
        // A patch that applies is answered so, if there was nothing.
        let is_create = request.verb == "create" || (request.verb == "patch" && entry.code == 201);
        if is_create && is_object(&request.resource) {
            *counts.entry(request.resource.clone()).or_default() += 1;
        }
    }
    counts
}

pub(super) fn deletes(audit: &[Entry]) -> BTreeMap<String, usize> {
    let deleted: BTreeSet<(&str, &str)> = audit
        .iter()
        .filter(|entry| was_done(entry) && entry.request.verb.starts_with("delete"))
        .filter(|entry| is_object(&entry.request.resource))
        .map(|entry| (entry.request.resource.as_str(), entry.name.as_str()))
        .collect();
    let mut counts = BTreeMap::new();
    for (resource, _) in deleted {
        *counts.entry(resource.to_owned()).or_default() += 1;
    }
    counts
}

pub(super) fn objects(seen: &[Seen]) -> BTreeMap<String, usize> {
    let uids: BTreeSet<(&str, &str)> = seen
        .iter()
        .filter(|one| COUNTED.contains(&one.resource.as_str()))
        .map(|one| (one.resource.as_str(), one.uid.as_str()))
        .collect();
    let mut counts = BTreeMap::new();
    for (resource, _) in uids {
        *counts.entry(resource.to_owned()).or_default() += 1;
    }
    counts
}

/// How often a Tenant said that its isolation cannot be tried. One of the two Pods may be there when
/// the other is refused; it is called off, and made again with the other (`isolated/seed-43`).
pub(super) fn called_off(seen: &[Seen]) -> usize {
    let tenants = seen.iter().filter(|one| one.resource == "tenants");
    let said: BTreeSet<(&str, &str)> = tenants
        .filter_map(|one| {
            let isolation = &one.object["status"]["isolation"];
            let is_untried = isolation["result"] == Reason::IsolationCheckFailed.name()
                && isolation["connections"]
                    .as_array()
                    .is_none_or(Vec::is_empty);
            let again = isolation["retryAt"].as_str().filter(|_| is_untried)?;
            Some((one.uid.as_str(), again))
        })
        .collect();
    said.len()
}

/// Of requests, more than without faults: one whose caller died is in the log as 504 although it was
/// carried out (`replicas/seed-74`). Of objects, more or fewer. Of Pods, as many more as were called
/// off.
pub(super) fn other_objects(found: &Outcome, baseline: &Outcome, called_off: usize) -> Vec<String> {
    let most = |name: &str, wanted| match name {
        "pods" => wanted + called_off,
        _ => wanted,
    };
    let more = |(name, wanted, found): (&str, usize, usize)| found > most(name, wanted);
    let other =
        |(name, wanted, found): (&str, usize, usize)| found < wanted || found > most(name, wanted);
    let mut words = unequal("creates of", &baseline.creates, &found.creates, more);
    words.extend(unequal(
        "deletes of",
        &baseline.deletes,
        &found.deletes,
        more,
    ));
    words.extend(unequal(
        "different",
        &baseline.objects,
        &found.objects,
        other,
    ));
    words
}

fn unequal(
    what: &str,
    wanted: &BTreeMap<String, usize>,
    found: &BTreeMap<String, usize>,
    is_wrong: impl Fn((&str, usize, usize)) -> bool,
) -> Vec<String> {
    let names: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    let count = |counts: &BTreeMap<String, usize>, name| counts.get(name).copied().unwrap_or(0);
    names
        .into_iter()
        .map(|name| (name, count(wanted, name), count(found, name)))
        .filter(|(name, wanted, found)| is_wrong((name, *wanted, *found)))
        .map(|(name, wanted, found)| format!("{found} {what} {name}, wanted {wanted}"))
        .collect()
}

/// `resource/name` of each run, by its UID.
fn runs(seen: &[Seen]) -> HashMap<&str, String> {
    seen.iter()
        .filter(|one| is_run(one))
        .map(|one| (one.uid.as_str(), format!("{}/{}", one.resource, one.name)))
        .collect()
}

pub(super) fn effects(evidence: &Evidence<'_>) -> BTreeMap<String, usize> {
    let runs = runs(evidence.seen);
    let mut counts = BTreeMap::new();
    for Effect { uid, what, .. } in evidence.effects {
        if what == DONE {
            let run = runs.get(uid.as_str());
            let name = run.map_or_else(|| "a run that was not seen".to_owned(), String::clone);
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

/// As many effects as without faults; more only as often as Kubernetes stopped the Pod, which the
/// run's status says. And one end.
pub(super) fn other_effects(
    evidence: &Evidence<'_>,
    found: &Outcome,
    baseline: &Outcome,
) -> Vec<String> {
    let mut words = Vec::new();
    let disrupted = disruptions(evidence.seen);
    let names: BTreeSet<&String> = baseline
        .effects
        .keys()
        .chain(found.effects.keys())
        .collect();
    for name in names {
        let wanted = baseline.effects.get(name).copied().unwrap_or(0);
        let told = found.effects.get(name).copied().unwrap_or(0);
        let again = disrupted.get(name).copied().unwrap_or(0);
        if told < wanted || told > wanted + again {
            words.push(format!(
                "{name} told '{DONE}' {told} times, wanted {wanted}"
            ));
        }
    }
    words.extend(second_ends(evidence.seen));
    words
}

/// The most disruptions that any version of a run says.
fn disruptions(seen: &[Seen]) -> HashMap<String, usize> {
    let mut most: HashMap<String, usize> = HashMap::new();
    for one in seen.iter().filter(|one| is_run(one)) {
        let said = one.object["status"]["disruptions"].as_u64().unwrap_or(0);
        let said = usize::try_from(said).unwrap_or(usize::MAX);
        let known = most
            .entry(format!("{}/{}", one.resource, one.name))
            .or_default();
        *known = said.max(*known);
    }
    most
}

fn second_ends(seen: &[Seen]) -> Vec<String> {
    let mut ends: BTreeMap<(&str, &str, i64), BTreeSet<String>> = BTreeMap::new();
    for one in seen.iter().filter(|one| is_run(one)) {
        if !one.is_true(condition::FINISHED) {
            continue;
        }
        let status = &one.object["status"];
        let reason = one
            .condition(condition::SUCCEEDED)
            .map_or(&Value::Null, |known| &known["reason"]);
        let end = format!(
            "{} for {reason} at {}",
            status["phase"], status["finishedAt"]
        );
        let key = (one.uid.as_str(), one.name.as_str(), epoch(one));
        ends.entry(key).or_default().insert(end);
    }
    ends.into_iter()
        .filter(|(_, ends)| ends.len() > 1)
        .map(|((_, name, epoch), ends)| {
            let ends: Vec<String> = ends.into_iter().collect();
            format!(
                "'{name}' ended more than once in version {epoch}: {}",
                ends.join("; ")
            )
        })
        .collect()
}

/// A terminal phase may be left only when this grows.
pub(super) fn epoch(run: &Seen) -> i64 {
    run.object["status"]["contextVersion"].as_i64().unwrap_or(0)
}

pub(super) fn left(evidence: &Evidence<'_>, found: &Outcome, baseline: &Outcome) -> Vec<String> {
    let mut words: Vec<String> = found
        .canonical
        .objects
        .keys()
        .filter(|key| baseline.canonical.gone.contains(*key))
        .map(|key| format!("{key} is still there"))
        .collect();
    words.extend(outlived(evidence.seen));
    let now = present(evidence.seen);
    let there: BTreeSet<&str> = now.iter().map(|one| one.uid.as_str()).collect();
    let runs = runs(evidence.seen);
    let ours = format!(".{GROUP}/finalizer");
    for one in now.into_iter().filter(|one| is_object(&one.resource)) {
        let what = format!("{}/{}", one.resource, one.name);
        let metadata = &one.object["metadata"];
        if !metadata["deletionTimestamp"].is_null() {
            words.push(format!("{what} is being deleted, and stays"));
        }
        let finalizers = metadata["finalizers"].as_array();
        let is_held = finalizers.is_some_and(|list| {
            list.iter()
                .any(|name| name.as_str().is_some_and(|name| name.ends_with(&ours)))
        });
        if is_run(one) && one.is_true(condition::FINISHED) && is_held {
            words.push(format!("{what} is finished, and has its finalizer still"));
        }
        if let Some(owner) = one.label(names::UID)
            && let Some(run) = runs.get(owner)
            && !there.contains(owner)
        {
            words.push(format!("{what} is there, but its owner {run} is not"));
        }
    }
    words
}

/// Children that were there after their run was gone.
fn outlived(seen: &[Seen]) -> Vec<String> {
    let ends: HashMap<&str, &Seen> = seen
        .iter()
        .filter(|one| is_run(one) && one.change == Change::Deleted)
        .map(|one| (one.uid.as_str(), one))
        .collect();
    seen.iter()
        .filter(|one| ["jobs", "pods"].contains(&one.resource.as_str()))
        .filter_map(|child| {
            let run = ends.get(child.label(names::UID)?)?;
            let (what, name) = (&child.resource, &child.name);
            (child.version > run.version)
                .then(|| format!("{what}/{name} was there when its run was gone"))
        })
        .collect()
}

/// How often each thing was told, by the objects that tell it: one that is told again under its own
/// name is one.
pub(super) fn told(seen: &[Seen], home: &str) -> BTreeMap<String, Told> {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    // By the object that they are about: the last reason, the last words, how often in a row.
    let mut last: HashMap<(String, String), (String, String, usize)> = HashMap::new();
    let mut all: BTreeMap<String, Told> = BTreeMap::new();
    for one in seen {
        let object = &one.object;
        if one.resource != "events" {
            // What it turned to may have been told by an Event that a fault took away.
            let about = (one.resource.clone(), one.name.clone());
            let reason = main_reason(one);
            if reason.is_some() && last.get(&about).map(|told| told.0.as_str()) != reason {
                last.remove(&about);
            }
            continue;
        }
        if object["reportingController"] != CONTROLLER || !known.insert(&one.uid) {
            continue;
        }
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (
            word(&object["regarding"]["kind"]),
            word(&object["regarding"]["name"]),
        );
        let (reason, note) = (word(&object["reason"]), word(&object["note"]));
        let text = super::super::canonical::settled(&note);
        let mut what = format!("{kind} '{name}' {reason} {text}");
        if !home.is_empty() {
            what = what.replace(home, "namespace");
        }
        let about = (format!("{}s", kind.to_lowercase()), name);
        let row = match last.get(&about) {
            Some((_, before, row)) if *before == what => row.saturating_add(1),
            Some(_) | None => 1,
        };
        last.insert(about, (reason, what.clone(), row));
        let told = all.entry(what).or_default();
        told.times = told.times.saturating_add(1);
        told.in_a_row = told.in_a_row.max(row);
    }
    all
}

/// Why an object of ours is as it is.
fn main_reason(seen: &Seen) -> Option<&str> {
    let known = [condition::SUCCEEDED, condition::READY];
    let condition = known.iter().find_map(|kind| seen.condition(kind))?;
    condition["reason"].as_str()
}

/// The same was told again without anything else in between, or again and again: a fault may make an
/// object turn away and back, a few times.
pub(super) fn spam(found: &Outcome, baseline: &Outcome) -> Vec<String> {
    let counts = found.told.iter();
    counts
        .filter(|(what, told)| {
            let usual = baseline.told.get(*what).copied().unwrap_or_default();
            told.in_a_row > usual.in_a_row.max(1) || told.times > usual.times.saturating_add(FEW)
        })
        .map(|(what, told)| format!("{} Events say: {what}", told.times))
        .collect()
}

pub(super) fn noise(evidence: &Evidence<'_>) -> Vec<String> {
    let written = |entry: &&Entry| {
        let resource = &entry.request.resource;
        let is_event = resource.split(['.', '/']).next() == Some("events");
        let plain = resource.split('/').next().unwrap_or_default();
        entry.request.is_write() && (is_event || is_object(plain))
    };
    let entries = evidence.quiet.unwrap_or_default().iter();
    entries
        .filter(written)
        .map(|entry| {
            let Entry {
                request,
                name,
                code,
                ..
            } = entry;
            format!(
                "{} {} '{name}' ({code}) after all was done",
                request.verb, request.resource
            )
        })
        .collect()
}

/// Writes that were refused, and tried again and again: more than any wait between them explains.
pub(super) fn hammering(evidence: &Evidence<'_>) -> Vec<String> {
    let refused = |entry: &&Entry| {
        let is_lease = entry.request.resource.starts_with("leases");
        entry.request.is_write() && entry.code >= 400 && !is_lease
    };
    let count = evidence.audit.iter().filter(refused).count();
    match count > PATIENCE {
        true => vec![format!("{count} writes were refused")],
        false => Vec::new(),
    }
}

pub(super) fn leaks(evidence: &Evidence<'_>) -> Vec<String> {
    let mut words = Vec::new();
    for line in evidence.logs {
        if line.to_ascii_lowercase().contains("panic") {
            words.push(format!("the log says: {line}"));
        }
    }
    // The texts themselves are not repeated: reports are read by everybody, too.
    for (number, canary) in evidence.canaries.iter().enumerate() {
        let mut say = |place: String| words.push(format!("secret {number} is in {place}"));
        // As it is, and as a Secret carries it.
        for canary in [canary.clone(), base64(canary)] {
            if let Some(line) = evidence.logs.iter().position(|line| line.contains(&canary)) {
                say(format!("line {} of the log", line + 1));
            }
            if evidence.metrics.contains(&canary) {
                say("the metrics".to_owned());
            }
            for one in evidence.seen.iter().filter(|one| one.resource != "secrets") {
                if holds(&one.object, &canary) {
                    say(format!("{}/{}", one.resource, one.name));
                }
            }
        }
    }
    for (number, text) in evidence.private.iter().enumerate() {
        let mut say = |place: String| words.push(format!("private text {number} is in {place}"));
        if let Some(line) = evidence.logs.iter().position(|line| line.contains(text)) {
            say(format!("line {} of the log", line + 1));
        }
        if evidence.metrics.contains(text) {
            say("the metrics".to_owned());
        }
        for one in evidence.seen {
            let is_repeated = match one.resource.as_str() {
                "events" => holds(&one.object, text),
                _ => is_ours(one) && holds(&one.object["status"], text),
            };
            if is_repeated {
                say(format!("{}/{}", one.resource, one.name));
            }
        }
    }
    words
}

fn base64(text: &str) -> String {
    let encoded = serde_json::json!(k8s_openapi::ByteString(text.as_bytes().to_vec()));
    encoded.as_str().unwrap_or_default().to_owned()
}

/// Whether a name or a text anywhere in it has this in it.
fn holds(value: &Value, canary: &str) -> bool {
    match value {
        Value::String(text) => text.contains(canary),
        Value::Array(list) => list.iter().any(|one| holds(one, canary)),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name.contains(canary) || holds(value, canary)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
