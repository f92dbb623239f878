//! A controller of Greetings in this process, on a real API server.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use api::{
    Reason,
    decide::{ErrorClass, ReconcileError},
};
use engine::{
    Cache, Context, Controller, Handle, Kind, Scope, Watch, WatchManager,
    clock::Clock,
    external::{self, LogRequest, Remote},
    health::Health,
    leader::{HeldLease, Leadership},
    metrics::Metrics,
    supervise::{Supervisor, TaskEnded},
};
use hello_kind::{Greeting, Hello, Line};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Config, CustomResourceExt};
use tokio::{sync::watch, task::JoinSet};

/// The servers outside the cluster: a guest book, and the kubelets that send logs.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    /// Lines of the book, one for each key. The page of a line is its place in the list.
    pub(crate) lines: Mutex<Vec<Line>>,
    /// All requests to the book, in order.
    pub(crate) requests: Mutex<Vec<Line>>,
    /// How the response to the next request is lost.
    pub(crate) loss: Mutex<Option<Loss>>,
    /// All requests for a log, in order.
    pub(crate) logs: Mutex<Vec<LogRequest>>,
}

/// The loss of a response. The line is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loss {
    /// The connection breaks.
    Error,
    /// There is no response.
    Silence,
}

impl Outside {
    /// Writes a line, unless the book has one with this key. Returns its page.
    fn write(&self, line: &Line) -> u32 {
        self.requests.lock().unwrap().push(line.clone());
        let mut lines = self.lines.lock().unwrap();
        let known = lines.iter().position(|known| known.key == line.key);
        let index = known.unwrap_or_else(|| {
            lines.push(line.clone());
            lines.len() - 1
        });
        u32::try_from(index + 1).unwrap_or(u32::MAX)
    }
}

/// The client of the book.
struct Book(Arc<Outside>);

impl Remote<Line> for Book {
    async fn send(&self, line: &Line) -> Result<u32, ReconcileError> {
        let page = self.0.write(line);
        let loss = self.0.loss.lock().unwrap().take();
        match loss {
            None => Ok(page),
            Some(Loss::Error) => {
                let (class, reason) = (ErrorClass::Transient, Reason::DependencyNotReady);
                let message = "the guest book closed the connection";
                Err(ReconcileError::new(class, reason, message))
            }
            Some(Loss::Silence) => std::future::pending().await,
        }
    }
}

/// The logs of Pods. In the product, this is `engine::external::PodLogs`.
struct Logs(Arc<Outside>);

impl Remote<LogRequest> for Logs {
    async fn send(&self, request: &LogRequest) -> Result<String, ReconcileError> {
        self.0.logs.lock().unwrap().push(request.clone());
        Ok(format!("{} was here\n", request.pod))
    }
}

/// Reconciles the Greetings that name a changed object.
fn enqueue_by_name<T: Send + Sync + 'static>(
    changed: &Cache<T>,
    greetings: &Cache<Greeting>,
    handle: &Handle,
) {
    let (greetings, handle) = (greetings.clone(), handle.clone());
    changed.on_change(move |change| {
        for key in greetings.keys_of(&change.key.name) {
            if key.namespace == change.key.namespace {
                handle.enqueue(&key);
            }
        }
    });
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
        outside: &Arc<Outside>,
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
                index: |object: &Greeting| {
                    let names = std::iter::once(&object.spec.door).chain(&object.spec.guest);
                    names.cloned().collect()
                },
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
        let guests = watches.namespaced(
            ("", "pods"),
            Watch {
                labels: None,
                fields: None,
                transform: Arc::new(|object: Pod, _| object),
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
        let kind = Hello::RESOURCE.kind;
        let remote = Logs(Arc::clone(outside));
        let (logs, logs_worker) = external::new(kind, remote, &greetings, &context);
        let remote = Book(Arc::clone(outside));
        let (book, book_worker) = external::new(kind, remote, &greetings, &context);
        let hello = Hello {
            doors: doors.clone(),
            guests: guests.clone(),
            logs,
            book,
        };
        let controller = Controller::new(make(hello), greetings.clone(), context);
        let handle = controller.handle();
        enqueue_by_name(&doors, &greetings, &handle);
        enqueue_by_name(&guests, &greetings, &handle);
        let mut supervisor = Supervisor::new(health.clone(), Duration::from_secs(2));
        supervisor.spawn("tick", health.clone().tick(supervisor.shutdown()));
        let caches = watches.start(&mut supervisor);
        let shutdown = supervisor.shutdown();
        supervisor.spawn("greetings", controller.run(caches, shutdown.clone()));
        supervisor.spawn("logs", logs_worker.run(handle.clone(), shutdown.clone()));
        supervisor.spawn("guest book", book_worker.run(handle, shutdown));
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
            guest: None,
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
