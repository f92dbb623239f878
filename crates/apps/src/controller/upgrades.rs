//! The controller of UpgradeRequests: observes the application, the locks, the storage and the Jobs of a request.

use std::{collections::BTreeSet, sync::Arc};

use api::{
    Status, Timestamp,
    apps::{
        FluxKind, FluxRef, ManagedApp, ManagedAppSpec, NamespacedName, PlannedName,
        ROLLBACK_REQUEST, RollbackRequest, ScalableKind, UPGRADE_REQUEST, UpgradePhase,
        UpgradePlan, UpgradeRequest, UpgradeRequestStatus,
    },
    claim::{Holder, Lock},
    decide::{Decision, Input, ReconcileError, ResourceType},
    kinds::KindRow,
};
use attempts::step::StepSettings;
use engine::{
    Cache, Context, Controller, Key, Kind, OptionalCache, Presence,
    children::with_uid,
    external::{self, LogRequest, PodLogs, RequestWorker, Requests},
    live::LiveReader,
};
use git::edits::CommitReport;
use kube::ResourceExt;

use super::{
    Shared,
    caches::FluxEntry,
    managers::{Asked, ManagerReader},
    name_of,
    observer::Observer,
    upgrade_caches::{UpgradeCaches, of_app, of_upgrade},
    upgrade_triggers::{Subjects, connect, subjects_of},
};
use crate::{
    discover::{self, ReleaseRead},
    flux::SourceView,
    object::{ObjectId, ObjectKind},
    upgrade::{
        self,
        commit_step::{CONTAINER, CommitStep, StepJob, StepPod, StepState},
        flux_target::FluxTarget,
        recovery::noted,
        scale_target::ScaleTarget,
        world::{AppState, OtherRequest, UpgradeWorld},
    },
    world::{AppWorld, Discovery, Seen},
};

/// Number of lines of a log. The plan is one line near its end.
const LOG_LINES: u32 = 12;

/// Path of `spec.suspend` in `managedFields`.
const SUSPEND: [&str; 2] = ["f:spec", "f:suspend"];

/// Path of `spec.replicas` in `managedFields`.
const REPLICAS: [&str; 2] = ["f:spec", "f:replicas"];

/// Implementation of [`Kind`] for UpgradeRequests. Rollbacks observe their application with it, too.
pub(super) struct UpgradeKind {
    /// Kind of the requests, which the labels of their children have.
    row: &'static KindRow,
    settings: StepSettings,
    pub(super) own: UpgradeCaches,
    apps: Cache<ManagedApp>,
    pub(super) observer: Observer,
    shared: Shared,
    managers: ManagerReader,
    logs: Requests<LogRequest>,
    pub(super) subjects: Subjects,
}

/// The part of the observed state that depends on the application, before a plan and after it.
pub(super) struct Application {
    app: Option<AppState>,
    live: Option<AppWorld>,
    pub(super) flux: Vec<(FluxKind, NamespacedName)>,
    pub(super) source: Option<NamespacedName>,
    pub(super) workloads: BTreeSet<ObjectId>,
    pub(super) claims: BTreeSet<NamespacedName>,
}

impl Application {
    /// Returns the namespaces of the application.
    fn namespaces(&self, flux: &[FluxTarget]) -> BTreeSet<String> {
        let flux = flux.iter().map(|one| one.namespace.clone());
        let workloads = self.workloads.iter().map(|id| id.namespace.clone());
        let claims = self.claims.iter().map(|name| name.namespace.clone());
        flux.chain(workloads).chain(claims).collect()
    }
}

