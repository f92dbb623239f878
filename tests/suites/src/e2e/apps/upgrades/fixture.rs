//! The place of a case about requests: the bench of ManagedApps with a chart repository, and an operator that upgrades.

use std::{
    fmt::Debug,
    ops::{Deref, DerefMut},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use api::{
    Status,
    apps::{
        ManagedApp, RollbackRequest, RollbackRequestStatus, UpgradeRequest, UpgradeRequestStatus,
    },
};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt, api::DeleteParams, core::object::HasStatus};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{
    charts::ChartServer,
    cluster::Cluster,
    git::Server,
    suite::Env,
    wait::{met, until},
};

use super::super::fixture::{self as apps, RARELY, RELEASED};
use crate::{
    e2e::{
        children::until_gone,
        docs::TOOLBOX,
        merge,
        reading::{brief, phase_of, reason_of, sane},
    },
    flux::{Source, charts, charts_on, create_any, kustomization},
};

/// A request that is not undone ends within this time.
pub(super) const END: Duration = Duration::from_secs(150);
/// An undo takes at least 40 s, because late writes may arrive.
pub(super) const UNDONE: Duration = Duration::from_secs(180);
/// A plan, or its rejection.
pub(super) const PLANNED: Duration = Duration::from_secs(60);
/// The longest time of a phase before the commit that nothing delays.
pub(super) const PHASE: Duration = Duration::from_secs(60);

/// A kind of requests, as its cases read it.
pub(super) trait Operation {
    type Object: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + HasStatus<Status = Self::State>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync;
    type State: Status + Clone + Debug + Send + Sync;

    /// Returns reason and message of the first failure.
    fn failure(state: &Self::State) -> Option<(&str, &str)>;
}

impl Operation for UpgradeRequest {
    type Object = Self;
    type State = UpgradeRequestStatus;

    fn failure(state: &UpgradeRequestStatus) -> Option<(&str, &str)> {
        let failure = state.failure.as_ref()?;
        Some((failure.reason.as_str(), failure.message.as_str()))
    }
}

impl Operation for RollbackRequest {
    type Object = Self;
    type State = RollbackRequestStatus;

    fn failure(state: &RollbackRequestStatus) -> Option<(&str, &str)> {
        let failure = state.failure.as_ref()?;
        Some((failure.reason.as_str(), failure.message.as_str()))
    }
}

/// An application: objects of Flux, a repository and a ManagedApp of one name.
pub(super) struct App {
    pub(super) name: String,
    pub(super) source: Source,
}

/// Path of the file with the HelmRelease.
pub(super) const RELEASE_FILE: &str = "app/release.yaml";

/// The objects of an application.
pub(super) struct Setup<'a> {
    /// Name of the HelmRelease, the Kustomization, the repository and the ManagedApp.
    pub(super) name: &'a str,
    pub(super) chart: &'a str,
    pub(super) version: &'a str,
    pub(super) values: Value,
    /// More of the spec of the HelmRelease.
    pub(super) release: Value,
    /// More of the spec of the Kustomization.
    pub(super) kustomization: Value,
    /// More of the spec of the ManagedApp.
    pub(super) app: Value,
    /// Other objects that the Kustomization applies.
    pub(super) objects: Vec<Value>,
    /// End of the lines of the file with the HelmRelease.
    pub(super) line_end: &'a str,
}

impl<'a> Setup<'a> {
    /// The chart `store`: a program with a file in a volume.
    pub(super) fn store(name: &'a str) -> Self {
        Self {
            name,
            chart: "store",
            version: "1.0.0",
            values: json!({}),
            release: json!({}),
            kustomization: json!({}),
            app: json!({}),
            objects: Vec::new(),
            line_end: "\n",
        }
    }

    /// The chart `shop`: PostgreSQL, and an app that uses it.
    pub(super) fn shop(name: &'a str) -> Self {
        Self {
            chart: "shop",
            values: json!({ "storage": "256Mi" }),
            ..Self::store(name)
        }
    }

