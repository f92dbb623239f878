//! The logs of a NotebookValidationJob's Pod.

use k8s_openapi::api::core::v1::Pod;

use super::{Log, PERIOD};
use crate::{
    Exit,
    arguments::{Logs, Step},
    containers,
    failure::Failure,
    related,
    session::Session,
    text::clean,
};

/// The containers, in the order in which they start.
const CONTAINERS: [&str; 3] = ["fetch", "kernel", "runner"];

/// Prints the logs of the newest Pod of a job. The outputs of cells are not in them: they are in the result.
pub(super) async fn print(verb: Logs, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let wanted = wanted(&verb)?;
    let server = session.server().await?;
    for container in wanted {
        let mut said = String::new();
        loop {
            let job = server.get(&verb.of.target).await?;
            let pods = related::pods(&server, &job).await?;
            let pod = newest(&pods);
            if let Some(pod) = pod.filter(|pod| containers::has_started(pod, container)) {
                let log = Log {
                    pod: pod.metadata.name.clone().unwrap_or_default(),
                    container: container.to_owned(),
                    is_followed: verb.follow,
                    prefix: verb.all.then(|| format!("[{container}] ")),
                };
                if log.print(&server, session).await? {
                    break;
                }
                return Ok(Exit::Ok);
            }
            if !verb.follow || job.outcome().is_some() {
                let name = job.name.argument();
                let message = format!(
                    "{} has no log of container '{container}': it has not started, or its Pod no longer exists; {}",
                    job.name,
                    clean(&job.message())
                );
                let next = vec![("to see why", format!("why {name}"))];
                return Err(Failure::Gone { message, next });
            }
            let words = format!(
                "waiting for container '{container}': {}",
                clean(&job.message())
            );
            if words != said {
                session.remark(&words)?;
                said = words;
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

/// Returns the containers to print.
fn wanted(verb: &Logs) -> Result<Vec<&'static str>, Failure> {
    let target = &verb.of.target;
    if verb.attempt.is_some() {
        let message = format!("{target}: only the log of the last attempt can be printed");
        return Err(Failure::client(message));
    }
    if verb.all {
        return Ok(CONTAINERS.to_vec());
    }
    let one = verb.container.map_or("kernel", Step::name);
    if CONTAINERS.contains(&one) {
        return Ok(vec![one]);
    }
    Err(Failure::client(format!(
        "{target} has no container '{one}': it has {}",
        CONTAINERS.join(", ")
    )))
}

fn newest(pods: &[Pod]) -> Option<&Pod> {
    let created = |pod: &&Pod| {
        let created = pod.metadata.creation_timestamp.as_ref();
        created.map(|time| time.0)
    };
    pods.iter().max_by_key(created)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Verb};

    fn parsed(words: &[&str]) -> Logs {
        let words = ["orc", "logs"].iter().chain(words);
        let Verb::Logs(logs) = Arguments::parse_from(words).verb else {
            panic!("not 'logs'");
        };
        logs
    }

    #[test]
    fn a_job_has_three_containers() {
        for (words, expected) in [
            (&["nb/report"][..], Some(vec!["kernel"])),
            (&["nb/report", "-c", "runner"][..], Some(vec!["runner"])),
            (&["nb/report", "--all"][..], Some(CONTAINERS.to_vec())),
            (&["nb/report", "-c", "agent"][..], None),
            (&["nb/report", "--attempt", "1"][..], None),
        ] {
            let found = wanted(&parsed(words));
            match (found, expected) {
                (Ok(found), Some(expected)) => assert_eq!(found, expected, "{words:?}"),
                (Err(_), None) => {}
                (found, expected) => panic!("{words:?}: {found:?}, not {expected:?}"),
            }
        }
    }
}
