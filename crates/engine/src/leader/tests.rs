//! Tests of the decisions and the arithmetic of an election.

use std::sync::{Arc, Mutex};

use api::names;
use http::{Method, Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::{api::ObjectMeta, client::Body};

use super::*;

const ME: &str = "pod-a_1";
const OTHER: &str = "pod-b_2";

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn time(second: i64) -> MicroTime {
    MicroTime(Timestamp::from_second(second).unwrap())
}

fn lease(holder: &str, renewed: i64, version: &str) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some("tasks".to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(time(renewed)),
            acquire_time: Some(time(1)),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        }),
    }
}

/// Returns a candidate that observed this Lease at `zero`.
fn state(found: Option<Lease>, zero: Instant) -> ElectionState {
    let mut state = ElectionState::new(ME.to_owned(), LeaseTimings::default(), zero);
    state.on_read(found, zero);
    state
}

#[tokio::test(start_paused = true)]
async fn a_candidate_takes_what_is_free_and_waits_for_what_is_not() {
    let zero = Instant::now();
    let wait = |after| ElectionAction::Wait(zero + seconds(after));
    let other = || Some(lease(OTHER, 1000, "7"));
    // A renewal by a clock that is a year ahead or behind makes no difference.
    let table = [
        ("no Lease", None, 0, ElectionAction::Create),
        (
            "released",
            Some(lease("", 1000, "7")),
            0,
            ElectionAction::Take,
        ),
        (
            "ours, from before",
            Some(lease(ME, 1000, "7")),
            0,
            ElectionAction::Take,
        ),
        ("another's", other(), 0, wait(15)),
        ("another's, almost expired", other(), 14, wait(15)),
        ("another's, expired", other(), 15, ElectionAction::Take),
        (
            "of the far future",
            Some(lease(OTHER, 9_000_000_000, "7")),
            15,
            ElectionAction::Take,
        ),
        ("of the far past", Some(lease(OTHER, 0, "7")), 14, wait(15)),
        (
            "without a spec",
            Some(Lease::default()),
            0,
            ElectionAction::Take,
        ),
    ];
    for (case, found, after, wanted) in table {
        let next = state(found, zero).next(zero + seconds(after));
        assert_eq!(next, wanted, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_holders_own_duration_counts() {
    let zero = Instant::now();
    for (promised, wanted) in [
        (Some(60), 60),
        (Some(2), 2),
        (Some(0), 15),
        (Some(-1), 15),
        (None, 15),
    ] {
        let mut lease = lease(OTHER, 1000, "7");
        lease.spec.get_or_insert_default().lease_duration_seconds = promised;
        let next = state(Some(lease), zero).next(zero);
        assert_eq!(
            next,
            ElectionAction::Wait(zero + seconds(wanted)),
            "{promised:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_change_of_the_record_starts_the_expiry_again() {
    let zero = Instant::now();
    let mut state = state(Some(lease(OTHER, 1000, "7")), zero);
    // Someone added a label: another version, the same record.
    state.on_event(Some(lease(OTHER, 1000, "8")), zero + seconds(10));
    assert_eq!(state.next(zero + seconds(15)), ElectionAction::Take);
    let claim = state.claim(time(2000));
    assert_eq!(
        claim.metadata.resource_version.as_deref(),
        Some("8"),
        "or the write would fail"
    );
    state.on_event(Some(lease(OTHER, 1005, "9")), zero + seconds(10));
    assert_eq!(
        state.next(zero + seconds(15)),
        ElectionAction::Wait(zero + seconds(25))
    );
}

#[tokio::test(start_paused = true)]
async fn a_holder_renews_in_time_and_gives_up_in_time() {
    let zero = Instant::now();
    let wait = |after| ElectionAction::Wait(zero + seconds(after));
    let given_up = || ElectionAction::StepDown("it could not be renewed for 10s".to_owned());
    let mine = || Some(lease(ME, 1000, "7"));
    let table = [
        ("fresh", mine(), 0, 0, wait(5)),
        ("due", mine(), 5, 0, ElectionAction::Renew),
        ("due, after a failure", mine(), 8, 9, wait(9)),
        (
            "a pause never outlasts the giving up",
            mine(),
            8,
            30,
            wait(10),
        ),
        ("too late", mine(), 10, 0, given_up()),
        ("much too late, after a freeze", mine(), 100, 0, given_up()),
        (
            "stolen",
            Some(lease(OTHER, 1000, "8")),
            1,
            0,
            ElectionAction::StepDown(format!("it was acquired by '{OTHER}'")),
        ),
        (
            "released by hand",
            Some(lease("", 1000, "8")),
            1,
            0,
            ElectionAction::StepDown("its holder was removed".to_owned()),
        ),
        (
            "deleted",
            None,
            1,
            0,
            ElectionAction::StepDown("it was deleted".to_owned()),
        ),
    ];
    for (case, found, after, pause, wanted) in table {
        let mut state = state(found, zero);
        state.held = Some(zero);
        state.not_before = zero + seconds(pause);
        assert_eq!(state.next(zero + seconds(after)), wanted, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_does_not_believe_the_watch_but_looks() {
    let zero = Instant::now();
    let mut state = state(Some(lease(ME, 1000, "7")), zero);
    state.held = Some(zero);
    // The watch event of our own write, older than our knowledge.
    state.on_event(Some(lease(ME, 990, "6")), zero);
    assert_eq!(
        state.claim(time(0)).metadata.resource_version.as_deref(),
        Some("7")
    );
    for news in [
        Some(lease(OTHER, 980, "5")),
        Some(lease("", 980, "5")),
        None,
    ] {
        state.on_event(news, zero);
        assert_eq!(state.next(zero), ElectionAction::Read);
        state.on_read(Some(lease(ME, 1000, "7")), zero);
        assert_eq!(state.next(zero), ElectionAction::Wait(zero + seconds(5)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_counts_transitions_and_keeps_what_others_wrote() {
    let zero = Instant::now();
    let spec = |lease: Lease| lease.spec.unwrap_or_default();

    let first = spec(state(None, zero).claim(time(7)));
    assert_eq!(first.holder_identity.as_deref(), Some(ME));
    assert_eq!(
        (first.lease_transitions, first.lease_duration_seconds),
        (Some(0), Some(15))
    );
    assert_eq!(
        (first.acquire_time, first.renew_time),
        (Some(time(7)), Some(time(7)))
    );

    for holder in [OTHER, ""] {
        let mut found = lease(holder, 1, "7");
        found.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        let other = [(names::VERSION.to_owned(), "0.0.0".to_owned())].into();
        found.metadata.annotations = Some(other);
        let claim = state(Some(found.clone()), zero).claim(time(7));
        assert_eq!(claim.metadata.labels, found.metadata.labels);
        assert_eq!(
            claim.metadata.resource_version,
            found.metadata.resource_version
        );
        let version = claim.metadata.annotations.clone().unwrap_or_default();
        assert_eq!(
            version.get(names::VERSION).map(String::as_str),
            Some(env!("CARGO_PKG_VERSION")),
            "the version of the leader, not of the one before it"
        );
        let taken = spec(claim);
        assert_eq!(
            (taken.lease_transitions, taken.acquire_time),
            (Some(5), Some(time(7)))
        );
    }

    let renewed = spec(state(Some(lease(ME, 1, "7")), zero).claim(time(7)));
    assert_eq!(
        (renewed.lease_transitions, renewed.acquire_time),
        (Some(4), Some(time(1)))
    );
    assert_eq!(renewed.renew_time, Some(time(7)));
}

#[tokio::test(start_paused = true)]
async fn only_what_is_ours_is_surrendered() {
    let zero = Instant::now();
    for found in [None, Some(lease(OTHER, 1, "7")), Some(lease("", 1, "7"))] {
        assert_eq!(state(found, zero).surrender(time(9)), None);
    }
    let given = state(Some(lease(ME, 1, "7")), zero)
        .surrender(time(9))
        .unwrap();
    assert_eq!(given.metadata.resource_version.as_deref(), Some("7"));
    let spec = given.spec.unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some(""), Some(4))
    );
}

#[test]
fn times_keep_two_from_leading_at_once() {
    let of = |lease, renew| {
        LeaseTimings::new(Duration::from_millis(lease), Duration::from_millis(renew))
    };
    assert_eq!(of(15_000, 5_000).unwrap(), LeaseTimings::default());
    let default = LeaseTimings::default();
    assert_eq!(
        (default.give_up, default.request),
        (seconds(10), seconds(3))
    );
    for (lease, renew) in [
        (15_000, 5_000),
        (1_000, 100),
        (3_600_000, 1_200_000),
        (60_000, 1_000),
    ] {
        let times = of(lease, renew).unwrap();
        assert!(
            times.give_up < times.lease && times.request <= seconds(4),
            "{times:?}"
        );
        assert!(
            times.renew + times.request + times.retry < times.give_up,
            "no second try: {times:?}"
        );
    }
    for (lease, renew) in [
        (15_000, 5_001),
        (0, 0),
        (1_500, 500),
        (15_000, 0),
        (3_601_000, 5_000),
    ] {
        assert!(of(lease, renew).is_err(), "{lease} {renew}");
    }
}

/// Returns a server that has one Lease, responds after `takes`, and never sends a watch event.
fn server(takes: Duration) -> Client {
    let stored: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let stored = Arc::clone(&stored);
        async move {
            let is_read = request.method() == Method::GET;
            if is_read && request.uri().path().ends_with("/leases") {
                return pending().await;
            }
            tokio::time::sleep(takes).await;
            let body = request.into_body().collect_bytes().await?;
            let mut stored = stored.lock().unwrap();
            if !is_read {
                *stored = Some(body.to_vec());
            }
            let none = br#"{"kind": "Status", "code": 404, "reason": "NotFound"}"#;
            let (code, answer) = match &*stored {
                Some(lease) => (200, lease.clone()),
                None => (404, none.to_vec()),
            };
            let response = Response::builder().status(code).body(Body::from(answer));
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_frozen_leader_does_not_lead_before_its_timers_run() {
    let takes = Duration::from_millis(400);
    let config = ElectionConfig {
        namespace: "n".to_owned(),
        name: "tasks".to_owned(),
        identity: ME.to_owned(),
        durations: LeaseTimings::default(),
    };
    let leader = Leader::new(
        server(takes),
        config,
        Clock::fake(Timestamp::UNIX_EPOCH),
        Metrics::default(),
        Health::default(),
    );
    let mut status = leader.status();
    let (stop, shutdown) = Shutdown::pair();
    let mut running = pin!(leader.run(shutdown));
    // The election runs only while it is polled here; otherwise it is frozen. Returns whether a
    // change arrived in time.
    macro_rules! run_for {
        ($time:expr) => {
            tokio::select! {
                _ = &mut running => panic!("ended"),
                changed = status.changed() => changed.is_ok(),
                () = tokio::time::sleep($time) => false,
            }
        };
    }
    let begin = Instant::now();
    assert!(run_for!(seconds(10)) && status.is_leader());
    let until = begin + takes + seconds(10);
    assert_eq!(
        status.0.borrow().map(|lease| lease.until),
        Some(until),
        "from before the create was sent; it took {takes:?}, as the look before it"
    );
    // 62 s is not a multiple of 5 s. Otherwise a renewal would be in flight at the freeze, and the
    // leader would find its response.
    assert!(!run_for!(seconds(62)), "a renewal is no news");
    assert!(status.is_leader());

    let until = status.0.borrow().unwrap().until;
    assert!(until > Instant::now() + seconds(4), "it was renewed");
    let moment = Duration::from_millis(1);
    tokio::time::advance(until - Instant::now() - moment).await;
    assert!(status.is_leader());
    tokio::time::advance(moment).await;
    assert!(!status.is_leader(), "its time is over");
    assert!(!status.0.has_changed().unwrap(), "it was not told");

    assert!(
        run_for!(seconds(1)) && !status.is_leader(),
        "it has noticed"
    );
    assert_eq!(*status.0.borrow(), None);
    assert!(run_for!(seconds(1)) && status.is_leader(), "nobody took it");
    stop.pull();
    running.await.unwrap();
    assert!(!status.is_leader());
}
