//! Objects wait for a watch in trouble, and none of them fails.

use super::{logs::logs, *};

const TOYS: usize = 200;

/// Starts a controller with many toys that are reconciled once. Then its watch is interrupted for longer than tolerated.
async fn interrupted_room() -> Room {
    let toys: Vec<String> = (0..TOYS).map(|number| format!("play.{number}")).collect();
    let room = room(&toys.iter().map(String::as_str).collect::<Vec<_>>());
    pass(5 * SECOND).await;
    assert_eq!(room.looks("play").len(), TOYS);
    room.health.watch_health().interrupted(0, "forbidden");
    pass(4 * SECOND).await;
    room
}

/// Queues all toys, as after a change of each.
fn enqueue_all(room: &Room) {
    for key in room.objects.keys() {
        room.handle.enqueue(&key);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_in_trouble_is_one_log_line_and_no_fault_of_an_object() {
    let (log, _guard) = logs("info");
    let room = interrupted_room().await;
    let sent = room.server.sent().len();
    for _ in 0..25 {
        enqueue_all(&room);
        pass(SECOND).await;
    }
    assert_eq!(room.looks("play").len(), TOYS, "nothing is decided");
    assert_eq!(room.server.sent().len(), sent, "and nothing is written");
    let text = room.metrics.text();
    assert!(!text.contains("reconcile_errors_total{"), "{text}");
    let depth = format!(r#"queue_depth{{kind="Toy"}} {TOYS}"#);
    assert!(text.contains(&depth), "{text}");
    let lines = log.lines();
    let waits = |line: &&Value| {
        let message = line["message"].as_str().unwrap_or_default();
        message.starts_with("reconciliations wait")
    };
    let waits: Vec<&Value> = lines.iter().filter(waits).collect();
    assert_eq!(waits.len(), 1, "{waits:?}");
    let line = waits[0];
    assert_eq!(line["level"], "WARN");
    assert_eq!(
        line["message"],
        "reconciliations wait for the watch of toys: forbidden"
    );
    assert!(lines.iter().all(|line| line["class"].is_null()));
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_recovery_no_object_waits_for_a_backoff() {
    for is_relisted in [true, false] {
        let room = interrupted_room().await;
        enqueue_all(&room);
        pass(100 * SECOND).await;
        assert_eq!(room.looks("play").len(), TOYS);
        if is_relisted {
            room.health.watch_health().synced(0);
        } else {
            room.health.watch_health().on_event(0);
        }
        pass(SECOND / 10).await;
        let looks = room.looks("play").len();
        assert_eq!(looks, 2 * TOYS, "relisted: {is_relisted}");
        room.end().await;
    }
}

/// The watch is accepted again, and has nothing to report.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_reopened_without_an_event_ends_the_wait() {
    let room = interrupted_room().await;
    enqueue_all(&room);
    room.health.watch_health().opened(0);
    pass(3 * SECOND).await;
    assert_eq!(room.looks("play").len(), 2 * TOYS);
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_from_a_cache_that_nobody_feeds() {
    let room = room(&["play"]);
    pass(SECOND).await;
    let before = room.looks("play").len();
    room.health.watch_health().interrupted(0, "forbidden");
    pass(3 * SECOND).await;
    put(&room.objects, "play", 5, 2, None);
    let written = room.server.statuses("play").len();
    pass(25 * SECOND).await;
    assert_eq!(room.server.statuses("play").len(), written, "not yet");
    pass(10 * SECOND).await;
    assert_eq!(room.looks("play").len(), before, "not reconciled");
    let status = room.server.statuses("play").pop().expect("it is reported");
    let message = status["message"].as_str().unwrap();
    assert_eq!(message, "the watch of toys: forbidden");
    assert!(status["conditions"].to_string().contains("ApiUnavailable"));
    room.health.watch_health().on_event(0);
    pass(SECOND / 10).await;
    assert!(room.looks("play").len() > before, "and continues at once");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_some_objects_report_a_watch_in_each_second() {
    let room = interrupted_room().await;
    enqueue_all(&room);
    pass(20 * SECOND).await;
    let written = || {
        let sent = room.server.sent();
        sent.iter().filter(|sent| *sent == "PATCH status").count()
    };
    let before = written();
    pass(25 * SECOND).await;
    let reports = written() - before;
    assert!((100..=200).contains(&reports), "{reports} reports in 17 s");
    room.end().await;
}

/// A restart lists everything again, and does not help the control plane.
#[tokio::test(start_paused = true)]
async fn a_watch_in_trouble_is_no_reason_for_a_restart() {
    let room = interrupted_room().await;
    room.health.leading(true);
    enqueue_all(&room);
    for _ in 0..600 {
        room.health.api_answered();
        pass(SECOND).await;
    }
    assert_eq!(room.health.live(), Ok(()));
    room.end().await;
}

/// Starts a controller whose watch has been interrupted for 30 s. A few seconds later, objects report it.
async fn overdue_room() -> Room {
    let room = room(&[]);
    pass(SECOND).await;
    room.health.watch_health().interrupted(0, "forbidden");
    pass(30 * SECOND).await;
    room
}

fn status_of(phase: ToyPhase) -> ToyStatus {
    ToyStatus {
        phase: Some(phase),
        ..ToyStatus::default()
    }
}

#[tokio::test(start_paused = true)]
async fn finished_objects_report_nothing_and_delay_no_report() {
    let room = overdue_room().await;
    for number in 0..300 {
        let name = format!("over.{number}");
        put(
            &room.objects,
            &name,
            1,
            1,
            Some(status_of(ToyPhase::Broken)),
        );
    }
    put(&room.objects, "play", 1, 1, None);
    pass(6 * SECOND).await;
    assert_eq!(room.looks("over").len() + room.looks("play").len(), 0);
    let sent = room.server.sent();
    let written = sent.iter().filter(|sent| *sent == "PATCH status").count();
    assert!(written > 0, "{sent:?}");
    assert_eq!(written, room.server.statuses("play").len(), "of no other");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_blocked_key_of_a_deleted_object_leaves() {
    let room = overdue_room().await;
    put(&room.objects, "play", 1, 1, None);
    room.objects.removed(&Room::key("play"), "uid-play");
    let invalid = InvalidObject {
        uid: "uid-odd".to_owned(),
        version: "1".to_owned(),
        generation: 1,
        error: "no spec".to_owned(),
    };
    room.objects.on_invalid(&Room::key("odd"), invalid);
    pass(10 * SECOND).await;
    assert!(room.server.sent().is_empty());
    room.health.watch_health().on_event(0);
    pass(2 * SECOND).await;
    let text = room.metrics.text();
    assert!(!text.contains(r#"outcome="Skipped""#), "{text}");
    assert!(text.contains(r#"outcome="Failed""#), "the other: {text}");
    room.end().await;
}

/// The watch does not deliver the version that someone else wrote.
#[tokio::test(start_paused = true)]
async fn a_report_with_an_old_version_is_repeated_with_the_current_one() {
    let room = overdue_room().await;
    put(&room.objects, "stale", 1, 1, None);
    pass(10 * SECOND).await;
    let sent = room.server.sent();
    let reads = sent.iter().filter(|sent| *sent == "GET stale").count();
    assert_eq!(reads, 1, "{sent:?}");
    let statuses = room.server.statuses("stale");
    assert!(statuses.len() > 1, "one is rejected: {sent:?}");
    let conditions = statuses[1]["conditions"].to_string();
    assert!(conditions.contains("ApiUnavailable"), "{conditions}");
    assert!(room.looks("stale").is_empty());
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_keeps_the_retry_of_an_earlier_error() {
    let room = overdue_room().await;
    let mut status = status_of(ToyPhase::Playing);
    status.progress.retry = Some(api::status::Retry {
        attempt: 4,
        class: "Denied".to_owned(),
        next_at: None,
        every: Some(Duration::from_mins(5).into()),
    });
    put(&room.objects, "play", 1, 1, Some(status));
    pass(5 * SECOND).await;
    let status = room.server.statuses("play").pop().expect("it is reported");
    assert_eq!(status["message"], "the watch of toys: forbidden");
    // A field that a merge patch does not have stays.
    assert_eq!(status.get("retry"), None, "{status}");
    room.end().await;
}

/// Starts a controller of two namespaces. The watch of one of them has been interrupted for 30 s.
async fn two_namespaces() -> Room {
    let namespaces = ["n", "other"].map(str::to_owned).to_vec();
    let room = room_in(Scope::Namespaces(namespaces), &[], |_| {});
    pass(SECOND).await;
    room.health.watch_health().interrupted(0, "forbidden");
    pass(30 * SECOND).await;
    room
}

/// Puts a toy into the other namespace.
fn put_other(room: &Room, name: &str) {
    let toy = toy("other", name, 1, 1, None);
    room.objects.on_applied(Identity::of(&toy.metadata), toy, 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_namespace_blocks_no_other() {
    let room = two_namespaces().await;
    put(&room.objects, "play", 1, 1, None);
    put_other(&room, "crowd");
    pass(5 * SECOND).await;
    assert_eq!(room.looks("crowd").len(), 1);
    assert!(room.looks("play").is_empty());
    let status = room.server.statuses("play").pop().expect("it is reported");
    assert_eq!(status["message"], "the watch of toys in 'n': forbidden");
    room.health.watch_health().on_event(0);
    pass(SECOND / 10).await;
    assert_eq!(room.looks("play").len(), 1);
    room.end().await;
}

/// The API server does not respond to status writes. The reconciliations of another namespace need none of it.
#[tokio::test(start_paused = true)]
async fn reports_without_a_response_take_no_worker() {
    let room = two_namespaces().await;
    *room.server.delay.lock().unwrap() = 3600 * SECOND;
    for number in 0..50 {
        put(&room.objects, &format!("play.{number}"), 1, 1, None);
    }
    pass(4 * SECOND).await;
    let sent = room.server.sent();
    assert!((1..=8).contains(&sent.len()), "{} requests", sent.len());
    put_other(&room, "crowd");
    pass(SECOND / 10).await;
    assert_eq!(room.looks("crowd").len(), 1);
    room.end().await;
}
