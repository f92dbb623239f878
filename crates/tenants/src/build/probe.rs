//! The Pods that prove the isolation: each tries some connections, and tells which passed.

use std::collections::BTreeMap;

use api::{
    decide::{Manifest, ResourceType},
    names,
};
use serde_json::{Value, json};

use super::{COMPONENT, For, USER, container_security};

/// `v1` Pods.
pub const POD: ResourceType = ResourceType::new("", "v1", "Pod", "pods");
/// The component that these Pods are.
pub const PROBE: &str = "probe";
/// Annotation of such a Pod: what it tries, in the order of its report.
pub const PLAN: &str = "orchestrator.io/plan";

/// From where something is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// From a Pod of the Tenant.
    Inside,
    /// From a Pod of ours.
    Outside,
}

impl Side {
    /// In a name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
        }
    }
}

/// A connection to be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// To what, for people.
    pub to: String,
    /// What is tried: `tcp ADDRESS:PORT` or `dns NAME`.
    pub how: String,
    /// Whether it must pass.
    pub wanted: bool,
}

/// Whether a policy bounds what such a Pod may reach from where it is.
#[must_use]
pub fn is_bounded_by(policy: &Value) -> bool {
    let spec = &policy["spec"];
    let types = spec["policyTypes"].as_array();
    let bounds_egress = types.is_some_and(|all| all.iter().any(|one| one == "Egress"));
    let labels = spec["podSelector"]["matchLabels"].as_object();
    // Of the labels that all such Pods have, a rule can name only these with a value that is known; what
    // is selected by expressions may be selected.
    let may_select = labels
        .into_iter()
        .flat_map(|all| all.iter())
        .all(|(name, value)| match name.as_str() {
            COMPONENT => value == PROBE,
            names::KIND => value == "Tenant",
            names::NAME | names::UID => true,
            other => other == "app.kubernetes.io/managed-by",
        });
    bounds_egress && may_select
}

/// A plan, as its Pod carries it.
#[must_use]
pub fn written(plan: &[Connection]) -> String {
    let line = |one: &Connection| {
        let sign = if one.wanted { "+" } else { "-" };
        format!("{sign} {}", one.how)
    };
    plan.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The namespace in which a side tries.
#[must_use]
pub fn place(of: For<'_>, side: Side) -> String {
    match side {
        Side::Inside => of.namespace(),
        Side::Outside => of.settings.probe_namespace.clone(),
    }
}

/// The name of a Pod of this round.
#[must_use]
pub fn name(of: For<'_>, side: Side, round: &str) -> String {
    let word = names::hash(&[of.uid, round].join("/"));
    names::child(
        &["probe-", of.name].concat(),
        &["-", side.word(), "-", &word].concat(),
    )
}

/// A Pod that tries these.
#[must_use]
pub fn pod(of: For<'_>, side: Side, round: &str, plan: &[Connection]) -> Manifest {
    let mut labels: BTreeMap<String, String> = names::child_labels("Tenant", of.name, of.uid);
    labels.insert(COMPONENT.to_owned(), PROBE.to_owned());
    let namespace = place(of, side);
    let plan = written(plan);
    let body = json!({
        "spec": {
            "restartPolicy": "Never",
            // A Pod that does not come to its end in this time proves nothing.
            "activeDeadlineSeconds": 90,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "priorityClassName": of.settings.probe_priority_class,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": PROBE,
                "image": of.settings.probe_image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/local/bin/step", "probe"],
                "env": [
                    { "name": "PROBE_PLAN", "value": plan },
                    { "name": "PROBE_REPORT", "value": "/dev/termination-log" },
                ],
                "resources": {
                    "requests": { "cpu": "10m", "memory": "16Mi" },
                    "limits": { "cpu": "100m", "memory": "64Mi" },
                },
                "securityContext": container_security(),
            }],
        },
    });
    let mut manifest = Manifest::new(
        POD,
        Some(&namespace),
        &name(of, side, round),
        of.uid,
        labels,
        body,
    );
    manifest.body["metadata"]["annotations"][PLAN] = json!(plan);
    manifest
}
