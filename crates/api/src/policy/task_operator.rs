//! Admission policies for the operator of runs: a stolen token must not give control of the
//! cluster.
//!
//! The operator has its permissions in all watched namespaces, because RBAC knows neither labels
//! nor the content of an object. From its ServiceAccount, these policies admit only objects that it
//! builds.
//!
//! # Guarantees
//! - The operator creates Jobs and ConfigMaps only for a run, and never in a protected namespace.
//!   It changes and deletes them only if they have the label of a run.
//! - A Job has no host access, no privileges, and only the volumes of a run. It mounts no token of
//!   a ServiceAccount that reads Secrets or creates Pods in `kube-system`.
//! - Of a Pod, and only of one with the label of a run, it changes nothing but the Pod's own limit.
//! - The operator never changes the spec of a run, and no labels except those that it derives from
//!   the spec. It creates no Lease except its own.
//!
//! # Caveats
//! - A policy reads no other object. It cannot know whether the run of an owner reference exists,
//!   and which Agent that run references. The garbage collector deletes children of a run that does
//!   not exist, but not at once. So a stolen token can still run `restricted` Pods in any namespace
//!   that is not protected, with the Secrets and volumes of that namespace.
//! - Policies do not apply to reads: the token can read each Secret whose name is known.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, Validation};

use super::{
    POWERFUL_SERVICE_ACCOUNTS, PROTECTED_NAMESPACES, conditional_policy, denial, owned_list,
    requests,
};
use crate::{GROUP, names, tasks};

const CHANGES: &[&str] = &["CREATE", "UPDATE", "DELETE"];

/// Namespaces of the control plane. They are protected unless an installation sets another list.
pub(super) const SYSTEM_NAMESPACES: &[&str] = &["kube-node-lease", "kube-public", "kube-system"];

/// Returns the bounds of the operator of runs. The installation must add the condition
/// [`super::by_user`] to each policy, and put its own name before the policy's name.
#[must_use]
pub fn task_operator() -> Vec<ValidatingAdmissionPolicy> {
    vec![
        own_children(),
        own_jobs(),
        own_pods(&["TaskRun", "DocsRun"]),
        own_runs(),
        own_lease(tasks::OPERATOR.lease),
    ]
}

/// Admits only a Lease with this name. RBAC cannot name an object that is to be created.
pub(crate) fn own_lease(name: &str) -> ValidatingAdmissionPolicy {
    conditional_policy(
        "own-lease",
        vec![requests(
            "coordination.k8s.io",
            &["*"],
            &["leases"],
            CHANGES,
        )],
        None,
        &[(
            "lease",
            "request.operation == 'DELETE' ? oldObject : object".to_owned(),
        )],
        vec![bound(
            format!("variables.lease.metadata.name == '{name}'"),
            &format!("writes the Lease '{name}' only"),
        )],
    )
}

/// Returns a validation with a message that begins with the user.
pub(super) fn bound(expression: String, rule: &str) -> Validation {
    denial(
        expression,
        &format!("the operator {rule}"),
        &format!(
            "\"'\" + request.userInfo.username + \"' {rule}; rejected: \" + request.operation + \" of \" + request.resource.resource + \" '\" + request.name + \"' in namespace '\" + request.namespace + \"'\""
        ),
    )
}