impl UpgradeKind {
    /// Creates the controller, and the worker that reads the logs of Jobs.
    pub(super) fn controller(
        settings: StepSettings,
        own: UpgradeCaches,
        apps: Cache<ManagedApp>,
        observer: Observer,
        shared: &Shared,
        context: &Context,
    ) -> (Controller<Self>, RequestWorker<LogRequest, PodLogs>) {
        let logs = PodLogs::new(context.client.clone());
        let (logs, worker) = external::new(UPGRADE_REQUEST.name(), logs, &own.requests, context);
        let kind = Self::new(
            &UPGRADE_REQUEST,
            settings,
            own.clone(),
            apps.clone(),
            observer.clone(),
            shared,
            (logs, context),
        );
        let subjects = kind.subjects.clone();
        let controller = Controller::new(kind, own.requests.clone(), context.clone())
            .depends_on(&observer.caches.kustomizations)
            .depends_on(&observer.caches.helm_releases)
            .depends_on(&own.sources)
            .depends_on(&own.snapshots)
            .depends_on(&own.contents)
            .depends_on(&own.classes);
        connect(&own, &observer, &apps, &subjects, &controller.handle());
        (controller, worker)
    }

    /// Creates the observer of the requests of a kind.
    pub(super) fn new(
        row: &'static KindRow,
        settings: StepSettings,
        own: UpgradeCaches,
        apps: Cache<ManagedApp>,
        observer: Observer,
        shared: &Shared,
        (logs, context): (Requests<LogRequest>, &Context),
    ) -> Self {
        Self {
            row,
            settings,
            own,
            apps,
            observer,
            shared: shared.clone(),
            managers: ManagerReader::new(LiveReader::new(context.client.clone())),
            logs,
            subjects: Subjects::default(),
        }
    }

    /// Observes a request, with these claims beside those of its application. Returns also the objects that it has
    /// observed.
    pub(super) async fn operation(
        &self,
        request: &UpgradeRequest,
        claims: BTreeSet<NamespacedName>,
        now: Timestamp,
    ) -> Result<(UpgradeWorld, BTreeSet<PlannedName>), ReconcileError> {
        let mut found = self.application(request, now).await?;
        found.claims.extend(claims);
        let flux = self.flux(&found.flux, request).await?;
        // A lock of a request that was deleted by force names the workloads that it had stopped.
        let namespaces = found.namespaces(&flux);
        let noted = noted(&flux, &namespaces).into_iter();
        let noted =
            noted.map(|one| ObjectId::new(object_kind(one.kind), &one.namespace, &one.name));
        found.workloads.extend(noted);
        let workloads = self.scales(&found.workloads, request).await?;
        let app = found.app.as_ref().map(|state| &state.app.spec);
        let class =
            app.and_then(|spec| spec.volume_snapshots.volume_snapshot_class_name.as_deref());
        let volumes = self.volumes(&found.claims, class);
        let subjects = subjects_of(&found, &volumes);
        let world = UpgradeWorld {
            others: self.others(request, &flux),
            pods: self.mounting(&found.claims),
            attachments: self.attachments(&volumes),
            snapshots: self.snapshots(request)?,
            source: self.source(found.source.as_ref()),
            commit: self.commit(request, now)?,
            rollbacks: self.rollbacks(request),
            app: found.app,
            live: found.live,
            flux,
            workloads,
            volumes,
        };
        Ok((world, subjects))
    }

    /// Returns the application of a request. Before the plan, the ManagedApp names its objects; afterwards, the plan does.
    async fn application(
        &self,
        request: &UpgradeRequest,
        now: Timestamp,
    ) -> Result<Application, ReconcileError> {
        let status = request.status.as_ref();
        match status.and_then(|status| status.plan.as_ref()) {
            Some(plan) => self.planned(request, plan, now).await,
            None => self.referenced(request, now).await,
        }
    }

