//! CRDs that are missing, or older than the operator.

use api::{crd::APPLY, kinds, messages};
use serde_json::json;
use why::{
    World, explain,
    explanation::State::{self, *},
    render,
    world::CrdView,
};

use crate::{
    Case, all,
    build::{POD, Scene, at, before, going},
    case,
};

const RUNS: &str = "taskruns.orchestrator.io";
const DOCS: &str = "docsruns.orchestrator.io";
const MESSAGE: &str =
    "Pod 'shop-7-v1-x2k9p' on node 'node-1' runs; it has until 2026-03-02T11:00:09Z";

fn missing(name: &str) -> CrdView {
    CrdView {
        name: name.to_owned(),
        ..CrdView::default()
    }
}

fn fitting(name: &str) -> CrdView {
    CrdView {
        exists: true,
        ..missing(name)
    }
}

fn forbidden(name: &str) -> CrdView {
    CrdView {
        forbidden: true,
        ..missing(name)
    }
}

fn outdated(name: &str) -> CrdView {
    CrdView {
        lacks: vec!["'status.deadlineAt'".to_owned()],
        ..fitting(name)
    }
}

fn with(mut scene: Scene, crds: &[CrdView]) -> Scene {
    scene.0.crds = crds.to_vec();
    scene
}

fn running(reason: &str, message: &str) -> Scene {
    Scene::new(going("Running", reason, message))
        .job(json!({}))
        .container(
            "Running",
            json!({ "running": { "startedAt": at("10:00:09") } }),
        )
        .node(json!({}))
}

/// Returns a run that waits, because the operator cannot watch DocsRuns.
fn waiting(crds: &[CrdView]) -> Scene {
    let message = format!("the watch of docsruns: {}", messages::crd_missing(DOCS));
    with(Scene::new(before("ApiUnavailable", &message)), crds)
}

fn rejected() -> String {
    let request = "'patch taskruns/status' of 'shop-7'";
    messages::crd_outdated(RUNS, "'status.deadlineAt'", request)
}

pub(crate) fn cases() -> Vec<Case> {
    let pull = "Pod 'shop-7-v1-x2k9p' on node 'node-1': the image cannot be pulled: not found";
    let no_image =
        Scene::new(going("Pending", "ImagePullFailed", pull)).waits("ErrImagePull", "not found");
    vec![
        case(
            "crd-of-docs-runs-missing",
            waiting(&[fitting(RUNS), missing(DOCS)]),
            Blocked,
            Some(("CustomResourceDefinition", DOCS, "CRDNotFound")),
        ),
        case(
            "crd-of-docs-runs-missing-and-not-readable",
            waiting(&[forbidden(RUNS), forbidden(DOCS)]),
            Blocked,
            Some(("CustomResourceDefinition", DOCS, "CRDNotFound")),
        ),
        case(
            "crd-of-docs-runs-installed-since",
            waiting(&[fitting(RUNS), fitting(DOCS)]),
            Waiting,
            None,
        ),
        case(
            "crd-outdated-while-it-runs",
            with(running("Progressing", MESSAGE), &[outdated(RUNS)]),
            Running,
            None,
        ),
        case(
            "crd-outdated-and-image-not-found",
            with(no_image, &[outdated(RUNS)]),
            Blocked,
            Some(("Pod", POD, "ImagePullFailed")),
        ),
        case(
            "crd-rejects-the-status-and-is-not-readable",
            with(running("InvalidChild", &rejected()), &[forbidden(RUNS)]),
            Running,
            None,
        ),
    ]
}

fn text_of(world: &World) -> String {
    render(&explain(world), 2000, false)
}

