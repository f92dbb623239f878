use serde_json::{Value, json};

use super::*;

#[test]
fn o1_another_end_is_said() {
    let mut play = ScenarioRun::new();
    play.edit(7, |run| run["status"]["attempts"] = json!(2));
    let judged = play.judged(&ScenarioRun::new().outcome());
    assert_eq!(judged.len(), 1, "{judged:?}");
    assert_eq!(
        judged[0].to_string(),
        "O1 same end: taskruns/run status attempts: 2, wanted nothing"
    );
}

#[test]
fn o2_another_number_of_creates_and_deletes_is_said() {
    let baseline = ScenarioRun::new().outcome();
    let said = |more: Entry| {
        let mut play = ScenarioRun::new();
        play.audit.push(more);
        play.judged(&baseline)
            .into_iter()
            .map(|violation| violation.to_string())
            .collect::<Vec<_>>()
    };
    let second = said(entry("create", "jobs.batch", "job-2", 201));
    says(
        &second,
        &["O2 same objects: 2 creates of jobs.batch, wanted 1"],
    );
    let applied = said(entry("patch", "configmaps", "x", 201));
    says(&applied, &["2 creates of configmaps, wanted 1"]);
    let deleted = said(entry("delete", "jobs.batch", "job", 200));
    says(&deleted, &["2 deletes of jobs.batch, wanted 1"]);
    for harmless in [
        entry("create", "jobs.batch", "job", 409),
        entry("delete", "jobs.batch", "old", 200),
        entry("delete", "jobs.batch", "job", 404),
        entry("create", "events.events.k8s.io", "f", 201),
        entry("patch", "configmaps", "files", 200),
    ] {
        says(&said(harmless), &[]);
    }
}

#[test]
fn o2_a_create_whose_caller_died_is_no_difference() {
    let baseline = ScenarioRun::new().outcome();
    let mut play = ScenarioRun::new();
    for one in &mut play.audit {
        if one.request.verb == "create" {
            one.code = 504;
        }
    }
    let judged = play.judged(&baseline);
    assert!(judged.is_empty(), "{judged:?}");
}

/// `isolated/seed-43`: the second of two Pods was refused, and both were made a minute later.
#[test]
fn o2_a_try_that_was_called_off_is_made_again_and_no_other() {
    let baseline = ScenarioRun::new().outcome();
    let said = |result: &str, pods: usize| {
        let mut play = ScenarioRun::new();
        let isolation = json!({ "result": result, "retryAt": "2030-01-01T00:01:00Z" });
        let tenant = json!({ "status": { "isolation": isolation } });
        play.see("tenants", "shop", "uid-of-shop", tenant);
        for _ in 0..pods {
            play.audit.push(entry("create", "pods", "probe", 201));
        }
        let judged = play.judged(&baseline).into_iter();
        judged
            .filter(|one| one.oracle == Oracle::SameObjects)
            .map(|violation| violation.to_string())
            .collect::<Vec<_>>()
    };
    says(&said("IsolationCheckFailed", 1), &[]);
    says(
        &said("IsolationCheckFailed", 2),
        &["2 creates of pods, wanted 0"],
    );
    says(&said("Isolated", 1), &["1 creates of pods, wanted 0"]);
}

#[test]
fn o2_a_second_object_is_seen_though_nobody_tells() {
    let baseline = ScenarioRun::new().outcome();
    let mut play = ScenarioRun::new();
    let job = (*play.seen[3].object).clone();
    play.change(Change::Added, "jobs", "job", "uid-of-second", job.clone());
    play.change(Change::Deleted, "jobs", "job", "uid-of-second", job);
    let judged = play.judged(&baseline);
    let words: Vec<String> = judged.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "O2 same objects: 2 different jobs, wanted 1",
            "O3 one effect: two at work at the same time: jobs job, job",
        ]
    );
}

#[test]
fn o3_effects_are_as_many_as_without_faults() {
    let baseline = ScenarioRun::new().outcome();
    let said = |change: &dyn Fn(&mut ScenarioRun)| {
        let mut play = ScenarioRun::new();
        change(&mut play);
        let violations = play.judged(&baseline).into_iter();
        violations
            .filter(|violation| violation.oracle == Oracle::OneEffect)
            .map(|violation| violation.words)
            .collect::<Vec<_>>()
    };
    says(&said(&|_| {}), &[]);
    says(
        &said(&|play| play.done(RUN)),
        &["taskruns/run told 'done' 2 times, wanted 1"],
    );
    says(
        &said(&|play| play.effects.clear()),
        &["told 'done' 0 times"],
    );
    says(
        &said(&|play| play.done("other")),
        &["a run that was not seen"],
    );
    // What Kubernetes started twice, the status says.
    let disrupted = |play: &mut ScenarioRun| {
        play.done(RUN);
        play.edit(7, |run| run["status"]["disruptions"] = json!(1));
    };
    says(&said(&disrupted), &[]);
}

