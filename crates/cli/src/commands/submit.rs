//! `submit`

use actions::{Docs, Error, Files, Request, RunKind, Submission};
use serde::Serialize;

use crate::{
    Exit,
    arguments::{
        DryRun, ObjectFormat, Submit, SubmitDocs, SubmitOptions, SubmitOther, SubmitTask,
        WaitOptions,
    },
    commands::wait,
    failure::Failure,
    files, output,
    session::{Server, Session, bounded},
    target::RunName,
    text::{bytes, count},
};

pub(crate) async fn run(verb: Submit, session: &mut Session<'_>) -> Result<Exit, Failure> {
    match (verb.other, verb.task) {
        (Some(SubmitOther::Docs(docs)), _) => of_docs(*docs, session).await,
        (None, Some(task)) => of_task(task, verb.submit_options, verb.wait_options, session).await,
        (None, None) => Err(Failure::client("nothing to submit")),
    }
}

async fn of_task(
    verb: SubmitTask,
    submit_options: SubmitOptions,
    wait_options: WaitOptions,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let submission = Submission {
        name: verb.name,
        task_id: verb.task_id,
        service_name: verb.service,
        agent_name: verb.agent,
        files: Files::new(files::read(&verb.paths)?)?,
    };
    let files = submission.files.as_slice();
    let size = files.iter().map(|file| file.content.len()).sum();
    let order = Order {
        run: RunName {
            kind: RunKind::Task,
            name: submission.run_name(),
        },
        what: format!("version 1, {}, {}", count(files.len(), "file"), bytes(size)),
        submit_options,
        wait_options,
    };
    order
        .send(
            session,
            |namespace| submission.run(namespace),
            async |server, server_dry_run| {
                actions::submit(
                    &server.client,
                    &server.namespace,
                    &submission,
                    server_dry_run,
                )
                .await
            },
        )
        .await
}

async fn of_docs(verb: SubmitDocs, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let instructions = files::read(&verb.instructions)?;
    let instructions = match instructions.is_empty() && verb.instructions.is_empty() {
        true => None,
        false => Some(Files::new(instructions)?),
    };
    let docs = Docs {
        name: verb.name,
        repository_url: verb.repository,
        source_branch: verb.branch,
        working_directory: verb.working_directory,
        agent_name: verb.agent,
        model: verb.model,
        instructions,
        include_codebase: verb.include_codebase,
        credentials_secret: verb.secret,
        output_branch: verb.output_branch,
        output_path: verb.output_path,
        require_changes: !verb.allow_no_changes,
        commit_message: verb.commit_message,
        timeout: verb.agent_timeout,
    };
    let branch = docs.run("").output_branch();
    let order = Order {
        run: RunName {
            kind: RunKind::Docs,
            name: docs.name.clone(),
        },
        what: format!("branch '{}', to branch '{branch}'", docs.source_branch),
        submit_options: verb.submit_options,
        wait_options: verb.wait_options,
    };
    order
        .send(
            session,
            |namespace| docs.run(namespace),
            async |server, server_dry_run| {
                actions::submit_docs(&server.client, &server.namespace, &docs, server_dry_run).await
            },
        )
        .await
}

/// A run to be created.
struct Order {
    run: RunName,
    /// A summary of its contents for messages.
    what: String,
    submit_options: SubmitOptions,
    wait_options: WaitOptions,
}

impl Order {
    async fn send<R: Serialize>(
        self,
        session: &mut Session<'_>,
        made: impl Fn(&str) -> R,
        create: impl AsyncFn(&Server, actions::DryRun) -> Result<R, Error>,
    ) -> Result<Exit, Failure> {
        let SubmitOptions { dry_run, output } = self.submit_options;
        if dry_run == Some(DryRun::Client) {
            // A manifest can be created without a cluster.
            let namespace = match session.namespace_flag() {
                Some(namespace) => namespace.to_owned(),
                None => session.server().await?.namespace,
            };
            let format = output.unwrap_or(ObjectFormat::Yaml);
            session.print(&self.printed(&made(&namespace), format)?)?;
            return Ok(Exit::Ok);
        }

        let server = session.server().await?;
        let (server_dry_run, done) = match dry_run {
            None => (actions::DryRun::Off, "submitted"),
            Some(DryRun::Client | DryRun::Server) => (
                actions::DryRun::On,
                "would be submitted (nothing was stored)",
            ),
        };
        let RunName { kind, name } = &self.run;
        let request = Request::of_kind(*kind, "create", &server.namespace, name);
        let run = bounded(request, create(&server, server_dry_run)).await?;
        if let Some(format) = output {
            session.print(&self.printed(&run, format)?)?;
            return Ok(Exit::Ok);
        }
        session.line(&format!(
            "{} {done} in namespace '{}': {}",
            self.run, server.namespace, self.what
        ))?;
        if server_dry_run == actions::DryRun::On {
            return Ok(Exit::Ok);
        }
        wait::afterwards(session, &server, self.run, &self.wait_options).await
    }

    fn printed<R: Serialize>(&self, run: &R, format: ObjectFormat) -> Result<String, Failure> {
        let RunName { kind, name } = &self.run;
        match format {
            ObjectFormat::Name => Ok(format!("{}\n", kind.row().qualified(name))),
            ObjectFormat::Json => output::json(&output::plain(run)?),
            ObjectFormat::Yaml => output::yaml(&output::plain(run)?),
        }
    }
}
