//! Deletion of objects after a run's end, and its time.

use api::{
    Reason, State,
    tasks::{ChildTtl, RunPhase},
};

use super::*;

/// Returns a run that ended in the 60th second, with one Job and its files.
fn over(code: i32) -> Scene {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(code, 50, ""));
    if code == 0 {
        scene.complete();
    } else {
        scene.fail();
    }
    scene.pass();
    assert_eq!(scene.status().finished_at, Some(Time(at(60))));
    scene
}

const BOTH: [&str; 2] = ["shop-7-v1", "shop-7-v1-files"];

fn keep(succeeded: Option<u64>, failed: Option<u64>) -> Option<ChildTtl> {
    let wait = |seconds: u64| Duration::from_secs(seconds).into();
    Some(ChildTtl {
        succeeded: succeeded.map(wait),
        failed: failed.map(wait),
    })
}

/// Change of a scene, exit code, and the time and objects of the deletion, if any.
type Case = (
    &'static str,
    i32,
    fn(&mut Scene),
    Option<(i64, &'static [&'static str])>,
);

#[test]
fn children_go_when_the_run_or_the_configuration_says() {
    let cases: &[Case] = &[
        ("configured", 0, |_| {}, Some((360, &BOTH))),
        ("configured", 3, |_| {}, Some((3660, &BOTH))),
        (
            "disabled",
            0,
            |scene| scene.world.defaults.cleanup.enabled = false,
            None,
        ),
        (
            "without files",
            0,
            |scene| scene.world.defaults.cleanup.delete_config_map = false,
            Some((360, &["shop-7-v1"])),
        ),
        (
            "the run's word",
            0,
            |scene| scene.run.spec.child_ttl = keep(Some(7), Some(9)),
            Some((67, &BOTH)),
        ),
        (
            "the run's word",
            3,
            |scene| scene.run.spec.child_ttl = keep(Some(7), Some(9)),
            Some((69, &BOTH)),
        ),
        (
            "at once",
            0,
            |scene| scene.run.spec.child_ttl = keep(Some(0), None),
            Some((60, &BOTH)),
        ),
        (
            "a word about another end",
            3,
            |scene| scene.run.spec.child_ttl = keep(Some(7), None),
            Some((3660, &BOTH)),
        ),
        (
            "the run's word over a disabled cleanup",
            0,
            |scene| {
                scene.world.defaults.cleanup.enabled = false;
                scene.run.spec.child_ttl = keep(Some(7), None);
            },
            Some((67, &BOTH)),
        ),
        (
            "the run's word over files that stay",
            0,
            |scene| {
                scene.world.defaults.cleanup.delete_config_map = false;
                scene.run.spec.child_ttl = keep(Some(7), None);
            },
            Some((67, &BOTH)),
        ),
        (
            "preserved",
            0,
            |scene| {
                scene.annotate(names::PRESERVE, "true");
                scene.run.spec.child_ttl = keep(Some(0), Some(0));
                scene.world.defaults.delete_finished_runs_after = Some(Duration::ZERO);
            },
            None,
        ),
        (
            "not preserved",
            0,
            |scene| scene.annotate(names::PRESERVE, "false"),
            Some((360, &BOTH)),
        ),
    ];
    for (name, code, change, expected) in cases {
        let mut scene = over(*code);
        change(&mut scene);
        let status = scene.status().clone();
        let Some((due, what)) = *expected else {
            for second in [60, 361, 4000, 400_000_000] {
                let decision = scene.at(second).pass();
                assert!(decision.effects.is_empty(), "{name}");
                assert_eq!(decision.requeue_at, None, "{name}");
            }
            continue;
        };
        if due > 60 {
            let decision = scene.at(due - 1).pass();
            assert!(decision.effects.is_empty(), "{name}: too early");
            assert_eq!(decision.requeue_at, Some(at(due)), "{name}");
        }
        let decision = scene.at(due).pass();
        assert_eq!(deletes(&decision), what, "{name}");
        assert_eq!(decision.effects.len(), what.len(), "{name}");
        assert_eq!(scene.status(), &status, "{name}: the end stays as it is");
        // Nothing happens while the objects are being deleted, or after they are deleted.
        for _ in 0..2 {
            let decision = scene.pass();
            assert!(decision.effects.is_empty(), "{name}: twice");
            assert_eq!(decision.requeue_at, None, "{name}");
            scene.at(due + 30).world.children.jobs.clear();
        }
        assert_eq!(scene.status(), &status, "{name}");
    }
}

