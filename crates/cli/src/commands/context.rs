//! `context add`

use api::tasks::TASK_RUN;

use crate::{
    Exit,
    arguments::{ContextAdd, DryRun},
    commands::wait,
    failure::Failure,
    files,
    session::{Session, bounded},
    text::{bytes, count},
};

pub(crate) async fn run(verb: ContextAdd, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let name = &verb.run.name;
    if *verb.run.kind != TASK_RUN {
        return Err(Failure::client(format!(
            "{} has no versions: what it reads cannot be changed; submit another one",
            verb.run
        )));
    }
    let added = files::read_with_input(&verb.files, session.environment.input)?;
    if verb.dry_run == Some(DryRun::Client) {
        for file in &added {
            let named = if file.filename.is_empty() {
                "context-v{N}.md, N being the new version"
            } else {
                &file.filename
            };
            session.line(&format!("{named}: {}", bytes(file.content.len())))?;
        }
        return Ok(Exit::Ok);
    }
    let server = session.server().await?;
    let (server_dry_run, done) = match verb.dry_run {
        None => (actions::DryRun::Off, "has"),
        Some(DryRun::Client | DryRun::Server) => {
            (actions::DryRun::On, "would have (nothing was stored)")
        }
    };
    let (client, namespace) = (&server.client, &server.namespace);
    let action = actions::add_context(client, namespace, name, &added, None, server_dry_run);
    let done_with = bounded(server.request("patch", &verb.run), action).await?;
    let names: Vec<String> = done_with
        .files
        .iter()
        .map(|file| format!("'{file}'"))
        .collect();
    session.line(&format!(
        "TaskRun '{name}' {done} version {} with {}, {} in all",
        done_with.version,
        names.join(", "),
        count(done_with.run.spec.markdown_files.len(), "file"),
    ))?;
    if server_dry_run == actions::DryRun::On {
        return Ok(Exit::Ok);
    }
    wait::afterwards(session, &server, verb.run, &verb.wait_options).await
}
