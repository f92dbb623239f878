//! Admission policies for UpgradeRequests: for their authors and for their operator.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;

use super::{
    Matched, allowed, apps::may_patch, conditional_policy, denial, owned_list, permission_message,
    policy, requests, task_operator::bound,
};
use crate::{
    GROUP,
    apps::{
        GIT_REPOSITORY, HELM_RELEASE, KUSTOMIZATION, MANAGED_APP, ROLLBACK_REQUEST, UPGRADE_REQUEST,
    },
    names,
};

/// Annotation with the token of a requested reconciliation of Flux.
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Fields of a CronJob's spec that the operator must not change.
const CRON_JOB_FIELDS: &[&str] = &[
    "concurrencyPolicy",
    "failedJobsHistoryLimit",
    "jobTemplate",
    "schedule",
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
    "timeZone",
];

/// Returns the policies for authors of UpgradeRequests, and for the field `git` of ManagedApps. The installation must
/// prefix their names with its own.
#[must_use]
pub fn upgrade_authors() -> Vec<ValidatingAdmissionPolicy> {
    vec![
        may_upgrade(),
        may_read_credentials(),
        may_suspend_parent(),
        may_approve(),
    ]
}

/// Requires permission to patch the Kustomization that an upgrade suspends before that of the application.
fn may_suspend_parent() -> ValidatingAdmissionPolicy {
    policy(
        "suspend-reference",
        &Matched {
            versions: &["v1alpha1"],
            resources: &["managedapps"],
            name: "changed",
            when: "oldObject == null || object.spec != oldObject.spec",
        },
        &[],
        vec![may_patch(KUSTOMIZATION, "suspendRef")],
    )
}

fn may_upgrade() -> ValidatingAdmissionPolicy {
    let app = "object.spec.managedAppRef.name";
    let may = allowed(GROUP, "managedapps", Some(app), "upgrade");
    policy(
        "upgrade-app",
        &Matched {
            versions: &["v1alpha1"],
            resources: &["upgraderequests"],
            name: "created",
            when: "oldObject == null",
        },
        &[],
        vec![denial(
            may,
            "spec.managedAppRef: the author of an UpgradeRequest must be allowed to 'upgrade' the ManagedApp",
            &permission_message(
                "\"spec.managedAppRef: \"",
                "'upgrade' the ManagedApp '\" + object.spec.managedAppRef.name + \"'",
            ),
        )],
    )
}

/// Requires the verb `approve` of a user that decides about a plan, and that user's own name.
fn may_approve() -> ValidatingAdmissionPolicy {
    let app = "object.spec.managedAppRef.name";
    policy(
        "approve-upgrade",
        &Matched {
            versions: &["v1alpha1"],
            resources: &["upgraderequests"],
            name: "decided",
            when: "has(object.spec.approval) && (oldObject == null || !has(oldObject.spec.approval))",
        },
        &[],
        vec![
            denial(
                allowed(GROUP, "managedapps", Some(app), "approve"),
                "spec.approval: a user that decides about an upgrade must be allowed to 'approve' the ManagedApp",
                &permission_message(
                    "\"spec.approval: \"",
                    "'approve' the ManagedApp '\" + object.spec.managedAppRef.name + \"'",
                ),
            ),
            denial(
                "object.spec.approval.by == request.userInfo.username".to_owned(),
                "spec.approval.by: must be the name of the user that decides",
                "\"spec.approval.by: must be '\" + request.userInfo.username + \"', the name of the user that decides\"",
            ),
        ],
    )
}

/// Requires permission to read the Secret with the credentials. The step sends them to the URL of the author.
fn may_read_credentials() -> ValidatingAdmissionPolicy {
    let secret = "object.spec.git.credentialsSecretRef.name";
    let may = allowed("", "secrets", Some(secret), "get");
    policy(
        "git-credentials",
        &Matched {
            versions: &["v1alpha1"],
            resources: &["managedapps"],
            name: "changed",
            when: "oldObject == null || object.spec != oldObject.spec",
        },
        &[],
        vec![denial(
            format!("!has(object.spec.git) || {may}"),
            "spec.git.credentialsSecretRef: the author of a ManagedApp must be allowed to 'get' the Secret",
            &permission_message(
                "\"spec.git.credentialsSecretRef: \"",
                "'get' the Secret '\" + object.spec.git.credentialsSecretRef.name + \"'",
            ),
        )],
    )
}

/// Returns the bounds of the operator for upgrades. The installation must add the condition [`super::by_user`] to each
/// policy. Without them, a permission to patch a Kustomization would control the whole cluster.
#[must_use]
pub fn upgrade_operator() -> Vec<ValidatingAdmissionPolicy> {
    vec![
        own_flux_objects(),
        own_git_repositories(),
        own_cron_jobs(),
        own_commit_jobs(),
        own_snapshots(),
        own_requests(),
        own_managed_apps(),
    ]
}

