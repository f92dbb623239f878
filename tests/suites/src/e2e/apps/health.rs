//! Applications that break, that Flux does not apply, and that Flux cannot apply.

use std::time::Instant;

use anyhow::{Result, ensure};
use api::apps::ManagedAppStatus;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;
use testkit::{git::Entry, wait::until};

use super::{
    super::why,
    cluster::equals,
    fixture::{Bench, FRESH, LIMIT, RARELY, put, watch},
    manifests::{BUSYBOX, UNKNOWN_IMAGE, deployment},
};
use crate::flux::{KUSTOMIZE, SOURCE, condition, dynamic};

/// A file that is no YAML.
const BROKEN: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: broken\n";
/// Characters of an error of Flux that the status must repeat.
const ERROR_CHARS: usize = 60;

/// A commit names an image that nobody has. The old Pod still runs, so the number of ready replicas is as desired.
pub(super) async fn breaks(bench: &Bench) -> Result<String> {
    let web = |image: &str| [deployment("web", image, &[])];
    let source = bench.launch("app", &web(BUSYBOX)).await?;
    put(&source, "Break the web server", &web(UNKNOWN_IMAGE)).await?;
    let pod = broken_pod(bench).await?;
    let begin = Instant::now();
    let (workload, named) = (bench.quoted("Deployment", "web"), format!("Pod '{pod}'"));
    let parts = [
        workload.as_str(),
        named.as_str(),
        "the image cannot be pulled",
    ];
    let (message, _) = bench.reports("app", "Unhealthy", &parts).await?;
    let took = begin.elapsed();
    is_explained(bench, &pod).await?;

    let revision = put(&source, "Repair the web server", &web(BUSYBOX)).await?;
    let begin = Instant::now();
    bench.ready("app", &revision, LIMIT).await?;
    let repaired = begin.elapsed();
    equals(bench, "app", &[("Deployment", "web")]).await?;
    Ok(format!(
        "reported {:.1} s after the kubelet, Ready {:.1} s after the next commit: {message}",
        took.as_secs_f64(),
        repaired.as_secs_f64()
    ))
}

/// Waits until the kubelet reports a Pod whose image cannot be pulled. Returns its name.
async fn broken_pod(bench: &Bench) -> Result<String> {
    let pods: Api<Pod> = bench.env.api();
    until("a Pod without its image", LIMIT, async || {
        let all = pods.list(&ListParams::default()).await?.items;
        let found = all.iter().find(|pod| lacks_image(pod));
        Ok(found
            .map(ResourceExt::name_any)
            .ok_or_else(|| format!("none of {} Pods", all.len())))
    })
    .await
}

fn lacks_image(pod: &Pod) -> bool {
    let status = pod.status.iter();
    let mut containers = status
        .flat_map(|status| status.container_statuses.iter())
        .flat_map(|all| all.iter());
    containers.any(|container| {
        let state = container.state.as_ref();
        let waiting = state.and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        matches!(reason, Some("ErrImagePull" | "ImagePullBackOff"))
    })
}

/// `orc why` follows the ManagedApp to the workload that its message names, and to the Pod.
async fn is_explained(bench: &Bench, pod: &str) -> Result<()> {
    let wanted = [("ManagedApp", "app"), ("Deployment", "web"), ("Pod", pod)];
    let wanted = wanted.map(|(kind, name)| (kind.to_owned(), name.to_owned()));
    let (client, home) = (&bench.env.client, bench.env.namespace.as_str());
    until("the chain of orc why", FRESH, async || {
        let chain = why::chain(client, (home, "app"), home, "Unhealthy").await?;
        Ok(if chain == wanted {
            Ok(())
        } else {
            Err(format!("{chain:?}, wanted {wanted:?}"))
        })
    })
    .await
}

/// A suspended Kustomization does not apply a commit, and the status names it.
pub(super) async fn suspended(bench: &Bench) -> Result<String> {
    let web = |replicas: u32| {
        let mut web = deployment("web", BUSYBOX, &[]);
        web["spec"]["replicas"] = json!(replicas);
        [web]
    };
    let source = bench.launch("app", &web(1)).await?;
    let old = source.revision()?;
    suspend(bench, true).await?;
    let named = bench.quoted("Kustomization", "app");
    let (message, took) = bench.reports("app", "AlreadySuspended", &[&named]).await?;
    let new = put(&source, "Scale the web server", &web(2)).await?;
    until_fetched(bench, &new).await?;
    let kustomization = dynamic(&bench.env, KUSTOMIZE, "Kustomization")
        .get("app")
        .await?;
    let applied = &kustomization.data["status"]["lastAppliedRevision"];
    let status = bench.status("app").await?;
    let reported = revision_of(&status);
    ensure!(
        *applied == *old && reported == Some(&*old),
        "Flux applied {applied}, and {reported:?} is reported"
    );
    bench.reports("app", "AlreadySuspended", &[&named]).await?;
    suspend(bench, false).await?;
    bench.ready("app", &new, LIMIT).await?;
    let status = equals(bench, "app", &[("Deployment", "web")]).await?;
    let desired = status.workloads.first().and_then(|web| web.desired);
    ensure!(desired == Some(2), "{desired:?} desired replicas");
    Ok(format!("after {:.1} s: {message}", took.as_secs_f64()))
}

