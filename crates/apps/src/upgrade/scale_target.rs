//! Workloads as an upgrade stops them, and the Pods that mount the volumes of an application.

use std::collections::BTreeSet;

use api::{
    apps::{PlannedName, PlannedWorkload, ScalableKind},
    decide::{Effect, Target},
    names,
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        batch::v1::CronJob,
        core::v1::{Pod, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use pods::Rollout;
use serde_json::json;

use super::flux_target::managers;
use crate::{pod::Controller, volumes::Mounts};

/// A workload, reduced to the fields that an upgrade reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleTarget {
    /// Kind.
    pub kind: ScalableKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub version: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Scale of the workload.
    pub scale: Scale,
    /// Hash of the Pod spec in the template of a Deployment or a StatefulSet.
    pub template: Option<String>,
    /// Whether a StatefulSet deletes its claims when it is scaled down.
    pub deletes_claims: bool,
    /// Whether the workload is being deleted.
    pub is_deleting: bool,
    /// Managers of the scale beside the operator, from a live read, for messages.
    pub scale_managers: Vec<String>,
}

/// Scale of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// A number of replicas.
    Replicas {
        /// Number of desired replicas.
        desired: i32,
        /// Number of existing replicas.
        current: i32,
        /// Generation that its controller has observed.
        observed: i64,
    },
    /// A CronJob: value of `spec.suspend`, if it is set.
    Schedule {
        /// Value of `spec.suspend`.
        suspend: Option<bool>,
    },
}

impl ScaleTarget {
    fn new(kind: ScalableKind, meta: &ObjectMeta, scale: Scale) -> Self {
        let field = match kind {
            ScalableKind::Deployment | ScalableKind::StatefulSet => "f:replicas",
            ScalableKind::CronJob => "f:suspend",
        };
        Self {
            kind,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            scale,
            template: None,
            deletes_claims: false,
            is_deleting: meta.deletion_timestamp.is_some(),
            scale_managers: managers(meta, &["f:spec", field], |_| true),
        }
    }

    /// Returns kind, namespace and name.
    #[must_use]
    pub fn id(&self) -> PlannedName {
        PlannedName::new(self.kind.resource().kind, &self.namespace, &self.name)
    }

    /// Returns whether its spec requests no Pods.
    #[must_use]
    pub fn is_at_zero(&self) -> bool {
        match self.scale {
            Scale::Replicas { desired, .. } => desired == 0,
            Scale::Schedule { suspend } => suspend == Some(true),
        }
    }

    /// Returns whether its controller has observed the spec at zero, and no replica is left. `spec.replicas: 0` alone
    /// stops nothing.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        match self.scale {
            Scale::Replicas {
                desired,
                current,
                observed,
            } => desired == 0 && current == 0 && observed >= self.generation,
            Scale::Schedule { suspend } => suspend == Some(true),
        }
    }

    /// Returns the state before an upgrade.
    #[must_use]
    pub fn planned(&self, in_inventory: bool) -> PlannedWorkload {
        let (replicas, suspend) = match self.scale {
            Scale::Replicas { desired, .. } => (Some(desired), None),
            Scale::Schedule { suspend } => (None, suspend),
        };
        PlannedWorkload {
            kind: self.kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            replicas,
            suspend,
            template: self.template.clone(),
            in_inventory,
        }
    }

    /// Returns whether the Pod spec in the template is another one than in the plan, so that its Pods are those of another
    /// version.
    #[must_use]
    pub fn has_other_template(&self, planned: &PlannedWorkload) -> bool {
        match (&self.template, &planned.template) {
            (Some(now), Some(before)) => now != before,
            (Some(_) | None, None) | (None, Some(_)) => false,
        }
    }

    /// Returns whether the workload is at zero, and was not at zero in the plan.
    #[must_use]
    pub fn needs_restore(&self, planned: &PlannedWorkload) -> bool {
        let was_at_zero = match planned.kind {
            ScalableKind::Deployment | ScalableKind::StatefulSet => {
                planned.replicas.is_none_or(|replicas| replicas == 0)
            }
            ScalableKind::CronJob => planned.suspend == Some(true),
        };
        self.is_at_zero() && !was_at_zero
    }

    /// Returns the effect that stops the workload.
    #[must_use]
    pub fn stop(&self) -> Effect {
        match self.scale {
            Scale::Replicas { .. } => self.patch(Some("scale"), json!({ "replicas": 0 })),
            Scale::Schedule { .. } => self.patch(None, json!({ "suspend": true })),
        }
    }

    /// Returns the effect that restores the scale of the plan.
    #[must_use]
    pub fn restore(&self, planned: &PlannedWorkload) -> Effect {
        match self.scale {
            Scale::Replicas { .. } => {
                self.patch(Some("scale"), json!({ "replicas": planned.replicas }))
            }
            Scale::Schedule { .. } => self.patch(None, json!({ "suspend": planned.suspend })),
        }
    }

    fn patch(&self, subresource: Option<&'static str>, spec: serde_json::Value) -> Effect {
        Effect::Patch {
            target: Target {
                resource: self.kind.resource(),
                namespace: Some(self.namespace.clone()),
                name: self.name.clone(),
                uid: self.uid.clone(),
                // A write that was delayed must not undo a later one.
                version: Some(self.version.clone()),
                requires_intent: None,
                optional: false,
            },
            subresource,
            patch: json!({ "spec": spec }),
        }
    }

    /// Formats the scale, for messages and evidence.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.scale {
            Scale::Replicas { desired: 1, .. } => "1 replica".to_owned(),
            Scale::Replicas { desired, .. } => format!("{desired} replicas"),
            Scale::Schedule {
                suspend: Some(true),
            } => "suspended".to_owned(),
            Scale::Schedule { .. } => "not suspended".to_owned(),
        }
    }
}

