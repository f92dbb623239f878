//! The views of UpgradeRequests and RollbackRequests.

use api::{
    Phase,
    apps::{
        RollbackRequestSpec, RollbackRequestStatus, UPGRADE_REQUEST, UpgradePlan,
        UpgradeRequestSpec, UpgradeRequestStatus,
    },
    names,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{
    annotation,
    ours::{changed, parts},
    text,
};
use crate::world::{LIST, Meta, ObjectRef, RequestView};

impl RequestView {
    /// Reads a request of this kind.
    #[must_use]
    pub fn read(kind: &str, object: &Value) -> Self {
        if kind == UPGRADE_REQUEST.name() {
            Self::of_upgrade(kind, object)
        } else {
            Self::of_rollback(kind, object)
        }
    }

    fn of_upgrade(kind: &str, object: &Value) -> Self {
        let (meta, status, spec, undecodable) =
            parts::<UpgradeRequestStatus, UpgradeRequestSpec>(object);
        let taken = status.snapshots.iter().take(LIST);
        let snapshots = taken
            .map(|one| ObjectRef::namespaced("VolumeSnapshot", &one.namespace, &one.name))
            .collect();
        let mut view = Self {
            undecodable,
            phase: status.phase.map(|phase| phase.name().to_owned()),
            snapshots,
            status: status.progress,
            ..Self::of_meta(kind, &meta)
        };
        if let Some(spec) = spec {
            view.app = text(&spec.managed_app_ref.name);
            view.to = text(&spec.target_version.to_string());
        }
        view.with_plan(status.plan.as_ref())
    }

    fn of_rollback(kind: &str, object: &Value) -> Self {
        let (meta, status, spec, undecodable) =
            parts::<RollbackRequestStatus, RollbackRequestSpec>(object);
        let mut view = Self {
            undecodable,
            phase: status.phase.map(|phase| phase.name().to_owned()),
            status: status.progress,
            ..Self::of_meta(kind, &meta)
        };
        if let Some(spec) = spec {
            view.upgrade = text(&spec.upgrade_request_ref.name);
        }
        let Some(plan) = &status.plan else {
            return view;
        };
        view.app = text(&plan.app);
        view.to = text(&plan.change.versions().to);
        view.with_plan(Some(&plan.change))
    }

    fn of_meta(kind: &str, meta: &ObjectMeta) -> Self {
        Self {
            kind: kind.to_owned(),
            meta: Meta::from(meta),
            changed: changed(meta),
            force_delete: annotation(meta, names::FORCE_DELETE) == Some("true"),
            ..Self::default()
        }
    }

    fn with_plan(self, plan: Option<&UpgradePlan>) -> Self {
        let Some(plan) = plan else { return self };
        let flux = plan.flux_objects.iter();
        let workloads = plan.workloads.iter().take(LIST);
        let volumes = plan.volumes.iter().take(LIST);
        let source = &plan.commit.source;
        let source = ObjectRef::namespaced("GitRepository", &source.namespace, &source.name);
        Self {
            flux: flux
                .map(|one| {
                    ObjectRef::namespaced(one.kind.resource().kind, &one.namespace, &one.name)
                })
                .collect(),
            workloads: workloads
                .map(|one| {
                    ObjectRef::namespaced(one.kind.resource().kind, &one.namespace, &one.name)
                })
                .collect(),
            claims: volumes
                .map(|one| ObjectRef::namespaced("PersistentVolumeClaim", &one.namespace, &one.pvc))
                .collect(),
            source: Some(source).filter(|source| !source.name.is_empty()),
            url: text(&plan.commit.url),
            branch: text(&plan.commit.branch),
            ..self
        }
    }
}
