//! `UpgradeRequest`: one upgrade of a ManagedApp, which stops its workloads and takes snapshots first.

use std::fmt;

use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    upgrade_phase::{PLAN_TIME, UpgradePhase},
    upgrade_status::{PhaseTimeouts, UpgradeRequestStatus, upgrade_condition},
};
use crate::{
    GROUP, Status,
    decide::ResourceType,
    kinds::{Column, Content, KindRow},
    phase::describe_phases,
    pod::NamedRef,
    rules,
};

/// Upgrade of a ManagedApp to another version. The operator suspends Flux, stops the workloads and takes snapshots
/// of their volumes. If a step fails, it restores the state from before.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "orchestrator.io",
    version = "v1alpha1",
    kind = "UpgradeRequest",
    plural = "upgraderequests",
    singular = "upgraderequest",
    shortname = "oup",
    category = "orchestrator",
    namespaced,
    status = "UpgradeRequestStatus",
    derive = "PartialEq",
    doc = "Upgrade of a ManagedApp to another version. The operator suspends Flux, stops the workloads and takes snapshots of their volumes. If a step fails, it restores the state from before."
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::only_approval_is_set_once())]
pub struct UpgradeRequestSpec {
    /// ManagedApp to upgrade, in the same namespace.
    pub managed_app_ref: NamedRef,

    /// Version to upgrade to.
    pub target_version: TargetVersion,

    /// Whether to upgrade without snapshots. The application keeps running, and a rollback returns only Git. Default:
    /// false.
    #[serde(default)]
    pub skip_snapshot: bool,

    /// Whether to upgrade an application that is not healthy. Default: false.
    #[serde(default)]
    pub allow_unhealthy: bool,

    /// Whether to make and report the plan only, without any change in the cluster. Default: false.
    #[serde(default)]
    pub dry_run: bool,

    /// Decision about the plan, if the ManagedApp requires one. It can be set once, by a user with permission to
    /// `approve` the ManagedApp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// Decision about the plan of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Decision.
    pub decision: ApprovalDecision,
    /// Name of the user that decided, as the API server authenticates users. An admission policy admits no other name.
    #[schemars(length(min = 1, max = 512))]
    pub by: String,
}

/// Decision about a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalDecision {
    /// The upgrade continues.
    Approved,
    /// The request ends, and nothing is changed.
    Denied,
}

/// Version of an application: of its chart, of images, or of both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::any_version())]
pub struct TargetVersion {
    /// Version of the Helm chart, such as `2.1.0`. A range is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = rules::exact_version())]
    pub chart: Option<String>,
    /// Images with their new tags. `spec.git.images` of the ManagedApp has the field of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub images: Vec<ImageTag>,
}

/// Image with its new tag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageTag {
    /// Image without a tag, as the ManagedApp names it.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,
    /// New tag, such as `1.26`. It may have a digest.
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = rules::image_tag())]
    pub tag: String,
}

impl TargetVersion {
    /// Returns this version of the chart.
    #[must_use]
    pub fn of_chart(version: &str) -> Self {
        Self {
            chart: Some(version.to_owned()),
            images: Vec::new(),
        }
    }
}

/// The version for a text: that of the chart, or the images with their tags.
impl fmt::Display for TargetVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(chart) = &self.chart {
            return out.write_str(chart);
        }
        let images = self.images.iter();
        let images = images.map(|one| format!("{}:{}", one.name, one.tag));
        out.write_str(&images.collect::<Vec<_>>().join(", "))
    }
}

impl UpgradeRequest {
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
        plan.map_or_else(PhaseTimeouts::default, |plan| plan.timeouts)
    }
}

