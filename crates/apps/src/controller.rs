//! Runs the apps operator on the engine: observes ManagedApps, and remembers which objects each of them has.

mod caches;
mod releases;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use api::{
    GROUP, Timestamp,
    apps::{FluxRef, MANAGED_APP, ManagedApp, ManagedAppSpec, ManagedAppStatus, NamespacedName},
    decide::{Decision, Input, ReconcileError, ResourceType},
};
use engine::{
    Cache, Context, Controller, Handle, Key, Kind, OptionalCache, Presence, Scope, WatchManager,
    supervise::Supervisor,
};
use kube::ResourceExt;

use self::{
    caches::{Caches, all},
    releases::Releases,
};
use crate::{
    decide,
    discover::{self, Problem, ReleaseRead},
    flux::{HelmReleaseView, KustomizationView},
    object::{ObjectId, ObjectKind},
    overlap::{Claimed, Registry},
    world::{AppWorld, Discovery, Objects, Seen},
};

/// Settings of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether release Secrets of Helm are read.
    pub read_release_secrets: bool,
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
    let caches = Caches::watch(&mut watches);
    let shared = Shared::default();
    let releases = Releases::new(context.client.clone(), settings.read_release_secrets);
    caches.connect(&apps, &shared, &releases);
    let (kustomizations, helm_releases) = (&caches.kustomizations, &caches.helm_releases);
    let kind = AppKind {
        apps: apps.clone(),
        caches: caches.clone(),
        releases,
        shared: shared.clone(),
        scope,
    };
    let controller = Controller::new(kind, apps, context)
        .depends_on(kustomizations)
        .depends_on(helm_releases);
    shared.set_handle(controller.handle());
    let started = watches.start(supervisor);
    let shutdown = supervisor.shutdown();
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
    caches: Caches,
    releases: Releases,
    shared: Shared,
    scope: Scope,
}

/// The objects of Flux of an application.
struct FluxObjects {
    kustomization_name: NamespacedName,
    kustomization: Seen<KustomizationView>,
    helm_release: Result<Option<(NamespacedName, Seen<HelmReleaseView>)>, Problem>,
}

impl FluxObjects {
    fn ids(&self) -> Vec<ObjectId> {
        let mut all = vec![ObjectId::named(
            ObjectKind::Kustomization,
            &self.kustomization_name,
        )];
        if let Ok(Some((name, _))) = &self.helm_release {
            all.push(ObjectId::named(ObjectKind::HelmRelease, name));
        }
        all
    }

    fn helm(&self) -> Option<&HelmReleaseView> {
        match &self.helm_release {
            Ok(Some((_, seen))) => seen.present(),
            Ok(None) | Err(_) => None,
        }
    }
}

impl AppKind {
    fn is_watched(&self, namespace: &str) -> bool {
        match &self.scope {
            Scope::All => true,
            Scope::Namespaces(all) => all.iter().any(|one| one == namespace),
        }
    }

    fn seen<T: Send + Sync + 'static>(
        &self,
        cache: &OptionalCache<T>,
        name: &NamespacedName,
    ) -> Seen<T> {
        if !self.is_watched(&name.namespace) {
            return Seen::NotWatched;
        }
        match cache.get(&Key::new(&name.namespace, &name.name)) {
            Presence::NotInstalled => Seen::NotInstalled,
            Presence::Unreadable { why } => Seen::Unreadable(why),
            Presence::Absent => Seen::Absent,
            Presence::Present(object) => Seen::Present(object),
        }
    }

    /// Finds the objects of Flux in the caches.
    fn flux(&self, spec: &ManagedAppSpec, namespace: &str) -> FluxObjects {
        let name = discover::resolve(&spec.kustomization_ref, namespace);
        let kustomization = self.seen(&self.caches.kustomizations, &name);
        let reference = spec.helm_release_ref.as_ref();
        let helm_release = match kustomization.present() {
            Some(found) => self.helm_release(reference, namespace, found),
            None => Ok(None),
        };
        FluxObjects {
            kustomization_name: name,
            kustomization,
            helm_release,
        }
    }

    /// Finds the HelmRelease of an application in the cache.
    fn helm_release(
        &self,
        reference: Option<&FluxRef>,
        namespace: &str,
        kustomization: &KustomizationView,
    ) -> Result<Option<(NamespacedName, Seen<HelmReleaseView>)>, Problem> {
        let Some(name) = discover::helm_release(reference, namespace, kustomization)? else {
            return Ok(None);
        };
        let seen = self.seen(&self.caches.helm_releases, &name);
        if let Some(helm) = seen.present() {
            discover::check_origin(reference, kustomization, helm)?;
        }
        Ok(Some((name, seen)))
    }

    /// Discovers the objects of an application and their live state.
    fn discovery(&self, flux: &FluxObjects, read: &ReleaseRead) -> Discovery {
        let Some(kustomization) = flux.kustomization.present() else {
            return Discovery::Found(Objects::default());
        };
        let release = flux.helm().map(|helm| (helm, read));
        match discover::objects(kustomization, release) {
            Ok(ids) => {
                let mut objects = self.caches.objects(&ids, &flux.ids());
                let namespaces = ids.iter().map(|id| id.namespace.clone());
                let unwatched = namespaces.filter(|namespace| !self.is_watched(namespace));
                objects.unwatched = unwatched.collect();
                Discovery::Found(objects)
            }
            Err(problem) => Discovery::Failed(problem),
        }
    }

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
            let flux = self.flux(&app.spec, &name.namespace);
            let read = flux
                .helm()
                .map_or(ReleaseRead::Disabled, |helm| self.releases.known(helm));
            let discovery = self.discovery(&flux, &read);
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
    // No decision has an effect, so no object gets it.
    const FINALIZER: &'static str = "managedapps.orchestrator.io/finalizer";

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
        let flux = self.flux(&app.spec, &name.namespace);
        let read = match flux.helm() {
            Some(helm) => self.releases.read(helm, now).await?,
            None => ReleaseRead::Disabled,
        };
        let discovery = self.discovery(&flux, &read);
        self.register(app, &flux, &discovery);
        self.register_unknown();
        let overlap = self.shared.registry().overlap(&name);
        let warnings = match &discovery {
            Discovery::Found(objects) => self.caches.warnings_about(&objects.members),
            Discovery::Failed(_) => Vec::new(),
        };
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
        })
    }

    fn decide(input: &Input<'_, ManagedApp, AppWorld>) -> Decision<ManagedAppStatus> {
        decide::decide(input)
    }
}
