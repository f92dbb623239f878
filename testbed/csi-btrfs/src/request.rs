//! Requests, checked once and turned into types that cannot be wrong afterwards. No I/O.

use std::{collections::HashMap, time::Duration};

use tonic::Status;

use crate::{
    proto::csi::{
        CapacityRange, CreateSnapshotRequest, CreateVolumeRequest, VolumeCapability,
        VolumeContentSource,
        volume_capability::{AccessType, access_mode::Mode},
        volume_content_source,
    },
    store::{Id, Kind, Snapshot, Source, Volume},
};

/// Eight times what CSI lets callers rely on: the name goes into the record and nowhere else.
const LONGEST_NAME: usize = 1024;

/// Below this a btrfs quota leaves no room for the filesystem's own trees, and the first file may not fit.
const SMALLEST: u64 = 16 << 20;

/// For a request that names no size.
const DEFAULT: u64 = 1 << 30;

/// The prefix of the parameters that the sidecars add of their own accord.
const SIDECAR_PARAMETERS: &str = "csi.storage.k8s.io/";

/// The parameter of a snapshot that delays its readiness.
const READY_AFTER: &str = "readyAfterSeconds";

/// A day: longer than any test waits, and far from the end of the clock.
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How a volume is to be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) read_only: bool,
    pub(crate) single_writer: bool,
}

/// A capacity range that is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    required: Option<u64>,
    limit: Option<u64>,
}

/// What a CreateVolume asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeWish {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) range: Range,
    pub(crate) source: Option<Source>,
}

/// What a CreateSnapshot asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotWish {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) source_volume: Id,
    /// Time from the cut of the snapshot until it is ready to use.
    pub(crate) ready_after: Duration,
}

pub(crate) fn required<'a>(field: &str, text: &'a str) -> Result<&'a str, Status> {
    if text.is_empty() {
        Err(missing(field))
    } else {
        Ok(text)
    }
}

pub(crate) fn missing(field: &str) -> Status {
    Status::invalid_argument(format!("{field} is missing"))
}

/// An id that this driver cannot have given is unknown, like one that it gave and forgot.
pub(crate) fn known_form(kind: Kind, field: &str, text: &str) -> Result<Id, Status> {
    Id::parse(kind, required(field, text)?).ok_or_else(|| unknown(kind, text))
}

pub(crate) fn unknown(kind: Kind, id: &str) -> Status {
    Status::not_found(match kind {
        Kind::Volume => format!("no volume with the id {id:?}"),
        Kind::Snapshot => format!("no snapshot with the id {id:?}"),
    })
}

impl VolumeWish {
    /// The topology is checked apart: it needs to know the node.
    pub(crate) fn parse(request: &CreateVolumeRequest) -> Result<Self, Status> {
        let name = check_name(&request.name)?;
        check_capabilities(&request.volume_capabilities)?;
        check_parameters("parameters", &request.parameters)?;
        check_parameters("mutable_parameters", &request.mutable_parameters)?;
        Ok(Self {
            id: Id::of_name(Kind::Volume, name),
            name: name.to_owned(),
            range: Range::parse(request.capacity_range.as_ref())?,
            source: request
                .volume_content_source
                .as_ref()
                .map(parse_source)
                .transpose()?,
        })
    }

    /// Whether `found`, which has the wished name, is what is wished.
    pub(crate) fn is_met_by(&self, found: &Volume) -> Result<(), Status> {
        if found.name != self.name {
            return Err(same_digest(&self.name, &found.name));
        }
        if found.source != self.source {
            return Err(Status::already_exists(format!(
                "volume {:?} exists: wanted it made from {}, found it made from {}",
                self.name,
                origin(self.source.as_ref()),
                origin(found.source.as_ref())
            )));
        }
        if !self.range.contains(found.capacity_bytes) {
            return Err(Status::already_exists(format!(
                "volume {:?} exists: wanted {}, found {} bytes",
                self.name,
                self.range.describe(),
                found.capacity_bytes
            )));
        }
        Ok(())
    }
}