async fn suspend(bench: &Bench, is_suspended: bool) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "suspend": is_suspended } }));
    dynamic(&bench.env, KUSTOMIZE, "Kustomization")
        .patch("app", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Waits until source-controller has fetched a revision.
async fn until_fetched(bench: &Bench, revision: &str) -> Result<()> {
    let sources = dynamic(&bench.env, SOURCE, "GitRepository");
    until("source-controller to fetch the commit", LIMIT, async || {
        let found = sources.get("app").await?;
        let fetched = &found.data["status"]["artifact"]["revision"];
        Ok(if *fetched == *revision {
            Ok(())
        } else {
            Err(fetched.to_string())
        })
    })
    .await
}

fn revision_of(status: &ManagedAppStatus) -> Option<&str> {
    status.git.as_ref().map(|git| git.revision.as_str())
}

/// A commit that Flux cannot apply, after one that it applied, and as the first one.
pub(super) async fn broken_commit(bench: &Bench) -> Result<String> {
    let web = [deployment("web", BUSYBOX, &[])];
    let source = bench.launch("app", &web).await?;
    let old = source.revision()?;
    let history = watch(&bench.env).await?;

    let broken = [("app/broken.yaml", Entry::File(BROKEN.as_bytes()))];
    let rejected = source.push("Add a broken file", &broken).await?;
    let error = rejection(bench, "app", &rejected).await?;
    let (message, _) = bench.reports("app", "Unhealthy", &[&error]).await?;
    let status = bench.status("app").await?;
    ensure!(
        revision_of(&status) == Some(&*old),
        "{:?} is reported as applied",
        status.git
    );
    let removed = [("app/broken.yaml", Entry::Removed)];
    let repaired = source.push("Remove the broken file", &removed).await?;
    bench.ready("app", &repaired, LIMIT).await?;

    // Flux observes no generation of a Kustomization that it never applied.
    let files = [("app/broken.yaml".to_owned(), BROKEN.to_owned())];
    let first = bench.apply_files(("first", RARELY), &files).await?;
    bench.manage("first", "first").await?;
    let error = rejection(bench, "first", &first.revision()?).await?;
    bench.reports("first", "Unhealthy", &[&error]).await?;

    let versions = history.versions().await?;
    let is_healthy = |app: &DynamicObject, revision: &str| {
        let [ready, ..] = condition(app, "Ready");
        ready == "True" && app.data["status"]["git"]["revision"] == *revision
    };
    let healthy = |revision: &str| {
        let found = versions.iter().filter(|app| is_healthy(app, revision));
        found.count()
    };
    // Without the repaired revision, the history would show nothing.
    ensure!(
        healthy(&repaired) > 0 && healthy(&rejected) == 0,
        "healthy at the repaired revision {} times, at the rejected one {} times",
        healthy(&repaired),
        healthy(&rejected)
    );
    let of_first = versions.iter().filter(|app| app.name_any() == "first");
    let (mut seen, mut ready) = (0, 0);
    for app in of_first {
        seen += 1;
        ready += usize::from(condition(app, "Ready")[0] == "True");
    }
    ensure!(
        seen > 0 && ready == 0,
        "of {seen} versions of 'first', {ready} are Ready"
    );
    Ok(format!("in {} versions: {message}", versions.len()))
}

/// Waits until kustomize-controller rejects a revision. Returns the start of its error.
async fn rejection(bench: &Bench, name: &str, revision: &str) -> Result<String> {
    let kustomizations = dynamic(&bench.env, KUSTOMIZE, "Kustomization");
    until("Flux to reject the commit", LIMIT, async || {
        let found = kustomizations.get(name).await?;
        let attempted = &found.data["status"]["lastAttemptedRevision"];
        let [status, reason, message] = condition(&found, "Ready");
        Ok(if *attempted == *revision && status == "False" {
            let line = message.lines().next().unwrap_or_default();
            let start: String = line.chars().take(ERROR_CHARS).collect();
            Ok(format!("{reason}: {start}"))
        } else {
            Err(format!("{attempted}: {status} {reason}: {message}"))
        })
    })
    .await
}
