//! Tenants: `get`, `describe`, `why`, `wait`, `suspend`, `resume`.

use std::time::Duration;

use anyhow::{Context, Result};
use api::{Timestamp, tenants::Tenant};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
    wait::until,
};

use crate::support::{Orc, finish};

/// Writes a status as the operator would.
async fn record(client: &Client, name: &str, status: &Value) -> Result<()> {
    let tenants: Api<Tenant> = Api::all(client.clone());
    let patch = Patch::Merge(json!({ "status": status }));
    tenants
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

fn status(generation: i64, phase: &str, reason: &str, message: &str) -> Value {
    let ready = if phase == "Running" { "True" } else { "False" };
    let condition = |kind: &str, value: &str, reason: &str| {
        json!({ "type": kind, "status": value, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    json!({ "observedGeneration": generation, "phase": phase, "message": message,
        "lastUpdated": "2026-01-01T00:00:00Z",
        "conditions": [condition("Ready", ready, reason),
            condition("NetworkIsolated", "False", "PoliciesDisabled")] })
}

async fn create(env: &Env, name: &str, spec: Value) -> Result<Tenant> {
    let tenants: Api<Tenant> = Api::all(env.client.clone());
    let mut all = json!({ "deletion": { "policy": "Delete" } });
    for (key, value) in spec.as_object().context("no object")? {
        all[key] = value.clone();
    }
    let tenant = Tenant::new(name, serde_json::from_value(all)?);
    Ok(tenants.create(&PostParams::default(), &tenant).await?)
}

async fn clean(env: &Env, name: &str) -> Result<()> {
    let how = DeleteParams::default();
    let tenants: Api<Tenant> = Api::all(env.client.clone());
    let roles: Api<ClusterRole> = Api::all(env.client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(env.client.clone());
    tenants.delete(name, &how).await?;
    roles.delete(name, &how).await?;
    bindings.delete(name, &how).await?;
    Ok(())
}

/// A user who may only read Tenants gets a list of the objects that could not be read.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_tenant_is_read_held_and_waited_for() -> Result<()> {
    suite::test(Tier::Api, "orc-tenants", async |env| {
        let name = env.namespace.clone();
        let name = name.as_str();
        let orc = Orc::of_tenants(&env, name).await?;
        orc.run(&format!("why tenant {name}")).await?.expect(
            5,
            &[
                &format!("Tenant '{name}' does not exist"),
                "orc get tenants",
            ],
        );
        orc.run("version").await?.expect(0, &["operator tenants: "]);
        create(&env, name, json!({ "networkPolicy": { "enabled": false } })).await?;
        let open = status(1, "Running", "Ready", "as the test says");
        record(&env.client, name, &open).await?;
        orc.run("get tenants")
            .await?
            .expect(0, &["ISOLATED", name, "PoliciesDisabled"]);
        let one = orc.run(&format!("get oten {name} -o name")).await?;
        assert_eq!(
            one.expect(0, &[]).out,
            format!("tenant.orchestrator.io/{name}\n")
        );
        orc.run("get tenant no-such")
            .await?
            .expect(5, &["Tenant 'no-such' was not found\n", "orc get tenants"]);
        orc.run(&format!("describe tenant {name}")).await?.expect(
            0,
            &[
                "! Running, not isolated",
                "Policies:      off",
                &format!("orc why tenant/{name}"),
            ],
        );
        let why = orc.run(&format!("why oten/{name}")).await?;
        why.expect(
            0,
            &[
                "READY, NOT ISOLATED",
                "[PoliciesDisabled]",
                "you may not read",
                "networkpolicies",
            ],
        );
        let why = orc
            .run(&format!("why tenant/{name} -o json"))
            .await?
            .expect(0, &[]);
        let why: Value = serde_json::from_str(&why.out)?;
        assert_eq!(why["state"], "NotIsolated");
        assert_eq!(why["target"], json!({ "kind": "Tenant", "name": name }));

        orc.run(&format!("wait tenant/{name}"))
            .await?
            .expect(0, &["not isolated"]);
        orc.run(&format!("suspend tenant/{name}"))
            .await?
            .expect(0, &["is being suspended: its server and Redis are stopped"]);
        orc.run(&format!("suspend tenant/{name}"))
            .await?
            .expect(0, &["was suspended before"]);
        // A suspended Tenant does not become ready, so the command does not wait for it.
        orc.run(&format!("wait tenant/{name}")).await?.expect(
            3,
            &[
                &format!("not waiting: Tenant '{name}' is suspended"),
                &format!("orc resume tenant/{name}"),
            ],
        );
        orc.run(&format!("resume tenant/{name}"))
            .await?
            .expect(0, &["is being resumed", &format!("orc wait tenant/{name}")]);
        let waiting = orc.start(&format!("wait tenant/{name} tenant/no-such"))?;
        record(
            &env.client,
            name,
            &status(3, "Failed", "InvalidChild", "wrong"),
        )
        .await?;
        finish(waiting).await?.expect(
            5,
            &[
                "no-such ✗ not found",
                "✗ Failed (InvalidChild)",
                "to see which Tenants",
            ],
        );
        // The user may read Tenants only.
        let tree = orc.run(&format!("tree tenant/{name}")).await?;
        tree.expect(
            0,
            &[
                &format!("Tenant {name}"),
                "no children that you may list",
                "not shown: not allowed to list secrets",
            ],
        );
        let events = orc.run(&format!("events tenant/{name}")).await?;
        events.expect(0, &["not shown: not allowed to list events"]);
        let logs = orc.run(&format!("logs tenant/{name}")).await?;
        logs.expect(2, &["not allowed to list pods"]);
        let wrong = orc.run(&format!("logs tenant/{name} --all")).await?;
        wrong.expect(2, &["has no attempts and no steps"]);
        for (line, says) in [
            ("cancel", "is neither a run nor a NotebookValidationJob"),
            ("retry", "is no run"),
            ("delete", "is no run"),
            ("result", "is no run"),
        ] {
            orc.run(&format!("{line} tenant/{name}"))
                .await?
                .expect(2, &[says]);
        }
        clean(&env, name).await
    })
    .await
}

/// On a real API server: the owner of a namespace, and the reasons why its deletion is blocked.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn what_holds_a_namespace_is_named() -> Result<()> {
    suite::test(Tier::Api, "why-tenants", async |env| {
        testkit::operator::install(&env.client, api::tenants::OPERATOR.crds()).await?;
        let name = env.namespace.clone();
        let place = format!("tenant-{name}");
        create(&env, &name, json!({})).await?;
        let namespaces: Api<Namespace> = Api::all(env.client.clone());
        let namespace = serde_json::from_value(json!({ "metadata": { "name": place } }))?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
        let taken = status(1, "Pending", "NamespaceTaken", "as the test says");
        record(&env.client, &name, &taken).await?;
        lead(&env).await?;
        let found = ask(&env, &name).await?;
        assert_eq!(
            found.chain.last().context("no chain")?.reason,
            "NamespaceTaken"
        );
        let text = why::render(&found, 100, false);
        let offer = format!("kubectl annotate namespace {place} orchestrator.io/adopt={name}");
        assert!(text.contains(&offer), "{text}");

        let maps: Api<ConfigMap> = Api::namespaced(env.client.clone(), &place);
        let map = serde_json::from_value(json!({ "metadata": { "name": "precious",
            "finalizers": ["example.com/backup"] } }))?;
        maps.create(&PostParams::default(), &map).await?;
        namespaces.delete(&place, &DeleteParams::default()).await?;
        let dying = status(1, "Pending", "NamespaceTerminating", "as the test says");
        record(&env.client, &name, &dying).await?;
        until(
            "what holds it to be named",
            Duration::from_secs(30),
            async || {
                let found = ask(&env, &name).await?;
                let deepest = found.chain.last().context("no chain")?;
                let is_named = deepest.object.kind == "ConfigMap"
                    && deepest.object.name == "precious"
                    && deepest.message.contains("example.com/backup");
                Ok(is_named
                    .then_some(())
                    .ok_or(why::render(&found, 100, false)))
            },
        )
        .await?;
        let free = json!({ "metadata": { "finalizers": null } });
        maps.patch("precious", &PatchParams::default(), &Patch::Merge(&free))
            .await?;
        let tenants: Api<Tenant> = Api::all(env.client.clone());
        let tenant = tenants.delete(&name, &DeleteParams::default()).await?;
        assert!(
            tenant
                .left()
                .is_none_or(|tenant| tenant.finalizers().is_empty())
        );
        Ok(())
    })
    .await
}

/// Creates a Lease as if an operator were the leader. Otherwise `why` would report the missing
/// leader.
async fn lead(env: &Env) -> Result<()> {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": { "name": "orchestrator-tenants" },
        "spec": { "holderIdentity": "test", "leaseDurationSeconds": 3600,
            "renewTime": now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string() },
    }))?;
    env.api::<Lease>()
        .create(&PostParams::default(), &lease)
        .await?;
    Ok(())
}

async fn ask(env: &Env, name: &str) -> Result<why::Explanation> {
    let target = why::gather::Target {
        kind: why::gather::TargetKind::Tenant,
        namespace: String::new(),
        name: name.to_owned(),
    };
    let options = why::gather::Options {
        operator_namespace: Some(env.namespace.clone()),
        ..why::gather::Options::at(now())
    };
    let world = why::gather(env.client.clone(), target, options).await?;
    Ok(why::explain(&world))
}

#[expect(clippy::disallowed_methods, reason = "a test asks now, as a user does")]
fn now() -> Timestamp {
    Timestamp::now()
}
