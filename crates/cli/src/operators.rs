//! Kinds that a cluster does not have, because their operator is off or a CRD is missing.

use std::collections::BTreeSet;

use actions::{Error, Request};
use api::{
    GROUP,
    crd::APPLY,
    kinds::{self, OperatorRow},
};

use crate::{
    failure::Failure,
    session::{Session, ask},
};

/// Returns the failure with its cause, if the cluster does not know a kind of ours. Its own error is
/// `404 page not found`.
///
/// The resources of the API group are the evidence: each authenticated user may list them.
pub(crate) async fn explained(failure: Failure, session: &Session<'_>) -> Failure {
    let Failure::Action(error) = &failure else {
        return failure;
    };
    let Error::Unknown(request, _) = error.as_ref() else {
        return failure;
    };
    let Some(operator) = kinds::operator_of(request.kind) else {
        return failure;
    };
    let crd = request.resource;
    match served(session).await {
        Ok(names) => match missing(crd, operator, names.as_ref()) {
            Some(message) => Failure::Client(message),
            // The kind is there, so something else was not found, such as the namespace.
            None => failure,
        },
        // Without the evidence, the error stays as the server sent it.
        Err(_unknown) => failure,
    }
}

/// Returns the names of the resources that the API server serves in our API group, or `None` if it has
/// no such group.
async fn served(session: &Session<'_>) -> Result<Option<BTreeSet<String>>, Failure> {
    let server = session.server().await?;
    let request = |kind| Request {
        verb: "list",
        kind,
        resource: "/apis",
        name: None,
        namespace: None,
    };
    let groups = ask(request("APIGroup"), server.client.list_api_groups()).await?;
    let Some(group) = groups.groups.into_iter().find(|group| group.name == GROUP) else {
        return Ok(None);
    };
    let mut names = BTreeSet::new();
    for version in &group.versions {
        let resources = server
            .client
            .list_api_group_resources(&version.group_version);
        let found = ask(request("APIResource"), resources).await?;
        names.extend(found.resources.into_iter().map(|resource| resource.name));
    }
    Ok(Some(names))
}

/// Returns the chart value that installs an operator and the CRDs of its kinds.
pub(crate) fn value(operator: &OperatorRow) -> String {
    format!("operators.{}.enabled", operator.name)
}

/// Explains why the cluster does not have a CRD. Returns `None` if it has it.
fn missing(crd: &str, operator: &OperatorRow, served: Option<&BTreeSet<String>>) -> Option<String> {
    let (name, value) = (operator.name, value(operator));
    let Some(served) = served else {
        return Some(format!(
            "Orchestrator is not installed in this cluster: it has no API group '{GROUP}'; install the chart with '{value}=true' to get '{crd}'"
        ));
    };
    let mut kinds = operator.kinds.iter();
    if kinds.any(|row| row.crd_name == crd && served.contains(row.resource.plural)) {
        return None;
    }
    let mut kinds = operator.kinds.iter();
    Some(if kinds.any(|row| served.contains(row.resource.plural)) {
        format!(
            "CRD '{crd}' is missing, although the operator '{name}' is installed: someone deleted it, and all its objects with it; none can exist until it is installed again: run 'helm upgrade' or: {APPLY}"
        )
    } else {
        format!(
            "the operator '{name}' is off: this cluster has other kinds of Orchestrator, but not '{crd}'; to enable it, set the chart value '{value}=true' (helm upgrade … --reset-then-reuse-values --set {value}=true)"
        )
    })
}

#[cfg(test)]
mod tests {
    use api::kinds::OPERATORS;
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_named_value_is_one_of_the_chart() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../charts/orchestrator/values.yaml"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let values: Value = serde_saphyr::from_str(&text).unwrap();
        for operator in OPERATORS {
            let found = value(operator)
                .split('.')
                .fold(&values, |at, key| &at[key])
                .clone();
            assert!(found.is_boolean(), "{}: {found}", value(operator));
        }
    }

    #[test]
    fn the_cause_of_a_missing_kind_is_named() {
        let said = |crd: &str, operator: &OperatorRow, served: Option<&[&str]>| {
            let names = served.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            missing(crd, operator, names.as_ref())
        };
        let tenants = |served: Option<&[&str]>| {
            said("tenants.orchestrator.io", &api::tenants::OPERATOR, served)
        };
        let off = tenants(Some(&["agents", "taskruns", "taskruns/status"])).unwrap();
        for word in [
            "the operator 'tenants' is off",
            "not 'tenants.orchestrator.io'",
            "'operators.tenants.enabled=true'",
            "--reset-then-reuse-values",
        ] {
            assert!(off.contains(word), "{off}");
        }
        let none = tenants(None).unwrap();
        assert!(none.contains("Orchestrator is not installed"), "{none}");
        assert!(!none.contains("is off"), "{none}");
        // Another kind of the same operator is there, so the operator is not off.
        let docs = |served: Option<&[&str]>| {
            said("docsruns.orchestrator.io", &api::tasks::OPERATOR, served)
        };
        let deleted = docs(Some(&["agents", "taskruns"])).unwrap();
        for word in [
            "CRD 'docsruns.orchestrator.io' is missing",
            "the operator 'tasks' is installed",
            "none can exist until it is installed again",
            APPLY,
        ] {
            assert!(deleted.contains(word), "{deleted}");
        }
        assert!(!deleted.contains("is off"), "{deleted}");
        // A namespace that does not exist is another 404.
        assert_eq!(docs(Some(&["docsruns", "taskruns"])), None);
    }
}
