//! Validation rules of the schema that several fields share.
//!
//! If a value does not match a pattern, the API server's message is only the pattern. A CEL rule
//! has a message of its own. Such a rule must handle any value: if its evaluation fails, the user
//! gets CEL's error instead of our message.
//!
//! `namespace` is a reserved word of CEL. In a rule, a field of that name is `__namespace__`. The
//! API server also accepts the plain word, but then it does not know the maximum length of the
//! value.

use kube::core::{Message, Rule};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Pattern of a duration. CEL and our parser accept more; this pattern allows neither a sign nor
/// nanoseconds.
const DURATION: &str = "^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$";

/// Requires a duration from `from` to `to`.
pub(crate) fn duration(from: &str, to: &str) -> Rule {
    Rule::new(format!(
        "self.matches('{DURATION}') && duration(self) >= duration('{from}') && duration(self) <= duration('{to}')"
    ))
    .message(Message::Message(format!(
        "must be a duration from '{from}' to '{to}', such as '90s', '15m' or '1h30m'"
    )))
}

/// Requires that the initial delay of a backoff is not longer than its maximum.
pub(crate) fn initial_within_max() -> Rule {
    Rule::new(format!(
        "!self.initial.matches('{DURATION}') || !self.max.matches('{DURATION}') || duration(self.initial) <= duration(self.max)"
    ))
    .message("'initial' must not be longer than 'max'")
}

/// Returns the schema of a quantity. Whole numbers need no quotes, so the rule gets both types.
pub(crate) fn quantity() -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 32,
        "x-kubernetes-validations": [{
            "rule": "string(self).matches('^[0-9]{1,18}([.][0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$')",
            "message": "must be a quantity that is not negative, such as 2, '500m' or '1Gi'",
        }],
    })
}

/// Requires a quantity that is greater than zero.
pub(crate) fn more_than_zero() -> Rule {
    Rule::new("!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))")
        .message("must be more than zero, such as '500Mi' or '1Gi'")
}

/// Requires that requests do not exceed limits. Otherwise no Pod can ever be created.
pub(crate) fn requests_within_limits() -> Rule {
    let over = "has(self.limits) && key in self.limits && isQuantity(string(self.limits[key])) && isQuantity(string(self.requests[key])) && quantity(string(self.requests[key])).isGreaterThan(quantity(string(self.limits[key])))";
    Rule::new(format!(
        "!has(self.requests) || self.requests.all(key, !({over}))"
    ))
    .message("'requests' must not be more than 'limits'")
}

/// Requires a path in the container that hides none of our mounts and no system directory.
pub(crate) fn own_folder() -> Rule {
    Rule::new("!['/proc', '/sys', '/dev', '/tmp', '/etc', '/home/agent', '/run/secrets', '/var/run/secrets', '/workspace'].exists(taken, self == taken || taken.startsWith(self + '/') || (taken != '/workspace' && self.startsWith(taken + '/')))")
        .message("must not be, be in or hold '/proc', '/sys', '/dev', '/tmp', '/etc', '/home/agent', '/run/secrets' or '/var/run/secrets', nor be '/workspace' itself; choose a folder of its own, such as '/workspace/context'")
}

/// Requires a mount path that overlaps with none of our directories and no system directory.
pub(crate) fn free_folder() -> Rule {
    Rule::new("!['/proc', '/sys', '/dev', '/tmp', '/etc', '/home/agent', '/run/secrets', '/var/run/secrets', '/workspace'].exists(taken, self == taken || taken.startsWith(self + '/') || self.startsWith(taken + '/'))")
        .message("must not be, be in or hold '/proc', '/sys', '/dev', '/tmp', '/etc', '/home/agent', '/run/secrets', '/var/run/secrets' or '/workspace'; choose a folder of its own, such as '/data'")
}

/// Requires mount paths that do not overlap. Otherwise one volume would hide another one.
pub(crate) fn volumes_apart() -> Rule {
    Rule::new("!has(self.volumes) || self.volumes.all(one, self.volumes.filter(other, other.mountPath == one.mountPath || other.mountPath.startsWith(one.mountPath + '/')).size() == 1)")
        .message("'mountPath' of a volume must not be, or be in, that of another one")
        .field_path(".volumes")
}

