//! A door that agents wait at, which also tells who knocked.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::fixture::{Bench, LIMIT};

/// What is on its way when somebody asks who knocked is there within this time.
const LAST_KNOCK: Duration = Duration::from_millis(300);

/// A port of the node that says nothing. Who connects to it waits until it is dropped.
pub(super) struct Gate {
    listener: TcpListener,
    waiting: Vec<TcpStream>,
    /// `ADDRESS:PORT`.
    pub(super) place: String,
}

impl Gate {
    pub(super) fn new(bench: &Bench) -> Result<Self> {
        let network = bench.plan.network.as_ref().context("no network")?;
        let address = network.address();
        let listener = network.run(move || std::net::TcpListener::bind((address, 0)))??;
        listener.set_nonblocking(true)?;
        Ok(Self {
            place: listener.local_addr()?.to_string(),
            listener: TcpListener::from_std(listener)?,
            waiting: Vec::new(),
        })
    }

    /// A line of an agent's script.
    pub(super) fn line(&self) -> String {
        format!("nc {} </dev/null || true\n", self.place.replace(':', " "))
    }

    /// Waits until so many more are at the door.
    pub(super) async fn arrived(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let (stream, _) = timeout(LIMIT, self.listener.accept())
                .await
                .context("nobody came to the gate")??;
            self.waiting.push(stream);
        }
        Ok(())
    }

    /// Lets all go on, also those that come later.
    pub(super) fn open(self) {
        drop(self);
    }

    /// How many knocked who were not waited for.
    pub(super) async fn knocks(&self) -> Result<usize> {
        let mut count = 0;
        while let Ok(knocked) = timeout(LAST_KNOCK, self.listener.accept()).await {
            knocked?;
            count += 1;
        }
        Ok(count)
    }
}
