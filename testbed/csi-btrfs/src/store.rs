//! The driver's records: one JSON file per volume and per snapshot.
//!
//! Guarantees: a record is on disk as a whole or not at all, whenever the process or the machine stops, because it is
//! written to a temporary file, synced, and renamed. A record is written only when its subvolume is complete and
//! synced, and removed before its subvolume is: so a record always has a subvolume, and a subvolume without a record
//! belongs to nobody and may be deleted.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Volume,
    Snapshot,
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Volume => "v-",
            Self::Snapshot => "s-",
        }
    }
}

/// The id of a volume or a snapshot. It is always safe as a file name: a prefix and hex digits, nothing else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Id(String);

impl Id {
    /// Half of a SHA-256: no two names of a test cluster will meet, and the file name stays readable.
    const DIGEST_BYTES: usize = 16;

    /// A name may hold anything (`/`, `..`) at any length, so only its hash goes into the id.
    ///
    /// Guarantee: the same name gives the same id, which is what makes a retry after a crash find its remains.
    pub(crate) fn of_name(kind: Kind, name: &str) -> Self {
        let digest = Sha256::digest(name.as_bytes());
        let mut id = kind.prefix().to_owned();
        for byte in digest.iter().take(Self::DIGEST_BYTES) {
            id.push_str(&format!("{byte:02x}"));
        }
        Self(id)
    }

