//! Queries to Git servers for the heads of branches. The engine sends them beside the reconciliations, with bounds,
//! turns and deadlines ([`engine::external`]).

use std::{collections::BTreeMap, time::Duration};

use api::{
    Reason,
    decide::{ErrorClass, ReconcileError},
    tasks::{DocsRun, NamedRef},
};
use engine::{
    external::{Remote, Request},
    fault::{self, from_kube},
};
use git::{Credentials, Networks, Scheme, Url, remote};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;

use crate::{
    run::docs::{Heads, LsRemoteRequest, Settings, deadline::QUERY_TIME},
    time,
};

/// Timeout for the complete response of a Git server.
const LIMIT: Duration = Duration::from_secs(20);
/// Timeout for reading the Secret from the API server.
const SECRET_LIMIT: Duration = Duration::from_secs(10);
// A deadline leaves time for one query. Otherwise, a run could fail although the response to its query is still to come.
const _: () = assert!(LIMIT.as_secs() + SECRET_LIMIT.as_secs() <= QUERY_TIME.as_secs());

/// The query of a DocsRun, with everything that is needed to send it, except the content of the Secret.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeadsRequest {
    namespace: String,
    url: String,
    secret: Option<NamedRef>,
    query: LsRemoteRequest,
}

impl HeadsRequest {
    pub(crate) fn new(run: &DocsRun, query: LsRemoteRequest) -> Self {
        Self {
            namespace: run.namespace().unwrap_or_default(),
            url: run.spec.repository_url.clone(),
            secret: run.spec.credentials_secret_ref.clone(),
            query,
        }
    }
}

impl Request for HeadsRequest {
    type Response = Heads;
    const REMOTE: &'static str = "Git server";
    const UNREACHABLE: Reason = Reason::RepositoryUnreachable;
    /// A second more than `SECRET_LIMIT` and `LIMIT`, because a failure of these names the cause.
    const TIMEOUT: Duration = Duration::from_secs(31);

    fn host(&self) -> String {
        host(&self.url)
    }
}

/// The Git servers of all DocsRuns.
pub(crate) struct GitServers {
    client: Client,
    settings: Settings,
}

impl GitServers {
    pub(crate) fn new(client: Client, settings: Settings) -> Self {
        Self { client, settings }
    }
}

impl Remote<HeadsRequest> for GitServers {
    async fn send(&self, request: &HeadsRequest) -> Result<Heads, ReconcileError> {
        let data = data(&self.client, request).await?;
        let branches = request.query.branches.clone();
        heads(&self.settings, &request.url, &data, branches).await
    }
}

/// Returns a failure that a repetition of the query may not have.
fn failed(reason: Reason, message: impl Into<String>) -> ReconcileError {
    ReconcileError::new(ErrorClass::Transient, reason, message)
}

/// Returns host and port of a URL, only to distinguish servers. The default ports of all schemes are left out: a host
/// that serves https and ssh is one server, and would otherwise get the limit of two. An invalid URL reaches no server;
/// it counts by itself.
fn host(url: &str) -> String {
    // Whether plain http is allowed does not matter here.
    match Url::parse(url, true) {
        Ok(url) if matches!(url.port(), 22 | 80 | 443) => url.host().to_owned(),
        // The brackets separate the port from an IPv6 address.
        Ok(url) => format!("[{}]:{}", url.host(), url.port()),
        Err(_invalid) => url.to_lowercase(),
    }
}

type SecretData = BTreeMap<String, Vec<u8>>;

/// Reads the data of the Secret. Returns an empty map if no Secret is referenced.
async fn data(client: &Client, request: &HeadsRequest) -> Result<SecretData, ReconcileError> {
    let Some(NamedRef { name }) = &request.secret else {
        return Ok(SecretData::new());
    };
    let namespace = &request.namespace;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let what = format!("Secret '{name}' in namespace '{namespace}'");
    match timeout(SECRET_LIMIT, secrets.get_opt(name)).await {
        Ok(Ok(Some(secret))) => match secret.data.filter(|data| !data.is_empty()) {
            Some(data) => Ok(data
                .into_iter()
                .map(|(key, value)| (key, value.0))
                .collect()),
            None => Err(failed(
                Reason::CredentialsInvalid,
                format!("{what} is empty"),
            )),
        },
        Ok(Ok(None)) => Err(failed(
            Reason::SecretNotFound,
            format!("{what} does not exist; create it with the credentials for the repository"),
        )),
        // The error quotes the content that it cannot parse, so the message must not contain it.
        Ok(Err(kube::Error::SerdeError(_))) => Err(failed(
            Reason::ApiUnavailable,
            format!("the API server's answer about {what} cannot be read"),
        )),
        Ok(Err(error)) => {
            let request = fault::Request {
                verb: "get",
                resource: "secrets",
                name,
            };
            Err(from_kube(request, &error))
        }
        Err(_too_late) => Err(failed(
            Reason::ApiUnavailable,
            format!(
                "{what} could not be read within {}",
                time::format_duration(SECRET_LIMIT)
            ),
        )),
    }
}

async fn heads(
    settings: &Settings,
    url: &str,
    data: &SecretData,
    branches: Vec<String>,
) -> Result<Heads, ReconcileError> {
    let refused =
        |error: &dyn std::fmt::Display| failed(Reason::AddressNotAllowed, error.to_string());
    let url = Url::parse(url, settings.plain_http).map_err(|error| refused(&error))?;
    let networks = Networks::parse(&settings.allowed_networks).map_err(|error| refused(&error))?;
    let credentials = credentials(url.scheme(), data)?;
    let question = remote::Question {
        url,
        credentials,
        networks,
        branches,
        tags: Vec::new(),
        timeout: LIMIT,
    };
    let heads = remote::heads(&question).await.map_err(|error| {
        let reason =
            Reason::from_name(error.reason.as_str()).unwrap_or(Reason::RepositoryUnreachable);
        failed(reason, error.message)
    })?;
    Ok(heads
        .into_iter()
        .map(|(branch, head)| (branch, head.map(|commit| commit.to_string())))
        .collect())
}

fn credentials(scheme: Scheme, data: &SecretData) -> Result<Credentials, ReconcileError> {
    Credentials::from_data(scheme, data)
        .map_err(|error| failed(Reason::CredentialsInvalid, error.to_string()))
}

#[cfg(test)]
mod tests;
