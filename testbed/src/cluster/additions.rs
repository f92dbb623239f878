//! Starting components that only some tests need, on a cluster of the tier `node` that runs.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::future::{try_join, try_join_all};
use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use super::{
    Cluster, Process, Tier, components, manifests,
    pki::Pki,
    start::{Seen, wait_for},
};
use crate::{addition::Addition, image_cache, layout, parts};

/// Namespace of Flux's controllers.
pub const FLUX_NAMESPACE: &str = "flux-system";
/// Flux's controllers: names of their parts, images and Deployments.
const FLUX_CONTROLLERS: [&str; 3] = [
    "source-controller",
    "kustomize-controller",
    "helm-controller",
];
/// Versions of the app. They are one image, which reads its version from its first argument.
const APP_VERSIONS: [&str; 2] = ["2", "3"];

/// For `kubectl kustomize`, which reads a dozen small files.
const KUSTOMIZE_LIMIT: Duration = Duration::from_secs(30);

impl Cluster {
    /// Starts additions at the same time and waits until they work. [`super::Times`] then has their durations.
    ///
    /// # Errors
    /// When the cluster has no node, or an addition does not start; the error names it.
    pub async fn add(&mut self, additions: &[Addition]) -> Result<()> {
        ensure!(
            self.tier == Tier::Node || additions.is_empty(),
            "cluster '{}' has the tier '{}': additions need the tier 'node'",
            self.folders.name,
            self.tier.name()
        );
        let begin = Instant::now();
        let started = try_join_all(additions.iter().map(|&addition| {
            let cluster = &*self;
            async move {
                start(cluster, addition).await.with_context(|| {
                    format!(
                        "addition '{addition}' did not start; logs are in '{}'",
                        cluster.folders.logs.display()
                    )
                })?;
                anyhow::Ok((addition, begin.elapsed()))
            }
        }))
        .await?;
        if let Some(times) = &mut self.times {
            times.additions.extend(started);
        }
        Ok(())
    }
}

async fn start(cluster: &Cluster, addition: Addition) -> Result<()> {
    let client = cluster.client().await?;
    match addition {
        Addition::Snapshots => snapshots(cluster, &client).await,
        Addition::Flux => {
            try_join(load_images(cluster, addition), flux(cluster, &client)).await?;
            Ok(())
        }
        Addition::Shop => {
            load_images(cluster, addition).await?;
            let image = |version| format!("{}/app:{version}", super::REGISTRY);
            for version in APP_VERSIONS {
                cluster.tag_image(&image("1"), &image(version)).await?;
            }
            Ok(())
        }
        Addition::Notebooks => load_images(cluster, addition).await,
    }
}

async fn load_images(cluster: &Cluster, addition: Addition) -> Result<()> {
    let archives = image_cache::archives_of(Some(addition))?;
    try_join_all(archives.iter().map(|archive| cluster.load_image(archive))).await?;
    Ok(())
}

async fn snapshots(cluster: &Cluster, client: &Client) -> Result<()> {
    let kept = parts::folder_of("external-snapshotter")?.join("keep");
    // The CRDs of group snapshots beside them need a conversion webhook.
    let crds = yaml_files(&kept.join("config/crd"), "snapshot.storage.k8s.io_")?;
    apply_crds(cluster, client, &crds).await?;
    let deploy = kept.join("deploy/kubernetes");
    for file in [
        "snapshot-controller/rbac-snapshot-controller.yaml",
        "csi-snapshotter/rbac-csi-snapshotter.yaml",
    ] {
        apply_file(client, &deploy.join(file)).await?;
    }
    let pki = Pki::open(&cluster.folders.run.join("pki"));
    let control = &cluster.control;
    control
        .start(components::snapshot_controller(&pki)?)
        .await?;
    control.start(components::csi_snapshotter(&pki)?).await?;
    let class = layout::testbed().join("manifests/snapshots.yaml");
    wait_for(cluster, "the VolumeSnapshotClass", async || {
        apply_file(client, &class).await?;
        Ok(Seen::Yes)
    })
    .await?;
    probe_snapshots(cluster, client).await
}

/// Waits until both controllers report what is wrong with objects that cannot become ready.
async fn probe_snapshots(cluster: &Cluster, client: &Client) -> Result<()> {
    let name = "testbed-probe";
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"volumeSnapshotClassName": "btrfs", "source": {"persistentVolumeClaimName": name}},
    });
    let content = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": name},
        "spec": {
            "driver": components::CSI_DRIVER, "deletionPolicy": "Retain",
            "source": {"snapshotHandle": name},
            // No VolumeSnapshot has this name: nothing binds the content.
            "volumeSnapshotRef": {"name": format!("{name}-none"), "namespace": "default"},
        },
    });
    for (object, program) in [
        (snapshot, "snapshot-controller"),
        (content, "csi-snapshotter"),
    ] {
        probe(cluster, client, &object, program).await?;
    }
    Ok(())
}

