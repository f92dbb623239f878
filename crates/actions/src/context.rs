//! Adds files to a run as the next version of its context.

use api::tasks::{File, TASK_RUN, TaskRun};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, ValidationDirective},
};
use serde_json::{Value, json};

use crate::{DryRun, Error, ObjectName, Request, TRIES, files, same_version};

/// The result of adding files to a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Added {
    /// The run after the write.
    pub run: TaskRun,
    /// The context version that contains the new files.
    pub version: i64,
    /// The names of the new files.
    pub files: Vec<String>,
}

/// Adds files as the next context version N. A file with an empty name becomes `context-v{N}.md`.
///
/// # Guarantees
/// - Files that others added stay. Each version is applied by its own field manager, which owns
///   only the files that it added.
/// - Force takes over the ownership of `contextVersion` only. Force applies to a whole request, so
///   the request carries the `resourceVersion` of the run that we read. None of the new files
///   existed at that version, and the server rejects the request if the run changed since.
/// - If two writers create the same version, one succeeds, and the other gets [`Error::Conflict`].
/// - With `expected`, the run must be at this version. Otherwise the function returns
///   [`Error::Conflict`] and adds nothing. So of several callers that saw the same version, one
///   succeeds, and a repeated request adds nothing twice.
///
/// # Errors
/// [`Error::Conflict`], [`Error::FileExists`], [`Error::Cancelled`], [`Error::Deleting`], or an
/// error of the server. Then nothing was added, except perhaps after [`Error::Unanswered`].
pub async fn add(
    client: &Client,
    namespace: &str,
    name: &str,
    added: &[File],
    expected: Option<i64>,
    dry_run: DryRun,
) -> Result<Added, Error> {
    let runs: Api<TaskRun> = Api::namespaced(client.clone(), namespace);
    let object = ObjectName::new(&TASK_RUN, name);
    let mut first_seen = expected;
    for _ in 0..TRIES {
        let run = runs
            .get(name)
            .await
            .map_err(|error| Request::about("get", &object, namespace).failed(error))?;
        same_version(&mut first_seen, run.spec.context_version, &object)?;
        let next = plan(&run, &object, added)?;
        let how = PatchParams {
            dry_run: dry_run.is_on(),
            force: true,
            field_manager: Some(format!("orc-context-v{}", next.version)),
            field_validation: Some(ValidationDirective::Strict),
        };
        match runs.patch(name, &how, &Patch::Apply(next.body(&run))).await {
            Ok(run) => {
                return Ok(Added {
                    run,
                    version: next.version,
                    files: next.files.into_iter().map(|file| file.filename).collect(),
                });
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Request::about("patch", &object, namespace).failed(error)),
        }
    }
    Err(Error::Busy(object))
}

/// The next version and the files that it adds.
#[derive(Debug, PartialEq)]
struct Next {
    version: i64,
    files: Vec<File>,
}

impl Next {
    fn body(&self, run: &TaskRun) -> Value {
        json!({
            "apiVersion": "orchestrator.io/v1",
            "kind": "TaskRun",
            "metadata": {
                "name": run.metadata.name,
                "resourceVersion": run.metadata.resource_version,
            },
            "spec": { "contextVersion": self.version, "markdownFiles": self.files },
        })
    }
}

fn plan(run: &TaskRun, object: &ObjectName, added: &[File]) -> Result<Next, Error> {
    if run.metadata.deletion_timestamp.is_some() {
        return Err(Error::Deleting(object.clone()));
    }
    if run.spec.cancel {
        return Err(Error::Cancelled(object.clone()));
    }
    let version = run.spec.context_version.saturating_add(1);
    let files: Vec<File> = added
        .iter()
        .map(|file| File {
            filename: if file.filename.is_empty() {
                format!("context-v{version}.md")
            } else {
                file.filename.clone()
            },
            content: file.content.clone(),
        })
        .collect();
    files::check(&files)?;
    let known = &run.spec.markdown_files;
    if let Some(file) = files
        .iter()
        .find(|file| known.iter().any(|known| known.filename == file.filename))
    {
        return Err(Error::FileExists {
            run: object.clone(),
            file: file.filename.clone(),
        });
    }
    let all: Vec<File> = known.iter().chain(&files).cloned().collect();
    files::check(&all)?;
    Ok(Next { version, files })
}

#[cfg(test)]
mod tests {
    use api::tasks::{CONTEXT_LIMIT, TaskRunSpec};

    use super::*;

    fn file(name: &str, size: usize) -> File {
        File {
            filename: name.to_owned(),
            content: "x".repeat(size),
        }
    }

    fn run(change: impl FnOnce(&mut TaskRun)) -> TaskRun {
        let mut run = TaskRun::new(
            "shop-7",
            TaskRunSpec {
                task_id: 7,
                service_name: "shop".to_owned(),
                agent_name: "writer".to_owned(),
                context_version: 4,
                markdown_files: vec![file("task.md", 10)],
                timeout: None,
                retry: None,
                suspend: false,
                cancel: false,
                child_ttl: None,
            },
        );
        change(&mut run);
        run
    }

    fn planned(run: &TaskRun, added: &[File]) -> Result<(i64, Vec<String>), String> {
        plan(run, &ObjectName::new(&TASK_RUN, "shop-7"), added)
            .map(|next| {
                let names = next.files.into_iter().map(|file| file.filename);
                (next.version, names.collect())
            })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_next_version_adds_and_never_replaces() {
        let plain = run(|_| ());
        let wanted = |names: &[&str]| Ok((5, names.iter().map(|&name| name.to_owned()).collect()));
        assert_eq!(planned(&plain, &[file("", 1)]), wanted(&["context-v5.md"]));
        assert_eq!(
            planned(&plain, &[file("notes.md", 1), file("", 1)]),
            wanted(&["notes.md", "context-v5.md"])
        );

        let cancelled = run(|run| run.spec.cancel = true);
        let refused = [
            (&plain, vec![], "no files"),
            (
                &plain,
                vec![file("task.md", 1)],
                "has a file 'task.md' already",
            ),
            (
                &plain,
                vec![file("", 1), file("", 1)],
                "the name 'context-v5.md'",
            ),
            (
                &plain,
                vec![file("b.md", CONTEXT_LIMIT - 9)],
                "921601 bytes together",
            ),
            (&cancelled, vec![file("b.md", 1)], "was cancelled"),
        ];
        for (run, added, wanted) in refused {
            let said = planned(run, &added).unwrap_err();
            assert!(said.contains(wanted), "{said}");
        }
    }
}