    async fn referenced(
        &self,
        request: &UpgradeRequest,
        now: Timestamp,
    ) -> Result<Application, ReconcileError> {
        let namespace = request.namespace().unwrap_or_default();
        let name = &request.spec.managed_app_ref.name;
        let Some(app) = self.apps.get(&Key::new(&namespace, name)) else {
            return Ok(Application {
                app: None,
                live: None,
                flux: Vec::new(),
                source: None,
                workloads: BTreeSet::new(),
                claims: BTreeSet::new(),
            });
        };
        let overlap = self.shared.registry().overlap(&name_of(&app));
        let mut world = self.world(&app.spec, &namespace, Some(now)).await?;
        world.overlap = overlap;
        let helm = world.release();
        let has_upgrade_hooks =
            helm.and_then(|helm| self.observer.releases.has_upgrade_hooks(helm));
        // The suspension of the Kustomization itself needs no reference.
        let parent = app.spec.suspend_ref.as_ref();
        let parent = parent.map(|reference| discover::resolve(reference, &namespace));
        let parent = parent.filter(|parent| *parent != world.kustomization_name);
        // What applies another object comes before it.
        let kustomizations = parent.iter().chain([&world.kustomization_name]);
        let mut flux: Vec<(FluxKind, NamespacedName)> = kustomizations
            .map(|name| (FluxKind::Kustomization, name.clone()))
            .collect();
        if let Ok(Some((name, _))) = &world.helm_release {
            flux.push((FluxKind::HelmRelease, name.clone()));
        }
        let kustomization = world.kustomization.present();
        let source = kustomization.and_then(|found| found.source.as_ref());
        let source = source.map(|source| NamespacedName::new(&source.namespace, &source.name));
        let (mut workloads, mut claims) = (BTreeSet::new(), BTreeSet::new());
        if let Discovery::Found(objects) = &world.discovery {
            workloads.extend(objects.members.iter().map(|member| member.id.clone()));
            let others = objects.mounters.iter().filter_map(|one| one.live.as_ref());
            workloads.extend(others.map(|live| live.id.clone()));
            claims.extend(objects.claims.iter().map(|claim| claim.name.clone()));
        }
        Ok(Application {
            app: Some(AppState {
                app,
                world,
                parent,
                has_upgrade_hooks,
            }),
            live: None,
            flux,
            source,
            workloads,
            claims,
        })
    }

    async fn planned(
        &self,
        request: &UpgradeRequest,
        plan: &UpgradePlan,
        now: Timestamp,
    ) -> Result<Application, ReconcileError> {
        let phase = request.status.as_ref().and_then(|status| status.phase);
        let (reads, needs_live) = match phase {
            Some(UpgradePhase::Snapshot | UpgradePhase::HealthCheck) => (Some(now), true),
            Some(UpgradePhase::GitCommit | UpgradePhase::Reconcile) => (None, true),
            // The commit follows at once, and is compared with the versions before it.
            Some(UpgradePhase::Suspend) if plan.is_without_snapshots => (None, true),
            Some(
                UpgradePhase::Pending
                | UpgradePhase::Plan
                | UpgradePhase::Approval
                | UpgradePhase::Suspend
                | UpgradePhase::ScaleDown
                | UpgradePhase::Undo
                | UpgradePhase::Succeeded
                | UpgradePhase::Failed,
            )
            | None => (None, false),
        };
        let flux: Vec<(FluxKind, NamespacedName)> = plan
            .flux_objects
            .iter()
            .map(|one| (one.kind, NamespacedName::new(&one.namespace, &one.name)))
            .collect();
        let live = match spec_of(&flux).filter(|_| needs_live) {
            Some(spec) => {
                let namespace = request.namespace().unwrap_or_default();
                Some(self.world(&spec, &namespace, reads).await?)
            }
            None => None,
        };
        let workloads = plan.workloads.iter();
        let claims = plan.volumes.iter();
        let source = &plan.commit.source;
        Ok(Application {
            app: None,
            live,
            flux,
            source: Some(NamespacedName::new(&source.namespace, &source.name)),
            workloads: workloads
                .map(|one| ObjectId::new(object_kind(one.kind), &one.namespace, &one.name))
                .collect(),
            claims: claims
                .map(|one| NamespacedName::new(&one.namespace, &one.pvc))
                .collect(),
        })
    }

