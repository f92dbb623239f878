//! Whether an operator leads, as far as the user may read its Lease, its Deployment and its Pods.

use std::time::Duration;

use actions::{Error, Request};
use api::{Timestamp, kinds::OperatorRow};
use futures::{Stream, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod},
};
use kube::{Api, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use why::{
    leader::{Installation, Leader, judge},
    world::{LeaseView, OperatorView, PodView, WorkloadView},
};

use crate::{
    failure::Failure,
    session::{Server, ask},
    text::{between, clean, span},
};

/// Maximum number of objects in one list. An operator has one Deployment and a few Pods.
const LIMIT: u32 = 100;

/// Interval between two reads while a command waits.
const PERIOD: Duration = Duration::from_secs(10);

/// Lists the Leases of an operator in all namespaces. If that is denied, the function lists them in
/// `namespace`, the value of the flag `-n`.
pub(crate) async fn leases(
    server: &Server,
    operator: &OperatorRow,
    namespace: Option<&str>,
) -> Result<Vec<Lease>, Failure> {
    let which = ListParams::default().fields(&format!("metadata.name={}", operator.lease));
    let list = async |namespace: Option<&str>| {
        let api: Api<Lease> = match namespace {
            Some(namespace) => Api::namespaced(server.client.clone(), namespace),
            None => Api::all(server.client.clone()),
        };
        let request = Request {
            verb: "list",
            kind: "Lease",
            resource: "leases.coordination.k8s.io",
            name: None,
            namespace: namespace.map(str::to_owned),
        };
        let found = ask(request, api.list(&which)).await;
        found.map(|list| list.items)
    };
    match (list(None).await, namespace) {
        (Err(failure), Some(namespace)) if is_denied(&failure) => list(Some(namespace)).await,
        (found, _) => found,
    }
}

fn is_denied(failure: &Failure) -> bool {
    let Failure::Action(error) = failure else {
        return false;
    };
    matches!(**error, Error::Denied(..))
}

/// Reads the Deployment and the Pods of an operator in the namespace of its Lease. Returns `None` if the
/// Deployment cannot be read: then only the Lease counts.
pub(crate) async fn installation(
    server: &Server,
    operator: &OperatorRow,
    namespace: &str,
) -> Option<Installation> {
    let (deployments, pods) = tokio::join!(
        list::<Deployment>(
            server,
            operator,
            namespace,
            "Deployment",
            "deployments.apps"
        ),
        list::<Pod>(server, operator, namespace, "Pod", "pods"),
    );
    let deployments = deployments?.iter().map(WorkloadView::from).collect();
    let pods = pods.map(|pods| pods.iter().map(PodView::from).collect());
    let found = OperatorView { deployments, pods };
    Some(Installation::of(operator.name, namespace, &found))
}

/// Lists objects of an operator by its labels. Returns `None` if they cannot be read completely.
async fn list<K>(
    server: &Server,
    operator: &OperatorRow,
    namespace: &str,
    kind: &'static str,
    resource: &'static str,
) -> Option<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(server.client.clone(), namespace);
    let labels = format!(
        "app.kubernetes.io/name=orchestrator,app.kubernetes.io/component={}",
        operator.name
    );
    let which = ListParams::default().labels(&labels).limit(LIMIT);
    let request = Request {
        verb: "list",
        kind,
        resource,
        name: None,
        namespace: Some(namespace.to_owned()),
    };
    match ask(request, api.list(&which)).await {
        Ok(found) => {
            let next = found.metadata.continue_.as_ref();
            next.is_none_or(String::is_empty).then_some(found.items)
        }
        // Few users may read them. Without them, only the Lease counts.
        Err(_unreadable) => None,
    }
}

/// Whether an operator leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leadership {
    Leads,
    /// No operator leads, for this reason.
    Down(String),
    Unknown,
}

