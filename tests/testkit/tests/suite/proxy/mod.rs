//! What a client sees through the fault proxy, and what the API server has stored.

mod fixture;
mod watches;

use std::{
    os::unix::process::ExitStatusExt,
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use testkit::{
    cluster::Tier,
    faults::{
        point::{Fault, Injection, Point, Route},
        proxy::{KillTarget, Traced},
    },
    suite,
};
use tokio::time::{Instant, sleep};

use self::fixture::{Fixture, at, client, is_reset, seen, status};
use crate::map;

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn without_faults_all_passes_with_the_clients_own_token() -> Result<()> {
    suite::test(Tier::Api, "proxy-pass", async |env| {
        let fixture = Fixture::new(&env, Vec::new()).await?;
        let nobody: Api<ConfigMap> =
            Api::namespaced(client(fixture.proxy.endpoint(), None)?, &env.namespace);
        let error = nobody.get("a").await.unwrap_err();
        assert!(matches!(status(&error), Some((401 | 403, _))), "{error}");
        let mut events = Box::pin(fixture.watch().await?);
        fixture.create("a").await?;
        let written = Instant::now();
        let (_, came) = seen(&mut events).await?;
        assert!(came - written < Duration::from_secs(1), "kept back");
        let twice = fixture.create("a").await.unwrap_err();
        assert_eq!(status(&twice), Some((409, "AlreadyExists")));
        fixture.maps.delete("a", &DeleteParams::default()).await?;
        assert!(!fixture.is_stored("a").await?);
        let writes = fixture.proxy.trace();
        let seen: Vec<_> = writes
            .iter()
            .filter(|traced| traced.point.route.is_write())
            .map(|traced| (traced.point.to_string(), traced.code, traced.fault))
            .collect();
        let wanted = [
            ("create-configmaps:a#1".to_owned(), Some(201), None),
            ("create-configmaps:a#2".to_owned(), Some(409), None),
            ("delete-configmaps:a#1".to_owned(), Some(200), None),
        ];
        assert_eq!(seen, wanted);
        let of_others = |traced: &Traced| traced.namespace != env.namespace;
        assert!(!writes.iter().any(of_others), "{writes:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn what_is_lost_is_stored_and_what_is_refused_is_not() -> Result<()> {
    suite::test(Tier::Api, "proxy-write", async |env| {
        type Judge = fn(&kube::Error, u16) -> bool;
        let is_status: Judge = |error, code| {
            let reason = match code {
                403 => "Forbidden",
                409 => "Conflict",
                429 => "TooManyRequests",
                503 => "ServiceUnavailable",
                504 => "Timeout",
                _ => "InternalError",
            };
            status(error) == Some((code, reason))
        };
        let is_cut: Judge = |error, _| status(error).is_none() && !is_reset(error);
        let is_reset: Judge = |error, _| is_reset(error);
        // What the client sees, what the server said, whether it is stored.
        let mut cases = vec![
            (Fault::LostByReset, (is_reset, 0), Some(201), true),
            (Fault::LostByTimeout, (is_status, 504), Some(201), true),
            (Fault::Truncated, (is_cut, 0), Some(201), true),
            (Fault::Reset, (is_reset, 0), None, false),
        ];
        for code in [403, 409, 429, 500, 503, 504] {
            cases.push((Fault::Refused(code), (is_status, code), None, false));
        }
        let script = (0..)
            .zip(&cases)
            .map(|(number, (fault, ..))| at("create", &format!("a{number}"), 1, *fault))
            .collect();
        let fixture = Fixture::new(&env, script).await?;
        assert_eq!(fixture.proxy.hits(), [false; 10]);
        for (number, (fault, (is_wanted, argument), code, stored)) in (0..).zip(&cases) {
            let name = format!("a{number}");
            let error = fixture.create(&name).await.unwrap_err();
            assert!(is_wanted(&error, *argument), "{fault}: {error:?}");
            assert_eq!(fixture.is_stored(&name).await?, *stored, "{fault}");
            let traced = fixture.traced("create").pop().context("no trace")?;
            assert_eq!((traced.fault, traced.code), (Some(*fault), *code));
            // Hit once only.
            match fixture.create(&name).await {
                Ok(_) => assert!(!stored, "{fault}"),
                Err(error) => {
                    assert_eq!(status(&error), Some((409, "AlreadyExists")), "{fault}");
                    assert!(stored, "{fault}");
                }
            }
        }
        assert_eq!(fixture.proxy.hits(), [true; 10]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn reads_are_cut_and_reset_too() -> Result<()> {
    suite::test(Tier::Api, "proxy-read", async |env| {
        let script = vec![
            at("get", "a", 1, Fault::Truncated),
            at("list", "", 1, Fault::Truncated),
            at("list", "", 2, Fault::Reset),
        ];
        let fixture = Fixture::new(&env, script).await?;
        fixture.create("a").await?;
        let error = fixture.maps.get("a").await.unwrap_err();
        assert!(status(&error).is_none() && !is_reset(&error), "{error:?}");
        fixture.maps.get("a").await?;
        let list = async || fixture.maps.list(&ListParams::default()).await;
        let error = list().await.unwrap_err();
        assert!(status(&error).is_none() && !is_reset(&error), "{error:?}");
        assert!(is_reset(&list().await.unwrap_err()));
        list().await?;
        assert_eq!(fixture.proxy.hits(), [true; 3]);
        Ok(())
    })
    .await
}

fn sleeper(target: &KillTarget) -> Result<Child> {
    let child = Command::new("sleep").arg("60").spawn()?;
    target.set(Some(i32::try_from(child.id())?));
    Ok(child)
}

async fn was_killed(child: &mut Child) -> Result<bool> {
    for _ in 0..100 {
        if let Some(status) = child.try_wait()? {
            return Ok(status.signal() == Some(9));
        }
        sleep(Duration::from_millis(10)).await;
    }
    child.kill()?;
    child.wait()?;
    Ok(false)
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn the_operator_is_killed_around_a_write() -> Result<()> {
    suite::test(Tier::Api, "proxy-kill", async |env| {
        // Whether the client sees the answer, whether it is stored.
        let cases = [
            (Fault::KillBefore, false, false),
            (Fault::KillAfter, false, true),
            (Fault::KillRelayed, true, true),
        ];
        for (fault, is_answered, stored) in cases {
            let fixture = Fixture::new(&env, vec![at("create", "a", 1, fault)]).await;
            let fixture = fixture.with_context(|| fault.to_string())?;
            let mut child = sleeper(&fixture.target)?;
            fixture.create("other").await?;
            let answer = fixture.create("a").await;
            assert_eq!(answer.is_ok(), is_answered, "{fault}: {answer:?}");
            assert!(was_killed(&mut child).await?, "{fault}");
            assert!(!fixture.target.kill(), "{fault}: not forgotten");
            assert_eq!(fixture.is_stored("a").await?, stored, "{fault}");
            assert_eq!(fixture.proxy.hits(), [true]);
            for name in ["a", "other"] {
                if fixture.is_stored(name).await? {
                    fixture
                        .stored
                        .delete(name, &DeleteParams::default())
                        .await?;
                }
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_kill_without_a_process_is_no_hit() -> Result<()> {
    suite::test(Tier::Api, "proxy-nobody", async |env| {
        let fixture = Fixture::new(&env, vec![at("create", "a", 1, Fault::KillBefore)]).await?;
        assert!(is_reset(&fixture.create("a").await.unwrap_err()));
        assert_eq!(fixture.proxy.hits(), [false]);
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn twenty_clients_at_once_are_counted_as_one() -> Result<()> {
    suite::test(Tier::Api, "proxy-twenty", async |env| {
        let script = vec![Injection::Request {
            point: Point {
                route: Route::new("create", "configmaps"),
                name: String::new(),
                nth: 50,
            },
            fault: Fault::Refused(500),
            times: 7,
        }];
        let fixture = Fixture::new(&env, script).await?;
        let writers = (0..20).map(async |writer| {
            let maps: Api<ConfigMap> = Api::namespaced(fixture.client()?, &fixture.namespace);
            let mut refused = 0;
            for number in 0..10 {
                let name = format!("w{writer}-{number}");
                match maps.create(&PostParams::default(), &map(&name)).await {
                    Ok(_) => {}
                    Err(error) if status(&error) == Some((500, "InternalError")) => refused += 1,
                    Err(error) => bail!("{error:?}"),
                }
            }
            Ok(refused)
        });
        let refused: Vec<u32> = join_all(writers).await.into_iter().collect::<Result<_>>()?;
        assert_eq!(refused.iter().sum::<u32>(), 7);
        let trace = fixture.traced("create");
        let hit: Vec<usize> = (0..trace.len())
            .filter(|number| trace[*number].fault.is_some())
            .collect();
        assert_eq!(trace.len(), 200);
        assert_eq!(hit, [49, 50, 51, 52, 53, 54, 55]);
        assert_eq!(
            fixture
                .stored
                .list(&ListParams::default())
                .await?
                .items
                .len(),
            194
        );
        Ok(())
    })
    .await
}
