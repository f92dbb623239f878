//! The service by which the kubelet finds the driver.

use std::path::PathBuf;

use tonic::{Request, Response, Status};

use crate::{
    proto::pluginregistration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_server,
    },
    report,
};

#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) name: String,
    pub(crate) endpoint: PathBuf,
}

#[tonic::async_trait]
impl registration_server::Registration for Registration {
    async fn get_info(
        &self,
        _request: Request<InfoRequest>,
    ) -> Result<Response<PluginInfo>, Status> {
        let endpoint = self.endpoint.to_str().ok_or_else(|| {
            Status::internal(format!(
                "the endpoint must be UTF-8 to be sent, found {:?}",
                self.endpoint
            ))
        })?;
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: self.name.clone(),
            endpoint: endpoint.to_owned(),
            // The version of the CSI API that the kubelet asks for, not of the specification.
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    /// The kubelet tries again by itself, so a refusal is told and not acted upon.
    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus {
            plugin_registered,
            error,
        } = request.into_inner();
        if plugin_registered {
            report::line(format_args!(
                "csi-btrfs: the kubelet registered {}",
                self.name
            ));
        } else {
            report::line(format_args!(
                "csi-btrfs: the kubelet refused {}: {error}",
                self.name
            ));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
