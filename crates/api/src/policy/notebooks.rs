//! Admission policies for NotebookValidationJobs: for their authors and for their operator.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, Validation};

use super::{
    Matched, PROTECTED_NAMESPACES, allowed, children, conditional_policy, denial, has_path,
    outcome, owned_list, permission_message, policy, requests,
    task_operator::{SYSTEM_NAMESPACES, bound, own_pods, restricted, without_host},
};
use crate::{GROUP, names, notebooks::NOTEBOOK_VALIDATION_JOB, policy::own_lease};

const CHANGES: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// Returns the policies for authors of NotebookValidationJobs. The installation must prefix their names with its own.
#[must_use]
pub fn notebook_authors() -> Vec<ValidatingAdmissionPolicy> {
    let plural = NOTEBOOK_VALIDATION_JOB.resource.plural;
    let mut all = vec![references(), outcome(&["v1alpha1"], &[plural])];
    all.extend(children::of_notebooks());
    all
}

/// Requires that an author could access every reference of a job without it, with a Pod of their own or by reading the
/// object.
fn references() -> ValidatingAdmissionPolicy {
    let list = |field: &str| format!("object.spec.podConfig.?{field}.orValue([])");
    // `whole` has the field `name`, and `part` is the name itself.
    let named = |list: &str, whole: &str, part: &str, kind: &str| {
        let start = format!("spec.podConfig.{list} names the {kind} '");
        if whole.is_empty() {
            return format!("variables.{list}.map(one, \"{start}\" + one.{part} + \"'\")");
        }
        let has = has_path(whole);
        format!("variables.{list}.map(one, {has}, \"{start}\" + one.{whole}.{part} + \"'\")")
    };
    let secrets = [
        named("env", "valueFrom.secretKeyRef", "name", "Secret"),
        named("envFrom", "secretRef", "name", "Secret"),
        named("volumes", "secret", "secretName", "Secret"),
        named("imagePullSecrets", "", "name", "Secret"),
    ];
    let config_maps = [
        named("env", "valueFrom.configMapKeyRef", "name", "ConfigMap"),
        named("envFrom", "configMapRef", "name", "ConfigMap"),
        named("volumes", "configMap", "name", "ConfigMap"),
    ];
    let claim = "persistentVolumeClaim";
    let variables = [
        ("env", list("env")),
        ("envFrom", list("envFrom")),
        ("imagePullSecrets", list("imagePullSecrets")),
        ("volumes", list("volumes")),
        ("secrets", secrets.join(" + ")),
        ("configMaps", config_maps.join(" + ")),
        (
            "claims",
            named("volumes", claim, "claimName", "PersistentVolumeClaim"),
        ),
        ("createsPods", allowed("", "pods", None, "create")),
    ];
    policy(
        "notebook-references",
        &Matched {
            versions: &["v1alpha1"],
            resources: &[NOTEBOOK_VALIDATION_JOB.resource.plural],
            name: "changed",
            when: "oldObject == null || object.spec != oldObject.spec",
        },
        &variables,
        vec![
            git_secret("notebook", "notebook.git"),
            git_secret("goldenNotebook", "goldenNotebook.git"),
            account(),
            by_list("secrets", "Secret"),
            by_list("configMaps", "ConfigMap"),
            // To read a claim gives no access to its data. Only a Pod does.
            denial(
                "variables.claims.size() == 0 || variables.createsPods".to_owned(),
                "spec.podConfig.volumes: who names a PersistentVolumeClaim must be allowed to 'create pods'",
                &permission_message("variables.claims[0] + \": \"", "'create pods'"),
            ),
        ],
    )
}

/// Requires permission for the Secret of a repository, by its name.
fn git_secret(field: &str, path: &str) -> Validation {
    let secret = format!("object.spec.{path}.credentialsSecretRef");
    let has = format!("has(object.spec.{field}) && has(object.spec.{path}) && has({secret})");
    let reads = allowed("", "secrets", Some(&format!("{secret}.name")), "get");
    denial(
        format!("!({has}) || variables.createsPods || {reads}"),
        &format!(
            "spec.{path}.credentialsSecretRef: who names a Secret must be allowed to 'create pods' or to 'get' that Secret"
        ),
        &permission_message(
            &format!(
                "\"spec.{path}.credentialsSecretRef names the Secret '\" + {secret}.name + \"': \""
            ),
            "'create pods' or to 'get' that Secret",
        ),
    )
}