impl SnapshotWish {
    pub(crate) fn parse(request: &CreateSnapshotRequest) -> Result<Self, Status> {
        let name = check_name(&request.name)?;
        let source_volume =
            known_form(Kind::Volume, "source_volume_id", &request.source_volume_id)?;
        let mut parameters = request.parameters.clone();
        let delay = parameters.remove(READY_AFTER);
        check_parameters("parameters", &parameters)?;
        Ok(Self {
            id: Id::of_name(Kind::Snapshot, name),
            name: name.to_owned(),
            source_volume,
            ready_after: delay.as_deref().map_or(Ok(Duration::ZERO), parse_delay)?,
        })
    }

    pub(crate) fn is_met_by(&self, found: &Snapshot) -> Result<(), Status> {
        if found.name != self.name {
            return Err(same_digest(&self.name, &found.name));
        }
        if found.source_volume != self.source_volume {
            return Err(Status::already_exists(format!(
                "snapshot {:?} exists: wanted it of volume {}, found it of volume {}",
                self.name, self.source_volume, found.source_volume
            )));
        }
        Ok(())
    }
}

fn same_digest(wanted: &str, found: &str) -> Status {
    Status::already_exists(format!(
        "the name {wanted:?} has the same id as {found:?}: use another name"
    ))
}

fn origin(source: Option<&Source>) -> String {
    source.map_or_else(|| "nothing".to_owned(), Source::to_string)
}

impl Range {
    fn parse(range: Option<&CapacityRange>) -> Result<Self, Status> {
        let Some(range) = range else {
            return Ok(Self {
                required: None,
                limit: None,
            });
        };
        let bytes = |field: &str, value: i64| match u64::try_from(value) {
            Ok(0) => Ok(None),
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(Status::invalid_argument(format!(
                "{field} is {value}: {error}"
            ))),
        };
        let required = bytes("capacity_range.required_bytes", range.required_bytes)?;
        let limit = bytes("capacity_range.limit_bytes", range.limit_bytes)?;
        let range = Self { required, limit };
        match (required, limit) {
            (Some(required), Some(limit)) if required > limit => Err(Status::invalid_argument(
                format!("wanted {}: no size is both", range.describe()),
            )),
            (Some(_) | None, Some(_) | None) => Ok(range),
        }
    }

    fn contains(self, bytes: u64) -> bool {
        self.required.is_none_or(|required| required <= bytes)
            && self.limit.is_none_or(|limit| bytes <= limit)
    }

    fn describe(self) -> String {
        match (self.required, self.limit) {
            (None, None) => "any size".to_owned(),
            (Some(required), None) => format!("at least {required} bytes"),
            (None, Some(limit)) => format!("at most {limit} bytes"),
            (Some(required), Some(limit)) => {
                format!("at least {required} and at most {limit} bytes")
            }
        }
    }

    /// The size of the new volume, given the size of what it is made from and of the whole filesystem.
    ///
    /// Caveat: each volume must fit the filesystem, all together need not.
    pub(crate) fn choose(self, source: Option<u64>, filesystem: u64) -> Result<u64, Status> {
        let least = source.unwrap_or(0).max(SMALLEST);
        let wanted = match (self.required, source) {
            (Some(required), _) => required.max(least),
            (None, Some(_)) => least,
            (None, None) => DEFAULT
                .min(filesystem)
                .min(self.limit.unwrap_or(u64::MAX))
                .max(least),
        };
        if self.limit.is_some_and(|limit| limit < wanted) {
            let why = source.map_or_else(
                || format!("the smallest volume has {SMALLEST} bytes"),
                |size| format!("its source has {size} bytes"),
            );
            return Err(Status::out_of_range(format!(
                "wanted {}, but {why}",
                self.describe()
            )));
        }
        if wanted > filesystem {
            return Err(Status::resource_exhausted(format!(
                "wanted {wanted} bytes, but the filesystem has {filesystem} in all"
            )));
        }
        Ok(wanted)
    }
}

