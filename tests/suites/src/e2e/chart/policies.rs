//! Who may what: roles and policies are rendered as they were generated.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    NAMESPACE, Rendered, component, folder, of_kind, rules::is_bound, text, watched_namespaces,
};

/// What was generated for an operator.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Generated {
    policies: Vec<Value>,
    operator_policies: Vec<Value>,
    user_roles: Vec<Value>,
    shared: Vec<Value>,
}

fn generated(operator: &str) -> Result<Generated> {
    let path = folder().join(format!("policies-{operator}.yaml"));
    let file = fs::read_to_string(&path)
        .with_context(|| format!("no '{}': run 'cargo xtask generate'", path.display()))?;
    let generated: Generated =
        serde_saphyr::from_str(&file).with_context(|| format!("'{}'", path.display()))?;
    ensure!(
        !generated.policies.is_empty() && !generated.user_roles.is_empty(),
        "'{}' is empty",
        path.display()
    );
    Ok(generated)
}

/// What an operator must have, by name.
#[derive(Default)]
struct Wanted {
    policies: BTreeMap<String, Value>,
    /// Those of them that judge an operator, which hold in all namespaces.
    of_operators: BTreeSet<String>,
    /// Roles that the chart gives to nobody: rules, and the labels by which others take them in.
    roles: BTreeMap<String, (Value, Value)>,
    /// Beside roles and policies: whole, without labels.
    others: BTreeMap<String, Value>,
}

impl Wanted {
    /// All that begins with `name` belongs to the operator.
    fn add(&mut self, operator: &str, name: &str, known: &Known) -> Result<()> {
        let Generated {
            policies,
            operator_policies,
            user_roles,
            shared,
        } = generated(operator)?;
        let full = |object: &Value| format!("{name}-{}", text(object, "/metadata/name"));
        let user = format!("system:serviceaccount:{NAMESPACE}:{name}");
        for policy in &policies {
            let spec = known.fill(policy, &user)?;
            self.policies.insert(full(policy), spec);
        }
        for policy in &operator_policies {
            let mut spec = known.fill(policy, &user)?;
            spec["matchConditions"] = json!([api::policy::by_user(&user)]);
            self.policies.insert(full(policy), spec);
            self.of_operators.insert(full(policy));
        }
        for role in &user_roles {
            self.roles.insert(full(role), parts(role));
        }
        for object in &shared {
            // Under the name that it has: others know it by that.
            let name = text(object, "/metadata/name").to_owned();
            if text(object, "/kind") == "ClusterRole" {
                self.roles.insert(name, parts(object));
            } else {
                self.others.insert(name, unlabelled(object));
            }
        }
        Ok(())
    }
}

impl Wanted {
    /// Pods of Tenants may have these priority classes, too.
    fn allow(&mut self, classes: &[&str]) -> Result<()> {
        let specs = self.policies.values_mut();
        // An index that may be written to would give an empty list to policies that have none.
        let variables = specs.filter_map(|spec| spec.get_mut("variables")?.as_array_mut());
        let mut named = variables
            .flat_map(|all| all.iter_mut())
            .filter(|one| one["name"] == "priorityClasses");
        let list = named.next().context("no policy has 'priorityClasses'")?;
        let mut known: Vec<String> = serde_json::from_str(text(list, "/expression"))?;
        known.extend(classes.iter().map(|class| (*class).to_owned()));
        list["expression"] = json!(serde_json::to_string(&known)?);
        ensure!(named.next().is_none(), "several lists of priority classes");
        Ok(())
    }
}

/// The variables of policies that only an installation knows.
struct Known {
    label_writers: Vec<String>,
    protected_namespaces: Vec<String>,
    powerful_service_accounts: Vec<String>,
}

impl Known {
    /// By the values, and by what the chart adds to them.
    fn of(values: &str, watched: &[String]) -> Self {
        let list = |name: &str| listed(values, &format!("admissionPolicies.{name}={{"));
        let system = ["kube-node-lease", "kube-public", "kube-system"].map(str::to_owned);
        let mut protected = list("protectedNamespaces").unwrap_or(system.into());
        if !watched.iter().any(|name| name == NAMESPACE) {
            protected.push(NAMESPACE.to_owned());
        }
        Self {
            label_writers: list("labelWriters").unwrap_or_default(),
            protected_namespaces: protected,
            powerful_service_accounts: list("powerfulServiceAccounts").unwrap_or_default(),
        }
    }

    /// The spec of a policy for the operator of this user.
    fn fill(&self, policy: &Value, user: &str) -> Result<Value> {
        let Self {
            label_writers,
            protected_namespaces,
            powerful_service_accounts,
        } = self;
        let mut filled = [serde_json::from_value(policy.clone())?];
        let mut writers = vec![user];
        writers.extend(label_writers.iter().map(String::as_str));
        let protected: Vec<&str> = protected_namespaces.iter().map(String::as_str).collect();
        let powerful: Vec<&str> = powerful_service_accounts
            .iter()
            .map(String::as_str)
            .collect();
        for (variable, texts) in [
            (api::policy::LABEL_WRITERS, writers),
            (api::policy::PROTECTED_NAMESPACES, protected),
            (api::policy::POWERFUL_SERVICE_ACCOUNTS, powerful),
        ] {
            api::policy::fill(&mut filled, variable, &texts);
        }
        let [policy] = filled;
        Ok(serde_json::to_value(policy)?["spec"].take())
    }
}

