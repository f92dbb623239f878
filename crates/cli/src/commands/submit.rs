//! `submit`

use std::{io::Read, path::PathBuf, time::Duration};

use actions::{Error, ObjectName, Run, Submission};
use api::tasks::{AGENT, DocsRun, DocsRunSpec, File, NamedRef, Output, TaskRun, TaskRunSpec};
use serde::Serialize;

use crate::{
    Exit,
    arguments::{
        DryRun, ObjectFormat, Submit, SubmitDocs, SubmitOptions, SubmitOther, SubmitTask,
        WaitOptions,
    },
    commands::{logs, wait},
    failure::Failure,
    files, output,
    session::{Server, Session, bounded},
    text::{bytes, count},
};

/// Maximum time for the name of the user. A server that hangs must not be waited for twice.
const AUTHOR_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(verb: Submit, session: &mut Session<'_>) -> Result<Exit, Failure> {
    match (verb.other, verb.task) {
        (Some(SubmitOther::Docs(docs)), _) => {
            let (how, then) = (docs.submit_options, docs.wait_options);
            let run = docs_run(*docs)?;
            let (from, to) = (&run.spec.source_branch, run.output_branch());
            let what = format!("branch '{from}', to branch '{to}'");
            let agent = run.spec.agent_name.clone();
            send(run, &agent, &what, how, &then, session).await
        }
        (None, Some(task)) => {
            let run = task_run(task, session.environment.input)?;
            let files = &run.spec.markdown_files;
            let size = files.iter().map(|file| file.content.len()).sum();
            let what = format!("version 1, {}, {}", count(files.len(), "file"), bytes(size));
            let agent = run.spec.agent_name.clone();
            let (how, then) = (verb.submit_options, verb.wait_options);
            send(run, &agent, &what, how, &then, session).await
        }
        (None, None) => Err(Failure::client("nothing to submit")),
    }
}

/// Reads the files of a TaskRun, and validates them.
fn context(paths: &[PathBuf], input: fn() -> Box<dyn Read>) -> Result<Vec<File>, Failure> {
    let mut files = files::read_with_input(paths, input)?;
    for file in files.iter_mut().filter(|file| file.filename.is_empty()) {
        // The name that 'context add' gives the standard input of this version.
        file.filename = "context-v1.md".to_owned();
    }
    actions::check_files(&files)?;
    Ok(files)
}

/// Reads the instructions of a DocsRun, and validates them.
fn valid_files(paths: &[PathBuf]) -> Result<Vec<File>, Failure> {
    let files = files::read(paths)?;
    actions::check_files(&files)?;
    Ok(files)
}

fn task_run(verb: SubmitTask, input: fn() -> Box<dyn Read>) -> Result<TaskRun, Failure> {
    let usual = || actions::run_name(&verb.service, verb.task_id);
    let name = verb.name.unwrap_or_else(usual);
    let spec = TaskRunSpec {
        task_id: verb.task_id,
        service_name: verb.service,
        agent_name: verb.agent,
        context_version: 1,
        markdown_files: context(&verb.paths, input)?,
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
    agent: &str,
    what: &str,
    how: SubmitOptions,
    then: &WaitOptions,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let SubmitOptions {
        dry_run,
        output,
        log,
    } = how;
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
    let submission = Submission {
        author: author(&server).await,
        ..Submission::new(run, server_dry_run)
    };
    let action = actions::submit_as(&server.client, &server.namespace, &submission);
    let run = bounded(server.request("create", &name), action).await?;
    if let Some(format) = output {
        session.print(&printed(&name, &run, format)?)?;
        return check_agent(&server, agent, session).await;
    }
    session.line(&format!(
        "{name} {done} in namespace '{}': {what}",
        server.namespace
    ))?;
    let exit = check_agent(&server, agent, session).await?;
    if server_dry_run == actions::DryRun::On {
        return Ok(exit);
    }
    if log {
        return logs::until_finished(session, &server, &name, then.timeout).await;
    }
    wait::afterwards(session, &server, name, then).await
}

/// Returns the name of the user, which is stored in the run. The API server accepts runs without it, so
/// a failure does not prevent the submission.
async fn author(server: &Server) -> Option<String> {
    let user = actions::who_am_i(&server.client);
    match tokio::time::timeout(AUTHOR_TIMEOUT, user).await {
        Ok(Ok(user)) => user.username,
        Ok(Err(_not_reported)) => None,
        Err(_elapsed) => None,
    }
}

/// Prints a remark if the Agent of a submitted run does not exist. The run was submitted, so this
/// is no failure: the Agent may be created later.
async fn check_agent(
    server: &Server,
    agent: &str,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let name = ObjectName::new(&AGENT, agent);
    let remark = match server.get(&name).await {
        Ok(_exists) => return Ok(Exit::Ok),
        Err(Failure::Action(error)) if matches!(*error, Error::NotFound { .. }) => {
            let get = session.command("get agents");
            format!(
                "  {name} does not exist in namespace '{}': the run waits for it; to see which there are: {get}",
                server.namespace
            )
        }
        Err(Failure::Action(error)) => {
            format!("  it is not known whether {name} exists: {error}")
        }
        Err(failure) => return Err(failure),
    };
    session.remark(&remark)?;
    Ok(Exit::Ok)
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
            task_run(task, no_input).unwrap().metadata.name
        };
        assert_eq!(named(None).as_deref(), Some("shop-7"));
        assert_eq!(named(Some("mine")).as_deref(), Some("mine"));
    }

    fn no_input() -> Box<dyn Read> {
        Box::new(std::io::empty())
    }

    #[test]
    fn the_standard_input_is_a_file_of_the_first_version() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let input: fn() -> Box<dyn Read> = || Box::new("Do it.\n".as_bytes());
        let files = context(&paths(&["-"]), input).unwrap();
        assert_eq!(files[0].filename, "context-v1.md");
        assert_eq!(files[0].content, "Do it.\n");
        let twice = context(&paths(&["-", "-"]), input).unwrap_err();
        assert!(twice.message().contains("once only"), "{twice:?}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("context-v1.md");
        std::fs::write(&path, "Do it.").unwrap();
        let both = [path, PathBuf::from("-")];
        let taken = context(&both, input).unwrap_err();
        assert!(taken.message().contains("'context-v1.md'"), "{taken:?}");
    }
}
