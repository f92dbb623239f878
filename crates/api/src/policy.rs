//! Admission policies: the author of an object must have permission for everything that the object
//! makes us do.
//!
//! We act with our own permissions. Without these policies, permission to write an Agent or a
//! TaskRun would give access to every Secret and ServiceAccount in its namespace. The API server
//! asks its own authorizer about the author of the request. No program of ours takes part.
//!
//! # Caveats
//! - The author is the sender of the request. With GitOps, that is the GitOps controller.
//! - A policy is evaluated for a new object, or when a field changes that the policy is about. It
//!   is not evaluated for our own writes of finalizers and status: these continue even if the
//!   author loses permissions.
//! - For an Agent, a policy checks access to all Secrets or all ConfigMaps, not to each by name. A
//!   check for each name would be a loop, and the cost limit of the API server allows two checks in
//!   an expression.
//!
//! Operators may write in all namespaces, because the namespaces are not known in advance. Policies
//! bound these writes: see [`task_operator()`], [`tenant_operator`], [`app_operator`] and [`notebook_operator`]. Only
//! operators may create children with our labels: see [`tasks()`], [`tenants()`], [`apps()`] and [`notebook_authors`].

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
            ValidatingAdmissionPolicySpec, Validation, Variable,
        },
        rbac::v1::{ClusterRole, PolicyRule},
        scheduling::v1::PriorityClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;

use crate::{GROUP, names};

mod apps;
mod children;
mod notebooks;
mod rollbacks;
mod task_operator;
mod tenant_namespaces;
mod tenants;
mod upgrades;

pub use apps::{app_operator, app_roles, apps};
pub use notebooks::{notebook_authors, notebook_operator};
pub use rollbacks::{rollback_authors, rollback_operator};
pub(crate) use task_operator::own_lease;
pub use task_operator::task_operator;
pub use tenant_namespaces::tenant_namespaces;
pub use tenants::{
    by_user, tenant_operator, tenant_owner_role, tenant_probe_class, tenant_roles, tenants,
};
pub use upgrades::{upgrade_authors, upgrade_operator};

/// Admission policies and roles of an operator, as the chart installs them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policies {
    /// Policies about authors of the operator's objects. The chart prefixes their names with its own.
    pub policies: Vec<ValidatingAdmissionPolicy>,
    /// Policies about the operator's own writes. The chart also adds the operator's user.
    pub operator_policies: Vec<ValidatingAdmissionPolicy>,
    /// Roles for users. The chart prefixes their names with its own.
    pub user_roles: Vec<ClusterRole>,
    /// Objects that others reference by name, so they have the same name in every installation.
    pub shared: Vec<Shared>,
}

/// An object with the same name in every installation.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Shared {
    /// A role.
    Role(ClusterRole),
    /// A PriorityClass.
    Class(PriorityClass),
}

/// Returns the policies and roles of the tasks operator.
pub(crate) fn of_tasks() -> Policies {
    Policies {
        policies: tasks(),
        operator_policies: task_operator(),
        user_roles: task_roles(),
        shared: Vec::new(),
    }
}

/// Returns the policies and roles of the tenants operator: about authors of Tenants, and about requests in
/// their namespaces.
pub(crate) fn of_tenants() -> Policies {
    let mut policies = tenants();
    policies.extend(tenant_namespaces());
    Policies {
        policies,
        operator_policies: tenant_operator(),
        user_roles: tenant_roles(),
        shared: vec![
            Shared::Role(tenant_owner_role()),
            Shared::Class(tenant_probe_class()),
        ],
    }
}

/// Returns the policies and roles of the apps operator.
pub(crate) fn of_apps() -> Policies {
    Policies {
        policies: apps(),
        operator_policies: app_operator(),
        user_roles: app_roles(),
        shared: Vec::new(),
    }
}

/// Returns the policies and roles of the notebooks operator.
pub(crate) fn of_notebooks() -> Policies {
    let kinds = crate::notebooks::OPERATOR.plurals();
    Policies {
        policies: notebook_authors(),
        operator_policies: notebook_operator(crate::notebooks::OPERATOR.lease),
        user_roles: vec![
            role("view", &["view"], vec![rule(GROUP, &kinds, READ)]),
            role("edit", &["admin", "edit"], vec![rule(GROUP, &kinds, WRITE)]),
        ],
        shared: Vec::new(),
    }
}

