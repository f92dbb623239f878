//! `golden`

use api::notebooks::NotebookValidationJobStatus;

use super::diff::{executed, full_result, truncated};
use crate::{Exit, arguments::Golden, failure::Failure, output, session::Session};

pub(crate) async fn run(verb: Golden, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let job = server.get(&verb.job).await?;
    let read = serde_json::from_value::<NotebookValidationJobStatus>(job.at("status").clone());
    let status = read.map_err(|error| Failure::client(format!("{}: {error}", job.name)))?;
    let result = full_result(&server, &job, &status).await?;
    let Some(notebook) = executed(&result) else {
        let message = match truncated(&result) {
            parts if parts.contains("notebook") => format!(
                "the executed notebook of {} was too large to be stored; raise 'notebooks.results.maxBytes' of the operator",
                job.name
            ),
            _ => format!(
                "{} stored no executed notebook: 'results.store' is not Full",
                job.name
            ),
        };
        return Err(Failure::Gone {
            message,
            next: Vec::new(),
        });
    };
    session.print(&output::json(notebook)?)?;
    Ok(Exit::Ok)
}
