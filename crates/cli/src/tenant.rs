//! The state of a Tenant, read from its status.

use api::{
    Phase, Reason,
    status::condition::{READY, STALLED},
    tenants::{Tenant, TenantPhase, TenantStatus, condition::NETWORK_ISOLATED},
};

use crate::{text::Tone, view::Standing};

/// Returns the status for the latest spec, or `None` before the operator reconciled that spec.
fn current(tenant: &Tenant) -> Option<&TenantStatus> {
    let status = tenant.status.as_ref()?;
    let generation = tenant.metadata.generation.unwrap_or_default();
    (status.progress.observed_generation >= generation).then_some(status)
}

/// Returns whether the Tenant is ready for its latest spec.
pub(crate) fn is_ready(tenant: &Tenant) -> bool {
    tenant.metadata.deletion_timestamp.is_none()
        && current(tenant).is_some_and(|status| status.progress.is_true(READY))
}

/// Returns whether the latest spec cannot be applied.
pub(crate) fn is_failed(tenant: &Tenant) -> bool {
    current(tenant).is_some_and(|status| status.phase == Some(TenantPhase::Failed))
}

/// Returns the state of the Tenant for printing. A running Tenant that is not isolated is shown as
/// a problem.
pub(crate) fn standing(tenant: &Tenant) -> Standing {
    let Some(status) = &tenant.status else {
        return Standing::new("○", "no status yet", Tone::Waiting);
    };
    let phase = status.phase.unwrap_or(TenantPhase::Pending);
    let name = phase.name();
    if tenant.metadata.deletion_timestamp.is_some() && phase != TenantPhase::Terminating {
        return Standing::new("!", format!("{name} (being deleted)"), Tone::Waiting);
    }
    let reason = status.progress.condition(READY);
    let reason = reason.map_or("", |known| known.reason.as_str());
    let is_plain = ["", "Ready", Reason::Progressing.name(), name].contains(&reason);
    let words = match (is_plain, status.progress.is_true(STALLED)) {
        (true, _) => name.to_owned(),
        (false, false) => format!("{name} ({reason})"),
        (false, true) => format!("{name} ({reason}), stalled"),
    };
    let isolated = status.progress.condition(NETWORK_ISOLATED);
    match phase {
        TenantPhase::Running => match isolated.map(|known| known.status.as_str()) {
            Some("True") => Standing::new("✓", format!("{words}, isolated"), Tone::Good),
            Some("False") => Standing::new("!", format!("{words}, not isolated"), Tone::Bad),
            Some(_) | None => Standing::new(
                "✓",
                format!("{words}, not proven to be isolated"),
                Tone::Waiting,
            ),
        },
        TenantPhase::Pending | TenantPhase::Provisioning => {
            Standing::new("○", words, Tone::Waiting)
        }
        TenantPhase::Degraded => Standing::new("!", words, Tone::Bad),
        TenantPhase::Failed => Standing::new("✗", words, Tone::Bad),
        TenantPhase::Suspended => Standing::new("‖", words, Tone::Waiting),
        TenantPhase::Terminating => Standing::new("⊘", words, Tone::Waiting),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::run::tests::condition;

    /// Builds a Tenant with a status like the operator's.
    pub(crate) fn a_tenant(generation: i64, status: &Value) -> Tenant {
        serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "Tenant",
            "metadata": { "name": "acme", "uid": "u-3", "generation": generation,
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "deletion": { "policy": "Retain" }, "owners": [{ "kind": "User", "name": "ann" }],
                "server": { "image": "shop:2", "replicas": 2 },
                "redis": { "image": "redis:7", "storage": { "size": "1Gi" } } },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn tenants_stand_as_their_status_says() {
        let status = |phase: &str, conditions: Value| json!({ "phase": phase, "observedGeneration": 1, "conditions": conditions });
        let ready = || condition("Ready", "True", "Ready");
        let isolated = |value, reason| condition("NetworkIsolated", value, reason);
        let taken = json!([
            condition("Ready", "False", "NamespaceTaken"),
            condition("Stalled", "True", "NamespaceTaken")
        ]);
        let cases = [
            (
                status("Running", json!([ready(), isolated("True", "Isolated")])),
                "✓ Running, isolated",
            ),
            (
                status(
                    "Running",
                    json!([ready(), isolated("False", "PolicyNotEnforced")]),
                ),
                "! Running, not isolated",
            ),
            (
                status(
                    "Running",
                    json!([ready(), isolated("Unknown", "ProbesDisabled")]),
                ),
                "✓ Running, not proven to be isolated",
            ),
            (
                status("Pending", taken),
                "○ Pending (NamespaceTaken), stalled",
            ),
            (
                status(
                    "Degraded",
                    json!([condition("Ready", "False", "CrashLoop")]),
                ),
                "! Degraded (CrashLoop)",
            ),
            (
                status(
                    "Suspended",
                    json!([condition("Ready", "False", "Suspended")]),
                ),
                "‖ Suspended",
            ),
        ];
        for (status, wanted) in cases {
            assert_eq!(standing(&a_tenant(1, &status)).text(), wanted);
        }
    }

    #[test]
    fn a_status_of_an_earlier_spec_says_nothing_of_this_one() {
        let status = json!({ "phase": "Running", "observedGeneration": 1,
            "conditions": [condition("Ready", "True", "Ready")] });
        assert!(is_ready(&a_tenant(1, &status)));
        assert!(!is_ready(&a_tenant(2, &status)));
        let failed = json!({ "phase": "Failed", "observedGeneration": 1 });
        assert!(is_failed(&a_tenant(1, &failed)) && !is_failed(&a_tenant(2, &failed)));
    }
}
