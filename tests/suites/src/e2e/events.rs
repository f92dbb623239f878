//! What the operator told in Events.

use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use testkit::suite::Env;

/// Reasons of Events that warn of nothing.
const CALM: &[&str] = &[
    "Pending",
    "Running",
    "Initializing",
    "ValidationRunning",
    "Fetching",
    "ReadingResult",
    "Succeeded",
    "Suspended",
    "Cancelled",
    "Deleting",
    "Cloning",
    "Publishing",
    "Verifying",
];

/// The operator's Events about an object.
pub(super) async fn ours(env: &Env, uid: &str) -> Result<Vec<Event>> {
    let events: Api<Event> = env.api();
    let mut all = events.list(&ListParams::default()).await?.items;
    all.retain(|event| {
        let regarding = event.regarding.as_ref();
        regarding.and_then(|object| object.uid.as_deref()) == Some(uid)
            && event.reporting_controller.as_deref() == Some("orchestrator.io/controller")
    });
    Ok(all)
}

/// The reasons of the Events about an object; each transition once.
pub(super) async fn reasons(env: &Env, uid: &str) -> Result<Vec<String>> {
    let mut reasons = Vec::new();
    for event in ours(env, uid).await? {
        ensure!(
            event.note.as_ref().is_some_and(|note| !note.is_empty()),
            "an Event without words"
        );
        ensure!(event.action.is_some(), "an Event without an action");
        let reason = event.reason.clone().unwrap_or_default();
        let wanted = if CALM.contains(&reason.as_str()) {
            "Normal"
        } else {
            "Warning"
        };
        ensure!(
            event.type_.as_deref() == Some(wanted),
            "{reason}: {:?}",
            event.type_
        );
        reasons.push(reason);
    }
    Ok(reasons)
}
