//! The watches, the views that the caches keep, and the ManagedApps that a change requeues.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    apps::{FluxKind, HELM_RELEASE, KUSTOMIZATION, ManagedApp, NamespacedName, PlannedName},
    warning::Warning,
};
use engine::{
    Cache, Key, OptionalCache, OptionalType, Watch, WatchManager,
    children::{owned_by, with_uid},
};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
        batch::v1::{CronJob, Job},
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::{DynamicObject, PartialObjectMeta};
use serde_json::Value;

use super::{Shared, releases::Releases, upgrade_triggers::CLAIM};
use crate::{
    flux::{HelmReleaseView, KustomizationView},
    health::Member,
    object::{ObjectId, ObjectKind},
    origin::remove_foreign,
    pod::{AppPod, Controller},
    upgrade::{flux_target::FluxTarget, scale_target::ScaleTarget, storage::VOLUME_SNAPSHOT},
    workload::{ClaimView, WorkloadView},
    world::{ClaimMember, Mounter, Objects},
};

/// Watches all objects of a type.
pub(super) fn all<K: 'static, T: 'static>(
    transform: fn(K) -> T,
    index: fn(&T) -> Vec<String>,
) -> Watch<K, T> {
    Watch {
        labels: None,
        fields: None,
        transform: Arc::new(move |object, _| transform(object)),
        index,
    }
}

/// A Kustomization or a HelmRelease, as reports and as upgrades read it.
#[derive(Debug)]
pub(super) struct FluxEntry<V> {
    pub(super) view: Arc<V>,
    pub(super) target: Arc<FluxTarget>,
}

impl<V> FluxEntry<V> {
    fn read(
        kind: FluxKind,
        one: &DynamicObject,
        view: fn(&ObjectMeta, &Value) -> Result<V, String>,
    ) -> Result<Self, String> {
        Ok(Self {
            view: Arc::new(view(&one.metadata, &one.data)?),
            target: Arc::new(FluxTarget::read(kind, &one.metadata, &one.data)?),
        })
    }
}

/// A workload, as reports and as upgrades read it.
#[derive(Debug)]
pub(super) struct WorkloadEntry {
    view: Arc<WorkloadView>,
    /// Scale of the workload, if an upgrade can stop it.
    scale: Option<ScaleTarget>,
}

impl WorkloadEntry {
    fn new<'a, K>(object: &'a K) -> Self
    where
        WorkloadView: From<&'a K>,
        ScaleTarget: From<&'a K>,
    {
        Self {
            view: Arc::new(WorkloadView::from(object)),
            scale: Some(ScaleTarget::from(object)),
        }
    }
}

/// A claim, as reports and as upgrades read it.
#[derive(Debug)]
pub(super) struct ClaimEntry {
    id: ObjectId,
    view: Arc<ClaimView>,
    /// The whole object, for the plan and the snapshots of an upgrade.
    pub(super) claim: Box<PersistentVolumeClaim>,
}

/// A ReplicaSet or a Job: only its UID and its owner count.
#[derive(Debug, Clone)]
pub(super) struct Dependent {
    namespace: String,
    uid: String,
    owner: Option<Controller>,
}

impl Dependent {
    fn new(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            owner: Controller::of(meta),
        }
    }

    fn index(&self) -> Vec<String> {
        let owner = self.owner.iter();
        owner
            .map(|owner| owned(&self.namespace, &owner.uid))
            .collect()
    }
}

/// Returns the index key of objects with this controller. An object in another namespace is no dependent.
fn owned(namespace: &str, uid: &str) -> String {
    owned_by("controller", namespace, uid)
}

/// Returns the index key of Pods that mount this claim.
fn mounts(namespace: &str, claim: &str) -> String {
    ["claim", namespace, claim].join("/")
}

fn pod_index(pod: &AppPod) -> Vec<String> {
    let namespace = &pod.namespace;
    let mut keys = vec![with_uid(namespace, &pod.uid)];
    keys.extend(pod.owner.iter().map(|owner| owned(namespace, &owner.uid)));
    keys.extend(pod.claims.iter().map(|claim| mounts(namespace, claim)));
    keys
}

