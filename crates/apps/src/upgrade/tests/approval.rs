//! Upgrades whose application requires the decision of a user.

use std::sync::Arc;

use api::{
    apps::{Approval, ApprovalDecision, ApprovalPolicy, UpgradePhase},
    time,
};

use super::{
    cluster::{Cluster, Fault},
    delivery::Push,
};

fn cluster() -> Cluster {
    let mut cluster = Cluster::pushing(Push::Accepted);
    let state = cluster.real.app.as_mut().unwrap();
    Arc::make_mut(&mut state.app).spec.approval = ApprovalPolicy::Required;
    cluster.sync();
    cluster
}

fn decide(cluster: &mut Cluster, decision: ApprovalDecision) {
    cluster.request.spec.approval = Some(Approval {
        decision,
        by: "ada".to_owned(),
    });
}

/// Returns a request that waits for its approval.
fn waiting(fault: Option<Fault>) -> Cluster {
    let mut cluster = cluster();
    cluster.fault = fault;
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Approval);
    cluster
}

fn pass(cluster: &mut Cluster, minutes: u64) {
    let duration = std::time::Duration::from_secs(minutes * 60);
    cluster.now = time::after(cluster.now, duration);
}

#[test]
fn nothing_is_changed_before_the_decision() {
    let mut cluster = waiting(None);
    for _ in 0..20 {
        cluster.step();
        assert_eq!(cluster.phase(), UpgradePhase::Approval);
    }
    assert_eq!(cluster.reason(), "AwaitingApproval");
    assert!(cluster.message().contains("'up'"), "{}", cluster.message());
    assert!(!cluster.has_finalizer);
    let changes = cluster.writes.iter().filter(|write| {
        !write.ends_with("status")
            && !write.ends_with("create up-plan")
            && !write.ends_with("delete up-plan")
    });
    assert_eq!(changes.count(), 0, "{:?}", cluster.writes);
}

/// The status records the approver, and the upgrade continues.
#[test]
fn an_approved_upgrade_continues() {
    let mut cluster = waiting(None);
    decide(&mut cluster, ApprovalDecision::Approved);
    cluster.run();
    assert_eq!(
        cluster.phase(),
        UpgradePhase::Succeeded,
        "{}",
        cluster.message()
    );
    assert_eq!(cluster.status().approved.unwrap().by, "ada");
    cluster.assert_committed("approved");
}

#[test]
fn a_denied_upgrade_ends_without_a_change() {
    let mut cluster = waiting(None);
    decide(&mut cluster, ApprovalDecision::Denied);
    cluster.run();
    assert_eq!(cluster.reason(), "ApprovalDenied");
    let message = cluster.message();
    assert!(message.contains("'ada'"), "{message}");
    assert!(message.ends_with("Nothing was changed"), "{message}");
    cluster.assert_released("denied");
    assert_eq!(cluster.delivery.commits.len(), 0);
}

/// A plan that is older than ten minutes is made again. The approval counts for the same change in Git.
#[test]
fn an_old_plan_is_made_again() {
    // Columns: minutes until the decision, whether the plan is made again.
    for (minutes, expected) in [(5, false), (11, true)] {
        let mut cluster = waiting(None);
        let before = cluster.status().planned_at;
        pass(&mut cluster, minutes);
        decide(&mut cluster, ApprovalDecision::Approved);
        cluster.run();
        assert_eq!(
            cluster.phase(),
            UpgradePhase::Succeeded,
            "{}",
            cluster.message()
        );
        let plans = cluster.phases.iter();
        let plans = plans.filter(|phase| **phase == UpgradePhase::Plan).count();
        assert_eq!(plans, 1 + usize::from(expected), "{minutes}");
        assert_eq!(cluster.status().planned_at != before, expected, "{minutes}");
        cluster.assert_committed("old plan");
    }
}

/// The user has approved another change, so the request ends before any change.
#[test]
fn a_plan_with_another_change_is_not_approved() {
    let mut cluster = waiting(None);
    pass(&mut cluster, 11);
    decide(&mut cluster, ApprovalDecision::Approved);
    cluster.run_until(|cluster| cluster.phase() == UpgradePhase::Plan);
    let status = cluster.request.status.as_mut().unwrap();
    status.approved.as_mut().unwrap().hash = "another".to_owned();
    cluster.run();
    assert_eq!(cluster.reason(), "PlanOutdated", "{}", cluster.message());
    let message = cluster.message();
    assert!(message.ends_with("Nothing was changed"), "{message}");
    cluster.assert_released("another change");
    assert_eq!(cluster.delivery.commits.len(), 0);
}

/// T6: a crash, a lost response and old caches at any write lead to the same end.
#[test]
fn a_fault_at_any_write_changes_nothing() {
    let count = {
        let mut cluster = waiting(None);
        decide(&mut cluster, ApprovalDecision::Approved);
        cluster.run();
        cluster.writes.len()
    };
    for number in 0..count {
        for fault in [
            Fault::CrashBefore(number),
            Fault::CrashAfter(number),
            Fault::LostResponse(number),
            Fault::Stale(number),
        ] {
            let mut cluster = waiting(Some(fault));
            decide(&mut cluster, ApprovalDecision::Approved);
            cluster.run();
            let context = format!("{fault:?}: {:?}", cluster.writes);
            assert_eq!(cluster.phase(), UpgradePhase::Succeeded, "{context}");
            cluster.assert_committed(&context);
        }
    }
}

/// R35: a request that waits is released at once.
#[test]
fn a_request_that_waits_can_be_deleted() {
    let mut cluster = waiting(None);
    cluster.delete();
    assert!(cluster.is_gone);
}
