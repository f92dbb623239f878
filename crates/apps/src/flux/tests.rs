//! Objects of Flux as its controllers write them, and their states.

use serde_json::json;

use super::*;
use crate::object::ObjectKind;

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

fn meta(generation: i64) -> ObjectMeta {
    ObjectMeta {
        namespace: Some("flux-system".to_owned()),
        name: Some("shop".to_owned()),
        generation: Some(generation),
        ..ObjectMeta::default()
    }
}

fn ready(status: &str, reason: &str, since: i64) -> Value {
    json!({ "type": "Ready", "status": status, "reason": reason, "message": "as it is",
        "lastTransitionTime": at(since).to_string() })
}

#[test]
fn a_kustomization_is_read() {
    let object = json!({
        "spec": { "interval": "10m", "path": "./shop", "prune": true, "suspend": false },
        "status": {
            "observedGeneration": 3,
            "conditions": [
                { "type": "Reconciling", "status": "False", "reason": "x", "message": "" },
                ready("True", "ReconciliationSucceeded", -60),
            ],
            "lastAppliedRevision": "main@sha1:0123",
            "lastAttemptedRevision": "main@sha1:0123",
            "inventory": { "entries": [
                { "id": "shop_web_apps_Deployment", "v": "v1" },
                { "id": "_shop__Namespace", "v": "v1" },
            ] },
        },
    });
    let found = KustomizationView::read(&meta(3), &object).unwrap();
    assert_eq!(found.revision.as_deref(), Some("main@sha1:0123"));
    let web = ObjectId::new(ObjectKind::Deployment, "shop", "web");
    assert_eq!(found.inventory, Some([web].into()));
    assert_eq!(found.flux.name.to_string(), "flux-system/shop");
    assert_eq!(found.flux.state(false, at(0)), FluxState::Settled);
    assert!(!found.flux.is_remote && !found.flux.is_suspended);
}

#[test]
fn a_new_object_without_a_status_is_read() {
    let found = KustomizationView::read(&meta(1), &json!({ "spec": {} })).unwrap();
    assert_eq!(
        (found.inventory.clone(), found.revision.clone()),
        (None, None)
    );
    assert!(matches!(
        found.flux.state(true, at(0)),
        FluxState::Reconciling(_)
    ));
}