#[test]
fn o3_a_run_ends_once_per_version() {
    let second = |change: &dyn Fn(&mut Value)| {
        let mut play = ScenarioRun::new();
        let mut status = ScenarioRun::succeeded();
        change(&mut status);
        play.run(status);
        play.said(Oracle::OneEffect)
    };
    says(&second(&|_| {}), &[]);
    let wanted = ["'run' ended more than once in version 1"];
    says(
        &second(&|status| status["finishedAt"] = json!("2026-11-15T15:06:00Z")),
        &wanted,
    );
    says(
        &second(&|status| status["conditions"][0]["reason"] = json!("Odd")),
        &wanted,
    );
    says(&second(&|status| *status = ScenarioRun::failed()), &wanted);
    let newer = |status: &mut Value| {
        *status = ScenarioRun::failed();
        status["contextVersion"] = json!(2);
    };
    says(&second(&newer), &[]);
}

#[test]
fn o4_what_is_gone_without_faults_is_gone() {
    let mut gone = ScenarioRun::new();
    let job = (*gone.seen[3].object).clone();
    gone.change(Change::Deleted, "jobs", "job", "uid-of-job", job);
    let baseline = gone.outcome();
    assert_eq!(gone.judged(&baseline), []);
    let left = ScenarioRun::new().judged(&baseline);
    let words: Vec<String> = left.iter().map(ToString::to_string).collect();
    says(
        &words,
        &[
            "O1 same end: jobs/job is there, and should not be",
            "O4 nothing left: jobs/job is still there",
        ],
    );
}

#[test]
fn o4_nothing_is_held_or_orphaned() {
    let said = |change: &dyn Fn(&mut ScenarioRun)| {
        let mut play = ScenarioRun::new();
        change(&mut play);
        play.said(Oracle::NothingLeft)
    };
    let hold = |play: &mut ScenarioRun, index: usize, name: &str| {
        play.edit(index, |object| {
            object["metadata"]["finalizers"] = json!([name]);
        });
    };
    says(
        &said(&|play| {
            play.edit(3, |job| job["metadata"]["deletionTimestamp"] = json!("now"));
        }),
        &["jobs/job is being deleted, and stays"],
    );
    says(
        &said(&|play| hold(play, 7, "taskruns.orchestrator.io/finalizer")),
        &["taskruns/run is finished, and has its finalizer still"],
    );
    says(&said(&|play| hold(play, 7, "somebody.else/finalizer")), &[]);
    // While it goes on, it is held.
    says(
        &said(&|play| {
            play.seen.truncate(6);
            hold(play, 5, "taskruns.orchestrator.io/finalizer");
        }),
        &[],
    );
    says(
        &said(&|play| play.run(ScenarioRun::succeeded()).change = Change::Deleted),
        &[
            "jobs/job is there, but its owner taskruns/run is not",
            "pods/job-x is there, but its owner taskruns/run is not",
        ],
    );
}

#[test]
fn o5_nothing_is_written_after_the_end() {
    for (more, wanted) in [
        (
            entry("patch", "taskruns.orchestrator.io/status", "run", 200),
            "patch taskruns.orchestrator.io/status 'run' (200)",
        ),
        (
            entry("create", "jobs.batch", "job", 409),
            "create jobs.batch",
        ),
        (entry("create", "events.events.k8s.io", "e", 201), "events"),
        (entry("delete", "pods", "p", 404), "delete pods"),
    ] {
        let mut play = ScenarioRun::new();
        play.quiet.push(more);
        says(&play.said(Oracle::Quiet), &[wanted]);
    }
    says(&ScenarioRun::new().said(Oracle::Quiet), &[]);
}

