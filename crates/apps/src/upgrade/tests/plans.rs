//! The checks before any change, and the plan that is frozen.

use std::sync::Arc;

use api::{
    Reason,
    apps::{
        AppGit, FluxKind, ManagedAppSpec, NamespacedName, ScaleDownPolicy, ScaleDownSetting,
        UpgradePhase,
    },
};

use super::{
    cluster::Cluster,
    delivery::revision,
    fixtures::{flux_target, helm, member, workload, world},
};
use crate::{
    discover::Problem,
    flux::{HelmReleaseView, SourceView},
    object::{ObjectId, ObjectKind},
    overlap::Overlap,
    upgrade::{
        storage::{SnapshotClass, Snapshots},
        world::UpgradeWorld,
    },
    world::{AppWorld, Discovery, Mounter, Objects, Seen},
};

type Change = fn(&mut UpgradeWorld);

fn app(world: &mut UpgradeWorld) -> &mut AppWorld {
    &mut world.app.as_mut().unwrap().world
}

fn objects(world: &mut UpgradeWorld) -> &mut Objects {
    match &mut app(world).discovery {
        Discovery::Found(objects) => objects,
        Discovery::Failed(problem) => panic!("{problem:?}"),
    }
}

fn with_helm(world: &mut UpgradeWorld, change: impl FnOnce(&mut HelmReleaseView)) {
    let mut view = helm();
    change(&mut view);
    let name = NamespacedName::new("shop", "shop");
    app(world).helm_release = Ok(Some((name, Seen::Present(Arc::new(view)))));
}

fn managed(world: &mut UpgradeWorld) -> &mut ManagedAppSpec {
    &mut Arc::make_mut(&mut world.app.as_mut().unwrap().app).spec
}

fn with_git(world: &mut UpgradeWorld, change: impl FnOnce(&mut AppGit)) {
    change(managed(world).git.as_mut().unwrap());
}

fn with_source(world: &mut UpgradeWorld, change: impl FnOnce(&mut SourceView)) {
    let mut view = world.source.present().unwrap().clone();
    change(&mut view);
    world.source = Seen::Present(Arc::new(view));
}

/// Returns a request that has ended, or has left `Plan`.
fn planned(change: impl FnOnce(&mut UpgradeWorld), allow_unhealthy: bool) -> Cluster {
    let mut world = world();
    change(&mut world);
    let mut cluster = Cluster::with(world);
    cluster.request.spec.allow_unhealthy = allow_unhealthy;
    cluster.run_until(|cluster| cluster.status().plan.is_some());
    cluster
}

