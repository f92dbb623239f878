//! The checks of a rollback before any change, and the plan that is frozen.

use std::sync::Arc;

use api::{
    Reason, Status,
    apps::{
        CommitAuthor, ManagedAppSpec, NamespacedName, PlannedCommit, PlannedEdit, PlannedVolume,
        PushOutcome, PushedCommit, RollbackPhase, RollbackRequest, RollbackRequestSpec,
        RollbackRequestStatus, TakenSnapshot, UpgradePhase, UpgradePlan, UpgradeRequestStatus,
        VersionChange,
    },
    decide::{Effect, FinalizerAction, Input, LiveRead, Manifest},
    external::Reply,
    names,
    pod::NamedRef,
};
use attempts::step::StepSettings;
use git::{
    Commit,
    edits::{
        Change, CommitReason, CommitReport, DocumentRef, EditReason, FileDigest, Mode, Plan,
        PlannedEdit as FoundEdit, Request, sha256,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::storage::OWNER;
use crate::{
    discover::Problem,
    flux::{FluxCondition, HelmReleaseView, SourceView},
    object::{ObjectId, ObjectKind},
    overlap::Overlap,
    rollback::{RollbackDecision, decide, world::RollbackWorld},
    upgrade::{
        commit_step::{StepJob, StepState},
        storage::{ContentView, SnapshotView},
        tests::fixtures,
        world::UpgradeWorld,
    },
    world::{AppWorld, Discovery, Mounter, Objects, Seen},
};

const JOB: &str = "back-plan";
const FILE: &str = "apps/shop/release.yaml";

fn taken(claim: &str) -> TakenSnapshot {
    TakenSnapshot {
        namespace: "shop".to_owned(),
        pvc: claim.to_owned(),
        name: format!("shop-{claim}"),
        uid: format!("snapshot-{claim}"),
        restore_size: Some("2Gi".to_owned()),
        ..TakenSnapshot::default()
    }
}

fn snapshot(claim: &str) -> SnapshotView {
    let TakenSnapshot {
        namespace,
        name,
        uid,
        ..
    } = taken(claim);
    SnapshotView {
        namespace,
        name,
        content: Some(ContentView {
            snapshot_uid: Some(uid.clone()),
            is_ready: true,
            ..ContentView::default()
        }),
        uid,
        is_ready: true,
        ..SnapshotView::default()
    }
}

/// The status of an upgrade from 1.0.0 to 2.0.0 that failed after its commit.
fn upgraded() -> UpgradeRequestStatus {
    let volume = |claim: &str| PlannedVolume {
        namespace: "shop".to_owned(),
        pvc: claim.to_owned(),
        size: Some("1Gi".to_owned()),
        storage_class: Some("before".to_owned()),
        access_modes: vec!["ReadWriteOnce".to_owned()],
        ..PlannedVolume::default()
    };
    UpgradeRequestStatus {
        phase: Some(UpgradePhase::Failed),
        commit: Some(PushedCommit {
            id: "ab".repeat(20),
            outcome: PushOutcome::Pushed,
            at: Time(fixtures::at(-60)),
        }),
        snapshots: vec![taken("data"), taken("media")],
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
                author: CommitAuthor::default(),
                ..PlannedCommit::default()
            },
            volumes: vec![volume("data"), volume("media")],
            ..UpgradePlan::default()
        }),
        ..UpgradeRequestStatus::default()
    }
}

fn app(world: &mut UpgradeWorld) -> &mut AppWorld {
    &mut world.app.as_mut().unwrap().world
}

pub(super) fn objects(world: &mut UpgradeWorld) -> &mut Objects {
    match &mut app(world).discovery {
        Discovery::Found(objects) => objects,
        Discovery::Failed(problem) => panic!("{problem:?}"),
    }
}

fn with_helm(world: &mut UpgradeWorld, change: impl FnOnce(&mut HelmReleaseView)) {
    let Ok(Some((_, Seen::Present(helm)))) = &mut app(world).helm_release else {
        panic!("no HelmRelease");
    };
    change(Arc::make_mut(helm));
}

