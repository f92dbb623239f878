//! What a test on a cluster gets.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use nix::sys::signal::Signal;
use testkit::{
    cluster::{Cluster, Process, Tier},
    suite,
    wait::{met, until},
};
use tokio::time::Duration;

use super::map;

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
        // Before it has stopped, a SIGTERM still ends it.
        let all = cluster.control.processes().await?;
        let pid = all
            .iter()
            .find(|process| process.name == name)
            .context("not there")?
            .pid;
        until("the process to stop", Duration::from_secs(10), async || {
            let show = Process::new("stat", "/bin/cat", [format!("/proc/{pid}/stat")]);
            let stat = cluster.control.check(show, Duration::from_secs(5)).await?;
            Ok(met(stat.contains(") T "), || stat))
        })
        .await?;
        cluster.control.stop(name).await?;
        let how = ended().await?.unwrap_or_default();
        assert!(
            how.contains("SIGKILL"),
            "a stopped process ends by SIGKILL only, this: '{how}'"
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
        until("the Pod to run", Duration::from_secs(30), async || {
            let phase = pods.get("fake").await?.status.and_then(|status| status.phase);
            Ok(if phase.as_deref() == Some("Running") { Ok(()) } else { Err(format!("{phase:?}")) })
        })
        .await
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_program_that_leaves_something_behind_is_answered_and_cleaned_up() -> Result<()> {
    suite::test(Tier::Api, "behind", async |env| {
        let control = &env.testbed("running a program inside")?.control;
        let leaves = Process::new("leaves", "/bin/sh", ["-c", "sleep 4711 & echo said"]);
        let output = control.run(leaves, Duration::from_secs(10)).await?;
        assert_eq!((output.code, output.stdout.as_str()), (0, "said\n"));
        let slow = Process::new("slow", "/bin/sh", ["-c", "sleep 4712 & sleep 4712"]);
        let error = control
            .run(slow, Duration::from_millis(300))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("took longer"), "{error:#}");
        let list = Process::new(
            "list",
            "/bin/sh",
            ["-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"],
        );
        let running = control.check(list, Duration::from_secs(10)).await?;
        assert!(!running.contains("sleep 471"), "still running: {running}");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn names_environment_and_number_of_requests_are_bounded() -> Result<()> {
    suite::test(Tier::Api, "bounds", async |env| {
        let control = &env.testbed("running a program inside")?.control;
        for name in ["../../escaped", "audit", "keeper", "", "A B"] {
            let error = control
                .start(Process::new(name, "/bin/true", [""; 0]))
                .await
                .unwrap_err();
            assert!(
                error.to_string().contains("process name"),
                "{name}: {error:#}"
            );
        }
        let environment = control
            .check(
                Process::new("env", "/usr/bin/env", [""; 0]),
                Duration::from_secs(10),
            )
            .await?;
        let mut names: Vec<&str> = environment
            .lines()
            .filter_map(|line| line.split('=').next())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["GOGC", "GOMEMLIMIT", "HOME", "PATH"]);
        // A one-shot run that has ended is not a part of the cluster that has ended: to take it for
        // one once made the start of a cluster fail now and then.
        let (runs, lists) = (
            control.run(
                Process::new("one-shot", "/bin/sleep", ["1"]),
                Duration::from_secs(10),
            ),
            async {
                for _ in 0..200 {
                    let names: Vec<String> = control
                        .processes()
                        .await?
                        .into_iter()
                        .map(|process| process.name)
                        .collect();
                    assert!(
                        !names.iter().any(|name| name.contains("one-shot")),
                        "{names:?}"
                    );
                }
                anyhow::Ok(())
            },
        );
        let (ran, listed) = futures::future::join(runs, lists).await;
        assert_eq!(ran?.code, 0);
        listed?;
        // More than are answered at a time: the others wait.
        let many = (0..90).map(|_| {
            control.run(
                Process::new("wait", "/bin/sleep", ["1"]),
                Duration::from_secs(10),
            )
        });
        for output in join_all(many).await {
            assert_eq!(output?.code, 0);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_request_without_a_valid_identity_is_in_the_audit_log() -> Result<()> {
    suite::test(Tier::Api, "unknown", async |env| {
        let log = env.testbed("reading the audit log")?.audit();
        let before = log.mark(&env.client).await?;
        let mut config = env.config.clone();
        config.auth_info = kube::config::AuthInfo {
            token: Some("forged".to_owned().into()),
            ..Default::default()
        };
        let stranger: Api<ConfigMap> = Api::namespaced(Client::try_from(config)?, &env.namespace);
        match stranger.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 401),
            other => bail!("a forged token was not refused: {other:?}"),
        }
        let entries = log.entries(&env.client, before).await?;
        let seen = entries
            .iter()
            .filter(|entry| entry.code == 401 && entry.request.namespace == env.namespace);
        assert_eq!(seen.count(), 1);
        Ok(())
    })
    .await
}

/// As a paused container is. It would not even die, and its cluster with it.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_frozen_process_does_not_keep_a_cluster() -> Result<()> {
    let cluster = Cluster::start(&format!("frozen-{}", std::process::id()), Tier::Api).await?;
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    let prefix = format!("testbed-{}-", cluster.folders.name);
    let entries: Vec<fs::DirEntry> = fs::read_dir(freezer)?.collect::<std::io::Result<_>>()?;
    let branch = entries
        .into_iter()
        .find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .context("no control group")?
        .path()
        .join("frozen");
    fs::create_dir(&branch)?;
    let processes = cluster.folders.cgroup().processes()?;
    fs::write(
        branch.join("cgroup.procs"),
        processes.last().context("no process")?.to_string(),
    )?;
    fs::write(branch.join("freezer.state"), "FROZEN")?;
    let folders = cluster.folders.clone();
    cluster.stop().await?;
    assert!(!folders.run.exists() && !folders.cgroup().exists()?);
    Ok(())
}

/// They are the whole machine's: an oops must not reboot a contributor's laptop.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_kubelet_does_not_change_the_machines_settings() -> Result<()> {
    let setting = "/proc/sys/kernel/panic";
    let found = fs::read_to_string(setting)?;
    fs::write(setting, "0")?;
    let started = Cluster::start(&format!("settings-{}", std::process::id()), Tier::Node).await;
    let now = fs::read_to_string(setting)?;
    fs::write(setting, found.trim())?;
    let cluster = started?;
    let inside = cluster
        .control
        .check(
            Process::new("cat", "/bin/cat", [setting]),
            Duration::from_secs(10),
        )
        .await;
    cluster.stop().await?;
    assert_eq!(now.trim(), "0");
    assert_eq!(
        inside?.trim(),
        "10",
        "the kubelet no longer changes it: this test shows nothing"
    );
    Ok(())
}
