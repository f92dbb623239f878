//! A busy namespace does not delay the others.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_queued_objects_does_not_delay_another() {
    let toys: Vec<String> = (0..1000).map(|number| format!("crowd.{number}")).collect();
    let room = room(&toys.iter().map(String::as_str).collect::<Vec<_>>());
    pass(20 * SECOND).await;
    let other = toy("other", "play", 1, 1, None);
    let identity = Identity::of(&other.metadata);
    room.objects.on_applied(identity, other, 1);
    pass(2 * SECOND).await;
    assert_eq!(room.looks("play").len(), 1);
    let queued = 1000 - room.looks("crowd").len();
    assert!(queued > 800, "only {queued} objects were queued");
    room.end().await;
}