/// The row of UpgradeRequests for the table of kinds.
pub const UPGRADE_REQUEST: KindRow = KindRow {
    resource: ResourceType::new(GROUP, "v1alpha1", "UpgradeRequest", "upgraderequests"),
    crd_name: "upgraderequests.orchestrator.io",
    singular: "upgraderequest",
    short_name: "oup",
    listed: "upgrades",
    aliases: &["upgrade"],
    is_namespaced: true,
    lifecycle: UpgradeRequestStatus::LIFECYCLE,
    columns: &[
        Column::new("Phase", Content::Text("status.phase")),
        Column::new("Reason", Content::Reason("Succeeded")),
        Column::new("From", Content::Text("status.plan.chart.from")),
        Column::new("To", Content::Text("spec.targetVersion.chart")),
        Column::AGE,
        Column::new("App", Content::Text("spec.managedAppRef.name")).wide(),
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
            upgrade_condition::SNAPSHOT_READY,
            "Each volume of the application has a snapshot that is ready and bound in both directions.",
        ),
        (
            upgrade_condition::GIT_COMMITTED,
            "The commit with the new version is on the branch.",
        ),
        (
            upgrade_condition::RECONCILED,
            "Flux has applied the new version, and its release is deployed.",
        ),
        (
            upgrade_condition::HEALTHY,
            "The application was healthy with the new version, without interruption.",
        ),
    ],
    epoch: UpgradeRequestStatus::EPOCH,
    phases: describe_phases::<UpgradePhase>,
    derived_crd: UpgradeRequest::crd,
};

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn schema() -> Value {
        let crd = UPGRADE_REQUEST.crd();
        serde_json::to_value(&crd.spec.versions[0]).unwrap()
    }

    /// The attributes of the type must be literals, so the row repeats them.
    #[test]
    fn the_row_has_the_names_of_its_type() {
        let crd = UpgradeRequest::crd();
        let (names, row) = (&crd.spec.names, UPGRADE_REQUEST);
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
    fn a_request_is_immutable_and_selectable() {
        let version = schema();
        let fields: Vec<&str> = version["selectableFields"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["jsonPath"].as_str())
            .collect();
        assert_eq!(fields, [".status.phase", ".status.reason"]);
        let properties = &version["schema"]["openAPIV3Schema"]["properties"];
        let rules = &properties["spec"]["x-kubernetes-validations"];
        let rule = rules[0]["rule"].as_str().unwrap();
        // Each field but the decision must stay as it is.
        let fields = properties["spec"]["properties"].as_object().unwrap();
        for field in fields.keys().filter(|field| *field != "approval") {
            let same = format!("self.{field} == oldSelf.{field}");
            assert!(rule.contains(&same), "{field}: {rule}");
        }
        assert!(rule.contains("!has(oldSelf.approval)"), "{rule}");
        assert_eq!(properties["status"]["default"]["phase"], "Pending");
    }

    /// The API server rejects a validation rule as too costly if its input has no bound.
    #[test]
    fn each_text_of_the_spec_has_a_bound_and_each_field_a_description() {
        fn walk(path: &str, schema: &Value) {
            // An enumeration has its own bound.
            let is_text = schema["type"] == "string" && schema["enum"].is_null();
            if is_text && path.contains(".spec") {
                assert!(schema["maxLength"].is_u64(), "{path}");
            }
            if let Some(properties) = schema["properties"].as_object() {
                for (name, property) in properties {
                    let text = property["description"].as_str().unwrap_or_default();
                    let path = format!("{path}.{name}");
                    assert!(!text.is_empty() || name == "metadata", "{path}");
                    walk(&path, property);
                }
            }
            if schema["items"].is_object() {
                walk(&format!("{path}[]"), &schema["items"]);
            }
        }
        let version = schema();
        let root = &version["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            walk(&format!(".{part}"), &root["properties"][part]);
        }
    }

    /// A field without effect would be a promise that nobody keeps (T3).
    #[test]
    fn the_spec_has_only_fields_that_decisions_read() {
        let version = schema();
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let names: Vec<&String> = spec["properties"].as_object().unwrap().keys().collect();
        assert_eq!(
            names,
            [
                "allowUnhealthy",
                "approval",
                "dryRun",
                "managedAppRef",
                "skipSnapshot",
                "targetVersion"
            ]
        );
        assert_eq!(spec["required"], json!(["managedAppRef", "targetVersion"]));
    }
}
