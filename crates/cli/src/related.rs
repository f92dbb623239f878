//! Objects that belong to a run: its children, and the Events of all of them. They are found by
//! UID, never by name.

use std::collections::BTreeSet;

use actions::{Object, Request};
use api::names;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        batch::v1::Job,
        core::v1::{ConfigMap, Event, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) mod tenant;

use crate::{
    failure::Failure,
    session::{Server, ask},
    view::event_time,
};

/// Maximum number of children of one kind that we list. A run has two children per attempt and
/// disruption; more than this are not shown at once.
const CHILDREN: u32 = 200;

/// Maximum number of UIDs for which we read Events: the run, its children, and the last Pods of its
/// history.
const SUBJECTS: usize = 50;

/// Maximum number of Events of one object. The server keeps Events for an hour and counts
/// repetitions.
const EVENTS_LIMIT: u32 = 200;

/// The existing children of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Children {
    /// Only the metadata, because the contents may be large.
    pub(crate) config_maps: Vec<ObjectMeta>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) pods: Vec<Pod>,
}

impl Children {
    pub(crate) fn is_empty(&self) -> bool {
        self.config_maps.is_empty() && self.jobs.is_empty() && self.pods.is_empty()
    }
}

pub(crate) async fn children(server: &Server, run: &Object) -> Result<Children, Failure> {
    let mut jobs = list::<Job>(server, &selected(run), "Job", "jobs.batch").await?;
    let mut pods = pods(server, run).await?;
    let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), &server.namespace);
    let request = request("ConfigMap", "configmaps", server);
    let maps = ask(request, maps.list_metadata(&selected(run))).await?;
    let mut config_maps: Vec<ObjectMeta> = maps.items.into_iter().map(|map| map.metadata).collect();
    jobs.sort_by_key(|job| order(&job.metadata));
    pods.sort_by_key(|pod| order(&pod.metadata));
    config_maps.sort_by_key(order);
    Ok(Children {
        config_maps,
        jobs,
        pods,
    })
}

/// Lists the existing Pods of a run.
pub(crate) async fn pods(server: &Server, run: &Object) -> Result<Vec<Pod>, Failure> {
    list::<Pod>(server, &selected(run), "Pod", "pods").await
}

async fn list<K>(
    server: &Server,
    which: &ListParams,
    kind: &'static str,
    resource: &'static str,
) -> Result<Vec<K>, Failure>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(server.client.clone(), &server.namespace);
    let request = request(kind, resource, server);
    Ok(ask(request, api.list(which)).await?.items)
}

fn selected(run: &Object) -> ListParams {
    let uid = run.metadata.uid.as_deref().unwrap_or_default();
    ListParams::default()
        .labels(&format!("{}={uid}", names::UID))
        .limit(CHILDREN)
}

fn request(kind: &'static str, resource: &'static str, server: &Server) -> Request {
    Request {
        verb: "list",
        kind,
        resource,
        name: None,
        namespace: Some(server.namespace.clone()),
    }
}

fn order(meta: &ObjectMeta) -> (Option<api::Timestamp>, String) {
    let created = meta.creation_timestamp.as_ref().map(|time| time.0);
    (created, meta.name.clone().unwrap_or_default())
}

/// Returns the Events of a run and of its children, oldest first.
pub(crate) async fn events(
    server: &Server,
    run: &Object,
    children: &Children,
) -> Result<Vec<Event>, Failure> {
    let mut events = events_of(server, &subjects(run, children)).await?;
    events.sort_by_key(event_order);
    Ok(events)
}

/// Reads the Events of objects by their UIDs, in the namespace of the server.
async fn events_of(server: &Server, uids: &BTreeSet<String>) -> Result<Vec<Event>, Failure> {
    let api: Api<Event> = Api::namespaced(server.client.clone(), &server.namespace);
    let mut events = Vec::new();
    for uid in uids.iter().take(SUBJECTS) {
        let which = ListParams::default()
            .fields(&format!("involvedObject.uid={uid}"))
            .limit(EVENTS_LIMIT);
        let request = request("Event", "events", server);
        events.extend(ask(request, api.list(&which)).await?.items);
    }
    Ok(events)
}

/// Returns the order of an Event: its second, and within a second the order of the writes.
///
/// The scheduler writes fractions of a second and the kubelet does not. By the exact time, `Pulled`
/// would precede `Scheduled`.
fn event_order(event: &Event) -> (Option<i64>, u64, Option<String>) {
    let second = event_time(event).map(|time| time.as_second());
    let version = event.metadata.resource_version.as_deref();
    // Versions of one resource are ordered. One that is no number is taken for the first.
    let version = version.map_or(0, |version| version.parse().unwrap_or_default());
    (second, version, event.metadata.name.clone())
}

/// Returns the UIDs of the objects for which we read Events. They include deleted Pods if the
/// status contains their UIDs.
fn subjects(run: &Object, children: &Children) -> BTreeSet<String> {
    let metas = [&run.metadata]
        .into_iter()
        .chain(&children.config_maps)
        .chain(children.jobs.iter().map(|job| &job.metadata))
        .chain(children.pods.iter().map(|pod| &pod.metadata));
    let mut uids: BTreeSet<String> = metas.filter_map(|meta| meta.uid.clone()).collect();
    let status = &run.data["status"];
    let history = status["history"].as_array().into_iter();
    let results = history.flat_map(|all| all.iter().map(|version| &version["result"]));
    let ended = results.chain([&status["result"]]).map(|one| &one["podUID"]);
    let recorded = ended
        .chain([&status["pod"]["uid"]])
        .filter_map(Value::as_str);
    uids.extend(recorded.map(str::to_owned));
    uids
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::tests::a_run;

    #[test]
    fn events_of_one_second_are_in_the_order_of_their_writes() {
        let event = |reason: &str, version: &str, time: serde_json::Value| -> Event {
            let mut event = json!({ "metadata": { "name": reason, "resourceVersion": version },
                "involvedObject": {}, "reason": reason });
            event
                .as_object_mut()
                .unwrap()
                .extend(time.as_object().unwrap().clone());
            serde_json::from_value(event).unwrap()
        };
        let kubelet =
            |second: &str| json!({ "lastTimestamp": format!("2026-01-01T00:00:{second}Z") });
        let scheduler = json!({ "eventTime": "2026-01-01T00:00:07.900000Z" });
        let mut events = [
            event("Started", "1002", kubelet("08")),
            event("Created", "999", kubelet("07")),
            event("Pulled", "998", kubelet("07")),
            event("Scheduled", "97", scheduler),
            event("SuccessfulCreate", "1200", kubelet("06")),
        ];
        events.sort_by_key(event_order);
        let order: Vec<_> = events
            .iter()
            .filter_map(|event| event.reason.as_deref())
            .collect();
        assert_eq!(
            order,
            [
                "SuccessfulCreate",
                "Scheduled",
                "Pulled",
                "Created",
                "Started"
            ]
        );
    }

    #[test]
    fn events_of_pods_that_are_gone_are_found_by_the_status() {
        let run = a_run(
            &json!({}),
            &json!({
                "pod": { "name": "p", "uid": "u-pod" },
                "result": { "podUID": "u-last" },
                "history": [{ "contextVersion": 1, "phase": "Failed", "reason": "X", "attempts": 1,
                    "finishedAt": "2026-01-01T00:00:00Z", "result": { "podUID": "u-old" } }],
            }),
        );
        let found = subjects(&run, &Children::default());
        let wanted = ["u-1", "u-last", "u-old", "u-pod"].map(str::to_owned);
        assert_eq!(found, BTreeSet::from(wanted));
    }
}
