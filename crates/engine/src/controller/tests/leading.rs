//! Without the Lease, a controller does nothing.

use super::*;

#[tokio::test(start_paused = true)]
async fn nothing_is_written_without_the_lease_and_everything_is_looked_at_with_it() {
    let room = room(&["play"]);
    room.leading.send_replace(None);
    put(&room.objects, "play", 5, 2, None);
    pass(60 * SECOND).await;
    assert!(room.server.requests.lock().unwrap().is_empty());
    room.leading.send_replace(later(DAY));
    pass(SECOND).await;
    assert_eq!(room.server.statuses("play").len(), 1);
    room.end().await;
}

/// As after a freeze: the Lease has expired, and the election has not noticed it yet.
#[tokio::test(start_paused = true)]
async fn nothing_is_begun_when_the_time_is_over_though_nobody_said_so() {
    let room = room(&[]);
    pass(SECOND).await;
    room.leading.send_replace(later(2 * SECOND));
    pass(2 * SECOND).await;
    put(&room.objects, "play", 5, 2, None);
    pass(60 * SECOND).await;
    assert!(room.looks("play").is_empty());
    assert!(room.server.requests.lock().unwrap().is_empty());
    room.leading.send_replace(later(DAY));
    pass(SECOND).await;
    assert_eq!(room.server.statuses("play").len(), 1);
    room.end().await;
}

/// Each write of a reconciliation checks the Lease again, because the write before it took time.
#[tokio::test(start_paused = true)]
async fn a_pass_whose_lease_ends_during_a_request_begins_no_other() {
    let requests = |room: &Room| -> Vec<String> {
        let requests = room.server.requests.lock().unwrap();
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        requests.iter().map(|(_, path, _)| last(path)).collect()
    };
    // `play`: the Event, then the status. `refused`: the finalizer, a ConfigMap, an Event, the status.
    for (toy, before) in [("play", vec!["events"]), ("refused", vec!["refused"])] {
        for is_said in [true, false] {
            let room = room(&[]);
            pass(SECOND).await;
            *room.server.delay.lock().unwrap() = 2 * SECOND;
            put(&room.objects, toy, 1, 1, None);
            room.leading.send_replace(later(SECOND));
            pass(SECOND / 2).await;
            assert_eq!(requests(&room), before, "on its way");
            if is_said {
                room.leading.send_replace(None);
            }
            pass(30 * SECOND).await;
            assert_eq!(requests(&room), before, "{toy}, said: {is_said}");
            room.end().await;
        }
    }
}

/// Found by the plan `docs/patch-docsruns.status:work#5=kill-before`: an Agent that appeared between the
/// two halves of the sweep was never reconciled.
#[test]
fn nothing_can_appear_between_the_list_and_the_sweep() {
    let handle = Handle::default();
    handle.0.is_started.store(true, Ordering::SeqCst);
    for name in ["kept", "gone"] {
        handle.enqueue(&Key::new("n", name));
    }
    super::super::worker::sweep(&handle, || {
        assert!(handle.0.queue.try_lock().is_err(), "it may be added to now");
        vec![Key::new("n", "kept")]
    });
    let now = Clock::fake(Timestamp::UNIX_EPOCH).moment();
    assert_eq!(handle.queue().pop(now), Some(Key::new("n", "kept")));
    assert_eq!(handle.queue().pop(now), None);
}

/// The next leader may have fixed the cause of the fault. Without the end of the backoff, events of the object
/// would be ignored for up to five minutes.
#[tokio::test(start_paused = true)]
async fn a_backoff_does_not_outlast_the_lease() {
    for is_noticed in [true, false] {
        let room = room(&["denied"]);
        pass(20 * SECOND).await;
        let before = room.looks("denied").len();
        room.leading.send_replace(None);
        if is_noticed {
            pass(5 * SECOND).await;
        }
        room.leading.send_replace(led_since_500());
        pass(SECOND).await;
        let looks = room.looks("denied").len();
        assert_eq!(looks, before + 1, "noticed: {is_noticed}");
        room.end().await;
    }
}

