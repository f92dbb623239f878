//! A CRD in the cluster, compared with the schema of this release.

use api::{crd::lacking, kinds::KindRow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::world::{CrdView, LIST};

impl CrdView {
    /// Compares the CRD of a kind in the cluster, or `None` if it does not exist.
    #[must_use]
    pub fn read(row: &KindRow, found: Option<&CustomResourceDefinition>) -> Self {
        let own = row.crd();
        let name = own.metadata.name.clone().unwrap_or_default();
        let Some(found) = found else {
            return Self {
                name,
                ..Self::default()
            };
        };
        let deleting = found.metadata.deletion_timestamp.as_ref();
        let mut lacks = lacking(found, &own);
        lacks.truncate(LIST);
        Self {
            name,
            exists: true,
            deleting: deleting.cloned(),
            lacks,
            ..Self::default()
        }
    }

    /// Returns the view of a CRD that the user may not read.
    #[must_use]
    pub fn forbidden(row: &KindRow) -> Self {
        Self {
            name: row.crd_name.to_owned(),
            forbidden: true,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use api::tasks::TASK_RUN;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn an_older_schema_lacks_a_version() {
        let mut crd = TASK_RUN.crd();
        assert!(CrdView::read(&TASK_RUN, Some(&crd)).lacks.is_empty());
        crd.spec.versions.first_mut().unwrap().served = false;
        let lacks = CrdView::read(&TASK_RUN, Some(&crd)).lacks;
        assert_eq!(lacks, ["version 'v1'"]);
    }

    #[test]
    fn a_missing_and_a_dying_crd_are_told_apart() {
        let missing = CrdView::read(&TASK_RUN, None);
        assert_eq!(
            (missing.name.as_str(), missing.exists),
            ("taskruns.orchestrator.io", false)
        );
        let mut crd = TASK_RUN.crd();
        let now = Time("2026-03-02T10:00:00Z".parse().unwrap());
        crd.metadata.deletion_timestamp = Some(now.clone());
        let found = CrdView::read(&TASK_RUN, Some(&crd));
        assert_eq!((found.exists, found.deleting), (true, Some(now)));
    }
}
