//! The list of many runs, beside the list of the API server in the same format.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::tasks::TaskRun;
use futures::{StreamExt, TryStreamExt, stream};
use hyper::body::Bytes;
use kube::{Api, api::PostParams};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use testkit::suite::Env;

use super::{
    callers,
    connection::{Call, Connections},
    size, stage,
    table::{Line, Target, add, median, median_ratio},
};
use crate::e2e::gateway::fixture::{Caller, Stage};

/// Runs that are created at once.
const AT_ONCE: usize = 16;

/// Rounds. In each one, both sides are measured one after the other.
const ROUNDS: usize = 9;

/// Number of runs on a page of the API server, as the gateway reads them.
const CHUNK: usize = 1000;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A page of the API server, of which a client reads only the number of rows and the position of the next page.
#[derive(Deserialize)]
struct Page {
    metadata: Metadata,
    rows: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Lists the runs of a namespace.
pub(super) async fn list(env: Env) -> Result<String> {
    let count = size()?.runs;
    let stage = stage(env, "").await?;
    let callers = callers(&stage, 1).await?;
    let caller = callers.first().context("no caller")?;
    create(&stage, count).await?;
    let api_server = Connections::to_api_server(&stage).await?;
    let gateway = Connections::to_gateway(&stage).await?;
    bare(&stage, &api_server, caller, count).await?;
    through(&stage, &gateway, caller, count).await?;
    let mut rounds = Vec::new();
    for number in 0..ROUNDS {
        // Each side is first about as often as the other.
        rounds.push(match number % 2 {
            0 => {
                let bare = bare(&stage, &api_server, caller, count).await?;
                (bare, through(&stage, &gateway, caller, count).await?)
            }
            _ => {
                let through = through(&stage, &gateway, caller, count).await?;
                (bare(&stage, &api_server, caller, count).await?, through)
            }
        });
    }
    let memory = stage.gateway.operator.memory_mib("VmHWM")?;
    stage.done().await?;
    let (reference, gateway): (Vec<f64>, Vec<f64>) = rounds.iter().copied().unzip();
    add(&[Line {
        measurement: "list of all runs",
        reference: format!("{count} runs in {:.2} s", median(&reference)),
        gateway: format!("{:.2} s, {memory:.0} MiB at most", median(&gateway)),
        value: median_ratio(&rounds),
        target: Target::AtMost(1.5),
    }])
}

/// Creates suspended runs with a file of 4 KiB.
async fn create(stage: &Stage, count: usize) -> Result<()> {
    let runs: Api<TaskRun> = stage.runs();
    let content = "0123456789abcdef".repeat(256);
    let one = async |number: usize| -> Result<()> {
        let run = json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": format!("listed-{number}") },
            "spec": {
                "taskId": number + 1, "serviceName": "load", "agentName": "writer", "suspend": true,
                "markdownFiles": [{ "filename": "task.md", "content": content }],
            },
        });
        let run: TaskRun = serde_json::from_value(run)?;
        runs.create(&PostParams::default(), &run).await?;
        Ok(())
    };
    stream::iter(0..count)
        .map(one)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
}

/// Lists directly. Returns the seconds that it took.
async fn bare(
    stage: &Stage,
    connections: &Connections,
    caller: &Caller,
    count: usize,
) -> Result<f64> {
    let namespace = &stage.env.namespace;
    let path = format!(
        "/apis/orchestrator.io/v1/namespaces/{namespace}/taskruns?includeObject=Metadata&limit={CHUNK}"
    );
    let begin = Instant::now();
    let (mut found, mut next) = (0, String::new());
    loop {
        let path = match next.as_str() {
            "" => path.clone(),
            // A position is text of base64url.
            next => format!("{path}&continue={next}"),
        };
        let call = Call {
            method: "GET",
            path: &path,
            accept: TABLE,
            caller,
            body: Bytes::new(),
        };
        let page: Page = serde_json::from_slice(&connections.send(&call, 200).await?)?;
        found += page.rows.len();
        next = page.metadata.next;
        if next.is_empty() {
            break;
        }
    }
    let took = begin.elapsed().as_secs_f64();
    ensure!(found == count, "{found} of {count} runs");
    Ok(took)
}

/// Lists through the gateway, which reads all runs and returns the newest ones. Returns the seconds that it took.
async fn through(
    stage: &Stage,
    connections: &Connections,
    caller: &Caller,
    count: usize,
) -> Result<f64> {
    let namespace = &stage.env.namespace;
    let path = format!("/api/v1/runs?namespace={namespace}&kind=taskruns&limit={CHUNK}");
    let call = Call {
        method: "GET",
        path: &path,
        accept: "application/json",
        caller,
        body: Bytes::new(),
    };
    let begin = Instant::now();
    let page = connections.send(&call, 200).await?;
    let took = begin.elapsed().as_secs_f64();
    let page: Value = serde_json::from_slice(&page)?;
    let found = page["items"].as_array().map_or(0, Vec::len);
    let wanted = count.min(CHUNK);
    ensure!(found == wanted, "{found} of {wanted} runs on the page");
    ensure!(
        page["cursor"].is_string() == (count > CHUNK),
        "the page does not name the next one"
    );
    Ok(took)
}
