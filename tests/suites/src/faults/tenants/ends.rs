//! Scenarios of Tenants that go.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{faults::scenario_run::Stage, suite};

use super::{bounds, create, delete, gone, inside, stands, work};

fn with(mut spec: Value, deletion: Value) -> Value {
    spec["deletion"] = deletion;
    spec
}

/// Deleted with everything.
pub(super) async fn removal(stage: &Stage) -> Result<()> {
    bounds::bare(stage).await?;
    delete(stage).await?;
    gone(stage, true).await
}

/// Two replicas: the leader is killed for good, then the Tenant is deleted. The other replica has seen the
/// namespace by its watch only, if it has seen it.
pub(super) async fn handover(stage: &Stage) -> Result<()> {
    bounds::bare(stage).await?;
    loop {
        if let Some(leader) = stage.operator_set.leader().await {
            stage.operator_set.kill_permanently(leader).await?;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    delete(stage).await?;
    gone(stage, true).await
}

/// Someone's finalizer holds its namespace past the deadline; then it is freed.
pub(super) async fn blocked(stage: &Stage) -> Result<()> {
    let deletion = json!({ "policy": "Delete", "deadline": "10s" });
    create(stage, with(bounds::bounds(), deletion)).await?;
    stands(stage, "Running", "").await?;
    let metadata = json!({ "name": "precious", "finalizers": ["example.com/backup"] });
    let maps: Api<ConfigMap> = inside(stage);
    suite::create(&maps, json!({ "metadata": metadata })).await?;
    delete(stage).await?;
    stands(stage, "Terminating", "DeletionBlocked").await?;
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    maps.patch("precious", &PatchParams::default(), &free)
        .await?;
    gone(stage, true).await
}

/// Deleted, and its namespace stays with a Redis at work; one of the same name gets it back.
pub(super) async fn retained(stage: &Stage) -> Result<()> {
    let mut spec = with(bounds::bounds(), json!({ "policy": "Retain" }));
    spec["redis"] = work::redis();
    create(stage, spec.clone()).await?;
    stands(stage, "Running", "").await?;
    delete(stage).await?;
    gone(stage, false).await?;
    create(stage, spec).await?;
    stands(stage, "Running", "").await
}
