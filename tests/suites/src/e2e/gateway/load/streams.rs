//! Many streams of several callers: watches, the time until a change arrives, and memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::tasks::TaskRun;
use serde_json::{Value, json};
use testkit::suite::{Env, create};
use tokio::{task::JoinSet, time::sleep};

use super::{
    callers, stage,
    table::{Line, Target, add, median, quantile},
};
use crate::e2e::gateway::{client::get, fixture::Stage, sse::EventStream};

const CALLERS: usize = 20;

/// Streams of each caller. The limit is raised from 8 to 10.
const PER_CALLER: usize = 10;
const LINES: &str = "  streamsPerCaller: 10\n";

/// Runs that exist before the streams.
const RUNS: usize = 100;

/// Changes, each of which every stream must get.
const CHANGES: usize = 10;

/// Time between two changes.
const PAUSE: Duration = Duration::from_secs(1);

/// Time in which the processes become quiet after the snapshots.
const SETTLE: Duration = Duration::from_secs(5);

/// Opens the streams, and changes runs.
pub(super) async fn streams(env: Env) -> Result<String> {
    let audit = env.testbed("the audit log")?.audit();
    let stage = stage(env, LINES).await?;
    let callers = callers(&stage, CALLERS).await?;
    for number in 0..RUNS {
        create(&stage.runs(), run(&format!("run-{number}"), number)).await?;
    }
    let namespace = &stage.env.namespace;
    let path = format!("/api/v1/runs/stream?namespace={namespace}&kind=taskruns");
    sleep(SETTLE).await;
    let before = stage.gateway.operator.memory_mib("VmRSS")?;
    let mark = audit.mark(&stage.env.client).await?;
    let mut opened = Vec::new();
    for caller in &callers {
        for _ in 0..PER_CALLER {
            let call = get(path.clone()).by(&caller.token);
            let mut stream = EventStream::open(&stage.gateway.https, &call).await?;
            stream.until(|event| event.name == "live").await?;
            opened.push(stream);
        }
    }
    let count = opened.len();
    ensure!(count == CALLERS * PER_CALLER, "{count} streams");
    let entries = audit.entries(&stage.env.client, mark).await?;
    let watches = entries.iter().filter(|entry| {
        let request = &entry.request;
        let is_caller = callers.iter().any(|caller| caller.user == request.user);
        is_caller && request.verb == "watch"
    });
    let watches = watches.count();
    sleep(SETTLE).await;
    let growth = stage.gateway.operator.memory_mib("VmRSS")? - before;
    let delays = delays(&stage, opened).await?;
    ensure!(
        delays.len() == CHANGES * count,
        "{} changes arrived",
        delays.len()
    );
    stage.done().await?;
    let slowest = quantile(&delays, 1.0);
    add(&[
        Line {
            measurement: "watches for 200 streams of 20 callers",
            reference: format!("{CALLERS} callers"),
            gateway: format!("{watches} watches"),
            value: watches as f64,
            target: Target::Exactly(20.0),
        },
        Line {
            measurement: "seconds until a change is at all 200 streams, p99",
            reference: format!("{CHANGES} changes"),
            gateway: format!("median {:.3} s, slowest {slowest:.3} s", median(&delays)),
            value: quantile(&delays, 0.99),
            target: Target::AtMost(1.0),
        },
        Line {
            measurement: "KiB of memory per stream",
            reference: format!("{before:.1} MiB without streams"),
            gateway: format!("{growth:.1} MiB more"),
            value: growth * 1024.0 / count as f64,
            target: Target::AtMost(64.0),
        },
    ])
}

fn run(name: &str, number: usize) -> Value {
    json!({
        "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "metadata": { "name": name },
        "spec": {
            "taskId": number + 1, "serviceName": "load", "agentName": "writer", "suspend": true,
            "markdownFiles": [{ "filename": "task.md", "content": "Wait." }],
        },
    })
}

/// Creates runs one after another. Returns the seconds from the begin of each creation until each stream had it.
async fn delays(stage: &Stage, opened: Vec<EventStream>) -> Result<Vec<f64>> {
    let mut readers = JoinSet::new();
    for stream in opened {
        readers.spawn(arrivals(stream));
    }
    let mut begun = Vec::new();
    for number in 0..CHANGES {
        sleep(PAUSE).await;
        begun.push(Instant::now());
        let name = format!("change-{number}");
        create::<TaskRun>(&stage.runs(), run(&name, RUNS + number)).await?;
    }
    let mut delays = Vec::new();
    while let Some(read) = readers.join_next().await {
        for (begin, arrived) in begun.iter().zip(read??) {
            delays.push(arrived.saturating_duration_since(*begin).as_secs_f64());
        }
    }
    Ok(delays)
}

/// Reads a stream until its last change. Returns when each of them arrived.
async fn arrivals(mut stream: EventStream) -> Result<Vec<Instant>> {
    let mut arrivals = Vec::new();
    for number in 0..CHANGES {
        let name = format!("change-{number}");
        let events = stream.until(|event| event.data["name"] == name.as_str());
        let events = events.await.with_context(|| name.clone())?;
        ensure!(
            events.iter().all(|event| event.name == "put"),
            "{events:?} before '{name}'"
        );
        arrivals.push(Instant::now());
    }
    Ok(arrivals)
}
