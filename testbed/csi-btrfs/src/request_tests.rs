//! Tables of requests and what becomes of them.

use tonic::Code;

use super::*;
use crate::proto::csi::volume_capability::{AccessMode, BlockVolume, MountVolume};

fn capability(access_type: AccessType, mode: i32) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode }),
        access_type: Some(access_type),
    }
}

fn mounted(mode: Mode) -> VolumeCapability {
    capability(AccessType::Mount(MountVolume::default()), mode.into())
}

fn request() -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: "pvc-1".to_owned(),
        volume_capabilities: vec![mounted(Mode::SingleNodeWriter)],
        ..CreateVolumeRequest::default()
    }
}

fn from_volume(volume_id: &str) -> VolumeContentSource {
    let volume = volume_content_source::VolumeSource {
        volume_id: volume_id.to_owned(),
    };
    VolumeContentSource {
        r#type: Some(volume_content_source::Type::Volume(volume)),
    }
}

fn range(required_bytes: i64, limit_bytes: i64) -> Result<Range, Status> {
    Range::parse(Some(&CapacityRange {
        required_bytes,
        limit_bytes,
    }))
}

#[test]
fn access_modes() {
    let access = |read_only, single_writer| Access {
        read_only,
        single_writer,
    };
    for (mode, wanted) in [
        (Mode::SingleNodeWriter, access(false, false)),
        (Mode::SingleNodeReaderOnly, access(true, false)),
        (Mode::MultiNodeReaderOnly, access(true, false)),
        (Mode::MultiNodeSingleWriter, access(false, false)),
        (Mode::MultiNodeMultiWriter, access(false, false)),
        (Mode::SingleNodeSingleWriter, access(false, true)),
        (Mode::SingleNodeMultiWriter, access(false, false)),
    ] {
        assert_eq!(
            check_capability(&mounted(mode)).unwrap(),
            wanted,
            "{mode:?}"
        );
    }
}

#[test]
fn capabilities_that_are_refused() {
    let writer = i32::from(Mode::SingleNodeWriter);
    let ext4 = MountVolume {
        fs_type: "ext4".to_owned(),
        ..MountVolume::default()
    };
    let flags = MountVolume {
        mount_flags: vec!["sync".to_owned()],
        ..MountVolume::default()
    };
    for (capability, message) in [
        (
            capability(AccessType::Block(BlockVolume {}), writer),
            "volumeMode Filesystem",
        ),
        (capability(AccessType::Mount(ext4), writer), "\"ext4\""),
        (
            capability(AccessType::Mount(flags), writer),
            "1 mount flags",
        ),
        (
            capability(AccessType::Mount(MountVolume::default()), 99),
            "99",
        ),
        (mounted(Mode::Unknown), "access_mode.mode is missing"),
        (VolumeCapability::default(), "access_type is missing"),
    ] {
        let status = check_capability(&capability).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(message), "{status}");
    }
}

#[test]
fn volume_requests() {
    type Change = fn(&mut CreateVolumeRequest);
    let cases: [(Change, Code, &str); 8] = [
        (|q| q.name.clear(), Code::InvalidArgument, "name is missing"),
        (
            |q| q.name = "x".repeat(1025),
            Code::InvalidArgument,
            "1025 bytes",
        ),
        (
            |q| q.volume_capabilities.clear(),
            Code::InvalidArgument,
            "volume_capabilities is missing",
        ),
        (
            |q| drop(q.parameters.insert("tier".to_owned(), "gold".to_owned())),
            Code::InvalidArgument,
            "\"tier\"",
        ),
        (
            |q| {
                q.capacity_range = Some(CapacityRange {
                    required_bytes: 2,
                    limit_bytes: 1,
                })
            },
            Code::InvalidArgument,
            "no size is both",
        ),
        (
            |q| q.volume_content_source = Some(VolumeContentSource::default()),
            Code::InvalidArgument,
            "volume_content_source.type is missing",
        ),
        (
            |q| q.volume_content_source = Some(from_volume("")),
            Code::InvalidArgument,
            "volume_id is missing",
        ),
        (
            |q| q.volume_content_source = Some(from_volume("../x")),
            Code::NotFound,
            "\"../x\"",
        ),
    ];
    for (change, code, message) in cases {
        let mut request = request();
        change(&mut request);
        let status = VolumeWish::parse(&request).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(message), "{status}");
    }
    let mut request = request();
    request.name = "../../etc/\u{0}".to_owned();
    request
        .parameters
        .insert("csi.storage.k8s.io/pvc/name".to_owned(), "a".to_owned());
    assert_eq!(VolumeWish::parse(&request).unwrap().name, request.name);
}

