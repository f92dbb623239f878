//! Submits beside creates, and submits beside silent connections.

use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use hyper::body::Bytes;
use serde_json::{Value, json};
use testkit::suite::Env;

use super::{
    callers,
    connection::{Call, Connections},
    stage,
    table::{Line, Target, add, median, median_ratio},
};
use crate::e2e::{
    gateway::{
        client::post,
        fixture::{Caller, Stage, new_run},
        server::{self, SILENT},
    },
    policies::fresh,
};

/// Number of callers. Each may send 20 requests per second.
const CALLERS: usize = 64;

/// Requests at once.
const CONCURRENCY: usize = 32;

/// Requests of one side in one round. A caller has 10 of them.
const PER_ROUND: usize = 640;

/// Rounds. In each one, both sides are measured one after the other.
const ROUNDS: usize = 8;

/// The receiver of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    ApiServer,
    Gateway,
}

/// Callers with connections to both sides.
struct Load {
    stage: Stage,
    callers: Vec<Caller>,
    api_server: Connections,
    gateway: Connections,
    /// A run as the gateway creates it.
    template: Value,
}

impl Load {
    async fn new(env: Env) -> Result<Self> {
        let stage = stage(env, "").await?;
        let callers = callers(&stage, CALLERS).await?;
        let first = callers.first().context("no caller")?;
        let call = post(stage.taskruns(), &new_run("template", "writer"));
        stage.send(first, call).await?.is(201)?;
        let template = fresh(&stage.run("template").await?, "template")?;
        Ok(Self {
            api_server: Connections::to_api_server(&stage).await?,
            gateway: Connections::to_gateway(&stage).await?,
            stage,
            callers,
            template,
        })
    }

    /// Creates a run. Both sides store the same object, except for its name.
    async fn create(&self, side: Side, name: &str, index: usize) -> Result<()> {
        let caller = self.callers.get(index % self.callers.len());
        let namespace = &self.stage.env.namespace;
        let (connections, path, body) = match side {
            Side::Gateway => {
                let mut body = new_run("template", "writer");
                body["name"] = json!(name);
                (&self.gateway, self.stage.taskruns(), body)
            }
            Side::ApiServer => {
                let mut body = self.template.clone();
                body["apiVersion"] = json!("orchestrator.io/v1");
                body["kind"] = json!("TaskRun");
                body["metadata"]["name"] = json!(name);
                let path = format!("/apis/orchestrator.io/v1/namespaces/{namespace}/taskruns");
                (&self.api_server, path, body)
            }
        };
        let call = Call {
            method: "POST",
            path: &path,
            accept: "application/json",
            caller: caller.context("no caller")?,
            body: Bytes::from(body.to_string()),
        };
        connections.send(&call, 201).await?;
        Ok(())
    }

    /// Creates runs at this concurrency. Returns how many it created per second.
    async fn rate(&self, side: Side, prefix: &str) -> Result<f64> {
        let begin = Instant::now();
        let one = async |index: usize| -> Result<()> {
            self.create(side, &format!("{prefix}-{index}"), index).await
        };
        stream::iter(0..PER_ROUND)
            .map(one)
            .buffer_unordered(CONCURRENCY)
            .try_collect::<()>()
            .await?;
        Ok(PER_ROUND as f64 / begin.elapsed().as_secs_f64())
    }
}

/// Submits through the gateway, beside creates of the same objects with the same client.
pub(super) async fn submits(env: Env) -> Result<String> {
    let load = Load::new(env).await?;
    // The first requests of a caller cost more: its name is asked for.
    load.rate(Side::Gateway, "warm-gateway").await?;
    load.rate(Side::ApiServer, "warm-bare").await?;
    let mut rounds = Vec::new();
    for number in 0..ROUNDS {
        let bare = format!("bare-{number}");
        let through = format!("gateway-{number}");
        // Each side is first as often as the other.
        let (bare, gateway) = match number % 2 {
            0 => {
                let bare = load.rate(Side::ApiServer, &bare).await?;
                (bare, load.rate(Side::Gateway, &through).await?)
            }
            _ => {
                let gateway = load.rate(Side::Gateway, &through).await?;
                (load.rate(Side::ApiServer, &bare).await?, gateway)
            }
        };
        rounds.push((bare, gateway));
    }
    load.stage.done().await?;
    add(&[line("submits at concurrency 32", &rounds)])
}

/// Submits without and with 2,000 connections that say nothing.
pub(super) async fn silent(env: Env) -> Result<String> {
    server::raise_descriptors()?;
    let load = Load::new(env).await?;
    load.rate(Side::Gateway, "warm").await?;
    let mut rounds = Vec::new();
    for number in 0..ROUNDS / 2 {
        let calm = load.rate(Side::Gateway, &format!("calm-{number}")).await?;
        let mut held = server::hold_silent(&load.stage, SILENT).await?;
        let beside = load
            .rate(Side::Gateway, &format!("beside-{number}"))
            .await?;
        held.shutdown().await;
        rounds.push((calm, beside));
    }
    load.stage.done().await?;
    add(&[line("submits beside 2,000 silent connections", &rounds)])
}

fn line(measurement: &'static str, rounds: &[(f64, f64)]) -> Line {
    let (reference, gateway): (Vec<f64>, Vec<f64>) = rounds.iter().copied().unzip();
    Line {
        measurement,
        reference: format!("{:.0}/s", median(&reference)),
        gateway: format!("{:.0}/s", median(&gateway)),
        value: median_ratio(rounds),
        target: Target::AtLeast(0.9),
    }
}
