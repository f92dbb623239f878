//! The tasks family on the engine: what is watched, what wakes whom, what is observed.

use std::sync::Arc;

use api::{
    Status, Timestamp,
    decide::{Decision, Fault, Input, NoExternal, ResourceType},
    names,
    tasks::{Agent, AgentStatus, DocsRun, DocsRunStatus, TaskRun, TaskRunStatus},
};
use engine::{Cache, Context, Controller, Hub, Key, Kind, Scope, Watch, supervise::Supervisor};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Event, Pod, ServiceAccount},
    node::v1::RuntimeClass,
    scheduling::v1::PriorityClass,
    storage::v1::StorageClass,
};
use kube::{Resource, ResourceExt};
use mutant::Mutant;

use crate::{
    agent::{self, AgentWorld},
    lookup::{self, Lookups},
    run::{
        self, Defaults, RunWorld,
        docs::{self, DocsWorld, Settings},
    },
    view::{ConfigMapView, JobView, PodView, Warning},
};

/// The API group of all kinds.
const GROUP: &str = api::GROUP;

/// Something that belongs to a run, by the UID in its label.
#[derive(Debug)]
struct Child<V> {
    run_uid: String,
    view: V,
}

impl<V> Child<V> {
    fn new<'a, K: Resource>(object: &'a K) -> Self
    where
        V: From<&'a K>,
    {
        let run_uid = object.labels().get(names::UID).cloned().unwrap_or_default();
        Self {
            run_uid,
            view: V::from(object),
        }
    }
}

/// Starts the watches and the controllers of the family.
pub fn start(
    context: Context,
    scope: Scope,
    defaults: Defaults,
    mut settings: Settings,
    supervisor: &mut Supervisor,
) {
    if mutant::on(Mutant::InsideAllowed) {
        settings.allowed_networks = ["0.0.0.0/0", "::/0"].map(str::to_owned).to_vec();
        settings.plain_http = true;
    }
    let (client, metrics, health) = (
        context.client.clone(),
        context.metrics.clone(),
        context.health.clone(),
    );
    let mut hub = Hub::new(client, metrics, health, scope);
    let agents = hub.namespaced((GROUP, "agents"), all(|agent: Agent| agent, agent_words));
    let runs = hub.namespaced((GROUP, "taskruns"), all(|run: TaskRun| run, run_words));
    let docs_runs = hub.namespaced((GROUP, "docsruns"), all(|run: DocsRun| run, docs_words));
    let classes = Classes::watch(&mut hub);
    let children = Children::watch(&mut hub);

    let agent_kind = AgentKind(classes.clone());
    let surroundings = Surroundings {
        agents: agents.clone(),
        children: children.clone(),
        defaults,
    };
    let (lookups, desk) = lookup::open(
        context.client.clone(),
        context.clock.clone(),
        context.metrics.clone(),
        settings,
    );
    let forgetful = lookups.clone();
    docs_runs.on_change(move |change| {
        if let (None, Some(gone)) = (change.new, change.old) {
            forgetful.forget(gone);
        }
    });
    let docs_kind = DocsKind {
        surroundings: surroundings.clone(),
        lookups,
    };
    let agent_controller = Controller::new(agent_kind, agents.clone(), context.clone());
    let run_controller = Controller::new(RunKind(surroundings), runs.clone(), context.clone());
    let docs_controller = Controller::new(docs_kind, docs_runs.clone(), context);
    classes.wake(&agents, &agent_controller.handle());
    children.wake(&runs, &run_controller.handle());
    children.wake(&docs_runs, &docs_controller.handle());
    wake_runs_of_agents(&agents, &runs, &run_controller.handle(), |run| {
        run.status.as_ref().is_some_and(Status::is_over)
    });
    wake_runs_of_agents(&agents, &docs_runs, &docs_controller.handle(), |run| {
        run.status.as_ref().is_some_and(Status::is_over)
    });

    let caches = hub.start(supervisor);
    let shutdown = supervisor.shutdown();
    supervisor.spawn(
        "Agents",
        agent_controller.run(caches.clone(), shutdown.clone()),
    );
    supervisor.spawn(
        "TaskRuns",
        run_controller.run(caches.clone(), shutdown.clone()),
    );
    supervisor.spawn(
        "Git servers",
        desk.run(docs_controller.handle(), shutdown.clone()),
    );
    supervisor.spawn("DocsRuns", docs_controller.run(caches, shutdown));
}

