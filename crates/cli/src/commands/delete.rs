//! `delete`

use std::time::Duration;

use actions::{Deleted, Error, Object, ObjectName};

use crate::{
    Exit,
    arguments::Delete,
    failure::Failure,
    session::{Server, Session, bounded},
    text::{clean, span},
};

/// Interval between reads of a run that is being deleted.
const PERIOD: Duration = Duration::from_secs(1);

pub(crate) async fn run(verb: Delete, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let mut names: Vec<ObjectName> = Vec::new();
    for name in verb.runs {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut exits = Vec::new();
    let mut left: Vec<Object> = Vec::new();
    for name in &names {
        match delete(&server, name, session, verb.wait).await {
            Ok(object) => left.extend(object),
            // The other runs are deleted nevertheless.
            Err(failure) if names.len() > 1 && !failure.is_silent() => {
                session.report(&failure)?;
                exits.push(failure.exit());
            }
            Err(failure) => return Err(failure),
        }
    }
    if verb.wait {
        let gone = until_gone(&server, session, &mut left);
        let is_over = match verb.timeout {
            Some(limit) => tokio::time::timeout(limit, gone).await,
            None => Ok(gone.await),
        };
        match is_over {
            Ok(result) => result?,
            Err(_elapsed) => {
                let limit = verb.timeout.unwrap_or_default().as_secs();
                let waited = span(i64::try_from(limit).unwrap_or(i64::MAX));
                exits.push(remaining(
                    session,
                    &left,
                    &format!("timed out after {waited}"),
                )?);
            }
        }
        if !left.is_empty() && exits.is_empty() {
            exits.push(remaining(session, &left, "stopped waiting")?);
        }
    }
    Ok(Exit::most_severe(exits))
}

/// Deletes a run. Returns it if it still exists.
async fn delete(
    server: &Server,
    name: &ObjectName,
    session: &mut Session<'_>,
    is_awaited: bool,
) -> Result<Option<Object>, Failure> {
    let action = actions::delete(&server.client, &server.namespace, name);
    match bounded(server.request("delete", name), action).await? {
        Deleted::Gone => {
            session.line(&format!("{name} deleted"))?;
            Ok(None)
        }
        Deleted::InProgress(object) => {
            session.line(&format!(
                "{name} is being deleted: the operator stops its work first"
            ))?;
            if !is_awaited {
                session.hint("to see what it waits for", "why", name)?;
            }
            Ok(Some(*object))
        }
    }
}

/// Waits until the runs no longer exist, or until the user interrupts it. Prints each new message
/// of their statuses. The runs that still exist stay in `left`.
async fn until_gone(
    server: &Server,
    session: &mut Session<'_>,
    left: &mut Vec<Object>,
) -> Result<(), Failure> {
    while !left.is_empty() {
        let mut still = Vec::new();
        for known in left.iter() {
            match server.get(&known.name).await {
                // Another run has the name by now.
                Ok(found) if found.metadata.uid != known.metadata.uid => {
                    session.line(&format!("{} deleted", known.name))?;
                }
                Ok(found) => {
                    if found.message() != known.message() {
                        let message = clean(&found.message());
                        session.remark(&format!("{}: {message}", known.name))?;
                    }
                    still.push(found);
                }
                Err(Failure::Action(error)) if is_missing(&error) => {
                    session.line(&format!("{} deleted", known.name))?;
                }
                Err(failure) => return Err(failure),
            }
        }
        *left = still;
        if left.is_empty() {
            break;
        }
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(());
            }
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
    Ok(())
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. })
}

fn remaining(session: &mut Session<'_>, left: &[Object], why: &str) -> Result<Exit, Failure> {
    for object in left {
        session.remark(&format!("{why}: {} still exists", object.name))?;
        session.hint("to see what it waits for", "why", &object.name)?;
    }
    Ok(Exit::Timeout)
}
