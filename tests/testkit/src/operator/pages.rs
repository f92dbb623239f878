//! The HTTP endpoints of a running operator: probes and metrics.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::git::Network;

/// What an operator shows by HTTP.
#[derive(Debug, Clone)]
pub struct Pages {
    pub(super) probe_address: SocketAddr,
    pub(super) metrics_address: SocketAddr,
    pub(super) network: Option<Arc<Network>>,
}

impl Pages {
    /// Gets one: code and text.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn page(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = self.connect(path).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        tokio::time::timeout(Duration::from_secs(5), stream.read_to_string(&mut answer)).await??;
        let code = answer.split(' ').nth(1).context("no answer")?.parse()?;
        let (_, text) = answer.split_once("\r\n\r\n").context("no text")?;
        Ok((code, text.to_owned()))
    }

    async fn connect(&self, path: &str) -> Result<TcpStream> {
        let address = match path {
            "/metrics" => self.metrics_address,
            _ => self.probe_address,
        };
        let Some(network) = &self.network else {
            return Ok(TcpStream::connect(address).await?);
        };
        let stream = network.run(move || std::net::TcpStream::connect(address))??;
        stream.set_nonblocking(true)?;
        Ok(TcpStream::from_std(stream)?)
    }

    /// All metrics, as text.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<String> {
        let (code, text) = self.page("/metrics").await?;
        ensure!(code == 200, "/metrics answered {code}");
        Ok(text)
    }

    /// The value of one series, written as on the page; 0 if it is not there.
    ///
    /// # Errors
    /// When it does not answer, or says no number.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        let text = self.metrics().await?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        match line {
            None => Ok(0.0),
            Some(value) => value
                .trim()
                .parse()
                .with_context(|| format!("'{series}' is '{value}'")),
        }
    }

    /// Whether it leads, by its own metric.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn is_leading(&self) -> Result<bool> {
        Ok(self.metric("orchestrator_leader").await? > 0.5)
    }
}
