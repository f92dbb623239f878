//! Requests that store nothing, and the responses that they must get.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::Method;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::{Api, Client, api::DeleteParams};
use serde_json::Value;
use testkit::{suite::Env, wait::until};

use crate::{
    policies::{make, named},
    support::{Answer, send_as},
};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// A request that stores nothing, and its expected response.
pub(crate) struct Ask {
    pub(crate) what: String,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    /// Part of the expected rejection message. If `None`, the request must be accepted.
    pub(crate) refused: Option<&'static str>,
}

async fn ask(client: &Client, ask: &Ask) -> Result<Answer> {
    let Ask {
        method, path, body, ..
    } = ask;
    let content = match *method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let query = "dryRun=All&fieldValidation=Strict";
    send_as(client, method.clone(), content, path, query, body.as_ref()).await
}

/// Sends all requests and returns a summary of the responses. Returns an error that lists the
/// unexpected responses, if there are any.
pub(crate) async fn judge(client: &Client, asks: &[Ask]) -> Result<String> {
    let (mut failures, mut seen) = (Vec::new(), Vec::new());
    for one in asks {
        let what = &one.what;
        match (ask(client, one).await?, one.refused) {
            (Ok(_), None) => seen.push(format!("accepted  {what}")),
            (Ok(_), Some(_)) => failures.push(format!("{what}: accepted")),
            (Err(refusal), Some(words))
                if refusal.code == 403 && refusal.message.contains(words) =>
            {
                seen.push(format!("refused   {what}: {}", refusal.message));
            }
            (Err(refusal), _) => {
                failures.push(format!("{what}: {}: {}", refusal.code, refusal.message));
            }
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(seen.join("\n"))
}

/// Waits until this request is rejected. Policies take effect shortly after their creation.
pub(crate) async fn until_refused(client: &Client, one: &Ask) -> Result<()> {
    until("a policy to act", LIMIT, async || {
        Ok(match ask(client, one).await? {
            Ok(_) => Err(format!("{} is still taken", one.what)),
            // A user without effective permissions is rejected, too, but with another message.
            Err(refusal)
                if one
                    .refused
                    .is_some_and(|words| refusal.message.contains(words)) =>
            {
                Ok(())
            }
            Err(refusal) => Err(refusal.message),
        })
    })
    .await
}

/// Grants a user these permissions in the whole cluster. The role has the same name.
pub(crate) async fn grant(env: &Env, name: &str, user: &str, rules: Vec<PolicyRule>) -> Result<()> {
    let role = ClusterRole {
        metadata: named(name),
        rules: Some(rules),
        aggregation_rule: None,
    };
    make(&Api::all(env.client.clone()), &role).await?;
    let binding = ClusterRoleBinding {
        metadata: named(name),
        role_ref: role_ref(name),
        subjects: Some(vec![subject(user)]),
    };
    make(&Api::all(env.client.clone()), &binding).await
}

pub(crate) fn role_ref(name: &str) -> RoleRef {
    RoleRef {
        api_group: RBAC.to_owned(),
        kind: "ClusterRole".to_owned(),
        name: name.to_owned(),
    }
}

pub(crate) fn subject(user: &str) -> Subject {
    Subject {
        api_group: Some(RBAC.to_owned()),
        kind: "User".to_owned(),
        name: user.to_owned(),
        namespace: None,
    }
}

pub(crate) async fn take_away(env: &Env, names: &[String]) -> Result<()> {
    let quick = DeleteParams::background();
    let roles: Api<ClusterRole> = Api::all(env.client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(env.client.clone());
    for name in names {
        bindings.delete(name, &quick).await?;
        roles.delete(name, &quick).await?;
    }
    Ok(())
}

/// Returns the path of a resource in a namespace.
pub(crate) fn folder(group: &str, namespace: &str, resource: &str) -> String {
    let root = if group.is_empty() {
        "/api/v1".to_owned()
    } else {
        format!("/apis/{group}/v1")
    };
    format!("{root}/namespaces/{namespace}/{resource}")
}

/// Waits until the permissions of a user are effective.
pub(crate) async fn until_taken(client: &Client, one: &Ask) -> Result<()> {
    until("the user's permissions", LIMIT, async || {
        Ok(ask(client, one)
            .await?
            .map(drop)
            .map_err(|refusal| refusal.message))
    })
    .await
}
