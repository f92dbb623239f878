//! Operators with `watchNamespaces`.

use api::rbac::Scope;

use super::*;
use crate::commands::check::view::{RoleBindingView, RoleView, Roles};

/// The account of the tasks operator, and the name of its Roles.
const ACCOUNT: &str = "orchestrator-tasks";

/// The policy of a binding that a case changes.
const POLICY: &str = "orchestrator-tasks-use-agent";

fn namespaces(names: &[&str]) -> Reach {
    Reach::Namespaces(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Returns the bindings of the policies for authors. Those that judge the operator apply in all namespaces.
fn bindings(state: &mut State) -> impl Iterator<Item = &mut BindingView> {
    let all = (api::tasks::OPERATOR.policies)().policies.into_iter();
    let names = all.filter_map(|one| one.metadata.name);
    let names: Vec<String> = names.map(|name| format!("{ACCOUNT}-{name}")).collect();
    let all = state.bindings.as_mut().unwrap().iter_mut();
    all.filter(move |one| names.contains(&one.policy))
}

fn binding(state: &mut State) -> &mut BindingView {
    bindings(state).find(|one| one.policy == POLICY).unwrap()
}

type Installation = fn() -> State;

/// An installation in which the tasks operator watches namespaces `a` and `b`. The chart has a Role in each of them instead
/// of rules for all namespaces.
fn limited() -> State {
    let mut state = well();
    for one in bindings(&mut state) {
        one.reach = namespaces(&["a", "b"]);
    }
    let Roles { roles, bindings } = state.roles.as_mut().unwrap();
    let is_watched = |rule: &PolicyRule| {
        let name = |list: &Option<Vec<String>>| list.clone().unwrap_or_default().concat();
        let mut all = api::tasks::OPERATOR.permissions.iter();
        all.any(|one| {
            let is_it = one.resource == name(&rule.resources);
            one.scope == Scope::Watched && is_it && one.group == name(&rule.api_groups)
        })
    };
    let everywhere = &mut roles.first_mut().unwrap().rules;
    let (watched, of_cluster) = everywhere.drain(..).partition(is_watched);
    *everywhere = of_cluster;
    for namespace in ["a", "b"] {
        roles.push(RoleView {
            name: ACCOUNT.to_owned(),
            namespace: Some(namespace.to_owned()),
            rules: Vec::clone(&watched),
        });
        bindings.push(RoleBindingView {
            namespace: Some(namespace.to_owned()),
            role: ACCOUNT.to_owned(),
            is_cluster_role: false,
            accounts: vec![format!("system/{ACCOUNT}")],
        });
    }
    state
}

fn found(state: &State, check: &str) -> Finding {
    let mut found = findings(state).into_iter();
    found.find(|one| one.check == check).unwrap()
}

#[test]
fn an_operator_of_some_namespaces_needs_its_role_in_each() {
    let lacks = "in namespace 'b'";
    let cases: [(&str, Break, Verdict, &str); 5] = [
        (
            "as it is installed",
            |_| {},
            Verdict::Ok,
            "all that it needs, in 2 namespaces",
        ),
        (
            "no RoleBinding",
            |state| {
                state.roles.as_mut().unwrap().bindings.pop();
            },
            Verdict::Failed,
            lacks,
        ),
        (
            "a namespace that was created again",
            |state| {
                let roles = state.roles.as_mut().unwrap();
                roles.bindings.pop();
                roles.roles.pop();
            },
            Verdict::Failed,
            lacks,
        ),
        (
            "a binding of an administrator for another namespace",
            |state| {
                state.bindings.as_mut().unwrap().push(BindingView {
                    policy: POLICY.to_owned(),
                    is_of_chart: false,
                    denies: true,
                    reach: namespaces(&["c"]),
                });
            },
            Verdict::Ok,
            "in 2 namespaces",
        ),
        (
            "policies for all namespaces",
            |state| bindings(state).for_each(|one| one.reach = Reach::All),
            Verdict::Ok,
            "in 2 namespaces",
        ),
    ];
    for (name, change, verdict, words) in cases {
        let mut state = limited();
        change(&mut state);
        let one = found(&state, "permissions of operator tasks");
        assert_eq!(one.verdict, verdict, "{name}: {}", one.detail);
        assert!(one.detail.contains(words), "{name}: {}", one.detail);
    }
}

#[test]
fn a_policy_needs_a_binding_for_each_watched_namespace() {
    let narrow = "'orchestrator-tasks-use-agent' has only bindings that leave out requests";
    let well_bound = "each with a binding";
    let cases: [(&str, Installation, Break, Verdict, &str); 7] = [
        ("as installed", limited, |_| {}, Verdict::Ok, well_bound),
        (
            "one namespace of two",
            limited,
            |state| binding(state).reach = namespaces(&["a"]),
            Verdict::Failed,
            narrow,
        ),
        (
            "one namespace of two, and the other was created again",
            limited,
            |state| {
                let roles = state.roles.as_mut().unwrap();
                roles.bindings.pop();
                roles.roles.pop();
                binding(state).reach = namespaces(&["a"]);
            },
            Verdict::Failed,
            narrow,
        ),
        (
            "two bindings together",
            limited,
            |state| {
                let mut other = binding(state).clone();
                other.is_of_chart = false;
                other.reach = namespaces(&["b"]);
                binding(state).reach = namespaces(&["a"]);
                state.bindings.as_mut().unwrap().push(other);
            },
            Verdict::Ok,
            well_bound,
        ),
        (
            "one namespace of all",
            well,
            |state| binding(state).reach = namespaces(&["a"]),
            Verdict::Failed,
            narrow,
        ),
        (
            "roles unreadable",
            well,
            |state| {
                state.roles = Err("forbidden".to_owned());
                binding(state).reach = namespaces(&["a"]);
            },
            Verdict::Ok,
            well_bound,
        ),
        (
            "a policy of the operator in some namespaces",
            limited,
            |state| {
                let mut all = state.bindings.as_mut().unwrap().iter_mut();
                let own = all.find(|one| one.policy == "orchestrator-tasks-own-pods");
                own.unwrap().reach = namespaces(&["a", "b"]);
            },
            Verdict::Failed,
            "'orchestrator-tasks-own-pods' has only bindings that leave out requests",
        ),
    ];
    for (name, installation, change, verdict, words) in cases {
        let mut state = installation();
        change(&mut state);
        let one = found(&state, "admission policies of operator tasks");
        assert_eq!(one.verdict, verdict, "{name}: {}", one.detail);
        assert!(one.detail.contains(words), "{name}: {}", one.detail);
    }
}
