//! What is left of a play, in words that are the same each time it is played.

#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::names;
use serde_json::{Map, Value, json};

use super::object_history::{Change, Seen, present};

/// Not part of any state that was asked for.
const LEFT_OUT: [&str; 4] = ["endpoints", "endpointslices", "events", "leases"];
/// In each namespace, by Kubernetes itself.
const AUTHORITY: &str = "kube-root-ca.crt";
/// What an end state says in the status of one of our kinds. The rest is when, where and how often
/// it was tried.
const KEPT: [&str; 19] = [
    "attempts",
    "baseCommit",
    "branch",
    "branchHead",
    "changedFiles",
    "commit",
    "conditions",
    "configMapName",
    "contextVersion",
    "disruptions",
    "history",
    "jobName",
    "leftOut",
    "message",
    "namespace",
    "phase",
    "redisStatus",
    "serverStatus",
    "usage",
];
/// The same of what a container left behind.
const KEPT_RESULT: [&str; 5] = ["exitCode", "message", "reason", "results", "signal"];
/// The same of a version before.
const KEPT_VERSION: [&str; 5] = [
    "attempts",
    "contextVersion",
    "disruptions",
    "phase",
    "reason",
];
/// The same of a Job.
const KEPT_JOB: [&str; 4] = ["active", "conditions", "failed", "succeeded"];
/// The same of what is not ours: the rest is when, and how others count.
const KEPT_OF_OTHERS: [&str; 4] = ["phase", "readyReplicas", "replicas", "updatedReplicas"];
/// Kinds whose children have the beginning of a UID in their names, and how long that is.
const SHORTENED: [&str; 2] = ["rollbackrequests", "upgraderequests"];
const SHORT: usize = 8;
/// What stands for a play's own namespace.
const HOME: &str = "namespace";
/// What a difference shows of a value.
const SHOWN: usize = 300;
/// The most differences that are named.
const DIFFERENCES: usize = 40;

/// The end state of a play.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Canonical {
    /// What is there, by `resource/name`, with the namespace before the name if that is not the play's
    /// own. A Pod has the name of what made it and a number.
    pub objects: BTreeMap<String, Value>,
    /// What was there once, and is not any more.
    pub gone: BTreeSet<String>,
}

impl Canonical {
    /// Of everything that was seen of the play whose own namespace is `home`.
    #[must_use]
    pub fn of(seen: &[Seen], home: &str) -> Self {
        let words = Words::of(seen, home);
        let objects: BTreeMap<String, Value> = present(seen)
            .into_iter()
            .filter(|one| is_state(one))
            .map(|one| (words.key(one), object(&words, one)))
            .collect();
        let gone = seen
            .iter()
            .filter(|one| is_state(one))
            .map(|one| words.key(one))
            .filter(|key| !objects.contains_key(key))
            .collect();
        Self { objects, gone }
    }
}

/// A text in words that are the same each time.
pub(super) fn settled(text: &str) -> String {
    text::settled(text, true)
}

/// How `found` differs from `wanted`, in words; nothing if it does not.
#[must_use]
pub fn difference(wanted: &Canonical, found: &Canonical) -> Vec<String> {
    let mut words = Vec::new();
    for (key, value) in &wanted.objects {
        match found.objects.get(key) {
            Some(other) => compare(key, Some(value), Some(other), &mut words),
            None => words.push(format!("{key} is missing")),
        }
    }
    for key in found.objects.keys() {
        if !wanted.objects.contains_key(key) {
            words.push(format!("{key} is there, and should not be"));
        }
    }
    let more = words.len().saturating_sub(DIFFERENCES);
    words.truncate(DIFFERENCES);
    if more > 0 {
        words.push(format!("and {more} differences more"));
    }
    words
}

fn compare(path: &str, wanted: Option<&Value>, found: Option<&Value>, words: &mut Vec<String>) {
    match (wanted, found) {
        (Some(Value::Object(wanted)), Some(Value::Object(found))) => {
            let names: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
            for name in names {
                let path = format!("{path} {name}");
                compare(&path, wanted.get(name), found.get(name), words);
            }
        }
        (Some(Value::Array(wanted)), Some(Value::Array(found))) => {
            for index in 0..wanted.len().max(found.len()) {
                let path = format!("{path} {index}");
                compare(&path, wanted.get(index), found.get(index), words);
            }
        }
        (wanted, found) if wanted == found => {}
        (wanted, found) => {
            let show = |value: Option<&Value>| {
                value.map_or_else(
                    || "nothing".to_owned(),
                    |value| api::status::bounded(&value.to_string(), SHOWN),
                )
            };
            words.push(format!("{path}: {}, wanted {}", show(found), show(wanted)));
        }
    }
}

pub(super) fn is_state(seen: &Seen) -> bool {
    let is_authority = seen.resource == "configmaps" && seen.name == AUTHORITY;
    !LEFT_OUT.contains(&seen.resource.as_str()) && !is_authority
}

