//! Connects the tasks operator to the engine: its watches, the triggers of reconciliations, and the observed state.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    Reason, Status, Timestamp,
    decide::{Decision, Input, ReconcileError, ResourceType},
    names,
    tasks::{
        Agent, AgentStatus, DocsRun, DocsRunStatus, TaskRun, TaskRunStatus, docs_labels, run_labels,
    },
};
use attempts::children::Children;
use engine::{
    Cache, Context, Controller, Key, Kind, Packing, Scope, Watch, WatchManager,
    children::owned_by,
    external::{self, Requests},
    supervise::Supervisor,
};
use k8s_openapi::api::{
    core::v1::ServiceAccount, node::v1::RuntimeClass, scheduling::v1::PriorityClass,
    storage::v1::StorageClass,
};
use kube::{Resource, ResourceExt};

use crate::{
    agent::{self, AgentWorld},
    contents::Contents,
    lookup::{GitServers, HeadsRequest},
    run::{
        self, Defaults, RunWorld,
        docs::{self, DocsWorld, Settings},
        holder::{Claim, Holder, holder},
    },
    view::{KINDS, job_view, pod_view},
};

/// The API group of all kinds.
const GROUP: &str = api::GROUP;

/// Starts the watches and the controllers of the operator.
pub fn start(
    context: Context,
    scope: Scope,
    defaults: Defaults,
    settings: Settings,
    supervisor: &mut Supervisor,
) {
    let (client, metrics, health) = (
        context.client.clone(),
        context.metrics.clone(),
        context.health.clone(),
    );
    let mut watches = WatchManager::new(client, metrics, health, scope);
    let agents = watches.namespaced(
        (GROUP, "agents"),
        all(|agent: Agent| agent, agent_index_keys),
    );
    let contents = Contents::default();
    let (of_runs, of_docs) = (contents.clone(), contents.clone());
    let watch = Watch {
        transform: Arc::new(move |run, source| of_runs.without(run, source)),
        ..all(|run: TaskRun| run, run_index_keys)
    };
    let runs = watches.namespaced((GROUP, "taskruns"), watch);
    let watch = Watch {
        transform: Arc::new(move |run, source| of_docs.without_instructions(run, source)),
        ..all(|run: DocsRun| run, docs_index_keys)
    };
    let docs_runs = watches.namespaced((GROUP, "docsruns"), watch);
    runs.pack(Packing::of(|run| {
        run.status.as_ref().is_some_and(Status::is_over)
    }));
    docs_runs.pack(Packing::of(|run| {
        run.status.as_ref().is_some_and(Status::is_over)
    }));
    forget_files(&runs, &contents);
    forget_files(&docs_runs, &contents);
    let classes = Classes::watch(&mut watches);
    let children = Children::watch(&mut watches, KINDS, job_view, pod_view);

    let agent_kind = AgentKind(classes.clone());
    let run_caches = RunCaches {
        agents: agents.clone(),
        children: children.clone(),
        contents,
        defaults,
    };
    let servers = GitServers::new(context.client.clone(), settings.clone());
    let (heads, worker) = external::new(docs::RESOURCE.kind, servers, &docs_runs, &context);
    let docs_kind = DocsKind {
        run_caches: run_caches.clone(),
        heads,
        settings,
    };
    let run_kind = RunKind {
        run_caches,
        runs: runs.clone(),
    };
    let agent_controller = Controller::new(agent_kind, agents.clone(), context.clone());
    let run_controller = Controller::new(run_kind, runs.clone(), context.clone());
    let docs_controller = Controller::new(docs_kind, docs_runs.clone(), context);
    classes.connect(&agents, &agent_controller.handle());
    children.connect(&runs, &run_controller.handle());
    children.connect(&docs_runs, &docs_controller.handle());
    enqueue_runs_of_agents(&agents, &runs, &run_controller.handle());
    enqueue_runs_of_task(&runs, &children, &run_controller.handle());
    enqueue_runs_of_agents(&agents, &docs_runs, &docs_controller.handle());

    let caches = watches.start(supervisor);
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
        worker.run(docs_controller.handle(), shutdown.clone()),
    );
    supervisor.spawn("DocsRuns", docs_controller.run(caches, shutdown));
}

