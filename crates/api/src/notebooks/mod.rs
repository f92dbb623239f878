//! The kind of the notebooks operator: a [`NotebookValidationJob`] runs a notebook of a Git repository and compares its
//! outputs with those of a golden notebook.

mod build_reasons;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod checks;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod job;
mod permissions;
mod phase;
#[expect(
    unreachable_pub,
    reason = "the schema derive repeats each struct inside a function"
)]
mod pod_config;
mod reasons;
mod rules;
mod status;

use crate::{Reason, kinds::OperatorRow, policy};

pub use checks::{
    Checks, Comparison, CustomPattern, ExpectedOutput, Level, Normalizer, Strategy, Validation,
};
pub use job::{
    GitSource, GoldenNotebook, NOTEBOOK_VALIDATION_JOB, Notebook, NotebookValidationJob,
    NotebookValidationJobSpec, Results, Store, names,
};
pub use permissions::PERMISSIONS;
pub use phase::NotebookPhase;
pub use pod_config::{
    ConfigMapSource, EmptyDirSource, PersistentVolumeClaimSource, PodConfig, SecretSource,
    VolumeMount, VolumeSource,
};
pub use status::{
    CellMatch, CellResult, CellStatus, Cells, ComparisonResult, Difference, Expectations,
    MAX_CELLS, MAX_DIFFS, MAX_EXCERPT, NotebookValidationJobStatus, ReportStatus, condition,
    validation_intent,
};

/// The row of the notebooks operator in the table of kinds.
pub const OPERATOR: OperatorRow = OperatorRow {
    name: "notebooks",
    summary: "Notebooks that are executed and compared",
    lease: permissions::LEASE,
    needs_all_namespaces: None,
    kinds: &[NOTEBOOK_VALIDATION_JOB],
    permissions: PERMISSIONS,
    policies: policy::of_notebooks,
    reasons: reasons::REASONS,
};

/// Returns the reason of this name of a NotebookValidationJob, or `None` if this release does not know it. The reasons
/// of builds are not in the table of kinds.
#[must_use]
pub fn notebook_reason(name: &str) -> Option<Reason> {
    let mut of_builds = build_reasons::REASONS.iter().copied();
    of_builds
        .find(|known| known.name() == name)
        .or_else(|| Reason::from_name(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The roles of the operator's users are about its own kind only.
    #[test]
    fn users_get_permissions_for_the_kind_of_the_operator() {
        assert!(crate::kinds::OPERATORS.contains(&&OPERATOR));
        assert_eq!(OPERATOR.plurals(), ["notebookvalidationjobs"]);
        assert_eq!(OPERATOR.crds().len(), 1);
        let policies = (OPERATOR.policies)();
        assert_eq!(policies.policies.len(), 4);
        assert_eq!(policies.operator_policies.len(), 5);
        for role in policies.user_roles {
            for rule in role.rules.unwrap() {
                assert_eq!(
                    rule.resources,
                    Some(vec!["notebookvalidationjobs".to_owned()])
                );
            }
        }
        let leases = PERMISSIONS
            .iter()
            .filter(|one| one.names == [permissions::LEASE]);
        assert_eq!(leases.count(), 1);
    }

    #[test]
    fn each_reason_of_a_notebook_explains_itself_and_is_found() {
        let mut names: BTreeSet<&str> = Reason::all().map(Reason::name).collect();
        assert_eq!(names.len(), Reason::all().count());
        for reason in build_reasons::REASONS {
            assert!(names.insert(reason.name()), "{reason} is declared twice");
        }
        for reason in reasons::REASONS.iter().chain(build_reasons::REASONS) {
            assert!(reason.meaning().ends_with('.'), "{reason}");
            assert!(reason.advice().ends_with('.'), "{reason}");
            assert_eq!(notebook_reason(reason.name()), Some(*reason));
        }
        assert_eq!(notebook_reason("OOMKilled"), Some(Reason::OOMKilled));
        assert_eq!(notebook_reason("Other"), None);
    }
}