/// Each of these states rejects the request, and nothing is changed.
#[test]
fn a_request_is_rejected_before_any_change() {
    let table: [(Change, &str); 37] = [
        (|world| world.app = None, "AppNotFound"),
        (
            |world| {
                app(world).overlap = Some(Overlap {
                    object: ObjectId::new(ObjectKind::Deployment, "shop", "web"),
                    older: NamespacedName::new("team", "older"),
                });
            },
            "AppOverlaps",
        ),
        (
            |world| app(world).kustomization = Seen::NotInstalled,
            "FluxNotInstalled",
        ),
        (
            |world| app(world).kustomization = Seen::Absent,
            "FluxObjectNotFound",
        ),
        (
            |world| app(world).kustomization = Seen::NotWatched,
            "NamespaceNotWatched",
        ),
        (
            |world| {
                let problem = Problem::new(Reason::NotInInventory, "not there");
                app(world).helm_release = Err(problem);
            },
            "NotInInventory",
        ),
        (
            |world| {
                let problem = Problem::new(Reason::DiscoveryMismatch, "differs");
                app(world).discovery = Discovery::Failed(problem);
            },
            "DiscoveryMismatch",
        ),
        (
            |world| {
                let mut db = workload(ObjectKind::StatefulSet, "db", 3);
                if let Some(rollout) = &mut db.rollout {
                    rollout.ready = 0;
                }
                objects(world).members[0] = member(db);
            },
            "Unhealthy",
        ),
        (
            |world| world.flux[1].suspend = Some(true),
            "AlreadySuspended",
        ),
        (|world| world.flux[0].is_deleting = true, "PlanOutdated"),
        (
            |world| world.flux[1].suspend_appliers = vec!["kustomize-controller".to_owned()],
            "SuspendOwnedByParent",
        ),
        (
            |world| world.flux[1].disabled = Some("a: disabled".to_owned()),
            "ReconcileDisabled",
        ),
        (
            |world| with_helm(world, |helm| helm.requested = None),
            "SourceNotSupported",
        ),
        (
            |world| with_helm(world, |helm| helm.requested = Some("1.x".to_owned())),
            "VersionIsRange",
        ),
        (
            |world| with_helm(world, |helm| helm.requested = Some("v2.0.0".to_owned())),
            "NothingToChange",
        ),
        (
            |world| world.snapshots = Snapshots::NotInstalled,
            "SnapshotsNotInstalled",
        ),
        (
            |world| objects(world).claims[0].live = None,
            "VolumeNotBound",
        ),
        (|world| world.volumes[0].is_bound = false, "VolumeNotBound"),
        (
            |world| world.volumes[1].driver = None,
            "VolumeNotSnapshottable",
        ),
        (
            |world| world.volumes[1].class = SnapshotClass::Missing,
            "SnapshotClassMissing",
        ),
        (
            |world| {
                let classes = vec!["a".to_owned(), "b".to_owned()];
                world.volumes[1].class = SnapshotClass::Ambiguous(classes);
            },
            "SnapshotClassAmbiguous",
        ),
        (
            |world| world.volumes[1].source = "x".repeat(16 * 1024 + 1),
            "PlanTooLarge",
        ),
        (
            |world| {
                let claims = &mut objects(world).claims;
                let one = claims[0].clone();
                claims.extend(std::iter::repeat_n(one, 31));
            },
            "PlanTooLarge",
        ),
        (
            |world| {
                objects(world).mounters.push(Mounter {
                    kind: "Pod".to_owned(),
                    name: NamespacedName::new("shop", "bare"),
                    live: None,
                });
            },
            "WorkloadNotScalable",
        ),
        (
            |world| {
                let set = workload(ObjectKind::DaemonSet, "agent", 1);
                objects(world).members.push(member(set));
            },
            "WorkloadNotScalable",
        ),
        (
            |world| world.workloads[0].deletes_claims = true,
            "PVCsDeletedOnScaleDown",
        ),
        (|world| managed(world).git = None, "NoVersionPath"),
        (
            |world| with_git(world, |git| git.chart.file = Some("../x".to_owned())),
            "NoVersionPath",
        ),
        (
            |world| world.source = Seen::NotInstalled,
            "FluxNotInstalled",
        ),
        (|world| world.source = Seen::Absent, "FluxObjectNotFound"),
        (
            |world| with_source(world, |source| source.pinned = Some("tag: v1".to_owned())),
            "SourcePinned",
        ),
        (
            |world| with_source(world, |source| source.is_verified = true),
            "SignatureRequired",
        ),
        (
            |world| with_source(world, |source| source.is_suspended = true),
            "AlreadySuspended",
        ),
        (
            |world| {
                let state = world.app.as_mut().unwrap();
                let meta = &mut std::sync::Arc::make_mut(&mut state.app).metadata;
                meta.deletion_timestamp = Some(epoch());
            },
            "AppNotFound",
        ),
        // The watches do not have these objects yet. After two minutes, the request is rejected.
        (|world| world.volumes.clear(), "PlanTimeout"),
        (|world| world.workloads.clear(), "PlanTimeout"),
        (|world| world.flux.clear(), "PlanTimeout"),
    ];
    for (change, reason) in table {
        let cluster = planned(change, false);
        assert_eq!(cluster.reason(), reason, "{}", cluster.message());
        assert_eq!(cluster.phase(), UpgradePhase::Failed, "{reason}");
        assert!(
            cluster.message().ends_with("Nothing was changed"),
            "{}",
            cluster.message()
        );
        assert!(!cluster.has_finalizer, "{reason}");
        assert!(
            cluster.writes.iter().all(|write| write.ends_with("status")),
            "{reason}"
        );
    }
}

fn epoch() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(api::Timestamp::UNIX_EPOCH)
}

