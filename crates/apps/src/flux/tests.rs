//! Objects of Flux as its controllers write them, and their states.

use api::Timestamp;
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

fn found_by(conditions: &[Value], more: Value) -> FluxObject {
    let mut status = json!({ "observedGeneration": 2, "conditions": conditions,
        "lastAppliedRevision": "main@sha1:a", "lastAttemptedRevision": "main@sha1:a" });
    for (key, value) in more.as_object().unwrap() {
        status[key.as_str()] = value.clone();
    }
    let object = json!({ "spec": {}, "status": status });
    KustomizationView::read(&meta(2), &object).unwrap().flux
}

fn condition_of(kind: &str, status: &str, reason: &str, generation: i64) -> Value {
    let mut condition = ready(status, reason, -60);
    condition["type"] = json!(kind);
    condition["observedGeneration"] = json!(generation);
    condition
}

#[derive(Debug, PartialEq, Eq)]
enum Is {
    Settled,
    Suspended,
    Deleting,
    Reconciling,
    Failed,
}

fn is(state: &FluxState) -> Is {
    match state {
        FluxState::Settled => Is::Settled,
        FluxState::Suspended => Is::Suspended,
        FluxState::Deleting => Is::Deleting,
        FluxState::Reconciling(_) => Is::Reconciling,
        FluxState::Failed(_) => Is::Failed,
    }
}

/// The table of states: suspended, generation, condition, was ready, and the expected state.
#[test]
fn the_state_of_a_flux_object() {
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
        // An interval: a healthy application stays as it is until Flux gives up.
        (false, 2, Some(("Unknown", -1)), true, Settled),
        (false, 2, Some(("Unknown", -599)), true, Settled),
        (false, 2, Some(("Unknown", -600)), true, Reconciling),
        // Without evidence of an earlier success, unknown is no success.
        (false, 2, Some(("Unknown", -1)), false, Reconciling),
        // A time in the future is bounded, too.
        (false, 2, Some(("Unknown", 60)), true, Settled),
        (false, 2, Some(("Unknown", 3600)), true, Reconciling),
        // A new success counts once the watches had time to deliver what was applied.
        (false, 2, Some(("True", -1)), false, Reconciling),
        (false, 2, Some(("True", -5)), false, Settled),
        (false, 2, Some(("True", -1)), true, Settled),
        (false, 2, Some(("True", 60)), false, Settled),
    ] {
        let object = FluxObject {
            generation,
            observed_generation: 2,
            is_suspended,
            attempt: Attempt::Applied,
            ready: condition.map(|(status, since)| FluxCondition {
                value: match status {
                    "True" => Some(true),
                    "False" => Some(false),
                    _ => None,
                },
                since: Some(at(since)),
                ..FluxCondition::default()
            }),
            ..FluxObject::default()
        };
        let found = is(&object.state(was_ready, at(0)));
        assert_eq!(found, expected, "{object:?}, was ready: {was_ready}");
        let deleted = FluxObject {
            is_deleting: true,
            ..object
        };
        assert_eq!(is(&deleted.state(was_ready, at(0))), Deleting);
    }
}