fn all<K: 'static, T: 'static>(transform: fn(K) -> T, index: fn(&T) -> Vec<String>) -> Watch<K, T> {
    Watch {
        labels: None,
        fields: None,
        transform: Arc::new(move |object, _| transform(object)),
        index,
    }
}

/// Builds an index key from kind, namespace and name.
fn index_key(kind: &str, namespace: Option<&str>, name: &str) -> String {
    [kind, namespace.unwrap_or_default(), name].join("/")
}

fn run_index_keys(run: &TaskRun) -> Vec<String> {
    let mut index_keys = index_keys_of(run::RESOURCE.kind, run, &run.spec.agent_name);
    index_keys.push(task_key(run));
    index_keys
}

/// Builds the index key of all runs of a task.
fn task_key(run: &TaskRun) -> String {
    let task = format!("{}/{}", run.spec.task_id, run.spec.service_name);
    index_key("task", run.metadata.namespace.as_deref(), &task)
}

fn docs_index_keys(run: &DocsRun) -> Vec<String> {
    index_keys_of(docs::RESOURCE.kind, run, &run.spec.agent_name)
}

fn index_keys_of(kind: &str, run: &impl Resource, agent: &str) -> Vec<String> {
    let (namespace, uid) = (
        run.meta().namespace.as_deref(),
        run.uid().unwrap_or_default(),
    );
    vec![
        owned_by(kind, namespace.unwrap_or_default(), &uid),
        index_key("agent", namespace, agent),
    ]
}

fn agent_index_keys(agent: &Agent) -> Vec<String> {
    let spec = &agent.spec;
    let mut index_keys = vec![index_key(
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
        index_keys.extend(name.as_deref().map(|name| index_key(kind, None, name)));
    }
    index_keys
}

/// Drops the files of a run when the run is deleted.
fn forget_files<R: Resource + Send + Sync + 'static>(runs: &Cache<R>, contents: &Contents) {
    let contents = contents.clone();
    runs.on_change(move |change| {
        if let (None, Some(gone)) = (change.new, change.old)
            && let Some(uid) = &gone.meta().uid
        {
            contents.forget(uid);
        }
    });
}

/// Reconciles the active runs of an Agent when the Agent changes. They may wait for the Agent to exist or to become
/// ready. Finished runs are packed and wait for nothing.
fn enqueue_runs_of_agents<R: Send + Sync + 'static>(
    agents: &Cache<Agent>,
    runs: &Cache<R>,
    handle: &engine::Handle,
) {
    let (runs, handle) = (runs.clone(), handle.clone());
    agents.on_change(move |change| {
        let index_key = index_key("agent", change.key.namespace.as_deref(), &change.key.name);
        for key in runs.active_keys_of(&index_key) {
            handle.enqueue(&key);
        }
    });
}

/// Reconciles the active runs of a task when the run that may hold it ends, is deleted, or loses its last child.
fn enqueue_runs_of_task(runs: &Cache<TaskRun>, children: &Children, handle: &engine::Handle) {
    let enqueue_others = {
        let (runs, handle) = (runs.clone(), handle.clone());
        move |run: &TaskRun| {
            let own = Key::of(&run.metadata);
            for key in runs.active_keys_of(&task_key(run)) {
                if key != own {
                    handle.enqueue(&key);
                }
            }
        }
    };
    let enqueue = enqueue_others.clone();
    runs.on_change(move |change| {
        let Some(old) = change.old else { return };
        // A run that waited for another one held nothing. Without this check, many runs of one task would cause many
        // reconciliations of each other.
        let reason = |run: &TaskRun| run.status.as_ref()?.progress.reason.clone();
        let has_waited = reason(old).as_deref() == Some(Reason::TaskTaken.name());
        let has_ended = change.new.is_none_or(|new| is_over(new) && !is_over(old));
        if has_ended && !has_waited {
            enqueue(old);
        }
    });
    let runs = runs.clone();
    children.on_deleted(move |owner| {
        for run in runs.by_index(owner) {
            enqueue_others(&run);
        }
    });
}

