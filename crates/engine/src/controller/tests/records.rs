//! The time of a status write, and the retry of a write that fails.

use super::*;

#[tokio::test(start_paused = true)]
async fn r14_a_record_that_fails_is_counted_and_tried_again() {
    let room = room(&["play"]);
    room.server.refuse.store(true, Ordering::SeqCst);
    pass(20 * SECOND).await;
    let tries = room.server.statuses("play").len();
    assert!(tries > 3, "{tries}");
    assert!(room.metrics.text().contains(r#"class="Transient"}"#));
    room.server.refuse.store(false, Ordering::SeqCst);
    pass(40 * SECOND).await;
    let after = room.server.statuses("play").len();
    pass(300 * SECOND).await;
    assert_eq!(
        room.server.statuses("play").len(),
        after,
        "once it succeeded it is quiet"
    );
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_is_recorded_on_what_the_same_pass_wrote_before() {
    let room = room(&["refused"]);
    pass(SECOND).await;
    let requests = room.server.requests.lock().unwrap().clone();
    let paths: Vec<(&str, &str)> = requests
        .iter()
        .map(|(method, path, _)| (method.as_str(), path.rsplit('/').next().unwrap()))
        .collect();
    assert_eq!(paths[0], ("PATCH", "refused"), "the finalizer: {paths:?}");
    let (_, _, status) = requests
        .iter()
        .find(|(_, path, _)| path.ends_with("/status"))
        .unwrap();
    assert_eq!(
        status["metadata"]["resourceVersion"], "1000",
        "that of the finalizer's answer"
    );
    room.end().await;
}

/// Returns the label of a toy if its action begins with `labeled`.
pub(super) fn labels(toy: &Toy) -> BTreeMap<&'static str, String> {
    let act = toy.spec.act.as_str();
    let is_labeled = act.starts_with("labeled");
    let label = is_labeled.then(|| ("act", act.to_owned()));
    label.into_iter().collect()
}

/// Labels must not cost a write where the finalizer is written, and must not be missing elsewhere.
#[tokio::test(start_paused = true)]
async fn labels_come_with_the_finalizer_or_before_the_first_record() {
    for (toy, wanted) in [
        ("labeled-busy", ["PATCH labeled-busy", "POST configmaps"]),
        ("labeled-blocked", ["PATCH labeled-blocked", "PATCH status"]),
        ("labeled-ended", ["PATCH labeled-ended", "PATCH status"]),
    ] {
        let room = room(&[toy]);
        pass(SECOND).await;
        let requests = room.server.requests.lock().unwrap().clone();
        let path = format!("/toys/{toy}");
        let metadata = requests.iter().filter(|(_, at, _)| at.ends_with(&path));
        let [(_, _, body)] = metadata.collect::<Vec<_>>()[..] else {
            panic!("not one write of the metadata: {requests:?}");
        };
        assert_eq!(body["metadata"]["labels"], json!({ "act": toy }));
        let has_finalizer = body["metadata"]["finalizers"].is_array();
        assert_eq!(has_finalizer, toy == "labeled-busy", "{body}");
        let sent = room.server.sent();
        let mut sent = sent.iter().filter(|sent| !sent.contains("events"));
        for wanted in wanted {
            assert_eq!(sent.next().map(String::as_str), Some(wanted), "{toy}");
        }
        room.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_stays_is_resolved_by_one_live_read() {
    let room = room(&["stale"]);
    pass(10 * SECOND).await;
    let requests = room.server.requests.lock().unwrap().clone();
    let reads = requests
        .iter()
        .filter(|(method, ..)| method == "GET")
        .count();
    assert_eq!(reads, 1, "at the third conflict, not before and not again");
    assert_eq!(
        room.server.statuses("stale").len(),
        4,
        "three were refused, the fourth is written"
    );
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_may_wait_is_written_at_its_time_and_not_before() {
    let room = room(&["unhurried"]);
    pass(9 * SECOND).await;
    room.handle.enqueue(&Room::key("unhurried"));
    pass(SECOND / 2).await;
    assert!(room.looks("unhurried").len() >= 2);
    assert!(room.server.requests.lock().unwrap().is_empty());
    pass(SECOND).await;
    assert_eq!(room.server.statuses("unhurried").len(), 1);
    room.end().await;
}

/// Returns two objects that are rejected, then effects that do not need them, then effects that do.
pub(super) fn bounds() -> Vec<Effect> {
    let apply = |resource: ResourceType, name: &str| child(resource, name).expected_uid("uid");
    let independent = |resource: ResourceType, name: &str| {
        Effect::Apply(Box::new(apply(resource, name).independent()))
    };
    vec![
        independent(ResourceType::CONFIG_MAP, "forbidden"),
        independent(ResourceType::POD, "forbidden"),
        independent(ResourceType::CONFIG_MAP, "closing"),
        Effect::Delete(target("opening")),
        Effect::Apply(Box::new(apply(ResourceType::CONFIG_MAP, "rights"))),
        Effect::Ensure(Box::new(child(ResourceType::CONFIG_MAP, "work"))),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_restricts_is_applied_although_others_are_refused() {
    let room = room(&["bounds"]);
    pass(SECOND).await;
    let requests = room.server.requests.lock().unwrap().clone();
    let has = |method: &str, end: &str| {
        let is_it =
            |(one, path, _): &&(String, String, Value)| one == method && path.ends_with(end);
        requests.iter().any(|request| is_it(&request))
    };
    assert!(has("PATCH", "/configmaps/forbidden") && has("PATCH", "/pods/forbidden"));
    assert!(has("PATCH", "/configmaps/closing"), "{requests:?}");
    assert!(has("DELETE", "/configmaps/opening"), "{requests:?}");
    assert!(!has("PATCH", "/configmaps/rights"), "{requests:?}");
    assert!(!has("POST", "/configmaps"), "{requests:?}");
    let status = room.server.statuses("bounds").pop().unwrap();
    assert!(
        status["message"].to_string().contains("exceeded quota"),
        "{status}"
    );
    room.end().await;
}

/// Returns the creations of 30 children, without those of the first ones, which exist.
pub(super) fn missing_children(existing: usize) -> Vec<Effect> {
    let create = |number: usize| {
        let name = format!("child-{number}");
        Effect::Ensure(Box::new(child(ResourceType::CONFIG_MAP, &name)))
    };
    (existing..30).map(create).collect()
}

/// Each request takes 2.5 s, so all of them need longer than a reconciliation.
#[tokio::test(start_paused = true)]
async fn more_work_than_fits_into_one_reconciliation_continues_in_the_next() {
    let room = room(&["many"]);
    *room.server.delay.lock().unwrap() = 5 * SECOND / 2;
    pass(70 * SECOND).await;
    assert_eq!(room.looks("many").len(), 3, "one at 0, 30 and 60 s");
    let is_reported = |sent: &String| sent == "POST events" || sent == "PATCH status";
    assert!(!room.server.sent().iter().any(is_reported));
    pass(30 * SECOND).await;
    let sent = room.server.sent();
    let created = sent.iter().filter(|sent| *sent == "POST configmaps");
    assert_eq!(created.count(), 30, "each once");
    let statuses = room.server.statuses("many");
    assert_eq!(statuses.len(), 1, "{statuses:?}");
    assert_eq!(statuses[0]["message"], "playing");
    let text = room.metrics.text();
    assert!(!text.contains("reconcile_errors_total{"), "{text}");
    assert!(text.contains(r#"outcome="Continued"} 2"#), "{text}");
    room.end().await;
}

/// Each request takes 8 s: the finalizer, two rejected objects and one that is applied.
#[tokio::test(start_paused = true)]
async fn a_rejection_is_reported_when_the_time_is_over() {
    let room = room(&["bounds"]);
    *room.server.delay.lock().unwrap() = 8 * SECOND;
    pass(40 * SECOND).await;
    let sent = room.server.sent();
    assert!(sent.contains(&"PATCH closing".to_owned()), "{sent:?}");
    assert!(!sent.contains(&"DELETE opening".to_owned()), "{sent:?}");
    let status = room
        .server
        .statuses("bounds")
        .pop()
        .expect("it is reported");
    let message = status["message"].to_string();
    assert!(message.contains("exceeded quota"), "{status}");
    room.end().await;
}

/// Returns patches whose results no cache receives, and a creation.
pub(super) fn scales_first() -> Vec<Effect> {
    let scale = || Effect::Patch {
        target: target("scaled"),
        subresource: Some("scale"),
        patch: json!({ "spec": { "replicas": 0 } }),
    };
    let create = Effect::Ensure(Box::new(child(ResourceType::CONFIG_MAP, "after")));
    vec![scale(), scale(), scale(), create]
}

/// Each request takes 8 s: the finalizer and three patches. The next reconciliation would repeat the patches, and end in
/// the same place.
#[tokio::test(start_paused = true)]
async fn a_patch_of_a_subresource_is_no_progress_that_the_next_reconciliation_builds_on() {
    let room = room(&["scales"]);
    *room.server.delay.lock().unwrap() = 8 * SECOND;
    pass(RECONCILE_TIMEOUT - 20 * SECOND).await;
    assert_eq!(room.looks("scales").len(), 1);
    let sent = room.server.sent();
    assert!(sent.contains(&"POST configmaps".to_owned()), "{sent:?}");
    room.end().await;
}
