//! The CSI Identity service.

use std::{collections::HashMap, sync::Arc};

use tonic::{Request, Response, Status};

use crate::{
    driver::Driver,
    proto::csi::{
        GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
        GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse, identity_server,
        plugin_capability::{self, service},
    },
};

#[derive(Debug)]
pub(crate) struct Identity(pub(crate) Arc<Driver>);

#[tonic::async_trait]
impl identity_server::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.0.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: HashMap::new(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        use service::Type;
        let capabilities = [
            Type::ControllerService,
            Type::VolumeAccessibilityConstraints,
        ]
        .map(|kind| PluginCapability {
            r#type: Some(plugin_capability::Type::Service(
                plugin_capability::Service {
                    r#type: kind.into(),
                },
            )),
        })
        .to_vec();
        Ok(Response::new(GetPluginCapabilitiesResponse {
            capabilities,
        }))
    }

    /// Ready is who still has a btrfs below: an unmounted root would let volumes appear on the disk below it.
    async fn probe(
        &self,
        _request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        self.0
            .pool
            .check()
            .map_err(|error| Status::failed_precondition(format!("{error:#}")))?;
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
