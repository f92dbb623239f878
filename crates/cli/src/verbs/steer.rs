//! `cancel`, `suspend`, `resume`

use actions::{Change, Changed, Request};

use crate::{
    Exit,
    arguments::OfRun,
    failure::Failure,
    session::{Session, bounded},
};

pub(crate) async fn perform(
    verb: OfRun,
    change: Change,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let name = verb.run.0;
    let server = session.server().await?;
    let request = Request::of_run("patch", &server.namespace, &name);
    let action = actions::change(&server.client, &server.namespace, &name, change);
    let changed = bounded(request, action).await?;
    session.line(&sentence(&name, change, &changed))?;
    if matches!(changed, Changed::Now(_)) {
        let next = session.command(&format!("wait {name}"));
        session.line(&format!("  to follow it: {next}"))?;
    }
    Ok(Exit::Ok)
}

/// The operator does it; that it has, only the status says.
fn sentence(name: &str, change: Change, changed: &Changed) -> String {
    let words = match (change, changed) {
        (Change::Cancel, Changed::Now(_)) => "is asked to end; that cannot be taken back",
        (Change::Cancel, Changed::Before(_)) => "was cancelled before; nothing was changed",
        (Change::Suspend, Changed::Now(_)) => {
            "is asked to hold: its container is stopped, and no time counts"
        }
        (Change::Suspend, Changed::Before(_)) => "was suspended before; nothing was changed",
        (Change::Resume, Changed::Now(_)) => "is asked to go on: its attempt starts again",
        (Change::Resume, Changed::Before(_)) => "is not suspended; nothing was changed",
    };
    format!("TaskRun '{name}' {words}")
}