/// Returns whether a run starts nothing any more.
fn is_over(run: &TaskRun) -> bool {
    run.metadata.deletion_timestamp.is_some() || run.status.as_ref().is_some_and(Status::is_over)
}

/// Caches of the objects that Agents reference. Only their existence matters.
#[derive(Debug, Clone)]
struct Classes {
    service_accounts: Cache<()>,
    runtime_classes: Cache<()>,
    priority_classes: Cache<()>,
    storage_classes: Cache<()>,
}

impl Classes {
    fn watch(watches: &mut WatchManager) -> Self {
        fn nothing<K>(_object: K) {}
        fn none(_nothing: &()) -> Vec<String> {
            Vec::new()
        }
        Self {
            service_accounts: watches.namespaced(
                ("", "serviceaccounts"),
                all(nothing::<ServiceAccount>, none),
            ),
            runtime_classes: watches.cluster(
                ("node.k8s.io", "runtimeclasses"),
                all(nothing::<RuntimeClass>, none),
            ),
            priority_classes: watches.cluster(
                ("scheduling.k8s.io", "priorityclasses"),
                all(nothing::<PriorityClass>, none),
            ),
            storage_classes: watches.cluster(
                ("storage.k8s.io", "storageclasses"),
                all(nothing::<StorageClass>, none),
            ),
        }
    }

    fn connect(&self, agents: &Cache<Agent>, handle: &engine::Handle) {
        for cache in [
            &self.service_accounts,
            &self.runtime_classes,
            &self.priority_classes,
            &self.storage_classes,
        ] {
            let (agents, handle, kind) = (agents.clone(), handle.clone(), cache.name());
            cache.on_change(move |change| {
                let index_key = index_key(kind, change.key.namespace.as_deref(), &change.key.name);
                for key in agents.keys_of(&index_key) {
                    handle.enqueue(&key);
                }
            });
        }
    }
}

/// Implementation of [`Kind`] for Agents.
struct AgentKind(Classes);

impl Kind for AgentKind {
    type Object = Agent;
    type Status = AgentStatus;
    type World = AgentWorld;
    const RESOURCE: ResourceType = agent::RESOURCE;
    const FINALIZER: &'static str = "agents.orchestrator.io/finalizer";

    fn status(object: &Agent) -> Option<&AgentStatus> {
        object.status.as_ref()
    }

    fn phase_spec(_object: &Agent) -> &() {
        &()
    }

    async fn observe(
        &self,
        agent: &Arc<Agent>,
        _now: Timestamp,
    ) -> Result<AgentWorld, ReconcileError> {
        let (spec, classes) = (&agent.spec, &self.0);
        let exists = |cache: &Cache<()>, name: &Option<String>| {
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
            service_account: classes.service_accounts.get(&account).is_some(),
            runtime_class: exists(&classes.runtime_classes, &spec.runtime_class_name),
            priority_class: exists(&classes.priority_classes, &spec.priority_class_name),
            storage_class: exists(&classes.storage_classes, &spec.workspace.storage_class_name),
        })
    }

    fn decide(input: &Input<'_, Agent, AgentWorld>) -> Decision<AgentStatus> {
        agent::decide(input)
    }
}

/// Shared inputs of decisions about TaskRuns and DocsRuns.
#[derive(Debug, Clone)]
struct RunCaches {
    agents: Cache<Agent>,
    children: Children,
    contents: Contents,
    defaults: Defaults,
}

impl RunCaches {
    fn of(&self, kind: &str, run: &impl Resource, agent: &str) -> RunWorld {
        let agent = Key {
            namespace: run.meta().namespace.clone(),
            name: agent.to_owned(),
        };
        let accept_changed = self.defaults.accept_changed_pods;
        RunWorld {
            agent: self.agents.get(&agent),
            children: self.children.of(kind, run, accept_changed),
            files: self.contents.of(run.meta()),
            holder: None,
            defaults: self.defaults.clone(),
        }
    }
}

/// Implementation of [`Kind`] for TaskRuns.
struct RunKind {
    run_caches: RunCaches,
    runs: Cache<TaskRun>,
}