/// A write without a response at the end of the Lease is dropped, so that the next leader need not wait
/// for it. Here the next leader is the same process, half a second later.
#[tokio::test(start_paused = true)]
async fn a_write_is_given_up_when_the_lease_ends() {
    let room = room(&[]);
    pass(SECOND).await;
    *room.server.delay.lock().unwrap() = 2 * SECOND;
    room.leading.send_replace(later(SECOND));
    put(&room.objects, "refused", 1, 1, None);
    pass(SECOND + SECOND / 4).await;
    let sent = || room.server.requests.lock().unwrap().len();
    assert_eq!(sent(), 1, "it holds the object first");
    room.leading.send_replace(later(DAY));
    pass(SECOND / 4).await;
    assert_eq!(sent(), 2, "the first is not waited for");
    room.end().await;
}

/// Returns a Lease that this process acquired at version 500.
fn led_since_500() -> Option<HeldLease> {
    later(DAY).map(|lease| HeldLease {
        acquired_version: 500,
        ..lease
    })
}

/// Found by the plan `handover/watch-tenants=silent-15000`: a new leader whose watch was behind sent an
/// Event for a transition that the old leader had already reported.
#[tokio::test(start_paused = true)]
async fn a_new_leader_sends_no_event_about_an_old_version() {
    // The server's version is 1000. A version of 500 or more was seen while this process led.
    let current = ["GET stale", "POST events", "PATCH status"];
    for (cached, expected) in [
        (1, &current[..]),
        (499, &current),
        (500, &current[1..]),
        (1000, &current[1..]),
    ] {
        let room = room(&[]);
        room.leading.send_replace(led_since_500());
        pass(SECOND).await;
        put(&room.objects, "stale", cached, 1, None);
        pass(SECOND).await;
        let requests = room.server.requests.lock().unwrap().clone();
        assert_eq!(room.server.sent(), expected, "cached {cached}");
        let version = &requests.last().unwrap().2["metadata"]["resourceVersion"];
        let written = if cached < 500 { 1000 } else { cached };
        assert_eq!(version, &json!(written.to_string()), "cached {cached}");
        room.end().await;
    }
}

/// A new leader whose watch is behind may know an undecodable version that someone corrected since.
#[tokio::test(start_paused = true)]
async fn an_object_that_changed_since_is_not_reported_as_undecodable() {
    let reported = ["GET stale", "POST events", "PATCH status"];
    for (version, expected) in [("999", &reported[..1]), ("1000", &reported)] {
        let room = room(&[]);
        pass(SECOND).await;
        let invalid = InvalidObject {
            uid: "uid-stale".to_owned(),
            version: version.to_owned(),
            generation: 1,
            error: "no such field".to_owned(),
        };
        room.objects.on_invalid(&Room::key("stale"), invalid);
        pass(SECOND).await;
        assert_eq!(room.server.sent(), expected, "version {version}");
        room.end().await;
    }
}

/// A new leader whose watch is behind may know the end of a run that was started again since.
#[tokio::test(start_paused = true)]
async fn no_event_reports_an_error_about_an_old_end() {
    let end = |version| {
        let mut status = ToyStatus {
            phase: Some(ToyPhase::Broken),
            ..ToyStatus::default()
        };
        status.progress.observed_generation = 1;
        (version, status)
    };
    for ((version, status), expected) in [
        (end(499), ["DELETE forbidden", "GET over"]),
        (end(500), ["DELETE forbidden", "POST events"]),
    ] {
        let room = room(&[]);
        room.leading.send_replace(led_since_500());
        pass(SECOND).await;
        put(&room.objects, "over", version, 1, Some(status));
        pass(SECOND / 10).await;
        assert_eq!(room.server.sent(), expected, "version {version}");
        room.end().await;
    }
}
