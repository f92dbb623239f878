//! Workloads and volumes of a namespace, as the API server has them.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use api::apps::{ManagedAppStatus, Volume, Workload};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    batch::v1::CronJob,
    core::v1::{PersistentVolumeClaim, PodSpec},
};
use kube::api::{ListParams, ObjectMeta};
use testkit::{suite::Env, wait::until};

use super::fixture::{Bench, FRESH};

/// Waits until the status of a ManagedApp lists all workloads and volumes of the namespace, as the cluster has them.
/// These are `wanted` workloads, and each claim is bound.
pub(super) async fn equals(
    bench: &Bench,
    name: &str,
    wanted: &[(&str, &str)],
) -> Result<ManagedAppStatus> {
    let status = until("the status to equal the cluster", FRESH, async || {
        let (workloads, volumes) = (workloads(&bench.env).await?, volumes(&bench.env).await?);
        let status = bench.status(name).await?;
        let mut listed = status.workloads.clone();
        sort(&mut listed);
        Ok(if listed == workloads && status.volumes == volumes {
            Ok(status)
        } else {
            Err(format!(
                "the status has {listed:?} and {:?}, the cluster {workloads:?} and {volumes:?}",
                status.volumes
            ))
        })
    })
    .await?;
    let (counts, lengths) = (
        (status.workload_count, status.volume_count),
        (status.workloads.len(), status.volumes.len()),
    );
    ensure!(
        (usize::try_from(counts.0)?, usize::try_from(counts.1)?) == lengths,
        "counts {counts:?} of lists with {lengths:?}"
    );
    // Otherwise two empty lists would be equal, too.
    let found: BTreeSet<(&str, &str)> = status
        .workloads
        .iter()
        .map(|one| (one.kind.as_str(), one.name.as_str()))
        .collect();
    let wanted: BTreeSet<(&str, &str)> = wanted.iter().copied().collect();
    ensure!(found == wanted, "workloads {found:?} instead of {wanted:?}");
    let unbound = status.volumes.iter().find(|one| one.phase != "Bound");
    ensure!(unbound.is_none(), "not bound: {unbound:?}");
    Ok(status)
}

fn sort(workloads: &mut [Workload]) {
    workloads.sort_by_key(|one| (one.kind.clone(), one.name.clone()));
}

/// Returns all workloads, sorted by kind and name.
async fn workloads(env: &Env) -> Result<Vec<Workload>> {
    let all = ListParams::default();
    let mut found = Vec::new();
    for one in env.api::<Deployment>().list(&all).await?.items {
        let (spec, status) = (one.spec.unwrap_or_default(), one.status.unwrap_or_default());
        let ready = status.ready_replicas.min(status.available_replicas);
        let counts = (spec.replicas.unwrap_or(1), ready.unwrap_or(0));
        let pod = spec.template.spec;
        found.push(workload("Deployment", &one.metadata, Some(counts), pod));
    }
    for one in env.api::<StatefulSet>().list(&all).await?.items {
        let (spec, status) = (one.spec.unwrap_or_default(), one.status.unwrap_or_default());
        let ready = status.ready_replicas.min(status.available_replicas);
        let counts = (spec.replicas.unwrap_or(1), ready.unwrap_or(0));
        let pod = spec.template.spec;
        found.push(workload("StatefulSet", &one.metadata, Some(counts), pod));
    }
    for one in env.api::<DaemonSet>().list(&all).await?.items {
        let (spec, status) = (one.spec.unwrap_or_default(), one.status.unwrap_or_default());
        let ready = status
            .number_ready
            .min(status.number_available.unwrap_or(0));
        let counts = (status.desired_number_scheduled, ready);
        let pod = spec.template.spec;
        found.push(workload("DaemonSet", &one.metadata, Some(counts), pod));
    }
    for one in env.api::<CronJob>().list(&all).await?.items {
        let template = one.spec.unwrap_or_default().job_template.spec;
        let pod = template.and_then(|jobs| jobs.template.spec);
        found.push(workload("CronJob", &one.metadata, None, pod));
    }
    sort(&mut found);
    Ok(found)
}

/// Returns a workload that Flux applies. `counts` are its desired and its ready replicas.
fn workload(
    kind: &str,
    meta: &ObjectMeta,
    counts: Option<(i32, i32)>,
    pod: Option<PodSpec>,
) -> Workload {
    let containers = pod.into_iter().flat_map(|pod| pod.containers);
    let images: BTreeSet<String> = containers.filter_map(|one| one.image).collect();
    Workload {
        kind: kind.to_owned(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        in_inventory: true,
        desired: counts.map(|(desired, _)| desired),
        ready: counts.map(|(_, ready)| ready),
        images: images.into_iter().collect(),
    }
}

/// Returns all claims, sorted by name.
pub(super) async fn volumes(env: &Env) -> Result<Vec<Volume>> {
    let all = ListParams::default();
    let claims = env.api::<PersistentVolumeClaim>().list(&all).await?.items;
    let mut found: Vec<Volume> = claims
        .into_iter()
        .map(|claim| {
            let status = claim.status.unwrap_or_default();
            let capacity = status.capacity.unwrap_or_default();
            Volume {
                namespace: claim.metadata.namespace.unwrap_or_default(),
                name: claim.metadata.name.unwrap_or_default(),
                phase: status.phase.unwrap_or_default(),
                size: capacity.get("storage").map(|size| size.0.clone()),
                storage_class_name: claim.spec.and_then(|spec| spec.storage_class_name),
            }
        })
        .collect();
    found.sort_by_key(|one| one.name.clone());
    Ok(found)
}