/// Returns the policies of the tasks operator. The installation must prefix their names with its own.
#[must_use]
pub fn tasks() -> Vec<ValidatingAdmissionPolicy> {
    let mut all = vec![
        use_agent(),
        agent_references(),
        docs_references(),
        outcome(&["v1", "v1alpha1"], &["taskruns", "docsruns"]),
        submitted_by(),
    ];
    all.extend(children::of_tasks());
    all
}

/// Variable: the users that may set our labels. An installation sets its value with [`fill`].
pub const LABEL_WRITERS: &str = "labelWriters";
/// Variable: the user of the operator itself, in policies about authors that also judge objects which the operator creates.
/// See [`fill`].
pub const OWN_USERS: &str = "ownUsers";
/// Variable: the namespaces in which the operator of runs creates nothing. See [`fill`].
pub const PROTECTED_NAMESPACES: &str = "protectedNamespaces";
/// Variable: ServiceAccounts, as `namespace/name`, that have access to `kube-system`. Runs may
/// mount their tokens nevertheless. See [`fill`].
pub const POWERFUL_SERVICE_ACCOUNTS: &str = "powerfulServiceAccounts";
/// Variable: the PriorityClasses that Pods in namespaces of Tenants may have. The chart appends its value
/// `admissionPolicies.tenantPriorityClasses` to this list in JSON.
pub const PRIORITY_CLASSES: &str = "priorityClasses";

/// Sets a variable that only an installation knows, in each policy that has the variable.
pub fn fill(policies: &mut [ValidatingAdmissionPolicy], variable: &str, values: &[&str]) {
    for policy in policies {
        let spec = policy.spec.iter_mut();
        let variables = spec.flat_map(|spec| spec.variables.iter_mut());
        for one in variables.flat_map(|list| list.iter_mut()) {
            if one.name == variable {
                one.expression = owned_list(values);
            }
        }
    }
}

/// Returns a list of strings as a CEL expression. No string may contain a quote or a backslash.
fn owned_list(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("'{value}'")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Returns roles for users of the tasks operator, which the cluster's own roles `view`, `edit` and
/// `admin` aggregate. The installation must prefix their names with its own.
#[must_use]
pub fn task_roles() -> Vec<ClusterRole> {
    let kinds = crate::tasks::OPERATOR.plurals();
    vec![
        role("view", &["view"], vec![rule(GROUP, &kinds, READ)]),
        role(
            "edit",
            &["admin", "edit"],
            vec![
                rule(GROUP, &kinds, WRITE),
                rule(GROUP, &["agents"], &["use"]),
            ],
        ),
    ]
}

pub(crate) const READ: &[&str] = &["get", "list", "watch"];
pub(crate) const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];

pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        non_resource_urls: None,
        resource_names: None,
    }
}

/// Requires permission to use the Agent. A run uses the Secrets of its Agent, with instructions of
/// the run's author.
fn use_agent() -> ValidatingAdmissionPolicy {
    policy(
        "use-agent",
        &Matched {
            versions: &["v1"],
            resources: &["taskruns"],
            name: "starts",
            // A resumed run restarts its attempt. More attempts or more time use the Agent more.
            when: "oldObject == null \
                || object.spec.contextVersion > oldObject.spec.contextVersion \
                || (oldObject.spec.suspend && !object.spec.suspend) \
                || object.spec.?retry != oldObject.spec.?retry \
                || object.spec.?timeout != oldObject.spec.?timeout",
        },
        &[],
        vec![may_use_agent()],
    )
}

fn may_use_agent() -> Validation {
    denial(
        allowed(GROUP, "agents", Some("object.spec.agentName"), "use"),
        "spec.agentName: the author of a run must be allowed to 'use' its Agent",
        &permission_message(
            "\"spec.agentName: \"",
            "'use' the Agent '\" + object.spec.agentName + \"'",
        ),
    )
}

