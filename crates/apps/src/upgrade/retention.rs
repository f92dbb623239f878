//! Retention of snapshots: the oldest sets beyond a number are deleted.

use std::collections::BTreeSet;

use api::{Timestamp, decide::Effect};

use super::storage::SnapshotView;

/// The snapshots of one request: a restore point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSet {
    /// UID of the request.
    pub request: String,
    /// Creation time of the newest snapshot of the set.
    pub created: Timestamp,
    /// Whether an active request uses the set.
    pub is_in_use: bool,
    /// Whether a snapshot of the set has the annotation `orchestrator.io/preserve`.
    pub is_preserved: bool,
    /// The snapshots.
    pub snapshots: Vec<SnapshotView>,
}

/// Returns the deletions of the sets beyond `max_count`; 0 keeps all.
///
/// # Guarantees
/// - The newest set, a set that an active request uses, and a preserved set are never deleted. Preserved sets do not
///   count.
/// - A snapshot that a Pending claim restores from is not deleted: its finalizers would block the deletion. `restoring`
///   has the namespaces and names of these snapshots.
#[must_use]
pub fn expired(
    sets: &[SnapshotSet],
    max_count: usize,
    restoring: &BTreeSet<(String, String)>,
) -> Vec<Effect> {
    if max_count == 0 {
        return Vec::new();
    }
    let mut counted: Vec<&SnapshotSet> = sets.iter().filter(|set| !set.is_preserved).collect();
    counted.sort_by_key(|set| (std::cmp::Reverse(set.created), set.request.clone()));
    let newest = sets.iter().map(|set| set.created).max();
    counted
        .into_iter()
        .skip(max_count)
        .filter(|set| !set.is_in_use && Some(set.created) != newest)
        .flat_map(|set| &set.snapshots)
        .filter(|one| !one.is_deleting)
        .filter(|one| !restoring.contains(&(one.namespace.clone(), one.name.clone())))
        .map(|one| Effect::Delete(one.target()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(request: &str, created: i64) -> SnapshotSet {
        SnapshotSet {
            request: request.to_owned(),
            created: Timestamp::from_second(created).unwrap(),
            is_in_use: false,
            is_preserved: false,
            snapshots: vec![SnapshotView {
                namespace: "shop".to_owned(),
                name: request.to_owned(),
                uid: request.to_owned(),
                ..SnapshotView::default()
            }],
        }
    }

    fn deleted(sets: &[SnapshotSet], max_count: usize, restoring: &[&str]) -> Vec<String> {
        let restoring = restoring
            .iter()
            .map(|name| ("shop".to_owned(), (*name).to_owned()))
            .collect();
        let names = expired(sets, max_count, &restoring)
            .into_iter()
            .map(|effect| match effect {
                Effect::Delete(target) => target.name,
                other @ (Effect::Ensure(_) | Effect::Apply(_) | Effect::Patch { .. }) => {
                    panic!("{other:?}")
                }
            });
        names.collect()
    }

    #[test]
    fn the_oldest_sets_beyond_the_number_are_deleted() {
        let sets = [set("a", 10), set("c", 30), set("b", 20), set("d", 40)];
        for (max_count, expected) in [
            (0, vec![]),
            (1, vec!["c", "b", "a"]),
            (2, vec!["b", "a"]),
            (3, vec!["a"]),
            (4, vec![]),
        ] {
            assert_eq!(deleted(&sets, max_count, &[]), expected, "{max_count}");
        }
        assert_eq!(deleted(&[], 1, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_set_that_is_needed_is_kept() {
        let mut used = set("a", 10);
        used.is_in_use = true;
        let mut preserved = set("b", 20);
        preserved.is_preserved = true;
        let mut going = set("c", 15);
        going.snapshots[0].is_deleting = true;
        let sets = [used, preserved, going, set("d", 12), set("e", 50)];
        assert_eq!(deleted(&sets, 1, &[]), ["d"]);
        assert_eq!(deleted(&sets, 1, &["d"]), Vec::<String>::new());
    }
}
