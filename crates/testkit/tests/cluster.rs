//! What a test on a cluster gets.

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};
use nix::sys::signal::Signal;
use testkit::{
    cluster::{Process, Tier},
    suite,
};
use tokio::time::Duration;

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_test_gets_a_client_and_a_fresh_namespace() -> Result<()> {
    suite::test(Tier::Api, "fresh", async |env| {
        let maps: Api<ConfigMap> = env.api();
        let names: Vec<_> = maps
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .map(|map| map.metadata.name)
            .collect();
        assert!(
            names
                .iter()
                .all(|name| name.as_deref() == Some("kube-root-ca.crt")),
            "not fresh: {names:?}"
        );
        maps.create(&PostParams::default(), &map("mine")).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn each_tier_has_its_nodes() -> Result<()> {
    for (tier, wanted) in [(Tier::Api, 0), (Tier::Node, 1), (Tier::Kwok, 2)] {
        suite::test(tier, "nodes", async |env| {
            env.testbed("counting the nodes")?;
            let nodes = Api::<Node>::all(env.client.clone())
                .list(&ListParams::default())
                .await?;
            assert_eq!(nodes.items.len(), wanted, "{}", tier.name());
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_failing_test_says_where_to_look() {
    for panics in [false, true] {
        let failed = suite::test(Tier::Api, "failing", async |_env| {
            assert!(!panics, "the cause");
            bail!("the cause")
        });
        let said = failed.await.unwrap_err().to_string();
        assert!(
            said.contains("the cause") && said.contains("namespace 't-failing-"),
            "{said}"
        );
        assert!(
            said.contains("logs are in '") || said.contains("the cluster is that of"),
            "{said}"
        );
    }
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_process_inside_is_stopped_frozen_and_started_again() -> Result<()> {
    suite::test(Tier::Api, "control", async |env| {
        let cluster = env.testbed("starting a process inside")?;
        let name = env.namespace.as_str();
        let ended = async || -> Result<Option<String>> {
            let all = cluster.control.processes().await?;
            Ok(all
                .into_iter()
                .find(|process| process.name == name)
                .and_then(|process| process.ended))
        };
        cluster
            .control
            .start(Process::new(name, "/bin/sleep", ["3600"]))
            .await?;
        assert_eq!(ended().await?, None);
        let twice = cluster
            .control
            .start(Process::new(name, "/bin/sleep", ["3600"]))
            .await;
        assert!(twice.unwrap_err().to_string().contains("runs already"));
        cluster.control.signal(name, Signal::SIGSTOP).await?;
        cluster.control.stop(name).await?;
        assert!(
            ended().await?.is_some_and(|how| how.contains("SIGKILL")),
            "a frozen process ends by SIGKILL only"
        );
        cluster.control.restart(name).await?;
        assert_eq!(ended().await?, None);
        cluster.control.stop(name).await?;
        let missing = cluster
            .control
            .start(Process::new("missing", "/no/such/program", [""; 0]))
            .await;
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .contains("/no/such/program")
        );
        let slow = cluster
            .control
            .run(
                Process::new("slow", "/bin/sleep", ["60"]),
                Duration::from_millis(200),
            )
            .await;
        assert!(slow.unwrap_err().to_string().contains("took longer"));
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn kwok_runs_a_pod_that_no_kubelet_ever_sees() -> Result<()> {
    suite::test(Tier::Kwok, "pod", async |env| {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "fake"}, "spec": {"containers": [{"name": "main", "image": "none"}]},
        }))?;
        let pods: Api<Pod> = env.api();
        pods.create(&PostParams::default(), &pod).await?;
        testkit::wait::until("the Pod to run", Duration::from_secs(30), async || {
            let phase = pods.get("fake").await?.status.and_then(|status| status.phase);
            Ok(if phase.as_deref() == Some("Running") { Ok(()) } else { Err(format!("{phase:?}")) })
        })
        .await
    })
    .await
}