/// Requires the same for a DocsRun. Also requires permission to read its Secret, or to create Pods.
/// Otherwise an author could send any Secret to a server of their choice.
fn docs_references() -> ValidatingAdmissionPolicy {
    let has_secret = "has(object.spec.credentialsSecretRef)";
    let creates_pods = allowed("", "pods", None, "create");
    // There is one Secret, so we check it by name: permission for this Secret is enough.
    let reads = allowed(
        "",
        "secrets",
        Some("object.spec.credentialsSecretRef.name"),
        "get",
    );
    policy(
        "docs-references",
        &Matched {
            versions: &["v1alpha1"],
            resources: &["docsruns"],
            name: "starts",
            // Other changes start nothing and reference nothing.
            when: "oldObject == null \
                || (oldObject.spec.suspend && !object.spec.suspend) \
                || object.spec.?timeout != oldObject.spec.?timeout",
        },
        &[],
        vec![
            may_use_agent(),
            denial(
                format!("!{has_secret} || {creates_pods} || {reads}"),
                "spec.credentialsSecretRef: who names a Secret must be allowed to 'create pods' or to 'get' that Secret",
                &permission_message(
                    "\"spec.credentialsSecretRef names the Secret '\" + object.spec.credentialsSecretRef.name + \"': \"",
                    "'create pods' or to 'get' that Secret",
                ),
            ),
        ],
    )
}

/// Requires that an author could access every reference of an Agent without it, with a Pod of their
/// own or by reading the object.
fn agent_references() -> ValidatingAdmissionPolicy {
    let named = |list: &str, path: &str, field: &str, kind: &str| {
        format!(
            "variables.{list}.map(one, {}, \"{field} names the {kind} '\" + one.{path}.name + \"'\")",
            has_path(path)
        )
    };
    let references = |kind: &str, key: &str, whole: &str| {
        format!(
            "{} + {} + {}",
            named(
                "env",
                &format!("valueFrom.{key}"),
                "spec.env '\" + one.name + \"'",
                kind
            ),
            named("envFrom", whole, "spec.envFrom", kind),
            named("volumes", whole, "spec.volumes", kind),
        )
    };
    let pull_secrets = "variables.imagePullSecrets.map(one, \"spec.imagePullSecrets names the Secret '\" + one.name + \"'\")";
    let variables = [
        ("env", or_empty("env")),
        ("envFrom", or_empty("envFrom")),
        ("imagePullSecrets", or_empty("imagePullSecrets")),
        ("volumes", or_empty("volumes")),
        (
            "secrets",
            format!(
                "{} + {pull_secrets}",
                references("Secret", "secretKeyRef", "secretRef")
            ),
        ),
        (
            "configMaps",
            references("ConfigMap", "configMapKeyRef", "configMapRef"),
        ),
        (
            "claims",
            named(
                "volumes",
                "persistentVolumeClaimRef",
                "spec.volumes",
                "PersistentVolumeClaim",
            ),
        ),
        ("createsPods", allowed("", "pods", None, "create")),
    ];
    let account = allowed(
        "",
        "serviceaccounts",
        Some("object.spec.serviceAccountName"),
        "impersonate",
    );
    let by_list = |list: &str, field: &str, kind: &str, resource: &str| {
        let read = allowed("", resource, None, "get");
        denial(
            format!("variables.{list}.size() == 0 || variables.createsPods || {read}"),
            &format!(
                "{field}: who names a {kind} must be allowed to 'create pods' or to 'get {resource}'"
            ),
            &permission_message(
                &format!("variables.{list}[0] + \": \""),
                &format!("'create pods' or to 'get {resource}'"),
            ),
        )
    };
    policy(
        "agent-references",
        &Matched {
            versions: &["v1alpha1"],
            resources: &["agents"],
            name: "changed",
            // Any change counts: without permission for the Secret, an author may not change the
            // program either.
            when: "oldObject == null || object.spec != oldObject.spec",
        },
        &variables,
        vec![
            denial(
                format!(
                    "(object.spec.serviceAccountName == 'default' && !object.spec.automountToken) \
                     || variables.createsPods || {account}"
                ),
                "spec.serviceAccountName: who names a ServiceAccount must be allowed to 'create pods' or to 'impersonate' it",
                &permission_message(
                    "(object.spec.automountToken ? \"spec.automountToken mounts the token of\" : \"spec.serviceAccountName names\") \
                     + \" the ServiceAccount '\" + object.spec.serviceAccountName + \"': \"",
                    "'create pods' or to 'impersonate' that ServiceAccount",
                ),
            ),
            by_list(
                "secrets",
                "spec.env, spec.envFrom, spec.imagePullSecrets, spec.volumes",
                "Secret",
                "secrets",
            ),
            by_list(
                "configMaps",
                "spec.env, spec.envFrom, spec.volumes",
                "ConfigMap",
                "configmaps",
            ),
            // To read a claim gives no access to its data. Only a Pod does.
            denial(
                "variables.claims.size() == 0 || variables.createsPods".to_owned(),
                "spec.volumes: who names a PersistentVolumeClaim must be allowed to 'create pods'",
                &permission_message("variables.claims[0] + \": \"", "'create pods'"),
            ),
            // A label may make the Pod a backend of a Service. An annotation may make a webhook add
            // credentials.
            denial(
                "(!has(object.spec.podLabels) && !has(object.spec.podAnnotations)) || variables.createsPods".to_owned(),
                "spec.podLabels, spec.podAnnotations: who sets labels or annotations of Pods must be allowed to 'create pods'",
                &permission_message(
                    "(has(object.spec.podLabels) ? \"spec.podLabels: \" : \"spec.podAnnotations: \")",
                    "'create pods'",
                ),
            ),
        ],
    )
}

