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

use crate::support::{Orc, ended, finish, record};

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_log_is_followed_and_is_gone_with_its_pod() -> Result<()> {
    suite::test(Tier::Node, "orc-logs", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.submit().await?.expect(0, &[]);
        let early = orc.run("logs shop-7").await?;
        early.expect(5, &["has no Pod now", "orc logs -f shop-7"]);

        let following = orc.start("logs -f shop-7")?;
        let run = env.api::<TaskRun>().get("shop-7").await?;
        let labels = json!({ names::UID: run.uid(), names::CONTEXT_VERSION: "1" });
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "shop-7-v1-x", "labels": labels },
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
        }))?;
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
        other.expect(5, &["attempt 2 of TaskRun 'shop-7'"]);
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
