//! The observed state of a Tenant.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tenant::TenantSpec;
use crate::{
    CommonStatus, Status,
    decide::ErrorClass,
    phase::{Deadline, Undo},
};

/// Observed state of a Tenant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// Phase of the Tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<TenantPhase>,
    /// Name of the Tenant's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID of the Tenant's namespace. It identifies the namespace even if someone changes its
    /// labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub namespace_uid: Option<String>,
    /// State of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_status: Option<Component>,
    /// State of the Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis_status: Option<Component>,
    /// Usage of the namespace that counts against its quotas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Last isolation check: its connections and its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolated>,
    /// Announced step that cannot be undone: `delete UID` or `retain UID` of a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Fields that every kind has.
    #[serde(flatten)]
    pub progress: CommonStatus,
}

/// State of a server or a Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Phase of the server or Redis.
    pub phase: ComponentPhase,
    /// One sentence about the state, such as the cause of a wait.
    pub message: String,
    /// Number of replicas that are ready.
    pub ready_replicas: i32,
    /// Number of desired replicas.
    pub total_replicas: i32,
}

/// Phase of a server or a Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ComponentPhase {
    /// Being created or changed.
    Provisioning,
    /// All desired replicas are ready, and the Service has a ready endpoint.
    Running,
    /// Something prevents it from running.
    Degraded,
    /// Stopped, because the Tenant is suspended.
    Suspended,
}

/// Usage of a namespace that counts against its quotas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Total CPU requests and limits of all unfinished Pods, in cores, without the probe Pods. Only
    /// values that `spec.resources` limits are reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Used>,
    /// Total memory requests and limits of all unfinished Pods, in bytes, without the probe Pods.
    /// Only values that `spec.resources` limits are reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Used>,
    /// Total size that all volumes request, in bytes. Present only if
    /// `spec.resources.storage.total` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Used>,
    /// Number of unfinished Pods, without the probe Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Counted>,
}

/// Number of objects, as the cluster counts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counted {
    /// Number of objects that count against the quota.
    pub used: String,
}

/// Usage of one resource, as the cluster counts it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    /// Total of all requests, as a quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Total of all limits, as a quantity. Never set for storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// Result of an isolation check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Isolated {
    /// Time of the last completed check. A check with the result `IsolationCheckFailed` does not change it,
    /// even if one probe Pod reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_proved_at: Option<Time>,
    /// Time of the next check, present if the last check could not be completed (`IsolationCheckFailed`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// Result of the check: the reason of the condition `NetworkIsolated` at that time.
    pub result: String,
    /// Cause, present if the connections could not be tried at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Hash of the checked policies, of the server's port and of whether there is a Redis. A change
    /// leads to another check. Absent if a policy of someone else, or one left by an earlier
    /// Tenant, made the result invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<String>,
    /// Connections that were tried, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub connections: Vec<CheckedConnection>,
}

/// Connection that an isolation check tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckedConnection {
    /// Source of the connection.
    pub from: String,
    /// Target of the connection.
    pub to: String,
    /// Expected result: `Allowed` if the connection must succeed, `Blocked` if it must not.
    pub expected: ExpectedResult,
    /// Observed result: `Allowed`, `Blocked`, or `Unknown` if the probe Pod reported none.
    pub observed: ObservedResult,
    /// Details of the result, as the probe Pod reported them, or the reason why it reported
    /// nothing.
    pub detail: String,
}

impl CheckedConnection {
    /// Returns whether the observed result is known, and is the expected one.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        match self.expected {
            ExpectedResult::Allowed => self.observed == ObservedResult::Allowed,
            ExpectedResult::Blocked => self.observed == ObservedResult::Blocked,
        }
    }

    /// Returns whether the observed result is known, and is not the expected one.
    #[must_use]
    pub fn is_unexpected(&self) -> bool {
        self.observed != ObservedResult::Unknown && !self.is_as_expected()
    }
}

/// Expected result of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExpectedResult {
    /// The connection must succeed.
    Allowed,
    /// The connection must be blocked.
    Blocked,
}

/// Observed result of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ObservedResult {
    /// The connection succeeded.
    Allowed,
    /// The connection did not succeed.
    Blocked,
    /// The probe Pod did not report a result.
    Unknown,
}

/// The condition types that only Tenants have.
pub mod condition {
    /// The namespace exists, belongs to this Tenant, and has its labels.
    pub const NAMESPACE_READY: &str = "NamespaceReady";
    /// The quotas and limits of the spec are in effect.
    pub const QUOTA_READY: &str = "QuotaReady";
    /// The Redis responds.
    pub const REDIS_READY: &str = "RedisReady";
    /// The server responds.
    pub const SERVER_READY: &str = "ServerReady";
    /// The network policies of this Tenant exist, and no others.
    pub const NETWORK_POLICIES_READY: &str = "NetworkPoliciesReady";
    /// All connections that must be blocked were blocked, and all that must succeed succeeded.
    pub const NETWORK_ISOLATED: &str = "NetworkIsolated";

