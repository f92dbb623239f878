//! Kinds without rules of their own.

use api::Timestamp;
use serde_json::{Value, json};

use super::*;

/// Returns a world with a Widget, which no table has, with a status like the operator's.
fn world(observed: i64, conditions: &Value) -> World {
    let now = Time(Timestamp::from_second(1_767_229_200).unwrap());
    let target = ObjectRef::namespaced("Widget", "team", "one");
    let mut world = World::new(now, target);
    let object = json!({
        "metadata": { "name": "one", "namespace": "team", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z" },
        "status": { "observedGeneration": observed, "message": "as it is", "phase": "Any",
            "conditions": conditions },
    });
    world.object = Some(ObjectView::read("Widget", &object));
    world
}

fn explained(observed: i64, conditions: &Value) -> Explanation {
    explain(&world(observed, conditions))
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": "as it is",
        "lastTransitionTime": "2026-01-01T00:01:00Z" })
}

#[test]
fn the_conditions_of_an_object_explain_it() {
    let main = |kind: &str, status: &str, reason: &str| json!([condition(kind, status, reason)]);
    let stalled = json!([
        condition("Ready", "False", "DependencyNotReady"),
        condition("Stalled", "True", "DependencyNotReady"),
    ]);
    let failed = json!([
        condition("Succeeded", "False", "NotKnownHere"),
        condition("Finished", "True", "NotKnownHere"),
    ]);
    let cases = [
        (main("Ready", "True", "Ready"), State::Ready, ""),
        (main("Succeeded", "True", "Succeeded"), State::Succeeded, ""),
        (
            main("Ready", "False", "Progressing"),
            State::Waiting,
            "Wait.",
        ),
        (
            main("Succeeded", "Unknown", "Suspended"),
            State::Suspended,
            "Set 'spec.suspend'",
        ),
        (stalled, State::Blocked, "Create what the message names."),
        (failed, State::Failed, "Read the message above"),
    ];
    for (conditions, state, advice) in cases {
        let found = explained(2, &conditions);
        assert_eq!(found.state, state, "{conditions}");
        assert!(found.advice.starts_with(advice), "{}", found.advice);
        assert_eq!(found.summary, "as it is");
        assert_eq!(found.chain.len(), 1);
        let describe = "kubectl describe widget one -n team";
        assert_eq!(found.next_steps[0].command, describe);
    }
}

#[test]
fn a_status_of_an_earlier_spec_does_not_explain_the_object() {
    let ready = json!([condition("Ready", "True", "Ready")]);
    let found = explained(1, &ready);
    assert_eq!(found.state, State::Blocked);
    assert_eq!(found.chain[0].reason, "NotSeen");
}

#[test]
fn a_status_that_cannot_be_decoded_is_shown() {
    let found = explained(2, &json!("none"));
    assert_eq!(found.state, State::Blocked);
    assert_eq!(found.chain[0].reason, "Undecodable");
}

#[test]
fn an_object_that_waits_needs_its_operator() {
    let waiting = json!([condition("Ready", "False", "Progressing")]);
    let mut world = world(2, &waiting);
    world.leases = Some(Vec::new());
    let found = explain(&world);
    assert_eq!(found.state, State::Blocked);
    let kinds: Vec<&str> = found
        .chain
        .iter()
        .map(|link| link.object.kind.as_str())
        .collect();
    assert_eq!(kinds, ["Widget", "Lease"]);
    let own = &found.chain[0].evidence[0];
    assert_eq!(own.source, "status (phase Any, reason Progressing)");
}
