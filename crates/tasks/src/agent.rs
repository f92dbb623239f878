//! An Agent can be used once everything that it names exists.

use api::{
    Reason, Verdict,
    decide::{Decision, Input, NoExternal},
    tasks::{Agent, AgentPhase, AgentStatus},
};
use mutant::Mutant;

/// What was observed of the things that an Agent names. Each is true if the thing exists or is
/// not named. Secrets are not read: a missing one shows on the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentWorld {
    /// The ServiceAccount.
    pub service_account: bool,
    /// The RuntimeClass.
    pub runtime_class: bool,
    /// The PriorityClass.
    pub priority_class: bool,
    /// The StorageClass of the workspace.
    pub storage_class: bool,
}

/// Ready, or Pending with every missing thing named.
///
/// # Guarantees
/// No effects, and nothing to hold the Agent for: it never gets a finalizer.
#[must_use]
pub fn decide(input: &Input<'_, Agent, AgentWorld>) -> Decision<AgentStatus, NoExternal> {
    let status = input.object.status.clone().unwrap_or_default();
    let was_ready = status.phase == Some(AgentPhase::Ready);
    let mut missing = missing(input.object, input.world);
    if mutant::on(Mutant::ReadyForEver) && was_ready {
        missing.clear();
    }
    let decision = if missing.is_empty() {
        let verdict = Verdict::ready("everything that the Agent names exists");
        Decision::say(status, AgentPhase::Ready, verdict)
    } else {
        let namespace = input.object.metadata.namespace.as_deref().unwrap_or("");
        let message = format!(
            "missing: {}; waiting until it exists (namespace '{namespace}')",
            missing.join(", ")
        );
        let verdict = Verdict::working(Reason::DependencyNotReady, message);
        Decision::say(status, AgentPhase::Pending, verdict)
    };
    decision.release()
}

/// Kind and name of everything that the Agent names and that does not exist.
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
    .filter_map(|(_, kind, name)| name.map(|name| format!("{kind} '{name}'")))
    .collect()
}

#[cfg(test)]
mod tests {
    use api::{State, Timestamp, decide::Hold};
    use serde_json::json;

    use super::*;

    const ALL: AgentWorld = AgentWorld {
        service_account: true,
        runtime_class: true,
        priority_class: true,
        storage_class: true,
    };

    fn decided(spec: serde_json::Value, world: AgentWorld) -> Decision<AgentStatus, NoExternal> {
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
                    "ServiceAccount 'bot'",
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
            for part in missing {
                assert!(decision.verdict.message.contains(part), "{part}");
            }
        }
        // What is not named cannot be missing; a ServiceAccount always is.
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
                matches!(decision.hold, Hold::Release { annotations } if annotations.is_empty())
            );
        }
    }
}
