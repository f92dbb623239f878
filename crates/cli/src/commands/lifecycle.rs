//! `cancel`, `suspend`, `resume`

use actions::{Change, ObjectName};

use crate::{
    Exit,
    failure::Failure,
    session::{Session, bounded},
};

pub(crate) async fn run(
    target: ObjectName,
    change: Change,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let action = actions::change(&server.client, &server.namespace, &target, change);
    let changed = bounded(server.request("patch", &target), action).await?;
    session.line(&sentence(&target, change, changed.is_new))?;
    if changed.is_new {
        let (purpose, verb) = next(change);
        let next = session.command(&format!("{verb} {}", target.argument()));
        session.line(&format!("  {purpose}: {next}"))?;
    }
    Ok(Exit::Ok)
}

/// Returns the next command and its purpose. A suspended object reaches no end, so there is nothing
/// to wait for.
fn next(change: Change) -> (&'static str, &'static str) {
    match change {
        Change::Cancel | Change::Resume => ("to follow it", "wait"),
        Change::Suspend => ("to resume it", "resume"),
    }
}

/// Returns the message about the change. The message promises no result, because the operator acts
/// later and reports it only in the status.
fn sentence(target: &ObjectName, change: Change, is_new: bool) -> String {
    let words = match (change, is_new) {
        (Change::Cancel, true) => "is being cancelled; this cannot be undone",
        (Change::Cancel, false) => "was cancelled before; nothing was changed",
        (Change::Suspend, true) if target.is_ending() => {
            "is being suspended: its container is stopped, and no time counts"
        }
        (Change::Suspend, true) => {
            "is being suspended: its server and Redis are stopped, their data stays"
        }
        (Change::Suspend, false) => "was suspended before; nothing was changed",
        (Change::Resume, true) if target.is_ending() => {
            "is being resumed: its attempt starts again"
        }
        (Change::Resume, true) => "is being resumed: its server and Redis start again",
        (Change::Resume, false) => "is not suspended; nothing was changed",
    };
    format!("{target} {words}")
}
