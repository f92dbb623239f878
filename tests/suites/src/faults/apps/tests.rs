//! Each oracle is silent about a play that is right, and speaks about each lie.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::names;
use serde_json::{Value, json};
use testkit::{
    audit::{Entry, Request},
    faults::{
        object_history::{Change, Seen},
        oracles::Evidence,
    },
};

use super::oracles::{Play, judge};

/// A play under construction: each version is a second after the one before.
struct Course {
    begin: Instant,
    seen: Vec<Seen>,
    audit: Vec<Entry>,
    play: Play,
}

/// Something that goes wrong in a play that is right otherwise.
type Fault = fn(&mut Course);

fn condition(kind: &str, value: &str) -> Value {
    json!({ "type": kind, "status": value })
}

impl Course {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            seen: Vec::new(),
            audit: Vec::new(),
            play: Play {
                commits: Ok(vec!["up".to_owned()]),
                data: Some(vec!["1.0.0".to_owned(), "2.0.0".to_owned()]),
                allowed: &[&["1.0.0", "2.0.0"]],
                is_dry_run: false,
            },
        }
    }

    fn see(&mut self, second: u64, resource: &str, name: &str, object: Value) {
        let version = u64::try_from(self.seen.len()).unwrap() + 1;
        self.seen.push(Seen {
            at: self.begin + Duration::from_secs(second),
            resource: resource.to_owned(),
            change: Change::Modified,
            name: name.to_owned(),
            uid: name.to_owned(),
            version,
            object: Arc::new(object),
        });
    }

    fn set(&mut self, second: u64, replicas: i64, ready: i64) {
        self.see(
            second,
            "statefulsets",
            "app-store",
            json!({
                "metadata": { "generation": 1 }, "spec": { "replicas": replicas },
                "status": { "readyReplicas": ready, "observedGeneration": 1 },
            }),
        );
    }

    fn helm(&mut self, second: u64, version: &str, holder: Option<&str>) {
        let lock = holder.map(|uid| json!({ "uid": uid }).to_string());
        let mut object = json!({
            "metadata": { "annotations": { names::LOCK: lock } },
            "spec": { "suspend": holder.map(|_| true), "interval": "1h",
                "chart": { "spec": { "version": version } } },
            "status": { "history": [{ "status": "deployed", "chartVersion": version }] },
        });
        if lock.is_none() {
            object["metadata"] = json!({ "annotations": {} });
        }
        self.see(second, "helmreleases", "app", object);
    }

    fn request(&mut self, second: u64, conditions: &[Value]) {
        self.see(
            second,
            "upgraderequests",
            "up",
            json!({
                "spec": { "targetVersion": { "chart": "2.0.0" } },
                "status": { "conditions": conditions },
            }),
        );
    }

    fn succeeded(&mut self, second: u64) {
        let conditions = ["Succeeded", "Finished"].map(|kind| condition(kind, "True"));
        self.request(second, &conditions);
    }

    fn asked(&mut self, verb: &str, resource: &str, name: &str) {
        self.audit.push(Entry {
            request: Request {
                user: "operator".to_owned(),
                verb: verb.to_owned(),
                resource: resource.to_owned(),
                namespace: String::new(),
            },
            name: name.to_owned(),
            code: 200,
            agent: String::new(),
        });
    }

    /// An upgrade that is right.
    fn right() -> Self {
        let mut course = Self::new();
        course.set(0, 1, 1);
        course.helm(0, "1.0.0", None);
        course.request(1, &[]);
        course.helm(2, "1.0.0", Some("up"));
        course.set(3, 0, 0);
        course.helm(4, "2.0.0", Some("up"));
        course.helm(5, "2.0.0", None);
        course.set(6, 1, 1);
        course.succeeded(9);
        course
    }

    fn said(&self) -> Vec<String> {
        let trusting = |_: &Seen| Ok(());
        let evidence = Evidence {
            home: "play",
            seen: &self.seen,
            audit: &self.audit,
            quiet: None,
            effects: &[],
            logs: &[],
            metrics: "",
            canaries: &[],
            private: &[],
            bears_out: &trusting,
            silence: Duration::ZERO,
        };
        let all = judge(&evidence, &self.play);
        all.into_iter().map(|one| one.words).collect()
    }
}

#[test]
fn an_upgrade_that_is_right_breaks_no_promise() {
    assert_eq!(Course::right().said(), Vec::<String>::new());
}

