//! The simulated way of a version: the Jobs of `step commit`, the Git server, and the controllers of Flux and Helm.

use std::sync::Arc;

use api::{Timestamp, decide::Manifest, external::Reply};
use git::{
    Commit, Reason as GitReason,
    edits::{
        CommitReason, CommitReport, DocumentRef, EditReason, FileDigest, Plan, PlannedEdit, sha256,
    },
};
use pods::Rollout;

use super::{
    fixtures::{app_world, at, helm, member, source, workload},
    objects::bump,
};
use crate::{
    flux::{FluxCondition, KustomizationView, ReleaseEntry, ReleaseOutcome},
    health::Member,
    object::ObjectKind,
    pod::AppPod,
    upgrade::{
        commit_step::{StepJob, StepState},
        flux_target::FluxTarget,
        scale_target::{Scale, ScaleTarget},
        world::UpgradeWorld,
    },
    world::{Discovery, Seen},
};

/// The behavior of the server to the next push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Push {
    /// The push is accepted.
    Accepted,
    /// The branch is protected.
    Rejected,
    /// Others move the branch during each attempt of the Job.
    Moved,
    /// Someone changed the version.
    Changed,
    /// The push is accepted, and the response is lost.
    AcceptedSilently,
    /// The connection is lost before the push arrives.
    Lost,
    /// The push is accepted, and the node of the Pod is lost.
    NodeLost,
    /// The Pod never starts.
    Blocked,
}

/// The object that an upgrade changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The version of the chart.
    Chart,
    /// The tag of an image in the values of the HelmRelease.
    Values,
    /// The tag of an image in manifests that a Kustomization applies. There is no HelmRelease.
    Manifests,
}

/// The behavior of Flux to the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apply {
    /// The new version is deployed.
    Deployed,
    /// The source does not fetch.
    NotFetched,
    /// The edited file is not the one that is applied.
    NoEffect,
    /// Helm deploys the old chart again.
    RolledBack,
    /// The chart has no replica counts, and Helm waits for the Pods of the database.
    Waiting,
    /// Helm fails, and Flux does not try again.
    Stalled,
    /// Helm fails, and Flux tries again.
    Failing,
}

/// State of the branch, of Flux and of Helm.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    pub(super) push: Push,
    pub(super) apply: Apply,
    pub(super) subject: Subject,
    /// Version on the branch.
    pub(super) version: String,
    /// UIDs in the trailers of the commits on the branch.
    pub(super) commits: Vec<String>,
    /// Version in the live HelmRelease or in the live manifests.
    pub(super) requested: String,
    pub(super) release: ReleaseEntry,
    revision: String,
    outcome: ReleaseOutcome,
    /// Whether no workload gets ready.
    pub(super) is_unhealthy: bool,
    /// Number of commits of others on top.
    pub(super) others: usize,
}

fn id(number: usize) -> String {
    format!("{number:040x}")
}

pub(super) fn revision(number: usize) -> String {
    format!("main@sha1:{}", id(number))
}

impl Delivery {
    pub(super) fn new(push: Push) -> Self {
        Self {
            push,
            apply: Apply::Deployed,
            subject: Subject::Chart,
            version: "1.0.0".to_owned(),
            commits: Vec::new(),
            requested: "1.0.0".to_owned(),
            release: helm().newest.unwrap(),
            revision: revision(1),
            outcome: ReleaseOutcome {
                released: Some(FluxCondition {
                    value: Some(true),
                    ..FluxCondition::default()
                }),
                ..ReleaseOutcome::default()
            },
            is_unhealthy: false,
            others: 0,
        }
    }

    /// Returns the Job that the API server creates.
    pub(super) fn created(manifest: &Manifest) -> StepJob {
        StepJob {
            namespace: manifest.namespace.clone().unwrap(),
            name: manifest.name.clone(),
            uid: format!("uid-{}", manifest.name),
            ..StepJob::default()
        }
    }

    /// Everything makes one step.
    pub(super) fn tick(&mut self, world: &mut UpgradeWorld, flux_works: bool, now: Timestamp) {
        world.commit.jobs.retain(|job| !job.is_deleting);
        let mut jobs = std::mem::take(&mut world.commit.jobs);
        for job in &mut jobs {
            self.run(job, world);
        }
        world.commit.jobs = jobs;
        if flux_works {
            self.reconcile(world, now);
        }
        self.show(world);
    }

