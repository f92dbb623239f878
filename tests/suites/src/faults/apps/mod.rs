//! The scenarios of the apps operator: a real application of Flux, with a volume, charts and a Git server.

mod oracles;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use api::apps::{ManagedApp, RollbackRequest, UpgradeRequest};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    charts::ChartServer,
    faults::{
        object_history::Seen,
        oracles::{Evidence, Violation},
        scenario_run::{Proof, Scenario, Stage},
    },
    git::{Hook, Repository, Server},
    suite,
    wait::met,
};

use super::{
    actions::{find, merged, proof},
    stand::Services,
};
use crate::{
    flux::{BRANCH, HELM, KUSTOMIZE, SOURCE, resource},
    verify::fixture::exec_in,
};

/// The longest wait for a step. An undo alone takes 40 s.
const LIMIT: Duration = Duration::from_secs(240);

/// The longest way to the end: two requests, and the installation of the chart.
const WHOLE: Duration = Duration::from_secs(420);

/// Name of the HelmRelease, the Kustomization, the GitRepository and the ManagedApp.
const APP: &str = "app";

/// The StatefulSet of the chart `store`, and its first Pod.
const SET: &str = "app-store";
const POD: &str = "app-store-0";

/// Plurals of both kinds of requests.
const UPGRADES: &str = "upgraderequests";
const ROLLBACKS: &str = "rollbackrequests";

/// The settings of the operator: its toolbox, and the network of the Git server.
const CONFIG: &str = concat!(
    "apps: {git: {toolboxImage: 'localhost/orchestrator-toolbox:",
    env!("CARGO_PKG_VERSION"),
    "', allowedNetworks: [198.18.0.0/24]}}\n"
);

/// What users do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// An upgrade succeeds.
    Upgrade,
    /// The Git server rejects the push, and the upgrade is undone.
    Fails,
    /// The upgrade is deleted while the workload is stopped.
    Deleted,
    /// An upgrade is rolled back.
    Rollback,
    /// The new version crash-loops, and the operator rolls it back.
    Automatic,
    /// Only the plan is made.
    DryRun,
}

impl Course {
    /// The versions that may have used the volume at the end.
    fn data(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Upgrade => &[&["1.0.0", "2.0.0"]],
            // A deletion after the commit completes the upgrade.
            Self::Deleted => &[&["1.0.0"], &["1.0.0", "2.0.0"]],
            Self::Fails | Self::Rollback | Self::Automatic | Self::DryRun => &[&["1.0.0"]],
        }
    }
}

/// A scenario with an application of its own on one server.
struct OfApps {
    git: Arc<Server>,
    charts: Arc<ChartServer>,
    course: Course,
    /// The versions that used the volume of each play, as its end was.
    data: Mutex<BTreeMap<String, Vec<String>>>,
}

/// All of them.
pub(super) fn scenarios(services: &Services) -> Vec<Arc<dyn Scenario>> {
    // Without charts, no operator that needs them is played.
    let Some(charts) = &services.charts else {
        return Vec::new();
    };
    let all = [
        Course::Upgrade,
        Course::Fails,
        Course::Deleted,
        Course::Rollback,
        Course::Automatic,
        Course::DryRun,
    ];
    let one = |course| {
        Arc::new(OfApps {
            git: Arc::clone(&services.git),
            charts: Arc::clone(charts),
            course,
            data: Mutex::default(),
        }) as Arc<dyn Scenario>
    };
    all.into_iter().map(one).collect()
}

/// What the operator watches, for the object history.
pub(super) fn watched() -> Vec<kube::core::ApiResource> {
    use k8s_openapi::api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        batch::v1::{CronJob, Job},
        core::v1::{PersistentVolumeClaim, Pod},
        events::v1::Event,
    };
    use kube::core::ApiResource;
    vec![
        ApiResource::erase::<ManagedApp>(&()),
        ApiResource::erase::<UpgradeRequest>(&()),
        ApiResource::erase::<RollbackRequest>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<StatefulSet>(&()),
        ApiResource::erase::<DaemonSet>(&()),
        ApiResource::erase::<CronJob>(&()),
        ApiResource::erase::<Job>(&()),
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<Event>(&()),
        resource(KUSTOMIZE, "Kustomization"),
        resource(HELM, "HelmRelease"),
        resource(SOURCE, "GitRepository"),
        resource("snapshot.storage.k8s.io/v1", "VolumeSnapshot"),
    ]
}

