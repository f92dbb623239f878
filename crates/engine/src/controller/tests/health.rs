//! Liveness and readiness follow from the work of the controllers.

use super::*;

/// Lets time pass while the API server responds.
async fn wait(room: &Room, time: Duration) {
    for _ in 0..time.as_secs() {
        room.health.api_answered();
        pass(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn r16_a_controller_that_finishes_nothing_with_work_to_do_fails_liveness() {
    let stuck = ["hang.1", "hang.2", "hang.3", "hang.4"];
    let room = room_with(&stuck, |context| context.limit = 3600 * SECOND);
    room.health.leading(true);
    wait(&room, SECOND).await;
    assert_eq!(room.health.ready(), Ok(()), "the controller has started");
    put(&room.objects, "play", 1, 1, None);
    wait(&room, 299 * SECOND).await;
    assert_eq!(room.health.live(), Ok(()), "not five minutes yet");
    wait(&room, 5 * SECOND).await;
    let why = room.health.live().unwrap_err();
    assert!(why.contains("no reconciliation of Toy finished"), "{why}");
    assert!(why.contains("although 1 key is queued"), "{why}");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn r16_a_controller_that_finishes_keys_is_alive_however_long_its_queue() {
    let toys: Vec<String> = (0..400).map(|number| format!("crowd.{number}")).collect();
    let toys: Vec<&str> = toys.iter().map(String::as_str).collect();
    let room = room_with(&toys, |context| context.concurrency = 1);
    room.health.leading(true);
    wait(&room, 390 * SECOND).await;
    let looks = room.looks("crowd").len();
    assert!((350..400).contains(&looks), "{looks}: the queue is empty");
    assert_eq!(room.health.live(), Ok(()));
    room.end().await;
}