/// Returns an expression that two maps differ in these keys only. The variables have the names `{name}Before` and
/// `{name}After`.
pub(super) fn same_but(name: &str, keys: &[&str]) -> String {
    let (before, after) = (
        format!("variables.{name}Before"),
        format!("variables.{name}After"),
    );
    let keys = owned_list(keys);
    format!(
        "{after}.all(key, key in {keys} || (key in {before} && {after}[key] == {before}[key])) && {before}.all(key, key in {keys} || key in {after})"
    )
}

/// Returns an expression that labels, finalizers and owners are unchanged.
pub(super) fn same_metadata(fields: &[&str]) -> String {
    let same = |field: &&str| format!("object.metadata.?{field} == oldObject.metadata.?{field}");
    fields.iter().map(same).collect::<Vec<_>>().join(" && ")
}

/// Admits only the suspension, the lock and the token of a Flux object.
fn own_flux_objects() -> ValidatingAdmissionPolicy {
    let spec = |object: &str| format!("dyn({object}.?spec.orValue({{}}))");
    let annotations = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
    conditional_policy(
        "own-flux-objects",
        vec![
            requests(
                KUSTOMIZATION.group,
                &["*"],
                &[KUSTOMIZATION.plural],
                &["UPDATE"],
            ),
            requests(
                HELM_RELEASE.group,
                &["*"],
                &[HELM_RELEASE.plural],
                &["UPDATE"],
            ),
        ],
        None,
        &[
            ("specBefore", spec("oldObject")),
            ("specAfter", spec("object")),
            ("annotationsBefore", annotations("oldObject")),
            ("annotationsAfter", annotations("object")),
        ],
        vec![
            bound(
                same_but("spec", &["suspend"]),
                "changes no field of a Flux object but 'spec.suspend'",
            ),
            bound(
                same_but("annotations", &[names::LOCK, REQUESTED_AT]),
                "changes no annotation of a Flux object but its lock and its token",
            ),
            bound(
                same_metadata(&["finalizers", "labels", "ownerReferences"]),
                "changes no labels, finalizers or owners of a Flux object",
            ),
        ],
    )
}

/// Admits only the token of a GitRepository. Another URL would apply any manifest.
fn own_git_repositories() -> ValidatingAdmissionPolicy {
    let annotations = |object: &str| format!("{object}.metadata.?annotations.orValue({{}})");
    conditional_policy(
        "own-git-repositories",
        vec![requests(
            GIT_REPOSITORY.group,
            &["*"],
            &[GIT_REPOSITORY.plural],
            &["UPDATE"],
        )],
        None,
        &[
            ("annotationsBefore", annotations("oldObject")),
            ("annotationsAfter", annotations("object")),
        ],
        vec![
            bound(
                "object.?spec == oldObject.?spec".to_owned(),
                "never changes the spec of a GitRepository",
            ),
            bound(
                same_but("annotations", &[REQUESTED_AT]),
                "changes no annotation of a GitRepository but its token",
            ),
            bound(
                same_metadata(&["finalizers", "labels", "ownerReferences"]),
                "changes no labels, finalizers or owners of a GitRepository",
            ),
        ],
    )
}

/// Admits only the Job that runs `step commit`. Another Pod could mount any Secret of the namespace.
fn own_commit_jobs() -> ValidatingAdmissionPolicy {
    let kinds = owned_list(&[UPGRADE_REQUEST.name(), ROLLBACK_REQUEST.name()]);
    let is_create = "request.operation != 'CREATE' || ";
    conditional_policy(
        "own-commit-jobs",
        vec![requests(
            "batch",
            &["*"],
            &["jobs"],
            &["CREATE", "UPDATE", "DELETE"],
        )],
        None,
        &[
            (
                "job",
                "request.operation == 'CREATE' ? object : oldObject".to_owned(),
            ),
            ("pod", "variables.job.spec.template.spec".to_owned()),
        ],
        vec![
            bound(
                format!(
                    "variables.job.metadata.?labels[?'{}'].orValue('') in {kinds}",
                    names::KIND
                ),
                "writes Jobs with the label of an UpgradeRequest or a RollbackRequest only",
            ),
            bound(
                format!(
                    "{is_create}(variables.pod.containers.size() == 1 && variables.pod.?initContainers.orValue([]).size() == 0 && variables.pod.containers[0].?command.orValue([]) == ['/usr/local/bin/step', 'commit'] && variables.pod.containers[0].?args.orValue([]).size() == 0)"
                ),
                "creates Jobs that run 'step commit' only",
            ),
            bound(
                format!(
                    "{is_create}(variables.pod.?automountServiceAccountToken.orValue(true) == false && variables.pod.?serviceAccountName.orValue('') == '' && variables.pod.?hostNetwork.orValue(false) == false && variables.pod.?volumes.orValue([]).all(volume, has(volume.emptyDir) || has(volume.secret)))"
                ),
                "creates Jobs without a token and without volumes of others",
            ),
        ],
    )
}

