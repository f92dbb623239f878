//! The endpoints of Services.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use serde::{Deserialize, Serialize};

/// Number of endpoints of a Service, from one slice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointsView {
    /// The name of the Service.
    pub service: String,
    /// The number of ready endpoints.
    pub ready: usize,
    /// The number of endpoints that are not ready.
    pub not_ready: usize,
}

impl From<&EndpointSlice> for EndpointsView {
    fn from(slice: &EndpointSlice) -> Self {
        let is_ready = |endpoint: &&Endpoint| {
            let conditions = endpoint.conditions.as_ref();
            conditions.and_then(|known| known.ready) == Some(true)
        };
        let labels = slice.metadata.labels.as_ref();
        let service = labels.and_then(|labels| labels.get("kubernetes.io/service-name"));
        let ready = slice.endpoints.iter().filter(is_ready).count();
        Self {
            service: service.cloned().unwrap_or_default(),
            ready,
            not_ready: slice.endpoints.len().saturating_sub(ready),
        }
    }
}
