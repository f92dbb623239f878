//! Random specs that match the schemas of the CRDs, with odd Agents, worlds and statuses. Every
//! object that the types can parse is decided, and every child that is built from it is valid.
//!
//! `ORCHESTRATOR_FUZZ=200000` decides that many cases.

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use api::decide::Manifest;
use serde::{Serialize, de::DeserializeOwned};
use testkit::{
    faults::specs::{self, Catalogue, Random},
    seed::scaled,
};

use super::{
    generator::{Rng, around, text},
    properties::{check, in_parallel},
    *,
};
use crate::agent::AgentWorld;

/// Returns the number of cases of one kind, given its share of all in hundredths.
pub(in crate::run) fn cases(hundredths: u64) -> u64 {
    let all = match std::env::var("ORCHESTRATOR_FUZZ") {
        Ok(count) => count.parse().expect("ORCHESTRATOR_FUZZ is a number"),
        Err(_) => scaled(2_000, 5_000),
    };
    all * hundredths / 100
}

/// Counts of the cases by result.
#[derive(Default)]
pub(in crate::run) struct Tally {
    decided: AtomicU64,
    refused: AtomicU64,
    built: AtomicU64,
}

impl Tally {
    /// Prints the counts. Too few mean that the generator no longer fits the types.
    pub(in crate::run) fn print(&self, kind: &str, cases: u64, has_children: bool) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (decided, refused) = (read(&self.decided), read(&self.refused));
        let built = read(&self.built);
        println!("{kind}: {decided} decided, {refused} refused by the types, {built} built");
        assert!(decided * 10 > cases * 9, "most are decided");
        assert!(!has_children || built * 10 > decided, "some are built");
    }

    /// Checks that built children are valid. Their type can parse them, their name and labels are
    /// valid, and they fit into etcd. Their containers have no more privileges than a run may have.
    pub(in crate::run) fn check_built(&self, effects: &[Effect]) {
        for effect in effects {
            // A manifest that is only compared has the name of an observed object.
            if let Effect::Ensure(manifest) = effect
                && !manifest.existing
            {
                self.built.fetch_add(1, Ordering::Relaxed);
                check_manifest(manifest);
            }
        }
    }
}

fn check_manifest(manifest: &Manifest) {
    let Manifest {
        resource,
        name,
        body,
        ..
    } = manifest;
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_name = name.len() <= 63
        && name.starts_with(is_plain)
        && name.ends_with(is_plain)
        && name.chars().all(|letter| is_plain(letter) || letter == '-');
    assert!(is_name, "the name '{name}'");
    check_labels(&body["metadata"]["labels"]);
    match resource.kind {
        "ConfigMap" => {
            let map: ConfigMap = serde_json::from_value(body.clone()).unwrap();
            let data = map.data.unwrap_or_default();
            let bytes: usize = data
                .iter()
                .map(|(name, text)| name.len() + text.len())
                .sum();
            assert!(bytes < 1024 * 1024, "{bytes} bytes");
        }
        "Job" => {
            let job: Job = serde_json::from_value(body.clone()).unwrap();
            assert!(job_view(&job).terms.is_some(), "{body}");
            // The schema checks the labels that an Agent adds. None of them replaces ours.
            let labels = &body["spec"]["template"]["metadata"]["labels"];
            for (key, value) in body["metadata"]["labels"].as_object().unwrap() {
                assert_eq!(labels[key], *value, "{key}");
            }
            check_pod(&body["spec"]["template"]["spec"]);
        }
        other => panic!("builds a {other}"),
    }
}

fn check_labels(labels: &Value) {
    let Some(labels) = labels.as_object() else {
        return;
    };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric();
    for (key, value) in labels {
        let value = value.as_str().expect("a label is a text");
        let is_label = value.len() <= 63
            && value
                .chars()
                .all(|one| is_plain(one) || "-_.".contains(one))
            && (value.is_empty() || value.starts_with(is_plain) && value.ends_with(is_plain));
        assert!(is_label, "{key}: '{value}'");
    }
}