#[test]
fn the_crd_is_the_headline_and_the_way_out_is_one_command() {
    for case in cases() {
        let found = explain(&case.world);
        let text = text_of(&case.world);
        if case.name == "crd-of-docs-runs-installed-since" {
            assert!(text.contains("is installed now"), "{text}");
            assert!(!text.contains(APPLY), "{text}");
            continue;
        }
        let (name, reason, problem) = match case.name.contains("missing") {
            true => (DOCS, "CRDNotFound", "is not installed"),
            false => (RUNS, "CRDOutdated", "it lacks 'status.deadlineAt'"),
        };
        assert_eq!(found.reason, reason, "{}", case.name);
        let headline = format!("CustomResourceDefinition '{name}': is ");
        assert!(found.summary.starts_with(&headline), "{}", found.summary);
        assert!(found.summary.contains(problem), "{}", found.summary);
        assert_eq!(text.matches(APPLY).count(), 1, "{text}");
        for wrong in ["APIServer", "control plane", "Nothing is wrong"] {
            assert!(!text.contains(wrong), "'{wrong}' in {text}");
        }
        let is_hidden = case.name.ends_with("not-readable");
        let says = text.contains("the CRD could not be read");
        assert_eq!(says, is_hidden, "{text}");
    }
}

/// An outdated CRD of another kind says nothing about a run. Without it, the operator reconciles nothing.
#[test]
fn the_crd_of_another_kind_counts_only_if_it_is_missing() {
    let found = explain(&with(running("Progressing", MESSAGE), &[missing(DOCS)]).0);
    assert_eq!(
        (found.state, found.reason.as_str()),
        (Running, "CRDNotFound")
    );
    let found = explain(&with(running("Progressing", MESSAGE), &[outdated(DOCS)]).0);
    assert_eq!(
        (found.state, found.reason.as_str()),
        (Running, "Progressing")
    );
    assert!(found.notes.iter().any(|note| note.text.contains(DOCS)));
}

/// This program may know fields that the operator of an older release does not write.
#[test]
fn an_operator_of_another_version_may_need_less() {
    let own = env!("CARGO_PKG_VERSION");
    for (version, reason) in [
        (None, "CRDOutdated"),
        (Some(own), "CRDOutdated"),
        (Some("0.0.1"), "Progressing"),
    ] {
        let mut world = with(running("Progressing", MESSAGE), &[outdated(RUNS)]).0;
        for lease in world.leases.iter_mut().flat_map(|all| all.iter_mut()) {
            lease.version = version.map(str::to_owned);
        }
        assert_eq!(explain(&world).reason, reason, "{version:?}");
        let text = text_of(&world);
        assert_eq!(text.matches(APPLY).count(), 1, "{version:?}: {text}");
    }
}

/// A user who may not read CRDs hears of it only if a CRD may be the cause.
#[test]
fn an_unreadable_crd_is_reported_only_if_it_matters() {
    let unseen = json!({ "observedGeneration": -1, "phase": "Pending", "message": "waiting for the operator to look at it" });
    for (scene, is_reported) in [
        (Scene::new(unseen), true),
        (running("Progressing", MESSAGE), false),
    ] {
        let text = text_of(&with(scene, &[forbidden(RUNS)]).0);
        assert_eq!(text.contains("may not read CRDs"), is_reported, "{text}");
    }
}

/// Each kind compares its own CRD.
#[test]
fn an_outdated_crd_is_shown_for_each_object() {
    let mut seen = 0;
    for mut case in all() {
        let before = explain(&case.world);
        let Some(row) = kinds::named(&before.subject.kind) else {
            continue;
        };
        if !case.world.crds.is_empty() {
            continue;
        }
        case.world.crds.push(outdated(row.crd_name));
        let found = explain(&case.world);
        let text = text_of(&case.world);
        let name = case.name;
        assert!(text.contains("lacks 'status.deadlineAt'"), "{name}: {text}");
        assert!(text.contains(APPLY), "{name}: {text}");
        let is_noted = matches!(
            before.state,
            State::Succeeded | State::Failed | State::Deleting | State::Unmanaged
        );
        if is_noted {
            assert_eq!(found.reason, before.reason, "{name}");
        } else {
            let reason = found.reason.as_str();
            assert!(
                matches!(reason, "CRDOutdated" | "OperatorDown"),
                "{name}: {reason}"
            );
        }
        seen += 1;
    }
    assert!(seen > 100, "{seen}");
}
