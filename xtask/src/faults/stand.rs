//! One cluster, with everything that the plays of some families need.

use std::{path::PathBuf, sync::Arc};

use anyhow::Result;
use kube::core::ApiResource;
use testkit::{
    cluster::{Cluster, Tier, apply},
    faults::{
        object_history::ObjectHistory,
        scenario_run::{Scenario, Theatre},
        side_effect_log::SideEffectLog,
    },
    git::{Network, Server},
    operator,
};

use super::family::Family;
use crate::{image, testbed::announce};

/// A scenario and the theatre of its family.
pub(super) type Cast = (Arc<Theatre>, Arc<dyn Scenario>);

/// A cluster on which scenarios of these families are played.
pub(super) struct Stand {
    pub(super) cluster: Cluster,
    pub(super) families: Vec<OfFamily>,
}

/// The scenarios of one family.
pub(super) struct OfFamily {
    pub(super) family: &'static Family,
    pub(super) scenarios: Vec<Cast>,
    /// Those that are played for mutants only.
    pub(super) slow: Vec<Cast>,
}

impl Stand {
    /// Starts a cluster; its operators are processes of this binary.
    pub(super) async fn start(families: &[&'static Family], binary: PathBuf) -> Result<Self> {
        let name = format!("faults-{}", std::process::id());
        let cluster = Cluster::start(&name, Tier::Node).await?;
        announce(&cluster);
        match open(&cluster, families, binary).await {
            Ok(families) => Ok(Self { cluster, families }),
            Err(error) => {
                cluster.stop().await?;
                Err(error)
            }
        }
    }

    /// All scenarios of a whole campaign.
    pub(super) fn scenarios(&self) -> impl Iterator<Item = &Cast> {
        self.families.iter().flat_map(|one| &one.scenarios)
    }

    /// Ends the object history and the Git server; the cluster goes on.
    pub(super) fn close(self) -> Cluster {
        drop(self.families);
        self.cluster
    }

    /// Ends all of it.
    pub(super) async fn stop(self) -> Result<()> {
        self.close().stop().await
    }
}

async fn open(
    cluster: &Cluster,
    families: &[&'static Family],
    binary: PathBuf,
) -> Result<Vec<OfFamily>> {
    image::load_toolbox(cluster).await?;
    let (client, config) = (cluster.client().await?, cluster.config().await?);
    let mut watched: Vec<ApiResource> = Vec::new();
    for family in families {
        operator::install(&client, (family.definitions)()).await?;
        for object in (family.beside)() {
            apply(&client, "default", &object.to_string()).await?;
        }
        let more = (family.watched)().into_iter();
        for resource in more {
            // One watch for all: each of its objects is kept once, and forgotten with its play.
            if !watched.contains(&resource) {
                watched.push(resource);
            }
        }
    }
    let network = Arc::new(Network::of(cluster)?);
    let address = network.address();
    let listener = network.run(move || std::net::TcpListener::bind((address, 0)))??;
    let history = Arc::new(ObjectHistory::start(&client, watched).await?);
    let side_effects = Arc::new(SideEffectLog::start(listener)?);
    let git = Arc::new(Server::in_cluster(cluster)?);
    let of_family = |family: &'static Family| {
        let theatre = Arc::new(Theatre {
            client: client.clone(),
            config: config.clone(),
            network: Arc::clone(&network),
            history: Arc::clone(&history),
            side_effects: Arc::clone(&side_effects),
            watched: (family.watched)(),
            selected: family.selected,
            audit: cluster.audit(),
            logs: cluster.folders.logs.join("plays"),
            operator: operator::Plan {
                binary: binary.clone(),
                family: family.name,
                home: String::new(),
                watched: Vec::new(),
                config: String::new(),
                permissions: (family.permissions)(),
                network: None,
                endpoint: None,
                environment: Vec::new(),
            },
        });
        let cast = |scenarios: Vec<Arc<dyn Scenario>>| -> Vec<Cast> {
            let all = scenarios.into_iter();
            all.map(|one| (Arc::clone(&theatre), one)).collect()
        };
        OfFamily {
            family,
            scenarios: cast((family.scenarios)(&git)),
            slow: cast((family.slow)(&git)),
        }
    };
    Ok(families.iter().copied().map(of_family).collect())
}