fn with_source(world: &mut UpgradeWorld, change: impl FnOnce(&mut SourceView)) {
    let Seen::Present(source) = &mut world.source else {
        panic!("no GitRepository");
    };
    change(Arc::make_mut(source));
}

fn managed(world: &mut UpgradeWorld) -> &mut ManagedAppSpec {
    &mut Arc::make_mut(&mut world.app.as_mut().unwrap().app).spec
}

/// The observed state after the upgrade: Flux has applied 2.0.0.
pub(super) fn observed() -> RollbackWorld {
    let mut operation = fixtures::world();
    with_helm(&mut operation, |helm| {
        helm.requested = Some("2.0.0".to_owned());
    });
    // A rollback stops also workloads without a volume, so their scale is known.
    let mut web = operation.workloads[1].clone();
    web.name = "web".to_owned();
    web.uid = "web".to_owned();
    operation.workloads.push(web);
    for volume in &mut operation.volumes {
        volume.size = Some("1Gi".to_owned());
        volume.storage_class = Some("fast".to_owned());
    }
    let mut upgrade = fixtures::request();
    upgrade.status = Some(upgraded());
    RollbackWorld {
        upgrade: Some(Arc::new(upgrade)),
        snapshots: vec![snapshot("data"), snapshot("media")],
        operation,
        volumes: Vec::new(),
        settings: StepSettings::default(),
    }
}

pub(super) fn with_upgrade(
    world: &mut RollbackWorld,
    change: impl FnOnce(&mut UpgradeRequestStatus),
) {
    let upgrade = Arc::make_mut(world.upgrade.as_mut().unwrap());
    change(upgrade.status.as_mut().unwrap());
}

pub(super) fn request() -> RollbackRequest {
    let spec = RollbackRequestSpec {
        upgrade_request_ref: NamedRef {
            name: "up".to_owned(),
        },
        dry_run: false,
    };
    let mut request = RollbackRequest::new(OWNER.name, spec);
    request.metadata.namespace = Some("shop".to_owned());
    request.metadata.uid = Some(OWNER.uid.to_owned());
    request.status = Some(RollbackRequestStatus {
        phase: Some(RollbackPhase::Plan),
        ..RollbackRequestStatus::default()
    });
    request
}

pub(super) fn decided(
    request: &RollbackRequest,
    world: &RollbackWorld,
    confirmed: bool,
    overdue: bool,
) -> RollbackDecision {
    decide(&Input {
        object: request,
        world,
        now: fixtures::at(0),
        fault: None,
        refused: false,
        confirmed,
        overdue,
    })
}

pub(super) fn reason(decision: &RollbackDecision) -> &'static str {
    decision.verdict.reason.name()
}

fn is_released(decision: &RollbackDecision) -> bool {
    matches!(decision.finalizer, FinalizerAction::Remove { .. })
}

/// The Job has reported a plan from this value in Git.
fn reported(world: &mut RollbackWorld, from: &str) {
    reported_change(world, from, "1.0.0");
}

/// The Job has reported a plan of this change in Git.
pub(super) fn reported_change(world: &mut RollbackWorld, from: &str, to: &str) {
    let base = Commit::parse(&"cd".repeat(20)).unwrap();
    let plan = Plan {
        base: base.clone(),
        edits: vec![FoundEdit {
            file: FILE.to_owned(),
            document: DocumentRef::default(),
            field_path: "spec.chart.spec.version".to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            line: 7,
            has_automation_marker: false,
        }],
        files: vec![FileDigest {
            path: FILE.to_owned(),
            sha256: sha256(b"content"),
        }],
        diff: "-2.0.0\n+1.0.0\n".to_owned(),
        unapplied_commits: Some(1),
    };
    let (frame, digest) = plan.frame();
    with_report(
        world,
        CommitReport::Planned {
            base,
            edits: 1,
            digest,
        },
    );
    world.operation.commit.log = Some(Reply {
        response: Ok(frame),
        since: fixtures::at(0),
        next_at: fixtures::at(100),
        is_fresh: true,
    });
}