/// Admits only the suspension of a CronJob. Its template would run any Pod.
fn own_cron_jobs() -> ValidatingAdmissionPolicy {
    let same = |field: &&str| format!("object.spec.?{field} == oldObject.spec.?{field}");
    let fields: Vec<String> = CRON_JOB_FIELDS.iter().map(same).collect();
    conditional_policy(
        "own-cron-jobs",
        vec![requests("batch", &["*"], &["cronjobs"], &["UPDATE"])],
        None,
        &[],
        vec![
            bound(
                fields.join(" && "),
                "changes no field of a CronJob but 'spec.suspend'",
            ),
            bound(
                same_metadata(&["annotations", "finalizers", "labels", "ownerReferences"]),
                "changes no metadata of a CronJob",
            ),
        ],
    )
}

/// Admits only snapshots with the label of a request.
fn own_snapshots() -> ValidatingAdmissionPolicy {
    let kind = UPGRADE_REQUEST.name();
    conditional_policy(
        "own-snapshots",
        vec![requests(
            "snapshot.storage.k8s.io",
            &["*"],
            &["volumesnapshots"],
            &["CREATE", "UPDATE", "DELETE"],
        )],
        None,
        &[(
            "snapshot",
            "request.operation == 'CREATE' ? object : oldObject".to_owned(),
        )],
        vec![bound(
            format!(
                "variables.snapshot.metadata.?labels[?'{}'].orValue('') == '{kind}'",
                names::KIND
            ),
            "writes snapshots with the label of an UpgradeRequest only",
        )],
    )
}

/// Admits no change of the spec of a request.
fn own_requests() -> ValidatingAdmissionPolicy {
    conditional_policy(
        "own-upgrade-requests",
        vec![requests(
            GROUP,
            &["*"],
            &[UPGRADE_REQUEST.resource.plural],
            &["UPDATE"],
        )],
        None,
        &[],
        vec![bound(
            "object.spec == oldObject.spec".to_owned(),
            "never changes the spec of an UpgradeRequest",
        )],
    )
}

/// Admits no change of the spec of a ManagedApp. Another reference would let the operator change another application.
fn own_managed_apps() -> ValidatingAdmissionPolicy {
    conditional_policy(
        "own-managed-apps",
        vec![requests(
            GROUP,
            &["*"],
            &[MANAGED_APP.resource.plural],
            &["UPDATE"],
        )],
        None,
        &[],
        vec![bound(
            "object.spec == oldObject.spec".to_owned(),
            "never changes the spec of a ManagedApp",
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
    fn an_author_needs_the_verb_on_the_app() {
        let all = upgrade_authors();
        let found = expressions(&all[0]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains(".name(object.spec.managedAppRef.name).check('upgrade')"),
            "{found:?}"
        );
    }

    /// The object records the approver, so nobody may approve in another user's name.
    #[test]
    fn an_approver_needs_the_verb_and_their_own_name() {
        let found = expressions(&may_approve());
        assert!(found[0].contains(".check('approve')"), "{found:?}");
        assert_eq!(
            found[1],
            "object.spec.approval.by == request.userInfo.username"
        );
    }

    /// The credentials of another team must not be sent to the server of the author.
    #[test]
    fn an_author_may_read_the_credentials() {
        let found = expressions(&may_read_credentials());
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("!has(object.spec.git) || "),
            "{found:?}"
        );
        assert!(
            found[0].contains(
                ".name(object.spec.git.credentialsSecretRef.name).check('get').allowed()"
            ),
            "{found:?}"
        );
    }

    /// Another Job could mount any Secret, and another GitRepository could apply any manifest.
    #[test]
    fn the_operator_creates_one_form_of_jobs_and_changes_no_source() {
        let jobs = expressions(&own_commit_jobs());
        assert!(
            jobs[0].ends_with("in ['UpgradeRequest', 'RollbackRequest']"),
            "{jobs:?}"
        );
        assert!(
            jobs[1].contains("['/usr/local/bin/step', 'commit']"),
            "{jobs:?}"
        );
        assert!(jobs[2].contains("automountServiceAccountToken"), "{jobs:?}");
        let source = expressions(&own_git_repositories());
        assert_eq!(source[0], "object.?spec == oldObject.?spec");
        assert!(
            source[1].contains("key in ['reconcile.fluxcd.io/requestedAt']"),
            "{source:?}"
        );
    }

    /// OA6: no field of Flux objects is written beyond the allowed list.
    #[test]
    fn the_operator_changes_only_the_allowed_fields() {
        let flux = expressions(&own_flux_objects());
        assert!(flux[0].contains("key in ['suspend']"), "{flux:?}");
        assert!(
            flux[1].contains("key in ['orchestrator.io/lock', 'reconcile.fluxcd.io/requestedAt']"),
            "{flux:?}"
        );
        let jobs = expressions(&own_cron_jobs());
        assert!(jobs[0].contains("object.spec.?jobTemplate == oldObject.spec.?jobTemplate"));
        assert!(!jobs[0].contains("suspend"));
        let snapshots = expressions(&own_snapshots());
        assert!(snapshots[0].ends_with("== 'UpgradeRequest'"));
    }

    #[test]
    fn each_policy_has_a_name_of_its_own() {
        let all: Vec<_> = upgrade_authors()
            .into_iter()
            .chain(upgrade_operator())
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