impl Scenario for OfApps {
    fn name(&self) -> &'static str {
        match self.course {
            Course::Upgrade => "upgrade",
            Course::Fails => "upgrade-fails",
            Course::Deleted => "upgrade-deleted",
            Course::Rollback => "rollback",
            Course::Automatic => "auto-rollback",
            Course::DryRun => "dry-run",
        }
    }

    fn begins_as(&self) -> Option<&'static str> {
        match self.course {
            Course::Upgrade | Course::DryRun => None,
            Course::Fails | Course::Deleted | Course::Rollback | Course::Automatic => {
                Some("upgrade")
            }
        }
    }

    fn limit(&self) -> Duration {
        WHOLE
    }

    fn config(&self) -> String {
        CONFIG.to_owned()
    }

    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Violation> {
        let commits = self.commits(evidence.home);
        let data = self.data().get(evidence.home).cloned();
        oracles::judge(
            evidence,
            &oracles::Play {
                commits: commits.map_err(|error| format!("{error:#}")),
                data,
                allowed: self.course.data(),
                is_dry_run: self.course == Course::DryRun,
            },
        )
    }

    fn run<'a>(&'a self, stage: &'a Stage) -> BoxFuture<'a, Result<Proof>> {
        async move {
            let repository = self.prepare(stage).await?;
            match self.course {
                Course::Upgrade => upgraded(stage).await?,
                Course::Fails => {
                    repository.set_hook(&Hook::Refuse("protected branch".to_owned()))?;
                    upgrade(stage, "2.0.0", json!({})).await?;
                    ends(stage, UPGRADES, "up", "Failed").await?;
                }
                Course::Deleted => deleted(stage).await?,
                Course::Rollback => {
                    upgraded(stage).await?;
                    roll_back(stage).await?;
                    ends(stage, ROLLBACKS, "back", "Succeeded").await?;
                }
                Course::Automatic => {
                    upgrade(stage, "3.0.0", json!({})).await?;
                    ends(stage, UPGRADES, "up", "Failed").await?;
                    ends(stage, ROLLBACKS, "up-rollback", "Succeeded").await?;
                }
                Course::DryRun => {
                    upgrade(stage, "2.0.0", json!({ "dryRun": true })).await?;
                    ends(stage, UPGRADES, "up", "Succeeded").await?;
                }
            }
            is_ready(stage).await?;
            let starts = starts(stage).await?;
            self.data().insert(stage.namespace.clone(), starts);
            Ok(proof())
        }
        .boxed()
    }
}

impl OfApps {
    fn data(&self) -> MutexGuard<'_, BTreeMap<String, Vec<String>>> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The UIDs in the trailers of the commits of a play's branch.
    fn commits(&self, namespace: &str) -> Result<Vec<String>> {
        let commits = self.git.repository(namespace)?.log(BRANCH)?;
        let trailers = commits.into_iter().flat_map(|commit| commit.trailers);
        let own = trailers.filter(|(name, _)| name == "Orchestrator-Run");
        Ok(own.map(|(_, uid)| uid).collect())
    }

    /// Repository, Secret, objects of Flux and ManagedApp, until the application is healthy.
    async fn prepare(&self, stage: &Stage) -> Result<Repository> {
        let name = stage.namespace.as_str();
        let release = self.release().to_string();
        let files = [("app/release.yaml", release.as_str())];
        let repository = self.git.create(name, BRANCH, &files)?;
        let credentials = self.git.credentials_https();
        let password = credentials.get("password").context("no password")?;
        stage.canary(&String::from_utf8(password.clone())?);
        let mut secret = Secret::default();
        secret.metadata.name = Some("git".to_owned());
        let data = credentials.into_iter();
        secret.data = Some(data.map(|(key, value)| (key, ByteString(value))).collect());
        let secrets: Api<Secret> = stage.api();
        secrets.create(&PostParams::default(), &secret).await?;
        let named = |api_version: &str, kind: &str, name: &str, spec: Value| {
            json!({
                "apiVersion": api_version, "kind": kind,
                "metadata": { "name": name }, "spec": spec,
            })
        };
        let objects = [
            named(
                SOURCE,
                "HelmRepository",
                "charts",
                json!({
                    "interval": "10m", "url": self.charts.url,
                }),
            ),
            named(
                SOURCE,
                "GitRepository",
                APP,
                json!({
                    "interval": "1h", "url": self.git.https_url(name), "ref": { "branch": BRANCH },
                    "secretRef": { "name": "git" },
                }),
            ),
            named(
                KUSTOMIZE,
                "Kustomization",
                APP,
                json!({
                    "interval": "1h", "path": "./app", "prune": true, "timeout": "1m",
                    "targetNamespace": name,
                    "sourceRef": { "kind": "GitRepository", "name": APP },
                }),
            ),
        ];
        for object in objects {
            create_any(stage, object).await?;
        }
        let app = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "ManagedApp",
            "metadata": { "name": APP },
            "spec": {
                "kustomizationRef": { "name": APP },
                "git": { "credentialsSecretRef": { "name": "git" } },
                "healthCheck": { "stableFor": "2s" },
                "phaseTimeouts": { "healthCheck": "20s" },
                "autoRollback": self.course == Course::Automatic,
            },
        });
        suite::create::<ManagedApp>(&stage.api(), app).await?;
        is_ready(stage).await?;
        Ok(repository)
    }

    /// The HelmRelease in the repository. A deletion needs a workload that takes its time to stop.
    fn release(&self) -> Value {
        let grace = match self.course {
            Course::Deleted => 10,
            Course::Upgrade
            | Course::Fails
            | Course::Rollback
            | Course::Automatic
            | Course::DryRun => 1,
        };
        let mut spec = json!({
            "interval": "1h", "timeout": "2m", "values": { "grace": grace },
            "chart": { "spec": {
                "chart": "store", "version": "1.0.0", "interval": "1h",
                "sourceRef": { "kind": "HelmRepository", "name": "charts" },
            } },
        });
        if self.course == Course::Automatic {
            // A crash loop is then a matter of health, and not of Helm.
            spec = merged(spec, json!({ "upgrade": { "disableWait": true } }));
        }
        json!({
            "apiVersion": HELM, "kind": "HelmRelease", "metadata": { "name": APP }, "spec": spec,
        })
    }
}