#[test]
fn r13_the_cleanup_is_computed_from_stored_times_by_whichever_process_looks() {
    // No operator ran for a day: the first reconciliation deletes everything that is due.
    let stored = over(0);
    let mut restarted = Scene::new(stored.run.clone(), None);
    restarted.world.children.jobs = stored.world.children.jobs.clone();
    restarted.world.children.config_maps = stored.world.children.config_maps.clone();
    assert_eq!(deletes(&restarted.at(86_400).decide()), BOTH);
    // Killed after the first of two effects: the next reconciliation performs the other one.
    let decision = restarted.decide();
    restarted.perform(&decision.effects[1]);
    assert_eq!(deletes(&restarted.decide()), ["shop-7-v1"]);

    // Another configuration counts from the same stored time, in both directions.
    let mut scene = over(0);
    assert_eq!(scene.at(100).decide().requeue_at, Some(at(360)));
    scene.world.defaults.cleanup.after_success = Duration::from_secs(1000);
    assert_eq!(scene.at(500).decide().requeue_at, Some(at(1060)));
    scene.world.defaults.cleanup.after_success = Duration::from_secs(30);
    assert_eq!(deletes(&scene.at(500).decide()), BOTH);
    scene.world.defaults.cleanup.enabled = false;
    assert!(scene.decide().effects.is_empty());
    // The author changes the spec.
    scene.edit(|spec| spec.child_ttl = keep(Some(600), None));
    assert_eq!(scene.decide().requeue_at, Some(at(660)));
    scene.annotate(names::PRESERVE, "true");
    assert_eq!(scene.at(700).decide().effects, []);

    // A run that was restored without its status counts from its creation.
    let mut restored = over(0);
    restored.run.status.as_mut().unwrap().finished_at = None;
    assert_eq!(restored.at(9000).decide().effects, []);
    restored.run.metadata.creation_timestamp = Some(Time(at(8000)));
    assert_eq!(restored.at(8299).decide().requeue_at, Some(at(8300)));
    assert_eq!(deletes(&restored.at(8300).decide()), BOTH);
}

#[test]
fn r11_the_cleanup_touches_only_what_this_run_owns_and_no_longer_needs() {
    let mut scene = over(0);
    let mut foreign = scene.world.children.jobs[0].clone();
    (foreign.name, foreign.uid) = ("theirs".to_owned(), "theirs".to_owned());
    foreign.owner_uid = Some("someone-else".to_owned());
    let mut orphan = foreign.clone();
    (orphan.uid, orphan.owner_uid) = ("orphan".to_owned(), None);
    let mut going = scene.world.children.jobs[0].clone();
    (going.uid, going.deleting) = ("going".to_owned(), Some(at(300)));
    scene.world.children.jobs.extend([foreign, orphan, going]);
    let map = |name: &str, owner: Option<&str>, deleting: bool| ConfigMapView {
        name: name.to_owned(),
        uid: name.to_owned(),
        owner_uid: owner.map(str::to_owned),
        deleting,
        proven: true,
    };
    scene.world.children.config_maps.extend([
        map("their-files", Some("someone-else"), false),
        map("orphaned-files", None, false),
        map("going-files", Some("run-uid"), true),
        map("shop-7-v0-files", Some("run-uid"), false),
    ]);
    let decision = scene.at(360).decide();
    assert_eq!(
        deletes(&decision),
        ["shop-7-v1", "shop-7-v1-files", "shop-7-v0-files"]
    );
    for effect in &decision.effects {
        let Effect::Delete(target) = effect else {
            panic!("{effect:?}")
        };
        assert!(!target.uid.is_empty(), "this very object");
        assert_eq!(target.namespace.as_deref(), Some("team"));
    }
    // Without a UID, no object belongs to the run.
    scene.run.metadata.uid = None;
    assert_eq!(scene.decide().effects, []);

    // A run that has not ended needs its children, no matter how old it is.
    for mut scene in [Scene::started(), Scene::running()] {
        scene.run.spec.child_ttl = keep(Some(0), Some(0));
        scene.run.metadata.creation_timestamp = Some(Time(at(-900_000)));
        scene.world.defaults.delete_finished_runs_after = Some(Duration::ZERO);
        assert_eq!(scene.decide().effects, []);
    }
    // A newer version replaces the old one. The files of the old version are not deleted while the
    // new one starts.
    let mut scene = over(0);
    scene.at(4000).supersede();
    assert_eq!(scene.pass().effects, []);
    assert_eq!(creates(&scene.pass()).len(), 2);
    // The retention of version 1 has ended by now.
    assert_eq!(deletes(&scene.pass()), ["shop-7-v1"]);
    scene
        .world
        .children
        .jobs
        .retain(|job| job.name != "shop-7-v1");
    scene.world.children.pods.clear();
    scene.at(4010).pod(ended(0, 4005, ""));
    scene.complete();
    scene.pass();
    let gone = ["shop-7-v2", "shop-7-v1-files", "shop-7-v2-files"];
    assert_eq!(deletes(&scene.at(4310).decide()), gone);
    // If the run is being deleted, the garbage collector deletes the rest.
    scene.run.metadata.deletion_timestamp = Some(Time(at(4320)));
    assert_eq!(scene.decide().effects, []);
}

