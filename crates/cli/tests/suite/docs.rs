//! All commands with a DocsRun.

use anyhow::{Context, Result};
use api::{names, tasks::DocsRun};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    images::REGISTRY,
    suite::{self, Env},
};

use crate::support::{Orc, ended, finish};

const SUBMIT: &str = "submit docs guide --repository https://git.example.com/team/shop --branch main --agent writer --secret git --instructions a.md b.md --agent-timeout 30m";

/// Writes a status as the operator would.
async fn record(env: &Env, name: &str, mut status: Value) -> Result<()> {
    if let Some(fields) = status.as_object_mut() {
        fields.remove("contextVersion");
    }
    let patch = Patch::Merge(json!({ "status": status }));
    env.api::<DocsRun>()
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

fn going(reason: &str, message: &str) -> Value {
    json!({ "observedGeneration": 1, "phase": "Pending", "message": message,
        "lastUpdated": "2026-01-01T00:00:00Z",
        "conditions": [{ "type": "Succeeded", "status": "Unknown", "reason": reason,
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn documentation_is_submitted_once_and_read() -> Result<()> {
    suite::test(Tier::Api, "orc-docs", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.run("get docs")
            .await?
            .expect(0, &["no docs in namespace"]);
        let dry = orc
            .run(&format!("{SUBMIT} --dry-run=client -o json"))
            .await?;
        let dry: Value = serde_json::from_str(&dry.expect(0, &[]).out)?;
        assert_eq!(dry["kind"], "DocsRun");
        orc.run(&format!("{SUBMIT} --dry-run=server"))
            .await?
            .expect(0, &["nothing was stored"]);
        orc.run(SUBMIT).await?.expect(
            0,
            &[
                "DocsRun 'guide' submitted",
                "to branch 'docs/guide'",
                "orc wait docsrun/guide",
            ],
        );
        orc.run(SUBMIT).await?.expect(
            2,
            &[
                "DocsRun 'guide' exists already",
                "orc describe docsrun/guide",
                "orc retry docsrun/guide",
            ],
        );
        let wrong = "submit docs other --repository http+x://a --branch main --agent writer";
        orc.run(wrong).await?.expect(2, &["spec.repositoryUrl"]);
        let stored = env.api::<DocsRun>().get("guide").await?;
        assert_eq!(stored.spec.instructions.len(), 2);
        assert_eq!(dry["spec"], serde_json::to_value(&stored.spec)?);

        record(
            &env,
            "guide",
            going("AuthenticationFailed", "the server answered 401"),
        )
        .await?;
        orc.run("get docs")
            .await?
            .expect(0, &["BRANCH", "guide   Pending   AuthenticationFailed"]);
        let name = orc.run("get odr -o name").await?.expect(0, &[]);
        assert_eq!(name.out, "docsrun.orchestrator.io/guide\n");
        orc.run("get docsruns guide -o yaml")
            .await?
            .expect(0, &["kind: DocsRun"]);
        orc.run("why docs/guide").await?.expect(
            0,
            &[
                "BLOCKED",
                "Secret git [AuthenticationFailed]",
                "kubectl describe secret git",
            ],
        );
        orc.run("describe docs/guide").await?.expect(
            0,
            &[
                "Repository:    https://git.example.com/team/shop",
                "no children yet",
                "orc why docsrun/guide",
            ],
        );
        // A name without a kind is a TaskRun's, or that of the only other run.
        for (line, found) in [
            ("describe guide", "DocsRun guide"),
            ("why guide", "Secret git [AuthenticationFailed]"),
            ("get guide", "guide   Pending"),
        ] {
            orc.run(line).await?.expect(0, &[found]);
        }
        orc.run("get")
            .await?
            .expect(0, &["docsrun/guide   Pending"]);
        orc.run("describe other")
            .await?
            .expect(5, &["TaskRun 'other' was not found", "orc get runs"]);
        orc.run("context add docs/guide a.md")
            .await?
            .expect(2, &["has no versions"]);
        orc.run("logs docs/guide -c publish")
            .await?
            .expect(5, &["attempt 1 of DocsRun 'guide' has no log"]);
        orc.run("logs guide -c publish")
            .await?
            .expect(2, &["has no container 'publish'"]);
        orc.run("events docs/guide")
            .await?
            .expect(0, &["no Events of DocsRun 'guide'"]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn documentation_is_suspended_resumed_waited_for_and_run_again() -> Result<()> {
    suite::test(Tier::Api, "orc-docs-again", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.run(SUBMIT).await?.expect(0, &[]);
        orc.submit().await?.expect(0, &[]);
        orc.run("suspend docs/guide")
            .await?
            .expect(0, &["DocsRun 'guide' is being suspended"]);
        orc.run("resume docs/guide")
            .await?
            .expect(0, &["is being resumed"]);
        orc.run("retry docs/guide").await?.expect(
            2,
            &[
                "DocsRun 'guide' has not finished: it is Pending",
                "orc cancel docsrun/guide",
            ],
        );
        orc.run("wait docs/guide shop-7 --timeout 1s")
            .await?
            .expect(
                3,
                &[
                    "DocsRun 'guide' continues",
                    "TaskRun 'shop-7' continues",
                    "orc why docsrun/guide",
                ],
            );
        let waiting = orc.start("wait docs/guide docs/no-such")?;
        record(&env, "guide", ended(1, "Failed", "NoChanges")).await?;
        let waited = finish(waiting).await?;
        waited.expect(
            5,
            &[
                "guide ✗ Failed (NoChanges)",
                "no-such ✗ not found",
                "orc get docs",
            ],
        );
        orc.run("wait docs/guide")
            .await?
            .expect(1, &["orc why docsrun/guide"]);
        orc.run("cancel docs/guide")
            .await?
            .expect(2, &["DocsRun 'guide' has finished: Failed (NoChanges)\n"]);
        orc.run("retry docs/guide").await?.expect(
            0,
            &[
                "DocsRun 'guide-r2' runs 'guide' again",
                "branch 'docs/guide'",
                "orc wait docsrun/guide-r2",
            ],
        );
        orc.run("retry docs/guide").await?.expect(
            2,
            &[
                "DocsRun 'guide-r2' exists already",
                "orc retry docsrun/guide-r2",
            ],
        );
        orc.run("cancel docs/guide-r2")
            .await?
            .expect(0, &["is being cancelled"]);
        record(&env, "guide-r2", ended(1, "Failed", "Cancelled")).await?;
        orc.run("wait docs/guide-r2").await?.expect(4, &[]);
        orc.run("retry docs/guide-r2")
            .await?
            .expect(0, &["'guide-r3' runs 'guide-r2' again"]);
        let third = env.api::<DocsRun>().get("guide-r3").await?;
        assert!(!third.spec.cancel && third.output_branch() == "docs/guide");
        Ok(())
    })
    .await
}

/// There is no kubelet, so the Pod never starts, and the output reports that.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn the_children_of_documentation_are_shown() -> Result<()> {
    suite::test(Tier::Api, "orc-docs-tree", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.run(SUBMIT).await?.expect(0, &[]);
        let run = env.api::<DocsRun>().get("guide").await?;
        let uid = run.uid().context("no UID")?;
        let labels = json!({ names::UID: uid, names::KIND: "DocsRun", names::NAME: "guide" });
        let how = PostParams::default();
        let map: ConfigMap = serde_json::from_value(
            json!({ "metadata": { "name": "guide-docs-files", "labels": labels } }),
        )?;
        env.api::<ConfigMap>().create(&how, &map).await?;
        let variable = json!([{ "name": "ORCHESTRATOR_ATTEMPT", "value": "1" }]);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "guide-docs-x", "labels": labels },
            "spec": {
                "initContainers": [
                    { "name": "clone", "image": "toolbox" },
                    { "name": "agent", "image": "writer", "env": variable },
                ],
                "containers": [{ "name": "publish", "image": "toolbox" }],
            },
        }))?;
        env.api::<Pod>().create(&how, &pod).await?;
        let state = |name: &str, state: Value| {
            json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state })
        };
        let patch = Patch::Merge(json!({ "status": { "phase": "Pending",
            "initContainerStatuses": [
                state("clone", json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })),
                state("agent", json!({ "waiting": { "reason": "PodInitializing" } })),
            ] } }));
        env.api::<Pod>()
            .patch_status("guide-docs-x", &PatchParams::default(), &patch)
            .await?;
        orc.run("tree docs/guide").await?.expect(
            0,
            &[
                "DocsRun guide  ○ Pending",
                "├─ ConfigMap guide-docs-files",
                "└─ Pod guide-docs-x  ○ Pending ('clone' runs)",
            ],
        );
        orc.run("logs docs/guide").await?.expect(
            5,
            &["has no log of container 'agent': it has not started; container 'clone' runs"],
        );
        orc.run("why pod/guide-docs-x")
            .await?
            .expect(0, &["DocsRun"]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn the_logs_of_all_steps_are_followed_in_order() -> Result<()> {
    suite::test(Tier::Node, "orc-docs-logs", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.run(SUBMIT).await?.expect(0, &[]);
        let of_agent = orc.start("logs -f docs/guide")?;
        let of_all = orc.start("logs -f --all docs/guide")?;
        let run = env.api::<DocsRun>().get("guide").await?;
        let step = |name: &str, script: &str| {
            json!({ "name": name, "image": format!("{REGISTRY}/busybox:1"),
                "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script],
                "env": [{ "name": "ORCHESTRATOR_ATTEMPT", "value": "1" }] })
        };
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "guide-docs-x", "labels": { names::UID: run.uid() } },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "initContainers": [
                    step("clone", "sleep 10; printf 'cloned without an end'"),
                    step("agent", "echo first; sleep 2; echo last"),
                ],
                "containers": [step("publish", "echo refused; exit 3")],
            },
        }))?;
        env.api::<Pod>()
            .create(&PostParams::default(), &pod)
            .await?;
        let agent = finish(of_agent).await?.expect(0, &[]);
        assert_eq!(agent.out, "first\nlast\n", "{}", agent.err);
        assert!(
            agent.err.contains("container 'clone' runs"),
            "{}",
            agent.err
        );
        let all = "[clone] cloned without an end\n[agent] first\n[agent] last\n[publish] refused\n";
        let followed = finish(of_all).await?.expect(0, &[]);
        assert_eq!(followed.out, all, "{}", followed.err);
        let again = orc.run("logs --all docs/guide").await?.expect(0, &[]);
        assert_eq!(again.out, all);
        let publish = orc.run("logs docs/guide -c publish").await?.expect(0, &[]);
        assert_eq!(publish.out, "refused\n");
        Ok(())
    })
    .await
}
