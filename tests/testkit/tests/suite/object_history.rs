//! Tests of the object history with a real API server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tasks::{Agent, DocsRun, TaskRun};
use futures::future::try_join_all;
use k8s_openapi::api::{
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, ServiceAccount},
    events::v1::Event,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use serde_json::json;
use testkit::{
    cluster::Tier,
    faults::object_history::{Change, ObjectHistory, Seen},
    operator, suite,
};

use super::map;

fn maps() -> Vec<ApiResource> {
    vec![ApiResource::erase::<ConfigMap>(&())]
}

fn of<'a>(seen: &'a [Seen], name: &str) -> Vec<&'a Seen> {
    seen.iter().filter(|one| one.name == name).collect()
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn every_version_is_seen_in_order() -> Result<()> {
    suite::test(Tier::Api, "object-history", async |env| {
        let objects: Api<ConfigMap> = env.api();
        objects
            .create(&PostParams::default(), &map("before"))
            .await?;
        let history = ObjectHistory::start(&env.client, maps()).await?;
        let made = objects.create(&PostParams::default(), &map("one")).await?;
        let mut versions = vec![made.metadata.resource_version.context("no version")?];
        for number in 0..200 {
            let change = Patch::Merge(json!({ "data": { "number": number.to_string() } }));
            let written = objects
                .patch("one", &PatchParams::default(), &change)
                .await?;
            versions.push(written.metadata.resource_version.context("no version")?);
        }
        objects
            .create(&PostParams::default(), &map("short-lived"))
            .await?;
        for name in ["short-lived", "one"] {
            objects.delete(name, &DeleteParams::default()).await?;
        }
        let again = objects.create(&PostParams::default(), &map("one")).await?;
        history.caught_up(&env.client).await?;

        let seen = history.of(&env.namespace, &maps());
        assert!(of(&seen, "before").is_empty());
        let one = of(&seen, "one");
        let (first, rest) = one.split_at(versions.len());
        let found: Vec<String> = first.iter().map(|one| one.version.to_string()).collect();
        assert_eq!(found, versions);
        for (number, one) in first.iter().skip(1).enumerate() {
            assert_eq!(one.change, Change::Modified);
            assert_eq!(one.object["data"]["number"], number.to_string());
            assert!(one.object["metadata"]["managedFields"].is_null());
        }
        let changes: Vec<Change> = rest.iter().map(|one| one.change).collect();
        assert_eq!(changes, [Change::Deleted, Change::Added]);
        assert!(rest[0].version > first[200].version && rest[1].version > rest[0].version);
        assert_eq!(rest[0].uid, first[0].uid);
        assert_eq!(of(&seen, "short-lived").len(), 2);

        let now = history.now(&env.namespace, &maps());
        let uids: Vec<&str> = of(&now, "one").iter().map(|one| one.uid.as_str()).collect();
        assert_eq!(uids, [again.metadata.uid.context("no uid")?]);
        assert!(of(&now, "short-lived").is_empty());

        history.forget(&env.namespace);
        objects.delete("one", &DeleteParams::default()).await?;
        history.caught_up(&env.client).await?;
        assert!(history.of(&env.namespace, &maps()).is_empty());
        history.stop(&env.client).await
    })
    .await
}

/// A write that was answered before the call is seen after it, each time, however many ask.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn caught_up_means_that_everything_before_is_seen() -> Result<()> {
    suite::test(Tier::Api, "caught-up", async |env| {
        let history = ObjectHistory::start(&env.client, maps()).await?;
        let (history, env) = (&history, &env);
        let one = async |number: usize| {
            let objects: Api<ConfigMap> = env.api();
            for round in 0..10 {
                // Gone at once: nothing that is there tells that it was.
                let name = format!("m-{number}-{round}");
                objects.create(&PostParams::default(), &map(&name)).await?;
                objects.delete(&name, &DeleteParams::default()).await?;
                history.caught_up(&env.client).await?;
                let seen = history.of(&env.namespace, &maps());
                ensure!(of(&seen, &name).len() == 2, "{name} was not seen");
            }
            anyhow::Ok(())
        };
        try_join_all((0..10).map(one)).await?;
        Ok(())
    })
    .await
}

/// Each kind that a play is judged by has its marker, and nothing comes of it.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn each_kind_has_a_marker() -> Result<()> {
    suite::test(Tier::Api, "markers", async |env| {
        operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
        let kinds = vec![
            ApiResource::erase::<Agent>(&()),
            ApiResource::erase::<TaskRun>(&()),
            ApiResource::erase::<DocsRun>(&()),
            ApiResource::erase::<Job>(&()),
            ApiResource::erase::<Pod>(&()),
            ApiResource::erase::<ConfigMap>(&()),
            ApiResource::erase::<Secret>(&()),
            ApiResource::erase::<ServiceAccount>(&()),
            ApiResource::erase::<PersistentVolumeClaim>(&()),
            ApiResource::erase::<Lease>(&()),
            ApiResource::erase::<Event>(&()),
        ];
        let history = ObjectHistory::start(&env.client, kinds).await?;
        for _ in 0..3 {
            history.caught_up(&env.client).await?;
        }
        let start = std::time::Instant::now();
        for _ in 0..10 {
            history.caught_up(&env.client).await?;
        }
        assert!(start.elapsed() < Duration::from_secs(20));
        println!("caught up 10 times in {:?}", start.elapsed());
        history.stop(&env.client).await?;
        // The same objects by their older name.
        let events = vec![ApiResource::erase::<k8s_openapi::api::core::v1::Event>(&())];
        let history = ObjectHistory::start(&env.client, events).await?;
        history.caught_up(&env.client).await?;
        history.stop(&env.client).await?;
        let nodes = vec![ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&())];
        let unknown = ObjectHistory::start(&env.client, nodes).await;
        assert!(unknown.is_err_and(|error| error.to_string().contains("no marker")));
        Ok(())
    })
    .await
}