/// Requires mount paths that do not overlap with the directory of the run's files.
pub(crate) fn context_apart() -> Rule {
    Rule::new("!has(self.volumes) || !self.volumes.exists(one, one.mountPath == self.contextPath || one.mountPath.startsWith(self.contextPath + '/') || self.contextPath.startsWith(one.mountPath + '/'))")
        .message("'mountPath' of a volume must not be, be in or hold 'contextPath'")
        .field_path(".volumes")
}

/// Requires an absolute path in the container.
pub(crate) fn absolute_path() -> Rule {
    Rule::new("self.matches('^(/[A-Za-z0-9._-]+)+$') && !self.split('/').exists(part, part == '..' || part == '.')")
        .message("must be an absolute path, such as '/workspace/context': parts of letters, digits, '.', '_' and '-', none of them '.' or '..'")
}

/// Requires text without control characters. Such text can be displayed and can be the value of a
/// variable: a NUL in a variable would prevent the container from starting.
pub(crate) fn one_line() -> Rule {
    Rule::new(r"!self.matches('[\x00-\x1f\x7f]')")
        .message("must have no control characters, such as line breaks")
}

/// Requires a variable that we do not set ourselves.
pub(crate) fn free_variable() -> Rule {
    Rule::new("!self.startsWith('ORCHESTRATOR_') && self != 'HOME'").message(
        "must not be 'HOME' nor begin with 'ORCHESTRATOR_': Orchestrator sets those; choose another name",
    )
}

/// Requires that a field which defines the run does not change.
pub(crate) fn unchanging(kind: &str) -> Rule {
    Rule::new("self == oldSelf").message(Message::Message(format!(
        "cannot be changed; submit another {kind}"
    )))
}

/// Requires that only the decision about an UpgradeRequest is set, and that it is set once.
pub(crate) fn only_approval_is_set_once() -> Rule {
    let fields = [
        "managedAppRef",
        "targetVersion",
        "skipSnapshot",
        "allowUnhealthy",
        "dryRun",
    ];
    let same = fields.map(|field| format!("self.{field} == oldSelf.{field}"));
    Rule::new(format!(
        "{} && (!has(oldSelf.approval) || (has(self.approval) && self.approval == oldSelf.approval))",
        same.join(" && ")
    ))
    .message("cannot be changed, except that 'approval' can be set once; submit another UpgradeRequest")
}

/// Requires that at most one of two optional fields is set.
pub(crate) fn not_both(one: &str, other: &str) -> Rule {
    Rule::new(format!("!has(self.{one}) || !has(self.{other})")).message(Message::Message(format!(
        "'{one}' and '{other}' cannot be set together"
    )))
}

/// Requires that an optional field does not change. The rule belongs to the object with the field:
/// a rule of the field itself is not evaluated when the field is added or removed.
pub(crate) fn unchanging_option(field: &str, kind: &str) -> Rule {
    let name = match field {
        "namespace" => "__namespace__",
        other => other,
    };
    Rule::new(format!(
        "has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
    ))
    .message(Message::Message(format!(
        "'{field}' cannot be changed; submit another {kind}"
    )))
    .field_path(format!(".{field}"))
}

/// Requires one version, and no range. Flux would select a version of a range by itself.
pub(crate) fn exact_version() -> Rule {
    Rule::new("self.matches('^v?[0-9]+[.][0-9]+[.][0-9]+(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$')")
        .message("must be one version, such as '2.1.0' or '2.1.0-rc.1', and no range")
}

/// Requires a tag of an image, which may have a digest. It is the same set as that of `step commit`.
pub(crate) fn image_tag() -> Rule {
    Rule::new("self.matches('^[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}(@sha256:[0-9a-f]{64})?$')")
        .message("must be a tag, such as '1.26', and may have a digest")
}

