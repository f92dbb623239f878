//! Observes applications: the objects of Flux that a spec references, and everything in their inventories.

use std::sync::Arc;

use api::apps::{FluxRef, ManagedAppSpec, NamespacedName};
use engine::{Key, OptionalCache, Presence, Scope};

use super::{
    caches::{Caches, FluxEntry},
    releases::Releases,
};
use crate::{
    discover::{self, Problem, ReleaseRead},
    flux::{HelmReleaseView, KustomizationView},
    object::{ObjectId, ObjectKind},
    world::{Discovery, Objects, Seen},
};

/// The caches, the releases and the scope of the operator. Clones share them.
#[derive(Clone)]
pub(super) struct Observer {
    pub(super) caches: Caches,
    pub(super) releases: Releases,
    pub(super) scope: Scope,
}

/// The objects of Flux of an application.
pub(super) struct FluxObjects {
    pub(super) kustomization_name: NamespacedName,
    pub(super) kustomization: Seen<KustomizationView>,
    pub(super) helm_release: Result<Option<(NamespacedName, Seen<HelmReleaseView>)>, Problem>,
}

impl FluxObjects {
    pub(super) fn ids(&self) -> Vec<ObjectId> {
        let mut all = vec![ObjectId::named(
            ObjectKind::Kustomization,
            &self.kustomization_name,
        )];
        if let Ok(Some((name, _))) = &self.helm_release {
            all.push(ObjectId::named(ObjectKind::HelmRelease, name));
        }
        all
    }

    pub(super) fn helm(&self) -> Option<&HelmReleaseView> {
        match &self.helm_release {
            Ok(Some((_, seen))) => seen.present(),
            Ok(None) | Err(_) => None,
        }
    }
}

impl Observer {
    pub(super) fn is_watched(&self, namespace: &str) -> bool {
        match &self.scope {
            Scope::All => true,
            Scope::Namespaces(all) => all.iter().any(|one| one == namespace),
        }
    }

    fn seen<V: Send + Sync + 'static>(
        &self,
        cache: &OptionalCache<FluxEntry<V>>,
        name: &NamespacedName,
    ) -> Seen<V> {
        if !self.is_watched(&name.namespace) {
            return Seen::NotWatched;
        }
        match cache.get(&Key::new(&name.namespace, &name.name)) {
            Presence::NotInstalled => Seen::NotInstalled,
            Presence::Unreadable { why } => Seen::Unreadable(why),
            Presence::Absent => Seen::Absent,
            Presence::Present(entry) => Seen::Present(Arc::clone(&entry.view)),
        }
    }

    /// Finds the objects of Flux in the caches.
    pub(super) fn flux(&self, spec: &ManagedAppSpec, namespace: &str) -> FluxObjects {
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
    pub(super) fn discovery(&self, flux: &FluxObjects, read: &ReleaseRead) -> Discovery {
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
}
