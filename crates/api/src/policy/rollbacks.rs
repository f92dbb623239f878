//! Admission policies for RollbackRequests: for their authors and for their operator.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;

use super::{
    Matched, OWN_USERS, allowed, conditional_policy, denial, owned_list, permission_message,
    policy, requests,
    task_operator::{bound, restricted, without_host},
    upgrades::{same_but, same_metadata},
};
use crate::{GROUP, apps::ROLLBACK_REQUEST, names};

/// Annotation of a claim that a rollback is about to replace: the UID of the rollback.
const REPLACED_BY: &str = "orchestrator.io/replaced-by";

/// Annotations of a PersistentVolume that a rollback writes.
const VOLUME_ANNOTATIONS: [&str; 2] = [
    "orchestrator.io/original-reclaim-policy",
    "orchestrator.io/source-pvc",
];

/// Returns the policies for authors of RollbackRequests. The installation must prefix their names with its own, and set
/// [`OWN_USERS`].
#[must_use]
pub fn rollback_authors() -> Vec<ValidatingAdmissionPolicy> {
    vec![may_roll_back()]
}

/// Requires the verb `rollback` on the ManagedApps of the namespace.
///
/// A RollbackRequest names its UpgradeRequest, and a policy cannot read the ManagedApp of another object. So a permission
/// for one ManagedApp by name is not enough. The operator itself creates RollbackRequests for failed upgrades.
fn may_roll_back() -> ValidatingAdmissionPolicy {
    policy(
        "roll-back-app",
        &Matched {
            versions: &["v1alpha1"],
            resources: &["rollbackrequests"],
            name: "created",
            when: "oldObject == null",
        },
        // The chart sets this list to the operator.
        &[(OWN_USERS, owned_list(&[]))],
        vec![denial(
            format!(
                "request.userInfo.username in variables.{OWN_USERS} || {}",
                allowed(GROUP, "managedapps", None, "rollback")
            ),
            "spec.upgradeRequestRef: the author of a RollbackRequest must be allowed to 'rollback' the ManagedApps of the namespace",
            &permission_message("\"spec.upgradeRequestRef: \"", "'rollback' ManagedApps"),
        )],
    )
}

/// Returns the bounds of the operator for rollbacks. The installation must add the condition [`super::by_user`] to each
/// policy. Without them, a permission to delete claims would be one to delete all data.
#[must_use]
pub fn rollback_operator() -> Vec<ValidatingAdmissionPolicy> {
    vec![
        own_volumes(),
        own_claims(),
        own_binder_pods(),
        own_rollback_requests(),
    ]
}

/// Admits only the reclaim policy, the claim and the annotations of a rollback. Another source would show other data.
fn own_volumes() -> ValidatingAdmissionPolicy {
    let spec = |object: &str| format!("dyn({object}.spec)");
    let annotations = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
    conditional_policy(
        "own-persistent-volumes",
        vec![requests("", &["*"], &["persistentvolumes"], &["UPDATE"])],
        None,
        &[
            ("annotationsBefore", annotations("oldObject")),
            ("annotationsAfter", annotations("object")),
        ],
        vec![
            bound(
                unchanged_spec(&spec("object"), &spec("oldObject")),
                "changes no field of a PersistentVolume but its reclaim policy and its claim",
            ),
            bound(
                "object.spec.?claimRef.?namespace == oldObject.spec.?claimRef.?namespace"
                    .to_owned(),
                "never gives a PersistentVolume to another namespace",
            ),
            bound(
                same_but("annotations", &VOLUME_ANNOTATIONS),
                "changes no annotation of a PersistentVolume but those of a rollback",
            ),
            bound(
                same_metadata(&["finalizers", "labels", "ownerReferences"]),
                "changes no labels, finalizers or owners of a PersistentVolume",
            ),
        ],
    )
}

/// Fields of a PersistentVolume's spec that the operator must not change. The API server itself keeps the source.
const VOLUME_FIELDS: [&str; 7] = [
    "accessModes",
    "capacity",
    "csi",
    "mountOptions",
    "nodeAffinity",
    "storageClassName",
    "volumeMode",
];