/// Requires a version of the chart or of an image.
pub(crate) fn any_version() -> Rule {
    Rule::new("has(self.chart) || (has(self.images) && self.images.size() > 0)")
        .message("must have a version of the chart or of an image")
}

/// Requires a repository URL that can only mean a host and a path on it.
///
/// Git decodes percent-encoded characters before it passes a path to ssh, and servers decode them,
/// too. So the rule also rejects the percent-encoded form of each forbidden character.
pub(crate) fn repository_url() -> Rule {
    let scheme = "(https?://|ssh://([A-Za-z0-9_][A-Za-z0-9._-]{0,63}@)?)";
    let label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
    let host = format!("({label}([.]{label})*|[[][0-9A-Fa-f:.]{{2,45}}[]])");
    let port = "(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?";
    let path = "(/([A-Za-z0-9._~+,@=-]|%[0-9A-Fa-f]{2})+)+/?";
    let refused = "/-|/[.][.]?(/|$)|%([01]|7[Ff]|2[5DdEeFf]|5[Cc])";
    let inner = "self.substring(self.indexOf('[') + 1, self.indexOf(']'))";
    Rule::new(format!(
        "self.matches('^{scheme}{host}{port}{path}$') && !self.matches('{refused}') && (!self.contains('[') || ({inner}.contains(':') && isIP({inner})))"
    ))
    .message("must be like 'https://git.example.com/team/repository' or 'ssh://git@git.example.com/team/repository': no user or password for https, no '?' or '#', no part that begins with '-' or is '.' or '..', nothing of that written with '%'")
}

/// Requires a branch name that `git check-ref-format` accepts and that cannot be read as an option.
pub(crate) fn branch() -> Rule {
    Rule::new(
        "self.matches('^[A-Za-z0-9_][A-Za-z0-9._/+#=-]*$') && !self.matches('[.][.]|//|/[.]|[.]/|[.]lock/|[.]lock$|[./]$|/-') && !self.startsWith('refs/') && self != 'HEAD'",
    )
    .message("must be the name of a branch, such as 'main' or 'docs/api': letters, digits and '._/+#=-', not beginning with '-', '.' or 'refs/', without '..' or '//', not ending with '/', '.' or '.lock'")
}

/// Requires a directory of a repository.
pub(crate) fn repository_path() -> Rule {
    Rule::new(
        "self == '.' || (self.matches('^[A-Za-z0-9_.+@ ][A-Za-z0-9_.+@ -]*(/[A-Za-z0-9_.+@ ][A-Za-z0-9_.+@ -]*)*/?$') && !self.split('/').exists(part, part == '.' || part == '..' || part.lowerAscii().startsWith('.git')))",
    )
    .message("must be a folder of the repository, such as 'docs/' or 'services/api', or '.' for its root: no part that is '..', begins with '-' or '.git'")
}

/// Requires a commit message that cannot claim to be from another run. Git also accepts a trailer
/// key with blanks before its colon.
///
/// Caveat: this rule must accept the same messages as `git::refs::check_message`, with which the
/// step checks them again.
pub(crate) fn commit_message() -> Rule {
    Rule::new(r"self.matches(r'[^\pZ\n]') && !self.matches(r'[\x00-\x09\x0b-\x1f\x7f-\x9f]') && !self.lowerAscii().matches(r'orchestrator-run\pZ*:')")
        .message("must have words, no control characters but line breaks, and no line 'Orchestrator-Run:': that one is added")
}

/// Requires a run name that forms a valid branch name after `docs/`, unless a branch is set.
pub(crate) fn name_for_a_branch() -> Rule {
    Rule::new("has(self.spec.output.branch) || (self.metadata.name.size() <= 195 && !self.metadata.name.endsWith('.lock'))")
        .message("must be given: git takes no branch 'docs/' with the name of this run, which ends with '.lock' or has more than 195 letters")
        .field_path(".spec.output.branch")
}

/// Returns the schema of a Pod's node selector.
pub(crate) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        },
        "x-kubernetes-validations": [{
            "rule": "self.all(key, !format.qualifiedName().validate(key).hasValue())",
            "message": "keys must be those of labels, such as 'disktype' or 'topology.kubernetes.io/zone'",
        }],
    })
}

