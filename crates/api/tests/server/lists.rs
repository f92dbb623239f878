//! Files as a list that several writers share.

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
};

use crate::{
    support::{Answer, Kind, install, send, taken},
    wrong::files,
};

/// Applies one version with these files, as a user's tool does.
async fn apply(env: &Env, manager: &str, version: i64, files: &[&str]) -> Result<Answer> {
    let mut spec = Kind::TaskRun.least();
    spec["contextVersion"] = json!(version);
    spec["markdownFiles"] = files
        .iter()
        .map(|name| json!({ "filename": name, "content": name }))
        .collect();
    let object = Kind::TaskRun.object("shared", &spec);
    let path = Kind::TaskRun.path(&env.namespace, "/shared");
    let query = format!("fieldManager={manager}&force=true&fieldValidation=Strict");
    send(&env.client, Method::PATCH, &path, &query, Some(&object)).await
}

fn names(run: &Value) -> Vec<&str> {
    let files = run["spec"]["markdownFiles"].as_array();
    files
        .into_iter()
        .flat_map(|files| files.iter().filter_map(|file| file["filename"].as_str()))
        .collect()
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r15_a_later_writer_does_not_replace_earlier_files() -> Result<()> {
    suite::test(Tier::Api, "r15", async |env| {
        install(&env.client).await?;
        taken(apply(&env, "v1", 1, &["task.md"]).await?)?;
        let second = taken(apply(&env, "v2", 2, &["answers.md"]).await?)?;
        assert_eq!(names(&second), ["task.md", "answers.md"]);

        let dropped = apply(&env, "v2", 3, &["more.md"]).await?;
        let refusal = dropped.err().context("a file disappeared")?;
        assert_eq!(refusal.code, 422, "{}", refusal.message);
        assert!(
            refusal
                .message
                .contains("an earlier file may not disappear: 'answers.md' is missing"),
            "{}",
            refusal.message
        );
        Ok(())
    })
    .await
}

/// The instructions of a DocsRun belong to one writer. Nobody can add a file to them.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn instructions_are_what_they_were() -> Result<()> {
    suite::test(Tier::Api, "instructions", async |env| {
        install(&env.client).await?;
        let kind = Kind::DocsRun;
        let path = kind.path(&env.namespace, "/shared");
        let apply = async |manager: &str, names: &[&str]| {
            let mut spec = kind.least();
            spec["instructions"] = files(names);
            let query = format!("fieldManager={manager}&force=true&fieldValidation=Strict");
            let object = kind.object("shared", &spec);
            send(&env.client, Method::PATCH, &path, &query, Some(&object)).await
        };
        taken(apply("first", &["style.md", "audience.md"]).await?)?;
        taken(apply("first", &["audience.md", "style.md"]).await?)?;
        // The second writer's list is merged into the first one's.
        taken(apply("second", &["style.md"]).await?)?;
        for names in [["style.md", "more.md"], ["Style.md", "style.md"]] {
            let refusal = apply("second", &names)
                .await?
                .err()
                .context("it was taken")?;
            assert_eq!(refusal.code, 422, "{}", refusal.message);
            let words = "'instructions' cannot be changed; submit another DocsRun";
            assert!(refusal.message.contains(words), "{}", refusal.message);
        }
        Ok(())
    })
    .await
}