    /// Reads an id from a request. `None`: this driver never gave such an id, so nothing can be known under it.
    pub(crate) fn parse(kind: Kind, text: &str) -> Option<Self> {
        let digits = text.strip_prefix(kind.prefix())?;
        let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        (digits.len() == Self::DIGEST_BYTES * 2 && digits.bytes().all(hex))
            .then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a volume was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Source {
    Snapshot(Id),
    Volume(Id),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(id) => write!(f, "snapshot {id}"),
            Self::Volume(id) => write!(f, "volume {id}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Volume {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) capacity_bytes: u64,
    pub(crate) source: Option<Source>,
    pub(crate) sequence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Snapshot {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) source_volume: Id,
    pub(crate) size_bytes: u64,
    pub(crate) created_at: SystemTime,
    /// Its content is complete from the start. Until then the driver reports it as not ready.
    pub(crate) ready_at: SystemTime,
    pub(crate) sequence: u64,
}

/// What [`Table`] must know of what it keeps.
pub(crate) trait Record: Clone + Serialize + DeserializeOwned {
    const KIND: Kind;
    fn id(&self) -> &Id;
    /// Grows with each record, so that pages of a list stay stable while records come and go.
    fn sequence(&self) -> u64;
}

impl Record for Volume {
    const KIND: Kind = Kind::Volume;

    fn id(&self) -> &Id {
        &self.id
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Record for Snapshot {
    const KIND: Kind = Kind::Snapshot;

    fn id(&self) -> &Id {
        &self.id
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    #[error("{} is not a record of this driver: {error}; repair or remove it", path.display())]
    Unreadable {
        path: PathBuf,
        error: serde_json::Error,
    },
    #[error("{} is named after another record than the {found} in it; repair or remove it", path.display())]
    Misnamed { path: PathBuf, found: Id },
    #[error("{} does not belong among the records; remove it", path.display())]
    Foreign { path: PathBuf },
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |error| StoreError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

/// The records of one kind, in a directory of their own.
#[derive(Debug)]
pub(crate) struct Table<R> {
    dir: PathBuf,
    records: BTreeMap<Id, R>,
}

impl<R: Record> Table<R> {
    /// Reads all records, and removes the temporary files that a crash left: they were never renamed, so no caller
    /// was told of them.
    pub(crate) fn open(dir: PathBuf) -> Result<Self, StoreError> {
        fs::create_dir_all(&dir).map_err(failed("create", &dir))?;
        let mut records = BTreeMap::new();
        for entry in fs::read_dir(&dir).map_err(failed("list", &dir))? {
            let path = entry.map_err(failed("list", &dir))?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("tmp") => fs::remove_file(&path).map_err(failed("remove", &path))?,
                Some("json") => {
                    let record: R = read(&path)?;
                    records.insert(record.id().clone(), record);
                }
                Some(_) | None => return Err(StoreError::Foreign { path }),
            }
        }
        Ok(Self { dir, records })
    }

    pub(crate) fn get(&self, id: &Id) -> Option<&R> {
        self.records.get(id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &Id> {
        self.records.keys()
    }

    /// Keeps `record`, durably, or changes nothing that a caller can see.
    pub(crate) fn put(&mut self, record: R) -> Result<(), StoreError> {
        let path = self.path(record.id());
        let draft = path.with_extension("json.tmp");
        let text = serde_json::to_vec(&record).map_err(|error| StoreError::Unreadable {
            path: path.clone(),
            error,
        })?;
        let mut file = File::create(&draft).map_err(failed("create", &draft))?;
        file.write_all(&text).map_err(failed("write", &draft))?;
        file.sync_all().map_err(failed("sync", &draft))?;
        fs::rename(&draft, &path).map_err(failed("rename the draft to", &path))?;
        self.sync()?;
        self.records.insert(record.id().clone(), record);
        Ok(())
    }

    /// Forgets a record, durably; one that is unknown is already forgotten.
    pub(crate) fn remove(&mut self, id: &Id) -> Result<(), StoreError> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Ok(()) => self.sync()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove", &path)(error)),
        }
        self.records.remove(id);
        Ok(())
    }

    /// Drops a record from memory only. For one whose subvolume is gone: its file is left to whoever investigates.
    pub(crate) fn disregard(&mut self, id: &Id) {
        self.records.remove(id);
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.records
            .values()
            .map(Record::sequence)
            .max()
            .unwrap_or(0)
            + 1
    }

    /// The records that `wanted` accepts, from the one after `token` on, at most `max_entries` (0: all), with the
    /// token of the next page.
    pub(crate) fn page(
        &self,
        token: &str,
        max_entries: i32,
        wanted: impl Fn(&R) -> bool,
    ) -> Result<(Vec<R>, String), PageError> {
        let after = match token {
            "" => 0,
            text => text.parse::<u64>().map_err(|error| PageError::Token {
                found: text.to_owned(),
                error,
            })?,
        };
        let limit = usize::try_from(max_entries).map_err(|error| PageError::Entries {
            found: max_entries,
            error,
        })?;
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut rest: Vec<&R> = self
            .records
            .values()
            .filter(|record| record.sequence() > after && wanted(record))
            .collect();
        rest.sort_by_key(|record| record.sequence());
        let page: Vec<R> = rest
            .iter()
            .take(limit)
            .map(|record| (*record).clone())
            .collect();
        let next = match page.last() {
            Some(last) if page.len() < rest.len() => last.sequence().to_string(),
            Some(_) | None => String::new(),
        };
        Ok((page, next))
    }

    fn path(&self, id: &Id) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    fn sync(&self) -> Result<(), StoreError> {
        File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(failed("sync", &self.dir))
    }
}

fn read<R: Record>(path: &Path) -> Result<R, StoreError> {
    let text = fs::read(path).map_err(failed("read", path))?;
    let record: R = serde_json::from_slice(&text).map_err(|error| StoreError::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    let named = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .and_then(|stem| Id::parse(R::KIND, stem));
    if named.as_ref() == Some(record.id()) {
        Ok(record)
    } else {
        Err(StoreError::Misnamed {
            path: path.to_owned(),
            found: record.id().clone(),
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error("starting_token must be empty or one that this driver gave, found {found:?}: {error}")]
    Token {
        found: String,
        error: std::num::ParseIntError,
    },
    #[error("max_entries must not be negative, found {found}: {error}")]
    Entries {
        found: i32,
        error: std::num::TryFromIntError,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, sequence: u64) -> Volume {
        Volume {
            id: Id::of_name(Kind::Volume, name),
            name: name.to_owned(),
            capacity_bytes: 7,
            source: None,
            sequence,
        }
    }

    #[test]
    fn any_name_gives_a_safe_id() {
        let long = "x".repeat(4096);
        for name in ["pvc-1", "../../etc", "a/b", "", "\0", "ä", long.as_str()] {
            let id = Id::of_name(Kind::Volume, name);
            assert_eq!(
                Id::parse(Kind::Volume, id.as_str()),
                Some(id.clone()),
                "{name:?}"
            );
            assert_eq!(id.as_str().len(), 34, "{name:?}");
            assert_eq!(id, Id::of_name(Kind::Volume, name), "{name:?}");
        }
        assert_ne!(
            Id::of_name(Kind::Volume, "a"),
            Id::of_name(Kind::Volume, "b")
        );
        assert_ne!(
            Id::of_name(Kind::Volume, "a"),
            Id::of_name(Kind::Snapshot, "a")
        );
    }

    #[test]
    fn an_id_in_a_request_is_checked() {
        let good = Id::of_name(Kind::Volume, "a").to_string();
        for bad in [
            "",
            "v-",
            "..",
            "v-../../../../etc/passwd",
            "v-ffffffffffffffffffffffffffffff/x",
            "v-FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
            good.replace("v-", "s-").as_str(),
            format!("{good}0").as_str(),
            format!("{good}\n").as_str(),
        ] {
            assert_eq!(Id::parse(Kind::Volume, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn records_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = Snapshot {
            id: Id::of_name(Kind::Snapshot, "s"),
            name: "s".to_owned(),
            source_volume: Id::of_name(Kind::Volume, "a"),
            size_bytes: 7,
            created_at: SystemTime::UNIX_EPOCH,
            ready_at: SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(60),
            sequence: 3,
        };
        let mut cloned = volume("b", 2);
        cloned.source = Some(Source::Snapshot(snapshot.id.clone()));
        let mut volumes = Table::open(dir.path().join("v")).unwrap();
        volumes.put(volume("a", 1)).unwrap();
        volumes.put(cloned.clone()).unwrap();
        volumes.remove(&volume("a", 1).id).unwrap();
        volumes.remove(&volume("a", 1).id).unwrap();
        let mut snapshots = Table::open(dir.path().join("s")).unwrap();
        snapshots.put(snapshot.clone()).unwrap();

        let volumes = Table::<Volume>::open(dir.path().join("v")).unwrap();
        assert_eq!(volumes.ids().collect::<Vec<_>>(), [&cloned.id]);
        assert_eq!(volumes.get(&cloned.id), Some(&cloned));
        assert_eq!(volumes.next_sequence(), 3);
        let snapshots = Table::<Snapshot>::open(dir.path().join("s")).unwrap();
        assert_eq!(snapshots.get(&snapshot.id), Some(&snapshot));
    }

    #[test]
    fn a_draft_of_a_crash_is_not_a_record() {
        let dir = tempfile::tempdir().unwrap();
        let draft = dir.path().join(format!("{}.json.tmp", volume("a", 1).id));
        fs::write(&draft, b"{\"id\":").unwrap();
        let table = Table::<Volume>::open(dir.path().to_owned()).unwrap();
        assert_eq!(table.ids().count(), 0);
        assert!(!draft.exists());
    }

    #[test]
    fn a_failed_write_leaves_the_old_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = Table::open(dir.path().to_owned()).unwrap();
        table.put(volume("a", 1)).unwrap();
        let obstacle = dir.path().join(format!("{}.json.tmp", volume("a", 1).id));
        fs::create_dir(&obstacle).unwrap();
        let error = table.put(volume("a", 9)).unwrap_err();
        assert!(error.to_string().contains("json.tmp"), "{error}");
        assert_eq!(table.get(&volume("a", 1).id), Some(&volume("a", 1)));
        fs::remove_dir(&obstacle).unwrap();
        let table = Table::<Volume>::open(dir.path().to_owned()).unwrap();
        assert_eq!(table.get(&volume("a", 1).id), Some(&volume("a", 1)));
    }

    #[test]
    fn damage_is_named_not_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{}.json", volume("a", 1).id));
        fs::write(&path, serde_json::to_vec(&volume("b", 1)).unwrap()).unwrap();
        assert!(matches!(
            Table::<Volume>::open(dir.path().to_owned()),
            Err(StoreError::Misnamed { .. })
        ));
        fs::write(&path, b"{}").unwrap();
        assert!(matches!(
            Table::<Volume>::open(dir.path().to_owned()),
            Err(StoreError::Unreadable { .. })
        ));
        fs::rename(&path, dir.path().join("notes")).unwrap();
        assert!(matches!(
            Table::<Volume>::open(dir.path().to_owned()),
            Err(StoreError::Foreign { .. })
        ));
    }

    #[test]
    fn pages_stay_stable_while_records_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = Table::open(dir.path().to_owned()).unwrap();
        for (name, sequence) in [("c", 1), ("a", 2), ("b", 3)] {
            table.put(volume(name, sequence)).unwrap();
        }
        let names = |page: &[Volume]| {
            page.iter()
                .map(|volume| volume.name.clone())
                .collect::<Vec<_>>()
        };
        let (first, token) = table.page("", 2, |_| true).unwrap();
        assert_eq!(
            (names(&first), token.as_str()),
            (vec!["c".to_owned(), "a".to_owned()], "2")
        );
        table.remove(&volume("a", 2).id).unwrap();
        table.put(volume("d", table.next_sequence())).unwrap();
        let (rest, end) = table.page(&token, 0, |_| true).unwrap();
        assert_eq!(
            (names(&rest), end.as_str()),
            (vec!["b".to_owned(), "d".to_owned()], "")
        );
        let (one, end) = table.page("", 1, |volume| volume.name == "b").unwrap();
        assert_eq!((names(&one), end.as_str()), (vec!["b".to_owned()], ""));
        assert!(matches!(
            table.page("x", 0, |_| true),
            Err(PageError::Token { .. })
        ));
        assert!(matches!(
            table.page("", -1, |_| true),
            Err(PageError::Entries { .. })
        ));
    }
}
