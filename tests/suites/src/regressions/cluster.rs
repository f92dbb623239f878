//! The cluster of the tests that need a real API server.

use std::process::Command;

use anyhow::Result;
use testbed::commands::{announce, require_root, runtime};
use testkit::{
    cluster::{Cluster, SUITES_VARIABLE, Tier},
    suite::{self, Place},
};
use tokio::runtime::Runtime;

/// A started API server, or the contributor's own cluster.
pub(super) struct TestCluster {
    run: String,
    runtime: Runtime,
    cluster: Option<Cluster>,
}

impl TestCluster {
    /// Starts a cluster of the tier `api`.
    pub(super) fn start() -> Result<Self> {
        require_root()?;
        let (run, runtime) = (format!("regressions-{}", std::process::id()), runtime()?);
        let cluster = match Place::external() {
            Some(external) => {
                runtime.block_on(external.check())?;
                None
            }
            None => {
                let name = suite::shared_name(&run, Tier::Api);
                let cluster = runtime.block_on(Cluster::start(&name, Tier::Api))?;
                announce(&cluster);
                Some(cluster)
            }
        };
        Ok(Self {
            run,
            runtime,
            cluster,
        })
    }

    /// Tells tests where the cluster is. A test that cannot run there fails.
    pub(super) fn set(&self, command: &mut Command) -> Result<()> {
        command
            .env(SUITES_VARIABLE, testkit::process::this_program()?)
            .env(suite::RUN_VARIABLE, &self.run)
            .env_remove(suite::SKIPPED_VARIABLE);
        Ok(())
    }

    /// Stops the cluster.
    pub(super) fn stop(self) -> Result<()> {
        match self.cluster {
            Some(cluster) => self.runtime.block_on(cluster.stop()),
            None => Ok(()),
        }
    }
}
