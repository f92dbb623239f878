//! `submit`

use actions::{Files, Request, Submission, Trial};

use crate::{
    Exit,
    arguments::{DryRun, ObjectFormat, Submit},
    failure::Failure,
    files, output,
    session::{Session, bounded},
    target::Kind,
    text::{bytes, count},
    verbs::wait,
};

pub(crate) async fn perform(verb: Submit, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let submission = Submission {
        name: verb.name,
        task_id: verb.task_id,
        service_name: verb.service,
        agent_name: verb.agent,
        files: Files::new(files::read(&verb.paths)?)?,
    };
    let name = submission.run_name();
    if verb.dry_run == Some(DryRun::Client) {
        // A manifest can be made without any cluster.
        let namespace = match session.namespace_flag() {
            Some(namespace) => namespace.to_owned(),
            None => session.server().await?.namespace,
        };
        let run = submission.run(&namespace);
        let format = verb.output.unwrap_or(ObjectFormat::Yaml);
        session.print(&printed(&run, &name, format)?)?;
        return Ok(Exit::Ok);
    }

    let server = session.server().await?;
    let (trial, done) = match verb.dry_run {
        None => (Trial::Real, "submitted"),
        Some(DryRun::Client | DryRun::Server) => {
            (Trial::DryRun, "would be submitted (nothing was stored)")
        }
    };
    let request = Request::of_run("create", &server.namespace, &name);
    let action = actions::submit(&server.client, &server.namespace, &submission, trial);
    let run = bounded(request, action).await?;
    if let Some(format) = verb.output {
        session.print(&printed(&run, &name, format)?)?;
        return Ok(Exit::Ok);
    }
    let files = submission.files.as_slice();
    let size = files.iter().map(|file| file.content.len()).sum();
    session.line(&format!(
        "TaskRun '{name}' {done} in namespace '{}': version 1, {}, {}",
        server.namespace,
        count(files.len(), "file"),
        bytes(size)
    ))?;
    if trial == Trial::DryRun {
        return Ok(Exit::Ok);
    }
    wait::afterwards(session, &server, name, &verb.waiting).await
}

fn printed(run: &api::tasks::TaskRun, name: &str, format: ObjectFormat) -> Result<String, Failure> {
    match format {
        ObjectFormat::Name => Ok(format!("{}/{name}\n", Kind::Run.singular())),
        ObjectFormat::Json => output::json(&output::plain(run)?),
        ObjectFormat::Yaml => output::yaml(&output::plain(run)?),
    }
}
