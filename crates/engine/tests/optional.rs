//! A type that is installed and removed while its watch runs, on a real API server.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use api::decide::ResourceType;
use engine::{
    Availability, Key, OptionalCache, OptionalType, Presence, Scope, WatchManager, client,
    health::Health, metrics::Metrics, supervise::Supervisor,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use testkit::{cluster::Tier, operator::install, suite, wait::until};

const CHART: ResourceType =
    ResourceType::new("optional.orchestrator.test", "v1", "Chart", "charts");

const CRD: &str = "charts.optional.orchestrator.test";

fn crd() -> Result<CustomResourceDefinition> {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": CRD },
        "spec": {
            "group": CHART.group,
            "scope": "Namespaced",
            "names": { "kind": CHART.kind, "plural": CHART.plural, "singular": "chart" },
            "versions": [{
                "name": CHART.version, "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    Ok(serde_json::from_value(crd)?)
}

/// Deletes the CRD, and waits until it does not exist.
async fn uninstall(crds: &Api<CustomResourceDefinition>) -> Result<()> {
    until(
        "the CRD to be deleted",
        Duration::from_secs(30),
        async || {
            if crds.get_opt(CRD).await?.is_none() {
                return Ok(Ok(()));
            }
            match crds.delete(CRD, &DeleteParams::default()).await {
                Ok(_) => Ok(Err("it is being deleted".to_owned())),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Ok(())),
                Err(error) => bail!(error),
            }
        },
    )
    .await
}

/// Decodes a chart to its size.
fn size(chart: &DynamicObject) -> Result<i64, String> {
    let size = chart.data.pointer("/spec/size").and_then(Value::as_i64);
    size.ok_or_else(|| "spec.size is not a number".to_owned())
}

/// Waits until the cache shows an object as wanted.
async fn becomes(
    charts: &OptionalCache<i64>,
    key: &Key,
    wanted: &Presence<i64>,
    seconds: u64,
) -> Result<()> {
    let what = format!("{key} to be {wanted:?}");
    until(&what, Duration::from_secs(seconds), async || {
        let seen = charts.get(key);
        if seen == *wanted {
            Ok(Ok(()))
        } else {
            Ok(Err(format!("{seen:?}")))
        }
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_crd_that_is_installed_and_removed_needs_no_restart() -> Result<()> {
    suite::test(Tier::Api, "optional", async |env| {
        let crds: Api<CustomResourceDefinition> = Api::all(env.client.clone());
        // An earlier run on a contributor's cluster may have left it.
        uninstall(&crds).await?;
        let (metrics, health) = (Metrics::default(), Health::default());
        let client = client::build(env.config.clone(), &metrics, &health)?;
        let scope = Scope::Namespaces(vec![env.namespace.clone()]);
        let mut watches = WatchManager::new(client, metrics, health.clone(), scope);
        let charts = watches.optional(OptionalType {
            resource: CHART,
            is_namespaced: true,
            decode: size,
            index: |_| Vec::new(),
        });
        let mut supervisor = Supervisor::new(health, Duration::from_secs(2));
        let _running = watches.start(&mut supervisor);
        let key = |name: &str| Key::new(&env.namespace, name);
        becomes(&charts, &key("good"), &Presence::NotInstalled, 10).await?;

        let resource = ApiResource {
            group: CHART.group.to_owned(),
            version: CHART.version.to_owned(),
            api_version: CHART.api_version(),
            kind: CHART.kind.to_owned(),
            plural: CHART.plural.to_owned(),
        };
        let objects: Api<DynamicObject> =
            Api::namespaced_with(env.client.clone(), &env.namespace, &resource);
        let create = async |name: &str, size: Value| -> Result<()> {
            let chart =
                DynamicObject::new(name, &resource).data(json!({ "spec": { "size": size } }));
            let created = objects.create(&PostParams::default(), &chart).await;
            created.map(drop).context("cannot create a chart")
        };
        for size in [3, 4] {
            install(&env.client, vec![crd()?]).await?;
            create("good", json!(size)).await?;
            create("odd", json!("many")).await?;
            let present = Presence::Present(Arc::new(size));
            becomes(&charts, &key("good"), &present, 45).await?;
            let unreadable = Presence::Unreadable {
                why: "spec.size is not a number".to_owned(),
            };
            becomes(&charts, &key("odd"), &unreadable, 5).await?;
            becomes(&charts, &key("none"), &Presence::Absent, 5).await?;
            objects.delete("odd", &DeleteParams::default()).await?;
            becomes(&charts, &key("odd"), &Presence::Absent, 10).await?;

            uninstall(&crds).await?;
            // The API server may keep the watch open until its timeout of 90 s.
            becomes(&charts, &key("good"), &Presence::NotInstalled, 120).await?;
            let availability = charts.availability(Some(&env.namespace));
            ensure!(
                availability == Availability::NotInstalled,
                "{availability:?}"
            );
        }
        Ok(())
    })
    .await
}
