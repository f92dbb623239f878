use super::*;

fn said(play: &ScenarioRun) -> Vec<String> {
    let baseline = ScenarioRun::new().outcome();
    play.judged(&baseline)
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Whether one of them has these words in it.
fn has(said: &[String], words: &str) -> bool {
    said.iter().any(|one| one.contains(words))
}

#[test]
fn o0_an_agent_is_ready_only_if_its_account_was_there() {
    let agent = |generation: u64| {
        json!({
            "apiVersion": "orchestrator.io/v1alpha1", "metadata": { "generation": generation },
            "spec": { "serviceAccountName": "worker" },
            "status": {
                "phase": "Ready", "observedGeneration": 1,
                "conditions": [condition_of("Ready", "True", "Ready")],
            },
        })
    };
    let account = json!({ "apiVersion": "v1" });
    for (changes, generation, is_green) in [
        (vec![], 1, false),
        (vec![], 2, true),
        (vec![Change::Added], 1, true),
        (vec![Change::Added, Change::Deleted], 1, false),
    ] {
        let mut play = ScenarioRun::new();
        for change in changes.clone() {
            play.change(
                change,
                "serviceaccounts",
                "worker",
                "uid-of-account",
                account.clone(),
            );
        }
        play.see("agents", "other", "uid-of-other", agent(generation));
        let said = said(&play);
        let words = "no ServiceAccount 'worker'";
        assert_eq!(!has(&said, words), is_green, "{changes:?}: {said:?}");
    }
}

#[test]
fn o0_a_docsrun_succeeds_after_its_whole_pod() {
    for (phase, is_green) in [("Running", false), ("Succeeded", true)] {
        let mut play = ScenarioRun::empty();
        let pod = json!({
            "metadata": { "labels": { "orchestrator.io/uid": RUN } },
            "status": {
                "phase": phase,
                "initContainerStatuses": [
                    { "name": "agent", "state": { "terminated": { "exitCode": 0 } } },
                ],
            },
        });
        play.see("pods", "job-x", "uid-of-pod", pod);
        play.done(RUN);
        let status = json!({
            "phase": "Succeeded", "observedGeneration": 1,
            "conditions": [condition_of("Succeeded", "True", "Succeeded")],
        });
        let run = json!({ "metadata": { "generation": 1 }, "status": status });
        play.see("docsruns", "run", RUN, run);
        let said = said(&play);
        assert_eq!(!has(&said, "O0"), is_green, "{phase}: {said:?}");
    }
}

#[test]
fn o4_no_child_outlives_its_run() {
    let job = json!({ "metadata": { "labels": { "orchestrator.io/uid": RUN } } });
    let run = json!({ "metadata": { "generation": 1 } });
    for is_last in [false, true] {
        let mut play = ScenarioRun::new();
        let gone = |play: &mut ScenarioRun| {
            play.change(Change::Deleted, "jobs", "job", "uid-of-job", job.clone());
        };
        if !is_last {
            gone(&mut play);
        }
        play.change(Change::Deleted, "taskruns", "run", RUN, run.clone());
        if is_last {
            gone(&mut play);
        }
        let said = said(&play);
        let words = "jobs/job was there when its run was gone";
        assert_eq!(has(&said, words), is_last, "{said:?}");
    }
}

#[test]
fn o5_the_same_is_not_told_twice_and_a_refusal_is_no_drum() {
    let event = |reason: &str| {
        json!({
            "reportingController": "orchestrator.io/controller", "reason": reason,
            "regarding": { "kind": "TaskRun", "name": "run" }, "note": "at 2026-11-15T15:05:18Z",
        })
    };
    // Names in capitals tell something else.
    let with = |uids: &[&str]| {
        let mut play = ScenarioRun::new();
        for uid in uids {
            let is_other = uid.chars().all(char::is_uppercase);
            let reason = if is_other { "Denied" } else { "Running" };
            play.see("events", uid, uid, event(reason));
        }
        play
    };
    let baseline = with(&["a"]).outcome();
    let noise = |play: &ScenarioRun| {
        let all = play.judged(&baseline);
        all.iter().filter(|one| one.oracle == Oracle::Quiet).count()
    };
    assert_eq!(noise(&with(&["a"])), 0);
    assert_eq!(noise(&with(&["a", "a"])), 0, "again, under its own name");
    assert_eq!(noise(&with(&["a", "b"])), 1);
    assert_eq!(noise(&with(&["a", "X", "b"])), 0, "it turned, and back");
    let mut play = with(&["a"]);
    let mut run = json!({ "metadata": { "generation": 1 } });
    run["status"] = json!({ "conditions": [condition_of("Succeeded", "Unknown", "Denied")] });
    play.see("taskruns", "run", RUN, run.clone());
    play.see("events", "b", "b", event("Running"));
    assert_eq!(noise(&play), 0, "nobody was told that it turned");
    run["status"] = json!({ "conditions": [condition_of("Succeeded", "Unknown", "Running")] });
    play.see("taskruns", "run", RUN, run);
    play.see("events", "c", "c", event("Running"));
    assert_eq!(noise(&play), 1);
    let drum = ["a", "V", "b", "W", "c", "X", "d", "Y", "e"];
    assert_eq!(noise(&with(&drum)), 2);

    let mut play = with(&["a"]);
    for _ in 0..61 {
        play.audit.push(entry("create", "jobs.batch", "job", 403));
    }
    assert_eq!(noise(&play), 1);
}

#[test]
fn o7_a_secret_is_also_seen_as_a_secret_carries_it() {
    let mut play = ScenarioRun::new();
    play.logs.push("sent aHVudGVyMi1odW50ZXIy".to_owned());
    let said = said(&play);
    assert!(has(&said, "secret 0 is in line 2 of the log"), "{said:?}");
}
