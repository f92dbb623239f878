//! Who may what with Tenants, what their owners get, and where their operator may write.
//!
//! A Tenant belongs to no namespace, and who may write one has namespaces made, programs started and a
//! role given. So no role of the cluster takes that right in: administrators have it, and those whom
//! they give it to.

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

use super::{Matched, READ, WRITE, judged, policy, refusal, requests, role, rule};
use crate::{
    GROUP, names,
    rbac::{self, Permission, Scope},
    tenants::{OWNER_ROLE, PROBE_CLASS},
};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The policies about who writes Tenants. Their names are to be put behind that of an installation.
#[must_use]
pub fn tenants() -> Vec<ValidatingAdmissionPolicy> {
    vec![references()]
}

/// What users may do with Tenants. Their names are to be put behind that of an installation.
///
/// The cluster's own `view` takes one in: it counts for those who may see the whole cluster, because a
/// Tenant is in no namespace. Nothing takes in `edit`, not even `admin`: it is given to someone by name.
/// With it goes the right to give the owners' role; otherwise a Tenant could have no owners.
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

/// What an owner may do in his Tenant's namespace: everything that a customer needs, nothing that opens
/// the namespace, gives him more of the cluster, or reaches another Tenant.
///
/// Quotas, limits, policies and roles can be read, not written: they are what the Tenant says. Endpoints
/// cannot be written, because a Service could lead into another namespace by them; nor Ingresses,
/// because the name of a host is the whole cluster's.
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
        // By one verb or the other, depending on how a tool connects.
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
        // His own: a role in a namespace reaches no other.
        rule("", &["namespaces"], &["get"]),
    ];
    role(OWNER_ROLE, &[], rules)
}

/// The class of the Pods that prove the isolation: quotas know them by it. They displace nobody.
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

/// Through a Tenant nobody gives a role that he could not give, or reads a Secret that he could not
/// read. Who may give the owners' role could take it himself, and owners read the Secrets.
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
            "givesTheRole",
            format!(
                "authorizer.group('{RBAC}').resource('clusterroles').name('{OWNER_ROLE}').check('bind').allowed()"
            ),
        ),
    ];
    let gives = format!("'bind' the ClusterRole '{OWNER_ROLE}'");
    let who = "\"'\" + request.userInfo.username + \"' must be allowed to ";
    let by_list = |list: &str, resource: &str| {
        refusal(
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
            // A change of anything: who may not name the Secret may not change the program either.
            when: "oldObject == null || object.spec != oldObject.spec",
        },
        &variables,
        vec![
            refusal(
                "!has(object.spec.owners) || object.spec.owners.size() == 0 \
                 || (oldObject != null && object.spec.?owners == oldObject.spec.?owners) \
                 || variables.givesTheRole"
                    .to_owned(),
                &format!("spec.owners: who names owners must be allowed to {gives}"),
                &format!("\"spec.owners: \" + {who}{gives}\""),
            ),
            by_list("secrets", "secrets"),
            by_list("configMaps", "configmaps"),
        ],
    )
}

/// Where the operator of Tenants may write: its rights hold in all namespaces, because those of Tenants
/// are not known before. Each policy is to be given the condition [`by_user`], and a name behind that of
/// an installation.
///
/// # Guarantees
/// - Beyond namespaces of Tenants it writes nothing but Events, its Lease, and Pods of one form in its
///   own namespace: those try connections, and have neither a token nor a Secret.
/// - It takes a namespace only if that says itself that it may be taken, and deletes none but Tenants'.
///
/// # Caveats
/// A webhook that gives volumes to all Pods makes the operator's own ones refused: they would prove
/// nothing then, and must be left out of it.
#[must_use]
pub fn tenant_operator() -> Vec<ValidatingAdmissionPolicy> {
    vec![own_places(), own_pods(), own_namespaces()]
}

/// That the request is of this user.
#[must_use]
pub fn by_user(user: &str) -> MatchCondition {
    MatchCondition {
        name: "by-the-operator".to_owned(),
        expression: format!("request.userInfo.username == '{user}'"),
    }
}

