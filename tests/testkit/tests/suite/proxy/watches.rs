//! Watches through the fault proxy.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, future::try_join};
use k8s_openapi::api::core::v1::PodTemplate;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, WatchEvent, WatchParams},
    runtime::watcher::{self, watcher},
};
use testkit::{
    cluster::Tier,
    faults::{
        point::{Fault, Injection, WatchFault},
        proxy::{KillTarget, Proxy},
    },
    suite,
    wait::{met, until},
};
use tokio::time::{Instant, sleep, timeout};

use super::fixture::{Fixture, SOON, at, client, is_reset, seen, status, token};

fn on_watch(fault: WatchFault) -> Injection {
    Injection::Watch {
        resource: "configmaps".to_owned(),
        fault,
    }
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_silent_watch_delivers_nothing_until_its_time_is_over() -> Result<()> {
    suite::test(Tier::Api, "proxy-silent", async |env| {
        let fixture = Fixture::new(&env, vec![on_watch(WatchFault::Silent(3000))]).await?;
        let mut events = Box::pin(fixture.watch().await?);
        assert_eq!(fixture.proxy.hits(), [false]);
        let begin = Instant::now();
        fixture.store("a").await?;
        until("the silence", SOON, async || {
            Ok(match fixture.proxy.hits().as_slice() {
                [true] => Ok(()),
                other => Err(format!("{other:?}")),
            })
        })
        .await?;
        sleep(Duration::from_millis(1000)).await;
        fixture.store("b").await?;
        assert_eq!(
            fixture.maps.list(&ListParams::default()).await?.items.len(),
            3
        );
        let (name, came) = seen(&mut events).await?;
        assert_eq!(name, "a");
        let late = came - begin;
        assert!(late >= Duration::from_millis(3000), "after {late:?}");
        let (name, with) = seen(&mut events).await?;
        assert_eq!(name, "b");
        assert!(with - came < Duration::from_millis(500), "not together");
        // Once only.
        fixture.store("c").await?;
        let stored = Instant::now();
        let (name, came) = seen(&mut events).await?;
        assert_eq!(name, "c");
        assert!(came - stored < Duration::from_millis(1500), "silent again");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn events_come_late_while_reads_are_true() -> Result<()> {
    suite::test(Tier::Api, "proxy-stale", async |env| {
        let fixture = Fixture::new(&env, vec![on_watch(WatchFault::Stale(3000))]).await?;
        let mut events = Box::pin(fixture.watch().await?);
        assert_eq!(fixture.proxy.hits(), [false]);
        for name in ["a", "b", "c"] {
            fixture.store(name).await?;
        }
        let written = Instant::now();
        fixture.maps.get("c").await?;
        assert_eq!(
            fixture.maps.list(&ListParams::default()).await?.items.len(),
            4
        );
        ensure!(written.elapsed() < Duration::from_millis(2500), "too slow");
        for name in ["a", "b"] {
            assert_eq!(seen(&mut events).await?.0, name);
        }
        let (name, came) = seen(&mut events).await?;
        assert_eq!(name, "c");
        let late = came - written;
        // The server's own way to the proxy takes some of it.
        assert!(late > Duration::from_millis(2900), "after {late:?}");
        assert_eq!(fixture.proxy.hits(), [true]);
        fixture.store("d").await?;
        sleep(Duration::from_millis(200)).await;
        fixture.proxy.calm();
        let calm = Instant::now();
        assert_eq!(seen(&mut events).await?.0, "d");
        let after_calm = calm.elapsed();
        assert!(
            after_calm < Duration::from_millis(1500),
            "after {after_calm:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn what_was_there_before_a_watch_is_not_late() -> Result<()> {
    suite::test(Tier::Api, "proxy-initial", async |env| {
        let script = vec![
            on_watch(WatchFault::Stale(3000)),
            on_watch(WatchFault::Cut(1)),
        ];
        let fixture = Fixture::new(&env, script).await?;
        fixture.store("a").await?;
        let begun = Instant::now();
        let streaming = watcher::Config::default().streaming_lists();
        let mut events = Box::pin(watcher(fixture.maps.clone(), streaming));
        loop {
            let event = timeout(SOON, events.try_next()).await??;
            if matches!(event, Some(watcher::Event::InitDone)) {
                break;
            }
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(2000), "after {took:?}");
        assert_eq!(fixture.traced("list").len(), 0);
        assert_eq!(fixture.proxy.hits(), [false; 2]);
        let written = fixture.store("b").await?;
        let event = timeout(SOON, events.try_next()).await??;
        assert!(matches!(event, Some(watcher::Event::Apply(_))));
        assert!(written.elapsed() > Duration::from_millis(2900));
        assert_eq!(fixture.proxy.hits(), [true; 2]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn events_come_together() -> Result<()> {
    suite::test(Tier::Api, "proxy-together", async |env| {
        let fixture = Fixture::new(&env, vec![on_watch(WatchFault::Collapsed(1200))]).await?;
        let mut events = Box::pin(fixture.watch().await?);
        let first = fixture.store("a").await?;
        for name in ["b", "c"] {
            sleep(Duration::from_millis(400)).await;
            fixture.store(name).await?;
        }
        let mut times = Vec::new();
        for wanted in ["a", "b", "c"] {
            let (name, came) = seen(&mut events).await?;
            assert_eq!(name, wanted);
            times.push(came - first);
        }
        assert!(times[0] > Duration::from_millis(1100), "{times:?}");
        assert!(
            times[2] - times[0] < Duration::from_millis(400),
            "{times:?}"
        );
        assert_eq!(fixture.proxy.hits(), [true]);
        Ok(())
    })
    .await
}

/// Watches as controllers do until all of `wanted` were seen; how often an error came.
async fn follow(fixture: &Fixture, wanted: &[&str]) -> Result<u32> {
    let mut events = Box::pin(watcher(fixture.maps.clone(), watcher::Config::default()));
    let mut missing: BTreeSet<&str> = wanted.iter().copied().collect();
    let mut errors = 0;
    let writing = async {
        until("the first watch", SOON, async || {
            let watches = fixture.traced("watch").len();
            Ok(met(watches > 0, || "none".to_owned()))
        })
        .await?;
        for name in wanted {
            fixture.store(name).await?;
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    let watching = async {
        while !missing.is_empty() {
            match timeout(SOON, events.next()).await?.context("ended")? {
                Ok(watcher::Event::Apply(map) | watcher::Event::InitApply(map)) => {
                    missing.remove(map.metadata.name.unwrap_or_default().as_str());
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                Ok(watcher::Event::Delete(map)) => bail!("deleted: {:?}", map.metadata.name),
                Err(_told) => errors += 1,
            }
        }
        Ok(())
    };
    try_join(writing, watching).await?;
    Ok(errors)
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_stream_that_was_cut_is_resumed() -> Result<()> {
    suite::test(Tier::Api, "proxy-cut", async |env| {
        let fixture = Fixture::new(&env, vec![on_watch(WatchFault::Cut(2))]).await?;
        let errors = follow(&fixture, &["a", "b", "c", "d"]).await?;
        assert_eq!(errors, 0);
        assert_eq!(fixture.traced("watch").len(), 2);
        assert_eq!(fixture.traced("list").len(), 1);
        assert_eq!(fixture.proxy.hits(), [true]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_stream_that_is_gone_leads_to_a_new_list() -> Result<()> {
    suite::test(Tier::Api, "proxy-gone", async |env| {
        let fixture = Fixture::new(&env, vec![on_watch(WatchFault::Gone(2))]).await?;
        let errors = follow(&fixture, &["a", "b", "c", "d"]).await?;
        assert_eq!(errors, 1);
        let codes: Vec<_> = fixture
            .traced("watch")
            .iter()
            .map(|seen| seen.code)
            .collect();
        assert!(codes.starts_with(&[Some(200), None]), "{codes:?}");
        assert_eq!(fixture.traced("list").len(), 2);
        assert_eq!(fixture.proxy.hits(), [true]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_missed_deletion_is_learned_from_a_new_list() -> Result<()> {
    suite::test(Tier::Api, "proxy-missed-deletion", async |env| {
        let fixture = Fixture::new(&env, vec![on_watch(WatchFault::MissedDeletion)]).await?;
        let mut events = Box::pin(fixture.watch().await?);
        fixture.store("a").await?;
        let (name, _) = seen(&mut events).await?;
        assert_eq!(name, "a");
        fixture.maps.delete("a", &DeleteParams::default()).await?;
        let next = timeout(SOON, events.try_next()).await??;
        assert!(next.is_none(), "{next:?}");
        // The next watch starts where this one ended.
        let list = fixture.maps.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.context("no version")?;
        let mut events = Box::pin(
            fixture
                .maps
                .watch(&WatchParams::default(), &version)
                .await?,
        );
        let first = timeout(SOON, events.try_next()).await??;
        let is_gone = matches!(&first, Some(WatchEvent::Error(error)) if error.code == 410);
        assert!(is_gone, "{first:?}");
        assert_eq!(fixture.proxy.hits(), [true]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_watch_is_refused_reset_and_cut_within_an_event() -> Result<()> {
    suite::test(Tier::Api, "proxy-watch", async |env| {
        let script = vec![
            at("watch", "", 1, Fault::Refused(429)),
            at("watch", "", 2, Fault::Reset),
            at("watch", "", 3, Fault::Truncated),
        ];
        let fixture = Fixture::new(&env, script).await?;
        let refused = fixture.watch().await.err().context("not refused")?;
        let refused = refused.downcast::<kube::Error>()?;
        assert_eq!(status(&refused), Some((429, "TooManyRequests")));
        let reset = fixture.watch().await.err().context("not reset")?;
        assert!(is_reset(&reset.downcast::<kube::Error>()?));
        let mut events = Box::pin(fixture.watch().await?);
        fixture.store("a").await?;
        let ended = timeout(SOON, events.next()).await?;
        assert!(matches!(ended, None | Some(Err(_))), "{ended:?}");
        assert_eq!(fixture.proxy.hits(), [true; 3]);
        follow(&fixture, &["b"]).await?;
        Ok(())
    })
    .await
}

/// How many watches of a namespace's PodTemplates the API server has; nobody else has one.
async fn watches(client: &Client) -> Result<usize> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let metrics = client.request_text(request).await?;
    let lines = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && line.contains(r#"resource="podtemplates""#)
            && line.contains(r#"scope="namespace""#)
    });
    lines
        .map(|line| {
            let value = line.rsplit(' ').next().context("no value")?;
            Ok(value.parse::<usize>()?)
        })
        .sum()
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn when_the_client_goes_its_watch_ends_at_the_server() -> Result<()> {
    suite::test(Tier::Api, "proxy-ends", async |env| {
        for is_touched in [false, true] {
            let script = is_touched.then(|| Injection::Watch {
                resource: "podtemplates".to_owned(),
                fault: WatchFault::Stale(100),
            });
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            let target = KillTarget::default();
            let script = script.into_iter().collect();
            let proxy = Proxy::start(listener, &env.config, target, script).await?;
            let token = token(&env).await?;
            let client = client(proxy.endpoint(), Some(&token))?;
            let templates: Api<PodTemplate> = Api::namespaced(client, &env.namespace);
            let events = templates.watch(&WatchParams::default(), "0").await?;
            let there = async |wanted: usize| {
                until("the server's watches", SOON, async || {
                    let found = watches(&env.client).await?;
                    Ok(met(found == wanted, || found.to_string()))
                })
                .await
            };
            there(1).await?;
            drop(events);
            there(0).await?;
        }
        Ok(())
    })
    .await
}