#[test]
fn each_broken_promise_is_reported() {
    // Columns: what goes wrong, a part of the words.
    let table: [(Fault, &str); 11] = [
        (
            |course| {
                let last = course.seen.pop().unwrap();
                course.set(7, 1, 0);
                course.succeeded(9);
                drop(last);
            },
            "StatefulSet 'app-store' is not ready",
        ),
        (
            |course| {
                course.seen.pop();
                course.helm(7, "1.0.0", None);
                course.succeeded(9);
            },
            "the HelmRelease requests \"1.0.0\"",
        ),
        (
            |course| {
                course.seen.pop();
                course.helm(7, "2.0.0", Some("up"));
                course.succeeded(9);
            },
            "is held",
        ),
        (
            |course| {
                course.set(10, 1, 0);
                course.see(
                    20,
                    "managedapps",
                    "app",
                    json!({ "status": { "conditions": [condition("Ready", "True")] } }),
                );
            },
            "says Ready=True",
        ),
        (
            |course| {
                course.helm(10, "2.0.0", Some("up"));
                course.set(90, 1, 1);
            },
            "OA1",
        ),
        (
            |course| course.play.commits = Ok(vec!["up".to_owned(); 2]),
            "OA2: upgraderequests/up has 2 commits",
        ),
        (
            |course| course.play.commits = Ok(Vec::new()),
            "OA2: upgraderequests/up has 0 commits",
        ),
        (
            |course| {
                course.see(
                    1,
                    "persistentvolumeclaims",
                    "data",
                    json!({ "spec": { "volumeName": "pv-1" } }),
                );
                course.asked("delete", "persistentvolumeclaims", "data");
                course.asked("patch", "persistentvolumes", "pv-1");
            },
            "OA3",
        ),
        (
            |course| course.play.data = Some(vec!["1.0.0".to_owned(), "3.0.0".to_owned()]),
            "OA4",
        ),
        (
            |course| {
                course.set(12, 0, 0);
                course.helm(20, "2.0.0", None);
            },
            "OA5",
        ),
        (
            |course| {
                course.helm(10, "2.0.0", None);
                let last = course.seen.last_mut().unwrap();
                Arc::make_mut(&mut last.object)["spec"]["interval"] = json!("5m");
            },
            "OA6",
        ),
    ];
    for (change, expected) in table {
        let mut course = Course::right();
        change(&mut course);
        let said = course.said();
        assert!(
            said.iter().any(|words| words.contains(expected)),
            "{expected}: {said:?}"
        );
    }
}

/// A stop before the confirmation of Flux, an early resume, a snapshot of a running program, and a push without an intent.
#[test]
fn each_step_out_of_order_is_reported() {
    let table: [(Fault, &str); 4] = [
        (
            |course| {
                course.helm(10, "2.0.0", Some("up"));
                let last = course.seen.last_mut().unwrap();
                let object = Arc::make_mut(&mut last.object);
                object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"] = json!("t");
                course.set(11, 0, 0);
                course.set(12, 1, 1);
            },
            "had not confirmed its suspension",
        ),
        (
            |course| {
                course.see(
                    10,
                    "upgraderequests",
                    "up",
                    json!({
                        "spec": { "targetVersion": { "chart": "2.0.0" } },
                        "status": { "phase": "Reconcile" },
                    }),
                );
                course.helm(11, "1.0.0", Some("up"));
                course.helm(12, "1.0.0", None);
            },
            "was resumed with version",
        ),
        (
            |course| {
                let volumes = json!([{ "persistentVolumeClaim": { "claimName": "data" } }]);
                let pod =
                    json!({ "spec": { "volumes": volumes }, "status": { "phase": "Running" } });
                course.see(10, "pods", "app-store-0", pod);
                let source = json!({ "persistentVolumeClaimName": "data" });
                course.see(
                    11,
                    "volumesnapshots",
                    "s",
                    json!({ "spec": { "source": source } }),
                );
                course.seen.last_mut().unwrap().change = Change::Added;
            },
            "was created while Pod",
        ),
        (
            |course| {
                let labels = json!({ "labels": { names::UID: "up" } });
                course.see(10, "jobs", "up-commit", json!({ "metadata": labels }));
                course.seen.last_mut().unwrap().change = Change::Added;
            },
            "has no stored intent",
        ),
    ];
    for (change, expected) in table {
        let mut course = Course::right();
        change(&mut course);
        let said = course.said();
        assert!(
            said.iter().any(|words| words.contains(expected)),
            "{expected}: {said:?}"
        );
    }
}

/// S1.10: an application must be healthy for the time of the plan.
#[test]
fn a_success_that_comes_too_early_is_reported() {
    for (until, expected) in [("00:00:10", 0), ("00:00:01", 1)] {
        let mut course = Course::right();
        let last = course.seen.last_mut().unwrap();
        let object = Arc::make_mut(&mut last.object);
        object["status"]["plan"] = json!({ "timeouts": { "stableFor": "2s" } });
        object["status"]["evidence"] = json!({ "healthySince": "2030-01-01T00:00:00Z" });
        object["status"]["conditions"][0]["lastTransitionTime"] =
            json!(format!("2030-01-01T{until}Z"));
        assert_eq!(course.said().len(), expected, "{until}");
    }
}

/// A claim whose volume was patched before may be deleted, and so may a claim of a request.
#[test]
fn an_announced_deletion_breaks_no_promise() {
    let mut course = Course::right();
    let volume = json!({ "spec": { "volumeName": "pv-1" } });
    course.see(1, "persistentvolumeclaims", "data", volume);
    let own = json!({ "metadata": { "labels": { names::UID: "up" } }, "spec": {} });
    course.see(1, "persistentvolumeclaims", "data-01", own);
    course.asked("delete", "persistentvolumeclaims", "data-01");
    course.asked("patch", "persistentvolumes", "pv-1");
    course.asked("delete", "persistentvolumeclaims", "data");
    assert_eq!(course.said(), Vec::<String>::new());
}

#[test]
fn a_dry_run_writes_only_reports_and_its_job() {
    for (verb, resource, expected) in [
        ("create", "jobs.batch", 0),
        ("patch", "upgraderequests.orchestrator.io/status", 0),
        ("patch", "upgraderequests.orchestrator.io", 1),
        ("patch", "helmreleases.helm.toolkit.fluxcd.io", 1),
    ] {
        let mut course = Course::new();
        course.play.is_dry_run = true;
        course.asked(verb, resource, "x");
        assert_eq!(course.said().len(), expected, "{verb} {resource}");
    }
}
