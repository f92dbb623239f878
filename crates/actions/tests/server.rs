//! Tests of the actions on the real API server: concurrent writers, kept files, rejected writes.

use std::time::Duration;

use actions::{
    Change, Changed, DryRun, Error, ObjectName, Submission, add_context, change, run_again,
    run_docs_again, submit, submit_as, who_am_i,
};
use anyhow::{Context, Result, bail};
use api::tasks::{DOCS_RUN, DocsRun, File, TASK_RUN, TaskRun};
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

fn task(content: &str) -> Result<TaskRun> {
    let spec = json!({ "taskId": 7, "serviceName": "shop", "agentName": "writer",
        "markdownFiles": [{ "filename": "task.md", "content": content }] });
    Ok(TaskRun::new("shop-7", serde_json::from_value(spec)?))
}

async fn prepared(env: &Env) -> Result<()> {
    testkit::operator::install(&env.client, api::tasks::OPERATOR.crds()).await
}

async fn submitted(env: &Env) -> Result<TaskRun> {
    prepared(env).await?;
    let wanted = task("Do it.")?;
    Ok(submit(&env.client, &env.namespace, &wanted, DryRun::Off).await?)
}

async fn changed(env: &Env, name: &ObjectName, wanted: Change) -> Result<Changed, Error> {
    change(&env.client, &env.namespace, name, wanted).await
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

/// Writes a status as the operator would.
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
            let wanted = task(&content)?;
            let made = submit(&env.client, &env.namespace, &wanted, DryRun::Off).await;
            anyhow::Ok((content, made))
        });
        let (mut won, mut lost) = (Vec::new(), 0);
        for result in join_all(each).await {
            match result? {
                (content, Ok(_)) => won.push(content),
                (_, Err(Error::Exists { run, is_going, .. })) => {
                    assert!(run.name == "shop-7" && !is_going);
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
async fn r21_of_repeated_submissions_one_makes_the_run_and_all_return_it() -> Result<()> {
    suite::test(Tier::Api, "repeated", async |env| {
        prepared(&env).await?;
        let (client, namespace) = (&env.client, &env.namespace);
        let author = who_am_i(client).await?.username;
        let with_key = |key: &str, content: &str| -> Result<Submission<TaskRun>> {
            let mut submission = Submission::new(task(content)?, DryRun::Off);
            submission.author = author.clone();
            submission.idempotency_key = Some(key.to_owned());
            Ok(submission)
        };
        let wanted = with_key("k1", "Do it.")?;
        let each = (0..8).map(|_| submit_as(client, namespace, &wanted));
        let mut uids = Vec::new();
        for run in join_all(each).await {
            uids.push(run?.metadata.uid);
        }
        let stored = stored(&env).await?;
        assert!(uids.iter().all(|uid| *uid == stored.metadata.uid));
        let labels = stored.metadata.labels.unwrap_or_default();
        assert_eq!(labels.get("task-id").map(String::as_str), Some("7"));

        let other = with_key("k1", "Do something else.")?;
        let other = submit_as(client, namespace, &other).await;
        assert!(matches!(other, Err(Error::KeyReused(_))), "{other:?}");
        for (key, content) in [(Some("k2"), "Do it."), (None, "Do it.")] {
            let mut again = with_key("", content)?;
            again.idempotency_key = key.map(str::to_owned);
            let again = submit_as(client, namespace, &again).await;
            assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
        }
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
        let wanted = task("Do it.")?;
        submit(client, namespace, &wanted, DryRun::On).await?;
        submit(client, namespace, &wanted, DryRun::Off).await?;
        let again = submit(client, namespace, &wanted, DryRun::On).await;
        assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
        let added = [file("", "More.")];
        let tried = add_context(client, namespace, "shop-7", &added, None, DryRun::On).await?;
        assert_eq!(tried.version, 2);
        assert_eq!(stored(&env).await?.spec.context_version, 1);
        Ok(())
    })
    .await
}

/// Adds a file until it succeeds, like a user after the message "made by someone else meanwhile".
async fn insist(env: &Env, content: &str) -> Result<usize> {
    for conflicts in 0..50 {
        let added = [file(content, content)];
        match add_context(
            &env.client,
            &env.namespace,
            "shop-7",
            &added,
            None,
            DryRun::Off,
        )
        .await
        {
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
            add_context(client, namespace, "shop-7", added, None, DryRun::Off).await
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

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r15_of_additions_to_one_version_exactly_one_wins() -> Result<()> {
    suite::test(Tier::Api, "r15-expected", async |env| {
        submitted(&env).await?;
        let (client, namespace) = (&env.client, &env.namespace);
        let each = (0..20).map(async |number: i32| {
            let added = [file("", &format!("I am number {number}."))];
            add_context(client, namespace, "shop-7", &added, Some(1), DryRun::Off).await
        });
        let (mut won, mut lost) = (0, 0);
        for result in join_all(each).await {
            match result {
                Ok(added) => {
                    assert_eq!(added.version, 2);
                    won += 1;
                }
                Err(Error::Conflict { wanted, found, .. }) => {
                    assert_eq!((wanted, found), (2, 2));
                    lost += 1;
                }
                Err(error) => bail!("{error}"),
            }
        }
        assert_eq!((won, lost), (1, 19));
        let early = [file("", "Too early.")];
        let early = add_context(client, namespace, "shop-7", &early, Some(8), DryRun::Off).await;
        assert!(
            matches!(
                early,
                Err(Error::Conflict {
                    wanted: 9,
                    found: 2,
                    ..
                })
            ),
            "{early:?}"
        );
        assert_eq!(names(&stored(&env).await?), ["context-v2.md", "task.md"]);
        Ok(())
    })
    .await
}

/// Tests how the server itself treats writers that do not read first: force, and no
/// `resourceVersion`.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r15_the_server_refuses_what_careless_writers_apply() -> Result<()> {
    suite::test(Tier::Api, "r15-careless", async |env| {
        submitted(&env).await?;
        let added = [file("context-v2.md", "Mine.")];
        add_context(
            &env.client,
            &env.namespace,
            "shop-7",
            &added,
            None,
            DryRun::Off,
        )
        .await?;
        let unchanged = "'markdownFiles' may change only together with a higher 'contextVersion'";
        let missing = "an earlier file may not disappear: 'context-v2.md' is missing";
        let cases = [
            // Two managers create the same version. The second one changes files without a new
            // version.
            ("other", 2, "context-v2.md", "Theirs.", unchanged),
            ("other", 2, "theirs.md", "Theirs.", unchanged),
            // The manager of a version applies another file, so its own file would be removed.
            ("orc-context-v2", 3, "theirs.md", "Theirs.", missing),
            ("orc-context-v2", 2, "theirs.md", "Theirs.", missing),
            // A writer has read an outdated version.
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
                // An action has five tries. On a busy machine, one try takes 50 ms.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            anyhow::Ok(())
        };
        let adding = async {
            for number in 0..5 {
                let added = [file(&format!("{number}.md"), "More.")];
                add_context(
                    &env.client,
                    &env.namespace,
                    "shop-7",
                    &added,
                    None,
                    DryRun::Off,
                )
                .await?;
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
    suite::test(Tier::Api, "lifecycle", async |env| {
        submitted(&env).await?;
        let run = ObjectName::new(&TASK_RUN, "shop-7");
        let apply = async |wanted: Change| changed(&env, &run, wanted).await;
        let is_set = |changed: &Changed, path| changed.is_new && changed.object.is_set(path);
        assert!(!apply(Change::Resume).await?.is_new);
        assert!(is_set(&apply(Change::Suspend).await?, "spec.suspend"));
        assert!(!apply(Change::Suspend).await?.is_new);
        let resumed = apply(Change::Resume).await?;
        assert!(resumed.is_new && !resumed.object.is_set("spec.suspend"));
        assert!(is_set(&apply(Change::Cancel).await?, "spec.cancel"));
        assert!(!apply(Change::Cancel).await?.is_new);
        let held = apply(Change::Suspend).await;
        assert!(matches!(held, Err(Error::Cancelled(_))), "{held:?}");
        let added = [file("", "More.")];
        let added = add_context(
            &env.client,
            &env.namespace,
            "shop-7",
            &added,
            None,
            DryRun::Off,
        )
        .await;
        assert!(matches!(added, Err(Error::Cancelled(_))), "{added:?}");
        let missing = ObjectName::new(&TASK_RUN, "no-such");
        let missing = changed(&env, &missing, Change::Cancel).await;
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
            matches!(
                running,
                Err(Error::NotFinished {
                    version: Some(1),
                    ..
                })
            ),
            "{running:?}"
        );
        record(&env, &finished(1, "False", "NonZeroExit")).await?;
        let cancel = changed(&env, &ObjectName::new(&TASK_RUN, "shop-7"), Change::Cancel).await;
        assert!(matches!(cancel, Err(Error::Finished { .. })), "{cancel:?}");
        let second = again().await?;
        assert_eq!(second.version(), Some(2));
        let files: Option<Vec<File>> = second.part("spec.markdownFiles");
        assert_eq!(files, Some(first.spec.markdown_files));
        let superseded = again().await;
        assert!(
            matches!(
                superseded,
                Err(Error::NotFinished {
                    version: Some(2),
                    ..
                })
            ),
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

fn docs(name: &str, repository: &str) -> Result<DocsRun> {
    let spec = json!({ "repositoryUrl": repository, "sourceBranch": "main", "agentName": "writer",
        "credentialsSecretRef": { "name": "git" }, "timeout": "30m" });
    Ok(DocsRun::new(name, serde_json::from_value(spec)?))
}

const REPOSITORY: &str = "https://git.example.com/team/shop";

/// Writes the status of a DocsRun as the operator would.
async fn record_docs(env: &Env, name: &str, status: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    env.api::<DocsRun>()
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

fn docs_finished(value: &str, reason: &str) -> Value {
    let mut status = finished(1, value, reason);
    if let Some(fields) = status.as_object_mut() {
        fields.remove("contextVersion");
    }
    status
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r21_of_docs_submitted_at_once_exactly_one_wins() -> Result<()> {
    suite::test(Tier::Api, "docs-r21", async |env| {
        prepared(&env).await?;
        let (client, namespace) = (&env.client, &env.namespace);
        let wanted = docs("guide", REPOSITORY)?;
        let create = || submit(client, namespace, &wanted, DryRun::Off);
        let (mut won, mut lost) = (0, 0);
        for result in join_all((0..8).map(|_| create())).await {
            match result {
                Ok(_) => won += 1,
                Err(Error::Exists { run, .. }) => {
                    assert_eq!(run, ObjectName::new(&DOCS_RUN, "guide"));
                    lost += 1;
                }
                Err(error) => bail!("{error}"),
            }
        }
        assert_eq!((won, lost), (1, 7));
        let stored = env.api::<DocsRun>().get("guide").await?;
        assert_eq!(stored.spec, wanted.spec);
        let hostile = docs("hostile", "--upload-pack=x")?;
        let refused = submit(client, namespace, &hostile, DryRun::On).await;
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn of_docs_run_again_at_once_one_is_made_on_the_same_branch() -> Result<()> {
    suite::test(Tier::Api, "docs-again", async |env| {
        prepared(&env).await?;
        let (client, namespace) = (&env.client, &env.namespace);
        let guide = ObjectName::new(&DOCS_RUN, "guide");
        let first = docs("guide", REPOSITORY)?;
        submit(client, namespace, &first, DryRun::Off).await?;
        let going = run_docs_again(client, namespace, "guide").await;
        assert!(
            matches!(&going, Err(Error::NotFinished { run, .. }) if *run == guide),
            "{going:?}"
        );
        changed(&env, &guide, Change::Cancel).await?;
        record_docs(&env, "guide", &docs_finished("False", "Cancelled")).await?;
        let held = changed(&env, &guide, Change::Suspend).await;
        assert!(matches!(held, Err(Error::Cancelled(_))), "{held:?}");

        let (mut made, mut lost) = (Vec::new(), 0);
        let each = (0..8).map(|_| run_docs_again(client, namespace, "guide"));
        for result in join_all(each).await {
            match result {
                Ok(run) => made.push(run),
                Err(Error::Exists { run, .. }) => {
                    assert_eq!(run.name, "guide-r2");
                    lost += 1;
                }
                Err(error) => bail!("{error}"),
            }
        }
        assert_eq!((made.len(), lost), (1, 7));
        let second = made.remove(0);
        assert_eq!(second.output_branch(), "docs/guide");
        assert!(!second.spec.cancel && !second.spec.suspend);
        assert_eq!(second.spec.repository_url, first.spec.repository_url);
        record_docs(&env, "guide-r2", &docs_finished("True", "Succeeded")).await?;
        let third = run_docs_again(client, namespace, "guide-r2").await?;
        assert_eq!(third.metadata.name.as_deref(), Some("guide-r3"));
        assert_eq!(third.output_branch(), "docs/guide");
        let missing = run_docs_again(client, namespace, "no-such").await;
        assert!(
            matches!(
                missing,
                Err(Error::NotFound {
                    kind: "DocsRun",
                    ..
                })
            ),
            "{missing:?}"
        );
        Ok(())
    })
    .await
}
