//! What a run shows while the API server rejects its children, and the end of that wait.

use super::*;
use crate::reconcile::slow_effect::REPORT_WRITE_AFTER;

const FAILURE: &str = "Internal error occurred: failed calling webhook \"checks.example\": failed to call webhook: Post \"https://checks.policy.svc:443/jobs?timeout=30s\": ";

/// Returns how long the API server waits for a webhook before it rejects a child of this name, and its message.
pub(super) fn webhook_failure(child: &Value) -> Option<(Duration, String)> {
    let (seconds, cause) = match child.as_str()? {
        "hanging" => (30, "context deadline exceeded"),
        "webhook" => (0, "dial tcp 10.0.3.4:443: connect: connection refused"),
        _ => return None,
    };
    Some((seconds * SECOND, [FAILURE, cause].concat()))
}

fn deadline() -> Timestamp {
    "2030-01-01T00:01:40Z".parse().unwrap()
}

/// Creates a child that is rejected: for lack of permission, or by a webhook.
pub(super) fn decide(input: &Input<'_, Toy, usize>, status: ToyStatus) -> Decision<ToyStatus> {
    if let Some(fault) = input.fault {
        let verdict = Verdict::failed(fault.reason, &fault.message);
        return Decision::status_only(status, ToyPhase::Broken, verdict).remove_finalizer();
    }
    let name = match input.object.spec.act.as_str() {
        "patient" => "forbidden",
        act => act,
    };
    let verdict = Verdict::working(Reason::Progressing, "playing");
    Decision::status_only(status, ToyPhase::Playing, verdict)
        .effects_until(deadline())
        .with(Effect::Ensure(Box::new(child(
            ResourceType::CONFIG_MAP,
            name,
        ))))
}

/// Stops something with an optional effect. If that is rejected, it stops it with another one, which is rejected, too.
pub(super) fn decide_stop(input: &Input<'_, Toy, usize>, status: ToyStatus) -> Decision<ToyStatus> {
    let fault = match input.fault {
        Some(fault) if !input.refused => {
            let verdict = Verdict::failed(fault.reason, &fault.message);
            return Decision::status_only(status, ToyPhase::Broken, verdict).remove_finalizer();
        }
        fault => fault,
    };
    let effect = match (fault, input.object.spec.act.as_str()) {
        (Some(_), _) => Effect::Ensure(Box::new(child(ResourceType::CONFIG_MAP, "forbidden"))),
        (None, "blocked") => {
            let resource = ResourceType::CONFIG_MAP;
            let manifest = child(resource, "webhook");
            Effect::Ensure(Box::new(manifest)).optional()
        }
        (None, _) => Effect::Delete(target("forbidden").optional()),
    };
    let verdict = Verdict::working(Reason::Progressing, "stopping");
    Decision::status_only(status, ToyPhase::Playing, verdict)
        .effects_until(deadline())
        .with(effect)
}

fn main_reason(status: &Value) -> &str {
    let conditions = status["conditions"].as_array().unwrap();
    let main = conditions.iter().find(|one| one["type"] == "Succeeded");
    main.unwrap()["reason"].as_str().unwrap()
}

/// The delays of the class grow to minutes, but the last try is at the deadline.
#[tokio::test(start_paused = true)]
async fn a_rejected_child_is_shown_with_a_deadline_and_is_the_end_at_that_time() {
    let room = room(&["patient"]);
    pass(SECOND).await;
    let first = room.server.statuses("patient").pop().expect("at once");
    assert_eq!(first["deadlineAt"], "2030-01-01T00:01:40Z", "{first}");
    assert_eq!(main_reason(&first), "QuotaExceeded");
    pass(98 * SECOND).await;
    let last = room.server.statuses("patient").pop().unwrap();
    assert_ne!(last["phase"], "Broken", "{last}");
    pass(3 * SECOND / 2).await;
    let last = room.server.statuses("patient").pop().unwrap();
    assert_eq!(last["phase"], "Broken", "{last}");
    assert_eq!(main_reason(&last), "QuotaExceeded");
    room.end().await;
}

