//! Requests as a user's tool sends them, and the CRDs.

use anyhow::{Context, Result, anyhow, bail};
use api::{
    GROUP,
    apps::MANAGED_APP,
    kinds::{self, KindRow},
    notebooks::NOTEBOOK_VALIDATION_JOB,
    tasks::{AGENT, DOCS_RUN, TASK_RUN},
    tenants::TENANT,
};
use http::{Method, Request};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::{Client, core::Status};
use serde_json::{Value, json};
use testkit::suite::Env;

/// Installs the CRDs if they do not exist, and waits until they are served.
pub(crate) async fn install(client: &Client) -> Result<()> {
    testkit::operator::install(client, kinds::all().map(KindRow::crd).collect()).await
}

/// Kind of the object in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Agent,
    TaskRun,
    DocsRun,
    /// Cluster-scoped: a test must delete its stored Tenants, and give them names of its own.
    Tenant,
    ManagedApp,
    Notebook,
}

impl Kind {
    /// Returns the row of the kind in the table of kinds.
    fn row(self) -> &'static KindRow {
        match self {
            Self::Agent => &AGENT,
            Self::TaskRun => &TASK_RUN,
            Self::DocsRun => &DOCS_RUN,
            Self::Tenant => &TENANT,
            Self::ManagedApp => &MANAGED_APP,
            Self::Notebook => &NOTEBOOK_VALIDATION_JOB,
        }
    }

    pub(crate) fn crd(self) -> CustomResourceDefinition {
        self.row().crd()
    }

    pub(crate) fn schema(self) -> Result<JSONSchemaProps> {
        let version = self.crd().spec.versions.into_iter().next();
        version
            .and_then(|version| version.schema)
            .and_then(|schema| schema.open_api_v3_schema)
            .context("no schema")
    }

    /// Returns the path of the kind, in the namespace if the kind is namespaced, followed by
    /// `rest`.
    pub(crate) fn path(self, namespace: &str, rest: &str) -> String {
        path_of(self.row(), namespace, rest)
    }

    /// Returns the name of an object of this test. A cluster-scoped object needs a unique name,
    /// because other tests share the cluster.
    pub(crate) fn name(self, env: &Env, name: &str) -> String {
        if self.row().is_namespaced {
            name.to_owned()
        } else {
            format!("{}-{name}", env.namespace)
        }
    }

    /// Returns an object with this spec.
    pub(crate) fn object(self, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": self.row().resource.api_version(),
            "kind": self.row().name(),
            "metadata": { "name": name },
            "spec": spec,
        })
    }

    /// Returns the minimal spec that is accepted.
    pub(crate) fn least(self) -> Value {
        match self {
            Self::Agent => json!({ "image": "registry.example/agent:1" }),
            Self::TaskRun => json!({
                "taskId": 7,
                "serviceName": "shop",
                "agentName": "writer",
                "markdownFiles": [{ "filename": "task.md", "content": "Do it." }],
            }),
            Self::DocsRun => json!({
                "repositoryUrl": "https://git.example.com/team/shop",
                "sourceBranch": "main",
                "agentName": "writer",
            }),
            Self::Tenant => json!({ "deletion": { "policy": "Retain" } }),
            Self::ManagedApp => json!({ "kustomizationRef": { "name": "shop" } }),
            Self::Notebook => json!({
                "notebook": {
                    "git": { "url": "https://git.example.com/team/notebooks", "ref": "main" },
                    "path": "sales.ipynb",
                },
                "podConfig": { "containerImage": "registry.example/kernel:1" },
            }),
        }
    }
}

/// Returns the path of a kind, in the namespace if the kind is namespaced, followed by `rest`.
pub(crate) fn path_of(row: &KindRow, namespace: &str, rest: &str) -> String {
    let place = if row.is_namespaced {
        format!("namespaces/{namespace}/")
    } else {
        String::new()
    };
    let (version, plural) = (row.resource.version, row.resource.plural);
    format!("/apis/{GROUP}/{version}/{place}{plural}{rest}")
}

/// The response of the API server: the object, or the status of the rejection.
pub(crate) type Answer = Result<Value, Box<Status>>;

/// Returns the accepted object. A rejection is an error.
pub(crate) fn taken(answer: Answer) -> Result<Value> {
    answer.map_err(|refusal| anyhow!("refused: {}", refusal.message))
}

/// Sends a request; a PATCH is an apply. Returns an error only if the API server did not respond.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    query: &str,
    body: Option<&Value>,
) -> Result<Answer> {
    let content = match method {
        Method::PATCH => "application/apply-patch+yaml",
        _ => "application/json",
    };
    send_as(client, method, content, path, query, body).await
}

/// Like [`send`], with this content type.
pub(crate) async fn send_as(
    client: &Client,
    method: Method,
    content: &str,
    path: &str,
    query: &str,
    body: Option<&Value>,
) -> Result<Answer> {
    let body = body.map_or_else(|| Ok(Vec::new()), serde_json::to_vec)?;
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?{query}"))
        .header("Content-Type", content)
        .body(body)?;
    match client.request::<Value>(request).await {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::Api(status)) => Ok(Err(status)),
        Err(error) => bail!("{path}: {error}"),
    }
}

/// Creates an object. Unknown fields are rejected instead of dropped.
pub(crate) async fn create(env: &Env, kind: Kind, object: &Value) -> Result<Answer> {
    let path = kind.path(&env.namespace, "");
    let query = "fieldValidation=Strict";
    send(&env.client, Method::POST, &path, query, Some(object)).await
}

/// Deletes a cluster-scoped object, which the deletion of the test's namespace does not delete.
pub(crate) async fn remove(env: &Env, kind: Kind, name: &str) -> Result<()> {
    let path = kind.path(&env.namespace, &format!("/{name}"));
    taken(send(&env.client, Method::DELETE, &path, "", None).await?)?;
    Ok(())
}

/// Like [`create`], but stores nothing. All rules are evaluated.
pub(crate) async fn would_create(env: &Env, kind: Kind, spec: &Value) -> Result<Answer> {
    would_create_named(env, kind, "tried", spec).await
}

/// Like [`would_create`], with this name.
pub(crate) async fn would_create_named(
    env: &Env,
    kind: Kind,
    name: &str,
    spec: &Value,
) -> Result<Answer> {
    let path = kind.path(&env.namespace, "");
    let query = "fieldValidation=Strict&dryRun=All";
    let object = kind.object(name, spec);
    send(&env.client, Method::POST, &path, query, Some(&object)).await
}

/// Replaces the spec of a stored object as a dry run, which stores nothing.
pub(crate) async fn would_update(
    env: &Env,
    kind: Kind,
    stored: &Value,
    spec: &Value,
) -> Result<Answer> {
    let name = stored["metadata"]["name"].as_str().context("no name")?;
    let path = kind.path(&env.namespace, &format!("/{name}"));
    let mut object = stored.clone();
    object["spec"] = spec.clone();
    let query = "fieldValidation=Strict&dryRun=All";
    send(&env.client, Method::PUT, &path, query, Some(&object)).await
}

/// Returns the causes of a rejection, as pairs of field and message.
pub(crate) fn causes(status: &Status) -> Vec<(String, String)> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .map(|cause| (cause.field.clone(), cause.message.clone()))
        .collect()
}