/// What changes from play to play, and the words for it.
struct Words {
    home: String,
    /// By UID.
    pods: HashMap<String, String>,
    /// Beginnings of UIDs in the names of children.
    short: BTreeSet<String>,
    /// Longest first: one may be part of another.
    replaced: Vec<(String, String)>,
}

impl Words {
    fn of(seen: &[Seen], home: &str) -> Self {
        let pods = numbered(seen);
        let mut words = Self {
            home: home.to_owned(),
            pods,
            short: seen
                .iter()
                .filter(|one| SHORTENED.contains(&one.resource.as_str()))
                .filter_map(|one| Some(one.uid.get(..SHORT)?.to_owned()))
                .collect(),
            replaced: Vec::new(),
        };
        let mut replaced: BTreeMap<String, String> = BTreeMap::new();
        for one in seen {
            let key = words.key(one);
            if let Some(name) = words.pods.get(&one.uid) {
                replaced.insert(one.name.clone(), name.clone());
            }
            replaced.insert(one.uid.clone(), format!("uid({key})"));
            // Of everything in a template, UIDs included.
            for label in ["controller-revision-hash", "pod-template-hash"] {
                let hash = one.label(label).unwrap_or_default();
                replaced.insert(hash.to_owned(), "hash".to_owned());
            }
        }
        replaced.insert(home.to_owned(), HOME.to_owned());
        let short = words.short.iter();
        replaced.extend(short.map(|one| (one.clone(), "short uid".to_owned())));
        words.replaced = replaced
            .into_iter()
            .filter(|(from, _)| !from.is_empty())
            .collect();
        words
            .replaced
            .sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        words
    }

    fn key(&self, seen: &Seen) -> String {
        let name = self.pods.get(&seen.uid).unwrap_or(&seen.name);
        let resource = &seen.resource;
        let key = match seen.object["metadata"]["namespace"].as_str() {
            Some(namespace) if namespace != self.home => format!("{resource}/{namespace}/{name}"),
            Some(_) | None => format!("{resource}/{name}"),
        };
        let short = self.short.iter();
        let key = short.fold(key, |key, one| key.replace(one, "short uid"));
        match self.home.is_empty() {
            true => key,
            false => key.replace(&self.home, HOME),
        }
    }

