//! Tables of decisions about a Greeting, without a server, a clock or a runtime.

use std::time::Duration;

use api::{
    Timestamp,
    decide::{Effect, FinalizerAction, Input},
};
use hello_kind::{Greeting, GreetingPhase, GreetingSpec, GreetingStatus, World, decide};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const UID: &str = "uid-1";

fn at(seconds: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Returns a Greeting that waits until second 100. It has this phase, or no status at all.
fn greeting(phase: Option<GreetingPhase>) -> Greeting {
    let spec = GreetingSpec {
        line: "hello".to_owned(),
        door: "front".to_owned(),
        patience: Duration::from_secs(100).into(),
    };
    let mut greeting = Greeting::new("hi", spec);
    greeting.metadata.uid = Some(UID.to_owned());
    greeting.status = phase.map(|phase| GreetingStatus {
        phase: Some(phase),
        deadline_at: Some(Time(at(100))),
        intent: (phase != GreetingPhase::Waiting).then(|| UID.to_owned()),
        ..GreetingStatus::default()
    });
    greeting
}

const fn world(is_open: bool, is_written: bool) -> World {
    World {
        is_open,
        is_written,
    }
}

const CLOSED: World = world(false, false);
const OPEN: World = world(true, false);
const WRITTEN: World = world(true, true);

/// Formats a decision: phase, state, whether it writes the line, whether it releases the object.
fn decided(stored: Option<GreetingPhase>, world: World, now: u64) -> String {
    let greeting = greeting(stored);
    let decision = decide(&Input {
        object: &greeting,
        world: &world,
        now: at(now),
        fault: None,
        confirmed: true,
    });
    assert_eq!(
        decision.status.deadline_at,
        Some(Time(at(100))),
        "not counted anew"
    );
    let moves = Some(decision.phase) != stored || decision.requeue_at.is_some();
    assert!(moves || decision.is_end(), "something wakes it");
    let writes = if decision.effects.is_empty() {
        ""
    } else {
        ", writes"
    };
    let lets_go = if decision.finalizer == FinalizerAction::Keep {
        ""
    } else {
        ", lets go"
    };
    let state = decision.verdict.state;
    format!("{:?}, {state:?}{writes}{lets_go}", decision.phase)
}

// ANCHOR: table
#[test]
fn each_situation_has_its_decision() {
    use GreetingPhase::{Succeeded, Waiting, Writing};
    let table = [
        (None, CLOSED, 0, "Waiting, Working"),
        (Some(Waiting), CLOSED, 99, "Waiting, Working"),
        (Some(Waiting), CLOSED, 100, "Failed, Failed, lets go"),
        // The decision only records the intent, also if the line already exists.
        (Some(Waiting), OPEN, 9, "Writing, Working"),
        (Some(Waiting), WRITTEN, 9, "Writing, Working"),
        // There is no way back, however late it is and even if the door is closed.
        (Some(Writing), OPEN, 9, "Writing, Working, writes"),
        (Some(Writing), CLOSED, 999, "Writing, Working, writes"),
        (Some(Writing), WRITTEN, 9, "Succeeded, Succeeded, lets go"),
        (Some(Succeeded), CLOSED, 9, "Succeeded, Succeeded, lets go"),
    ];
    for (stored, world, now, wanted) in table {
        assert_eq!(
            decided(stored, world, now),
            wanted,
            "{stored:?} {world:?} {now}"
        );
    }
}
// ANCHOR_END: table

#[test]
fn the_line_is_written_under_the_intent_that_is_stored() {
    let greeting = greeting(Some(GreetingPhase::Writing));
    let input = Input {
        object: &greeting,
        world: &OPEN,
        now: at(9),
        fault: None,
        confirmed: true,
    };
    let effects = decide(&input).effects;
    assert!(
        matches!(&effects[..], [Effect::External { requires_intent: Some(intent), .. }] if intent == UID),
        "{effects:?}"
    );
}
