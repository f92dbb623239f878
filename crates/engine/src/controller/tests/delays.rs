//! The time of the next reconciliation after a fault, also across a restart.

use api::status::Retry;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    super::worker::{RetryState, before_deadlines, retry_to_store},
    *,
};

/// The delays of the key `n/denied` after its 1st, 2nd … fault: the longest in seconds, and the
/// jittered one in milliseconds for the seed 7.
const DELAYS: [(u32, u64); 10] = [
    (5, 4543),
    (10, 765),
    (20, 12_292),
    (40, 37_095),
    (80, 45_328),
    (160, 6762),
    (300, 38_394),
    (300, 136_568),
    (300, 278_371),
    (300, 36_814),
];

#[tokio::test(start_paused = true)]
async fn delays_are_exact_also_under_a_burst_of_events() {
    for burst in [false, true] {
        let room = room(&["denied"]);
        for step in 0..6000_u64 {
            pass(SECOND / 10).await;
            if burst {
                room.handle.enqueue(&Room::key("denied"));
                // The watch delivers our own status write as an event of the object.
                put(&room.objects, "denied", 2 + step, 1, None);
            }
        }
        let looks = room.looks("denied");
        let gaps = looks.windows(2).map(|pair| pair[1] - pair[0]);
        let gaps: Vec<Duration> = gaps.collect();
        assert_eq!(gaps.len(), DELAYS.len(), "{gaps:?}");
        for (gap, (longest, wanted)) in gaps.iter().zip(DELAYS) {
            let wanted = Duration::from_millis(wanted);
            assert!(wanted < longest * SECOND, "{wanted:?} of {longest} s");
            assert!(
                *gap >= wanted && *gap < wanted + SECOND / 50,
                "{gap:?} instead of {wanted:?}"
            );
        }
        room.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_generation_is_looked_at_at_once_and_begins_to_count_again() {
    let room = room(&["denied"]);
    pass(300 * SECOND).await;
    let before = room.looks("denied").len();
    put(&room.objects, "denied", 50, 2, None);
    pass(SECOND / 10).await;
    assert_eq!(room.looks("denied").len(), before + 1);
    let last = room.server.statuses("denied").pop().unwrap();
    assert_eq!(last["observedGeneration"], 2);
    pass(5 * SECOND).await;
    assert!(
        room.looks("denied").len() > before + 1,
        "the second attempt comes within 5 s again"
    );
    room.end().await;
}

#[test]
fn a_fault_that_lasts_is_quiet_once_its_delay_does_not_grow() {
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let fault = ReconcileError::new(ErrorClass::Denied, Reason::QuotaExceeded, "full");
    let mut status = ToyStatus::default();
    let mut writes = Vec::new();
    for attempt in 1..40 {
        let state = RetryState {
            uid: String::new(),
            class: ErrorClass::Denied,
            attempt,
            generation: 1,
            since: now,
            until: Instant::now(),
        };
        let delay = backoff::ceiling(ErrorClass::Denied, attempt);
        let later = now.checked_add(delay).unwrap();
        let retry = retry_to_store(Some(&status), &fault, &state, delay, later);
        if retry != status.progress.retry {
            writes.push(attempt);
        }
        status.progress.retry = retry;
    }
    assert_eq!(
        writes,
        [2, 3, 4, 5, 6, 7],
        "10 s is stored, 300 s is reached at the seventh"
    );
    let last = status.progress.retry.unwrap();
    assert_eq!(
        (last.attempt, last.next_at),
        (7, None),
        "no time in the past"
    );
    assert_eq!(last.every, Some(Duration::from_secs(300).into()));
}

#[tokio::test(start_paused = true)]
async fn a_stored_retry_is_kept_over_a_restart() {
    let room = room(&[]);
    pass(SECOND).await;
    let now: Timestamp = "2030-01-01T00:00:01Z".parse().unwrap();
    let mut status = ToyStatus {
        phase: Some(ToyPhase::Playing),
        ..ToyStatus::default()
    };
    status.progress.observed_generation = 1;
    status.progress.retry = Some(Retry {
        attempt: 4,
        class: "Denied".to_owned(),
        next_at: Some(Time(now.checked_add(30 * SECOND).unwrap())),
        every: None,
    });
    put(&room.objects, "denied", 2, 1, Some(status));
    pass(29 * SECOND).await;
    assert!(room.looks("denied").is_empty(), "not before its time");
    pass(2 * SECOND).await;
    assert_eq!(room.looks("denied").len(), 1);
    let status = room.server.statuses("denied").pop().unwrap();
    assert_eq!(status["retry"]["attempt"], 5, "it counts on: {status}");
    assert!(status["retry"]["nextAt"].is_string(), "{status}");
    room.end().await;
}

/// The longest wait after the first fault of each class, in seconds.
#[tokio::test(start_paused = true)]
async fn r12_after_a_fault_of_any_class_a_key_is_reconciled_again_without_an_event() {
    let longest = [
        ("transient", 1),
        ("conflict", 1),
        ("denied", 5),
        ("invalid", 15),
        ("failed", 10),
        ("panic", 10),
        ("hang", 75 + 10),
    ];
    for (act, seconds) in longest {
        let room = room(&[act]);
        pass(SECOND / 10).await;
        assert!(!room.looks(act).is_empty(), "{act}: not at all");
        pass(SECOND * seconds).await;
        assert!(room.looks(act).len() > 1, "{act}: never again");
        room.end().await;
    }
}

/// Someone set the clock forward, or the machine was suspended for that time.
#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_delays_a_deadline_by_at_most_five_minutes() {
    let room = room(&["deadline"]);
    pass(10 * SECOND).await;
    assert_eq!(room.looks("deadline").len(), 1);
    room.clock.step(2 * 3600);
    pass(300 * SECOND).await;
    assert_eq!(room.looks("deadline").len(), 2);
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_distant_deadline_costs_no_reconciliation_before_it() {
    let room = room(&["deadline"]);
    pass(SECOND).await;
    let sent = room.server.sent();
    pass(3598 * SECOND).await;
    assert_eq!(room.looks("deadline").len(), 1);
    assert_eq!(room.server.sent(), sent, "and no request");
    pass(2 * SECOND).await;
    assert_eq!(room.looks("deadline").len(), 2);
    room.end().await;
}

/// A change of the spec counts the attempts from 1 again, so the stored retry can have the number of the new one.
#[test]
fn a_stored_time_is_replaced_when_it_has_passed() {
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let at = |seconds: u32| now.checked_add(seconds * SECOND).unwrap();
    let fault = ReconcileError::new(ErrorClass::Invalid, Reason::ChildNameTaken, "taken");
    let mut status = ToyStatus::default();
    status.progress.retry = Some(Retry {
        attempt: 1,
        class: "Invalid".to_owned(),
        next_at: Some(Time(at(12))),
        every: None,
    });
    let state = RetryState {
        uid: String::new(),
        class: ErrorClass::Invalid,
        attempt: 1,
        generation: 2,
        since: now,
        until: Instant::now(),
    };
    for (seconds, next) in [(5, 12), (12, 23), (1000, 1011)] {
        let retry = retry_to_store(Some(&status), &fault, &state, 11 * SECOND, at(seconds));
        let next_at = retry.unwrap().next_at;
        assert_eq!(next_at, Some(Time(at(next))), "at {seconds}");
    }
}

/// Another error at the time of a retry is too short to be shown. The stored time must not stay nevertheless.
#[tokio::test(start_paused = true)]
async fn a_retry_that_met_a_short_error_leaves_no_time_in_the_past() {
    let room = room(&[]);
    pass(SECOND).await;
    let now: Timestamp = "2030-01-01T00:00:01Z".parse().unwrap();
    let mut status = ToyStatus {
        phase: Some(ToyPhase::Playing),
        ..ToyStatus::default()
    };
    status.progress.observed_generation = 1;
    status.progress.retry = Some(Retry {
        attempt: 4,
        class: "Denied".to_owned(),
        next_at: Some(Time(now.checked_add(20 * SECOND).unwrap())),
        every: None,
    });
    put(&room.objects, "transient", 2, 1, Some(status));
    pass(19 * SECOND).await;
    assert!(room.server.statuses("transient").is_empty());
    pass(3 * SECOND / 2).await;
    let statuses = room.server.statuses("transient");
    let first = statuses.first().expect("it is written at once");
    assert!(first["retry"].is_null(), "{first}");
    assert!(first.as_object().unwrap().contains_key("retry"), "{first}");
    room.end().await;
}

#[test]
fn a_delay_ends_at_the_first_deadline_that_is_to_come() {
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let at = |seconds: i64| Some(Timestamp::from_second(now.as_second() + seconds).unwrap());
    for (deadlines, seconds) in [
        ([None, None], 100),
        ([at(40), None], 40),
        ([at(40), at(30)], 30),
        ([at(200), at(300)], 100),
        ([at(0), at(-5)], 100),
        ([at(-5), at(7)], 7),
    ] {
        let delay = before_deadlines(100 * SECOND, deadlines, now);
        assert_eq!(delay, seconds * SECOND, "{deadlines:?}");
    }
}
