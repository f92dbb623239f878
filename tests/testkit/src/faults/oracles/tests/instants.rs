use serde_json::{Value, json};

use super::*;

/// What O6 says of runs with these states after each other.
fn at_every_instant(versions: &[(i64, Value)]) -> Vec<String> {
    let mut play = ScenarioRun::empty();
    for (generation, status) in versions {
        play.run(status.clone());
        let last = play.seen.len() - 1;
        play.edit(last, |run| {
            run["metadata"]["generation"] = json!(generation)
        });
    }
    play.said(Oracle::TrueAtEveryInstant)
}

/// A status that speaks of another generation.
fn of_generation(mut status: Value, generation: i64) -> Value {
    status["observedGeneration"] = json!(generation);
    status["conditions"][0]["observedGeneration"] = json!(generation);
    status
}

#[test]
fn o6_generations_are_true_and_never_fall() {
    let running = ScenarioRun::running;
    says(&at_every_instant(&[(1, running()), (2, running())]), &[]);
    let newer = of_generation(running(), 2);
    says(
        &at_every_instant(&[(2, running()), (2, newer.clone())]),
        &[],
    );
    says(
        &at_every_instant(&[(1, newer.clone())]),
        &[
            "observedGeneration 2 of generation 1",
            "observedGeneration 2 of \"Succeeded\", at generation 1",
        ],
    );
    says(
        &at_every_instant(&[(2, newer), (2, running())]),
        &[
            "observedGeneration fell from 2 to 1",
            "observedGeneration of Succeeded fell from 2 to 1",
        ],
    );
    let mut reversed = ScenarioRun::new();
    reversed.seen.reverse();
    says(&reversed.said(Oracle::TrueAtEveryInstant), &[]);
}

#[test]
fn o6_an_end_stays_within_its_version() {
    let (running, succeeded, failed) = (
        ScenarioRun::running,
        ScenarioRun::succeeded,
        ScenarioRun::failed,
    );
    says(&at_every_instant(&[(1, running()), (1, failed())]), &[]);
    for after in [running(), failed()] {
        let said = at_every_instant(&[(1, succeeded()), (1, after)]);
        says(&said, &["left its end 'Succeeded' for"]);
    }
    let mut next = running();
    next["contextVersion"] = json!(2);
    says(&at_every_instant(&[(1, failed()), (1, next.clone())]), &[]);
    says(
        &at_every_instant(&[(1, next), (1, running())]),
        &["its version fell from 2 to 1"],
    );
}

#[test]
fn o6_conditions_and_phase_agree() {
    let with = |mut status: Value, more: Value| {
        let list = status["conditions"].as_array_mut().unwrap();
        list.retain(|one| one["type"] != more["type"]);
        list.push(more);
        at_every_instant(&[(1, status)])
    };
    let both = condition_of("Stalled", "True", "Odd");
    says(
        &with(ScenarioRun::running(), both),
        &["Reconciling and Stalled"],
    );
    let green = condition_of("Succeeded", "True", "Succeeded");
    says(
        &with(ScenarioRun::failed(), green),
        &["Succeeded and the phase 'Failed' disagree"],
    );
    let open = condition_of("Finished", "False", "Odd");
    says(
        &with(ScenarioRun::failed(), open),
        &["Finished and the phase 'Failed' disagree"],
    );
}

#[test]
fn o6_a_status_that_has_seen_the_spec_follows_it() {
    let said = |spec: Value, change: &dyn Fn(&mut ScenarioRun)| {
        let mut play = ScenarioRun::empty();
        play.pod(json!({ "running": {} }));
        play.run_with(spec, ScenarioRun::running());
        change(&mut play);
        play.said(Oracle::TrueAtEveryInstant)
    };
    let suspended = || json!({ "suspend": true });
    says(&said(json!({ "suspend": false }), &|_| {}), &[]);
    says(
        &said(suspended(), &|_| {}),
        &["goes on although it is suspended"],
    );
    says(
        &said(json!({ "suspend": true, "cancel": true }), &|_| {}),
        &[],
    );
    // It has not seen it yet; it is going; it has ended already; it is held.
    let exceptions: [&dyn Fn(&mut ScenarioRun); 4] = [
        &|play| play.edit(1, |run| run["metadata"]["generation"] = json!(2)),
        &|play| play.edit(1, |run| run["metadata"]["deletionTimestamp"] = json!("now")),
        &|play| {
            play.edit(0, |pod| {
                pod["status"]["containerStatuses"][0]["state"] =
                    json!({ "terminated": { "exitCode": 3 } });
            });
        },
        &|play| {
            play.edit(1, |run| {
                run["status"]["phase"] = json!("Pending");
                run["status"]["conditions"][0]["reason"] = json!("Suspended");
            });
        },
    ];
    for exception in exceptions {
        says(&said(suspended(), exception), &[]);
    }
    let mut ended = ScenarioRun::empty();
    ended.run_with(json!({ "contextVersion": 2 }), ScenarioRun::failed());
    says(
        &ended.said(Oracle::TrueAtEveryInstant),
        &["says that it has seen version 2, and speaks of 1"],
    );
}
