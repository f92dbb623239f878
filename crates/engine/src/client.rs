//! The client of the API server: no hidden retries, no unbounded waits, every request counted.

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header::USER_AGENT};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{Layer, Service};

use crate::{
    health::Health,
    metrics::{Code, Metrics},
};

/// Timeout of a connection attempt. A server that accepts no connection for this long is away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest silence on a connection that waits for a response. The server ends each watch sooner.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(100);

/// Longest time in which a connection accepts no byte that is sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// User agent of the operator.
const AGENT: &str = concat!("orchestrator/", env!("CARGO_PKG_VERSION"));

/// Reason why no client could be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The process does not run in a Pod.
    #[error(
        "no kubeconfig was given, and there is no ServiceAccount of a Pod: {0}; give --kubeconfig, or run in a cluster"
    )]
    NotInCluster(#[source] InClusterError),
    /// The kubeconfig is missing or invalid.
    #[error("cannot use the kubeconfig '{0}': {1}")]
    Kubeconfig(PathBuf, #[source] KubeconfigError),
    /// No client can be created from the configuration.
    #[error("cannot make a client for '{0}': {1}")]
    Client(String, #[source] Box<kube::Error>),
}

/// Returns the configuration for the API server: from a kubeconfig if one is given, otherwise from
/// the Pod's own ServiceAccount. The environment and the home directory are never used.
///
/// # Errors
/// If the file is unreadable, or there is no ServiceAccount.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, ClientError> {
    let mut config = match kubeconfig {
        None => Config::incluster().map_err(ClientError::NotInCluster)?,
        Some(path) => {
            let failed = |error| ClientError::Kubeconfig(path.to_owned(), error);
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            let has_proxy = file.clusters.iter().any(|named| {
                let cluster = named.cluster.as_ref();
                cluster.is_some_and(|cluster| cluster.proxy_url.is_some())
            });
            let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(failed)?;
            // A proxy from the environment is meant for other programs.
            config.proxy_url = config.proxy_url.filter(|_| has_proxy);
            config
        }
    };
    // The caller would not know of a retried create.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    // Without it, the idle time of a pooled connection counts as silence.
    config.reset_reader_on_write = true;
    config.write_timeout = Some(WRITE_TIMEOUT);
    let agent = (USER_AGENT, HeaderValue::from_static(AGENT));
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config.headers.push(agent);
    Ok(config)
}

/// Returns a client that counts its requests in `metrics` and reports responses to `health`.
///
/// # Errors
/// If certificates or addresses in `config` are not usable.
pub fn build(config: Config, metrics: &Metrics, health: &Health) -> Result<Client, ClientError> {
    let address = config.cluster_url.to_string();
    let builder = ClientBuilder::try_from(config)
        .map_err(|error| ClientError::Client(address, Box::new(error)))?;
    let counted = Counted {
        metrics: metrics.clone(),
        health: health.clone(),
    };
    Ok(builder.with_layer(&counted).build())
}

/// Verb and resource of a request, as in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RequestInfo {
    /// The verb, as in RBAC.
    verb: &'static str,
    /// The plural name, with the subresource if there is one.
    resource: String,
}

/// Returns the verb and resource of a request, as the API server's authorization names them.
fn request_info(method: &Method, uri: &Uri) -> RequestInfo {
    let parts: Vec<&str> = uri
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let rest = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        ["api" | "apis", ..] => &[],
        _ => return RequestInfo::new(verb(method, true, false), "nonresource"),
    };
    // `namespaces/x/status` is a subresource of the namespace itself.
    let rest = match rest {
        ["namespaces", _, "status" | "finalize", ..] => rest,
        ["namespaces", _, inside @ ..] if !inside.is_empty() => inside,
        _ => rest,
    };
    let watches = uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| matches!(pair, "watch=true" | "watch=1"))
    });
    match rest {
        [] => RequestInfo::new(verb(method, true, false), "discovery"),
        [plural] => RequestInfo::new(verb(method, false, watches), *plural),
        [plural, _name] => RequestInfo::new(verb(method, true, false), *plural),
        [plural, _name, part, ..] => {
            RequestInfo::new(verb(method, true, false), format!("{plural}/{part}"))
        }
    }
}