/// R30: an application without a volume would be upgraded without protection.
#[test]
fn r30_an_application_without_volumes_is_rejected() {
    let cluster = planned(|world| objects(world).claims.clear(), false);
    assert_eq!(cluster.reason(), "NoVolumesFound");
    assert_eq!(cluster.phase(), UpgradePhase::Failed);
}

/// R31: the version before the first upgrade is that of the live objects. S1.8: the status of the ManagedApp is not read.
#[test]
fn r31_the_plan_has_the_version_of_the_live_release() {
    let mut cluster = Cluster::new();
    let state = cluster.real.app.as_mut().unwrap();
    let mut managed = (*state.app).clone();
    managed.status = Some(api::apps::ManagedAppStatus {
        phase: Some(api::apps::AppPhase::Degraded),
        versions_match: Some(false),
        ..api::apps::ManagedAppStatus::default()
    });
    state.app = Arc::new(managed);
    cluster.sync();
    cluster.run_until(|cluster| cluster.status().plan.is_some());
    let plan = cluster.status().plan.unwrap();
    assert_eq!((&*plan.chart.from, &*plan.chart.to), ("1.0.0", "2.0.0"));
    let release = plan.release.unwrap();
    assert_eq!((&*release.chart_version, release.version), ("1.0.0", 3));
    assert_eq!(plan.revision, Some(revision(1)));
}

/// S1.5: all workloads that mount a volume are stopped, in the inventory or not. S1.6: a HelmRelease is never scaled.
#[test]
fn s1_5_the_plan_has_all_workloads_with_a_volume_and_their_scale() {
    let cluster = planned(|_| {}, false);
    let plan = cluster.status().plan.unwrap();
    let found: Vec<_> = plan
        .workloads
        .iter()
        .map(|one| {
            (
                one.id().to_string(),
                one.replicas,
                one.suspend,
                one.in_inventory,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("CronJob 'shop/backup'".to_owned(), None, None, true),
            ("Deployment 'shop/files'".to_owned(), Some(1), None, false),
            ("StatefulSet 'shop/db'".to_owned(), Some(3), None, true),
        ]
    );
    let volumes: Vec<_> = plan
        .volumes
        .iter()
        .map(|one| (&*one.pvc, &*one.pv))
        .collect();
    assert_eq!(volumes, [("data", "pv-data"), ("media", "pv-media")]);
    let flux: Vec<_> = plan
        .flux_objects
        .iter()
        .map(|one| (one.kind, one.suspend))
        .collect();
    assert_eq!(
        flux,
        [
            (FluxKind::Kustomization, None),
            (FluxKind::HelmRelease, Some(false))
        ]
    );
}

#[test]
fn an_unhealthy_application_is_upgraded_only_on_request() {
    let change = |world: &mut UpgradeWorld| {
        let mut db = workload(ObjectKind::StatefulSet, "db", 3);
        if let Some(rollout) = &mut db.rollout {
            rollout.ready = 0;
        }
        objects(world).members[0] = member(db);
    };
    assert_eq!(planned(change, false).reason(), "Unhealthy");
    assert!(planned(change, true).status().plan.is_some());
}

/// The parent Kustomization is suspended first: it applies the others, and owns their `spec.suspend`.
#[test]
fn a_parent_is_suspended_and_confirmed_before_its_children() {
    let mut world = world();
    world.app.as_mut().unwrap().parent = Some(NamespacedName::new("shop", "parent"));
    let mut parent = flux_target(FluxKind::Kustomization, "parent", None);
    parent.name = "parent".to_owned();
    world.flux.push(parent);
    world.flux[0].suspend_appliers = vec!["kustomize-controller".to_owned()];
    let mut cluster = Cluster::with(world);
    cluster.flux_works = false;
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Suspend);
    let uids: Vec<String> = {
        let plan = cluster.status().plan.unwrap();
        plan.flux_objects
            .iter()
            .map(|one| one.uid.clone())
            .collect()
    };
    assert_eq!(uids, ["parent", "kustomization", "helm-release"]);
    for _ in 0..3 {
        cluster.step();
    }
    assert!(cluster.real.flux[2].is_suspended());
    assert!(
        !cluster.real.flux[0].is_suspended(),
        "the parent has not confirmed"
    );
    cluster.flux_works = true;
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::ScaleDown);
    assert!(cluster.real.flux.iter().all(|one| one.is_suspended()));
}

