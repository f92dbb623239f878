//! Reads the installation of Orchestrator: the CRDs, and the Deployments and Pods of the operator.

use api::{kinds, notebooks::NOTEBOOK_VALIDATION_JOB};
use futures::future::join_all;
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

/// Reads the CRDs and the operator's Deployments and Pods. A fresh Lease does not prove that its
/// holder leads.
pub(super) async fn installation(reader: &Reader, world: &mut World, namespace: Option<&str>) {
    crds(reader, world).await;
    // A user without permission for the Leases may not read the Deployments either.
    if world.leases.is_some() {
        operator(reader, world, namespace).await;
    }
}

/// Reads the CRDs of the operator's kinds, that of the target's kind first. If one of them is missing, the operator
/// reconciles no object of any of its kinds.
async fn crds(reader: &Reader, world: &mut World) {
    let kind = match (&world.run, &world.tenant, &world.notebook) {
        (Some(run), _, _) if run.docs.is_some() => "DocsRun",
        (Some(_), _, _) => "TaskRun",
        (None, Some(_), _) => "Tenant",
        (None, None, Some(_)) => NOTEBOOK_VALIDATION_JOB.name(),
        (None, None, None) => world.target.kind.as_str(),
    };
    let Some((own, operator)) = kinds::named(kind).zip(kinds::operator_of(kind)) else {
        return;
    };
    let others = operator.kinds.iter().filter(|row| *row != own);
    let all = std::iter::once(own).chain(others);
    let each = all.map(|row| async move {
        let crds = reader.all::<CustomResourceDefinition>();
        (row, reader.get(crds, row.crd_name).await)
    });
    for (row, read) in join_all(each).await {
        match read {
            Ok(found) => world.crds.push(CrdView::read(row, found.as_ref())),
            // Few users may read CRDs, and a CRD is rarely the cause. The explanation reports it if it matters.
            Err(Unreadable {
                forbidden: true, ..
            }) => world.crds.push(CrdView::forbidden(row)),
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
    // Few users may read them. While the Lease is fresh, that is not worth a note.
    let is_needed = is_down(world);
    let is_noted = |error: &Unreadable| is_needed || !error.forbidden;
    let deployments: Option<Vec<WorkloadView>> = match deployments {
        Err(error) if !is_noted(&error) => None,
        read => world.keep_list("Deployments", read),
    };
    let pods: Option<Vec<PodView>> = match pods {
        Err(error) if !is_noted(&error) => None,
        read => world.keep_list("Pods of the operator", read),
    };
    world.operator = deployments.map(|deployments| OperatorView { deployments, pods });
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