/// Restricts the annotation with the result of a run. It makes a run without a status a finished
/// run, so it requires permission to write the status. It is meant for a restore from a backup.
fn outcome(versions: &[&str], resources: &[&str]) -> ValidatingAdmissionPolicy {
    let key = names::OUTCOME;
    let has = |object: &str| {
        format!("has({object}.metadata.annotations) && '{key}' in {object}.metadata.annotations")
    };
    let when = format!(
        "{} && (oldObject == null || !({}) \
         || object.metadata.annotations['{key}'] != oldObject.metadata.annotations['{key}'])",
        has("object"),
        has("oldObject"),
    );
    policy(
        "outcome",
        &Matched {
            versions,
            resources,
            name: "says-how-it-ended",
            when: &when,
        },
        &[],
        vec![denial(
            format!(
                "authorizer.group('{GROUP}').resource(request.resource.resource).subresource('status').namespace(request.namespace).check('patch').allowed()"
            ),
            &format!(
                "metadata.annotations: '{key}' is for who may 'patch' the run's status; leave it out"
            ),
            &permission_message(
                &format!(
                    "\"metadata.annotations '{key}' says how a run ended; leave it out. To set it, \""
                ),
                "'patch \" + request.resource.resource + \"/status'",
            ),
        )],
    )
}

/// Restricts the annotation with the author of a run to the author's own name, and forbids later
/// changes. Otherwise anybody could submit runs in the name of others. A restore from a backup has
/// permission to write the status.
fn submitted_by() -> ValidatingAdmissionPolicy {
    let key = names::SUBMITTED_BY;
    let has = |object: &str| {
        format!("(has({object}.metadata.annotations) && '{key}' in {object}.metadata.annotations)")
    };
    let (new, old) = (has("object"), has("oldObject"));
    let when = format!(
        "oldObject == null ? {new} : ({new} != {old} \
         || ({new} && object.metadata.annotations['{key}'] != oldObject.metadata.annotations['{key}']))"
    );
    policy(
        "submitted-by",
        &Matched {
            versions: &["v1", "v1alpha1"],
            resources: &["taskruns", "docsruns"],
            name: "says-who-submitted-it",
            when: &when,
        },
        &[],
        vec![denial(
            format!(
                "(oldObject == null && object.metadata.annotations['{key}'] == request.userInfo.username) \
                 || authorizer.group('{GROUP}').resource(request.resource.resource).subresource('status').namespace(request.namespace).check('patch').allowed()"
            ),
            &format!(
                "metadata.annotations: '{key}' has the name of the author, and does not change; leave it as it is"
            ),
            &permission_message(
                &format!(
                    "\"metadata.annotations '{key}' has the name of the author, and does not change. To set it, \""
                ),
                "'patch \" + request.resource.resource + \"/status'",
            ),
        )],
    )
}

/// Requests for which a policy is evaluated.
struct Matched<'a> {
    versions: &'a [&'a str],
    resources: &'a [&'a str],
    name: &'a str,
    when: &'a str,
}

