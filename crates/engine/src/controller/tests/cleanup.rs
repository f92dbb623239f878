//! A cleanup that is rejected after the end of an object.

use super::{logs::logs, *};

/// The status of a finished object does not change any more. So the Event, the log and the metric are
/// the only places that show the error.
#[tokio::test(start_paused = true)]
async fn a_clean_up_that_is_rejected_is_shown_by_event_log_and_metric() {
    let (log, _guard) = logs("info");
    let room = room(&[]);
    pass(SECOND).await;
    let mut status = ToyStatus {
        phase: Some(ToyPhase::Broken),
        ..ToyStatus::default()
    };
    status.progress.observed_generation = 1;
    put(&room.objects, "over", 2, 1, Some(status));
    pass(SECOND / 10).await;

    let requests = room.server.requests.lock().unwrap().clone();
    let sent = |method: &str, end: &str| -> Vec<Value> {
        let requests = requests.iter();
        requests
            .filter(|(known, path, _)| known == method && path.ends_with(end))
            .map(|(_, _, body)| body.clone())
            .collect()
    };
    assert_eq!(sent("DELETE", "/configmaps/forbidden").len(), 1);
    assert!(room.server.statuses("over").is_empty(), "T8");
    let message = "the operator lacks the permission for 'delete configmaps' of 'forbidden'";

    let events = sent("POST", "/events");
    assert_eq!(events.len(), 1, "{requests:?}");
    assert_eq!(events[0]["type"], "Warning");
    assert_eq!(events[0]["reason"], "Denied");
    assert_eq!(events[0]["regarding"]["uid"], "uid-over");
    let note = events[0]["note"].as_str().unwrap();
    assert!(note.starts_with(message), "{note}");

    let lines = log.lines();
    let line = lines.iter().find(|line| line["class"] == "Denied");
    let line = line.unwrap_or_else(|| panic!("not logged: {lines:?}"));
    assert_eq!(
        (&line["level"], &line["kind"]),
        (&json!("WARN"), &json!("Toy"))
    );
    assert_eq!(line["object"], "n/over");
    assert!(line["message"].as_str().unwrap().starts_with(message));

    let series = r#"reconcile_errors_total{kind="Toy",class="Denied"} 1"#;
    assert!(room.metrics.text().contains(series));
    pass(6 * SECOND).await;
    assert!(room.looks("over").len() > 1, "it is tried again");
    room.end().await;
}

/// An optional effect that is rejected is shown, and is no error of the object.
#[tokio::test(start_paused = true)]
async fn a_rejected_optional_effect_changes_nothing_but_the_message() {
    let room = room(&["leftover"]);
    pass(SECOND).await;
    let statuses = room.server.statuses("leftover");
    let [status] = statuses.as_slice() else {
        panic!("{statuses:?}")
    };
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("'delete configmaps' of 'forbidden'"),
        "{message}"
    );
    assert_eq!(status["phase"], "Playing");
    assert!(status["retry"].is_null(), "{status}");
    let series = r#"reconcile_errors_total{kind="Toy",class="Denied"} 1"#;
    assert!(room.metrics.text().contains(series));
    room.end().await;
}
