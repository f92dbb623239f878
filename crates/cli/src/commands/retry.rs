//! `retry`

use actions::ObjectName;
use api::tasks::DOCS_RUN;

use crate::{
    Exit,
    arguments::{Retry, RunArgs},
    commands::wait,
    failure::Failure,
    session::{Session, bounded},
};

pub(crate) async fn run(verb: Retry, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let RunArgs { run } = verb.of;
    let server = session.server().await?;
    let (client, namespace, name) = (&server.client, &server.namespace, &run.name);
    let (words, again) = if *run.kind == DOCS_RUN {
        let action = actions::run_docs_again(client, namespace, name);
        let run = bounded(server.request("create", &run), action).await?;
        let branch = run.output_branch();
        let again = run.metadata.name.unwrap_or_default();
        (
            format!("DocsRun '{again}' runs '{name}' again: the same spec, branch '{branch}'"),
            again,
        )
    } else {
        let action = actions::run_again(client, namespace, name);
        let run = bounded(server.request("patch", &run), action).await?;
        let version = run.version().unwrap_or_default();
        (
            format!("TaskRun '{name}' runs again: version {version}, the same files"),
            name.clone(),
        )
    };
    session.line(&words)?;
    let run = ObjectName::new(run.kind, &again);
    wait::afterwards(session, &server, run, &verb.wait_options).await
}