impl RequestInfo {
    fn new(verb: &'static str, resource: impl Into<String>) -> Self {
        let resource = resource.into();
        Self { verb, resource }
    }
}

fn verb(method: &Method, is_one: bool, watches: bool) -> &'static str {
    match (method.as_str(), is_one) {
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) if watches => "watch",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "other",
    }
}

/// A layer that counts requests.
struct Counted {
    metrics: Metrics,
    health: Health,
}

impl<S> Layer<S> for Counted {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting {
            inner,
            metrics: self.metrics.clone(),
            health: self.health.clone(),
        }
    }
}

struct Counting<S> {
    inner: S,
    metrics: Metrics,
    health: Health,
}

impl<S, B> Service<Request<Body>> for Counting<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let count = Count {
            metrics: self.metrics.clone(),
            info: request_info(request.method(), request.uri()),
            code: Code::Dropped,
        };
        let health = self.health.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            count.ended(match &answer {
                Ok(response) => {
                    if is_answer(response.status()) {
                        health.api_answered();
                    }
                    Code::Status(response.status().as_u16())
                }
                Err(_counted_and_passed_on) => Code::Error,
            });
            answer
        })
    }
}

/// A request that is counted on drop. So a request that its caller abandoned is counted, too.
struct Count {
    metrics: Metrics,
    info: RequestInfo,
    code: Code,
}

impl Count {
    /// Sets the code. It takes `self`: a closure that sets the field would capture a
    /// copy of it only.
    fn ended(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let RequestInfo { verb, resource } = &self.info;
        self.metrics.request(verb, resource, self.code);
    }
}

