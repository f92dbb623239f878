//! Checks that an upgrade can be rolled back, before anything is planned.

use api::{
    Reason, Status,
    apps::{TakenSnapshot, UpgradeRequest},
};

use crate::{discover::Problem, upgrade::storage::SnapshotView};

/// Returns why the upgrade with this name cannot be rolled back, or `None` if it can. `snapshots` are its snapshots as they
/// exist now. An upgrade without snapshots is rolled back in Git only.
#[must_use]
pub fn objection(
    name: &str,
    upgrade: Option<&UpgradeRequest>,
    snapshots: &[SnapshotView],
) -> Option<Problem> {
    let problem = |reason, text: String| Some(Problem::new(reason, text));
    let Some(upgrade) = upgrade else {
        let text = format!("UpgradeRequest '{name}' does not exist");
        return problem(Reason::UpgradeNotFound, text);
    };
    let Some(status) = upgrade.status.as_ref().filter(|status| status.is_over()) else {
        let text = format!("UpgradeRequest '{name}' has not ended");
        return problem(Reason::UpgradeNotFinished, text);
    };
    if status.commit.is_none() {
        let text = format!("UpgradeRequest '{name}' has pushed no commit");
        return problem(Reason::RollbackNotAvailable, text);
    }
    let is_lost = |taken: &&TakenSnapshot| !snapshots.iter().any(|one| is_usable(one, taken));
    let lost = status.snapshots.iter().find(is_lost)?;
    let text = format!(
        "VolumeSnapshot '{}/{}' does not exist any more, or is not ready",
        lost.namespace, lost.name
    );
    problem(Reason::RollbackNotAvailable, text)
}

/// Returns whether the snapshot is the one of the upgrade, ready, and bound in both directions.
fn is_usable(one: &SnapshotView, taken: &TakenSnapshot) -> bool {
    let content = one.content.as_ref();
    let is_bound = content
        .is_some_and(|content| content.is_ready && content.snapshot_uid.as_ref() == Some(&one.uid));
    one.uid == taken.uid && one.is_ready && !one.is_deleting && is_bound
}

#[cfg(test)]
mod tests {
    use api::{
        Timestamp,
        apps::{PushOutcome, PushedCommit, UpgradePhase, UpgradeRequestStatus},
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::upgrade::{storage::ContentView, tests::fixtures};

    fn upgrade(phase: UpgradePhase, has_commit: bool) -> UpgradeRequest {
        let commit = PushedCommit {
            id: "ab".repeat(20),
            outcome: PushOutcome::Pushed,
            at: Time(Timestamp::UNIX_EPOCH),
        };
        let mut upgrade = fixtures::request();
        upgrade.status = Some(UpgradeRequestStatus {
            phase: Some(phase),
            commit: has_commit.then_some(commit),
            snapshots: vec![TakenSnapshot {
                uid: "snapshot".to_owned(),
                ..TakenSnapshot::default()
            }],
            ..UpgradeRequestStatus::default()
        });
        upgrade
    }

    fn snapshot(uid: &str, is_ready: bool, of: &str) -> Vec<SnapshotView> {
        vec![SnapshotView {
            uid: uid.to_owned(),
            is_ready,
            content: Some(ContentView {
                snapshot_uid: Some(of.to_owned()),
                is_ready: true,
                ..ContentView::default()
            }),
            ..SnapshotView::default()
        }]
    }

    #[test]
    fn only_an_upgrade_that_ended_with_its_snapshots_is_rolled_back() {
        let ready = || snapshot("snapshot", true, "snapshot");
        let ended = || Some(upgrade(UpgradePhase::Failed, true));
        // Columns: upgrade, snapshots, reason.
        let table = [
            (ended(), ready(), None),
            (Some(upgrade(UpgradePhase::Succeeded, true)), ready(), None),
            (None, ready(), Some("UpgradeNotFound")),
            (
                Some(upgrade(UpgradePhase::HealthCheck, true)),
                ready(),
                Some("UpgradeNotFinished"),
            ),
            (
                Some(upgrade(UpgradePhase::Failed, false)),
                ready(),
                Some("RollbackNotAvailable"),
            ),
            (ended(), Vec::new(), Some("RollbackNotAvailable")),
            (
                ended(),
                snapshot("another", true, "another"),
                Some("RollbackNotAvailable"),
            ),
            (
                ended(),
                snapshot("snapshot", false, "snapshot"),
                Some("RollbackNotAvailable"),
            ),
            // The content belongs to another snapshot.
            (
                ended(),
                snapshot("snapshot", true, "another"),
                Some("RollbackNotAvailable"),
            ),
        ];
        for (upgrade, snapshots, expected) in table {
            let found = objection("up", upgrade.as_ref(), &snapshots);
            let reason = found.as_ref().map(|problem| problem.reason.name());
            assert_eq!(reason, expected, "{found:?}");
        }
    }
}
