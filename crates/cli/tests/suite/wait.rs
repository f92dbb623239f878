//! `wait`: the exit code is the outcome.

use std::time::Duration;

use anyhow::{Context, Result};
use api::tasks::TaskRun;
use kube::api::DeleteParams;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self},
    wait::until,
};

use crate::support::{Orc, ended, finish, record};

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn the_outcome_is_the_exit_code() -> Result<()> {
    suite::test(Tier::Api, "orc-wait", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.run("wait shop-7").await?.expect(5, &["not found"]);
        let submit = "submit task.md --service shop --task-id 7 --agent writer --wait";
        let waiting = orc.start(submit)?;
        until("the run", Duration::from_secs(20), async || {
            Ok(env
                .api::<TaskRun>()
                .get_opt("shop-7")
                .await?
                .ok_or_else(String::new))
        })
        .await?;
        record(
            &env,
            &json!({ "contextVersion": 1, "phase": "Running", "message": "it runs" }),
        )
        .await?;
        record(&env, &ended(1, "Succeeded", "Succeeded")).await?;
        finish(waiting)
            .await?
            .expect(0, &["✓ Succeeded: as the test says"]);

        // The status of version 1 is no result for version 2.
        let waiting = orc.start("retry shop-7 --wait --timeout 2s")?;
        finish(waiting)
            .await?
            .expect(3, &["○ Pending", "timed out after 2s", "orc why shop-7"]);

        let cases: [(Value, i32, &[&str]); 2] = [
            (
                ended(2, "Failed", "NonZeroExit"),
                1,
                &["✗ Failed (NonZeroExit)", "orc why shop-7"],
            ),
            (
                ended(2, "Failed", "Cancelled"),
                4,
                &["✗ Failed (Cancelled)"],
            ),
        ];
        for (status, code, words) in cases {
            record(&env, &status).await?;
            orc.run("wait shop-7").await?.expect(code, words);
        }
        let both = orc.run("wait shop-7 other").await?;
        both.expect(5, &["other ✗ not found", "✗ Failed (Cancelled)"]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn who_waits_notices_a_deletion_and_may_leave() -> Result<()> {
    suite::test(Tier::Api, "orc-leave", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.submit().await?.expect(0, &[]);

        let waiting = orc.start("wait shop-7")?;
        let pid = Pid::from_raw(i32::try_from(waiting.id().context("it ended")?)?);
        tokio::time::sleep(Duration::from_secs(2)).await;
        kill(pid, Signal::SIGINT)?;
        finish(waiting)
            .await?
            .expect(3, &["TaskRun 'shop-7' continues", "orc cancel shop-7"]);

        let waiting = orc.start("wait shop-7")?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        env.api::<TaskRun>()
            .delete("shop-7", &DeleteParams::default())
            .await?;
        finish(waiting)
            .await?
            .expect(5, &["○ Pending", "deleted while it was waited for"]);
        Ok(())
    })
    .await
}