fn unchanged_spec(after: &str, before: &str) -> String {
    let same = |field: &&str| format!("{after}.?{field} == {before}.?{field}");
    let fields: Vec<String> = VOLUME_FIELDS.iter().map(same).collect();
    fields.join(" && ")
}

/// Admits only claims of a request, and the deletion of a claim that was announced. The announcement is an annotation, so
/// that the audit log has it before the deletion.
fn own_claims() -> ValidatingAdmissionPolicy {
    let kind = ROLLBACK_REQUEST.name();
    let label = |object: &str| {
        format!(
            "{object}.metadata.?labels[?'{}'].orValue('') == '{kind}'",
            names::KIND
        )
    };
    let annotation =
        |object: &str, name: &str| format!("{object}.metadata.?annotations[?'{name}'].orValue('')");
    let annotations = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
    let is_temporary = format!(
        "{} && object.spec.?dataSourceRef.?kind.orValue('') == 'VolumeSnapshot'",
        label("object")
    );
    // It repeats the labels of the replaced claim, so an annotation names the rollback.
    let is_restored = format!(
        "{} != '' && object.spec.?volumeName.orValue('') != '' && !has(object.metadata.ownerReferences)",
        annotation("object", names::UID)
    );
    let is_announced = format!("{} != ''", annotation("oldObject", REPLACED_BY));
    conditional_policy(
        "own-persistent-volume-claims",
        vec![requests(
            "",
            &["*"],
            &["persistentvolumeclaims"],
            &["CREATE", "UPDATE", "DELETE"],
        )],
        None,
        &[
            (
                "annotationsBefore",
                format!(
                    "request.operation == 'UPDATE' ? {} : {{}}",
                    annotations("oldObject")
                ),
            ),
            (
                "annotationsAfter",
                format!(
                    "request.operation == 'UPDATE' ? {} : {{}}",
                    annotations("object")
                ),
            ),
        ],
        vec![
            bound(
                format!("request.operation != 'CREATE' || ({is_temporary}) || ({is_restored})"),
                "creates claims that are restored from a snapshot only",
            ),
            bound(
                format!(
                    "request.operation != 'DELETE' || ({}) || {is_announced}",
                    label("oldObject")
                ),
                "deletes only its own claims, and those that it has announced",
            ),
            bound(
                "request.operation != 'UPDATE' || object.spec == oldObject.spec".to_owned(),
                "never changes the spec of a claim",
            ),
            bound(
                same_but("annotations", &[REPLACED_BY, names::UID, names::SPEC_HASH]),
                "changes no annotation of a claim but those of a rollback",
            ),
            bound(
                format!(
                    "request.operation != 'UPDATE' || ({})",
                    same_metadata(&["finalizers", "labels", "ownerReferences"])
                ),
                "changes no labels, finalizers or owners of a claim",
            ),
        ],
    )
}

/// Admits only the Pod that binds a restored volume. Another Pod could read any volume, and run any program.
fn own_binder_pods() -> ValidatingAdmissionPolicy {
    let kind = ROLLBACK_REQUEST.name();
    let is_create = "request.operation != 'CREATE' || ";
    let pod = "variables.pod.spec";
    conditional_policy(
        "own-binder-pods",
        vec![requests(
            "",
            &["*"],
            &["pods"],
            &["CREATE", "UPDATE", "DELETE"],
        )],
        None,
        &[(
            "pod",
            "request.operation == 'CREATE' ? object : oldObject".to_owned(),
        )],
        vec![
            bound(
                format!(
                    "request.operation != 'UPDATE' && variables.pod.metadata.?labels[?'{}'].orValue('') == '{kind}'",
                    names::KIND
                ),
                "creates and deletes Pods with the label of a RollbackRequest only",
            ),
            bound(
                format!(
                    "{is_create}({pod}.containers.size() == 1 && {pod}.?initContainers.orValue([]).size() == 0 && {pod}.containers[0].?command.orValue([]) == ['/usr/local/bin/step', 'bind'] && {pod}.containers[0].?args.orValue([]).size() == 0)"
                ),
                "creates Pods that run 'step bind' only",
            ),
            bound(
                format!(
                    "{is_create}({pod}.?automountServiceAccountToken.orValue(true) == false && {pod}.?serviceAccountName.orValue('') in ['', 'default'] && {pod}.?securityContext.?fsGroup.orValue(0) == 0 && {pod}.?volumes.orValue([]).all(volume, has(volume.emptyDir) || (has(volume.persistentVolumeClaim) && volume.persistentVolumeClaim.?readOnly.orValue(false))))"
                ),
                "creates Pods without a token, without 'fsGroup' and with volumes that are read only",
            ),
            bound(
                format!("{is_create}({})", no_host(pod)),
                "creates Pods without access to their node",
            ),
            bound(
                format!("{is_create}({})", restricted(pod)),
                "creates Pods of the level 'restricted' only",
            ),
        ],
    )
}