impl RunKind {
    /// Returns another run that holds the task of this one.
    fn holder(&self, run: &TaskRun) -> Option<Holder> {
        let (active, ended) = self.runs.split_by_rest(&task_key(run));
        if active.len() + ended.len() < 2 {
            return None;
        }
        let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
        let uid = run.metadata.uid.as_deref().unwrap_or_default();
        let has_children = |uid: &str| {
            let children = &self.run_caches.children;
            children.exist(Self::RESOURCE.kind, namespace, uid)
        };
        let claim = |run: &TaskRun| Claim {
            name: run.name_any(),
            created: run.creation_timestamp().map(|created| created.0),
            has_children: has_children(run.metadata.uid.as_deref().unwrap_or_default()),
            has_finalizer: run.finalizers().iter().any(|name| name == Self::FINALIZER),
            is_over: is_over(run),
        };
        let others = active
            .iter()
            .filter(|other| other.metadata.uid.as_deref() != Some(uid));
        let ended = ended
            .into_iter()
            .filter(|(_, other)| other != uid)
            .map(|(key, uid)| Claim {
                name: key.name,
                created: None,
                has_children: has_children(&uid),
                has_finalizer: false,
                is_over: true,
            });
        let others = others.map(|other| claim(other)).chain(ended);
        holder(&claim(run), others)
    }
}

impl Kind for RunKind {
    type Object = TaskRun;
    type Status = TaskRunStatus;
    type World = RunWorld;
    const RESOURCE: ResourceType = run::RESOURCE;
    const FINALIZER: &'static str = "taskruns.orchestrator.io/finalizer";
    const ANNOTATIONS: &'static [&'static str] = &[names::PRESERVE];

    fn labels(run: &TaskRun) -> BTreeMap<&'static str, String> {
        run_labels(&run.spec)
    }

    fn status(object: &TaskRun) -> Option<&TaskRunStatus> {
        object.status.as_ref()
    }

    fn phase_spec(_object: &TaskRun) -> &() {
        &()
    }

    async fn observe(
        &self,
        run: &Arc<TaskRun>,
        _now: Timestamp,
    ) -> Result<RunWorld, ReconcileError> {
        let kind = Self::RESOURCE.kind;
        let world = self.run_caches.of(kind, run.as_ref(), &run.spec.agent_name);
        Ok(RunWorld {
            holder: if is_over(run) { None } else { self.holder(run) },
            ..world
        })
    }

    fn decide(input: &Input<'_, TaskRun, RunWorld>) -> Decision<TaskRunStatus> {
        run::decide(input)
    }
}

/// Implementation of [`Kind`] for DocsRuns.
struct DocsKind {
    run_caches: RunCaches,
    heads: Requests<HeadsRequest>,
    settings: Settings,
}

impl Kind for DocsKind {
    type Object = DocsRun;
    type Status = DocsRunStatus;
    type World = DocsWorld;
    const RESOURCE: ResourceType = docs::RESOURCE;
    const FINALIZER: &'static str = "docsruns.orchestrator.io/finalizer";
    const ANNOTATIONS: &'static [&'static str] = &[names::PRESERVE];

    fn labels(run: &DocsRun) -> BTreeMap<&'static str, String> {
        docs_labels(&run.spec)
    }

    fn status(object: &DocsRun) -> Option<&DocsRunStatus> {
        object.status.as_ref()
    }

    fn phase_spec(_object: &DocsRun) -> &() {
        &()
    }

    async fn observe(
        &self,
        run: &Arc<DocsRun>,
        now: Timestamp,
    ) -> Result<DocsWorld, ReconcileError> {
        let request = docs::question(run).map(|query| HeadsRequest::new(run, query));
        let status = run.status.as_ref();
        let answer = self.heads.ask(&run.metadata, status, request, now)?;
        Ok(DocsWorld {
            run: self
                .run_caches
                .of(Self::RESOURCE.kind, run.as_ref(), &run.spec.agent_name),
            answer,
            load: self.heads.load(&run.metadata),
            settings: self.settings.clone(),
        })
    }

    fn decide(input: &Input<'_, DocsRun, DocsWorld>) -> Decision<DocsRunStatus> {
        docs::decide(input)
    }
}
