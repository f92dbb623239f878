//! The bodies of requests, and the objects that they describe.

use std::sync::LazyLock;

use actions::run_name;
use api::{
    Duration,
    tasks::{ChildTtl, DocsRun, DocsRunSpec, File, Retry, TaskRun, TaskRunSpec},
};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    json::{parse, schema_of},
    problem::Problem,
};

/// A task to submit, as in the request that Orchestrator was founded on. It keeps its snake_case.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PmTask {
    /// Number of the task.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    id: i64,
    /// Name of the service that the task is about.
    service_name: String,
    /// Name of the Agent that runs the task.
    agent_name: String,
    /// Files that the agent reads. At least one.
    markdown_files: Vec<PmFile>,
}

/// A file of a task.
#[derive(Debug, Deserialize, JsonSchema)]
struct PmFile {
    /// Name of the file: one segment, without a path.
    filename: String,
    /// Text of the file.
    content: String,
}

/// More context for a task.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PmContext {
    /// The version that the context creates: the current one plus 1.
    pub(crate) version: i64,
    /// Text of the new file `context-v{version}.md`.
    pub(crate) additional_context: String,
}

/// A TaskRun to submit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewTaskRun {
    /// Name of the TaskRun. Default: the name of the service, `-`, and the number of the task.
    #[serde(default)]
    name: Option<String>,
    /// Number of the task.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    task_id: i64,
    /// Name of the service that the task is about.
    service_name: String,
    /// Name of the Agent that runs the task.
    agent_name: String,
    /// Files that the agent reads. At least one.
    files: Vec<File>,
    /// Maximum duration of one attempt. Default: that of the Agent.
    #[serde(default)]
    timeout: Option<Duration>,
    /// Retries of a failed attempt. Default: those of the Agent.
    #[serde(default)]
    retry: Option<Retry>,
    /// Whether the run waits until it is resumed. Default: false.
    #[serde(default)]
    suspend: bool,
    /// How long Jobs and ConfigMaps are kept after the run has ended.
    #[serde(rename = "childTTL", default)]
    child_ttl: Option<ChildTtl>,
}

/// A DocsRun to submit.
#[derive(Debug, Deserialize)]
pub(crate) struct NewDocsRun {
    name: String,
    #[serde(flatten)]
    spec: DocsRunSpec,
}

/// Files to add to a TaskRun.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewContext {
    /// New files. No file of the run has one of their names.
    files: Vec<NewFile>,
    /// Version that the run must have. If it has another one, nothing is added. Without this
    /// field, a repeated request adds the files again.
    #[serde(default)]
    pub(crate) expected_version: Option<i64>,
}

/// A new file of a run.
#[derive(Debug, Deserialize, JsonSchema)]
struct NewFile {
    /// Name of the file: one segment, without a path. Default: `context-v`, the new version, `.md`.
    #[serde(default)]
    filename: String,
    /// Text of the file.
    content: String,
}

/// The token of a browser that signs in.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct SignIn {
    /// A token that the API server accepts.
    token: String,
}

/// The body of an action without parameters.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Nothing {}

/// Declares the schema of a body.
macro_rules! schemas {
    ($($name:ident $schema:expr;)*) => {
        $(pub(crate) static $name: LazyLock<Value> = LazyLock::new(|| $schema);)*
    };
}

schemas! {
    PM_TASK schema_of::<PmTask>();
    PM_CONTEXT schema_of::<PmContext>();
    NEW_TASK_RUN schema_of::<NewTaskRun>();
    NEW_DOCS_RUN docs_run_schema();
    NEW_CONTEXT schema_of::<NewContext>();
    SIGN_IN schema_of::<SignIn>();
    // Without `properties`, an object would be a map with any fields.
    NOTHING json!({ "type": "object", "properties": {}, "title": "Nothing" });
}

/// Returns the schema of a DocsRun's spec with a name.
fn docs_run_schema() -> Value {
    let mut schema = schema_of::<DocsRunSpec>();
    schema["title"] = json!("NewDocsRun");
    schema["description"] = json!("A DocsRun to submit: its name, and the fields of its spec.");
    schema["properties"]["name"] =
        json!({ "description": "Name of the DocsRun.", "type": "string" });
    if let Some(required) = schema["required"].as_array_mut() {
        required.push(json!("name"));
    }
    schema
}

/// Returns the TaskRun that this body describes. Its name follows from the number of the task.
pub(crate) fn pm_task(body: &[u8]) -> Result<TaskRun, Problem> {
    let PmTask {
        id,
        service_name,
        agent_name,
        markdown_files,
    } = parse(body, &PM_TASK)?;
    let files = markdown_files.into_iter().map(|file| File {
        filename: file.filename,
        content: file.content,
    });
    let spec = TaskRunSpec {
        task_id: id,
        service_name,
        agent_name,
        context_version: 1,
        markdown_files: files.collect(),
        timeout: None,
        retry: None,
        suspend: false,
        cancel: false,
        child_ttl: None,
    };
    checked(TaskRun::new(&pm_name(id), spec))
}