/// Whether a namespace is a Tenant's: by its label, or, where someone took that away, by what the
/// operator noted beside it.
fn is_tenants(namespace: &str) -> String {
    let key = names::UID;
    let noted = annotated(namespace, &[names::UID, names::INTENT]);
    format!(
        "((has({namespace}.metadata.labels) && '{key}' in {namespace}.metadata.labels) || {noted})"
    )
}

/// Whether a namespace says that a Tenant may take it.
fn is_offered(namespace: &str) -> String {
    annotated(namespace, &[names::RETAINED_FROM, names::ADOPT])
}

/// Whether it has one of these annotations.
fn annotated(namespace: &str, keys: &[&str]) -> String {
    let annotations = format!("{namespace}.metadata.annotations");
    let any: Vec<String> = keys
        .iter()
        .map(|key| format!("'{key}' in {annotations}"))
        .collect();
    format!("(has({annotations}) && ({}))", any.join(" || "))
}

/// Whether the request is about something in the namespace of a Tenant. The API server may know the
/// namespace as it was a moment ago: one that was just taken said then that it might be.
fn in_a_tenants_place() -> String {
    format!(
        "{} || {}",
        is_tenants("namespaceObject"),
        is_offered("namespaceObject")
    )
}

fn refused_beyond(expression: String, what: &str) -> Validation {
    refusal(
        expression,
        &format!("the operator of Tenants writes {what}"),
        &format!(
            "\"'\" + request.userInfo.username + \"' writes {what}; \" + request.resource.resource + \" '\" + request.name + \"' in '\" + request.namespace + \"' is not one\""
        ),
    )
}

const CHANGES: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// What it may write in namespaces by its rights, Pods and Events aside: Events about a Tenant are
/// in the namespace `default`.
fn bounded() -> Vec<NamedRuleWithOperations> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for Permission {
        group,
        resource,
        verbs,
        scope,
        ..
    } in rbac::tenants()
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
    judged(
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

/// In the operator's own namespace are other operators, with other rights: a Pod there could have theirs.
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
    let is_bounded = format!(
        "!{pod}.spec.?hostNetwork.orValue(false) && !{pod}.spec.?hostPID.orValue(false) && !{pod}.spec.?hostIPC.orValue(false) \
         && {pod}.spec.containers.all(one, !one.?securityContext.?privileged.orValue(false) \
         && !one.?securityContext.?allowPrivilegeEscalation.orValue(true) \
         && one.?securityContext.?capabilities.?add.orValue([]).size() == 0)"
    );
    let variables = [
        (
            "pod",
            "request.operation == 'DELETE' ? oldObject : object".to_owned(),
        ),
        // 'system:serviceaccount:', its namespace, its name.
        (
            "isAtHome",
            "request.userInfo.username.split(':')[2] == request.namespace".to_owned(),
        ),
        ("isProbe", is_probe),
        ("hasNothing", has_nothing),
        ("isBounded", is_bounded),
    ];
    judged(
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

/// One that a Tenant left is nobody's until another takes it: it is not deleted.
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
    judged(
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
            // Whoever may make any Pod where nothing is enforced has the node.
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
        // What may be written, all of it; whatever else the role has is read.
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

    /// A field that names a namespace is one that the Tenant itself is about, or one that its
    /// policies let in or out: nothing is read or made in another.
    #[test]
    fn fields_that_name_a_namespace_are_known() {
        let found: BTreeSet<String> = fields_of(crate::crd::tenants())
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
        } in rbac::tenants()
        {
            let writes = verbs.iter().any(|verb| WRITE.contains(verb));
            match scope {
                Scope::Watched if writes && *resource != "events" => {
                    assert!(bounded.iter().any(|known| known == resource), "{resource}");
                }
                // A new one wants a bound, or a word why not.
                Scope::Cluster if writes => {
                    let known = ["namespaces", "tenants", "tenants/status"];
                    assert!(known.contains(resource), "{resource}");
                }
                Scope::Watched | Scope::Cluster | Scope::Own => {}
            }
        }
        assert!(bounded.len() >= 10, "only {bounded:?}");
    }

    /// The condition that says whose requests they judge is not theirs: without it they would judge all.
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
