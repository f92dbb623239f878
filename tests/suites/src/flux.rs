//! Objects of Flux, repositories that Flux applies, and charts, for cases on a cluster with the addition `flux`.

use std::{collections::BTreeMap, io::Read, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::read::GzDecoder;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams, PostParams,
    },
};
use serde_json::{Value, json};
use testkit::{
    charts::ChartServer,
    cluster::Cluster,
    git::{Credentials, Entry, Repository, Server},
    suite::Env,
    wait::until,
};

pub(crate) const SOURCE: &str = "source.toolkit.fluxcd.io/v1";
pub(crate) const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io/v1";
pub(crate) const HELM: &str = "helm.toolkit.fluxcd.io/v2";
/// The annotation that asks Flux to reconcile an object now.
pub(crate) const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Branch of every repository.
pub(crate) const BRANCH: &str = "main";

/// A release that helm-controller stores has a few kilobytes. More is not read.
const RELEASE_LIMIT: u64 = 32 << 20;

/// Returns the API of a type without Rust code here, in the case's namespace.
pub(crate) fn dynamic(env: &Env, api_version: &str, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(
        env.client.clone(),
        &env.namespace,
        &resource(api_version, kind),
    )
}

/// Returns the resource of a type, with the usual plural.
pub(crate) fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Creates an object of any type in the case's namespace.
pub(crate) async fn create_any(env: &Env, object: Value) -> Result<DynamicObject> {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let objects = dynamic(env, &text("apiVersion"), &text("kind"));
    let (kind, object) = (text("kind"), serde_json::from_value(object)?);
    objects
        .create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("cannot create {kind} '{}'", object.name_any()))
}

