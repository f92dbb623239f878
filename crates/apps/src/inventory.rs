//! Ids in an inventory of Flux: `namespace_name_group_kind`.

use std::collections::BTreeSet;

use crate::object::{ObjectId, ObjectKind};

/// Maximum number of objects of one application that are kept. A larger inventory cannot be judged.
pub(crate) const MAX_OBJECTS: usize = 1000;

/// Parses the ids of an inventory. Objects of kinds that the operator does not read are left out.
///
/// # Errors
/// If an id has another form, or if there are too many objects. Without them, the list would not be complete.
pub fn parse_all<'a>(ids: impl IntoIterator<Item = &'a str>) -> Result<BTreeSet<ObjectId>, String> {
    let mut objects = BTreeSet::new();
    for id in ids {
        objects.extend(parse(id)?);
    }
    if objects.len() > MAX_OBJECTS {
        return Err(format!(
            "the inventory has {} workloads and claims, more than {MAX_OBJECTS}",
            objects.len()
        ));
    }
    Ok(objects)
}

/// Parses one id. Returns `None` for a kind that the operator does not read.
///
/// # Errors
/// If the id has another form.
pub fn parse(id: &str) -> Result<Option<ObjectId>, String> {
    let unknown = || format!("'{id}' in the inventory is not 'namespace_name_group_kind'");
    // A name may contain `__`, which stands for `:`. The other three parts have no underscore, so the id is split
    // from both ends.
    let (namespace, rest) = id.split_once('_').ok_or_else(unknown)?;
    let (rest, kind) = rest.rsplit_once('_').ok_or_else(unknown)?;
    let (name, group) = rest.rsplit_once('_').ok_or_else(unknown)?;
    if name.is_empty() || kind.is_empty() {
        return Err(unknown());
    }
    let Some(kind) = ObjectKind::of(group, kind) else {
        return Ok(None);
    };
    // All of these kinds are namespaced.
    if namespace.is_empty() {
        return Err(unknown());
    }
    let name = name.replace("__", ":");
    Ok(Some(ObjectId::new(kind, namespace, &name)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_is_split_from_both_ends() {
        let object = |kind, namespace, name| Ok(Some(ObjectId::new(kind, namespace, name)));
        for (id, expected) in [
            (
                "shop_web_apps_Deployment",
                object(ObjectKind::Deployment, "shop", "web"),
            ),
            (
                "shop_db_apps_StatefulSet",
                object(ObjectKind::StatefulSet, "shop", "db"),
            ),
            (
                "shop_data__PersistentVolumeClaim",
                object(ObjectKind::Claim, "shop", "data"),
            ),
            (
                "flux-system_shop_helm.toolkit.fluxcd.io_HelmRelease",
                object(ObjectKind::HelmRelease, "flux-system", "shop"),
            ),
            // Kinds that are not read: cluster-scoped, a colon in the name, another group.
            ("_shop__Namespace", Ok(None)),
            (
                "_system__node_rbac.authorization.k8s.io_ClusterRole",
                Ok(None),
            ),
            ("shop_web_example.com_Deployment", Ok(None)),
            ("shop_web__Service", Ok(None)),
        ] {
            assert_eq!(parse(id), expected, "{id}");
        }
    }

    /// An id that is skipped would be a workload that nobody judges.
    #[test]
    fn an_id_of_another_form_is_an_error() {
        for id in [
            "",
            "shop",
            "shop_web",
            "shop_web_apps",
            "shop__apps_Deployment",
            "shop_web_apps_",
            "_web_apps_Deployment",
        ] {
            assert!(parse(id).is_err(), "{id}: {:?}", parse(id));
        }
    }

    #[test]
    fn a_large_inventory_is_an_error() {
        let ids: Vec<String> = (0..=MAX_OBJECTS)
            .map(|number| format!("shop_web-{number}_apps_Deployment"))
            .collect();
        let all = ids.iter().map(String::as_str);
        assert!(parse_all(all.clone().take(MAX_OBJECTS)).is_ok());
        assert!(parse_all(all).unwrap_err().contains("more than 1000"));
    }

    proptest! {
        #[test]
        fn an_id_reads_as_it_was_written(
            namespace in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?",
            name in "[a-z0-9]([-a-z0-9.:]{0,20}[a-z0-9])?",
        ) {
            for kind in &ObjectKind::ALL {
                let written = name.replace(':', "__");
                let id = format!("{namespace}_{written}_{}_{}", kind.group(), kind.name());
                let expected = Ok(Some(ObjectId::new(*kind, &namespace, &name)));
                prop_assert_eq!(parse(&id), expected);
            }
        }

        #[test]
        fn no_text_panics(id in ".{0,60}") {
            drop(parse(&id));
        }
    }
}
