//! A simulated cluster after an upgrade: carries out the decisions about a whole rollback by the rules of the engine, with
//! its faults.

use std::sync::Arc;

use api::{
    Phase, State, Status, Timestamp,
    apps::{
        PlannedCommit, PlannedEdit, PushOutcome, PushedCommit, RollbackPhase, RollbackRequest,
        RollbackRequestSpec, RollbackRequestStatus, TakenSnapshot, UpgradePhase, UpgradePlan,
        UpgradeRequest, UpgradeRequestStatus, VersionChange,
    },
    claim::{Holder, Lock},
    deadline::{self, PhaseInput},
    decide::{Effect, FinalizerAction, Input, Manifest, Target},
    external::Reply,
    pod::NamedRef,
    time,
};
use attempts::step::StepSettings;
use git::{
    Commit, Reason as GitReason,
    edits::{
        CommitReason, CommitReport, DocumentRef, FileDigest, Plan, PlannedEdit as FoundEdit, sha256,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::storage::{Aborted, Fault, LAG, OWNER, Storage};
use crate::{
    flux::{FluxCondition, FluxObject, HelmReleaseView, KustomizationView, ReleaseOutcome},
    rollback::{self, RollbackDecision, decide, world::RollbackWorld},
    upgrade::{
        commit_step::{StepJob, StepState},
        flux_target::{FluxTarget, REQUESTED_AT},
        scale_target::Scale,
        storage::{ContentView, SnapshotView, Snapshots},
        tests::{
            fixtures,
            objects::{bump, mark_job, patched, scale},
        },
        world::UpgradeWorld,
    },
    world::{AppWorld, Seen},
};

/// Maximum number of reconciliations of a run.
const MAX_STEPS: usize = 500;

/// Seconds between two reconciliations.
const PACE: std::time::Duration = std::time::Duration::from_secs(2);

const FILE: &str = "apps/shop/release.yaml";

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
    /// Claims, volumes and Pods. It counts all writes, and has the fault.
    pub(super) storage: Storage,
    /// The state of the API server.
    pub(super) real: UpgradeWorld,
    /// The state in the caches.
    cache: UpgradeWorld,
    pub(super) now: Timestamp,
    pub(super) push: Push,
    /// Version on the branch.
    pub(super) version: String,
    /// Number of commits of the request on the branch.
    pub(super) commits: usize,
    /// Version that the live HelmRelease requests.
    requested: String,
    /// Number of the revision that the Kustomization has applied.
    applied: usize,
    pub(super) phases: Vec<RollbackPhase>,
    pub(super) has_finalizer: bool,
    pub(super) is_gone: bool,
    lag: usize,
}

fn id(number: usize) -> String {
    format!("{number:040x}")
}

fn revision(number: usize) -> String {
    format!("main@sha1:{}", id(number))
}

/// The revision of the commit of the upgrade.
const UPGRADED: usize = 2;

fn taken() -> TakenSnapshot {
    TakenSnapshot {
        namespace: "shop".to_owned(),
        pvc: "data".to_owned(),
        name: "shop-data".to_owned(),
        uid: "snapshot".to_owned(),
        restore_size: Some("2Gi".to_owned()),
        ..TakenSnapshot::default()
    }
}

fn upgrade() -> UpgradeRequest {
    let mut upgrade = fixtures::request();
    upgrade.status = Some(UpgradeRequestStatus {
        phase: Some(UpgradePhase::Failed),
        commit: Some(PushedCommit {
            id: id(UPGRADED),
            outcome: PushOutcome::Pushed,
            at: Time(fixtures::at(-60)),
        }),
        snapshots: vec![taken()],
        plan: Some(UpgradePlan {
            chart: VersionChange {
                from: "1.0.0".to_owned(),
                to: "2.0.0".to_owned(),
            },
            commit: PlannedCommit {
                edits: vec![PlannedEdit {
                    file: FILE.to_owned(),
                    field_path: "spec.chart.spec.version".to_owned(),
                    from: "1.0.0".to_owned(),
                    to: "2.0.0".to_owned(),
                    ..PlannedEdit::default()
                }],
                ..PlannedCommit::default()
            },
            ..UpgradePlan::default()
        }),
        ..UpgradeRequestStatus::default()
    });
    upgrade
}

fn request() -> RollbackRequest {
    let spec = RollbackRequestSpec {
        upgrade_request_ref: NamedRef {
            name: "up".to_owned(),
        },
        dry_run: false,
    };
    let mut request = RollbackRequest::new(OWNER.name, spec);
    request.metadata.namespace = Some("shop".to_owned());
    request.metadata.uid = Some(OWNER.uid.to_owned());
    request.metadata.generation = Some(1);
    request.metadata.creation_timestamp = Some(Time(fixtures::at(-5)));
    request
}

/// The observed state after the upgrade.
fn upgraded() -> UpgradeWorld {
    let mut world = fixtures::world();
    let mut web = world.workloads[1].clone();
    web.name = "web".to_owned();
    web.uid = "web".to_owned();
    world.workloads.push(web);
    world.volumes.retain(|one| one.claim == "data");
    for volume in &mut world.volumes {
        volume.volume = Some("pv-old".to_owned());
    }
    for attached in &mut world.attachments {
        attached.volume = "pv-old".to_owned();
    }
    if let Seen::Present(source) = &mut world.source {
        Arc::make_mut(source).revision = Some(revision(UPGRADED));
    }
    world.snapshots = Snapshots::Found(Vec::new());
    world
}

fn kustomization(world: &mut AppWorld) -> &mut KustomizationView {
    let Seen::Present(view) = &mut world.kustomization else {
        panic!("no Kustomization");
    };
    Arc::make_mut(view)
}

fn helm(world: &mut AppWorld) -> &mut HelmReleaseView {
    let Ok(Some((_, Seen::Present(view)))) = &mut world.helm_release else {
        panic!("no HelmRelease");
    };
    Arc::make_mut(view)
}

/// Shows the state of a live object in its view. The controllers observe also the generation of a suspended object.
fn show(flux: &mut FluxObject, target: &FluxTarget) {
    flux.generation = target.generation;
    flux.observed_generation = target.generation;
    flux.is_suspended = target.is_suspended();
}

impl RollbackCluster {
    pub(super) fn new(push: Push) -> Self {
        let mut cluster = Self {
            request: request(),
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
            upgrade: Some(Arc::new(upgrade())),
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

    /// The controllers of the cluster work.
    fn tick(&mut self) {
        for one in &mut self.real.flux {
            if one.handled != one.requested {
                one.handled.clone_from(&one.requested);
                bump(&mut one.version);
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
                if (*current, *observed) != (*desired, one.generation) {
                    (*current, *observed) = (*desired, one.generation);
                    bump(&mut one.version);
                }
                is_running |= *current > 0;
            }
        }
        let before = upgraded();
        if is_running {
            self.real.pods = before.pods;
            self.real.attachments = before.attachments;
        } else {
            // A volume is detached after its Pods have ended.
            if self.real.pods.is_empty() {
                self.real.attachments.clear();
            }
            self.real.pods.clear();
        }
        self.real.commit.jobs.retain(|job| !job.is_deleting);
        let mut jobs = std::mem::take(&mut self.real.commit.jobs);
        for job in &mut jobs {
            self.run_job(job);
        }
        self.real.commit.jobs = jobs;
        self.flux();
        self.show();
    }

    fn run_job(&mut self, job: &mut StepJob) {
        match job.state {
            StepState::Pending => {
                job.state = StepState::Running;
                job.has_started = true;
            }
            StepState::Running if job.name.ends_with("-plan") => {
                let (report, frame) = self.plan();
                job.state = StepState::Reported(report);
                self.real.commit.log = Some(Reply {
                    response: Ok(frame),
                    since: fixtures::at(0),
                    next_at: fixtures::at(100_000),
                    is_fresh: true,
                });
            }
            StepState::Running => job.state = StepState::Reported(self.commit()),
            StepState::Blocked(_) | StepState::Reported(_) | StepState::Ended(_) => {}
        }
    }

    fn plan(&self) -> (CommitReport, String) {
        let base = Commit::parse(&id(UPGRADED)).unwrap();
        let plan = Plan {
            base: base.clone(),
            edits: vec![FoundEdit {
                file: FILE.to_owned(),
                document: DocumentRef::default(),
                field_path: "spec.chart.spec.version".to_owned(),
                from: self.version.clone(),
                to: "1.0.0".to_owned(),
                line: 7,
                has_automation_marker: false,
            }],
            files: vec![FileDigest {
                path: FILE.to_owned(),
                sha256: sha256(b"content"),
            }],
            diff: "-2.0.0\n+1.0.0\n".to_owned(),
            unapplied_commits: Some(0),
        };
        let (frame, digest) = plan.frame();
        let report = CommitReport::Planned {
            base,
            edits: 1,
            digest,
        };
        (report, frame)
    }

    /// Runs the step in mode Commit: it searches its own commit first.
    fn commit(&mut self) -> CommitReport {
        let commit = Commit::parse(&id(UPGRADED + 1)).unwrap();
        if self.commits > 0 {
            return CommitReport::Found { commit };
        }
        if self.push == Push::Rejected {
            let reason = CommitReason::Git(GitReason::PushRejected);
            return CommitReport::failed(reason, "the branch is protected");
        }
        self.commits += 1;
        self.version = "1.0.0".to_owned();
        match self.push {
            Push::Accepted | Push::Rejected => CommitReport::Pushed { commit },
            Push::AcceptedSilently => CommitReport::Uncertain {
                commit,
                message: "the connection was lost".to_owned(),
            },
        }
    }

    /// The controllers of Flux and Helm reconcile objects that are not suspended.
    fn flux(&mut self) {
        let latest = UPGRADED + self.commits;
        let mut fetched = false;
        if let Seen::Present(source) = &mut self.real.source {
            let source = Arc::make_mut(source);
            let requested = source.requested.as_ref();
            if requested.is_some_and(|token| token.starts_with("orchestrator-commit/")) {
                source.revision = Some(revision(latest));
                source.handled.clone_from(&source.requested);
            }
            fetched = source.revision == Some(revision(latest));
        }
        let is_active = |uid: &str| {
            let mut all = self.real.flux.iter();
            all.any(|one| one.uid == uid && !one.is_suspended())
        };
        if is_active("kustomization") && fetched {
            self.applied = latest;
            self.requested.clone_from(&self.version);
        }
        let is_helm_active = is_active("helm-release");
        let requested = self.requested.clone();
        let state = self.real.app.as_mut().unwrap();
        let newest = helm(&mut state.world).newest.as_mut().unwrap();
        if is_helm_active && newest.chart_version != requested {
            newest.version += 1;
            newest.chart_version = requested;
        }
    }

    /// Shows the state in the views of the application.
    fn show(&mut self) {
        let (kustomizations, releases): (Vec<&FluxTarget>, Vec<&FluxTarget>) = self
            .real
            .flux
            .iter()
            .partition(|one| one.uid == "kustomization");
        let state = self.real.app.as_mut().unwrap();
        let view = kustomization(&mut state.world);
        show(&mut view.flux, kustomizations[0]);
        view.revision = Some(revision(self.applied));
        let view = helm(&mut state.world);
        show(&mut view.flux, releases[0]);
        view.requested = Some(self.requested.clone());
        view.outcome = ReleaseOutcome {
            released: Some(FluxCondition {
                value: Some(true),
                ..FluxCondition::default()
            }),
            ..ReleaseOutcome::default()
        };
        self.real.live = Some(state.world.clone());
    }

    pub(super) fn assert_released(&self, context: &str) {
        let before = upgraded();
        for (was, is) in before.flux.iter().zip(&self.real.flux) {
            assert_eq!(is.lock, Lock::Free, "{context}: {:?}", is.kind);
            assert_eq!(is.suspend, was.suspend, "{context}: {:?}", is.kind);
        }
        for (was, is) in before.workloads.iter().zip(&self.real.workloads) {
            assert_eq!(is.planned(true), was.planned(true), "{context}");
        }
        assert!(!self.has_finalizer, "{context}");
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