async fn create_any(stage: &Stage, object: Value) -> Result<()> {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let kind = resource(&text("apiVersion"), &text("kind"));
    let objects: Api<DynamicObject> =
        Api::namespaced_with(stage.client.clone(), &stage.namespace, &kind);
    let object = serde_json::from_value(object)?;
    objects.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Creates the UpgradeRequest `up`; `more` is merged into its spec.
async fn upgrade(stage: &Stage, version: &str, more: Value) -> Result<()> {
    let spec = json!({ "managedAppRef": { "name": APP }, "targetVersion": { "chart": version } });
    let request = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "UpgradeRequest",
        "metadata": { "name": "up" }, "spec": merged(spec, more),
    });
    suite::create::<UpgradeRequest>(&stage.api(), request).await?;
    Ok(())
}

async fn upgraded(stage: &Stage) -> Result<()> {
    upgrade(stage, "2.0.0", json!({})).await?;
    ends(stage, UPGRADES, "up", "Succeeded").await
}

/// Creates the RollbackRequest `back`.
async fn roll_back(stage: &Stage) -> Result<()> {
    let request = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "RollbackRequest",
        "metadata": { "name": "back" }, "spec": { "upgradeRequestRef": { "name": "up" } },
    });
    suite::create::<RollbackRequest>(&stage.api(), request).await?;
    Ok(())
}

/// Deletes the upgrade when its workload is at zero, and waits until it does not exist.
async fn deleted(stage: &Stage) -> Result<()> {
    upgrade(stage, "2.0.0", json!({})).await?;
    stage
        .until("the workload to be stopped", LIMIT, |seen| {
            let set = find(seen, "statefulsets", SET);
            let replicas = set.and_then(|one| one.object["spec"]["replicas"].as_i64());
            met(replicas == Some(0), || format!("{replicas:?} replicas"))
        })
        .await?;
    let requests: Api<UpgradeRequest> = stage.api();
    requests.delete("up", &DeleteParams::default()).await?;
    stage
        .until("the request to be deleted", LIMIT, |seen| {
            let left = find(seen, UPGRADES, "up");
            met(left.is_none(), || standing(seen, UPGRADES, "up"))
        })
        .await
}

/// Phase and message of a request, for waits.
fn standing(seen: &[Seen], resource: &str, name: &str) -> String {
    let Some(found) = find(seen, resource, name) else {
        return "it does not exist".to_owned();
    };
    let status = &found.object["status"];
    format!(
        "{} {}: {}",
        status["phase"], status["reason"], status["message"]
    )
}

/// Waits until a request has ended in this phase, and nothing holds it.
async fn ends(stage: &Stage, resource: &str, name: &str, phase: &str) -> Result<()> {
    stage
        .until(&format!("{name} to be {phase}"), LIMIT, |seen| {
            let found = find(seen, resource, name);
            let is_there = found.is_some_and(|one| {
                let finalizers = one.object["metadata"]["finalizers"].as_array();
                one.object["status"]["phase"] == phase && finalizers.is_none_or(Vec::is_empty)
            });
            met(is_there, || standing(seen, resource, name))
        })
        .await
}

/// Waits until the ManagedApp is Ready, and its Pod runs.
async fn is_ready(stage: &Stage) -> Result<()> {
    stage
        .until("the application to be healthy", LIMIT, |seen| {
            let app = find(seen, "managedapps", APP);
            let is_ready = app.is_some_and(|one| {
                one.is_true("Ready") && one.object["status"]["phase"] == "Ready"
            });
            let pod = find(seen, "pods", POD);
            let runs = pod.is_some_and(|one| one.is_true("Ready"));
            met(is_ready && runs, || standing(seen, "managedapps", APP))
        })
        .await
}

/// The versions that used the volume, each of several starts in a row once.
async fn starts(stage: &Stage) -> Result<Vec<String>> {
    let pods = stage.api();
    let (success, text) = exec_in(&pods, POD, "cat /data/starts").await?;
    ensure!(success, "the volume cannot be read: {text}");
    let mut versions: Vec<String> = text.lines().map(str::to_owned).collect();
    versions.dedup();
    Ok(versions)
}
