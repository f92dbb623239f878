//! Decides whether an installation is well. All functions are pure.

use api::kinds::{OPERATORS, OperatorRow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use why::{
    leader::{Deployment, Installation, Leader, judge},
    world::LeaseView,
};

use super::view::{Backend, DeploymentView, State, WebhookView};
use crate::text::{count, span};

mod policies;
mod roles;

/// The oldest supported minor version of Kubernetes 1.
const OLDEST_KUBERNETES: u32 = 34;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Ok,
    /// Something could not be read, or limits only this user.
    Warning,
    Failed,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) check: String,
    pub(super) verdict: Verdict,
    pub(super) detail: String,
}

fn finding(check: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Finding {
    Finding {
        check: check.into(),
        verdict,
        detail: detail.into(),
    }
}

fn unread(check: impl Into<String>, why: &str) -> Finding {
    let detail = format!("could not be read, so it is not checked: {why}");
    finding(check, Verdict::Warning, detail)
}

/// Returns the findings, in the order in which a user would look.
pub(super) fn findings(state: &State) -> Vec<Finding> {
    let mut all = vec![kubernetes(state)];
    all.extend(versions(state));
    let installed: Vec<&OperatorRow> = OPERATORS
        .iter()
        .copied()
        .filter(|operator| is_installed(state, operator))
        .collect();
    if installed.is_empty() {
        let detail = "no CRD and no Deployment of Orchestrator was found: install the chart";
        all.push(finding("installation", Verdict::Failed, detail));
    }
    for operator in OPERATORS {
        if installed.contains(operator) {
            all.extend(crds(state, operator));
            all.extend(deployment(state, operator));
            all.push(lease(state, operator));
            all.extend(roles::check(state, operator));
            all.extend(policies::check(state, operator));
        } else if !installed.is_empty() {
            let value = format!("operators.{}.enabled", operator.name);
            all.push(finding(
                format!("operator {}", operator.name),
                Verdict::Ok,
                format!("is off; the chart value '{value}=true' enables it"),
            ));
        }
    }
    if !installed.is_empty() {
        all.extend(webhooks(state));
        all.extend(permissions(state));
    }
    all
}

/// Returns whether a part of the operator exists. A part that cannot be read counts as existing, so
/// that its check reports it.
fn is_installed(state: &State, operator: &OperatorRow) -> bool {
    let has_crd = state
        .crds
        .iter()
        .filter(|(row, _)| operator.kinds.contains(row))
        .any(|(_, crd)| crd.as_ref().map_or(true, Option::is_some));
    has_crd || of(state, operator).is_some()
}

fn of<'a>(state: &'a State, operator: &OperatorRow) -> Option<&'a DeploymentView> {
    let mut all = state.deployments.iter().flat_map(|all| all.iter());
    all.find(|one| one.operator == operator.name)
}

fn kubernetes(state: &State) -> Finding {
    let version = state.kubernetes.as_str();
    match release(version) {
        Ok((1, minor)) if minor < OLDEST_KUBERNETES => finding(
            "Kubernetes",
            Verdict::Failed,
            format!("{version} is older than 1.{OLDEST_KUBERNETES}, the oldest supported version"),
        ),
        Ok(_supported) => finding("Kubernetes", Verdict::Ok, version),
        Err(why) => unread("Kubernetes", &why),
    }
}

/// Returns the first two numbers of a version such as `v1.36.3`.
fn release(version: &str) -> Result<(u32, u32), String> {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut number = || {
        let part = parts.next().unwrap_or_default();
        let parsed = part.parse::<u32>();
        parsed.map_err(|error| format!("'{version}' is no version: {error}"))
    };
    Ok((number()?, number()?))
}

/// Compares the versions of this program and of the operators.
fn versions(state: &State) -> Vec<Finding> {
    let deployments = match &state.deployments {
        Ok(all) => all,
        Err(why) => return vec![unread("versions", why)],
    };
    let each = deployments.iter().map(|one| {
        let check = format!("version of operator {}", one.operator);
        match one.version.as_str() {
            "" => unread(
                check,
                "its Deployment has no label 'app.kubernetes.io/version'",
            ),
            version if version == state.version => {
                finding(check, Verdict::Ok, format!("{version}, the same as orc"))
            }
            version => finding(
                check,
                Verdict::Warning,
                format!(
                    "operator {version}, orc {}: use the same version of both",
                    state.version
                ),
            ),
        }
    });
    each.collect()
}

