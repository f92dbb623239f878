//! Probe Pods: each tries some connections to check the isolation, and reports the results.

use std::collections::BTreeMap;

use api::{
    decide::{Manifest, ResourceType},
    names,
};
use serde_json::{Value, json};

use super::{BuildContext, COMPONENT, USER, container_security};

/// Value of the component label of probe Pods.
pub const PROBE: &str = "probe";
/// Annotation of a probe Pod with its connections, in the order of its report.
pub const PLAN: &str = "orchestrator.io/probe-plan";

/// Side from which a connection is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// A Pod in the Tenant's namespace.
    Inside,
    /// A Pod in the operator's namespace.
    Outside,
}

impl Side {
    /// Returns the side as a part of a name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
        }
    }
}

/// A connection to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The destination, for people.
    pub to: String,
    /// The line of the plan: `tcp ADDRESS:PORT` or `dns NAME`.
    pub how: String,
    /// Whether the connection must succeed.
    pub wanted: bool,
}

/// Returns whether a policy may restrict the egress of probe Pods in the namespace of the policy.
#[must_use]
pub fn is_bounded_by(policy: &Value) -> bool {
    let spec = &policy["spec"];
    let types = spec["policyTypes"].as_array();
    let bounds_egress = types.is_some_and(|all| all.iter().any(|one| one == "Egress"));
    let labels = spec["podSelector"]["matchLabels"].as_object();
    // A label that probe Pods do not have excludes them. Values are compared for component and kind only. A
    // selector with expressions counts as a match.
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

/// Formats a plan for the annotation of its Pod.
#[must_use]
pub fn written(plan: &[Connection]) -> String {
    let line = |one: &Connection| {
        let sign = if one.wanted { "+" } else { "-" };
        format!("{sign} {}", one.how)
    };
    plan.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the namespace of the probe Pod of a side.
#[must_use]
pub fn place(context: BuildContext<'_>, side: Side) -> String {
    match side {
        Side::Inside => context.namespace(),
        Side::Outside => context.settings.probe_namespace.clone(),
    }
}

/// Returns the name of the probe Pod of this round.
#[must_use]
pub fn name(context: BuildContext<'_>, side: Side, round: &str) -> String {
    let hash = names::hash(&[context.uid, round].join("/"));
    names::child(
        &["probe-", context.name].concat(),
        &["-", side.word(), "-", &hash].concat(),
    )
}

/// Returns the manifest of a probe Pod with this plan.
#[must_use]
pub fn pod(context: BuildContext<'_>, side: Side, round: &str, plan: &[Connection]) -> Manifest {
    let mut labels: BTreeMap<String, String> =
        names::child_labels("Tenant", context.name, context.uid);
    labels.insert(COMPONENT.to_owned(), PROBE.to_owned());
    let namespace = place(context, side);
    let plan = written(plan);
    let body = json!({
        "spec": {
            "restartPolicy": "Never",
            // A Pod that does not finish in this time verifies nothing.
            "activeDeadlineSeconds": 90,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "priorityClassName": context.settings.probe_priority_class,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": PROBE,
                "image": context.settings.probe_image,
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
        ResourceType::POD,
        Some(&namespace),
        &name(context, side, round),
        context.uid,
        labels,
        body,
    );
    manifest.body["metadata"]["annotations"][PLAN] = json!(plan);
    manifest
}
