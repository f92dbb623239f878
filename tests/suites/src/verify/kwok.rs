//! Many Jobs at once on fake nodes.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::fixture::typed;

const JOBS: usize = 1000;
const AT_ONCE: usize = 16;

pub(super) async fn thousand_jobs(env: Env) -> Result<String> {
    let jobs: Api<Job> = env.api();
    let start = Instant::now();
    stream::iter(0..JOBS)
        .map(async |index| {
            let job: Job = typed(json!({
                "metadata": {"name": format!("job-{index}")},
                "spec": {"backoffLimit": 0, "template": {"spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "none", "command": ["true"]}],
                }}},
            }))?;
            anyhow::Ok(jobs.create(&PostParams::default(), &job).await.map(drop)?)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let created = start.elapsed();
    until(
        "all Jobs to complete",
        Duration::from_secs(240),
        async || {
            tokio::time::sleep(Duration::from_secs(1)).await; // a list of 1,000 Jobs is not free
            let list = jobs.list(&ListParams::default()).await?;
            let complete = list.items.iter().filter(|job| is_complete(job)).count();
            Ok(met(complete == JOBS, || {
                format!("{complete} of {}", list.items.len())
            }))
        },
    )
    .await?;
    let took = start.elapsed();
    Ok(format!(
        "created in {:.0} s, all complete after {:.0} s, {:.0} a second",
        created.as_secs_f64(),
        took.as_secs_f64(),
        JOBS as f64 / took.as_secs_f64()
    ))
}

fn is_complete(job: &Job) -> bool {
    let conditions = job
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|list| {
        list.iter()
            .any(|condition| condition.type_ == "Complete" && condition.status == "True")
    })
}
