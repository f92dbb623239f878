//! Reads single objects from the API server itself, with their `managedFields`.
//!
//! The caches drop `managedFields`: they are large, and no steady state needs them. A decision that names the writer of a
//! field reads the one object with this module.

use std::{sync::Arc, time::Duration};

use api::{
    Reason,
    decide::{ErrorClass, ReconcileError, ResourceType},
};
use http::Method;
use kube::{Client, Error};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    apply::ResourcePath,
    fault::{Request, from_kube},
};

/// Timeout of one read, with the time that it waits for its turn.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of reads at once. A burst of objects that need one must not take the requests of all others.
const MAX_CONCURRENT: usize = 4;

/// Reads objects from the API server, a few at once. Clones share the limit.
///
/// # Caveats
/// Not for steady states: each read is a request. A result is old as soon as it arrives, so a write that depends on it
/// needs the resource version of the result.
#[derive(Clone)]
pub struct LiveReader {
    client: Client,
    slots: Arc<Semaphore>,
}

impl LiveReader {
    /// Creates a reader.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            slots: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        }
    }

    /// Returns an object, or `None` if it does not exist. The times in its `managedFields` are removed: a client may have
    /// written one that our types cannot hold.
    ///
    /// # Errors
    /// If the API server rejects the read, or does not respond in time.
    pub async fn get(
        &self,
        resource: ResourceType,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReconcileError> {
        let path = ResourcePath {
            resource,
            namespace,
            name,
            subresource: None,
        };
        let request = Request {
            verb: "get",
            resource: resource.plural,
            name,
        };
        let read = async {
            let Ok(_slot) = self.slots.acquire().await else {
                return Err(ReconcileError::bug(
                    "the reads from the API server are closed",
                ));
            };
            let built = http::Request::builder()
                .method(Method::GET)
                .uri(path.object())
                .header(http::header::ACCEPT, "application/json")
                .body(Vec::new());
            let built = built
                .map_err(|error| ReconcileError::bug(format!("cannot build {request}: {error}")))?;
            match self.client.request::<Value>(built).await {
                Ok(object) => Ok(Some(without_times(object))),
                Err(Error::Api(status)) if status.code == 404 => Ok(None),
                Err(error) => Err(from_kube(request, &error)),
            }
        };
        match tokio::time::timeout(TIMEOUT, read).await {
            Ok(result) => result,
            Err(_elapsed) => Err(ReconcileError::new(
                ErrorClass::Transient,
                Reason::ApiUnavailable,
                format!("no answer in time to {request}"),
            )),
        }
    }
}

fn without_times(mut object: Value) -> Value {
    let entries = object.pointer_mut("/metadata/managedFields");
    for entry in entries
        .and_then(Value::as_array_mut)
        .into_iter()
        .flat_map(|entries| entries.iter_mut())
    {
        if let Value::Object(entry) = entry {
            entry.remove("time");
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// Returns a reader of an API server that responds with this code and body. `None`: it never responds.
    fn reader(response: Option<(u16, Value)>) -> LiveReader {
        let respond = move |request: http::Request<Body>| {
            let response = response.clone();
            async move {
                assert_eq!(
                    request.uri().path(),
                    "/apis/apps/v1/namespaces/shop/deployments/web"
                );
                let Some((code, body)) = response else {
                    return std::future::pending().await;
                };
                let body = Body::from(body.to_string().into_bytes());
                http::Response::builder().status(code).body(body)
            }
        };
        LiveReader::new(Client::new(tower::service_fn(respond), "default"))
    }

    async fn read(response: Option<(u16, Value)>) -> Result<Option<Value>, ReconcileError> {
        let deployments = ResourceType::new("apps", "v1", "Deployment", "deployments");
        let reader = reader(response);
        reader.get(deployments, Some("shop"), "web").await
    }

    fn failure(code: u16) -> Option<(u16, Value)> {
        Some((
            code,
            json!({ "kind": "Status", "code": code, "message": "no" }),
        ))
    }

    #[tokio::test]
    async fn an_object_has_the_managers_of_its_fields() {
        let object = json!({ "metadata": {
            "name": "web",
            "managedFields": [{ "manager": "keda", "time": "9999-12-31T23:59:59Z", "operation": "Update" }],
        } });
        let found = read(Some((200, object))).await.unwrap().unwrap();
        assert_eq!(
            found["metadata"]["managedFields"],
            json!([{ "manager": "keda", "operation": "Update" }])
        );
        let bare = json!({ "metadata": { "name": "web" } });
        assert_eq!(read(Some((200, bare.clone()))).await, Ok(Some(bare)));
    }

    #[tokio::test]
    async fn a_missing_object_is_no_error_and_a_rejection_is_one() {
        assert_eq!(read(failure(404)).await, Ok(None));
        let rejected = read(failure(403)).await.unwrap_err();
        assert_eq!(rejected.class, ErrorClass::Denied);
        assert!(
            rejected.message.contains("get deployments"),
            "{}",
            rejected.message
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_without_a_response_ends() {
        let silent = read(None).await.unwrap_err();
        assert_eq!(silent.class, ErrorClass::Transient);
        assert_eq!(silent.reason, Reason::ApiUnavailable);
    }
}
