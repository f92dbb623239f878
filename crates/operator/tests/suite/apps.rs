//! ManagedApps on a real API server, with the real binary and the permissions of its chart.
//!
//! The controllers of Flux and Helm do not run here. The test installs CRDs with the names of Flux and writes the
//! status of its objects, and the release Secrets, in the form in which those controllers write them. Pods have no
//! node: the test also writes their readiness, and the controllers of Kubernetes count it.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use api::{
    Timestamp,
    apps::{HELM_RELEASE, KUSTOMIZATION, ManagedApp, ManagedAppStatus},
    decide::ResourceType,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{Pod, Secret},
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use testkit::{
    audit::Request,
    cluster::Tier,
    operator::{self, Operator, Plan},
    suite::{self, Env},
    wait::until,
};

/// Limit of the freshness of a status (S1.8).
const FRESH: Duration = Duration::from_secs(30);

fn crd(resource: ResourceType) -> Result<CustomResourceDefinition> {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": open, "status": open } });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", resource.plural, resource.group) },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": { "kind": resource.kind, "plural": resource.plural,
                "singular": resource.kind.to_lowercase() },
            "versions": [{
                "name": resource.version, "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    Ok(serde_json::from_value(crd)?)
}

/// Deletes the CRDs of Flux, which an earlier run may have left, and waits until they do not exist.
async fn without_flux(env: &Env) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(env.client.clone());
    for resource in [KUSTOMIZATION, HELM_RELEASE] {
        let name = crd(resource)?.name_any();
        until(
            "a CRD of Flux to be deleted",
            Duration::from_secs(30),
            async || match crds.delete(&name, &DeleteParams::default()).await {
                Ok(_) => Ok(Err("it is being deleted".to_owned())),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Ok(())),
                Err(error) => bail!(error),
            },
        )
        .await?;
    }
    Ok(())
}

fn flux(env: &Env, resource: ResourceType) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: resource.group.to_owned(),
        version: resource.version.to_owned(),
        api_version: resource.api_version(),
        kind: resource.kind.to_owned(),
        plural: resource.plural.to_owned(),
    };
    Api::namespaced_with(env.client.clone(), &env.namespace, &resource)
}

async fn create_flux(env: &Env, resource: ResourceType, spec: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": { "name": "shop" }, "spec": spec,
    }))?;
    flux(env, resource)
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

