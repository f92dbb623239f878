use api::{rbac::Scope, tasks::TASK_RUN};
use k8s_openapi::{
    api::{admissionregistration::v1::ValidatingAdmissionPolicySpec, rbac::v1::PolicyRule},
    apimachinery::pkg::apis::meta::v1::Time,
};
use why::leader::Program;

use super::*;
use crate::commands::check::view::{
    BindingView, Known, Permission, Reach, RoleBindingView, RoleView, Roles,
};

mod fixture;

use fixture::{at, well};

fn permission(verb: &str, is_allowed: bool) -> Permission {
    Permission {
        text: format!("{verb} taskruns.orchestrator.io"),
        is_allowed,
    }
}

fn webhook_with(backend: Backend) -> WebhookView {
    WebhookView {
        name: "guard.example.com".to_owned(),
        configuration: "ValidatingWebhookConfiguration 'guard'".to_owned(),
        resources: vec!["jobs".to_owned()],
        backend,
    }
}

fn tasks(state: &mut State) -> &mut DeploymentView {
    state.deployments.as_mut().unwrap().first_mut().unwrap()
}

/// Returns the rules of the ClusterRole of the tasks operator.
fn rules_of(state: &mut State) -> &mut Vec<PolicyRule> {
    let roles = &mut state.roles.as_mut().unwrap().roles;
    &mut roles.first_mut().unwrap().rules
}

fn policy_of<'a>(state: &'a mut State, name: &str) -> &'a mut ValidatingAdmissionPolicySpec {
    let all = state.policies.as_mut().unwrap();
    let found = all.iter_mut().find(|one| one.name == name);
    &mut found.unwrap().spec
}

fn crd_of(state: &mut State) -> &mut Known<Option<Box<CustomResourceDefinition>>> {
    let mut rows = state.crds.iter_mut();
    let found = rows.find(|(row, _)| **row == TASK_RUN);
    &mut found.unwrap().1
}

fn lease_of(state: &mut State) -> &mut LeaseView {
    let leases = state.leases.get_mut("tasks").unwrap().as_mut().unwrap();
    leases.first_mut().unwrap()
}

#[test]
fn a_well_installation_has_only_good_findings() {
    let found = findings(&well());
    assert!(
        found.iter().all(|one| one.verdict == Verdict::Ok),
        "{found:#?}"
    );
    for operator in OPERATORS {
        let lease = format!("Lease {}", operator.lease);
        assert!(found.iter().any(|one| one.check == lease), "{found:#?}");
    }
}

type Break = fn(&mut State);