impl From<&Deployment> for ScaleTarget {
    fn from(deployment: &Deployment) -> Self {
        let rollout = Rollout::from(deployment);
        let spec = deployment.spec.as_ref();
        Self {
            template: spec.and_then(|spec| template(&spec.template)),
            ..Self::new(
                ScalableKind::Deployment,
                &deployment.metadata,
                replicas(&rollout),
            )
        }
    }
}

impl From<&StatefulSet> for ScaleTarget {
    fn from(set: &StatefulSet) -> Self {
        let rollout = Rollout::from(set);
        let policy = set.spec.as_ref().and_then(|spec| {
            let policy = spec.persistent_volume_claim_retention_policy.as_ref()?;
            policy.when_scaled.as_deref()
        });
        let spec = set.spec.as_ref();
        Self {
            template: spec.and_then(|spec| template(&spec.template)),
            deletes_claims: policy == Some("Delete"),
            ..Self::new(ScalableKind::StatefulSet, &set.metadata, replicas(&rollout))
        }
    }
}

impl From<&CronJob> for ScaleTarget {
    fn from(job: &CronJob) -> Self {
        let suspend = job.spec.as_ref().and_then(|spec| spec.suspend);
        Self::new(
            ScalableKind::CronJob,
            &job.metadata,
            Scale::Schedule { suspend },
        )
    }
}

/// Returns the hash of the Pod spec in a template. Annotations do not count: a restart of a rollout changes them.
fn template(template: &PodTemplateSpec) -> Option<String> {
    match serde_json::to_string(template.spec.as_ref()?) {
        Ok(text) => Some(names::hash(&text)),
        // Without a hash, nothing shows another version, and the workload waits for the end of the upgrade.
        Err(_) => None,
    }
}

fn replicas(rollout: &Rollout) -> Scale {
    Scale::Replicas {
        desired: rollout.wanted,
        current: rollout.replicas,
        observed: rollout.observed,
    }
}

/// A Pod that mounts a claim, reduced to the fields that an upgrade reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountingPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Node.
    pub node: Option<String>,
    /// Whether all of its containers have ended for good. A Pod in deletion may still be running.
    pub is_terminated: bool,
    /// Whether the Pod is being deleted.
    pub is_deleting: bool,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// The controller of the Pod.
    pub owner: Option<Controller>,
    /// Names of the claims that it mounts.
    pub claims: BTreeSet<String>,
}

impl From<&Pod> for MountingPod {
    fn from(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            node: spec.and_then(|spec| spec.node_name.clone()),
            is_terminated: matches!(phase, Some("Succeeded" | "Failed")),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
            finalizers: pod.metadata.finalizers.clone().unwrap_or_default(),
            owner: Controller::of(&pod.metadata),
            claims: spec.map(Mounts::from).unwrap_or_default().claims,
        }
    }
}

