//! Defects of earlier systems that a decision alone can have, by their number.

use std::collections::BTreeSet;

use api::{names, tasks::docs_names};
use proptest::{prelude::*, test_runner::RngSeed};
use testkit::seed::seed;

use super::*;
use crate::view::{ConfigMapView, JobView};

fn named(name: &str, namespace: &str, uid: &str) -> Scene {
    let mut scene = Scene::plain();
    scene.run.metadata.name = Some(name.to_owned());
    scene.run.metadata.namespace = Some(namespace.to_owned());
    scene.run.metadata.uid = Some(uid.to_owned());
    scene
}

/// Returns a run with its children created, and a Pod at work.
fn at_work(name: &str, namespace: &str, uid: &str) -> (Scene, Vec<Value>) {
    let mut scene = named(name, namespace, uid);
    scene.pass();
    scene.reply();
    scene.pass();
    let decision = scene.pass();
    let bodies = decision.effects.iter().map(|effect| match effect {
        Effect::Ensure(manifest) => manifest.body.clone(),
        Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => {
            panic!("{effect:?}")
        }
    });
    let bodies: Vec<Value> = bodies.collect();
    assert_eq!(bodies.len(), 2, "{:?}", decision.verdict);
    scene.at(11).agent_container(running(10));
    scene.pass();
    (scene, bodies)
}

/// Returns kind, namespace and name, by which the API server distinguishes objects.
fn identities(bodies: &[Value]) -> BTreeSet<String> {
    let id = |body: &Value| {
        format!(
            "{} {}/{}",
            body["kind"], body["metadata"]["namespace"], body["metadata"]["name"]
        )
    };
    let all: BTreeSet<String> = bodies.iter().map(id).collect();
    assert_eq!(all.len(), bodies.len());
    all
}

/// Returns the UIDs of the objects that a decision changes or deletes.
fn touched(decision: &DocsDecision) -> Vec<String> {
    let uid = |effect: &Effect| match effect {
        Effect::Delete(target) | Effect::Patch { target, .. } => Some(target.uid.clone()),
        Effect::Ensure(_) | Effect::Apply(_) => None,
    };
    decision.effects.iter().filter_map(uid).collect()
}

const NAMES: &[(&str, &str)] = &[
    ("shop", "team"),
    ("shop", "other-team"),
    ("shop-docs", "team"),
    ("shop-docs-a2", "team"),
    ("shop-docs-d1", "team"),
    ("shop-docs-files", "team"),
    // Equal after sanitizing.
    ("a.b", "team"),
    ("a-b", "team"),
    ("a..b", "team"),
    ("a.-b", "team"),
    ("A.B", "team"),
    ("a_b", "team"),
    ("a b", "team"),
    ("$(HOME)", "team"),
    ("日本", "team"),
    ("中国", "team"),
];

#[test]
fn r03_two_docs_runs_share_nothing() {
    let long = "x".repeat(253);
    let longer = format!("{}y", "x".repeat(252));
    let mut runs: Vec<(&str, &str)> = NAMES.to_vec();
    runs.extend([(long.as_str(), "team"), (longer.as_str(), "team")]);
    let mut worlds = Vec::new();
    for (index, (name, namespace)) in runs.iter().enumerate() {
        worlds.push(at_work(name, namespace, &format!("uid-of-{index}")));
    }
    for (one, (first, bodies)) in worlds.iter().enumerate() {
        for body in bodies {
            let name = body["metadata"]["name"].as_str().unwrap();
            assert!(name.len() <= 63, "{name}");
            let labels = &body["metadata"]["labels"];
            assert_eq!(labels[names::UID], json!(format!("uid-of-{one}")));
            assert_eq!(labels[names::KIND], "DocsRun");
            let owners = body["metadata"]["ownerReferences"].as_array().unwrap();
            assert_eq!(owners.len(), 1);
            assert_eq!(owners[0]["uid"], json!(format!("uid-of-{one}")));
        }
        for (second, others) in &worlds[one + 1..] {
            let (mine, theirs) = (identities(bodies), identities(others));
            assert!(mine.is_disjoint(&theirs), "{mine:?} and {theirs:?}");
            // Also the names of later attempts and of replacements.
            let key = |scene: &Scene, attempt, after| {
                let metadata = &scene.run.metadata;
                let name = metadata.name.as_deref().unwrap();
                let namespace = metadata.namespace.clone();
                (namespace, docs_names::job(name, attempt, after))
            };
            let all = |scene: &Scene| -> BTreeSet<_> {
                let numbers = [
                    (1, None),
                    (2, None),
                    (1, Some(1)),
                    (2, Some(1)),
                    (10, Some(5)),
                ];
                numbers
                    .map(|(attempt, after)| key(scene, attempt, after))
                    .into()
            };
            assert!(all(first).is_disjoint(&all(second)));
        }
    }
}

