//! The runs of one watch, and its latest changes. Pure.
//!
//! All streams of a watch read from this state, so a stream itself holds only a position. A stream
//! that is too slow finds that its position no longer exists.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::{Arc, Weak},
};

use crate::table::Row;

/// Maximum number of changes that are kept for streams that resume.
pub(crate) const CHANGES: usize = 1024;

/// A change of a run.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The `resourceVersion` of the change.
    pub(crate) revision: u64,
    /// The run before, if it is known.
    pub(crate) before: Option<Arc<Row>>,
    /// The run after the change, or the deleted run.
    pub(crate) row: Arc<Row>,
    pub(crate) is_deleted: bool,
    /// Whether the list already had this change. Then the run before is not known.
    pub(crate) is_replay: bool,
}

/// The runs of one kind in one namespace, or in all of them.
#[derive(Debug, Default)]
pub(crate) struct State {
    rows: BTreeMap<Arc<str>, Arc<Row>>,
    changes: VecDeque<Change>,
    /// Number of the next change. Changes are numbered from 0, without gaps.
    next: u64,
    /// Everything up to this `resourceVersion` is known.
    revision: u64,
    /// The `resourceVersion` of the list. Changes up to it are already in `rows`.
    listed: u64,
    /// All changes after this `resourceVersion` are kept.
    floor: u64,
    /// Increases when changes are found to be missing.
    pub(crate) epoch: u32,
}

/// The runs of all watches. Callers that may read the same run share one copy of it.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    rows: HashMap<(String, u64), Weak<Row>>,
    /// Size at which unused entries are removed.
    limit: usize,
}

impl Pool {
    /// Returns the shared copy of a run. Only equal runs are shared.
    pub(crate) fn share(&mut self, row: Row) -> Arc<Row> {
        if self.rows.len() >= self.limit {
            self.rows.retain(|_, known| known.strong_count() > 0);
            self.limit = self.rows.len().saturating_mul(2).max(1024);
        }
        let known = self.rows.entry((row.uid.clone(), row.revision));
        let known = known.or_default();
        if let Some(shared) = known.upgrade()
            && *shared == row
        {
            return shared;
        }
        let row = Arc::new(row);
        *known = Arc::downgrade(&row);
        row
    }
}

impl State {
    /// Returns the state after the first list. `floor` is the version at which the watch begins: that of
    /// the list, or an earlier one for a stream that resumes.
    pub(crate) fn new(rows: Vec<Arc<Row>>, listed: u64, floor: u64) -> Self {
        Self {
            rows: by_key(rows),
            revision: floor,
            listed,
            floor,
            ..Self::default()
        }
    }

    /// Number of the next change.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Number of the first change that is kept.
    pub(crate) fn first(&self) -> u64 {
        let kept = u64::try_from(self.changes.len()).unwrap_or(u64::MAX);
        self.next.saturating_sub(kept)
    }

    /// The `resourceVersion` up to which a new snapshot is complete.
    pub(crate) fn complete(&self) -> u64 {
        self.revision.max(self.listed)
    }

    /// The `resourceVersion` from which the watch continues.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether a stream that knows everything up to this version can resume.
    pub(crate) fn can_resume(&self, revision: u64) -> bool {
        revision >= self.floor
    }

    /// Returns up to `limit` runs after a key, in the order of their keys.
    pub(crate) fn rows_after(&self, key: Option<&str>, limit: usize) -> Vec<&Arc<Row>> {
        let start = match key {
            Some(key) => Bound::Excluded(key),
            None => Bound::Unbounded,
        };
        let range: (Bound<&str>, Bound<&str>) = (start, Bound::Unbounded);
        let rows = self.rows.range::<str, _>(range);
        rows.take(limit).map(|(_, row)| row).collect()
    }

    /// Returns the run of this key.
    pub(crate) fn row(&self, key: &str) -> Option<&Arc<Row>> {
        self.rows.get(key)
    }

    /// Returns a change by its number, if it is kept.
    pub(crate) fn change(&self, number: u64) -> Option<&Change> {
        let index = number.checked_sub(self.first())?;
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.changes.get(index)
    }

    /// Records an event of the watch: a new or changed run.
    pub(crate) fn put(&mut self, row: Arc<Row>) {
        // Before that version, the list has this run, or a newer one.
        let before = match row.revision > self.listed {
            true => self.rows.insert(Arc::clone(&row.key), Arc::clone(&row)),
            false => None,
        };
        self.push(row.revision, before, row, false);
    }

    /// Records an event of the watch: a deleted run. Its version is that of the deletion.
    pub(crate) fn delete(&mut self, row: Arc<Row>) {
        let before = match row.revision > self.listed {
            true => self.rows.remove(&row.key),
            false => None,
        };
        self.push(row.revision, before, row, true);
    }

    /// Records that everything up to this version is known.
    pub(crate) fn bookmark(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Replaces the runs after the watch was too old to continue. The differences become changes, so
    /// streams go on.
    pub(crate) fn relist(&mut self, rows: Vec<Arc<Row>>, listed: u64) {
        let new = by_key(rows);
        let old = std::mem::replace(&mut self.rows, new.clone());
        let mut changed: Vec<&Arc<Row>> = new
            .values()
            .filter(|row| {
                let known = old.get(&row.key);
                known.is_none_or(|known| known.revision != row.revision || known.uid != row.uid)
            })
            .collect();
        changed.sort_by_key(|row| row.revision);
        for row in changed {
            let (same, other) = match old.get(&row.key) {
                Some(known) if known.uid == row.uid => (Some(Arc::clone(known)), None),
                known => (None, known),
            };
            if let Some(other) = other {
                let (before, other) = (Some(Arc::clone(other)), Arc::clone(other));
                self.push(row.revision, before, other, true);
            }
            self.push(row.revision, same, Arc::clone(row), false);
        }
        for (key, row) in &old {
            if !new.contains_key(key) {
                self.push(listed, Some(Arc::clone(row)), Arc::clone(row), true);
            }
        }
        self.revision = self.revision.max(listed);
        self.listed = self.listed.max(listed);
    }

    /// Begins the watch later, because it was too old. Streams that resumed from before must load
    /// everything again.
    pub(crate) fn start_later(&mut self, floor: u64) {
        self.floor = floor;
        self.revision = floor;
        self.epoch = self.epoch.saturating_add(1);
    }

    fn push(&mut self, revision: u64, before: Option<Arc<Row>>, row: Arc<Row>, is_deleted: bool) {
        if self.changes.len() >= CHANGES
            && let Some(oldest) = self.changes.pop_front()
        {
            self.floor = self.floor.max(oldest.revision);
        }
        self.changes.push_back(Change {
            revision,
            before,
            row,
            is_deleted,
            is_replay: revision <= self.listed,
        });
        self.next = self.next.saturating_add(1);
        self.revision = self.revision.max(revision);
    }
}

fn by_key(rows: Vec<Arc<Row>>) -> BTreeMap<Arc<str>, Arc<Row>> {
    let rows = rows.into_iter().map(|row| (Arc::clone(&row.key), row));
    rows.collect()
}
