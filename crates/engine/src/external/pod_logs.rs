//! Pod logs, read through the API server.
//!
//! # Caveats
//! An operator that uses this needs `get` on `pods/log` in its table of permissions. A log is written by the author of
//! the container: treat its content like any other input.

use std::pin::pin;

use api::{
    Reason,
    decide::{ErrorClass, ReconcileError},
};
use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::LogParams};

use super::{Remote, Request};
use crate::fault::{self, from_kube};

/// Maximum size of a log, in bytes. One is kept for each object that asks for a log.
const MAX_LOG_BYTES: u32 = 16 * 1024;

/// A request for the end of a container's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRequest {
    /// Namespace of the Pod. It must be the namespace of the object that asks, or one that the author of the object can
    /// read.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// UID of the Pod. The log of another Pod of this name is another request. The API server does not compare the UID.
    pub uid: String,
    /// Name of the container.
    pub container: String,
    /// Node of the Pod (`spec.nodeName`). The kubelet of this node sends the log, so the limit per host counts nodes.
    pub node: String,
    /// Number of lines, from the end of the log.
    pub lines: u32,
}

impl LogRequest {
    /// Returns a request for the last lines of a container's log, or `None` while the Pod has no node.
    #[must_use]
    pub fn for_pod(pod: &Pod, container: &str, lines: u32) -> Option<Self> {
        let meta = &pod.metadata;
        Some(Self {
            namespace: meta.namespace.clone()?,
            pod: meta.name.clone()?,
            uid: meta.uid.clone()?,
            container: container.to_owned(),
            node: pod.spec.as_ref()?.node_name.clone()?,
            lines,
        })
    }
}

impl Request for LogRequest {
    type Response = String;
    const REMOTE: &'static str = "kubelet";
    const UNREACHABLE: Reason = Reason::ApiUnavailable;

    fn host(&self) -> String {
        self.node.clone()
    }
}

/// Reads the logs of Pods. The response has at most 16 KiB. Bytes that are not UTF-8 are replaced.
#[derive(Clone)]
pub struct PodLogs(Client);

impl std::fmt::Debug for PodLogs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PodLogs")
    }
}

impl PodLogs {
    /// Returns a reader of logs with this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

impl Remote<LogRequest> for PodLogs {
    async fn send(&self, request: &LogRequest) -> Result<String, ReconcileError> {
        let params = LogParams {
            container: Some(request.container.clone()),
            tail_lines: Some(i64::from(request.lines)),
            ..LogParams::default()
        };
        let log = LogOf {
            namespace: &request.namespace,
            pod: &request.pod,
        };
        read_log(&self.0, log, params, MAX_LOG_BYTES).await
    }
}

/// The Pod of a log.
#[derive(Debug, Clone, Copy)]
pub struct LogOf<'a> {
    /// Namespace of the Pod.
    pub namespace: &'a str,
    /// Name of the Pod.
    pub pod: &'a str,
}

/// Reads a log with these parameters, at most `limit` bytes of it. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// If the API server rejects the request, or if the response breaks off.
pub async fn read_log(
    client: &Client,
    of: LogOf<'_>,
    params: LogParams,
    limit: u32,
) -> Result<String, ReconcileError> {
    let LogOf { namespace, pod } = of;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = LogParams {
        limit_bytes: Some(i64::from(limit)),
        ..params
    };
    let target = fault::Request {
        verb: "get",
        resource: "pods/log",
        name: pod,
    };
    let log = pods.log_stream(pod, &params).await;
    let log = log.map_err(|error| from_kube(target, &error))?;
    // The kubelet may send more than the limit, and may end inside a character.
    let mut log = pin!(log.take(u64::from(limit)));
    let mut bytes = Vec::new();
    let read = log.read_to_end(&mut bytes).await;
    read.map_err(|error| {
        let message = format!("the log of Pod '{pod}' broke off: {error}");
        ReconcileError::new(ErrorClass::Transient, Reason::ApiUnavailable, message)
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Response;
    use kube::client::Body;

    use super::*;

    fn request() -> LogRequest {
        LogRequest {
            namespace: "team".to_owned(),
            pod: "agent-1".to_owned(),
            uid: "uid-1".to_owned(),
            container: "agent".to_owned(),
            node: "node-a".to_owned(),
            lines: 20,
        }
    }

    /// Sends the request to a server with this response. Returns the path that was read, and the outcome.
    async fn read(code: u16, body: Vec<u8>) -> (String, Result<String, ReconcileError>) {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&paths);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            seen.lock().unwrap().push(request.uri().to_string());
            let response = Response::builder()
                .status(code)
                .body(Body::from(body.clone()));
            async move { Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?) }
        });
        let logs = PodLogs::new(Client::new(service, "default"));
        let outcome = logs.send(&request()).await;
        let path = paths.lock().unwrap().pop().unwrap();
        (path, outcome)
    }

    #[test]
    fn a_pod_has_a_log_once_it_is_on_a_node() {
        let mut pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "namespace": "team", "name": "agent-1", "uid": "uid-1" },
            "spec": { "containers": [{ "name": "sidecar" }, { "name": "agent" }] },
        }))
        .unwrap();
        assert_eq!(LogRequest::for_pod(&pod, "agent", 20), None);
        pod.spec.as_mut().unwrap().node_name = Some("node-a".to_owned());
        assert_eq!(LogRequest::for_pod(&pod, "agent", 20), Some(request()));
    }

    #[tokio::test]
    async fn the_end_of_one_containers_log_is_read() {
        let (path, log) = read(200, b"one\ntwo\n".to_vec()).await;
        assert_eq!(log.unwrap(), "one\ntwo\n");
        let (path, query) = path.split_once('?').unwrap();
        assert_eq!(path, "/api/v1/namespaces/team/pods/agent-1/log");
        for parameter in ["container=agent", "tailLines=20", "limitBytes=16384"] {
            assert!(query.contains(parameter), "{query}");
        }
        assert!(!query.contains("follow"), "{query}");
        assert_eq!(request().host(), "node-a");
    }

    #[tokio::test]
    async fn a_log_is_bounded_and_may_have_any_bytes() {
        let (_, log) = read(200, vec![b'x'; 100_000]).await;
        assert_eq!(log.unwrap().len(), 16 * 1024);
        let (_, log) = read(200, b"caf\xc3".to_vec()).await;
        assert_eq!(log.unwrap(), "caf\u{fffd}", "cut inside a character");
    }

    #[tokio::test]
    async fn a_rejected_read_has_the_reason_of_the_api_server() {
        let status = |code: u16, message: &str| {
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "reason": "Reason", "message": message,
            });
            status.to_string().into_bytes()
        };
        let message = "pods \"agent-1\" is forbidden: User \"o\" cannot get resource \"pods/log\"";
        let (_, denied) = read(403, status(403, message)).await;
        let denied = denied.unwrap_err();
        assert_eq!(denied.class, ErrorClass::Denied);
        assert!(denied.message.contains("get pods/log"), "{denied}");
        let (_, away) = read(503, status(503, "away")).await;
        assert_eq!(away.unwrap_err().class, ErrorClass::Transient);
    }
}
