//! The state of the cluster and of the repository, read without the operator's own status.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use api::{CommonStatus, names};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::CronJob,
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};
use testkit::{
    audit::{Entry, Mark},
    git::Commit,
    suite::Env,
    wait::{met, until},
};

use super::{
    super::fixture::RELEASED,
    fixture::{App, Bench, RELEASE_FILE},
};
use crate::flux::{BRANCH, HELM, KUSTOMIZE, dynamic};

pub(super) const SNAPSHOT: &str = "snapshot.storage.k8s.io/v1";

/// The trailer with the UID of a request.
const TRAILER: &str = "Orchestrator-Run";

/// Annotations that belong to the binding of a claim.
const BINDING: [&str; 3] = [
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
];

/// Reads the Kustomization and the HelmRelease of an application.
async fn flux(env: &Env, app: &str) -> Result<[DynamicObject; 2]> {
    Ok([
        dynamic(env, KUSTOMIZE, "Kustomization").get(app).await?,
        dynamic(env, HELM, "HelmRelease").get(app).await?,
    ])
}

/// Reads the HelmRelease of an application.
pub(super) async fn helm(env: &Env, app: &str) -> Result<DynamicObject> {
    Ok(dynamic(env, HELM, "HelmRelease").get(app).await?)
}

/// Flux has no lock, and `spec.suspend` is absent, as it was before.
pub(super) async fn flux_is_free(env: &Env, app: &str) -> Result<()> {
    for object in flux(env, app).await? {
        let suspend = &object.data["spec"]["suspend"];
        let lock = object.annotations().get(names::LOCK);
        ensure!(
            suspend.is_null() && lock.is_none(),
            "'{app}' has suspend {suspend} and the lock {lock:?}"
        );
    }
    Ok(())
}

/// Flux is suspended and locked by the request with this UID.
pub(super) async fn flux_is_locked(env: &Env, app: &str, uid: &str) -> Result<()> {
    for object in flux(env, app).await? {
        let suspend = &object.data["spec"]["suspend"];
        let lock = object.annotations().get(names::LOCK);
        ensure!(
            *suspend == true && lock.is_some_and(|lock| lock.contains(uid)),
            "'{app}' has suspend {suspend} and the lock {lock:?} instead of one of '{uid}'"
        );
    }
    Ok(())
}

/// Kind and name of each workload of the namespace, with its number of replicas, or the suspension of a CronJob.
pub(super) type Scales = BTreeMap<String, String>;

/// Reads the scale of each workload.
pub(super) async fn scales(env: &Env) -> Result<Scales> {
    let all = ListParams::default();
    let mut found = Scales::new();
    for one in env.api::<Deployment>().list(&all).await?.items {
        let replicas = one.spec.as_ref().and_then(|spec| spec.replicas);
        found.insert(
            format!("Deployment {}", one.name_any()),
            format!("{replicas:?}"),
        );
    }
    for one in env.api::<StatefulSet>().list(&all).await?.items {
        let replicas = one.spec.as_ref().and_then(|spec| spec.replicas);
        found.insert(
            format!("StatefulSet {}", one.name_any()),
            format!("{replicas:?}"),
        );
    }
    for one in env.api::<CronJob>().list(&all).await?.items {
        // The API server sets the default, false, if the field is absent.
        let suspend = one.spec.as_ref().and_then(|spec| spec.suspend);
        let suspend = suspend.unwrap_or(false);
        found.insert(
            format!("CronJob {}", one.name_any()),
            format!("suspended: {suspend}"),
        );
    }
    Ok(found)
}

/// Returns the images in the templates of all Deployments and StatefulSets.
pub(super) async fn images(env: &Env) -> Result<BTreeSet<String>> {
    let all = ListParams::default();
    let deployments = env.api::<Deployment>().list(&all).await?.items;
    let sets = env.api::<StatefulSet>().list(&all).await?.items;
    let of_deployments = deployments
        .into_iter()
        .filter_map(|one| one.spec?.template.spec);
    let of_sets = sets.into_iter().filter_map(|one| one.spec?.template.spec);
    let containers = of_deployments.chain(of_sets).flat_map(|pod| pod.containers);
    Ok(containers.filter_map(|one| one.image).collect())
}

/// Returns the duration of each phase, for the line of a case.
pub(super) fn durations(progress: &CommonStatus) -> String {
    let records = progress.phase_history.iter();
    let texts = records.filter_map(|record| {
        let (from, to) = (&record.started_at, record.finished_at.as_ref()?);
        let seconds = to.0.as_second() - from.0.as_second();
        Some(format!("{} {seconds} s", record.phase))
    });
    texts.collect::<Vec<String>>().join(", ")
}