/// Returns whether the operator has the version of this program. Then it needs each field and each
/// policy that this program knows.
fn is_same_version(state: &State, operator: &OperatorRow) -> bool {
    of(state, operator).is_some_and(|one| one.version == state.version)
}

/// Returns the verdict about a difference to what this program knows, and its reason or remedy.
fn of_difference(state: &State, operator: &OperatorRow) -> (Verdict, &'static str) {
    match is_same_version(state, operator) {
        true => (Verdict::Failed, "run 'helm upgrade'"),
        false => (Verdict::Warning, "the operator's version is another"),
    }
}

fn crds(state: &State, operator: &OperatorRow) -> Vec<Finding> {
    let rows = state.crds.iter();
    let rows = rows.filter(|(row, _)| operator.kinds.contains(row));
    let each = rows.map(|(row, crd)| {
        let check = format!("CRD {}", row.crd_name);
        match crd {
            Err(why) => unread(check, why),
            Ok(None) => finding(
                check,
                Verdict::Failed,
                "does not exist: run 'helm upgrade', which installs it",
            ),
            Ok(Some(crd)) => one_crd(check, crd, &row.crd(), is_same_version(state, operator)),
        }
    });
    each.collect()
}

fn one_crd(
    check: String,
    crd: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
    is_same_version: bool,
) -> Finding {
    let conditions = crd
        .status
        .iter()
        .flat_map(|status| status.conditions.iter());
    let is_established = conditions
        .flat_map(|all| all.iter())
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    if crd.metadata.deletion_timestamp.is_some() {
        let detail = "is being deleted, and its objects with it; 'orc uninstall --check' lists what it waits for";
        return finding(check, Verdict::Failed, detail);
    }
    if !is_established {
        let detail = "is not established: the API server does not serve it";
        return finding(check, Verdict::Failed, detail);
    }
    let lacks = api::crd::lacking(crd, wanted);
    if lacks.is_empty() {
        return finding(check, Verdict::Ok, "has the current schema");
    }
    let lacks = format!("lacks {}", api::crd::first_parts(&lacks));
    if is_same_version {
        let detail = format!(
            "{lacks}, which the operator writes; the API server drops it: run 'helm upgrade'"
        );
        finding(check, Verdict::Failed, detail)
    } else {
        let detail = format!("{lacks}, which this orc knows; the operator's version is another");
        finding(check, Verdict::Warning, detail)
    }
}

fn deployment(state: &State, operator: &OperatorRow) -> Option<Finding> {
    let check = format!("Deployment of operator {}", operator.name);
    // The check of the versions reports Deployments that could not be read.
    let Ok(all) = &state.deployments else {
        return None;
    };
    let Some(one) = all.iter().find(|one| one.operator == operator.name) else {
        let detail = "does not exist in any namespace, but the operator's CRDs do: nothing reconciles their objects";
        return Some(finding(check, Verdict::Failed, detail));
    };
    let name = format!("'{}' in namespace '{}'", one.name, one.namespace);
    let pods = match &one.unready {
        Ok(pods) if pods.is_empty() => String::new(),
        Ok(pods) => format!(": {}", pods.join("; ")),
        Err(why) => format!("; its Pods could not be read: {why}"),
    };
    let ready = format!("{name}: {} of {} Pods ready", one.ready, one.wanted);
    Some(if one.wanted == 0 {
        let detail = format!(
            "{name} has 0 replicas: kubectl scale deployment {} -n {} --replicas=2",
            one.name, one.namespace
        );
        finding(check, Verdict::Failed, detail)
    } else if one.ready == 0 {
        finding(check, Verdict::Failed, format!("{ready}{pods}"))
    } else if one.ready < one.wanted || !one.is_rolled_out {
        finding(
            check,
            Verdict::Warning,
            format!("{ready}, not all of the latest spec{pods}"),
        )
    } else {
        finding(check, Verdict::Ok, ready)
    })
}