fn own_children() -> ValidatingAdmissionPolicy {
    let label =
        |object: &str, key: &str| format!("{object}.metadata.?labels[?'{key}'].orValue('')");
    let same = |key: &str| format!("{} == {}", label("object", key), label("oldObject", key));
    let owners = "metadata.?ownerReferences.orValue([])";
    let variables = [
        (PROTECTED_NAMESPACES, owned_list(SYSTEM_NAMESPACES)),
        // An update and a delete are checked by the existing object, because its labels were
        // checked before.
        (
            "child",
            "request.operation == 'CREATE' ? object : oldObject".to_owned(),
        ),
        ("kind", label("variables.child", names::KIND)),
        ("uid", label("variables.child", names::UID)),
    ];
    let is_owned = format!(
        "variables.uid != '' && object.{owners}.size() == 1 && object.{owners}.all(one, one.apiVersion.startsWith('{GROUP}/') \
         && one.kind == variables.kind && one.uid == variables.uid && one.?controller.orValue(false))"
    );
    conditional_policy(
        "own-children",
        vec![
            requests("", &["v1"], &["configmaps"], CHANGES),
            requests("batch", &["v1"], &["jobs"], CHANGES),
        ],
        None,
        &variables,
        vec![
            bound(
                "variables.kind in ['TaskRun', 'DocsRun']".to_owned(),
                &format!("writes Jobs and ConfigMaps with the label '{}' of a run only", names::KIND),
            ),
            bound(
                format!("request.operation != 'CREATE' || ({is_owned})"),
                "creates Jobs and ConfigMaps with one owner reference, to the run of their labels",
            ),
            bound(
                format!(
                    "request.operation != 'UPDATE' || ({} && {} && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences)",
                    same(names::KIND),
                    same(names::UID)
                ),
                "changes neither the owner of a Job nor the labels that name it",
            ),
            bound(
                "request.operation != 'CREATE' || request.resource.resource != 'configmaps' || object.metadata.name.endsWith('-files')".to_owned(),
                "creates ConfigMaps for the files of a run only",
            ),
            bound(
                format!("request.operation != 'CREATE' || !(request.namespace in variables.{PROTECTED_NAMESPACES})"),
                "creates nothing in protected namespaces (see the chart's value 'admissionPolicies.protectedNamespaces')",
            ),
        ],
    )
}

/// Bounds the Jobs that the operator writes. The template of a Job rarely changes after its
/// creation. An unchanged template is not checked, so we can still suspend a Job that a webhook of
/// the cluster changed.
fn own_jobs() -> ValidatingAdmissionPolicy {
    let spec = "variables.pod";
    let volume = "has(one.emptyDir) \
        || (has(one.configMap) && (one.configMap.name.endsWith('-files') || one.name.startsWith('volume-'))) \
        || (has(one.secret) && ((one.name == 'credentials' && variables.isDocs) || one.name.startsWith('volume-'))) \
        || (has(one.persistentVolumeClaim) && one.name.startsWith('volume-')) \
        || (has(one.ephemeral) && !has(one.ephemeral.volumeClaimTemplate.spec.volumeName) \
            && !has(one.ephemeral.volumeClaimTemplate.spec.selector) \
            && !has(one.ephemeral.volumeClaimTemplate.spec.dataSource) \
            && !has(one.ephemeral.volumeClaimTemplate.spec.dataSourceRef))";
    let containers = format!(
        "variables.isDocs ? {spec}.containers.all(one, one.name == 'publish') && {spec}.?initContainers.orValue([]).all(one, one.name in ['clone', 'agent']) \
         : {spec}.containers.all(one, one.name == 'agent') && {spec}.?initContainers.orValue([]).size() == 0"
    );
    let may = |resource: &str, verb: &str| {
        format!(
            "authorizer.serviceAccount(request.namespace, variables.account).group('').resource('{resource}').namespace('kube-system').check('{verb}').allowed()"
        )
    };
    let variables = [
        (POWERFUL_SERVICE_ACCOUNTS, owned_list(&[])),
        ("pod", "object.spec.template.spec".to_owned()),
        (
            "account",
            format!("{spec}.?serviceAccountName.orValue('default')"),
        ),
        (
            "isDocs",
            format!(
                "object.metadata.?labels[?'{}'].orValue('') == 'DocsRun'",
                names::KIND
            ),
        ),
        (
            "isUnchanged",
            "oldObject != null && object.spec.template == oldObject.spec.template".to_owned(),
        ),
    ];
    let unless_unchanged = |expression: String| format!("variables.isUnchanged || ({expression})");
    conditional_policy(
        "own-jobs",
        vec![requests("batch", &["v1"], &["jobs"], &["CREATE", "UPDATE"])],
        None,
        &variables,
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
                unless_unchanged(format!("{spec}.?volumes.orValue([]).all(one, {volume})")),
                "creates Pods with the volumes of a run only",
            ),
            bound(
                unless_unchanged(format!("({containers}) && {spec}.restartPolicy == 'Never'")),
                "creates Pods with the containers of a run only",
            ),
            // No other volume contains a token.
            bound(
                unless_unchanged(format!(
                    "has({spec}.automountServiceAccountToken) && has({spec}.serviceAccountName)"
                )),
                "creates Pods that name a ServiceAccount and say whether its token is mounted",
            ),
            bound(
                unless_unchanged(format!(
                    "!{spec}.?automountServiceAccountToken.orValue(true) || (request.namespace + '/' + variables.account) in variables.{POWERFUL_SERVICE_ACCOUNTS} \
                     || !({} || {})",
                    may("secrets", "get"),
                    may("pods", "create")
                )),
                "mounts no token of a ServiceAccount that may read Secrets or create Pods in 'kube-system' (see the chart's value 'admissionPolicies.powerfulServiceAccounts')",
            ),
        ],
    )
}

