//! Admission policies and roles for Tenants: for their authors, for their owners, and for their
//! operator.
//!
//! A Tenant is cluster-scoped. The author of a Tenant causes the creation of namespaces, the start
//! of programs and the binding of a role. So no role of the cluster includes permission to write
//! Tenants: only administrators have it, and users to whom administrators grant it.

use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MatchCondition, NamedRuleWithOperations, ValidatingAdmissionPolicy, Validation,
        },
        rbac::v1::{ClusterRole, PolicyRule},
        scheduling::v1::PriorityClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    Matched, READ, WRITE, children, conditional_policy, denial, own_lease, policy, requests, role,
    rule,
    task_operator::{restricted, without_host},
};
use crate::{
    GROUP, names,
    rbac::{Permission, Scope},
    tenants::{OPERATOR, OWNER_ROLE, PROBE_CLASS, REDIS_SECRET},
};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Returns the policies for authors of Tenants. The installation must prefix their names with its
/// own.
#[must_use]
pub fn tenants() -> Vec<ValidatingAdmissionPolicy> {
    let mut all = vec![references()];
    all.extend(children::of_tenants());
    all
}

/// Returns roles for users of Tenants. The installation must prefix their names with its own.
///
/// The cluster's own `view` aggregates the role `view`. It has an effect only for users that may
/// view the whole cluster, because a Tenant is in no namespace. No role aggregates `edit`, not even
/// `admin`: an administrator grants it by name. It includes permission to bind the owners' role;
/// otherwise a Tenant could have no owners.
#[must_use]
pub fn tenant_roles() -> Vec<ClusterRole> {
    let gives_the_role = PolicyRule {
        resource_names: Some(vec![OWNER_ROLE.to_owned()]),
        ..rule(RBAC, &["clusterroles"], &["bind"])
    };
    vec![
        role("view", &["view"], vec![rule(GROUP, &["tenants"], READ)]),
        role(
            "edit",
            &[],
            vec![
                rule(GROUP, &["tenants"], READ),
                rule(GROUP, &["tenants"], WRITE),
                gives_the_role,
            ],
        ),
    ]
}

/// Returns the role of an owner in the namespace of their Tenant. It permits everything that a
/// customer needs. It permits nothing that opens the namespace, gives the owner more of the
/// cluster, or reaches another Tenant.
///
/// Owners can read quotas, limits, policies and roles, but not write them, because the Tenant's
/// spec defines them. They cannot write Endpoints, because a Service could forward into another
/// namespace with them. They cannot write Ingresses either, because host names belong to the whole
/// cluster.
#[must_use]
pub fn tenant_owner_role() -> ClusterRole {
    let work: Vec<&str> = READ.iter().chain(WRITE).copied().collect();
    let rules = vec![
        rule(
            "",
            &[
                "configmaps",
                "persistentvolumeclaims",
                "pods",
                "secrets",
                "services",
            ],
            &work,
        ),
        rule("apps", &["deployments", "statefulsets"], &work),
        rule("batch", &["cronjobs", "jobs"], &work),
        rule("autoscaling", &["horizontalpodautoscalers"], &work),
        rule("", &["pods/log"], &["get"]),
        // Tools use one verb or the other, depending on how they connect.
        rule("", &["pods/exec", "pods/portforward"], &["create", "get"]),
        rule(
            "apps",
            &["deployments/scale", "statefulsets/scale"],
            &["get", "patch", "update"],
        ),
        rule("apps", &["replicasets"], READ),
        rule("", &["events", "limitranges", "resourcequotas"], READ),
        rule("events.k8s.io", &["events"], READ),
        rule("discovery.k8s.io", &["endpointslices"], READ),
        rule("networking.k8s.io", &["ingresses", "networkpolicies"], READ),
        rule(RBAC, &["rolebindings"], READ),
        // Only the owner's namespace: a role in a namespace has no effect in another one.
        rule("", &["namespaces"], &["get"]),
    ];
    role(OWNER_ROLE, &[], rules)
}