    /// Returns the text of the HelmRelease, with comments.
    pub(super) fn file(&self) -> String {
        let mut more = self.release.clone();
        merge(&mut more, json!({ "values": self.values }));
        let more: String = more
            .as_object()
            .into_iter()
            .flat_map(|all| all.iter())
            .map(|(field, value)| format!("  {field}: {value}\n"))
            .collect();
        let Self {
            name,
            chart,
            version,
            ..
        } = self;
        let text = format!(
            "# Applied by Flux. Nobody may lose this comment.\n\
             apiVersion: helm.toolkit.fluxcd.io/v2\n\
             kind: HelmRelease\n\
             metadata:\n  name: {name}\n\
             spec:\n  interval: {RARELY}   # rarely\n  timeout: 3m\n  chart:\n    spec:\n      \
             chart: {chart}\n      version: {version} # of the chart\n      interval: {RARELY}\n      \
             sourceRef: {{kind: HelmRepository, name: charts}}\n{more}"
        );
        // A field that is set above must not be there twice.
        let text = match self.release.get("timeout") {
            Some(_) => text.replacen("  timeout: 3m\n", "", 1),
            None => text,
        };
        text.replace('\n', self.line_end)
    }

    /// Returns the ManagedApp. Its Secret is the one of the repository.
    fn managed_app(&self, secret: &str) -> Value {
        let mut app = apps::managed_app(self.name, self.name);
        merge(
            &mut app["spec"],
            json!({
                "git": { "credentialsSecretRef": { "name": secret } },
                "healthCheck": { "stableFor": "3s" },
            }),
        );
        merge(&mut app["spec"], self.app.clone());
        app
    }
}

/// A bench of ManagedApps with an operator that reconciles requests, and a chart repository.
pub(super) struct Bench {
    apps: apps::Bench,
    _charts: ChartServer,
}

impl Deref for Bench {
    type Target = apps::Bench;

    fn deref(&self) -> &apps::Bench {
        &self.apps
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut apps::Bench {
        &mut self.apps
    }
}

/// Returns the operator's configuration with these lines.
pub(super) fn config(lines: &str) -> String {
    format!(
        "apps:\n  git:\n    toolboxImage: {TOOLBOX}\n    allowedNetworks: [198.18.0.0/24]\n{lines}"
    )
}

impl Bench {
    pub(super) async fn new(env: Env) -> Result<Self> {
        Self::configured(env, "").await
    }

    /// With these lines in the operator's configuration.
    pub(super) async fn configured(env: Env, lines: &str) -> Result<Self> {
        let git = Server::in_cluster(env.testbed("a Git server in the cluster's network")?)?;
        let apps = apps::Bench::with(env, git, &config(lines)).await?;
        let charts = charts(&apps.env).await?;
        Ok(Self {
            apps,
            _charts: charts,
        })
    }

    /// On another cluster, to which the client of `env` belongs.
    pub(super) async fn on(env: Env, git: Server, cluster: &Cluster) -> Result<Self> {
        let apps = apps::Bench::with(env, git, &config("")).await?;
        let charts = charts_on(&apps.env, cluster).await?;
        Ok(Self {
            apps,
            _charts: charts,
        })
    }

    /// Ends the operator well. Each version of each object must have been right for other tools.
    pub(super) async fn done(self) -> Result<()> {
        self.apps.done().await
    }

    /// Creates the objects of an application, and waits until its ManagedApp is Ready.
    pub(super) async fn launch(&self, setup: Setup<'_>) -> Result<App> {
        let source = self.commit(&setup).await?;
        let mut object = kustomization(&self.env, setup.name, setup.name, "./app");
        object["spec"]["interval"] = json!(RARELY);
        merge(&mut object["spec"], setup.kustomization.clone());
        create_any(&self.env, object).await?;
        self.adopt(&setup, source).await
    }

    /// Creates the repository of an application, and its GitRepository.
    pub(super) async fn commit(&self, setup: &Setup<'_>) -> Result<Source> {
        let mut files = vec![(RELEASE_FILE.to_owned(), setup.file())];
        files.extend(setup.objects.iter().map(apps::file));
        self.commit_files(setup, &files).await
    }

    /// Does the same with files of any content.
    pub(super) async fn commit_files(
        &self,
        setup: &Setup<'_>,
        files: &[(String, String)],
    ) -> Result<Source> {
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        Source::new(&self.env, &self.git, (setup.name, RARELY), &files).await
    }

