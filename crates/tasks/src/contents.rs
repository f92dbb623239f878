//! Reduces cached runs, and keeps the files of runs that have no ConfigMap yet.
//!
//! A run has up to 900 KiB of files. Decisions read them once, when they create the ConfigMap. So the cache of runs
//! does not hold the files. This module keeps them, up to a size limit. Files that were dropped before they were needed
//! are read once more.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::{
    Status, names,
    tasks::{DocsRun, File, TaskRun},
};
use engine::watch::Source;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Maximum size of all kept files, in bytes. Workers that need more at the same time read their runs again.
const MOST: usize = 32 * 1024 * 1024;
/// Approximate size of an entry besides its files, in bytes.
const OVERHEAD: usize = 512;

/// Annotations of a run that decisions read.
const READ: [&str; 4] = [
    names::OUTCOME,
    names::PRESERVE,
    names::FORCE_DELETE,
    names::RECONCILE_AT,
];

/// Labels that we set. The engine compares them with the wanted ones. Their sizes are bounded.
const LABELS: [&str; 3] = [names::AGENT, names::SERVICE_NAME, names::TASK_ID];

/// Files of runs, by UID and generation. Clones share the same storage.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<String, Entry>,
    /// UIDs in the order of insertion.
    order: BTreeMap<u64, String>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    generation: i64,
    files: Arc<[File]>,
    bytes: usize,
    number: u64,
}

impl Contents {
    /// Removes the files from a run, and keeps them if they are still needed. A run from a live read always needs its
    /// files, even if the status records their ConfigMap: somebody may have deleted the ConfigMap.
    #[must_use]
    pub(crate) fn without(&self, mut run: TaskRun, source: Source) -> TaskRun {
        let is_stored = run.status.as_ref().is_some_and(|status| {
            let is_current = status.context_version == Some(run.spec.context_version);
            is_current && (status.config_map_uid.is_some() || status.is_over())
        });
        let is_needless = is_stored && source == Source::Watch;
        self.take(&mut run.metadata, &mut run.spec.markdown_files, is_needless);
        run
    }

    /// Does the same for the instructions of a DocsRun.
    #[must_use]
    pub(crate) fn without_instructions(&self, mut run: DocsRun, source: Source) -> DocsRun {
        let status = run.status.as_ref();
        let is_stored =
            status.is_some_and(|status| status.config_map_uid.is_some() || status.is_over());
        let is_needless = is_stored && source == Source::Watch;
        self.take(&mut run.metadata, &mut run.spec.instructions, is_needless);
        run
    }

    /// Drops the files of a deleted run.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the files of a run, if they are kept.
    #[must_use]
    pub(crate) fn of(&self, metadata: &ObjectMeta) -> Option<Arc<[File]>> {
        let kept = self.lock();
        let entry = kept.files.get(metadata.uid.as_deref()?)?;
        (Some(entry.generation) == metadata.generation).then(|| Arc::clone(&entry.files))
    }

    fn take(&self, metadata: &mut ObjectMeta, files: &mut Vec<File>, is_needless: bool) {
        slim(metadata);
        if files.is_empty() {
            return;
        }
        let files = mem::replace(files, vec![File::left_out()]);
        let (Some(uid), Some(generation)) = (&metadata.uid, metadata.generation) else {
            return;
        };
        let mut kept = self.lock();
        if is_needless {
            kept.remove(uid);
        } else {
            kept.insert(uid, generation, files);
        }
    }
}

impl Kept {
    fn insert(&mut self, uid: &str, generation: i64, files: Vec<File>) {
        let is_known = |entry: &Entry| entry.generation == generation;
        if self.files.get(uid).is_some_and(is_known) {
            return;
        }
        self.remove(uid);
        let bytes = files
            .iter()
            .map(|file| file.filename.len() + file.content.len())
            .sum::<usize>()
            + OVERHEAD;
        let number = self.next;
        let entry = Entry {
            generation,
            files: files.into(),
            bytes,
            number,
        };
        self.next += 1;
        self.bytes += bytes;
        self.files.insert(uid.to_owned(), entry);
        self.order.insert(number, uid.to_owned());
        while self.bytes > MOST
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, uid: &str) {
        if let Some(entry) = self.files.remove(uid) {
            self.bytes -= entry.bytes;
            self.order.remove(&entry.number);
        }
    }
}