/// Judges the newest Lease of an operator.
fn of_newest(
    operator: &OperatorRow,
    newest: Option<&LeaseView>,
    now: Timestamp,
    installed: Option<&Installation>,
) -> Leadership {
    let Some(lease) = newest else {
        let message = format!("Lease '{}' does not exist", operator.lease);
        return Leadership::Down(message);
    };
    let name = format!("Lease '{}' in namespace '{}'", lease.name, lease.namespace);
    let holder = lease.holder.as_deref().unwrap_or_default();
    let message = match judge(lease, now, installed) {
        Leader::Leads => return Leadership::Leads,
        Leader::Released => format!("nobody holds {name}"),
        Leader::Expired => format!("'{holder}' holds {name} and {}", renewed(lease, now)),
        Leader::Absent(absence) => {
            format!("'{holder}' holds {name}, but {}", absence.describe())
        }
    };
    Leadership::Down(clean(&message))
}

/// Formats `renewed it 45s ago`.
fn renewed(lease: &LeaseView, now: Timestamp) -> String {
    lease.renewed.as_ref().map_or_else(
        || "never renewed it".to_owned(),
        |at| format!("renewed it {} ago", span(between(at.0, now))),
    )
}

/// Reads periodically whether an operator leads.
pub(crate) struct Watcher {
    pub(crate) server: Server,
    pub(crate) operator: &'static OperatorRow,
    pub(crate) now: fn() -> Timestamp,
}

impl Watcher {
    /// Returns the operator and its state, now and every ten seconds. The stream ends if the user may
    /// not read the Lease.
    pub(crate) fn stream(self) -> impl Stream<Item = (&'static OperatorRow, Leadership)> {
        stream::unfold((self, Duration::ZERO), |(watcher, delay)| async move {
            tokio::time::sleep(delay).await;
            let found = watcher.read().await?;
            Some(((watcher.operator, found), (watcher, PERIOD)))
        })
    }

    /// Returns `None` if the user may not read the Lease.
    async fn read(&self) -> Option<Leadership> {
        let Self {
            server,
            operator,
            now,
        } = self;
        // In a single namespace, a missing Lease would be no evidence.
        let found = match leases(server, operator, None).await {
            Ok(found) => found,
            Err(failure) if is_denied(&failure) => return None,
            // The watch of the objects reports such an error.
            Err(_temporary) => return Some(Leadership::Unknown),
        };
        let leases = found.iter().map(LeaseView::from);
        let newest = leases.max_by_key(|lease| lease.renewed.clone());
        let installed = match &newest {
            Some(lease) => installation(server, operator, &lease.namespace).await,
            None => None,
        };
        Some(of_newest(
            operator,
            newest.as_ref(),
            now(),
            installed.as_ref(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use api::tasks::OPERATOR;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_fresh_lease_of_a_process_that_cannot_lead_is_no_leader() {
        let lease = |holder: Option<&str>| LeaseView {
            name: "orchestrator-tasks".to_owned(),
            namespace: "system".to_owned(),
            holder: holder.map(str::to_owned),
            renewed: Some(Time("2026-01-01T00:00:00Z".parse().unwrap())),
            duration_seconds: 15,
            version: None,
        };
        let pod = Some("orchestrator-tasks-6d5f-abcde_1");
        let uninstalled = Installation {
            operator: "tasks".to_owned(),
            ..Installation::default()
        };
        let down = |message: &str| Leadership::Down(message.to_owned());
        let cases = [
            (Some(lease(pod)), "00:00:08Z", None, Leadership::Leads),
            (
                Some(lease(pod)),
                "00:00:08Z",
                Some(&uninstalled),
                down(
                    "'orchestrator-tasks-6d5f-abcde_1' holds Lease 'orchestrator-tasks' in namespace 'system', but its Deployment does not exist",
                ),
            ),
            (
                Some(lease(pod)),
                "00:00:45Z",
                None,
                down(
                    "'orchestrator-tasks-6d5f-abcde_1' holds Lease 'orchestrator-tasks' in namespace 'system' and renewed it 45s ago",
                ),
            ),
            (
                Some(lease(None)),
                "00:00:08Z",
                None,
                down("nobody holds Lease 'orchestrator-tasks' in namespace 'system'"),
            ),
            (
                None,
                "00:00:08Z",
                None,
                down("Lease 'orchestrator-tasks' does not exist"),
            ),
        ];
        for (lease, clock, installed, expected) in cases {
            let now = format!("2026-01-01T{clock}").parse().unwrap();
            let found = of_newest(&OPERATOR, lease.as_ref(), now, installed);
            assert_eq!(found, expected, "{lease:?} at {clock}");
        }
    }
}
