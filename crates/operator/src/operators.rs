//! The controllers of each operator. A new operator adds its entry here.

use anyhow::{Context as _, Result};
use api::kinds::OperatorRow;
use engine::{Context, Scope, supervise::Supervisor};
use tasks::run::Defaults;

use crate::config::{Config, Tasks};

/// Everything that the controllers of an operator are started with.
pub(crate) struct Setup<'a> {
    pub(crate) context: Context,
    /// Namespace of the process.
    pub(crate) own_namespace: &'a str,
    pub(crate) config: &'a Config,
    pub(crate) workers: &'a mut Supervisor,
}

impl Setup<'_> {
    /// Returns the watched namespaces.
    fn scope(&self) -> Scope {
        let namespaces = &self.config.watch_namespaces;
        if namespaces.is_empty() {
            Scope::All
        } else {
            Scope::Namespaces(namespaces.clone())
        }
    }
}

/// Starts the controllers of one operator.
type Start = fn(Setup<'_>);

const STARTS: &[(&OperatorRow, Start)] = &[
    (&api::tasks::OPERATOR, start_tasks),
    (&api::tenants::OPERATOR, start_tenants),
    (&api::apps::OPERATOR, start_apps),
    (&api::notebooks::OPERATOR, start_notebooks),
];

/// Starts the controllers of an operator.
///
/// # Errors
/// When the operator has no entry here.
pub(crate) fn start(operator: &OperatorRow, setup: Setup<'_>) -> Result<()> {
    let mut all = STARTS.iter();
    let (_, start) = all
        .find(|(known, _)| *known == operator)
        .with_context(|| format!("operator '{}' has no controllers", operator.name))?;
    start(setup);
    Ok(())
}

fn start_tasks(setup: Setup<'_>) {
    let scope = setup.scope();
    let Tasks {
        default_resources,
        cleanup,
        delete_finished_runs_after,
        accept_changed_pods,
        docs,
    } = &setup.config.tasks;
    let defaults = Defaults {
        resources: default_resources.clone(),
        cleanup: cleanup.clone().into(),
        delete_finished_runs_after: *delete_finished_runs_after,
        accept_changed_pods: *accept_changed_pods,
    };
    let settings = docs.clone().into();
    tasks::controller::start(setup.context, scope, defaults, settings, setup.workers);
}

fn start_tenants(setup: Setup<'_>) {
    let settings = setup.config.tenants.settings(setup.own_namespace);
    tenants::controller::start(setup.context, settings, setup.workers);
}

fn start_apps(setup: Setup<'_>) {
    let scope = setup.scope();
    let settings = setup.config.apps.settings();
    apps::controller::start(setup.context, scope, settings, setup.workers);
}

fn start_notebooks(setup: Setup<'_>) {
    let scope = setup.scope();
    let settings = setup.config.notebooks.settings();
    notebooks::controller::start(setup.context, scope, settings, setup.workers);
}

#[cfg(test)]
mod tests {
    use api::kinds::OPERATORS;

    use super::*;

    #[test]
    fn each_operator_of_the_table_can_be_started() {
        let found: Vec<&OperatorRow> = STARTS.iter().map(|(operator, _)| *operator).collect();
        assert_eq!(found, OPERATORS);
    }
}