#[test]
fn r09_the_cleanup_of_a_job_starts_nothing() {
    for code in [0, 3] {
        let mut scene = over(code);
        let status = scene.status().clone();
        assert_eq!(deletes(&scene.at(3660).pass()), BOTH);
        scene.world.children.jobs.clear();
        scene.world.children.pods.clear();
        for second in [3661, 4000, 900_000] {
            let decision = scene.at(second).pass();
            assert_eq!(decision.effects, []);
            assert_eq!((decision.requeue_at, scene.status()), (None, &status));
        }
    }
}

#[test]
fn a_job_that_could_not_be_stopped_is_deleted_after_its_retention() {
    let mut scene = Scene::running();
    scene.at(3610).pass();
    scene.pass();
    scene.at(4210).pass();
    assert_eq!(scene.status().phase, Some(RunPhase::Failed));
    assert_eq!(
        deletes(&scene.at(90_000).decide()),
        BOTH,
        "the node may have come back since"
    );
}

#[test]
fn every_job_of_the_run_goes() {
    let mut scene = Scene::running_with(json!({"retry": {"maxAttempts": 2}}), json!({}));
    scene.at(60).pod(ended(3, 50, ""));
    scene.fail();
    scene.pass();
    scene.at(70).pass();
    stop(scene.at(80).pod(ended(143, 79, "")), 75);
    scene.fail();
    scene.pass();
    scene.pass();
    scene.at(90).pod(ended(0, 85, ""));
    scene.complete();
    assert_eq!(scene.pass().phase, RunPhase::Succeeded);
    assert_eq!(
        deletes(&scene.at(390).pass()),
        [
            "shop-7-v1",
            "shop-7-v1-a2",
            "shop-7-v1-a2-d1",
            "shop-7-v1-files"
        ]
    );
}

#[test]
fn a_finished_run_is_deleted_itself_only_as_we_know_it() {
    let mut scene = over(3);
    scene.world.defaults.delete_finished_runs_after = Some(Duration::from_secs(7200));
    let decision = scene.at(100).decide();
    assert_eq!(decision.requeue_at, Some(at(3660)), "the children go first");
    scene.at(3660).pass();
    scene.world.children.jobs.clear();
    let decision = scene.at(7259).decide();
    assert_eq!(
        (decision.effects.len(), decision.requeue_at),
        (0, Some(at(7260)))
    );
    let decision = scene.at(7260).pass();
    let [Effect::Delete(target)] = decision.effects.as_slice() else {
        panic!("{:?}", decision.effects)
    };
    let resource = target.resource;
    assert_eq!(
        (resource.group, resource.version, resource.plural),
        ("orchestrator.io", "v1", "taskruns")
    );
    assert_eq!(
        (target.name.as_str(), target.uid.as_str()),
        ("run-7", "run-uid")
    );
    // If a user raised the version in the meantime, the run must stay: the API server rejects the
    // delete.
    assert_eq!(target.version.as_deref(), Some("41"));
    assert!(scene.is_gone);
    assert_eq!(
        said(&decision),
        (RunPhase::Failed, State::Failed, Reason::NonZeroExit)
    );

    // The run is deleted with its children, if there was no earlier reconciliation.
    let mut scene = over(3);
    scene.world.defaults.delete_finished_runs_after = Some(Duration::from_secs(7200));
    assert_eq!(deletes(&scene.at(90_000).decide()), ["run-7"]);
    // Also if the cleanup keeps children, but not if the run was superseded.
    scene.world.defaults.cleanup.enabled = false;
    assert_eq!(deletes(&scene.decide()), ["run-7"]);
    scene.supersede();
    assert_eq!(scene.decide().effects, []);
}

#[test]
fn a_run_stays_as_long_as_its_author_keeps_its_children() {
    let mut scene = over(3);
    scene.world.defaults.delete_finished_runs_after = Some(Duration::from_secs(600));
    scene.run.spec.child_ttl = keep(Some(60), Some(1000));
    let decision = scene.at(1059).pass();
    assert!(decision.effects.is_empty());
    assert_eq!(decision.requeue_at, Some(at(1060)));
    assert_eq!(deletes(&scene.at(1060).decide()), ["run-7"]);
    scene.run.spec.child_ttl = keep(Some(60), Some(100));
    assert_eq!(deletes(&scene.at(659).decide()), BOTH);
    assert_eq!(deletes(&scene.at(660).decide()), ["run-7"]);
}