/// Writes the status of an object of Flux, as its controller does.
async fn report(env: &Env, resource: ResourceType, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    let params = PatchParams::default();
    flux(env, resource)
        .patch_status("shop", &params, &patch)
        .await?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test writes times as another controller does"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

fn ready(value: &str, reason: &str) -> Value {
    json!([{ "type": "Ready", "status": value, "reason": reason, "message": "as the test wrote it",
        "observedGeneration": 1,
        "lastTransitionTime": now().to_string() }])
}

fn inventory(env: &Env, ids: &[&str]) -> Value {
    let namespace = &env.namespace;
    let entries: Vec<Value> = ids
        .iter()
        .map(|id| json!({ "id": format!("{namespace}_{id}"), "v": "v1" }))
        .collect();
    json!({ "entries": entries })
}

async fn create_app(env: &Env, name: &str, kustomization: Value) -> Result<()> {
    let app =
        json!({ "metadata": { "name": name }, "spec": { "kustomizationRef": kustomization } });
    env.create::<ManagedApp>(with_type(app)).await?;
    Ok(())
}

fn with_type(mut app: Value) -> Value {
    app["apiVersion"] = json!("orchestrator.io/v1alpha1");
    app["kind"] = json!("ManagedApp");
    app
}

/// Waits until a ManagedApp has this reason. Returns its status and the time that it took.
async fn has_reason(
    env: &Env,
    name: &str,
    reason: &str,
    within: Duration,
) -> Result<(ManagedAppStatus, Duration)> {
    let apps: Api<ManagedApp> = env.api();
    let start = Instant::now();
    let status = until(&format!("{name}: {reason}"), within, async || {
        let status = apps.get(name).await?.status.context("no status")?;
        let seen = status.progress.reason.clone();
        Ok(if seen.as_deref() == Some(reason) {
            Ok(status)
        } else {
            Err(format!("{seen:?}: {:?}", status.progress.message))
        })
    })
    .await?;
    Ok((status, start.elapsed()))
}

fn message(status: &ManagedAppStatus) -> &str {
    status.progress.message.as_deref().unwrap_or_default()
}

fn template() -> Value {
    json!({ "metadata": { "labels": { "app": "shop" } },
        "spec": { "containers": [{ "name": "web", "image": "web:2" }] } })
}

/// Writes the readiness of all Pods of the namespace, as a kubelet does.
async fn make_pods(env: &Env, is_ready: bool) -> Result<()> {
    let pods: Api<Pod> = env.api();
    let value = if is_ready { "True" } else { "False" };
    for pod in pods.list(&ListParams::default()).await? {
        let status = json!({ "status": { "phase": "Running", "conditions": [
            { "type": "Ready", "status": value, "lastTransitionTime": now().to_string() },
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": now().to_string() },
        ] } });
        let patch = Patch::Strategic(status);
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await?;
    }
    Ok(())
}

/// Waits until the namespace has this number of Pods.
async fn has_pods(env: &Env, count: usize) -> Result<()> {
    let pods: Api<Pod> = env.api();
    until("the Pods", FRESH, async || {
        let found = pods.list(&ListParams::default()).await?.items.len();
        Ok(if found == count {
            Ok(())
        } else {
            Err(format!("{found} Pods"))
        })
    })
    .await
}

/// Stores a release as Helm does: JSON, gzip, base64, and base64 of the Secret by the client.
async fn store_release(env: &Env, version: i64, workloads: &[&str]) -> Result<()> {
    let mut manifest = String::new();
    for name in workloads {
        manifest.push_str(&format!(
            "---\n# Source: shop/templates/{name}.yaml\napiVersion: apps/v1\nkind: StatefulSet\nmetadata:\n  name: {name}\n"
        ));
    }
    let release = json!({ "name": "shop", "version": version, "namespace": env.namespace,
        "manifest": manifest, "config": { "password": "c4n4ry" }, "hooks": [] });
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(release.to_string().as_bytes())?;
    let once = STANDARD.encode(encoder.finish()?);
    let secret = json!({
        "metadata": { "name": format!("sh.helm.release.v1.shop.v{version}"),
            "labels": { "owner": "helm", "name": "shop" } },
        "type": "helm.sh/release.v1",
        "stringData": { "release": once },
    });
    env.create::<Secret>(secret).await?;
    Ok(())
}

fn history(env: &Env, version: i64) -> Value {
    json!([{ "name": "shop", "namespace": env.namespace, "version": version, "status": "deployed",
        "chartName": "shop", "chartVersion": "2.0.0", "appVersion": "15", "configDigest": "sha256:c",
        "digest": format!("sha256:{version}") }])
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_managed_app_reports_flux_and_its_workloads() -> Result<()> {
    suite::test(Tier::Api, "apps", async |env| {
        without_flux(&env).await?;
        let plan = Plan {
            watched: vec![env.namespace.clone()],
            ..Plan::new(
                env!("CARGO_BIN_EXE_orchestrator").into(),
                &api::apps::OPERATOR,
                &env.namespace,
            )
        };
        operator::install(&env.client, api::apps::OPERATOR.crds()).await?;
        let operator = Operator::start(&env.client, &env.config, &plan).await?;
        appears(&env).await?;
        let took = follows_a_workload(&env).await?;
        println!("S1.8: a workload that breaks is reported after {took:?}");
        stays_ready(&env, &operator).await?;
        finds_a_release(&env).await?;
        reports_a_wrong_release(&env).await?;
        reports_references(&env).await?;
        let log = operator.log_text()?;
        ensure!(
            !log.contains("c4n4ry"),
            "a value of a release is in the log"
        );
        without_flux(&env).await?;
        has_reason(&env, "later", "FluxNotInstalled", Duration::from_secs(120)).await?;
        operator.stop().await
    })
    .await
}

/// Flux is not installed at first, then without an object, then with one.
async fn appears(env: &Env) -> Result<()> {
    create_app(env, "shop", json!({ "name": "shop" })).await?;
    let (status, _) = has_reason(env, "shop", "FluxNotInstalled", FRESH).await?;
    ensure!(
        message(&status).contains("Install Flux"),
        "{}",
        message(&status)
    );
    operator::install(&env.client, vec![crd(KUSTOMIZATION)?, crd(HELM_RELEASE)?]).await?;
    // The type is listed again after 30 s at most.
    let within = Duration::from_secs(45);
    let (status, _) = has_reason(env, "shop", "FluxObjectNotFound", within).await?;
    let named = format!("Kustomization '{}/shop' does not exist", env.namespace);
    ensure!(message(&status).contains(&named), "{}", message(&status));
    create_flux(
        env,
        KUSTOMIZATION,
        json!({ "interval": "10m", "path": "./shop" }),
    )
    .await?;
    let (status, _) = has_reason(env, "shop", "Comparing", FRESH).await?;
    ensure!(
        message(&status).contains("not reconciled yet"),
        "{}",
        message(&status)
    );
    Ok(())
}

/// Returns the time after which a workload that breaks is reported.
async fn follows_a_workload(env: &Env) -> Result<Duration> {
    let deployment = json!({ "metadata": { "name": "web" }, "spec": { "replicas": 1,
        "selector": { "matchLabels": { "app": "shop" } }, "template": template() } });
    env.create::<Deployment>(deployment).await?;
    let applied = json!({ "observedGeneration": 1, "conditions": ready("True", "ReconciliationSucceeded"),
        "lastAppliedRevision": "main@sha1:0123", "lastAttemptedRevision": "main@sha1:0123",
        "inventory": inventory(env, &["web_apps_Deployment", "web__Service"]) });
    report(env, KUSTOMIZATION, applied).await?;
    let (status, _) = has_reason(env, "shop", "Unhealthy", FRESH).await?;
    let named = format!("Deployment '{}/web'", env.namespace);
    ensure!(message(&status).contains(&named), "{}", message(&status));
    has_pods(env, 1).await?;
    make_pods(env, true).await?;
    let (status, _) = has_reason(env, "shop", "Ready", FRESH).await?;
    let [workload] = &status.workloads[..] else {
        bail!("{:?}", status.workloads);
    };
    ensure!(
        (workload.desired, workload.ready) == (Some(1), Some(1)),
        "{workload:?}"
    );
    let git = status.git.context("no revision")?;
    ensure!(git.revision == "main@sha1:0123", "{git:?}");

    make_pods(env, false).await?;
    let (_, took) = has_reason(env, "shop", "Unhealthy", FRESH).await?;
    make_pods(env, true).await?;
    has_reason(env, "shop", "Ready", FRESH).await?;
    let events: Api<Event> = env.api();
    let events = events.list(&ListParams::default()).await?;
    let told = |reason: &str| {
        let mut all = events.items.iter();
        all.any(|event| {
            let kind = event
                .regarding
                .as_ref()
                .and_then(|object| object.kind.as_deref());
            event.reason.as_deref() == Some(reason) && kind == Some("ManagedApp")
        })
    };
    for reason in [
        "FluxNotInstalled",
        "FluxObjectNotFound",
        "Unhealthy",
        "Ready",
    ] {
        ensure!(told(reason), "no Event '{reason}'");
    }
    Ok(took)
}

/// An interval of Flux and an idle time write nothing.
async fn stays_ready(env: &Env, operator: &Operator) -> Result<()> {
    let apps: Api<ManagedApp> = env.api();
    let before = apps.get("shop").await?.resource_version();
    let audit = env.testbed("reading the audit log")?.audit();
    let mark = audit.mark(&env.client).await?;
    report(
        env,
        KUSTOMIZATION,
        json!({ "conditions": ready("Unknown", "Progressing") }),
    )
    .await?;
    // More than one reconciliation without an event.
    tokio::time::sleep(Duration::from_secs(35)).await;
    let after = apps.get("shop").await?.resource_version();
    ensure!(
        before == after,
        "the status was written: {before:?}, {after:?}"
    );
    let counts = audit.counts(&env.client, mark).await?;
    let is_write = |request: &Request| {
        let is_lease = request.resource.starts_with("leases");
        request.user == operator.user && request.is_write() && !is_lease
    };
    ensure!(counts.of(is_write) == 0, "{counts}");
    let is_any = |request: &Request| request.user == operator.user;
    ensure!(
        counts.of(is_any) > 0,
        "the operator is not in the log: {counts}"
    );
    report(
        env,
        KUSTOMIZATION,
        json!({ "conditions": ready("True", "ReconciliationSucceeded") }),
    )
    .await?;
    let (_, _) = has_reason(env, "shop", "Ready", FRESH).await?;
    Ok(())
}

/// The workloads and the claims of a HelmRelease come from the release Secret.
async fn finds_a_release(env: &Env) -> Result<()> {
    let set = json!({ "metadata": { "name": "db" }, "spec": { "replicas": 1, "serviceName": "db",
        "selector": { "matchLabels": { "app": "shop" } }, "template": template(),
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }] } });
    env.create::<StatefulSet>(set).await?;
    store_release(env, 1, &["db"]).await?;
    let spec = json!({ "chart": { "spec": { "chart": "shop", "version": "2.0.0" } } });
    create_flux(env, HELM_RELEASE, spec).await?;
    let status = json!({ "observedGeneration": 1, "conditions": ready("True", "InstallSucceeded"),
        "storageNamespace": env.namespace, "history": history(env, 1),
        "lastAttemptedGeneration": 1, "lastAttemptedRevision": "2.0.0",
        "lastAttemptedConfigDigest": "sha256:c",
        "inventory": inventory(env, &["db_apps_StatefulSet"]) });
    report(env, HELM_RELEASE, status).await?;
    let ids = [
        "web_apps_Deployment",
        "shop_helm.toolkit.fluxcd.io_HelmRelease",
    ];
    report(
        env,
        KUSTOMIZATION,
        json!({ "inventory": inventory(env, &ids) }),
    )
    .await?;
    has_reason(env, "shop", "Unhealthy", FRESH).await?;
    has_pods(env, 2).await?;
    make_pods(env, true).await?;
    let (status, _) = has_reason(env, "shop", "Ready", FRESH).await?;
    ensure!(status.workload_count == 2, "{:?}", status.workloads);
    ensure!(status.versions_match == Some(true), "{status:?}");
    let release = status.release.context("no release")?;
    ensure!(
        (release.version, release.chart_version.as_str()) == (1, "2.0.0"),
        "{release:?}"
    );
    let claims: Vec<&str> = status.volumes.iter().map(|one| one.name.as_str()).collect();
    ensure!(claims == ["data-db-0"], "{claims:?}");
    Ok(())
}

