//! Tables of decisions about a Greeting, without a server, a clock or a runtime.

use std::time::Duration;

use api::{
    CommonStatus, Phase, Reason, Status, Timestamp,
    deadline::{self, PhaseInput},
    decide::{ErrorClass, FinalizerAction, Input, ReconcileError},
    external::Reply,
    status::PhaseProgress,
};
use engine::{Kind, external::Request};
use hello_kind::{
    Greeting, GreetingPhase, GreetingSpec, GreetingStatus, Hello, Line, World, decide, requests,
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};

const UID: &str = "uid-1";

fn at(seconds: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn line(text: &str) -> Line {
    Line {
        key: UID.to_owned(),
        text: text.to_owned(),
    }
}

/// Returns a Greeting whose phase began at second 0. It has this phase, or no status at all.
fn greeting(phase: Option<GreetingPhase>) -> Greeting {
    let spec = GreetingSpec {
        line: "hello".to_owned(),
        door: "front".to_owned(),
        guest: None,
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
        intent: (phase != GreetingPhase::Waiting).then(|| line("hello")),
        ..GreetingStatus::default()
    });
    greeting
}

fn reply<T>(response: Result<T, ReconcileError>, is_fresh: bool) -> Option<Reply<T>> {
    Some(Reply {
        response,
        since: at(1),
        next_at: at(1000),
        is_fresh,
    })
}

fn away() -> ReconcileError {
    let reason = Reason::DependencyNotReady;
    ReconcileError::new(ErrorClass::Transient, reason, "away")
}

fn closed() -> World {
    World {
        is_open: false,
        opening: None,
        log: None,
        page: None,
    }
}

fn open() -> World {
    World {
        is_open: true,
        ..closed()
    }
}