/// Returns status, reason and message of a condition; empty texts if the object has no such condition.
pub(crate) fn condition(object: &DynamicObject, kind: &str) -> [String; 3] {
    let found = object.data["status"]["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|one| one["type"] == kind));
    ["status", "reason", "message"].map(|key| {
        let value = found.and_then(|one| one[key].as_str());
        value.unwrap_or_default().to_owned()
    })
}

/// Waits until an object is Ready at its generation. Fails at once if it is Stalled.
pub(crate) async fn ready(
    objects: &Api<DynamicObject>,
    name: &str,
    limit: Duration,
) -> Result<DynamicObject> {
    until(&format!("'{name}' to be Ready"), limit, async || {
        let object = objects.get(name).await?;
        let [stalled, reason, message] = condition(&object, "Stalled");
        if stalled == "True" {
            bail!("'{name}' is stalled: {reason}: {message}");
        }
        let is_current =
            object.data["status"]["observedGeneration"].as_i64() == object.metadata.generation;
        let [status, reason, message] = condition(&object, "Ready");
        Ok(if status == "True" && is_current {
            Ok(object)
        } else {
            Err(format!("Ready is '{status}': {reason}: {message}"))
        })
    })
    .await
}

/// A repository of a Git server, and the GitRepository of the same name in the case's namespace.
pub(crate) struct Source {
    env: Env,
    name: String,
    repository: Repository,
}

impl Source {
    /// Creates a repository with these files, and a GitRepository for it.
    pub(crate) async fn new(
        env: &Env,
        git: &Server,
        (name, interval): (&str, &str),
        files: &[(&str, &str)],
    ) -> Result<Self> {
        let repository = git.create(name, BRANCH, files)?;
        let secret = secret_name(name);
        create_secret(env, &secret, git.credentials_https()).await?;
        let object = json!({
            "apiVersion": SOURCE, "kind": "GitRepository", "metadata": {"name": name},
            "spec": {
                "interval": interval, "url": git.https_url(name), "ref": {"branch": BRANCH},
                "secretRef": {"name": secret},
            },
        });
        create_any(env, object).await?;
        Ok(Self {
            env: env.clone(),
            name: name.to_owned(),
            repository,
        })
    }

    /// Commits a change and lets Flux fetch it now. Returns its revision.
    pub(crate) async fn push(
        &self,
        message: &str,
        changes: &[(&str, Entry<'_>)],
    ) -> Result<String> {
        let commit = self.repository.commit(BRANCH, message, changes)?;
        let sources = dynamic(&self.env, SOURCE, "GitRepository");
        let patch = json!({"metadata": {"annotations": {REQUESTED_AT: commit}}});
        sources
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(revision(&commit))
    }

    /// Returns the repository, as its owner has it.
    pub(crate) fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Returns the name of the Secret with the credentials.
    pub(crate) fn secret(&self) -> String {
        secret_name(&self.name)
    }

    /// Returns the revision of the newest commit.
    pub(crate) fn revision(&self) -> Result<String> {
        let head = self.repository.head(BRANCH)?;
        Ok(revision(&head.context("no commit on the branch")?))
    }
}

fn secret_name(repository: &str) -> String {
    format!("git-{repository}")
}

/// Returns the revision of a commit, as Flux writes it.
pub(crate) fn revision(commit: &str) -> String {
    format!("{BRANCH}@sha1:{commit}")
}

/// A Kustomization that applies a directory of a GitRepository to the case's namespace.
pub(crate) fn kustomization(env: &Env, name: &str, source: &str, path: &str) -> Value {
    json!({
        "apiVersion": KUSTOMIZE, "kind": "Kustomization", "metadata": {"name": name},
        "spec": {
            "interval": "10m", "path": path, "prune": true, "timeout": "1m",
            "targetNamespace": env.namespace,
            "sourceRef": {"kind": "GitRepository", "name": source},
        },
    })
}

/// Waits until a Kustomization has applied a revision and is Ready.
pub(crate) async fn applied(
    env: &Env,
    name: &str,
    revision: &str,
    limit: Duration,
) -> Result<DynamicObject> {
    let kustomizations = dynamic(env, KUSTOMIZE, "Kustomization");
    let what = format!("Kustomization '{name}' to apply '{revision}'");
    until(&what, limit, async || {
        let seen = kustomizations.get(name).await?;
        let applied = &seen.data["status"]["lastAppliedRevision"];
        Ok(if *applied == *revision {
            Ok(())
        } else {
            let [status, reason, message] = condition(&seen, "Ready");
            Err(format!(
                "applied {applied}, Ready is '{status}': {reason}: {message}"
            ))
        })
    })
    .await?;
    ready(&kustomizations, name, limit).await
}

/// Creates a Secret from the credentials of a server.
async fn create_secret(env: &Env, name: &str, data: Credentials) -> Result<()> {
    let data: BTreeMap<String, ByteString> = data
        .into_iter()
        .map(|(key, value)| (key, ByteString(value)))
        .collect();
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..Secret::default()
    };
    env.api::<Secret>()
        .create(&PostParams::default(), &secret)
        .await
        .with_context(|| format!("cannot create Secret '{name}'"))?;
    Ok(())
}

/// Starts a chart server, and creates the HelmRepository `charts` for it.
pub(crate) async fn charts(env: &Env) -> Result<ChartServer> {
    charts_on(env, env.testbed("charts in the cluster's network")?).await
}

/// Does the same on another cluster, to which the client of `env` belongs.
pub(crate) async fn charts_on(env: &Env, cluster: &Cluster) -> Result<ChartServer> {
    let server = ChartServer::in_cluster(cluster)?;
    create_any(
        env,
        json!({
            "apiVersion": SOURCE, "kind": "HelmRepository", "metadata": {"name": "charts"},
            "spec": {"interval": "10m", "url": server.url},
        }),
    )
    .await?;
    Ok(server)
}

/// A HelmRelease of a chart of the server.
pub(crate) fn release(name: &str, chart: &str, version: &str, values: &Value) -> Value {
    json!({
        "apiVersion": HELM, "kind": "HelmRelease", "metadata": {"name": name},
        "spec": {
            "interval": "10m", "timeout": "3m", "values": values,
            "chart": {"spec": {
                "chart": chart, "version": version, "interval": "10m",
                "sourceRef": {"kind": "HelmRepository", "name": "charts"},
            }},
        },
    })
}

/// Returns the name of the Secret in which Helm stores a version of a release.
pub(crate) fn release_secret(name: &str, version: i64) -> String {
    format!("sh.helm.release.v1.{name}.v{version}")
}

/// Reads a release as Helm stores it: base64 inside of the Secret's own, gzip, JSON.
pub(crate) async fn stored_release(env: &Env, name: &str, version: i64) -> Result<Value> {
    let name = release_secret(name, version);
    let secret = env.api::<Secret>().get(&name).await?;
    ensure!(
        secret.type_.as_deref() == Some("helm.sh/release.v1"),
        "Secret '{name}' has the type {:?}",
        secret.type_
    );
    let data = secret.data.unwrap_or_default();
    let ByteString(encoded) = data.get("release").context("no key 'release'")?;
    let compressed = BASE64_STANDARD.decode(encoded).context("base64")?;
    ensure!(compressed.starts_with(&[0x1f, 0x8b, 0x08]), "not gzip");
    let mut text = String::new();
    GzDecoder::new(compressed.as_slice())
        .take(RELEASE_LIMIT)
        .read_to_string(&mut text)
        .context("gzip")?;
    serde_json::from_str(&text).context("JSON")
}
