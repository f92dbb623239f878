//! A simulated cluster after an upgrade: carries out the decisions about a whole rollback by the rules of the engine, with
//! its faults.

use std::sync::Arc;

use api::{
    Phase, State, Status, Timestamp,
    apps::{RollbackPhase, RollbackRequest, RollbackRequestStatus, UpgradePlan, UpgradeRequest},
    claim::Holder,
    deadline::{self, PhaseInput},
    decide::{Effect, FinalizerAction, Input, Manifest, Target},
    time,
};
use attempts::step::StepSettings;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::{
    after_upgrade::{UPGRADED, helm, request, upgrade, upgraded},
    storage::{Aborted, Fault, LAG, OWNER, Storage},
};
use crate::{
    rollback::{self, RollbackDecision, decide, world::RollbackWorld},
    upgrade::{
        commit_step::StepJob,
        flux_target::REQUESTED_AT,
        storage::{ContentView, SnapshotView},
        tests::{
            fixtures,
            objects::{bump, mark_job, patched, scale},
        },
        world::UpgradeWorld,
    },
    world::Seen,
};

/// Maximum number of reconciliations of a run.
const MAX_STEPS: usize = 500;

/// Seconds between two reconciliations.
const PACE: std::time::Duration = std::time::Duration::from_secs(2);

/// The behavior of the server to the next push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Push {
    /// The push is accepted.
    Accepted,
    /// The push is accepted, and the response is lost.
    AcceptedSilently,
    /// The branch is protected.
    Rejected,
}

/// The cluster and one request.
pub(super) struct RollbackCluster {
    pub(super) request: RollbackRequest,
    upgrade: UpgradeRequest,
    /// Whether the upgrade has changed an image in the values of the HelmRelease, and not the chart.
    pub(super) is_image: bool,
    /// Whether Helm has returned the release by itself. It does not try the version of the upgrade again.
    pub(super) is_remediated: bool,
    /// Claims, volumes and Pods. It counts all writes, and has the fault.
    pub(super) storage: Storage,
    /// The state of the API server.
    pub(super) real: UpgradeWorld,
    /// The state in the caches.
    pub(super) cache: UpgradeWorld,
    pub(super) now: Timestamp,
    pub(super) push: Push,
    /// Version on the branch.
    pub(super) version: String,
    /// Number of commits of the request on the branch.
    pub(super) commits: usize,
    /// Version that the live HelmRelease requests.
    pub(super) requested: String,
    /// Number of the revision that the Kustomization has applied.
    pub(super) applied: usize,
    pub(super) phases: Vec<RollbackPhase>,
    pub(super) has_finalizer: bool,
    pub(super) is_gone: bool,
    lag: usize,
}

impl RollbackCluster {
    pub(super) fn new(push: Push) -> Self {
        let mut cluster = Self {
            request: request(),
            upgrade: upgrade(),
            is_image: false,
            is_remediated: false,
            storage: Storage::new(),
            cache: upgraded(),
            real: upgraded(),
            now: fixtures::at(0),
            push,
            version: "2.0.0".to_owned(),
            commits: 0,
            requested: "2.0.0".to_owned(),
            applied: UPGRADED,
            phases: Vec::new(),
            has_finalizer: false,
            is_gone: false,
            lag: 0,
        };
        let state = cluster.real.app.as_mut().unwrap();
        let newest = helm(&mut state.world).newest.as_mut().unwrap();
        newest.version = 4;
        newest.chart_version = "2.0.0".to_owned();
        cluster.show();
        cluster.sync();
        cluster
    }

    pub(super) fn faulty(push: Push, fault: Fault) -> Self {
        let mut cluster = Self::new(push);
        cluster.storage.fault = Some(fault);
        cluster
    }

    /// After an upgrade of an image. `change` makes its plan one of the image.
    pub(super) fn of_images(push: Push, change: impl FnOnce(&mut UpgradePlan)) -> Self {
        let mut cluster = Self::new(push);
        cluster.is_image = true;
        let status = cluster.upgrade.status.as_mut().unwrap();
        change(status.plan.as_mut().unwrap());
        cluster.deployed(4, "2.0.0");
        cluster
    }

    /// Helm has returned the release before the rollback.
    pub(super) fn remediate(&mut self) {
        self.is_remediated = true;
        self.deployed(5, "1.0.0");
    }

    fn deployed(&mut self, version: i64, tag: &str) {
        let state = self.real.app.as_mut().unwrap();
        let newest = helm(&mut state.world).newest.as_mut().unwrap();
        newest.version = version;
        newest.chart_version = "1.0.0".to_owned();
        newest.config_digest = Some(tag.to_owned());
        self.show();
        self.sync();
    }

    pub(super) fn status(&self) -> RollbackRequestStatus {
        self.request.status.clone().unwrap_or_default()
    }

    pub(super) fn phase(&self) -> RollbackPhase {
        self.status().phase.unwrap_or(RollbackPhase::Pending)
    }

    pub(super) fn message(&self) -> String {
        self.status().progress.message.unwrap_or_default()
    }