fn with_report(world: &mut RollbackWorld, report: CommitReport) {
    world.operation.commit.jobs = vec![StepJob {
        namespace: "shop".to_owned(),
        name: JOB.to_owned(),
        uid: "job".to_owned(),
        state: StepState::Reported(report),
        ..StepJob::default()
    }];
}

fn created(decision: &RollbackDecision) -> Vec<&Manifest> {
    let created = decision.effects.iter().filter_map(|effect| match effect {
        Effect::Ensure(manifest) => Some(manifest.as_ref()),
        Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => None,
    });
    created.collect()
}

/// Each of these states rejects the request, and nothing is changed. The states that may change by themselves are rejected
/// at the deadline.
#[test]
fn a_rollback_is_rejected_before_any_change() {
    type Case = fn(&mut RollbackWorld);
    let table: [(Case, &str); 17] = [
        (|world| world.upgrade = None, "UpgradeNotFound"),
        (
            |world| {
                with_upgrade(world, |status| {
                    status.phase = Some(UpgradePhase::HealthCheck)
                })
            },
            "UpgradeNotFinished",
        ),
        (
            |world| with_upgrade(world, |status| status.commit = None),
            "RollbackNotAvailable",
        ),
        (
            |world| with_upgrade(world, |status| status.plan = None),
            "RollbackNotAvailable",
        ),
        (|world| world.snapshots.clear(), "RollbackNotAvailable"),
        (|world| world.operation.app = None, "AppNotFound"),
        (
            |world| {
                app(&mut world.operation).overlap = Some(Overlap {
                    object: ObjectId::new(ObjectKind::Deployment, "shop", "web"),
                    older: NamespacedName::new("team", "older"),
                });
            },
            "AppOverlaps",
        ),
        (
            |world| {
                let problem = Problem::new(Reason::DiscoveryMismatch, "differs");
                app(&mut world.operation).discovery = Discovery::Failed(problem);
            },
            "DiscoveryMismatch",
        ),
        (
            |world| world.operation.flux[0].suspend = Some(true),
            "AlreadySuspended",
        ),
        (
            |world| with_helm(&mut world.operation, |helm| helm.requested = None),
            "SourceNotSupported",
        ),
        (
            |world| {
                with_helm(&mut world.operation, |helm| {
                    helm.requested = Some("2.x".to_owned());
                });
            },
            "VersionIsRange",
        ),
        (
            |world| world.operation.workloads[0].deletes_claims = true,
            "PVCsDeletedOnScaleDown",
        ),
        (
            |world| {
                objects(&mut world.operation).mounters.push(Mounter {
                    kind: "Pod".to_owned(),
                    name: NamespacedName::new("shop", "bare"),
                    live: None,
                });
            },
            "WorkloadNotScalable",
        ),
        (
            |world| managed(&mut world.operation).git = None,
            "NoVersionPath",
        ),
        (
            |world| {
                with_source(&mut world.operation, |source| {
                    source.pinned = Some("tag: v1".to_owned());
                });
            },
            "SourcePinned",
        ),
        (|world| world.operation.workloads.clear(), "PlanTimeout"),
        // The Job has not reported in time.
        (|_| {}, "PlanTimeout"),
    ];
    for (change, expected) in table {
        let mut world = observed();
        change(&mut world);
        let decision = decided(&request(), &world, true, true);
        let message = &decision.verdict.message;
        assert_eq!(reason(&decision), expected, "{message}");
        assert_eq!(decision.phase, RollbackPhase::Failed, "{message}");
        assert!(message.ends_with("Nothing was changed"), "{message}");
        assert!(decision.effects.is_empty(), "{expected}");
        assert!(is_released(&decision), "{expected}");
    }
}