fn policy(
    name: &str,
    matched: &Matched<'_>,
    variables: &[(&str, String)],
    validations: Vec<Validation>,
) -> ValidatingAdmissionPolicy {
    let Matched {
        versions,
        resources,
        name: condition,
        when,
    } = matched;
    let rule = requests(GROUP, versions, resources, &["CREATE", "UPDATE"]);
    let condition = MatchCondition {
        name: (*condition).to_owned(),
        expression: (*when).to_owned(),
    };
    conditional_policy(
        name,
        vec![rule],
        Some(vec![condition]),
        variables,
        validations,
    )
}

/// Returns a rule that matches requests for these resources.
pub(crate) fn requests(
    group: &str,
    versions: &[&str],
    resources: &[&str],
    operations: &[&str],
) -> NamedRuleWithOperations {
    NamedRuleWithOperations {
        api_groups: Some(owned(&[group])),
        api_versions: Some(owned(versions)),
        operations: Some(owned(operations)),
        resources: Some(owned(resources)),
        ..NamedRuleWithOperations::default()
    }
}

/// Returns a policy for these requests under these conditions.
pub(crate) fn conditional_policy(
    name: &str,
    rules: Vec<NamedRuleWithOperations>,
    match_conditions: Option<Vec<MatchCondition>>,
    variables: &[(&str, String)],
    validations: Vec<Validation>,
) -> ValidatingAdmissionPolicy {
    let variables: Vec<Variable> = variables
        .iter()
        .map(|(name, expression)| Variable {
            name: (*name).to_owned(),
            expression: expression.clone(),
        })
        .collect();
    ValidatingAdmissionPolicy {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ValidatingAdmissionPolicySpec {
            // If a policy cannot be evaluated, the request is denied.
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(MatchResources {
                resource_rules: Some(rules),
                ..MatchResources::default()
            }),
            match_conditions,
            variables: (!variables.is_empty()).then_some(variables),
            validations: Some(validations),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        status: None,
    }
}

/// Returns a validation that denies with 403 unless `expression` is true. If the evaluation of
/// `message_expression` fails, `message` replaces it.
pub(crate) fn denial(expression: String, message: &str, message_expression: &str) -> Validation {
    Validation {
        expression,
        message: Some(message.to_owned()),
        message_expression: Some(message_expression.to_owned()),
        reason: Some("Forbidden".to_owned()),
    }
}

/// Returns an expression for a message. `start` is an expression, `permission` is text.
fn permission_message(start: &str, permission: &str) -> String {
    format!(
        "{start} + \"'\" + request.userInfo.username + \"' must be allowed to {permission} in the namespace '\" + request.namespace + \"'\""
    )
}

/// Returns an expression that checks a permission of the author in the object's namespace. `name`
/// is an expression.
fn allowed(group: &str, resource: &str, name: Option<&str>, verb: &str) -> String {
    let name = name.map_or_else(String::new, |name| format!(".name({name})"));
    format!(
        "authorizer.group('{group}').resource('{resource}').namespace(request.namespace){name}.check('{verb}').allowed()"
    )
}

/// Returns an expression for an optional list of the spec. The list is empty if the field is
/// absent.
fn or_empty(field: &str) -> String {
    format!("has(object.spec.{field}) ? object.spec.{field} : []")
}

/// Returns `has(one.a) && has(one.a.b)` for `a.b`.
fn has_path(path: &str) -> String {
    let mut so_far = "one".to_owned();
    let parts: Vec<String> = path
        .split('.')
        .map(|part| {
            so_far = format!("{so_far}.{part}");
            format!("has({so_far})")
        })
        .collect();
    parts.join(" && ")
}

pub(crate) fn role(name: &str, aggregated_to: &[&str], rules: Vec<PolicyRule>) -> ClusterRole {
    let labels: BTreeMap<String, String> = aggregated_to
        .iter()
        .map(|role| {
            let key = format!("rbac.authorization.k8s.io/aggregate-to-{role}");
            (key, "true".to_owned())
        })
        .collect();
    ClusterRole {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: (!labels.is_empty()).then_some(labels),
            ..ObjectMeta::default()
        },
        rules: Some(rules),
        aggregation_rule: None,
    }
}

fn owned(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

#[cfg(test)]
mod tests;
