//! Chooses the container whose log a request asks for. Pure.

use actions::Object;
use api::{names, tasks::DOCS_RUN};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};

use crate::{
    problem::{Problem, Reason},
    request::LogQuery,
    results::LogState,
};

/// The container in which the agent runs.
const AGENT: &str = "agent";

/// The containers of a DocsRun's Pod, in the order in which they run.
const STEPS: [&str; 3] = ["clone", AGENT, "publish"];

/// The variable of the agent with the number of its attempt.
const ATTEMPT: &str = "ORCHESTRATOR_ATTEMPT";

/// Where the log is.
#[derive(Debug, PartialEq)]
pub(crate) enum Choice {
    /// In this container, which has started. The state is that of the whole log.
    Container {
        pod: String,
        container: String,
        state: LogState,
    },
    /// There is no log.
    Nothing(LogState),
}

/// Chooses the container among the Pods of a run.
///
/// # Errors
/// The version is not in the cluster, or the run has no such container.
pub(crate) fn choose(run: &Object, pods: &[Pod], query: &LogQuery) -> Result<Choice, Problem> {
    check_version(run, query.version)?;
    let container = container_name(run, query.container.as_deref())?;
    let version = run.version();
    let recorded = run.at("status.attempts").as_u64();
    let recorded = recorded.filter(|_| run.recorded_version() == version);
    let recorded = recorded.map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX));
    let of_version = || pods.iter().filter(|pod| is_of_version(pod, version));
    let last = of_version().map(attempt).fold(recorded, u32::max);
    let wanted = query.attempt.unwrap_or(last);
    let pod = of_version()
        .filter(|pod| attempt(pod) == wanted)
        // After a disruption, an attempt has another Pod.
        .max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let Some(pod) = pod else {
        // An attempt that was counted had a Pod, or was about to get one.
        let had_pod = (1..=recorded).contains(&wanted) && run.outcome().is_some() || wanted < last;
        return Ok(Choice::Nothing(match had_pod {
            true => LogState::Lost,
            false => LogState::None,
        }));
    };
    let state = status(pod, container).and_then(|one| one.state.as_ref());
    let state = match state {
        Some(state) if state.terminated.is_some() => LogState::Complete,
        Some(state) if state.running.is_some() => LogState::Open,
        Some(_) | None => return Ok(Choice::Nothing(LogState::None)),
    };
    Ok(Choice::Container {
        pod: pod.metadata.name.clone().unwrap_or_default(),
        container: container.to_owned(),
        state,
    })
}

/// Checks that the wanted version is the current one. Only the archive has others.
///
/// # Errors
/// The run has another version.
pub(crate) fn check_version(run: &Object, wanted: Option<i64>) -> Result<(), Problem> {
    let current = run.version().unwrap_or(1);
    match wanted {
        Some(wanted) if wanted != current => Err(Problem::new(
            Reason::NotInstalled,
            format!(
                "{} is at version {current}; the archive, which has other versions, is not installed",
                run.name
            ),
        )),
        Some(_) | None => Ok(()),
    }
}

fn container_name(run: &Object, wanted: Option<&str>) -> Result<&'static str, Problem> {
    let wanted = wanted.unwrap_or(AGENT);
    let known: &[&'static str] = match *run.name.kind == DOCS_RUN {
        true => &STEPS,
        false => &[AGENT],
    };
    known
        .iter()
        .copied()
        .find(|name| *name == wanted)
        .ok_or_else(|| {
            let known = known.join("', '");
            Problem::invalid(format!(
                "parameter 'container': {} has the containers '{known}'",
                run.name
            ))
        })
}

/// Returns whether the Pod belongs to the version. A kind without versions has no such label.
fn is_of_version(pod: &Pod, version: Option<i64>) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(names::CONTEXT_VERSION));
    version.is_none_or(|version| label == Some(&version.to_string()))
}

/// Returns the number of the attempt, or 0 without a valid one.
fn attempt(pod: &Pod) -> u32 {
    let spec = pod.spec.iter();
    let all = spec.flat_map(|spec| {
        let init = spec.init_containers.iter().flat_map(|all| all.iter());
        init.chain(&spec.containers)
    });
    let agent = all.filter(|container: &&Container| container.name == AGENT);
    let mut variables = agent
        .flat_map(|container| container.env.iter())
        .flat_map(|all| all.iter());
    variables
        .find(|variable| variable.name == ATTEMPT)
        .and_then(|variable| variable.value.as_ref())
        .map_or(0, |number| number.parse().unwrap_or_default())
}

