//! `logs`

use std::time::Duration;

use actions::{Error, Object, Request};
use api::{names, notebooks::NOTEBOOK_VALIDATION_JOB, tasks::DOCS_RUN};
use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};

use crate::{
    Exit,
    arguments::{Logs, Step},
    containers::{self, AGENT, STEPS},
    failure::Failure,
    related,
    session::{Server, Session, ask},
    text::clean,
};

mod absent;
mod follow;
mod notebook;
mod tenant;

use absent::{absent, no_such_attempt};
pub(crate) use follow::until_finished;

/// Interval between checks whether a container has started.
const PERIOD: Duration = Duration::from_secs(1);

pub(crate) async fn run(verb: Logs, session: &mut Session<'_>) -> Result<Exit, Failure> {
    if *verb.of.target.kind == NOTEBOOK_VALIDATION_JOB {
        return notebook::print(verb, session).await;
    }
    let wanted = wanted(&verb)?;
    let server = session.server().await?;
    if !verb.of.target.is_run() {
        let tenant = server.get(&verb.of.target).await?;
        return tenant::print(&server, &tenant, verb.follow, session).await;
    }
    let (mut attempt, mut is_any) = (verb.attempt, false);
    for container in wanted {
        let mut said = String::new();
        loop {
            let run = server.get(&verb.of.target).await?;
            let pods = related::pods(&server, &run).await?;
            let number = attempt.unwrap_or_else(|| last_attempt(&run, &pods));
            let pod = of_attempt(&pods, run.version(), number);
            match pod {
                Some(pod)
                    if containers::has_started(pod, container) && !containers::is_evicted(pod) =>
                {
                    attempt = Some(number);
                    is_any = true;
                    let log = Log {
                        pod: pod.metadata.name.clone().unwrap_or_default(),
                        container: container.to_owned(),
                        is_followed: verb.follow,
                        prefix: verb.all.then(|| format!("[{container}] ")),
                    };
                    match log.print(&server, session).await? {
                        true => break,
                        false => return Ok(Exit::Ok),
                    }
                }
                // A container that never starts has no log to wait for.
                Some(_) | None if !verb.follow || run.outcome().is_some() || has_ended(pod) => {
                    return match is_any {
                        // We have printed the logs of the earlier containers, which are all that
                        // exist so far.
                        true => Ok(Exit::Ok),
                        false => {
                            let made = attempts(&run, &pods);
                            let unknown = no_such_attempt(&run, number, made);
                            Err(unknown.unwrap_or_else(|| absent(&run, number, pod, container)))
                        }
                    };
                }
                Some(_) | None => {
                    let words = waiting(&run, pod, container);
                    if words != said {
                        session.remark(&words)?;
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
    Ok(Exit::Ok)
}

/// Returns the containers to print, in the order in which they run.
fn wanted(verb: &Logs) -> Result<Vec<&'static str>, Failure> {
    let one = verb.container.map_or(AGENT, Step::name);
    let target = &verb.of.target;
    if !target.is_run() {
        return match verb.attempt.is_some() || verb.container.is_some() || verb.all {
            true => Err(Failure::client(format!(
                "{target} has no attempts and no steps: '--attempt', '-c' and '--all' are for runs"
            ))),
            false => Ok(Vec::new()),
        };
    }
    let has_steps = *target.kind == DOCS_RUN;
    if has_steps && verb.all {
        Ok(STEPS.to_vec())
    } else if one == AGENT || (has_steps && STEPS.contains(&one)) {
        Ok(vec![one])
    } else if has_steps {
        Err(Failure::client(format!(
            "{target} has no container '{one}': it has {}",
            STEPS.join(", ")
        )))
    } else {
        Err(Failure::client(format!(
            "{target} has no container '{one}': its only one is '{AGENT}'"
        )))
    }
}

/// Returns whether no further container of the Pod will start.
fn has_ended(pod: Option<&Pod>) -> bool {
    let phase = pod
        .and_then(|pod| pod.status.as_ref())
        .and_then(|status| status.phase.as_deref());
    // A TaskRun may get another Pod, so we wait for it. In a DocsRun's Pod, the next step never
    // starts.
    pod.is_some_and(containers::is_in_steps) && matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns the message to print while a container has not started.
fn waiting(run: &Object, pod: Option<&Pod>, container: &str) -> String {
    let message = clean(&run.message());
    match pod.and_then(|pod| other_step(pod, container)) {
        Some(step) => format!("waiting for container '{container}'; {step}: {message}"),
        None => format!("waiting for the container: {message}"),
    }
}

/// Describes the current step if it is another one: `container 'clone' runs`.
fn other_step(pod: &Pod, container: &str) -> Option<String> {
    let current = containers::current(pod).filter(|_| containers::is_in_steps(pod))?;
    let state = current.state.as_ref()?;
    let how = match (&state.running, &state.terminated) {
        (Some(_), _) => "runs".to_owned(),
        (None, Some(ended)) => format!("exited with code {}", ended.exit_code),
        (None, None) => "has not started either".to_owned(),
    };
    (current.name != container).then(|| format!("container '{}' {how}", current.name))
}

/// The log of one container.
struct Log {
    pod: String,
    container: String,
    is_followed: bool,
    /// The prefix of each line.
    prefix: Option<String>,
}

impl Log {
    /// Prints the log. Returns false if the user interrupts it.
    async fn print(&self, server: &Server, session: &mut Session<'_>) -> Result<bool, Failure> {
        let pods: Api<Pod> = Api::namespaced(server.client.clone(), &server.namespace);
        let how = LogParams {
            container: Some(self.container.clone()),
            follow: self.is_followed,
            ..LogParams::default()
        };
        let request = || log_request(server, &self.pod);
        let log = ask(request(), pods.log_stream(&self.pod, &how)).await?;
        let mut log = std::pin::pin!(log);
        let mut buffer = vec![0; 16 * 1024];
        let mut is_in_line = false;
        loop {
            let read = tokio::select! {
                interrupted = tokio::signal::ctrl_c() => {
                    interrupted?;
                    return Ok(false);
                }
                read = log.read(&mut buffer) => read,
            };
            let bytes = match read {
                Ok(0) => break,
                Ok(count) => buffer.get(..count).unwrap_or_default(),
                Err(error) => {
                    let message = format!("the log broke off: {error}");
                    return Err(Error::Unanswered(request(), message).into());
                }
            };
            match &self.prefix {
                Some(prefix) => session
                    .out
                    .write_all(&prefixed(prefix, bytes, &mut is_in_line))?,
                None => session.out.write_all(bytes)?,
            }
            session.out.flush()?;
        }
        // Without this newline, the next container's output would continue this line.
        if is_in_line {
            session.out.write_all(b"\n")?;
            session.out.flush()?;
        }
        Ok(true)
    }
}

fn log_request(server: &Server, pod: &str) -> Request {
    Request {
        verb: "get",
        kind: "Pod",
        resource: "pods/log",
        name: Some(pod.to_owned()),
        namespace: Some(server.namespace.clone()),
    }
}

/// Inserts `prefix` before each line that begins in `bytes`. A line may arrive in parts.
fn prefixed(prefix: &str, bytes: &[u8], is_in_line: &mut bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + prefix.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if !*is_in_line {
            out.extend_from_slice(prefix.as_bytes());
        }
        out.extend_from_slice(line);
        *is_in_line = !line.ends_with(b"\n");
    }
    out
}

/// Returns the current or last attempt, or 1 before the first one.
fn last_attempt(run: &Object, pods: &[Pod]) -> u32 {
    attempts(run, pods).max(1)
}

/// Returns the number of attempts of this version. The status may be up to ten seconds behind the Pods.
fn attempts(run: &Object, pods: &[Pod]) -> u32 {
    let version = run.version();
    let recorded = run.at("status.attempts").as_u64();
    let recorded = recorded.filter(|_| run.recorded_version() == version);
    let recorded = recorded.map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX));
    let started = pods.iter().filter(|pod| is_of_version(pod, version));
    started.map(attempt).fold(recorded, u32::max)
}

/// Returns the newest Pod of an attempt. After a disruption, an attempt has another Pod.
fn of_attempt(pods: &[Pod], version: Option<i64>, wanted: u32) -> Option<&Pod> {
    pods.iter()
        .filter(|pod| is_of_version(pod, version) && attempt(pod) == wanted)
        .max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// Returns whether the Pod belongs to the version. A kind without versions has no such label.
fn is_of_version(pod: &Pod, version: Option<i64>) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(names::CONTEXT_VERSION));
    version.is_none_or(|version| label == Some(&version.to_string()))
}

/// Returns the attempt number from the agent's environment variable, or 0 without a valid value.
fn attempt(pod: &Pod) -> u32 {
    let agent = containers::named(pod, AGENT);
    let mut variables = agent
        .iter()
        .flat_map(|container| container.env.iter())
        .flat_map(|all| all.iter());
    variables
        .find(|variable| variable.name == "ORCHESTRATOR_ATTEMPT")
        .and_then(|variable| variable.value.as_ref())
        .map_or(0, |number| number.parse().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::tests::{a_docs_run, a_run};

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
        let name = |run: &Object| {
            let pod = of_attempt(&pods, Some(2), last_attempt(run, &pods));
            pod.and_then(|pod| pod.metadata.name.as_deref())
        };
        assert_eq!(name(&run(1, 2)), Some("again"), "the status is behind");
        assert_eq!(name(&run(2, 2)), Some("again"));
        assert_eq!(name(&run(3, 2)), None, "not an earlier attempt's");
        assert_eq!(name(&run(7, 1)), Some("again"), "of another version");
        let first = of_attempt(&pods, Some(2), 1).unwrap();
        assert_eq!(first.metadata.name.as_deref(), Some("first"));
    }

    fn in_steps(phase: &str, clone: serde_json::Value, agent: serde_json::Value) -> Pod {
        let state = |name: &str, state: serde_json::Value| {
            json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state })
        };
        serde_json::from_value(json!({
            "metadata": { "name": "guide-docs-x" },
            "spec": {
                "initContainers": [{ "name": "clone" }, { "name": "agent",
                    "env": [{ "name": "ORCHESTRATOR_ATTEMPT", "value": "2" }] }],
                "containers": [{ "name": "publish" }],
            },
            "status": { "phase": phase,
                "initContainerStatuses": [state("clone", clone), state("agent", agent)],
                "containerStatuses": [state("publish", json!({ "waiting": {} }))] },
        }))
        .unwrap()
    }

    #[test]
    fn a_step_that_has_not_started_names_the_one_that_runs() {
        let run = a_docs_run(&json!({}), &json!({ "message": "it is cloned" }));
        let (waits, runs) = (json!({ "waiting": {} }), json!({ "running": {} }));
        let failed = json!({ "terminated": { "exitCode": 1 } });
        let cloning = in_steps("Pending", runs.clone(), waits.clone());
        assert_eq!(
            absent(&run, 1, Some(&cloning), AGENT).message(),
            "attempt 1 of DocsRun 'guide' has no log of container 'agent': it has not started; container 'clone' runs"
        );
        assert_eq!(
            absent(&run, 1, Some(&cloning), AGENT).advice()[1].1,
            "logs -f docsrun/guide"
        );
        assert_eq!(
            waiting(&run, Some(&cloning), AGENT),
            "waiting for container 'agent'; container 'clone' runs: it is cloned"
        );
        assert!(containers::has_started(&cloning, "clone"));
        assert!(!has_ended(Some(&cloning)));
        let broken = in_steps("Failed", failed, waits.clone());
        assert!(has_ended(Some(&broken)), "its agent never comes");
        assert!(
            absent(&run, 1, Some(&broken), AGENT)
                .message()
                .ends_with("exited with code 1")
        );
        let running = in_steps("Pending", json!({ "terminated": { "exitCode": 0 } }), runs);
        assert!(containers::has_started(&running, AGENT));
        assert_eq!(last_attempt(&run, std::slice::from_ref(&running)), 2);
        assert!(of_attempt(std::slice::from_ref(&running), None, 2).is_some());
    }

    #[test]
    fn each_line_begins_with_its_container() {
        let mut is_in_line = false;
        let mut text = |bytes: &str| {
            String::from_utf8(prefixed("[a] ", bytes.as_bytes(), &mut is_in_line)).unwrap()
        };
        assert_eq!(text("one\ntw"), "[a] one\n[a] tw");
        assert_eq!(text("o\n"), "o\n");
        assert_eq!(text("\nthree"), "[a] \n[a] three");
        assert_eq!(text(""), "");
    }
}