/// Returns an expression that a Pod has no access to its node. A block device of a claim is no device of the node.
fn no_host(pod: &str) -> String {
    let devices = " && one.?volumeDevices.orValue([]).size() == 0";
    without_host(pod).replace(devices, "")
}

/// Admits the creation of a RollbackRequest, and no change of the spec of an existing one.
fn own_rollback_requests() -> ValidatingAdmissionPolicy {
    conditional_policy(
        "own-rollback-requests",
        vec![requests(
            GROUP,
            &["*"],
            &[ROLLBACK_REQUEST.resource.plural],
            &["UPDATE"],
        )],
        None,
        &[],
        vec![bound(
            "object.spec == oldObject.spec".to_owned(),
            "never changes the spec of a RollbackRequest",
        )],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expressions(policy: &ValidatingAdmissionPolicy) -> Vec<String> {
        let spec = policy.spec.as_ref().unwrap();
        let validations = spec.validations.iter().flat_map(|all| all.iter());
        validations.map(|one| one.expression.clone()).collect()
    }

    #[test]
    fn an_author_needs_the_verb_on_the_apps_of_the_namespace() {
        let found = expressions(&rollback_authors()[0]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("resource('managedapps')")
                && found[0].ends_with(".check('rollback').allowed()"),
            "{found:?}"
        );
    }

    /// OA3: no claim is deleted unless its deletion was announced.
    #[test]
    fn the_operator_deletes_only_announced_claims() {
        let found = expressions(&own_claims());
        assert!(
            found[1].contains("orchestrator.io/replaced-by"),
            "{found:?}"
        );
        assert!(found[2].contains("object.spec == oldObject.spec"));
        assert!(found[0].contains("'VolumeSnapshot'"), "{found:?}");
    }

    /// OA6: the source of a volume is never changed.
    #[test]
    fn the_operator_changes_no_source_of_a_volume() {
        let found = expressions(&own_volumes());
        for field in VOLUME_FIELDS {
            assert!(found[0].contains(&format!(".?{field} ==")), "{field}");
        }
        assert!(!found[0].contains("claimRef"));
        assert!(!found[0].contains("persistentVolumeReclaimPolicy"));
    }

    /// The annotations are those that the decisions of the operator write.
    #[test]
    fn the_operator_creates_one_form_of_pods() {
        let found = expressions(&own_binder_pods());
        assert!(
            found[1].contains("['/usr/local/bin/step', 'bind']"),
            "{found:?}"
        );
        assert!(found[2].contains("readOnly"), "{found:?}");
        // A volume with the mode `Block` is a device of the Pod.
        assert!(!found[3].contains("volumeDevices"), "{found:?}");
        assert!(found[3].contains("hostPID"), "{found:?}");
    }

    #[test]
    fn each_policy_has_a_name_of_its_own() {
        let all: Vec<_> = rollback_authors()
            .into_iter()
            .chain(rollback_operator())
            .chain(super::super::upgrade_authors())
            .chain(super::super::upgrade_operator())
            .collect();
        let mut names: Vec<_> = all
            .iter()
            .filter_map(|one| one.metadata.name.clone())
            .collect();
        assert_eq!(names.len(), all.len());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }
}
