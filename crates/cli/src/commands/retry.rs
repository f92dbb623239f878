//! `retry`

use actions::{Request, RunKind};

use crate::{
    Exit,
    arguments::Retry,
    commands::wait,
    failure::Failure,
    session::{Session, bounded},
    target::RunName,
};

pub(crate) async fn run(verb: Retry, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let RunName { kind, name } = verb.run;
    let server = session.server().await?;
    let (client, namespace) = (&server.client, &server.namespace);
    let (words, again) = match kind {
        RunKind::Task => {
            let request = Request::of_kind(kind, "patch", namespace, &name);
            let run = bounded(request, actions::run_again(client, namespace, &name)).await?;
            let version = run.spec.context_version;
            (
                format!("TaskRun '{name}' runs again: version {version}, the same files"),
                name,
            )
        }
        RunKind::Docs => {
            let request = Request::of_kind(kind, "create", namespace, &name);
            let run = bounded(request, actions::run_docs_again(client, namespace, &name)).await?;
            let branch = run.output_branch();
            let again = run.metadata.name.unwrap_or_default();
            (
                format!("DocsRun '{again}' runs '{name}' again: the same spec, branch '{branch}'"),
                again,
            )
        }
    };
    session.line(&words)?;
    let run = RunName { kind, name: again };
    wait::afterwards(session, &server, run, &verb.wait_options).await
}
