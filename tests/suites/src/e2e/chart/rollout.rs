//! A changed configuration replaces the Pods: they read it only when they start.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::{Rendered, of_kind, text};

/// Checks that two renderings have the same checksum on their Pods exactly if they have the same
/// configuration.
pub(super) fn check(rendered: &[Rendered]) -> Result<()> {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for Rendered { values, objects } in rendered {
        let configs: Vec<&str> = of_kind(objects, "ConfigMap")
            .map(|map| text(map, "/data/config.yaml"))
            .filter(|config| !config.is_empty())
            .collect();
        let [config] = configs[..] else {
            anyhow::bail!("with '{values}': {} configurations", configs.len());
        };
        for deployment in of_kind(objects, "Deployment") {
            let checksum = text(
                deployment,
                "/spec/template/metadata/annotations/checksum~1config",
            );
            ensure!(!checksum.is_empty(), "with '{values}': no checksum");
            let first = *known.entry(config).or_insert(checksum);
            ensure!(
                first == checksum,
                "with '{values}': another checksum for the same configuration"
            );
        }
    }
    let checksums: std::collections::BTreeSet<&str> = known.values().copied().collect();
    ensure!(
        known.len() > 1 && checksums.len() == known.len(),
        "{} configurations have {} checksums",
        known.len(),
        checksums.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::e2e::{
        chart::{r17, render_all},
        shell::Shell,
    };

    fn rendered(config: &str, checksum: Value) -> Rendered {
        let map = json!({ "kind": "ConfigMap", "data": { "config.yaml": config } });
        let template = json!({ "metadata": { "annotations": { "checksum/config": checksum } } });
        let deployment = json!({ "kind": "Deployment", "spec": { "template": template } });
        Rendered {
            values: "",
            objects: vec![map, deployment],
        }
    }

    #[test]
    fn r17_a_checksum_that_does_not_follow_the_configuration_is_found() {
        let checked = |second: (&str, Value)| {
            check(&[rendered("a", json!("1")), rendered(second.0, second.1)])
                .map_err(|error| error.to_string())
        };
        assert_eq!(checked(("b", json!("2"))), Ok(()));
        for (wrong, why) in [
            (("b", json!("1")), "2 configurations have 1 checksums"),
            (("a", json!("2")), "another checksum"),
            (("b", Value::Null), "no checksum"),
            (("", json!("2")), "0 configurations"),
        ] {
            let error = checked(wrong).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    /// With the testbed's helm, without a cluster.
    #[tokio::test]
    #[ignore = "cluster: run by 'cargo xtask test'"]
    async fn r17_the_rendered_chart_has_all_names_and_rolls_out_changes() {
        let shell = Shell::without_cluster().unwrap();
        let seen = r17(&render_all(&shell).await.unwrap());
        assert!(seen.is_ok(), "{seen:?}");
    }
}