/// Returns the PriorityClass of the probe Pods. Quotas select probe Pods by it. The Pods preempt no
/// others.
#[must_use]
pub fn tenant_probe_class() -> PriorityClass {
    PriorityClass {
        metadata: ObjectMeta {
            name: Some(PROBE_CLASS.to_owned()),
            ..ObjectMeta::default()
        },
        description: Some("Pods of Orchestrator that try whether a Tenant is isolated.".to_owned()),
        global_default: Some(false),
        preemption_policy: Some("Never".to_owned()),
        value: 1,
    }
}

/// Requires the author's permission for the role, the Secrets and the ConfigMaps of a Tenant. An
/// author must not bind a role, or read a Secret, through a Tenant without permission to do so
/// directly. A user that may bind the owners' role could bind it to themselves, and owners read the
/// Secrets.
///
/// The operator passes the password of a Redis to the Tenant's programs. So a Tenant with a Redis
/// references that Secret, although its spec does not name it.
fn references() -> ValidatingAdmissionPolicy {
    let named = |path: &str, kind: &str| {
        format!(
            "variables.env.map(one, has(one.valueFrom) && has(one.valueFrom.{path}), \"spec.server.env '\" + one.name + \"' names the {kind} '\" + one.valueFrom.{path}.name + \"'\")"
        )
    };
    let variables = [
        (
            "place",
            "has(object.spec.namespace) ? object.spec.namespace : 'tenant-' + object.metadata.name"
                .to_owned(),
        ),
        (
            "env",
            "has(object.spec.server) && has(object.spec.server.env) ? object.spec.server.env : []"
                .to_owned(),
        ),
        ("secrets", named("secretKeyRef", "Secret")),
        ("configMaps", named("configMapKeyRef", "ConfigMap")),
        (
            // A new Tenant may adopt the namespace, data and password of a deleted Tenant of the
            // same name.
            "usesThePassword",
            "has(object.spec.redis) && (oldObject == null \
             || object.spec.?redis != oldObject.spec.?redis \
             || object.spec.?server != oldObject.spec.?server \
             || object.spec.?networkPolicy != oldObject.spec.?networkPolicy)"
                .to_owned(),
        ),
        (
            "givesTheRole",
            format!(
                "authorizer.group('{RBAC}').resource('clusterroles').name('{OWNER_ROLE}').check('bind').allowed()"
            ),
        ),
    ];
    let gives = format!("'bind' the ClusterRole '{OWNER_ROLE}'");
    let who = "\"'\" + request.userInfo.username + \"' must be allowed to ";
    let by_list = |list: &str, resource: &str| {
        denial(
            format!(
                "variables.{list}.size() == 0 || variables.givesTheRole || authorizer.group('').resource('{resource}').namespace(variables.place).check('get').allowed()"
            ),
            &format!(
                "spec.server.env: who names one of the {resource} must be allowed to 'get {resource}' in the Tenant's namespace, or to {gives}"
            ),
            &format!(
                "variables.{list}[0] + \": \" + {who}'get {resource}' in the namespace '\" + variables.place + \"', or to {gives}\""
            ),
        )
    };
    policy(
        "references",
        &Matched {
            versions: &["v1alpha1"],
            resources: &["tenants"],
            name: "changed",
            // Any change counts: without permission for the Secret, an author may not change the
            // program either.
            when: "oldObject == null || object.spec != oldObject.spec",
        },
        &variables,
        vec![
            denial(
                "!has(object.spec.owners) || object.spec.owners.size() == 0 \
                 || (oldObject != null && object.spec.?owners == oldObject.spec.?owners) \
                 || variables.givesTheRole"
                    .to_owned(),
                &format!("spec.owners: who names owners must be allowed to {gives}"),
                &format!("\"spec.owners: \" + {who}{gives}\""),
            ),
            by_list("secrets", "secrets"),
            by_list("configMaps", "configmaps"),
            denial(
                format!(
                    "!variables.usesThePassword || variables.givesTheRole || authorizer.group('').resource('secrets').namespace(variables.place).name('{REDIS_SECRET}').check('get').allowed()"
                ),
                &format!(
                    "spec.redis: who creates a Tenant with a Redis, or changes its 'server', 'redis' or 'networkPolicy', must be allowed to 'get' the Secret '{REDIS_SECRET}' in the Tenant's namespace, or to {gives}"
                ),
                &format!(
                    "\"spec.redis: the programs of this Tenant get the password of its Redis: \" + {who}'get' the Secret '{REDIS_SECRET}' in the namespace '\" + variables.place + \"', or to {gives}\""
                ),
            ),
        ],
    )
}