    /// Observes an application. With `read_at`, a release that is not known is read.
    async fn world(
        &self,
        spec: &ManagedAppSpec,
        namespace: &str,
        read_at: Option<Timestamp>,
    ) -> Result<AppWorld, ReconcileError> {
        let flux = self.observer.flux(spec, namespace);
        let releases = &self.observer.releases;
        let read = match (flux.helm(), read_at) {
            (Some(helm), Some(now)) => releases.read(helm, now).await?,
            (Some(helm), None) => releases.known(helm),
            (None, _) => ReleaseRead::Disabled,
        };
        let discovery = self.observer.discovery(&flux, &read);
        let warnings = match &discovery {
            Discovery::Found(objects) => self.observer.caches.warnings_about(&objects.members),
            Discovery::Failed(_) => Vec::new(),
        };
        Ok(AppWorld {
            kustomization_name: flux.kustomization_name,
            kustomization: flux.kustomization,
            helm_release: flux.helm_release,
            discovery,
            overlap: None,
            warnings,
            operations: None,
        })
    }

    /// Returns the objects of Flux that exist, with the managers that the decisions need.
    async fn flux(
        &self,
        names: &[(FluxKind, NamespacedName)],
        request: &UpgradeRequest,
    ) -> Result<Vec<FluxTarget>, ReconcileError> {
        let caches = &self.observer.caches;
        let mut found = Vec::new();
        for (kind, name) in names {
            let target = match kind {
                FluxKind::Kustomization => target(&caches.kustomizations, name),
                FluxKind::HelmRelease => target(&caches.helm_releases, name),
            };
            if let Some(target) = target {
                found.push(self.with_managers(target, request).await?);
            }
        }
        Ok(found)
    }

    /// Adds the managers of `spec.suspend`. Only an object that is about to be locked, or that someone resumed, needs them.
    async fn with_managers(
        &self,
        mut target: FluxTarget,
        request: &UpgradeRequest,
    ) -> Result<FluxTarget, ReconcileError> {
        let phase = request.status.as_ref().and_then(|status| status.phase);
        let is_before_lock = matches!(phase, Some(UpgradePhase::Plan | UpgradePhase::Suspend))
            && target.lock == Lock::Free;
        let is_resumed = target.lock.is_held_by(&uid_of(request)) && !target.is_suspended();
        if !is_before_lock && !is_resumed {
            return Ok(target);
        }
        let managers = self
            .managers
            .of(&Asked {
                resource: target.kind.resource(),
                namespace: &target.namespace,
                name: &target.name,
                uid: &target.uid,
                generation: target.generation,
                path: &SUSPEND,
            })
            .await?;
        target.suspend_managers = managers.all;
        target.suspend_appliers = managers.appliers;
        Ok(target)
    }

    /// Returns the scale of workloads that exist, with the managers of those that someone scaled up.
    async fn scales(
        &self,
        ids: &BTreeSet<ObjectId>,
        request: &UpgradeRequest,
    ) -> Result<Vec<ScaleTarget>, ReconcileError> {
        let status = request.status.clone().unwrap_or_default();
        let mut found = Vec::new();
        for id in ids {
            let Some(mut target) = self.observer.caches.scale(id) else {
                continue;
            };
            let was_stopped = status.at_zero.contains(&target.id());
            let is_counted = match target.kind {
                ScalableKind::Deployment | ScalableKind::StatefulSet => true,
                ScalableKind::CronJob => false,
            };
            let is_stopping = matches!(
                status.phase,
                Some(UpgradePhase::ScaleDown | UpgradePhase::Snapshot)
            );
            if was_stopped && is_counted && is_stopping && !target.is_at_zero() {
                let asked = Asked {
                    resource: target.kind.resource(),
                    namespace: &target.namespace,
                    name: &target.name,
                    uid: &target.uid,
                    generation: target.generation,
                    path: &REPLICAS,
                };
                target.scale_managers = self.managers.of(&asked).await?.all;
            }
            found.push(target);
        }
        Ok(found)
    }

