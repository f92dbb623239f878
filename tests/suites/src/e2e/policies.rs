//! The chart's policies on a cluster that several cases share, and requests that store nothing.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use http::{Method, Request};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{suite::Env, wait::until};

use super::attacks::tried;

/// The API server acts by its policies a moment after they are created.
const LIMIT: Duration = Duration::from_secs(30);

/// Policies that a case created.
pub(super) struct Bound {
    client: Client,
    names: Vec<String>,
}

impl Bound {
    /// Creates the policies under names of this case, and has them reject in this namespace, or everywhere.
    pub(super) async fn new(
        env: &Env,
        policies: Vec<ValidatingAdmissionPolicy>,
        namespace: Option<&str>,
    ) -> Result<Self> {
        let post = PostParams::default();
        let all: Api<ValidatingAdmissionPolicy> = Api::all(env.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(env.client.clone());
        let mut names = Vec::new();
        for mut policy in policies {
            let name = format!("{}-{}", env.namespace, policy.name_any());
            policy.metadata.name = Some(name.clone());
            all.create(&post, &policy).await?;
            let mut binding = json!({
                "metadata": { "name": name },
                "spec": { "policyName": name, "validationActions": ["Deny"] },
            });
            if let Some(namespace) = namespace {
                binding["spec"]["matchResources"] = json!({ "namespaceSelector": {
                    "matchLabels": { "kubernetes.io/metadata.name": namespace },
                } });
            }
            let binding = serde_json::from_value(binding)?;
            bindings.create(&post, &binding).await?;
            names.push(name);
        }
        Ok(Self {
            client: env.client.clone(),
            names,
        })
    }

    /// One that always rejects, with this message; `matching` is the rest of its spec.
    pub(super) async fn rejecting(
        env: &Env,
        matching: Value,
        message: &str,
        namespace: Option<&str>,
    ) -> Result<Self> {
        let mut spec = matching;
        spec["validations"] = json!([{ "expression": "false", "message": message }]);
        let policy = json!({ "metadata": { "name": "rejecting" }, "spec": spec });
        Self::new(env, vec![serde_json::from_value(policy)?], namespace).await
    }

    /// Deletes them: they are in no namespace.
    pub(super) async fn release(self) -> Result<()> {
        let Self { client, names } = self;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
        for name in names {
            bindings.delete(&name, &DeleteParams::default()).await?;
            policies.delete(&name, &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

/// A client that asks as this user. The API server adds the groups that the user has by authentication:
/// `system:authenticated`, and those of a ServiceAccount.
pub(super) fn client_of(env: &Env, user: &str) -> Result<Client> {
    let mut config = env.config.clone();
    config.auth_info.impersonate = Some(user.to_owned());
    Client::try_from(config).map_err(|error| anyhow!("a client for '{user}': {error}"))
}

/// A request that stores nothing.
pub(super) struct Attempt {
    pub(super) what: &'static str,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
    /// The words of the rejection.
    pub(super) says: &'static str,
}

impl Attempt {
    /// Creates an object.
    pub(super) fn create(what: &'static str, path: &str, body: Value, says: &'static str) -> Self {
        Self {
            what,
            method: Method::POST,
            path: path.to_owned(),
            body: Some(body),
            says,
        }
    }

    /// Merges a patch into an object.
    pub(super) fn patch(what: &'static str, path: &str, body: Value, says: &'static str) -> Self {
        Self {
            method: Method::PATCH,
            ..Self::create(what, path, body, says)
        }
    }

    /// Deletes an object.
    pub(super) fn delete(what: &'static str, path: &str, says: &'static str) -> Self {
        Self {
            what,
            method: Method::DELETE,
            path: path.to_owned(),
            body: None,
            says,
        }
    }

    /// The message of the rejection, if there is one.
    async fn send(&self, client: &Client) -> Result<Option<String>> {
        let content = match self.method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = self.body.as_ref();
        let request = Request::builder()
            .method(self.method.clone())
            .uri(format!("{}?dryRun=All", self.path))
            .header("Content-Type", content)
            .body(body.map_or_else(|| Ok(Vec::new()), serde_json::to_vec)?)?;
        match client.request::<Value>(request).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(status.message)),
            Err(error) => bail!("{}: {error}", self.what),
        }
    }
}

/// Each attempt is accepted.
pub(super) async fn accepted(client: &Client, attempts: &[Attempt]) -> Result<()> {
    for attempt in attempts {
        if let Some(message) = attempt.send(client).await? {
            bail!("{}: rejected: {message}", attempt.what);
        }
    }
    Ok(())
}

/// Each attempt is rejected by a policy with its words. Waits for the policies to act.
pub(super) async fn rejected(client: &Client, attempts: &[Attempt]) -> Result<()> {
    for attempt in attempts {
        let what = attempt.what;
        let message = until(what, LIMIT, async || {
            let message = attempt.send(client).await?;
            Ok(message.ok_or_else(|| "accepted".to_owned()))
        });
        let message = tried(message.await)?;
        ensure!(
            message.contains("ValidatingAdmissionPolicy") && message.contains(attempt.says),
            "{what}: '{}' is not in: {message}",
            attempt.says
        );
    }
    Ok(())
}

/// An object as a new one can be sent: without the fields that the API server sets.
pub(super) fn fresh(object: &impl serde::Serialize, name: &str) -> Result<Value> {
    let mut object = serde_json::to_value(object)?;
    let metadata = object["metadata"].as_object_mut().context("no metadata")?;
    metadata
        .retain(|field, _| ["labels", "annotations", "ownerReferences"].contains(&field.as_str()));
    metadata.insert("name".to_owned(), json!(name));
    Ok(object)
}