/// The caches may lack the end of the upgrade or a snapshot, so both are read before a rejection.
#[test]
fn the_upgrade_and_its_snapshots_are_read_before_a_rejection() {
    let mut world = observed();
    world.snapshots.clear();
    let decision = decided(&request(), &world, false, false);
    let read: Vec<&str> = decision
        .confirm
        .iter()
        .map(|read| match read {
            LiveRead::Object { name, .. } => name.as_str(),
            LiveRead::Children { .. } => panic!("{read:?}"),
        })
        .collect();
    assert_eq!(read, ["up", "shop-data", "shop-media"]);
    let decision = decided(&request(), &observed(), false, false);
    assert!(decision.confirm.is_empty());
}

/// R34: a rollback does not wait in `Pending` for an upgrade that is active. It is rejected.
#[test]
fn a_rollback_of_an_active_upgrade_is_planned_at_once() {
    let mut pending = request();
    pending.status = None;
    for (phase, expected) in [
        (UpgradePhase::HealthCheck, RollbackPhase::Plan),
        (UpgradePhase::Failed, RollbackPhase::Plan),
    ] {
        let mut world = observed();
        with_upgrade(&mut world, |status| status.phase = Some(phase));
        let decision = decided(&pending, &world, false, false);
        assert_eq!(decision.phase, expected, "{phase:?}");
        assert!(decision.effects.is_empty());
    }
}

/// The Job exchanges the values of the upgrade, and belongs to the RollbackRequest.
#[test]
fn the_job_of_the_plan_exchanges_the_values() {
    let decision = decided(&request(), &observed(), false, false);
    let [job] = created(&decision)[..] else {
        panic!("{decision:?}");
    };
    assert_eq!(job.name, JOB);
    assert_eq!(
        job.body["metadata"]["labels"][names::KIND],
        "RollbackRequest"
    );
    let owner = job.body.pointer("/metadata/ownerReferences/0").unwrap();
    assert_eq!(owner["kind"], "RollbackRequest");
    assert_eq!(owner["uid"], OWNER.uid);
    let container = job
        .body
        .pointer("/spec/template/spec/containers/0")
        .unwrap();
    let variables = container["env"].as_array().unwrap();
    let mut step = variables.iter().filter(|one| one["name"] == "STEP_REQUEST");
    let step = step.next().unwrap()["value"].as_str().unwrap();
    let step = Request::read(step).unwrap();
    assert_eq!(step.mode, Mode::Plan);
    assert_eq!(step.summary, "Return shop to 1.0.0");
    assert_eq!(step.edits[0].file.as_deref(), Some(FILE));
    let expected = Change::Exact {
        from: "2.0.0".to_owned(),
        to: "1.0.0".to_owned(),
    };
    assert_eq!(step.edits[0].change, expected);
    assert!(is_released(&decision), "nothing is to be undone");
}