fn all<K, T>(thin: fn(K) -> T, index: fn(&T) -> Vec<String>) -> Watch<K, T> {
    Watch {
        labels: None,
        fields: None,
        thin,
        index,
    }
}

/// A word of an index: what kind of thing, where, which.
fn word(kind: &str, namespace: Option<&str>, name: &str) -> String {
    [kind, namespace.unwrap_or_default(), name].join("/")
}

fn run_words(run: &TaskRun) -> Vec<String> {
    words_of(run, &run.spec.agent_name)
}

fn docs_words(run: &DocsRun) -> Vec<String> {
    words_of(run, &run.spec.agent_name)
}

fn words_of(run: &impl Resource, agent: &str) -> Vec<String> {
    let namespace = run.meta().namespace.as_deref();
    vec![
        run.uid().unwrap_or_default(),
        word("agent", namespace, agent),
    ]
}

fn agent_words(agent: &Agent) -> Vec<String> {
    let spec = &agent.spec;
    let mut words = vec![word(
        "serviceaccounts",
        agent.metadata.namespace.as_deref(),
        &spec.service_account_name,
    )];
    let classes = [
        ("runtimeclasses", &spec.runtime_class_name),
        ("priorityclasses", &spec.priority_class_name),
        ("storageclasses", &spec.workspace.storage_class_name),
    ];
    for (kind, name) in classes {
        words.extend(name.as_deref().map(|name| word(kind, None, name)));
    }
    words
}

/// A run waits for its Agent, or for it to become ready; one that is over waits for nothing.
fn wake_runs_of_agents<R: Send + Sync + 'static>(
    agents: &Cache<Agent>,
    runs: &Cache<R>,
    handle: &engine::Handle,
    is_over: fn(&R) -> bool,
) {
    let (runs, handle) = (runs.clone(), handle.clone());
    agents.on_change(move |change| {
        let word = word("agent", change.key.namespace.as_deref(), &change.key.name);
        for (key, run) in runs.find_keyed(&word) {
            if !is_over(&run) && !mutant::on(Mutant::AgentUnheard) {
                handle.touch(&key);
            }
        }
    });
}

/// What Agents name; only whether it exists matters.
#[derive(Debug, Clone)]
struct Classes {
    service_accounts: Cache<()>,
    runtime_classes: Cache<()>,
    priority_classes: Cache<()>,
    storage_classes: Cache<()>,
}

impl Classes {
    fn watch(hub: &mut Hub) -> Self {
        fn nothing<K>(_object: K) {}
        fn none(_nothing: &()) -> Vec<String> {
            Vec::new()
        }
        Self {
            service_accounts: hub.namespaced(
                ("", "serviceaccounts"),
                all(nothing::<ServiceAccount>, none),
            ),
            runtime_classes: hub.cluster(
                ("node.k8s.io", "runtimeclasses"),
                all(nothing::<RuntimeClass>, none),
            ),
            priority_classes: hub.cluster(
                ("scheduling.k8s.io", "priorityclasses"),
                all(nothing::<PriorityClass>, none),
            ),
            storage_classes: hub.cluster(
                ("storage.k8s.io", "storageclasses"),
                all(nothing::<StorageClass>, none),
            ),
        }
    }

    fn wake(&self, agents: &Cache<Agent>, handle: &engine::Handle) {
        let Self {
            service_accounts,
            runtime_classes,
            priority_classes,
            storage_classes,
        } = self;
        for cache in [
            service_accounts,
            runtime_classes,
            priority_classes,
            storage_classes,
        ] {
            let (agents, handle, kind) = (agents.clone(), handle.clone(), cache.name());
            cache.on_change(move |change| {
                if mutant::on(Mutant::ReferenceUnheard) {
                    return;
                }
                let word = word(kind, change.key.namespace.as_deref(), &change.key.name);
                for (key, _) in agents.find_keyed(&word) {
                    handle.touch(&key);
                }
            });
        }
    }
}

/// What runs make, and what is said about it.
#[derive(Debug, Clone)]
struct Children {
    jobs: Cache<Child<JobView>>,
    pods: Cache<Child<PodView>>,
    config_maps: Cache<Child<ConfigMapView>>,
    /// Quota, admission and volumes say only in Events why a Pod does not start.
    job_warnings: Cache<Warning>,
    pod_warnings: Cache<Warning>,
}

