//! The code generated from `proto/`; see `build.rs`.

/// The Container Storage Interface.
#[allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::restriction,
    reason = "generated code"
)]
pub(crate) mod csi {
    tonic::include_proto!("csi.v1");
}

/// How a plugin makes itself known to the kubelet.
#[allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::restriction,
    reason = "generated code"
)]
pub(crate) mod pluginregistration {
    tonic::include_proto!("pluginregistration");
}