/// Returns the name of a task's run.
pub(crate) fn pm_name(id: i64) -> String {
    format!("task-{id}")
}

pub(crate) fn pm_context(body: &[u8]) -> Result<PmContext, Problem> {
    parse(body, &PM_CONTEXT)
}

/// Returns the TaskRun that this body describes.
pub(crate) fn task_run(body: &[u8]) -> Result<TaskRun, Problem> {
    let NewTaskRun {
        name,
        task_id,
        service_name,
        agent_name,
        files,
        timeout,
        retry,
        suspend,
        child_ttl,
    } = parse(body, &NEW_TASK_RUN)?;
    let name = name.unwrap_or_else(|| run_name(&service_name, task_id));
    let spec = TaskRunSpec {
        task_id,
        service_name,
        agent_name,
        context_version: 1,
        markdown_files: files,
        timeout,
        retry,
        suspend,
        cancel: false,
        child_ttl,
    };
    checked(TaskRun::new(&name, spec))
}

fn checked(run: TaskRun) -> Result<TaskRun, Problem> {
    match actions::check_files(&run.spec.markdown_files) {
        Ok(()) => Ok(run),
        Err(error) => Err(Problem::of_action(&error.into(), "")),
    }
}

/// Returns the DocsRun that this body describes.
pub(crate) fn docs_run(body: &[u8]) -> Result<DocsRun, Problem> {
    let NewDocsRun { name, spec } = parse(body, &NEW_DOCS_RUN)?;
    Ok(DocsRun::new(&name, spec))
}

/// Returns the new files, and the expected version.
pub(crate) fn context(body: &[u8]) -> Result<(Vec<File>, Option<i64>), Problem> {
    let NewContext {
        files,
        expected_version,
    } = parse(body, &NEW_CONTEXT)?;
    let files = files.into_iter().map(|file| File {
        filename: file.filename,
        content: file.content,
    });
    Ok((files.collect(), expected_version))
}

/// Returns the token of a browser that signs in.
pub(crate) fn sign_in(body: &[u8]) -> Result<String, Problem> {
    let SignIn { token } = parse(body, &SIGN_IN)?;
    Ok(token)
}

