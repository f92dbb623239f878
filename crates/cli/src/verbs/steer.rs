//! `cancel`, `suspend`, `resume`

use actions::{Change, Changed, Request, Run, RunKind};
use api::tasks::{DocsRun, TaskRun};

use crate::{
    Exit,
    arguments::OfRun,
    failure::Failure,
    session::{Server, Session, bounded},
    target::RunName,
};

pub(crate) async fn perform(
    verb: OfRun,
    change: Change,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let run = verb.run;
    let server = session.server().await?;
    let is_new = match run.kind {
        RunKind::Task => write::<TaskRun>(&server, &run.name, change).await?,
        RunKind::Docs => write::<DocsRun>(&server, &run.name, change).await?,
    };
    session.line(&sentence(&run, change, is_new))?;
    if is_new {
        let next = session.command(&format!("wait {}", run.argument()));
        session.line(&format!("  to follow it: {next}"))?;
    }
    Ok(Exit::Ok)
}

/// Whether anything had to be written.
async fn write<R: Run>(server: &Server, name: &str, change: Change) -> Result<bool, Failure> {
    let request = Request::of_kind(R::KIND, "patch", &server.namespace, name);
    let action = actions::change::<R>(&server.client, &server.namespace, name, change);
    Ok(match bounded(request, action).await? {
        Changed::Now(_) => true,
        Changed::Before(_) => false,
    })
}

/// The operator does it; that it has, only the status says.
fn sentence(run: &RunName, change: Change, is_new: bool) -> String {
    let words = match (change, is_new) {
        (Change::Cancel, true) => "is asked to end; that cannot be taken back",
        (Change::Cancel, false) => "was cancelled before; nothing was changed",
        (Change::Suspend, true) => "is asked to hold: its container is stopped, and no time counts",
        (Change::Suspend, false) => "was suspended before; nothing was changed",
        (Change::Resume, true) => "is asked to go on: its attempt starts again",
        (Change::Resume, false) => "is not suspended; nothing was changed",
    };
    format!("{run} {words}")
}
