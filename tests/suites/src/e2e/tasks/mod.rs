//! `cargo xtask e2e tasks`: TaskRuns on the real node, each case with an operator process of its
//! own, which has the chart's rights and nothing more.

mod attacks;
mod bounds;
mod cleanup;
mod delete;
mod disrupt;
mod edge_cases;
mod end;
mod fixture;
mod fleet;
mod flood;
mod large;
mod start;
mod suspend;
mod transcript;
mod version;
mod volumes;

pub(super) use fixture::Tasks;

use testkit::suite::Case;

use crate::cases::{alone, case, last, on_bench};

/// What others may try.
pub(super) fn attacks() -> Vec<Case> {
    vec![
        case!(
            "other-namespace",
            "C2: objects of another namespace name a run as their owner",
            attacks::other_namespace
        ),
        on_bench!(
            "planted-files",
            "A2: someone plants the files of a run",
            attacks::planted_files
        ),
        on_bench!(
            "planted-job",
            "A2: someone plants the Job of a run, which succeeds",
            attacks::planted_job
        ),
        on_bench!(
            "oom-exit-zero",
            "a process is killed for memory, and the shell returns 0",
            attacks::oom_exit_zero
        ),
        on_bench!(
            "stripped-finalizer",
            "C5: someone removes the finalizer of a run at work",
            attacks::stripped_finalizer
        ),
        case!(
            "large-files",
            "A4: runs with large files, and large ConfigMaps with our labels",
            large::large_files
        ),
        case!(
            "unreadable-time",
            "A4: someone writes a time into managed fields that the operator cannot read",
            attacks::unreadable_time
        ),
        case!(
            "silent-flood",
            "A5: 500 silent connections to each port of the operator",
            flood::silent
        ),
        on_bench!(
            "stolen-token",
            "A1: the token of the operator creates and deletes what is not a run's",
            bounds::stolen_token
        ),
        on_bench!(
            "planted-children",
            "A2: a user creates objects with the labels and owner of a run",
            bounds::planted_children
        ),
    ]
}