/// No Pod that has not ended mounts a claim of the namespace.
pub(super) async fn no_pod_mounts(env: &Env) -> Result<()> {
    for pod in env.api::<Pod>().list(&ListParams::default()).await?.items {
        let spec = pod.spec.as_ref();
        let volumes = spec.and_then(|spec| spec.volumes.as_ref());
        let mounts = volumes.is_some_and(|all| {
            all.iter()
                .any(|volume| volume.persistent_volume_claim.is_some())
        });
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        ensure!(
            !mounts || has_ended,
            "Pod '{}' mounts a claim, and is {phase:?}",
            pod.name_any()
        );
    }
    Ok(())
}

/// Reads all VolumeSnapshots of the namespace.
pub(super) async fn snapshots(env: &Env) -> Result<Vec<DynamicObject>> {
    let all = dynamic(env, SNAPSHOT, "VolumeSnapshot");
    Ok(all.list(&ListParams::default()).await?.items)
}

/// No VolumeSnapshot exists.
pub(super) async fn no_snapshots(env: &Env) -> Result<()> {
    let names: Vec<String> = snapshots(env)
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    ensure!(names.is_empty(), "snapshots are left: {names:?}");
    Ok(())
}

/// Reads a claim.
pub(super) async fn claim(env: &Env, name: &str) -> Result<PersistentVolumeClaim> {
    Ok(env.api::<PersistentVolumeClaim>().get(name).await?)
}

/// Returns the name of the volume of a claim.
pub(super) fn volume_of(claim: &PersistentVolumeClaim) -> Result<String> {
    let volume = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.volume_name.clone());
    volume.with_context(|| format!("claim '{}' has no volume", claim.name_any()))
}

pub(super) fn volumes(env: &Env) -> Api<PersistentVolume> {
    Api::all(env.client.clone())
}

/// Returns reclaim policy and phase of a volume.
pub(super) async fn policy_and_phase(env: &Env, volume: &str) -> Result<(String, String)> {
    let volume = volumes(env).get(volume).await?;
    let policy = volume
        .spec
        .and_then(|spec| spec.persistent_volume_reclaim_policy);
    let phase = volume.status.and_then(|status| status.phase);
    Ok((policy.unwrap_or_default(), phase.unwrap_or_default()))
}

/// The names of all claims of the namespace.
pub(super) async fn claim_names(env: &Env) -> Result<Vec<String>> {
    let claims: Api<PersistentVolumeClaim> = env.api();
    let found = claims.list(&ListParams::default()).await?.items;
    let mut names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
    names.sort();
    Ok(names)
}

/// Returns a claim without its identity: UID, version, times, managed fields, volume and the annotations of its binding.
pub(super) fn comparable(claim: &PersistentVolumeClaim) -> Result<Value> {
    let mut value = serde_json::to_value(claim)?;
    let metadata = value["metadata"].as_object_mut().context("no metadata")?;
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
    ] {
        metadata.remove(field);
    }
    let annotations = metadata.get_mut("annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.retain(|name, _| !BINDING.iter().any(|prefix| name.starts_with(prefix)));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    value["spec"]
        .as_object_mut()
        .context("no spec")?
        .remove("volumeName");
    Ok(value)
}

/// Returns the lines that differ between two objects, as `diff` prints them.
pub(super) fn diff(
    before: &PersistentVolumeClaim,
    after: &PersistentVolumeClaim,
) -> Result<String> {
    let lines = |claim: &PersistentVolumeClaim| -> Result<Vec<String>> {
        let mut claim = claim.clone();
        claim.metadata.managed_fields = None;
        let text = serde_json::to_string_pretty(&claim)?;
        Ok(text.lines().map(|line| line.trim().to_owned()).collect())
    };
    let (before, after) = (lines(before)?, lines(after)?);
    let only = |sign: char, these: &[String], others: &[String]| -> String {
        let mine = these.iter().filter(|line| !others.contains(*line));
        mine.map(|line| format!("    {sign} {line}\n")).collect()
    };
    Ok([only('-', &before, &after), only('+', &after, &before)].concat())
}

/// Returns the newest commit of the branch.
pub(super) fn head(app: &App) -> Result<String> {
    let head = app.source.repository().head(BRANCH)?;
    head.context("no commit on the branch")
}

/// Returns the commits of the request with this UID, by the Git server's own log.
pub(super) fn commits_of(app: &App, uid: &str) -> Result<Vec<Commit>> {
    let mut log = app.source.repository().log(BRANCH)?;
    log.retain(|commit| {
        let mut trailers = commit.trailers.iter();
        trailers.any(|(name, value)| name == TRAILER && value == uid)
    });
    Ok(log)
}

/// Returns the file with the HelmRelease at a commit.
pub(super) fn release_file(app: &App, commit: &str) -> Result<String> {
    let file = app.source.repository().read(commit, RELEASE_FILE)?;
    Ok(String::from_utf8(file.context("no file")?)?)
}