impl Children {
    fn watch(hub: &mut Hub) -> Self {
        fn ours<K, T>(thin: fn(K) -> T, index: fn(&T) -> Vec<String>) -> Watch<K, T> {
            let labels = Some([names::KIND, " in (TaskRun,DocsRun)"].concat());
            Watch {
                labels,
                fields: None,
                thin,
                index,
            }
        }
        fn warnings(fields: &str) -> Watch<Event, Warning> {
            Watch {
                labels: None,
                fields: Some(fields.to_owned()),
                thin: |event| Warning::from(&event),
                index: |warning| vec![warning.object_uid.clone()],
            }
        }
        Self {
            jobs: hub.namespaced(
                ("batch", "jobs"),
                ours(
                    |job: Job| Child::new(&job),
                    |job| vec![job.run_uid.clone(), job.view.uid.clone()],
                ),
            ),
            pods: hub.namespaced(
                ("", "pods"),
                ours(
                    |pod: Pod| Child::new(&pod),
                    |pod| vec![pod.run_uid.clone(), pod.view.uid.clone()],
                ),
            ),
            config_maps: hub.namespaced(
                ("", "configmaps"),
                ours(
                    |map: ConfigMap| Child::new(&map),
                    |map| vec![map.run_uid.clone()],
                ),
            ),
            job_warnings: hub.namespaced(
                ("", "events"),
                warnings("type=Warning,involvedObject.kind=Job"),
            ),
            pod_warnings: hub.namespaced(
                ("", "events"),
                warnings("type=Warning,involvedObject.kind=Pod"),
            ),
        }
    }

    fn wake<R: Send + Sync + 'static>(&self, runs: &Cache<R>, handle: &engine::Handle) {
        wake_by_label(&self.jobs, runs, handle);
        wake_by_label(&self.pods, runs, handle);
        wake_by_label(&self.config_maps, runs, handle);
        wake_by_warning(&self.job_warnings, &self.jobs, runs, handle);
        wake_by_warning(&self.pod_warnings, &self.pods, runs, handle);
    }

    fn warnings(&self, jobs: &[JobView], pods: &[PodView]) -> Vec<Warning> {
        let of_jobs = jobs.iter().flat_map(|job| self.job_warnings.find(&job.uid));
        let of_pods = pods.iter().flat_map(|pod| self.pod_warnings.find(&pod.uid));
        of_jobs
            .chain(of_pods)
            .map(|warning| (*warning).clone())
            .collect()
    }
}

fn wake_by_label<V: Send + Sync + 'static, R: Send + Sync + 'static>(
    children: &Cache<Child<V>>,
    runs: &Cache<R>,
    handle: &engine::Handle,
) {
    let (runs, handle) = (runs.clone(), handle.clone());
    children.on_change(move |change| {
        if let Some(child) = change.new.or(change.old) {
            wake_run(&runs, &handle, &child.run_uid);
        }
    });
}

fn wake_by_warning<V: Send + Sync + 'static, R: Send + Sync + 'static>(
    warnings: &Cache<Warning>,
    children: &Cache<Child<V>>,
    runs: &Cache<R>,
    handle: &engine::Handle,
) {
    let (children, runs, handle) = (children.clone(), runs.clone(), handle.clone());
    warnings.on_change(move |change| {
        // An Event that expires is no news.
        let Some(warning) = change.new else { return };
        for child in children.find(&warning.object_uid) {
            wake_run(&runs, &handle, &child.run_uid);
        }
    });
}

fn wake_run<R: Send + Sync + 'static>(runs: &Cache<R>, handle: &engine::Handle, uid: &str) {
    for (key, _) in runs.find_keyed(uid) {
        handle.touch(&key);
    }
}

/// Agents.
struct AgentKind(Classes);

impl Kind for AgentKind {
    type Object = Agent;
    type Status = AgentStatus;
    type World = AgentWorld;
    type External = NoExternal;
    const RESOURCE: ResourceType = ResourceType::new(GROUP, "v1alpha1", "Agent", "agents");
    const FINALIZER: &'static str = "agents.orchestrator.io/finalizer";

    fn status(object: &Agent) -> Option<&AgentStatus> {
        object.status.as_ref()
    }

