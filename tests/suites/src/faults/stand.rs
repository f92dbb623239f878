//! One cluster, with everything that the plays of some operators need.

use std::{path::PathBuf, sync::Arc};

use anyhow::Result;
use kube::core::ApiResource;
use testbed::{commands::announce, operator_image};
use testkit::{
    charts::ChartServer,
    cluster::{Addition, Cluster, Tier, apply},
    faults::{
        object_history::ObjectHistory,
        scenario_run::{Scenario, Theatre},
        side_effect_log::SideEffectLog,
    },
    git::{Network, Server},
    operator::{self, Plan},
};

use super::tested_operator::TestedOperator;

/// A scenario and the theatre of its operator.
pub(super) type Cast = (Arc<Theatre>, Arc<dyn Scenario>);

/// What scenarios need beside the cluster.
pub(super) struct Services {
    pub(super) git: Arc<Server>,
    /// The charts, if an operator needs Flux.
    pub(super) charts: Option<Arc<ChartServer>>,
}

/// A cluster on which scenarios of these operators are played.
pub(super) struct Stand {
    pub(super) cluster: Cluster,
    pub(super) operators: Vec<OperatorScenarios>,
}

/// The scenarios of one operator.
pub(super) struct OperatorScenarios {
    pub(super) tested: &'static TestedOperator,
    pub(super) scenarios: Vec<Cast>,
    /// Those that are played for mutants only.
    pub(super) slow: Vec<Cast>,
}

impl Stand {
    /// Starts a cluster; its operators are processes of this binary.
    pub(super) async fn start(
        operators: &[&'static TestedOperator],
        binary: PathBuf,
    ) -> Result<Self> {
        let name = format!("faults-{}", std::process::id());
        let mut cluster = Cluster::start(&name, Tier::Node).await?;
        announce(&cluster);
        let opened = match cluster.add(&additions(operators)).await {
            Ok(()) => open(&cluster, operators, binary).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(operators) => Ok(Self { cluster, operators }),
            Err(error) => {
                cluster.stop().await?;
                Err(error)
            }
        }
    }

    /// All scenarios of a whole campaign.
    pub(super) fn scenarios(&self) -> impl Iterator<Item = &Cast> {
        self.operators.iter().flat_map(|one| &one.scenarios)
    }

    /// Ends the object history and the Git server; the cluster goes on.
    pub(super) fn close(self) -> Cluster {
        drop(self.operators);
        self.cluster
    }

    /// Ends all of it.
    pub(super) async fn stop(self) -> Result<()> {
        self.close().stop().await
    }
}

/// Returns everything that one of these operators needs in the cluster.
fn additions(operators: &[&'static TestedOperator]) -> Vec<Addition> {
    let is_needed = |one: &Addition| {
        let mut operators = operators.iter();
        operators.any(|tested| tested.additions.contains(one))
    };
    Addition::ALL.into_iter().filter(is_needed).collect()
}

async fn open(
    cluster: &Cluster,
    operators: &[&'static TestedOperator],
    binary: PathBuf,
) -> Result<Vec<OperatorScenarios>> {
    operator_image::load_toolbox(cluster).await?;
    let (client, config) = (cluster.client().await?, cluster.config().await?);
    let mut watched: Vec<ApiResource> = Vec::new();
    for tested in operators {
        operator::install(&client, tested.row.crds()).await?;
        for object in (tested.beside)() {
            apply(&client, "default", &object.to_string()).await?;
        }
        let more = (tested.watched)().into_iter();
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
    let has_flux = additions(operators).contains(&Addition::Flux);
    let charts = match has_flux {
        true => Some(Arc::new(ChartServer::in_cluster(cluster)?)),
        false => None,
    };
    let services = Services {
        git: Arc::new(Server::in_cluster(cluster)?),
        charts,
    };
    let of_operator = |tested: &'static TestedOperator| {
        let theatre = Arc::new(Theatre {
            client: client.clone(),
            config: config.clone(),
            network: Arc::clone(&network),
            history: Arc::clone(&history),
            side_effects: Arc::clone(&side_effects),
            watched: (tested.watched)(),
            selected: tested.selected,
            audit: cluster.audit(),
            logs: cluster.folders.logs.join("plays"),
            operator: Plan::new(binary.clone(), tested.row, ""),
        });
        let cast = |scenarios: Vec<Arc<dyn Scenario>>| -> Vec<Cast> {
            let all = scenarios.into_iter();
            all.map(|one| (Arc::clone(&theatre), one)).collect()
        };
        OperatorScenarios {
            tested,
            scenarios: cast((tested.scenarios)(&services)),
            slow: cast((tested.slow)(&services)),
        }
    };
    Ok(operators.iter().copied().map(of_operator).collect())
}
