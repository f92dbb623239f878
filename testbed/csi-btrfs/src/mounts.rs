//! What is mounted where, read from /proc/self/mountinfo: the kernel's word, so nothing of it need be kept.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

const MOUNTINFO: &str = "/proc/self/mountinfo";

#[derive(Debug, thiserror::Error)]
pub(crate) enum MountsError {
    #[error("cannot read {MOUNTINFO}: {0}")]
    Read(#[from] io::Error),
    #[error("wanted a line of {MOUNTINFO} as in proc(5), found {0:?}")]
    Line(String),
}

/// A directory as the filesystem itself names it, wherever it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    device: String,
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    shows: Place,
    pub(crate) point: PathBuf,
    pub(crate) read_only: bool,
}

impl Mount {
    pub(crate) fn is_of(&self, place: &Place) -> bool {
        self.shows == *place
    }

    fn is_within(&self, place: &Place) -> bool {
        self.shows.device == place.device && self.shows.path.starts_with(&place.path)
    }

    pub(crate) fn what(&self) -> String {
        format!(
            "{} of device {}",
            self.shows.path.display(),
            self.shows.device
        )
    }
}

#[derive(Debug)]
pub(crate) struct Mounts(Vec<Mount>);

impl Mounts {
    pub(crate) fn read() -> Result<Self, MountsError> {
        Self::parse(&fs::read(MOUNTINFO)?)
    }

    pub(crate) fn parse(text: &[u8]) -> Result<Self, MountsError> {
        text.split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| {
                parse_line(line)
                    .ok_or_else(|| MountsError::Line(String::from_utf8_lossy(line).into_owned()))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The mount that one sees at `point`: of several, the last.
    pub(crate) fn at(&self, point: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.point == point)
    }

    /// Mounts of `place` itself, as a whole.
    pub(crate) fn of<'a>(&'a self, place: &'a Place) -> impl Iterator<Item = &'a Mount> {
        self.0.iter().filter(move |mount| mount.is_of(place))
    }

    /// Any mount of `place` or of something in it.
    pub(crate) fn within(&self, place: &Place) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.is_within(place))
    }

    /// The mount point that `path` is below.
    pub(crate) fn point_of(&self, path: &Path) -> Option<&Path> {
        self.holder(path).map(|mount| mount.point.as_path())
    }

    /// `path` must be absolute and without symbolic links.
    pub(crate) fn place(&self, path: &Path) -> Option<Place> {
        let holder = self.holder(path)?;
        match path.strip_prefix(&holder.point) {
            Ok(rest) => Some(Place {
                device: holder.shows.device.clone(),
                path: holder.shows.path.join(rest),
            }),
            Err(_not_below) => None,
        }
    }

    fn holder(&self, path: &Path) -> Option<&Mount> {
        // Of equally long ones `max_by_key` gives the last, which is the one on top.
        self.0
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.components().count())
    }
}

/// `id parent major:minor root point options…`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = String::from_utf8_lossy(fields.next()?).into_owned();
    let root = unescape(fields.next()?)?;
    let root = root.strip_suffix(b"//deleted").unwrap_or(&root).to_vec();
    let point = unescape(fields.next()?)?;
    let read_only = fields
        .next()?
        .split(|byte| *byte == b',')
        .any(|option| option == b"ro");
    Some(Mount {
        shows: Place {
            device,
            path: path(root),
        },
        point: path(point),
        read_only,
    })
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// The kernel writes blanks, line breaks and backslashes as `\` and three octal digits.
fn unescape(field: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'\\' {
            let (digits, tail) = tail.split_at_checked(3)?;
            let value = digits.iter().try_fold(0_u32, |value, digit| {
                (b'0'..=b'7')
                    .contains(digit)
                    .then(|| value * 8 + u32::from(digit - b'0'))
            })?;
            plain.push(value.to_le_bytes().first().copied()?);
            rest = tail;
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
64 43 0:39 / /tb/pool rw,relatime - btrfs /dev/loop0 rw,subvolid=5,subvol=/
63 43 0:39 /volumes/v-1 /kubelet/a rw,relatime - btrfs /dev/loop0 rw,subvolid=256,subvol=/volumes/v-1
65 43 0:39 /volumes/v-1 /kubelet/with\\040blank ro,relatime - btrfs /dev/loop0 rw
66 43 0:39 /volumes/v-2/sub /kubelet/b rw - btrfs /dev/loop0 rw
67 43 0:39 /volumes/v-3//deleted /kubelet/c rw - btrfs /dev/loop0 rw
68 43 0:40 /volumes/v-9 /kubelet/d rw - btrfs /dev/loop1 rw
";

    fn mounts() -> Mounts {
        Mounts::parse(TABLE.as_bytes()).unwrap()
    }

    fn place(id: &str) -> Place {
        mounts()
            .place(&Path::new("/tb/pool/volumes").join(id))
            .unwrap()
    }

    #[test]
    fn places() {
        assert_eq!(
            place("v-1"),
            Place {
                device: "0:39".to_owned(),
                path: PathBuf::from("/volumes/v-1")
            }
        );
        assert_eq!(
            mounts().point_of(Path::new("/tb/pool/volumes")),
            Some(Path::new("/tb/pool"))
        );
        assert_eq!(
            mounts().point_of(Path::new("/tb/poolside")),
            Some(Path::new("/"))
        );
        assert_eq!(mounts().place(Path::new("relative")), None);
    }

    #[test]
    fn which_mounts_show_a_volume() {
        let mounts = mounts();
        let points: Vec<_> = mounts
            .of(&place("v-1"))
            .map(|mount| mount.point.clone())
            .collect();
        assert_eq!(
            points,
            [Path::new("/kubelet/a"), Path::new("/kubelet/with blank")]
        );
        for (id, used) in [
            ("v-1", true),
            ("v-2", true),
            ("v-3", true),
            ("v-9", false),
            ("v-", false),
        ] {
            assert_eq!(mounts.within(&place(id)).is_some(), used, "{id}");
        }
        assert_eq!(mounts.of(&place("v-2")).count(), 0);
    }

    #[test]
    fn read_only_is_the_mount_s_own() {
        assert!(!mounts().at(Path::new("/kubelet/a")).unwrap().read_only);
        assert!(
            mounts()
                .at(Path::new("/kubelet/with blank"))
                .unwrap()
                .read_only
        );
        assert_eq!(mounts().at(Path::new("/kubelet")), None);
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        for line in [
            "1 2 0:39",
            "1 2 0:39 /a\\04 /b rw - x y z",
            "1 2 0:39 /a\\999 /b rw - x y z",
        ] {
            let error = Mounts::parse(line.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("0:39"), "{error}");
        }
    }
}