/// Caches of everything that an application consists of.
#[derive(Debug, Clone)]
pub(super) struct Caches {
    pub(super) kustomizations: OptionalCache<FluxEntry<KustomizationView>>,
    pub(super) helm_releases: OptionalCache<FluxEntry<HelmReleaseView>>,
    /// The workloads, by kind.
    workloads: BTreeMap<ObjectKind, Cache<WorkloadEntry>>,
    replica_sets: Cache<Dependent>,
    jobs: Cache<Dependent>,
    pods: Cache<AppPod>,
    claims: Cache<ClaimEntry>,
    /// Warnings about Pods and about workloads whose controllers report a rejected Pod in an Event only.
    warnings: [Cache<Warning>; 3],
}

impl Caches {
    /// Watches all types.
    pub(super) fn watch(watches: &mut WatchManager) -> Self {
        let by_uid: fn(&WorkloadEntry) -> Vec<String> =
            |entry| vec![with_uid(&entry.view.id.namespace, &entry.view.uid)];
        let workloads = [
            (
                ObjectKind::Deployment,
                watches.namespaced(
                    ("apps", "deployments"),
                    all(|one: Deployment| WorkloadEntry::new(&one), by_uid),
                ),
            ),
            (
                ObjectKind::StatefulSet,
                watches.namespaced(
                    ("apps", "statefulsets"),
                    all(|one: StatefulSet| WorkloadEntry::new(&one), by_uid),
                ),
            ),
            (
                ObjectKind::DaemonSet,
                watches.namespaced(
                    ("apps", "daemonsets"),
                    all(
                        |one: DaemonSet| WorkloadEntry {
                            view: Arc::new(WorkloadView::from(&one)),
                            scale: None,
                        },
                        by_uid,
                    ),
                ),
            ),
            (
                ObjectKind::CronJob,
                watches.namespaced(
                    ("batch", "cronjobs"),
                    all(|one: CronJob| WorkloadEntry::new(&one), by_uid),
                ),
            ),
        ];
        Self {
            kustomizations: watches.optional(OptionalType {
                resource: KUSTOMIZATION,
                is_namespaced: true,
                decode: |one: &DynamicObject| {
                    FluxEntry::read(FluxKind::Kustomization, one, KustomizationView::read)
                },
                index: |_| Vec::new(),
            }),
            helm_releases: watches.optional(OptionalType {
                resource: HELM_RELEASE,
                is_namespaced: true,
                decode: |one: &DynamicObject| {
                    FluxEntry::read(FluxKind::HelmRelease, one, HelmReleaseView::read)
                },
                index: |_| Vec::new(),
            }),
            workloads: workloads.into(),
            replica_sets: watches.namespaced(
                ("apps", "replicasets"),
                all(
                    |one: PartialObjectMeta<ReplicaSet>| Dependent::new(&one.metadata),
                    Dependent::index,
                ),
            ),
            jobs: watches.namespaced(
                ("batch", "jobs"),
                all(
                    |one: PartialObjectMeta<Job>| Dependent::new(&one.metadata),
                    Dependent::index,
                ),
            ),
            pods: watches.namespaced(("", "pods"), all(|one: Pod| AppPod::from(&one), pod_index)),
            claims: watches.namespaced(
                ("", "persistentvolumeclaims"),
                Watch {
                    labels: None,
                    fields: None,
                    transform: Arc::new(|one: PersistentVolumeClaim, _| {
                        let meta = &one.metadata;
                        let namespace = meta.namespace.as_deref().unwrap_or_default();
                        let name = meta.name.as_deref().unwrap_or_default();
                        ClaimEntry {
                            id: ObjectId::new(ObjectKind::Claim, namespace, name),
                            view: Arc::new(ClaimView::from(&one)),
                            claim: Box::new(one),
                        }
                    }),
                    index: |_| Vec::new(),
                },
            ),
            warnings: [
                watches.warnings("Pod"),
                watches.warnings("StatefulSet"),
                watches.warnings("DaemonSet"),
            ],
        }
    }