    pub(super) fn reason(&self) -> String {
        self.status().progress.reason.unwrap_or_default()
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
        self.storage.sync();
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
    }

    /// Reconciles until the condition holds or the request has ended.
    pub(super) fn run_until(&mut self, is_reached: impl Fn(&Self) -> bool) {
        for _ in 0..MAX_STEPS {
            if self.has_ended() || is_reached(self) {
                return;
            }
            self.step();
        }
        panic!(
            "no end: {:?} {}: {}: {:?}",
            self.phase(),
            self.reason(),
            self.message(),
            self.storage.writes
        );
    }

    /// One reconciliation, then time passes in the cluster.
    pub(super) fn step(&mut self) {
        match self.reconcile() {
            Ok(()) | Err(Aborted) => {}
        }
        self.tick();
        self.storage.pass();
        self.lag = self.lag.saturating_sub(1);
        if self.lag == 0 {
            self.cache = self.real.clone();
        }
        self.now = time::after(self.now, PACE);
    }

    fn world(&self) -> RollbackWorld {
        let has_plan = self.status().plan.is_some();
        let volumes = has_plan.then(|| self.storage.objects());
        RollbackWorld {
            upgrade: Some(Arc::new(self.upgrade.clone())),
            snapshots: vec![SnapshotView {
                namespace: "shop".to_owned(),
                name: "shop-data".to_owned(),
                uid: "snapshot".to_owned(),
                is_ready: true,
                content: Some(ContentView {
                    snapshot_uid: Some("snapshot".to_owned()),
                    is_ready: true,
                    ..ContentView::default()
                }),
                ..SnapshotView::default()
            }],
            operation: self.cache.clone(),
            volumes: volumes.into_iter().collect(),
            settings: StepSettings::default(),
        }
    }

    fn reconcile(&mut self) -> Result<(), Aborted> {
        let object = self.request.clone();
        let stored = self.status();
        self.storage.status = stored.clone();
        let is_deleting = object.metadata.deletion_timestamp.is_some();
        let mut confirmed = false;
        loop {
            let world = self.world();
            let created = object.metadata.creation_timestamp.as_ref();
            let phase_input = PhaseInput {
                spec: &object,
                created: created.map(|time| time.0),
                progress: rollback::progress(&world),
            };
            let overdue = deadline::is_overdue(&stored, &phase_input, self.now);
            let decision = decide(&Input {
                object: &object,
                world: &world,
                now: self.now,
                fault: None,
                refused: false,
                confirmed,
                overdue,
            });
            if !decision.confirm.is_empty() {
                assert!(!confirmed, "a decision asked twice for a live read");
                self.sync();
                confirmed = true;
                continue;
            }
            check(&stored, &decision, is_deleting);
            let is_kept = decision.finalizer == FinalizerAction::Keep;
            let needs = !decision.effects.is_empty()
                || !decision.claims.is_empty()
                || decision.status.has_children();
            self.has_finalizer |= !is_deleting && is_kept && needs;
            let holder = Holder {
                kind: "RollbackRequest".to_owned(),
                namespace: Some("shop".to_owned()),
                name: OWNER.name.to_owned(),
                uid: OWNER.uid.to_owned(),
            };
            for claim in decision.claims.iter().filter(|one| one.is_taken()) {
                self.patch_flux(claim.target(), &claim.merge_patch(&holder))?;
            }
            for effect in &decision.effects {
                self.apply(effect)?;
            }
            for claim in decision.claims.iter().filter(|one| !one.is_taken()) {
                self.patch_flux(claim.target(), &claim.merge_patch(&holder))?;
            }
            if is_deleting && !is_kept {
                self.has_finalizer = false;
                self.is_gone = true;
                return Ok(());
            }
            let next = decision.next_status(&stored, &phase_input, 1, self.now);
            if next != stored {
                self.write("status", |cluster, _| {
                    let entered = next.phase.filter(|phase| stored.phase != Some(*phase));
                    cluster.phases.extend(entered);
                    cluster.request.status = Some(next);
                })?;
            }
            if !is_kept {
                self.has_finalizer = false;
            }
            return Ok(());
        }
    }

    /// Carries out a write, with the fault that is planned for it. `change` gets the state of the API server, and whether
    /// its response arrives.
    fn write(&mut self, name: &str, change: impl FnOnce(&mut Self, bool)) -> Result<(), Aborted> {
        let (fault, number) = (self.storage.fault, self.storage.writes.len());
        let mut is_done = false;
        let name = format!("{:?} {name}", self.phase());
        let result = self.storage.write(&name, |_| {
            is_done = true;
            None
        });
        if is_done {
            change(self, fault != Some(Fault::LostResponse(number)));
        }
        self.after(fault, number);
        result
    }

    /// Applies the effect of a fault to the caches.
    fn after(&mut self, fault: Option<Fault>, number: usize) {
        match fault {
            // Another process lists everything.
            Some(Fault::CrashBefore(at) | Fault::CrashAfter(at)) if at == number => {
                self.cache = self.real.clone();
            }
            Some(Fault::LostResponse(at) | Fault::Stale(at)) if at == number => self.lag = LAG,
            Some(
                Fault::CrashBefore(_)
                | Fault::CrashAfter(_)
                | Fault::LostResponse(_)
                | Fault::Stale(_),
            )
            | None => {}
        }
    }