/// R36: the plan freezes all workloads of the inventory again, because a crash-looping one would migrate restored data.
#[test]
fn r36_the_plan_has_all_workloads_and_the_restores() {
    let mut world = observed();
    reported(&mut world, "2.0.0");
    let decision = decided(&request(), &world, false, false);
    assert_eq!(decision.phase, RollbackPhase::Plan);
    let plan = decision.status.plan.clone().unwrap();
    let workloads: Vec<String> = plan
        .change
        .workloads
        .iter()
        .map(|one| one.id().to_string())
        .collect();
    assert_eq!(
        workloads,
        [
            "CronJob 'shop/backup'",
            "Deployment 'shop/files'",
            "Deployment 'shop/web'",
            "StatefulSet 'shop/db'",
        ]
    );
    let chart = &plan.change.chart;
    assert_eq!((&*chart.from, &*chart.to), ("2.0.0", "1.0.0"));
    assert_eq!((&*plan.app, &*plan.upgrade), ("shop", "up"));
    let edit = &plan.change.commit.edits[0];
    assert_eq!((&*edit.from, &*edit.to), ("2.0.0", "1.0.0"));
    let restores: Vec<_> = plan
        .restores
        .iter()
        .map(|one| (one.pvc.as_str(), one.pv.as_deref(), one.size.as_str()))
        .collect();
    assert_eq!(
        restores,
        [
            ("data", Some("pv-data"), "2Gi"),
            ("media", Some("pv-media"), "2Gi")
        ]
    );
    assert_eq!(plan.restores[0].pvc_uid.as_deref(), Some("data-uid"));
    assert_eq!(plan.restores[0].snapshot_uid, "snapshot-data");
    assert_eq!(plan.restores[0].storage_class.as_deref(), Some("fast"));
    assert!(plan.unrestored.is_empty());
    let volumes: Vec<&str> = plan.change.volumes.iter().map(|one| &*one.pv).collect();
    assert_eq!(volumes, ["pv-data", "pv-media"]);
    // The stored plan leads to the next phase, and its Job is deleted.
    let mut planned = request();
    planned.status = Some(decision.status);
    let decision = decided(&planned, &world, false, false);
    assert_eq!(decision.phase, RollbackPhase::Suspend);
    assert_eq!(decision.finalizer, FinalizerAction::Keep);
    assert!(
        matches!(&decision.effects[..], [Effect::Delete(target)] if target.name == JOB),
        "{:?}",
        decision.effects
    );
}

/// S1.9: a dry run ends with its plan, and leaves nothing but its status.
#[test]
fn s1_9_a_dry_run_of_a_rollback_ends_with_its_plan() {
    let mut world = observed();
    reported(&mut world, "2.0.0");
    let mut dry_run = request();
    dry_run.spec.dry_run = true;
    let decision = decided(&dry_run, &world, false, false);
    assert_eq!(decision.phase, RollbackPhase::Succeeded);
    assert!(decision.status.plan.is_some());
    assert!(is_released(&decision));
    assert!(created(&decision).is_empty());
    let message = &decision.verdict.message;
    assert!(message.ends_with("Nothing was changed"), "{message}");
}

/// Pitfall 24: the chart of the new version has deleted a claim. It is restored from its snapshot alone.
#[test]
fn r37_a_claim_that_does_not_exist_is_restored_as_the_upgrade_had_it() {
    let mut world = observed();
    world.operation.volumes.retain(|one| one.claim != "data");
    reported(&mut world, "2.0.0");
    let decision = decided(&request(), &world, false, false);
    let plan = decision.status.plan.unwrap();
    let data = &plan.restores[0];
    assert_eq!((data.pvc_uid.clone(), data.pv.clone()), (None, None));
    assert_eq!(data.storage_class.as_deref(), Some("before"));
    assert_eq!(data.access_modes, ["ReadWriteOnce"]);
    assert_eq!(plan.change.volumes.len(), 1);
}

/// Helm has uninstalled the release after the failed upgrade, and its Secret does not exist any more.
#[test]
fn an_uninstalled_release_is_rolled_back_without_workloads() {
    for (status, expected) in [
        ("uninstalled", "Planning"),
        ("deployed", "ReleaseUnreadable"),
    ] {
        let mut world = observed();
        let problem = Problem::new(Reason::ReleaseUnreadable, "there is no Secret");
        app(&mut world.operation).discovery = Discovery::Failed(problem);
        with_helm(&mut world.operation, |helm| {
            helm.flux.ready = Some(FluxCondition {
                value: Some(false),
                reason: "UpgradeFailed".to_owned(),
                ..FluxCondition::default()
            });
            if let Some(newest) = &mut helm.newest {
                newest.status = status.to_owned();
            }
        });
        let decision = decided(&request(), &world, false, false);
        assert_eq!(reason(&decision), expected, "{status}");
    }
}

/// An upgrade without snapshots is rolled back in Git only, and the plan names the data that stays.
#[test]
fn a_rollback_without_snapshots_lists_the_data_that_stays() {
    let mut world = observed();
    with_upgrade(&mut world, |status| status.snapshots.clear());
    world.snapshots.clear();
    reported(&mut world, "2.0.0");
    let decision = decided(&request(), &world, false, false);
    let plan = decision.status.plan.unwrap();
    assert!(plan.restores.is_empty());
    let kept = ["data", "media"].map(|name| NamespacedName::new("shop", name));
    assert_eq!(plan.unrestored, kept);
}

