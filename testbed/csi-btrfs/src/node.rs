//! The CSI Node service: a published volume is a bind mount of its subvolume.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tonic::{Request, Response, Status};

use crate::{
    driver::{Driver, to_the_end},
    mounts::{Mount, Mounts, Place},
    proto::csi::{
        NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest,
        NodeGetInfoResponse, NodePublishVolumeRequest, NodePublishVolumeResponse,
        NodeServiceCapability, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
        node_server,
        node_service_capability::{self, rpc},
    },
    request::{Access, check_capability, known_form, missing, required, unknown},
    store::{Id, Kind},
};

/// One mount is the rule. More come from outside of this driver; past this somebody mounts as fast as we unmount.
const MOST_MOUNTS: usize = 16;

#[derive(Debug)]
pub(crate) struct Node(pub(crate) Arc<Driver>);

#[tonic::async_trait]
impl node_server::Node for Node {
    async fn node_get_capabilities(
        &self,
        _request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let kind = rpc::Type::SingleNodeMultiWriter.into();
        let capability = NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(
                node_service_capability::Rpc { r#type: kind },
            )),
        };
        Ok(Response::new(NodeGetCapabilitiesResponse {
            capabilities: vec![capability],
        }))
    }

    async fn node_get_info(
        &self,
        _request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.0.node.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(self.0.topology()),
        }))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let target = check_target(&request.target_path)?;
        let capability = request
            .volume_capability
            .as_ref()
            .ok_or_else(|| missing("volume_capability"))?;
        let access = check_capability(capability)?;
        let access = Access {
            read_only: access.read_only || request.readonly,
            ..access
        };
        let id = known_form(Kind::Volume, "volume_id", &request.volume_id)?;
        to_the_end(&self.0, move |driver| async move {
            let store = driver.store().await;
            if store.volumes.get(&id).is_none() {
                return Err(unknown(Kind::Volume, id.as_str()));
            }
            publish(&driver, &id, &target, access)
        })
        .await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        let target = check_target(&request.target_path)?;
        let id = known_form(Kind::Volume, "volume_id", &request.volume_id)?;
        to_the_end(&self.0, move |driver| async move {
            let _one_change_at_a_time = driver.store().await;
            unpublish(&driver, &id, &target)
        })
        .await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }
}

fn publish(driver: &Driver, id: &Id, target: &Path, access: Access) -> Result<(), Status> {
    let target = resolve(target)?.ok_or_else(|| {
        Status::failed_precondition(format!(
            "the directory that target_path {} is in must exist",
            target.display()
        ))
    })?;
    let volume = driver.pool.path(Kind::Volume, id);
    let mounts = Mounts::read()?;
    let place = place_of(&mounts, &volume)?;
    match decide(&mounts, &place, &target, access)? {
        Step::Nothing => Ok(()),
        Step::MakeReadOnly => make_read_only(&target),
        Step::Mount => {
            create_target(&target)?;
            bind(&volume, &target)?;
            if access.read_only {
                make_read_only(&target).map_err(|error| undo(&target, error))?;
            }
            Ok(())
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Mount,
    MakeReadOnly,
}

fn decide(mounts: &Mounts, place: &Place, target: &Path, access: Access) -> Result<Step, Status> {
    match mounts.at(target) {
        Some(found) if found.is_of(place) => match (found.read_only, access.read_only) {
            (true, true) | (false, false) => Ok(Step::Nothing),
            // A crash may have come between the two steps of a read-only mount.
            (false, true) => Ok(Step::MakeReadOnly),
            (true, false) => Err(Status::already_exists(format!(
                "wanted the volume writable on {}, found it mounted there read-only",
                target.display()
            ))),
        },
        Some(found) => Err(foreign(found)),
        None => match mounts.of(place).next() {
            Some(other) if access.single_writer => Err(Status::failed_precondition(format!(
                "wanted the volume for a single writer on {}, found it mounted on {}",
                target.display(),
                other.point.display()
            ))),
            Some(_) | None => Ok(Step::Mount),
        },
    }
}

/// Leaves alone what another than this volume has put at the target, and never deletes data: only an empty
/// directory goes.
fn unpublish(driver: &Driver, id: &Id, target: &Path) -> Result<(), Status> {
    let Some(target) = resolve(target)? else {
        return Ok(());
    };
    let volume = driver.pool.path(Kind::Volume, id);
    for _ in 0..MOST_MOUNTS {
        let mounts = Mounts::read()?;
        let place = place_of(&mounts, &volume)?;
        match mounts.at(&target) {
            None => return remove_target(&target),
            Some(found) if found.is_of(&place) => unmount(&target)?,
            Some(found) => return Err(foreign(found)),
        }
    }
    Err(Status::internal(format!(
        "unmounted {} {MOST_MOUNTS} times, found it still mounted",
        target.display()
    )))
}

fn foreign(found: &Mount) -> Status {
    Status::failed_precondition(format!(
        "wanted this volume or nothing on {}, found {} mounted there",
        found.point.display(),
        found.what()
    ))
}

fn check_target(text: &str) -> Result<PathBuf, Status> {
    let target = PathBuf::from(required("target_path", text)?);
    if !target.is_absolute() || target.file_name().is_none() {
        return Err(Status::invalid_argument(format!(
            "target_path must be absolute and name a directory, found {text:?}"
        )));
    }
    Ok(target)
}

/// The target as the kernel names it, so that it is found among the mounts. The last part is not followed, be it a
/// symbolic link or a hung mount. `None`: it cannot exist, for its parent does not.
fn resolve(target: &Path) -> Result<Option<PathBuf>, Status> {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(Status::invalid_argument(format!(
            "target_path {} names no directory",
            target.display()
        )));
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(Some(parent.join(name))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("resolve", parent, &error)),
    }
}

fn place_of(mounts: &Mounts, volume: &Path) -> Result<Place, Status> {
    mounts.place(volume).ok_or_else(|| {
        Status::internal(format!(
            "no mount holds {}: is /proc mounted?",
            volume.display()
        ))
    })
}

fn create_target(target: &Path) -> Result<(), Status> {
    match DirBuilder::new().mode(0o750).create(target) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(target) {
                Ok(found) if found.is_dir() => Ok(()),
                Ok(found) => Err(Status::failed_precondition(format!(
                    "wanted a directory or nothing at {}, found {:?}",
                    target.display(),
                    found.file_type()
                ))),
                Err(error) => Err(failed("look at", target, &error)),
            }
        }
        Err(error) => Err(failed("create", target, &error)),
    }
}