    fn apply(&mut self, effect: &Effect) -> Result<(), Aborted> {
        let kind = match effect {
            Effect::Ensure(manifest) | Effect::Apply(manifest) => manifest.resource.kind,
            Effect::Delete(target) | Effect::Patch { target, .. } => target.resource.kind,
        };
        match (kind, effect) {
            ("Job", Effect::Ensure(manifest)) => self.create_job(manifest),
            ("Job", Effect::Delete(target)) => self.delete_job(target),
            ("Kustomization" | "HelmRelease", Effect::Patch { target, patch, .. }) => {
                self.patch_flux(target, patch)
            }
            ("GitRepository", Effect::Patch { target, patch, .. }) => {
                self.patch_source(target, patch)
            }
            ("Deployment" | "StatefulSet" | "CronJob", Effect::Patch { target, patch, .. }) => {
                self.patch_workload(target, patch)
            }
            (
                _,
                Effect::Ensure(_) | Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. },
            ) => {
                let (fault, number) = (self.storage.fault, self.storage.writes.len());
                let result = self.storage.apply(effect);
                self.after(fault, number);
                result
            }
        }
    }

    fn create_job(&mut self, manifest: &Manifest) -> Result<(), Aborted> {
        if self.real.commit.job(&manifest.name).is_some() {
            self.cache.commit = self.real.commit.clone();
            return Ok(());
        }
        let job = StepJob {
            namespace: "shop".to_owned(),
            name: manifest.name.clone(),
            uid: format!("uid-{}", manifest.name),
            ..StepJob::default()
        };
        self.write(&format!("create {}", job.name), |cluster, is_cached| {
            cluster.real.commit.jobs.push(job.clone());
            if is_cached {
                cluster.cache.commit.jobs.push(job);
            }
        })
    }

    fn delete_job(&mut self, target: &Target) -> Result<(), Aborted> {
        let uid = target.uid.clone();
        self.write(&format!("delete {}", target.name), |cluster, is_cached| {
            mark_job(&mut cluster.real.commit, &uid);
            if is_cached {
                mark_job(&mut cluster.cache.commit, &uid);
            }
        })
    }

    fn patch_flux(&mut self, target: &Target, patch: &Value) -> Result<(), Aborted> {
        let index =
            self.real.flux.iter().position(|one| {
                one.uid == target.uid && Some(&one.version) == target.version.as_ref()
            });
        let Some(index) = index else {
            self.cache.flux = self.real.flux.clone();
            return Err(Aborted);
        };
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

    fn patch_source(&mut self, target: &Target, patch: &Value) -> Result<(), Aborted> {
        let source = self.real.source.present();
        let is_current = source.is_some_and(|one| Some(&one.version) == target.version.as_ref());
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

    fn patch_workload(&mut self, target: &Target, patch: &Value) -> Result<(), Aborted> {
        let index =
            self.real.workloads.iter().position(|one| {
                one.uid == target.uid && Some(&one.version) == target.version.as_ref()
            });
        let Some(index) = index else {
            self.cache.workloads = self.real.workloads.clone();
            return Err(Aborted);
        };
        // The new program must not start on the restored data, and the old one not on the new data.
        let is_stop = patch["spec"]["replicas"] == 0 || patch["spec"]["suspend"] == true;
        if !is_stop && self.commits > 0 {
            assert_eq!(self.requested, "1.0.0", "{:?}", self.storage.writes);
            let claim = self.storage.claim("data").unwrap();
            assert_eq!(claim["spec"]["volumeName"], "pv-new");
        }
        let name = format!("scale {} {}", target.name, patch["spec"]);
        self.write(&name, |cluster, _| {
            scale(&mut cluster.real.workloads[index], &patch["spec"]);
        })
    }
}

/// Checks the rules of the engine.
fn check(stored: &RollbackRequestStatus, decision: &RollbackDecision, is_deleting: bool) {
    let phase = stored.phase.unwrap_or(RollbackPhase::Pending);
    let next = decision.phase;
    assert!(phase.may_become(next), "{phase:?} to {next:?}");
    let state = decision.verdict.state;
    let is_end = matches!(state, State::Succeeded | State::Failed);
    assert_eq!(decision.is_end(), is_end, "{next:?} and {state:?}");
    for claim in decision.claims.iter().filter(|one| one.is_taken()) {
        assert!(!is_deleting, "a lock is taken while the request is deleted");
        check_intent(stored, claim.target().requires_intent.as_deref());
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
        check_intent(stored, intent);
    }
}

fn check_intent(stored: &RollbackRequestStatus, intent: Option<&str>) {
    let is_stored = intent.is_none_or(|intent| stored.has_intent(intent));
    assert!(is_stored, "{intent:?} is not stored: {:?}", stored.phase);
}
