//! Volumes in Pod templates: claims, and volumes that a snapshot could not contain.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSpec, Volume};
use serde_json::Value;

/// The volumes of a Pod spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Names of claims.
    pub claims: BTreeSet<String>,
    /// Names and types of volumes that a snapshot could not contain.
    pub unprotected: BTreeSet<(String, String)>,
}

/// Types of volumes without data of the application: their content comes from the cluster, or is deleted with the Pod on
/// purpose.
const WITHOUT_DATA: &[&str] = &[
    "configMap",
    "downwardAPI",
    "emptyDir",
    "image",
    "projected",
    "secret",
];

impl From<&PodSpec> for Mounts {
    fn from(spec: &PodSpec) -> Self {
        let mut mounts = Self::default();
        for volume in spec.volumes.iter().flat_map(|all| all.iter()) {
            if let Some(source) = &volume.persistent_volume_claim {
                mounts.claims.insert(source.claim_name.clone());
            } else if let Some(kind) = type_of(volume).filter(|kind| has_data(kind)) {
                mounts.unprotected.insert((volume.name.clone(), kind));
            }
        }
        mounts
    }
}

fn has_data(kind: &str) -> bool {
    !WITHOUT_DATA.contains(&kind)
}

/// Returns the type of a volume: the only field beside the name. So the type of a driver that this code does not know
/// is listed, too.
fn type_of(volume: &Volume) -> Option<String> {
    let Ok(Value::Object(fields)) = serde_json::to_value(volume) else {
        return None;
    };
    fields
        .into_iter()
        .map(|(name, _)| name)
        .find(|name| name != "name")
}

/// Maximum number of claims of one StatefulSet that are kept. Without it, a StatefulSet with a billion replicas would
/// fill the memory of the operator.
pub const MAX_CLAIMS: usize = 1000;

/// Returns the names of the claims that a StatefulSet creates from its templates, one for each replica, at most
/// [`MAX_CLAIMS`].
#[must_use]
pub fn claims_of_templates(
    templates: &[String],
    set: &str,
    first: i32,
    replicas: i32,
) -> BTreeSet<String> {
    let ordinals = first..first.saturating_add(replicas);
    ordinals
        .flat_map(|ordinal| {
            let one = move |template: &String| format!("{template}-{set}-{ordinal}");
            templates.iter().map(one)
        })
        .take(MAX_CLAIMS)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_are_claims_unprotected_or_without_data() {
        let spec = json!({ "containers": [], "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": "shop-data" } },
            { "name": "again", "persistentVolumeClaim": { "claimName": "shop-data" } },
            { "name": "node", "hostPath": { "path": "/var/lib/shop" } },
            { "name": "share", "nfs": { "server": "nfs", "path": "/" } },
            { "name": "inline", "csi": { "driver": "example.com" } },
            { "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } },
            { "name": "tmp", "emptyDir": {} },
            { "name": "config", "configMap": { "name": "shop" } },
            { "name": "secret", "secret": { "secretName": "shop" } },
            { "name": "token", "projected": {} },
        ] });
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let found = Mounts::from(&spec);
        assert_eq!(found.claims, ["shop-data".to_owned()].into());
        let pair = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
        let expected = [
            pair("inline", "csi"),
            pair("node", "hostPath"),
            pair("scratch", "ephemeral"),
            pair("share", "nfs"),
        ];
        assert_eq!(found.unprotected, expected.into());
        assert_eq!(Mounts::from(&PodSpec::default()), Mounts::default());
    }

    #[test]
    fn a_set_has_one_claim_for_each_template_and_replica() {
        let templates = ["data".to_owned(), "wal".to_owned()];
        let found = claims_of_templates(&templates, "db", 3, 2);
        let expected = ["data-db-3", "data-db-4", "wal-db-3", "wal-db-4"];
        assert_eq!(found, expected.map(str::to_owned).into());
        let many = claims_of_templates(&templates, "db", 0, i32::MAX);
        assert_eq!(many.len(), MAX_CLAIMS);
        for (first, replicas) in [(0, 0), (0, -1), (i32::MAX, 5)] {
            assert_eq!(
                claims_of_templates(&templates, "db", first, replicas).len(),
                0
            );
        }
    }
}
