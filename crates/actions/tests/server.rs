//! The actions on the real API server: who wins, what is kept, what is refused.

use std::time::Duration;

use actions::{
    Change, Changed, Error, Files, Submission, Trial, add_context, change, run_again, submit,
};
use anyhow::{Context, Result, bail};
use api::tasks::{File, TaskRun};
use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
};

fn file(name: &str, content: &str) -> File {
    File {
        filename: name.to_owned(),
        content: content.to_owned(),
    }
}

fn submission(files: &[(&str, &str)]) -> Result<Submission> {
    let files = files.iter().map(|(name, content)| file(name, content));
    Ok(Submission {
        name: None,
        task_id: 7,
        service_name: "shop".to_owned(),
        agent_name: "writer".to_owned(),
        files: Files::new(files.collect())?,
    })
}

async fn prepared(env: &Env) -> Result<()> {
    testkit::operator::install(&env.client, api::crd::tasks()).await
}

async fn submitted(env: &Env) -> Result<TaskRun> {
    prepared(env).await?;
    let wanted = submission(&[("task.md", "Do it.")])?;
    Ok(submit(&env.client, &env.namespace, &wanted, Trial::Real).await?)
}

async fn stored(env: &Env) -> Result<TaskRun> {
    Ok(env.api::<TaskRun>().get("shop-7").await?)
}

fn names(run: &TaskRun) -> Vec<&str> {
    let files = run.spec.markdown_files.iter();
    let mut names: Vec<&str> = files.map(|file| file.filename.as_str()).collect();
    names.sort_unstable();
    names
}

/// What the operator would record.
async fn record(env: &Env, status: &Value) -> Result<()> {
    let how = PatchParams::default();
    let patch = Patch::Merge(json!({ "status": status }));
    env.api::<TaskRun>()
        .patch_status("shop-7", &how, &patch)
        .await?;
    Ok(())
}

