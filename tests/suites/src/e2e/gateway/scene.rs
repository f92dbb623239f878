//! A gateway beside an operator that runs what callers submit.

use anyhow::{Context, Result};
use serde_json::Value;
use testkit::suite::Env;

use super::{
    client::{Answer, Call, action, get},
    fixture::{Caller, Stage},
};
use crate::e2e::{fixture::Fixture, tasks::Tasks};

/// An agent that runs until it is stopped.
pub(super) const BUSY: &str = "trap 'exit 143' TERM; echo started; sleep 300 & wait";

/// An agent that ends soon.
pub(super) const QUICK: &str = "echo first; sleep 1; echo second; sleep 1";

/// An operator, a gateway, and a caller that may submit.
pub(super) struct Scene {
    pub(super) bench: Fixture<Tasks>,
    pub(super) stage: Stage,
    pub(super) ann: Caller,
}

impl Scene {
    pub(super) async fn new(env: Env) -> Result<Self> {
        let bench = Box::pin(Fixture::new(env.clone())).await?;
        let stage = Box::pin(Stage::new(env)).await?;
        let ann = stage.editor("ann").await?;
        Ok(Self { bench, stage, ann })
    }

    /// Sends a request of the caller.
    pub(super) async fn send(&self, call: Call) -> Result<Answer> {
        self.stage.send(&self.ann, call).await
    }

    /// Performs an action on a run.
    pub(super) async fn act(&self, name: &str, what: &str) -> Result<Answer> {
        self.send(action(self.stage.at(name, what))).await
    }

    /// Performs an action that must succeed. Returns whether it changed the run.
    pub(super) async fn changes(&self, name: &str, what: &str) -> Result<bool> {
        let body = self.act(name, what).await?.is(200)?;
        body["changed"].as_bool().context("no word of a change")
    }

    /// Reads a part of a run.
    pub(super) async fn read(&self, name: &str, part: &str) -> Result<Answer> {
        self.send(get(self.stage.at(name, part))).await
    }

    /// Reads the run.
    pub(super) async fn run(&self, name: &str) -> Result<Value> {
        let body = self.read(name, "").await?.is(200)?;
        Ok(body["run"].clone())
    }

    /// Ends both processes, which must end well.
    pub(super) async fn done(self) -> Result<()> {
        let Self { bench, stage, .. } = self;
        stage.done().await?;
        Box::pin(bench.done()).await
    }
}