async fn reports_a_wrong_release(env: &Env) -> Result<()> {
    // Flux begins an upgrade: `Ready` and the newest release are still those of the old version.
    report(
        env,
        HELM_RELEASE,
        json!({ "lastAttemptedRevision": "2.1.0" }),
    )
    .await?;
    let (status, _) = has_reason(env, "shop", "Comparing", FRESH).await?;
    ensure!(message(&status).contains("'2.1.0'"), "{}", message(&status));
    report(
        env,
        HELM_RELEASE,
        json!({ "lastAttemptedRevision": "2.0.0" }),
    )
    .await?;
    has_reason(env, "shop", "Ready", FRESH).await?;
    // A release that the inventory contradicts.
    store_release(env, 4, &["db", "cache"]).await?;
    report(env, HELM_RELEASE, json!({ "history": history(env, 4) })).await?;
    let (status, _) = has_reason(env, "shop", "DiscoveryMismatch", FRESH).await?;
    let named = format!("StatefulSet '{}/cache'", env.namespace);
    ensure!(message(&status).contains(&named), "{}", message(&status));
    // Someone ran Helm by hand: a newer release exists.
    store_release(env, 3, &["db"]).await?;
    report(env, HELM_RELEASE, json!({ "history": history(env, 3) })).await?;
    let (status, _) = has_reason(env, "shop", "ReleaseChangedOutsideFlux", FRESH).await?;
    ensure!(
        message(&status).contains("version 4"),
        "{}",
        message(&status)
    );
    report(env, HELM_RELEASE, json!({ "history": history(env, 9) })).await?;
    let (status, _) = has_reason(env, "shop", "ReleaseUnreadable", FRESH).await?;
    ensure!(
        message(&status).contains("does not exist"),
        "{}",
        message(&status)
    );
    ensure!(!message(&status).contains("c4n4ry"));
    report(env, HELM_RELEASE, json!({ "history": history(env, 1) })).await?;
    has_reason(env, "shop", "Ready", FRESH).await?;
    let patch = Patch::Merge(json!({ "spec": { "suspend": true } }));
    let releases = flux(env, HELM_RELEASE);
    releases
        .patch("shop", &PatchParams::default(), &patch)
        .await?;
    has_reason(env, "shop", "AlreadySuspended", FRESH).await?;
    Ok(())
}

async fn reports_references(env: &Env) -> Result<()> {
    // The creation times of the two differ by more than a second, so the first one is older.
    create_app(env, "later", json!({ "name": "shop" })).await?;
    let (status, _) = has_reason(env, "later", "AppOverlaps", FRESH).await?;
    let named = format!("older ManagedApp '{}/shop'", env.namespace);
    ensure!(message(&status).contains(&named), "{}", message(&status));
    let elsewhere = json!({ "name": "shop", "namespace": "kube-system" });
    create_app(env, "elsewhere", elsewhere).await?;
    has_reason(env, "elsewhere", "NamespaceNotWatched", FRESH).await?;
    let apps: Api<ManagedApp> = env.api();
    apps.delete("shop", &DeleteParams::default()).await?;
    has_reason(env, "later", "AlreadySuspended", FRESH).await?;
    ensure!(
        apps.get_opt("shop").await?.is_none(),
        "no finalizer keeps it"
    );
    Ok(())
}
