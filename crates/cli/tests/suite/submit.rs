//! `submit`: concurrent submissions, rejected ones, and their exit codes.

use std::time::Duration;

use anyhow::Result;
use api::tasks::TaskRun;
use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use testkit::{
    cluster::Tier,
    suite::{self, Env},
    wait::until,
};

use crate::support::Orc;

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn s3_11_a_task_is_submitted_once_and_with_files() -> Result<()> {
    suite::test(Tier::Api, "orc-submit", async |env| {
        let orc = Orc::of_user(&env).await?;
        let without = "submit --service shop --task-id 7 --agent writer";
        orc.run(without).await?.expect(2, &["no files"]);
        orc.submit().await?.expect(
            0,
            &[
                "'shop-7' submitted",
                "Agent 'writer' does not exist",
                "orc wait shop-7",
            ],
        );
        // The standard input is empty here, but it still becomes a file.
        let input = "submit - --service shop --task-id 6 --agent writer";
        orc.run(input).await?.expect(0, &["'shop-6' submitted"]);
        let stored = env.api::<TaskRun>().get("shop-6").await?;
        assert_eq!(stored.spec.markdown_files[0].filename, "context-v1.md");
        let again = orc.submit().await?;
        again.expect(
            2,
            &["TaskRun 'shop-7' exists already", "orc context add shop-7"],
        );
        let wrong = "submit task.md --service shop --task-id 8 --agent W";
        orc.run(wrong).await?.expect(2, &["spec.agentName"]);
        let missing = "submit nothing.md --service shop --task-id 8 --agent writer";
        orc.run(missing)
            .await?
            .expect(2, &["cannot read 'nothing.md'"]);

        let stored = env.api::<TaskRun>().get("shop-7").await?;
        assert_eq!(stored.spec.markdown_files[0].content, "Do it.\n");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r21_of_two_submits_at_once_one_is_told_so() -> Result<()> {
    suite::test(Tier::Api, "orc-r21", async |env| {
        let orc = Orc::of_user(&env).await?;
        let mut codes = Vec::new();
        for said in join_all([orc.submit(), orc.submit()]).await {
            codes.push(said?.code);
        }
        codes.sort_unstable();
        assert_eq!(codes, [Some(0), Some(2)]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn who_may_not_is_told_what() -> Result<()> {
    suite::test(Tier::Api, "orc-denied", async |env| {
        let orc = Orc::of_stranger(&env).await?;
        let said = orc.submit().await?;
        said.expect(
            4,
            &["not allowed to create taskruns.orchestrator.io 'shop-7'"],
        );
        let said = orc.run("get").await?;
        said.expect(2, &["not allowed to list taskruns.orchestrator.io"]);
        let said = orc.run("wait shop-7").await?;
        said.expect(2, &["not allowed to watch taskruns.orchestrator.io"]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_policy_that_refuses_is_a_denial() -> Result<()> {
    suite::test(Tier::Api, "orc-policy", async |env| {
        let orc = Orc::of_user(&env).await?;
        let (policies, bindings) = policy(&env).await?;
        let tried = "submit task.md --service shop --task-id 7 --agent writer --dry-run=server";
        // A policy takes effect a moment after it was stored.
        let denied = until("the policy", Duration::from_secs(30), async || {
            let said = orc.run(tried).await?;
            Ok(if said.code == Some(0) {
                Err("not yet".to_owned())
            } else {
                Ok(said)
            })
        })
        .await;
        let how = DeleteParams::default();
        bindings.delete(&env.namespace, &how).await?;
        policies.delete(&env.namespace, &how).await?;
        denied?.expect(4, &["not allowed to create", "no tasks today"]);
        Ok(())
    })
    .await
}

type Policies = (
    Api<ValidatingAdmissionPolicy>,
    Api<ValidatingAdmissionPolicyBinding>,
);

async fn policy(env: &Env) -> Result<Policies> {
    let name = &env.namespace;
    let rules = json!([{ "apiGroups": ["orchestrator.io"], "apiVersions": ["*"],
        "operations": ["CREATE"], "resources": ["taskruns"] }]);
    let place = json!({ "matchLabels": { "kubernetes.io/metadata.name": name } });
    let policy = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "matchConstraints": { "namespaceSelector": place, "resourceRules": rules },
            "validations": [{ "expression": "false", "message": "no tasks today" }],
        },
    }))?;
    let binding = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "policyName": name, "validationActions": ["Deny"] },
    }))?;
    let (policies, bindings): Policies =
        (Api::all(env.client.clone()), Api::all(env.client.clone()));
    let how = PostParams::default();
    policies.create(&how, &policy).await?;
    bindings.create(&how, &binding).await?;
    Ok((policies, bindings))
}
