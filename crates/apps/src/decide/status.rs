//! The observations in the status: versions, workloads and volumes.

use api::apps::{MAX_IMAGES, MAX_LISTED, ManagedAppStatus, UnprotectedVolume, Volume, Workload};
use pods::Rollout;

use crate::{
    versions,
    workload::WorkloadView,
    world::{AppWorld, Discovery, Objects},
};

/// Returns the stored status with new observations.
pub(super) fn observed(stored: ManagedAppStatus, world: &AppWorld) -> ManagedAppStatus {
    let nothing = Objects::default();
    let objects = match &world.discovery {
        Discovery::Found(objects) => objects,
        Discovery::Failed(_) => &nothing,
    };
    let release = world.release();
    let kustomization = world.kustomization.present();
    let name = match &world.helm_release {
        Ok(found) => found.as_ref().map(|(name, _)| name.clone()),
        Err(_) => None,
    };
    ManagedAppStatus {
        git: kustomization.and_then(|found| versions::applied(found, release)),
        helm_release: name,
        release: release.and_then(versions::deployed),
        versions_match: release.and_then(versions::is_deployed),
        workload_count: count(objects.members.len() + objects.mounters.len()),
        workloads: workloads(objects),
        volume_count: count(objects.claims.len()),
        volumes: volumes(objects),
        unprotected_volumes: unprotected(objects),
        ..stored
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn workloads(objects: &Objects) -> Vec<Workload> {
    let of_inventory = objects.members.iter().map(|member| Workload {
        kind: member.id.kind.name().to_owned(),
        namespace: member.id.namespace.clone(),
        name: member.id.name.clone(),
        in_inventory: true,
        ..counted(member.live.as_deref())
    });
    let others = objects.mounters.iter().map(|mounter| Workload {
        kind: mounter.kind.clone(),
        namespace: mounter.name.namespace.clone(),
        name: mounter.name.name.clone(),
        in_inventory: false,
        ..counted(mounter.live.as_deref())
    });
    of_inventory.chain(others).take(MAX_LISTED).collect()
}

/// Returns the replicas and the images of a workload, without its name.
fn counted(live: Option<&WorkloadView>) -> Workload {
    let rollout: Option<&Rollout> = live.and_then(|live| live.rollout.as_ref());
    let images = live.into_iter().flat_map(|live| live.images.iter());
    Workload {
        kind: String::new(),
        namespace: String::new(),
        name: String::new(),
        in_inventory: false,
        desired: rollout.map(|rollout| rollout.wanted),
        ready: rollout.map(|rollout| rollout.ready),
        images: images.take(MAX_IMAGES).cloned().collect(),
    }
}

fn volumes(objects: &Objects) -> Vec<Volume> {
    let all = objects.claims.iter().take(MAX_LISTED);
    all.map(|claim| {
        let live = claim.live.as_deref();
        Volume {
            namespace: claim.name.namespace.clone(),
            name: claim.name.name.clone(),
            phase: live.map_or_else(|| "Missing".to_owned(), |live| live.phase.clone()),
            size: live.and_then(|live| live.size.clone()),
            storage_class_name: live.and_then(|live| live.class.clone()),
        }
    })
    .collect()
}

fn unprotected(objects: &Objects) -> Vec<UnprotectedVolume> {
    let members = objects.members.iter();
    let of_members = members.filter_map(|member| member.live.as_deref());
    let mounters = objects.mounters.iter();
    let of_mounters = mounters.filter_map(|mounter| mounter.live.as_deref());
    let all = of_members.chain(of_mounters).flat_map(|live| {
        let id = &live.id;
        let workload = format!("{} {}/{}", id.kind.name(), id.namespace, id.name);
        live.mounts
            .unprotected
            .iter()
            .map(move |(volume, kind)| UnprotectedVolume {
                workload: workload.clone(),
                volume: volume.clone(),
                kind: kind.clone(),
            })
    });
    all.take(MAX_LISTED).collect()
}