#[test]
fn r03_a_task_run_has_other_children_than_a_docs_run() {
    // Names of a TaskRun that come as close as possible.
    for service in ["shop-docs", "shop", "shop-docs-files", "docs"] {
        let task = task(json!({"serviceName": service, "taskId": 1}));
        let theirs: BTreeSet<String> = [
            api::tasks::names::config_map(&task.spec),
            api::tasks::names::job(&task.spec, 1, None),
            api::tasks::names::job(&task.spec, 2, None),
            api::tasks::names::job(&task.spec, 2, Some(1)),
        ]
        .into();
        for name in [
            "shop",
            "shop-docs-1-v1",
            "shop-1-v1",
            "shop-docs-1",
            "docs-1-v1",
        ] {
            let ours: BTreeSet<String> = [
                docs_names::config_map(name),
                docs_names::job(name, 1, None),
                docs_names::job(name, 2, None),
                docs_names::job(name, 2, Some(1)),
            ]
            .into();
            assert!(ours.is_disjoint(&theirs), "{ours:?} and {theirs:?}");
        }
    }
}

/// Children of others in the same world are not touched, even with copied labels: at no step, by no
/// deletion and no cleanup.
#[test]
fn r03_children_of_others_are_not_touched() {
    let foreign = |scene: &mut Scene| {
        let mut theirs: Vec<(JobView, ConfigMapView)> = Vec::new();
        for (index, owner) in [None, Some("other-uid"), Some("")].into_iter().enumerate() {
            let (other, _) = at_work("shop", "other-team", "other-uid");
            let mut job = other.around.world.jobs[0].clone();
            let mut map = other.around.world.config_maps[0].clone();
            job.uid = format!("foreign-{index}");
            job.owner_uid = owner.map(str::to_owned);
            map.uid = format!("foreign-{index}");
            map.owner_uid = owner.map(str::to_owned);
            theirs.push((job, map));
        }
        for (job, map) in theirs {
            scene.around.world.jobs.insert(0, job);
            scene.around.world.config_maps.insert(0, map);
        }
    };
    let mut ended_run = Scene::reported(&unchanged());
    ended_run.pass();
    let scenes = [
        Scene::plain(),
        Scene::resolved(json!({}), json!({})),
        Scene::started(json!({}), json!({})),
        Scene::cloning(),
        Scene::running(),
        Scene::publishing(),
        Scene::verifying(),
        ended_run,
    ];
    for (index, scene) in scenes.into_iter().enumerate() {
        let changes: [fn(&mut Scene); 6] = [
            |_| {},
            |scene| scene.edit(|spec| spec.cancel = true),
            |scene| scene.edit(|spec| spec.suspend = true),
            |scene| {
                scene.at(900_000);
            },
            Scene::delete_run,
            |scene| {
                scene.delete_run();
                scene.around.world.jobs.clear();
                scene.around.world.pods.clear();
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut scene = scene.clone();
            change(&mut scene);
            let alone = scene.decide();
            foreign(&mut scene);
            let decision = scene.decide();
            let uids = touched(&decision);
            assert!(
                uids.iter().all(|uid| !uid.starts_with("foreign")),
                "{index}, {number}: {uids:?}"
            );
            assert_eq!(decision, alone, "{index}, {number}: it changes nothing");
        }
    }
}

/// If another run's child has the name, the engine handles it: it checks the owner.
#[test]
fn r03_a_name_that_is_taken_is_not_taken_over() {
    let mut scene = Scene::started(json!({}), json!({}));
    scene.run.status.as_mut().unwrap().job_name = None;
    scene.run.status.as_mut().unwrap().attempts = 0;
    scene.around.world.jobs[0].owner_uid = Some("someone-else".to_owned());
    scene.around.world.config_maps[0].owner_uid = None;
    let decision = scene.decide();
    assert_eq!(creates(&decision).len(), 2);
    assert!(touched(&decision).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
    #[test]
    fn r03_names_of_two_runs_differ(
        one in prop_oneof![".{1,253}", "[a-z.-]{1,20}", "[a-z]{240}[a-z.-]{1,13}"],
        two in prop_oneof![".{1,253}", "[a-z.-]{1,20}", "[a-z]{240}[a-z.-]{1,13}"],
        attempts in (1_u32..11, 1_u32..11),
        disruptions in (prop::option::of(1_u32..6), prop::option::of(1_u32..6)),
    ) {
        prop_assume!(one != two);
        let first = docs_names::job(&one, attempts.0, disruptions.0);
        let second = docs_names::job(&two, attempts.1, disruptions.1);
        prop_assert!(first.len() <= 63);
        prop_assert_ne!(first, second);
        prop_assert_ne!(docs_names::config_map(&one), docs_names::config_map(&two));
    }
}

#[test]
fn r07_a_decision_never_touches_the_run_itself() {
    for mut scene in [
        Scene::plain(),
        Scene::running(),
        Scene::publishing(),
        Scene::verifying(),
    ] {
        let spec = scene.run.spec.clone();
        for _ in 0..4 {
            let decision = scene.pass();
            for (kind, _) in creates(&decision) {
                assert!(matches!(kind, "Job" | "ConfigMap"));
            }
            assert_eq!(scene.run.spec, spec);
        }
    }
}

#[test]
fn r09_a_job_that_vanishes_after_the_end_does_not_run_again() {
    let mut scene = Scene::reported(&unchanged());
    scene.pass();
    scene.around.world.jobs.clear();
    scene.around.world.pods.clear();
    scene.around.world.config_maps.clear();
    assert!(scene.at(10_000).settle().effects.is_empty());
    assert_eq!(question(&scene.run), None);
}