/// Returns the bounds of the operator of Tenants. The operator has its permissions in all
/// namespaces, because the namespaces of Tenants are not known in advance. The installation must
/// add the condition [`by_user`] to each policy, and put its own name before the policy's name.
///
/// # Guarantees
/// - Outside the namespaces of Tenants, the operator writes only Events, its Lease, and probe Pods
///   in its own namespace. These Pods have one form, without a token and without Secrets.
/// - The operator adopts a namespace only if the namespace's own annotations allow it, and deletes
///   only namespaces of Tenants.
///
/// # Caveats
/// If a webhook adds volumes to all Pods, the probe Pods in the operator's namespace are rejected.
/// With such volumes they would prove nothing. The webhook must exclude these Pods.
#[must_use]
pub fn tenant_operator() -> Vec<ValidatingAdmissionPolicy> {
    vec![
        own_places(),
        own_pods(),
        own_namespaces(),
        own_lease(OPERATOR.lease),
    ]
}

/// Returns a condition that the request is from this user.
#[must_use]
pub fn by_user(user: &str) -> MatchCondition {
    MatchCondition {
        name: "by-the-operator".to_owned(),
        expression: format!("request.userInfo.username == '{user}'"),
    }
}

/// Returns an expression that checks whether a namespace belongs to a Tenant: by its label, or, if
/// someone removed the label, by the operator's annotations.
fn is_tenants(namespace: &str) -> String {
    let key = names::UID;
    let noted = annotated(namespace, &[names::UID, names::SPEC_HASH]);
    format!(
        "((has({namespace}.metadata.labels) && '{key}' in {namespace}.metadata.labels) || {noted})"
    )
}

/// Returns an expression that checks whether a namespace allows its adoption by a Tenant.
fn is_offered(namespace: &str) -> String {
    annotated(namespace, &[names::RETAINED_FROM, names::ADOPT])
}

/// Returns an expression that checks whether a namespace has one of these annotations.
fn annotated(namespace: &str, keys: &[&str]) -> String {
    let annotations = format!("{namespace}.metadata.annotations");
    let any: Vec<String> = keys
        .iter()
        .map(|key| format!("'{key}' in {annotations}"))
        .collect();
    format!("(has({annotations}) && ({}))", any.join(" || "))
}

/// Returns an expression that checks whether the request is about an object in the namespace of a
/// Tenant. The API server may have an outdated view of the namespace. A namespace that was just
/// adopted still has the annotation that allowed the adoption in that view.
fn in_a_tenants_place() -> String {
    format!(
        "{} || {}",
        is_tenants("namespaceObject"),
        is_offered("namespaceObject")
    )
}

fn refused_beyond(expression: String, what: &str) -> Validation {
    denial(
        expression,
        &format!("the operator of Tenants writes {what}"),
        &format!(
            "\"'\" + request.userInfo.username + \"' writes {what}; \" + request.resource.resource + \" '\" + request.name + \"' in '\" + request.namespace + \"' is not one\""
        ),
    )
}

const CHANGES: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// Returns the resources that the operator may write in namespaces, except Pods and Events. Events
/// about a Tenant are in the namespace `default`.
fn bounded() -> Vec<NamedRuleWithOperations> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for Permission {
        group,
        resource,
        verbs,
        scope,
        ..
    } in OPERATOR.permissions
    {
        let writes = verbs.iter().any(|verb| WRITE.contains(verb));
        if *scope != Scope::Watched || !writes || ["events", "pods"].contains(resource) {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| known == group) {
            Some((_, all)) if all.contains(resource) => {}
            Some((_, all)) => all.push(resource),
            None => groups.push((group, vec![resource])),
        }
    }
    groups
        .iter()
        .map(|(group, resources)| requests(group, &["*"], resources, CHANGES))
        .collect()
}

