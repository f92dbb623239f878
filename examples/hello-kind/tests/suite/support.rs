//! A controller of Greetings in this process, on a real API server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use api::decide::{ErrorClass, ReconcileError};
use engine::{
    Context, Controller, Kind, Scope, Watch, WatchManager,
    clock::Clock,
    health::Health,
    leader::{HeldLease, Leadership},
    metrics::Metrics,
    supervise::{Supervisor, TaskEnded},
};
use hello_kind::{Book, Greeting, Hello, Line};
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Config, CustomResourceExt};
use tokio::{sync::watch, task::JoinSet};

/// A book in memory. It can lose the response of its first write.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) lines: Mutex<BTreeMap<String, Vec<String>>>,
    pub(crate) lose_first_answer: Mutex<bool>,
}

impl Book for Memory {
    fn has(&self, uid: &str) -> bool {
        self.lines.lock().unwrap().contains_key(uid)
    }

    fn write(&self, Line(uid, line): &Line) -> Result<(), ReconcileError> {
        self.lines
            .lock()
            .unwrap()
            .entry(uid.clone())
            .or_default()
            .push(line.clone());
        if std::mem::take(&mut *self.lose_first_answer.lock().unwrap()) {
            let reason = api::Reason::ApiUnavailable;
            return Err(ReconcileError::new(
                ErrorClass::Transient,
                reason,
                "the book did not answer",
            ));
        }
        Ok(())
    }
}

/// A running controller.
pub(crate) struct Running {
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    task: JoinSet<Result<(), TaskEnded>>,
}

impl Running {
    /// Starts a controller of the kind that `make` returns, for the Greetings of one namespace.
    pub(crate) fn start<K: Kind<Object = Greeting>>(
        config: &Config,
        namespace: &str,
        limit: Duration,
        make: impl FnOnce(Hello) -> K,
        book: Arc<dyn Book>,
    ) -> Result<Self> {
        // ANCHOR: watches
        let (metrics, health) = (Metrics::default(), Health::default());
        let client = engine::client::build(config.clone(), &metrics, &health)?;
        let scope = Scope::Namespaces(vec![namespace.to_owned()]);
        let mut watches = WatchManager::new(client.clone(), metrics.clone(), health.clone(), scope);
        let greetings = watches.namespaced(
            ("hello.orchestrator.io", "greetings"),
            Watch {
                labels: None,
                fields: None,
                transform: Arc::new(|object, _| object),
                index: |object: &Greeting| vec![object.spec.door.clone()],
            },
        );
        let doors = watches.namespaced(
            ("", "configmaps"),
            Watch {
                labels: None,
                fields: None,
                transform: Arc::new(|object: ConfigMap, _| object),
                index: |_| vec![],
            },
        );
        // ANCHOR_END: watches
        // ANCHOR: controller
        // There is no other candidate, so this process leads as long as a test takes.
        let lease = HeldLease {
            until: tokio::time::Instant::now() + Duration::from_secs(3600),
            acquired_version: 0,
        };
        let (leader, leading) = watch::channel(Some(lease));
        let context = Context {
            client,
            metrics: metrics.clone(),
            health: health.clone(),
            clock: Clock::system(),
            leading: Leadership::new(leading),
            identity: "hello".to_owned(),
            concurrency: 8,
            limit,
            seed: 1,
        };
        let controller =
            Controller::new(make(Hello(doors.clone(), book)), greetings.clone(), context);
        let handle = controller.handle();
        doors.on_change(move |change| {
            for key in greetings.keys_of(&change.key.name) {
                if key.namespace == change.key.namespace {
                    handle.enqueue(&key);
                }
            }
        });
        let mut supervisor = Supervisor::new(health.clone(), Duration::from_secs(2));
        supervisor.spawn("tick", health.clone().tick(supervisor.shutdown()));
        let caches = watches.start(&mut supervisor);
        supervisor.spawn("greetings", controller.run(caches, supervisor.shutdown()));
        // ANCHOR_END: controller
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let _leader = leader;
            supervisor
                .run_until(async {
                    // A dropped sender stops the controller, too.
                    if stopped.await.is_err() {}
                })
                .await
        });
        Ok(Self {
            metrics,
            health,
            stop: Some(stop),
            task,
        })
    }

    /// Stops the controller. Returns an error if one of its tasks failed.
    pub(crate) async fn end(mut self) -> Result<()> {
        drop(self.stop.take());
        while let Some(ended) = self.task.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// Returns the complete CRD.
pub(crate) fn crd() -> CustomResourceDefinition {
    api::crd::complete(Greeting::crd())
}

/// Returns a Greeting.
pub(crate) fn greeting(name: &str, door: &str, patience: u64) -> Greeting {
    Greeting::new(
        name,
        hello_kind::GreetingSpec {
            line: format!("hello from {name}"),
            door: door.to_owned(),
            patience: Duration::from_secs(patience).into(),
        },
    )
}

/// Waits until `wanted` accepts the Greeting.
pub(crate) async fn until(
    greetings: &Api<Greeting>,
    name: &str,
    limit: u64,
    wanted: impl Fn(&Greeting) -> bool,
) -> Result<Greeting> {
    testkit::wait::until(name, Duration::from_secs(limit), || async {
        let seen = greetings.get(name).await?;
        Ok(if wanted(&seen) {
            Ok(seen)
        } else {
            Err(format!("{:?}", seen.status))
        })
    })
    .await
}

/// Returns phase, reason and message of a status, for short assertions.
pub(crate) fn words(greeting: &Greeting) -> (String, String, String) {
    let Some(status) = &greeting.status else {
        return Default::default();
    };
    let main = status.progress.condition("Succeeded");
    (
        status
            .phase
            .map_or(String::new(), |phase| format!("{phase:?}")),
        main.map_or(String::new(), |known| known.reason.clone()),
        status.progress.message.clone().unwrap_or_default(),
    )
}
