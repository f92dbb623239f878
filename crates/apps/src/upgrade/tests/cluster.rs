//! A simulated cluster: carries out decisions by the rules of the engine, with its faults, and checks each write.

use std::sync::Arc;

use api::{
    Phase, State, Status, Timestamp,
    apps::{RollbackRequest, UpgradePhase, UpgradeRequest, UpgradeRequestStatus},
    claim::Claim,
    deadline::{self, PhaseInput},
    decide::{Effect, FinalizerAction, Input, LiveRead, Manifest, ReconcileError, Target},
    names,
    phase::Undo,
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    delivery::{Delivery, Push},
    fixtures::{UID, at, attachment, pod, request, world},
    objects::{add, bump, mark, mark_job, patched, scale, take},
};
use crate::{
    upgrade::{
        FINALIZER, UpgradeDecision, decide,
        flux_target::{FluxTarget, REQUESTED_AT},
        progress,
        scale_target::{Scale, ScaleTarget},
        storage::{SnapshotView, Snapshots},
        world::UpgradeWorld,
    },
    world::Seen,
};

/// Maximum number of reconciliations of a run.
const MAX_STEPS: usize = 400;

/// A fault at one write. Writes are counted from 0: changes of the cluster, and statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The operator is killed before the write.
    CrashBefore(usize),
    /// The operator is killed after the write.
    CrashAfter(usize),
    /// The response is lost, and the caches do not have the write for some time.
    LostResponse(usize),
    /// The caches are old for some time from this write on. The write itself succeeds.
    Stale(usize),
}

/// Reconciliations for which the caches are old.
const LAG: usize = 4;

/// The cluster and one request.
pub(super) struct Cluster {
    pub(super) request: UpgradeRequest,
    /// The state of the API server.
    pub(super) real: UpgradeWorld,
    /// The state in the caches.
    cache: UpgradeWorld,
    pub(super) now: Timestamp,
    /// Seconds between two reconciliations.
    pub(super) pace: u64,
    pub(super) fault: Option<Fault>,
    pub(super) writes: Vec<String>,
    pub(super) phases: Vec<UpgradePhase>,
    pub(super) has_finalizer: bool,
    /// Whether the object was deleted.
    pub(super) is_gone: bool,
    lag: usize,
    /// Whether the controllers of Flux reconcile.
    pub(super) flux_works: bool,
    /// Whether Pods end.
    pub(super) pods_end: bool,
    /// Whether the storage system takes snapshots.
    pub(super) snapshots_work: bool,
    /// Whether each reconciliation finds a snapshot that has grown.
    pub(super) snapshots_grow: bool,
    /// Whether a finalizer keeps deleted snapshots.
    pub(super) keep_snapshots: bool,
    /// Git, Flux and Helm.
    pub(super) delivery: Delivery,
}

/// A reconciliation that did not complete.
struct Aborted;

impl Cluster {
    /// A cluster whose Git server rejects each push, so that each request is undone.
    pub(super) fn new() -> Self {
        Self::with(world())
    }

    /// A cluster with this behavior of the Git server.
    pub(super) fn pushing(push: Push) -> Self {
        Self {
            delivery: Delivery::new(push),
            ..Self::new()
        }
    }

    pub(super) fn with(real: UpgradeWorld) -> Self {
        Self {
            request: request(),
            cache: real.clone(),
            real,
            now: at(0),
            pace: 2,
            fault: None,
            writes: Vec::new(),
            phases: Vec::new(),
            has_finalizer: false,
            is_gone: false,
            lag: 0,
            flux_works: true,
            pods_end: true,
            snapshots_work: true,
            snapshots_grow: false,
            keep_snapshots: false,
            delivery: Delivery::new(Push::Rejected),
        }
    }

