//! A Helm repository over plain HTTP, for source-controller: the charts of `testbed/charts`, packaged by helm.
//!
//! It blocks for less than a second.

use std::{
    fs,
    net::{IpAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{cluster::Cluster, git::Network, layout, parts, process};

/// The server listens within milliseconds on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(10);
/// `helm package` takes a tenth of a second.
const HELM_LIMIT: Duration = Duration::from_secs(60);

/// A packaged chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// Name of the chart, and of its directory.
    pub chart: &'static str,
    /// Version of the chart.
    pub version: &'static str,
    /// Version of the app in it.
    pub app_version: &'static str,
}

/// All packages of the repository.
///
/// - `shop` 1.0.0 works on its own data only; 2.0.0 migrates the data at each start; 3.0.0 migrates and then fails;
///   4.0.0 and 4.1.0 migrate in a `pre-upgrade` hook, which needs the database.
/// - `sleeper` has a hook of any duration. Both versions are the same.
/// - `store` has its data in a file: 1.0.0 and 1.1.0 work on their own data only; 2.0.0 migrates the data at each start;
///   3.0.0 migrates and then fails.
pub const PACKAGES: [Package; 11] = [
    package("shop", "1.0.0", "1"),
    package("shop", "2.0.0", "2"),
    package("shop", "3.0.0", "3"),
    package("shop", "4.0.0", "2"),
    package("shop", "4.1.0", "2"),
    package("sleeper", "1.0.0", "1"),
    package("sleeper", "2.0.0", "1"),
    package("store", "1.0.0", "1"),
    package("store", "1.1.0", "1"),
    package("store", "2.0.0", "2"),
    package("store", "3.0.0", "3"),
];

const fn package(chart: &'static str, version: &'static str, app_version: &'static str) -> Package {
    Package {
        chart,
        version,
        app_version,
    }
}

/// A Helm repository with [`PACKAGES`]. Dropping it stops the server and removes the packages.
#[derive(Debug)]
pub struct ChartServer {
    /// Value of `spec.url` of a HelmRepository.
    pub url: String,
    server: Child,
    // Fields are dropped in this order: the server first.
    _network: Network,
    _folder: TempDir,
}

impl ChartServer {
    /// Packages all charts and serves them on the node's address of a cluster.
    ///
    /// # Errors
    /// When a chart is invalid, or the server does not start; with the end of the log.
    pub fn in_cluster(cluster: &Cluster) -> Result<Self> {
        Self::start(Network::of(cluster)?)
    }

    fn start(network: Network) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("chart-server-")
            .tempdir()
            .context("cannot make a folder")?;
        let packages = folder.path().join("packages");
        fs::create_dir(&packages)?;
        for package in PACKAGES {
            let source = layout::testbed().join("charts").join(package.chart);
            let source = source.display().to_string();
            let destination = packages.display().to_string();
            let arguments = [
                "package",
                &source,
                "--version",
                package.version,
                "--app-version",
                package.app_version,
                "--destination",
                &destination,
            ];
            helm(folder.path(), &arguments)?;
        }
        helm(
            folder.path(),
            &["repo", "index", &packages.display().to_string()],
        )?;
        let address = network.address();
        // Another program may take the port before the server does. Then the start fails.
        let port = network
            .run(move || TcpListener::bind((address, 0)).and_then(|free| free.local_addr()))??
            .port();
        let mut serve = Command::new("busybox");
        serve
            .args(["httpd", "-f", "-p", &format!("{address}:{port}"), "-h"])
            .arg(&packages);
        let mut server = network.spawn(serve, &folder.path().join("httpd.log"))?;
        if let Err(error) = wait_until_it_listens(&network, (address, port), &mut server) {
            end(&mut server)?;
            let log = process::tail(&folder.path().join("httpd.log"));
            return Err(error.context(format!("the chart server does not start: {log}")));
        }
        Ok(Self {
            url: format!("http://{address}:{port}/"),
            server,
            _network: network,
            _folder: folder,
        })
    }
}

impl Drop for ChartServer {
    fn drop(&mut self) {
        match end(&mut self.server) {
            // The kernel kills the server when the thread of its network ends.
            Ok(()) | Err(_) => {}
        }
    }
}

fn end(server: &mut Child) -> Result<()> {
    server.kill()?;
    server.wait()?;
    Ok(())
}

/// Runs helm with directories of its own below `folder`.
fn helm(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(parts::binary("helm", "helm")?);
    command.args(arguments).env("HOME", folder);
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(name, folder.join("helm"));
    }
    process::run(&command, &folder.join("helm.log"), HELM_LIMIT, &mut |_| ())
}

fn wait_until_it_listens(
    network: &Network,
    address: (IpAddr, u16),
    server: &mut Child,
) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    while let Err(error) = network.run(move || TcpStream::connect(address))? {
        ensure!(server.try_wait()?.is_none(), "it ended");
        ensure!(Instant::now() < deadline, "it does not listen: {error}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_chart_of_the_testbed_is_packaged() {
        let charts = layout::testbed().join("charts");
        let folders: BTreeSet<String> = fs::read_dir(charts)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let packaged: BTreeSet<String> = PACKAGES
            .iter()
            .map(|package| package.chart.to_owned())
            .collect();
        assert_eq!(folders, packaged);
    }
}
