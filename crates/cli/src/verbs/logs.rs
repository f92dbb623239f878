//! `logs`

use std::time::Duration;

use actions::{Error, Request};
use api::{
    names,
    tasks::{Evidence, TaskRun},
};
use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};

use crate::{
    Exit,
    arguments::Logs,
    failure::Failure,
    related,
    session::{Server, Session, ask},
    text::{clean, moment},
    view::CONTAINER,
};

/// How often a container that has not started is looked at.
const PERIOD: Duration = Duration::from_secs(1);

pub(crate) async fn perform(verb: Logs, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let name = verb.run.0;
    let mut said = String::new();
    loop {
        let run = related::run(&server, &name).await?;
        let pods = related::pods(&server, &run).await?;
        let attempt = verb.attempt.unwrap_or_else(|| last_attempt(&run, &pods));
        let pod = of_attempt(&pods, run.spec.context_version, attempt);
        match pod {
            Some(pod) if has_started(pod) => {
                let pod = pod.metadata.name.clone().unwrap_or_default();
                return print(&server, &pod, verb.follow, session).await;
            }
            // A container that never starts has no log to wait for.
            Some(_) | None if !verb.follow || actions::outcome(&run).is_some() => {
                return Err(gone(&run, attempt, pod.is_some()));
            }
            Some(_) | None => {
                let status = run.status.as_ref();
                let message = status.and_then(|status| status.progress.message.as_deref());
                let words = clean(message.unwrap_or("it has no status yet"));
                if words != said {
                    session.remark(&format!("waiting for the container: {words}"))?;
                    said = words;
                }
            }
        }
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(Exit::Ok);
            }
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

async fn print(
    server: &Server,
    pod: &str,
    follow: bool,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let pods: Api<Pod> = Api::namespaced(server.client.clone(), &server.namespace);
    let how = LogParams {
        container: Some(CONTAINER.to_owned()),
        follow,
        ..LogParams::default()
    };
    let request = || Request {
        verb: "get",
        kind: "Pod",
        resource: "pods/log",
        name: Some(pod.to_owned()),
        namespace: Some(server.namespace.clone()),
    };
    let log = ask(request(), pods.log_stream(pod, &how)).await?;
    let mut log = std::pin::pin!(log);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(Exit::Ok);
            }
            read = log.read(&mut buffer) => read,
        };
        match read {
            Ok(0) => return Ok(Exit::Ok),
            Ok(count) => {
                session
                    .out
                    .write_all(buffer.get(..count).unwrap_or_default())?;
                session.out.flush()?;
            }
            Err(error) => {
                return Err(Failure::from(Error::Unanswered {
                    request: request(),
                    message: format!("the log broke off: {error}"),
                }));
            }
        }
    }
}

/// The attempt that goes on or was the last. The status is up to ten seconds behind the Pods.
fn last_attempt(run: &TaskRun, pods: &[Pod]) -> u32 {
    let version = run.spec.context_version;
    let recorded = run
        .status
        .as_ref()
        .filter(|status| status.context_version == Some(version))
        .map_or(1, |status| status.attempts);
    let started = pods.iter().filter(|pod| is_of_version(pod, version));
    started.map(attempt).fold(recorded.max(1), u32::max)
}

/// The newest Pod of an attempt: a disruption makes another one.
fn of_attempt(pods: &[Pod], version: i64, wanted: u32) -> Option<&Pod> {
    pods.iter()
        .filter(|pod| is_of_version(pod, version) && attempt(pod) == wanted)
        .max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

fn is_of_version(pod: &Pod, version: i64) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(names::CONTEXT_VERSION)) == Some(&version.to_string())
}

/// As the agent itself is told; 0 where the Pod does not say.
fn attempt(pod: &Pod) -> u32 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut variables = containers
        .filter(|container| container.name == CONTAINER)
        .flat_map(|container| container.env.iter())
        .flat_map(|all| all.iter());
    variables
        .find(|variable| variable.name == "ORCHESTRATOR_ATTEMPT")
        .and_then(|variable| variable.value.as_ref())
        .map_or(0, |number| number.parse().unwrap_or_default())
}

fn has_started(pod: &Pod) -> bool {
    let containers = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter())
        .flat_map(|all| all.iter());
    containers
        .filter(|container| container.name == CONTAINER)
        .filter_map(|container| container.state.as_ref())
        .any(|state| state.running.is_some() || state.terminated.is_some())
}