/// The table of conditions and their generations. The spec has the generation 2.
#[test]
fn a_condition_is_about_its_own_generation() {
    use Is::*;
    let of = |status: &str, reason: &str, generation: i64| {
        vec![condition_of("Ready", status, reason, generation)]
    };
    let with_stalled = |status: &str, generation: i64| {
        let mut all = of(status, "Progressing", 2);
        all.push(condition_of(
            "Stalled",
            "True",
            "RetriesExceeded",
            generation,
        ));
        all
    };
    let old = json!({ "observedGeneration": 1 });
    let current = json!({});
    for (conditions, more, expected) in [
        (of("True", "Succeeded", 2), &current, Settled),
        // Flux stores the generation of the status only after a success.
        (of("False", "BuildFailed", 2), &old, Failed),
        (of("False", "BuildFailed", 1), &old, Reconciling),
        // A write conflict advances the generation of an old condition.
        (of("True", "Succeeded", 2), &old, Reconciling),
        // A success without a new release may leave the generation of the condition.
        (of("True", "Succeeded", 1), &current, Settled),
        (of("Unknown", "Progressing", 1), &current, Reconciling),
        (of("Unknown", "Progressing", 2), &old, Reconciling),
        // Flux waits for another object.
        (of("False", "DependencyNotReady", 2), &old, Reconciling),
        (of("False", "HealthCheckCanceled", 2), &current, Reconciling),
        (of("False", "SourceNotReady", 2), &old, Reconciling),
        (of("False", "ArtifactFailed", 2), &old, Failed),
        // Flux gave up.
        (with_stalled("True", 2), &current, Failed),
        (with_stalled("Unknown", 2), &current, Failed),
        (with_stalled("True", 1), &current, Settled),
    ] {
        let object = found_by(&conditions, more.clone());
        let found = object.state(true, at(0));
        assert_eq!(is(&found), expected, "{object:?}: {found:?}");
    }
    let stalled = found_by(&with_stalled("False", 2), json!({})).state(true, at(0));
    let expected = "it is stalled: RetriesExceeded: as it is";
    assert_eq!(stalled, FluxState::Failed(expected.to_owned()));
}

/// The table of attempts of a Kustomization: its status, and the states with `Ready` True and Unknown.
#[test]
fn a_kustomization_is_judged_by_its_last_attempt() {
    use Is::*;
    let entry = |revision: &str, status: &str| {
        json!({ "digest": "sha256:1", "lastReconciledStatus": status,
            "metadata": { "revision": revision } })
    };
    let succeeded = entry("main@sha1:a", "ReconciliationSucceeded");
    for (more, expected) in [
        (json!({}), Settled),
        (json!({ "history": [succeeded] }), Settled),
        (json!({ "lastAttemptedRevision": null }), Reconciling),
        (json!({ "lastAppliedRevision": null }), Reconciling),
        (
            json!({ "lastAttemptedRevision": "main@sha1:b" }),
            Reconciling,
        ),
        (
            json!({ "lastAttemptedRevision": "main@sha1:b", "history": [succeeded] }),
            Reconciling,
        ),
        (
            json!({ "history": [entry("main@sha1:a", "HealthCheckFailed"), succeeded] }),
            Failed,
        ),
        // The revision was reverted: a part of the other one may be applied.
        (
            json!({ "history": [entry("main@sha1:b", "ReconciliationFailed"), succeeded] }),
            Reconciling,
        ),
        (
            json!({ "history": [{ "lastReconciledStatus": "ReconciliationSucceeded" }] }),
            Settled,
        ),
    ] {
        for value in ["True", "Unknown"] {
            let object = found_by(&[condition_of("Ready", value, "x", 2)], more.clone());
            let found = object.state(true, at(0));
            assert_eq!(is(&found), expected, "{value}, {more}: {found:?}");
        }
    }
    let failed = json!({ "history": [entry("main@sha1:a", "HealthCheckFailed")] });
    let found = found_by(&[condition_of("Ready", "Unknown", "x", 2)], failed);
    let text = "the last attempt of revision 'main@sha1:a': HealthCheckFailed";
    assert_eq!(found.state(true, at(0)), FluxState::Failed(text.to_owned()));
}