/// The change in Git is frozen with the values of the step, and the facts that its author should know.
#[test]
fn the_plan_has_the_commit_of_the_step() {
    let cluster = planned(
        |world| with_helm(world, |helm| helm.uninstalls_on_failure = true),
        false,
    );
    let plan = cluster.status().plan.unwrap();
    let commit = &plan.commit;
    assert_eq!(revision(1), format!("main@sha1:{}", commit.base));
    assert_eq!(
        (&*commit.url, &*commit.branch, &*commit.credentials_secret),
        ("https://git.example.org/shop", "main", "git")
    );
    assert_eq!(commit.author.email, "orchestrator@shop.invalid");
    let edit = &commit.edits[0];
    assert_eq!((&*edit.from, &*edit.to), ("1.0.0", "2.0.0"));
    assert_eq!(commit.source.revision, Some(revision(1)));
    assert_eq!(plan.warnings.len(), 2, "{:?}", plan.warnings);
    assert!(
        plan.warnings[0].contains("uninstalls"),
        "{:?}",
        plan.warnings
    );
    assert!(
        plan.warnings[1].contains("2 commits"),
        "{:?}",
        plan.warnings
    );
}

/// A phase that ends before Helm reports a failure of an upgrade that may still succeed.
#[test]
fn a_longer_timeout_of_helm_is_a_warning() {
    // Columns: timeouts of the HelmRelease and of the phase in seconds, whether there is a warning.
    for (helm, phase, expected) in [
        (None, None, false),
        (Some(600), None, false),
        (Some(601), None, true),
        (Some(601), Some(900), false),
        // Without a timeout, Flux waits for five minutes.
        (None, Some(299), true),
        (None, Some(300), false),
    ] {
        let seconds = std::time::Duration::from_secs;
        let mut world = world();
        with_helm(&mut world, |view| view.timeout = helm.map(seconds));
        managed(&mut world).phase_timeouts.reconcile = phase.map(|one| seconds(one).into());
        let mut cluster = Cluster::with(world);
        cluster.run_until(|cluster| cluster.status().plan.is_some());
        let plan = cluster.status().plan.unwrap();
        let found = plan.warnings.iter().any(|one| one.contains("timeout"));
        assert_eq!(found, expected, "{helm:?}, {phase:?}: {:?}", plan.warnings);
    }
}

/// Pitfall 12: hooks before the upgrade, and hooks that are not known, need the old version.
#[test]
fn hooks_before_the_upgrade_decide_how_long_workloads_stay_stopped() {
    for (hooks, expected) in [
        (Some(false), ScaleDownPolicy::UntilUpgraded),
        (Some(true), ScaleDownPolicy::UntilSnapshotReady),
        (None, ScaleDownPolicy::UntilSnapshotReady),
    ] {
        let cluster = planned(
            |world| world.app.as_mut().unwrap().has_upgrade_hooks = hooks,
            false,
        );
        let plan = cluster.status().plan.unwrap();
        assert_eq!(plan.scale_down_policy, expected, "{hooks:?}");
    }
}

/// The ManagedApp can decide it instead of the hooks.
#[test]
fn the_application_decides_how_long_workloads_stay_stopped() {
    for (setting, expected) in [
        (ScaleDownSetting::Auto, ScaleDownPolicy::UntilSnapshotReady),
        (
            ScaleDownSetting::UntilUpgraded,
            ScaleDownPolicy::UntilUpgraded,
        ),
        (
            ScaleDownSetting::UntilSnapshotReady,
            ScaleDownPolicy::UntilSnapshotReady,
        ),
    ] {
        let cluster = planned(
            |world| {
                world.app.as_mut().unwrap().has_upgrade_hooks = Some(true);
                managed(world).scale_down_policy = setting;
            },
            false,
        );
        let plan = cluster.status().plan.unwrap();
        assert_eq!(plan.scale_down_policy, expected, "{setting:?}");
    }
}
