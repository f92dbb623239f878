//! `context add`, `retry`, `cancel`, `suspend`, `resume`.

use anyhow::{Result, bail};
use api::tasks::TaskRun;
use futures::future::join;
use testkit::{
    cluster::Tier,
    suite::{self},
};

use crate::support::{Orc, ended, record};

/// Adds a file until it succeeds, like a user after the error message.
async fn insist(orc: &Orc, file: &str) -> Result<usize> {
    for conflicts in 0..10 {
        let said = orc.run(&format!("context add shop-7 {file}")).await?;
        match said.code {
            Some(0) => return Ok(conflicts),
            Some(2) if said.err.contains("made by someone else meanwhile") => {}
            Some(_) | None => bail!("{said:?}"),
        }
    }
    bail!("never added")
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn s3_12_r15_context_is_added_by_two_at_once_and_none_is_lost() -> Result<()> {
    suite::test(Tier::Api, "orc-context", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.submit().await?.expect(0, &[]);
        let (a, b) = join(insist(&orc, "a.md"), insist(&orc, "b.md")).await;
        a?;
        b?;
        let said = orc.run("context add shop-7 a.md").await?;
        said.expect(2, &["has a file 'a.md' already", "context add shop-7 - <"]);
        // The standard input is empty here, but it still becomes a file.
        let said = orc.run("context add shop-7 -").await?;
        said.expect(0, &["version 4", "'context-v4.md'", "4 files"]);

        let run = env.api::<TaskRun>().get("shop-7").await?;
        let mut names: Vec<String> = run
            .spec
            .markdown_files
            .into_iter()
            .map(|file| file.filename)
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["a.md", "b.md", "context-v4.md", "task.md"]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_run_is_suspended_resumed_and_cancelled() -> Result<()> {
    suite::test(Tier::Api, "orc-lifecycle", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.run("cancel shop-7")
            .await?
            .expect(5, &["'shop-7' was not found"]);
        orc.submit().await?.expect(0, &[]);
        orc.run("retry shop-7")
            .await?
            .expect(2, &["has not finished", "orc wait shop-7"]);
        orc.run("suspend shop-7")
            .await?
            .expect(0, &["is being suspended", "orc resume shop-7"]);
        orc.run("resume shop-7")
            .await?
            .expect(0, &["is being resumed"]);
        record(&env, &ended(1, "Failed", "NonZeroExit")).await?;
        orc.run("suspend shop-7")
            .await?
            .expect(2, &["has finished: Failed (NonZeroExit)"]);
        orc.run("retry shop-7")
            .await?
            .expect(0, &["version 2, the same files"]);
        orc.run("cancel shop-7")
            .await?
            .expect(0, &["is being cancelled"]);
        orc.run("cancel shop-7")
            .await?
            .expect(0, &["nothing was changed"]);
        orc.run("retry shop-7").await?.expect(4, &["was cancelled"]);
        // Also after its end, the way on is another task.
        record(&env, &ended(2, "Failed", "Cancelled")).await?;
        orc.run("resume shop-7")
            .await?
            .expect(4, &["was cancelled", "submit --task-id OTHER"]);
        orc.run("context add shop-7 a.md")
            .await?
            .expect(4, &["was cancelled"]);
        Ok(())
    })
    .await
}
