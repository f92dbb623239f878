//! Changes of live objects' specs, made from the CRDs' schemas: refused with words and nothing
//! touched, or taken and reported; and back again.
//!
//! Every object is read by watches of our own. Nothing here runs a container: the cluster has no node, or
//! one that takes no Pods, and no repository is ever asked. Only the kinds of the tasks operator are known.

mod report;
mod rest;
mod verdict;
mod watched_objects;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use testkit::{
    cluster::{Cluster, Tier},
    faults::specs::{self, Expect, Transition},
    operator::{self, Operator, Plan},
    suite,
};
use tokio::task::JoinSet;

pub(crate) use report::Report;
use report::{Count, Played};
use rest::process;
use watched_objects::WatchedObjects;

/// How many objects are changed at a time: each waits more than it works.
const PARALLEL: usize = 40;
/// For a change that was taken to be in the status.
const SEEN: Duration = Duration::from_secs(5);
/// The same for a new object: its first record may wait for ten seconds.
const FIRST: Duration = Duration::from_secs(20);
/// For an object to come to rest, and for its status to be again what it was.
const REST: Duration = Duration::from_secs(20);
/// For an object to be gone.
const GONE: Duration = Duration::from_secs(20);
/// How long nothing may be written at the end.
const QUIET: Duration = Duration::from_secs(5);

const NAMESPACE: &str = "transitions";

/// Plays so many transitions, chosen by a seed, on a cluster and an operator of its own.
///
/// # Errors
/// When there is no cluster, no operator, or an answer of the API server that is neither yes nor no.
pub(crate) async fn run(count: usize, seed: u64) -> Result<Report> {
    let chosen = chosen(count, seed)?;
    alone(chosen, seed).await
}

/// The same on this cluster, in a namespace of its own. If the cluster has a real node, that takes no Pods
/// from now on.
///
/// # Errors
/// As [`run`].
pub(crate) async fn on(cluster: &Cluster, count: usize, seed: u64) -> Result<Report> {
    let chosen = chosen(count, seed)?;
    if cluster.tier == Tier::Node {
        cordon(&cluster.client().await?).await?;
    }
    play_all(cluster, chosen, seed).await
}

/// Plays the transition of this name, as a report prints it.
///
/// # Errors
/// As [`run`], and when there is none of that name.
pub(crate) async fn run_only(name: &str) -> Result<Report> {
    let one = specs::find(&specs::tasks()?, name)
        .with_context(|| format!("there is no transition '{name}'"))?;
    alone(vec![one], 0).await
}

fn chosen(count: usize, seed: u64) -> Result<Vec<Transition>> {
    let chosen = specs::choose(&specs::tasks()?, count, seed);
    ensure!(
        chosen.len() == count,
        "there are only {} transitions",
        chosen.len()
    );
    Ok(chosen)
}

async fn alone(chosen: Vec<Transition>, seed: u64) -> Result<Report> {
    let name = format!("transitions-{}", std::process::id());
    let cluster = Cluster::start(&name, Tier::Api).await?;
    let report = play_all(&cluster, chosen, seed).await;
    cluster.stop().await?;
    report
}