/// Fields of a Pod's spec that the API server lets an update change, except the Pod's own limit. It lets an update
/// change only the images of containers and init containers, but their whole lists are compared.
const MUTABLE_POD_FIELDS: &[&str] = &[
    "affinity",
    "containers",
    "initContainers",
    "nodeSelector",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
];

/// Admits only the limit of a Pod of these kinds (`spec.activeDeadlineSeconds`), which ends the Pod and keeps its log.
/// The API server rejects a higher limit and its removal.
pub(super) fn own_pods(kinds: &[&str]) -> ValidatingAdmissionPolicy {
    let same = |path: &str| format!("object.{path} == oldObject.{path}");
    let all = |paths: &mut dyn Iterator<Item = String>| {
        paths
            .map(|path| same(&path))
            .collect::<Vec<_>>()
            .join(" && ")
    };
    let metadata = ["annotations", "finalizers", "labels", "ownerReferences"];
    let limit =
        |object: &str| format!("{object}.spec.?activeDeadlineSeconds.orValue({})", i32::MAX);
    conditional_policy(
        "own-pods",
        vec![requests("", &["v1"], &["pods"], &["UPDATE"])],
        None,
        &[],
        vec![
            bound(
                format!(
                    "oldObject.metadata.?labels[?'{}'].orValue('') in {}",
                    names::KIND,
                    owned_list(kinds)
                ),
                &format!(
                    "changes Pods with the label '{}' of a run only",
                    names::KIND
                ),
            ),
            bound(
                all(&mut metadata.iter().map(|field| format!("metadata.?{field}"))),
                "changes no labels, annotations, finalizers or owners of a Pod",
            ),
            bound(
                all(&mut MUTABLE_POD_FIELDS
                    .iter()
                    .map(|field| format!("spec.?{field}"))),
                "changes no field of a Pod but 'spec.activeDeadlineSeconds'",
            ),
            bound(
                format!("{} <= {}", limit("object"), limit("oldObject")),
                "sets or lowers the limit of a Pod only",
            ),
        ],
    )
}

fn own_runs() -> ValidatingAdmissionPolicy {
    let labels = |object: &str| format!("{object}.metadata.?labels.orValue({{}})");
    let own = owned_list(&[names::AGENT, names::SERVICE_NAME, names::TASK_ID]);
    conditional_policy(
        "own-runs",
        vec![requests(
            GROUP,
            &["*"],
            &["docsruns", "taskruns"],
            &["UPDATE"],
        )],
        None,
        &[("before", labels("oldObject")), ("after", labels("object"))],
        vec![
            bound(
                "object.spec == oldObject.spec".to_owned(),
                "changes no spec of a run",
            ),
            bound(
                format!(
                    "variables.before.all(key, key in variables.after) \
                     && variables.after.all(key, key in {own} || (key in variables.before && variables.before[key] == variables.after[key]))"
                ),
                "changes no label of a run except those for its Agent, service and task",
            ),
        ],
    )
}