    /// All of them with their meanings, for the docs.
    pub const MEANINGS: &[(&str, &str)] = &[
        (
            NAMESPACE_READY,
            "Its namespace exists, is owned by this Tenant, and has the Tenant's labels.",
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
            "Its network policies exist, and no others.",
        ),
        (
            NETWORK_ISOLATED,
            "It was tried: what must be refused was refused, and what must pass passed. `Unknown` until then.",
        ),
    ];
}

/// Time without being ready after which a Tenant is `Degraded`, even without a known cause.
const PROVISION_TIME: Duration = Duration::from_secs(120);

crate::phases! {
    /// Phase of a Tenant, for people. Programs should read the conditions.
    pub enum TenantPhase for TenantSpec {
        Pending: "Nothing is made yet: its namespace belongs to someone else, or it was not looked at.",
            deadline Deadline::none("it waits for the namespace, and the message names its owner"),
            undo Undo::None
            => [Provisioning, Running, Degraded, Suspended, Failed, Terminating];
        Provisioning: "What it needs is being made or changed.",
            deadline Deadline::after("2 minutes", |_: &TenantSpec| PROVISION_TIME, TenantPhase::Degraded),
            undo Undo::None
            => [Pending, Running, Degraded, Suspended, Failed, Terminating];
        Running: "Everything that the spec requests exists and is ready.",
            deadline Deadline::none(""), undo Undo::None
            => [Pending, Provisioning, Degraded, Suspended, Failed, Terminating];
        Degraded: "Something keeps it from being ready; the message names it. It continues automatically once that is fixed.",
            deadline Deadline::none("the message names the blocker"), undo Undo::None
            => [Pending, Provisioning, Running, Suspended, Failed, Terminating];
        Suspended: "Server and Redis are stopped; their data stays.",
            deadline Deadline::none("it waits until it is resumed"),
            undo Undo::Within("scaled up again when it is resumed")
            => [Pending, Provisioning, Running, Degraded, Failed, Terminating];
        Failed: "The spec cannot be carried out; the message says what to change.",
            deadline Deadline::none("it waits for another spec"), undo Undo::None
            => [Pending, Provisioning, Running, Degraded, Suspended, Terminating];
        Terminating: "It is being deleted, by the policy that its spec names.",
            deadline Deadline::after("`deletion.deadline`, from the deletion", |spec: &TenantSpec| spec.deletion.deadline.into(), TenantPhase::Terminating),
            undo Undo::None => [Terminating];
    }
}

impl Status for TenantStatus {
    crate::common_status!(TenantPhase, LongLived);

    const INDEPENDENT_CONDITIONS: &'static [&'static str] = &[condition::NETWORK_ISOLATED];

    fn has_intent(&self, intent: &str) -> bool {
        self.intent.as_deref() == Some(intent)
    }

    fn has_children(&self) -> bool {
        self.namespace_uid.is_some()
    }

    fn observed(&mut self, seen: Option<&Self>) {
        let nothing = Self::default();
        let seen = seen.unwrap_or(&nothing);
        self.server_status.clone_from(&seen.server_status);
        self.redis_status.clone_from(&seen.redis_status);
        self.usage.clone_from(&seen.usage);
    }

    /// Returns `Failed` or `Degraded`, unless the Tenant is `Terminating`. While its spec cannot be
    /// applied, or nobody knows whether it was applied, the Tenant is not running.
    fn phase_in_fault(&self, class: ErrorClass) -> Option<TenantPhase> {
        let going = self
            .phase
            .filter(|phase| *phase == TenantPhase::Terminating);
        Some(going.unwrap_or(match class {
            ErrorClass::Invalid | ErrorClass::Failed => TenantPhase::Failed,
            ErrorClass::Transient | ErrorClass::Conflict | ErrorClass::Denied | ErrorClass::Bug => {
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
            (ErrorClass::Invalid, TenantPhase::Failed),
            (ErrorClass::Denied, TenantPhase::Degraded),
            (ErrorClass::Transient, TenantPhase::Degraded),
            (ErrorClass::Bug, TenantPhase::Degraded),
        ] {
            assert_eq!(status.phase_in_fault(class), Some(phase), "{class:?}");
        }
        status.phase = Some(TenantPhase::Terminating);
        assert_eq!(
            status.phase_in_fault(ErrorClass::Invalid),
            Some(TenantPhase::Terminating)
        );
    }
}
