//! The rollback that the operator creates for a failed upgrade.

use api::{
    Status,
    apps::{ROLLBACK_REQUEST, RollbackRequest, UpgradePhase, UpgradeRequest},
    decide::{Effect, Manifest},
    names,
};
use serde_json::json;

/// Returns the effect that creates the RollbackRequest of an upgrade, or `None` if it needs none.
///
/// # Guarantees
/// The stored status of the upgrade is terminal: a rollback waits for its upgrade, so an earlier one would wait for
/// itself (R34). The name depends only on the upgrade, so there is one. `existing` are the RollbackRequests of the
/// namespace; any for this upgrade counts, whoever created it.
///
/// # Caveats
/// Carry it out in the reconciliation that removes the finalizer of the upgrade. Afterwards nobody would repeat it.
#[must_use]
pub fn rollback_of(upgrade: &UpgradeRequest, existing: &[RollbackRequest]) -> Option<Effect> {
    let status = upgrade.status.as_ref()?;
    let has_failed = status.is_over() && status.phase == Some(UpgradePhase::Failed);
    let is_deleting = upgrade.metadata.deletion_timestamp.is_some();
    // Before the commit, everything is as before the upgrade.
    if !has_failed || status.commit.is_none() || is_deleting {
        return None;
    }
    let name = upgrade.metadata.name.as_deref().unwrap_or_default();
    let is_of_upgrade = |one: &RollbackRequest| one.spec.upgrade_request_ref.name == name;
    let mut existing = existing.iter().filter(|one| !one.spec.dry_run);
    if existing.any(is_of_upgrade) {
        return None;
    }
    let uid = upgrade.metadata.uid.as_deref().unwrap_or_default();
    let manifest = Manifest::new(
        ROLLBACK_REQUEST.resource,
        upgrade.metadata.namespace.as_deref(),
        &names::child(name, "-rollback"),
        uid,
        names::child_labels(api::apps::UPGRADE_REQUEST.name(), name, uid),
        json!({ "spec": { "upgradeRequestRef": { "name": name }, "dryRun": false } }),
    );
    Some(Effect::Ensure(Box::new(manifest)))
}
