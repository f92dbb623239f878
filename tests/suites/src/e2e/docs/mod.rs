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

use crate::cases::{case, on_bench};

/// The image of the steps, as it is loaded on the node.
pub(super) const TOOLBOX: &str =
    concat!("localhost/orchestrator-toolbox:", env!("CARGO_PKG_VERSION"));

/// The slow ones first: the others fill the gaps.
pub(super) fn cases() -> Vec<Case> {
    vec![
        on_bench!(
            "slow-clone",
            "a clone that gets its bytes too slowly is named and bounded",
            remote::slow_clone
        ),
        case!(
            "host-key",
            "HostKeyUnknown: unknown, changed, at the clone only, at the push only",
            remote::unknown_host_key
        ),
        on_bench!(
            "slow",
            "T11: a silent server is named, and holds up nobody else",
            remote::slow
        ),
        case!(
            "unreachable",
            "named within 10 s, goes on when it is back, fails after startTimeout",
            remote::unreachable
        ),
        on_bench!(
            "job-quota",
            "S0.2, S0.3: a Job refused by a quota is told everywhere",
            refused::job_quota
        ),
        on_bench!(
            "job-admission",
            "S0.2, S0.3: a Job refused by a policy is told everywhere",
            refused::job_admission
        ),
        on_bench!(
            "job-invalid",
            "S0.2, S0.3: a Job refused as invalid is told everywhere",
            refused::job_invalid
        ),
        on_bench!(
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
        on_bench!(
            "evicted",
            "S0.1: the Pod evicted at each step: no attempt used, one commit",
            disrupt::evicted
        ),
        on_bench!(
            "pod-deleted",
            "the Pod deleted by hand during and after the push",
            disrupt::pod_by_hand
        ),
        on_bench!(
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
        on_bench!(
            "suspend-push",
            "suspended during the clone and the push, and after it, then resumed: one commit",
            suspend::suspended_at_push
        ),
        on_bench!(
            "suspend-early",
            "suspended before the start and while the repository is asked",
            suspend::suspended_before
        ),
        on_bench!(
            "cancel-push",
            "cancelled during the clone, the agent and the push, and after it: the doubt is said",
            suspend::cancelled_at_push
        ),
        on_bench!(
            "cancel-early",
            "cancelled while asking, without an Agent, and suspended",
            suspend::cancelled_before
        ),
        on_bench!(
            "cancel-verify",
            "cancelled before the server confirmed; childTTL",
            suspend::cancelled_at_verification
        ),
        on_bench!(
            "delete-push",
            "S0.4: deleted during and after the push: whole commits only, the next run works",
            delete::at_push
        ),
        on_bench!(
            "delete-work",
            "S0.4: deleted during the clone and the agent",
            delete::at_work
        ),
        on_bench!(
            "delete-early",
            "S0.4: deleted while asking and without an Agent",
            delete::before
        ),
        on_bench!(
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
        on_bench!(
            "delete-force",
            "S0.4: let go before its Pod has stopped",
            delete::forced
        ),
        on_bench!(
            "others",
            "R03: one run cleaned up, one deleted, the third untouched",
            cleanup::others
        ),
        on_bench!(
            "kept",
            "childTTL and preserve: children go, evidence stays",
            cleanup::kept
        ),
        on_bench!(
            "https",
            "S0.1: pushed over https, and verified on the remote",
            push::https
        ),
        on_bench!("ssh", "the same over ssh with host keys", push::ssh),
        on_bench!(
            "tutorial",
            "the commands of the tutorial do what it shows",
            tutorial::tutorial
        ),
        on_bench!(
            "wrong-login",
            "AuthenticationFailed, password and key, then corrected",
            remote::wrong_credentials
        ),
        on_bench!("no-secret", "SecretNotFound, then made", remote::no_secret),
        on_bench!(
            "bad-secret",
            "CredentialsInvalid names the key",
            remote::bad_secret
        ),
        on_bench!(
            "wrong-ca",
            "CertificateNotTrusted, and no password was sent",
            remote::wrong_ca
        ),
        case!(
            "huge",
            "RepositoryTooLarge, on the way and on the disk",
            remote::huge
        ),
        on_bench!(
            "redirect",
            "redirects are followed by nobody",
            remote::redirect
        ),
        on_bench!(
            "not-there",
            "BranchNotFound and RepositoryNotFound at once",
            remote::branch_missing
        ),
        on_bench!("path-missing", "PathNotFound", remote::path_missing),
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
        on_bench!(
            "no-changes",
            "NoChanges, as a failure and as a success",
            push::no_changes
        ),
        on_bench!(
            "agent-failed",
            "the agent's exit: retried, nothing pushed",
            push::agent_failed
        ),
        on_bench!(
            "push-refused",
            "PushRejected with the server's words",
            push::push_refused
        ),
        on_bench!(
            "branch-moved",
            "BranchMoved: others' commits are never lost",
            push::branch_moved
        ),
        on_bench!(
            "existing-branch",
            "one commit more on a branch that is there",
            push::existing_branch
        ),
        on_bench!(
            "same-branch",
            "the source branch itself is pushed",
            push::same_branch
        ),
        on_bench!(
            "codebase",
            "what the agent sees with and without includeCodebase",
            push::codebase_both
        ),
        on_bench!(
            "two-at-once",
            "R03: two runs on one repository at once",
            push::two_at_once
        ),
        on_bench!(
            "required-result",
            "ResultMissing says what was pushed",
            push::required_result
        ),
        on_bench!(
            "planted",
            "an agent plants what git could run or read",
            hostile::planted
        ),
        on_bench!("links", "an agent links to the credentials", hostile::links),
        on_bench!(
            "forged",
            "an agent reports a push of its own",
            hostile::forged
        ),
        on_bench!("flood", "an agent writes too much", hostile::flood),
        on_bench!(
            "odd-files",
            "an agent leaves what is no ordinary file",
            hostile::odd_files
        ),
        on_bench!(
            "left-process",
            "an agent leaves something running",
            hostile::left_process
        ),
        on_bench!(
            "no-credentials",
            "an agent searches everything for the credentials",
            hostile::credentials_absent
        ),
    ]
}
