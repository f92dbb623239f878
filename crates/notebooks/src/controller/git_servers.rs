//! Requests to Git servers for the commits of branches and tags. The engine sends them beside the reconciliations, with
//! bounds, turns and deadlines ([`engine::external`]).

use std::{collections::BTreeMap, time::Duration};

use api::{
    Reason,
    decide::{ErrorClass, ReconcileError},
    notebooks::{GitSource, NotebookValidationJob},
    pod::NamedRef,
};
use attempts::{step::StepSettings, time};
use engine::{
    external::{Remote, Request},
    fault::{self, from_kube},
};
use git::{Credentials, Networks, Url, remote};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;

use crate::sources::{Commits, Refs, RefsRequest};

/// Timeout for the complete response of a Git server.
const LIMIT: Duration = Duration::from_secs(20);
/// Timeout for reading the Secret from the API server.
const SECRET_LIMIT: Duration = Duration::from_secs(10);

/// A request for the references of one repository of a job, without the content of the Secret.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SourceRequest {
    namespace: String,
    url: String,
    secret: Option<NamedRef>,
    refs: RefsRequest,
}

impl SourceRequest {
    pub(super) fn new(job: &NotebookValidationJob, source: &GitSource, refs: RefsRequest) -> Self {
        Self {
            namespace: job.namespace().unwrap_or_default(),
            url: source.url.clone(),
            secret: source.credentials_secret_ref.clone(),
            refs,
        }
    }
}

impl Request for SourceRequest {
    type Response = Refs;
    const REMOTE: &'static str = "Git server";
    const UNREACHABLE: Reason = Reason::RepositoryUnreachable;
    /// A second more than `SECRET_LIMIT` and `LIMIT`, because a failure of these names the cause.
    const TIMEOUT: Duration = Duration::from_secs(31);

    fn host(&self) -> String {
        host(&self.url)
    }
}

/// The Git servers of all jobs.
pub(super) struct GitServers {
    client: Client,
    settings: StepSettings,
}

impl GitServers {
    pub(super) fn new(client: Client, settings: StepSettings) -> Self {
        Self { client, settings }
    }
}

impl Remote<SourceRequest> for GitServers {
    async fn send(&self, request: &SourceRequest) -> Result<Refs, ReconcileError> {
        let data = secret_data(&self.client, request).await?;
        let question = question(&self.settings, request, &data)?;
        let found = remote::references(&question).await.map_err(|error| {
            let reason =
                Reason::from_name(error.reason.as_str()).unwrap_or(Reason::RepositoryUnreachable);
            failed(reason, error.message)
        })?;
        let remote::References { branches, tags } = found;
        Ok(Refs {
            branches: commits(branches),
            tags: commits(tags),
        })
    }
}

fn commits(heads: remote::Heads) -> Commits {
    let texts = heads
        .into_iter()
        .map(|(name, commit)| (name, commit.map(|commit| commit.to_string())));
    texts.collect()
}

/// Returns a failure that a repetition of the request may not have.
fn failed(reason: Reason, message: impl Into<String>) -> ReconcileError {
    ReconcileError::new(ErrorClass::Transient, reason, message)
}

/// Returns host and port of a URL, only to distinguish servers. The default ports of all schemes are left out: a host
/// that serves https and ssh is one server. An invalid URL reaches no server; it counts by itself.
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

/// Builds the request to the server, with everything checked.
fn question(
    settings: &StepSettings,
    request: &SourceRequest,
    data: &SecretData,
) -> Result<remote::Question, ReconcileError> {
    let not_allowed =
        |error: &dyn std::fmt::Display| failed(Reason::AddressNotAllowed, error.to_string());
    let url = Url::parse(&request.url, settings.plain_http).map_err(|error| not_allowed(&error))?;
    let networks =
        Networks::parse(&settings.allowed_networks).map_err(|error| not_allowed(&error))?;
    let credentials = Credentials::from_data(url.scheme(), data)
        .map_err(|error| failed(Reason::CredentialsInvalid, error.to_string()))?;
    Ok(remote::Question {
        url,
        credentials,
        networks,
        branches: request.refs.branches.clone(),
        tags: request.refs.tags.clone(),
        timeout: LIMIT,
    })
}

