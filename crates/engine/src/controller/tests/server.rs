//! A server that responds as the tests want.

use super::*;

/// A server that records its requests.
#[derive(Clone, Default)]
pub(super) struct Server {
    pub(super) requests: Arc<Mutex<Vec<(String, String, Value)>>>,
    pub(super) refuse: Arc<AtomicBool>,
    /// Delay of each response.
    pub(super) delay: Arc<Mutex<Duration>>,
}

impl Server {
    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await?;
                let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let path = parts.uri.path().to_owned();
                server.requests.lock().unwrap().push((
                    parts.method.to_string(),
                    path.clone(),
                    body.clone(),
                ));
                let delay = *server.delay.lock().unwrap();
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                let is_forbidden = body["metadata"]["name"] == "forbidden";
                let is_old = path.ends_with("/toys/stale/status")
                    && body["metadata"]["resourceVersion"] == "1";
                let is_kept = parts.method == "DELETE" && path.ends_with("/forbidden");
                let webhook = waits::webhook_failure(&body["metadata"]["name"]);
                if let Some((time, _)) = &webhook {
                    tokio::time::sleep(*time).await;
                }
                let (code, answer) = if let Some((_, message)) = webhook {
                    (
                        500,
                        json!({"kind": "Status", "code": 500, "message": message}),
                    )
                } else if is_kept {
                    let message = "configmaps \"forbidden\" is forbidden: User \"o\" cannot delete resource \"configmaps\"";
                    (
                        403,
                        json!({"kind": "Status", "code": 403, "message": message}),
                    )
                } else if is_forbidden {
                    (
                        403,
                        json!({"kind": "Status", "code": 403, "message": "exceeded quota: q"}),
                    )
                } else if is_old {
                    (
                        409,
                        json!({"kind": "Status", "code": 409, "message": "modified"}),
                    )
                } else if server.refuse.load(Ordering::SeqCst) {
                    (
                        503,
                        json!({"kind": "Status", "code": 503, "message": "away"}),
                    )
                } else if parts.method == "GET" && path.ends_with("/pods") {
                    (
                        200,
                        json!({"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": []}),
                    )
                } else if parts.method == "GET" && path.ends_with("/configmaps") {
                    (
                        200,
                        json!({"metadata": {"resourceVersion": "9"}, "items": []}),
                    )
                } else {
                    let mut answer = body;
                    answer["metadata"]["resourceVersion"] = json!("1000");
                    let toy = path.rsplit('/').next().unwrap_or_default();
                    if ["refused", "stale"].contains(&toy) {
                        answer["metadata"]["name"] = json!(toy);
                        answer["metadata"]["namespace"] = json!("n");
                        answer["metadata"]["generation"] = json!(1);
                        answer["metadata"]["uid"] = json!(format!("uid-{toy}"));
                        answer["spec"] = json!({ "act": toy });
                        answer["apiVersion"] = json!("test/v1");
                        answer["kind"] = json!("Toy");
                    }
                    (200, answer)
                };
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
            }
        });
        Client::new(service, "default")
    }

    /// Returns the verb and the last part of the path of each request.
    pub(super) fn sent(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        requests
            .iter()
            .map(|(verb, path, _)| format!("{verb} {}", name(path)))
            .collect()
    }

    pub(super) fn statuses(&self, name: &str) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|(_, path, _)| path.ends_with(&format!("/toys/{name}/status")))
            .map(|(_, _, body)| body["status"].clone())
            .collect()
    }
}