/// Returns the schema of a Pod's tolerations, with the rules that the API server has for them in a
/// Pod.
pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": {
            "description": "Toleration that lets the Pod run on nodes with a matching taint.",
            "type": "object",
            "properties": {
                "key": {
                    "description": "Key of the taint. Default: every key matches.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 317,
                },
                "operator": {
                    "description": "`Equal` (the default) compares the value, `Exists` does not.",
                    "type": "string",
                    "enum": ["Equal", "Exists"],
                },
                "value": {
                    "description": "Value of the taint.",
                    "type": "string",
                    "maxLength": 63,
                },
                "effect": {
                    "description": "Effect of the taint. Default: every effect matches.",
                    "type": "string",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
                "tolerationSeconds": {
                    "description": "Seconds that the Pod stays after such a taint is added. Default: unlimited.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
                    "message": "without 'key', 'operator' must be 'Exists'",
                },
                {
                    "rule": "!has(self.value) || self.value == '' || !has(self.operator) || self.operator == 'Equal'",
                    "message": "'value' must be empty where 'operator' is 'Exists'",
                },
                {
                    "rule": "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                    "message": "'tolerationSeconds' needs the 'effect' 'NoExecute'",
                },
            ],
        },
    })
}

/// Keys of labels and annotations that the operator and the Job controller set, as a CEL condition.
/// With one of them, a Pod would be taken for the Pod of another run or Job.
const RESERVED_KEY: &str = "key in ['task-id', 'service-name', 'context-version', 'job-name', 'controller-uid'] || key.startsWith('orchestrator.io/') || key.contains('.orchestrator.io/') || key.startsWith('batch.kubernetes.io/')";

/// Returns the schema of labels for a Pod.
pub(crate) fn pod_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        },
        "x-kubernetes-validations": [
            {
                "rule": "self.all(key, !format.qualifiedName().validate(key).hasValue())",
                "message": "keys must be those of labels, such as 'team' or 'example.com/team'",
            },
            {
                "rule": format!("!self.exists(key, {RESERVED_KEY})"),
                "message": "must not have keys of Orchestrator ('orchestrator.io/…', 'task-id', 'service-name', 'context-version') or of the Job controller ('batch.kubernetes.io/…', 'job-name', 'controller-uid')",
            },
        ],
    })
}

/// Returns the schema of annotations for a Pod.
pub(crate) fn pod_annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 4096 },
        "x-kubernetes-validations": [
            {
                "rule": "self.all(key, !format.qualifiedName().validate(key).hasValue())",
                "message": "keys must be those of annotations, such as 'example.com/owner'",
            },
            {
                "rule": format!("!self.exists(key, {RESERVED_KEY})"),
                "message": "must not have keys of Orchestrator ('orchestrator.io/…', 'task-id', 'service-name', 'context-version') or of the Job controller ('batch.kubernetes.io/…', 'job-name', 'controller-uid')",
            },
            {
                // Such a key would replace the profile that we set.
                "rule": "!self.exists(key, key.contains('apparmor.security.') || key.contains('seccomp.security.'))",
                "message": "must not have keys of security profiles, such as 'container.apparmor.security.beta.kubernetes.io/agent'",
            },
        ],
    })
}

/// Returns the schema of a Pod's affinity, with the rules that the API server has for it in a Pod.
///
/// Terms about Pods have no namespaces: an Agent must not depend on Pods that its author may not see.
pub(crate) fn affinity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "nodeAffinity": {
                "description": "Nodes on which the Pod runs.",
                "type": "object",
                "properties": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "description": "Nodes on which the Pod may run.",
                        "type": "object",
                        "required": ["nodeSelectorTerms"],
                        "properties": {
                            "nodeSelectorTerms": {
                                "description": "Terms of which a node must match at least one.",
                                "type": "array",
                                "minItems": 1,
                                "maxItems": 8,
                                "items": node_term(),
                            },
                        },
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": preferred(
                        "Nodes that the scheduler prefers.",
                        "preference",
                        &node_term(),
                    ),
                },
            },
            "podAffinity": pods("Pods of the same namespace to run close to."),
            "podAntiAffinity": pods("Pods of the same namespace to run apart from."),
        },
    })
}