    /// Creates the ManagedApp of an application that Flux applies, and waits until it is Ready.
    pub(super) async fn adopt(&self, setup: &Setup<'_>, source: Source) -> Result<App> {
        let object = setup.managed_app(&source.secret());
        self.env.create::<ManagedApp>(object).await?;
        let app = App {
            name: setup.name.to_owned(),
            source,
        };
        self.settled(&app).await?;
        Ok(app)
    }

    /// Waits until the ManagedApp is Ready at the newest commit: Flux is not suspended, has applied the commit, and each
    /// workload is ready.
    pub(super) async fn settled(&self, app: &App) -> Result<()> {
        let revision = app.source.revision()?;
        self.ready(&app.name, &revision, RELEASED).await?;
        Ok(())
    }

    pub(super) fn upgrades(&self) -> Api<UpgradeRequest> {
        self.env.api()
    }

    pub(super) fn rollbacks(&self) -> Api<RollbackRequest> {
        self.env.api()
    }

    /// Creates an UpgradeRequest; `more` is merged into its spec.
    pub(super) async fn upgrade(
        &self,
        name: &str,
        app: &str,
        chart: &str,
        more: Value,
    ) -> Result<UpgradeRequest> {
        let mut spec = json!({
            "managedAppRef": { "name": app }, "targetVersion": { "chart": chart },
        });
        merge(&mut spec, more);
        let request = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "UpgradeRequest",
            "metadata": { "name": name }, "spec": spec,
        });
        self.env.create(request).await
    }

    /// Creates a RollbackRequest.
    pub(super) async fn roll_back(&self, name: &str, upgrade: &str) -> Result<RollbackRequest> {
        let request = json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "RollbackRequest",
            "metadata": { "name": name }, "spec": { "upgradeRequestRef": { "name": upgrade } },
        });
        self.env.create(request).await
    }

    /// Returns the UID of a request.
    pub(super) async fn uid<R: Operation>(&self, name: &str) -> Result<String> {
        let found = self.env.api::<R::Object>().get(name).await?;
        found.uid().context("a request without a UID")
    }

    /// Upgrades an application to a version, and waits for the success.
    pub(super) async fn upgraded(
        &self,
        name: &str,
        app: &App,
        chart: &str,
    ) -> Result<UpgradeRequestStatus> {
        self.upgrade(name, &app.name, chart, json!({})).await?;
        self.succeeds::<UpgradeRequest>(name, END).await
    }

    /// Reads the status of a request. It must be sane.
    pub(super) async fn state<R: Operation>(&self, name: &str) -> Result<R::State> {
        let seen = self.env.api::<R::Object>().get(name).await?;
        sane(seen.status(), seen.meta().generation)?;
        Ok(seen.status().context("no status")?.clone())
    }

    /// Waits until the status of a request is as wanted. Fails at once if the request has ended without it.
    pub(super) async fn reach<R: Operation>(
        &self,
        name: &str,
        within: Duration,
        what: &str,
        wanted: impl Fn(&R::State) -> bool,
    ) -> Result<R::State> {
        let what = format!("request '{name}': {what}");
        until(&what, within, async || {
            let state = self.state::<R>(name).await?;
            if wanted(&state) {
                return Ok(Ok(state));
            }
            if state.is_over() {
                bail!("'{name}' has ended: {}", brief(&state));
            }
            Ok(Err(brief(&state)))
        })
        .await
    }

    /// Waits until a request is in a phase. Fails at once if the request has ended.
    pub(super) async fn in_phase<R: Operation>(
        &self,
        name: &str,
        phase: &str,
        within: Duration,
    ) -> Result<R::State> {
        self.reach::<R>(name, within, phase, |state| phase_of(state) == phase)
            .await
    }

    /// Waits until a request waits for this reason, with these parts of the message.
    pub(super) async fn waits<R: Operation>(
        &self,
        name: &str,
        within: Duration,
        reason: &str,
        parts: &[&str],
    ) -> Result<R::State> {
        let what = format!("{reason} with {parts:?}");
        self.reach::<R>(name, within, &what, |state| {
            let text = state.progress().message.as_deref().unwrap_or_default();
            reason_of(state) == reason && parts.iter().all(|part| text.contains(*part))
        })
        .await
    }

    /// Waits for the success of a request. Nothing may hold it afterwards.
    pub(super) async fn succeeds<R: Operation>(
        &self,
        name: &str,
        within: Duration,
    ) -> Result<R::State> {
        let state = self.in_phase::<R>(name, "Succeeded", within).await?;
        self.released::<R>(name).await?;
        Ok(state)
    }

    /// Waits for the failure of a request with this reason, and these parts of the message. Nothing may hold it afterwards.
    pub(super) async fn fails<R: Operation>(
        &self,
        name: &str,
        within: Duration,
        reason: &str,
        parts: &[&str],
    ) -> Result<R::State> {
        let state = self.in_phase::<R>(name, "Failed", within).await?;
        let text = state.progress().message.clone().unwrap_or_default();
        ensure!(
            reason_of(&state) == reason && parts.iter().all(|part| text.contains(*part)),
            "wanted {reason} with {parts:?}: {}",
            brief(&state)
        );
        self.released::<R>(name).await?;
        Ok(state)
    }

    /// Waits until a request that has ended has no finalizer.
    async fn released<R: Operation>(&self, name: &str) -> Result<()> {
        let requests = self.env.api::<R::Object>();
        let what = format!("request '{name}' to be released");
        until(&what, Duration::from_secs(10), async || {
            let found = requests.get(name).await?;
            let held = found.finalizers().to_vec();
            Ok(met(held.is_empty(), || format!("{held:?}")))
        })
        .await
    }

    /// Deletes a request, and returns its status at the time of the deletion.
    pub(super) async fn delete<R: Operation>(&self, name: &str) -> Result<R::State> {
        let requests = self.env.api::<R::Object>();
        let before = requests.get(name).await?;
        let deleted = requests.delete(name, &DeleteParams::default()).await?;
        // Without a finalizer, the API server returns no object.
        let seen = deleted.left().unwrap_or(before);
        Ok(seen.status().context("no status")?.clone())
    }

    /// Waits until a request that was deleted does not exist.
    pub(super) async fn gone<R: Operation>(&self, name: &str) -> Result<()> {
        until_gone(&self.env.api::<R::Object>(), name, UNDONE).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that is there twice, or another end of a line, would break the file for Flux.
    #[test]
    fn the_file_of_a_release_is_read_with_its_fields() {
        for line_end in ["\n", "\r\n"] {
            let setup = Setup {
                values: json!({ "grace": 5 }),
                release: json!({ "timeout": "15s", "upgrade": { "disableWait": true } }),
                line_end,
                ..Setup::store("app")
            };
            let text = setup.file();
            let read: Value = serde_saphyr::from_str(&text).unwrap();
            let spec = &read["spec"];
            assert_eq!(read["metadata"]["name"], "app", "{text}");
            assert_eq!(spec["chart"]["spec"]["version"], "1.0.0", "{text}");
            assert_eq!(spec["chart"]["spec"]["sourceRef"]["name"], "charts");
            assert_eq!(spec["timeout"], "15s", "{text}");
            assert_eq!(spec["upgrade"]["disableWait"], true, "{text}");
            assert_eq!(spec["values"]["grace"], 5, "{text}");
            let lines = text.matches('\n').count();
            assert_eq!(text.matches(line_end).count(), lines);
            assert_eq!(text.matches("version: 1.0.0 # of the chart").count(), 1);
        }
    }

    #[test]
    fn more_of_a_managed_app_replaces_its_fields() {
        let setup = Setup {
            app: json!({ "healthCheck": { "stableFor": "8s" }, "approval": "Required" }),
            ..Setup::store("app")
        };
        let spec = &setup.managed_app("git-app")["spec"];
        assert_eq!(spec["git"]["credentialsSecretRef"]["name"], "git-app");
        assert_eq!(spec["healthCheck"]["stableFor"], "8s");
        assert_eq!(spec["approval"], "Required");
        assert_eq!(spec["kustomizationRef"]["name"], "app");
    }
}