fn account() -> Validation {
    let config = "object.spec.podConfig";
    let name = format!("{config}.serviceAccountName");
    let may = allowed("", "serviceaccounts", Some(&name), "impersonate");
    denial(
        format!(
            "({name} == 'default' && !{config}.automountToken) || variables.createsPods || {may}"
        ),
        "spec.podConfig.serviceAccountName: who names a ServiceAccount must be allowed to 'create pods' or to 'impersonate' it",
        &permission_message(
            &format!("\"spec.podConfig names the ServiceAccount '\" + {name} + \"': \""),
            "'create pods' or to 'impersonate' that ServiceAccount",
        ),
    )
}

fn by_list(list: &str, kind: &str) -> Validation {
    let resource = list.to_lowercase();
    let read = allowed("", &resource, None, "get");
    denial(
        format!("variables.{list}.size() == 0 || variables.createsPods || {read}"),
        &format!(
            "spec.podConfig: who names a {kind} must be allowed to 'create pods' or to 'get {resource}'"
        ),
        &permission_message(
            &format!("variables.{list}[0] + \": \""),
            &format!("'create pods' or to 'get {resource}'"),
        ),
    )
}

/// Returns the bounds of the operator. The installation must add the condition [`super::by_user`] to each policy.
#[must_use]
pub fn notebook_operator(lease: &str) -> Vec<ValidatingAdmissionPolicy> {
    vec![
        own_children(),
        own_jobs(),
        own_pods(&[NOTEBOOK_VALIDATION_JOB.name()]),
        own_spec(),
        own_lease(lease),
    ]
}

/// Admits only Jobs and ConfigMaps of a job, with its label and its owner reference.
fn own_children() -> ValidatingAdmissionPolicy {
    let kind = NOTEBOOK_VALIDATION_JOB.name();
    let label = |key: &str| format!("variables.child.metadata.?labels[?'{key}'].orValue('')");
    let owners = "object.metadata.?ownerReferences.orValue([])";
    conditional_policy(
        "own-children",
        vec![
            requests("", &["v1"], &["configmaps"], CHANGES),
            requests("batch", &["v1"], &["jobs"], CHANGES),
        ],
        None,
        &[
            (PROTECTED_NAMESPACES, owned_list(SYSTEM_NAMESPACES)),
            (
                "child",
                "request.operation == 'CREATE' ? object : oldObject".to_owned(),
            ),
            ("uid", label(names::UID)),
        ],
        vec![
            bound(
                format!("{} == '{kind}'", label(names::KIND)),
                "writes Jobs and ConfigMaps with the label of a NotebookValidationJob only",
            ),
            bound(
                format!(
                    "request.operation != 'CREATE' || (variables.uid != '' && {owners}.size() == 1 && {owners}.all(one, one.apiVersion.startsWith('{GROUP}/') \
                     && one.kind == '{kind}' && one.uid == variables.uid && one.?controller.orValue(false)))"
                ),
                "creates Jobs and ConfigMaps with one owner reference, to the NotebookValidationJob of their labels",
            ),
            bound(
                "request.operation != 'UPDATE' || (object.metadata.?labels == oldObject.metadata.?labels && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences)".to_owned(),
                "changes neither the owner nor the labels of a Job",
            ),
            bound(
                format!(
                    "request.operation != 'CREATE' || !(request.namespace in variables.{PROTECTED_NAMESPACES})"
                ),
                "creates nothing in protected namespaces (see the chart's value 'admissionPolicies.protectedNamespaces')",
            ),
        ],
    )
}

/// Bounds the Pods of Jobs. An unchanged template is not checked, so a Job that a webhook changed can still be suspended.
fn own_jobs() -> ValidatingAdmissionPolicy {
    let spec = "variables.pod";
    let containers = format!(
        "{spec}.containers.all(one, one.name in ['kernel', 'runner']) && {spec}.?initContainers.orValue([]).all(one, one.name == 'fetch')"
    );
    // A user's volume begins with 'own-'. All others are the operator's.
    let volumes = format!(
        "{spec}.?volumes.orValue([]).all(one, has(one.emptyDir) \
         || (has(one.secret) && (one.name in ['credentials', 'golden-credentials'] || one.name.startsWith('masked-') || one.name.startsWith('own-'))) \
         || (has(one.configMap) && one.name.startsWith('own-')) \
         || (has(one.persistentVolumeClaim) && one.name.startsWith('own-')) \
         || (has(one.projected) && one.name == 'token'))"
    );
    // Git credentials in the kernel's container would be readable for the notebook.
    let mounts = format!(
        "{spec}.containers.all(one, one.?volumeMounts.orValue([]).all(mount, !(mount.name in ['credentials', 'golden-credentials']) && (one.name != 'kernel' || mount.name != 'inputs')))"
    );
    let unless_unchanged = |expression: String| format!("variables.isUnchanged || ({expression})");
    conditional_policy(
        "own-jobs",
        vec![requests("batch", &["v1"], &["jobs"], &["CREATE", "UPDATE"])],
        None,
        &[
            ("pod", "object.spec.template.spec".to_owned()),
            (
                "isUnchanged",
                "oldObject != null && object.spec.template == oldObject.spec.template".to_owned(),
            ),
        ],
        vec![
            bound(
                unless_unchanged(without_host(spec)),
                "creates Pods without access to their node",
            ),
            bound(
                unless_unchanged(restricted(spec)),
                "creates Pods of the Pod Security level 'restricted' only",
            ),
            bound(
                unless_unchanged(format!("({containers}) && {spec}.restartPolicy == 'Never'")),
                "creates Pods with the containers of a validation only",
            ),
            bound(
                unless_unchanged(volumes),
                "creates Pods with the volumes of a validation only",
            ),
            bound(
                unless_unchanged(mounts),
                "mounts Git credentials in no container with a kernel, and inputs in no kernel",
            ),
            bound(
                unless_unchanged(format!(
                    "{spec}.?automountServiceAccountToken.orValue(true) == false && has({spec}.serviceAccountName)"
                )),
                "creates Pods without an automounted token",
            ),
        ],
    )
}

