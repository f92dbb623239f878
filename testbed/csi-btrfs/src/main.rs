//! A small single-node CSI driver for the test cluster: a volume is a btrfs subvolume with a quota, a snapshot a
//! read-only btrfs snapshot. `README.md` says what it guarantees and what not.

mod args;
mod btrfs;
mod clock;
mod controller;
mod driver;
mod identity;
mod mounts;
mod node;
mod proto;
mod registration;
mod report;
mod request;
mod server;
mod store;

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    match server::run(args::Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::line(format_args!("csi-btrfs: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