#[test]
fn snapshot_requests() {
    let volume = Id::of_name(Kind::Volume, "a").to_string();
    for (name, source, code) in [
        ("", volume.as_str(), Code::InvalidArgument),
        ("s", "", Code::InvalidArgument),
        ("s", "/etc", Code::NotFound),
        ("s", volume.as_str(), Code::Ok),
    ] {
        let request = CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: source.to_owned(),
            ..CreateSnapshotRequest::default()
        };
        let found = SnapshotWish::parse(&request).map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(found, code, "{name:?} {source:?}");
    }
}

#[test]
fn the_delay_of_a_snapshot_is_read() {
    let ready_after = |parameters: &[(&str, &str)]| {
        let parameters = parameters.iter();
        let request = CreateSnapshotRequest {
            name: "s".to_owned(),
            source_volume_id: Id::of_name(Kind::Volume, "a").to_string(),
            parameters: parameters
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..CreateSnapshotRequest::default()
        };
        let wish = SnapshotWish::parse(&request);
        wish.map(|wish| wish.ready_after.as_secs())
            .map_err(|status| status.code())
    };
    let sidecar = ("csi.storage.k8s.io/volumesnapshot/name", "s");
    assert_eq!(ready_after(&[sidecar]), Ok(0));
    assert_eq!(ready_after(&[sidecar, ("readyAfterSeconds", "20")]), Ok(20));
    for value in ["", "-1", "1.5", "86401", "99999999999999999999"] {
        let found = ready_after(&[("readyAfterSeconds", value)]);
        assert_eq!(found, Err(Code::InvalidArgument), "{value:?}");
    }
    let found = ready_after(&[("delay", "20")]);
    assert_eq!(found, Err(Code::InvalidArgument));
}

#[test]
fn a_retry_is_met_and_another_wish_is_not() {
    let wish = VolumeWish::parse(&CreateVolumeRequest {
        capacity_range: Some(CapacityRange {
            required_bytes: 100,
            limit_bytes: 200,
        }),
        ..request()
    })
    .unwrap();
    let volume = |name: &str, capacity_bytes, source| Volume {
        id: wish.id.clone(),
        name: name.to_owned(),
        capacity_bytes,
        source,
        sequence: 1,
    };
    let other = Some(Source::Volume(Id::of_name(Kind::Volume, "b")));
    for (found, good) in [
        (volume("pvc-1", 100, None), true),
        (volume("pvc-1", 200, None), true),
        (volume("pvc-1", 99, None), false),
        (volume("pvc-1", 201, None), false),
        (volume("pvc-1", 150, other), false),
        (volume("pvc-2", 150, None), false),
    ] {
        let code = wish
            .is_met_by(&found)
            .map_or_else(|status| status.code(), |()| Code::Ok);
        assert_eq!(
            code,
            if good { Code::Ok } else { Code::AlreadyExists },
            "{found:?}"
        );
    }
}

#[test]
fn sizes() {
    const MIB: i64 = 1 << 20;
    const GIB: i64 = 1 << 30;
    let bytes = |value: i64| u64::try_from(value).unwrap();
    for (required, limit, source, wanted) in [
        (0, 0, None, Ok(GIB)),
        (0, 64 * MIB, None, Ok(64 * MIB)),
        (0, 4 * GIB, None, Ok(GIB)),
        (1, 0, None, Ok(16 * MIB)),
        (1, MIB, None, Err(Code::OutOfRange)),
        (100 * MIB, 0, None, Ok(100 * MIB)),
        (100 * MIB, 0, Some(200 * MIB), Ok(200 * MIB)),
        (300 * MIB, 0, Some(200 * MIB), Ok(300 * MIB)),
        (0, 0, Some(200 * MIB), Ok(200 * MIB)),
        (0, 100 * MIB, Some(200 * MIB), Err(Code::OutOfRange)),
        (2 * GIB, 0, None, Ok(2 * GIB)),
        (2 * GIB + 1, 0, None, Err(Code::ResourceExhausted)),
    ] {
        let chosen = range(required, limit)
            .unwrap()
            .choose(source.map(bytes), bytes(2 * GIB));
        assert_eq!(
            chosen.map_err(|status| status.code()),
            wanted.map(bytes),
            "required {required}, limit {limit}, source {source:?}"
        );
    }
    assert_eq!(range(-1, 0).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(range(0, -1).unwrap_err().code(), Code::InvalidArgument);
}