#[test]
fn a_field_of_another_form_is_an_error_of_the_object() {
    for (object, named) in [
        (json!({ "spec": { "suspend": "yes" } }), "spec"),
        (json!({ "status": { "conditions": "none" } }), "status"),
        (
            json!({ "status": { "inventory": { "entries": [{ "id": "odd" }] } } }),
            "'odd'",
        ),
    ] {
        let error = KustomizationView::read(&meta(1), &object).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    let history = json!({ "status": { "history": [{ "name": "shop" }] } });
    assert!(HelmReleaseView::read(&meta(1), &history).is_err());
}

#[test]
fn the_newest_entry_of_the_history_has_the_highest_version() {
    let entry = |version: i64, chart: &str| {
        json!({ "name": "shop", "namespace": "shop", "version": version, "status": "superseded",
            "chartName": "shop", "chartVersion": chart, "appVersion": "15", "configDigest": "sha256:c",
            "digest": "sha256:d", "firstDeployed": "2027-01-01T00:00:00Z" })
    };
    let object = json!({
        "spec": { "chart": { "spec": { "chart": "shop", "version": "2.x" } } },
        "status": { "storageNamespace": "shop", "history": [
            entry(9, "1.9.0"), entry(10, "2.0.0"), entry(2, "1.0.0"),
        ] },
    });
    let found = HelmReleaseView::read(&meta(1), &object).unwrap();
    let newest = found.newest.unwrap();
    assert_eq!(
        (newest.version, newest.chart_version.as_str()),
        (10, "2.0.0")
    );
    assert_eq!(newest.app_version.as_deref(), Some("15"));
    assert_eq!(found.requested.as_deref(), Some("2.x"));
    assert_eq!(found.inventory, None);
}

#[test]
fn a_chart_without_a_version_is_the_newest_one() {
    for (spec, expected) in [
        (
            json!({ "chart": { "spec": { "chart": "shop" } } }),
            Some("*"),
        ),
        (
            json!({ "chart": { "spec": { "chart": "shop", "version": "" } } }),
            Some("*"),
        ),
        (json!({ "chartRef": { "kind": "OCIRepository" } }), None),
    ] {
        let found = HelmReleaseView::read(&meta(1), &json!({ "spec": spec })).unwrap();
        assert_eq!(found.requested.as_deref(), expected, "{spec}");
    }
}

/// The table of states: suspended, generations, condition, was ready, and the expected state.
#[test]
fn the_state_of_a_flux_object() {
    #[derive(Debug, PartialEq, Eq)]
    enum Is {
        Settled,
        Suspended,
        Reconciling,
        Failed,
    }
    use Is::*;
    let none: Option<(&str, i64)> = None;
    for (is_suspended, generation, condition, was_ready, expected) in [
        (false, 2, Some(("True", -600)), false, Settled),
        // A suspended object still has Ready=True.
        (true, 2, Some(("True", -600)), true, Suspended),
        // The status is of an earlier spec.
        (false, 3, Some(("True", -600)), true, Reconciling),
        (false, 2, none, true, Reconciling),
        (false, 2, Some(("False", -5)), true, Failed),
        // An interval: a healthy application stays as it is for two minutes.
        (false, 2, Some(("Unknown", -1)), true, Settled),
        (false, 2, Some(("Unknown", -119)), true, Settled),
        (false, 2, Some(("Unknown", -120)), true, Reconciling),
        // Without evidence of an earlier success, unknown is no success.
        (false, 2, Some(("Unknown", -1)), false, Reconciling),
        // A time in the future is bounded, too.
        (false, 2, Some(("Unknown", 60)), true, Settled),
        (false, 2, Some(("Unknown", 3600)), true, Reconciling),
    ] {
        let object = FluxObject {
            generation,
            observed_generation: 2,
            is_suspended,
            ready: condition.map(|(status, since)| ReadyCondition {
                value: match status {
                    "True" => Some(true),
                    "False" => Some(false),
                    _ => None,
                },
                reason: "Reason".to_owned(),
                message: "message".to_owned(),
                since: Some(at(since)),
                generation: None,
            }),
            ..FluxObject::default()
        };
        let found = match object.state(was_ready, at(0)) {
            FluxState::Settled => Settled,
            FluxState::Suspended => Suspended,
            FluxState::Reconciling(_) => Reconciling,
            FluxState::Failed(_) => Failed,
        };
        assert_eq!(found, expected, "{object:?}, was ready: {was_ready}");
    }
}

/// The controllers of Flux set `status.observedGeneration` after a success only. The state of a spec that was never
/// applied is in the condition.
#[test]
fn a_failure_with_the_latest_spec_is_in_the_condition() {
    let later = "its latest spec is not reconciled yet";
    for (status, reason, observed, expected) in [
        (
            "False",
            "BuildFailed",
            1,
            FluxState::Failed("BuildFailed: as it is".to_owned()),
        ),
        (
            "False",
            "InstallFailed",
            1,
            FluxState::Failed("InstallFailed: as it is".to_owned()),
        ),
        // The source is fetched for the first time, or again for a new spec.
        (
            "False",
            "ArtifactFailed",
            1,
            FluxState::Reconciling("ArtifactFailed: as it is".to_owned()),
        ),
        (
            "False",
            "SourceNotReady",
            1,
            FluxState::Reconciling("SourceNotReady: as it is".to_owned()),
        ),
        // The condition is about an earlier spec, or shows no failure.
        (
            "False",
            "BuildFailed",
            0,
            FluxState::Reconciling(later.to_owned()),
        ),
        (
            "True",
            "ReconciliationSucceeded",
            1,
            FluxState::Reconciling(later.to_owned()),
        ),
        (
            "Unknown",
            "Progressing",
            1,
            FluxState::Reconciling(later.to_owned()),
        ),
    ] {
        let mut condition = ready(status, reason, -5);
        condition["observedGeneration"] = json!(observed);
        let object = json!({ "spec": {}, "status": { "observedGeneration": -1, "conditions": [condition] } });
        let found = KustomizationView::read(&meta(1), &object).unwrap();
        assert_eq!(
            found.flux.state(true, at(0)),
            expected,
            "{reason} of {observed}"
        );
    }
}