fn finished(version: i64, value: &str, reason: &str) -> Value {
    let condition = |kind: &str, value: &str| {
        json!({ "type": kind, "status": value, "reason": reason, "message": "as the test says",
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    json!({
        "observedGeneration": 1, "contextVersion": version,
        "phase": if value == "True" { "Succeeded" } else { "Failed" },
        "conditions": [condition("Finished", "True"), condition("Succeeded", value)],
    })
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r21_of_submits_at_once_exactly_one_wins() -> Result<()> {
    suite::test(Tier::Api, "r21", async |env| {
        prepared(&env).await?;
        let each = (0..8).map(async |number: i32| {
            let content = format!("I am number {number}.");
            let wanted = submission(&[("task.md", &content)])?;
            anyhow::Ok((
                content,
                submit(&env.client, &env.namespace, &wanted, Trial::Real).await,
            ))
        });
        let (mut won, mut lost) = (Vec::new(), 0);
        for result in join_all(each).await {
            match result? {
                (content, Ok(_)) => won.push(content),
                (_, Err(Error::Exists { name, is_going, .. })) => {
                    assert!(name == "shop-7" && !is_going);
                    lost += 1;
                }
                (_, Err(error)) => bail!("{error}"),
            }
        }
        assert_eq!((won.len(), lost), (1, 7));
        let kept = stored(&env).await?;
        assert_eq!(kept.spec.markdown_files[0].content, won[0]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_dry_run_asks_the_server_and_stores_nothing() -> Result<()> {
    suite::test(Tier::Api, "dry-run", async |env| {
        prepared(&env).await?;
        let (client, namespace) = (&env.client, &env.namespace);
        let wanted = submission(&[("task.md", "Do it.")])?;
        submit(client, namespace, &wanted, Trial::DryRun).await?;
        submit(client, namespace, &wanted, Trial::Real).await?;
        let again = submit(client, namespace, &wanted, Trial::DryRun).await;
        assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
        let added = [file("", "More.")];
        let tried = add_context(client, namespace, "shop-7", &added, Trial::DryRun).await?;
        assert_eq!(tried.version, 2);
        assert_eq!(stored(&env).await?.spec.context_version, 1);
        Ok(())
    })
    .await
}

/// Adds until it is in, as a user does who reads "made by someone else meanwhile".
async fn insist(env: &Env, content: &str) -> Result<usize> {
    for conflicts in 0..50 {
        let added = [file(content, content)];
        match add_context(&env.client, &env.namespace, "shop-7", &added, Trial::Real).await {
            Ok(_) => return Ok(conflicts),
            Err(Error::Conflict { wanted, found, .. }) => assert!(wanted <= found),
            Err(error) => bail!("{error}"),
        }
    }
    bail!("never added")
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r15_of_writers_at_once_every_file_is_kept() -> Result<()> {
    suite::test(Tier::Api, "r15-writers", async |env| {
        submitted(&env).await?;
        let writers = ["a.md", "b.md", "c.md", "d.md", "e.md", "f.md"];
        let conflicts = join_all(writers.map(|writer| insist(&env, writer))).await;
        let conflicts: usize = conflicts.into_iter().sum::<Result<usize>>()?;
        assert!(conflicts > 0, "the writers never met: nothing was shown");
        let run = stored(&env).await?;
        assert_eq!(run.spec.context_version, 7, "one version for each");
        assert_eq!(
            names(&run),
            ["a.md", "b.md", "c.md", "d.md", "e.md", "f.md", "task.md"]
        );
        for file in &run.spec.markdown_files[1..] {
            assert_eq!(file.content, file.filename, "the writer's own content");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r15_an_added_file_replaces_none_and_belongs_to_its_version() -> Result<()> {
    suite::test(Tier::Api, "r15-add", async |env| {
        submitted(&env).await?;
        let (client, namespace) = (&env.client, &env.namespace);
        let add = async |added: &[File]| {
            add_context(client, namespace, "shop-7", added, Trial::Real).await
        };
        let second = add(&[file("", "More.")]).await?;
        assert_eq!(
            (second.version, second.files),
            (2, vec!["context-v2.md".to_owned()])
        );
        let third = add(&[file("notes.md", "Notes."), file("", "Even more.")]).await?;
        assert_eq!(
            names(&third.run),
            ["context-v2.md", "context-v3.md", "notes.md", "task.md"]
        );
        let taken = add(&[file("notes.md", "Other notes.")]).await;
        assert!(matches!(&taken, Err(Error::FileExists { file, .. }) if file == "notes.md"));

        let managers: Vec<String> = third
            .run
            .metadata
            .managed_fields
            .iter()
            .flat_map(|all| all.iter())
            .filter(|entry| {
                let fields = entry.fields_v1.as_ref();
                fields.is_some_and(|fields| fields.0.to_string().contains("contextVersion"))
            })
            .filter_map(|entry| entry.manager.clone())
            .collect();
        assert_eq!(managers, ["orc-context-v3"], "force took 'contextVersion'");
        Ok(())
    })
    .await
}

/// What the server itself does with writers that do not read first: force, and no
/// `resourceVersion`.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r15_the_server_refuses_what_careless_writers_apply() -> Result<()> {
    suite::test(Tier::Api, "r15-careless", async |env| {
        submitted(&env).await?;
        let added = [file("context-v2.md", "Mine.")];
        add_context(&env.client, &env.namespace, "shop-7", &added, Trial::Real).await?;
        let unchanged = "'markdownFiles' may change only together with a higher 'contextVersion'";
        let missing = "an earlier file may not disappear: 'context-v2.md' is missing";
        let cases = [
            // Two managers that make one version: the second changes files without a new version.
            ("other", 2, "context-v2.md", "Theirs.", unchanged),
            ("other", 2, "theirs.md", "Theirs.", unchanged),
            // The manager of a version applies something else: its own file would go.
            ("orc-context-v2", 3, "theirs.md", "Theirs.", missing),
            ("orc-context-v2", 2, "theirs.md", "Theirs.", missing),
            // A writer that read long ago.
            ("other", 1, "theirs.md", "Theirs.", "may only grow"),
        ];
        for (manager, version, name, content, wanted) in cases {
            let how = PatchParams::apply(manager).force();
            let body = json!({
                "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
                "metadata": { "name": "shop-7" },
                "spec": { "contextVersion": version,
                    "markdownFiles": [{ "filename": name, "content": content }] },
            });
            let applied = env
                .api::<TaskRun>()
                .patch("shop-7", &how, &Patch::Apply(body))
                .await;
            let said = applied.err().context("it was taken")?.to_string();
            assert!(said.contains(wanted), "{manager} {version} {name}: {said}");
        }
        let run = stored(&env).await?;
        assert_eq!(names(&run), ["context-v2.md", "task.md"]);
        assert_eq!(run.spec.markdown_files[1].content, "Mine.");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn records_of_the_operator_are_no_conflict() -> Result<()> {
    suite::test(Tier::Api, "records", async |env| {
        submitted(&env).await?;
        let records = async {
            for number in 0..10 {
                record(&env, &json!({ "message": format!("record {number}") })).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        let adding = async {
            for number in 0..5 {
                let added = [file(&format!("{number}.md"), "More.")];
                add_context(&env.client, &env.namespace, "shop-7", &added, Trial::Real).await?;
            }
            anyhow::Ok(())
        };
        let (recorded, added) = tokio::join!(records, adding);
        recorded?;
        added?;
        assert_eq!(stored(&env).await?.spec.context_version, 6);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_run_is_held_let_go_and_cancelled() -> Result<()> {
    suite::test(Tier::Api, "steer", async |env| {
        submitted(&env).await?;
        let steer =
            async |wanted: Change| change(&env.client, &env.namespace, "shop-7", wanted).await;
        assert!(matches!(steer(Change::Resume).await?, Changed::Before(_)));
        assert!(steer(Change::Suspend).await?.run().spec.suspend);
        assert!(matches!(steer(Change::Suspend).await?, Changed::Before(_)));
        assert!(!steer(Change::Resume).await?.run().spec.suspend);
        assert!(steer(Change::Cancel).await?.run().spec.cancel);
        assert!(matches!(steer(Change::Cancel).await?, Changed::Before(_)));
        let held = steer(Change::Suspend).await;
        assert!(matches!(held, Err(Error::Cancelled { .. })), "{held:?}");
        let added = [file("", "More.")];
        let added = add_context(&env.client, &env.namespace, "shop-7", &added, Trial::Real).await;
        assert!(matches!(added, Err(Error::Cancelled { .. })), "{added:?}");
        let missing = change(&env.client, &env.namespace, "no-such", Change::Cancel).await;
        assert!(
            matches!(missing, Err(Error::NotFound { .. })),
            "{missing:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn only_a_finished_run_runs_again() -> Result<()> {
    suite::test(Tier::Api, "again", async |env| {
        let first = submitted(&env).await?;
        let again = async || run_again(&env.client, &env.namespace, "shop-7").await;
        let running = again().await;
        assert!(
            matches!(running, Err(Error::NotFinished { version: 1, .. })),
            "{running:?}"
        );
        record(&env, &finished(1, "False", "NonZeroExit")).await?;
        let cancel = change(&env.client, &env.namespace, "shop-7", Change::Cancel).await;
        assert!(matches!(cancel, Err(Error::Finished { .. })), "{cancel:?}");
        let second = again().await?;
        assert_eq!(second.spec.context_version, 2);
        assert_eq!(second.spec.markdown_files, first.spec.markdown_files);
        let superseded = again().await;
        assert!(
            matches!(superseded, Err(Error::NotFinished { version: 2, .. })),
            "{superseded:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn of_retries_at_once_one_makes_the_version() -> Result<()> {
    suite::test(Tier::Api, "again-once", async |env| {
        submitted(&env).await?;
        record(&env, &finished(1, "False", "NonZeroExit")).await?;
        let each = (0..8).map(|_| run_again(&env.client, &env.namespace, "shop-7"));
        let (mut won, mut lost) = (0, 0);
        for result in join_all(each).await {
            match result {
                Ok(_) => won += 1,
                Err(Error::Conflict { .. } | Error::NotFinished { .. }) => lost += 1,
                Err(error) => bail!("{error}"),
            }
        }
        assert_eq!((won, lost), (1, 7));
        assert_eq!(stored(&env).await?.spec.context_version, 2);
        Ok(())
    })
    .await
}