fn own_places() -> ValidatingAdmissionPolicy {
    conditional_policy(
        "own-places",
        bounded(),
        None,
        &[],
        vec![refused_beyond(
            in_a_tenants_place(),
            "what is in namespaces of Tenants only",
        )],
    )
}

/// Bounds the Pods that the operator writes. Its own namespace also contains other operators with
/// other permissions, and a Pod there could use their ServiceAccounts.
fn own_pods() -> ValidatingAdmissionPolicy {
    let component = "orchestrator.io/component";
    let pod = "variables.pod";
    let is_probe = format!(
        "has({pod}.metadata.labels) && '{component}' in {pod}.metadata.labels && {pod}.metadata.labels['{component}'] == 'probe'"
    );
    let has_nothing = format!(
        "{pod}.spec.serviceAccountName == 'default' && {pod}.spec.?automountServiceAccountToken.orValue(true) == false \
         && {pod}.spec.?volumes.orValue([]).size() == 0 && {pod}.spec.?initContainers.orValue([]).size() == 0 \
         && {pod}.spec.containers.all(one, !has(one.envFrom) && one.?env.orValue([]).all(variable, !has(variable.valueFrom)))"
    );
    let spec = format!("{pod}.spec");
    let is_bounded = format!("{} && {}", without_host(&spec), restricted(&spec));
    let variables = [
        (
            "pod",
            "request.operation == 'DELETE' ? oldObject : object".to_owned(),
        ),
        // The user name is 'system:serviceaccount', the namespace and the name, separated by ':'.
        (
            "isAtHome",
            "request.userInfo.username.split(':')[2] == request.namespace".to_owned(),
        ),
        ("isProbe", is_probe),
        ("hasNothing", has_nothing),
        ("isBounded", is_bounded),
    ];
    conditional_policy(
        "own-pods",
        vec![requests("", &["v1"], &["pods"], CHANGES)],
        None,
        &variables,
        vec![refused_beyond(
            format!(
                "{} || (variables.isAtHome && variables.isProbe && variables.hasNothing && variables.isBounded)",
                in_a_tenants_place()
            ),
            "Pods in namespaces of Tenants only, and in its own such as try connections",
        )],
    )
}