    fn run(&mut self, job: &mut StepJob, world: &mut UpgradeWorld) {
        let is_plan = job.name.ends_with("-plan");
        match job.state {
            StepState::Pending if self.push == Push::Blocked && !is_plan => {
                job.state = StepState::Blocked("the image cannot be pulled".to_owned());
            }
            StepState::Pending => {
                job.state = StepState::Running;
                job.has_started = true;
            }
            StepState::Running if is_plan => {
                let (report, frame) = self.plan();
                job.state = StepState::Reported(report);
                world.commit.log = Some(Reply {
                    response: Ok(frame),
                    since: at(0),
                    next_at: at(100_000),
                    is_fresh: true,
                });
            }
            StepState::Running => job.state = self.commit(),
            StepState::Blocked(_) | StepState::Reported(_) | StepState::Ended(_) => {}
        }
    }

    fn plan(&self) -> (CommitReport, String) {
        if self.version == "2.0.0" {
            let reason = CommitReason::Edit(EditReason::NothingToChange);
            let report = CommitReport::failed(reason, "the version is '2.0.0' already");
            return (report, String::new());
        }
        let base = Commit::parse(&id(1)).unwrap();
        let (document, field_path) = match self.subject {
            Subject::Chart => (DocumentRef::default(), "spec.chart.spec.version"),
            Subject::Values | Subject::Manifests => {
                let document = DocumentRef {
                    kind: Some("Kustomization".to_owned()),
                    ..DocumentRef::default()
                };
                (document, "images[0].newTag")
            }
        };
        let plan = Plan {
            base: base.clone(),
            edits: vec![PlannedEdit {
                file: "apps/shop/release.yaml".to_owned(),
                document,
                field_path: field_path.to_owned(),
                from: self.version.clone(),
                to: "2.0.0".to_owned(),
                line: 7,
                has_automation_marker: false,
            }],
            files: vec![FileDigest {
                path: "apps/shop/release.yaml".to_owned(),
                sha256: sha256(b"content"),
            }],
            diff: "-1.0.0\n+2.0.0\n".to_owned(),
            unapplied_commits: Some(2),
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
    fn commit(&mut self) -> StepState {
        let failed = |reason| {
            StepState::Reported(CommitReport::failed(reason, "the server rejected the push"))
        };
        let own = Commit::parse(&id(2)).unwrap();
        if !self.commits.is_empty() {
            return StepState::Reported(CommitReport::Found { commit: own });
        }
        let uncertain = || {
            StepState::Reported(CommitReport::Uncertain {
                commit: own.clone(),
                message: "the connection was lost".to_owned(),
            })
        };
        match self.push {
            Push::Rejected => failed(CommitReason::Git(GitReason::PushRejected)),
            Push::Moved => failed(CommitReason::Git(GitReason::BranchMoved)),
            Push::Changed => failed(CommitReason::Edit(EditReason::VersionChangedInGit)),
            Push::Lost => uncertain(),
            Push::Accepted | Push::Blocked => {
                self.accept();
                StepState::Reported(CommitReport::Pushed { commit: own })
            }
            Push::AcceptedSilently => {
                self.accept();
                uncertain()
            }
            Push::NodeLost => {
                self.accept();
                StepState::Ended("DeadlineExceeded: too long".to_owned())
            }
        }
    }

    /// The commit of the request arrives on the branch.
    fn accept(&mut self) {
        self.commits.push(super::fixtures::UID.to_owned());
        self.version = "2.0.0".to_owned();
    }

    /// The controllers of Flux reconcile objects that are not suspended.
    fn reconcile(&mut self, world: &mut UpgradeWorld, now: Timestamp) {
        let mut fetched = None;
        if let Seen::Present(found) = &mut world.source {
            let one = Arc::make_mut(found);
            let is_requested = one
                .requested
                .as_ref()
                .is_some_and(|token| token.starts_with("orchestrator-commit/"));
            if is_requested && self.apply != Apply::NotFetched {
                one.revision = Some(revision(1 + self.commits.len() + self.others));
                one.handled.clone_from(&one.requested);
            }
            fetched.clone_from(&one.revision);
        }
        let is_active = |uid: &str| {
            let mut all = world.flux.iter();
            all.any(|one: &FluxTarget| one.uid == uid && !one.is_suspended())
        };
        if is_active("kustomization") {
            self.revision = fetched.unwrap_or_else(|| self.revision.clone());
            let latest = revision(1 + self.commits.len() + self.others);
            let has_fetched = self.revision == latest;
            if has_fetched && self.apply != Apply::NoEffect {
                self.requested.clone_from(&self.version);
            }
        }
        if is_active("helm-release") && self.requested != *self.deployed() {
            self.upgrade(world, now);
        }
    }

    fn upgrade(&mut self, world: &mut UpgradeWorld, now: Timestamp) {
        let condition = |value: bool| FluxCondition {
            value: Some(value),
            reason: "UpgradeFailed".to_owned(),
            message: "the new version crashes".to_owned(),
            since: Some(now),
            ..FluxCondition::default()
        };
        match self.apply {
            Apply::RolledBack => {
                if self.release.version < 5 {
                    self.release.version = 5;
                    self.outcome.remediated = Some(condition(true));
                }
            }
            Apply::Waiting => {
                let mut workloads = world.workloads.iter_mut();
                let db = workloads.find(|one| one.name == "db").unwrap();
                let template = Some(self.requested.clone());
                if db.template != template {
                    db.template = template;
                    db.generation += 1;
                    bump(&mut db.version);
                }
                if !db.is_at_zero() {
                    self.deploy();
                }
            }
            Apply::Stalled | Apply::Failing => self.outcome.released = Some(condition(false)),
            Apply::Deployed | Apply::NotFetched | Apply::NoEffect => self.deploy(),
        }
    }

    fn deploy(&mut self) {
        self.release.version += 1;
        if self.subject == Subject::Values {
            self.release.config_digest = Some(self.requested.clone());
        } else {
            self.release.chart_version.clone_from(&self.requested);
        }
    }

    /// Returns the version that the Pod templates have.
    pub(super) fn deployed(&self) -> &str {
        match self.subject {
            Subject::Chart => &self.release.chart_version,
            Subject::Values => self.release.config_digest.as_deref().unwrap_or("1.0.0"),
            Subject::Manifests => &self.requested,
        }
    }

    /// Shows the state in the views of the application.
    fn show(&self, world: &mut UpgradeWorld) {
        let mut live = app_world();
        let target = |uid: &str| world.flux.iter().find(|one| one.uid == uid);
        let mut view: KustomizationView = live.kustomization.present().unwrap().clone();
        if let Some(target) = target("kustomization") {
            show(&mut view.flux, target);
        }
        view.revision = Some(self.revision.clone());
        live.kustomization = Seen::Present(Arc::new(view));
        let mut view = helm();
        if let Some(target) = target("helm-release") {
            show(&mut view.flux, target);
        }
        if self.subject == Subject::Chart {
            view.requested = Some(self.requested.clone());
        }
        view.newest = Some(self.release.clone());
        view.outcome = self.outcome.clone();
        if self.apply == Apply::Stalled && self.requested == "2.0.0" {
            // helm-controller counts the attempts here, and has the cause in `Released`.
            view.flux.stalled = self.outcome.released.clone().map(|released| FluxCondition {
                value: Some(true),
                reason: "RetriesExceeded".to_owned(),
                message: "Failed to upgrade after 1 attempt(s)".to_owned(),
                ..released
            });
        }
        let name = view.flux.name.clone();
        live.helm_release = if self.subject == Subject::Manifests {
            Ok(None)
        } else {
            Ok(Some((name, Seen::Present(Arc::new(view)))))
        };
        if let Discovery::Found(objects) = &mut live.discovery
            && let Some(target) = world.workloads.iter().find(|one| one.name == "db")
        {
            let db = self.database(target);
            let pod = AppPod {
                is_ready: true,
                images: db.images.clone(),
                ..AppPod::default()
            };
            let is_running = db.rollout.as_ref().is_some_and(|one| one.ready > 0);
            objects.members[0] = Member {
                pods: is_running.then(|| Arc::new(pod)).into_iter().collect(),
                ..member(db)
            };
        }
        world.live = Some(live);
    }

    fn database(&self, target: &ScaleTarget) -> crate::workload::WorkloadView {
        let mut db = workload(ObjectKind::StatefulSet, "db", 3);
        db.images = [format!("postgres:{}", self.deployed())].into();
        if let Scale::Replicas {
            desired,
            current,
            observed,
        } = target.scale
        {
            db.generation = target.generation;
            db.rollout = Some(Rollout {
                observed,
                wanted: desired,
                replicas: current,
                updated: current,
                ready: if self.is_unhealthy { 0 } else { current },
            });
        }
        db
    }
}

fn show(flux: &mut crate::flux::FluxObject, target: &FluxTarget) {
    flux.generation = target.generation;
    // The controllers observe also the generation of a suspended object.
    flux.observed_generation = target.generation;
    flux.is_suspended = target.is_suspended();
}

/// Returns the source before the upgrade.
pub(super) fn source_before() -> Seen<crate::flux::SourceView> {
    Seen::Present(Arc::new(source()))
}
