//! Live reads from the API server before a conclusion: a watch may be silent for minutes.

use api::{
    decide::{LiveRead, ResourceType},
    tasks::File,
};

use super::*;

fn unconfirmed(scene: &Scene) -> RunDecision {
    decide(&Input {
        object: &scene.run,
        world: &scene.world,
        now: scene.now,
        fault: None,
        refused: false,
        confirmed: false,
        overdue: false,
    })
}

/// Returns the types that are read, in order.
fn reads(decision: &RunDecision) -> Vec<&'static str> {
    let kind = |read: &LiveRead| match read {
        LiveRead::Object { resource, .. } | LiveRead::Children { resource, .. } => resource.kind,
    };
    decision.confirm.iter().map(kind).collect()
}

type Change = fn(&mut Scene);

/// Effects of a silent watch, and the wrong conclusion from them.
const CASES: &[(&str, Change, Reason)] = &[
    (
        "the Job is not in the cache",
        |scene| scene.world.children.jobs.clear(),
        Reason::JobLost,
    ),
    (
        "the Job is complete, and the Pod still runs in the cache",
        |scene| {
            scene.at(60).complete();
            scene.at(75);
        },
        Reason::EvidenceLost,
    ),
    (
        "the Job is complete, and the Pod is not in the cache",
        |scene| {
            scene.world.children.pods.clear();
            scene.at(60).complete();
            scene.at(75);
        },
        Reason::EvidenceLost,
    ),
    (
        "the container runs in the cache until its deadline",
        |scene| {
            scene.at(4_000);
        },
        Reason::DeadlineExceeded,
    ),
    (
        "a higher version, and the Job of the earlier one is not in the cache",
        |scene| {
            scene.world.children.jobs.clear();
            scene.world.children.pods.clear();
            scene.supersede();
        },
        Reason::Progressing,
    ),
    (
        "the container ended, and the Job does not say so",
        |scene| {
            scene.at(60).pod(ended(0, 50, ""));
            scene.at(800);
        },
        Reason::JobFailed,
    ),
];

#[test]
fn no_attempt_is_given_up_because_a_watch_is_silent() {
    for (name, change, reason) in CASES {
        let mut scene = Scene::running();
        change(&mut scene);
        let decision = unconfirmed(&scene);
        assert_eq!(reads(&decision), ["Job", "Pod", "Agent"], "{name}");
        let expected = LiveRead::Children {
            resource: ResourceType::JOB,
            namespace: "team".to_owned(),
            owner_kind: "TaskRun",
            owner_uid: "run-uid".to_owned(),
        };
        assert_eq!(decision.confirm.first(), Some(&expected), "{name}");
        let confirmed = scene.decide();
        assert_eq!(confirmed.confirm, [], "{name}");
        assert_eq!(confirmed.verdict.reason, *reason, "{name}");
    }
}

#[test]
fn a_success_needs_no_more_than_its_evidence() {
    let mut scene = Scene::running();
    scene.at(60).pod(ended(0, 50, ""));
    scene.complete();
    let decision = unconfirmed(&scene);
    assert_eq!(decision.phase, RunPhase::Succeeded);
    assert_eq!(decision.confirm, []);
}

#[test]
fn a_run_in_deletion_is_let_go_after_a_live_read() {
    let mut scene = Scene::running();
    scene.run.metadata.deletion_timestamp = Some(Time(scene.now));
    assert_eq!(unconfirmed(&scene).confirm, [], "it waits for what it sees");
    scene.world.children.jobs.clear();
    scene.world.children.pods.clear();
    assert_eq!(reads(&unconfirmed(&scene)), ["Job", "Pod", "Agent"]);
    assert!(matches!(
        scene.decide().finalizer,
        FinalizerAction::Remove { .. }
    ));
    scene.annotate(names::FORCE_DELETE, "true");
    assert_eq!(unconfirmed(&scene).confirm, [], "by force");
}

#[test]
fn an_agent_that_is_not_there_is_read_too() {
    let mut scene = Scene::new(run(json!({})), None);
    scene.at(1).pass();
    scene.at(700);
    let decision = unconfirmed(&scene);
    assert_eq!(decision.verdict.reason, Reason::AgentNotFound);
    assert_eq!(reads(&decision), ["Job", "Pod", "Agent"]);
}

/// Returns a run without a ConfigMap, after its files were dropped from memory.
fn without_files() -> (Scene, Arc<[File]>) {
    let mut scene = Scene::new(run(json!({})), Some(agent(json!({}))));
    let files = std::mem::replace(&mut scene.run.spec.markdown_files, vec![File::left_out()]);
    (scene, files.into())
}

#[test]
fn files_that_were_dropped_are_read_before_they_are_stored() {
    let (mut scene, files) = without_files();
    let stores = |decision: &RunDecision| {
        let mut effects = decision.effects.iter();
        effects.find_map(|effect| match effect {
            Effect::Ensure(manifest) if manifest.resource == ResourceType::CONFIG_MAP => {
                Some(manifest.body["data"].clone())
            }
            Effect::Ensure(_) | Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => None,
        })
    };
    // All other objects are read with the files, because a reconciliation reads only once.
    assert_eq!(
        reads(&unconfirmed(&scene)),
        ["Job", "Pod", "Agent", "TaskRun"]
    );
    // The files were dropped again before the decision.
    let decision = scene.decide();
    assert_eq!(stores(&decision), None, "a ConfigMap without the files");
    assert!(decision.effects.is_empty() && decision.requeue_at.is_some());
    scene.world.files = Some(files.clone());
    let data = stores(&unconfirmed(&scene)).unwrap();
    for file in files.iter() {
        assert_eq!(data[&file.filename], file.content);
    }
}

#[test]
fn a_run_that_was_too_large_is_not_smaller_because_its_files_were_dropped() {
    let (mut scene, _) = without_files();
    let large = File {
        filename: "task.md".to_owned(),
        content: "x".repeat(1_000_000),
    };
    scene.world.files = Some([large].into());
    let decision = scene.decide();
    assert_eq!(decision.verdict.reason, Reason::ContextTooLarge);
    scene.pass();
    scene.world.files = None;
    assert!(unconfirmed(&scene).effects.is_empty());
    assert_eq!(scene.pass().verdict.reason, Reason::ContextTooLarge);
}