/// An optional effect is rejected, and the effect that replaces it, too. The object ends at its deadline nevertheless. A
/// webhook that cannot be called rejects an optional effect as a policy does.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_at_its_deadline_although_both_ways_are_rejected() {
    for act in ["stubborn", "blocked"] {
        let room = room(&[act]);
        pass(98 * SECOND).await;
        let shown = room.server.statuses(act).pop().expect("the rejection");
        assert_ne!(shown["phase"], "Broken", "{act}: {shown}");
        assert_eq!(main_reason(&shown), "QuotaExceeded", "{act}");
        pass(4 * SECOND).await;
        let last = room.server.statuses(act).pop().unwrap();
        assert_eq!(last["phase"], "Broken", "{act}: {last}");
        room.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_down_is_named_at_once() {
    let room = room(&["webhook"]);
    pass(SECOND / 10).await;
    let first = room.server.statuses("webhook").pop().expect("at once");
    assert_eq!(main_reason(&first), "AdmissionDenied");
    let message = first["message"].as_str().unwrap();
    let expected = "the admission webhook 'checks.example' (Service 'checks' in namespace 'policy') cannot be called, so 'create configmaps' of 'webhook' is refused";
    assert!(message.starts_with(expected), "{message}");
    // It is retried soon: the webhook may only restart.
    pass(60 * SECOND).await;
    assert!(room.looks("webhook").len() > 5);
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_shown_while_it_hangs_and_its_webhook_afterwards() {
    let room = room(&["hanging"]);
    pass(REPORT_WRITE_AFTER - SECOND / 10).await;
    assert!(room.server.statuses("hanging").is_empty());
    pass(SECOND / 5).await;
    let first = room.server.statuses("hanging").pop().expect("after 8 s");
    assert_eq!(main_reason(&first), "ApiUnavailable");
    let message = first["message"].as_str().unwrap();
    for part in [
        "'create configmaps' of 'hanging'",
        "8 s",
        "admission webhook",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(first["deadlineAt"], "2030-01-01T00:01:40Z", "{first}");
    let requests = room.server.requests.lock().unwrap().clone();
    let report = requests
        .iter()
        .find(|(_, path, _)| path.ends_with("/status"));
    let (_, _, body) = report.unwrap();
    assert_eq!(
        body["metadata"]["resourceVersion"], "1000",
        "that of the finalizer's response"
    );
    pass(21 * SECOND).await;
    assert_eq!(room.server.statuses("hanging").len(), 1, "once");
    pass(SECOND).await;
    let second = room.server.statuses("hanging").pop().unwrap();
    assert_eq!(main_reason(&second), "AdmissionDenied", "{second}");
    let message = second["message"].as_str().unwrap();
    assert!(message.contains("'checks.example'"), "{message}");
    assert!(message.contains("did not answer in time"), "{message}");
    room.end().await;
}

/// A write may take longer than the Lease. It ends with the Lease, and then nothing is written.
#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_does_not_outlive_the_lease() {
    for lost_at in [4, 12] {
        let room = room(&["hanging"]);
        pass(lost_at * SECOND).await;
        let before = room.server.requests.lock().unwrap().len();
        room.leading.send_replace(None);
        pass(60 * SECOND).await;
        let sent = room.server.sent();
        assert_eq!(sent.len(), before, "{sent:?}");
        room.end().await;
    }
}

/// Each request takes 9 s, so each creation is reported although it succeeds.
#[tokio::test(start_paused = true)]
async fn after_a_slow_write_that_succeeds_the_next_reconciliation_begins_at_once() {
    let room = room(&["many"]);
    *room.server.delay.lock().unwrap() = 9 * SECOND;
    pass(900 * SECOND).await;
    let text = room.metrics.text();
    assert!(text.contains(r#"outcome="Continued"}"#), "{text}");
    let created = room.server.sent();
    let created = created.iter().filter(|sent| *sent == "POST configmaps");
    assert_eq!(created.count(), 30, "each once");
    room.end().await;
}