impl MountingPod {
    /// Formats the Pod with its node and its finalizers, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self {
            namespace, name, ..
        } = self;
        let node = self.node.iter().map(|node| format!(" on node '{node}'"));
        let node: String = node.collect();
        let state = match (self.is_deleting, self.finalizers.as_slice()) {
            (true, []) => " is being deleted".to_owned(),
            (true, finalizers) => format!(
                " is being deleted and has the finalizers '{}'",
                finalizers.join("', '")
            ),
            (false, _) => " is running".to_owned(),
        };
        format!("Pod '{namespace}/{name}'{node}{state}")
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{
        StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
    };

    use super::*;

    fn target(kind: ScalableKind, scale: Scale) -> ScaleTarget {
        let meta = ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some("db".to_owned()),
            uid: Some("uid".to_owned()),
            resource_version: Some("7".to_owned()),
            generation: Some(2),
            ..ObjectMeta::default()
        };
        ScaleTarget::new(kind, &meta, scale)
    }

    fn scaled(desired: i32, current: i32, observed: i64) -> ScaleTarget {
        let scale = Scale::Replicas {
            desired,
            current,
            observed,
        };
        target(ScalableKind::Deployment, scale)
    }

    /// False success "ScaleDown": `spec.replicas: 0` with Pods.
    #[test]
    fn a_workload_is_stopped_when_its_controller_has_no_replica_left() {
        for (desired, current, observed, expected) in [
            (0, 0, 2, true),
            (0, 0, 3, true),
            // Its controller has not observed the spec yet.
            (0, 0, 1, false),
            (0, 1, 2, false),
            (1, 0, 2, false),
        ] {
            let found = scaled(desired, current, observed);
            assert_eq!(found.is_stopped(), expected, "{found:?}");
        }
    }

    /// R36: the replica counts are those of the plan, and a workload that was at zero stays there.
    #[test]
    fn r36_exactly_the_recorded_scale_is_restored() {
        for (before, now, expected) in [
            (3, 0, Some(3)),
            (1, 0, Some(1)),
            (0, 0, None),
            // Someone else scaled it since.
            (3, 2, None),
        ] {
            let planned = scaled(before, before, 2).planned(true);
            let live = scaled(now, now, 2);
            assert_eq!(
                live.needs_restore(&planned),
                expected.is_some(),
                "{before}, {now}"
            );
            if let Some(expected) = expected {
                let Effect::Patch {
                    target,
                    subresource,
                    patch,
                } = live.restore(&planned)
                else {
                    panic!("no patch");
                };
                assert_eq!(patch, json!({ "spec": { "replicas": expected } }));
                assert_eq!(subresource, Some("scale"));
                assert_eq!(
                    (&*target.uid, target.version.as_deref()),
                    ("uid", Some("7"))
                );
            }
        }
    }

    #[test]
    fn a_cron_job_gets_exactly_its_former_suspension() {
        let job = |suspend| target(ScalableKind::CronJob, Scale::Schedule { suspend });
        for (before, patch) in [
            (None, Some(json!({ "spec": { "suspend": null } }))),
            (Some(false), Some(json!({ "spec": { "suspend": false } }))),
            (Some(true), None),
        ] {
            let planned = job(before).planned(true);
            let live = job(Some(true));
            assert_eq!(live.needs_restore(&planned), patch.is_some(), "{before:?}");
            if let Some(patch) = patch {
                let Effect::Patch {
                    patch: found,
                    subresource,
                    ..
                } = live.restore(&planned)
                else {
                    panic!("no patch");
                };
                assert_eq!((found, subresource), (patch, None));
            }
        }
    }

    /// Pitfall 7: scaling down would delete the data.
    #[test]
    fn a_set_that_deletes_its_claims_is_recognized() {
        for (when_scaled, expected) in [
            (None, false),
            (Some("Retain"), false),
            (Some("Delete"), true),
        ] {
            let set = StatefulSet {
                spec: Some(StatefulSetSpec {
                    persistent_volume_claim_retention_policy: Some(
                        StatefulSetPersistentVolumeClaimRetentionPolicy {
                            when_scaled: when_scaled.map(str::to_owned),
                            ..StatefulSetPersistentVolumeClaimRetentionPolicy::default()
                        },
                    ),
                    ..StatefulSetSpec::default()
                }),
                ..StatefulSet::default()
            };
            assert_eq!(ScaleTarget::from(&set).deletes_claims, expected);
        }
    }

    /// Pitfall 4: a workload at zero may start as soon as its template is that of the new version.
    #[test]
    fn another_pod_spec_is_another_version() {
        let deployment = |image: &str, annotation: &str| -> ScaleTarget {
            let object: Deployment = serde_json::from_value(json!({
                "metadata": { "namespace": "shop", "name": "db" },
                "spec": {
                    "selector": {},
                    "template": {
                        "metadata": { "annotations": { "restarted": annotation } },
                        "spec": { "containers": [{ "name": "db", "image": image }] },
                    },
                },
            }))
            .unwrap();
            ScaleTarget::from(&object)
        };
        let planned = deployment("db:1", "").planned(true);
        assert!(planned.template.is_some());
        // Columns: image, annotation of the template, whether it is another version.
        for (image, annotation, expected) in [
            ("db:1", "", false),
            ("db:1", "2030-01-01", false),
            ("db:2", "", true),
        ] {
            let live = deployment(image, annotation);
            assert_eq!(live.has_other_template(&planned), expected, "{image}");
        }
        // Without a hash in the plan, nothing shows another version.
        let unknown = PlannedWorkload {
            template: None,
            ..planned
        };
        assert!(!deployment("db:2", "").has_other_template(&unknown));
    }

    #[test]
    fn a_pod_is_named_with_its_node_and_its_finalizers() {
        let mut pod = MountingPod {
            namespace: "shop".to_owned(),
            name: "db-0".to_owned(),
            node: Some("node-1".to_owned()),
            ..MountingPod::default()
        };
        assert_eq!(
            pod.describe(),
            "Pod 'shop/db-0' on node 'node-1' is running"
        );
        pod.is_deleting = true;
        pod.finalizers = vec!["a/b".to_owned()];
        assert_eq!(
            pod.describe(),
            "Pod 'shop/db-0' on node 'node-1' is being deleted and has the finalizers 'a/b'"
        );
    }
}