/// Removes other labels and annotations. No decision reads them, and they may take a megabyte.
fn slim(metadata: &mut ObjectMeta) {
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|name, _| LABELS.contains(&name.as_str()));
    }
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|name, _| READ.contains(&name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(uid: &str, generation: i64, bytes: usize) -> TaskRun {
        serde_json::from_value(json!({
            "metadata": { "name": uid, "uid": uid, "generation": generation },
            "spec": {
                "taskId": 7, "serviceName": "shop", "agentName": "writer", "contextVersion": generation,
                "markdownFiles": [{ "filename": "task.md", "content": "x".repeat(bytes) }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn files_are_kept_until_their_config_map_is_recorded() {
        let contents = Contents::default();
        let reduced = contents.without(run("a", 1, 10), Source::Watch);
        assert!(matches!(&reduced.spec.markdown_files[..], [file] if file.is_left_out()));
        let kept = contents.of(&reduced.metadata).unwrap();
        assert_eq!(kept[0].content.len(), 10);
        // Another generation has other files.
        let next = contents.without(run("a", 2, 20), Source::Watch);
        assert!(contents.of(&reduced.metadata).is_none());
        assert_eq!(contents.of(&next.metadata).unwrap()[0].content.len(), 20);
        // The status records the ConfigMap of this version.
        let mut stored = run("a", 2, 20);
        stored.status =
            serde_json::from_value(json!({ "contextVersion": 2, "configMapUid": "m" })).unwrap();
        let stored = contents.without(stored, Source::Watch);
        assert!(contents.of(&stored.metadata).is_none());
        // Somebody deleted the ConfigMap, so the decision reads the run to get its files.
        let mut read = run("a", 2, 20);
        read.status.clone_from(&stored.status);
        let read = contents.without(read, Source::LiveRead);
        assert!(contents.of(&read.metadata).is_some());
        let stored = contents.without(stored, Source::Watch);
        assert!(
            contents.of(&stored.metadata).is_none(),
            "the watch says that it is there"
        );
        // The ConfigMap of an earlier version is not the one of this version.
        let mut newer = run("a", 3, 30);
        newer.status =
            serde_json::from_value(json!({ "contextVersion": 2, "configMapUid": "m" })).unwrap();
        let newer = contents.without(newer, Source::Watch);
        assert!(contents.of(&newer.metadata).is_some());
    }

    #[test]
    fn the_oldest_files_are_dropped_beyond_the_bound() {
        let contents = Contents::default();
        let large = 900 * 1024;
        for number in 0..600 {
            let reduced = contents.without(run(&format!("uid-{number}"), 1, large), Source::Watch);
            assert!(
                contents.of(&reduced.metadata).is_some(),
                "the newest is kept"
            );
        }
        let kept = contents.0.lock().unwrap();
        assert!(kept.bytes <= MOST);
        assert_eq!(kept.files.len(), kept.order.len());
        assert_eq!(
            kept.files.len(),
            MOST / (large + "task.md".len() + OVERHEAD)
        );
        let sum: usize = kept.files.values().map(|entry| entry.bytes).sum();
        assert_eq!(sum, kept.bytes);
    }

    #[test]
    fn files_of_a_run_that_is_gone_are_forgotten() {
        let contents = Contents::default();
        let reduced = contents.without(run("a", 1, 10), Source::Watch);
        contents.forget("a");
        assert!(contents.of(&reduced.metadata).is_none());
        let kept = contents.0.lock().unwrap();
        assert_eq!((kept.bytes, kept.order.len()), (0, 0));
    }

    #[test]
    fn only_metadata_that_decisions_read_is_kept() {
        let mut large = run("a", 1, 10);
        let text = "x".repeat(200_000);
        let labels = [("team", &*text), (names::AGENT, "writer")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        large.metadata.labels = Some(labels.into());
        let annotations = [(names::PRESERVE, "true"), ("note", &*text)];
        let annotations = annotations.map(|(name, value)| (name.to_owned(), value.to_owned()));
        large.metadata.annotations = Some(annotations.into());
        let kept = Contents::default().without(large, Source::Watch).metadata;
        let labels = kept.labels.unwrap();
        assert_eq!(labels.len(), 1);
        // Without it, the engine would write the label again with each status.
        assert_eq!(labels[names::AGENT], "writer");
        let kept = kept.annotations.unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[names::PRESERVE], "true");
    }
}
