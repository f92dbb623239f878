//! `cargo xtask e2e first-user`: the faults of a first user, each made on the real node. The printed line of the
//! run must name the cause within 10 s, and the real `orc why` must name the cause and one way out.
//!
//! A case has the number of its row in the trial's table of faults.

mod cluster;
mod containers;
mod fixture;
mod objects;
mod operators;
mod refusals;
mod refused;
mod stops;
mod table;

pub(crate) use table::Table;

use testkit::suite::{Case, When};

/// Cases at once: they wait more than they work.
pub(super) const PARALLEL: usize = 8;

/// Rows that CI runs with each commit: those in which the product was wrong. The other causes have their cases in the
/// suite of tasks.
const SHARE: &[&str] = &[
    "8", "11", "14", "18", "18b", "23", "24", "25", "28", "30", "35", "36",
];

/// A row of the table: its number, the situation, and the function that makes it. `on bench` gets an operator of its
/// own, which must end well.
macro_rules! row {
    ($name:literal, $situation:literal, on bench $run:path) => {
        row!(@ $name, $situation, |env| async {
            let bench = fixture::Bench::new(env).await?;
            let seen = $run(&bench).await?;
            bench.done().await?;
            anyhow::Ok(seen)
        })
    };
    ($name:literal, $situation:literal, $run:path) => {
        row!(@ $name, $situation, |env| $run(env))
    };
    (@ $name:literal, $situation:literal, |$env:ident| $seen:expr) => {
        crate::cases::case!(@ $name, $situation, |$env| {
            futures::FutureExt::boxed(async move {
                let seen = $seen.await;
                table::add($name, $situation, seen)
            })
        })
    };
}

/// The same row, with the cluster for itself.
fn alone(case: Case) -> Case {
    Case {
        when: When::Alone,
        ..case
    }
}

/// The rows that CI runs.
pub(super) fn share() -> Vec<Case> {
    let mut all = cases();
    all.retain(|case| SHARE.contains(&case.name));
    all
}

/// All rows, the slow ones first: the others fill the gaps.
pub(super) fn cases() -> Vec<Case> {
    vec![
        row!(
            "35",
            "the namespace of a running run is deleted",
            stops::namespace_terminating
        ),
        row!("8", "deadline, and a cancellation", on bench stops::deadline),
        row!("20", "Job deleted while it runs", on bench stops::job_deleted),
        row!("21", "Pod evicted", on bench stops::evicted),
        row!("34", "operator lacks 'create jobs'", on bench refused::permission),
        row!("7", "out of memory in a child process, exit code 0", on bench containers::memory_of_a_child),
        row!("7b", "out of memory of the program", on bench containers::memory_of_the_program),
        row!("1", "Secret missing", on bench containers::secret_missing),
        row!("2", "key missing in the Secret", on bench containers::key_missing),
        row!("3", "wrong image", on bench containers::unknown_image),
        row!("4", "500 CPUs requested", on bench containers::too_many_processors),
        row!("5", "node selector matches no node", on bench containers::no_such_node),
        row!("6", "command does not exist", on bench containers::no_such_command),
        row!("9", "Agent missing", on bench objects::agent_missing),
        row!("10", "exit code 0 without a required result", on bench containers::result_missing),
        row!("11", "image needs root", on bench containers::needs_root),
        row!("12", "ServiceAccount missing", on bench objects::account_missing),
        row!("13", "StorageClass missing", on bench objects::class_missing),
        row!("14", "unmanaged Job has the name", on bench objects::foreign_job),
        row!("15", "ResourceQuota", on bench refused::quota),
        row!("16", "LimitRange", on bench refused::limit_range),
        row!("17", "admission policy requires a label", on bench refused::policy),
        row!("18", "webhook for Jobs is down", on bench refused::webhook_of_jobs),
        row!("18b", "webhook for Pods is down", on bench refused::webhook_of_pods),
        row!("23", "1 MB of files", on bench objects::too_large),
        row!("24", "two TaskRuns with one service and task", on bench objects::same_identity),
        row!("25", "command is not executable", on bench containers::not_a_program),
        row!("26", "unmanaged ConfigMap has the name", on bench objects::foreign_config_map),
        row!(
            "30",
            "author may not use the Agent",
            refusals::no_permission
        ),
        row!("31", "11 invalid specs", refusals::invalid_specs),
        row!(
            "36",
            "unknown key in the chart's 'config'",
            refusals::unknown_key
        ),
        alone(row!("22", "node cordoned", cluster::cordoned)),
        alone(row!(
            "28",
            "operator scaled to 0",
            operators::scaled_to_zero
        )),
        alone(row!(
            "29",
            "running run deleted, operator down",
            operators::deleted_meanwhile
        )),
        alone(row!("32", "CRD without a status field", cluster::old_crd)),
        alone(row!(
            "33",
            "CRD lets a required field be missing",
            cluster::undecodable
        )),
        alone(row!(
            "37",
            "CRD deleted, operator runs",
            cluster::crd_missing
        )),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All rows of the trial but 19 and 27, which are no faults, and 30b, which is a view.
    #[test]
    fn each_fault_of_the_trial_has_its_row() {
        let letters = ["7b", "18b"];
        let numbers = (1..=37).filter(|number| ![19, 27].contains(number));
        let wanted: BTreeSet<String> = numbers
            .map(|number| number.to_string())
            .chain(letters.map(str::to_owned))
            .collect();
        let cases = cases();
        let names: BTreeSet<String> = cases.iter().map(|case| case.name.to_owned()).collect();
        assert_eq!(names, wanted);
        assert_eq!(cases.len(), names.len());
    }

    #[test]
    fn the_share_of_ci_is_of_rows() {
        assert_eq!(share().len(), SHARE.len());
    }
}