/// Admits no change of the spec of a job.
fn own_spec() -> ValidatingAdmissionPolicy {
    conditional_policy(
        "own-notebooks",
        vec![requests(
            GROUP,
            &["*"],
            &[NOTEBOOK_VALIDATION_JOB.resource.plural],
            &["UPDATE"],
        )],
        None,
        &[],
        vec![bound(
            "object.spec == oldObject.spec".to_owned(),
            "never changes the spec of a NotebookValidationJob",
        )],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{notebooks::PERMISSIONS, policy::tests::fields_of, rbac::Permission};

    fn all() -> Vec<ValidatingAdmissionPolicy> {
        let mut all = notebook_authors();
        all.extend(notebook_operator("lease"));
        all
    }

    fn expressions(policies: Vec<ValidatingAdmissionPolicy>) -> Vec<String> {
        let specs = policies.into_iter().map(|policy| policy.spec.unwrap());
        let mut found = Vec::new();
        for spec in specs {
            let variables = spec.variables.unwrap_or_default().into_iter();
            found.extend(variables.map(|one| one.expression));
            let validations = spec.validations.unwrap_or_default().into_iter();
            found.extend(validations.map(|one| one.expression));
        }
        found
    }

    /// A new field that references an object needs a rule here, or a reason for its absence.
    #[test]
    fn each_field_that_names_an_object_is_checked() {
        // Classes belong to the cluster.
        let free = ["runtimeClassName", "priorityClassName"];
        let checked = expressions(notebook_authors()).join("\n");
        let mut seen = 0;
        for field in fields_of(vec![NOTEBOOK_VALIDATION_JOB.crd()]) {
            let ends = ["Ref", "Secrets", "Name", "From"];
            let is_reference = ends.iter().any(|end| field.ends_with(end));
            if is_reference && !free.contains(&field.as_str()) {
                seen += 1;
                assert!(checked.contains(&format!(".{field}")), "{field}");
            }
        }
        assert!(seen >= 10, "only {seen} fields");
    }

    /// The cost limit of the API server allows two checks in an expression, and no loop around one.
    #[test]
    fn no_expression_asks_the_authorizer_more_than_twice() {
        for expression in expressions(all()) {
            let direct = expression.matches(".check(").count();
            let by_variable = expression.matches("variables.createsPods").count();
            assert!(direct + by_variable <= 2, "{expression}");
            assert!(direct == 0 || !expression.contains(".map("), "{expression}");
        }
    }

    /// A new write permission needs a bound.
    #[test]
    fn each_resource_that_the_operator_writes_is_bounded() {
        let rules = notebook_operator("lease").into_iter().flat_map(|policy| {
            let constraints = policy.spec.unwrap().match_constraints.unwrap();
            constraints.resource_rules.unwrap()
        });
        let bounded: Vec<String> = rules.flat_map(|rule| rule.resources.unwrap()).collect();
        // Events and statuses start nothing.
        let free = ["events", "notebookvalidationjobs/status"];
        for Permission {
            resource, verbs, ..
        } in PERMISSIONS
        {
            let writes = verbs.iter().any(|verb| super::super::WRITE.contains(verb));
            if writes && !free.contains(resource) {
                assert!(bounded.iter().any(|known| known == resource), "{resource}");
            }
        }
    }

    #[test]
    fn each_policy_has_a_name_of_its_own() {
        let mut names: Vec<_> = all()
            .into_iter()
            .filter_map(|policy| policy.metadata.name)
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (9, 9));
    }
}
