//! `get`, `describe`, `tree`, `events`, `logs`.

use std::time::Duration;

use anyhow::{Context, Result};
use api::{names, tasks::TaskRun};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::{ResourceExt, api::PostParams};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self},
};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::{Orc, ended, record};

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn what_is_stored_is_shown() -> Result<()> {
    suite::test(Tier::Api, "orc-read", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.run("get").await?.expect(0, &["no runs in namespace"]);
        orc.submit().await?.expect(0, &[]);
        record(&env, &ended(1, "Failed", "NonZeroExit")).await?;
        orc.run("get").await?.expect(0, &["NAME     PHASE    REASON        ATTEMPT   AGE"]);
        let versions = "NAME     PHASE    REASON        VERSION   ATTEMPT   AGE";
        orc.run("get tr").await?.expect(0, &[versions]);
        let namespace = &env.namespace;
        orc.run(&format!("-n {namespace} get --failed --agent writer --service shop --sort age"))
            .await?
            .expect(0, &["shop-7"]);
        orc.run("get --failed --agent other").await?.expect(0, &["no failed runs of agent 'other'"]);
        orc.run("get docs --service shop").await?.expect(2, &["not for docs"]);
        orc.run("get jobs").await?.expect(5, &["TaskRun 'jobs' was not found", "kubectl get jobs"]);
        orc.run("__complete why sho").await?.expect(0, &["shop-7\tTaskRun\n:4\n"]);
        orc.run("version").await?.expect(0, &["operator tasks: unknown: not allowed to list leases"]);
        orc.run("get -o wide").await?.expect(0, &["as the test says"]);
        let name = orc.run("get runs -o name").await?.expect(0, &[]);
        assert_eq!(name.out, "taskrun.orchestrator.io/shop-7\n");
        let one = orc.run("get shop-7 -o json").await?.expect(0, &[]);
        let one: Value = serde_json::from_str(&one.out)?;
        assert_eq!(one["status"]["phase"], "Failed");
        assert_eq!(one["metadata"]["managedFields"], Value::Null);
        let all = orc.run("get -o yaml").await?.expect(0, &["kind: List", "taskId: 7"]);
        assert!(all.out.contains("kind: TaskRun"), "{}", all.out);
        orc.run("get -l a=b").await?.expect(0, &["no runs with labels 'a=b'"]);
        orc.run("get other").await?.expect(5, &["TaskRun 'other' was not found"]);
        orc.run("get agents").await?.expect(0, &["no agents"]);
        orc.run("get -A").await?.expect(2, &["not allowed to list", "in all namespaces"]);

        let run = env.api::<TaskRun>().get("shop-7").await?;
        let uid = run.uid().context("no UID")?;
        let how = PostParams::default();
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": { "name": "shop-7-v1-files", "labels": { names::UID: uid } } }))?;
        env.api::<ConfigMap>().create(&how, &map).await?;
        let event: Event = serde_json::from_value(json!({
            "metadata": { "name": "e", "namespace": env.namespace }, "type": "Warning",
            "reason": "NonZeroExit", "message": "an Event of the run",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": { "kind": "TaskRun", "name": "shop-7", "namespace": env.namespace, "uid": uid } }))?;
        env.api::<Event>().create(&how, &event).await?;
        orc.run("tree shop-7").await?.expect(0, &["TaskRun shop-7  ✗ Failed (NonZeroExit)", "└─ ConfigMap shop-7-v1-files"]);
        orc.run("events shop-7").await?.expect(0, &["TaskRun/shop-7   an Event of the run"]);
        orc.run("describe shop-7").await?.expect(0, &["Exit code:     3", "an Event of the run", "ConfigMap shop-7-v1-files"]);
        orc.run("why shop-7").await?.expect(0, &["shop-7", "NonZeroExit"]);
        let why = orc.run("why taskrun/shop-7 -o json").await?.expect(0, &[]);
        let why: Value = serde_json::from_str(&why.out)?;
        assert_eq!(why["state"], "Failed");
        orc.run("why other").await?.expect(5, &["'other'", "orc get runs"]);
        orc.run("logs shop-7").await?.expect(5, &["logs live only as long as the Pod", "exit code 3"]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_watch_prints_what_changes_once() -> Result<()> {
    suite::test(Tier::Api, "orc-watch", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.submit().await?.expect(0, &[]);
        let mut watching = orc.start("get -w")?;
        let out = watching.stdout.take().context("no output")?;
        let mut lines = BufReader::new(out).lines();
        let mut next = async || {
            let line = tokio::time::timeout(Duration::from_secs(20), lines.next_line()).await;
            line.context("no line came")??.context("it ended")
        };
        assert!(next().await?.starts_with("NAME"));
        assert!(next().await?.contains("Pending"));
        // A status change that is not visible in the table prints no line.
        record(&env, &json!({ "disruptions": 1 })).await?;
        record(&env, &ended(1, "Succeeded", "Succeeded")).await?;
        assert!(next().await?.contains("Succeeded"));
        watching.kill().await?;
        Ok(())
    })
    .await
}