/// No node takes new Pods: images that do not exist are not pulled.
async fn cordon(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ListParams::default()).await? {
        let name = node.metadata.name.unwrap_or_default();
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
        nodes.patch(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

async fn play_all(cluster: &Cluster, chosen: Vec<Transition>, seed: u64) -> Result<Report> {
    let stage = Arc::new(Stage::up(cluster).await?);
    let mut report = Report::new(seed, stage.memory()?);
    let begin = Instant::now();
    let count = chosen.len();
    let chosen = Arc::new(Mutex::new(VecDeque::from(chosen)));
    let mut workers = JoinSet::new();
    for _ in 0..PARALLEL.min(count) {
        let (stage, chosen) = (Arc::clone(&stage), Arc::clone(&chosen));
        workers.spawn(async move { work(&stage, &chosen).await });
    }
    while let Some(ended) = workers.join_next().await {
        for played in ended?? {
            report.add(played);
        }
    }
    report.took = begin.elapsed();
    stage.at_rest(cluster, &mut report).await?;
    report.violations.extend(stage.objects.violations());
    Ok(report)
}

/// One after the other, on objects that are used again as long as they can be.
async fn work(stage: &Stage, chosen: &Mutex<VecDeque<Transition>>) -> Result<Vec<Played>> {
    let mut bases: BTreeMap<String, Base> = BTreeMap::new();
    let mut done = Vec::new();
    loop {
        let next = chosen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        let Some(transition) = next else {
            return Ok(done);
        };
        let played = stage
            .play(&transition, &mut bases)
            .await
            .with_context(|| transition.name.clone())?;
        done.push(played);
    }
}

/// An object at rest, with the spec that transitions begin with.
struct Base {
    name: String,
    spec: Value,
    /// Its status at rest, without times.
    status: Value,
}

/// What the API server said to a spec.
enum Answer {
    Taken(Box<DynamicObject>),
    Refused(String),
}

/// A cluster with an operator, and the objects on it.
struct Stage {
    client: Client,
    operator: Operator,
    /// Number and start time of the operator's process.
    process: (u32, String),
    objects: WatchedObjects,
    kinds: BTreeMap<String, ApiResource>,
    made: AtomicU64,
}

impl Stage {
    async fn up(cluster: &Cluster) -> Result<Self> {
        let (client, config) = (cluster.client().await?, cluster.config().await?);
        operator::install(&client, api::tasks::OPERATOR.crds()).await?;
        suite::new_namespace(&client, json!({ "name": NAMESPACE })).await?;
        let kinds = resources();
        let objects = WatchedObjects::open(&client, NAMESPACE, kinds.values());
        let plan = Plan {
            watched: vec![NAMESPACE.to_owned()],
            ..Plan::new(operator::built()?, &api::tasks::OPERATOR, NAMESPACE)
        };
        let operator = Operator::start(&client, &config, &plan).await?;
        let process = process(&operator)?;
        let stage = Self {
            client,
            operator,
            process,
            objects,
            kinds,
            made: AtomicU64::new(0),
        };
        stage.agent().await?;
        Ok(stage)
    }

    /// The Agent that the runs name.
    async fn agent(&self) -> Result<()> {
        let spec = json!({"image": "agents/writer:1"});
        let answer = self.create("Agent", specs::AGENT, &spec).await?;
        let Answer::Taken(_) = answer else {
            bail!("the Agent of the runs was refused")
        };
        let rest = self.rest("Agent", specs::AGENT, 1).await?;
        rest.map_err(|last| anyhow::anyhow!("the Agent of the runs is not ready: {last}"))?;
        Ok(())
    }

    fn api(&self, kind: &str) -> Result<Api<DynamicObject>> {
        let resource = self
            .kinds
            .get(kind)
            .with_context(|| format!("no kind '{kind}'"))?;
        Ok(Api::namespaced_with(
            self.client.clone(),
            NAMESPACE,
            resource,
        ))
    }

    async fn play(
        &self,
        transition: &Transition,
        bases: &mut BTreeMap<String, Base>,
    ) -> Result<Played> {
        let Transition {
            name, kind, expect, ..
        } = transition;
        let title = name.split(':').next().unwrap_or_default().to_owned();
        let mut played = Played::new(name, kind);
        let base = match bases.remove(&title) {
            Some(base) => base,
            None => match self.base(transition).await? {
                Ok(base) => base,
                Err(why) => {
                    played.fault(format!("its base does not come to rest: {why}"));
                    return Ok(played);
                }
            },
        };
        // What makes the base the only one of its name stays, unless it is what changes.
        let mut wanted = transition.spec.clone();
        if wanted.get("serviceName") == transition.base.get("serviceName")
            && let Some(own) = base.spec.get("serviceName")
        {
            wanted["serviceName"] = own.clone();
        }
        let patch = specs::merge_patch(&base.spec, &wanted);
        match self.patch(kind, &base.name, patch).await? {
            Answer::Refused(words) => {
                self.check_untouched(kind, &base, &words, &mut played)
                    .await?;
                bases.insert(title, base);
                match expect {
                    Expect::Taken => played.fault(format!("refused: {words}")),
                    Expect::Maybe if kind != "Agent" => {
                        self.play_new(transition, &mut played).await?;
                    }
                    Expect::Maybe | Expect::Refused => {}
                }
            }
            Answer::Taken(object) => {
                played.outcome = Count::Taken;
                if *expect == Expect::Refused {
                    played.fault("taken, though the schema forbids it".to_owned());
                }
                if self.play_taken(kind, &base, &object, &mut played).await? {
                    bases.insert(title, base);
                } else {
                    self.delete(kind, &base.name, &mut played).await?;
                }
            }
        }
        Ok(played)
    }

    /// Makes an object to begin with, and waits until it is at rest.
    async fn base(&self, transition: &Transition) -> Result<Result<Base, String>> {
        let (kind, name) = (&transition.kind, self.new_name());
        let mut spec = transition.base.clone();
        if spec.get("serviceName").is_some() {
            spec["serviceName"] = json!(name);
        }
        let object = match self.create(kind, &name, &spec).await? {
            Answer::Refused(words) => return Ok(Err(words)),
            Answer::Taken(object) => object,
        };
        let generation = object.metadata.generation.unwrap_or_default();
        Ok(self
            .rest(kind, &name, generation)
            .await?
            .map(|rested| Base {
                name,
                spec: object.data["spec"].clone(),
                status: verdict::canonical(&rested.data["status"]),
            }))
    }

    /// A change that was taken is judged, and taken back; whether the object can be used again.
    async fn play_taken(
        &self,
        kind: &str,
        base: &Base,
        object: &DynamicObject,
        played: &mut Played,
    ) -> Result<bool> {
        let Some(changed) = self.judge(kind, object, SEEN, played).await? else {
            return Ok(false);
        };
        if kind == "Agent" {
            self.play_run(&base.name, played).await?;
        }
        let back = specs::merge_patch(&object.data["spec"], &base.spec);
        let restored = match self.patch(kind, &base.name, back).await? {
            Answer::Taken(restored) => restored,
            Answer::Refused(words) => {
                ensure!(!words.is_empty(), "refused without words");
                return Ok(false);
            }
        };
        if self.judge(kind, &restored, SEEN, played).await?.is_none() {
            return Ok(false);
        }
        // What has ended, or begun, by the change does not come undone.
        let changed = &changed.data["status"];
        let wanted = match verdict::is_finished(changed) {
            true => verdict::canonical(changed),
            false => base.status.clone(),
        };
        let has_begun = changed["attempts"] != base.status["attempts"];
        let is_back = |object: &DynamicObject| {
            let status = &object.data["status"];
            if has_begun {
                verdict::reason(status) == verdict::reason(&wanted)
            } else {
                verdict::canonical(status) == wanted
            }
        };
        let (name, kind) = (&base.name, kind.to_owned());
        if let Err(last) = self.objects.until(&kind, name, REST, is_back).await {
            let status = last.map(|object| verdict::canonical(&object.data["status"]));
            let status = status.unwrap_or_default();
            played.fault(format!(
                "the status does not come back: {status} is not {wanted}"
            ));
            return Ok(false);
        }
        Ok(wanted == base.status && !has_begun)
    }

    /// A run on this Agent: what was taken can be worked with, or the run says that it cannot.
    async fn play_run(&self, agent: &str, played: &mut Played) -> Result<()> {
        let name = self.new_name();
        let spec = json!({
            "taskId": 7, "serviceName": name, "agentName": agent,
            "markdownFiles": [{"filename": "task.md", "content": "do it"}],
        });
        let Answer::Taken(_) = self.create("TaskRun", &name, &spec).await? else {
            bail!("a run was refused")
        };
        match self.rest("TaskRun", &name, 1).await? {
            Err(last) => played.fault(format!("a run on it does not come to rest: {last}")),
            Ok(run) => {
                let status = &run.data["status"];
                let reason = verdict::reason(status).unwrap_or_default();
                if reason == "InvalidChild" {
                    played.note = Some(format!("no Job can be made of it: {}", status["message"]));
                } else {
                    let faults = verdict::faults("TaskRun", &run).into_iter();
                    faults.for_each(|fault| played.fault(format!("a run on it: {fault}")));
                }
                played.reasons.push(reason);
            }
        }
        self.delete("TaskRun", &name, played).await
    }

    /// What cannot be changed is tried on a new object.
    async fn play_new(&self, transition: &Transition, played: &mut Played) -> Result<()> {
        let Transition {
            kind, base, spec, ..
        } = transition;
        let mut spec = spec.clone();
        let name = self.new_name();
        let is_same = |key: &str| spec.get(key).is_some() && spec.get(key) == base.get(key);
        // Two runs of one service and task would want the same children.
        if is_same("serviceName") {
            spec["serviceName"] = json!(name);
        } else if is_same("taskId") {
            spec["taskId"] = json!(1000 + self.made.load(Ordering::Relaxed));
        }
        match self.create(kind, &name, &spec).await? {
            Answer::Refused(words) => {
                if words.is_empty() {
                    played.fault("refused without words".to_owned());
                }
            }
            Answer::Taken(object) => {
                played.outcome = Count::New;
                self.judge(kind, &object, FIRST, played).await?;
                self.delete(kind, &name, played).await?;
            }
        }
        Ok(())
    }

    /// Waits until the status speaks of this generation, and judges it; nothing if it never does.
    async fn judge(
        &self,
        kind: &str,
        object: &DynamicObject,
        limit: Duration,
        played: &mut Played,
    ) -> Result<Option<DynamicObject>> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let generation = object.metadata.generation.unwrap_or_default();
        let begin = Instant::now();
        let is_seen = |object: &DynamicObject| verdict::observed(object) >= generation;
        match self.objects.until(kind, &name, limit, is_seen).await {
            Ok(seen) => {
                if limit == SEEN {
                    played.waits.push(begin.elapsed());
                }
                let faults = verdict::faults(kind, &seen);
                faults.into_iter().for_each(|fault| played.fault(fault));
                played.reasons.extend(verdict::reason(&seen.data["status"]));
                Ok(Some(seen))
            }
            Err(last) => {
                let status = last.map(|object| object.data["status"].to_string());
                played.fault(format!(
                    "generation {generation} is not in its status after {} s: {}",
                    limit.as_secs(),
                    status.unwrap_or_default()
                ));
                Ok(None)
            }
        }
    }

    /// Waits until it speaks of this generation and of more than that work goes on.
    async fn rest(
        &self,
        kind: &str,
        name: &str,
        generation: i64,
    ) -> Result<Result<DynamicObject, String>> {
        let is_at_rest = |object: &DynamicObject| {
            let reason = verdict::reason(&object.data["status"]);
            verdict::observed(object) >= generation
                && reason.is_some_and(|reason| reason != "Progressing")
        };
        let seen = self.objects.until(kind, name, REST, is_at_rest).await;
        Ok(seen.map_err(|last| {
            last.map_or_else(String::new, |object| object.data["status"].to_string())
        }))
    }

    /// What was refused left no trace.
    async fn check_untouched(
        &self,
        kind: &str,
        base: &Base,
        words: &str,
        played: &mut Played,
    ) -> Result<()> {
        if words.is_empty() {
            played.fault("refused without words".to_owned());
        }
        let stored = self.api(kind)?.get(&base.name).await?;
        let status = verdict::canonical(&stored.data["status"]);
        if stored.data["spec"] != base.spec {
            played.fault("refused, and the spec is another".to_owned());
        }
        if status != base.status {
            let before = &base.status;
            played.fault(format!("refused, and the status is {status}, not {before}"));
        }
        Ok(())
    }

    async fn delete(&self, kind: &str, name: &str, played: &mut Played) -> Result<()> {
        let api = self.api(kind)?;
        api.delete(name, &DeleteParams::default()).await?;
        if let Err(last) = self.objects.gone(kind, name, GONE).await {
            played.fault(format!(
                "not gone after {} s: {}",
                GONE.as_secs(),
                last.data["status"]
            ));
        }
        Ok(())
    }

    fn new_name(&self) -> String {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        format!("t{number}")
    }

    async fn create(&self, kind: &str, name: &str, spec: &Value) -> Result<Answer> {
        let resource = self.kinds.get(kind).context("no such kind")?;
        let mut object = DynamicObject::new(name, resource);
        object.data = json!({ "spec": spec });
        let made = self
            .api(kind)?
            .create(&PostParams::default(), &object)
            .await;
        answer(made)
    }

    async fn patch(&self, kind: &str, name: &str, spec: Value) -> Result<Answer> {
        let patch = json!({ "spec": spec });
        let params = PatchParams::default();
        answer(
            self.api(kind)?
                .patch(name, &params, &Patch::Merge(&patch))
                .await,
        )
    }
}

/// The kinds of the operator, by name.
fn resources() -> BTreeMap<String, ApiResource> {
    let resource = |crd: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
        let spec = crd.spec;
        let version = spec.versions.into_iter().next()?.name;
        let resource = ApiResource {
            api_version: format!("{}/{version}", spec.group),
            group: spec.group,
            version,
            kind: spec.names.kind.clone(),
            plural: spec.names.plural,
        };
        Some((spec.names.kind, resource))
    };
    api::tasks::OPERATOR
        .crds()
        .into_iter()
        .filter_map(resource)
        .collect()
}

/// A spec that does not fit is refused with these codes; anything else is a failure of the test.
fn answer(said: kube::Result<DynamicObject>) -> Result<Answer> {
    match said {
        Ok(object) => Ok(Answer::Taken(Box::new(object))),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 413 | 422) => {
            Ok(Answer::Refused(status.message))
        }
        Err(error) => Err(error.into()),
    }
}
