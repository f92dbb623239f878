//! `cargo xtask e2e docs`: DocsRuns on the real node, each case with a Git server and an operator
//! process of its own, which has the chart's rights and nothing more.

mod blocked;
mod cleanup;
mod delete;
mod disrupt;
mod fixture;
mod gate;
mod hostile;
mod kill;
mod leaks;
mod push;
mod quiet;
mod refused;
mod remote;
mod suspend;
mod tutorial;

use testkit::suite::Case;

use crate::cases::case;

/// The image of the steps, as it is loaded on the node.
pub(super) const TOOLBOX: &str =
    concat!("localhost/orchestrator-toolbox:", env!("CARGO_PKG_VERSION"));

/// The slow ones first: the others fill the gaps.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            "slow-clone",
            "a clone that gets its bytes too slowly is named and bounded",
            remote::slow_clone
        ),
        case!(
            "host-key",
            "HostKeyUnknown: unknown, changed, at the clone only, at the push only",
            remote::unknown_host_key
        ),
        case!(
            "slow",
            "T11: a silent server is named, and holds up nobody else",
            remote::slow
        ),
        case!(
            "unreachable",
            "named within 10 s, goes on when it is back, fails after startTimeout",
            remote::unreachable
        ),
        case!(
            "job-quota",
            "S0.2, S0.3: a Job refused by a quota is told everywhere",
            refused::job_quota
        ),
        case!(
            "job-admission",
            "S0.2, S0.3: a Job refused by a policy is told everywhere",
            refused::job_admission
        ),
        case!(
            "job-invalid",
            "S0.2, S0.3: a Job refused as invalid is told everywhere",
            refused::job_invalid
        ),
        case!(
            "quiet",
            "R07: what a run writes; 60 s after the last change of both kinds nothing is written",
            quiet::quiet
        ),
        case!(
            "delete-space",
            "runs at five steps deleted with their namespace",
            delete::with_namespace
        ),
        case!(
            "cleanup",
            "S0.5, S0.9: cleanup on, off and changed in between: each run has its Job",
            cleanup::configured
        ),
        case!(
            "evicted",
            "S0.1: the Pod evicted at each step: no attempt used, one commit",
            disrupt::evicted
        ),
        case!(
            "pod-deleted",
            "the Pod deleted by hand during and after the push",
            disrupt::pod_by_hand
        ),
        case!(
            "job-deleted",
            "the Job deleted by hand during and after the push",
            disrupt::job_by_hand
        ),
        case!(
            "kill-record",
            "S0.1: the operator killed before the push is recorded, and before it is confirmed",
            kill::recording
        ),
        case!(
            "kill-ask",
            "S0.1: the operator killed while it asks the repository",
            kill::asking
        ),
        case!(
            "kill-agent",
            "S0.1: the operator killed while the agent runs",
            kill::writing
        ),
        case!(
            "kill-push",
            "S0.1: the operator killed during the push",
            kill::pushing
        ),
        case!(
            "kill-answer",
            "S0.1: the operator killed after the push, before its answer",
            kill::unanswered
        ),
        case!(
            "kill-job",
            "S0.2: the operator killed between the record of the base and the Job",
            kill::recorded_base
        ),
        case!(
            "hand-over",
            "the operator handed over during the push",
            kill::hand_over
        ),
        case!(
            "suspend-push",
            "suspended during the clone and the push, and after it, then resumed: one commit",
            suspend::suspended_at_push
        ),
        case!(
            "suspend-early",
            "suspended before the start and while the repository is asked",
            suspend::suspended_before
        ),
        case!(
            "cancel-push",
            "cancelled during the clone, the agent and the push, and after it: the doubt is said",
            suspend::cancelled_at_push
        ),
        case!(
            "cancel-early",
            "cancelled while asking, without an Agent, and suspended",
            suspend::cancelled_before
        ),
        case!(
            "cancel-verify",
            "cancelled before the server confirmed; childTTL",
            suspend::cancelled_at_verification
        ),
        case!(
            "delete-push",
            "S0.4: deleted during and after the push: whole commits only, the next run works",
            delete::at_push
        ),
        case!(
            "delete-work",
            "S0.4: deleted during the clone and the agent",
            delete::at_work
        ),
        case!(
            "delete-early",
            "S0.4: deleted while asking and without an Agent",
            delete::before
        ),
        case!(
            "delete-verify",
            "S0.4: deleted before the server confirmed",
            delete::verifying
        ),
        case!(
            "delete-over",
            "S0.4: a success and a failure deleted without an operator",
            delete::over
        ),
        case!(
            "delete-down",
            "S0.4: deleted while the operator is down",
            delete::operator_down
        ),
        case!(
            "delete-force",
            "S0.4: let go before its Pod has stopped",
            delete::forced
        ),
        case!(
            "others",
            "R03: one run cleaned up, one deleted, the third untouched",
            cleanup::others
        ),
        case!(
            "kept",
            "childTTL and preserve: children go, evidence stays",
            cleanup::kept
        ),
        case!(
            "https",
            "S0.1: pushed over https, and verified on the remote",
            push::https
        ),
        case!("ssh", "the same over ssh with host keys", push::ssh),
        case!(
            "tutorial",
            "the commands of the tutorial do what it shows",
            tutorial::tutorial
        ),
        case!(
            "wrong-login",
            "AuthenticationFailed, password and key, then corrected",
            remote::wrong_credentials
        ),
        case!("no-secret", "SecretNotFound, then made", remote::no_secret),
        case!(
            "bad-secret",
            "CredentialsInvalid names the key",
            remote::bad_secret
        ),
        case!(
            "wrong-ca",
            "CertificateNotTrusted, and no password was sent",
            remote::wrong_ca
        ),
        case!(
            "huge",
            "RepositoryTooLarge, on the way and on the disk",
            remote::huge
        ),
        case!(
            "redirect",
            "redirects are followed by nobody",
            remote::redirect
        ),
        case!(
            "not-there",
            "BranchNotFound and RepositoryNotFound at once",
            remote::branch_missing
        ),
        case!("path-missing", "PathNotFound", remote::path_missing),
        case!(
            "addresses",
            "AddressNotAllowed: no connection to anything inside",
            refused::addresses
        ),
        case!(
            "http-allowed",
            "plain http by configuration",
            refused::http_allowed
        ),
        case!(
            "no-changes",
            "NoChanges, as a failure and as a success",
            push::no_changes
        ),
        case!(
            "agent-failed",
            "the agent's exit: retried, nothing pushed",
            push::agent_failed
        ),
        case!(
            "push-refused",
            "PushRejected with the server's words",
            push::push_refused
        ),
        case!(
            "branch-moved",
            "BranchMoved: others' commits are never lost",
            push::branch_moved
        ),
        case!(
            "existing-branch",
            "one commit more on a branch that is there",
            push::existing_branch
        ),
        case!(
            "same-branch",
            "the source branch itself is pushed",
            push::same_branch
        ),
        case!(
            "codebase",
            "what the agent sees with and without includeCodebase",
            push::codebase_both
        ),
        case!(
            "two-at-once",
            "R03: two runs on one repository at once",
            push::two_at_once
        ),
        case!(
            "required-result",
            "ResultMissing says what was pushed",
            push::required_result
        ),
        case!(
            "planted",
            "an agent plants what git could run or read",
            hostile::planted
        ),
        case!("links", "an agent links to the credentials", hostile::links),
        case!(
            "forged",
            "an agent reports a push of its own",
            hostile::forged
        ),
        case!("flood", "an agent writes too much", hostile::flood),
        case!(
            "odd-files",
            "an agent leaves what is no ordinary file",
            hostile::odd_files
        ),
        case!(
            "left-process",
            "an agent leaves something running",
            hostile::left_process
        ),
        case!(
            "no-credentials",
            "an agent searches everything for the credentials",
            hostile::credentials_absent
        ),
    ]
}
