//! `RollbackRequest`: returns Git, the release and the volumes of an application to the state before one upgrade.

use kube::{CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{
    rollback_phase::RollbackPhase,
    rollback_status::{RestoreTimeouts, RollbackRequestStatus, rollback_condition},
    upgrade_phase::PLAN_TIME,
    upgrade_status::{PhaseTimeouts, upgrade_condition},
};
use crate::{
    GROUP, Status,
    decide::ResourceType,
    kinds::{Column, Content, KindRow},
    phase::describe_phases,
    pod::NamedRef,
    rules,
};

/// Rollback of one upgrade. The operator restores the snapshots of the upgrade to new volumes, reverts the version in
/// Git, and gives the claims the new volumes. The replaced volumes are retained.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "orchestrator.io",
    version = "v1alpha1",
    kind = "RollbackRequest",
    plural = "rollbackrequests",
    singular = "rollbackrequest",
    shortname = "orb",
    category = "orchestrator",
    namespaced,
    status = "RollbackRequestStatus",
    derive = "PartialEq",
    doc = "Rollback of one upgrade. The operator restores the snapshots of the upgrade to new volumes, reverts the version in Git, and gives the claims the new volumes. The replaced volumes are retained."
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::unchanging("RollbackRequest"))]
pub struct RollbackRequestSpec {
    /// UpgradeRequest to roll back, in the same namespace. It must have ended.
    pub upgrade_request_ref: NamedRef,

    /// Whether to make and report the plan only, without any change in the cluster. Default: false.
    #[serde(default)]
    pub dry_run: bool,
}

impl RollbackRequest {
    /// Returns the longest time to make the plan.
    #[must_use]
    pub fn plan_time(&self) -> std::time::Duration {
        let stored = self.status.as_ref().and_then(|status| status.plan_timeout);
        stored.map_or(PLAN_TIME, std::time::Duration::from)
    }

    /// Returns the timeouts of the plan, or the default ones before there is a plan.
    #[must_use]
    pub fn timeouts(&self) -> PhaseTimeouts {
        let plan = self.status.as_ref().and_then(|status| status.plan.as_ref());
        plan.map_or_else(PhaseTimeouts::default, |plan| plan.change.timeouts)
    }

    /// Returns the timeouts of the volumes in the plan, or the default ones before there is a plan.
    #[must_use]
    pub fn restore_timeouts(&self) -> RestoreTimeouts {
        let plan = self.status.as_ref().and_then(|status| status.plan.as_ref());
        plan.map_or_else(RestoreTimeouts::default, |plan| plan.timeouts)
    }
}

/// The row of RollbackRequests for the table of kinds.
pub const ROLLBACK_REQUEST: KindRow = KindRow {
    resource: ResourceType::new(GROUP, "v1alpha1", "RollbackRequest", "rollbackrequests"),
    crd_name: "rollbackrequests.orchestrator.io",
    singular: "rollbackrequest",
    short_name: "orb",
    listed: "rollbacks",
    aliases: &["rollback"],
    is_namespaced: true,
    lifecycle: RollbackRequestStatus::LIFECYCLE,
    columns: &[
        Column::new("Phase", Content::Text("status.phase")),
        Column::new("Reason", Content::Reason("Succeeded")),
        Column::new("From", Content::Text("status.plan.change.chart.from")),
        Column::new("To", Content::Text("status.plan.change.chart.to")),
        Column::AGE,
        Column::new("Upgrade", Content::Text("spec.upgradeRequestRef.name")).wide(),
        Column::MESSAGE,
    ],
    conditions: &[
        (
            upgrade_condition::SUSPENDED,
            "Each Flux object of the application is suspended and locked by this request, and Flux has confirmed it.",
        ),
        (
            upgrade_condition::WORKLOAD_STOPPED,
            "No Pod mounts a volume of the application, and no such volume is attached to a node.",
        ),
        (
            rollback_condition::VOLUMES_RESTORED,
            "Each volume of the application has a restored copy that is bound and not empty.",
        ),
        (
            upgrade_condition::GIT_COMMITTED,
            "The commit with the version before the upgrade is on the branch.",
        ),
        (
            rollback_condition::VOLUMES_SWAPPED,
            "Each claim of the application is bound to its restored volume.",
        ),
        (
            upgrade_condition::RECONCILED,
            "Flux has applied the version before the upgrade, and its release is deployed.",
        ),
        (
            upgrade_condition::HEALTHY,
            "The application was healthy with the version before the upgrade, without interruption.",
        ),
    ],
    epoch: RollbackRequestStatus::EPOCH,
    phases: describe_phases::<RollbackPhase>,
    derived_crd: RollbackRequest::crd,
};

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn schema() -> Value {
        let crd = ROLLBACK_REQUEST.crd();
        serde_json::to_value(&crd.spec.versions[0]).unwrap()
    }

    /// The attributes of the type must be literals, so the row repeats them.
    #[test]
    fn the_row_has_the_names_of_its_type() {
        let crd = RollbackRequest::crd();
        let (names, row) = (&crd.spec.names, ROLLBACK_REQUEST);
        assert_eq!(crd.metadata.name.as_deref(), Some(row.crd_name));
        assert_eq!(
            (&*names.kind, &*names.plural),
            (row.name(), row.resource.plural)
        );
        assert_eq!(names.singular.as_deref(), Some(row.singular));
        assert_eq!(names.short_names, Some(vec![row.short_name.to_owned()]));
        assert_eq!(crd.spec.scope, "Namespaced");
    }

    #[test]
    fn a_rollback_is_immutable_and_has_only_fields_that_decisions_read() {
        let version = schema();
        let properties = &version["schema"]["openAPIV3Schema"]["properties"];
        let spec = &properties["spec"];
        let rules = &spec["x-kubernetes-validations"];
        assert_eq!(rules[0]["rule"], "self == oldSelf", "{rules}");
        let names: Vec<&String> = spec["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["dryRun", "upgradeRequestRef"]);
        assert_eq!(spec["required"], json!(["upgradeRequestRef"]));
        assert_eq!(properties["status"]["default"]["phase"], "Pending");
    }
}
