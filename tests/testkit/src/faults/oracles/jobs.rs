//! O3 at every instant: no two Jobs and no two Pods of one run are at work at the same time.

use std::collections::{BTreeMap, BTreeSet};

use api::names;

use super::{TWO_AT_ONCE, agent_end, is_run};
use crate::faults::object_history::{Change, Seen};

/// Conditions of a Job whose Pods end or have ended.
const ENDS: [&str; 4] = ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"];

pub(super) fn at_once(seen: &[Seen]) -> Vec<String> {
    let runs: BTreeSet<&str> = seen
        .iter()
        .filter(|one| is_run(one))
        .map(|one| one.uid.as_str())
        .collect();
    let mut versions: Vec<&Seen> = seen.iter().collect();
    versions.sort_by_key(|one| one.version);
    let mut words = Vec::new();
    // By resource and run: names of the children at work, by UID.
    let mut at_work: BTreeMap<(&str, &str), BTreeMap<&str, &str>> = BTreeMap::new();
    for one in versions {
        let Some(run) = one.label(names::UID).filter(|uid| runs.contains(uid)) else {
            continue;
        };
        let works = match one.resource.as_str() {
            "jobs" => job_works(one),
            "pods" => pod_works(one),
            _ => continue,
        };
        let children = at_work.entry((&one.resource, run)).or_default();
        if !works {
            children.remove(one.uid.as_str());
            continue;
        }
        let is_new = children.insert(&one.uid, &one.name).is_none();
        if is_new && children.len() > 1 {
            let names: Vec<&str> = children.values().copied().collect();
            let (resource, names) = (&one.resource, names.join(", "));
            words.push(format!("{TWO_AT_ONCE}: {resource} {names}"));
        }
    }
    words
}

/// A Job that is suspended, ends or is being deleted starts no Pod. Its last Pod is judged by itself.
fn job_works(job: &Seen) -> bool {
    let is_deleting = !job.object["metadata"]["deletionTimestamp"].is_null();
    let is_suspended = job.object["spec"]["suspend"] == true;
    let is_ending = ENDS.iter().any(|kind| job.is_true(kind));
    job.change != Change::Deleted && !is_deleting && !is_suspended && !is_ending
}

/// A Pod works from the start of its containers until the agent or the Pod ends.
fn pod_works(pod: &Seen) -> bool {
    let is_running = pod.object["status"]["phase"] == "Running";
    pod.change != Change::Deleted && is_running && agent_end(pod).is_none()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Instant};

    use serde_json::{Value, json};

    use super::*;

    fn seen(all: &[(Change, &str, &str, Value)]) -> Vec<Seen> {
        let run = (Change::Added, "taskruns", "run", json!({}));
        let all = std::iter::once(&run).chain(all);
        all.zip(1..)
            .map(|((change, resource, name, more), version)| {
                let mut object = json!({ "metadata": { "labels": { names::UID: "run" } } });
                if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
                    for (key, value) in more {
                        match (object.get_mut(key), value) {
                            (Some(Value::Object(known)), Value::Object(value)) => {
                                known.extend(value.clone());
                            }
                            _ => {
                                object.insert(key.clone(), value.clone());
                            }
                        }
                    }
                }
                Seen {
                    at: Instant::now(),
                    change: *change,
                    resource: (*resource).to_owned(),
                    name: (*name).to_owned(),
                    uid: (*name).to_owned(),
                    version,
                    object: Arc::new(object),
                }
            })
            .collect()
    }

    #[test]
    fn jobs_and_pods_of_a_run_work_one_after_the_other() {
        use Change::{Added, Deleted, Modified};
        let ended = |kind: &str| json!({ "status": { "conditions": [{ "type": kind, "status": "True" }] } });
        let running = || json!({ "status": { "phase": "Running" } });
        let deleting = || json!({ "metadata": { "deletionTimestamp": "now" } });
        let over = json!({ "status": { "phase": "Running", "containerStatuses": [
            { "name": "agent", "state": { "terminated": { "exitCode": 3 } } },
        ] } });
        let first = (Added, "jobs", "first", json!({}));
        let second = (Added, "jobs", "second", json!({}));
        let (a, b) = (
            (Modified, "pods", "a", running()),
            (Modified, "pods", "b", running()),
        );
        let cases = [
            (vec![first.clone(), first.clone()], ""),
            (vec![first.clone(), second.clone()], "jobs first, second"),
            (
                vec![
                    first.clone(),
                    (Modified, "jobs", "first", ended("Failed")),
                    second.clone(),
                ],
                "",
            ),
            (
                vec![
                    first.clone(),
                    (Modified, "jobs", "first", deleting()),
                    second.clone(),
                ],
                "",
            ),
            (
                vec![
                    first.clone(),
                    (Deleted, "jobs", "first", json!({})),
                    second.clone(),
                ],
                "",
            ),
            (
                vec![
                    first,
                    (
                        Added,
                        "jobs",
                        "second",
                        json!({ "spec": { "suspend": true } }),
                    ),
                ],
                "",
            ),
            (vec![a.clone(), b.clone()], "pods a, b"),
            (vec![a.clone(), (Added, "pods", "b", json!({}))], ""),
            // Until it is gone, a Pod that is being deleted works.
            (
                vec![
                    a.clone(),
                    (
                        Modified,
                        "pods",
                        "a",
                        json!({
                            "metadata": { "deletionTimestamp": "now" }, "status": { "phase": "Running" },
                        }),
                    ),
                    b.clone(),
                ],
                "pods a, b",
            ),
            (
                vec![a.clone(), (Modified, "pods", "a", over), b.clone()],
                "",
            ),
            (vec![a, (Deleted, "pods", "a", running()), b], ""),
        ];
        for (number, (all, wanted)) in cases.iter().enumerate() {
            let wanted: Vec<String> = match *wanted {
                "" => Vec::new(),
                names => vec![format!("{TWO_AT_ONCE}: {names}")],
            };
            assert_eq!(at_once(&seen(all)), wanted, "case {number}");
        }
        let mut others = seen(&[cases[1].0[0].clone(), cases[1].0[1].clone()]);
        others.remove(0);
        assert!(at_once(&others).is_empty(), "no run of this play");
    }
}
