//! The log lines of a controller at `info` and at `debug`.

use std::io;

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;

use super::*;
use crate::supervise::Supervisor;

/// The logged lines.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(super) fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }
}

/// Collects the log of this thread, as the operator writes it with this filter.
pub(super) fn logs(filter: &str) -> (Log, DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse(filter).unwrap())
        .with_writer(move || writer.clone())
        .json()
        .flatten_event(true)
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

/// Returns one effect of each kind.
pub(super) fn effects() -> Vec<Effect> {
    let files = child(ResourceType::CONFIG_MAP, "files");
    let applied = child(ResourceType::CONFIG_MAP, "applied").expected_uid("uid");
    vec![
        Effect::Ensure(Box::new(files)),
        Effect::Ensure(Box::new(child(ResourceType::JOB, "job"))),
        Effect::Apply(Box::new(applied)),
        Effect::Patch {
            target: target("patched"),
            subresource: None,
            patch: json!({ "data": { "key": "body-of-a-child" } }),
        },
        Effect::Delete(target("old")),
    ]
}

/// Returns the log of one reconciliation with one effect of each kind.
async fn log_of_effects(filter: &str) -> Vec<Value> {
    let (log, _guard) = logs(filter);
    let room = room(&["effects"]);
    pass(SECOND).await;
    assert_eq!(room.looks("effects").len(), 1);
    room.end().await;
    log.lines()
}

#[tokio::test(start_paused = true)]
async fn each_effect_is_one_line_at_info_with_its_object_and_its_owner() {
    for filter in ["info", "info,engine=debug"] {
        let lines = log_of_effects(filter).await;
        let effects = lines.iter().filter(|line| line["effect"].is_string());
        let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
        let found: Vec<[String; 3]> = effects
            .map(|line| {
                assert_eq!(
                    (&line["level"], &line["kind"], &line["object"]),
                    (&json!("INFO"), &json!("Toy"), &json!("n/effects"))
                );
                ["message", "target_kind", "target_object"].map(|name| text(line, name))
            })
            .collect();
        let wanted = [
            ["created ConfigMap 'files'", "ConfigMap", "n/files"],
            ["created Job 'job'", "Job", "n/job"],
            ["applied ConfigMap 'applied'", "ConfigMap", "n/applied"],
            ["patched ConfigMap 'patched'", "ConfigMap", "n/patched"],
            ["deleted ConfigMap 'old'", "ConfigMap", "n/old"],
        ];
        assert_eq!(found, wanted, "{filter}");
        let all = json!(lines).to_string();
        assert!(!all.contains("body-of-a-child"), "{filter}: a body: {all}");
    }
}

#[tokio::test(start_paused = true)]
async fn more_is_logged_at_debug_than_at_info() {
    let debug = log_of_effects("info,engine=debug").await;
    let info = log_of_effects("info").await;
    let of = |lines: &[Value], message: &str| -> Vec<Value> {
        let lines = lines.iter().filter(|line| line["message"] == message);
        lines.cloned().collect()
    };
    for message in ["added the finalizer", "wrote the status", "reconciled"] {
        let lines = of(&debug, message);
        assert_eq!(lines.len(), 1, "{message}: {debug:?}");
        assert_eq!(lines[0]["level"], "DEBUG");
        assert_eq!(lines[0]["object"], "n/effects");
        assert!(of(&info, message).is_empty(), "{message}");
    }
    let reconciled = &of(&debug, "reconciled")[0];
    assert_eq!(reconciled["outcome"], "Completed");
    assert_eq!(reconciled["requeue"], "on the next event");
    assert!(info.iter().all(|line| line["level"] != "DEBUG"));
    assert!(!info.is_empty() && info.len() < debug.len());
}

#[tokio::test(start_paused = true)]
async fn caches_are_logged_at_debug_as_they_become_complete() {
    // A server that lists no toys, and keeps watches open.
    let list = |request: Request<Body>| async move {
        if request
            .uri()
            .query()
            .unwrap_or_default()
            .contains("watch=true")
        {
            std::future::pending::<()>().await;
        }
        let list = json!({
            "apiVersion": "test/v1", "kind": "ToyList",
            "metadata": { "resourceVersion": "1" }, "items": [],
        });
        Response::builder().body(Body::from(list.to_string().into_bytes()))
    };
    for (filter, count) in [("info", 0), ("info,engine=debug", 1)] {
        let (log, _guard) = logs(filter);
        let client = Client::new(tower::service_fn(list), "default");
        let (metrics, health) = (Metrics::default(), Health::default());
        let mut watches = WatchManager::new(client, metrics, health.clone(), Scope::All);
        let watch = Watch::<Toy, Toy> {
            labels: None,
            fields: None,
            transform: Arc::new(|toy, _| toy),
            index: |_| vec![],
        };
        let _objects = watches.namespaced(("test", "toys"), watch);
        let mut supervisor = Supervisor::new(health, SECOND);
        let caches = watches.start(&mut supervisor);
        pass(SECOND).await;
        assert!(caches.is_settled() && caches.blocked(&BTreeSet::new()).is_empty());
        for message in ["listing", "cache synced"] {
            let lines = log.lines();
            let lines = lines.iter().filter(|line| line["message"] == message);
            let lines: Vec<&Value> = lines.collect();
            assert_eq!(lines.len(), count, "{filter}: {message}");
            assert!(lines.iter().all(|line| line["resource"] == "toys"));
        }
    }
}
