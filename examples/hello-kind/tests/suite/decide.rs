//! Tables of decisions about a Greeting, without a server, a clock or a runtime.

use std::time::Duration;

use api::{
    CommonStatus, Phase, Timestamp,
    deadline::{self, PhaseInput},
    decide::{Effect, FinalizerAction, Input},
    status::PhaseProgress,
};
use engine::Kind;
use hello_kind::{Greeting, GreetingPhase, GreetingSpec, GreetingStatus, Hello, World, decide};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const UID: &str = "uid-1";

fn at(seconds: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Returns a Greeting whose phase began at second 0. It has this phase, or no status at all.
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
        progress: CommonStatus {
            phase_started_at: Some(Time(at(0))),
            phase_progress: Some(PhaseProgress {
                fingerprint: String::new(),
                changed_at: Time(at(0)),
            }),
            ..CommonStatus::default()
        },
        intent: (phase != GreetingPhase::Waiting).then(|| UID.to_owned()),
        ..GreetingStatus::default()
    });
    greeting
}

const fn world(is_open: bool, is_written: bool) -> World {
    World {
        is_open,
        opening: None,
        is_written,
    }
}

/// Returns the facts that the deadline depends on, as the engine collects them.
fn phase_input<'a>(greeting: &'a Greeting, world: &World) -> PhaseInput<'a, GreetingPhase> {
    PhaseInput {
        spec: &greeting.spec,
        created: None,
        progress: Hello::phase_progress(world),
    }
}

const CLOSED: World = world(false, false);
const OPEN: World = world(true, false);
const WRITTEN: World = world(true, true);

/// Formats a decision: phase, state, whether it writes the line, whether it releases the object.
fn decided(stored: Option<GreetingPhase>, world: &World, now: u64) -> String {
    let (greeting, now) = (greeting(stored), at(now));
    let known = greeting.status.clone().unwrap_or_default();
    let phase_input = phase_input(&greeting, world);
    let overdue = deadline::is_overdue(&known, &phase_input, now);
    let decision = decide(&Input {
        object: &greeting,
        world,
        now,
        fault: None,
        confirmed: true,
        overdue,
    });
    let status = decision.next_status(&known, &phase_input, 1, now);
    let deadline = deadline::requeue_at(&status, overdue, &phase_input, now);
    let is_requeued = decision.requeue_at.or(deadline).is_some();
    let moves = Some(decision.phase) != stored || is_requeued;
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
            decided(stored, &world, now),
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
        overdue: false,
    };
    let effects = decide(&input).effects;
    assert!(
        matches!(&effects[..], [Effect::External { requires_intent: Some(intent), .. }] if intent == UID),
        "{effects:?}"
    );
}

#[test]
fn a_door_that_opens_slowly_is_waited_for() {
    use GreetingPhase::{Failed, Waiting};
    let mut greeting = greeting(None);
    let mut pass = |opening: Option<&str>, now: u64| {
        let world = World {
            opening: opening.map(str::to_owned),
            ..CLOSED
        };
        let known = greeting.status.clone().unwrap_or_default();
        let phase_input = phase_input(&greeting, &world);
        let decision = decide(&Input {
            object: &greeting,
            world: &world,
            now: at(now),
            fault: None,
            confirmed: true,
            overdue: deadline::is_overdue(&known, &phase_input, at(now)),
        });
        let status = decision.next_status(&known, &phase_input, 1, at(now));
        greeting.status = Some(status);
        decision.phase
    };
    // Each step of the door begins the patience of 100 s again.
    for (opening, now, wanted) in [
        (None, 0, Waiting),
        (Some("10%"), 90, Waiting),
        (Some("20%"), 180, Waiting),
        (Some("20%"), 279, Waiting),
        (Some("20%"), 280, Failed),
    ] {
        assert_eq!(pass(opening, now), wanted, "{now}");
    }
}

#[test]
fn a_deadline_leads_to_a_phase_that_may_follow() {
    for row in GreetingPhase::TABLE {
        if let Some(next) = row.deadline.next() {
            assert!(row.phase.may_become(next), "{:?}", row.phase);
        }
    }
}