fn lease(state: &State, operator: &OperatorRow) -> Finding {
    let check = format!("Lease {}", operator.lease);
    let leases = match state.leases.get(operator.name) {
        Some(Ok(leases)) => leases,
        Some(Err(why)) => return unread(check, why),
        None => return unread(check, "it was not asked for"),
    };
    let newest: Option<&LeaseView> = leases.iter().max_by_key(|lease| lease.renewed.clone());
    let Some(lease) = newest else {
        let detail = "does not exist in any namespace: no operator ever led";
        return finding(check, Verdict::Failed, detail);
    };
    let home = &lease.namespace;
    let renewed = lease.renewed.as_ref().map(|at| at.0);
    let age = renewed.map_or_else(
        || "at an unknown time".to_owned(),
        |at| format!("{} ago", span(crate::text::between(at, state.now))),
    );
    let holder = lease.holder.as_deref().unwrap_or_default();
    let leader = judge(lease, state.now, installed(state, operator, home).as_ref());
    let (verdict, detail) = match leader {
        Leader::Released => (
            Verdict::Failed,
            format!("was released in namespace '{home}', and no operator took it"),
        ),
        Leader::Expired => (
            Verdict::Failed,
            format!("'{holder}' renewed it {age}; no operator leads"),
        ),
        Leader::Absent(absence) => (
            Verdict::Failed,
            format!(
                "no operator leads: '{holder}' renewed it {age}, but {}",
                absence.describe()
            ),
        ),
        Leader::Leads => (Verdict::Ok, format!("held by '{holder}', renewed {age}")),
    };
    finding(check, verdict, detail)
}

/// Returns the Deployment and the Pods in the namespace of a Lease, or `None` if they could not be
/// read.
fn installed(state: &State, operator: &OperatorRow, home: &str) -> Option<Installation> {
    let deployments = match &state.deployments {
        Ok(all) => all,
        // The check of the versions reports it.
        Err(_unread) => return None,
    };
    let mut of_operator = deployments.iter();
    let found = of_operator.find(|one| one.operator == operator.name && one.namespace == home);
    Some(Installation {
        operator: operator.name.to_owned(),
        deployment: found.map(|one| Deployment {
            name: one.name.clone(),
            wanted: one.wanted,
            ready: one.ready,
        }),
        pods: found.and_then(|one| one.pods.clone()),
    })
}

fn webhooks(state: &State) -> Vec<Finding> {
    let check = "webhooks of others";
    let all = match &state.webhooks {
        Ok(all) => all,
        Err(why) => return vec![unread(check, why)],
    };
    if all.is_empty() {
        let detail = "none can reject objects of Orchestrator";
        return vec![finding(check, Verdict::Ok, detail)];
    }
    all.iter().map(webhook).collect()
}

fn webhook(one: &WebhookView) -> Finding {
    let check = format!("webhook {}", one.name);
    let concerns = format!(
        "{} calls it for {}",
        one.configuration,
        one.resources.join(", ")
    );
    match &one.backend {
        Backend::Url(url) => finding(
            check,
            Verdict::Warning,
            format!("{concerns}; whether '{url}' responds is not checked"),
        ),
        Backend::Service(service, Err(why)) => unread(
            check,
            &format!("{concerns}; the endpoints of Service '{service}': {why}"),
        ),
        Backend::Service(service, Ok(None)) => finding(
            check,
            Verdict::Failed,
            format!(
                "{concerns}, with failurePolicy Fail; Service '{service}' does not exist, so they are rejected"
            ),
        ),
        Backend::Service(service, Ok(Some(0))) => finding(
            check,
            Verdict::Failed,
            format!(
                "{concerns}, with failurePolicy Fail; Service '{service}' has no ready endpoint, so they are rejected"
            ),
        ),
        Backend::Service(service, Ok(Some(ready))) => finding(
            check,
            Verdict::Ok,
            format!(
                "{concerns}; Service '{service}' has {}",
                count(*ready, "ready endpoint")
            ),
        ),
    }
}

fn permissions(state: &State) -> Vec<Finding> {
    let namespace = &state.namespace;
    let each = state.permissions.iter().map(|(role, known)| {
        let check = format!("your permissions: {role}");
        let all = match known {
            Ok(all) => all,
            Err(why) => return unread(check, why),
        };
        let denied = all.iter().filter(|one| !one.is_allowed);
        let denied: Vec<&str> = denied.map(|one| one.text.as_str()).collect();
        match denied.len() {
            0 => finding(
                check,
                Verdict::Ok,
                format!("all, in namespace '{namespace}'"),
            ),
            count if count == all.len() => finding(
                check,
                Verdict::Warning,
                format!("none, in namespace '{namespace}'"),
            ),
            _ => finding(
                check,
                Verdict::Warning,
                format!("not in namespace '{namespace}': {}", denied.join(", ")),
            ),
        }
    });
    each.collect()
}

#[cfg(test)]
mod tests;