/// Each fault has one finding that is not good, with this verdict and these words.
#[test]
fn each_fault_is_found() {
    let cases: &[(&str, Break, Verdict, &str, &str)] = &[
        (
            "strange Kubernetes",
            |state| state.kubernetes = "devel".to_owned(),
            Verdict::Warning,
            "Kubernetes",
            "'devel' is no version",
        ),
        (
            "old Kubernetes",
            |state| state.kubernetes = "v1.33.1".to_owned(),
            Verdict::Failed,
            "Kubernetes",
            "older than 1.34",
        ),
        (
            "skew",
            |state| tasks(state).version = "0.2.0".to_owned(),
            Verdict::Warning,
            "version of operator tasks",
            "operator 0.2.0, orc 0.1.0",
        ),
        (
            "Deployments unreadable",
            |state| state.deployments = Err("forbidden".to_owned()),
            Verdict::Warning,
            "versions",
            "could not be read, so it is not checked: forbidden",
        ),
        (
            "CRD missing",
            |state| *crd_of(state) = Ok(None),
            Verdict::Failed,
            "CRD taskruns.orchestrator.io",
            "does not exist",
        ),
        (
            "CRD unreadable",
            |state| *crd_of(state) = Err("forbidden".to_owned()),
            Verdict::Warning,
            "CRD taskruns.orchestrator.io",
            "could not be read",
        ),
        (
            "CRD not served",
            |state| {
                *crd_of(state) = Ok(Some(Box::new(TASK_RUN.crd())));
            },
            Verdict::Failed,
            "CRD taskruns.orchestrator.io",
            "is not established",
        ),
        (
            "CRD is old",
            |state| {
                let crd = crd_of(state).as_mut().unwrap().as_mut().unwrap();
                let version = crd.spec.versions.first_mut().unwrap();
                let schema = version.schema.as_mut().unwrap();
                let schema = schema.open_api_v3_schema.as_mut().unwrap();
                let fields = schema.properties.as_mut().unwrap();
                let status = fields.get_mut("status").unwrap();
                status.properties.as_mut().unwrap().remove("result");
            },
            Verdict::Failed,
            "CRD taskruns.orchestrator.io",
            "lacks 'status.result', which the operator writes",
        ),
        (
            "no replicas",
            |state| tasks(state).wanted = 0,
            Verdict::Failed,
            "Deployment of operator tasks",
            "has 0 replicas: kubectl scale deployment orchestrator-tasks -n system",
        ),
        (
            "no Pod ready",
            |state| {
                tasks(state).ready = 0;
                tasks(state).unready = Ok(vec!["Pod 'x': CrashLoopBackOff".to_owned()]);
            },
            Verdict::Failed,
            "Deployment of operator tasks",
            "0 of 2 Pods ready: Pod 'x': CrashLoopBackOff",
        ),
        (
            "one Pod ready",
            |state| tasks(state).ready = 1,
            Verdict::Warning,
            "Deployment of operator tasks",
            "1 of 2 Pods ready",
        ),
        (
            "no Deployment",
            |state| {
                state.deployments.as_mut().unwrap().remove(0);
            },
            Verdict::Failed,
            "Deployment of operator tasks",
            "does not exist",
        ),
        (
            "Lease missing",
            |state| {
                state.leases.insert("tasks", Ok(Vec::new()));
            },
            Verdict::Failed,
            "Lease orchestrator-tasks",
            "no operator ever led",
        ),
        (
            "Lease released",
            |state| lease_of(state).holder = None,
            Verdict::Failed,
            "Lease orchestrator-tasks",
            "was released",
        ),
        (
            "Lease stale",
            |state| lease_of(state).renewed = Some(Time(at("2026-01-01T00:59:29Z"))),
            Verdict::Failed,
            "Lease orchestrator-tasks",
            "'orchestrator-tasks-6d5f-abcde_1' renewed it 31s ago",
        ),
        (
            "leader killed",
            |state| {
                let pods = tasks(state).pods.as_mut().unwrap();
                pods[0].program = Program::Ended;
            },
            Verdict::Failed,
            "Lease orchestrator-tasks",
            "no operator leads: 'orchestrator-tasks-6d5f-abcde_1' renewed it 4s ago, but its Pod does not run",
        ),
        (
            "Lease held by another process",
            |state| lease_of(state).holder = Some("vm_1".to_owned()),
            Verdict::Failed,
            "Lease orchestrator-tasks",
            "but it is no Pod of the operator's Deployment",
        ),
        (
            "Lease unreadable",
            |state| {
                state.leases.insert("tasks", Err("forbidden".to_owned()));
            },
            Verdict::Warning,
            "Lease orchestrator-tasks",
            "forbidden",
        ),
        (
            "policy missing",
            |state| {
                let all = state.policies.as_mut().unwrap();
                all.retain(|one| one.name != "orchestrator-tasks-use-agent");
            },
            Verdict::Failed,
            "admission policies of operator tasks",
            "'use-agent' missing",
        ),
        (
            "no policies",
            |state| {
                let all = state.policies.as_mut().unwrap();
                all.retain(|one| one.operator != "tasks");
            },
            Verdict::Failed,
            "admission policies of operator tasks",
            "admissionPolicies.enabled=true",
        ),
        (
            "binding missing",
            |state| {
                let all = state.bindings.as_mut().unwrap();
                all.retain(|one| one.policy != "orchestrator-tasks-use-agent");
            },
            Verdict::Failed,
            "admission policies of operator tasks",
            "'orchestrator-tasks-use-agent' has no binding that denies",
        ),
        (
            "binding that only warns",
            |state| {
                let all = state.bindings.as_mut().unwrap();
                all.iter_mut().for_each(|one| {
                    one.denies = one.policy != "orchestrator-tasks-use-agent";
                });
            },
            Verdict::Failed,
            "admission policies of operator tasks",
            "has no binding that denies",
        ),
        (
            "binding that leaves out requests",
            |state| {
                let all = state.bindings.as_mut().unwrap();
                let is_it = |one: &&mut BindingView| one.policy == "orchestrator-tasks-use-agent";
                all.iter_mut().find(is_it).unwrap().reach = Reach::Part;
            },
            Verdict::Failed,
            "admission policies of operator tasks",
            "'orchestrator-tasks-use-agent' has only bindings that leave out requests",
        ),
        (
            "validations removed",
            |state| {
                policy_of(state, "orchestrator-tasks-use-agent").validations = None;
            },
            Verdict::Failed,
            "admission policies of operator tasks",
            "not as in this release: 'orchestrator-tasks-use-agent' (validations); run 'helm upgrade'",
        ),
        (
            "policy that ignores errors and other users",
            |state| {
                let spec = policy_of(state, "orchestrator-tasks-own-pods");
                spec.failure_policy = Some("Ignore".to_owned());
                spec.match_conditions = None;
            },
            Verdict::Failed,
            "admission policies of operator tasks",
            "'orchestrator-tasks-own-pods' (failurePolicy, matchConditions)",
        ),
        (
            "permission missing",
            |state| {
                let mut rules = rules_of(state).iter_mut();
                let jobs = Some(vec!["jobs".to_owned()]);
                let rule = rules.find(|rule| rule.resources == jobs).unwrap();
                rule.verbs.retain(|verb| verb != "create");
            },
            Verdict::Failed,
            "permissions of operator tasks",
            "the roles of ServiceAccount 'system/orchestrator-tasks' lack create jobs.batch; run 'helm upgrade'",
        ),
        (
            "role without a binding",
            |state| {
                let account = "system/orchestrator-tasks".to_owned();
                let roles = state.roles.as_mut().unwrap();
                roles
                    .bindings
                    .retain(|one| !one.accounts.contains(&account));
            },
            Verdict::Failed,
            "permissions of operator tasks",
            "no binding of the chart gives ServiceAccount 'system/orchestrator-tasks' a role",
        ),
        (
            "webhook down",
            |state| {
                let backend = Backend::Service("guard/guard".to_owned(), Ok(Some(0)));
                state.webhooks = Ok(vec![webhook_with(backend)]);
            },
            Verdict::Failed,
            "webhook guard.example.com",
            "calls it for jobs, with failurePolicy Fail; Service 'guard/guard' has no ready endpoint",
        ),
        (
            "webhook without a Service",
            |state| {
                let backend = Backend::Service("guard/guard".to_owned(), Ok(None));
                state.webhooks = Ok(vec![webhook_with(backend)]);
            },
            Verdict::Failed,
            "webhook guard.example.com",
            "does not exist",
        ),
        (
            "webhook of unknown state",
            |state| {
                let backend = Backend::Service("guard/guard".to_owned(), Err("forbidden".into()));
                state.webhooks = Ok(vec![webhook_with(backend)]);
            },
            Verdict::Warning,
            "webhook guard.example.com",
            "forbidden",
        ),
        (
            "webhook outside",
            |state| {
                let backend = Backend::Url("https://guard.example.com".to_owned());
                state.webhooks = Ok(vec![webhook_with(backend)]);
            },
            Verdict::Warning,
            "webhook guard.example.com",
            "is not checked",
        ),
        (
            "one permission missing",
            |state| {
                let all = vec![permission("get", true), permission("list", false)];
                state.permissions[0].1 = Ok(all);
            },
            Verdict::Warning,
            "your permissions: view",
            "not in namespace 'team': list taskruns.orchestrator.io",
        ),
        (
            "no permission",
            |state| state.permissions[0].1 = Ok(vec![permission("get", false)]),
            Verdict::Warning,
            "your permissions: view",
            "none, in namespace 'team'",
        ),
    ];
    for (name, change, verdict, check, words) in cases {
        let mut state = well();
        change(&mut state);
        let mut found = findings(&state);
        found.retain(|one| one.verdict != Verdict::Ok);
        // Without its Deployment, an operator does not lead either.
        let is_deployment = check.starts_with("Deployment of operator");
        found.retain(|one| !is_deployment || one.check != "Lease orchestrator-tasks");
        // Without the Deployments, the ServiceAccounts are not known either.
        let is_unknown = |one: &Finding| one.check.starts_with("permissions of operator");
        found.retain(|one| *check != "versions" || !is_unknown(one));
        let [one] = found.as_slice() else {
            panic!("{name}: {found:#?}");
        };
        assert_eq!(
            (one.verdict, one.check.as_str()),
            (*verdict, *check),
            "{name}"
        );
        assert!(one.detail.contains(words), "{name}: {}", one.detail);
    }
}

