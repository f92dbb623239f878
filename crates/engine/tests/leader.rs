//! Elections on a real API server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use engine::{
    client,
    clock::Clock,
    health::Health,
    leader::{ElectionConfig, Leader, Leadership, LeaseTimings, NotReleased},
    metrics::Metrics,
    supervise::{Shutdown, Trigger},
};
use futures::FutureExt;
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api, Config,
    api::{DeleteParams, Patch, PatchParams},
};
use nix::sys::signal::Signal;
use testkit::{
    cluster::{Cluster, Tier},
    suite::{self, Env},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

const NAME: &str = "operator";

const SOON: Duration = Duration::from_secs(10);

struct Candidate {
    leading: Leadership,
    stop: Trigger,
    metrics: Metrics,
    task: JoinSet<Result<(), NotReleased>>,
}

impl Candidate {
    fn start(
        config: &Config,
        namespace: &str,
        identity: &str,
        durations: LeaseTimings,
    ) -> Result<Self> {
        let metrics = Metrics::default();
        let client = client::build(config.clone(), &metrics, &Health::default())?;
        let candidacy = ElectionConfig {
            namespace: namespace.to_owned(),
            name: NAME.to_owned(),
            identity: identity.to_owned(),
            durations,
        };
        let leader = Leader::new(
            client,
            candidacy,
            Clock::system(),
            metrics.clone(),
            Health::default(),
        );
        let (stop, shutdown) = Shutdown::pair();
        let leading = leader.status();
        let mut task = JoinSet::new();
        task.spawn(leader.run(shutdown));
        Ok(Self {
            leading,
            stop,
            metrics,
            task,
        })
    }

    fn leads(&self) -> bool {
        self.leading.is_leader()
    }

    /// Waits for the wanted state. Returns how long that took.
    async fn becomes(&mut self, wanted: bool, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        let change = async {
            while self.leading.is_leader() != wanted {
                self.leading.changed().await?;
            }
            anyhow::Ok(())
        };
        let changed = timeout(limit, change).await;
        changed.with_context(|| format!("not {wanted} within {limit:?}"))??;
        Ok(start.elapsed())
    }

    async fn stop(mut self) -> Result<()> {
        self.stop.pull();
        let ended = timeout(Duration::from_secs(5), self.task.join_next());
        ended.await?.context("no task")??.map_err(Into::into)
    }

    /// Ends like a killed process.
    async fn die(mut self) {
        self.task.shutdown().await;
    }
}

fn short() -> Result<LeaseTimings> {
    LeaseTimings::new(Duration::from_secs(3), Duration::from_millis(500))
        .map_err(anyhow::Error::msg)
}

async fn spec(env: &Env) -> Result<LeaseSpec> {
    let leases: Api<Lease> = env.api();
    leases
        .get(NAME)
        .await?
        .spec
        .context("a Lease without a spec")
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn at_every_instant_at_most_one_leads() -> Result<()> {
    suite::test(Tier::Api, "one-leader", async |env| {
        let mut number = 0;
        let mut start = || {
            number += 1;
            Candidate::start(&env.config, &env.namespace, &format!("c{number}"), short()?)
        };
        let mut all = vec![start()?, start()?, start()?];
        let rounds = 6;
        for round in 0..rounds {
            // Wait for a leader, and then longer than a Lease lasts: no other may lead.
            let mut led_since: Option<Instant> = None;
            let begin = Instant::now();
            while led_since.is_none_or(|since| since.elapsed() < Duration::from_millis(3500)) {
                let leaders = all.iter().filter(|candidate| candidate.leads()).count();
                ensure!(leaders <= 1, "{leaders} lead at once in round {round}");
                ensure!(begin.elapsed() < 2 * SOON, "nobody leads in round {round}");
                led_since = (leaders == 1).then(|| led_since.unwrap_or_else(Instant::now));
                sleep(Duration::from_millis(1)).await;
            }
            let leader = all
                .iter()
                .position(Candidate::leads)
                .context("nobody leads")?;
            let leader = all.remove(leader);
            all.push(start()?);
            if round % 2 == 0 {
                leader.stop().await?;
            } else {
                leader.die().await;
            }
        }
        let spec = spec(&env).await?;
        assert!(spec.lease_transitions >= Some(rounds - 1), "{spec:?}");
        Ok(())
    })
    .await
}

/// Uses the real durations, so that an expiry cannot be the cause of the handover.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_stop_hands_over_within_a_second() -> Result<()> {
    suite::test(Tier::Api, "hand-over", async |env| {
        let start =
            |name| Candidate::start(&env.config, &env.namespace, name, LeaseTimings::default());
        let mut first = start("first")?;
        first.becomes(true, SOON).await?;
        let found = spec(&env).await?;
        assert_eq!(found.holder_identity.as_deref(), Some("first"));
        assert_eq!(
            (found.lease_transitions, found.lease_duration_seconds),
            (Some(0), Some(15))
        );
        assert!(first.metrics.text().contains("orchestrator_leader 1"));
        let mut second = start("second")?;
        sleep(Duration::from_secs(1)).await;
        assert!(!second.leads());
        let begin = Instant::now();
        first.stop().await?;
        second.becomes(true, SOON).await?;
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
        let found = spec(&env).await?;
        assert_eq!(found.holder_identity.as_deref(), Some("second"));
        assert_eq!(found.lease_transitions, Some(1));
        let text = second.metrics.text();
        assert!(text.contains("orchestrator_leader 1"), "{text}");
        assert!(
            text.contains(r#"{verb="watch",resource="leases",code="200"}"#),
            "{text}"
        );
        second.stop().await?;
        let found = spec(&env).await?;
        assert_eq!(
            found.holder_identity.as_deref(),
            Some(""),
            "released, not deleted"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_dead_leader_is_replaced_after_the_lease_and_not_before() -> Result<()> {
    suite::test(Tier::Api, "dead-leader", async |env| {
        let start = |name| Candidate::start(&env.config, &env.namespace, name, short()?);
        let mut first = start("first")?;
        first.becomes(true, SOON).await?;
        let mut second = start("second")?;
        sleep(Duration::from_secs(4)).await;
        assert!(!second.leads(), "the first renews");
        first.die().await;
        let renewed = spec(&env).await?.renew_time.context("never renewed")?.0;
        second.becomes(true, SOON).await?;
        let after = Clock::system().now().duration_since(renewed);
        let range = SignedDuration::from_secs(3)..SignedDuration::from_secs(5);
        assert!(
            range.contains(&after),
            "3 s after the last renewal, not {after:?}"
        );
        second.stop().await
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_lease_that_is_stolen_or_deleted_is_noticed_and_won_back() -> Result<()> {
    suite::test(Tier::Api, "stolen", async |env| {
        // Renewals are 5 s apart, so only the watch can notice a change sooner.
        let sooner = Duration::from_secs(1);
        let durations = LeaseTimings::default();
        let mut leader = Candidate::start(&env.config, &env.namespace, "honest", durations)?;
        leader.becomes(true, SOON).await?;
        // The watch begins after the first write.
        sleep(Duration::from_secs(1)).await;
        let leases: Api<Lease> = env.api();
        let theft = serde_json::json!({"spec": {
            "holderIdentity": "thief",
            "leaseDurationSeconds": 2,
            "renewTime": "2099-01-01T00:00:00.000000Z",
        }});
        leases
            .patch(NAME, &PatchParams::default(), &Patch::Merge(&theft))
            .await?;
        leader.becomes(false, sooner).await?;
        assert!(leader.metrics.text().contains("orchestrator_leader 0"));
        let took = leader.becomes(true, SOON).await?;
        assert!(
            took > Duration::from_millis(1900),
            "before the thief's time was over: {took:?}"
        );
        assert_eq!(spec(&env).await?.lease_transitions, Some(1));

        leases.delete(NAME, &DeleteParams::default()).await?;
        leader.becomes(false, sooner).await?;
        leader.becomes(true, sooner).await?;
        assert_eq!(spec(&env).await?.holder_identity.as_deref(), Some("honest"));
        leader.stop().await
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn what_others_write_into_the_lease_does_not_end_the_leadership() -> Result<()> {
    suite::test(Tier::Api, "annotated", async |env| {
        let mut leader = Candidate::start(&env.config, &env.namespace, "a", short()?)?;
        leader.becomes(true, SOON).await?;
        let leases: Api<Lease> = env.api();
        for number in 0..20 {
            let note =
                serde_json::json!({"metadata": {"annotations": {"note": number.to_string()}}});
            leases
                .patch(NAME, &PatchParams::default(), &Patch::Merge(&note))
                .await?;
            sleep(Duration::from_millis(150)).await;
            ensure!(
                leader.leads() && leader.leading.changed().now_or_never().is_none(),
                "lost by a note"
            );
        }
        let annotations = leases
            .get(NAME)
            .await?
            .metadata
            .annotations
            .unwrap_or_default();
        assert_eq!(
            annotations.get("note").map(String::as_str),
            Some("19"),
            "overwritten"
        );
        leader.stop().await
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_lease_that_cannot_be_made_is_not_tried_without_a_pause() -> Result<()> {
    suite::test(Tier::Api, "no-namespace", async |env| {
        let candidate = Candidate::start(
            &env.config,
            "no-such-namespace",
            "a",
            LeaseTimings::default(),
        )?;
        sleep(Duration::from_secs(3)).await;
        let text = candidate.metrics.text();
        let line =
            r#"orchestrator_api_requests_total{verb="create",resource="leases",code="404"} "#;
        let count = text.lines().find_map(|found| found.strip_prefix(line));
        let count: u32 = count.context(text.clone())?.parse()?;
        assert!((1..=4).contains(&count), "{text}");
        candidate.stop().await
    })
    .await
}

/// Has its own cluster, because the other tests need their API server.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_leader_without_an_api_server_gives_up_in_time_and_comes_back() -> Result<()> {
    let cluster = Cluster::start(&format!("leader-{}", std::process::id()), Tier::Api).await?;
    let seen = outages(&cluster).await;
    cluster.stop().await?;
    seen
}

async fn outages(cluster: &Cluster) -> Result<()> {
    let server = "kube-apiserver";
    let durations = LeaseTimings::new(Duration::from_secs(6), Duration::from_secs(1));
    let durations = durations.map_err(anyhow::Error::msg)?;
    let (give_up, margin) = (Duration::from_secs(4), Duration::from_secs(1));
    let back = Duration::from_secs(60);
    let config = cluster.config().await?;
    let mut leader = Candidate::start(&config, "default", "a", durations)?;
    leader.becomes(true, SOON).await?;

    cluster.control.signal(server, Signal::SIGSTOP).await?;
    let took = leader.becomes(false, SOON).await?;
    ensure!(
        took < give_up + margin && took > give_up / 2,
        "frozen: {took:?}"
    );
    ensure!(
        leader
            .metrics
            .text()
            .contains(r#"{verb="update",resource="leases",code="dropped"}"#)
    );
    cluster.control.signal(server, Signal::SIGCONT).await?;
    leader
        .becomes(true, back)
        .await
        .context("after the freeze")?;

    cluster.control.stop(server).await?;
    let took = leader.becomes(false, SOON).await?;
    ensure!(took < give_up + margin, "stopped: {took:?}");
    cluster.control.restart(server).await?;
    leader
        .becomes(true, back)
        .await
        .context("after the restart")?;

    cluster.control.signal(server, Signal::SIGSTOP).await?;
    let begin = Instant::now();
    let said = leader
        .stop()
        .await
        .err()
        .context("claims to have released")?
        .to_string();
    let took = begin.elapsed();
    cluster.control.signal(server, Signal::SIGCONT).await?;
    ensure!(
        said.contains("default/operator") && said.contains("could not be released"),
        "{said}"
    );
    ensure!(took < Duration::from_millis(1500), "a stop took {took:?}");
    Ok(())
}