/// The value in Git must be the one of the upgrade, and Flux must have applied it.
#[test]
fn another_value_in_git_rejects_the_rollback() {
    let mut world = observed();
    let reason_of_step = CommitReason::Edit(EditReason::VersionChangedInGit);
    with_report(
        &mut world,
        CommitReport::failed(reason_of_step, "the value is '3.0.0', not '2.0.0'"),
    );
    let decision = decided(&request(), &world, false, false);
    assert_eq!(reason(&decision), "VersionChangedInGit");
    assert_eq!(decision.phase, RollbackPhase::Failed);
    // Flux has not applied the commit of the upgrade.
    let mut world = observed();
    with_helm(&mut world.operation, |helm| {
        helm.requested = Some("1.0.0".to_owned());
    });
    reported(&mut world, "2.0.0");
    let decision = decided(&request(), &world, false, false);
    assert_eq!(reason(&decision), "GitAheadOfCluster");
    assert!(!decision.status.is_over() && decision.phase == RollbackPhase::Failed);
}

/// T6: each state between two writes of the phase leads to the same plan: the Job exists already, its plan was read
/// before, and the status was lost.
#[test]
fn a_repeated_plan_is_the_same() {
    let mut world = observed();
    let first = decided(&request(), &world, false, false);
    let again = decided(&request(), &world, false, false);
    assert_eq!(created(&first), created(&again));
    // The Job exists and works: it is not created again.
    world.operation.commit.jobs = vec![StepJob {
        name: JOB.to_owned(),
        state: StepState::Running,
        ..StepJob::default()
    }];
    let running = decided(&request(), &world, false, false);
    assert!(running.effects.is_empty() && running.phase == RollbackPhase::Plan);
    reported(&mut world, "2.0.0");
    let plan = |world: &RollbackWorld| decided(&request(), world, false, false).status.plan;
    assert_eq!(plan(&world), plan(&world));
    assert!(plan(&world).is_some());
}

/// An earlier rollback failed after its commit: Git and Flux have the version from before already. The step verifies it,
/// and only the volumes are restored.
#[test]
fn a_failed_rollback_can_be_repeated() {
    let repeated = || {
        let mut world = observed();
        with_helm(&mut world.operation, |helm| {
            helm.requested = Some("1.0.0".to_owned());
        });
        world
    };
    let decision = decided(&request(), &repeated(), false, false);
    let [job] = created(&decision)[..] else {
        panic!("{decision:?}");
    };
    let text = job.body.to_string();
    assert!(text.contains("STEP_REQUEST"), "{text}");
    let mut world = repeated();
    reported_change(&mut world, "1.0.0", "2.0.0");
    let decision = decided(&request(), &world, false, false);
    let plan = decision.status.plan.unwrap();
    assert!(plan.is_in_git && plan.change.commit.edits.is_empty());
    let chart = &plan.change.chart;
    assert_eq!((&*chart.from, &*chart.to), ("2.0.0", "1.0.0"));
    assert_eq!(plan.restores.len(), 2);
    // Git still has the version of the upgrade, which Flux has not applied.
    let mut world = repeated();
    let reason_of_step = CommitReason::Edit(EditReason::VersionChangedInGit);
    with_report(
        &mut world,
        CommitReport::failed(reason_of_step, "another value"),
    );
    let decision = decided(&request(), &world, false, false);
    assert_eq!(reason(&decision), "GitAheadOfCluster");
    // Without snapshots, nothing is left to do.
    let mut world = repeated();
    with_upgrade(&mut world, |status| status.snapshots.clear());
    world.snapshots.clear();
    let decision = decided(&request(), &world, false, false);
    assert_eq!(reason(&decision), "NothingToChange");
}