fn gone(run: &TaskRun, attempt: u32, is_there: bool) -> Failure {
    let name = clean(run.metadata.name.as_deref().unwrap_or_default());
    let version = run.spec.context_version;
    let which = format!("attempt {attempt} of TaskRun '{name}', version {version},");
    let status = run.status.as_ref();
    let is_over = actions::outcome(run).is_some();
    let message = if is_there {
        format!("{which} has no log: its container has not started")
    } else if !is_over {
        format!("{which} has no Pod now")
    } else {
        let known = status
            .and_then(|status| status.result.as_ref())
            .map(evidence)
            .filter(|known| !known.is_empty());
        let known = known.map_or_else(
            || "status.result says nothing about it".to_owned(),
            |known| format!("status.result has what is known: {known}"),
        );
        format!(
            "{which} has no log any more: logs live only as long as the Pod, and it is gone; {known}"
        )
    };
    let next = if is_over {
        vec![("to see all that is known", format!("describe {name}"))]
    } else {
        vec![
            ("to see what it waits for", format!("why {name}")),
            ("to wait for the log", format!("logs -f {name}")),
        ]
    };
    Failure::Gone { message, next }
}

/// What a container left behind, in one line.
pub(crate) fn evidence(result: &Evidence) -> String {
    let Evidence {
        exit_code,
        signal,
        reason,
        message,
        results: _,
        image_id: _,
        node,
        pod_name,
        pod_uid: _,
        started_at: _,
        finished_at,
    } = result;
    let mut parts = Vec::new();
    parts.extend(reason.clone());
    parts.extend(exit_code.map(|code| format!("exit code {code}")));
    parts.extend(signal.map(|signal| format!("signal {signal}")));
    parts.extend(message.as_ref().map(|message| format!("'{message}'")));
    parts.extend(pod_name.as_ref().map(|pod| format!("Pod '{pod}'")));
    parts.extend(node.as_ref().map(|node| format!("node '{node}'")));
    parts.extend(
        finished_at
            .as_ref()
            .map(|time| format!("ended {}", moment(time.0))),
    );
    clean(&parts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::tests::{a_run, condition};

    fn pod(name: &str, version: &str, attempt: &str, created: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "context-version": version },
                "creationTimestamp": created },
            "spec": { "containers": [{ "name": "agent",
                "env": [{ "name": "ORCHESTRATOR_ATTEMPT", "value": attempt }] }] },
        }))
        .unwrap()
    }

    #[test]
    fn the_newest_pod_of_the_last_attempt_is_read() {
        let pods = [
            pod("old", "1", "2", "2026-01-01T00:09:00Z"),
            pod("first", "2", "1", "2026-01-01T00:00:00Z"),
            pod("disrupted", "2", "2", "2026-01-01T00:01:00Z"),
            pod("again", "2", "2", "2026-01-01T00:02:00Z"),
        ];
        let run = |attempts: u32, version: i64| {
            let status = json!({ "contextVersion": version, "attempts": attempts });
            a_run(&json!({ "contextVersion": 2 }), &status)
        };
        let name = |run: &TaskRun| {
            let pod = of_attempt(&pods, 2, last_attempt(run, &pods));
            pod.and_then(|pod| pod.metadata.name.as_deref())
        };
        assert_eq!(name(&run(1, 2)), Some("again"), "the status is behind");
        assert_eq!(name(&run(2, 2)), Some("again"));
        assert_eq!(name(&run(3, 2)), None, "not an earlier attempt's");
        assert_eq!(name(&run(7, 1)), Some("again"), "of another version");
        let first = of_attempt(&pods, 2, 1).unwrap();
        assert_eq!(first.metadata.name.as_deref(), Some("first"));
    }

    #[test]
    fn a_log_that_is_gone_says_what_is_known() {
        let status = json!({ "contextVersion": 1, "attempts": 1, "phase": "Failed",
            "conditions": [condition("Finished", "True", "NonZeroExit"), condition("Succeeded", "False", "NonZeroExit")],
            "result": { "exitCode": 3, "reason": "NonZeroExit", "podName": "p", "node": "n",
                "finishedAt": "2026-01-01T00:00:00Z" } });
        let failure = gone(&a_run(&json!({}), &status), 1, false);
        assert_eq!(failure.exit().code(), 5);
        assert_eq!(
            failure.message(),
            "attempt 1 of TaskRun 'shop-7', version 1, has no log any more: logs live only as long as the Pod, and it is gone; status.result has what is known: NonZeroExit, exit code 3, Pod 'p', node 'n', ended 2026-01-01T00:00:00Z"
        );
        let failure = gone(&a_run(&json!({}), &json!({})), 1, false);
        assert!(failure.message().ends_with("has no Pod now"));
        assert_eq!(failure.advice()[0].1, "why shop-7");
    }
}
