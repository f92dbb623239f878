//! The timeouts that the author of a ManagedApp may set.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{rollback_status::RestoreTimeouts, upgrade_status::PhaseTimeouts};
use crate::{Duration, rules};

/// Timeouts of the phases of upgrades and rollbacks. Each is from 10 seconds to 24 hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeoutSettings {
    /// Longest time to make the plan of a request. Default: 2m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub plan: Option<Duration>,
    /// Longest time until Flux confirms that it is suspended. Default: 2m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub suspend: Option<Duration>,
    /// Longest time until all workloads are stopped and all volumes are free. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub scale_down: Option<Duration>,
    /// Longest time without progress of a snapshot. Default: 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub snapshot: Option<Duration>,
    /// Longest time of one attempt to push the commit of an upgrade. Default: 2m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub git_commit: Option<Duration>,
    /// Longest time until Flux has applied a version. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub reconcile: Option<Duration>,
    /// Longest time until the application is healthy. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub health_check: Option<Duration>,
    /// Longest time without progress of the restore of a volume. Default: 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub volume_restore: Option<Duration>,
    /// Longest time of one attempt to push the commit of a rollback. Default: 2m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub git_revert: Option<Duration>,
    /// Time after which a rollback reports what blocks the swap of its volumes. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub volume_swap: Option<Duration>,
    /// Time after which a request reports what blocks its undo. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub undo: Option<Duration>,
    /// Longest time for all snapshots, or for all restores, with progress or without. Default: 6h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("10s", "24h"))]
    pub volume_cap: Option<Duration>,
}

/// Health of an application after an upgrade or a rollback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheckSettings {
    /// Time for which the application must be healthy without interruption. Default: 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rules::duration("0s", "10m"))]
    pub stable_for: Option<Duration>,
}

impl TimeoutSettings {
    /// Returns the timeouts of an upgrade.
    #[must_use]
    pub fn of_upgrade(&self, health: &HealthCheckSettings) -> PhaseTimeouts {
        let default = PhaseTimeouts::default();
        PhaseTimeouts {
            suspend: self.suspend.unwrap_or(default.suspend),
            scale_down: self.scale_down.unwrap_or(default.scale_down),
            snapshot: self.snapshot.unwrap_or(default.snapshot),
            volume_cap: self.volume_cap.unwrap_or(default.volume_cap),
            git_commit: self.git_commit.unwrap_or(default.git_commit),
            reconcile: self.reconcile.unwrap_or(default.reconcile),
            health_check: self.health_check.unwrap_or(default.health_check),
            stable_for: health.stable_for.unwrap_or(default.stable_for),
            undo: self.undo.unwrap_or(default.undo),
        }
    }

    /// Returns the timeouts of the phases that a rollback shares with an upgrade.
    #[must_use]
    pub fn of_rollback(&self, health: &HealthCheckSettings) -> PhaseTimeouts {
        PhaseTimeouts {
            git_commit: self
                .git_revert
                .unwrap_or(PhaseTimeouts::default().git_commit),
            ..self.of_upgrade(health)
        }
    }

    /// Returns the timeouts of the phases about volumes.
    #[must_use]
    pub fn of_volumes(&self) -> RestoreTimeouts {
        let default = RestoreTimeouts::default();
        RestoreTimeouts {
            volume_restore: self.volume_restore.unwrap_or(default.volume_restore),
            volume_swap: self.volume_swap.unwrap_or(default.volume_swap),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        std::time::Duration::from_secs(seconds).into()
    }

    /// S1.12: each timeout of the spec replaces its default, and only this one.
    #[test]
    fn s1_12_each_setting_replaces_its_default() {
        let none = TimeoutSettings::default();
        let health = HealthCheckSettings::default();
        let default = PhaseTimeouts::default();
        assert_eq!(none.of_upgrade(&health), default);
        assert_eq!(none.of_rollback(&health), default);
        assert_eq!(none.of_volumes(), RestoreTimeouts::default());
        let settings = TimeoutSettings {
            // A request stores it before its plan.
            plan: Some(seconds(10)),
            suspend: Some(seconds(11)),
            scale_down: Some(seconds(12)),
            snapshot: Some(seconds(13)),
            git_commit: Some(seconds(14)),
            reconcile: Some(seconds(15)),
            health_check: Some(seconds(16)),
            volume_restore: Some(seconds(17)),
            git_revert: Some(seconds(18)),
            volume_swap: Some(seconds(19)),
            undo: Some(seconds(20)),
            volume_cap: Some(seconds(21)),
        };
        let health = HealthCheckSettings {
            stable_for: Some(seconds(22)),
        };
        let upgrade = PhaseTimeouts {
            suspend: seconds(11),
            scale_down: seconds(12),
            snapshot: seconds(13),
            volume_cap: seconds(21),
            git_commit: seconds(14),
            reconcile: seconds(15),
            health_check: seconds(16),
            stable_for: seconds(22),
            undo: seconds(20),
        };
        assert_eq!(settings.of_upgrade(&health), upgrade);
        let rollback = PhaseTimeouts {
            git_commit: seconds(18),
            ..upgrade
        };
        assert_eq!(settings.of_rollback(&health), rollback);
        let volumes = RestoreTimeouts {
            volume_restore: seconds(17),
            volume_swap: seconds(19),
        };
        assert_eq!(settings.of_volumes(), volumes);
    }
}