    /// Requeues ManagedApps when one of their objects changes.
    pub(super) fn connect(&self, apps: &Cache<ManagedApp>, shared: &Shared, releases: &Releases) {
        let Self {
            kustomizations,
            helm_releases,
            workloads,
            replica_sets,
            jobs,
            pods,
            claims,
            warnings,
        } = self;
        {
            let shared = shared.clone();
            apps.on_change(move |change| {
                if change.new.is_none() {
                    let affected = shared.registry().remove(&name_of(change.key));
                    shared.enqueue_all(affected);
                }
            });
        }
        {
            let shared = shared.clone();
            kustomizations.objects().on_change(move |change| {
                let name = name_of(change.key);
                shared.enqueue(&ObjectId::named(ObjectKind::Kustomization, &name));
            });
        }
        {
            let (shared, releases) = (shared.clone(), releases.clone());
            helm_releases.objects().on_change(move |change| {
                let name = name_of(change.key);
                if change.new.is_none() {
                    releases.forget(&name);
                }
                shared.enqueue(&ObjectId::named(ObjectKind::HelmRelease, &name));
            });
        }
        for cache in workloads.values() {
            let shared = shared.clone();
            cache.on_change(move |change| {
                for one in change.old.into_iter().chain(change.new) {
                    shared.enqueue(&one.view.id);
                }
            });
        }
        {
            let shared = shared.clone();
            claims.on_change(move |change| {
                for one in change.old.into_iter().chain(change.new) {
                    shared.enqueue(&one.id);
                }
            });
        }
        // The Pod of a new ReplicaSet or Job may have been observed first.
        for (cache, kind) in [
            (replica_sets, ObjectKind::Deployment),
            (jobs, ObjectKind::CronJob),
        ] {
            let shared = shared.clone();
            cache.on_change(move |change| {
                for one in change.old.into_iter().chain(change.new) {
                    if let Some(owner) = &one.owner {
                        shared.enqueue(&ObjectId::new(kind, &one.namespace, &owner.name));
                    }
                }
            });
        }
        {
            let (caches, shared) = (self.clone(), shared.clone());
            pods.on_change(move |change| {
                for pod in change.old.into_iter().chain(change.new) {
                    caches.enqueue_pod(&shared, pod);
                }
            });
        }
        for cache in warnings {
            let (caches, shared) = (self.clone(), shared.clone());
            cache.on_change(move |change| {
                // The expiry of an Event changes nothing.
                let Some(warning) = change.new else { return };
                let key = with_uid(&warning.namespace, &warning.object_uid);
                for pod in caches.pods.by_index(&key) {
                    caches.enqueue_pod(&shared, &pod);
                }
                for cache in caches.workloads.values() {
                    for workload in cache.by_index(&key) {
                        shared.enqueue(&workload.view.id);
                    }
                }
            });
        }
    }

