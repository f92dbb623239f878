//! `wait`: the exit code is the outcome.

use std::time::Duration;

use anyhow::{Context, Result};
use api::tasks::TaskRun;
use kube::api::{DeleteParams, Patch, PatchParams};
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

/// Without a time limit, waiting for a suspended run would never end.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn what_does_not_go_on_is_reported_as_it_is() -> Result<()> {
    suite::test(Tier::Api, "orc-held", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.submit().await?.expect(0, &[]);
        let condition = json!({ "type": "Succeeded", "status": "Unknown",
            "reason": "ImagePullFailed", "message": "no such image",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let blocked = json!({ "observedGeneration": 1, "contextVersion": 1, "phase": "Pending",
            "message": "no such image", "conditions": [condition] });
        record(&env, &blocked).await?;
        orc.run("wait shop-7 --timeout 1s").await?.expect(
            3,
            &[
                "timed out after 1s: TaskRun 'shop-7' is blocked (ImagePullFailed)",
                "orc why shop-7",
            ],
        );
        orc.run("suspend shop-7").await?.expect(0, &[]);
        let held = orc.run("wait shop-7").await?;
        held.expect(3, &["TaskRun 'shop-7' is suspended", "orc resume shop-7"]);
        // Others are waited for nevertheless.
        let other = "submit task.md --service shop --task-id 8 --agent writer";
        orc.run(other).await?.expect(0, &[]);
        let both = orc.run("wait shop-7 shop-8 --timeout 1s").await?;
        both.expect(
            3,
            &[
                "TaskRun 'shop-8' continues",
                "TaskRun 'shop-7' is suspended",
            ],
        );
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn results_are_printed_at_the_end_and_on_request() -> Result<()> {
    suite::test(Tier::Api, "orc-result", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.submit().await?.expect(0, &[]);
        orc.run("result shop-7")
            .await?
            .expect(2, &["has not finished", "orc wait shop-7"]);
        let mut status = ended(1, "Succeeded", "Succeeded");
        record(&env, &status).await?;
        let none = orc.run("result shop-7").await?;
        assert_eq!(none.expect(0, &["has no results"]).out, "");
        status["result"]["results"] = json!({ "files": "3", "summary": "two\nlines" });
        record(&env, &status).await?;
        let waited = orc.run("wait shop-7").await?.expect(0, &[]);
        assert!(
            waited
                .out
                .ends_with("results of shop-7:\n  files: 3\n  summary: two\n    lines\n"),
            "{}",
            waited.out
        );
        let one = orc.run("result shop-7 files").await?.expect(0, &[]);
        assert_eq!(one.out, "3\n");
        let all = orc.run("result shop-7 -o json").await?.expect(0, &[]);
        let all: Value = serde_json::from_str(&all.out)?;
        assert_eq!(all, json!({ "files": "3", "summary": "two\nlines" }));
        orc.run("result shop-7 sum")
            .await?
            .expect(5, &["no result 'sum'; it has 'files', 'summary'"]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_run_is_deleted_and_its_end_awaited() -> Result<()> {
    suite::test(Tier::Api, "orc-delete", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.run("delete shop-7")
            .await?
            .expect(5, &["'shop-7' was not found"]);
        orc.submit().await?.expect(0, &[]);
        orc.run("delete shop-7")
            .await?
            .expect(0, &["TaskRun 'shop-7' deleted"]);

        orc.submit().await?.expect(0, &[]);
        let runs = env.api::<TaskRun>();
        let with = json!({ "metadata": { "finalizers": ["taskruns.orchestrator.io/finalizer"] } });
        let how = PatchParams::default();
        runs.patch("shop-7", &how, &Patch::Merge(&with)).await?;
        // The test is the operator here: nobody releases the run.
        orc.run("delete shop-7")
            .await?
            .expect(0, &["is being deleted", "orc why shop-7"]);
        orc.run("delete shop-7 --wait --timeout 2s")
            .await?
            .expect(3, &["timed out after 2s: TaskRun 'shop-7' still exists"]);
        let waiting = orc.start("delete shop-7 other --wait")?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let without = json!({ "metadata": { "finalizers": null } });
        runs.patch("shop-7", &how, &Patch::Merge(&without)).await?;
        finish(waiting).await?.expect(
            5,
            &["TaskRun 'shop-7' deleted", "TaskRun 'other' was not found"],
        );
        Orc::of_stranger(&env)
            .await?
            .run("delete shop-7")
            .await?
            .expect(4, &["not allowed to delete taskruns.orchestrator.io"]);
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