/// Checks that a Pod has no root user, no privileges, and no access to the node.
fn check_pod(pod: &Value) {
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["restartPolicy"], "Never");
    for key in ["hostNetwork", "hostPID", "hostIPC", "nodeName"] {
        assert!(pod[key].is_null(), "{key}");
    }
    let lists = ["initContainers", "containers"].map(|key| pod[key].as_array());
    for container in lists
        .iter()
        .flat_map(|list| list.iter().flat_map(|list| list.iter()))
    {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
        assert!(context["privileged"].is_null(), "{context}");
        assert_ne!(context["runAsUser"], 0);
    }
    let volumes = pod["volumes"].as_array();
    for volume in volumes.into_iter().flat_map(|list| list.iter()) {
        assert!(volume["hostPath"].is_null(), "{volume}");
    }
}

fn catalogues(kind: &str) -> &'static [Catalogue] {
    static ALL: OnceLock<BTreeMap<String, Vec<Catalogue>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut kinds: BTreeMap<String, Vec<Catalogue>> = BTreeMap::new();
        for catalogue in specs::tasks().unwrap() {
            let list = kinds.entry(catalogue.kind.clone()).or_default();
            list.push(catalogue);
        }
        kinds
    });
    &all[kind]
}

/// Returns any spec of a kind.
fn any_spec(kind: &str, rng: &mut Rng) -> Value {
    let catalogue = rng.pick(catalogues(kind));
    let mut random = Random::new(rng.next());
    let mut spec = catalogue.any(&mut random).expect("it has changes").spec;
    for _ in 0..rng.below(3) {
        mutate(&mut spec, rng);
    }
    spec
}

const TIMES: &[&str] = &[
    "1970-01-01T00:00:00Z",
    "2030-01-01T00:00:00Z",
    "2030-01-01T00:00:10.999999999Z",
    "9999-12-30T22:00:00Z",
    "0001-01-01T00:00:00Z",
    "-009999-01-02T01:59:59Z",
];
const DURATIONS: &[&str] = &[
    "0s", "1ms", "1s", "59m", "168h", "999999h", "2562047h", "1h1m1s", "-1s", "0.001s", "",
];
const NUMBERS: &[i64] = &[
    0,
    1,
    2,
    6,
    -1,
    10,
    4096,
    i32::MAX as i64,
    u32::MAX as i64,
    i64::MAX,
    i64::MIN,
];

/// Changes a part of the value, mostly to a value of the same type.
fn mutate(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Object(fields) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            if keys.is_empty() {
                return;
            }
            let key = rng.pick(&keys).clone();
            if rng.one_in(12) {
                fields.remove(&key);
            } else if let Some(field) = fields.get_mut(&key) {
                mutate(field, rng);
            }
        }
        Value::Array(entries) => match (entries.is_empty(), rng.below(8)) {
            (true, _) => {}
            (false, 0) => entries.clear(),
            (false, 1) => entries.reverse(),
            (false, 2) => {
                let first = entries[0].clone();
                entries.push(first);
            }
            (false, _) => {
                let index = rng.below(entries.len() as u64);
                mutate(&mut entries[usize::try_from(index).unwrap()], rng);
            }
        },
        Value::String(old) => {
            let is_duration = old.starts_with(|first: char| first.is_ascii_digit())
                && old.ends_with(['s', 'm', 'h']);
            let is_time = old.ends_with('Z') && old.contains('T');
            *old = match (is_time, is_duration, rng.below(12)) {
                (_, _, 0) => text(rng),
                (true, _, _) => (*rng.pick(TIMES)).to_owned(),
                (_, true, _) => (*rng.pick(DURATIONS)).to_owned(),
                // Not joined directly: the duration parser in kube 5.0 panics on "-1s-1s".
                (false, false, 1) => format!("{old}.{old}"),
                (false, false, 2) => old.chars().rev().collect(),
                (false, false, 3) => "ü".repeat(300),
                (false, false, _) => text(rng),
            };
        }
        Value::Number(_) => *value = json!(rng.pick(NUMBERS)),
        Value::Bool(is_so) => *is_so = !*is_so,
        Value::Null => {}
    }
}

