//! The objects that a message names, such as `Pod 'shop/db-0'`.

use super::*;

/// The kinds that messages of requests name, and whether they are namespaced.
const KINDS: [(&str, bool); 16] = [
    ("UpgradeRequest", true),
    ("RollbackRequest", true),
    ("ManagedApp", true),
    ("GitRepository", true),
    ("Kustomization", true),
    ("HelmRelease", true),
    ("Deployment", true),
    ("StatefulSet", true),
    ("DaemonSet", true),
    ("CronJob", true),
    ("Job", true),
    ("Pod", true),
    ("PersistentVolumeClaim", true),
    ("PersistentVolume", false),
    ("VolumeSnapshot", true),
    ("Secret", true),
];

/// Maximum number of objects of one message.
const MAX_NAMED: usize = 4;

/// Returns the objects that a message names, in their order. `namespace` is that of a name without one.
pub(crate) fn objects(message: &str, namespace: &str) -> Vec<ObjectRef> {
    let mut found: Vec<(usize, ObjectRef)> = Vec::new();
    for (kind, is_namespaced) in KINDS {
        let start = format!("{kind} '");
        for (at, _) in message.match_indices(&start) {
            // `CronJob 'x'` ends with `Job 'x'`.
            let before = message.get(..at).and_then(|text| text.chars().last());
            if before.is_some_and(char::is_alphanumeric) {
                continue;
            }
            let rest = message.get(at + start.len()..).unwrap_or_default();
            let name = rest.split('\'').next().unwrap_or_default();
            if name.is_empty() || name.len() == rest.len() {
                continue;
            }
            let object = match (is_namespaced, name.split_once('/')) {
                (true, Some((namespace, name))) => ObjectRef::namespaced(kind, namespace, name),
                (true, None) => ObjectRef::namespaced(kind, namespace, name),
                (false, _) => ObjectRef::cluster(kind, name),
            };
            if !found.iter().any(|(_, known)| *known == object) {
                found.push((at, object));
            }
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found.truncate(MAX_NAMED);
    found.into_iter().map(|(_, object)| object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_a_message_are_found_in_their_order() {
        for (message, expected) in [
            (
                "Pod 'shop/db-0' on node 'node-1' is running and mounts PersistentVolumeClaim 'data'",
                vec!["Pod shop/db-0", "PersistentVolumeClaim team/data"],
            ),
            (
                "HelmRelease 'shop/shop' is locked by UpgradeRequest 'team/up'; waits",
                vec!["HelmRelease shop/shop", "UpgradeRequest team/up"],
            ),
            (
                "PersistentVolume 'pv-1' is attached to node 'node-1'",
                vec!["PersistentVolume /pv-1"],
            ),
            ("CronJob 'shop/backup' runs", vec!["CronJob shop/backup"]),
            (
                "Job 'up-plan' reads Job 'up-plan'",
                vec!["Job team/up-plan"],
            ),
            ("Pod 'cut off", vec![]),
            ("nothing is named", vec![]),
        ] {
            let found: Vec<String> = objects(message, "team")
                .iter()
                .map(|one| {
                    let namespace = one.namespace.as_deref().unwrap_or_default();
                    format!("{} {namespace}/{}", one.kind, one.name)
                })
                .collect();
            assert_eq!(found, expected, "{message}");
        }
    }
}