/// Bounds the namespaces that the operator writes. A retained namespace belongs to nobody until
/// another Tenant adopts it, so the operator must not delete it.
fn own_namespaces() -> ValidatingAdmissionPolicy {
    let old = "oldObject";
    let left = annotated(old, &[names::RETAINED_FROM]);
    let level = |namespace: &str| {
        let (labels, key) = (
            format!("{namespace}.metadata.labels"),
            "pod-security.kubernetes.io/enforce",
        );
        format!("(has({labels}) && '{key}' in {labels} ? {labels}['{key}'] : '')")
    };
    let (before, after) = (level(old), level("object"));
    let is_closed = format!(
        "request.operation == 'DELETE' || {after} == 'restricted' || (request.operation == 'UPDATE' && {after} == {before})"
    );
    conditional_policy(
        "own-namespaces",
        vec![requests("", &["v1"], &["namespaces"], CHANGES)],
        None,
        &[],
        vec![
            refused_beyond(
                format!(
                    "request.operation == 'CREATE' ? {} : (request.operation == 'DELETE' ? {} && !{left} : {} || {})",
                    is_tenants("object"),
                    is_tenants(old),
                    is_tenants(old),
                    is_offered(old)
                ),
                "namespaces of Tenants only, and such as say that a Tenant may take them",
            ),
            // Without an enforced level, a user that may create any Pod controls the node.
            refused_beyond(
                is_closed,
                "namespaces that enforce the Pod Security level 'restricted', and opens none",
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{super::tests::fields_of, *};

    fn rules_of(role: ClusterRole) -> Vec<(String, String, Vec<String>)> {
        let rules = role.rules.unwrap();
        let each = rules.into_iter().flat_map(|rule| {
            let groups = rule.api_groups.unwrap();
            assert_eq!(groups.len(), 1);
            let verbs = rule.verbs;
            rule.resources
                .unwrap()
                .into_iter()
                .map(move |resource| (groups[0].clone(), resource, verbs.clone()))
        });
        each.collect()
    }

    #[test]
    fn an_owner_cannot_open_his_namespace_or_take_more() {
        // All resources that may be written. The rest of the role is read-only.
        let written = [
            "configmaps",
            "persistentvolumeclaims",
            "pods",
            "secrets",
            "services",
            "deployments",
            "statefulsets",
            "cronjobs",
            "jobs",
            "horizontalpodautoscalers",
            "pods/exec",
            "pods/portforward",
            "deployments/scale",
            "statefulsets/scale",
        ];
        let never = ["bind", "escalate", "impersonate", "use", "approve", "sign"];
        for (group, resource, verbs) in rules_of(tenant_owner_role()) {
            for word in [&group, &resource].into_iter().chain(&verbs) {
                assert!(!word.contains('*'), "{resource}");
            }
            for verb in &verbs {
                assert!(!never.contains(&verb.as_str()), "{resource}: {verb}");
            }
            let is_read = verbs.iter().all(|verb| READ.contains(&verb.as_str()));
            assert!(
                is_read || written.contains(&resource.as_str()),
                "{resource}"
            );
        }
    }

    #[test]
    fn an_owner_has_what_a_customer_needs() {
        let rules = rules_of(tenant_owner_role());
        for (resource, verb) in [
            ("pods", "create"),
            ("pods/log", "get"),
            ("pods/exec", "create"),
            ("deployments", "patch"),
            ("secrets", "get"),
            ("resourcequotas", "list"),
            ("networkpolicies", "get"),
            ("rolebindings", "list"),
        ] {
            let has = |(_, known, verbs): &(String, String, Vec<String>)| {
                known == resource && verbs.iter().any(|one| one == verb)
            };
            assert!(rules.iter().any(has), "{verb} {resource}");
        }
    }

    #[test]
    fn nothing_takes_in_the_right_to_write_tenants() {
        for role in tenant_roles() {
            let writes = rules_of(role.clone())
                .iter()
                .any(|(_, _, verbs)| verbs.iter().any(|verb| !READ.contains(&verb.as_str())));
            assert_eq!(writes, role.metadata.labels.is_none(), "{role:?}");
        }
    }

    /// A field with a namespace is either the Tenant's own namespace, or one that its network
    /// policies allow. Nothing is read or created in another namespace.
    #[test]
    fn fields_that_name_a_namespace_are_known() {
        let found: BTreeSet<String> = fields_of(OPERATOR.crds())
            .into_iter()
            .filter(|field| field.to_lowercase().contains("namespace"))
            .collect();
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["allowedNamespaces", "namespace"]);
    }

    #[test]
    fn what_the_operator_writes_in_namespaces_is_bounded() {
        let mut bounded: Vec<String> = bounded()
            .into_iter()
            .flat_map(|rule| rule.resources.unwrap())
            .collect();
        bounded.push("pods".to_owned());
        for Permission {
            resource,
            verbs,
            scope,
            ..
        } in OPERATOR.permissions
        {
            let writes = verbs.iter().any(|verb| WRITE.contains(verb));
            match scope {
                Scope::Watched if writes && *resource != "events" => {
                    assert!(bounded.iter().any(|known| known == resource), "{resource}");
                }
                // A new write permission needs a bound, or a reason for its absence.
                Scope::Cluster if writes => {
                    let known = ["namespaces", "tenants", "tenants/status"];
                    assert!(known.contains(resource), "{resource}");
                }
                Scope::Watched | Scope::Cluster | Scope::Own => {}
            }
        }
        assert!(bounded.len() >= 10, "only {bounded:?}");
    }

    /// The condition with the user is added later. Without it, the policies would apply to all
    /// users.
    #[test]
    fn policies_about_the_operator_wait_for_its_name() {
        for policy in tenant_operator() {
            let spec = policy.spec.unwrap();
            assert!(spec.match_conditions.is_none());
            assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
        }
        let by = by_user("system:serviceaccount:a:b");
        assert_eq!(
            by.expression,
            "request.userInfo.username == 'system:serviceaccount:a:b'"
        );
    }
}
