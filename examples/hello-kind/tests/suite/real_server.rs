//! Tests of the example kind, and through it of the engine, on a real API server.

use std::{sync::Arc, time::Duration};

use crate::support::{Loss, Outside, Running, crd, greeting, until, words};
use anyhow::{Result, ensure};
use api::{
    Timestamp,
    decide::{Decision, Input, ReconcileError, ResourceType},
};
use engine::Kind;
use hello_kind::{Greeting, GreetingSpec, GreetingStatus, Hello, Line, World};
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Pod},
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use testkit::{
    cluster::{Cluster, Tier},
    operator::install,
    suite,
};

const LIMIT: Duration = Duration::from_secs(60);

fn door(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_greeting_waits_writes_once_and_says_so() -> Result<()> {
    suite::test(Tier::Api, "hello", async |env| {
        install(&env.client, vec![crd()]).await?;
        let outside = Arc::new(Outside::default());
        // The response to the write is lost, so the same line is sent again.
        *outside.loss.lock().unwrap() = Some(Loss::Error);
        let running = Running::start(&env.config, &env.namespace, LIMIT, |kind| kind, &outside)?;
        let greetings: Api<Greeting> = env.api();
        greetings
            .create(&PostParams::default(), &greeting("hi", "front", 60))
            .await?;

        let waiting = until(&greetings, "hi", 10, |seen| {
            words(seen).1 == "DependencyNotReady"
        })
        .await?;
        ensure!(
            words(&waiting).1 == "DependencyNotReady",
            "{:?}",
            words(&waiting)
        );
        ensure!(words(&waiting).2 == "Waiting for ConfigMap 'front'; create it.");
        ensure!(
            waiting.finalizers().is_empty(),
            "nothing was done yet that would need one"
        );

        env.api::<ConfigMap>()
            .create(&PostParams::default(), &door("front"))
            .await?;
        let done = until(&greetings, "hi", 20, |seen| {
            words(seen).0 == "Succeeded" && seen.finalizers().is_empty()
        })
        .await?;
        let status = done.status.clone().unwrap_or_default();
        ensure!(status.progress.is_true("Finished") && status.progress.is_true("Succeeded"));
        ensure!(status.progress.condition("Reconciling").is_none());
        let line = Line {
            key: done.uid().unwrap_or_default(),
            text: "hello from hi".to_owned(),
        };
        ensure!(status.intent.as_ref() == Some(&line), "{status:?}");
        ensure!(status.page == Some(1), "{status:?}");
        let phases: Vec<&str> = status
            .progress
            .phase_history
            .iter()
            .map(|record| record.phase.as_str())
            .collect();
        ensure!(phases == ["Waiting", "Writing", "Succeeded"], "{phases:?}");
        let requests = outside.requests.lock().unwrap().clone();
        ensure!(requests == [line.clone(), line.clone()], "{requests:?}");
        let lines = outside.lines.lock().unwrap().clone();
        ensure!(lines == [line], "one line, although it was sent twice");

        let events = env.api::<Event>().list(&ListParams::default()).await?;
        let mut reasons: Vec<String> = events
            .items
            .iter()
            .flat_map(|event| event.reason.clone())
            .collect();
        reasons.sort();
        ensure!(
            reasons == ["DependencyNotReady", "Succeeded", "Writing"],
            "{reasons:?}"
        );

        // R07: nothing is written once there is nothing to report.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let later = greetings.get("hi").await?;
        ensure!(
            later.resource_version() == done.resource_version(),
            "it is quiet"
        );
        running.end().await?;
        Ok(())
    })
    .await
}

// ANCHOR: deadline
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_deadline_survives_a_restart() -> Result<()> {
    suite::test(Tier::Api, "hello-deadline", async |env| {
        install(&env.client, vec![crd()]).await?;
        let start = || {
            Running::start(
                &env.config,
                &env.namespace,
                LIMIT,
                |kind| kind,
                &Arc::default(),
            )
        };
        let greetings: Api<Greeting> = env.api();
        greetings
            .create(&PostParams::default(), &greeting("late", "never", 4))
            .await?;
        let running = start()?;
        let waiting = until(&greetings, "late", 10, |seen| {
            words(seen).1 == "DependencyNotReady"
        })
        .await?;
        let status = waiting.status.unwrap_or_default();
        ensure!(status.progress.deadline_at.is_some(), "{status:?}");
        running.end().await?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        let running = start()?;
        let failed = until(&greetings, "late", 2, |seen| words(seen).0 == "Failed").await?;
        ensure!(
            words(&failed).1 == "DeadlineExceeded",
            "{:?}",
            words(&failed)
        );
        running.end().await?;
        Ok(())
    })
    .await
}
// ANCHOR_END: deadline

// ANCHOR: crash
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_crash_between_the_write_and_its_record_leaves_one_line() -> Result<()> {
    suite::test(Tier::Api, "hello-crash", async |env| {
        install(&env.client, vec![crd()]).await?;
        let outside = Arc::new(Outside::default());
        *outside.loss.lock().unwrap() = Some(Loss::Silence);
        let start = || Running::start(&env.config, &env.namespace, LIMIT, |kind| kind, &outside);
        let greetings: Api<Greeting> = env.api();
        env.api::<ConfigMap>()
            .create(&PostParams::default(), &door("front"))
            .await?;
        let running = start()?;
        greetings
            .create(&PostParams::default(), &greeting("hi", "front", 60))
            .await?;
        testkit::wait::until("the first request", Duration::from_secs(10), || async {
            let count = outside.requests.lock().unwrap().len();
            Ok((count == 1).then_some(()).ok_or_else(|| count.to_string()))
        })
        .await?;
        let written = greetings.get("hi").await?;
        ensure!(words(&written).0 == "Writing", "{:?}", words(&written));
        ensure!(written.finalizers() == [Hello::FINALIZER]);
        let intent = written.status.unwrap_or_default().intent;
        ensure!(intent.is_some(), "it was stored before the line was sent");
        // The book has the line, and the process ends without the response.
        running.end().await?;
        let running = start()?;
        let done = until(&greetings, "hi", 10, |seen| words(seen).0 == "Succeeded").await?;
        ensure!(done.status.unwrap_or_default().page == Some(1));
        let requests = outside.requests.lock().unwrap().clone();
        ensure!(requests.iter().all(|sent| Some(sent) == intent.as_ref()));
        ensure!(requests.len() == 2, "sent again, with the same key");
        ensure!(outside.lines.lock().unwrap().len() == 1, "one line");
        running.end().await?;
        Ok(())
    })
    .await
}
// ANCHOR_END: crash

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_line_is_signed_with_the_log_of_a_pod() -> Result<()> {
    suite::test(Tier::Api, "hello-log", async |env| {
        install(&env.client, vec![crd()]).await?;
        let outside = Arc::new(Outside::default());
        let running = Running::start(&env.config, &env.namespace, LIMIT, |kind| kind, &outside)?;
        let greetings: Api<Greeting> = env.api();
        env.api::<ConfigMap>()
            .create(&PostParams::default(), &door("front"))
            .await?;
        let mut signed = greeting("signed", "front", 60);
        signed.spec.guest = Some("ada".to_owned());
        greetings.create(&PostParams::default(), &signed).await?;
        let waiting = until(&greetings, "signed", 10, |seen| {
            words(seen).1 == "DependencyNotReady"
        })
        .await?;
        ensure!(words(&waiting).2.contains("the log of Pod 'ada'"));
        ensure!(outside.logs.lock().unwrap().is_empty(), "it does not exist");

        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "ada" },
            "spec": { "nodeName": "node-1", "containers": [{ "name": "guest", "image": "ada" }] },
        }))?;
        let pod = env
            .api::<Pod>()
            .create(&PostParams::default(), &pod)
            .await?;
        let done = until(&greetings, "signed", 10, |seen| {
            words(seen).0 == "Succeeded"
        })
        .await?;
        let text = done.status.unwrap_or_default().intent.map(|line| line.text);
        ensure!(text.as_deref() == Some("hello from signed ada was here"));
        let logs = outside.logs.lock().unwrap().clone();
        ensure!(logs.len() == 1, "{logs:?}");
        ensure!(Some(&logs[0].uid) == pod.uid().as_ref() && logs[0].node == "node-1");
        running.end().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn progress_extends_a_deadline() -> Result<()> {
    suite::test(Tier::Api, "hello-progress", async |env| {
        install(&env.client, vec![crd()]).await?;
        let (greetings, doors): (Api<Greeting>, Api<ConfigMap>) = (env.api(), env.api());
        let mut slow = door("slow");
        slow.data = Some([("opening".to_owned(), "1".to_owned())].into());
        doors.create(&PostParams::default(), &slow).await?;
        let outside = Arc::new(Outside::default());
        let running = Running::start(&env.config, &env.namespace, LIMIT, |kind| kind, &outside)?;
        greetings
            .create(&PostParams::default(), &greeting("hi", "slow", 5))
            .await?;
        let opening = |step: Option<&str>| {
            let patch = serde_json::json!({ "data": { "opening": step } });
            Patch::Merge(patch)
        };
        let params = PatchParams::default();
        // Nine seconds are more than its patience of five.
        for step in ["2", "3", "4"] {
            tokio::time::sleep(Duration::from_secs(3)).await;
            doors.patch("slow", &params, &opening(Some(step))).await?;
        }
        let seen = greetings.get("hi").await?;
        ensure!(words(&seen).0 == "Waiting", "{:?}", words(&seen));
        let progress = seen.status.unwrap_or_default().progress;
        ensure!(progress.phase_progress.is_some(), "{progress:?}");
        doors.patch("slow", &params, &opening(None)).await?;
        until(&greetings, "hi", 10, |seen| words(seen).0 == "Succeeded").await?;
        running.end().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn r23_a_finalizer_is_never_put_on_an_object_in_deletion_nor_back_on() -> Result<()> {
    suite::test(Tier::Api, "hello-delete", async |env| {
        install(&env.client, vec![crd()]).await?;
        let greetings: Api<Greeting> = env.api();
        // Another controller's finalizer keeps the object in deletion, so that we see it there.
        let mut kept = greeting("kept", "front", 60);
        kept.metadata.finalizers = Some(vec!["example.com/keep".to_owned()]);
        greetings.create(&PostParams::default(), &kept).await?;
        greetings.delete("kept", &DeleteParams::default()).await?;
        env.api::<ConfigMap>()
            .create(&PostParams::default(), &door("front"))
            .await?;
        greetings
            .create(&PostParams::default(), &greeting("done", "front", 60))
            .await?;
        let running = Running::start(
            &env.config,
            &env.namespace,
            LIMIT,
            |kind| kind,
            &Arc::default(),
        )?;
        let done = until(&greetings, "done", 10, |seen| {
            words(seen).0 == "Succeeded" && seen.finalizers().is_empty()
        })
        .await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        ensure!(
            greetings.get("kept").await?.finalizers() == ["example.com/keep"],
            "not put on in deletion"
        );
        let later = greetings.get("done").await?;
        ensure!(
            later.finalizers().is_empty() && later.resource_version() == done.resource_version(),
            "not put on again"
        );
        let free = serde_json::json!({ "metadata": { "finalizers": null } });
        greetings
            .patch(
                "kept",
                &kube::api::PatchParams::default(),
                &kube::api::Patch::Merge(free),
            )
            .await?;
        running.end().await?;
        Ok(())
    })
    .await
}

/// The kind `Hello`, but some of its Greetings hang or panic.
struct Trouble(Hello);

impl Kind for Trouble {
    type Object = Greeting;
    type Status = GreetingStatus;
    type World = World;
    const RESOURCE: ResourceType = Hello::RESOURCE;
    const FINALIZER: &'static str = Hello::FINALIZER;

    fn status(object: &Greeting) -> Option<&GreetingStatus> {
        Hello::status(object)
    }
    fn phase_spec(object: &Greeting) -> &GreetingSpec {
        Hello::phase_spec(object)
    }
    fn phase_progress(world: &World) -> Option<String> {
        Hello::phase_progress(world)
    }
    async fn observe(
        &self,
        object: &Arc<Greeting>,
        now: Timestamp,
    ) -> Result<World, ReconcileError> {
        if object.name_any() == "hang" {
            std::future::pending::<()>().await;
        }
        self.0.observe(object, now).await
    }
    fn decide(input: &Input<'_, Greeting, World>) -> Decision<GreetingStatus> {
        assert!(input.object.name_any() != "panic", "on purpose");
        Hello::decide(input)
    }
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_hang_and_a_panic_hurt_their_own_object_only() -> Result<()> {
    suite::test(Tier::Api, "hello-trouble", async |env| {
        install(&env.client, vec![crd()]).await?;
        let greetings: Api<Greeting> = env.api();
        env.api::<ConfigMap>()
            .create(&PostParams::default(), &door("front"))
            .await?;
        let limit = Duration::from_secs(2);
        let running = Running::start(&env.config, &env.namespace, limit, Trouble, &Arc::default())?;
        for name in ["hang", "panic", "well"] {
            greetings
                .create(&PostParams::default(), &greeting(name, "front", 60))
                .await?;
        }
        let well = until(&greetings, "well", 5, |seen| words(seen).0 == "Succeeded").await?;
        ensure!(well.status.is_some());
        for (name, said) in [
            ("hang", "did not end within 2 s"),
            ("panic", "panicked: on purpose"),
        ] {
            let seen = until(&greetings, name, 10, |seen| {
                words(seen).1 == "InternalError"
            })
            .await?;
            ensure!(words(&seen).2.contains(said), "{:?}", words(&seen));
            ensure!(
                seen.status
                    .is_some_and(|status| status.progress.is_true("Stalled"))
            );
        }
        ensure!(
            running
                .metrics
                .text()
                .contains(r#"orchestrator_reconcile_errors_total{kind="Greeting",class="Bug"}"#)
        );
        greetings
            .create(&PostParams::default(), &greeting("after", "front", 60))
            .await?;
        until(&greetings, "after", 5, |seen| words(seen).0 == "Succeeded").await?;
        ensure!(
            running.health.live().is_ok(),
            "one broken object does not restart the process"
        );
        running.end().await?;
        Ok(())
    })
    .await
}

/// Returns the CRD that an earlier release might have had: `patience` in seconds, as a number.
fn old_crd() -> Result<CustomResourceDefinition> {
    let mut crd = serde_json::to_value(crd())?;
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["patience"] =
        serde_json::json!({ "type": "integer" });
    Ok(serde_json::from_value(crd)?)
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn a_poison_object_is_reported_on_itself_and_an_absent_server_restarts_nothing() -> Result<()>
{
    let cluster = Cluster::start(&format!("hello-{}", std::process::id()), Tier::Api).await?;
    let client = cluster.client().await?;
    let greetings: Api<Greeting> = Api::namespaced(client.clone(), "default");
    let raw: Api<DynamicObject> = Api::namespaced_with(
        client.clone(),
        "default",
        &ApiResource::erase::<Greeting>(&()),
    );

    install(&client, vec![old_crd()?]).await?;
    let poison: DynamicObject = serde_json::from_value(serde_json::json!({
        "apiVersion": "hello.orchestrator.io/v1", "kind": "Greeting", "metadata": { "name": "poison" },
        "spec": { "line": "old", "door": "front", "patience": 5 },
    }))?;
    raw.create(&PostParams::default(), &poison).await?;
    install(&client, vec![crd()]).await?;
    Api::<ConfigMap>::namespaced(client.clone(), "default")
        .create(&PostParams::default(), &door("front"))
        .await?;

    let running = Running::start(
        &cluster.config().await?,
        "default",
        LIMIT,
        |kind| kind,
        &Arc::default(),
    )?;
    greetings
        .create(&PostParams::default(), &greeting("well", "front", 60))
        .await?;
    until(&greetings, "well", 10, |seen| words(seen).0 == "Succeeded").await?;
    let seen = testkit::wait::until("the report", Duration::from_secs(10), || async {
        let seen = raw.get("poison").await?;
        let status = seen.data["status"].to_string();
        Ok(if status.contains("Undecodable") {
            Ok(seen)
        } else {
            Err(status)
        })
    })
    .await?;
    let message = seen.data["status"]["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("does not fit the operator's schema") && message.contains("integer"),
        "{message}"
    );
    ensure!(
        running
            .metrics
            .text()
            .contains(r#"orchestrator_undecodable_objects{kind="Greeting"} 1"#),
        "{}",
        running.metrics.text()
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(
        raw.get("poison").await?.resource_version() == seen.resource_version(),
        "reported once"
    );
    // After the fix, the object is a Greeting like any other.
    let mended = serde_json::json!({ "spec": { "patience": "5s" } });
    raw.patch("poison", &PatchParams::default(), &Patch::Merge(mended))
        .await?;
    until(&greetings, "poison", 10, |seen| {
        words(seen).0 == "Succeeded"
    })
    .await?;

    greetings
        .create(&PostParams::default(), &greeting("through", "later", 600))
        .await?;
    until(&greetings, "through", 10, |seen| {
        words(seen).1 == "DependencyNotReady"
    })
    .await?;
    cluster.control.stop("kube-apiserver").await?;
    let away = tokio::time::Instant::now();
    while away.elapsed() < Duration::from_secs(60) {
        ensure!(running.health.live().is_ok(), "{:?}", running.health.live());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    cluster.control.restart("kube-apiserver").await?;
    testkit::wait::until("the API server", Duration::from_secs(30), || async {
        Ok(client
            .apiserver_version()
            .await
            .map_err(|error| error.to_string()))
    })
    .await?;
    Api::<ConfigMap>::namespaced(client.clone(), "default")
        .create(&PostParams::default(), &door("later"))
        .await?;
    until(&greetings, "through", 40, |seen| {
        words(seen).0 == "Succeeded"
    })
    .await?;
    ensure!(
        running
            .metrics
            .text()
            .contains("orchestrator_watch_errors_total")
    );
    running.end().await?;
    cluster.stop().await
}

#[test]
fn the_teaching_kind_is_short() {
    let lines = include_str!("../../src/lib.rs").lines().count();
    assert!(lines <= 250, "{lines} lines");
}
