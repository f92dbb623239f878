//! The parts that tests rely on: the cluster, the Git server, the fault proxy, the object history.

mod cluster;
mod git;
mod object_history;
mod proxy;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

/// An empty ConfigMap.
fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}