/// Returns the schema of a term about nodes.
fn node_term() -> Value {
    json!({
        "description": "Term that a node matches if it matches all expressions.",
        "type": "object",
        "required": ["matchExpressions"],
        "properties": {
            "matchExpressions": {
                "description": "Requirements for the labels of the node.",
                "type": "array",
                "minItems": 1,
                "maxItems": 8,
                "items": label_requirement(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
            },
        },
    })
}

/// Returns the schema of a requirement for a label.
fn label_requirement(operators: &[&str]) -> Value {
    json!({
        "description": "Requirement for a label.",
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {
                "description": "Key of the label.",
                "type": "string",
                "minLength": 1,
                "maxLength": 317,
                "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
            },
            "operator": {
                "description": "Relation of the label to `values`.",
                "type": "string",
                "enum": operators,
            },
            "values": {
                "description": "Values for `In` and `NotIn`. One number for `Gt` and `Lt`. None for `Exists` and `DoesNotExist`.",
                "type": "array",
                "maxItems": 32,
                "items": {
                    "type": "string",
                    "maxLength": 63,
                    "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
                },
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
                "message": "'In' and 'NotIn' need 'values'",
            },
            {
                "rule": "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",
                "message": "'Exists' and 'DoesNotExist' take no 'values'",
            },
            {
                "rule": "!(self.operator in ['Gt', 'Lt']) || (has(self.values) && self.values.size() == 1 && self.values[0].matches('^[0-9]+$'))",
                "message": "'Gt' and 'Lt' need one number in 'values'",
            },
        ],
    })
}

/// Returns the schema of a list of terms with weights.
fn preferred(description: &str, field: &str, term: &Value) -> Value {
    json!({
        "description": description,
        "type": "array",
        "maxItems": 8,
        "items": {
            "description": "Term with its weight.",
            "type": "object",
            "required": ["weight", field],
            "properties": {
                "weight": {
                    "description": "Weight of the term, compared with the other terms.",
                    "type": "integer",
                    "format": "int32",
                    "minimum": 1,
                    "maximum": 100,
                },
                field: term,
            },
        },
    })
}

/// Returns the schema of an affinity to Pods.
fn pods(description: &str) -> Value {
    let term = json!({
        "description": "Term that selects Pods of the same namespace.",
        "type": "object",
        "required": ["labelSelector", "topologyKey"],
        "properties": {
            "labelSelector": {
                "description": "Labels of the Pods.",
                "type": "object",
                "properties": {
                    "matchLabels": {
                        "description": "Labels that the Pods must have.",
                        "type": "object",
                        "maxProperties": 8,
                        "additionalProperties": {
                            "type": "string",
                            "maxLength": 63,
                            "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
                        },
                    },
                    "matchExpressions": {
                        "description": "Requirements for the labels of the Pods.",
                        "type": "array",
                        "maxItems": 8,
                        "items": label_requirement(&["In", "NotIn", "Exists", "DoesNotExist"]),
                    },
                },
            },
            "topologyKey": {
                "description": "Label of nodes. Nodes with the same value of it are one place, such as `kubernetes.io/hostname`.",
                "type": "string",
                "minLength": 1,
                "maxLength": 317,
                "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
            },
        },
    });
    json!({
        "description": description,
        "type": "object",
        "properties": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "description": "Terms that the scheduler must obey.",
                "type": "array",
                "maxItems": 8,
                "items": term,
            },
            "preferredDuringSchedulingIgnoredDuringExecution": preferred(
                "Terms that the scheduler prefers to obey.",
                "podAffinityTerm",
                &term,
            ),
        },
    })
}

/// Requires a Tenant name that forms a valid namespace name after `tenant-`, unless a namespace is
/// set.
pub(crate) fn name_for_a_namespace() -> Rule {
    Rule::new("has(self.spec.__namespace__) || (self.metadata.name.size() <= 56 && !self.metadata.name.contains('.'))")
        .message("must be given: 'tenant-' with the name of this Tenant is no namespace, because the name has a '.' or more than 56 letters")
        .field_path(".spec.namespace")
}