fn check_name(name: &str) -> Result<&str, Status> {
    let name = required("name", name)?;
    if name.len() > LONGEST_NAME {
        return Err(Status::invalid_argument(format!(
            "name has {} bytes, at most {LONGEST_NAME} are taken",
            name.len()
        )));
    }
    Ok(name)
}

/// A parameter that would be ignored is refused: whoever set it expects something of it.
fn check_parameters(field: &str, parameters: &HashMap<String, String>) -> Result<(), Status> {
    match parameters
        .keys()
        .find(|key| !key.starts_with(SIDECAR_PARAMETERS))
    {
        None => Ok(()),
        Some(key) => Err(Status::invalid_argument(format!(
            "{field} has {key:?}, which this driver does not know"
        ))),
    }
}

fn parse_delay(text: &str) -> Result<Duration, Status> {
    let delay = text.parse().map(Duration::from_secs).map_err(|error| {
        Status::invalid_argument(format!("parameter {READY_AFTER} is {text:?}: {error}"))
    })?;
    if delay > LONGEST_DELAY {
        return Err(Status::invalid_argument(format!(
            "parameter {READY_AFTER} is {text:?}: at most {} are taken",
            LONGEST_DELAY.as_secs()
        )));
    }
    Ok(delay)
}

fn parse_source(source: &VolumeContentSource) -> Result<Source, Status> {
    use volume_content_source::Type;
    match &source.r#type {
        None => Err(missing("volume_content_source.type")),
        Some(Type::Snapshot(snapshot)) => known_form(
            Kind::Snapshot,
            "volume_content_source.snapshot.snapshot_id",
            &snapshot.snapshot_id,
        )
        .map(Source::Snapshot),
        Some(Type::Volume(volume)) => known_form(
            Kind::Volume,
            "volume_content_source.volume.volume_id",
            &volume.volume_id,
        )
        .map(Source::Volume),
    }
}

pub(crate) fn check_capabilities(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(missing("volume_capabilities"));
    }
    capabilities
        .iter()
        .try_for_each(|capability| check_capability(capability).map(drop))
}

/// The modes for many nodes are taken, too: all nodes that reach a volume, which is one, get what the mode promises.
pub(crate) fn check_capability(capability: &VolumeCapability) -> Result<Access, Status> {
    match &capability.access_type {
        None => return Err(missing("volume_capability.access_type")),
        Some(AccessType::Block(_)) => {
            return Err(Status::invalid_argument(
                "wanted a block volume, but a volume of this driver is a btrfs subvolume: use volumeMode Filesystem",
            ));
        }
        Some(AccessType::Mount(mount)) => {
            if !matches!(mount.fs_type.as_str(), "" | "btrfs") {
                return Err(Status::invalid_argument(format!(
                    "wanted the filesystem {:?}, but all volumes of this driver are btrfs",
                    mount.fs_type
                )));
            }
            // Only their number: CSI lets them carry secrets.
            if !mount.mount_flags.is_empty() {
                return Err(Status::invalid_argument(format!(
                    "found {} mount flags, but this driver takes none",
                    mount.mount_flags.len()
                )));
            }
        }
    }
    let mode = capability
        .access_mode
        .as_ref()
        .ok_or_else(|| missing("volume_capability.access_mode"))?
        .mode;
    let (read_only, single_writer) = match Mode::try_from(mode) {
        Ok(Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly) => (true, false),
        Ok(Mode::SingleNodeSingleWriter) => (false, true),
        Ok(
            Mode::SingleNodeWriter
            | Mode::SingleNodeMultiWriter
            | Mode::MultiNodeSingleWriter
            | Mode::MultiNodeMultiWriter,
        ) => (false, false),
        Ok(Mode::Unknown) => return Err(missing("volume_capability.access_mode.mode")),
        Err(error) => {
            return Err(Status::invalid_argument(format!(
                "access mode {mode}: {error}"
            )));
        }
    };
    Ok(Access {
        read_only,
        single_writer,
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