/// Returns the same object with any spec that the types accept.
pub(in crate::run) fn any_object<T: Serialize + DeserializeOwned>(
    object: &T,
    kind: &str,
    rng: &mut Rng,
    tally: &Tally,
) -> Option<T> {
    let mut json = serde_json::to_value(object).unwrap();
    for _ in 0..8 {
        json["spec"] = any_spec(kind, rng);
        match serde_json::from_value(json.clone()) {
            Ok(object) => {
                tally.decided.fetch_add(1, Ordering::Relaxed);
                return Some(object);
            }
            Err(_refused) => tally.refused.fetch_add(1, Ordering::Relaxed),
        };
    }
    None
}

/// Returns the value with a part of it changed, or unchanged if JSON or the types cannot hold the
/// change.
pub(in crate::run) fn odd<T: Serialize + DeserializeOwned + Clone>(value: &T, rng: &mut Rng) -> T {
    let Ok(mut json) = serde_json::to_value(value) else {
        return value.clone();
    };
    for _ in 0..=rng.below(4) {
        mutate(&mut json, rng);
    }
    serde_json::from_value(json).unwrap_or_else(|_| value.clone())
}

/// Returns an Agent with any spec that the types accept, and a secret in it. The Agent is often
/// ready.
pub(in crate::run) fn any_agent(rng: &mut Rng) -> Agent {
    let plain = agent(json!({}));
    let found = any_object(&plain, "Agent", rng, &Tally::default());
    let mut agent = found.unwrap_or_else(|| plain.clone());
    agent.spec.env.extend(plain.spec.env);
    if rng.one_in(6) {
        agent.status = agent.status.map(|status| odd(&status, rng));
    }
    agent
}

/// Returns whether the CRDs allow every limit. The rules of decisions apply only to those: a wait
/// of zero length ends when it begins.
pub(in crate::run) fn has_time(
    agent: &Agent,
    timeout: Option<api::Duration>,
    retry: Option<&api::tasks::Retry>,
) -> bool {
    let spec = &agent.spec;
    let backoffs = [Some(&spec.retry), retry].map(|retry| retry.map(|retry| &retry.backoff));
    let waits = backoffs
        .iter()
        .filter_map(|backoff| backoff.map(|backoff| [backoff.initial, backoff.max]))
        .flat_map(|waits| waits.into_iter());
    let limits = [Some(spec.start_timeout), Some(spec.timeout), timeout];
    let limits = limits.iter().filter_map(|limit| *limit);
    let mut all = waits.chain(limits);
    all.all(|limit| !limit.is_negative() && Duration::from(limit) >= Duration::from_secs(1))
}

/// Returns whether all waits are whole seconds, as the rules of the cleanup require.
fn has_whole_seconds(keep: Option<api::tasks::ChildTtl>) -> bool {
    let waits = keep.map(|keep| [keep.succeeded, keep.failed]);
    let mut waits = waits
        .iter()
        .flat_map(|waits| waits.iter().filter_map(|wait| *wait));
    waits.all(|wait| !wait.is_negative() && Duration::from(wait).subsec_nanos() == 0)
}

/// Simulates a run from its start to its end, in a world with nothing else in it.
fn live(mut scene: Scene, is_lawful: bool, rng: &mut Rng, tally: &Tally) {
    let pass = |scene: &mut Scene| {
        let decision = scene.decide();
        if is_lawful {
            check(scene, &decision);
        }
        tally.check_built(&decision.effects);
        scene.pass();
    };
    pass(&mut scene);
    for second in [11, 30, 60] {
        scene.now = at(second);
        if scene.world.children.jobs.is_empty() {
            pass(&mut scene);
            continue;
        }
        match rng.below(3) {
            0 => {
                scene.pod(running(10));
            }
            1 => {
                scene.pod(ended(0, second - 1, &text(rng)));
                scene.complete();
            }
            _ => {
                scene.pod(ended(1, second - 1, &text(rng)));
                scene.fail();
            }
        }
        pass(&mut scene);
    }
}

