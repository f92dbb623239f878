//! Reads the Jobs and Pods of a NotebookValidationJob, and the objects that limit them.

use api::names;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{LimitRange, Namespace, Pod, ResourceQuota},
};
use kube::api::ListParams;

use super::{Reader, leases};
use crate::world::World;

pub(super) async fn around(reader: &Reader, world: &mut World, operator: Option<&str>) {
    let Some(job) = &world.notebook else { return };
    let labels = format!("{}={}", names::UID, job.meta.uid);
    let of_job = || ListParams::default().labels(&labels);
    let all = ListParams::default;
    let (jobs, pods, quotas, ranges, namespace, leases) = tokio::join!(
        reader.list(reader.here::<Job>(), of_job()),
        reader.list(reader.here::<Pod>(), of_job()),
        reader.list(reader.here::<ResourceQuota>(), all()),
        reader.list(reader.here::<LimitRange>(), all()),
        reader.get(reader.all::<Namespace>(), &reader.namespace),
        leases(reader, operator, world.operator_row()),
    );
    if let Some(jobs) = world.keep_list("Jobs", jobs) {
        world.jobs = jobs;
    }
    if let Some(pods) = world.keep_list("Pods", pods) {
        world.pods = pods;
    }
    world.keep_limits(quotas, ranges);
    let namespace = world.keep(namespace).flatten();
    world.namespace = namespace.map(|found| (&found).into());
    world.leases = world.keep_list("Leases", leases);
}
