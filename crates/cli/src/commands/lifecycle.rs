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
    // A suspended Tenant does not become ready, so there is nothing to wait for.
    if changed.is_new && (target.is_run() || change == Change::Resume) {
        let next = session.command(&format!("wait {}", target.argument()));
        session.line(&format!("  to follow it: {next}"))?;
    }
    Ok(Exit::Ok)
}

/// Returns the message about the change. The message promises no result, because the operator acts
/// later and reports it only in the status.
fn sentence(target: &ObjectName, change: Change, is_new: bool) -> String {
    let words = match (change, is_new) {
        (Change::Cancel, true) => "is asked to end; that cannot be taken back",
        (Change::Cancel, false) => "was cancelled before; nothing was changed",
        (Change::Suspend, true) if target.is_run() => {
            "is asked to suspend: its container is stopped, and no time counts"
        }
        (Change::Suspend, true) => {
            "is asked to suspend: its server and Redis are stopped, their data stays"
        }
        (Change::Suspend, false) => "was suspended before; nothing was changed",
        (Change::Resume, true) if target.is_run() => "is asked to go on: its attempt starts again",
        (Change::Resume, true) => "is asked to go on: its server and Redis start again",
        (Change::Resume, false) => "is not suspended; nothing was changed",
    };
    format!("{target} {words}")
}