#[test]
fn o7_no_panic_and_no_secret_anywhere() {
    let said = |change: &dyn Fn(&mut ScenarioRun)| {
        let mut play = ScenarioRun::new();
        change(&mut play);
        let said = play.said(Oracle::NoLeak);
        assert!(!said.join(" ").contains(CANARY), "{said:?}");
        said
    };
    says(&said(&|_| {}), &[]);
    says(
        &said(&|play| play.logs.push("thread 'main' panicked at x".into())),
        &["the log says: thread 'main' panicked"],
    );
    let leak = format!("password={CANARY}!");
    says(
        &said(&|play| play.logs.push(leak.clone())),
        &["secret 0 is in line 2 of the log"],
    );
    says(
        &said(&|play| play.metrics.push_str(&leak)),
        &["secret 0 is in the metrics"],
    );
    says(
        &said(&|play| play.edit(5, |run| run["status"]["message"] = json!(leak))),
        &["secret 0 is in taskruns/run"],
    );
    says(
        &said(&|play| {
            play.see("events", "e", "uid-of-event", json!({ "note": leak }));
        }),
        &["secret 0 is in events/e"],
    );
    says(
        &said(&|play| {
            play.see(
                "configmaps",
                "c",
                "uid-of-map",
                json!({ "data": { leak.clone(): "" } }),
            );
        }),
        &["secret 0 is in configmaps/c"],
    );
}

#[test]
fn o7_a_private_text_may_be_in_a_spec_and_is_repeated_nowhere() {
    let said = |change: &dyn Fn(&mut ScenarioRun)| {
        let mut play = ScenarioRun::new();
        change(&mut play);
        play.said(Oracle::NoLeak)
    };
    let leak = format!("create {{\"env\":\"{PRIVATE}\"}}");
    says(
        &said(&|play| play.edit(5, |run| run["spec"]["text"] = json!(leak))),
        &[],
    );
    says(
        &said(&|play| play.edit(3, |job| job["spec"]["text"] = json!(leak))),
        &[],
    );
    says(
        &said(&|play| play.logs.push(leak.clone())),
        &["private text 0 is in line 2 of the log"],
    );
    says(
        &said(&|play| play.metrics.push_str(&leak)),
        &["private text 0 is in the metrics"],
    );
    says(
        &said(&|play| play.edit(5, |run| run["status"]["message"] = json!(leak))),
        &["private text 0 is in taskruns/run"],
    );
    says(
        &said(&|play| {
            play.see("events", "e", "uid-of-event", json!({ "note": leak }));
        }),
        &["private text 0 is in events/e"],
    );
}

#[test]
fn o1_a_phase_twice_in_a_row_is_said() {
    let record = |phase: &str, attempt: Option<u32>| json!({ "phase": phase, "attempt": attempt });
    let said = |history: Value| {
        let mut play = ScenarioRun::new();
        play.edit(7, |run| run["status"]["phaseHistory"] = history);
        play.said(Oracle::SameEnd)
    };
    let once = [
        record("Pending", None),
        record("Pending", Some(1)),
        record("Running", Some(1)),
    ];
    says(&said(json!(once)), &[]);
    let again = [
        record("Running", Some(1)),
        record("Pending", Some(1)),
        record("Running", Some(1)),
    ];
    says(&said(json!(again)), &[]);
    let doubled = [record("Running", Some(1)), record("Running", Some(1))];
    says(
        &said(json!(doubled)),
        &["taskruns/run has the phase \"Running\" twice in a row"],
    );
}

#[test]
fn o1_another_end_of_the_timeline_is_said() {
    let ended = |history: Value| {
        let mut play = ScenarioRun::new();
        play.edit(7, |run| run["status"]["phaseHistory"] = history);
        play
    };
    let last =
        json!({ "phase": "Succeeded", "attempt": 1, "outcome": "Succeeded", "startedAt": "a" });
    let baseline = ended(json!([last])).outcome();
    let of = |play: &ScenarioRun| -> Vec<String> {
        let all = play.judged(&baseline).into_iter();
        all.map(|one| one.words).collect()
    };
    // How it came there, and when, is not compared.
    let mut later = last.clone();
    later["startedAt"] = json!("b");
    says(&of(&ended(json!([{ "phase": "Pending" }, later]))), &[]);
    let mut other = last.clone();
    other["attempt"] = json!(2);
    says(
        &of(&ended(json!([other]))),
        &["timeline last attempt: 2, wanted 1"],
    );
    let twice = json!([last, { "phase": "Pending" }, last]);
    says(&of(&ended(twice)), &["timeline ends: 2, wanted 1"]);
}