/// Returns an expression that checks `one` for all containers of a Pod spec, except ephemeral ones,
/// which do not start by themselves.
fn each_container(spec: &str, one: &str) -> String {
    format!("({spec}.containers + {spec}.?initContainers.orValue([])).all(one, {one})")
}

/// Returns an expression that checks whether a Pod spec gives no access to its node.
///
/// An existing Pod has the node that the scheduler chose, so only a new object must not set a node.
pub(super) fn without_host(spec: &str) -> String {
    format!(
        "!{spec}.?hostNetwork.orValue(false) && !{spec}.?hostPID.orValue(false) && !{spec}.?hostIPC.orValue(false) \
         && (request.operation != 'CREATE' || {spec}.?nodeName.orValue('') == '') && {}",
        each_container(
            spec,
            "one.?ports.orValue([]).all(port, port.?hostPort.orValue(0) == 0) && one.?volumeDevices.orValue([]).size() == 0"
        )
    )
}

/// Returns an expression that checks whether a Pod spec satisfies the Pod Security level
/// `restricted`, with the fields that we set.
pub(super) fn restricted(spec: &str) -> String {
    let pod = format!("{spec}.?securityContext");
    let none = |context: &str| {
        ["seLinuxOptions", "windowsOptions", "appArmorProfile"]
            .map(|field| format!("!{context}.?{field}.hasValue()"))
            .join(" && ")
    };
    let own = "one.?securityContext";
    let container = format!(
        "!{own}.?privileged.orValue(false) && !{own}.?allowPrivilegeEscalation.orValue(true) \
         && {own}.?capabilities.?add.orValue([]).size() == 0 && 'ALL' in {own}.?capabilities.?drop.orValue([]) \
         && {own}.?runAsNonRoot.orValue(true) && {own}.?runAsUser.orValue(1) > 0 \
         && {own}.?seccompProfile.?type.orValue('RuntimeDefault') == 'RuntimeDefault' \
         && {own}.?procMount.orValue('Default') == 'Default' && {}",
        none(own)
    );
    format!(
        "{pod}.?runAsNonRoot.orValue(false) && {pod}.?runAsUser.orValue(0) > 0 \
         && {pod}.?seccompProfile.?type.orValue('') == 'RuntimeDefault' \
         && {pod}.?sysctls.orValue([]).size() == 0 && {} && {}",
        none(&pod),
        each_container(spec, &container)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rbac::Permission;

    /// A new write permission needs a bound, or a reason for its absence.
    #[test]
    fn each_resource_that_the_operator_writes_is_bounded() {
        let bounded: Vec<String> = task_operator()
            .into_iter()
            .flat_map(|policy| {
                policy
                    .spec
                    .unwrap()
                    .match_constraints
                    .unwrap()
                    .resource_rules
                    .unwrap()
            })
            .flat_map(|rule| rule.resources.unwrap())
            .collect();
        // Events and statuses start nothing.
        let free = [
            "events",
            "agents/status",
            "docsruns/status",
            "taskruns/status",
        ];
        for Permission {
            resource, verbs, ..
        } in tasks::OPERATOR.permissions
        {
            let writes = verbs.iter().any(|verb| super::super::WRITE.contains(verb));
            if writes && !free.contains(resource) {
                assert!(bounded.iter().any(|known| known == resource), "{resource}");
            }
        }
    }

    #[test]
    fn the_namespaces_of_the_control_plane_are_protected_without_an_installation() {
        let spec = own_children().spec.unwrap();
        let variables = spec.variables.unwrap();
        assert_eq!(variables[0].name, PROTECTED_NAMESPACES);
        assert_eq!(
            variables[0].expression,
            "['kube-node-lease', 'kube-public', 'kube-system']"
        );
    }
}
