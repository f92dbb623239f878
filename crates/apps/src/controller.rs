//! Runs the apps operator on the engine: observes ManagedApps, and remembers which objects each of them has.

mod caches;
mod managers;
mod observer;
mod operations;
mod releases;
mod rollback_triggers;
mod rollbacks;
mod upgrade_caches;
mod upgrade_storage;
mod upgrade_triggers;
mod upgrades;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use api::{
    GROUP, Timestamp,
    apps::{MANAGED_APP, ManagedApp, ManagedAppSpec, ManagedAppStatus, NamespacedName},
    decide::{Decision, Input, ReconcileError, ResourceType},
};
use attempts::step::StepSettings;
use engine::{
    Cache, Context, Controller, Handle, Key, Kind, Scope, WatchManager, supervise::Supervisor,
};
use kube::ResourceExt;

use self::{
    caches::{Caches, all},
    observer::{FluxObjects, Observer},
    operations::OperationsReader,
    releases::Releases,
    rollbacks::RollbackKind,
    upgrade_caches::UpgradeCaches,
    upgrades::UpgradeKind,
};
use crate::{
    decide,
    discover::ReleaseRead,
    object::ObjectId,
    operations::FINALIZER,
    overlap::{Claimed, Registry},
    world::{AppWorld, Discovery},
};

/// Settings of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether release Secrets of Helm are read.
    pub read_release_secrets: bool,
    /// Settings of the steps that change the version in Git and bind restored volumes.
    pub steps: StepSettings,
}

/// Starts the watches and the controller of the operator.
pub fn start(context: Context, scope: Scope, settings: Settings, supervisor: &mut Supervisor) {
    let (client, metrics, health) = (
        context.client.clone(),
        context.metrics.clone(),
        context.health.clone(),
    );
    let mut watches = WatchManager::new(client, metrics, health, scope.clone());
    let apps = watches.namespaced(
        (GROUP, MANAGED_APP.resource.plural),
        all(|app: ManagedApp| app, |_| Vec::new()),
    );
    let Settings {
        read_release_secrets,
        steps,
    } = settings;
    // The caches of Jobs get the responses of writes in the order in which they were created. Only UpgradeRequests write
    // Jobs, so theirs come first.
    let own = UpgradeCaches::watch(&mut watches);
    let caches = Caches::watch(&mut watches);
    let shared = Shared::default();
    let releases = Releases::new(context.client.clone(), read_release_secrets);
    caches.connect(&apps, &shared, &releases);
    let observer = Observer {
        caches: caches.clone(),
        releases,
        scope,
    };
    own.connect_apps(&shared);
    let kind = AppKind {
        apps: apps.clone(),
        observer: observer.clone(),
        shared: shared.clone(),
        operations: OperationsReader {
            own: own.clone(),
            observer: observer.clone(),
        },
    };
    let controller = Controller::new(kind, apps.clone(), context.clone())
        .depends_on(&caches.kustomizations)
        .depends_on(&caches.helm_releases);
    shared.set_handle(controller.handle());
    let (rollbacks, rollback_logs) = RollbackKind::controller(
        steps.clone(),
        own.clone(),
        apps.clone(),
        observer.clone(),
        &shared,
        &context,
    );
    let (upgrades, logs) = UpgradeKind::controller(steps, own, apps, observer, &shared, &context);
    let started = watches.start(supervisor);
    let shutdown = supervisor.shutdown();
    supervisor.spawn("Pod logs", logs.run(upgrades.handle(), shutdown.clone()));
    supervisor.spawn(
        "UpgradeRequests",
        upgrades.run(started.clone(), shutdown.clone()),
    );
    supervisor.spawn(
        "Pod logs of rollbacks",
        rollback_logs.run(rollbacks.handle(), shutdown.clone()),
    );
    supervisor.spawn(
        "RollbackRequests",
        rollbacks.run(started.clone(), shutdown.clone()),
    );
    supervisor.spawn("ManagedApps", controller.run(started, shutdown));
}

/// The objects of all ManagedApps, and the queue. Clones share both.
#[derive(Clone, Default)]
struct Shared {
    registry: Arc<Mutex<Registry>>,
    handle: Arc<OnceLock<Handle>>,
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_handle(&self, handle: Handle) {
        // It is set once, by the only caller.
        self.handle.get_or_init(|| handle);
    }

    /// Reconciles the ManagedApps with this object.
    fn enqueue(&self, object: &ObjectId) {
        let holders = self.registry().holders(object);
        self.enqueue_all(holders);
    }

    fn enqueue_all(&self, apps: impl IntoIterator<Item = NamespacedName>) {
        // Until the controller exists, nothing is queued: its start reconciles all objects.
        let Some(handle) = self.handle.get() else {
            return;
        };
        for app in apps {
            handle.enqueue(&Key::new(&app.namespace, &app.name));
        }
    }
}