/// Reads the data of the Secret. Returns an empty map if no Secret is referenced.
async fn secret_data(
    client: &Client,
    request: &SourceRequest,
) -> Result<SecretData, ReconcileError> {
    let Some(NamedRef { name }) = &request.secret else {
        return Ok(SecretData::new());
    };
    let namespace = &request.namespace;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = format!("Secret '{name}' in namespace '{namespace}'");
    match timeout(SECRET_LIMIT, secrets.get_opt(name)).await {
        Ok(Ok(Some(found))) => match found.data.filter(|data| !data.is_empty()) {
            Some(data) => Ok(data
                .into_iter()
                .map(|(key, value)| (key, value.0))
                .collect()),
            None => Err(failed(
                Reason::CredentialsInvalid,
                format!("{secret} is empty"),
            )),
        },
        Ok(Ok(None)) => Err(failed(
            Reason::SecretNotFound,
            format!("{secret} does not exist; create it with the credentials for the repository"),
        )),
        // The error quotes the content that it cannot parse, so the message must not contain it.
        Ok(Err(kube::Error::SerdeError(_))) => Err(failed(
            Reason::ApiUnavailable,
            format!("the response of the API server about {secret} cannot be read"),
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
                "{secret} could not be read within {}",
                time::format_duration(SECRET_LIMIT)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(url: &str, secret: Option<&str>) -> SourceRequest {
        SourceRequest {
            namespace: "team".to_owned(),
            url: url.to_owned(),
            secret: secret.map(|name| NamedRef {
                name: name.to_owned(),
            }),
            refs: RefsRequest {
                branches: vec!["main".to_owned()],
                tags: vec!["v1".to_owned()],
            },
        }
    }

    const URL: &str = "https://git.example.com:8443/a";

    /// The engine drops a response if the request changed.
    #[test]
    fn another_secret_or_repository_is_another_request() {
        let job: NotebookValidationJob = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "NotebookValidationJob",
            "metadata": { "name": "nb", "namespace": "team" },
            "spec": {
                "notebook": {
                    "git": { "url": URL, "ref": "main", "credentialsSecretRef": { "name": "git" } },
                    "path": "a.ipynb",
                },
                "podConfig": { "containerImage": "i" },
            },
        }))
        .unwrap();
        let first = request(URL, Some("git"));
        let source = &job.spec.notebook.git;
        assert_eq!(SourceRequest::new(&job, source, first.refs.clone()), first);
        assert_ne!(request(URL, None), first);
        assert_ne!(request("https://git.example.com/b", Some("git")), first);
        assert_eq!(first.host(), "[git.example.com]:8443");
        assert_eq!(first.required_intent(), None, "it only reads");
    }

    /// The failures of the Secret and of the server name the cause, so they must come before the engine's.
    #[test]
    fn the_own_timeouts_end_before_the_engines() {
        assert!(SECRET_LIMIT + LIMIT < SourceRequest::TIMEOUT);
    }

    #[test]
    fn a_question_has_all_references_and_checked_parts() {
        let settings = StepSettings::default();
        let found = question(&settings, &request(URL, None), &SecretData::new()).unwrap();
        assert_eq!((found.branches.len(), found.tags.len()), (1, 1));
        let http = request("http://git.example.com/a", None);
        let found = question(&settings, &http, &SecretData::new()).unwrap_err();
        assert_eq!(found.reason, Reason::AddressNotAllowed);
        let ssh = request("ssh://git@git.example.com/a", None);
        let found = question(&settings, &ssh, &SecretData::new()).unwrap_err();
        assert_eq!(found.reason, Reason::CredentialsInvalid);
    }
}