    /// Calls `listener` with the Kustomizations, HelmReleases, workloads and claims that change, and with the claims of Pods
    /// that change.
    pub(super) fn on_change(
        &self,
        listener: impl Fn(&PlannedName) + Clone + Send + Sync + 'static,
    ) {
        let named = |kind: &'static str, key: &Key| {
            PlannedName::new(
                kind,
                key.namespace.as_deref().unwrap_or_default(),
                &key.name,
            )
        };
        {
            let listener = listener.clone();
            self.kustomizations
                .objects()
                .on_change(move |change| listener(&named(KUSTOMIZATION.kind, change.key)));
        }
        {
            let listener = listener.clone();
            self.helm_releases
                .objects()
                .on_change(move |change| listener(&named(HELM_RELEASE.kind, change.key)));
        }
        for (kind, cache) in &self.workloads {
            let (listener, kind) = (listener.clone(), kind.name());
            cache.on_change(move |change| listener(&named(kind, change.key)));
        }
        {
            let listener = listener.clone();
            self.claims
                .on_change(move |change| listener(&named(CLAIM, change.key)));
        }
        self.pods.on_change(move |change| {
            for pod in change.old.into_iter().chain(change.new) {
                for claim in &pod.claims {
                    listener(&PlannedName::new(CLAIM, &pod.namespace, claim));
                }
            }
        });
    }

    fn enqueue_pod(&self, shared: &Shared, pod: &AppPod) {
        if let (_, _, Some(workload)) = self.workload_of(pod) {
            shared.enqueue(&workload);
        }
        for claim in &pod.claims {
            shared.enqueue(&ObjectId::new(ObjectKind::Claim, &pod.namespace, claim));
        }
    }

    /// Returns kind and name of the workload of a Pod, by owner references, and its id if the operator reads its kind.
    fn workload_of(&self, pod: &AppPod) -> (String, NamespacedName, Option<ObjectId>) {
        let Some(owner) = &pod.owner else {
            let name = NamespacedName::new(&pod.namespace, &pod.name);
            return ("Pod".to_owned(), name, None);
        };
        let between = if owner.is("apps", "ReplicaSet") {
            Some(&self.replica_sets)
        } else if owner.is("batch", "Job") {
            Some(&self.jobs)
        } else {
            None
        };
        let key = Key::new(&pod.namespace, &owner.name);
        let between = between.and_then(|cache| cache.get(&key));
        let between = between.filter(|found| found.uid == owner.uid);
        let above = between.as_ref().and_then(|found| found.owner.as_ref());
        let owner = above.unwrap_or(owner);
        let group = owner
            .api_version
            .split_once('/')
            .map_or("", |(group, _)| group);
        let id = ObjectKind::of(group, &owner.kind)
            .filter(|kind| kind.is_workload())
            .map(|kind| ObjectId::new(kind, &pod.namespace, &owner.name));
        let name = NamespacedName::new(&pod.namespace, &owner.name);
        (owner.kind.clone(), name, id)
    }

    fn live(&self, id: &ObjectId) -> Option<Arc<WorkloadView>> {
        let cache = self.workloads.get(&id.kind)?;
        let found = cache.get(&Key::new(&id.namespace, &id.name))?;
        Some(Arc::clone(&found.view))
    }

    /// Returns the scale of a workload that an upgrade can stop.
    pub(super) fn scale(&self, id: &ObjectId) -> Option<ScaleTarget> {
        let cache = self.workloads.get(&id.kind)?;
        cache.get(&Key::new(&id.namespace, &id.name))?.scale.clone()
    }

    /// Returns a claim as a whole.
    pub(super) fn claim_object(&self, name: &NamespacedName) -> Option<Arc<ClaimEntry>> {
        self.claims.get(&Key::new(&name.namespace, &name.name))
    }

    /// Returns namespace and name of each VolumeSnapshot from which a claim is restored that is not bound yet.
    pub(super) fn restoring(&self) -> BTreeSet<(String, String)> {
        self.claims.fold_active(BTreeSet::new(), |mut all, entry| {
            all.extend(restored_from(&entry.claim));
            all
        })
    }

    /// Returns the Pods that mount a claim.
    pub(super) fn pods_with_claim(&self, namespace: &str, claim: &str) -> Vec<Arc<AppPod>> {
        self.pods.by_index(&mounts(namespace, claim))
    }

    fn member(&self, id: &ObjectId) -> Member {
        let live = self.live(id);
        let pods = live.as_ref().map(|live| self.pods_of(live));
        Member {
            id: id.clone(),
            live,
            pods: pods.unwrap_or_default(),
        }
    }

    /// Returns the Pods of a workload, by owner references.
    fn pods_of(&self, workload: &WorkloadView) -> Vec<Arc<AppPod>> {
        let namespace = &workload.id.namespace;
        let own = owned(namespace, &workload.uid);
        let between = match workload.id.kind {
            ObjectKind::Deployment => Some(&self.replica_sets),
            ObjectKind::CronJob => Some(&self.jobs),
            ObjectKind::StatefulSet
            | ObjectKind::DaemonSet
            | ObjectKind::Claim
            | ObjectKind::Kustomization
            | ObjectKind::HelmRelease => None,
        };
        match between {
            None => self.pods.by_index(&own),
            Some(cache) => {
                let dependents = cache.by_index(&own);
                let keys = dependents.iter().map(|one| owned(namespace, &one.uid));
                keys.flat_map(|key| self.pods.by_index(&key)).collect()
            }
        }
    }

    /// Returns the live state of these workloads and claims, with the claims that the workloads mount and the other
    /// workloads that mount the claims. `flux` are the objects of Flux of the application.
    pub(super) fn objects(&self, ids: &BTreeSet<ObjectId>, flux: &[ObjectId]) -> Objects {
        let workloads = ids.iter().filter(|id| id.kind.is_workload());
        let mut members: Vec<Member> = workloads.map(|id| self.member(id)).collect();
        let foreign = remove_foreign(&mut members, &mut Vec::new(), ids, flux);
        let mut claims: BTreeSet<NamespacedName> = ids
            .iter()
            .filter(|id| id.kind == ObjectKind::Claim)
            .map(|id| NamespacedName::new(&id.namespace, &id.name))
            .collect();
        for Member { id, live, pods } in &members {
            let of_template = live.iter().flat_map(|live| live.mounts.claims.iter());
            let of_pods = pods.iter().flat_map(|pod| pod.claims.iter());
            let all = of_template.chain(of_pods);
            claims.extend(all.map(|claim| NamespacedName::new(&id.namespace, claim)));
        }
        let mut claims: Vec<ClaimMember> =
            claims.into_iter().map(|name| self.claim(name)).collect();
        let foreign_claims = remove_foreign(&mut members, &mut claims, ids, flux);
        let mut mounters = BTreeMap::new();
        for ClaimMember { name: claim, .. } in &claims {
            for pod in self.pods.by_index(&mounts(&claim.namespace, &claim.name)) {
                let (kind, name, id) = self.workload_of(&pod);
                let is_member = id.as_ref().is_some_and(|id| ids.contains(id));
                if !pod.is_over && !is_member {
                    let live = id.and_then(|id| self.live(&id));
                    mounters.insert((kind, name), live);
                }
            }
        }
        Objects {
            members,
            mounters: mounters
                .into_iter()
                .map(|((kind, name), live)| Mounter { kind, name, live })
                .collect(),
            claims,
            foreign: foreign.into_iter().chain(foreign_claims).collect(),
            unwatched: BTreeSet::new(),
        }
    }

    fn claim(&self, name: NamespacedName) -> ClaimMember {
        let live = self.claims.get(&Key::new(&name.namespace, &name.name));
        ClaimMember {
            live: live.map(|live| Arc::clone(&live.view)),
            name,
        }
    }

    /// Returns the warnings about these workloads, and about their Pods that are not ready.
    pub(super) fn warnings_about(&self, members: &[Member]) -> Vec<Warning> {
        let mut keys = Vec::new();
        for Member { id, live, pods } in members {
            keys.extend(live.iter().map(|live| with_uid(&id.namespace, &live.uid)));
            let pods = pods.iter().filter(|pod| !pod.is_ready && !pod.is_over);
            keys.extend(pods.map(|pod| with_uid(&pod.namespace, &pod.uid)));
        }
        let found = keys.iter().flat_map(|key| {
            let caches = self.warnings.iter();
            caches.flat_map(move |cache| cache.by_index(key))
        });
        found.map(|warning| (*warning).clone()).collect()
    }
}

/// Returns namespace and name of the VolumeSnapshot of a claim that is not bound yet.
fn restored_from(claim: &PersistentVolumeClaim) -> Option<(String, String)> {
    let status = claim.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let source = claim.spec.as_ref()?.data_source_ref.as_ref()?;
    let is_snapshot = source.kind == VOLUME_SNAPSHOT.kind;
    let namespace = claim.metadata.namespace.clone()?;
    (is_snapshot && phase != Some("Bound")).then(|| (namespace, source.name.clone()))
}

fn name_of(key: &Key) -> NamespacedName {
    NamespacedName::new(key.namespace.as_deref().unwrap_or_default(), &key.name)
}