/// With `watchNamespaces`, the chart has a Role in each of them instead of rules for all namespaces.
#[test]
fn an_operator_of_some_namespaces_needs_its_role_in_each() {
    let limited = || {
        let mut state = well();
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
                name: "orchestrator-tasks".to_owned(),
                namespace: Some(namespace.to_owned()),
                rules: Vec::clone(&watched),
            });
            bindings.push(RoleBindingView {
                namespace: Some(namespace.to_owned()),
                role: "orchestrator-tasks".to_owned(),
                is_cluster_role: false,
                accounts: vec!["system/orchestrator-tasks".to_owned()],
            });
        }
        state
    };
    let of_tasks = |state: &State| {
        let found = findings(state).into_iter();
        let mut found = found.filter(|one| one.check == "permissions of operator tasks");
        found.next().unwrap()
    };
    let whole = of_tasks(&limited());
    assert_eq!(whole.verdict, Verdict::Ok, "{}", whole.detail);
    assert_eq!(whole.detail, "all that it needs, in 2 namespaces");
    let mut state = limited();
    state.roles.as_mut().unwrap().bindings.pop();
    let broken = of_tasks(&state);
    assert_eq!(broken.verdict, Verdict::Failed);
    assert!(
        broken.detail.contains("in namespace 'b'"),
        "{}",
        broken.detail
    );
}

