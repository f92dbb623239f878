//! An Agent is ready once every object that it references exists.

use api::{
    Reason, Verdict,
    decide::{Decision, Input, ResourceType},
    tasks::{Agent, AgentPhase, AgentStatus},
};

/// API resource type of an Agent.
pub const RESOURCE: ResourceType = api::tasks::AGENT.resource;

/// Observed state of the objects that an Agent references. A field is true if the object exists or
/// is not referenced. Secrets are not read: the run reports a missing Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentWorld {
    /// Whether the ServiceAccount exists.
    pub service_account: bool,
    /// Whether the RuntimeClass exists.
    pub runtime_class: bool,
    /// Whether the PriorityClass exists.
    pub priority_class: bool,
    /// Whether the StorageClass of the workspace exists.
    pub storage_class: bool,
}

/// Decides the status of an Agent: Ready, or Pending with a message that lists every missing
/// object.
///
/// # Guarantees
/// The decision has no effects. It releases the Agent, so the Agent never gets a finalizer.
#[must_use]
pub fn decide(input: &Input<'_, Agent, AgentWorld>) -> Decision<AgentStatus> {
    let status = input.object.status.clone().unwrap_or_default();
    let missing = missing(input.object, input.world);
    let decision = if missing.is_empty() {
        let verdict = Verdict::ready("everything that the Agent names exists");
        Decision::status_only(status, AgentPhase::Ready, verdict)
    } else {
        let message = format!("missing: {}", missing.join(", "));
        let verdict = Verdict::working(Reason::DependencyNotReady, message);
        Decision::status_only(status, AgentPhase::Pending, verdict)
    };
    decision.remove_finalizer()
}

/// Returns kind and name of every referenced object that does not exist. Only a ServiceAccount has a
/// namespace: classes are cluster-scoped.
fn missing(agent: &Agent, world: &AgentWorld) -> Vec<String> {
    let AgentWorld {
        service_account,
        runtime_class,
        priority_class,
        storage_class,
    } = *world;
    let spec = &agent.spec;
    [
        (
            service_account,
            "ServiceAccount",
            Some(&spec.service_account_name),
        ),
        (
            runtime_class,
            "RuntimeClass",
            spec.runtime_class_name.as_ref(),
        ),
        (
            priority_class,
            "PriorityClass",
            spec.priority_class_name.as_ref(),
        ),
        (
            storage_class,
            "StorageClass",
            spec.workspace.storage_class_name.as_ref(),
        ),
    ]
    .into_iter()
    .filter(|(exists, _, _)| !exists)
    .filter_map(|(_, kind, name)| {
        let place = match (kind, agent.metadata.namespace.as_deref()) {
            ("ServiceAccount", Some(namespace)) => format!(" in namespace '{namespace}'"),
            (_, _) => String::new(),
        };
        name.map(|name| format!("{kind} '{name}'{place}"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use api::{State, Timestamp, decide::FinalizerAction};
    use serde_json::json;

    use super::*;

    const ALL: AgentWorld = AgentWorld {
        service_account: true,
        runtime_class: true,
        priority_class: true,
        storage_class: true,
    };

    fn decided(spec: serde_json::Value, world: AgentWorld) -> Decision<AgentStatus> {
        let agent: Agent = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
            "metadata": {"name": "writer", "namespace": "team"}, "spec": spec,
        }))
        .unwrap();
        let input = Input {
            object: &agent,
            world: &world,
            now: Timestamp::UNIX_EPOCH,
            fault: None,
            refused: false,
            confirmed: true,
            overdue: false,
        };
        decide(&input)
    }

    #[test]
    fn an_agent_names_everything_that_is_missing() {
        let full = json!({
            "image": "a", "serviceAccountName": "bot", "runtimeClassName": "sandbox",
            "priorityClassName": "low", "workspace": {"storageClassName": "fast"},
        });
        let none = AgentWorld {
            service_account: false,
            runtime_class: false,
            priority_class: false,
            storage_class: false,
        };
        let cases = [
            (ALL, vec![]),
            (
                AgentWorld {
                    runtime_class: false,
                    ..ALL
                },
                vec!["RuntimeClass 'sandbox'"],
            ),
            (
                none,
                vec![
                    "ServiceAccount 'bot' in namespace 'team'",
                    "RuntimeClass 'sandbox'",
                    "PriorityClass 'low'",
                    "StorageClass 'fast'",
                ],
            ),
        ];
        for (world, missing) in cases {
            let decision = decided(full.clone(), world);
            if missing.is_empty() {
                assert_eq!(decision.phase, AgentPhase::Ready);
                assert_eq!(decision.verdict.state, State::Ready);
            } else {
                assert_eq!(decision.phase, AgentPhase::Pending);
                assert_eq!(decision.verdict.reason, Reason::DependencyNotReady);
                assert_eq!(decision.verdict.state, State::Working);
            }
            if !missing.is_empty() {
                let message = format!("missing: {}", missing.join(", "));
                assert_eq!(decision.verdict.message, message);
            }
        }
        // An object that is not referenced cannot be missing. The ServiceAccount is always
        // referenced.
        let decision = decided(json!({"image": "a"}), none);
        assert!(
            decision
                .verdict
                .message
                .contains("ServiceAccount 'default'")
        );
        assert!(!decision.verdict.message.contains("Class"));
    }

    #[test]
    fn an_agent_is_never_held() {
        for world in [
            ALL,
            AgentWorld {
                service_account: false,
                ..ALL
            },
        ] {
            let decision = decided(json!({"image": "a"}), world);
            assert!(decision.effects.is_empty());
            assert!(
                matches!(decision.finalizer, FinalizerAction::Remove { annotations } if annotations.is_empty())
            );
        }
    }
}
