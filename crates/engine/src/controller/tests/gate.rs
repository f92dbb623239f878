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
    for _ in 0..150 {
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
    pass(170 * SECOND).await;
    assert_eq!(room.server.statuses("play").len(), written, "not yet");
    pass(20 * SECOND).await;
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
    pass(170 * SECOND).await;
    let written = || {
        let sent = room.server.sent();
        sent.iter().filter(|sent| *sent == "PATCH status").count()
    };
    let before = written();
    pass(20 * SECOND).await;
    let reports = written() - before;
    assert!((100..=200).contains(&reports), "{reports} reports in 20 s");
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
