//! The operators whose scenarios are played. A new one is an entry here, and nothing else.

use std::sync::Arc;

use api::kinds::OperatorRow;
use kube::core::ApiResource;
use serde_json::Value;
use testkit::{cluster::Addition, faults::scenario_run::Scenario, report_age};

use super::{apps, stand::Services, tasks, tenants};

/// Makes scenarios; those that need a Git server or charts take these.
type Scenarios = fn(&Services) -> Vec<Arc<dyn Scenario>>;

/// An operator, with everything that its plays need.
pub(super) struct TestedOperator {
    /// Its row in the table of kinds.
    pub(super) row: &'static OperatorRow,
    /// The page of the docs.
    pub(super) page: &'static str,
    /// How many plans CI plays.
    pub(super) share: usize,
    /// How many compound schedules a whole campaign has, by seeds from 0.
    pub(super) compound: u64,
    /// What the object history watches for it.
    pub(super) watched: fn() -> Vec<ApiResource>,
    /// Plurals of its kinds that belong to no namespace.
    pub(super) selected: &'static [&'static str],
    /// What the cluster must have.
    pub(super) additions: &'static [Addition],
    /// Objects that the chart installs beside the operator.
    pub(super) beside: fn() -> Vec<Value>,
    pub(super) scenarios: Scenarios,
    /// Those that are played for mutants only.
    pub(super) slow: Scenarios,
}

impl TestedOperator {
    /// All of them. The names of their scenarios differ: an id of a plan names no operator.
    pub(super) const ALL: &[Self] = &[
        Self {
            row: &api::tasks::OPERATOR,
            page: report_age::TASKS_PAGE,
            share: 60,
            compound: 520,
            watched: tasks::watched,
            selected: &[],
            additions: &[],
            beside: Vec::new,
            scenarios: |services| tasks::scenarios(&services.git),
            slow: |services| tasks::slow(&services.git),
        },
        Self {
            row: &api::tenants::OPERATOR,
            page: report_age::TENANTS_PAGE,
            share: 30,
            compound: 100,
            watched: tenants::watched,
            selected: tenants::SELECTED,
            additions: &[],
            beside: tenants::beside,
            scenarios: |_| tenants::scenarios(),
            slow: |_| tenants::slow(),
        },
        Self {
            row: &api::apps::OPERATOR,
            page: report_age::APPS_PAGE,
            // One for each scenario: a play takes a minute or two.
            share: 6,
            compound: 60,
            watched: apps::watched,
            selected: &[],
            additions: &[Addition::Snapshots, Addition::Flux],
            beside: Vec::new,
            scenarios: apps::scenarios,
            slow: |_| Vec::new(),
        },
    ];

    /// The operator of this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|tested| tested.row.name == name)
    }

    /// The names of all, for messages.
    pub(super) fn names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|tested| tested.row.name).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_report_gets_its_age() {
        for tested in TestedOperator::ALL {
            assert!(report_age::PAGES.contains(&tested.page), "{:?}", tested.row);
        }
    }
}