    fn text(&self, text: &str, has_durations: bool) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.replaced {
            if text.contains(from) {
                text = text.replace(from, to);
            }
        }
        text::settled(&text, has_durations)
    }

    /// Strings in these words, conditions by their type.
    fn value(&self, name: &str, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let is_message = matches!(name, "message" | "note");
                Value::String(self.text(text, is_message))
            }
            Value::Array(list) => {
                let mut list: Vec<Value> = list.iter().map(|one| self.value(name, one)).collect();
                if name == "conditions" {
                    list.sort_by_key(|one| one["type"].to_string());
                    for one in &mut list {
                        *one = kept(one, &["message", "reason", "status", "type"]);
                    }
                }
                Value::Array(list)
            }
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (name.clone(), self.value(name, value)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

/// Each Pod by its Job and its number among that Job's, in the order of their creation.
fn numbered(seen: &[Seen]) -> HashMap<String, String> {
    let mut pods: Vec<&Seen> = seen
        .iter()
        .filter(|one| one.resource == "pods" && one.change == Change::Added)
        .collect();
    pods.sort_by_key(|one| one.version);
    let mut counts: HashMap<(String, String), usize> = HashMap::new();
    let mut names = HashMap::new();
    for pod in pods {
        let metadata = &pod.object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let hash = pod.label("pod-template-hash").unwrap_or_default();
        let owner = metadata["ownerReferences"][0]["name"].as_str();
        // Of a Deployment's: its ReplicaSet has a hash of everything at the end of its name.
        let owner = owner.map(|owner| owner.trim_end_matches(hash).trim_end_matches('-'));
        if let Some(owner) = owner
            && !names.contains_key(&pod.uid)
        {
            let key = (namespace.to_owned(), owner.to_owned());
            let count = counts.entry(key).or_default();
            *count += 1;
            names.insert(pod.uid.clone(), format!("{owner}#{count}"));
        }
    }
    names
}

fn object(words: &Words, seen: &Seen) -> Value {
    let whole = &*seen.object;
    let is_ours = whole["apiVersion"]
        .as_str()
        .is_some_and(|version| version.starts_with(&format!("{}/", api::GROUP)));
    let mut fields = Map::new();
    fields.insert("metadata".to_owned(), metadata(words, &whole["metadata"]));
    match seen.resource.as_str() {
        "pods" => {
            fields.insert("status".to_owned(), pod(&whole["status"]));
        }
        resource => {
            for (name, value) in whole.as_object().into_iter().flat_map(Map::iter) {
                let value = match name.as_str() {
                    "apiVersion" | "kind" | "metadata" => continue,
                    "status" if is_ours => run_status(whole),
                    "status" if resource == "jobs" => kept(value, &KEPT_JOB),
                    "status" => kept(value, &KEPT_OF_OTHERS),
                    "spec" => spec(resource, whole),
                    // What is in a Secret is random; that it is there is not.
                    "data" if resource == "secrets" => names_of(value),
                    _ => value.clone(),
                };
                fields.insert(name.clone(), words.value(name, &value));
            }
        }
    }
    Value::Object(fields)
}

fn metadata(words: &Words, metadata: &Value) -> Value {
    let names = ["annotations", "finalizers", "labels", "ownerReferences"];
    let mut metadata_kept = words.value("metadata", &kept(metadata, &names));
    // A hash of all that was wanted, the owner's UID included.
    if let Some(intent) = metadata_kept.pointer_mut(&pointer("annotations", names::SPEC_HASH)) {
        *intent = json!("a hash");
    }
    if !metadata["deletionTimestamp"].is_null() {
        metadata_kept["deleting"] = json!(true);
    }
    metadata_kept
}

fn pointer(field: &str, name: &str) -> String {
    format!("/{field}/{}", name.replace('/', "~1"))
}

fn spec(resource: &str, whole: &Value) -> Value {
    let mut spec = whole["spec"].clone();
    // Whichever is free.
    if resource == "services"
        && spec["clusterIP"] != "None"
        && let Value::Object(fields) = &mut spec
    {
        fields.remove("clusterIP");
        fields.remove("clusterIPs");
    }
    // Of a Job that was resumed, or whose Pod was replaced, it depends on when that was.
    if resource == "jobs" && !spec["activeDeadlineSeconds"].is_null() {
        spec["activeDeadlineSeconds"] = json!("a limit");
    }
    // A stop limits the Job only if it does not report its end yet when the operator sees the end of the Pod.
    if resource == "jobs" && has_ended(&whole["status"]) {
        spec["parallelism"] = json!("of a Job that has ended");
    }
    spec
}

fn has_ended(job: &Value) -> bool {
    let conditions = job["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let is_end = |one: &Value| one["type"] == "Complete" || one["type"] == "Failed";
    conditions.iter().any(is_end)
}

fn names_of(value: &Value) -> Value {
    let fields = value.as_object().into_iter().flat_map(Map::keys);
    fields.map(|name| json!(name)).collect()
}

/// A Pod's spec is in its Job; where and when it ran is not said.
fn pod(status: &Value) -> Value {
    let ends = |field: &str| -> Value {
        let containers = status[field].as_array().map_or(&[][..], Vec::as_slice);
        containers
            .iter()
            .filter_map(|one| {
                let end = &one["state"]["terminated"];
                let name = one["name"].as_str()?;
                Some((name.to_owned(), kept(end, &["exitCode", "reason"])))
            })
            .collect()
    };
    json!({
        "phase": status["phase"],
        "before": ends("initContainerStatuses"),
        "containers": ends("containerStatuses"),
    })
}

fn run_status(whole: &Value) -> Value {
    let status = &whole["status"];
    let mut end = kept(status, &KEPT);
    if let Some(result) = status.get("result") {
        end["result"] = kept(result, &KEPT_RESULT);
    }
    // Whether an earlier attempt had pushed it depends on the faults.
    if end["commit"].is_object() {
        end["commit"] = kept(&status["commit"], &["id"]);
    }
    let history = end.get_mut("history").and_then(Value::as_array_mut);
    for version in history.into_iter().flat_map(|list| list.iter_mut()) {
        let mut past = kept(version, &KEPT_VERSION);
        if let Some(result) = version.get("result") {
            past["result"] = kept(result, &KEPT_RESULT);
        }
        *version = past;
    }
    if let Some(history) = status["phaseHistory"].as_array() {
        end["timeline"] = timeline(history);
    }
    let generation = &whole["metadata"]["generation"];
    end["isObserved"] = json!(status["observedGeneration"] == *generation);
    end
}

/// The last phase, and how often the history came to an end. The phases before depend on when the
/// operator looked: a phase that nobody saw is not in it.
fn timeline(history: &[Value]) -> Value {
    let last = history.last().unwrap_or(&Value::Null);
    let is_end = |record: &&Value| {
        ["Succeeded", "Failed"]
            .iter()
            .any(|one| record["phase"] == *one)
    };
    json!({
        "last": kept(last, &["phase", "attempt", "outcome", "reason"]),
        "ends": history.iter().filter(is_end).count(),
    })
}

fn kept(value: &Value, names: &[&str]) -> Value {
    let fields = value.as_object().into_iter().flat_map(Map::iter);
    fields
        .filter(|(name, _)| names.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