    /// Returns the other requests of the application, of both kinds, and the holders of the locks of its objects.
    fn others(&self, request: &UpgradeRequest, flux: &[FluxTarget]) -> Vec<OtherRequest> {
        let namespace = request.namespace().unwrap_or_default();
        let app = &request.spec.managed_app_ref.name;
        let mut upgrades = self.own.requests.by_index(&of_app(&namespace, app));
        // Before its plan, a rollback names its upgrade only.
        let of_upgrades = upgrades.iter().flat_map(|one| {
            let rollbacks = &self.own.rollbacks;
            rollbacks.by_index(&of_upgrade(&namespace, &one.name_any()))
        });
        let mut rollbacks: Vec<Arc<RollbackRequest>> = of_upgrades.collect();
        rollbacks.extend(self.own.rollbacks.by_index(&of_app(&namespace, app)));
        for target in flux {
            let holder = match &target.lock {
                Lock::Held(holder) => holder,
                Lock::Free | Lock::Unreadable => continue,
            };
            let key = Key {
                namespace: holder.namespace.clone(),
                name: holder.name.clone(),
            };
            if holder.kind == ROLLBACK_REQUEST.name() {
                rollbacks.extend(self.own.rollbacks.get(&key));
            } else {
                upgrades.extend(self.own.requests.get(&key));
            }
        }
        let mut seen = BTreeSet::from([uid_of(request)]);
        let upgrades = upgrades.iter().map(|one| {
            let status = one.status.as_ref();
            // A dry run locks nothing, and nobody waits for it.
            let is_active = !status.is_some_and(Status::is_over) && !one.spec.dry_run;
            let app = one.spec.managed_app_ref.name.clone();
            other(&UPGRADE_REQUEST, &**one, app, is_active)
        });
        let rollbacks = rollbacks.iter().map(|one| {
            let status = one.status.as_ref();
            let is_active = !status.is_some_and(Status::is_over) && !one.spec.dry_run;
            let app = self.own.app_of(one).unwrap_or_default();
            other(&ROLLBACK_REQUEST, &**one, app, is_active)
        });
        upgrades
            .chain(rollbacks)
            .filter(|one| seen.insert(one.holder.uid.clone()))
            .collect()
    }

    /// Returns the rollbacks of a request that has ended.
    fn rollbacks(&self, request: &UpgradeRequest) -> Vec<Arc<RollbackRequest>> {
        if !request.status.as_ref().is_some_and(Status::is_over) {
            return Vec::new();
        }
        let namespace = request.namespace().unwrap_or_default();
        let key = of_upgrade(&namespace, &request.name_any());
        self.own.rollbacks.by_index(&key)
    }

    fn source(&self, name: Option<&NamespacedName>) -> Seen<SourceView> {
        let Some(name) = name else {
            return Seen::Absent;
        };
        if !self.observer.is_watched(&name.namespace) {
            return Seen::NotWatched;
        }
        match self.own.sources.get(&Key::new(&name.namespace, &name.name)) {
            Presence::NotInstalled => Seen::NotInstalled,
            Presence::Unreadable { why } => Seen::Unreadable(why),
            Presence::Absent => Seen::Absent,
            Presence::Present(source) => Seen::Present(source),
        }
    }

    /// Returns the Jobs of a request, and the log of the Job that has made a plan.
    fn commit(
        &self,
        request: &UpgradeRequest,
        now: Timestamp,
    ) -> Result<CommitStep, ReconcileError> {
        let namespace = request.namespace().unwrap_or_default();
        let (kind, uid) = (self.row.name(), uid_of(request));
        let pods = self.own.pods.children(kind, &namespace, &uid);
        let pods: Vec<StepPod> = pods.iter().map(|pod| pod.view.step.clone()).collect();
        let jobs: Vec<StepJob> = self
            .own
            .jobs
            .children(kind, &namespace, &uid)
            .iter()
            .map(|job| {
                let about = with_uid(&namespace, &job.uid);
                let warnings = self.own.job_warnings.by_index(&about);
                let newest = warnings.iter().max_by_key(|one| one.seen(now));
                let warning = newest.map(|one| one.message.as_str());
                StepJob::read(&namespace, &job.view, &pods, warning)
            })
            .collect();
        let status = request.status.as_ref();
        let has_plan = status.is_some_and(|status| status.plan.is_some());
        let planned = jobs.iter().find(|job| {
            matches!(
                &job.state,
                StepState::Reported(CommitReport::Planned { .. })
            )
        });
        let log = planned.filter(|_| !has_plan).and_then(|job| {
            let pod = job.pod.as_ref()?;
            Some(LogRequest {
                namespace: namespace.clone(),
                pod: pod.name.clone(),
                uid: pod.uid.clone(),
                container: CONTAINER.to_owned(),
                node: pod.node.clone(),
                lines: LOG_LINES,
            })
        });
        let log = self.logs.ask(&request.metadata, status, log, now)?;
        Ok(CommitStep {
            settings: self.settings.clone(),
            jobs,
            log,
        })
    }
}