/// Checks that the body of an action without parameters has none.
pub(crate) fn nothing(body: &[u8]) -> Result<(), Problem> {
    if body.is_empty() {
        return Ok(());
    }
    let Nothing {} = parse(body, &NOTHING)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail<T: std::fmt::Debug>(found: Result<T, Problem>) -> (u16, String) {
        let problem = found.unwrap_err();
        (problem.reason.status(), problem.detail)
    }

    fn pm(change: impl FnOnce(&mut Value)) -> Result<TaskRun, Problem> {
        let mut body = json!({ "id": 7, "service_name": "shop", "agent_name": "writer",
            "markdown_files": [{ "filename": "task.md", "content": "Do it." }] });
        change(&mut body);
        pm_task(body.to_string().as_bytes())
    }

    #[test]
    fn s3_11_a_task_of_the_seed_becomes_its_run() {
        let run = pm(|_| ()).unwrap();
        assert_eq!(run.metadata.name.as_deref(), Some("task-7"));
        let TaskRunSpec {
            task_id,
            service_name,
            agent_name,
            context_version,
            markdown_files,
            ..
        } = run.spec;
        assert_eq!((task_id, context_version), (7, 1));
        assert_eq!(
            (service_name.as_str(), agent_name.as_str()),
            ("shop", "writer")
        );
        assert_eq!(markdown_files.len(), 1);
        assert_eq!(markdown_files[0].content, "Do it.");
    }

    #[test]
    fn s3_11_a_task_without_files_or_with_unknown_fields_is_refused() {
        type Spoil = fn(&mut Value);
        let cases: [(Spoil, &str); 6] = [
            (|body| body["markdown_files"] = json!([]), "no files"),
            (
                |body| body["markdown_files"][0]["filename"] = json!("../x"),
                "cannot be the name of a file",
            ),
            (
                |body| body["markdownFiles"] = json!([]),
                "unknown field 'markdownFiles'",
            ),
            (
                |body| body["markdown_files"][0]["mode"] = json!(7),
                "unknown field 'markdown_files[0].mode'",
            ),
            (|body| body["id"] = json!("7"), "invalid type"),
            (|body| body["id"] = Value::Null, "invalid type"),
        ];
        for (change, wanted) in cases {
            let (status, said) = detail(pm(change));
            assert_eq!(status, 400);
            assert!(said.contains(wanted), "{said}");
        }
    }

    #[test]
    fn each_field_of_a_task_run_reaches_its_spec() {
        let body = json!({ "name": "mine", "taskId": 7, "serviceName": "shop",
            "agentName": "writer", "files": [{ "filename": "a.md", "content": "A" }],
            "timeout": "300s", "retry": { "maxAttempts": 3 }, "suspend": true,
            "childTTL": { "failed": "3600s" } });
        let run = task_run(body.to_string().as_bytes()).unwrap();
        let mut wanted = body;
        wanted["markdownFiles"] = wanted["files"].clone();
        let found = serde_json::to_value(&run.spec).unwrap();
        for field in [
            "taskId",
            "serviceName",
            "agentName",
            "markdownFiles",
            "timeout",
            "suspend",
            "childTTL",
        ] {
            assert_eq!(found[field], wanted[field], "{field}");
        }
        assert_eq!(found["retry"]["maxAttempts"], 3);
        assert_eq!(
            (&found["cancel"], &found["contextVersion"]),
            (&json!(false), &json!(1))
        );
        assert_eq!(run.metadata.name.as_deref(), Some("mine"));

        let usual = json!({ "taskId": 7, "serviceName": "shop", "agentName": "writer",
            "files": [{ "filename": "a.md", "content": "A" }] });
        let run = task_run(usual.to_string().as_bytes()).unwrap();
        assert_eq!(run.metadata.name.as_deref(), Some("shop-7"));
    }

    #[test]
    fn what_a_task_run_does_not_have_is_refused_at_each_depth() {
        for (field, value, wanted) in [
            ("cancel", json!(true), "unknown field 'cancel'"),
            ("contextVersion", json!(2), "unknown field 'contextVersion'"),
            (
                "retry",
                json!({ "attempts": 1 }),
                "unknown field 'retry.attempts'",
            ),
            (
                "childTTL",
                json!({ "ok": "1h" }),
                "unknown field 'childTTL.ok'",
            ),
            (
                "files",
                json!([{ "filename": "a", "content": "", "path": "/" }]),
                "unknown field 'files[0].path'",
            ),
            (
                "files",
                json!([{ "content": "" }]),
                "missing field `filename`",
            ),
            ("timeout", json!("soon"), "the body:"),
        ] {
            let mut body = json!({ "taskId": 7, "serviceName": "shop", "agentName": "writer",
                "files": [{ "filename": "a.md", "content": "A" }] });
            body[field] = value;
            let (status, said) = detail(task_run(body.to_string().as_bytes()));
            assert!(status == 400 && said.contains(wanted), "{said}");
        }
    }

    #[test]
    fn a_docs_run_has_a_name_and_the_fields_of_its_spec() {
        let body = json!({ "name": "guide", "repositoryUrl": "https://git.example/team/shop",
            "sourceBranch": "main", "agentName": "writer", "output": { "path": "docs" } });
        let run = docs_run(body.to_string().as_bytes()).unwrap();
        assert_eq!(run.metadata.name.as_deref(), Some("guide"));
        assert_eq!(run.spec.repository_url, "https://git.example/team/shop");
        assert_eq!(run.spec.output.path, "docs");
        for (field, value, wanted) in [
            ("branch", json!("x"), "unknown field 'branch'"),
            (
                "output",
                json!({ "push": true }),
                "unknown field 'output.push'",
            ),
        ] {
            let mut body = body.clone();
            body[field] = value;
            let (status, said) = detail(docs_run(body.to_string().as_bytes()));
            assert!(status == 400 && said.contains(wanted), "{said}");
        }
        let unnamed = json!({ "repositoryUrl": "x", "sourceBranch": "main", "agentName": "a" });
        let (_, said) = detail(docs_run(unnamed.to_string().as_bytes()));
        assert!(said.contains("missing field `name`"), "{said}");
    }

    #[test]
    fn context_may_leave_out_names_and_the_version() {
        let (files, expected) = context(br#"{"files":[{"content":"More."}]}"#).unwrap();
        assert_eq!((files[0].filename.as_str(), expected), ("", None));
        let body = br#"{"files":[{"filename":"a.md","content":""}],"expectedVersion":3}"#;
        assert_eq!(context(body).unwrap().1, Some(3));
        let (_, said) = detail(context(br#"{"files":[],"version":3}"#));
        assert!(said.contains("unknown field 'version'"), "{said}");
    }

    #[test]
    fn an_action_without_parameters_takes_no_fields() {
        for body in ["", "{}", " {} "] {
            nothing(body.as_bytes()).unwrap();
        }
        for body in ["[]", "null", r#"{"force":true}"#, "x"] {
            assert_eq!(detail(nothing(body.as_bytes())).0, 400, "{body}");
        }
    }
}
