//! `check` and `uninstall --check`.

use anyhow::Result;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use testkit::{
    cluster::Tier,
    suite::{self},
};

use crate::support::{Orc, ended, record};

/// What a user may not read is no failure, and it is never reported as well either.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn what_cannot_be_read_is_not_judged() -> Result<()> {
    suite::test(Tier::Api, "orc-check", async |env| {
        let orc = Orc::of_user(&env).await?;
        let said = orc.run("check").await?;
        let said = said.expect(
            0,
            &[
                "CRD taskruns.orchestrator.io",
                "Lease orchestrator-tasks",
                "could not be read, so it is not checked",
                "your permissions: follow runs",
            ],
        );
        for line in said.out.lines().filter(|line| line.starts_with("CRD ")) {
            assert!(line.contains("! warning"), "{line}");
        }
        let said = orc.run("uninstall --check").await?;
        said.expect(2, &["not allowed to list", "in all namespaces"]);
        let said = orc.run("uninstall").await?;
        said.expect(2, &["orc does not uninstall"]);
        Ok(())
    })
    .await
}

/// Here, the CRDs exist, and no operator runs.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn an_installation_without_its_operator_fails_the_check() -> Result<()> {
    suite::test(Tier::Api, "orc-installed", async |env| {
        let orc = Orc::of_user(&env).await?;
        orc.submit().await?.expect(0, &[]);
        let bindings: Api<ClusterRoleBinding> = Api::all(env.client.clone());
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": { "name": env.namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "user", "namespace": env.namespace }],
        }))?;
        bindings.create(&PostParams::default(), &binding).await?;

        let said = orc.run("check").await?;
        let said = said.expect(
            1,
            &[
                "✗ failed",
                "Deployment of operator tasks",
                "does not exist in any namespace",
            ],
        );
        let mut lines = said.out.lines();
        let crd = lines.find(|line| line.starts_with("CRD taskruns.orchestrator.io"));
        assert!(
            crd.is_some_and(|line| line.contains("✓ ok")),
            "{}",
            said.out
        );

        let own = |out: &str| {
            let mut lines = out.lines();
            lines.any(|line| line.starts_with(&env.namespace) && line.contains("taskrun/shop-7"))
        };
        let said = orc.run("uninstall --check").await?;
        let delete = format!(
            "kubectl delete taskruns.orchestrator.io shop-7 -n {}",
            env.namespace
        );
        let said = said.expect(1, &[&delete]);
        assert!(own(&said.out), "{}", said.out);
        // A finished run without a finalizer is deleted without an operator. Runs of other tests
        // may exist.
        record(&env, &ended(1, "Succeeded", "Succeeded")).await?;
        let said = orc.run("uninstall --check").await?;
        assert!(!own(&said.out), "{}", said.out);
        bindings
            .delete(&env.namespace, &DeleteParams::default())
            .await?;
        Ok(())
    })
    .await
}
