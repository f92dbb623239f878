//! Creates upgrades and rollbacks of applications, and decides about their plans.

use std::fmt::Debug;

use api::{
    apps::{
        ApprovalDecision, ROLLBACK_REQUEST, RollbackRequest, RollbackRequestSpec, UPGRADE_REQUEST,
        UpgradeRequest, UpgradeRequestSpec,
    },
    kinds::KindRow,
};
use kube::{
    Api, Client, Resource,
    api::PostParams,
    core::{NamespaceResourceScope, ObjectMeta},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{Changed, Error, MANAGER, Object, ObjectName, Request, lifecycle::write, who_am_i};

/// Phase of an UpgradeRequest that waits for a decision.
const APPROVAL: &str = "Approval";

/// Maximum length of the generated start of a name. The API server adds five characters, and children add more.
const MAX_PREFIX: usize = 40;

/// Creates an UpgradeRequest. Without a name, the API server generates one that starts with the application and the version.
///
/// # Errors
/// [`Error::Exists`] if the name already exists; otherwise an error of the server.
pub async fn request_upgrade(
    client: &Client,
    namespace: &str,
    name: Option<&str>,
    spec: UpgradeRequestSpec,
) -> Result<UpgradeRequest, Error> {
    let app = &spec.managed_app_ref.name;
    // Images have characters that a name must not have.
    let start = match &spec.target_version.chart {
        Some(chart) => format!("{app}-{chart}"),
        None => format!("{app}-images"),
    };
    let meta = metadata(name, &start);
    let mut request = UpgradeRequest::new("", spec);
    request.metadata = meta;
    create(client, namespace, &UPGRADE_REQUEST, &request).await
}

/// Creates a RollbackRequest. Without a name, the API server generates one that starts with that of the upgrade.
///
/// # Errors
/// [`Error::Exists`] if the name already exists; otherwise an error of the server.
pub async fn request_rollback(
    client: &Client,
    namespace: &str,
    name: Option<&str>,
    spec: RollbackRequestSpec,
) -> Result<RollbackRequest, Error> {
    let meta = metadata(
        name,
        &[&*spec.upgrade_request_ref.name, "rollback"].join("-"),
    );
    let mut request = RollbackRequest::new("", spec);
    request.metadata = meta;
    create(client, namespace, &ROLLBACK_REQUEST, &request).await
}

/// Stores a decision about the plan of an UpgradeRequest, in the name of the caller. A request that does not wait for a
/// decision is not changed: nobody may approve a plan that does not exist yet.
///
/// # Errors
/// [`Error::Busy`], or an error of the server.
pub async fn decide(
    client: &Client,
    namespace: &str,
    name: &str,
    decision: ApprovalDecision,
) -> Result<Changed, Error> {
    let by = who_am_i(client).await?.username.unwrap_or_default();
    let name = ObjectName::new(&UPGRADE_REQUEST, name);
    write(client, namespace, &name, |request| {
        Ok(approval(request, decision, &by))
    })
    .await
}

/// Returns the change of the spec, or `None` if the request does not wait for a decision.
fn approval(request: &Object, decision: ApprovalDecision, by: &str) -> Option<Value> {
    let is_decided = !request.at("spec.approval").is_null();
    let is_waiting = request.text("status.phase") == APPROVAL && !is_decided;
    is_waiting.then(|| json!({ "approval": { "decision": decision, "by": by } }))
}

fn metadata(name: Option<&str>, prefix: &str) -> ObjectMeta {
    match name {
        Some(name) => ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        None => ObjectMeta {
            generate_name: Some(format!("{}-", valid(prefix))),
            ..ObjectMeta::default()
        },
    }
}

/// Returns the start of a name with the characters that Kubernetes allows.
fn valid(prefix: &str) -> String {
    let allowed = |one: char| match one.to_ascii_lowercase() {
        one if one.is_ascii_lowercase() || one.is_ascii_digit() || one == '.' => one,
        _ => '-',
    };
    let text: String = prefix.chars().take(MAX_PREFIX).map(allowed).collect();
    // The next character is a dash, which may not follow a dot.
    text.trim_matches(['.', '-']).to_owned()
}

async fn create<K>(
    client: &Client,
    namespace: &str,
    row: &'static KindRow,
    object: &K,
) -> Result<K, Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let how = PostParams {
        dry_run: false,
        field_manager: Some(MANAGER.to_owned()),
    };
    let meta = object.meta();
    let name = meta.name.as_ref().or(meta.generate_name.as_ref());
    let name = ObjectName::new(row, name.map_or("", String::as_str));
    match api.create(&how, object).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Err(Error::Exists {
            run: name,
            namespace: namespace.to_owned(),
            is_going: false,
        }),
        Err(error) => Err(Request::about("create", &name, namespace).failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(phase: &str, approval: &Value) -> Object {
        let object = json!({
            "metadata": { "name": "up" },
            "spec": { "approval": approval }, "status": { "phase": phase },
        });
        Object::new(&UPGRADE_REQUEST, serde_json::from_value(object).unwrap())
    }

    #[test]
    fn only_a_request_that_waits_gets_a_decision() {
        let decided = json!({ "decision": "Denied", "by": "eve" });
        for (phase, stored, expected) in [
            ("Approval", Value::Null, true),
            ("Approval", decided, false),
            // The user has seen no plan.
            ("Plan", Value::Null, false),
            ("Succeeded", Value::Null, false),
        ] {
            let found = approval(&request(phase, &stored), ApprovalDecision::Approved, "ann");
            let wanted = json!({ "approval": { "decision": "Approved", "by": "ann" } });
            assert_eq!(found, expected.then_some(wanted), "{phase}, {stored}");
        }
    }

    #[test]
    fn a_generated_name_is_valid() {
        let long = "x".repeat(60);
        for (prefix, expected) in [
            ("shop-2.0.0", "shop-2.0.0-".to_owned()),
            ("shop-2.0.0+Build_7", "shop-2.0.0-build-7-".to_owned()),
            ("shop-1.", "shop-1-".to_owned()),
            (long.as_str(), format!("{}-", "x".repeat(MAX_PREFIX))),
        ] {
            assert_eq!(metadata(None, prefix).generate_name, Some(expected));
        }
        assert_eq!(metadata(Some("up"), "x").name.as_deref(), Some("up"));
    }
}
