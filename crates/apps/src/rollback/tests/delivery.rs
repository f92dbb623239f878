//! The simulated way of a version back: the Jobs of `step commit`, the Git server, and the controllers of Flux and Helm.

use std::sync::Arc;

use api::{claim::Lock, external::Reply};
use git::{
    Commit, Reason as GitReason,
    edits::{CommitReason, CommitReport, DocumentRef, FileDigest, Plan, PlannedEdit, sha256},
};

use super::{
    after_upgrade::{FILE, UPGRADED, helm, id, kustomization, revision, show, upgraded},
    cluster::{Push, RollbackCluster},
};
use crate::{
    flux::{FluxCondition, ReleaseOutcome},
    health::Member,
    object::ObjectKind,
    pod::AppPod,
    upgrade::{
        commit_step::{StepJob, StepState},
        flux_target::FluxTarget,
        scale_target::Scale,
        tests::{fixtures, objects::bump},
    },
    world::{AppWorld, Discovery, Seen},
};

impl RollbackCluster {
    /// The controllers of the cluster work.
    pub(super) fn tick(&mut self) {
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
            edits: vec![PlannedEdit {
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
        let deployed = if self.is_image {
            newest.config_digest.get_or_insert_default()
        } else {
            &mut newest.chart_version
        };
        let is_given_up = self.is_remediated && requested == "2.0.0";
        if is_helm_active && *deployed != requested && !is_given_up {
            *deployed = requested;
            newest.version += 1;
        }
    }

    /// Shows the state in the views of the application.
    pub(super) fn show(&mut self) {
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
        if self.is_image {
            let tag = view.newest.as_ref().unwrap().config_digest.clone();
            let image = format!("postgres:{}", tag.unwrap_or_default());
            view.requested = Some("1.0.0".to_owned());
            show_image(&mut state.world, image);
        } else {
            view.requested = Some(self.requested.clone());
        }
        let view = helm(&mut state.world);
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

/// The Pods of the database run this image.
fn show_image(world: &mut AppWorld, image: String) {
    let Discovery::Found(objects) = &mut world.discovery else {
        panic!("no objects");
    };
    let mut db = fixtures::workload(ObjectKind::StatefulSet, "db", 3);
    db.images = [image].into();
    let pod = AppPod {
        is_ready: true,
        images: db.images.clone(),
        ..AppPod::default()
    };
    objects.members[0] = Member {
        pods: vec![Arc::new(pod)],
        ..fixtures::member(db)
    };
}
