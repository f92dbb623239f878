//! What is known of a Tenant.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Progress, Status, decide::Class};

/// What is known about a Tenant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// Where it stands, for people; programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<TenantPhase>,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The UID of its namespace: whatever becomes of the labels, it is known whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub namespace_uid: Option<String>,
    /// How its server stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_status: Option<Component>,
    /// How its Redis stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis_status: Option<Component>,
    /// What is used of what may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What was tried to prove the isolation, and how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolated>,
    /// What cannot be taken back and was announced: `delete UID` or `retain UID` of a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Until when it should run, or be gone: later it says that something is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Time>,
    /// What every kind has.
    #[serde(flatten)]
    pub progress: Progress,
}

/// How a server or a Redis stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// In one word.
    pub phase: ComponentPhase,
    /// In a sentence: what it waits for.
    pub message: String,
    /// How many are ready.
    pub ready_replicas: i32,
    /// How many are wanted.
    pub total_replicas: i32,
}

/// How a server or a Redis stands, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ComponentPhase {
    /// It is being made or changed.
    Provisioning,
    /// All that is wanted of it is ready, and its Service leads to it.
    Running,
    /// Something keeps it from that.
    Degraded,
    /// It is stopped, because the Tenant is suspended.
    Suspended,
}

/// What is used of what may be used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Used>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Used>,
    /// Volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Used>,
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Counted>,
}

/// How many there are, as the cluster counts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counted {
    /// How many count against the quota.
    pub used: String,
}

/// What is used of one thing, as the cluster counts it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    /// What is set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What may be used at most by what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// What was tried to prove the isolation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Isolated {
    /// When the Pods that try last told something. A try that told nothing does not move it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_proved_at: Option<Time>,
    /// When it is tried again, if it could not be tried at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// How, in a word: the reason of the condition `NetworkIsolated` then.
    pub result: String,
    /// Why it could not be tried at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// What the policies were when it was tried: another try follows a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<String>,
    /// Each connection that was tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tried: Vec<Attempted>,
}

/// A connection that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attempted {
    /// From where.
    pub from: String,
    /// To what.
    pub to: String,
    /// Whether it must pass; otherwise it must be refused.
    pub wanted: bool,
    /// Whether it passed; nothing if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// In the words of who tried.
    pub detail: String,
}

/// The condition types of a Tenant's own.
pub mod condition {
    /// Its namespace is there, is its own, and says so.
    pub const NAMESPACE_READY: &str = "NamespaceReady";
    /// What may be used is bounded as the spec says.
    pub const QUOTA_READY: &str = "QuotaReady";
    /// Its Redis answers.
    pub const REDIS_READY: &str = "RedisReady";
    /// Its server answers.
    pub const SERVER_READY: &str = "ServerReady";
    /// Its network policies are there, and no others.
    pub const NETWORK_POLICIES_READY: &str = "NetworkPoliciesReady";
    /// What must be refused was refused, and what must pass passed.
    pub const NETWORK_ISOLATED: &str = "NetworkIsolated";

    /// All of them with what they mean, for the docs.
    pub const MEANINGS: &[(&str, &str)] = &[
        (
            NAMESPACE_READY,
            "Its namespace is there, is this Tenant's, and says so.",
        ),
        (
            QUOTA_READY,
            "What may be used is bounded as the spec says, and the cluster counts by it.",
        ),
        (
            REDIS_READY,
            "Its Redis runs as the spec says, and its Service leads to it. Only with `redis`.",
        ),
        (
            SERVER_READY,
            "Its server runs as the spec says, and its Service leads to it. Only with `server`.",
        ),
        (
            NETWORK_POLICIES_READY,
            "Its network policies are there, and no others.",
        ),
        (
            NETWORK_ISOLATED,
            "It was tried: what must be refused was refused, and what must pass passed. `Unknown` until then.",
        ),
    ];
}

crate::phases! {
    /// Where a Tenant stands.
    pub enum TenantPhase {
        Pending: "Nothing is made yet: its namespace belongs to someone else, or it was not looked at.",
            deadline "none: it waits for the namespace, and says whose it is", undo ""
            => [Provisioning, Running, Degraded, Suspended, Failed, Terminating];
        Provisioning: "What it needs is being made or changed.",
            deadline "2 minutes: then Degraded, and it goes on", undo ""
            => [Pending, Running, Degraded, Suspended, Failed, Terminating];
        Running: "Everything that the spec asks for is there and ready.",
            deadline "none", undo ""
            => [Pending, Provisioning, Degraded, Suspended, Failed, Terminating];
        Degraded: "Something keeps it from being ready; the message names it. It goes on by itself once that is mended.",
            deadline "none: it says what is in the way", undo ""
            => [Pending, Provisioning, Running, Suspended, Failed, Terminating];
        Suspended: "Server and Redis are stopped; their data stays.",
            deadline "none", undo "scaled up again when it is resumed"
            => [Pending, Provisioning, Running, Degraded, Failed, Terminating];
        Failed: "The spec cannot be carried out; the message says what to change.",
            deadline "none: it waits for another spec", undo ""
            => [Pending, Provisioning, Running, Degraded, Suspended, Terminating];
        Terminating: "It is being deleted, by the policy that its spec names.",
            deadline "`deletion.deadline`: then Stalled with what is in the way, and it goes on", undo ""
            => [Terminating];
    }
}

impl Status for TenantStatus {
    crate::common_status!(TenantPhase, LongLived);

    const APART: &'static [&'static str] = &[condition::NETWORK_ISOLATED];

    fn has_intent(&self, intent: &str) -> bool {
        self.intent.as_deref() == Some(intent)
    }

    fn observed(&mut self, seen: Option<&Self>) {
        let nothing = Self::default();
        let seen = seen.unwrap_or(&nothing);
        self.server_status.clone_from(&seen.server_status);
        self.redis_status.clone_from(&seen.redis_status);
        self.usage.clone_from(&seen.usage);
    }

    /// What cannot be carried out, or is not known to be, is not running.
    fn phase_in_fault(&self, class: Class) -> Option<TenantPhase> {
        let going = self
            .phase
            .filter(|phase| *phase == TenantPhase::Terminating);
        Some(going.unwrap_or(match class {
            Class::Invalid | Class::Failed => TenantPhase::Failed,
            Class::Transient | Class::Conflict | Class::Denied | Class::Bug => {
                TenantPhase::Degraded
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r50_what_goes_wrong_is_a_phase() {
        let mut status = TenantStatus {
            phase: Some(TenantPhase::Running),
            ..TenantStatus::default()
        };
        for (class, phase) in [
            (Class::Invalid, TenantPhase::Failed),
            (Class::Denied, TenantPhase::Degraded),
            (Class::Transient, TenantPhase::Degraded),
            (Class::Bug, TenantPhase::Degraded),
        ] {
            assert_eq!(status.phase_in_fault(class), Some(phase), "{class:?}");
        }
        status.phase = Some(TenantPhase::Terminating);
        assert_eq!(
            status.phase_in_fault(Class::Invalid),
            Some(TenantPhase::Terminating)
        );
    }
}