#[test]
fn permissions_that_cannot_be_read_are_not_judged() {
    let unreadable: [Break; 2] = [
        |state| state.roles = Err("forbidden".to_owned()),
        |state| state.deployments = Err("forbidden".to_owned()),
    ];
    for change in unreadable {
        let mut state = well();
        change(&mut state);
        let mut found = findings(&state);
        found.retain(|one| one.check.starts_with("permissions of operator"));
        assert_eq!(found.len(), OPERATORS.len(), "{found:#?}");
        for one in found {
            assert_eq!(one.verdict, Verdict::Warning, "{}", one.detail);
            assert!(
                one.detail.contains("is not checked: forbidden"),
                "{}",
                one.detail
            );
        }
    }
}

/// The chart has a value that removes this permission.
#[test]
fn an_optional_permission_may_be_missing() {
    let mut state = well();
    for role in &mut state.roles.as_mut().unwrap().roles {
        let secrets = Some(vec!["secrets".to_owned()]);
        role.rules
            .retain(|rule| rule.resources != secrets || role.name != "orchestrator-apps");
    }
    let found = findings(&state);
    let apps = found
        .iter()
        .find(|one| one.check == "permissions of operator apps");
    let apps = apps.unwrap();
    assert_eq!(apps.verdict, Verdict::Ok, "{}", apps.detail);
    assert!(
        apps.detail.contains("readReleaseSecrets=false"),
        "{}",
        apps.detail
    );
}

/// A newer operator may have other fields and policies.
#[test]
fn a_difference_to_another_version_is_a_warning() {
    let mut state = well();
    tasks(&mut state).version = "0.0.9".to_owned();
    let policies = state.policies.as_mut().unwrap();
    policies.retain(|one| one.name != "orchestrator-tasks-use-agent");
    let found = findings(&state);
    assert!(found.iter().all(|one| one.verdict != Verdict::Failed));
    let missing = found.iter().find(|one| one.detail.contains("use-agent"));
    assert_eq!(missing.unwrap().verdict, Verdict::Warning);
}

#[test]
fn an_operator_that_is_off_is_no_fault_and_none_at_all_is_one() {
    let is_of_tenants =
        |row: &'static api::kinds::KindRow| api::tenants::OPERATOR.kinds.contains(row);
    let mut state = well();
    state
        .deployments
        .as_mut()
        .unwrap()
        .retain(|one| one.operator != "tenants");
    for (row, crd) in &mut state.crds {
        if is_of_tenants(row) {
            *crd = Ok(None);
        }
    }
    let found = findings(&state);
    let off = found.iter().find(|one| one.check == "operator tenants");
    assert!(off.unwrap().detail.contains("operators.tenants.enabled"));
    assert!(
        found.iter().all(|one| one.verdict == Verdict::Ok),
        "{found:#?}"
    );

    state.deployments = Ok(Vec::new());
    for (_, crd) in &mut state.crds {
        *crd = Ok(None);
    }
    let found = findings(&state);
    let failed = found.iter().find(|one| one.verdict == Verdict::Failed);
    assert!(failed.unwrap().detail.contains("install the chart"));
}

/// A fresh Lease is no evidence of an operator that cannot run.
#[test]
fn a_lease_without_a_deployment_that_can_lead_fails() {
    let cases: [(&str, Break); 3] = [
        ("its Deployment has 0 replicas", |state| {
            tasks(state).wanted = 0;
        }),
        ("its Deployment does not exist", |state| {
            state.deployments.as_mut().unwrap().remove(0);
        }),
        ("no Pod of its Deployment is ready", |state| {
            tasks(state).ready = 0;
            tasks(state).pods = None;
        }),
    ];
    for (words, change) in cases {
        let mut state = well();
        change(&mut state);
        let found = findings(&state);
        let mut leases = found.iter();
        let lease = leases.find(|one| one.check == "Lease orchestrator-tasks");
        let lease = lease.unwrap();
        assert_eq!(lease.verdict, Verdict::Failed, "{words}");
        assert!(lease.detail.contains(words), "{}", lease.detail);
    }
}