/// Creates an object, waits for an error in its status, and deletes it.
async fn probe(cluster: &Cluster, client: &Client, object: &Value, program: &str) -> Result<()> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind);
    let resource = ApiResource::from_gvk(&kind);
    let objects: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let name = object.name_any();
    objects
        .create(&kube::api::PostParams::default(), &object)
        .await?;
    let what = format!("{program} to work");
    wait_for(cluster, &what, async || {
        let found = objects.get(&name).await?;
        Ok(if found.data["status"]["error"].is_object() {
            Seen::Yes
        } else {
            Seen::not_yet(&found.data["status"])
        })
    })
    .await?;
    objects.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

async fn flux(cluster: &Cluster, client: &Client) -> Result<()> {
    let overlay = flux_overlay(&cluster.folders.run)?;
    let mut crds = Vec::new();
    for controller in FLUX_CONTROLLERS {
        crds.extend(yaml_files(&overlay.join(controller).join("crd/bases"), "")?);
    }
    apply_crds(cluster, client, &crds).await?;
    let kubectl = parts::binary("kubernetes", "kubectl")?;
    let overlay = overlay.display().to_string();
    let render = Process::new("kustomize", kubectl, ["kustomize", &overlay]);
    let rendered = cluster.control.check(render, KUSTOMIZE_LIMIT).await?;
    manifests::apply(client, FLUX_NAMESPACE, &rendered)
        .await
        .context("the manifests of Flux")?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), FLUX_NAMESPACE);
    for controller in FLUX_CONTROLLERS {
        let what = format!("{controller} to be available");
        wait_for(cluster, &what, async || {
            let status = deployments.get(controller).await?.status;
            let available = status.and_then(|status| status.available_replicas);
            Ok(if available == Some(1) {
                Seen::Yes
            } else {
                Seen::not_yet(format!("{available:?} available Pods"))
            })
        })
        .await?;
    }
    Ok(())
}

/// Puts our kustomization beside the manifests of the modules, which it names by their directories.
fn flux_overlay(run: &Path) -> Result<PathBuf> {
    let overlay = run.join("flux");
    fs::create_dir_all(&overlay)?;
    let ours = layout::testbed().join("manifests/flux");
    for file in ["kustomization.yaml", "namespace.yaml"] {
        fs::copy(ours.join(file), overlay.join(file))
            .with_context(|| format!("cannot copy '{}'", ours.join(file).display()))?;
    }
    for controller in FLUX_CONTROLLERS {
        let config = parts::folder_of(controller)?.join("keep/config");
        symlink(&config, overlay.join(controller))
            .with_context(|| format!("cannot link '{}'", config.display()))?;
    }
    Ok(overlay)
}

/// The YAML files of a directory whose names begin with `prefix`, sorted.
fn yaml_files(folder: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let reading = || format!("cannot read '{}'", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(prefix) && name.ends_with(".yaml")) {
            files.push(path);
        }
    }
    ensure!(
        !files.is_empty(),
        "no manifest '{prefix}*' in '{}'",
        folder.display()
    );
    files.sort();
    Ok(files)
}

async fn apply_crds(cluster: &Cluster, client: &Client, files: &[PathBuf]) -> Result<()> {
    let mut names = Vec::new();
    for file in files {
        let applied = apply_file(client, file).await?;
        names.extend(applied.iter().map(ResourceExt::name_any));
    }
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for name in names {
        wait_for(cluster, &format!("the CRD '{name}'"), async || {
            let conditions = crds.get(&name).await?.status.and_then(|it| it.conditions);
            let is_established = conditions.is_some_and(|list| {
                list.iter()
                    .any(|one| one.type_ == "Established" && one.status == "True")
            });
            Ok(if is_established {
                Seen::Yes
            } else {
                Seen::not_yet("not established")
            })
        })
        .await?;
    }
    Ok(())
}

async fn apply_file(client: &Client, file: &Path) -> Result<Vec<DynamicObject>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read '{}'", file.display()))?;
    manifests::apply(client, "default", &text)
        .await
        .with_context(|| format!("cannot apply '{}'", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_manifests_with_the_prefix_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a_two.yaml", "a_one.yaml", "b_one.yaml", "a_note.md"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names = ["a_one.yaml", "a_two.yaml"].map(|name| folder.path().join(name));
        assert_eq!(yaml_files(folder.path(), "a_").unwrap(), names);
        let error = yaml_files(folder.path(), "c_").unwrap_err().to_string();
        assert!(error.contains("'c_*'"), "{error}");
    }

    #[test]
    fn every_image_of_an_addition_is_declared() {
        let images = image_cache::declared().unwrap();
        let of = |wanted: Addition| {
            let names = images
                .iter()
                .filter(|image| image.addition() == Some(wanted));
            names.map(|image| image.name()).collect::<Vec<_>>()
        };
        let mut flux = FLUX_CONTROLLERS;
        flux.sort_unstable();
        assert_eq!(of(Addition::Flux), flux);
        assert_eq!(of(Addition::Shop), ["app", "postgres"]);
        assert_eq!(of(Addition::Notebooks), ["notebook-base"]);
        assert!(of(Addition::Snapshots).is_empty());
    }
}
