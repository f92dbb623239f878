//! The CSI Controller service. Each call reads: check the request, then look at what is, then change it.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use tonic::{Request, Response, Status};

use crate::{
    clock,
    driver::{Driver, Store, to_the_end},
    mounts::Mounts,
    proto::csi::{
        self, ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse,
        ControllerServiceCapability, CreateSnapshotRequest, CreateSnapshotResponse,
        CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
        DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse,
        ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse,
        TopologyRequirement, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
        VolumeContentSource, controller_server,
        controller_service_capability::{self, rpc},
        list_snapshots_response, list_volumes_response, validate_volume_capabilities_response,
        volume_content_source,
    },
    request::{
        SnapshotWish, VolumeWish, check_capabilities, known_form, missing, required, unknown,
    },
    store::{Id, Kind, Snapshot, Source, Volume},
};

#[derive(Debug)]
pub(crate) struct Controller(pub(crate) Arc<Driver>);

#[tonic::async_trait]
impl controller_server::Controller for Controller {
    async fn controller_get_capabilities(
        &self,
        _request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        use rpc::Type;
        let capabilities = [
            Type::CreateDeleteVolume,
            Type::CreateDeleteSnapshot,
            Type::CloneVolume,
            Type::ListVolumes,
            Type::ListSnapshots,
            Type::GetCapacity,
            Type::SingleNodeMultiWriter,
        ]
        .map(|kind| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(
                controller_service_capability::Rpc {
                    r#type: kind.into(),
                },
            )),
        })
        .to_vec();
        Ok(Response::new(ControllerGetCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let wish = VolumeWish::parse(&request)?;
        check_topology(&self.0, request.accessibility_requirements.as_ref())?;
        let volume = to_the_end(&self.0, |driver| async move {
            create_volume(&driver, wish).await
        })
        .await?;
        let volume = shown_volume(&self.0, volume)?;
        Ok(Response::new(CreateVolumeResponse {
            volume: Some(volume),
        }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        // Of an id that this driver never gave there is nothing to delete.
        if let Some(id) = Id::parse(Kind::Volume, required("volume_id", &request.volume_id)?) {
            to_the_end(&self.0, |driver| async move {
                delete(&driver, Kind::Volume, id).await
            })
            .await?;
        }
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let ValidateVolumeCapabilitiesRequest {
            volume_id,
            volume_context,
            volume_capabilities,
            parameters,
            secrets: _,
            mutable_parameters,
        } = request.into_inner();
        required("volume_id", &volume_id)?;
        if volume_capabilities.is_empty() {
            return Err(missing("volume_capabilities"));
        }
        let id = known_form(Kind::Volume, "volume_id", &volume_id)?;
        if self.0.store().await.volumes.get(&id).is_none() {
            return Err(unknown(Kind::Volume, &volume_id));
        }
        // That a volume lacks a capability is an answer here, not an error.
        let (confirmed, message) = match check_capabilities(&volume_capabilities) {
            Ok(()) => {
                let confirmed = validate_volume_capabilities_response::Confirmed {
                    volume_context,
                    volume_capabilities,
                    parameters,
                    mutable_parameters,
                };
                (Some(confirmed), String::new())
            }
            Err(status) => (None, status.message().to_owned()),
        };
        Ok(Response::new(ValidateVolumeCapabilitiesResponse {
            confirmed,
            message,
        }))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let ListVolumesRequest {
            max_entries,
            starting_token,
        } = request.into_inner();
        let (page, next_token) =
            self.0
                .store()
                .await
                .volumes
                .page(&starting_token, max_entries, |_| true)?;
        let entries = page
            .into_iter()
            .map(|volume| {
                let volume = Some(shown_volume(&self.0, volume)?);
                Ok(list_volumes_response::Entry {
                    volume,
                    status: None,
                })
            })
            .collect::<Result<_, Status>>()?;
        Ok(Response::new(ListVolumesResponse {
            entries,
            next_token,
        }))
    }

    /// What is free now. It is no promise: volumes are thin, and all may grow up to their limits.
    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let request = request.into_inner();
        let capable = request.volume_capabilities.is_empty()
            || check_capabilities(&request.volume_capabilities).is_ok();
        let here = request
            .accessible_topology
            .is_none_or(|topology| self.0.holds(&topology));
        let available = if capable && here {
            self.0.pool.space()?.available
        } else {
            0
        };
        Ok(Response::new(GetCapacityResponse {
            available_capacity: bytes(available)?,
            maximum_volume_size: None,
            minimum_volume_size: None,
        }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let wish = SnapshotWish::parse(&request.into_inner())?;
        let snapshot = to_the_end(&self.0, |driver| async move {
            create_snapshot(&driver, wish).await
        })
        .await?;
        Ok(Response::new(CreateSnapshotResponse {
            snapshot: Some(shown_snapshot(snapshot, clock::now())?),
        }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let request = request.into_inner();
        if let Some(id) = Id::parse(
            Kind::Snapshot,
            required("snapshot_id", &request.snapshot_id)?,
        ) {
            to_the_end(&self.0, |driver| async move {
                delete(&driver, Kind::Snapshot, id).await
            })
            .await?;
        }
        Ok(Response::new(DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        let ListSnapshotsRequest {
            max_entries,
            starting_token,
            source_volume_id,
            snapshot_id,
            secrets: _,
        } = request.into_inner();
        let chosen = |filter: &str, found: &Id| filter.is_empty() || filter == found.as_str();
        let (page, next_token) =
            self.0
                .store()
                .await
                .snapshots
                .page(&starting_token, max_entries, |snapshot| {
                    chosen(&snapshot_id, &snapshot.id)
                        && chosen(&source_volume_id, &snapshot.source_volume)
                })?;
        let entries = page
            .into_iter()
            .map(|snapshot| {
                Ok(list_snapshots_response::Entry {
                    snapshot: Some(shown_snapshot(snapshot, clock::now())?),
                })
            })
            .collect::<Result<_, Status>>()?;
        Ok(Response::new(ListSnapshotsResponse {
            entries,
            next_token,
        }))
    }
}

async fn create_volume(driver: &Driver, wish: VolumeWish) -> Result<Volume, Status> {
    let pool = &driver.pool;
    let mut store = driver.store().await;
    if let Some(found) = store.volumes.get(&wish.id) {
        wish.is_met_by(found)?;
        return Ok(found.clone());
    }
    let origin = wish
        .source
        .as_ref()
        .map(|source| find_origin(driver, &store, source))
        .transpose()?;
    if let Some(Source::Snapshot(id)) = &wish.source {
        check_ready(&store, id, clock::now())?;
    }
    let source_bytes = origin.as_ref().map(|origin| origin.bytes);
    let capacity_bytes = wish.range.choose(source_bytes, pool.space()?.total)?;
    let path = pool.path(Kind::Volume, &wish.id);
    // Without a record it is the rest of a call that did not end. It may lack its limit, so it is recreated.
    pool.delete(&path).await?;
    match origin {
        None => pool.create(&path).await?,
        Some(origin) => pool.snapshot(&origin.path, &path, false).await?,
    }
    pool.limit(&path, capacity_bytes).await?;
    pool.sync()?;
    let VolumeWish {
        id,
        name,
        range: _,
        source,
    } = wish;
    let volume = Volume {
        id,
        name,
        capacity_bytes,
        source,
        sequence: store.volumes.next_sequence(),
    };
    store.volumes.put(volume.clone())?;
    Ok(volume)
}

async fn create_snapshot(driver: &Driver, wish: SnapshotWish) -> Result<Snapshot, Status> {
    let pool = &driver.pool;
    let mut store = driver.store().await;
    if let Some(found) = store.snapshots.get(&wish.id) {
        wish.is_met_by(found)?;
        return Ok(found.clone());
    }
    let origin = find_origin(driver, &store, &Source::Volume(wish.source_volume.clone()))?;
    let path = pool.path(Kind::Snapshot, &wish.id);
    pool.delete(&path).await?;
    pool.snapshot(&origin.path, &path, true).await?;
    pool.sync()?;
    let SnapshotWish {
        id,
        name,
        source_volume,
        ready_after,
    } = wish;
    let created_at = clock::now();
    let snapshot = Snapshot {
        id,
        name,
        source_volume,
        size_bytes: origin.bytes,
        created_at,
        ready_at: created_at + ready_after,
        sequence: store.snapshots.next_sequence(),
    };
    store.snapshots.put(snapshot.clone())?;
    Ok(snapshot)
}

/// Also deletes what has no record: the rest of a creation or a deletion that did not end.
async fn delete(driver: &Driver, kind: Kind, id: Id) -> Result<(), Status> {
    let mut store = driver.store().await;
    let path = driver.pool.path(kind, &id);
    let mounts = Mounts::read()?;
    // The kernel would delete it all the same, below the feet of who uses it.
    if let Some(mount) = mounts.place(&path).and_then(|place| mounts.within(&place)) {
        return Err(Status::failed_precondition(format!(
            "{id} is still mounted on {}",
            mount.point.display()
        )));
    }
    match kind {
        Kind::Volume => store.volumes.remove(&id)?,
        Kind::Snapshot => store.snapshots.remove(&id)?,
    }
    driver.pool.delete(&path).await?;
    Ok(())
}

/// What a new subvolume is made from.
struct Origin {
    path: PathBuf,
    bytes: u64,
}

fn find_origin(driver: &Driver, store: &Store, source: &Source) -> Result<Origin, Status> {
    let (kind, id, bytes) = match source {
        Source::Snapshot(id) => (
            Kind::Snapshot,
            id,
            store.snapshots.get(id).map(|found| found.size_bytes),
        ),
        Source::Volume(id) => (
            Kind::Volume,
            id,
            store.volumes.get(id).map(|found| found.capacity_bytes),
        ),
    };
    let bytes = bytes.ok_or_else(|| unknown(kind, id.as_str()))?;
    Ok(Origin {
        path: driver.pool.path(kind, id),
        bytes,
    })
}

/// A caller that gets UNAVAILABLE repeats the call.
fn check_ready(store: &Store, id: &Id, now: SystemTime) -> Result<(), Status> {
    match store.snapshots.get(id) {
        Some(snapshot) if snapshot.ready_at > now => Err(Status::unavailable(format!(
            "snapshot {id} is not ready to use yet"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Only the requisite topologies bind; the preferred ones are a subset of them.
fn check_topology(
    driver: &Driver,
    requirement: Option<&TopologyRequirement>,
) -> Result<(), Status> {
    let requisite = requirement.map_or(&[][..], |requirement| &requirement.requisite);
    if requisite.is_empty() || requisite.iter().any(|topology| driver.holds(topology)) {
        return Ok(());
    }
    let wanted: Vec<_> = requisite
        .iter()
        .map(|topology| &topology.segments)
        .collect();
    Err(Status::resource_exhausted(format!(
        "wanted a volume in one of {wanted:?}, but this driver makes them only in {:?}",
        driver.topology().segments
    )))
}

fn bytes(value: u64) -> Result<i64, Status> {
    i64::try_from(value).map_err(|error| Status::internal(format!("{value} bytes: {error}")))
}

fn shown_volume(driver: &Driver, volume: Volume) -> Result<csi::Volume, Status> {
    use volume_content_source::{SnapshotSource, Type, VolumeSource};
    let Volume {
        id,
        name: _,
        capacity_bytes,
        source,
        sequence: _,
    } = volume;
    let content_source = source.map(|source| VolumeContentSource {
        r#type: Some(match source {
            Source::Snapshot(id) => Type::Snapshot(SnapshotSource {
                snapshot_id: id.to_string(),
            }),
            Source::Volume(id) => Type::Volume(VolumeSource {
                volume_id: id.to_string(),
            }),
        }),
    });
    Ok(csi::Volume {
        capacity_bytes: bytes(capacity_bytes)?,
        volume_id: id.to_string(),
        content_source,
        accessible_topology: vec![driver.topology()],
        ..csi::Volume::default()
    })
}

fn shown_snapshot(snapshot: Snapshot, now: SystemTime) -> Result<csi::Snapshot, Status> {
    let Snapshot {
        id,
        name: _,
        source_volume,
        size_bytes,
        created_at,
        ready_at,
        sequence: _,
    } = snapshot;
    Ok(csi::Snapshot {
        size_bytes: bytes(size_bytes)?,
        snapshot_id: id.to_string(),
        source_volume_id: source_volume.to_string(),
        creation_time: Some(created_at.into()),
        ready_to_use: ready_at <= now,
        group_snapshot_id: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_delayed_snapshot_becomes_ready_at_its_time() {
        let created_at = SystemTime::UNIX_EPOCH;
        let delay = Duration::from_secs(20);
        let snapshot = Snapshot {
            id: Id::of_name(Kind::Snapshot, "s"),
            name: "s".to_owned(),
            source_volume: Id::of_name(Kind::Volume, "v"),
            size_bytes: 7,
            created_at,
            ready_at: created_at + delay,
            sequence: 1,
        };
        for (now, wanted) in [
            (created_at, false),
            (created_at + delay - Duration::from_nanos(1), false),
            (created_at + delay, true),
        ] {
            let shown = shown_snapshot(snapshot.clone(), now).unwrap();
            assert_eq!(shown.ready_to_use, wanted, "{now:?}");
            assert_eq!(shown.creation_time, Some(created_at.into()));
        }
    }
}