#[test]
fn whatever_a_run_asks_for_is_decided() {
    let tally = Tally::default();
    in_parallel(cases(45), |seed| {
        let mut rng = Rng::new(seed ^ 0xf0_22);
        let rng = &mut rng;
        let Some(run) = any_object(&run(json!({})), "TaskRun", rng, &tally) else {
            return;
        };
        let agent = any_agent(rng);
        let is_lawful = has_time(&agent, run.spec.timeout, run.spec.retry.as_ref())
            && has_whole_seconds(run.spec.child_ttl)
            && run.spec.context_version >= 1;
        if rng.one_in(2) {
            return live(Scene::new(run, Some(agent)), is_lawful, rng, &tally);
        }
        let spec = run.spec.clone();
        let (mut scene, fault) = around(rng, run);
        if rng.one_in(2) {
            scene.run.spec = spec;
        }
        scene.world.agent = rng.maybe(|_| Arc::new(agent));
        let is_odd = rng.one_in(2);
        if is_odd {
            scene.run.status = scene.run.status.map(|status| odd(&status, rng));
        }
        let decision = scene.decide_with(fault.as_ref());
        // The rules apply to statuses that we write.
        if is_lawful && !is_odd {
            check(&scene, &decision);
        }
        tally.check_built(&decision.effects);
        assert_eq!(scene.decide_with(fault.as_ref()), decision);
        let stored = scene.run.status.clone().unwrap_or_default();
        let status = decision.next_status(&stored, &phase_input(), 2, scene.now);
        assert_eq!(status.progress.observed_generation, 2);
    });
    tally.print("TaskRun", cases(45), true);
}

#[test]
fn whatever_an_agent_is_it_is_decided() {
    let tally = Tally::default();
    in_parallel(cases(20), |seed| {
        let mut rng = Rng::new(seed ^ 0xa6e7);
        let rng = &mut rng;
        let Some(mut agent) = any_object(&agent(json!({})), "Agent", rng, &tally) else {
            return;
        };
        agent.status = rng.maybe(|rng| odd(&agent.status.unwrap_or_default(), rng));
        let world = AgentWorld {
            service_account: rng.one_in(2),
            runtime_class: rng.one_in(2),
            priority_class: rng.one_in(2),
            storage_class: rng.one_in(2),
        };
        let input = Input {
            object: &agent,
            world: &world,
            now: rng.time(),
            fault: None,
            refused: false,
            confirmed: true,
            overdue: false,
        };
        let decision = crate::agent::decide(&input);
        assert_eq!(crate::agent::decide(&input), decision);
        assert!(decision.effects.is_empty());
        let message = &decision.verdict.message;
        assert!(!message.is_empty() && message.chars().count() <= api::status::MAX_MESSAGE_CHARS);
        assert!(!message.chars().any(char::is_control), "{message:?}");
        let stored = agent.status.clone().unwrap_or_default();
        let status = decision.next_status(&stored, &phase_input(), 2, start());
        assert_eq!(status.progress.observed_generation, 2);
        let spec = &agent.spec;
        let misses = [
            (world.service_account, true),
            (world.runtime_class, spec.runtime_class_name.is_some()),
            (world.priority_class, spec.priority_class_name.is_some()),
            (
                world.storage_class,
                spec.workspace.storage_class_name.is_some(),
            ),
        ];
        let is_missing = misses
            .iter()
            .any(|(is_there, is_named)| *is_named && !is_there);
        assert_eq!(decision.phase == AgentPhase::Pending, is_missing);
    });
    tally.print("Agent", cases(20), false);
}