/// Returns the lines that a commit has changed in the file with the HelmRelease, before and afterwards. The commit has
/// changed nothing else: no line was added or removed, and all other files are the same.
pub(super) fn changed_lines(app: &App, before: &str, after: &str) -> Result<Vec<(String, String)>> {
    let repository = app.source.repository();
    let (files, now) = (repository.files(before)?, repository.files(after)?);
    ensure!(files == now, "other files: {files:?}, then {now:?}");
    for path in files.keys().filter(|path| *path != RELEASE_FILE) {
        let same = repository.read(before, path)? == repository.read(after, path)?;
        ensure!(same, "'{path}' has changed");
    }
    let (before, after) = (release_file(app, before)?, release_file(app, after)?);
    let before: Vec<&str> = before.split('\n').collect();
    let after: Vec<&str> = after.split('\n').collect();
    ensure!(before.len() == after.len(), "lines were added or removed");
    let pairs = before.into_iter().zip(after);
    let changed = pairs.filter(|(before, after)| before != after);
    Ok(changed
        .map(|(before, after)| (before.to_owned(), after.to_owned()))
        .collect())
}

/// Returns version and chart version of the newest release in the history of the HelmRelease. Helm has deployed it.
pub(super) async fn deployed(env: &Env, app: &str) -> Result<(i64, String)> {
    let helm = helm(env, app).await?;
    let newest = &helm.data["status"]["history"][0];
    ensure!(
        newest["status"] == "deployed",
        "the newest release: {newest}"
    );
    let version = newest["version"].as_i64().context("no version")?;
    let chart = newest["chartVersion"].as_str().unwrap_or_default();
    Ok((version, chart.to_owned()))
}

/// Waits until Helm has deployed a chart version, in a release that is newer than this one.
pub(super) async fn until_deployed(env: &Env, app: &str, chart: &str, after: i64) -> Result<()> {
    let what = format!("chart {chart} of '{app}' to be deployed");
    until(&what, RELEASED, async || {
        let helm = helm(env, app).await?;
        let newest = &helm.data["status"]["history"][0];
        let version = newest["version"].as_i64().unwrap_or(0);
        let is_it = newest["status"] == "deployed" && newest["chartVersion"] == chart;
        Ok(met(is_it && version > after, || newest.to_string()))
    })
    .await
}

/// Returns the operator's writes since a mark, except those of its Lease.
pub(super) async fn writes(bench: &Bench, mark: Mark) -> Result<Vec<Entry>> {
    let audit = bench.env.testbed("the audit log")?.audit();
    let mut entries = audit.entries(&bench.env.client, mark).await?;
    entries.retain(|entry| {
        let request = &entry.request;
        request.user == bench.operator.user
            && request.is_write()
            && !request.resource.starts_with("leases")
    });
    Ok(entries)
}

/// The place in the audit log now.
pub(super) async fn mark(env: &Env) -> Result<Mark> {
    let audit = env.testbed("the audit log")?.audit();
    audit.mark(&env.client).await
}

/// The operator has written nothing since a mark but reports, and the Job of a plan.
pub(super) async fn wrote_reports_only(bench: &Bench, mark: Mark) -> Result<usize> {
    let all = writes(bench, mark).await?;
    let is_allowed = |entry: &Entry| {
        let (verb, resource) = (entry.request.verb.as_str(), entry.request.resource.as_str());
        match resource {
            "jobs.batch" => ["create", "delete"].contains(&verb) && entry.name.ends_with("-plan"),
            "events.events.k8s.io" => verb == "create",
            "managedapps.orchestrator.io/status"
            | "upgraderequests.orchestrator.io/status"
            | "rollbackrequests.orchestrator.io/status" => verb == "patch",
            _ => false,
        }
    };
    // The audit log of a create may lack the name of the object.
    let is_job = |entry: &Entry| entry.request.resource == "jobs.batch" && entry.name.is_empty();
    let other: Vec<&Entry> = all
        .iter()
        .filter(|entry| !is_allowed(entry) && !is_job(entry))
        .collect();
    ensure!(other.is_empty(), "other writes: {other:?}");
    Ok(all.len())
}

/// Versions and generations of the objects of Flux and of the workloads. Nobody has changed their spec or their metadata
/// while it stays the same.
pub(super) async fn fingerprint(env: &Env, app: &str) -> Result<Value> {
    let mut found = Vec::new();
    for object in flux(env, app).await? {
        found.push(json!({
            "name": object.name_any(), "generation": object.metadata.generation,
            "annotations": object.metadata.annotations, "labels": object.metadata.labels,
            "finalizers": object.metadata.finalizers, "spec": object.data["spec"],
        }));
    }
    Ok(json!({ "flux": found, "scales": scales(env).await? }))
}