/// The table of attempts of a HelmRelease: changes of its spec and its status, and the state although `Ready` is True.
#[test]
fn a_helm_release_is_judged_by_its_newest_release() {
    use Is::*;
    let newest = |change: Value| {
        let mut entry = json!({ "name": "shop", "namespace": "shop", "version": 3,
            "status": "deployed", "chartVersion": "2.0.0", "configDigest": "sha256:c" });
        for (key, value) in change.as_object().unwrap() {
            entry[key.as_str()] = value.clone();
        }
        json!({ "history": [entry] })
    };
    let keeps = json!({ "upgrade": { "preserveValues": true } });
    let none = json!({});
    for (spec, change, expected) in [
        (&none, json!({}), Settled),
        (&none, json!({ "history": [] }), Reconciling),
        // `Ready` and `Released` are still those of the old version.
        (
            &none,
            json!({ "lastAttemptedRevision": "2.1.0" }),
            Reconciling,
        ),
        (&none, json!({ "lastAttemptedGeneration": 1 }), Reconciling),
        (
            &none,
            json!({ "lastAttemptedConfigDigest": "sha256:d" }),
            Reconciling,
        ),
        (
            &keeps,
            json!({ "lastAttemptedConfigDigest": "sha256:d" }),
            Settled,
        ),
        (&none, json!({ "lastAttemptedRevision": null }), Reconciling),
        (&none, newest(json!({ "status": "failed" })), Failed),
        (&none, newest(json!({ "status": "superseded" })), Failed),
        (&none, newest(json!({ "status": "uninstalled" })), Failed),
        (
            &none,
            newest(json!({ "status": "pending-upgrade" })),
            Reconciling,
        ),
        (
            &none,
            newest(json!({ "chartVersion": "1.0.0" })),
            Reconciling,
        ),
    ] {
        let mut status = newest(json!({}));
        status["observedGeneration"] = json!(2);
        status["conditions"] = json!([
            condition_of("Ready", "True", "UpgradeSucceeded", 2),
            condition_of("Released", "True", "UpgradeSucceeded", 2),
        ]);
        status["lastAttemptedGeneration"] = json!(2);
        status["lastAttemptedRevision"] = json!("2.0.0");
        status["lastAttemptedConfigDigest"] = json!("sha256:c");
        for (key, value) in change.as_object().unwrap() {
            status[key.as_str()] = value.clone();
        }
        let object = json!({ "spec": spec, "status": status });
        let found = HelmReleaseView::read(&meta(2), &object).unwrap().flux;
        let found = found.state(true, at(0));
        assert_eq!(is(&found), expected, "{spec}, {change}: {found:?}");
    }
}

/// The timeout of an upgrade counts before that of all actions.
#[test]
fn the_timeout_of_an_upgrade_is_read() {
    for (spec, expected) in [
        (json!({}), None),
        (json!({ "timeout": "5m" }), Some(300)),
        (json!({ "timeout": "1h5m0s" }), Some(3900)),
        (
            json!({ "timeout": "5m", "upgrade": { "timeout": "90s" } }),
            Some(90),
        ),
        (json!({ "timeout": "long" }), None),
    ] {
        let object = json!({ "spec": spec });
        let found = HelmReleaseView::read(&meta(1), &object).unwrap().timeout;
        let found = found.map(|timeout| timeout.as_secs());
        assert_eq!(found, expected, "{object}");
    }
}

/// The table of requests: the token in the annotation, the handled one, was ready, and the state.
#[test]
fn a_request_that_flux_has_not_handled_is_open() {
    use Is::*;
    for (requested, handled, was_ready, expected) in [
        (None, None, false, Settled),
        (Some("1"), Some("1"), false, Settled),
        (Some("2"), Some("1"), false, Reconciling),
        (Some("2"), None, false, Reconciling),
        // A request alone changes nothing in a healthy application.
        (Some("2"), Some("1"), true, Settled),
        (None, Some("1"), false, Settled),
    ] {
        let mut meta = meta(2);
        meta.annotations =
            requested.map(|token: &str| [(REQUESTED_AT.to_owned(), token.to_owned())].into());
        let object = json!({ "spec": {}, "status": { "observedGeneration": 2,
            "conditions": [condition_of("Ready", "True", "x", 2)],
            "lastAppliedRevision": "a", "lastAttemptedRevision": "a",
            "lastHandledReconcileAt": handled } });
        let found = KustomizationView::read(&meta, &object).unwrap().flux;
        let found = is(&found.state(was_ready, at(0)));
        assert_eq!(found, expected, "{requested:?}, {handled:?}, {was_ready}");
    }
}