fn remove_target(target: &Path) -> Result<(), Status> {
    match fs::remove_dir(target) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove the unmounted", target, &error)),
    }
}

fn bind(volume: &Path, target: &Path) -> Result<(), Status> {
    mount(
        Some(volume),
        target,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
    .map_err(|errno| {
        Status::internal(format!(
            "cannot mount {} on {}: {errno}",
            volume.display(),
            target.display()
        ))
    })
}

/// The kernel ignores MS_RDONLY in the call that binds, so it takes a second one.
fn make_read_only(target: &Path) -> Result<(), Status> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>).map_err(|errno| {
        Status::internal(format!(
            "cannot make {} read-only: {errno}",
            target.display()
        ))
    })
}

fn unmount(target: &Path) -> Result<(), Status> {
    umount2(target, MntFlags::UMOUNT_NOFOLLOW)
        .map_err(|errno| Status::internal(format!("cannot unmount {}: {errno}", target.display())))
}

/// A writable mount where a read-only one was asked for must not stay.
fn undo(target: &Path, error: Status) -> Status {
    match unmount(target) {
        Ok(()) => error,
        Err(second) => Status::internal(format!(
            "{}; and then: {}",
            error.message(),
            second.message()
        )),
    }
}

fn failed(action: &str, path: &Path, error: &io::Error) -> Status {
    Status::internal(format!("cannot {action} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const TABLE: &str = "\
21 1 254:0 / / rw - ext4 /dev/vda rw
64 43 0:39 / /pool rw - btrfs /dev/loop0 rw
63 43 0:39 /volumes/v-1 /k/writable rw - btrfs /dev/loop0 rw
65 43 0:39 /volumes/v-1 /k/read-only ro - btrfs /dev/loop0 rw
66 43 0:50 / /k/other rw - tmpfs tmpfs rw
";

    #[test]
    fn steps_to_publish() {
        let mounts = Mounts::parse(TABLE.as_bytes()).unwrap();
        let write = Access {
            read_only: false,
            single_writer: false,
        };
        let read = Access {
            read_only: true,
            single_writer: false,
        };
        let alone = Access {
            read_only: false,
            single_writer: true,
        };
        for (volume, target, access, wanted) in [
            ("v-1", "/k/writable", write, Ok(Step::Nothing)),
            ("v-1", "/k/writable", alone, Ok(Step::Nothing)),
            ("v-1", "/k/writable", read, Ok(Step::MakeReadOnly)),
            ("v-1", "/k/read-only", read, Ok(Step::Nothing)),
            ("v-1", "/k/read-only", write, Err(Code::AlreadyExists)),
            ("v-1", "/k/new", write, Ok(Step::Mount)),
            ("v-1", "/k/new", alone, Err(Code::FailedPrecondition)),
            ("v-2", "/k/new", alone, Ok(Step::Mount)),
            ("v-2", "/k/writable", write, Err(Code::FailedPrecondition)),
            ("v-1", "/k/other", read, Err(Code::FailedPrecondition)),
        ] {
            let place = mounts
                .place(&Path::new("/pool/volumes").join(volume))
                .unwrap();
            let found =
                decide(&mounts, &place, Path::new(target), access).map_err(|status| status.code());
            assert_eq!(found, wanted, "{volume} on {target}, {access:?}");
        }
    }

    #[test]
    fn targets() {
        for (text, good) in [
            ("/a/b", true),
            ("", false),
            ("a/b", false),
            ("/", false),
            ("/a/..", false),
        ] {
            assert_eq!(check_target(text).is_ok(), good, "{text:?}");
        }
    }

    #[test]
    fn the_last_part_of_a_target_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(real.join("real")).unwrap();
        std::os::unix::fs::symlink(real.join("real"), real.join("link")).unwrap();
        assert_eq!(
            resolve(&real.join("link/x")).unwrap(),
            Some(real.join("real/x"))
        );
        assert_eq!(
            resolve(&real.join("link")).unwrap(),
            Some(real.join("link"))
        );
        assert_eq!(resolve(&real.join("none/x")).unwrap(), None);
        assert_eq!(
            create_target(&real.join("link")).unwrap_err().code(),
            Code::FailedPrecondition
        );
    }

    #[test]
    fn unpublishing_never_deletes_data() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("file"), "data").unwrap();
        assert_eq!(remove_target(&target).unwrap_err().code(), Code::Internal);
        fs::remove_file(target.join("file")).unwrap();
        remove_target(&target).unwrap();
        remove_target(&target).unwrap();
    }
}