    async fn observe(&self, agent: &Arc<Agent>, _now: Timestamp) -> Result<AgentWorld, Fault> {
        let spec = &agent.spec;
        let Classes {
            service_accounts,
            runtime_classes,
            priority_classes,
            storage_classes,
        } = &self.0;
        let is_there = |cache: &Cache<()>, name: &Option<String>| {
            name.as_ref().is_none_or(|name| {
                cache
                    .get(&Key {
                        namespace: None,
                        name: name.clone(),
                    })
                    .is_some()
            })
        };
        let account = Key {
            namespace: agent.metadata.namespace.clone(),
            name: spec.service_account_name.clone(),
        };
        Ok(AgentWorld {
            service_account: service_accounts.get(&account).is_some(),
            runtime_class: is_there(runtime_classes, &spec.runtime_class_name),
            priority_class: is_there(priority_classes, &spec.priority_class_name),
            storage_class: is_there(storage_classes, &spec.workspace.storage_class_name),
        })
    }

    fn decide(input: &Input<'_, Agent, AgentWorld>) -> Decision<AgentStatus, NoExternal> {
        agent::decide(input)
    }

    async fn perform(&self, _object: &Agent, effect: &NoExternal) -> Result<(), Fault> {
        match *effect {}
    }
}

/// What both kinds of runs are decided from.
#[derive(Debug, Clone)]
struct Surroundings {
    agents: Cache<Agent>,
    children: Children,
    defaults: Defaults,
}

impl Surroundings {
    fn of(&self, run: &impl Resource, agent: &str) -> RunWorld {
        let Children {
            jobs,
            pods,
            config_maps,
            ..
        } = &self.children;
        let uid = run.uid().unwrap_or_default();
        let agent = Key {
            namespace: run.meta().namespace.clone(),
            name: agent.to_owned(),
        };
        let jobs: Vec<JobView> = jobs.find(&uid).iter().map(|job| job.view.clone()).collect();
        let pods: Vec<PodView> = pods.find(&uid).iter().map(|pod| pod.view.clone()).collect();
        let config_maps = config_maps.find(&uid);
        RunWorld {
            agent: self.agents.get(&agent),
            warnings: self.children.warnings(&jobs, &pods),
            jobs,
            pods,
            config_maps: config_maps.iter().map(|map| map.view.clone()).collect(),
            defaults: self.defaults.clone(),
        }
    }
}

/// TaskRuns.
struct RunKind(Surroundings);

impl Kind for RunKind {
    type Object = TaskRun;
    type Status = TaskRunStatus;
    type World = RunWorld;
    type External = NoExternal;
    const RESOURCE: ResourceType = run::RESOURCE;
    const FINALIZER: &'static str = "taskruns.orchestrator.io/finalizer";

    fn status(object: &TaskRun) -> Option<&TaskRunStatus> {
        object.status.as_ref()
    }

    async fn observe(&self, run: &Arc<TaskRun>, _now: Timestamp) -> Result<RunWorld, Fault> {
        Ok(self.0.of(run.as_ref(), &run.spec.agent_name))
    }

    fn decide(input: &Input<'_, TaskRun, RunWorld>) -> Decision<TaskRunStatus, NoExternal> {
        run::decide(input)
    }

    async fn perform(&self, _object: &TaskRun, effect: &NoExternal) -> Result<(), Fault> {
        match *effect {}
    }
}

/// DocsRuns.
struct DocsKind {
    surroundings: Surroundings,
    lookups: Lookups,
}

impl Kind for DocsKind {
    type Object = DocsRun;
    type Status = DocsRunStatus;
    type World = DocsWorld;
    type External = NoExternal;
    const RESOURCE: ResourceType = docs::RESOURCE;
    const FINALIZER: &'static str = "docsruns.orchestrator.io/finalizer";

    fn status(object: &DocsRun) -> Option<&DocsRunStatus> {
        object.status.as_ref()
    }

    async fn observe(&self, run: &Arc<DocsRun>, now: Timestamp) -> Result<DocsWorld, Fault> {
        let question = docs::question(run);
        Ok(DocsWorld {
            run: self.surroundings.of(run.as_ref(), &run.spec.agent_name),
            answer: self.lookups.ask(run, question, now),
            settings: self.lookups.settings().clone(),
        })
    }

    fn decide(input: &Input<'_, DocsRun, DocsWorld>) -> Decision<DocsRunStatus, NoExternal> {
        docs::decide(input)
    }

    async fn perform(&self, _object: &DocsRun, effect: &NoExternal) -> Result<(), Fault> {
        match *effect {}
    }
}