/// The slow ones first: the others fill the gaps.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            "delete-after",
            "a run is deleted itself, 60 s after its end",
            cleanup::runs_deleted
        ),
        case!(
            "kill-supersede",
            "the operator killed between any two steps of a supersede",
            version::killed
        ),
        on_bench!(
            "name-taken",
            "R20: a child's name taken by a foreign object",
            start::name_taken
        ),
        on_bench!(
            "task-taken",
            "two runs of one task: the second names the first, and runs after its deletion",
            start::task_taken
        ),
        on_bench!("success", "a run succeeds, with its evidence", end::success),
        on_bench!(
            "contract",
            "the agent finds what the contract promises",
            end::contract
        ),
        on_bench!("exit-3", "a program that ends with 3", end::exit_3),
        on_bench!(
            "oom",
            "a container over its memory limit",
            end::out_of_memory
        ),
        on_bench!("deadline", "a program that does not end", end::deadline),
        on_bench!(
            "needs-root",
            "an image with a program that only root may execute",
            end::needs_root
        ),
        on_bench!(
            "result",
            "a required result that is missing",
            end::result_missing
        ),
        on_bench!("retry", "two failures, then success", end::retry),
        on_bench!(
            "unknown-image",
            "start timeout by an unknown image",
            start::unknown_image
        ),
        on_bench!(
            "no-node",
            "start timeout because no node fits",
            start::no_node
        ),
        on_bench!("quota", "start timeout by a quota", start::quota),
        on_bench!(
            "missing-secret",
            "R22: start timeout by a missing Secret",
            start::missing_secret
        ),
        on_bench!(
            "volumes",
            "volumes, labels, annotations and affinity of an Agent",
            volumes::mounted
        ),
        on_bench!(
            "missing-volume",
            "start timeout by a missing Secret, ConfigMap or claim of a volume",
            volumes::missing
        ),
        on_bench!(
            "pod-security",
            "start timeout by Pod Security",
            start::pod_security
        ),
        on_bench!(
            "job-refused",
            "R01: a Job that cannot be created",
            start::job_refused
        ),
        on_bench!(
            "name-kept",
            "a child's name that stays taken until the deadline",
            start::name_kept
        ),
        on_bench!(
            "webhook-down",
            "webhooks on Jobs and on ConfigMaps that are down",
            start::webhook_down
        ),
        on_bench!(
            "webhook-hangs",
            "a webhook on Jobs that does not answer",
            start::webhook_hangs
        ),
        on_bench!(
            "agent-missing",
            "the agent is missing, then created",
            start::agent_missing
        ),
        on_bench!(
            "agent-not-ready",
            "the agent names what is missing, then it is made",
            start::agent_not_ready
        ),
        on_bench!("too-large", "files beyond 900 KiB", start::too_large),
        on_bench!(
            "new-version",
            "a higher version replaces a running one",
            version::running
        ),
        on_bench!(
            "job-deleted",
            "R10: a Job that is deleted by hand, and it goes on",
            disrupt::job_by_hand
        ),
        on_bench!("delete-pending", "deleted while pending", delete::pending),
        on_bench!("delete-running", "deleted while running", delete::running),
        case!(
            "delete-finished",
            "deleted when finished, without an operator",
            delete::finished
        ),
        case!(
            "delete-down",
            "deleted while the operator is down",
            delete::operator_down
        ),
        case!(
            "delete-ns",
            "deleted with its namespace",
            delete::with_namespace
        ),
        case!(
            "hand-over",
            "SIGTERM hands over within 1 s, SIGKILL changes nothing",
            fleet::hand_over
        ),
        on_bench!(
            "canary",
            "a secret of the Agent's environment is in nothing of ours",
            fleet::canary
        ),
        on_bench!(
            "evicted",
            "a Pod that is evicted uses no attempt",
            disrupt::evicted
        ),
        on_bench!(
            "pod-deleted",
            "a Pod that is deleted by hand, whatever it returns",
            disrupt::pod_by_hand
        ),
        on_bench!(
            "disrupted-6",
            "the sixth disruption ends the run",
            disrupt::too_many
        ),
        on_bench!(
            "result-large",
            "a result of more than 4096 bytes",
            end::result_too_large
        ),
        on_bench!(
            "result-invalid",
            "a result that is not JSON",
            end::result_invalid
        ),
        on_bench!(
            "after-success",
            "a higher version after success",
            version::finished
        ),
        on_bench!(
            "two-writers",
            "two add files at once, and both are kept",
            version::two_writers
        ),
        on_bench!(
            "suspend-first",
            "suspended before the start",
            suspend::suspended_before
        ),
        on_bench!(
            "suspend-during",
            "suspended while it runs",
            suspend::suspended_during
        ),
        on_bench!(
            "suspend-between",
            "suspended between attempts",
            suspend::suspended_between
        ),
        on_bench!(
            "cancel-first",
            "cancelled before the start",
            suspend::cancelled_before
        ),
        on_bench!(
            "cancel-during",
            "cancelled while it runs",
            suspend::cancelled_during
        ),
        on_bench!(
            "cancel-between",
            "cancelled between attempts",
            suspend::cancelled_between
        ),
        on_bench!(
            "keep-children",
            "children go seconds after the end",
            cleanup::kept_for_seconds
        ),
        case!(
            "keep-restart",
            "the same with a restart in between",
            cleanup::restarted
        ),
        case!(
            "cleanup-config",
            "cleanup disabled, then configured",
            cleanup::reconfigured
        ),
        on_bench!(
            "preserve",
            "S0.5: the annotation keeps children; a rejected clean-up is reported and repeated",
            cleanup::preserved
        ),
        on_bench!(
            "job-vanishes",
            "R09: a Job that vanishes after the end starts nothing",
            cleanup::vanished
        ),
        case!(
            "evidence-lost",
            "a Pod that went unread",
            edge_cases::evidence_lost
        ),
        on_bench!(
            "names",
            "names and services as hostile as they may be",
            edge_cases::hostile_names
        ),
        on_bench!(
            "restored",
            "restored without status, it does not run again",
            edge_cases::restored
        ),
        case!(
            "orphaned",
            "restored beside a Job that runs",
            edge_cases::orphaned
        ),
        on_bench!(
            "examples",
            "the agents of examples/ do what they say",
            end::examples
        ),
        on_bench!(
            "transcript",
            "the commands of 'orc' print what the docs show",
            transcript::transcript
        ),
        last!(
            "kstatus",
            "what other tools make of every version of every run",
            edge_cases::kstatus
        ),
        alone!("drained", "kubectl drain uses no attempt", disrupt::drained),
        alone!(
            "node-lost",
            "no second Pod while a node does not answer",
            disrupt::node_lost
        ),
    ]
}
