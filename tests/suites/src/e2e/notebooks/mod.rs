//! `cargo xtask e2e notebooks`: NotebookValidationJobs on the real node, with real kernels and the notebook runner. Each case
//! has a Git server and an operator process of its own, with the permissions of the chart.

mod checks;
mod comparisons;
mod fixture;
mod guards;
mod kernels;
mod lifecycle;
mod runs;
mod tutorial;

use testkit::{cluster::Addition, suite::Case};

use crate::cases::{case, on_bench};

/// Image of the notebook runner, as it is loaded on the node.
pub(super) const RUNNER: &str = concat!(
    "localhost/orchestrator-notebook-runner:",
    env!("CARGO_PKG_VERSION")
);

/// Cases at once. A kernel needs a second of a processor to start.
pub(super) const PARALLEL: usize = 6;

/// Returns all cases, the slow ones first: the others fill the gaps.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = slow();
    cases.extend(of_runs());
    cases.extend(of_kernels());
    cases.extend(of_checks());
    cases.extend(of_lifecycle());
    let with_images = cases.into_iter().map(|case| Case {
        additions: &[Addition::Notebooks],
        ..case
    });
    with_images.collect()
}

fn slow() -> Vec<Case> {
    vec![
        on_bench!(
            "result-rejected",
            "a ConfigMap that a quota rejects never changes the verdict",
            lifecycle::result_rejected
        ),
        on_bench!(
            "tutorial",
            "the commands of the tutorial do what it shows",
            tutorial::tutorial
        ),
        on_bench!(
            "stored",
            "results of Full, None, and their lifetime",
            runs::stored
        ),
        on_bench!(
            "suspend",
            "suspended and resumed while asking, starting and running",
            lifecycle::suspend
        ),
        on_bench!(
            "cancel",
            "cancelled while asking, starting and running",
            lifecycle::cancel
        ),
        on_bench!(
            "delete",
            "deleted while asking, starting and running",
            lifecycle::delete
        ),
        on_bench!(
            "expectations",
            "expected outputs, met and not met",
            checks::expectations
        ),
        on_bench!("stderr", "output on stderr at each level", checks::stderr),
        on_bench!("warnings", "warnings at each level", checks::warnings),
        on_bench!("skipped", "skipped cells at each level", checks::skipped),
        on_bench!(
            "kernel-ends",
            "a kernel that is killed, exits or quits is never a success",
            kernels::ends_itself
        ),
        on_bench!(
            "progress",
            "the status names the cell that runs",
            runs::progress
        ),
        on_bench!(
            "golden-without-proof",
            "F17: empty, cut, stale and ignored golden notebooks",
            comparisons::golden_without_proof
        ),
    ]
}

fn of_runs() -> Vec<Case> {
    vec![
        on_bench!(
            "plain",
            "a run with a golden notebook, its evidence and its result",
            runs::plain
        ),
        on_bench!(
            "references",
            "R67: each kind of reference",
            runs::references
        ),
        on_bench!(
            "no-commit",
            "F2: an ambiguous and an absent reference",
            runs::no_commit
        ),
        on_bench!(
            "two-repositories",
            "notebook and golden notebook of two servers with two credentials",
            runs::two_repositories
        ),
        on_bench!(
            "missing-files",
            "files that are missing, links, or no notebooks",
            runs::missing_files
        ),
        case!(
            "large-result",
            "a large result loses the notebook first",
            runs::large_result
        ),
        on_bench!(
            "cleanup",
            "the result has a lifetime of its own",
            runs::cleanup
        ),
        on_bench!(
            "twelve",
            "twelve differences of all types",
            comparisons::twelve
        ),
        on_bench!(
            "classes",
            "F18, F23: a class and a tolerance excuse nothing else",
            comparisons::classes
        ),
        on_bench!(
            "proposed-golden",
            "the executed notebook becomes the golden one",
            comparisons::proposed_golden
        ),
        on_bench!(
            "plots",
            "F17: the same plot matches, one point less does not",
            comparisons::plots
        ),
        on_bench!(
            "golden-of-commit",
            "F1, F3: the golden notebook of the resolved commit",
            comparisons::golden_of_commit
        ),
        on_bench!(
            "normalized",
            "values that differ in each run",
            comparisons::normalized
        ),
        on_bench!(
            "slow-pattern",
            "a pattern that backtracks is a failure",
            comparisons::slow_pattern
        ),
        on_bench!(
            "other-cells",
            "cells that only one of both notebooks has",
            comparisons::other_cells
        ),
    ]
}

fn of_kernels() -> Vec<Case> {
    vec![
        on_bench!(
            "failing-cell",
            "a failing cell, and those after it",
            kernels::failing_cell
        ),
        on_bench!(
            "cell-timeout",
            "a cell that runs too long",
            kernels::cell_timeout
        ),
        on_bench!(
            "run-timeout",
            "R63: a run that lasts too long",
            kernels::run_timeout
        ),
        on_bench!(
            "no-kernel",
            "an image without the kernel",
            kernels::no_kernel
        ),
        on_bench!(
            "no-image",
            "an image that cannot be pulled",
            kernels::no_image
        ),
        on_bench!(
            "lasting-thread",
            "a thread that does not end",
            kernels::lasting_thread
        ),
        on_bench!(
            "out-of-memory",
            "an OOM kill names the cell",
            kernels::out_of_memory
        ),
        on_bench!("flood", "output is never cut and compared", kernels::flood),
        on_bench!(
            "forged",
            "a notebook that writes its own verdict",
            kernels::forged
        ),
        on_bench!(
            "own-environment",
            "R66: variables and files of the user",
            kernels::own_environment
        ),
    ]
}

fn of_checks() -> Vec<Case> {
    vec![
        on_bench!(
            "overridden",
            "a field overrides its level",
            checks::overridden
        ),
        on_bench!("must-raise", "a cell that must raise", checks::must_raise),
        on_bench!(
            "nothing-ran",
            "F20: no cell was executed",
            checks::nothing_ran
        ),
        on_bench!(
            "canary",
            "T12: a Secret is in no object, log or metric",
            guards::canary
        ),
        on_bench!(
            "separated",
            "the kernel has neither credentials nor inputs nor a token",
            guards::separated
        ),
        on_bench!("no-gpu", "a GPU that no node has is named", guards::no_gpu),
        on_bench!("claim", "a claim that is mounted read-only", guards::claim),
        on_bench!(
            "rejected",
            "specs that the API server rejects",
            guards::rejected
        ),
        on_bench!("immutable", "fields that cannot change", guards::immutable),
    ]
}

fn of_lifecycle() -> Vec<Case> {
    vec![
        on_bench!(
            "suspended-before",
            "submitted suspended, then resumed",
            lifecycle::suspended_before
        ),
        case!(
            "cancel-down",
            "cancelled while the operator is down",
            lifecycle::cancel_operator_down
        ),
        case!(
            "delete-down",
            "deleted while the operator is down",
            lifecycle::delete_operator_down
        ),
        case!(
            "delete-finished",
            "a finished job is deleted with its result",
            lifecycle::delete_finished
        ),
        on_bench!("evicted", "an eviction uses no attempt", lifecycle::evicted),
        on_bench!(
            "pod-deleted",
            "a deleted Pod is no verdict",
            lifecycle::pod_deleted
        ),
        case!(
            "killed",
            "the operator is killed while a cell runs",
            lifecycle::killed
        ),
        case!(
            "legacy",
            "S4.2: phases of an earlier operator are reset",
            lifecycle::legacy
        ),
    ]
}