/// The door is open, and this is the reply of the book.
fn book(response: Result<u32, ReconcileError>, is_fresh: bool) -> World {
    World {
        page: reply(response, is_fresh),
        ..open()
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

fn input<'a>(object: &'a Greeting, world: &'a World, now: u64) -> Input<'a, Greeting, World> {
    let known = object.status.clone().unwrap_or_default();
    Input {
        object,
        world,
        now: at(now),
        fault: None,
        refused: false,
        confirmed: true,
        overdue: deadline::is_overdue(&known, &phase_input(object, world), at(now)),
    }
}

/// Formats a decision: phase, state, whether the line is sent, whether it releases the object.
fn decided(stored: Option<GreetingPhase>, world: &World, now: u64) -> String {
    let greeting = greeting(stored);
    let input = input(&greeting, world, now);
    let decision = decide(&input);
    let known = greeting.status.clone().unwrap_or_default();
    let phase_input = phase_input(&greeting, world);
    let status = decision.next_status(&known, &phase_input, 1, input.now);
    let deadline = deadline::requeue_at(&status, input.overdue, &phase_input, input.now);
    let is_requeued = decision.requeue_at.or(deadline).is_some();
    let moves = Some(decision.phase) != stored || is_requeued;
    assert!(moves || decision.is_end(), "something wakes it");
    let sends = match requests(&greeting, None) {
        (None, None) => "",
        (None, Some(_)) => ", sends",
        (Some(_), _) => ", reads a log",
    };
    let lets_go = if decision.finalizer == FinalizerAction::Keep {
        ""
    } else {
        ", lets go"
    };
    let state = decision.verdict.state;
    format!("{:?}, {state:?}{sends}{lets_go}", decision.phase)
}

// ANCHOR: table
#[test]
fn each_situation_has_its_decision() {
    use GreetingPhase::{Succeeded, Waiting, Writing};
    let (written, failed, expired) = (
        book(Ok(7), true),
        book(Err(away()), true),
        book(Ok(7), false),
    );
    let (closed, open) = (&closed(), &open());
    let table = [
        (None, closed, 0, "Waiting, Working"),
        (Some(Waiting), closed, 99, "Waiting, Working"),
        (Some(Waiting), closed, 100, "Failed, Failed, lets go"),
        // The decision only records the intent. Nothing is sent before it is stored.
        (Some(Waiting), open, 9, "Writing, Working"),
        // There is no way back, however late it is and even if the door is closed.
        (Some(Writing), open, 9, "Writing, Working, sends"),
        (Some(Writing), closed, 999, "Writing, Working, sends"),
        // A failure does not show whether the book has the line, and an expired reply proves nothing.
        (Some(Writing), &failed, 9, "Writing, Working, sends"),
        (Some(Writing), &expired, 9, "Writing, Working, sends"),
        (
            Some(Writing),
            &written,
            9,
            "Succeeded, Succeeded, sends, lets go",
        ),
        (Some(Succeeded), closed, 9, "Succeeded, Succeeded, lets go"),
    ];
    for (stored, world, now, wanted) in table {
        let decided = decided(stored, world, now);
        assert_eq!(decided, wanted, "{stored:?} {world:?} {now}");
    }
}
// ANCHOR_END: table

#[test]
fn the_line_is_sent_under_the_intent_that_is_stored() {
    let mut greeting = greeting(Some(GreetingPhase::Waiting));
    let world = open();
    let decision = decide(&input(&greeting, &world, 9));
    assert!(decision.status.has_intent(UID));
    assert!(decision.status.has_children(), "the finalizer comes first");
    greeting.status = Some(GreetingStatus {
        phase: Some(decision.phase),
        ..decision.status
    });
    // Also if the user changes the text: the same key always has the same line.
    greeting.spec.line = "other".to_owned();
    let (_, sent) = requests(&greeting, None);
    assert_eq!(sent, Some(line("hello")));
    assert_eq!(sent.unwrap().required_intent(), Some(UID));
    let world = book(Ok(7), true);
    let confirmed = decide(&input(&greeting, &world, 10));
    assert_eq!(confirmed.status.page, Some(7));
}

#[test]
fn a_signed_line_waits_for_the_log() {
    let mut signed = greeting(Some(GreetingPhase::Waiting));
    signed.spec.guest = Some("ada".to_owned());
    let log = |response, is_fresh| World {
        log: reply(response, is_fresh),
        ..open()
    };
    let text = |text: &str| Ok(text.to_owned());
    let no_reply = "Waiting for the log of Pod 'ada', which must run: no reply yet.";
    for (world, now, wanted) in [
        (closed(), 9, "Waiting for ConfigMap 'front'; create it."),
        (open(), 9, no_reply),
        (log(text("Ada\n"), false), 9, no_reply),
        (
            log(Err(away()), true),
            9,
            "Waiting for the log of Pod 'ada', which must run: away.",
        ),
        (
            log(Err(away()), true),
            100,
            "Gave up. Waiting for the log of Pod 'ada', which must run: away.",
        ),
    ] {
        let decision = decide(&input(&signed, &world, now));
        assert_eq!(decision.verdict.message, wanted);
        assert_eq!(decision.status.intent, None, "{wanted}");
        // The engine adds the deadline. A wait for a reply needs more.
        let awaits_reply = world.is_open && now < 100;
        assert_eq!(decision.requeue_at.is_some(), awaits_reply, "{wanted}");
    }
    let world = log(text("Ada\n"), true);
    let decision = decide(&input(&signed, &world, 9));
    assert_eq!(decision.status.intent, Some(line("hello Ada")));
}

#[test]
fn the_log_is_read_only_while_the_greeting_waits() {
    use GreetingPhase::{Failed, Succeeded, Waiting, Writing};
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "ada", "namespace": "n", "uid": "uid-ada" },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "guest" }] },
    }))
    .unwrap();
    let reads = |phase| requests(&greeting(phase), Some(&pod)).0.is_some();
    assert!(reads(None) && reads(Some(Waiting)));
    assert!(!reads(Some(Writing)) && !reads(Some(Succeeded)) && !reads(Some(Failed)));
}

#[test]
fn a_door_that_opens_slowly_is_waited_for() {
    use GreetingPhase::{Failed, Waiting};
    let mut greeting = greeting(None);
    let mut pass = |opening: Option<&str>, now: u64| {
        let world = World {
            opening: opening.map(str::to_owned),
            ..closed()
        };
        let known = greeting.status.clone().unwrap_or_default();
        let phase_input = phase_input(&greeting, &world);
        let decision = decide(&input(&greeting, &world, now));
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
