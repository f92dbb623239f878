//! Reads the installation of Orchestrator: the CRDs, and an operator that does not lead.

use api::{
    kinds::{self, KindRow},
    tasks::AGENT,
};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::ListParams, core::NamespaceResourceScope};

use super::{List, Reader, read::Kind};
use crate::{
    explain::is_down,
    world::{CrdView, OperatorView, PodView, Unreadable, WorkloadView, World},
};

/// Reads the CRDs and, if no operator leads, its Deployments and Pods.
pub(super) async fn installation(reader: &Reader, world: &mut World, namespace: Option<&str>) {
    crds(reader, world).await;
    if is_down(world) {
        operator(reader, world, namespace).await;
    }
}

/// Reads the CRD of the target's kind, and of the Agent's if the target is a run.
async fn crds(reader: &Reader, world: &mut World) {
    let kind = match (&world.run, &world.tenant) {
        (Some(run), _) if run.docs.is_some() => "DocsRun",
        (Some(_), _) => "TaskRun",
        (None, Some(_)) => "Tenant",
        (None, None) => world.target.kind.as_str(),
    };
    let agents = world.run.as_ref().map(|_| &AGENT);
    let rows: Vec<&KindRow> = kinds::named(kind).into_iter().chain(agents).collect();
    for row in rows {
        let name = format!("{}.{}", row.resource.plural, row.resource.group);
        let read = reader
            .get(reader.all::<CustomResourceDefinition>(), &name)
            .await;
        match read {
            Ok(found) => world.crds.push(CrdView::read(row, found.as_ref())),
            // Few users may read CRDs, and a CRD is rarely the cause.
            Err(Unreadable {
                forbidden: true, ..
            }) => {}
            Err(what) => world.unreadable.push(what),
        }
    }
}

/// Reads the operator's Deployments and Pods, in its namespace or in all namespaces.
async fn operator(reader: &Reader, world: &mut World, namespace: Option<&str>) {
    let leases = world.leases.iter().flat_map(|all| all.iter());
    let home = leases.max_by_key(|lease| lease.renewed.clone());
    let home = home.map(|lease| lease.namespace.clone());
    let home = home.or_else(|| namespace.map(str::to_owned));
    let component = world.operator_row().name;
    let labels =
        format!("app.kubernetes.io/name=orchestrator,app.kubernetes.io/component={component}");
    let (deployments, pods) = tokio::join!(
        labelled::<Deployment>(reader, home.as_deref(), &labels),
        labelled::<Pod>(reader, home.as_deref(), &labels),
    );
    let deployments: Option<Vec<WorkloadView>> = world.keep_list("Deployments", deployments);
    let pods: Option<Vec<PodView>> = world.keep_list("Pods of the operator", pods);
    world.operator = deployments.map(|deployments| OperatorView {
        deployments,
        pods: pods.unwrap_or_default(),
    });
}

/// Lists objects of the operator. A failure names the operator, because the same kind can be readable
/// in the run's namespace.
async fn labelled<K: Kind + kube::Resource<Scope = NamespaceResourceScope>>(
    reader: &Reader,
    namespace: Option<&str>,
    labels: &str,
) -> List<K> {
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(reader.client.clone(), namespace),
        None => reader.all(),
    };
    let read = reader.list(api, ListParams::default().labels(labels)).await;
    read.map_err(|error| Unreadable {
        what: format!("the operator's {}", error.what),
        ..error
    })
}
