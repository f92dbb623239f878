//! `submit`

use actions::{Docs, Error, Files, Request, RunKind, Submission, Trial};
use serde::Serialize;

use crate::{
    Exit,
    arguments::{
        DryRun, ObjectFormat, Sending, Submit, SubmitDocs, SubmitOther, SubmitTask, Waiting,
    },
    failure::Failure,
    files, output,
    session::{Server, Session, bounded},
    target::RunName,
    text::{bytes, count},
    verbs::wait,
};

pub(crate) async fn perform(verb: Submit, session: &mut Session<'_>) -> Result<Exit, Failure> {
    match (verb.other, verb.task) {
        (Some(SubmitOther::Docs(docs)), _) => of_docs(*docs, session).await,
        (None, Some(task)) => of_task(task, verb.sending, verb.waiting, session).await,
        (None, None) => Err(Failure::client("nothing to submit")),
    }
}

async fn of_task(
    verb: SubmitTask,
    sending: Sending,
    waiting: Waiting,
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
        sending,
        waiting,
    };
    order
        .send(
            session,
            |namespace| submission.run(namespace),
            async |server, trial| {
                actions::submit(&server.client, &server.namespace, &submission, trial).await
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
        sending: verb.sending,
        waiting: verb.waiting,
    };
    order
        .send(
            session,
            |namespace| docs.run(namespace),
            async |server, trial| {
                actions::submit_docs(&server.client, &server.namespace, &docs, trial).await
            },
        )
        .await
}

/// A run to be created.
struct Order {
    run: RunName,
    /// A summary of its contents for messages.
    what: String,
    sending: Sending,
    waiting: Waiting,
}

impl Order {
    async fn send<R: Serialize>(
        self,
        session: &mut Session<'_>,
        made: impl Fn(&str) -> R,
        create: impl AsyncFn(&Server, Trial) -> Result<R, Error>,
    ) -> Result<Exit, Failure> {
        let Sending { dry_run, output } = self.sending;
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
        let (trial, done) = match dry_run {
            None => (Trial::Real, "submitted"),
            Some(DryRun::Client | DryRun::Server) => {
                (Trial::DryRun, "would be submitted (nothing was stored)")
            }
        };
        let RunName { kind, name } = &self.run;
        let request = Request::of_kind(*kind, "create", &server.namespace, name);
        let run = bounded(request, create(&server, trial)).await?;
        if let Some(format) = output {
            session.print(&self.printed(&run, format)?)?;
            return Ok(Exit::Ok);
        }
        session.line(&format!(
            "{} {done} in namespace '{}': {}",
            self.run, server.namespace, self.what
        ))?;
        if trial == Trial::DryRun {
            return Ok(Exit::Ok);
        }
        wait::afterwards(session, &server, self.run, &self.waiting).await
    }

    fn printed<R: Serialize>(&self, run: &R, format: ObjectFormat) -> Result<String, Failure> {
        let RunName { kind, name } = &self.run;
        match format {
            ObjectFormat::Name => Ok(format!("{}/{name}\n", kind.singular())),
            ObjectFormat::Json => output::json(&output::plain(run)?),
            ObjectFormat::Yaml => output::yaml(&output::plain(run)?),
        }
    }
}
