//! Admission policies and roles for ManagedApps and their requests: for their authors and for their operator.
//!
//! The status of a ManagedApp shows the workloads and volumes of an application in any namespace.
//! So the author must have permission for the objects of Flux that the ManagedApp references.

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, Validation},
    rbac::v1::ClusterRole,
};

use super::{
    Matched, READ, WRITE, children, denial, own_lease, policy, role, rollback_authors,
    rollback_operator, rule, upgrade_authors, upgrade_operator,
};
use crate::{
    GROUP,
    apps::{HELM_RELEASE, KUSTOMIZATION, OPERATOR},
    decide::ResourceType,
};

/// Returns the policies for authors of ManagedApps, UpgradeRequests and RollbackRequests. The installation must prefix their
/// names with its own.
#[must_use]
pub fn apps() -> Vec<ValidatingAdmissionPolicy> {
    let mut all = vec![flux_references()];
    all.extend(upgrade_authors());
    all.extend(rollback_authors());
    all.extend(children::of_apps());
    all
}

/// Returns the bounds of the apps operator. The installation must add the condition [`super::by_user`] to each
/// policy. RBAC can limit neither a patch to fields, nor a creation to a name or to a form.
#[must_use]
pub fn app_operator() -> Vec<ValidatingAdmissionPolicy> {
    let mut all = vec![own_lease(OPERATOR.lease)];
    all.extend(upgrade_operator());
    all.extend(rollback_operator());
    all
}

/// Returns roles for users of ManagedApps, which the cluster's own roles `view`, `edit` and `admin` aggregate.
///
/// Only `admin` may approve: with `approval: Required`, an editor shall not decide about their own upgrade.
#[must_use]
pub fn app_roles() -> Vec<ClusterRole> {
    let kinds = OPERATOR.plurals();
    vec![
        role("view", &["view"], vec![rule(GROUP, &kinds, READ)]),
        role(
            "edit",
            &["admin", "edit"],
            vec![
                rule(GROUP, &kinds, WRITE),
                rule(GROUP, &["managedapps"], &["rollback", "upgrade"]),
            ],
        ),
        role(
            "approve",
            &["admin"],
            vec![rule(GROUP, &["managedapps"], &["approve"])],
        ),
    ]
}

/// Requires permission to patch the Kustomization and the HelmRelease that a ManagedApp references.
fn flux_references() -> ValidatingAdmissionPolicy {
    policy(
        "flux-references",
        &Matched {
            versions: &["v1alpha1"],
            resources: &["managedapps"],
            name: "changed",
            when: "oldObject == null || object.spec != oldObject.spec",
        },
        &[],
        vec![
            may_patch(KUSTOMIZATION, "kustomizationRef"),
            may_patch(HELM_RELEASE, "helmReleaseRef"),
        ],
    )
}

/// Returns a validation that the author may patch the object in this field, if the field is set.
pub(super) fn may_patch(resource: ResourceType, field: &str) -> Validation {
    let ResourceType {
        group,
        kind,
        plural,
        ..
    } = resource;
    let path = format!("object.spec.{field}");
    let namespace = format!("(has({path}.namespace) ? {path}.namespace : request.namespace)");
    denial(
        format!(
            "!has({path}) || authorizer.group('{group}').resource('{plural}').namespace{namespace}.name({path}.name).check('patch').allowed()"
        ),
        &format!("spec.{field}: the author of a ManagedApp must be allowed to 'patch' the {kind}"),
        &format!(
            "\"spec.{field}: '\" + request.userInfo.username + \"' must be allowed to 'patch' the {kind} '\" + {path}.name + \"' in the namespace '\" + {namespace} + \"'\""
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reference_is_checked_by_name_in_its_own_namespace() {
        let spec = flux_references().spec.unwrap();
        let checks: Vec<String> = spec
            .validations
            .unwrap()
            .into_iter()
            .map(|one| one.expression)
            .collect();
        assert_eq!(checks.len(), 2);
        for (check, field) in checks.iter().zip(["kustomizationRef", "helmReleaseRef"]) {
            assert!(
                check.contains(&format!(".name(object.spec.{field}.name)")),
                "{check}"
            );
            assert!(check.contains("request.namespace"), "{check}");
            assert!(check.ends_with(".check('patch').allowed()"), "{check}");
        }
    }

    /// Without the name of the Lease, the operator could take the Lease of another operator.
    #[test]
    fn the_operator_writes_only_its_own_lease() {
        let all = app_operator();
        let spec = all[0].spec.as_ref().unwrap();
        let validations = spec.validations.as_ref().unwrap();
        assert!(validations[0].expression.contains("'orchestrator-apps'"));
    }
}