/// Requires a namespace that does not belong to the cluster itself.
pub(crate) fn free_namespace() -> Rule {
    Rule::new("self != 'default' && !self.startsWith('kube-')")
        .message("must not be 'default' nor begin with 'kube-': those are the cluster's own")
}

/// Rejects our Redis variables in the server's environment if the Tenant has a Redis: we set its
/// address and password there.
pub(crate) fn redis_variables_are_ours() -> Rule {
    Rule::new("!has(self.redis) || !has(self.server) || !has(self.server.env) || !self.server.env.exists(one, one.name in ['REDIS_URL', 'REDIS_PASSWORD'])")
        .message("'REDIS_URL' and 'REDIS_PASSWORD' are set by Orchestrator, to this Tenant's Redis")
        .field_path(".server.env")
}

/// Requires a server if other namespaces are allowed. They may reach only the server, so the field
/// would have no effect without one.
pub(crate) fn let_in_to_something() -> Rule {
    Rule::new("has(self.server) || !has(self.networkPolicy) || !has(self.networkPolicy.allowedNamespaces) || self.networkPolicy.allowedNamespaces.size() == 0")
        .message("'allowedNamespaces' may reach 'server', and there is none; for Pods of your own, say who may reach them in 'ingressRules'")
        .field_path(".networkPolicy.allowedNamespaces")
}

/// Requires a valid name of a ServiceAccount. Otherwise the API server rejects the RoleBinding, and
/// no owner gets the role.
pub(crate) fn account_name() -> Rule {
    Rule::new("self.kind != 'ServiceAccount' || !format.dns1123Subdomain().validate(self.name).hasValue()")
        .message("'name' must be that of a ServiceAccount, such as 'deployer'")
        .field_path(".name")
}

/// Requires that the storage of a Redis does not change, because its volume cannot be changed. If a
/// Redis is removed and added again, it may have other storage.
pub(crate) fn storage_unchanging() -> Rule {
    Rule::new("!has(self.redis) || !has(oldSelf.redis) || self.redis.storage == oldSelf.redis.storage")
        .message("'storage' cannot be changed: the data is on this volume. Take the data elsewhere, remove 'redis', delete the volume, and ask for another")
        .field_path(".redis.storage")
}

/// Requires a network in CIDR notation.
pub(crate) fn network() -> Rule {
    Rule::new("isCIDR(self) && cidr(self) == cidr(self).masked()")
        .message("must be a network, such as '192.0.2.0/24', with no bit set beyond its prefix")
}

/// Returns the schema of a Redis' configuration: directives that are known to be harmless.
///
/// It is a list of allowed directives. A directive may run programs, open the Redis to others or
/// move its data, and a later version of Redis may add such a directive.
pub(crate) fn redis_config(_: &mut SchemaGenerator) -> Schema {
    let known = REDIS_DIRECTIVES.join("', '");
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "type": "string",
            "minLength": 1,
            "maxLength": 256,
            "pattern": "^[A-Za-z0-9._ -]+$",
        },
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, key in ['{known}'])"),
            "message": format!("must be one of '{known}': what would open the Redis, run programs or move its data is not taken"),
        }],
    })
}

/// Directives of a Redis' configuration that may be set.
const REDIS_DIRECTIVES: &[&str] = &[
    "activedefrag",
    "appendfsync",
    "appendonly",
    "databases",
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "hz",
    "lazyfree-lazy-eviction",
    "lazyfree-lazy-expire",
    "list-compress-depth",
    "lfu-decay-time",
    "lfu-log-factor",
    "maxclients",
    "maxmemory",
    "maxmemory-policy",
    "maxmemory-samples",
    "notify-keyspace-events",
    "save",
    "set-max-intset-entries",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "tcp-keepalive",
    "timeout",
    "zset-max-listpack-entries",
    "zset-max-listpack-value",
];