    pub(super) fn faulty(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::new()
        }
    }

    pub(super) fn status(&self) -> UpgradeRequestStatus {
        self.request.status.clone().unwrap_or_default()
    }

    pub(super) fn phase(&self) -> UpgradePhase {
        self.status().phase.unwrap_or(UpgradePhase::Pending)
    }

    pub(super) fn reason(&self) -> String {
        self.status().progress.reason.unwrap_or_default()
    }

    pub(super) fn message(&self) -> String {
        self.status().progress.message.unwrap_or_default()
    }

    /// Deletes the request, as a user does.
    pub(super) fn delete(&mut self) {
        if self.has_finalizer {
            self.request.metadata.deletion_timestamp = Some(Time(self.now));
        } else {
            self.is_gone = true;
        }
    }

    /// The caches have the current state.
    pub(super) fn sync(&mut self) {
        self.cache = self.real.clone();
    }

    /// Returns the decision about the current state, without carrying it out.
    pub(super) fn decision(&self) -> UpgradeDecision {
        self.decided(false, None)
    }

    /// Returns the decision about the current state, after the live reads or an error of an optional effect.
    pub(super) fn decided(
        &self,
        confirmed: bool,
        fault: Option<&ReconcileError>,
    ) -> UpgradeDecision {
        decide(&Input {
            object: &self.request,
            world: &self.cache,
            now: self.now,
            fault,
            refused: fault.is_some(),
            confirmed,
            overdue: false,
        })
    }

    fn has_ended(&self) -> bool {
        self.is_gone
            || (self.phase().is_terminal()
                && !self.has_finalizer
                && self.request.metadata.deletion_timestamp.is_none())
    }

    /// Reconciles until the request has ended.
    pub(super) fn run(&mut self) {
        self.run_until(|_| false);
        assert!(
            self.has_ended(),
            "stuck: {}: {}",
            self.reason(),
            self.message()
        );
    }

    /// Reconciles until the condition holds or the request has ended.
    pub(super) fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        for _ in 0..MAX_STEPS {
            if self.has_ended() || is_done(self) {
                return;
            }
            self.step();
        }
        panic!(
            "no end: {:?} {}: {}",
            self.phase(),
            self.reason(),
            self.message()
        );
    }

    /// One reconciliation, then time passes in the cluster.
    pub(super) fn step(&mut self) {
        match self.reconcile() {
            Ok(()) | Err(Aborted) => {}
        }
        self.tick();
        self.lag = self.lag.saturating_sub(1);
        if self.lag == 0 {
            self.cache = self.real.clone();
        }
        self.now = time::after(self.now, std::time::Duration::from_secs(self.pace));
    }

    fn reconcile(&mut self) -> Result<(), Aborted> {
        let mut object = self.request.clone();
        let finalizer = self.has_finalizer.then(|| FINALIZER.to_owned());
        object.metadata.finalizers = Some(finalizer.into_iter().collect());
        let stored = self.status();
        let is_deleting = object.metadata.deletion_timestamp.is_some();
        let mut confirmed = false;
        loop {
            let phase_input = PhaseInput {
                spec: &object,
                created: object
                    .metadata
                    .creation_timestamp
                    .as_ref()
                    .map(|time| time.0),
                progress: progress(&self.cache),
            };
            let overdue = deadline::is_overdue(&stored, &phase_input, self.now);
            let decision = decide(&Input {
                object: &object,
                world: &self.cache,
                now: self.now,
                fault: None,
                refused: false,
                confirmed,
                overdue,
            });
            if !decision.confirm.is_empty() {
                assert!(!confirmed, "a decision asked twice for a live read");
                for read in &decision.confirm {
                    self.confirm(read);
                }
                confirmed = true;
                continue;
            }
            self.check(&stored, &decision, overdue, is_deleting);
            let is_kept = decision.finalizer == FinalizerAction::Keep;
            let needs = !decision.effects.is_empty()
                || !decision.claims.is_empty()
                || decision.status.has_children();
            self.has_finalizer |= !is_deleting && is_kept && needs;
            for claim in decision.claims.iter().filter(|one| one.is_taken()) {
                self.claim(claim)?;
            }
            for effect in &decision.effects {
                self.apply(effect)?;
            }
            for claim in decision.claims.iter().filter(|one| !one.is_taken()) {
                self.claim(claim)?;
            }
            if is_deleting && !is_kept {
                self.has_finalizer = false;
                self.is_gone = true;
                return Ok(());
            }
            let next = decision.next_status(&stored, &phase_input, 1, self.now);
            if next != stored {
                self.write("status", |cluster, _| {
                    cluster
                        .phases
                        .extend(next.phase.filter(|phase| stored.phase != Some(*phase)));
                    cluster.request.status = Some(next);
                })?;
            }
            if !is_kept {
                self.has_finalizer = false;
            }
            return Ok(());
        }
    }

    /// Checks the rules of the engine.
    fn check(
        &self,
        stored: &UpgradeRequestStatus,
        decision: &UpgradeDecision,
        overdue: bool,
        is_deleting: bool,
    ) {
        let phase = stored.phase.unwrap_or(UpgradePhase::Pending);
        assert!(
            phase.may_become(decision.phase),
            "{phase:?} to {:?}",
            decision.phase
        );
        let state = decision.verdict.state;
        let is_end = matches!(state, State::Succeeded | State::Failed);
        assert_eq!(
            decision.is_end(),
            is_end,
            "{:?} and {state:?}",
            decision.phase
        );
        let row = phase.row().unwrap();
        if let Some(next) = row.deadline.next()
            && overdue
            && !is_deleting
            && next != phase
        {
            assert_ne!(phase, decision.phase, "{phase:?} after its deadline");
        }
        let annotations = self.request.metadata.annotations.as_ref();
        let is_forced = annotations.is_some_and(|all| all.contains_key(names::FORCE_DELETE));
        if matches!(row.undo, Undo::Phase(_)) && is_deleting && !is_forced {
            assert_eq!(
                decision.finalizer,
                FinalizerAction::Keep,
                "{phase:?} is not undone"
            );
        }
        for claim in decision.claims.iter().filter(|one| one.is_taken()) {
            assert!(!is_deleting, "a lock is taken while the request is deleted");
            self.check_intent(stored, claim.target().requires_intent.as_deref());
        }
        for effect in &decision.effects {
            let intent = match effect {
                Effect::Ensure(one) | Effect::Apply(one) => {
                    let may_create = !is_deleting || one.undoing;
                    assert!(may_create, "{} is created during the deletion", one.name);
                    one.requires_intent.as_deref()
                }
                Effect::Delete(target) | Effect::Patch { target, .. } => {
                    target.requires_intent.as_deref()
                }
            };
            self.check_intent(stored, intent);
        }
    }

    fn check_intent(&self, stored: &UpgradeRequestStatus, intent: Option<&str>) {
        let is_stored = intent.is_none_or(|intent| stored.has_intent(intent));
        assert!(is_stored, "{intent:?} is not stored: {:?}", self.phase());
    }

    /// Carries out a write, with the fault that is planned for it. `change` gets the state of the API server.
    fn write(&mut self, name: &str, change: impl FnOnce(&mut Self, bool)) -> Result<(), Aborted> {
        let number = self.writes.len();
        if self.fault == Some(Fault::CrashBefore(number)) {
            self.fault = None;
            self.cache = self.real.clone();
            return Err(Aborted);
        }
        let is_lost = self.fault == Some(Fault::LostResponse(number));
        if is_lost || self.fault == Some(Fault::Stale(number)) {
            self.lag = LAG;
        }
        self.writes.push(format!("{:?} {name}", self.phase()));
        // The engine puts the response of a write into the caches, also if they are old otherwise.
        change(self, !is_lost);
        if self.fault == Some(Fault::CrashAfter(number)) {
            self.fault = None;
            // Another process lists everything.
            self.cache = self.real.clone();
            return Err(Aborted);
        }
        if is_lost {
            self.fault = None;
            return Err(Aborted);
        }
        Ok(())
    }

    fn confirm(&mut self, read: &LiveRead) {
        let LiveRead::Object { resource, name, .. } = read else {
            panic!("{read:?}");
        };
        let kind = resource.kind;
        match kind {
            "Kustomization" | "HelmRelease" => {
                let is_it =
                    |one: &FluxTarget| one.kind.resource().kind == kind && one.name == *name;
                self.cache.flux.retain(|one| !is_it(one));
                let live = self.real.flux.iter().filter(|one| is_it(one)).cloned();
                self.cache.flux.extend(live);
                self.cache
                    .flux
                    .sort_by_key(|one| (one.kind, one.name.clone()));
                self.cache.live.clone_from(&self.real.live);
            }
            "StatefulSet" | "Deployment" | "CronJob" => {
                let is_it =
                    |one: &ScaleTarget| one.kind.resource().kind == kind && one.name == *name;
                self.cache.workloads.retain(|one| !is_it(one));
                let live = self.real.workloads.iter().filter(|one| is_it(one)).cloned();
                self.cache.workloads.extend(live);
            }
            "VolumeSnapshot" => self.cache.snapshots = self.real.snapshots.clone(),
            "PersistentVolumeClaim" => self.cache.volumes = self.real.volumes.clone(),
            "Job" => self.cache.commit = self.real.commit.clone(),
            "UpgradeRequest" | "RollbackRequest" => {
                self.cache.others = self.real.others.clone();
            }
            other => panic!("{other} is read"),
        }
    }

    fn claim(&mut self, claim: &Claim) -> Result<(), Aborted> {
        let holder = api::claim::Holder {
            kind: "UpgradeRequest".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "up".to_owned(),
            uid: UID.to_owned(),
        };
        self.patch_flux(claim.target(), &claim.merge_patch(&holder))
    }

    fn apply(&mut self, effect: &Effect) -> Result<(), Aborted> {
        match effect {
            Effect::Patch {
                target,
                subresource,
                patch,
            } => match target.resource.kind {
                "Kustomization" | "HelmRelease" => self.patch_flux(target, patch),
                "GitRepository" => self.patch_source(target, patch),
                _ => self.patch_workload(target, *subresource, patch),
            },
            Effect::Ensure(manifest) if manifest.resource.kind == "Job" => {
                self.create_job(manifest)
            }
            Effect::Ensure(manifest) if manifest.resource.kind == "RollbackRequest" => {
                self.create_rollback(manifest)
            }
            Effect::Ensure(manifest) => {
                if self
                    .real
                    .snapshots
                    .all()
                    .iter()
                    .any(|one| one.name == manifest.name)
                {
                    // The create is rejected, and the existing object is read into the caches.
                    self.cache.snapshots = self.real.snapshots.clone();
                    return Ok(());
                }
                self.check_stopped();
                let claim = manifest.body["spec"]["source"]["persistentVolumeClaimName"].as_str();
                let view = SnapshotView {
                    namespace: manifest.namespace.clone().unwrap(),
                    name: manifest.name.clone(),
                    uid: format!("uid-{}", manifest.name),
                    claim: claim.unwrap().to_owned(),
                    ..SnapshotView::default()
                };
                let name = format!("create {}", manifest.name);
                self.write(&name, |cluster, is_cached| {
                    add(&mut cluster.real.snapshots, &view);
                    if is_cached {
                        add(&mut cluster.cache.snapshots, &view);
                    }
                })
            }
            Effect::Delete(target) => {
                let uid = target.uid.clone();
                let is_job = target.resource.kind == "Job";
                self.write(&format!("delete {}", target.name), |cluster, is_cached| {
                    if is_job {
                        mark_job(&mut cluster.real.commit, &uid);
                        if is_cached {
                            mark_job(&mut cluster.cache.commit, &uid);
                        }
                        return;
                    }
                    mark(&mut cluster.real.snapshots, &uid);
                    if is_cached {
                        mark(&mut cluster.cache.snapshots, &uid);
                    }
                })
            }
            Effect::Apply(manifest) => panic!("{} is applied", manifest.name),
        }
    }

    fn create_job(&mut self, manifest: &Manifest) -> Result<(), Aborted> {
        if self.real.commit.job(&manifest.name).is_some() {
            self.cache.commit = self.real.commit.clone();
            return Ok(());
        }
        let job = Delivery::created(manifest);
        self.write(&format!("create {}", job.name), |cluster, is_cached| {
            cluster.real.commit.jobs.push(job.clone());
            if is_cached {
                cluster.cache.commit.jobs.push(job);
            }
        })
    }

    fn create_rollback(&mut self, manifest: &Manifest) -> Result<(), Aborted> {
        assert!(self.status().is_over(), "R34: before the end");
        let has_name = |one: &Arc<RollbackRequest>| {
            one.metadata.name.as_deref() == Some(manifest.name.as_str())
        };
        if self.real.rollbacks.iter().any(has_name) {
            self.cache.rollbacks = self.real.rollbacks.clone();
            return Ok(());
        }
        let mut body = manifest.body.clone();
        body["metadata"]["uid"] = json!("rollback-uid");
        let created: RollbackRequest = serde_json::from_value(body).unwrap();
        let created = Arc::new(created);
        self.write(
            &format!("create {}", manifest.name),
            |cluster, is_cached| {
                cluster.real.rollbacks.push(Arc::clone(&created));
                if is_cached {
                    cluster.cache.rollbacks.push(created);
                }
            },
        )
    }

    fn patch_source(&mut self, target: &Target, patch: &Value) -> Result<(), Aborted> {
        let is_current = self.real.source.present().is_some_and(|one| {
            Some(&one.version) == target.version.as_ref() && one.uid == target.uid
        });
        if !is_current {
            self.cache.source = self.real.source.clone();
            return Err(Aborted);
        }
        let token = patch["metadata"]["annotations"][REQUESTED_AT].as_str();
        let token = token.map(str::to_owned);
        self.write("patch GitRepository", |cluster, is_cached| {
            if let Seen::Present(one) = &mut cluster.real.source {
                let one = Arc::make_mut(one);
                one.requested = token;
                bump(&mut one.version);
            }
            if is_cached {
                cluster.cache.source = cluster.real.source.clone();
            }
        })
    }

    fn patch_flux(&mut self, target: &Target, patch: &Value) -> Result<(), Aborted> {
        let find = |one: &FluxTarget| one.uid == target.uid;
        let index = self.real.flux.iter().position(find);
        let index =
            index.filter(|index| Some(&self.real.flux[*index].version) == target.version.as_ref());
        let Some(index) = index else {
            self.cache.flux = self.real.flux.clone();
            return Err(Aborted);
        };
        // Pitfall 4: the old version must not be applied to data that the snapshots do not have.
        if self.phase() == UpgradePhase::Reconcile && target.resource.kind == "HelmRelease" {
            assert_eq!(self.delivery.requested, "2.0.0");
        }
        let name = format!("patch {} {}", target.resource.kind, patch["spec"]);
        self.write(&name, |cluster, is_cached| {
            patched(&mut cluster.real.flux[index], patch);
            let written = cluster.real.flux[index].clone();
            let mut cached = cluster.cache.flux.iter_mut();
            if let Some(cached) = cached.find(|one| one.uid == written.uid && is_cached) {
                *cached = written;
            }
        })
    }

    fn patch_workload(
        &mut self,
        target: &Target,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Result<(), Aborted> {
        let index = self
            .real
            .workloads
            .iter()
            .position(|one| one.uid == target.uid);
        let index = index
            .filter(|index| Some(&self.real.workloads[*index].version) == target.version.as_ref());
        let Some(index) = index else {
            self.cache.workloads = self.real.workloads.clone();
            return Err(Aborted);
        };
        let is_stop = patch["spec"]["replicas"] == 0 || patch["spec"]["suspend"] == true;
        if is_stop {
            self.check_confirmed();
        } else if self.phase() == UpgradePhase::Reconcile {
            // Pitfall 4: what starts has the new version.
            let live = &self.real.workloads[index];
            let has_new_template = live.template.as_deref() == Some("2.0.0");
            let is_deployed = self.delivery.deployed() == "2.0.0";
            assert!(has_new_template || is_deployed, "{}", target.name);
        }
        assert_eq!(subresource.is_some(), target.resource.kind != "CronJob");
        let name = format!("scale {} {}", target.name, patch["spec"]);
        self.write(&name, |cluster, is_cached| {
            let live = &mut cluster.real.workloads[index];
            scale(live, &patch["spec"]);
            // The response of a subresource is not the object, so the caches do not get it.
            let is_cached = is_cached && subresource.is_none();
            let written = live.clone();
            let mut cached = cluster.cache.workloads.iter_mut();
            if let Some(cached) = cached.find(|one| one.uid == written.uid && is_cached) {
                *cached = written;
            }
        })
    }

    /// The controllers of the cluster work.
    fn tick(&mut self) {
        if self.flux_works {
            for one in &mut self.real.flux {
                if one.handled != one.requested {
                    one.handled = one.requested.clone();
                    bump(&mut one.version);
                }
            }
        }
        let mut is_running = false;
        for one in &mut self.real.workloads {
            if let Scale::Replicas {
                desired,
                current,
                observed,
            } = &mut one.scale
            {
                let before = (*current, *observed);
                if *desired > 0 || self.pods_end {
                    *current = *desired;
                }
                *observed = one.generation;
                if before != (*current, *observed) {
                    bump(&mut one.version);
                }
                is_running |= *current > 0;
            }
        }
        let is_mounted = !self.real.pods.is_empty();
        if is_running {
            self.real.pods = vec![pod("db"), pod("files")];
            self.real.attachments = vec![attachment()];
        } else if self.pods_end {
            // A volume is detached after its Pods have ended.
            if !is_mounted {
                self.real.attachments.clear();
            }
            self.real.pods.clear();
        }
        let mut delivery = self.delivery.clone();
        delivery.tick(&mut self.real, self.flux_works, self.now);
        self.delivery = delivery;
        let (works, now, is_kept) = (self.snapshots_work, self.now, self.keep_snapshots);
        if let Snapshots::Found(all) = &mut self.real.snapshots {
            all.retain(|one| !one.is_deleting || is_kept);
            for one in all.iter_mut() {
                if works {
                    take(one, now);
                } else if self.snapshots_grow {
                    one.restore_size = Some(now.to_string());
                }
            }
        }
    }
}
