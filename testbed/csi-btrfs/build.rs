//! Generates the gRPC server code from `proto/`, with a protobuf compiler in Rust: no `protoc` is needed.

use std::{error::Error, io::Write as _};

const PROTOS: [&str; 2] = ["proto/csi.proto", "proto/pluginregistration.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    tonic_prost_build::configure()
        .build_client(false)
        .generate_default_stubs(true)
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    for proto in PROTOS {
        writeln!(std::io::stdout(), "cargo::rerun-if-changed={proto}")?;
    }
    Ok(())
}
