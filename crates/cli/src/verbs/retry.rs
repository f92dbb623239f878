//! `retry`

use actions::Request;

use crate::{
    Exit,
    arguments::Retry,
    failure::Failure,
    session::{Session, bounded},
    verbs::wait,
};

pub(crate) async fn perform(verb: Retry, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let name = verb.run.0;
    let server = session.server().await?;
    let request = Request::of_run("patch", &server.namespace, &name);
    let action = actions::run_again(&server.client, &server.namespace, &name);
    let run = bounded(request, action).await?;
    session.line(&format!(
        "TaskRun '{name}' runs again: version {}, the same files",
        run.spec.context_version
    ))?;
    wait::afterwards(session, &server, name, &verb.waiting).await
}
