//! What became of the runs, by the watches of the object history.

use std::collections::{BTreeMap, BTreeSet};

use api::{names, status::condition};
use testkit::faults::object_history::{Change, Seen};

/// All that contradicts the promises: each of these runs has one Job with one Pod, ends well, once,
/// and is let go.
pub(super) fn contradictions(seen: &[Seen], submitted: &BTreeSet<String>) -> Vec<String> {
    let mut found = ends(seen);
    let runs: Vec<&Seen> = last(seen, "taskruns");
    let names: BTreeSet<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    for name in submitted {
        if !names.contains(name.as_str()) {
            found.push(format!("'{name}' was never seen"));
        }
    }
    let jobs = children(seen, "jobs", |job| job.label(names::UID).map(str::to_owned));
    let pods = children(seen, "pods", |pod| {
        let owner = &pod.object["metadata"]["ownerReferences"][0]["uid"];
        owner.as_str().map(str::to_owned)
    });
    for run in runs {
        let name = &run.name;
        if run.change == Change::Deleted {
            found.push(format!("'{name}' is gone"));
        } else if !run.is_true(condition::SUCCEEDED) {
            let status = &run.object["status"];
            found.push(format!("'{name}' did not succeed: {status}"));
        } else if run.object["metadata"]["finalizers"].is_array() {
            found.push(format!("'{name}' was left behind: it has its finalizer"));
        }
        let none = BTreeSet::new();
        let jobs = jobs.get(&run.uid).unwrap_or(&none);
        if jobs.len() != 1 {
            found.push(format!("'{name}' had {} Jobs", jobs.len()));
        }
        for job in jobs {
            let count = pods.get(job).map_or(0, BTreeSet::len);
            if count != 1 {
                found.push(format!("the Job of '{name}' had {count} Pods"));
            }
        }
    }
    found
}

/// Ends that were not the end.
fn ends(seen: &[Seen]) -> Vec<String> {
    let mut ended: BTreeMap<&str, String> = BTreeMap::new();
    let mut found = Vec::new();
    for run in seen.iter().filter(|one| one.resource == "taskruns") {
        let end = run
            .condition(condition::FINISHED)
            .filter(|known| known["status"] == "True")
            .map(|known| format!("{} {}", run.object["status"]["phase"], known["reason"]));
        match (ended.get(run.uid.as_str()), end) {
            (Some(before), Some(after)) if *before == after => {}
            (Some(before), after) => {
                let after = after.unwrap_or_else(|| "no end".to_owned());
                found.push(format!("'{}' went from {before} to {after}", run.name));
            }
            (None, Some(end)) => {
                ended.insert(&run.uid, end);
            }
            (None, None) => {}
        }
    }
    found
}

/// The last version of each object.
fn last<'a>(seen: &'a [Seen], resource: &str) -> Vec<&'a Seen> {
    let mut last: BTreeMap<&str, &Seen> = BTreeMap::new();
    for one in seen.iter().filter(|one| one.resource == resource) {
        last.insert(&one.uid, one);
    }
    last.into_values().collect()
}

/// Every object that ever was, by its owner.
fn children(
    seen: &[Seen],
    resource: &str,
    owner: impl Fn(&Seen) -> Option<String>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut children: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in seen.iter().filter(|one| one.resource == resource) {
        if let Some(owner) = owner(one) {
            children.entry(owner).or_default().insert(one.uid.clone());
        }
    }
    children
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Instant};

    use serde_json::{Value, json};

    use super::*;

    fn seen(resource: &str, name: &str, uid: &str, object: Value) -> Seen {
        Seen {
            at: Instant::now(),
            resource: resource.to_owned(),
            change: Change::Modified,
            name: name.to_owned(),
            uid: uid.to_owned(),
            version: 1,
            object: Arc::new(object),
        }
    }

    fn run(phase: &str, succeeded: &str) -> Seen {
        let finished = if succeeded == "Unknown" {
            "False"
        } else {
            "True"
        };
        let status = json!({ "phase": phase, "conditions": [
            { "type": "Succeeded", "status": succeeded },
            { "type": "Finished", "status": finished, "reason": phase },
        ] });
        seen(
            "taskruns",
            "r",
            "run",
            json!({ "metadata": {}, "status": status }),
        )
    }

    fn job(uid: &str) -> Seen {
        let labels = json!({ "metadata": { "labels": { names::UID: "run" } } });
        seen("jobs", "r-1", uid, labels)
    }

    fn pod(uid: &str) -> Seen {
        let owners = json!({ "metadata": { "ownerReferences": [{ "uid": "job" }] } });
        seen("pods", "r-1-x", uid, owners)
    }

    #[test]
    fn a_run_has_one_job_and_one_end() {
        let well = || run("Succeeded", "True");
        let begun = || run("Running", "Unknown");
        let mut held = well();
        held.object = Arc::new({
            let mut object = (*held.object).clone();
            object["metadata"]["finalizers"] = json!(["f"]);
            object
        });
        let mut gone = well();
        gone.change = Change::Deleted;
        let table: Vec<(&str, Vec<Seen>, &[&str])> = vec![
            (
                "as it should be",
                vec![begun(), job("job"), pod("pod"), well(), well()],
                &[],
            ),
            ("never seen", vec![], &["'r' was never seen"]),
            (
                "two Jobs",
                vec![job("job"), job("other"), pod("pod"), well()],
                &["'r' had 2 Jobs", "the Job of 'r' had 0 Pods"],
            ),
            (
                "two Pods",
                vec![job("job"), pod("pod"), pod("other"), well()],
                &["the Job of 'r' had 2 Pods"],
            ),
            (
                "another end",
                vec![job("job"), pod("pod"), run("Failed", "False"), well()],
                &[r#"'r' went from "Failed" "Failed" to "Succeeded" "Succeeded""#],
            ),
            (
                "an end that is taken back",
                vec![job("job"), pod("pod"), well(), begun(), well()],
                &[r#"'r' went from "Succeeded" "Succeeded" to no end"#],
            ),
            (
                "left behind",
                vec![job("job"), pod("pod"), held],
                &["'r' was left behind: it has its finalizer"],
            ),
            ("gone", vec![job("job"), pod("pod"), gone], &["'r' is gone"]),
        ];
        for (case, seen, wanted) in table {
            let found = contradictions(&seen, &["r".to_owned()].into());
            assert_eq!(found, wanted, "{case}");
        }
        let unfinished = contradictions(&[job("job"), pod("pod"), begun()], &BTreeSet::new());
        assert!(
            unfinished[0].starts_with("'r' did not succeed"),
            "{unfinished:?}"
        );
    }
}