/// Returns whether a response shows a working server. A rejection does, a server error does not.
fn is_answer(status: StatusCode) -> bool {
    !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending, io::Write};

    use tower::service_fn;

    use super::*;

    #[test]
    fn requests_are_named_as_in_rbac() {
        let table = [
            ("GET", "/api/v1/namespaces/a/pods/x", "get", "pods"),
            ("HEAD", "/api/v1/namespaces/a/pods/x", "get", "pods"),
            ("GET", "/api/v1/namespaces/a/pods?limit=500", "list", "pods"),
            ("GET", "/api/v1/pods?limit=500&watch=false", "list", "pods"),
            (
                "GET",
                "/api/v1/pods?&watch=true&timeoutSeconds=290",
                "watch",
                "pods",
            ),
            ("GET", "/api/v1/pods?watch=1", "watch", "pods"),
            (
                "GET",
                "/api/v1/pods?labelSelector=watch%3Dtrue",
                "list",
                "pods",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods/x/log?follow=true",
                "get",
                "pods/log",
            ),
            (
                "POST",
                "/api/v1/namespaces/a/pods/x/eviction?",
                "create",
                "pods/eviction",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/services/x/proxy/b/c",
                "get",
                "services/proxy",
            ),
            ("GET", "/api/v1/namespaces", "list", "namespaces"),
            ("GET", "/api/v1/namespaces/a", "get", "namespaces"),
            ("DELETE", "/api/v1/namespaces/a", "delete", "namespaces"),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                "update",
                "namespaces/finalize",
            ),
            (
                "PATCH",
                "/api/v1/namespaces/a/status",
                "patch",
                "namespaces/status",
            ),
            ("GET", "/api/v1/nodes/n", "get", "nodes"),
            (
                "POST",
                "/apis/batch/v1/namespaces/a/jobs?fieldValidation=Strict",
                "create",
                "jobs",
            ),
            (
                "DELETE",
                "/apis/batch/v1/namespaces/a/jobs/j",
                "delete",
                "jobs",
            ),
            (
                "DELETE",
                "/apis/batch/v1/namespaces/a/jobs",
                "deletecollection",
                "jobs",
            ),
            (
                "PUT",
                "/apis/orchestrator.io/v1/namespaces/a/taskruns/t/status",
                "update",
                "taskruns/status",
            ),
            (
                "PATCH",
                "/apis/orchestrator.io/v1/namespaces/a/taskruns/t",
                "patch",
                "taskruns",
            ),
            (
                "GET",
                "/apis/orchestrator.io/v1/taskruns?watch=true",
                "watch",
                "taskruns",
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
                "update",
                "leases",
            ),
            ("GET", "/version", "get", "nonresource"),
            ("GET", "/", "get", "nonresource"),
            ("GET", "/readyz?verbose", "get", "nonresource"),
            ("GET", "/api", "get", "discovery"),
            ("GET", "/apis", "get", "discovery"),
            ("GET", "/apis/batch", "get", "discovery"),
            ("GET", "/apis/batch/v1", "get", "discovery"),
            ("OPTIONS", "/api/v1/pods", "other", "pods"),
        ];
        for (method, uri, verb, resource) in table {
            let found = request_info(
                &Method::from_bytes(method.as_bytes()).unwrap(),
                &uri.parse().unwrap(),
            );
            assert_eq!(found, RequestInfo::new(verb, resource), "{method} {uri}");
        }
    }

    #[test]
    fn a_server_that_cannot_work_does_not_answer() {
        for (status, wanted) in [
            (200, true),
            (403, true),
            (409, true),
            (429, false),
            (503, false),
        ] {
            assert_eq!(
                is_answer(StatusCode::from_u16(status).unwrap()),
                wanted,
                "{status}"
            );
        }
    }

    fn get(uri: &str) -> Request<Body> {
        Request::get(uri).body(Body::empty()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn every_request_is_counted_however_it_ends() {
        let (metrics, health) = (Metrics::default(), Health::default());
        let counted = Counted {
            metrics: metrics.clone(),
            health,
        };
        let mut service = counted.layer(service_fn(|request: Request<Body>| async move {
            match request.uri().path() {
                "/api/v1/pods" => Ok(Response::new(())),
                "/api/v1/nodes" => Err("connection refused"),
                _ => pending().await,
            }
        }));
        assert!(service.call(get("/api/v1/pods")).await.is_ok());
        assert!(service.call(get("/api/v1/nodes")).await.is_err());
        let silent = service.call(get("/api/v1/secrets"));
        assert!(
            tokio::time::timeout(Duration::from_secs(4), silent)
                .await
                .is_err()
        );
        let text = metrics.text();
        for line in [
            r#"{verb="list",resource="pods",code="200"} 1"#,
            r#"{verb="list",resource="nodes",code="error"} 1"#,
            r#"{verb="list",resource="secrets",code="dropped"} 1"#,
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_told_to_health() {
        let health = Health::default();
        health.leading(true);
        let counted = Counted {
            metrics: Metrics::default(),
            health: health.clone(),
        };
        let mut service = counted.layer(service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(()))
        }));
        health.queue_depth("TaskRun", 1);
        for _ in 0..400 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(service.call(get("/version")).await.is_ok());
        }
        assert!(health.live().unwrap_err().contains("API server responds"));
    }

    #[tokio::test]
    async fn a_kubeconfig_gives_a_client_without_hidden_retries_and_endless_waits() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(
            br#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
            "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {"token": "t"}}]}"#,
        )
        .unwrap();
        let config = config(Some(file.path())).await.unwrap();
        assert!(!config.default_retry && config.reset_reader_on_write);
        assert_eq!(config.connect_timeout, Some(CONNECT_TIMEOUT));
        assert_eq!(config.read_timeout, Some(READ_TIMEOUT));
        assert_eq!(config.default_namespace, "n");
        let agents: Vec<_> = config
            .headers
            .iter()
            .filter(|(name, _)| name == USER_AGENT)
            .collect();
        assert_eq!(agents.len(), 1);
        assert!(agents[0].1.to_str().unwrap().starts_with("orchestrator/"));
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named_and_not_replaced() {
        let error = config(Some(Path::new("/no/such/kubeconfig")))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("/no/such/kubeconfig"), "{error}");
    }
}
