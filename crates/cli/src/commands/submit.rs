//! `submit`

use std::path::PathBuf;

use actions::{ObjectName, Run};
use api::tasks::{DocsRun, DocsRunSpec, File, NamedRef, Output, TaskRun, TaskRunSpec};
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
    session::{Session, bounded},
    text::{bytes, count},
};

pub(crate) async fn run(verb: Submit, session: &mut Session<'_>) -> Result<Exit, Failure> {
    match (verb.other, verb.task) {
        (Some(SubmitOther::Docs(docs)), _) => {
            let (how, then) = (docs.submit_options, docs.wait_options);
            let run = docs_run(*docs)?;
            let (from, to) = (&run.spec.source_branch, run.output_branch());
            let what = format!("branch '{from}', to branch '{to}'");
            send(run, &what, how, &then, session).await
        }
        (None, Some(task)) => {
            let run = task_run(task)?;
            let files = &run.spec.markdown_files;
            let size = files.iter().map(|file| file.content.len()).sum();
            let what = format!("version 1, {}, {}", count(files.len(), "file"), bytes(size));
            send(run, &what, verb.submit_options, &verb.wait_options, session).await
        }
        (None, None) => Err(Failure::client("nothing to submit")),
    }
}

/// Reads the files of a run, and validates them.
fn valid_files(paths: &[PathBuf]) -> Result<Vec<File>, Failure> {
    let files = files::read(paths)?;
    actions::check_files(&files)?;
    Ok(files)
}

fn task_run(verb: SubmitTask) -> Result<TaskRun, Failure> {
    let usual = || actions::run_name(&verb.service, verb.task_id);
    let name = verb.name.unwrap_or_else(usual);
    let spec = TaskRunSpec {
        task_id: verb.task_id,
        service_name: verb.service,
        agent_name: verb.agent,
        context_version: 1,
        markdown_files: valid_files(&verb.paths)?,
        timeout: None,
        retry: None,
        suspend: false,
        cancel: false,
        child_ttl: None,
    };
    Ok(TaskRun::new(&name, spec))
}

fn docs_run(verb: SubmitDocs) -> Result<DocsRun, Failure> {
    let usual = Output::default();
    let instructions = match verb.instructions.as_slice() {
        [] => Vec::new(),
        paths => valid_files(paths)?,
    };
    let spec = DocsRunSpec {
        repository_url: verb.repository,
        source_branch: verb.branch,
        working_directory: verb.working_directory.unwrap_or_else(|| ".".to_owned()),
        agent_name: verb.agent,
        model: verb.model,
        instructions,
        include_codebase: verb.include_codebase,
        credentials_secret_ref: verb.secret.map(|name| NamedRef { name }),
        output: Output {
            branch: verb.output_branch,
            path: verb.output_path.unwrap_or(usual.path),
            require_changes: !verb.allow_no_changes,
            commit_message: verb.commit_message,
        },
        timeout: verb.agent_timeout.map(Into::into),
        suspend: false,
        cancel: false,
        child_ttl: None,
    };
    Ok(DocsRun::new(&verb.name, spec))
}

/// Creates a run. `what` summarizes its contents for messages.
async fn send<R: Run>(
    mut run: R,
    what: &str,
    how: SubmitOptions,
    then: &WaitOptions,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let SubmitOptions { dry_run, output } = how;
    let name = ObjectName::new(R::KIND, run.meta().name.as_deref().unwrap_or_default());
    if dry_run == Some(DryRun::Client) {
        // A manifest can be created without a cluster.
        let namespace = match session.namespace_flag() {
            Some(namespace) => namespace.to_owned(),
            None => session.server().await?.namespace,
        };
        run.meta_mut().namespace = Some(namespace);
        let format = output.unwrap_or(ObjectFormat::Yaml);
        session.print(&printed(&name, &run, format)?)?;
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
    let action = actions::submit(&server.client, &server.namespace, &run, server_dry_run);
    let run = bounded(server.request("create", &name), action).await?;
    if let Some(format) = output {
        session.print(&printed(&name, &run, format)?)?;
        return Ok(Exit::Ok);
    }
    session.line(&format!(
        "{name} {done} in namespace '{}': {what}",
        server.namespace
    ))?;
    if server_dry_run == actions::DryRun::On {
        return Ok(Exit::Ok);
    }
    wait::afterwards(session, &server, name, then).await
}

fn printed(
    name: &ObjectName,
    run: &impl Serialize,
    format: ObjectFormat,
) -> Result<String, Failure> {
    match format {
        ObjectFormat::Name => Ok(format!("{}\n", name.kind.qualified(&name.name))),
        ObjectFormat::Json => output::json(&output::plain(run)?),
        ObjectFormat::Yaml => output::yaml(&output::plain(run)?),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Verb};

    #[test]
    fn what_is_not_said_is_the_kinds_default() {
        let line = "orc submit docs guide --repository https://git.example/team/shop --branch main --agent writer";
        let parsed = Arguments::try_parse_from(line.split(' ')).unwrap();
        let Verb::Submit(Submit {
            other: Some(SubmitOther::Docs(docs)),
            ..
        }) = parsed.verb
        else {
            panic!("{parsed:?}");
        };
        let plain = serde_json::json!({ "repositoryUrl": "https://git.example/team/shop",
            "sourceBranch": "main", "agentName": "writer" });
        let plain: DocsRunSpec = serde_json::from_value(plain).unwrap();
        assert_eq!(docs_run(*docs).unwrap().spec, plain);
    }

    #[test]
    fn a_task_has_the_name_that_was_given_or_that_of_its_service() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("task.md");
        std::fs::write(&path, "Do it.").unwrap();
        let named = |name: Option<&str>| {
            let task = SubmitTask {
                paths: vec![path.clone()],
                service: "shop".to_owned(),
                task_id: 7,
                agent: "writer".to_owned(),
                name: name.map(str::to_owned),
            };
            task_run(task).unwrap().metadata.name
        };
        assert_eq!(named(None).as_deref(), Some("shop-7"));
        assert_eq!(named(Some("mine")).as_deref(), Some("mine"));
    }
}