/// Returns whether this container of a Pod runs.
pub(crate) fn is_running(pod: &Pod, container: &str) -> bool {
    let state = status(pod, container).and_then(|one| one.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let all = lists.into_iter().flat_map(|list| list.iter());
    all.flat_map(|list| list.iter())
        .find(|one| one.name == name)
}

#[cfg(test)]
mod tests {
    use api::{kinds::KindRow, tasks::TASK_RUN};
    use serde_json::{Value, json};

    use super::*;

    fn run(kind: &'static KindRow, attempts: u32, is_finished: bool) -> Object {
        let condition = json!({ "type": "Finished", "status": "True", "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let conditions = if is_finished { vec![condition] } else { vec![] };
        let mut run = json!({
            "metadata": { "name": "shop-7" },
            "spec": { "contextVersion": 2 },
            "status": { "phase": "Running", "attempts": attempts, "contextVersion": 2,
                "conditions": conditions },
        });
        if *kind == DOCS_RUN {
            run["spec"] = json!({});
        }
        Object::new(kind, serde_json::from_value(run).unwrap())
    }

    fn pod(name: &str, version: u32, attempt: u32, state: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "context-version": version.to_string() },
                "creationTimestamp": format!("2026-01-01T00:00:0{attempt}Z") },
            "spec": { "containers": [{ "name": "agent",
                "env": [{ "name": ATTEMPT, "value": attempt.to_string() }] }] },
            "status": { "containerStatuses": [{ "name": "agent", "state": state, "image": "",
                "imageID": "", "ready": false, "restartCount": 0 }] },
        }))
        .unwrap()
    }

    #[test]
    fn the_newest_attempt_of_the_version_is_chosen() {
        let (runs, ended, waits) = (
            json!({ "running": {} }),
            json!({ "terminated": { "exitCode": 1 } }),
            json!({ "waiting": {} }),
        );
        let pods = [
            pod("old", 1, 9, &ended),
            pod("first", 2, 1, &ended),
            pod("second", 2, 2, &runs),
        ];
        let of = |name: &str, state| Choice::Container {
            pod: name.to_owned(),
            container: "agent".to_owned(),
            state,
        };
        let attempt = |number| LogQuery {
            attempt: Some(number),
            ..LogQuery::default()
        };
        let last = LogQuery::default();
        let task = run(&TASK_RUN, 2, false);
        let cases = [
            (&task, &pods[..], last.clone(), of("second", LogState::Open)),
            (
                &task,
                &pods[..2],
                attempt(1),
                of("first", LogState::Complete),
            ),
            (
                &task,
                &pods[2..],
                attempt(1),
                Choice::Nothing(LogState::Lost),
            ),
            (
                &task,
                &pods[..],
                attempt(3),
                Choice::Nothing(LogState::None),
            ),
            (
                &task,
                &pods[..1],
                last.clone(),
                Choice::Nothing(LogState::None),
            ),
        ];
        for (run, pods, query, wanted) in cases {
            assert_eq!(choose(run, pods, &query).unwrap(), wanted, "{query:?}");
        }
        let finished = run(&TASK_RUN, 2, true);
        let gone = choose(&finished, &[], &last).unwrap();
        assert_eq!(gone, Choice::Nothing(LogState::Lost));
        let new = run(&TASK_RUN, 0, false);
        let none = choose(&new, &[], &last).unwrap();
        assert_eq!(none, Choice::Nothing(LogState::None));
        let starting = choose(&new, &[pod("p", 2, 1, &waits)], &last).unwrap();
        assert_eq!(starting, Choice::Nothing(LogState::None));
    }

    #[test]
    fn what_the_cluster_does_not_have_is_named() {
        let task = run(&TASK_RUN, 1, false);
        let old = LogQuery {
            version: Some(1),
            ..LogQuery::default()
        };
        let problem = choose(&task, &[], &old).unwrap_err();
        assert_eq!(problem.reason, Reason::NotInstalled);
        assert!(problem.detail.contains("is at version 2"), "{problem:?}");
        let step = LogQuery {
            container: Some("clone".to_owned()),
            ..LogQuery::default()
        };
        let problem = choose(&task, &[], &step).unwrap_err();
        assert_eq!(problem.reason.status(), 400);
        assert!(choose(&run(&DOCS_RUN, 1, false), &[], &step).is_ok());
    }
}
