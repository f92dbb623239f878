//! The account of an operator: exactly the permissions of its plan, and a kubeconfig for it.

use std::fs;

use anyhow::{Context, Result, ensure};
use api::rbac::{Permission, Scope};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::Plan;
use crate::cluster;

/// The name of the ServiceAccount and its bindings.
pub const ACCOUNT: &str = "operator-under-test";

fn rules(permissions: &[Permission], scopes: &[Scope]) -> Vec<PolicyRule> {
    permissions
        .iter()
        .filter(|permission| scopes.contains(&permission.scope))
        .map(|permission| PolicyRule {
            api_groups: Some(vec![permission.group.to_owned()]),
            resources: Some(vec![permission.resource.to_owned()]),
            verbs: permission
                .verbs
                .iter()
                .map(|verb| (*verb).to_owned())
                .collect(),
            resource_names: (!permission.names.is_empty())
                .then(|| permission.names.iter().map(|&name| name.into()).collect()),
            ..PolicyRule::default()
        })
        .collect()
}

/// The ClusterRole of an operator, and its binding.
#[must_use]
pub fn cluster_name(home: &str) -> String {
    format!("{ACCOUNT}-{home}")
}

/// Makes the account and gives it exactly the operator's permissions; the account's user name.
pub(super) async fn grant(client: &Client, plan: &Plan) -> Result<String> {
    let home = plan.home.as_str();
    let params = PatchParams::apply("testkit").force();
    let meta = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let subjects = Some(vec![Subject {
        kind: "ServiceAccount".to_owned(),
        name: ACCOUNT.to_owned(),
        namespace: Some(home.to_owned()),
        ..Subject::default()
    }]);
    let role_ref = |kind: &str, name: &str| RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    let account = ServiceAccount {
        metadata: meta(ACCOUNT),
        ..ServiceAccount::default()
    };
    Api::<ServiceAccount>::namespaced(client.clone(), home)
        .patch(ACCOUNT, &params, &Patch::Apply(&account))
        .await?;
    let own = Role {
        metadata: meta(ACCOUNT),
        rules: Some(rules(plan.permissions, &[Scope::Own])),
    };
    Api::<Role>::namespaced(client.clone(), home)
        .patch(ACCOUNT, &params, &Patch::Apply(&own))
        .await?;
    let binding = RoleBinding {
        metadata: meta(ACCOUNT),
        role_ref: role_ref("Role", ACCOUNT),
        subjects: subjects.clone(),
    };
    Api::<RoleBinding>::namespaced(client.clone(), home)
        .patch(ACCOUNT, &params, &Patch::Apply(&binding))
        .await?;
    // Cluster-wide, as the chart does: a namespace that is deleted must not take our rights with it.
    let name = cluster_name(home);
    let role = ClusterRole {
        metadata: meta(&name),
        rules: Some(rules(plan.permissions, &[Scope::Watched, Scope::Cluster])),
        ..ClusterRole::default()
    };
    Api::<ClusterRole>::all(client.clone())
        .patch(&name, &params, &Patch::Apply(&role))
        .await?;
    let binding = ClusterRoleBinding {
        metadata: meta(&name),
        role_ref: role_ref("ClusterRole", &name),
        subjects,
    };
    Api::<ClusterRoleBinding>::all(client.clone())
        .patch(&name, &params, &Patch::Apply(&binding))
        .await?;
    Ok(format!("system:serviceaccount:{home}:{ACCOUNT}"))
}

/// Returns a kubeconfig with a token of the account, for the plan's way to the API server.
pub(super) async fn kubeconfig(client: &Client, config: &Config, plan: &Plan) -> Result<String> {
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(3600),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let token = Api::<ServiceAccount>::namespaced(client.clone(), &plan.home)
        .create_token_request(ACCOUNT, &PostParams::default(), &request)
        .await?;
    let token = token.status.context("no token")?.token;
    let (server, authorities, name) = match (&plan.endpoint, &plan.network) {
        (Some(endpoint), _) => {
            let authority = base64(endpoint.authority.as_bytes());
            (endpoint.server.clone(), authority, None)
        }
        (None, network) => {
            let server = match network {
                Some(_) => format!("https://{}", cluster::API_SERVER),
                None => config.cluster_url.to_string(),
            };
            let name = config.tls_server_name.clone();
            (server, authorities(config)?, name)
        }
    };
    let mut cluster = json!({ "server": server, "certificate-authority-data": authorities });
    if let Some(name) = name {
        cluster["tls-server-name"] = json!(name);
    }
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": cluster }],
        "users": [{ "name": "test", "user": { "token": token } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": plan.home } }],
    });
    Ok(text.to_string())
}

/// The API server's authorities, as a kubeconfig carries them.
fn authorities(config: &Config) -> Result<String> {
    let mut text = String::new();
    if let Some(path) = &config.root_cert_file {
        text = fs::read_to_string(path)?;
    }
    for certificate in config.root_cert.iter().flat_map(|all| all.iter()) {
        text.push_str(&pem(certificate));
    }
    ensure!(!text.is_empty(), "the cluster's authorities are not known");
    Ok(base64(text.as_bytes()))
}

fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let body = base64(der);
    for line in body.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// k8s-openapi's `ByteString` is base64 in JSON.
fn base64(bytes: &[u8]) -> String {
    let encoded = json!(k8s_openapi::ByteString(bytes.to_vec()));
    encoded.as_str().unwrap_or_default().to_owned()
}
