//! Follows the log of the agent through all attempts of a run, for `submit --log`.

use std::{collections::BTreeSet, time::Duration};

use actions::{Object, ObjectName};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::{Log, PERIOD, attempt, is_of_version, waiting};
use crate::{
    Exit,
    commands::wait,
    containers::{self, AGENT},
    failure::Failure,
    related,
    session::{Server, Session},
    state,
    text::{clean, span},
};

/// The reason why the log is not followed any further.
enum End {
    /// The run has finished or is suspended, or its log cannot be read.
    Reached,
    Interrupted,
}

/// Follows the log until the run finishes, then reports the run as `wait` does. The exit code is
/// the outcome of the run, even if its log cannot be read.
pub(crate) async fn until_finished(
    session: &mut Session<'_>,
    server: &Server,
    name: &ObjectName,
    limit: Option<Duration>,
) -> Result<Exit, Failure> {
    let started = Instant::now();
    let mut last = None;
    let followed = follow(session, server, name, &mut last);
    let end = match limit {
        Some(limit) => match tokio::time::timeout(limit, followed).await {
            Ok(end) => Some(end?),
            Err(_elapsed) => None,
        },
        None => Some(followed.await?),
    };
    let why = match end {
        Some(End::Reached) => {
            let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
            // The state must be read at least once.
            let left = left.map(|left| left.max(PERIOD));
            return wait::until_finished(session, server, std::slice::from_ref(name), left).await;
        }
        Some(End::Interrupted) => "stopped following".to_owned(),
        None => {
            let limit = limit.unwrap_or_default().as_secs();
            let waited = span(i64::try_from(limit).unwrap_or(i64::MAX));
            format!("timed out after {waited}")
        }
    };
    match &last {
        Some(run) => wait::stopped(session, &why, run, None)?,
        None => session.remark(&format!("{why}: the state of {name} is not known"))?,
    }
    Ok(Exit::Timeout)
}

async fn follow(
    session: &mut Session<'_>,
    server: &Server,
    name: &ObjectName,
    last: &mut Option<Object>,
) -> Result<End, Failure> {
    let mut shown = BTreeSet::new();
    let mut said = String::new();
    loop {
        let read = async {
            let run = server.get(name).await?;
            let pods = related::pods(server, &run).await?;
            Ok::<_, Failure>((run, pods))
        };
        let (run, pods) = match read.await {
            Ok(read) => read,
            Err(failure) => {
                unreadable(session, &failure)?;
                return Ok(End::Reached);
            }
        };
        // The run was read before its Pods. So if it is over, no Pod is missing.
        let is_over = run.outcome().is_some() || state::is_suspended(&run);
        let words = waiting(&run, None, AGENT);
        let next = next(&pods, run.version(), &shown);
        *last = Some(run);
        if let Some(pod) = next {
            shown.extend(pod.metadata.uid.clone());
            let log = Log {
                pod: pod.metadata.name.clone().unwrap_or_default(),
                container: AGENT.to_owned(),
                is_followed: true,
                prefix: None,
            };
            match log.print(server, session).await {
                Ok(true) => {}
                Ok(false) => return Ok(End::Interrupted),
                Err(failure @ Failure::Output(_)) => return Err(failure),
                Err(failure) => unreadable(session, &failure)?,
            }
            continue;
        }
        if is_over {
            return Ok(End::Reached);
        }
        if words != said {
            session.remark(&words)?;
            said = words;
        }
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(End::Interrupted);
            }
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

fn unreadable(session: &mut Session<'_>, failure: &Failure) -> Result<(), Failure> {
    let message = clean(&failure.message());
    session.remark(&format!("cannot follow the log: {message}"))?;
    Ok(())
}

/// Returns the first Pod of this version with a started agent and a log that was not shown yet.
fn next<'a>(pods: &'a [Pod], version: Option<i64>, shown: &BTreeSet<String>) -> Option<&'a Pod> {
    let is_new = |pod: &&Pod| {
        let uid = pod.metadata.uid.as_ref();
        uid.is_some_and(|uid| !shown.contains(uid))
    };
    pods.iter()
        .filter(|pod| is_of_version(pod, version) && containers::has_started(pod, AGENT))
        .filter(is_new)
        .min_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref();
            (attempt(pod), created.map(|time| time.0))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, version: &str, attempt: &str, state: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": uid, "uid": uid, "labels": { "context-version": version },
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "containers": [{ "name": "agent",
                "env": [{ "name": "ORCHESTRATOR_ATTEMPT", "value": attempt }] }] },
            "status": { "containerStatuses": [{ "name": "agent", "image": "", "imageID": "",
                "ready": false, "restartCount": 0, "state": { state: if state == "terminated" {
                    json!({ "exitCode": 1 }) } else { json!({}) } } }] },
        }))
        .unwrap()
    }

    #[test]
    fn each_attempt_is_shown_once_and_in_order() {
        let pods = [
            pod("second", "2", "2", "running"),
            pod("old", "1", "1", "terminated"),
            pod("first", "2", "1", "terminated"),
            pod("third", "2", "3", "waiting"),
        ];
        let mut shown = BTreeSet::new();
        let mut names = Vec::new();
        while let Some(pod) = next(&pods, Some(2), &shown) {
            let uid = pod.metadata.uid.clone().unwrap();
            names.push(uid.clone());
            shown.insert(uid);
        }
        assert_eq!(names, ["first", "second"]);
    }
}