fn uid_of(request: &UpgradeRequest) -> String {
    request.uid().unwrap_or_default()
}

pub(super) fn object_kind(kind: ScalableKind) -> ObjectKind {
    match kind {
        ScalableKind::Deployment => ObjectKind::Deployment,
        ScalableKind::StatefulSet => ObjectKind::StatefulSet,
        ScalableKind::CronJob => ObjectKind::CronJob,
    }
}

pub(super) fn target<V: Send + Sync + 'static>(
    cache: &OptionalCache<FluxEntry<V>>,
    name: &NamespacedName,
) -> Option<FluxTarget> {
    match cache.get(&Key::new(&name.namespace, &name.name)) {
        Presence::Present(entry) => Some(entry.target.as_ref().clone()),
        Presence::NotInstalled | Presence::Unreadable { .. } | Presence::Absent => None,
    }
}

/// Returns the spec of a ManagedApp with these objects of Flux. What applies another object comes before it.
fn spec_of(flux: &[(FluxKind, NamespacedName)]) -> Option<ManagedAppSpec> {
    let last = |wanted: FluxKind| {
        let mut all = flux.iter().rev();
        let (_, name) = all.find(|(kind, _)| *kind == wanted)?;
        Some(FluxRef {
            name: name.name.clone(),
            namespace: Some(name.namespace.clone()),
        })
    };
    Some(ManagedAppSpec {
        helm_release_ref: last(FluxKind::HelmRelease),
        ..ManagedAppSpec::new(last(FluxKind::Kustomization)?)
    })
}

fn other(row: &KindRow, request: &impl ResourceExt, app: String, is_active: bool) -> OtherRequest {
    let created = request.creation_timestamp();
    let uid = request.uid().unwrap_or_default();
    OtherRequest {
        holder: Holder {
            kind: row.name().to_owned(),
            namespace: request.namespace(),
            name: request.name_any(),
            uid: uid.clone(),
        },
        app,
        age: (created.map_or(0, |created| created.0.as_second()), uid),
        is_active,
    }
}

impl Kind for UpgradeKind {
    type Object = UpgradeRequest;
    type Status = UpgradeRequestStatus;
    type World = UpgradeWorld;
    const RESOURCE: ResourceType = UPGRADE_REQUEST.resource;
    const FINALIZER: &'static str = upgrade::FINALIZER;

    fn status(object: &UpgradeRequest) -> Option<&UpgradeRequestStatus> {
        object.status.as_ref()
    }

    fn phase_spec(object: &UpgradeRequest) -> &UpgradeRequest {
        object
    }

    fn phase_progress(world: &UpgradeWorld) -> Option<String> {
        upgrade::progress(world)
    }

    async fn observe(
        &self,
        request: &Arc<UpgradeRequest>,
        now: Timestamp,
    ) -> Result<UpgradeWorld, ReconcileError> {
        let (world, subjects) = self.operation(request, BTreeSet::new(), now).await?;
        let is_over = request.status.as_ref().is_some_and(Status::is_over);
        let key = Key::of(&request.metadata);
        self.subjects.remember(key, is_over, subjects);
        Ok(world)
    }

    fn decide(input: &Input<'_, UpgradeRequest, UpgradeWorld>) -> Decision<UpgradeRequestStatus> {
        upgrade::decide(input)
    }
}