/// The texts of `key{a,b}` in the values of a command line.
fn listed(values: &str, key: &str) -> Option<Vec<String>> {
    let (_, rest) = values.split_once(key)?;
    let (list, _) = rest.split_once('}')?;
    Some(list.split(',').map(str::to_owned).collect())
}

/// The rules of a role, and the labels by which roles of the cluster take it in.
fn parts(role: &Value) -> (Value, Value) {
    let labels = role.pointer("/metadata/labels").and_then(Value::as_object);
    let taken_in: serde_json::Map<String, Value> = labels
        .into_iter()
        .flat_map(|labels| labels.iter())
        .filter(|(key, _)| key.starts_with("rbac.authorization.k8s.io/aggregate-to-"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (role["rules"].clone(), Value::Object(taken_in))
}

fn unlabelled(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("labels");
    }
    object
}

fn name_of(object: &Value) -> String {
    text(object, "/metadata/name").to_owned()
}

pub(super) fn check(rendered: &[Rendered]) -> Result<String> {
    let (mut policies, mut roles) = (0, 0);
    for one in rendered {
        let Rendered { values, objects } = one;
        let mut wanted = Wanted::default();
        let known = Known::of(values, &watched_namespaces(objects)?);
        for (operator, name) in one.operators()? {
            wanted.add(operator, name, &known)?;
        }
        let unbound = of_kind(objects, "ClusterRole").filter(|role| !is_bound(objects, role));
        let given: BTreeMap<String, (Value, Value)> =
            unbound.map(|role| (name_of(role), parts(role))).collect();
        ensure!(
            given == wanted.roles,
            "with '{values}': the roles for users and owners are not the generated ones: {:?}",
            given.keys().collect::<Vec<_>>()
        );
        let given: BTreeMap<String, Value> = of_kind(objects, "PriorityClass")
            .map(|class| (name_of(class), unlabelled(class)))
            .collect();
        ensure!(
            given == wanted.others,
            "with '{values}': the classes are not the generated ones"
        );
        if values.contains("tenantPriorityClasses={gold,silver}") {
            wanted.allow(&["gold", "silver"])?;
        }
        if values.contains("admissionPolicies.enabled=false") {
            wanted.policies.clear();
        }
        let given: BTreeMap<String, Value> = of_kind(objects, "ValidatingAdmissionPolicy")
            .map(|policy| (name_of(policy), policy["spec"].clone()))
            .collect();
        let names: BTreeSet<&String> = given.keys().chain(wanted.policies.keys()).collect();
        let wrong: Vec<_> = names
            .into_iter()
            .filter(|name| given.get(*name) != wanted.policies.get(*name))
            .collect();
        ensure!(
            wrong.is_empty(),
            "with '{values}': policies are not the generated ones: {wrong:?}"
        );
        bindings(values, objects, &wanted)?;
        labelled(one)?;
        policies = policies.max(wanted.policies.len());
        roles = roles.max(wanted.roles.len());
    }
    Ok(format!(
        "{policies} policies, each bound where the operator works, and {roles} roles for users and owners, as generated"
    ))
}

/// Each object of no namespace says which operator it belongs to, definitions aside: by that it is found.
fn labelled(one: &Rendered) -> Result<()> {
    let operators = one.operators()?;
    for kind in [
        "ClusterRole",
        "ClusterRoleBinding",
        "PriorityClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ] {
        for object in of_kind(&one.objects, kind) {
            ensure!(
                operators.contains_key(component(object)),
                "with '{}': {kind} '{}' belongs to no operator",
                one.values,
                name_of(object)
            );
        }
    }
    Ok(())
}

/// Each policy is bound, refuses, and holds where the operator works; those about the operator everywhere.
fn bindings(values: &str, objects: &[Value], wanted: &Wanted) -> Result<()> {
    let count = wanted.policies.len();
    let namespaces = watched_namespaces(objects)?;
    let scope = if namespaces.is_empty() {
        Value::Null
    } else {
        json!({ "namespaceSelector": { "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces },
        ] } })
    };
    let mut bound = 0;
    for policy in of_kind(objects, "ValidatingAdmissionPolicy") {
        let name = text(policy, "/metadata/name");
        let binding = of_kind(objects, "ValidatingAdmissionPolicyBinding")
            .find(|binding| text(binding, "/spec/policyName") == name)
            .with_context(|| format!("with '{values}': nothing binds '{name}'"))?;
        ensure!(
            binding["spec"]["validationActions"] == json!(["Deny"]),
            "with '{values}': '{name}' does not refuse"
        );
        let everywhere = wanted.of_operators.contains(name);
        let scope = if everywhere { &Value::Null } else { &scope };
        ensure!(
            binding["spec"]["matchResources"] == *scope,
            "with '{values}': '{name}' holds in {}, not in {scope}",
            binding["spec"]["matchResources"]
        );
        bound += 1;
    }
    let all = of_kind(objects, "ValidatingAdmissionPolicyBinding").count();
    ensure!(
        bound == count && all == count,
        "with '{values}': {count} policies, {bound} bound, {all} bindings"
    );
    Ok(())
}
