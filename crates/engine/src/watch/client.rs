//! The client of one watch.

use http::{Request, Response};
use kube::{Client, client::Body};

use crate::watch_health::WatchHealth;

/// Returns a client that reports to `health` when the API server accepts the watch of this number.
///
/// Each watch has its own client, because a path does not identify a watch: Events about Jobs and Events about Pods
/// have the same one. With the path, a watch that was reopened would end the interruption of the other one.
pub(super) fn reporting(client: &Client, health: &WatchHealth, number: usize) -> Client {
    let (inner, health) = (client.clone(), health.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, health) = (inner.clone(), health.clone());
        async move {
            let query = request.uri().query().unwrap_or_default();
            let is_watch = query.split('&').any(|pair| pair == "watch=true");
            let response = inner.send(request).await?;
            if is_watch && response.status().is_success() {
                health.opened(number);
            }
            Ok::<Response<Body>, kube::Error>(response)
        }
    });
    Client::new(service, client.default_namespace())
}
