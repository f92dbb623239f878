//! Explanations and Events of objects.

use actions::Object;
use api::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};
use why::gather::{GatherError, Options, TargetKind};

use super::{get, plain, request};
use crate::{
    problem::{Problem, Reason},
    request::Target,
};

/// Maximum number of objects for which Events are read: the run, and its newest Pods.
const SUBJECTS: usize = 12;

/// Maximum number of Events of one object. The API server keeps them for an hour.
const EVENTS: u32 = 200;

/// Explains why an object is as it is.
pub(crate) async fn explain(
    client: &Client,
    now: Timestamp,
    target: &Target,
) -> Result<Value, Problem> {
    // Its errors are those of other requests; the explanation reports all errors as text.
    let object = get(client, target).await?;
    let Target { namespace, name } = target;
    let not_found = || {
        let detail = format!("{} cannot be explained", object.name);
        Problem::new(Reason::NotFound, detail)
    };
    let kind = TargetKind::parse(name.kind.singular).ok_or_else(not_found)?;
    let target = why::gather::Target {
        kind,
        namespace: namespace.clone(),
        name: name.name.clone(),
    };
    let world = why::gather(client.clone(), target, Options::at(now)).await;
    let world = world.map_err(|error| {
        let reason = match &error {
            GatherError::NotFound(_) => Reason::NotFound,
            GatherError::NotInstalled(_) => Reason::Unknown,
            GatherError::Unreadable(unreadable) if unreadable.forbidden => Reason::Denied,
            GatherError::Unreadable(_) => Reason::Unanswered,
        };
        Problem::new(reason, error.to_string())
    })?;
    plain(&why::explain(&world))
}

/// Reads the Events of a run and of its newest Pods, oldest first.
pub(crate) async fn events(
    client: &Client,
    target: &Target,
    run: &Object,
    mut pods: Vec<Pod>,
) -> Result<Value, Problem> {
    let namespace = target.namespace.as_str();
    pods.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref();
        std::cmp::Reverse(created.map(|time| time.0))
    });
    let of_pods = pods.into_iter().filter_map(|pod| pod.metadata.uid);
    let subjects = run.metadata.uid.iter().cloned().chain(of_pods);
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let mut events = Vec::new();
    for uid in subjects.take(SUBJECTS) {
        let which = ListParams::default()
            .fields(&format!("involvedObject.uid={uid}"))
            .limit(EVENTS);
        let request = request("list", "Event", "events", None, namespace);
        let found = api.list(&which).await;
        let found = found.map_err(|error| Problem::of_action(&request.failed(error), namespace))?;
        for event in found.items {
            events.push(event_of(&plain(&event)?));
        }
    }
    events.sort_by(|one, other| one["time"].as_str().cmp(&other["time"].as_str()));
    Ok(json!({ "events": events }))
}

fn event_of(event: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let times = [
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    let time = times.into_iter().find(|time| time.is_string());
    let object = &event["involvedObject"];
    json!({
        "time": time.map(text).unwrap_or_default(),
        "type": text(&event["type"]),
        "reason": text(&event["reason"]),
        "message": text(&event["message"]),
        "count": event["count"].as_i64().unwrap_or(1),
        "object": { "kind": text(&object["kind"]), "name": text(&object["name"]) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_last_time_and_a_count() {
        let event = json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" },
            "lastTimestamp": null, "eventTime": "2026-01-01T00:00:01Z", "reason": "Pulled",
            "involvedObject": { "kind": "Pod", "name": "p" } });
        let found = event_of(&event);
        assert_eq!(found["time"], "2026-01-01T00:00:01Z");
        assert_eq!((&found["count"], &found["type"]), (&json!(1), &json!("")));
        assert_eq!(found["object"], json!({ "kind": "Pod", "name": "p" }));
    }
}