/// Implementation of [`Kind`] for ManagedApps.
struct AppKind {
    apps: Cache<ManagedApp>,
    observer: Observer,
    shared: Shared,
    /// Reads the requests of an application.
    operations: OperationsReader,
}

impl AppKind {
    /// Returns whether a ManagedApp exists, is the observed one, and is not being deleted.
    fn is_current(&self, app: &ManagedApp) -> bool {
        let name = name_of(app);
        let live = self.apps.get(&Key::new(&name.namespace, &name.name));
        live.is_some_and(|live| {
            live.metadata.uid == app.metadata.uid && live.metadata.deletion_timestamp.is_none()
        })
    }

    /// Removes the objects of a ManagedApp, and reconciles those that share one with it.
    fn unregister(&self, app: &ManagedApp) {
        let affected = self.shared.registry().remove(&name_of(app));
        self.shared.enqueue_all(affected);
    }

    /// Records the objects of a ManagedApp, and reconciles those that share one with it.
    ///
    /// A ManagedApp may be deleted while its release is read. Recorded afterwards, it would overlap with its successors
    /// until the next start. The event of its deletion comes after the change of the cache, so the second check suffices.
    fn register(&self, app: &ManagedApp, flux: &FluxObjects, discovery: &Discovery) {
        if !self.is_current(app) {
            return self.unregister(app);
        }
        let mut objects = match discovery {
            Discovery::Found(objects) => objects.ids(),
            // Without the former objects, a younger ManagedApp with the same ones would be valid for a while.
            Discovery::Failed(_) => self.shared.registry().objects(&name_of(app)),
        };
        objects.extend(flux.ids());
        let created = app.metadata.creation_timestamp.as_ref();
        let claimed = Claimed {
            created: created.map(|time| time.0),
            uid: app.uid().unwrap_or_default(),
            objects,
        };
        let affected = self.shared.registry().set(&name_of(app), claimed);
        self.shared.enqueue_all(affected);
        if !self.is_current(app) {
            self.unregister(app);
        }
    }

    /// Records the objects of ManagedApps that were not reconciled since the start. Without them, an overlap would be
    /// reported only after both were.
    fn register_unknown(&self) {
        let known = self.shared.registry().count();
        if known >= self.apps.len() {
            return;
        }
        for key in self.apps.keys() {
            let name = NamespacedName::new(key.namespace.as_deref().unwrap_or_default(), &key.name);
            if self.shared.registry().has(&name) {
                continue;
            }
            // An undecodable ManagedApp claims nothing.
            let Some(app) = self.apps.get(&key) else {
                continue;
            };
            let flux = self.observer.flux(&app.spec, &name.namespace);
            let read = flux.helm().map_or(ReleaseRead::Disabled, |helm| {
                self.observer.releases.known(helm)
            });
            let discovery = self.observer.discovery(&flux, &read);
            self.register(&app, &flux, &discovery);
        }
    }
}

fn name_of(app: &ManagedApp) -> NamespacedName {
    NamespacedName::new(&app.namespace().unwrap_or_default(), &app.name_any())
}

impl Kind for AppKind {
    type Object = ManagedApp;
    type Status = ManagedAppStatus;
    type World = AppWorld;
    const RESOURCE: ResourceType = MANAGED_APP.resource;
    // An object has it only while its deletion would have to wait.
    const FINALIZER: &'static str = FINALIZER;

    fn status(object: &ManagedApp) -> Option<&ManagedAppStatus> {
        object.status.as_ref()
    }

    fn phase_spec(object: &ManagedApp) -> &ManagedAppSpec {
        &object.spec
    }

    async fn observe(
        &self,
        app: &Arc<ManagedApp>,
        now: Timestamp,
    ) -> Result<AppWorld, ReconcileError> {
        let name = name_of(app);
        let flux = self.observer.flux(&app.spec, &name.namespace);
        let read = match flux.helm() {
            Some(helm) => self.observer.releases.read(helm, now).await?,
            None => ReleaseRead::Disabled,
        };
        let discovery = self.observer.discovery(&flux, &read);
        self.register(app, &flux, &discovery);
        self.register_unknown();
        let overlap = self.shared.registry().overlap(&name);
        let warnings = match &discovery {
            Discovery::Found(objects) => self.observer.caches.warnings_about(&objects.members),
            Discovery::Failed(_) => Vec::new(),
        };
        let operations = self.operations.read(app, &flux, &discovery);
        let FluxObjects {
            kustomization_name,
            kustomization,
            helm_release,
        } = flux;
        Ok(AppWorld {
            kustomization_name,
            kustomization,
            helm_release,
            discovery,
            overlap,
            warnings,
            operations: Some(operations),
        })
    }

    fn decide(input: &Input<'_, ManagedApp, AppWorld>) -> Decision<ManagedAppStatus> {
        decide::decide(input)
    }
}
