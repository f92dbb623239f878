//! `logs` and `tree` with a real Pod that the test creates as the operator would.

use std::time::Duration;

use anyhow::{Context, Result};
use api::{names, tasks::TaskRun};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use testkit::{
    cluster::Tier,
    images::REGISTRY,
    suite::{self},
    wait::until,
};

use crate::support::{Orc, ended, finish, record, record_for};

/// Returns a Pod as the operator would create it for a run.
fn pod(run: &TaskRun, name: &str) -> Result<Pod> {
    let labels = json!({ names::UID: run.uid(), names::CONTEXT_VERSION: "1" });
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "agent", "image": format!("{REGISTRY}/busybox:1"),
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "echo first; sleep 2; echo last; exit 3"],
                "env": [{ "name": "ORCHESTRATOR_ATTEMPT", "value": "1" }],
            }],
        },
    }))?)
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_submission_follows_its_log_to_the_outcome() -> Result<()> {
    suite::test(Tier::Node, "orc-follow", async |env| {
        let orc = Orc::of_user(&env).await?;
        let submit = "submit task.md --service shop --task-id 8 --agent writer --log";
        let following = orc.start(submit)?;
        let run = until("the run", Duration::from_secs(20), async || {
            let run = env.api::<TaskRun>().get_opt("shop-8").await?;
            Ok(run.ok_or_else(String::new))
        })
        .await?;
        let pods = env.api::<Pod>();
        let pod = pod(&run, "shop-8-v1-x")?;
        pods.create(&PostParams::default(), &pod).await?;
        until("the Pod's end", Duration::from_secs(60), async || {
            let status = pods.get("shop-8-v1-x").await?.status;
            let phase = status.and_then(|status| status.phase);
            let has_ended = phase.as_deref() == Some("Failed");
            Ok(has_ended.then_some(()).ok_or(format!("{phase:?}")))
        })
        .await?;
        record_for(&env, "shop-8", &ended(1, "Failed", "NonZeroExit")).await?;
        let said = finish(following).await?;
        let said = said.expect(1, &["✗ Failed (NonZeroExit)", "orc why shop-8"]);
        assert!(said.out.contains("first\nlast\n"), "{}", said.out);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_log_is_followed_and_is_gone_with_its_pod() -> Result<()> {
    suite::test(Tier::Node, "orc-logs", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.submit().await?.expect(0, &[]);
        let early = orc.run("logs shop-7").await?;
        early.expect(5, &["no container has started yet", "orc logs -f shop-7"]);

        let following = orc.start("logs -f shop-7")?;
        let run = env.api::<TaskRun>().get("shop-7").await?;
        let pod = pod(&run, "shop-7-v1-x")?;
        env.api::<Pod>()
            .create(&PostParams::default(), &pod)
            .await?;
        let said = finish(following).await?.expect(0, &[]);
        assert_eq!(said.out, "first\nlast\n", "{}", said.err);
        assert!(
            said.err.contains("waiting for the container"),
            "{}",
            said.err
        );

        let all = orc.run("logs shop-7 --attempt 1").await?.expect(0, &[]);
        assert_eq!(all.out, "first\nlast\n");
        let other = orc.run("logs shop-7 --attempt 2").await?;
        other.expect(
            5,
            &["attempt 2 of TaskRun 'shop-7'", "has 1 attempt so far"],
        );
        until("the Pod's end", Duration::from_secs(30), async || {
            let tree = orc.run("tree shop-7").await?;
            let is_seen = tree
                .out
                .contains("Pod shop-7-v1-x  ✗ Failed (exit code 3) on node");
            Ok(is_seen.then_some(()).ok_or(tree.out))
        })
        .await?;

        record(&env, &ended(1, "Failed", "NonZeroExit")).await?;
        env.api::<Pod>()
            .delete("shop-7-v1-x", &DeleteParams::default())
            .await?;
        until("the Pod to be gone", Duration::from_secs(30), async || {
            let found = env.api::<Pod>().get_opt("shop-7-v1-x").await?;
            Ok(found
                .is_none()
                .then_some(())
                .context("there")
                .map_err(|error| error.to_string()))
        })
        .await?;
        let gone = orc.run("logs -f shop-7").await?;
        gone.expect(
            5,
            &[
                "logs live only as long as the Pod",
                "exit code 3",
                "orc describe shop-7",
            ],
        );
        Ok(())
    })
    .await
}
