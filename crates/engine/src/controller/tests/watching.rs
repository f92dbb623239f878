//! Watches that have nothing to report.

use super::*;
use crate::{client::READ_TIMEOUT, supervise::Supervisor};

/// Returns how long the server keeps a watch open. Without a number it is kube's default.
fn server_timeout(query: &str) -> Duration {
    let mut pairs = query.split('&');
    let asked = pairs.find_map(|pair| pair.strip_prefix("timeoutSeconds="));
    Duration::from_secs(asked.map_or(290, |number| number.parse().unwrap()))
}

/// Waits as long as a watch without events and bookmarks is open. The server ends it, or the client's read
/// timeout does.
async fn silence(query: &str) -> Result<(), &'static str> {
    let by_server = server_timeout(query);
    tokio::time::sleep(by_server.min(READ_TIMEOUT)).await;
    if by_server < READ_TIMEOUT {
        Ok(())
    } else {
        Err("timed out")
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_watch_without_bookmarks_is_not_interrupted() {
    for resource in ["toys", "events"] {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let answer = move |request: Request<Body>| {
            let count = Arc::clone(&count);
            async move {
                let query = request.uri().query().unwrap_or_default();
                if query.contains("watch=true") {
                    count.fetch_add(1, Ordering::SeqCst);
                    silence(query).await?;
                    return Ok::<_, &'static str>(Response::new(Body::empty()));
                }
                let list = json!({
                    "apiVersion": "test/v1", "kind": "ToyList",
                    "metadata": { "resourceVersion": "1" }, "items": [],
                });
                Ok(Response::new(Body::from(list.to_string().into_bytes())))
            }
        };
        let client = Client::new(tower::service_fn(answer), "default");
        let (metrics, health) = (Metrics::default(), Health::default());
        let mut watches = WatchManager::new(client, metrics.clone(), health.clone(), Scope::All);
        let watch = Watch::<Toy, Toy> {
            labels: None,
            fields: None,
            transform: Arc::new(|toy, _| toy),
            index: |_| vec![],
        };
        let _objects = watches.namespaced(("test", resource), watch);
        let mut supervisor = Supervisor::new(health, SECOND);
        let caches = watches.start(&mut supervisor);
        pass(600 * SECOND).await;
        let blocked = caches.blocked(&BTreeSet::new());
        assert!(blocked.is_empty(), "{resource}");
        let text = metrics.text();
        assert!(!text.contains("watch_errors_total{"), "{resource}: {text}");
        let opened = opened.load(Ordering::SeqCst);
        assert!((6..=8).contains(&opened), "{resource}: {opened} times");
    }
}
